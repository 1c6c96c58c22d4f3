//! Kafka's error codes. Source: the Kafka protocol guide, "Error Codes".

/// An error code in an answer; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub i16);

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// Try again later.
    Retry,
    /// Find out who leads the partition (or coordinates the group) now, then try again.
    Relocate,
    /// Trying again does not help.
    Fail,
    /// Trying again does not help, and neither does anything else in this trial.
    Pointless,
}

/// (code, name, remedy). Codes of APIs that this client does not use are there for their names.
const CODES: &[(i16, &str, Remedy)] = {
    use Remedy::{Fail, Pointless, Relocate, Retry};
    &[
        (-1, "UNKNOWN_SERVER_ERROR", Fail),
        (0, "NONE", Fail),
        (1, "OFFSET_OUT_OF_RANGE", Fail),
        (2, "CORRUPT_MESSAGE", Retry),
        (3, "UNKNOWN_TOPIC_OR_PARTITION", Relocate),
        (4, "INVALID_FETCH_SIZE", Fail),
        (5, "LEADER_NOT_AVAILABLE", Relocate),
        (6, "NOT_LEADER_OR_FOLLOWER", Relocate),
        (7, "REQUEST_TIMED_OUT", Retry),
        (8, "BROKER_NOT_AVAILABLE", Relocate),
        (9, "REPLICA_NOT_AVAILABLE", Relocate),
        (10, "MESSAGE_TOO_LARGE", Fail),
        (11, "STALE_CONTROLLER_EPOCH", Retry),
        (12, "OFFSET_METADATA_TOO_LARGE", Fail),
        (13, "NETWORK_EXCEPTION", Relocate),
        (14, "COORDINATOR_LOAD_IN_PROGRESS", Retry),
        (15, "COORDINATOR_NOT_AVAILABLE", Relocate),
        (16, "NOT_COORDINATOR", Relocate),
        (17, "INVALID_TOPIC_EXCEPTION", Pointless),
        (18, "RECORD_LIST_TOO_LARGE", Fail),
        (19, "NOT_ENOUGH_REPLICAS", Retry),
        (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", Retry),
        (21, "INVALID_REQUIRED_ACKS", Pointless),
        (22, "ILLEGAL_GENERATION", Fail),
        (24, "INVALID_GROUP_ID", Fail),
        (25, "UNKNOWN_MEMBER_ID", Fail),
        (27, "REBALANCE_IN_PROGRESS", Retry),
        (28, "INVALID_COMMIT_OFFSET_SIZE", Fail),
        (29, "TOPIC_AUTHORIZATION_FAILED", Pointless),
        (30, "GROUP_AUTHORIZATION_FAILED", Fail),
        (31, "CLUSTER_AUTHORIZATION_FAILED", Pointless),
        (32, "INVALID_TIMESTAMP", Fail),
        (33, "UNSUPPORTED_SASL_MECHANISM", Pointless),
        (34, "ILLEGAL_SASL_STATE", Pointless),
        (35, "UNSUPPORTED_VERSION", Pointless),
        (36, "TOPIC_ALREADY_EXISTS", Fail),
        (37, "INVALID_PARTITIONS", Fail),
        (38, "INVALID_REPLICATION_FACTOR", Fail),
        (39, "INVALID_REPLICA_ASSIGNMENT", Fail),
        (40, "INVALID_CONFIG", Fail),
        (41, "NOT_CONTROLLER", Relocate),
        (42, "INVALID_REQUEST", Fail),
        (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT", Fail),
        (44, "POLICY_VIOLATION", Fail),
        (45, "OUT_OF_ORDER_SEQUENCE_NUMBER", Fail),
        (46, "DUPLICATE_SEQUENCE_NUMBER", Fail),
        (47, "INVALID_PRODUCER_EPOCH", Fail),
        (48, "INVALID_TXN_STATE", Fail),
        (49, "INVALID_PRODUCER_ID_MAPPING", Fail),
        (50, "INVALID_TRANSACTION_TIMEOUT", Fail),
        (51, "CONCURRENT_TRANSACTIONS", Retry),
        (53, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", Pointless),
        (54, "SECURITY_DISABLED", Fail),
        (55, "OPERATION_NOT_ATTEMPTED", Retry),
        (56, "KAFKA_STORAGE_ERROR", Relocate),
        (58, "SASL_AUTHENTICATION_FAILED", Pointless),
        (59, "UNKNOWN_PRODUCER_ID", Fail),
        (60, "REASSIGNMENT_IN_PROGRESS", Retry),
        (65, "DELEGATION_TOKEN_AUTHORIZATION_FAILED", Pointless),
        (69, "GROUP_ID_NOT_FOUND", Fail),
        (70, "FETCH_SESSION_ID_NOT_FOUND", Retry),
        (71, "INVALID_FETCH_SESSION_EPOCH", Retry),
        (72, "LISTENER_NOT_FOUND", Relocate),
        (73, "TOPIC_DELETION_DISABLED", Fail),
        (74, "FENCED_LEADER_EPOCH", Relocate),
        (75, "UNKNOWN_LEADER_EPOCH", Relocate),
        (76, "UNSUPPORTED_COMPRESSION_TYPE", Fail),
        (77, "STALE_BROKER_EPOCH", Retry),
        (78, "OFFSET_NOT_AVAILABLE", Retry),
        (79, "MEMBER_ID_REQUIRED", Fail),
        (80, "PREFERRED_LEADER_NOT_AVAILABLE", Relocate),
        (81, "GROUP_MAX_SIZE_REACHED", Fail),
        (82, "FENCED_INSTANCE_ID", Fail),
        (87, "INVALID_RECORD", Fail),
        (88, "UNSTABLE_OFFSET_COMMIT", Retry),
        (89, "THROTTLING_QUOTA_EXCEEDED", Retry),
        (90, "PRODUCER_FENCED", Fail),
        (100, "UNKNOWN_TOPIC_ID", Relocate),
        (103, "INCONSISTENT_TOPIC_ID", Relocate),
        (106, "FETCH_SESSION_TOPIC_ID_ERROR", Retry),
        (107, "INELIGIBLE_REPLICA", Retry),
        (109, "OFFSET_MOVED_TO_TIERED_STORAGE", Fail),
    ]
};

impl Code {
    pub const OFFSET_OUT_OF_RANGE: Code = Code(1);
    pub const UNKNOWN_TOPIC_OR_PARTITION: Code = Code(3);
    pub const UNSUPPORTED_SASL_MECHANISM: Code = Code(33);
    pub const ILLEGAL_SASL_STATE: Code = Code(34);
    pub const UNSUPPORTED_VERSION: Code = Code(35);
    pub const OUT_OF_ORDER_SEQUENCE_NUMBER: Code = Code(45);
    pub const DUPLICATE_SEQUENCE_NUMBER: Code = Code(46);
    pub const INVALID_PRODUCER_EPOCH: Code = Code(47);
    pub const INVALID_PRODUCER_ID_MAPPING: Code = Code(49);
    pub const SASL_AUTHENTICATION_FAILED: Code = Code(58);
    pub const UNKNOWN_PRODUCER_ID: Code = Code(59);

    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    fn entry(self) -> Option<&'static (i16, &'static str, Remedy)> {
        CODES.iter().find(|(code, _, _)| *code == self.0)
    }

    /// The name in the protocol guide, which is also the kind under which the error is counted.
    pub fn name(self) -> &'static str {
        self.entry().map_or("UNLISTED_ERROR_CODE", |(_, name, _)| name)
    }

    /// What to do about it; nothing can be done about a code that is not listed.
    pub fn remedy(self) -> Remedy {
        self.entry().map_or(Remedy::Fail, |(_, _, remedy)| *remedy)
    }
}

/// Kinds of errors that no server sends: the connection's own, and those of batches.
pub(crate) mod kind {
    pub use crate::transport::kind::{CONNECTION_LOST, MALFORMED_ANSWER, RETRY_TIME_OVER};

    pub const COMPRESSION_FAILED: &str = "COMPRESSION_FAILED";
    /// A fetched batch whose CRC is wrong, or which cannot be parsed or decompressed.
    pub const CORRUPT_BATCH: &str = "CORRUPT_BATCH";
    /// What was read is not in the log any more: the leader is another and did not have it, or lost it.
    pub const LOG_TRUNCATED: &str = "LOG_TRUNCATED";
    /// A fetched batch in the format of Kafka before 0.11.
    pub const OLD_BATCH_FORMAT: &str = "OLD_BATCH_FORMAT";
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::ResponseError;

    /// The generated crate knows the same codes; it says "retriable" where there is any remedy.
    #[test]
    fn the_table_agrees_with_another_reading_of_the_protocol() {
        for (code, name, remedy) in CODES {
            let Some(other) = ResponseError::try_from_code(*code) else {
                assert_eq!(*code, 0);
                continue;
            };
            let squeezed = name.replace('_', "").to_lowercase();
            let theirs = format!("{other:?}").to_lowercase();
            if !theirs.starts_with("unknown(") {
                assert_eq!(squeezed, theirs, "code {code}");
            }
            if matches!(remedy, Remedy::Pointless) {
                assert!(!other.is_retriable(), "{name}");
            }
        }
    }

    #[test]
    fn an_unlisted_code_is_an_error_that_stays() {
        assert_eq!(Code(12345).remedy(), Remedy::Fail);
        assert_eq!(Code(12345).name(), "UNLISTED_ERROR_CODE");
        assert!(Code(0).is_none());
    }
}

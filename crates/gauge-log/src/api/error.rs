//! The error codes of the protocol that this log answers with (<https://kafka.apache.org/protocol.html#protocol_error_codes>).

/// An error code; the name is the protocol's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i16)]
#[expect(missing_docs, reason = "the names are the protocol's own")]
pub enum ErrorCode {
    UnknownServerError = -1,
    None = 0,
    OffsetOutOfRange = 1,
    CorruptMessage = 2,
    UnknownTopicOrPartition = 3,
    MessageTooLarge = 10,
    InvalidTopic = 17,
    InvalidRequiredAcks = 21,
    IllegalGeneration = 22,
    InconsistentGroupProtocol = 23,
    InvalidGroupId = 24,
    UnknownMemberId = 25,
    InvalidSessionTimeout = 26,
    RebalanceInProgress = 27,
    UnsupportedVersion = 35,
    TopicAlreadyExists = 36,
    InvalidPartitions = 37,
    InvalidReplicationFactor = 38,
    InvalidReplicaAssignment = 39,
    InvalidConfig = 40,
    InvalidRequest = 42,
    UnsupportedForMessageFormat = 43,
    PolicyViolation = 44,
    OutOfOrderSequenceNumber = 45,
    InvalidProducerEpoch = 47,
    TransactionalIdAuthorizationFailed = 53,
    KafkaStorageError = 56,
    NonEmptyGroup = 68,
    GroupIdNotFound = 69,
    FetchSessionIdNotFound = 70,
    InvalidFetchSessionEpoch = 71,
    MemberIdRequired = 79,
    GroupMaxSizeReached = 81,
    FencedInstanceId = 82,
    InvalidRecord = 87,
    UnknownTopicId = 100,
}

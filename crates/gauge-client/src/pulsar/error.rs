//! The broker's errors by name, as they are counted.

/// Errors that are looked at by number.
pub(super) mod code {
    pub const AUTHENTICATION: u64 = 3;
    pub const AUTHORIZATION: u64 = 4;
    pub const TOPIC_NOT_FOUND: u64 = 11;
    pub const TOPIC_TERMINATED: u64 = 15;
    pub const INVALID_TOPIC_NAME: u64 = 17;
    pub const INCOMPATIBLE_SCHEMA: u64 = 18;
    pub const NOT_ALLOWED: u64 = 22;
}

/// A topic moved or its producer or consumer was closed.
pub(super) const CLOSED_BY_BROKER: &str = "CLOSED_BY_BROKER";
/// What a consumer received is not what was sent.
pub(super) const CHECKSUM_MISMATCH: &str = "CHECKSUM_MISMATCH";
/// A batch cannot be read: an unknown compression, lengths that do not fit, an encrypted message.
pub(super) const UNREADABLE_BATCH: &str = "UNREADABLE_BATCH";

/// The kind under which an error is counted: the protocol's name for it.
pub(super) fn name(error: u64) -> &'static str {
    match error {
        1 => "MetadataError",
        2 => "PersistenceError",
        code::AUTHENTICATION => "AuthenticationError",
        code::AUTHORIZATION => "AuthorizationError",
        5 => "ConsumerBusy",
        6 => "ServiceNotReady",
        7 => "ProducerBlockedQuotaExceededError",
        8 => "ProducerBlockedQuotaExceededException",
        9 => "ChecksumError",
        10 => "UnsupportedVersionError",
        code::TOPIC_NOT_FOUND => "TopicNotFound",
        12 => "SubscriptionNotFound",
        13 => "ConsumerNotFound",
        14 => "TooManyRequests",
        code::TOPIC_TERMINATED => "TopicTerminatedError",
        16 => "ProducerBusy",
        code::INVALID_TOPIC_NAME => "InvalidTopicName",
        code::INCOMPATIBLE_SCHEMA => "IncompatibleSchema",
        19 => "ConsumerAssignError",
        code::NOT_ALLOWED => "NotAllowedError",
        25 => "ProducerFenced",
        _ => "UnknownError",
    }
}

/// Whether asking again is pointless. A topic that is not found may be one whose broker has just died, once it was there.
pub(super) fn is_fatal(error: u64, is_prepared: bool) -> bool {
    match error {
        code::AUTHENTICATION
        | code::AUTHORIZATION
        | code::TOPIC_TERMINATED
        | code::INVALID_TOPIC_NAME
        | code::INCOMPATIBLE_SCHEMA
        | code::NOT_ALLOWED => true,
        code::TOPIC_NOT_FOUND => !is_prepared,
        _ => false,
    }
}

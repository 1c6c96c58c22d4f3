//! What happened in a world at least once: a swarm that never comes to one of these shows nothing about it.

/// A state that a swarm must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "their names are what a swarm tells, and docs/simulation.md explains them"
)]
pub enum Mark {
    LeaderMoved,
    LeaderCameBack,
    LeaderAway,
    Truncated,
    TruncatedBelowAck,
    ReadAndTruncated,
    StaleMetadata,
    FencedEpoch,
    UnknownEpoch,
    NotLeader,
    StaleLeaderStored,
    Retry,
    RefusedNotStored,
    RefusedStored,
    Throttled,
    SilentConnection,
    CutConnection,
    CutWithinAnswer,
    NodeDown,
    NodePaused,
    PartialWrite,
    AnswerInPieces,
    SessionKept,
    SessionRebuilt,
    SessionEpochWrong,
    DuplicateRecognised,
    ProducerForgotten,
    SequenceGap,
    ReplicationStalled,
    AckTimedOut,
    StoredTwice,
    Reordered,
    Damaged,
    Failed,
    Lost,
    Paused,
    ClosedLoop,
    AcksNone,
    Backpressure,
    Joined,
    RateChanged,
    RatePlanned,
    Left,
    LeftAlone,
    Away,
    NoResponders,
    ConsumerLost,
    ConsumerGap,
    ConsumerRefused,
    PullExpired,
    Heartbeat,
    DuplicateInProcess,
    ServerError,
    LameDuck,
    InfoUpdated,
    PingAnswered,
    DeliveryDropped,
    StaleInbox,
    Redirected,
    StaleLookup,
    LookupFailed,
    OpeningRefused,
    ProducerBusy,
    ConsumerBusy,
    ProducerClosed,
    ConsumerClosed,
    LateReceipt,
    DuplicateUnknown,
    TopicFenced,
    AcksLost,
    PositionLost,
    DeliveredAgain,
    EndRefused,
    PermitsOverdrawn,
    Nacked,
    ConfirmedTogether,
    ConfirmedOutOfOrder,
    Returned,
    ConsumerCancelled,
    ConsumerGhost,
    ChannelClosed,
    ConnectionClosed,
    Blocked,
    QueueDown,
    QueueCrashed,
    EndNotKnown,
    HeartbeatMissed,
    ConsumedByDelivery,
    PublisherRefused,
    PublisherDropped,
    SubscriptionRefused,
    SubscriptionDropped,
    CopyLags,
    ChunkShared,
    BatchDamaged,
    ControlBatch,
    Expired,
    Censored,
    GivenUp,
}

/// Those of every protocol.
const SHARED: &[Mark] = &{
    use Mark::*;
    [
        LeaderMoved,
        LeaderAway,
        Retry,
        RefusedNotStored,
        RefusedStored,
        SilentConnection,
        CutConnection,
        CutWithinAnswer,
        NodeDown,
        NodePaused,
        PartialWrite,
        AnswerInPieces,
        ReplicationStalled,
        AckTimedOut,
        StoredTwice,
        Failed,
        Paused,
        ClosedLoop,
        AcksNone,
        Backpressure,
        Joined,
        RateChanged,
        RatePlanned,
        Left,
        LeftAlone,
        Away,
        Censored,
        GivenUp,
    ]
};

/// Which were reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u128);

impl Marks {
    pub(crate) fn set(&mut self, mark: Mark) {
        self.0 |= 1 << mark as u32;
    }

    fn has(self, mark: Mark) -> bool {
        self.0 & 1 << mark as u32 != 0
    }

    pub(crate) fn add(&mut self, other: Marks) {
        self.0 |= other.0;
    }

    /// Those of every protocol, and of one, that were not.
    pub fn missing(self, own: &'static [Mark]) -> impl Iterator<Item = Mark> {
        let all = SHARED.iter().chain(own).copied();
        all.filter(move |mark| !self.has(*mark))
    }
}

//! Deliberate faults of the gauge, for the proof that the simulated world finds such (`gauge-sim`, docs/simulation.md). They are of several crates,
//! of which this is the lowest.
//!
//! Without the feature `mutants`, which only the tests of gauge-sim switch on, `is` is `false` at compile time and nothing of this is in the program.

/// A deliberate fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each is described in `ALL`, for those who read the list and for who runs it"
)]
pub enum Mutant {
    AckDropped,
    FailureCountsAsAck,
    RetryAtTheEnd,
    ListedTwice,
    OldListKept,
    LateOpeningForgotten,
    PatienceTooLong,
    FullBatchOverlooked,
    LatenessOfPlanForgotten,
    WindowNotGivenBack,
    MoveDoesNotHoldBack,
    SequenceNotReset,
    SequenceAnew,
    IdentitySpins,
    DeadlineSpins,
    UnlistedLeaderTrusted,
    PartialWriteRepeated,
    PositionOneTooFar,
    PausedAnswerSkipped,
    PausedFetches,
    DoubtIgnored,
    EndKept,
    SilenceIsTheEnd,
    SessionOverForgotten,
    ChangeLeftBehind,
    SampleLost,
    DuplicateNotCounted,
    ReorderingNotCounted,
    DamageNotCounted,
    IntervalCutLate,
    JoinNotMarked,
    TotalsOfSome,
    BacklogOfSent,
    WindowNotTold,
    CensoredCountsAsFailed,
    GaveUpForgotten,
    PhaseOfAck,
    OmissionCoordinated,
    UnackedNotCounted,
    ServiceRunLost,
    DrainTrustsTheCount,
    DrainIgnoresWaiting,
    TailNotLost,
    BytesNotCounted,
    HeldCountsAsLate,
    HeldTimeLost,
    ReadDelayLost,
    RetriesNotCounted,
    RequestCountedTwice,
    PhaseBeginsLate,
    StaggerLost,
    GapsAlike,
    RampIsAStep,
    PauseOutlived,
    RateSetLate,
    StopLate,
    KeysShared,
    AwakeForgotten,
    SleepCountsAsLate,
    CensoredIsLost,
    CensoredIsQuiet,
    UndecidedStaysQuiet,
    RecoveryForgotten,
    LossMisplaced,
    ExpiredSkipsAll,
    ControlIsMessage,
    DamagedBatchIsOne,
    NatsAckDropped,
    NatsRefusalCountsAsAck,
    NatsRetryAtTheEnd,
    NatsLateAckIgnored,
    NatsGapsSentAgain,
    NatsFullLoopSpins,
    NatsPositionOneTooFar,
    NatsGapNotSeen,
    NatsHeartbeatIgnored,
    NatsSilenceIsTheEnd,
    NatsPullsPutOffSilence,
    NatsPausedPulls,
    PulsarStickyStays,
    PulsarAckDropped,
    PulsarErrorCountsAsAck,
    PulsarRetryAtTheEnd,
    PulsarLateReceiptIgnored,
    PulsarRedirectsKept,
    PulsarPermitsKept,
    PulsarPausedStaysOpen,
    PulsarPermitsOfDamageLost,
    PulsarDamageComesAgain,
    PulsarRedeliveredIsNew,
    PulsarRedeliveredNotAcked,
    PulsarPositionOneTooFar,
    PulsarSilenceIsTheEnd,
    RabbitmqAckDropped,
    RabbitmqRefusalCountsAsAck,
    RabbitmqMultipleIsOne,
    RabbitmqTagsGoOn,
    RabbitmqReturnIgnored,
    RabbitmqWindowKept,
    RabbitmqUnackedKept,
    RabbitmqAckedBeforeWhole,
    RabbitmqCancelIgnored,
    RabbitmqLateAnswerBelieved,
    RabbitmqSilenceIsTheEnd,
    RabbitmqGhostIgnored,
    RabbitmqPausedConsumes,
    RabbitmqUnknownIsEmpty,
    RabbitmqStreamConfirmedAgain,
    RabbitmqStreamRetryAtTheEnd,
    RabbitmqStreamRefusalEndsReading,
    RabbitmqStreamPositionOneTooFar,
    RabbitmqStreamCreditsLost,
    RabbitmqStreamPausedCredited,
    RabbitmqStreamEmptyForgotten,
}

use Mutant::*;

/// Every mutant with what it does wrong.
pub const ALL: [(Mutant, &str); 114] = [
    (AckDropped, "an acknowledged batch is closed and recorded nowhere"),
    (
        FailureCountsAsAck,
        "a batch that has failed is recorded as acknowledged",
    ),
    (
        RetryAtTheEnd,
        "a batch that is sent again goes behind those that wait",
    ),
    (ListedTwice, "a partition stands in its leader's list twice"),
    (
        OldListKept,
        "a partition that moved stays in its old leader's list",
    ),
    (
        PatienceTooLong,
        "what is due is left for twice as long as its batch lingers",
    ),
    (
        FullBatchOverlooked,
        "what is due is left although the batch that it goes to is full before it has lingered",
    ),
    (
        LatenessOfPlanForgotten,
        "who is awake later than planned is not late",
    ),
    (
        LateOpeningForgotten,
        "a batch that is due at once, but was opened after the turn began, is listed for that turn alone",
    ),
    (WindowNotGivenBack, "an acknowledged batch stays under way"),
    (
        MoveDoesNotHoldBack,
        "what goes to a new leader does not wait for what is under way to the old one",
    ),
    (
        SequenceNotReset,
        "a new identity goes on with the numbers of the old one",
    ),
    (SequenceAnew, "a batch that is sent again gets another number"),
    (
        IdentitySpins,
        "a producer that waits for its identity is offered messages without end",
    ),
    (
        DeadlineSpins,
        "a producer that wants an identity is called while something is under way",
    ),
    (
        UnlistedLeaderTrusted,
        "a leader that is not among the brokers is waited for",
    ),
    (PartialWriteRepeated, "what a partial write took is written again"),
    (
        PositionOneTooFar,
        "the next fetch begins one offset behind the batch",
    ),
    (
        PausedAnswerSkipped,
        "an answer that comes while a subscription is paused counts as read",
    ),
    (PausedFetches, "a subscription that is paused goes on fetching"),
    (
        DoubtIgnored,
        "a consumer reads on at a new leader without asking where the old epoch ended",
    ),
    (
        EndKept,
        "the end of a partition is believed although its leader is another",
    ),
    (
        SilenceIsTheEnd,
        "a consumer whose broker is silent counts as being at the end that it was told before",
    ),
    (
        SessionOverForgotten,
        "an answer to an old fetch makes a session look complete",
    ),
    (
        ChangeLeftBehind,
        "a partition that moves stays in its old leader's list of those that the session has to be told",
    ),
    (
        SampleLost,
        "the last of the latencies that are entered together is lost",
    ),
    (
        DuplicateNotCounted,
        "a message that comes twice is not counted as such",
    ),
    (
        ReorderingNotCounted,
        "a message that comes after a later one is not counted as such",
    ),
    (DamageNotCounted, "a damaged message is counted as foreign"),
    (
        IntervalCutLate,
        "an interval ends after the turn that is beyond it",
    ),
    (JoinNotMarked, "intervals that are told together are not marked"),
    (TotalsOfSome, "every other interval is missing in the totals"),
    (
        BacklogOfSent,
        "what a subscription has not read yet is reckoned from what was sent, not from what was acknowledged",
    ),
    (
        WindowNotTold,
        "a window that begins within the first 5 ms of an interval is told in none",
    ),
    (
        CensoredCountsAsFailed,
        "a message that had no end when the trial was given up counts as failed",
    ),
    (
        GaveUpForgotten,
        "books do not tell that a subscription had not come to its end",
    ),
    (
        PhaseOfAck,
        "a latency is booked in the phase in which the acknowledgement came",
    ),
    (
        OmissionCoordinated,
        "a publish latency begins when the message was sent",
    ),
    (
        UnackedNotCounted,
        "messages without acknowledgement are not ranked above the others",
    ),
    (
        ServiceRunLost,
        "the last messages of a batch have no service time",
    ),
    (
        DrainTrustsTheCount,
        "a drain ends with the last message that was missing, and repeats behind it are not read",
    ),
    (DrainIgnoresWaiting, "a drain does not wait for acknowledgements"),
    (
        TailNotLost,
        "messages lost behind the last that was received are not counted",
    ),
    (
        BytesNotCounted,
        "messages are sent without their bytes being counted",
    ),
    (
        HeldCountsAsLate,
        "time in which there was no room counts as lateness of sending as well",
    ),
    (
        HeldTimeLost,
        "how long producers had no room is told in no interval",
    ),
    (
        ReadDelayLost,
        "how late acknowledgements were read is told nowhere",
    ),
    (RetriesNotCounted, "what is sent again is not counted"),
    (RequestCountedTwice, "a request counts twice"),
    (
        PhaseBeginsLate,
        "a message that is due when a phase begins counts in the one before",
    ),
    (StaggerLost, "producers that share a rate begin at the same time"),
    (GapsAlike, "all producers draw the same gaps"),
    (
        RampIsAStep,
        "the rate is that of a ramp's end from its beginning on",
    ),
    (
        PauseOutlived,
        "a rate that is set while no message is due comes into force when the next one is",
    ),
    (RateSetLate, "a rate that is set comes into force 10 ms too late"),
    (
        StopLate,
        "messages that are due up to 5 ms behind the end of the schedule are sent",
    ),
    (KeysShared, "two keys that follow each other are one"),
    (
        SleepCountsAsLate,
        "what comes while the lane sleeps counts as read late from the beginning of its sleep on",
    ),
    (
        AwakeForgotten,
        "what came while the lane was awake and busy is told to have come when it looked",
    ),
    (
        CensoredIsLost,
        "what a subscription did not come to counts as lost",
    ),
    (
        CensoredIsQuiet,
        "quiet time: what was under way when a window began is told with all of its latency",
    ),
    (
        UndecidedStaysQuiet,
        "quiet time: what is not decided at an interval's end is told as quiet there, and once more when it is decided",
    ),
    (
        RecoveryForgotten,
        "quiet time: a disturbed span ends with its window",
    ),
    (
        LossMisplaced,
        "what was lost before the first message that came counts as lost in the middle",
    ),
    (
        ExpiredSkipsAll,
        "a consumer whose next message is not kept any more goes on at the end",
    ),
    (
        ControlIsMessage,
        "the end of a transaction is handed over as a message",
    ),
    (DamagedBatchIsOne, "a damaged batch counts as one message"),
    (
        NatsAckDropped,
        "NATS: a message that the server stored is ended and recorded nowhere",
    ),
    (
        NatsRefusalCountsAsAck,
        "NATS: a refused message is recorded as stored",
    ),
    (
        NatsRetryAtTheEnd,
        "NATS: a chunk that is sent again goes behind those that wait",
    ),
    (
        NatsLateAckIgnored,
        "NATS: an acknowledgement of a chunk that waits to be sent again is not believed",
    ),
    (
        NatsGapsSentAgain,
        "NATS: messages of a chunk that were acknowledged while it waited leave with it",
    ),
    (
        NatsFullLoopSpins,
        "NATS: a closed loop without room asks again although nothing can leave",
    ),
    (
        NatsPositionOneTooFar,
        "NATS: a consumer made anew begins one message too late",
    ),
    (
        NatsGapNotSeen,
        "NATS: a delivery that was lost on its way is not missed",
    ),
    (
        NatsHeartbeatIgnored,
        "NATS: a heartbeat that tells of a delivery which has not come is not believed",
    ),
    (
        NatsSilenceIsTheEnd,
        "NATS: a consumer whose server is silent counts as being at the end",
    ),
    (
        NatsPullsPutOffSilence,
        "NATS: asking again puts off the time after which silence counts",
    ),
    (
        NatsPausedPulls,
        "NATS: a subscription that is paused goes on pulling",
    ),
    (
        PulsarStickyStays,
        "Pulsar, RabbitMQ: without keys all batches go to one partition",
    ),
    (
        PulsarAckDropped,
        "Pulsar: a batch that has a receipt is ended and recorded nowhere",
    ),
    (
        PulsarErrorCountsAsAck,
        "Pulsar: a batch that is answered with an error is recorded as stored",
    ),
    (
        PulsarRetryAtTheEnd,
        "Pulsar: a batch that is sent again goes behind those that wait",
    ),
    (
        PulsarLateReceiptIgnored,
        "Pulsar: a receipt of a batch that waits to be sent again is not believed",
    ),
    (
        PulsarRedirectsKept,
        "Pulsar: lookups that were sent on and came to nothing count for those that follow",
    ),
    (
        PulsarPermitsKept,
        "Pulsar: what was granted to a consumer that is gone counts for the next one",
    ),
    (
        PulsarPausedStaysOpen,
        "Pulsar: a subscription that is paused keeps the permits that it has given",
    ),
    (
        PulsarPermitsOfDamageLost,
        "Pulsar: a batch that cannot be read costs one permit, whatever the broker counts",
    ),
    (
        PulsarDamageComesAgain,
        "Pulsar: a batch that could not be read counts once more when it is delivered again",
    ),
    (
        PulsarRedeliveredIsNew,
        "Pulsar: what is delivered again after a reconnection is handed over again",
    ),
    (
        PulsarRedeliveredNotAcked,
        "Pulsar: what is delivered again and dropped is not acknowledged again",
    ),
    (
        PulsarPositionOneTooFar,
        "Pulsar: the entry behind the last counts as handed over",
    ),
    (
        PulsarSilenceIsTheEnd,
        "Pulsar: a consumer whose broker is silent counts as being at the end that it was told before",
    ),
    (
        RabbitmqAckDropped,
        "RabbitMQ: a confirmed message is ended and recorded nowhere",
    ),
    (
        RabbitmqRefusalCountsAsAck,
        "RabbitMQ: a refused message is recorded as confirmed",
    ),
    (
        RabbitmqMultipleIsOne,
        "RabbitMQ: a confirmation of all messages up to a number counts for that one",
    ),
    (
        RabbitmqTagsGoOn,
        "RabbitMQ: the numbers of a new channel's confirmations are taken for those of the old one",
    ),
    (
        RabbitmqReturnIgnored,
        "RabbitMQ: a message that came back is recorded as confirmed",
    ),
    (
        RabbitmqWindowKept,
        "RabbitMQ: what was under way on a connection that is lost counts as under way",
    ),
    (
        RabbitmqAckedBeforeWhole,
        "RabbitMQ: a message of which only the beginning was read is acknowledged",
    ),
    (
        RabbitmqUnackedKept,
        "RabbitMQ: what was delivered on a channel that is gone is acknowledged on the next one",
    ),
    (
        RabbitmqCancelIgnored,
        "RabbitMQ: a consumer that the server cancels is waited for",
    ),
    (
        RabbitmqLateAnswerBelieved,
        "RabbitMQ: an answer to a cancellation reopens a channel that is being closed",
    ),
    (
        RabbitmqSilenceIsTheEnd,
        "RabbitMQ: a queue whose server is silent counts as empty, as it was before",
    ),
    (
        RabbitmqGhostIgnored,
        "RabbitMQ: a queue counts as empty while an old consumer has messages of it that come back",
    ),
    (
        RabbitmqPausedConsumes,
        "RabbitMQ: a subscription that is paused consumes when it has connected again",
    ),
    (
        RabbitmqUnknownIsEmpty,
        "RabbitMQ: a queue of which the server knows nothing counts as empty",
    ),
    (
        RabbitmqStreamConfirmedAgain,
        "RabbitMQ streams: what was confirmed of a frame is sent again with the rest",
    ),
    (
        RabbitmqStreamRetryAtTheEnd,
        "RabbitMQ streams: a frame that is sent again goes behind those that wait",
    ),
    (
        RabbitmqStreamRefusalEndsReading,
        "RabbitMQ streams: confirmations that were read behind a refusal are not believed",
    ),
    (
        RabbitmqStreamPositionOneTooFar,
        "RabbitMQ streams: a new subscription begins one message too late",
    ),
    (
        RabbitmqStreamCreditsLost,
        "RabbitMQ streams: credits are not given back",
    ),
    (
        RabbitmqStreamPausedCredited,
        "RabbitMQ streams: a subscription that is paused gives credits when it has connected again",
    ),
    (
        RabbitmqStreamEmptyForgotten,
        "RabbitMQ streams: a stream that shows no end is never known to be empty",
    ),
];

#[cfg(feature = "mutants")]
thread_local! {
    static ACTIVE: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether this thread runs with that fault.
#[cfg(feature = "mutants")]
pub fn is(mutant: Mutant) -> bool {
    ACTIVE.get() == Some(mutant)
}

/// Never: the faults are not part of this build.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub const fn is(_mutant: Mutant) -> bool {
    false
}

/// Gives this thread a fault, or takes it away.
#[cfg(feature = "mutants")]
pub fn activate(mutant: Option<Mutant>) {
    ACTIVE.set(mutant);
}

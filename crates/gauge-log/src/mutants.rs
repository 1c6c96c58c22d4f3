//! Deliberate faults of storage, for the proof that the crash simulator finds such (`tests/simulation`, docs/reference-log.md).
//!
//! Without the feature `mutants`, which only the tests of this crate switch on, `is` is `false` at compile time and nothing of this is in the program.

/// A deliberate fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    missing_docs,
    reason = "each is described in `ALL`, for those who read the list and for who runs it"
)]
pub enum Mutant {
    DataDirectoryNotSynced,
    FirstSegmentNotSynced,
    SegmentNameNotSynced,
    StateNotSynced,
    StateBeforeItsData,
    StateOneStepTooNew,
    StateForgetsLogStarts,
    StateForgetsProducers,
    IndexOneChunkShort,
    IndexForgetsTimes,
    PartitionIdsReused,
    ProducerIdsReused,
    ZeroesArePadding,
    CommitNotPadded,
    DurableEndAtAppend,
    DamageIsATornTail,
    TornTailIsDamage,
    TailNotTruncated,
    SegmentsBehindTheTailKept,
    OffsetOffByOne,
    LogStartNotJournaled,
    LogStartOfJournalIgnored,
    SegmentDeletedBeforeItsLogStart,
    SegmentDeletedWithoutState,
    AcknowledgedBeforeWritten,
    AcknowledgedAfterFailure,
    ShownBeforeWritten,
    SixtyFourProducers,
    ProducersForgottenInRecovery,
    ChecksumNotBoundToPosition,
    LostChangesIgnored,
    LostRecordsIgnored,
}

use Mutant::*;

/// Every mutant with what it does wrong.
pub const ALL: [(Mutant, &str); 32] = [
    (
        DataDirectoryNotSynced,
        "the data directory's own name is not made durable",
    ),
    (
        FirstSegmentNotSynced,
        "the name of the first segment is not made durable",
    ),
    (
        SegmentNameNotSynced,
        "the names of later segments are not made durable",
    ),
    (
        StateNotSynced,
        "a state's content is not made durable before it gets its name",
    ),
    (
        StateBeforeItsData,
        "a state is written before the journal that it was made of",
    ),
    (
        StateOneStepTooNew,
        "a state says that it holds one entry more than it does",
    ),
    (
        StateForgetsLogStarts,
        "a state does not say where partitions begin",
    ),
    (
        StateForgetsProducers,
        "a state does not hold idempotent producers",
    ),
    (IndexOneChunkShort, "an index lacks the last chunk's marks"),
    (
        IndexForgetsTimes,
        "an index does not say up to which time chunks go",
    ),
    (
        PartitionIdsReused,
        "ids of deleted partitions are given out again after a restart",
    ),
    (
        ProducerIdsReused,
        "ids of producers are given out again after a restart",
    ),
    (ZeroesArePadding, "recovery takes any zeroes for padding"),
    (
        CommitNotPadded,
        "a commit ends within a block, which the next one writes again",
    ),
    (
        DurableEndAtAppend,
        "an entry proves only what was durable when it was appended, not when it was written",
    ),
    (DamageIsATornTail, "recovery cuts the journal at any damage"),
    (TornTailIsDamage, "recovery keeps what lies behind a torn commit"),
    (TailNotTruncated, "recovery leaves a torn tail in the file"),
    (
        SegmentsBehindTheTailKept,
        "recovery leaves segments behind a torn tail",
    ),
    (OffsetOffByOne, "recovery sets the next offset one too low"),
    (
        LogStartNotJournaled,
        "retention moves the start of partitions in memory only",
    ),
    (
        LogStartOfJournalIgnored,
        "recovery ignores what the journal says of the start of partitions",
    ),
    (
        SegmentDeletedBeforeItsLogStart,
        "a segment is deleted before the journal says so",
    ),
    (
        SegmentDeletedWithoutState,
        "a segment is deleted before a state behind it is written",
    ),
    (
        AcknowledgedBeforeWritten,
        "a commit is acknowledged before it is written",
    ),
    (
        AcknowledgedAfterFailure,
        "a commit is acknowledged although the one before it failed",
    ),
    (ShownBeforeWritten, "readers see batches before they are written"),
    (
        SixtyFourProducers,
        "a partition remembers 64 idempotent producers",
    ),
    (
        ProducersForgottenInRecovery,
        "recovery does not note producers of the journal's batches",
    ),
    (ChecksumNotBoundToPosition, "an entry is taken wherever it lies"),
    (
        LostChangesIgnored,
        "recovery goes on although a change of the state was lost",
    ),
    (
        LostRecordsIgnored,
        "recovery goes on although it does not know which offsets were lost",
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

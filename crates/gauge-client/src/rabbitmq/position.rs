//! A consumer's queue: where its channel stands, what was delivered, and how many messages are left.

use gauge_load::mutants::{self, Mutant};

use super::codec;
use super::session::error;

/// A queue that is asked for longer than this is not known to be empty, whatever was answered before. With the time between two questions, it is
/// less than a drain takes for the end.
const OVERDUE_NS: i64 = 500_000_000;

/// Where a queue stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No channel; tried again at this time.
    Closed(i64),
    /// The channel and the consumer were asked for.
    Opening,
    Consuming,
    /// basic.cancel was sent.
    Cancelling,
    /// The channel is open, without a consumer.
    Idle,
}

/// A queue.
#[derive(Debug)]
pub(super) struct Position {
    pub slot: usize,
    pub queue: String,
    pub topic: usize,
    pub partition: u32,
    pub state: State,
    /// It was consumed from once, or could be, were it not paused: what belongs to the beginning is done.
    pub has_begun: bool,
    /// The delivery tag of the message that is being delivered: it must not be acknowledged before it is there whole.
    pub coming_tag: u64,
    /// The latest whole message's delivery tag, and how many were not acknowledged.
    pub delivery_tag: u64,
    pub unacked: u32,
    /// The message that is being delivered: bytes of its body, and what was read of them when it comes in several frames.
    pub body_bytes: Option<usize>,
    pub body: Vec<u8>,
    /// Streams only: the offset of the next message, once one was seen.
    pub next_offset: Option<u64>,
    /// Messages left in the queue as the latest answer told, unless something was delivered since.
    pub left_msgs: Option<u32>,
    /// When it was asked how many, while there is no answer.
    pub asked_ns: Option<i64>,
}

impl Position {
    /// The queue has told that it is empty, and nothing has come since.
    pub fn is_empty(&self, now_ns: i64) -> bool {
        let is_overdue = self
            .asked_ns
            .is_some_and(|asked_ns| now_ns >= asked_ns + OVERDUE_NS)
            && !mutants::is(Mutant::RabbitmqSilenceIsTheEnd);
        self.state == State::Consuming && self.left_msgs == Some(0) && !is_overdue
    }

    /// Whether what a queue with so many consumers tells of its length is all that will come. One that has others as well may have given them
    /// messages that come back: an old connection that the server takes for alive. One that has none, while we consume it, is one of which the
    /// server does not know: RabbitMQ answers so, and with 0 messages, where the leader of a quorum queue does not answer.
    pub fn is_told(consumers: u32, is_stream: bool) -> bool {
        match consumers {
            // Of a stream RabbitMQ tells no consumers, and nothing of it is taken away from anybody.
            _ if is_stream => true,
            1 => true,
            0 => mutants::is(Mutant::RabbitmqUnknownIsEmpty),
            _ => mutants::is(Mutant::RabbitmqGhostIgnored),
        }
    }

    /// The channel is gone: the server delivers again what was not acknowledged.
    pub fn reset(&mut self, state: State) {
        self.state = state;
        if !mutants::is(Mutant::RabbitmqUnackedKept) {
            self.unacked = 0;
        }
        self.body_bytes = None;
        self.body.clear();
        self.left_msgs = None;
        self.asked_ns = None;
    }
}

/// Whether a closed channel makes the trial pointless: a queue on a node that is down may come back, one that was never there does not.
pub(super) fn is_fatal(closing: &codec::Closing, is_prepared: bool) -> bool {
    match error::of(closing.code) {
        error::ACCESS_REFUSED => true,
        error::NOT_FOUND => !is_prepared && !closing.words.contains("down or inaccessible"),
        error::PRECONDITION_FAILED => !is_prepared,
        _ => false,
    }
}

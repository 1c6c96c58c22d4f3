//! What becomes of a producer's batches when a broker has spoken: acknowledged, sent again, or failed; and the identity of an idempotent
//! producer, which a failure may cost.

use gauge_load::Observer;
use gauge_load::mutants::{self, Mutant};

use super::batch::Batch;
use super::cluster::Question;
use super::errors::{Code, Remedy};
use super::producer::{Identity, Producer};
use super::shared::Shared;
use crate::ClientError;

/// Pause before a batch is sent again; doubles with each error of its partition, up to a second.
const RETRY_PAUSE_NS: i64 = 20_000_000;
const RETRY_DOUBLINGS_MAX: u32 = 6;
const RETRY_PAUSE_NS_MAX: i64 = 1_000_000_000;
/// Pause before an identity is asked for again.
const IDENTITY_PAUSE_NS: i64 = 250_000_000;

impl Producer {
    /// Deals with a broker's word on a batch. Returns an error when the trial is pointless.
    pub(super) fn settle(
        &mut self,
        batch: Box<Batch>,
        code: Code,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Option<ClientError> {
        let at = batch.partition as usize;
        // A batch that is there already was stored by an earlier attempt.
        if code.is_none() || code == Code::DUPLICATE_SEQUENCE_NUMBER {
            if !mutants::is(Mutant::WindowNotGivenBack) {
                self.lots[at].in_flight -= 1;
            }
            self.lots[at].attempts = 0;
            if self.lots[at].is_retrying && self.lots[at].in_flight == 0 {
                self.list(at);
            }
            self.acknowledge(batch, shared, observer, now_ns);
            return None;
        }
        if self.is_identity_trouble(at, code) {
            self.identity = Identity::Wanted;
            self.retry(batch, code.name(), shared, observer, now_ns);
            return None;
        }
        let follows_failure = code == Code::OUT_OF_ORDER_SEQUENCE_NUMBER && self.identity != Identity::None;
        match code.remedy() {
            Remedy::Retry => self.retry(batch, code.name(), shared, observer, now_ns),
            Remedy::Relocate => {
                shared.own.cluster.refresh();
                self.retry(batch, code.name(), shared, observer, now_ns);
            }
            // What the broker says of a probe may change; a probe is sent until patience ends.
            Remedy::Fail if follows_failure || batch.is_probe => {
                self.retry(batch, code.name(), shared, observer, now_ns);
            }
            remedy => {
                self.lots[at].in_flight -= 1;
                self.list(at);
                self.fail(batch, code.name(), shared, observer);
                if remedy == Remedy::Pointless {
                    return Some(ClientError::system(format!(
                        "topic {:?}, partition {at}: the server answers {}",
                        self.topic,
                        code.name()
                    )));
                }
            }
        }
        None
    }

    /// Whether an idempotent producer needs a new identity: the broker does not know it any more, or has a gap in its sequence that
    /// no batch which will be sent again explains.
    fn is_identity_trouble(&self, at: usize, code: Code) -> bool {
        if self.identity == Identity::None {
            return false;
        }
        let is_forgotten = [
            Code::UNKNOWN_PRODUCER_ID,
            Code::INVALID_PRODUCER_EPOCH,
            Code::INVALID_PRODUCER_ID_MAPPING,
        ]
        .contains(&code);
        is_forgotten || (code == Code::OUT_OF_ORDER_SEQUENCE_NUMBER && !self.lots[at].is_retrying)
    }

    pub(super) fn acknowledge(
        &mut self,
        batch: Box<Batch>,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) {
        if !batch.is_probe && !mutants::is(Mutant::AckDropped) {
            observer.acked(&batch.ledger, now_ns);
        }
        self.close(batch, shared);
    }

    /// A batch that was under way must be sent again, unless it is too old.
    pub(super) fn retry(
        &mut self,
        mut batch: Box<Batch>,
        kind: &'static str,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) {
        let at = batch.partition as usize;
        self.lots[at].in_flight -= 1;
        let is_over = now_ns.saturating_sub(batch.first_sent_ns) >= shared.spec.retry_for_ns;
        if is_over && !batch.is_probe {
            self.fail(batch, kind, shared, observer);
            self.list(at);
            return;
        }
        if !batch.is_probe {
            observer.retried(kind);
        }
        batch.last_error = Some(kind);
        let lot = &mut self.lots[at];
        if !lot.is_retrying {
            lot.is_retrying = true;
            lot.attempts = lot.attempts.saturating_add(1);
        }
        let pause_ns = (RETRY_PAUSE_NS << (lot.attempts.saturating_sub(1)).min(RETRY_DOUBLINGS_MAX))
            .min(RETRY_PAUSE_NS_MAX);
        lot.retry_at_ns = now_ns + pause_ns;
        self.held.queued_bytes += batch.len();
        let place = if mutants::is(Mutant::RetryAtTheEnd) {
            lot.queue.len()
        } else {
            lot.queue.partition_point(|waiting| waiting.serial < batch.serial)
        };
        batch.is_sealed &= !mutants::is(Mutant::SequenceAnew);
        lot.queue.insert(place, batch);
        // One timer per partition: the latest.
        let retry_at_ns = lot.retry_at_ns;
        match self.delayed.iter_mut().find(|(_, lot)| *lot == at as u32) {
            Some(entry) => entry.0 = retry_at_ns,
            None => self.delayed.push((retry_at_ns, at as u32)),
        }
    }

    /// A batch has failed for good. An idempotent producer's sequence has a gap now, which only a new identity closes.
    pub(super) fn fail(
        &mut self,
        batch: Box<Batch>,
        kind: &'static str,
        shared: &mut Shared,
        observer: &mut Observer,
    ) {
        if mutants::is(Mutant::FailureCountsAsAck) {
            observer.acked(&batch.ledger, gauge_load::clock::monotonic_ns());
        } else {
            observer.failed(&batch.ledger, batch.last_error.unwrap_or(kind));
        }
        if batch.is_sealed && matches!(self.identity, Identity::Known { .. }) {
            self.identity = Identity::Wanted;
        }
        self.close(batch, shared);
    }

    /// Asks for an identity as soon as nothing is under way.
    pub(super) fn want_identity(&mut self, shared: &mut Shared, now_ns: i64) {
        if self.identity == Identity::Wanted && now_ns >= self.identity_after_ns && self.is_at_rest() {
            self.identity = Identity::Asked;
            shared.own.cluster.ask(Question::ProducerId(self.index));
        }
    }

    /// The cluster has given an identity: everything that waits is numbered anew.
    ///
    /// # Errors
    /// When the server will never give one.
    pub fn identify(
        &mut self,
        code: Code,
        id: i64,
        epoch: i16,
        shared: &mut Shared,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        if !code.is_none() {
            let message = format!(
                "no producer id for idempotence: the server answers {}",
                code.name()
            );
            if code.remedy() == Remedy::Pointless {
                return Err(ClientError::system(message));
            }
            shared.own.cluster.set_trouble(message);
            self.identity = Identity::Wanted;
            self.identity_after_ns = now_ns + IDENTITY_PAUSE_NS;
            return Ok(());
        }
        self.identity = Identity::Known { id, epoch };
        for at in 0..self.lots.len() {
            let lot = &mut self.lots[at];
            if !mutants::is(Mutant::SequenceNotReset) {
                lot.next_sequence = 0;
            }
            for batch in &mut lot.queue {
                batch.is_sealed = false;
            }
            if !lot.queue.is_empty() || lot.open.is_some() {
                self.list(at);
            }
        }
        Ok(())
    }
}

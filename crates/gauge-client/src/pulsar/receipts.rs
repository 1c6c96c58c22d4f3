//! The part of a producer that listens: receipts, errors, topics that move, and what follows the loss of a connection.
//!
//! A partition's batches are answered in their order. When a connection is lost or the broker closes a producer, everything without a
//! receipt is sent again with the same sequence numbers over the next opening. The broker may have stored it before: it drops what is
//! repeated only where deduplication is enabled for the namespace.

use std::ops::Range;

use gauge_load::Observer;
use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};

use super::batch::Batch;
use super::commands::Command;
use super::error::{self, code};
use super::producer::Producer;
use super::routes::Event;
use super::session::{Frame, Session};
use super::wire::Malformed;
use crate::shared::Shared;
use crate::stream::Lost;
use crate::{Acks, ClientError, Ready};

/// What ends a connection, or the trial.
#[derive(Debug)]
pub(super) enum Fault {
    Lost(Lost),
    Fatal(ClientError),
}

impl From<Lost> for Fault {
    fn from(lost: Lost) -> Fault {
        Fault::Lost(lost)
    }
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Fault {
        Fault::Lost(malformed.into())
    }
}

/// A lookup or an opening failed: counted and tried again, or the end.
pub(super) fn on_failure(
    error: u64,
    words: String,
    who: &str,
    shared: &mut Shared,
    observer: &mut Observer,
) -> Result<(), Fault> {
    let words = format!("{who}: {} ({words})", error::name(error));
    if error::is_fatal(error, shared.is_prepared) {
        return Err(Fault::Fatal(ClientError::system(words)));
    }
    observer.error(error::name(error));
    shared.trouble = Some(words);
    Ok(())
}

impl Producer {
    /// Writes; what is written whole waits for its receipt.
    pub(super) fn write(
        &mut self,
        links: Range<usize>,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), (usize, Lost)> {
        let mut written = std::mem::take(&mut self.written);
        let result = self
            .routes
            .write(links, shared, |link, batch| written.push((link, batch)));
        if !written.is_empty() {
            let now_ns = monotonic_ns();
            for (link, batch) in written.drain(..) {
                self.on_written(link, batch, shared, observer, now_ns);
            }
        }
        self.written = written;
        result
    }

    fn on_written(
        &mut self,
        link: usize,
        batch: Box<Batch>,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) {
        let at = batch.partition;
        let partition = &mut self.partitions[at];
        partition.in_stream -= 1;
        if self.routes.open_link(at) != Some(link) {
            // The broker has closed the producer while this was on its way.
            self.arrived(link, now_ns);
            self.put_back(batch);
        } else if self.acks == Acks::None {
            self.arrived(link, now_ns);
            self.acknowledge(batch, shared, observer, now_ns);
            self.list(at);
        } else {
            partition.flying.push_back(batch);
        }
    }

    /// A batch is not waited for any more.
    fn arrived(&mut self, link: usize, now_ns: i64) {
        let link = &mut self.routes.links[link];
        link.in_flight = link.in_flight.saturating_sub(1);
        link.progress_ns = now_ns;
    }

    fn acknowledge(&mut self, batch: Box<Batch>, shared: &mut Shared, observer: &mut Observer, now_ns: i64) {
        if !batch.ledger.is_empty() {
            observer.acked(&batch.ledger, now_ns);
        }
        self.forget(batch, shared);
    }

    /// A socket is ready.
    pub(super) fn advance(
        &mut self,
        link: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), Fault> {
        let now_ns = monotonic_ns();
        let Some(session) = self
            .routes
            .links
            .get_mut(link)
            .and_then(|link| link.session.as_mut())
        else {
            return Ok(());
        };
        session.advance(ready, &shared.poller, now_ns)?;
        if ready.writable {
            self.write(link..link + 1, shared, observer)
                .map_err(|(_, lost)| lost)?;
        }
        if !ready.readable {
            return Ok(());
        }
        loop {
            // The session is put aside, so that its bytes can be read while the producer is changed.
            let Some(mut session) = self.routes.links[link].session.take() else {
                return Ok(());
            };
            let read = session.read(now_ns);
            let read_ns = monotonic_ns();
            let handled = self.take_frames(link, &mut session, shared, observer, read_ns);
            self.routes.links[link].session = Some(session);
            handled?;
            if !read? {
                return Ok(());
            }
        }
    }

    fn take_frames(
        &mut self,
        link: usize,
        session: &mut Session,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), Fault> {
        let was_ready = session.is_ready();
        while let Some(frame) = session.next()? {
            if !session.handle(&frame)? {
                self.on_frame(link, session, &frame, shared, observer, now_ns)?;
            }
        }
        if !was_ready && session.is_ready() {
            self.limit(session.message_bytes_max).map_err(Fault::Fatal)?;
        }
        Ok(())
    }

    #[inline]
    fn on_frame(
        &mut self,
        link: usize,
        session: &Session,
        frame: &Frame,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), Fault> {
        match session.command(frame)? {
            Command::Receipt { producer, sequence } => {
                self.on_receipt(link, producer, sequence, shared, observer, now_ns)?;
            }
            Command::SendError {
                producer,
                error,
                words,
            } => {
                if mutants::is(Mutant::PulsarErrorCountsAsAck)
                    && let Some(partition) = self.partitions.get(producer as usize)
                    && let Some(batch) = partition.flying.front()
                {
                    let sequence = batch.sequence;
                    return Ok(self.on_receipt(link, producer, sequence, shared, observer, now_ns)?);
                }
                self.on_send_error(producer, error, words, shared, observer)?;
            }
            command => match self.routes.on_command(link, &command, shared, now_ns)? {
                Event::Opened(at) => self.list(at),
                Event::Closed(at) => {
                    observer.error(error::CLOSED_BY_BROKER);
                    for _ in 0..self.partitions[at].flying.len() {
                        self.arrived(link, now_ns);
                    }
                    self.recall(at, error::CLOSED_BY_BROKER, observer);
                }
                Event::Failed { error, words } => {
                    on_failure(error, words, &format!("producer {}", self.id), shared, observer)?;
                }
                Event::Nothing | Event::Rested(_) => {}
            },
        }
        Ok(())
    }

    #[inline]
    fn on_receipt(
        &mut self,
        link: usize,
        producer: u64,
        sequence: u64,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), Malformed> {
        let at = usize::try_from(producer).unwrap_or(usize::MAX);
        let Some(partition) = self.partitions.get(at) else {
            return Err(Malformed("a receipt for a producer that was never opened"));
        };
        let first = partition.flying.front().map(|batch| batch.sequence);
        let batch = match first {
            Some(first) if first == sequence => {
                // It may be an answer to when it was sent first, which comes from the broker of then.
                let over = self.routes.open_link(at).unwrap_or(link);
                self.arrived(over, now_ns);
                self.partitions[at].flying.pop_front()
            }
            // A producer that was closed has answers under way: the broker has stored what waits to be sent again.
            _ if mutants::is(Mutant::PulsarLateReceiptIgnored) => None,
            _ => self.take_waiting(at, sequence),
        };
        match (batch, first) {
            (Some(batch), _) if mutants::is(Mutant::PulsarAckDropped) => self.forget(batch, shared),
            (Some(batch), _) => self.acknowledge(batch, shared, observer, now_ns),
            (None, Some(first)) if first < sequence => {
                return Err(Malformed("a receipt that leaves out an earlier one"));
            }
            // Of a batch that was sent twice, or that is not waited for.
            (None, _) => return Ok(()),
        }
        self.list(at);
        Ok(())
    }

    /// The broker would not take a batch.
    fn on_send_error(
        &mut self,
        producer: u64,
        error: u64,
        words: &str,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), Fault> {
        let kind = error::name(error);
        if matches!(
            error,
            code::TOPIC_TERMINATED | code::NOT_ALLOWED | code::AUTHORIZATION
        ) {
            let topic = self.routes.topic(usize::try_from(producer).unwrap_or(0));
            let words = format!("producer {}: {topic}: {kind} ({words})", self.id);
            return Err(Fault::Fatal(ClientError::system(words)));
        }
        observer.error(kind);
        shared.trouble = Some(format!("producer {}: {kind} ({words})", self.id));
        // As Pulsar's own clients do: the connection is closed, so that everything is sent again in its order.
        Err(Fault::Lost(Lost::Refused(kind, words.to_owned())))
    }

    /// A partition's broker will not answer any more: what flies is sent again.
    fn recall(&mut self, at: usize, kind: &'static str, observer: &mut Observer) {
        while let Some(batch) = self.partitions[at].flying.pop_back() {
            observer.retried(kind);
            self.put_back(batch);
        }
        self.list(at);
    }

    /// A connection is lost, or the trial is.
    pub(super) fn fail(
        &mut self,
        link: usize,
        fault: Fault,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), ClientError> {
        let lost = match fault {
            Fault::Lost(lost) => lost,
            Fault::Fatal(error) => return Err(error),
        };
        let words = format!("producer {}: {lost}", self.id);
        let kind = lost.kind();
        if matches!(
            &lost,
            Lost::Refused("AuthenticationError" | "AuthorizationError", _)
        ) {
            return Err(ClientError::system(words));
        }
        observer.error(kind);
        shared.trouble = Some(words);
        let over: Vec<usize> = self.routes.open_over(link).collect();
        let session = self.routes.lose(link, now_ns);
        for at in over {
            self.recall(at, kind, observer);
        }
        for batch in session.into_iter().flat_map(Session::into_unwritten) {
            self.partitions[batch.partition].in_stream -= 1;
            self.put_back(batch);
        }
        Ok(())
    }
}

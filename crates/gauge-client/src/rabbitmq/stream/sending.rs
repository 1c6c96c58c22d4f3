//! The part of a producer that sends: messages into batches, batches onto connections, and what was settled out of the books.

use gauge_load::Observer;
use gauge_load::clock::monotonic_ns;

use super::super::batch::Batch;
use super::producer::{Producer, State};
use super::publish;
use super::wire::error;
use crate::Acks;
use crate::keys::every;
use crate::shared::Shared;
use crate::stream::Lost;

impl Producer {
    /// Whether a connection's window has room for this many bytes more.
    pub fn can_send(&self, link: usize, bytes: usize) -> bool {
        self.links.get(link).is_some_and(|(link, session)| {
            let is_open = session.is_ready() && link.declaring == 0 && link.is_declared;
            is_open && (link.in_flight_bytes == 0 || link.in_flight_bytes + bytes <= self.window_bytes)
        })
    }

    /// Appends a message to a partition's open batch, of which it closes one that has no room. Returns its bytes on the wire.
    #[inline]
    pub(super) fn append(
        &mut self,
        at: usize,
        body_bytes: usize,
        shared: &mut Shared,
        now_ns: i64,
        write: impl FnOnce(&mut [u8]),
    ) -> usize {
        let bytes = publish::entry_bytes(body_bytes);
        if self.partitions[at].open.is_none() {
            let due_ns = now_ns.saturating_add(shared.spec.batch.linger_ns);
            let serial = self.partitions[at].unconfirmed.next();
            let mut batch = self.spares.open(serial, now_ns, due_ns);
            batch.partition = at as u32;
            publish::begin(&mut batch);
            self.lingering.opened(at, due_ns);
            self.partitions[at].open = Some(batch);
            self.partitions[at].is_due = false;
        }
        if let Some(batch) = &mut self.partitions[at].open {
            publish::append(batch, body_bytes, write);
        }
        shared.buffered_bytes += bytes;
        bytes
    }

    /// Closes the batch that a message does not fit into. Returns whether it did.
    #[inline]
    pub(super) fn make_room(&mut self, at: usize, body_bytes: usize) -> bool {
        let bytes = publish::entry_bytes(body_bytes);
        let is_full = |batch: &Batch| batch.len() + bytes > self.batch_bytes;
        let has_to = self.partitions[at].open.as_deref().is_some_and(is_full);
        if has_to {
            self.close_open(at);
        }
        has_to
    }

    pub(super) fn close_open(&mut self, at: usize) {
        if let Some(mut batch) = self.partitions[at].open.take() {
            publish::end(&mut batch);
            self.held.queued_bytes += batch.len();
            self.partitions[at].queue.push_back(batch);
            self.pend(at);
            self.partitioner.closed(at, every);
        }
    }

    /// Enters a partition that has something to send in its connection's list.
    pub(super) fn pend(&mut self, at: usize) {
        let partition = &mut self.partitions[at];
        let has_something = !partition.queue.is_empty() || (partition.is_due && partition.open.is_some());
        if let State::Open(link) = partition.state
            && has_something
            && !partition.is_pending
            && let Some((link, _)) = self.links.get_mut(link)
        {
            partition.is_pending = true;
            link.pending.push_back(at as u32);
        }
    }

    /// Marks the open batches that have waited for their linger.
    pub(super) fn mark_due(&mut self, now_ns: i64) {
        let now_ns = if self.held.is_flushing { i64::MAX } else { now_ns };
        while let Some(at) = self.lingering.next(now_ns, |at| {
            self.partitions[at].open.as_ref().map(|batch| batch.due_ns)
        }) {
            self.partitions[at].is_due = true;
            self.pend(at);
        }
    }

    /// Hands batches to a connection as far as its window allows, the partitions in turn, and writes.
    pub(super) fn send(
        &mut self,
        at: usize,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<(), Lost> {
        while let Some((link, _)) = self.links.get(at)
            && let Some(&partition) = link.pending.front()
        {
            let bytes = self.next_bytes(partition as usize);
            if bytes > 0 && !self.can_send(at, bytes) {
                break;
            }
            let batch = self.next_batch(partition as usize);
            let has_more = self.next_bytes(partition as usize) > 0;
            let Some((link, session)) = self.links.get_mut(at) else {
                break;
            };
            link.pending.pop_front();
            if has_more {
                link.pending.push_back(partition);
            }
            let partition = &mut self.partitions[partition as usize];
            partition.is_pending = has_more;
            let Some(mut batch) = batch else { continue };
            publish::address(&mut batch, partition.publisher);
            partition.sent_serial = batch.end_serial();
            if link.in_flight_bytes == 0 {
                link.progress_ns = now_ns;
            }
            link.in_flight_bytes += batch.len() - publish::FRAME_BYTES;
            session.push_batch(batch, now_ns);
            observer.request();
        }
        self.write(at, shared, observer)
    }

    /// Bytes of the batch that a partition would send next; 0: none.
    pub fn next_bytes(&self, at: usize) -> usize {
        let partition = &self.partitions[at];
        match (partition.queue.front(), partition.open.as_deref()) {
            (Some(batch), _) => batch.len(),
            (None, Some(batch)) if partition.is_due => batch.len(),
            _ => 0,
        }
    }

    fn next_batch(&mut self, at: usize) -> Option<Box<Batch>> {
        if self.partitions[at].queue.is_empty() && self.next_bytes(at) > 0 {
            // It is pending already and must not be entered a second time.
            self.close_open(at);
        }
        let batch = self.partitions[at].queue.pop_front()?;
        self.held.queued_bytes -= batch.len();
        Some(batch)
    }

    pub(super) fn write(
        &mut self,
        at: usize,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), Lost> {
        let Some((link, session)) = self.links.get_mut(at) else {
            return Ok(());
        };
        let partitions = &mut self.partitions;
        let is_unacknowledged = self.acks == Acks::None;
        let (mut freed_bytes, settled) = (0, &mut self.settled);
        if is_unacknowledged {
            settled.clear(self.id);
        }
        session.write(&shared.poller, |batch| {
            let partition = &mut partitions[batch.partition as usize];
            if is_unacknowledged {
                freed_bytes += batch.len() - publish::FRAME_BYTES;
                partition
                    .unconfirmed
                    .settle_up_to(batch.end_serial() - 1, true, settled);
            }
            partition.written.push_back(batch);
        })?;
        if freed_bytes > 0 {
            let touched = std::mem::take(&mut link.partitions);
            self.settle(at, &touched, shared, observer, monotonic_ns());
            if let Some((link, _)) = self.links.get_mut(at) {
                link.partitions = touched;
            }
        }
        Ok(())
    }

    /// Books what has been settled over a connection, and drops batches of which nothing waits.
    pub(super) fn settle(
        &mut self,
        at: usize,
        touched: &[u32],
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) {
        self.settled.report(observer, now_ns, error::PUBLISH_ERROR);
        self.held.ended(self.settled.messages, self.settled.probes);
        shared.buffered_bytes -= self.settled.wire_bytes;
        if let Some((link, _)) = self.links.get_mut(at) {
            link.in_flight_bytes -= self.settled.wire_bytes;
            link.progress_ns = now_ns;
        }
        for partition in touched {
            let partition = &mut self.partitions[*partition as usize];
            let first = partition.unconfirmed.first();
            while partition
                .written
                .front()
                .is_some_and(|batch| batch.end_serial() <= first)
                && let Some(batch) = partition.written.pop_front()
            {
                self.spares.close(batch);
            }
        }
    }
}

//! Reading the journal, entry by entry, over all segments.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use serde_json::json;

use super::{Recovery, failure};
use crate::batch;
use crate::broker;
use crate::broker::change::Change;
use crate::mutants::{self, Mutant};
use crate::storage::buffer::{AlignedBuffer, BLOCK_BYTES};
use crate::storage::entry::{self, Header, Kind};
use crate::storage::journal::ChunkExtent;
use crate::storage::segment::Segment;
use crate::wire::Reader;

/// A piece of a segment in memory.
struct Window<'a> {
    segment: &'a Segment,
    /// Where the next segment begins.
    limit: Option<u64>,
    buffer: AlignedBuffer,
    start: u64,
    count: usize,
    /// Whether the piece reaches to the end of the segment.
    is_last: bool,
    /// Bytes of the largest entry.
    entry_bytes_max: usize,
    read_bytes: u64,
    /// Behind the last byte that was seen and is not zero.
    used_end: u64,
}

impl<'a> Window<'a> {
    fn new(segment: &'a Segment, limit: Option<u64>, chunk_bytes: usize) -> Self {
        Self {
            segment,
            limit,
            buffer: AlignedBuffer::new(4 * chunk_bytes),
            start: segment.base,
            count: 0,
            is_last: false,
            entry_bytes_max: chunk_bytes / 2,
            read_bytes: 0,
            used_end: 0,
        }
    }

    fn read(&mut self, from: u64) -> io::Result<()> {
        let start = from / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let capacity = self.buffer.capacity_bytes() as u64;
        let room = self
            .limit
            .map_or(capacity, |limit| limit.saturating_sub(start).min(capacity));
        let count = self
            .segment
            .read(&mut self.buffer.all_mut()[..room as usize], start)?;
        self.start = start;
        self.count = count;
        self.is_last = (count as u64) < capacity;
        self.read_bytes += count as u64;
        Ok(())
    }

    /// The first whole entry at or behind journal position `from`.
    fn next(&mut self, from: u64) -> io::Result<Option<(Header, &[u8])>> {
        let mut from = from;
        loop {
            let behind = self.start + self.count as u64;
            if from < self.start || (from >= behind && !(self.is_last && self.count > 0)) {
                self.read(from)?;
            }
            if from >= self.start + self.count as u64 {
                return Ok(None);
            }
            // An entry that begins near the end may reach beyond it.
            let safe = match self.is_last {
                true => usize::MAX,
                false => self.count - self.entry_bytes_max,
            };
            let at = (from - self.start) as usize;
            let bytes = &self.buffer.all_mut()[..self.count];
            let found = entry::next(bytes, self.start, at).map(|(at, ..)| at);
            match found {
                Some(at) if at <= safe => {
                    let bytes = &self.buffer.all_mut()[..self.count];
                    let position = self.start + at as u64;
                    return Ok(entry::decode(&bytes[at..], position));
                }
                None if self.is_last => {
                    self.note_used(at);
                    return Ok(None);
                }
                _ => {
                    self.note_used(at);
                    from = from.max(self.start + safe as u64);
                    self.read(from)?;
                }
            }
        }
    }

    fn note_used(&mut self, from: usize) {
        let from = from.min(self.count);
        let bytes = &self.buffer.all_mut()[from..self.count];
        for (index, block) in bytes.chunks(BLOCK_BYTES).enumerate().rev() {
            if !entry::is_zero(block)
                && let Some(last) = block.iter().rposition(|&byte| byte != 0)
            {
                let at = from + index * BLOCK_BYTES + last;
                self.used_end = self.used_end.max(self.start + at as u64 + 1);
                return;
            }
        }
    }
}

fn unreadable(segment: &Segment) -> impl Fn(io::Error) -> String {
    let path = segment.final_path();
    move |error| failure("cannot read", &path, error)
}

impl Recovery<'_> {
    /// Reads the segments from the one with index `first` on; returns where the journal ends.
    pub(super) fn scan(&mut self, segments: &VecDeque<Arc<Segment>>, first: usize) -> Result<u64, String> {
        let base = segments[first].base;
        let mut end = base;
        let mut used_end = base;
        let mut is_first = true;
        for (index, segment) in segments.iter().enumerate().skip(first) {
            let limit = segments.get(index + 1).map(|next| next.base);
            let mut window = Window::new(segment, limit, self.chunk_bytes);
            let mut from = segment.base;
            loop {
                let found = window.next(from).map_err(unreadable(segment))?;
                let Some((header, payload)) = found else {
                    break;
                };
                // What lies before the first segment that is read is not looked at.
                let claimed = header.previous_end().max(base);
                let is_hole = claimed > end;
                if is_hole && !mutants::is(Mutant::ZeroesArePadding) {
                    let is_damage = end < self.state_end
                        || mutants::is(Mutant::TornTailIsDamage)
                        || (header.proves() > end && !mutants::is(Mutant::DamageIsATornTail))
                        || self.is_proved(segments, index, header.position, end)?;
                    if !is_damage {
                        self.tear(
                            segments,
                            end,
                            header.position + entry::footprint(payload.len()) as u64,
                        );
                        self.scanned_bytes += window.read_bytes;
                        return Ok(end);
                    }
                    self.report_damage(segments, end, claimed);
                }
                self.begin_chunk(&header, end, is_hole || is_first);
                is_first = false;
                self.take(&header, payload)?;
                end = header.position + entry::footprint(payload.len()) as u64;
                from = end;
                if let Some(chunk) = self.chunks.back_mut() {
                    chunk.end = end.next_multiple_of(BLOCK_BYTES as u64);
                    chunk.last_end = end;
                }
            }
            self.scanned_bytes += window.read_bytes;
            used_end = used_end.max(window.used_end);
        }
        if used_end > end {
            self.tear(segments, end, used_end);
        }
        Ok(end)
    }

    /// Whether some entry behind the one at `position` of segment `index` proves that `hole` was on the device.
    fn is_proved(
        &self,
        segments: &VecDeque<Arc<Segment>>,
        index: usize,
        position: u64,
        hole: u64,
    ) -> Result<bool, String> {
        if mutants::is(Mutant::DamageIsATornTail) {
            return Ok(false);
        }
        for (index, segment) in segments.iter().enumerate().skip(index) {
            let limit = segments.get(index + 1).map(|next| next.base);
            let mut window = Window::new(segment, limit, self.chunk_bytes);
            let mut from = position.max(segment.base);
            while let Some((header, payload)) = window.next(from).map_err(unreadable(segment))? {
                if header.proves() > hole {
                    return Ok(true);
                }
                from = header.position + entry::footprint(payload.len()) as u64;
            }
        }
        Ok(false)
    }

    /// The journal ends at `from`: what follows, up to `to`, was never acknowledged, or not promised to survive this.
    fn tear(&mut self, segments: &VecDeque<Arc<Segment>>, from: u64, to: u64) {
        self.cut_bytes += to - from;
        let behind = segments.partition_point(|segment| segment.base <= from);
        let path = segments[behind.saturating_sub(1)].final_path();
        self.events.write(
            "torn_tail_cut",
            json!({"path": path.display().to_string(), "position": from, "bytes": to - from}),
        );
    }

    /// Begins a chunk where the journal began one, and behind a hole, in which the beginning of one may be lost.
    fn begin_chunk(&mut self, header: &Header, end: u64, is_behind_hole: bool) {
        let block = header.position / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        let is_lost_beginning = is_behind_hole && block >= end;
        if !(header.chunk_start || is_lost_beginning || self.chunks.is_empty()) {
            return;
        }
        if let Some(last) = self.chunks.back_mut() {
            // Chunks lie side by side, what is damaged between them included.
            last.end = last.end.max(block.min(last.start + self.chunk_bytes as u64));
            last.last_end = last.last_end.max(header.previous_end().min(last.end));
        }
        self.chunks.push_back(ChunkExtent {
            start: block,
            end: block,
            last_end: block,
            timestamp_ms_max: i64::MIN,
        });
    }

    fn take(&mut self, header: &Header, payload: &[u8]) -> Result<(), String> {
        let is_new = header.position >= self.state_position;
        if is_new {
            let lost = header.counts.since(self.counted);
            self.lost.changes = self.lost.changes.saturating_add(lost.changes);
            self.lost.records = self.lost.records.wrapping_add(lost.records);
            self.counted = header.counts.after(header.kind, payload);
        }
        match header.kind {
            Kind::Change if is_new => {
                let change = Change::decode(&mut Reader::new(payload, false))
                    .map_err(|malformed| format!("journal position {}: {malformed}", header.position))?;
                if !(mutants::is(Mutant::LogStartOfJournalIgnored)
                    && matches!(change, Change::RecordsDeleted { .. }))
                {
                    self.apply(change);
                }
            }
            Kind::Change => {}
            Kind::Batch => self.take_batch(header, payload, is_new),
        }
        Ok(())
    }

    fn take_batch(&mut self, header: &Header, payload: &[u8], is_new: bool) {
        let batch = batch::header(payload);
        let Some(chunk) = self.chunks.back_mut() else {
            return;
        };
        chunk.timestamp_ms_max = chunk.timestamp_ms_max.max(batch.timestamp_ms_max);
        let chunk = chunk.start;
        let (marks_max, producers_max) = (self.topics.chunk_marks_max(), self.topics.producers_max());
        let Some(partition) = self.topics.partition_mut(header.partition) else {
            return;
        };
        let marks = partition.note_chunk(batch.base_offset, chunk, batch.timestamp_ms_max, marks_max);
        let mut known = 0;
        if is_new {
            let skipped = batch.base_offset.saturating_sub(partition.next_offset).max(0);
            self.skipped = self.skipped.wrapping_add(skipped as u32);
            let next = batch.base_offset.saturating_add(batch.offset_count);
            partition.next_offset = partition.next_offset.max(next);
            if !mutants::is(Mutant::ProducersForgottenInRecovery) {
                let mark = broker::producers::mark(&batch, batch.base_offset);
                known = partition.producers.note(mark, producers_max);
            }
        }
        self.topics.add_marks(marks);
        self.topics.add_producers(known);
    }
}

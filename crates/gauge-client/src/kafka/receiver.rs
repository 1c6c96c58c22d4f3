//! The part of a consumer that takes answers apart and hands their messages over.

use gauge_load::Observer;
use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};

use super::compress::Decompressor;
use super::consumer::{Consumer, Errand, FETCH_PAUSE_NS, Piece, Session};
use super::errors::{Code, Remedy, kind};
use super::fetch;
use super::messages::{self, TIMESTAMP_EARLIEST, TIMESTAMP_LATEST};
use super::record_batch::{self, Found, HEADER_BYTES, Records};
use super::sender::Trouble;
use super::shared::Shared;
use super::wire::Malformed;
use crate::{ClientError, Ready, Topic};

/// The shortest record: seven fields of a byte each.
const RECORD_BYTES_MIN: usize = 7;
/// Messages after which the clock is read again.
const CLOCK_MSGS: u32 = 1024;

impl Consumer {
    /// The poller says that a connection is ready.
    pub(super) fn answer(
        &mut self,
        at: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), ClientError> {
        match self.advance(at, ready, shared, observer) {
            Ok(()) => Ok(()),
            Err(Trouble::Lost(lost)) => {
                self.lose(at, &lost, shared, observer, monotonic_ns());
                shared.own.cluster.check_refused(&lost)
            }
            Err(Trouble::Fatal(error)) => Err(error),
        }
    }

    fn advance(
        &mut self,
        at: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), Trouble> {
        let Some(outlet) = self.outlets.get_mut(at) else {
            return Ok(());
        };
        // The buffer still holds messages: what has come since stays in the socket until they are done.
        let has_pieces = outlet.has_pieces();
        let Some(connection) = &mut outlet.link.connection else {
            return Ok(());
        };
        connection.advance(ready, &shared.poller)?;
        if ready.writable {
            connection.write(&shared.poller)?;
        }
        if !ready.readable {
            return Ok(());
        }
        outlet.waits_since_ns = outlet.waits_since_ns.min(observer.since_ns());
        if has_pieces {
            return Ok(());
        }
        while !connection.has_answer()? {
            if !connection.read()? && !connection.has_answer()? {
                // The rest of it is not there yet.
                outlet.waits_since_ns = i64::MAX;
                return Ok(());
            }
        }
        outlet.since_ns = std::mem::replace(&mut outlet.waits_since_ns, i64::MAX);
        let received_ns = monotonic_ns();
        let Some((request, body)) = connection.answer()? else {
            return Ok(());
        };
        let errand = request.cargo;
        shared.own.give_head(request.head);
        outlet.link.works();
        let Some(connection) = outlet.link.connection.take() else {
            return Ok(());
        };
        let read = match errand {
            Errand::Fetch => {
                let from = body.start;
                self.read_fetch(at, &connection.bytes()[body], from, received_ns, shared, observer)
            }
            Errand::ListOffsets => {
                self.read_offsets(at, &connection.bytes()[body], received_ns, shared, observer)
            }
            Errand::EpochEnds => {
                self.read_epoch_ends(at, &connection.bytes()[body], received_ns, shared, observer)
            }
        };
        self.outlets[at].link.connection = Some(connection);
        read?;
        // The next request is on its way while the messages of this answer are looked at.
        if received_ns >= self.outlets[at].fetch_after_ns {
            self.request(at, shared, received_ns)?;
        }
        Ok(())
    }

    fn place(&self, topics: &[Topic], name: &str, partition: i32) -> Option<usize> {
        let topic = topics.iter().position(|topic| topic.name == name)?;
        let place = *self.places[topic].get(usize::try_from(partition).ok()?)?;
        (place as usize).checked_sub(1)
    }

    fn read_offsets(
        &mut self,
        at: usize,
        body: &[u8],
        now_ns: i64,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), Trouble> {
        for (member, offset) in self.rows(at, messages::read_list_offsets(body)?, now_ns, shared, observer)? {
            let position = &mut self.positions[member];
            if position.next.is_some() || offset < 0 {
                continue;
            }
            if position.ask == TIMESTAMP_EARLIEST && offset < position.done {
                // It was out of range at the other end: the log is shorter than what was read of it.
                position.ask = TIMESTAMP_LATEST;
                continue;
            }
            position.next = Some(offset);
            position.done = offset;
            position.committed = offset;
            position.end = if position.ask == TIMESTAMP_LATEST {
                offset
            } else {
                -1
            };
        }
        Ok(())
    }

    /// Where the epochs of what was read end: behind it, or before, and then the log was cut off there.
    fn read_epoch_ends(
        &mut self,
        at: usize,
        body: &[u8],
        now_ns: i64,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), Trouble> {
        for (member, told) in self.rows(at, messages::read_epoch_ends(body)?, now_ns, shared, observer)? {
            let position = &mut self.positions[member];
            position.is_doubtful = false;
            // A log that knows nothing of the epoch does not tell that it was cut off.
            let Some(next) = position.next.filter(|next| (0..*next).contains(&told.end_offset)) else {
                continue;
            };
            observer.error(kind::LOG_TRUNCATED);
            shared.own.cluster.set_trouble(format!(
                "topic {:?}, partition {}: read up to offset {next}, and the log was cut off at {}",
                shared.spec.topics[position.topic].name, position.partition, told.end_offset
            ));
            position.next = Some(told.end_offset);
            position.done = position.done.min(told.end_offset);
            position.committed = position.committed.min(told.end_offset);
            position.committing = position.committing.min(told.end_offset);
            position.epoch = told.epoch;
            position.is_out_of_range = false;
            position.end = -1;
        }
        Ok(())
    }

    /// The rows of an answer, each with its member. Those with an error are left out, and a pause follows; and those of partitions that are led by
    /// another broker now, whose word it is.
    fn rows<T>(
        &mut self,
        at: usize,
        rows: Vec<messages::Row<'_, T>>,
        now_ns: i64,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<Vec<(usize, T)>, Trouble> {
        let mut has_error = rows.is_empty();
        let mut told = Vec::with_capacity(rows.len());
        for row in rows {
            let Some(member) = self.place(&shared.spec.topics, row.topic, row.partition) else {
                return Err(Malformed("it tells of a partition that was not asked for").into());
            };
            if self.positions[member].link != at as u32 {
                continue;
            }
            let code = Code(row.code);
            if code.is_none() {
                told.push((member, row.told));
            } else {
                has_error = true;
                self.partition_error(code, member, shared, observer)?;
            }
        }
        if has_error {
            self.outlets[at].pause(now_ns);
        }
        Ok(told)
    }

    /// A partition's error in an answer.
    fn partition_error(
        &mut self,
        code: Code,
        member: usize,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), Trouble> {
        let position = &mut self.positions[member];
        // Whoever cannot be asked may have more.
        if !mutants::is(Mutant::EndKept) {
            position.end = -1;
        }
        let topic = &shared.spec.topics[position.topic].name;
        if code.remedy() == Remedy::Pointless {
            return Err(Trouble::Fatal(ClientError::system(format!(
                "topic {topic:?}, partition {}: the server answers {}",
                position.partition,
                code.name()
            ))));
        }
        // While the positions are being found, partitions are new and their leaders settle: normal, and no message is concerned.
        let is_settling = position.next.is_none() && code.remedy() != Remedy::Fail;
        if !is_settling {
            observer.error(code.name());
        }
        shared.own.cluster.set_trouble(format!(
            "topic {topic:?}, partition {}: the server answers {}",
            position.partition,
            code.name()
        ));
        if code == Code::OFFSET_OUT_OF_RANGE {
            if position.epoch >= 0 && position.leader_epoch >= 0 && !position.is_out_of_range {
                position.is_out_of_range = true;
                self.doubt(member);
            } else {
                position.is_out_of_range = false;
                position.next = None;
                position.ask = if mutants::is(Mutant::ExpiredSkipsAll) {
                    TIMESTAMP_LATEST
                } else {
                    TIMESTAMP_EARLIEST
                };
            }
        } else {
            shared.own.cluster.refresh();
        }
        Ok(())
    }

    /// Looks through an answer to Fetch: errors, ends, and where its batches lie.
    fn read_fetch(
        &mut self,
        at: usize,
        body: &[u8],
        body_from: usize,
        received_ns: i64,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), Trouble> {
        self.outlets[at].pieces.clear();
        self.outlets[at].done_pieces = 0;
        self.outlets[at].received_ns = received_ns;
        let mut reader = fetch::FetchReader::begin(body)?;
        let code = Code(reader.code);
        if !code.is_none() {
            // A session that the broker has forgotten begins anew at once; anything else after a pause.
            if code.remedy() == Remedy::Retry {
                self.outlets[at].session = Session::Over;
                self.outlets[at].old_session = 0;
            } else {
                observer.error(code.name());
                self.outlets[at].pause(received_ns);
            }
            return Ok(());
        }
        let outlet = &mut self.outlets[at];
        outlet.session = outlet.session.answered(reader.session);
        outlet.old_session = reader.session;
        let mut has_error = false;
        while let Some(row) = reader.next()? {
            let Some(member) = self.place(&shared.spec.topics, row.topic, row.partition) else {
                return Err(Malformed("it tells of a partition that was not asked for").into());
            };
            // Before a doubt is settled, what was fetched may lie behind what was not.
            let is_elsewhere = self.positions[member].link != at as u32;
            if is_elsewhere || self.positions[member].is_doubtful {
                continue;
            }
            let code = Code(row.code);
            if !code.is_none() {
                has_error = true;
                self.partition_error(code, member, shared, observer)?;
                continue;
            }
            if row.high_watermark >= 0 {
                self.positions[member].end = row.high_watermark;
            }
            if self.is_paused && mutants::is(Mutant::PausedAnswerSkipped) {
                self.positions[member].next = Some(row.high_watermark);
                self.positions[member].done = row.high_watermark;
            }
            if !self.is_paused {
                let records = row.records;
                self.find_batches(at, member, records, body_from + row.records_at, observer)?;
            }
        }
        let outlet = &mut self.outlets[at];
        if outlet.has_pieces() {
            observer.fetched(self.subscription);
        }
        if has_error {
            outlet.pause(received_ns);
        } else {
            outlet.pause_ns = FETCH_PAUSE_NS;
        }
        Ok(())
    }

    /// Notes where a partition's batches lie, and where its next fetch begins.
    fn find_batches(
        &mut self,
        at: usize,
        member: usize,
        records: &[u8],
        records_from: usize,
        observer: &mut Observer,
    ) -> Result<(), Malformed> {
        let outlet = &mut self.outlets[at];
        let position = &mut self.positions[member];
        let Some(mut next) = position.next else {
            return Ok(());
        };
        let before = next;
        let mut from = 0;
        while from < records.len() {
            match record_batch::peek(&records[from..])? {
                Found::Partial => break,
                Found::Old(last_offset, len) => {
                    observer.error(kind::OLD_BATCH_FORMAT);
                    next = next.max(last_offset.saturating_add(1));
                    from += len;
                }
                Found::Batch(header, len) => {
                    outlet.pieces.push(Piece {
                        position: member as u32,
                        at: records_from + from,
                        len,
                    });
                    next = next.max(header.next_offset + i64::from(mutants::is(Mutant::PositionOneTooFar)));
                    from += len;
                    position.epoch = header.leader_epoch;
                    position.is_out_of_range = false;
                }
            }
        }
        if next == before {
            return Ok(());
        }
        position.next = Some(next);
        if let Ok(place) = outlet.members.binary_search(&(member as u32)) {
            // In a full fetch, the member after the last that had messages comes first.
            outlet.turn = place + 1;
        }
        if !position.is_changed {
            position.is_changed = true;
            outlet.changed.push(member as u32);
        }
        Ok(())
    }

    /// Hands messages of the latest answer to the observer, until they are done or the time is over. True: some are left.
    pub fn work_off(&mut self, at: usize, observer: &mut Observer, until_ns: i64) -> bool {
        let Some(outlet) = self.outlets.get_mut(at) else {
            return false;
        };
        let Some(connection) = &outlet.link.connection else {
            outlet.pieces.clear();
            outlet.done_pieces = 0;
            return false;
        };
        observer.turn(outlet.since_ns);
        let mut msgs = 0;
        while let Some(piece) = outlet.pieces.get(outlet.done_pieces) {
            if msgs >= CLOCK_MSGS {
                if monotonic_ns() >= until_ns {
                    return true;
                }
                msgs = 0;
            }
            outlet.done_pieces += 1;
            let batch = &connection.bytes()[piece.at..piece.at + piece.len];
            let position = &mut self.positions[piece.position as usize];
            let receive = |message: &[u8]| {
                observer.received(self.subscription, position.slot, message, outlet.received_ns);
            };
            match hand_over(batch, position.done, &mut self.decompressor, receive) {
                Ok((next_offset, records)) => {
                    position.done = position.done.max(next_offset);
                    msgs += records;
                }
                Err((next_offset, records)) => {
                    position.done = position.done.max(next_offset);
                    observer.error(kind::CORRUPT_BATCH);
                    let records = if mutants::is(Mutant::DamagedBatchIsOne) {
                        1
                    } else {
                        records
                    };
                    observer.corrupted(self.subscription, records);
                }
            }
        }
        outlet.pieces.clear();
        outlet.done_pieces = 0;
        false
    }
}

/// Hands the messages of a whole batch from offset `from` on to `receive`. Returns the offset after the batch and how many messages it
/// held; Err: that offset, and how many it claims to hold, of a batch that is corrupt.
pub(super) fn hand_over(
    batch: &[u8],
    from: i64,
    decompressor: &mut Decompressor,
    mut receive: impl FnMut(&[u8]),
) -> Result<(i64, u32), (i64, u64)> {
    let Ok(Found::Batch(header, _)) = record_batch::peek(batch) else {
        return Err((from, 1));
    };
    // What the header says may be what is damaged: there are no more records than there is room for.
    let room = (batch.len() - HEADER_BYTES) / RECORD_BYTES_MIN;
    let corrupt = (
        header.next_offset,
        u64::from(header.records).clamp(1, room.max(1) as u64),
    );
    if !record_batch::is_whole(batch) {
        return Err(corrupt);
    }
    if header.is_control && !mutants::is(Mutant::ControlIsMessage) {
        return Ok((header.next_offset, 1));
    }
    let bytes = &batch[HEADER_BYTES..];
    let bytes = match header.compression {
        0 => bytes,
        codec => decompressor.decompress(codec, bytes).map_err(|_| corrupt)?,
    };
    let mut records = Records::new(bytes, header.records);
    while let Some((delta, value)) = records.next().map_err(|_| corrupt)? {
        if header.base_offset.saturating_add(delta) >= from {
            receive(value);
        }
    }
    Ok((header.next_offset, header.records))
}

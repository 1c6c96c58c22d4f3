//! Batches that come to a node: where they go, and when they are acknowledged.

use std::collections::BTreeMap;

use bytes::Bytes;
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ApiKey, ProduceRequest, ProduceResponse, TopicName};

use super::parse::{HEADER_BYTES, Parsed, parse};
use super::serve::Pending;
use super::{Cluster, Damage, Event, Stored, remember};
use crate::marks::Mark;
use crate::net::{self, Stage, Told, World};
use crate::truth::Message;

/// A Produce request whose batches wait for followers.
#[derive(Clone, Debug)]
pub struct Acks {
    correlation: i32,
    version: i16,
    deadline_ns: i64,
    rows: Vec<Row>,
}

/// A batch of a Produce request.
#[derive(Clone, Debug)]
struct Row {
    topic: TopicName,
    partition: i32,
    slot: usize,
    /// None: it waits until followers have the partition up to this end of this epoch.
    code: Option<i16>,
    epoch: i32,
    end: i64,
    messages: Vec<Message>,
}

/// Wherefrom a batch's place among a producer's follows.
enum Place {
    Next,
    /// It is there already, and ends here.
    Known(i64),
}

impl World<Cluster> {
    /// A request with batches.
    pub fn produce(&mut self, at: usize, request: ProduceRequest, correlation: i32, version: i16) {
        let mut rows: BTreeMap<(usize, usize), Row> = BTreeMap::new();
        // A broker keeps what it is sent by partition: of two batches of one it knows the last.
        let mut last: BTreeMap<(usize, usize), (TopicName, i32, Bytes)> = BTreeMap::new();
        for (number, topic) in request.topic_data.into_iter().enumerate() {
            for row in topic.partition_data {
                let Some(slot) = self.slot(&topic.name, row.index) else {
                    self.truth
                        .offend(|| format!("there is no partition {} of {:?}", row.index, topic.name));
                    continue;
                };
                let records = row.records.unwrap_or_default();
                last.insert((number, slot), (topic.name.clone(), row.index, records));
            }
        }
        for ((number, slot), (topic, partition, records)) in last {
            let mut row = Row {
                topic,
                partition,
                slot,
                code: None,
                epoch: 0,
                end: 0,
                messages: Vec::new(),
            };
            self.take_batch(at, &mut row, &records, request.acks);
            rows.insert((number, slot), row);
        }
        if rows.values().any(|row| !row.messages.is_empty()) {
            self.truth.requested();
        }
        if request.acks == 0 {
            return;
        }
        self.carry(at, rows.values());
        let now_ns = self.now_ns();
        let mut rows: Vec<Row> = rows.into_values().collect();
        // Brokers answer in an order of their own.
        if self.rng.bool() {
            rows.reverse();
        }
        let deadline_ns = now_ns + i64::from(request.timeout_ms) * 1_000_000;
        self.sockets[at].own.pending = Pending::Acks(Acks {
            correlation,
            version,
            deadline_ns,
            rows,
        });
        self.at(deadline_ns, net::Event::Serve(at));
        self.look_at_ack(at);
    }

    /// Of a producer's batches of a partition none goes to a node while one is under way to another: what comes later would overtake it.
    fn carry<'a>(&mut self, at: usize, rows: impl Iterator<Item = &'a Row>) {
        let lots: Vec<(usize, u32)> = rows
            .filter_map(|row| Some((row.slot, row.messages.first()?.producer)))
            .collect();
        let node = self.sockets[at].node;
        let is_waited_for = self.sockets[at].stage == Stage::Open;
        let others = self
            .sockets
            .iter()
            .filter(|other| is_waited_for && other.node != node && other.stage == Stage::Open);
        let torn = others
            .flat_map(|other| other.own.carried.iter().flatten())
            .find(|lot| lots.contains(lot))
            .copied();
        if let Some((slot, producer)) = torn {
            self.truth
                .offend(|| format!("producer {producer} has batches of slot {slot} under way to two nodes"));
        }
        self.sockets[at].own.carried.push_back(lots);
    }

    /// A batch has come to a node.
    fn take_batch(&mut self, at: usize, row: &mut Row, records: &[u8], acks: i16) {
        let node = self.sockets[at].node;
        let parsed = match parse(records) {
            Ok(parsed) => parsed,
            Err(what) => {
                self.truth.offend(|| what);
                row.code = Some(2);
                return;
            }
        };
        row.messages.clone_from(&parsed.messages);
        self.truth.met(&parsed.messages);
        let slot = row.slot;
        if self.cluster.partitions[slot].leader != Some(node) {
            let believes = self.cluster.nodes[node].view[slot].0 == node as i32;
            row.code = Some(6);
            if believes && acks != -1 {
                // It does not know yet that others have another leader: what it takes is never theirs.
                self.marks.set(Mark::StaleLeaderStored);
                let number = self.truth.stored(slot, parsed.messages);
                self.truth.batches[number].is_alive = false;
                self.truth.has_truncated = true;
                row.code = Some(0);
            } else {
                self.marks.set(Mark::NotLeader);
            }
            return;
        }
        if let Some((code, is_stored)) = self.cluster.partitions[slot].refusals.next() {
            row.code = Some(code);
            self.marks.set(if is_stored {
                Mark::RefusedStored
            } else {
                Mark::RefusedNotStored
            });
            if !is_stored {
                return;
            }
        }
        match self.check_producer(slot, &parsed) {
            Ok(Place::Next) => {
                self.append(row, parsed, records);
            }
            Ok(Place::Known(end)) => {
                self.marks.set(Mark::DuplicateRecognised);
                (row.epoch, row.end) = (self.cluster.partitions[slot].epoch, end);
            }
            Err(code) => row.code = row.code.or(Some(code)),
        }
        if acks == 1 {
            row.code = row.code.or(Some(0));
        }
    }

    fn append(&mut self, row: &mut Row, parsed: Parsed, records: &[u8]) {
        let slot = row.slot;
        let number = self.truth.stored(slot, parsed.messages);
        let partition = &mut self.cluster.partitions[slot];
        let mut stored = Stored {
            number,
            base: partition.end,
            end: partition.end + i64::from(parsed.records),
            epoch: partition.epoch,
            producer_id: parsed.producer_id,
            producer_epoch: parsed.producer_epoch,
            base_sequence: parsed.base_sequence,
            bytes: records.to_vec(),
            bodies: parsed.bodies,
        };
        stored.bytes[..8].copy_from_slice(&stored.base.to_be_bytes());
        stored.bytes[12..16].copy_from_slice(&stored.epoch.to_be_bytes());
        let damage = partition.damages_next.take_if(|_| !stored.bodies.is_empty());
        let batch = &mut self.truth.batches[number];
        match damage {
            Some(Damage::Message) => {
                let which = self.rng.usize(..stored.bodies.len());
                Message::damage(&mut stored.bytes[stored.bodies[which].clone()]);
                seal(&mut stored.bytes);
                batch.damaged.push(which);
                self.marks.set(Mark::Damaged);
            }
            Some(Damage::Checksum) => {
                stored.bytes[17] ^= 0x40;
                batch.damaged.extend(0..stored.bodies.len());
                self.marks.set(Mark::BatchDamaged);
            }
            None => {}
        }
        let partition = &mut self.cluster.partitions[slot];
        (row.epoch, row.end) = (stored.epoch, stored.end);
        partition.end = stored.end;
        remember(&mut partition.producers, &stored);
        partition.log.push(stored);
        self.end_transaction(slot);
        let delay_ns = self.follow_ns();
        let end = self.cluster.partitions[slot].end;
        self.after(delay_ns, net::Event::Own(Event::Replicated(slot, row.epoch, end)));
    }

    /// Behind every so many batches another producer's transaction ends.
    fn end_transaction(&mut self, slot: usize) {
        let every = self.plan.settings.control_every;
        let partition = &mut self.cluster.partitions[slot];
        if every == 0 || !partition.log.len().is_multiple_of(every) {
            return;
        }
        let number = self.truth.stored(slot, Vec::new());
        partition.log.push(Stored {
            number,
            base: partition.end,
            end: partition.end + 1,
            epoch: partition.epoch,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            bytes: control_batch(partition.end, partition.epoch),
            bodies: Vec::new(),
        });
        partition.end += 1;
        self.marks.set(Mark::ControlBatch);
    }

    fn check_producer(&mut self, slot: usize, parsed: &Parsed) -> Result<Place, i16> {
        if parsed.producer_id < 0 {
            return Ok(Place::Next);
        }
        let partition = &self.cluster.partitions[slot];
        let first = parsed.base_sequence;
        let last = first.wrapping_add(parsed.records - 1) & i32::MAX;
        let Some(known) = partition.producers.get(&parsed.producer_id) else {
            if first == 0 {
                return Ok(Place::Next);
            }
            if self.plan.settings.forgotten_code == 0 {
                return Ok(Place::Next);
            }
            self.marks.set(Mark::ProducerForgotten);
            return Err(self.plan.settings.forgotten_code);
        };
        if parsed.producer_epoch < known.epoch {
            return Err(47);
        }
        if parsed.producer_epoch > known.epoch {
            return if first == 0 { Ok(Place::Next) } else { Err(45) };
        }
        if let Some((.., end)) = known.last.iter().find(|(a, b, _)| (*a, *b) == (first, last)) {
            return Ok(Place::Known(*end));
        }
        let expected = known
            .last
            .back()
            .map_or(0, |(_, last, _)| last.wrapping_add(1) & i32::MAX);
        if first == expected {
            return Ok(Place::Next);
        }
        self.marks.set(Mark::SequenceGap);
        let is_old = known.last.front().is_some_and(|(oldest, ..)| last < *oldest);
        Err(if is_old { 46 } else { 45 })
    }

    /// Followers have come farther: requests that wait for that may have their answers.
    pub fn look_at_acks(&mut self) {
        for at in 0..self.sockets.len() {
            if matches!(self.sockets[at].own.pending, Pending::Acks(_)) {
                self.look_at_ack(at);
            }
        }
    }

    /// The request of a connection that waits for followers has its answer, or waits on.
    pub fn look_at_ack(&mut self, at: usize) {
        let now_ns = self.now_ns();
        let node = self.sockets[at].node;
        let Pending::Acks(mut acks) = std::mem::replace(&mut self.sockets[at].own.pending, Pending::Nothing)
        else {
            return;
        };
        for row in &mut acks.rows {
            let partition = &self.cluster.partitions[row.slot];
            if row.code.is_some() {
                continue;
            }
            if partition.leader != Some(node) || partition.epoch != row.epoch {
                row.code = Some(6);
            } else if partition.high_watermark >= row.end {
                row.code = Some(0);
            } else if now_ns >= acks.deadline_ns {
                self.marks.set(Mark::AckTimedOut);
                row.code = Some(7);
            }
        }
        if acks.rows.iter().any(|row| row.code.is_none()) {
            self.sockets[at].own.pending = Pending::Acks(acks);
            return;
        }
        let mut topics: BTreeMap<TopicName, Vec<PartitionProduceResponse>> = BTreeMap::new();
        let mut acked = Vec::new();
        for row in acks.rows {
            let code = row.code.unwrap_or(0);
            if code == 0 || code == 46 {
                acked.extend(row.messages);
            } else {
                self.marks.set(Mark::Retry);
            }
            let answer = PartitionProduceResponse::default()
                .with_index(row.partition)
                .with_error_code(code);
            topics.entry(row.topic).or_default().push(answer);
        }
        let topics = topics.into_iter().map(|(name, rows)| {
            TopicProduceResponse::default()
                .with_name(name)
                .with_partition_responses(rows)
        });
        let response = ProduceResponse::default().with_responses(topics.collect());
        self.reply(
            at,
            ApiKey::Produce,
            acks.version,
            acks.correlation,
            &response,
            Told::Acked(acked),
        );
    }
}

/// Gives a batch the checksum of what it is.
fn seal(batch: &mut [u8]) {
    let checksum = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&checksum.to_be_bytes());
}

/// The batch with which a broker marks the end of a transaction: one record, which is no message.
fn control_batch(base: i64, epoch: i32) -> Vec<u8> {
    const COMMIT: [u8; 4] = [0, 0, 0, 1];
    const COORDINATOR: [u8; 6] = [0; 6];
    // Attributes and the differences of time and offset; key and value with their lengths; no headers. All numbers are below 64, so that a byte holds them.
    let varint = |number: usize| (number as u8) << 1;
    let mut record = vec![0, 0, 0, varint(COMMIT.len())];
    record.extend(COMMIT);
    record.push(varint(COORDINATOR.len()));
    record.extend(COORDINATOR);
    record.push(0);
    let mut batch = vec![0; HEADER_BYTES];
    batch.push(varint(record.len()));
    batch.extend(record);
    let length = (batch.len() - 12) as u32;
    batch[..8].copy_from_slice(&base.to_be_bytes());
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    batch[12..16].copy_from_slice(&epoch.to_be_bytes());
    batch[16] = 2;
    // Of a transaction, and a control batch.
    batch[22] = 0x30;
    batch[43..51].copy_from_slice(&1_i64.to_be_bytes());
    batch[53..57].copy_from_slice(&(-1_i32).to_be_bytes());
    batch[57..61].copy_from_slice(&1_i32.to_be_bytes());
    seal(&mut batch);
    batch
}

//! Fetch: what is asked for, fetch sessions with their epochs (KIP-227), and what there is to answer.

use std::collections::BTreeMap;

use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{FetchRequest, FetchResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::Cluster;
use super::serve::Pending;
use crate::marks::Mark;
use crate::net::{Told, World};

/// A partition that is fetched.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    offset: i64,
    leader_epoch: i32,
    bytes_max: usize,
    told_end: i64,
}

/// What a node knows of a client's partitions.
#[derive(Clone, Debug, Default)]
pub struct Session {
    epoch: i32,
    parts: BTreeMap<usize, Part>,
}

impl Session {
    /// Its epoch is another than the client's from now on.
    pub fn skip(&mut self) {
        self.epoch += 1;
    }
}

/// A fetch that waits for messages.
#[derive(Clone, Debug)]
pub struct Waiting {
    pub correlation: i32,
    pub version: i16,
    pub deadline_ns: i64,
    session: i32,
    is_incremental: bool,
    bytes_max: usize,
    /// Without a session.
    parts: BTreeMap<usize, Part>,
}

const SESSION_UNKNOWN: i16 = 70;
const SESSION_EPOCH_WRONG: i16 = 71;

impl World<Cluster> {
    /// A fetch has come: what it waits for, or the code with which it is refused.
    pub fn begin_fetch(
        &mut self,
        at: usize,
        request: &FetchRequest,
        correlation: i32,
        version: i16,
    ) -> Result<Waiting, i16> {
        let node = self.sockets[at].node;
        let mut named = BTreeMap::new();
        for topic in &request.topics {
            for row in &topic.partitions {
                let Some(slot) = self.slot(&topic.topic, row.partition) else {
                    continue;
                };
                let part = Part {
                    offset: row.fetch_offset,
                    leader_epoch: row.current_leader_epoch,
                    bytes_max: row.partition_max_bytes as usize,
                    told_end: -1,
                };
                if named.insert(slot, part).is_some() {
                    self.truth.offend(|| format!("a fetch names slot {slot} twice"));
                }
            }
        }
        let now_ns = self.now_ns();
        let mut waiting = Waiting {
            correlation,
            version,
            deadline_ns: now_ns + i64::from(request.max_wait_ms) * 1_000_000,
            session: 0,
            is_incremental: false,
            bytes_max: (request.max_bytes as usize).min(self.plan.settings.answer_bytes),
            parts: BTreeMap::new(),
        };
        let node = &mut self.cluster.nodes[node];
        if request.session_epoch <= 0 {
            node.sessions.remove(&request.session_id);
            if request.session_epoch == 0 && self.plan.settings.keeps_sessions {
                if node.next_session > 1 {
                    self.marks.set(Mark::SessionRebuilt);
                }
                waiting.session = node.next_session;
                node.next_session += 1;
                let session = Session {
                    epoch: 1,
                    parts: named,
                };
                node.sessions.insert(waiting.session, session);
            } else {
                waiting.parts = named;
            }
            return Ok(waiting);
        }
        let Some(session) = node.sessions.get_mut(&request.session_id) else {
            return Err(SESSION_UNKNOWN);
        };
        if session.epoch != request.session_epoch {
            self.marks.set(Mark::SessionEpochWrong);
            if self.plan.is_calm() {
                let (asked, known) = (request.session_epoch, session.epoch);
                let what = || format!("a session is asked with epoch {asked}, and has {known}");
                self.truth.offend(what);
            }
            return Err(SESSION_EPOCH_WRONG);
        }
        session.epoch += 1;
        for (slot, mut part) in named {
            part.told_end = session.parts.get(&slot).map_or(-1, |known| known.told_end);
            session.parts.insert(slot, part);
        }
        self.marks.set(Mark::SessionKept);
        waiting.session = request.session_id;
        waiting.is_incremental = true;
        Ok(waiting)
    }

    /// The answer to a fetch, if there is something to answer, or it has waited long enough.
    pub fn fetched(&mut self, at: usize, waiting: &Waiting) -> Option<(FetchResponse, Told)> {
        let node = self.sockets[at].node;
        let is_late = self.now_ns() >= waiting.deadline_ns;
        let parts = if waiting.session == 0 {
            waiting.parts.clone()
        } else {
            self.cluster.nodes[node]
                .sessions
                .get(&waiting.session)
                .map(|session| session.parts.clone())
                .unwrap_or_default()
        };
        let mut has_something = false;
        let mut bytes_left = waiting.bytes_max;
        let mut rows: BTreeMap<usize, Vec<(usize, PartitionData)>> = BTreeMap::new();
        let (mut batches, mut told) = (Vec::new(), Vec::new());
        let mut refused = Vec::new();
        for (slot, part) in &parts {
            let (topic, index) = self.place(*slot);
            let partition = &self.cluster.partitions[*slot];
            let mut data = PartitionData::default()
                .with_partition_index(index)
                .with_aborted_transactions(None);
            let leads = partition.leader == Some(node);
            let code = match partition.fetch_refusals.peek() {
                _ if !leads => 6,
                Some(code) => {
                    refused.push(*slot);
                    code
                }
                None if part.leader_epoch >= 0 && part.leader_epoch < partition.epoch => 74,
                None if part.leader_epoch > partition.epoch => 75,
                None if part.offset > partition.end || part.offset < partition.start => 1,
                None => 0,
            };
            match code {
                6 => self.marks.set(Mark::NotLeader),
                74 => self.marks.set(Mark::FencedEpoch),
                75 => self.marks.set(Mark::UnknownEpoch),
                1 if part.offset < partition.start => self.marks.set(Mark::Expired),
                _ => {}
            }
            data.error_code = code;
            data.high_watermark = if code == 0 { partition.high_watermark } else { -1 };
            let mut records = Vec::new();
            if code == 0 {
                let first = partition.log.partition_point(|stored| stored.end <= part.offset);
                for stored in &partition.log[first..] {
                    if stored.end > partition.high_watermark {
                        break;
                    }
                    let is_first = batches.is_empty();
                    let room = bytes_left.min(part.bytes_max.saturating_sub(records.len()));
                    if !is_first && stored.bytes.len() > room {
                        // A broker cuts the last batch off where the room ends.
                        records.extend_from_slice(&stored.bytes[..room]);
                        break;
                    }
                    records.extend_from_slice(&stored.bytes);
                    bytes_left = bytes_left.saturating_sub(stored.bytes.len());
                    batches.push(stored.number);
                }
            }
            if code == 0 {
                told.push(*slot);
            }
            let is_told = !waiting.is_incremental
                || code != 0
                || !records.is_empty()
                || part.told_end != partition.high_watermark;
            has_something |= code != 0 || !records.is_empty();
            data.records = Some(records.into());
            if is_told {
                rows.entry(topic).or_default().push((*slot, data));
            }
        }
        if !has_something && !is_late {
            return None;
        }
        for slot in refused {
            self.cluster.partitions[slot].fetch_refusals.next();
        }
        if let Some(session) = self.cluster.nodes[node].sessions.get_mut(&waiting.session) {
            for (slot, data) in rows.values().flatten() {
                if let Some(part) = session.parts.get_mut(slot) {
                    part.told_end = data.high_watermark;
                }
            }
        }
        let topics = rows.into_iter().map(|(topic, rows)| {
            FetchableTopicResponse::default()
                .with_topic(TopicName(StrBytes::from_string(self.topics[topic].0.clone())))
                .with_partitions(rows.into_iter().map(|(_, data)| data).collect())
        });
        let response = FetchResponse::default()
            .with_session_id(waiting.session)
            .with_responses(topics.collect());
        let told = self.told(at, batches, &told, self.now_ns());
        Some((response, told))
    }

    /// Something has changed: fetches that wait may have an answer.
    pub fn look_at_fetches(&mut self) {
        if !std::mem::take(&mut self.cluster.is_changed) {
            return;
        }
        for at in 0..self.sockets.len() {
            if matches!(self.sockets[at].own.pending, Pending::Fetch(_)) {
                self.serve(at);
            }
        }
    }
}

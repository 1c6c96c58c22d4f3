//! Fetch sessions (KIP-227): what a consumer wants is told once, and only changes are sent.
//!
//! A session belongs to the connection that began it and ends with it. Its partitions are not looked at one by one: each partition knows which sessions watch
//! it, and a commit notes the partition as a candidate there. So a fetch costs what has changed, whatever the number of quiet partitions.

use std::collections::HashMap;
use std::sync::Arc;

use super::topics::{ConnectionId, Topics};

/// Sessions at most; a client that gets none sends complete fetches.
const SESSIONS_MAX: usize = 2_000;
/// Partitions of all sessions at most (about 150 bytes each).
const SLOTS_MAX: usize = 200_000;

/// One partition of a session.
#[derive(Debug, Clone)]
pub struct Slot {
    /// Topic.
    pub topic: Arc<str>,
    /// Index of the partition in its topic.
    pub index: i32,
    /// Its internal id; None while there is no such partition.
    pub partition: Option<u32>,
    /// Where the client reads on.
    pub offset: i64,
    /// Bytes that it wants of it at once.
    pub bytes_max: usize,
    is_candidate: bool,
}

/// What a consumer wants.
#[derive(Debug)]
pub struct Session {
    /// Whose it is.
    pub connection: ConnectionId,
    /// The epoch that its next fetch must have.
    pub epoch: i32,
    /// Whether a fetch waits for something to happen.
    pub waits: bool,
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    topics: HashMap<Arc<str>, HashMap<i32, u32>>,
    candidates: Vec<u32>,
}

impl Session {
    /// The slots that may have something to answer; they are no candidates any more until `keep` or a commit makes them some.
    pub fn take_candidates(&mut self) -> Vec<u32> {
        let candidates = std::mem::take(&mut self.candidates);
        for &slot in &candidates {
            if let Some(slot) = self.slots[slot as usize].as_mut() {
                slot.is_candidate = false;
            }
        }
        candidates
    }

    /// Makes a slot a candidate, behind those that are some already.
    pub fn keep(&mut self, slot: u32) {
        if let Some(found) = self.slots.get_mut(slot as usize).and_then(Option::as_mut)
            && !std::mem::replace(&mut found.is_candidate, true)
        {
            self.candidates.push(slot);
        }
    }

    /// A slot; None when the client has taken it back.
    pub fn slot_mut(&mut self, slot: u32) -> Option<&mut Slot> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    by_id: HashMap<i32, Session>,
    of_connection: HashMap<ConnectionId, i32>,
    slots: usize,
    last_id: i32,
}

impl Sessions {
    /// Begins a session without partitions; None when there are too many.
    pub fn begin(&mut self, connection: ConnectionId, partitions: usize) -> Option<i32> {
        if self.by_id.len() >= SESSIONS_MAX || self.slots + partitions > SLOTS_MAX {
            return None;
        }
        self.last_id = self.last_id.checked_add(1).unwrap_or(1);
        let session = Session {
            connection,
            epoch: 1,
            waits: false,
            slots: Vec::new(),
            free: Vec::new(),
            topics: HashMap::new(),
            candidates: Vec::new(),
        };
        self.by_id.insert(self.last_id, session);
        self.of_connection.insert(connection, self.last_id);
        Some(self.last_id)
    }

    /// A session.
    pub fn get_mut(&mut self, id: i32) -> Option<&mut Session> {
        self.by_id.get_mut(&id)
    }

    /// Tells a session where the client reads a partition; it becomes a candidate. Nothing happens when there are too many partitions in all sessions; returns whether there are.
    pub fn set(
        &mut self,
        topics: &mut Topics,
        id: i32,
        name: &str,
        index: i32,
        offset: i64,
        bytes_max: usize,
    ) -> bool {
        let Some(session) = self.by_id.get_mut(&id) else {
            return true;
        };
        let known = session
            .topics
            .get(name)
            .and_then(|slots| slots.get(&index))
            .copied();
        let at = match known {
            Some(at) => at,
            None if self.slots >= SLOTS_MAX => return false,
            None => {
                let topic = match session.topics.get_key_value(name) {
                    Some((topic, _)) => Arc::clone(topic),
                    None => Arc::from(name),
                };
                let slot = Slot {
                    topic: Arc::clone(&topic),
                    index,
                    partition: None,
                    offset,
                    bytes_max,
                    is_candidate: false,
                };
                let at = match session.free.pop() {
                    Some(at) => at,
                    None => {
                        session.slots.push(None);
                        session.slots.len() as u32 - 1
                    }
                };
                session.slots[at as usize] = Some(slot);
                session.topics.entry(topic).or_default().insert(index, at);
                self.slots += 1;
                at
            }
        };
        if let Some(slot) = session.slot_mut(at) {
            slot.offset = offset;
            slot.bytes_max = bytes_max;
            resolve(topics, id, at, slot);
        }
        session.keep(at);
        true
    }

    /// Takes a partition out of a session.
    pub fn forget(&mut self, topics: &mut Topics, id: i32, name: &str, index: i32) {
        let Some(session) = self.by_id.get_mut(&id) else {
            return;
        };
        let Some(at) = session
            .topics
            .get_mut(name)
            .and_then(|slots| slots.remove(&index))
        else {
            return;
        };
        if let Some(slot) = session.slots[at as usize].take() {
            unwatch(topics, id, &slot);
        }
        session.candidates.retain(|&candidate| candidate != at);
        session.free.push(at);
        self.slots -= 1;
    }

    /// Ends the session of a connection, if it has one.
    pub fn end(&mut self, topics: &mut Topics, connection: ConnectionId) {
        let Some(id) = self.of_connection.remove(&connection) else {
            return;
        };
        if let Some(session) = self.by_id.remove(&id) {
            self.slots -= session.len();
            for slot in session.slots.iter().flatten() {
                unwatch(topics, id, slot);
            }
        }
    }

    /// Something happened to a partition that a session watches: notes it there, and the connection in `woken` if it waits.
    pub fn note(&mut self, (id, slot): (i32, u32), woken: &mut Vec<ConnectionId>) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.keep(slot);
            if session.waits {
                woken.push(session.connection);
            }
        }
    }
}

/// Finds the partition of a slot, which may have been created or deleted since, and watches it.
pub fn resolve(topics: &mut Topics, id: i32, at: u32, slot: &mut Slot) {
    if slot
        .partition
        .is_some_and(|partition| topics.partition(partition).is_some())
    {
        return;
    }
    slot.partition = topics.partition_id(&slot.topic, slot.index);
    if let Some(partition) = slot
        .partition
        .and_then(|partition| topics.partition_mut(partition))
    {
        partition.watchers.push((id, at));
    }
}

fn unwatch(topics: &mut Topics, id: i32, slot: &Slot) {
    if let Some(partition) = slot
        .partition
        .and_then(|partition| topics.partition_mut(partition))
    {
        partition.watchers.retain(|&(watcher, _)| watcher != id);
    }
}

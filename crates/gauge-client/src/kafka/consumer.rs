//! A consumer: finds its positions, fetches, hands messages to the observer, commits.
//!
//! There is one Fetch under way per broker. As soon as an answer is there, the headers of its batches tell where the next one begins,
//! so the next Fetch leaves before the messages of this one are looked at. Messages are parsed where they were read. Fetch sessions
//! (KIP-227) keep the cost of ten thousand quiet partitions off the wire; a server that gives no session is asked in full each time.
//!
//! Pausing means not fetching: an answer that comes while the subscription is paused is dropped, and asked for again later.

use gauge_load::Observer;
use gauge_load::clock::monotonic_ns;

use super::cluster::{Cluster, NO_BROKER};
use super::commit::Committer;
use super::compress::Decompressor;
use super::connection::{Cargo, Lost, Request};
use super::errors::{Code, Remedy, kind};
use super::fetch;
use super::link::{Link, NO_LINK, is_noteworthy};
use super::messages::{self, TIMESTAMP_EARLIEST, TIMESTAMP_LATEST};
use super::record_batch::{self, Found, HEADER_BYTES, Records};
use super::sender::Trouble;
use super::shared::Shared;
use super::wire::{self, Malformed, Put, begin_request, finish_request};
use crate::{ClientError, ConsumerSpec, Ready, StartAt, Topic};

/// First size of the buffer for answers; it grows to the size of the largest.
const INPUT_BYTES: usize = 64 << 10;
/// A fetch is answered after this time at the latest, with or without messages.
const LONG_POLL_MS: i32 = 500;
/// Bytes asked for per Fetch, within which the work on one answer stays short.
const FETCH_BYTES_MAX: usize = 1 << 20;
const FETCH_BYTES_MIN: usize = 128 << 10;
const FETCH_MSGS: usize = 10_000;
/// Bytes asked for per partition, at least.
const PARTITION_BYTES_MIN: usize = 256 << 10;
/// Pause after an answer with an error; doubles up to a second.
const FETCH_PAUSE_NS: i64 = 20_000_000;
const FETCH_PAUSE_NS_MAX: i64 = 1_000_000_000;
/// Messages after which the clock is read again.
const CLOCK_MSGS: u32 = 1024;

/// What a request of a consumer is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Errand {
    Fetch,
    ListOffsets,
}

impl Cargo for Errand {}

/// One partition of a consumer.
#[derive(Clone, Debug)]
pub(super) struct Position {
    /// Index of its topic.
    pub topic: usize,
    pub partition: i32,
    pub slot: usize,
    /// Index of its leader's outlet, or [`NO_LINK`].
    pub link: u32,
    /// Where the next fetch begins; None: to be asked for.
    pub next: Option<i64>,
    /// What is asked for when `next` is None.
    ask: i64,
    /// Everything below was handed to the observer.
    pub done: i64,
    /// Below this it was committed.
    pub committed: i64,
    /// Below this a commit is under way.
    pub committing: i64,
    /// End of the partition as the latest answer told; -1: not told yet.
    end: i64,
    /// Whether it stands in its outlet's list of positions that the session does not know.
    is_changed: bool,
}

/// A batch in an answer.
#[derive(Clone, Copy, Debug)]
struct Piece {
    position: u32,
    at: usize,
    len: usize,
}

/// A broker and the partitions that are fetched from it.
#[derive(Debug)]
struct Outlet {
    link: Link<Errand>,
    members: Vec<u32>,
    /// The session's number and its next epoch; None: the next fetch is a full one.
    session: Option<(i32, i32)>,
    /// The session of before, which the next full fetch closes; 0: none.
    old_session: i32,
    /// Positions that moved since the session was told.
    changed: Vec<u32>,
    /// Where a full fetch begins among the members, so that all have their turn.
    turn: usize,
    /// Batches of the latest answer, and how many of them are done.
    pieces: Vec<Piece>,
    done_pieces: usize,
    received_ns: i64,
    fetch_after_ns: i64,
    pause_ns: i64,
}

impl Outlet {
    fn new(broker: i32, token: u64) -> Outlet {
        Outlet {
            link: Link::new(broker, token),
            members: Vec::new(),
            session: None,
            old_session: 0,
            changed: Vec::new(),
            turn: 0,
            pieces: Vec::new(),
            done_pieces: 0,
            received_ns: 0,
            fetch_after_ns: i64::MIN,
            pause_ns: FETCH_PAUSE_NS,
        }
    }

    fn has_pieces(&self) -> bool {
        self.done_pieces < self.pieces.len()
    }

    fn pause(&mut self, now_ns: i64) {
        self.session = None;
        self.fetch_after_ns = now_ns + self.pause_ns;
        self.pause_ns = (self.pause_ns * 2).min(FETCH_PAUSE_NS_MAX);
    }
}

/// A consumer.
pub(crate) struct Consumer {
    index: usize,
    subscription: usize,
    pub(super) positions: Vec<Position>,
    /// Per topic and partition: the number of the position, plus one.
    places: Vec<Vec<u32>>,
    outlets: Vec<Outlet>,
    is_paused: bool,
    fetch_bytes: usize,
    decompressor: Decompressor,
    pub(super) committer: Option<Committer>,
}

impl Consumer {
    pub fn new(index: usize, spec: &ConsumerSpec, shared: &Shared, commit_token: u64) -> Consumer {
        let topics: &[Topic] = &shared.spec.topics;
        let mut partitions = spec.partitions.clone();
        partitions.sort_unstable();
        partitions.dedup();
        let mut places: Vec<Vec<u32>> = topics.iter().map(|_| Vec::new()).collect();
        let mut positions = Vec::with_capacity(partitions.len());
        for (topic, partition) in partitions {
            let place = &mut places[topic];
            place.resize(place.len().max(partition as usize + 1), 0);
            place[partition as usize] = positions.len() as u32 + 1;
            positions.push(Position {
                topic,
                partition: partition as i32,
                slot: topics[topic].first_slot + partition as usize,
                link: NO_LINK,
                next: None,
                ask: match spec.start {
                    StartAt::Latest => TIMESTAMP_LATEST,
                    StartAt::Earliest => TIMESTAMP_EARLIEST,
                },
                done: 0,
                committed: 0,
                committing: 0,
                end: -1,
                is_changed: false,
            });
        }
        Consumer {
            index,
            subscription: spec.subscription,
            positions,
            places,
            outlets: Vec::new(),
            is_paused: false,
            fetch_bytes: (FETCH_MSGS * (shared.spec.payload_bytes_max + 10))
                .clamp(FETCH_BYTES_MIN, FETCH_BYTES_MAX),
            decompressor: Decompressor::new(),
            committer: spec
                .commit_interval_ns
                .map(|interval_ns| Committer::new(index, &spec.name, interval_ns, commit_token)),
        }
    }

    pub fn subscription(&self) -> usize {
        self.subscription
    }

    pub fn is_ready(&self) -> bool {
        self.assigned() == self.positions.len()
    }

    /// Partitions whose position is fixed.
    pub fn assigned(&self) -> usize {
        self.positions
            .iter()
            .filter(|position| position.next.is_some())
            .count()
    }

    pub fn pause(&mut self, is_paused: bool) {
        if self.is_paused && !is_paused {
            for position in &mut self.positions {
                position.end = -1;
            }
            for outlet in &mut self.outlets {
                // A full fetch tells the end of every partition.
                outlet.session = None;
            }
        }
        self.is_paused = is_paused;
    }

    pub fn is_caught_up(&self) -> bool {
        !self.outlets.iter().any(Outlet::has_pieces)
            && self
                .positions
                .iter()
                .all(|position| position.next.is_some() && position.end >= 0 && position.done >= position.end)
    }

    /// Takes over what the cluster says about leaders.
    pub fn apply_metadata(&mut self, cluster: &Cluster, token: impl Fn(usize, usize) -> u64) {
        for at in 0..self.positions.len() {
            let leader = cluster.leader(self.positions[at].slot);
            let link = if leader == NO_BROKER {
                NO_LINK
            } else {
                let known = self
                    .outlets
                    .iter()
                    .position(|outlet| outlet.link.broker == leader);
                known.unwrap_or_else(|| {
                    let at = self.outlets.len();
                    self.outlets.push(Outlet::new(leader, token(self.index, at)));
                    at
                }) as u32
            };
            let old = std::mem::replace(&mut self.positions[at].link, link);
            if old == link {
                continue;
            }
            if let Some(outlet) = self.outlets.get_mut(old as usize) {
                outlet.members.retain(|member| *member != at as u32);
                outlet.session = None;
            }
            if let Some(outlet) = self.outlets.get_mut(link as usize) {
                outlet.members.push(at as u32);
                outlet.session = None;
            }
        }
        for outlet in &mut self.outlets {
            outlet.members.sort_unstable();
            outlet.link.members = outlet.members.len();
        }
    }

    /// Everything that is to be done without an event. Returns whether there are messages left to look at.
    pub fn drive(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
        until_ns: i64,
    ) -> bool {
        let mut has_work = false;
        for at in 0..self.outlets.len() {
            if let Err(lost) = self.drive_outlet(at, shared, now_ns) {
                self.lose(at, &lost, shared, observer, now_ns);
            }
            has_work |= self.work_off(at, observer, until_ns);
        }
        if let Some(mut committer) = self.committer.take() {
            committer.drive(&mut self.positions, shared, observer, now_ns);
            self.committer = Some(committer);
        }
        has_work
    }

    fn drive_outlet(&mut self, at: usize, shared: &mut Shared, now_ns: i64) -> Result<(), Lost> {
        let outlet = &mut self.outlets[at];
        outlet
            .link
            .ensure(&shared.cluster, &shared.poller, INPUT_BYTES, now_ns)?;
        let Some(connection) = &outlet.link.connection else {
            return Ok(());
        };
        connection.check_deadline(now_ns)?;
        if connection.is_open() && connection.in_flight() == 0 && now_ns >= outlet.fetch_after_ns {
            self.request(at, shared, now_ns)?;
        }
        Ok(())
    }

    /// Sends the next request of an outlet: for positions that are not known, else for messages.
    fn request(&mut self, at: usize, shared: &mut Shared, now_ns: i64) -> Result<(), Lost> {
        let outlet = &self.outlets[at];
        let is_unknown = |member: &&u32| self.positions[**member as usize].next.is_none();
        let errand = if outlet.members.iter().any(|member| is_unknown(&member)) {
            Errand::ListOffsets
        } else if self.is_paused || outlet.members.is_empty() {
            return Ok(());
        } else {
            Errand::Fetch
        };
        let mut head = shared.take_head();
        let api = match errand {
            Errand::Fetch => wire::FETCH,
            Errand::ListOffsets => wire::LIST_OFFSETS,
        };
        let Some(connection) = &mut self.outlets[at].link.connection else {
            return Ok(());
        };
        let correlation = connection.next_correlation();
        begin_request(&mut head, api, correlation, &shared.client_id);
        let wait_ns = match errand {
            Errand::Fetch => {
                self.put_fetch(at, &mut head, &shared.spec.topics);
                i64::from(LONG_POLL_MS) * 1_000_000
            }
            Errand::ListOffsets => {
                self.put_list_offsets(at, &mut head, &shared.spec.topics);
                0
            }
        };
        finish_request(&mut head, 0);
        let Some(connection) = &mut self.outlets[at].link.connection else {
            return Ok(());
        };
        connection.push(Request {
            correlation,
            bytes: head.len(),
            head,
            deadline_ns: now_ns.saturating_add(shared.spec.request_timeout_ns + wait_ns),
            has_answer: true,
            cargo: errand,
        });
        connection.write(&shared.poller)
    }

    fn put_list_offsets(&self, at: usize, head: &mut Vec<u8>, topics: &[Topic]) {
        head.put_i32(-1);
        // Read uncommitted.
        head.put_i8(0);
        let unknown: Vec<&Position> = self.outlets[at]
            .members
            .iter()
            .map(|member| &self.positions[*member as usize])
            .filter(|position| position.next.is_none())
            .collect();
        messages::put_by_topic(
            head,
            &unknown,
            |position| (position.topic, position.partition),
            |topic| topics[topic].name.clone(),
            |head, position| head.put_i64(position.ask),
        );
    }

    fn put_fetch(&mut self, at: usize, head: &mut Vec<u8>, topics: &[Topic]) {
        let outlet = &mut self.outlets[at];
        let (session, epoch) = outlet.session.unwrap_or((outlet.old_session, 0));
        let members = outlet.members.len();
        let partition_bytes = (self.fetch_bytes / members.max(1))
            .max(PARTITION_BYTES_MIN)
            .min(self.fetch_bytes);
        let limits = fetch::Limits {
            wait_ms: LONG_POLL_MS,
            bytes: self.fetch_bytes as i32,
            partition_bytes: partition_bytes as i32,
        };
        let mut writer = fetch::FetchWriter::begin(head, limits, session, epoch);
        if outlet.session.is_some() {
            outlet.changed.sort_unstable();
            for member in &outlet.changed {
                writer.add(&self.positions[*member as usize], topics);
            }
        } else {
            let turn = outlet.turn % members.max(1);
            let (late, early) = outlet.members.split_at(turn);
            for member in early.iter().chain(late) {
                writer.add(&self.positions[*member as usize], topics);
            }
        }
        writer.finish();
        for member in outlet.changed.drain(..) {
            self.positions[member as usize].is_changed = false;
        }
    }

    /// The poller says that a connection is ready.
    pub fn on_ready(
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
                Ok(())
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
        connection.advance(ready)?;
        if ready.writable {
            connection.write(&shared.poller)?;
        }
        if !ready.readable || has_pieces {
            return Ok(());
        }
        while !connection.has_answer()? {
            if !connection.read()? && !connection.has_answer()? {
                return Ok(());
            }
        }
        let received_ns = monotonic_ns();
        let Some((request, body)) = connection.answer()? else {
            return Ok(());
        };
        let errand = request.cargo;
        shared.give_head(request.head);
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
        let mut rows = Vec::new();
        messages::read_list_offsets(body, |row| rows.push(row))?;
        let mut has_error = rows.is_empty();
        for row in rows {
            let Some(member) = self.place(&shared.spec.topics, row.topic, row.partition) else {
                return Err(Malformed("it tells of a partition that was not asked for").into());
            };
            let code = Code(row.code);
            if !code.is_none() {
                has_error = true;
                self.partition_error(code, member, shared, observer)?;
                continue;
            }
            let position = &mut self.positions[member];
            if position.next.is_some() || row.offset < 0 {
                continue;
            }
            if position.ask == TIMESTAMP_EARLIEST && row.offset < position.done {
                // It was out of range at the other end: the log is shorter than what was read of it.
                position.ask = TIMESTAMP_LATEST;
                continue;
            }
            position.next = Some(row.offset);
            position.done = row.offset;
            position.committed = row.offset;
            position.end = if position.ask == TIMESTAMP_LATEST {
                row.offset
            } else {
                -1
            };
        }
        if has_error {
            self.outlets[at].pause(now_ns);
        }
        Ok(())
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
        shared.cluster.set_trouble(format!(
            "topic {topic:?}, partition {}: the server answers {}",
            position.partition,
            code.name()
        ));
        if code == Code::OFFSET_OUT_OF_RANGE {
            position.next = None;
            position.ask = TIMESTAMP_EARLIEST;
        } else {
            shared.cluster.refresh();
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
                self.outlets[at].session = None;
                self.outlets[at].old_session = 0;
            } else {
                observer.error(code.name());
                self.outlets[at].pause(received_ns);
            }
            return Ok(());
        }
        let outlet = &mut self.outlets[at];
        outlet.session = match (reader.session, outlet.session) {
            (0, _) => None,
            (session, Some((_, epoch))) => Some((session, if epoch == i32::MAX { 1 } else { epoch + 1 })),
            (session, None) => Some((session, 1)),
        };
        outlet.old_session = reader.session;
        let mut has_error = false;
        while let Some(row) = reader.next()? {
            let Some(member) = self.place(&shared.spec.topics, row.topic, row.partition) else {
                return Err(Malformed("it tells of a partition that was not asked for").into());
            };
            if self.positions[member].link != at as u32 {
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
                    next = next.max(header.next_offset);
                    from += len;
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
                Err(next_offset) => {
                    position.done = position.done.max(next_offset);
                    observer.error(kind::CORRUPT_BATCH);
                }
            }
        }
        outlet.pieces.clear();
        outlet.done_pieces = 0;
        false
    }

    fn lose(&mut self, at: usize, lost: &Lost, shared: &mut Shared, observer: &mut Observer, now_ns: i64) {
        // What was read of the last answer is whole: it is handed over before its buffer goes.
        self.work_off(at, observer, i64::MAX);
        let outlet = &mut self.outlets[at];
        let broker = outlet.link.broker;
        shared.cluster.set_trouble(match shared.cluster.address(broker) {
            Some(address) => format!("{address}: {lost}"),
            None => lost.to_string(),
        });
        shared.cluster.refresh();
        let in_flight = outlet.link.lose(now_ns).count();
        outlet.session = None;
        outlet.old_session = 0;
        if is_noteworthy(lost, in_flight) {
            observer.error(lost.kind());
        }
    }

    /// The poller says that the committer's connection is ready.
    pub fn on_committer_ready(&mut self, ready: &Ready, shared: &mut Shared, observer: &mut Observer) {
        if let Some(committer) = &mut self.committer {
            committer.on_ready(&mut self.positions, ready, shared, observer, monotonic_ns());
        }
    }

    /// When `drive` must be called at the latest.
    pub fn deadline_ns(&self) -> i64 {
        let mut deadline_ns = self.committer.as_ref().map_or(i64::MAX, Committer::deadline_ns);
        for outlet in &self.outlets {
            if outlet.has_pieces() {
                return i64::MIN;
            }
            deadline_ns = deadline_ns.min(outlet.link.deadline_ns());
            let is_idle = outlet
                .link
                .connection
                .as_ref()
                .is_some_and(|connection| connection.is_open() && connection.in_flight() == 0);
            let has_errand = !self.is_paused
                || outlet
                    .members
                    .iter()
                    .any(|member| self.positions[*member as usize].next.is_none());
            if is_idle && !outlet.members.is_empty() && has_errand {
                deadline_ns = deadline_ns.min(outlet.fetch_after_ns);
            }
        }
        deadline_ns
    }

    /// Closes the connections.
    pub fn close(&mut self, observer: &mut Observer) {
        for at in 0..self.outlets.len() {
            self.work_off(at, observer, i64::MAX);
        }
        self.outlets.clear();
        for position in &mut self.positions {
            position.link = NO_LINK;
        }
    }
}

/// Hands the messages of a whole batch from offset `from` on to `receive`. Returns the offset after the batch and how many messages it
/// held; Err: that offset, of a batch that is corrupt.
fn hand_over(
    batch: &[u8],
    from: i64,
    decompressor: &mut Decompressor,
    mut receive: impl FnMut(&[u8]),
) -> Result<(i64, u32), i64> {
    let Ok(Found::Batch(header, _)) = record_batch::peek(batch) else {
        return Err(from);
    };
    if !record_batch::is_whole(batch) {
        return Err(header.next_offset);
    }
    if header.is_control {
        return Ok((header.next_offset, 1));
    }
    let bytes = &batch[HEADER_BYTES..];
    let bytes = match header.compression {
        0 => bytes,
        codec => decompressor
            .decompress(codec, bytes)
            .map_err(|_| header.next_offset)?,
    };
    let mut records = Records::new(bytes, header.records);
    while let Some((delta, value)) = records.next().map_err(|_| header.next_offset)? {
        if header.base_offset + delta >= from {
            receive(value);
        }
    }
    Ok((header.next_offset, header.records))
}

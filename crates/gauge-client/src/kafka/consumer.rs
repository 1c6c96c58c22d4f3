//! A consumer: finds its positions, fetches, hands messages to the observer, commits.
//!
//! There is one Fetch under way per broker. As soon as an answer is there, the headers of its batches tell where the next one begins,
//! so the next Fetch leaves before the messages of this one are looked at. Messages are parsed where they were read. Fetch sessions
//! (KIP-227) keep the cost of ten thousand quiet partitions off the wire; a server that gives no session is asked in full each time.
//!
//! Pausing means not fetching: an answer that comes while the subscription is paused is dropped, and asked for again later.

use gauge_load::Observer;
use gauge_load::clock::monotonic_ns;
use gauge_load::mutants::{self, Mutant};

use super::FetchLimits;
use super::cluster::{Cluster, NO_BROKER};
use super::commit::Committer;
use super::compress::Decompressor;
use super::connection::{Cargo, Lost, Request};
use super::fetch;
use super::link::{Link, NO_LINK, is_noteworthy};
use super::messages::{self, TIMESTAMP_EARLIEST, TIMESTAMP_LATEST};
use super::shared::{Commons, Shared};
use super::wire::{self, Put, begin_request, finish_request};
use crate::lane::{DRIVE_NS, Sink};
use crate::shared::consumer_token;
use crate::{ClientError, Ready, StartAt, Topic};

/// The link of a consumer that is its committer's.
const COMMITTER: usize = i32::MAX as usize;
/// First size of the buffer for answers; it grows to the size of the largest.
const INPUT_BYTES: usize = 64 << 10;
/// A fetch is answered after this time at the latest, with or without messages.
const LONG_POLL_MS: i32 = 500;
/// Bytes asked for per Fetch unless the options say otherwise, within which the work on one answer stays short.
const FETCH_BYTES_MAX: usize = 1 << 20;
const FETCH_BYTES_MIN: usize = 128 << 10;
const FETCH_MSGS: usize = 10_000;
/// Bytes asked for per partition, at least, unless the options say otherwise.
const PARTITION_BYTES_MIN: usize = 256 << 10;
/// Pause after an answer with an error; doubles up to a second.
pub(super) const FETCH_PAUSE_NS: i64 = 20_000_000;
const FETCH_PAUSE_NS_MAX: i64 = 1_000_000_000;

/// A fetch without an answer for so long is overdue: a broker answers a long poll in half of it. Shorter than the stillness that ends a drain, so that
/// whoever is at the end then has been told of it since the last acknowledgement.
const OVERDUE_NS: i64 = 2 * (LONG_POLL_MS as i64) * 1_000_000;

/// What a request of a consumer is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Errand {
    Fetch,
    ListOffsets,
    /// Whether what was read is still in the log.
    EpochEnds,
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
    pub(super) ask: i64,
    /// Everything below was handed to the observer.
    pub done: i64,
    /// Below this it was committed.
    pub committed: i64,
    /// Below this a commit is under way.
    pub committing: i64,
    /// End of the partition as the latest answer told; -1: not told yet.
    pub(super) end: i64,
    /// Epoch of the leader as it is known; -1: not known.
    pub(super) leader_epoch: i32,
    /// Epoch of the last batch that was found; -1: none.
    pub(super) epoch: i32,
    /// The leader is another, or was away: where the epoch of what was read ends is to be asked before anything is fetched (KIP-320). A log that was
    /// cut off and has grown again would be read on behind what is new in it.
    pub(super) is_doubtful: bool,
    /// The position was out of range, and nothing had been cut off.
    pub(super) is_out_of_range: bool,
    /// Whether it stands in its outlet's list of positions that the session does not know.
    pub(super) is_changed: bool,
}

impl Position {
    /// Whether something must be known before it can be fetched from.
    fn is_to_ask(&self) -> bool {
        self.next.is_none() || self.is_doubtful
    }
}

/// A batch in an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) position: u32,
    pub(super) at: usize,
    pub(super) len: usize,
}

/// What the broker knows of the positions (KIP-227).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Session {
    /// Nothing that holds any more: the next fetch names all of them. What is answered to an earlier one does not change that.
    Over,
    /// A fetch that names all of them is under way.
    Begun,
    /// The session of this number knows them; the next fetch has this epoch and names those that moved.
    Known(i32, i32),
}

impl Session {
    /// As it is after an answer that tells of a session; 0: of none.
    pub(super) fn answered(self, number: i32) -> Session {
        match self {
            Session::Over if !mutants::is(Mutant::SessionOverForgotten) => Session::Over,
            _ if number == 0 => Session::Over,
            Session::Over | Session::Begun => Session::Known(number, 1),
            Session::Known(_, i32::MAX) => Session::Known(number, 1),
            Session::Known(_, epoch) => Session::Known(number, epoch + 1),
        }
    }
}

/// A broker and the partitions that are fetched from it.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) link: Link<Errand>,
    pub(super) members: Vec<u32>,
    pub(super) session: Session,
    /// The session of before, which the next full fetch closes; 0: none.
    pub(super) old_session: i32,
    /// Positions that moved since the session was told.
    pub(super) changed: Vec<u32>,
    /// Where a full fetch begins among the members, so that all have their turn.
    pub(super) turn: usize,
    /// Batches of the latest answer, and how many of them are done.
    pub(super) pieces: Vec<Piece>,
    /// When the latest request was sent.
    asked_ns: i64,
    pub(super) done_pieces: usize,
    pub(super) received_ns: i64,
    /// Since when the latest answer may have been there.
    pub(super) since_ns: i64,
    /// Since when the next answer may be there, while it has to wait for the latest one's messages.
    pub(super) waits_since_ns: i64,
    pub(super) fetch_after_ns: i64,
    pub(super) pause_ns: i64,
}

impl Outlet {
    fn new(broker: i32, token: u64) -> Outlet {
        Outlet {
            link: Link::new(broker, token),
            members: Vec::new(),
            session: Session::Over,
            old_session: 0,
            changed: Vec::new(),
            turn: 0,
            pieces: Vec::new(),
            asked_ns: i64::MIN,
            done_pieces: 0,
            received_ns: 0,
            since_ns: i64::MAX,
            waits_since_ns: i64::MAX,
            fetch_after_ns: i64::MIN,
            pause_ns: FETCH_PAUSE_NS,
        }
    }

    pub(super) fn has_pieces(&self) -> bool {
        self.done_pieces < self.pieces.len()
    }

    /// Whether its broker owes an answer for so long that it may be gone, and with it what is new.
    fn is_overdue(&self, now_ns: i64) -> bool {
        let is_asked = self
            .link
            .connection
            .as_ref()
            .is_some_and(|connection| connection.in_flight() > 0);
        // Whoever leads nothing any more has nothing that is new.
        let is_awaited = is_asked && !self.members.is_empty();
        is_awaited && now_ns - self.asked_ns > OVERDUE_NS && !mutants::is(Mutant::SilenceIsTheEnd)
    }

    pub(super) fn pause(&mut self, now_ns: i64) {
        self.session = Session::Over;
        self.fetch_after_ns = now_ns + self.pause_ns;
        self.pause_ns = (self.pause_ns * 2).min(FETCH_PAUSE_NS_MAX);
    }
}

/// A consumer.
pub(crate) struct Consumer {
    index: usize,
    pub(super) subscription: usize,
    pub(super) positions: Vec<Position>,
    /// Per topic and partition: the number of the position, plus one.
    pub(super) places: Vec<Vec<u32>>,
    pub(super) outlets: Vec<Outlet>,
    pub(super) is_paused: bool,
    /// Bytes of an answer, at most.
    fetch_bytes: usize,
    /// Bytes of a partition in it, where the options say so.
    partition_bytes: Option<usize>,
    pub(super) decompressor: Decompressor,
    pub(super) committer: Option<Committer>,
}

impl Consumer {
    pub fn new(index: usize, shared: &Shared) -> Consumer {
        let spec = &shared.spec.consumers[index];
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
                leader_epoch: -1,
                epoch: -1,
                is_doubtful: false,
                is_out_of_range: false,
                is_changed: false,
            });
        }
        let usual =
            (FETCH_MSGS * (shared.spec.payload_bytes_max + 10)).clamp(FETCH_BYTES_MIN, FETCH_BYTES_MAX);
        let FetchLimits {
            bytes,
            partition_bytes,
        } = shared.own.cluster.access.limits;
        Consumer {
            index,
            subscription: spec.subscription,
            positions,
            places,
            outlets: Vec::new(),
            is_paused: false,
            fetch_bytes: bytes.unwrap_or(usual),
            partition_bytes,
            decompressor: Decompressor::new(),
            committer: spec.commit_interval_ns.map(|interval_ns| {
                Committer::new(index, &spec.name, interval_ns, consumer_token(index, COMMITTER))
            }),
        }
    }

    /// Takes over what the cluster says about leaders.
    pub fn apply_metadata(&mut self, cluster: &Cluster) {
        for at in 0..self.positions.len() {
            let leader = cluster.leader(self.positions[at].slot);
            let epoch = cluster.leader_epoch(self.positions[at].slot);
            if std::mem::replace(&mut self.positions[at].leader_epoch, epoch) != epoch {
                self.doubt(at);
            }
            let link = if leader == NO_BROKER {
                NO_LINK
            } else {
                let known = self
                    .outlets
                    .iter()
                    .position(|outlet| outlet.link.broker == leader);
                known.unwrap_or_else(|| {
                    let at = self.outlets.len();
                    self.outlets
                        .push(Outlet::new(leader, consumer_token(self.index, at)));
                    at
                }) as u32
            };
            let old = std::mem::replace(&mut self.positions[at].link, link);
            if old == link {
                continue;
            }
            if !mutants::is(Mutant::EndKept) {
                self.positions[at].end = -1;
            }
            if let Some(outlet) = self.outlets.get_mut(old as usize) {
                outlet.members.retain(|member| *member != at as u32);
                // Whoever stands in the list of the old one would not be put into that of the new one, whose session would keep an old offset.
                if !mutants::is(Mutant::ChangeLeftBehind) {
                    outlet.changed.retain(|member| *member != at as u32);
                    self.positions[at].is_changed = false;
                }
                outlet.session = Session::Over;
            }
            if let Some(outlet) = self.outlets.get_mut(link as usize) {
                outlet.members.push(at as u32);
                outlet.session = Session::Over;
            }
        }
        for outlet in &mut self.outlets {
            outlet.members.sort_unstable();
            outlet.link.members = outlet.members.len();
        }
    }

    /// The log of a position may have been cut off.
    pub(super) fn doubt(&mut self, member: usize) {
        let position = &mut self.positions[member];
        // Where its log ends is not known either, before the leader of now has told it.
        if !mutants::is(Mutant::EndKept) {
            position.end = -1;
        }
        position.is_doubtful =
            position.epoch >= 0 && position.leader_epoch >= 0 && !mutants::is(Mutant::DoubtIgnored);
        if let Some(outlet) = self.outlets.get_mut(position.link as usize) {
            outlet.session = Session::Over;
        }
    }

    fn drive_outlet(&mut self, at: usize, shared: &mut Shared, now_ns: i64) -> Result<(), Lost> {
        let outlet = &mut self.outlets[at];
        outlet
            .link
            .ensure(&shared.own.cluster, &shared.poller, INPUT_BYTES, now_ns)?;
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
    pub(super) fn request(&mut self, at: usize, shared: &mut Shared, now_ns: i64) -> Result<(), Lost> {
        let outlet = &self.outlets[at];
        let is_unknown = |member: &&u32| self.positions[**member as usize].next.is_none();
        let errand = if outlet.members.iter().any(|member| is_unknown(&member)) {
            Errand::ListOffsets
        } else if outlet
            .members
            .iter()
            .any(|member| self.positions[*member as usize].is_doubtful)
        {
            Errand::EpochEnds
        } else if (self.is_paused && !mutants::is(Mutant::PausedFetches)) || outlet.members.is_empty() {
            return Ok(());
        } else {
            Errand::Fetch
        };
        let mut head = shared.own.take_head();
        let api = match errand {
            Errand::Fetch => wire::FETCH,
            Errand::ListOffsets => wire::LIST_OFFSETS,
            Errand::EpochEnds => wire::OFFSET_FOR_LEADER_EPOCH,
        };
        let Some(connection) = &mut self.outlets[at].link.connection else {
            return Ok(());
        };
        let correlation = connection.next_correlation();
        begin_request(&mut head, api, correlation, &shared.own.client_id);
        let wait_ns = match errand {
            Errand::Fetch => {
                self.put_fetch(at, &mut head, &shared.spec.topics);
                i64::from(LONG_POLL_MS) * 1_000_000
            }
            Errand::ListOffsets => {
                self.put_list_offsets(at, &mut head, &shared.spec.topics);
                0
            }
            Errand::EpochEnds => {
                self.put_epoch_ends(at, &mut head, &shared.spec.topics);
                0
            }
        };
        finish_request(&mut head, 0);
        self.outlets[at].asked_ns = now_ns;
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

    fn put_epoch_ends(&self, at: usize, head: &mut Vec<u8>, topics: &[Topic]) {
        // Not a replica.
        head.put_i32(-1);
        let each = |head: &mut Vec<u8>, position: &&Position| {
            head.put_i32(position.leader_epoch);
            head.put_i32(position.epoch);
        };
        self.put_positions(at, head, topics, |position| position.is_doubtful, each);
    }

    fn put_list_offsets(&self, at: usize, head: &mut Vec<u8>, topics: &[Topic]) {
        head.put_i32(-1);
        // Read uncommitted.
        head.put_i8(0);
        let each = |head: &mut Vec<u8>, position: &&Position| head.put_i64(position.ask);
        self.put_positions(at, head, topics, |position| position.next.is_none(), each);
    }

    /// The positions of an outlet of which something is asked, by topic.
    fn put_positions(
        &self,
        at: usize,
        head: &mut Vec<u8>,
        topics: &[Topic],
        is_asked: impl Fn(&Position) -> bool,
        each: impl FnMut(&mut Vec<u8>, &&Position),
    ) {
        let asked: Vec<&Position> = self.outlets[at]
            .members
            .iter()
            .map(|member| &self.positions[*member as usize])
            .filter(|position| is_asked(position))
            .collect();
        messages::put_by_topic(
            head,
            &asked,
            |position| (position.topic, position.partition),
            |topic| topics[topic].name.clone(),
            each,
        );
    }

    fn put_fetch(&mut self, at: usize, head: &mut Vec<u8>, topics: &[Topic]) {
        let outlet = &mut self.outlets[at];
        let (session, epoch) = match outlet.session {
            Session::Known(session, epoch) => (session, epoch),
            _ => (outlet.old_session, 0),
        };
        let members = outlet.members.len();
        let share = (self.fetch_bytes / members.max(1)).max(PARTITION_BYTES_MIN);
        let partition_bytes = self.partition_bytes.unwrap_or(share).min(self.fetch_bytes);
        let limits = fetch::Limits {
            wait_ms: LONG_POLL_MS,
            bytes: self.fetch_bytes as i32,
            partition_bytes: partition_bytes as i32,
        };
        let mut writer = fetch::FetchWriter::begin(head, limits, session, epoch);
        if matches!(outlet.session, Session::Known(..)) {
            outlet.changed.sort_unstable();
            for member in &outlet.changed {
                writer.add(&self.positions[*member as usize], topics);
            }
        } else {
            outlet.session = Session::Begun;
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

    pub(super) fn lose(
        &mut self,
        at: usize,
        lost: &Lost,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) {
        // What was read of the last answer is whole: it is handed over before its buffer goes.
        self.work_off(at, observer, i64::MAX);
        let outlet = &mut self.outlets[at];
        shared.own.cluster.lost(outlet.link.broker, lost);
        let in_flight = outlet.link.lose(now_ns).count();
        outlet.session = Session::Over;
        outlet.old_session = 0;
        // What was about to be read is none of the next connection's.
        outlet.waits_since_ns = i64::MAX;
        for member in outlet.members.clone() {
            self.doubt(member as usize);
        }
        if is_noteworthy(lost, in_flight) {
            observer.error(lost.kind());
        }
    }
}

impl Sink<Commons> for Consumer {
    const TURN_AGAIN: bool = false;

    fn subscription(&self) -> usize {
        self.subscription
    }

    fn partitions(&self) -> usize {
        self.positions.len()
    }

    /// Partitions whose position is fixed.
    fn assigned(&self) -> usize {
        self.positions
            .iter()
            .filter(|position| position.next.is_some())
            .count()
    }

    fn pause(&mut self, is_paused: bool) {
        if self.is_paused && !is_paused {
            for position in &mut self.positions {
                position.end = -1;
            }
            for outlet in &mut self.outlets {
                // A full fetch tells the end of every partition.
                outlet.session = Session::Over;
            }
        }
        self.is_paused = is_paused;
    }

    fn is_caught_up(&self) -> bool {
        let now_ns = monotonic_ns();
        let is_behind = |outlet: &Outlet| outlet.has_pieces() || outlet.is_overdue(now_ns);
        !self.outlets.iter().any(is_behind)
            && self
                .positions
                .iter()
                .all(|position| !position.is_to_ask() && position.end >= 0 && position.done >= position.end)
    }

    fn on_ready(
        &mut self,
        link: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
        until_ns: i64,
    ) -> Result<bool, ClientError> {
        if link == COMMITTER {
            if let Some(committer) = &mut self.committer {
                committer.on_ready(&mut self.positions, ready, shared, observer, monotonic_ns());
            }
            return Ok(false);
        }
        self.answer(link, ready, shared, observer)?;
        Ok(self.work_off(link, observer, until_ns))
    }

    /// Everything that is to be done without an event. Returns whether there are messages left to look at.
    fn drive(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<bool, ClientError> {
        let until_ns = now_ns + DRIVE_NS;
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
        Ok(has_work)
    }

    fn deadline_ns(&self) -> i64 {
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
                    .any(|member| self.positions[*member as usize].is_to_ask());
            if is_idle && !outlet.members.is_empty() && has_errand {
                deadline_ns = deadline_ns.min(outlet.fetch_after_ns);
            }
        }
        deadline_ns
    }

    /// Closes the connections. The last positions are still to be committed.
    fn abandon(&mut self, _shared: &mut Shared, observer: &mut Observer) {
        for at in 0..self.outlets.len() {
            self.work_off(at, observer, i64::MAX);
        }
        self.outlets.clear();
        for position in &mut self.positions {
            position.link = NO_LINK;
        }
        if let Some(committer) = &mut self.committer {
            committer.hurry();
        }
    }

    fn is_leaving(&self) -> bool {
        self.committer.is_some() && Committer::is_behind(&self.positions)
    }
}

//! What a lane knows of the cluster: its brokers, who leads which partition, and the connection on which it asks.
//!
//! Knowledge is refreshed when an answer shows that it is stale, with a growing pause between attempts, and from whichever broker
//! can be reached.

use std::sync::Arc;

use gauge_load::mutants::{self, Mutant};

use super::Access;
use super::connection::{Cargo, Connection, Lost, Request};
use super::errors::{Code, Remedy};
use super::messages::{self, BrokerRow, Metadata};
use super::wire::{self, Api, begin_request, finish_request};
use crate::transport::{Peer, find, resolve};
use crate::{ClientError, Poller, Ready, Topic};

/// The cluster does not name a leader at the moment.
pub(crate) const NO_BROKER: i32 = -1;

/// Pause before the first repetition of a refresh; doubles up to a second.
const REFRESH_PAUSE_NS: i64 = 20_000_000;
const REFRESH_PAUSE_NS_MAX: i64 = 1_000_000_000;
/// Repetitions further apart than this begin with the short pause again.
const REFRESH_CALM_NS: i64 = 5_000_000_000;
/// A broker that does not answer a question for this long is not asked any more: another one may know.
const ANSWER_TIMEOUT_NS: i64 = 5_000_000_000;
/// A topic that is missing for this long under load is gone.
const TOPIC_GONE_NS: i64 = 15_000_000_000;
const INPUT_BYTES: usize = 16 << 10;

/// A question to any broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Versions,
    Metadata,
    /// An identity for the idempotent producer of this index.
    ProducerId(usize),
    /// The coordinator of the group of the consumer of this index.
    Coordinator(usize),
}

impl Cargo for Question {}

/// An answer that concerns a producer or a consumer.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The leaders may have changed.
    Metadata,
    ProducerId {
        producer: usize,
        code: Code,
        id: i64,
        epoch: i16,
    },
    Coordinator {
        consumer: usize,
        code: Code,
        broker: i32,
    },
}

#[derive(Clone, Debug)]
struct Broker {
    id: i32,
    host: String,
    port: u16,
    peer: Option<Peer>,
}

/// What a lane knows of the cluster.
pub(crate) struct Cluster {
    pub access: Access,
    bootstrap: Vec<String>,
    peers: Vec<Peer>,
    next_peer: usize,
    topics: Arc<[Topic]>,
    groups: Vec<String>,
    brokers: Vec<Broker>,
    /// Per slot.
    leaders: Vec<i32>,
    /// Per slot; -1: not known.
    leader_epochs: Vec<i32>,
    /// The server tells where leaders' epochs end.
    has_epoch_ends: bool,
    connection: Option<Connection<Question>>,
    versions_checked: bool,
    questions: Vec<Question>,
    answers: Vec<Answer>,
    pause_ns: i64,
    last_metadata_ns: i64,
    try_after_ns: i64,
    missing_since_ns: Option<i64>,
    /// The latest reason why something could not be had, for the error when patience ends.
    trouble: Option<String>,
    token: u64,
}

impl Cluster {
    pub fn new(
        access: Access,
        bootstrap: &[String],
        topics: &Arc<[Topic]>,
        groups: Vec<String>,
        token: u64,
    ) -> Cluster {
        let slots = topics
            .iter()
            .map(|topic| topic.first_slot + topic.partitions as usize)
            .max();
        Cluster {
            access,
            bootstrap: bootstrap.to_vec(),
            peers: Vec::new(),
            next_peer: 0,
            topics: Arc::clone(topics),
            groups,
            brokers: Vec::new(),
            leaders: vec![NO_BROKER; slots.unwrap_or(0)],
            leader_epochs: vec![-1; slots.unwrap_or(0)],
            has_epoch_ends: false,
            connection: None,
            versions_checked: false,
            questions: vec![Question::Metadata],
            answers: Vec::new(),
            pause_ns: REFRESH_PAUSE_NS,
            last_metadata_ns: i64::MIN / 2,
            try_after_ns: i64::MIN,
            missing_since_ns: None,
            trouble: None,
            token,
        }
    }

    /// Looks the bootstrap servers up; blocks.
    pub fn resolve_bootstrap(&mut self) -> Result<(), ClientError> {
        let mut trouble = Vec::new();
        for server in &self.bootstrap {
            match resolve(server, self.access.tls.as_ref()) {
                Ok(peers) => self.peers.extend(peers),
                Err(error) => trouble.push(error),
            }
        }
        if self.peers.is_empty() {
            return Err(ClientError::system(format!(
                "no bootstrap server can be found: {}",
                trouble.join("; ")
            )));
        }
        Ok(())
    }

    /// Who leads the partition of a slot, or [`NO_BROKER`].
    pub fn leader(&self, slot: usize) -> i32 {
        self.leaders.get(slot).copied().unwrap_or(NO_BROKER)
    }

    /// Since when it leads: counts leaders of the partition; -1 where the server does not tell, or could not be asked where an epoch ends.
    pub fn leader_epoch(&self, slot: usize) -> i32 {
        match self.leader_epochs.get(slot) {
            Some(epoch) if self.has_epoch_ends => *epoch,
            _ => -1,
        }
    }

    /// Where a broker listens.
    pub fn peer(&self, broker: i32) -> Option<&Peer> {
        self.brokers
            .iter()
            .find(|known| known.id == broker)?
            .peer
            .as_ref()
    }

    /// A broker that does not let us in makes the trial pointless; `lost` is the end of a connection that was told of as the latest
    /// trouble.
    pub fn check_refused(&self, lost: &Lost) -> Result<(), ClientError> {
        match lost {
            Lost::Refused(_, words) => Err(ClientError::system(
                self.trouble.clone().unwrap_or_else(|| words.clone()),
            )),
            _ => Ok(()),
        }
    }

    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    pub fn set_trouble(&mut self, text: String) {
        self.trouble = Some(text);
    }

    /// A connection to a broker is lost: who leads what may have changed.
    pub fn lost(&mut self, broker: i32, lost: &Lost) {
        self.set_trouble(told(lost, self.peer(broker)));
        self.refresh();
    }

    /// Asks for the leaders anew, as soon as the pause since the last time allows.
    pub fn refresh(&mut self) {
        self.ask(Question::Metadata);
    }

    /// Asks once, however often it is called before the answer comes.
    pub fn ask(&mut self, question: Question) {
        if !self.questions.contains(&question) {
            self.questions.push(question);
        }
    }

    /// Answers since the last call are moved to `into`.
    pub fn take_answers(&mut self, into: &mut Vec<Answer>) {
        into.append(&mut self.answers);
    }

    /// When `drive` must be called at the latest.
    pub fn deadline_ns(&self) -> i64 {
        let next_try = if self.questions.is_empty() {
            i64::MAX
        } else {
            match &self.connection {
                None => self.try_after_ns,
                // One question at a time: the answer is an event.
                Some(connection) if !connection.is_open() || connection.in_flight() > 0 => i64::MAX,
                Some(_) => self.metadata_after_ns(),
            }
        };
        let overdue = self
            .connection
            .as_ref()
            .map_or(i64::MAX, |connection| connection.deadline_ns());
        next_try.min(overdue)
    }

    fn metadata_after_ns(&self) -> i64 {
        if self.questions == [Question::Metadata] {
            self.last_metadata_ns + self.pause_ns
        } else {
            i64::MIN
        }
    }

    /// Connects and asks where there is something to ask, and notices what is overdue.
    pub fn drive(&mut self, poller: &Poller, now_ns: i64) -> Result<(), ClientError> {
        if let Some(connection) = &self.connection
            && let Err(lost) = connection.check_deadline(now_ns)
        {
            self.lose(&lost, now_ns);
        }
        if self.questions.is_empty() {
            return Ok(());
        }
        match &self.connection {
            None if now_ns >= self.try_after_ns => {
                if let Err(lost) = self.connect(poller, now_ns) {
                    self.lose(&lost, now_ns);
                }
            }
            Some(connection) if connection.is_open() && connection.in_flight() == 0 => {
                if let Err(lost) = self.send(poller, now_ns) {
                    self.lose(&lost, now_ns);
                }
            }
            _ => {}
        }
        self.check_missing(now_ns)
    }

    /// Known brokers first, then the bootstrap servers, in turn.
    fn connect(&mut self, poller: &Poller, now_ns: i64) -> Result<(), Lost> {
        let Some(peer) = self.choice(self.next_peer).cloned() else {
            return Ok(());
        };
        self.next_peer = self.next_peer.wrapping_add(1);
        self.trouble
            .get_or_insert_with(|| format!("{peer} does not answer"));
        let login = self.access.login();
        let connection = Connection::connect(&peer, login, poller, self.token, INPUT_BYTES, now_ns)?;
        self.connection = Some(connection);
        Ok(())
    }

    fn lose(&mut self, lost: &Lost, now_ns: i64) {
        self.set_trouble(told(lost, self.choice(self.next_peer.wrapping_sub(1))));
        if let Some(connection) = self.connection.take() {
            for request in connection.into_requests() {
                self.ask(request.cargo);
            }
        }
        self.try_after_ns = now_ns + self.pause_ns;
        self.pause_ns = (self.pause_ns * 2).min(REFRESH_PAUSE_NS_MAX);
    }

    fn choice(&self, turn: usize) -> Option<&Peer> {
        let known = self.brokers.iter().filter_map(|broker| broker.peer.as_ref());
        let choices: Vec<&Peer> = known.chain(&self.peers).collect();
        choices.get(turn % choices.len().max(1)).copied()
    }

    fn send(&mut self, poller: &Poller, now_ns: i64) -> Result<(), Lost> {
        let question = if self.versions_checked {
            // Metadata waits for its pause; other questions do not wait behind it.
            let metadata_may = now_ns >= self.last_metadata_ns + self.pause_ns;
            let may = |question: &Question| *question != Question::Metadata || metadata_may;
            let Some(at) = self.questions.iter().position(may) else {
                return Ok(());
            };
            self.questions.remove(at)
        } else {
            Question::Versions
        };
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        let correlation = connection.next_correlation();
        let mut head = Vec::with_capacity(256);
        begin_request(&mut head, api_of(question), correlation, &self.access.client_id);
        match question {
            Question::Versions => {}
            Question::Metadata => {
                messages::put_metadata(&mut head, self.topics.iter().map(|topic| topic.name.as_str()))
            }
            Question::ProducerId(_) => messages::put_init_producer_id(&mut head),
            Question::Coordinator(consumer) => {
                let group = self.groups.get(consumer).map_or("", String::as_str);
                messages::put_find_coordinator(&mut head, group);
            }
        }
        finish_request(&mut head, 0);
        connection.push(Request {
            correlation,
            bytes: head.len(),
            head,
            deadline_ns: now_ns + ANSWER_TIMEOUT_NS,
            has_answer: true,
            cargo: question,
        });
        connection.write(poller)
    }

    /// The poller says that the connection is ready.
    pub fn on_ready(&mut self, poller: &Poller, ready: &Ready, now_ns: i64) -> Result<(), ClientError> {
        match self.advance(poller, ready, now_ns) {
            Ok(()) => Ok(()),
            Err(Trouble::Lost(lost)) => {
                self.lose(&lost, now_ns);
                self.check_refused(&lost)
            }
            Err(Trouble::Fatal(error)) => Err(error),
        }
    }

    fn advance(&mut self, poller: &Poller, ready: &Ready, now_ns: i64) -> Result<(), Trouble> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        connection.advance(ready, poller)?;
        connection.write(poller)?;
        if !ready.readable {
            return Ok(());
        }
        while connection.read()? {}
        // One question at a time is under way.
        let Some((request, body)) = connection.answer()? else {
            return Ok(());
        };
        let body = connection.bytes()[body].to_vec();
        self.answered(request.cargo, &body, now_ns)
    }

    fn answered(&mut self, question: Question, body: &[u8], now_ns: i64) -> Result<(), Trouble> {
        match question {
            Question::Versions => self.check_versions(body)?,
            Question::Metadata => {
                let metadata = messages::read_metadata(body).map_err(Lost::from)?;
                self.learn(metadata, now_ns).map_err(Trouble::Fatal)?;
            }
            Question::ProducerId(producer) => {
                let (code, id, epoch) = messages::read_init_producer_id(body).map_err(Lost::from)?;
                self.answers.push(Answer::ProducerId {
                    producer,
                    code: Code(code),
                    id,
                    epoch,
                });
            }
            Question::Coordinator(consumer) => {
                let (code, broker) = messages::read_find_coordinator(body).map_err(Lost::from)?;
                if Code(code).is_none() {
                    self.learn_broker(&broker);
                }
                self.answers.push(Answer::Coordinator {
                    consumer,
                    code: Code(code),
                    broker: broker.id,
                });
            }
        }
        Ok(())
    }

    fn check_versions(&mut self, body: &[u8]) -> Result<(), Trouble> {
        let versions =
            messages::read_api_versions(body, wire::API_VERSIONS_OLD.version).map_err(Lost::from)?;
        require_versions(&versions.ranges, &[wire::PRODUCE, wire::FETCH, wire::METADATA])
            .map_err(Trouble::Fatal)?;
        self.has_epoch_ends = require_versions(&versions.ranges, &[wire::OFFSET_FOR_LEADER_EPOCH]).is_ok();
        self.versions_checked = true;
        Ok(())
    }

    fn learn_broker(&mut self, row: &BrokerRow) {
        let port = u16::try_from(row.port).unwrap_or(0);
        let known = self.brokers.iter_mut().find(|known| known.id == row.id);
        if let Some(known) = &known
            && known.host == row.host
            && known.port == port
            && known.peer.is_some()
        {
            return;
        }
        let server = format!("{}:{port}", bracketed(&row.host));
        let peer = find(&server, self.access.tls.as_ref()).ok();
        let broker = Broker {
            id: row.id,
            host: row.host.clone(),
            port,
            peer,
        };
        match known {
            Some(known) => *known = broker,
            None => self.brokers.push(broker),
        }
    }

    fn learn(&mut self, metadata: Metadata, now_ns: i64) -> Result<(), ClientError> {
        self.pause_ns = if now_ns - self.last_metadata_ns > REFRESH_CALM_NS {
            REFRESH_PAUSE_NS
        } else {
            (self.pause_ns * 2).min(REFRESH_PAUSE_NS_MAX)
        };
        self.last_metadata_ns = now_ns;
        self.trouble = None;
        self.brokers
            .retain(|known| metadata.brokers.iter().any(|row| row.id == known.id));
        for row in &metadata.brokers {
            self.learn_broker(row);
        }
        let topics = Arc::clone(&self.topics);
        let mut is_missing = false;
        for topic in topics.iter() {
            let row = metadata.topics.iter().find(|row| row.name == topic.name);
            let code = row.map_or(Code::UNKNOWN_TOPIC_OR_PARTITION, |row| Code(row.code));
            if code.remedy() == Remedy::Pointless {
                return Err(ClientError::system(format!(
                    "topic {:?}: the server answers {}",
                    topic.name,
                    code.name()
                )));
            }
            let rows = row.map_or(&[][..], |row| &row.partitions);
            if !code.is_none() || rows.len() < topic.partitions as usize {
                is_missing = true;
                self.trouble = Some(if code.is_none() {
                    format!(
                        "topic {:?} has {} partitions, expected {}",
                        topic.name,
                        rows.len(),
                        topic.partitions
                    )
                } else {
                    format!("topic {:?}: the server answers {}", topic.name, code.name())
                });
            }
            for row in rows {
                if (0..i64::from(topic.partitions)).contains(&i64::from(row.partition)) {
                    let slot = topic.first_slot + row.partition as usize;
                    // A leader that the answer does not list among the brokers cannot be reached: whoever answers may have heard of its end
                    // and not yet of its successor, so it is asked again as if there were none.
                    let is_listed = metadata.brokers.iter().any(|broker| broker.id == row.leader)
                        || mutants::is(Mutant::UnlistedLeaderTrusted);
                    self.leaders[slot] = if is_listed { row.leader } else { NO_BROKER };
                    self.leader_epochs[slot] = row.leader_epoch;
                }
            }
        }
        self.missing_since_ns = match (is_missing, self.missing_since_ns) {
            (true, since_ns) => Some(since_ns.unwrap_or(now_ns)),
            (false, _) => None,
        };
        if is_missing || self.leaders.contains(&NO_BROKER) {
            self.refresh();
        }
        self.answers.push(Answer::Metadata);
        Ok(())
    }

    fn check_missing(&self, now_ns: i64) -> Result<(), ClientError> {
        match self.missing_since_ns {
            Some(since_ns) if now_ns - since_ns > TOPIC_GONE_NS => Err(ClientError::system(
                self.trouble
                    .clone()
                    .unwrap_or_else(|| "a topic of the trial is gone".to_owned()),
            )),
            _ => Ok(()),
        }
    }
}

/// An IPv6 address in the form in which a port can follow.
pub(crate) fn bracketed(host: &str) -> String {
    if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

fn api_of(question: Question) -> Api {
    match question {
        Question::Versions => wire::API_VERSIONS_OLD,
        Question::Metadata => wire::METADATA,
        Question::ProducerId(_) => wire::INIT_PRODUCER_ID,
        Question::Coordinator(_) => wire::FIND_COORDINATOR,
    }
}

/// Compares what a server offers with what this client speaks.
///
/// # Errors
/// When one of the needed APIs is not offered in the version that this client speaks.
pub(crate) fn require_versions(ranges: &[(i16, i16, i16)], needed: &[Api]) -> Result<(), ClientError> {
    for api in needed {
        let range = ranges.iter().find(|(key, _, _)| *key == api.key);
        let offer = match range {
            Some((_, low, high)) if (*low..=*high).contains(&api.version) => continue,
            Some((_, low, high)) => format!("it offers versions {low} to {high}"),
            None => "it does not offer that API at all".to_owned(),
        };
        return Err(ClientError::system(format!(
            "the server does not speak version {} of Kafka's {} API ({offer}); Kafka 2.3 or later is needed",
            api.version, api.name
        )));
    }
    Ok(())
}

enum Trouble {
    Lost(Lost),
    Fatal(ClientError),
}

/// The end of a connection, with the server where it is known.
fn told(lost: &Lost, peer: Option<&Peer>) -> String {
    match peer {
        Some(peer) => format!("{peer}: {lost}"),
        None => lost.to_string(),
    }
}

impl From<Lost> for Trouble {
    fn from(lost: Lost) -> Trouble {
        Trouble::Lost(lost)
    }
}

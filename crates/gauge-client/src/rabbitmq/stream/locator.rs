//! Where streams are: which node takes their messages, and which others hold copies.
//!
//! A producer or consumer asks when it begins, and again whenever a connection was lost or a stream has moved, over a connection of its
//! own that is closed when everything was found. The nodes that were named are asked in turn.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::super::codec::Reader;
use super::super::session::error as amqp_error;
use super::options::Options;
use super::session::Session;
use super::wire::{self, code, key};
use crate::shared::Shared;
use crate::stream::{Backoff, Lost, Peer, find};
use crate::{ClientError, Ready};

/// Pause before what was not found is asked for again: an election takes a few hundred milliseconds.
const ASK_AGAIN_NS: i64 = 100_000_000;
/// An answer may take this long.
const ANSWER_NS: i64 = 5_000_000_000;
/// Streams asked for at once, so that a question fits into a frame.
const STREAMS_MAX: usize = 1000;

/// Where a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub leader: Peer,
    pub replicas: Vec<Peer>,
}

/// What was found about the stream with the owner's number.
pub(super) type Found = (usize, Result<Place, u16>);

/// Finds streams.
#[derive(Debug)]
pub(super) struct Locator {
    token: u64,
    options: Rc<Options>,
    session: Option<Session>,
    backoff: Backoff,
    attempts: usize,
    /// Streams that are wanted, by the owner's number.
    wanted: VecDeque<(usize, String)>,
    /// How many of them are in the question that waits for its answer.
    asked: usize,
    answer_by_ns: i64,
    ask_at_ns: i64,
    peers: HashMap<String, Peer>,
}

impl Locator {
    /// `attempts`: which of the servers is asked first.
    pub fn new(token: u64, attempts: usize, options: Rc<Options>) -> Locator {
        Locator {
            token,
            options,
            session: None,
            backoff: Backoff::default(),
            attempts,
            wanted: VecDeque::new(),
            asked: 0,
            answer_by_ns: i64::MAX,
            ask_at_ns: i64::MIN,
            peers: HashMap::new(),
        }
    }

    /// A stream must be found.
    pub fn want(&mut self, number: usize, stream: &str) {
        if !self.wanted.iter().any(|(wanted, _)| *wanted == number) {
            self.wanted.push_back((number, stream.to_owned()));
        }
    }

    /// Nothing is asked before this.
    pub fn pause_until(&mut self, at_ns: i64) {
        self.ask_at_ns = self.ask_at_ns.max(at_ns);
    }

    /// Connects, asks, and closes when there is nothing more to ask.
    ///
    /// # Errors
    /// Only what asking again does not mend: a wrong password.
    pub fn drive(&mut self, shared: &mut Shared, now_ns: i64) -> Result<(), ClientError> {
        match self.drive_session(shared, now_ns) {
            Ok(()) => Ok(()),
            Err(lost) => self.lose(&lost, shared, now_ns),
        }
    }

    fn drive_session(&mut self, shared: &Shared, now_ns: i64) -> Result<(), Lost> {
        if self.wanted.is_empty() {
            if let Some(mut session) = self.session.take() {
                session.close(&shared.poller, now_ns);
            }
            return Ok(());
        }
        if self.session.is_none() {
            if !self.backoff.is_over(now_ns) || now_ns < self.ask_at_ns {
                return Ok(());
            }
            let server = &shared.servers[self.attempts % shared.servers.len()];
            self.attempts += 1;
            self.session = Some(Session::connect(server, &shared.poller, self.token, now_ns)?);
        }
        let Some(session) = &mut self.session else {
            return Ok(());
        };
        session.drive(now_ns)?;
        if self.asked > 0 && now_ns >= self.answer_by_ns {
            return Err(Lost::Timeout);
        }
        if session.is_ready() && self.asked == 0 && now_ns >= self.ask_at_ns {
            self.asked = self.wanted.len().min(STREAMS_MAX);
            self.answer_by_ns = now_ns + ANSWER_NS;
            let streams: Vec<&str> = self
                .wanted
                .iter()
                .take(self.asked)
                .map(|(_, stream)| stream.as_str())
                .collect();
            session.push_control(wire::metadata(1, streams.into_iter()), now_ns);
        }
        session.write(&shared.poller, |_| {})
    }

    /// Its socket is ready. What was found goes to `found`.
    ///
    /// # Errors
    /// As `drive`.
    pub fn on_ready(
        &mut self,
        ready: &Ready,
        shared: &mut Shared,
        now_ns: i64,
        found: &mut Vec<Found>,
    ) -> Result<(), ClientError> {
        match self.advance(ready, shared, now_ns, found) {
            Ok(()) => Ok(()),
            Err(lost) => self.lose(&lost, shared, now_ns),
        }
    }

    fn advance(
        &mut self,
        ready: &Ready,
        shared: &mut Shared,
        now_ns: i64,
        found: &mut Vec<Found>,
    ) -> Result<(), Lost> {
        let Some(mut session) = self.session.take() else {
            return Ok(());
        };
        let result = self.read(&mut session, ready, shared, now_ns, found);
        self.session = Some(session);
        result
    }

    fn read(
        &mut self,
        session: &mut Session,
        ready: &Ready,
        shared: &mut Shared,
        now_ns: i64,
        found: &mut Vec<Found>,
    ) -> Result<(), Lost> {
        session.advance(ready, &shared.poller, now_ns)?;
        let options = Rc::clone(&self.options);
        let mut may_have_more = ready.readable;
        while may_have_more {
            may_have_more = session.read(now_ns)?;
            while let Some(frame) = session.next(&options, now_ns)? {
                if frame.key == key::METADATA {
                    self.on_answer(session.fields(frame), shared, now_ns, found)?;
                }
            }
        }
        session.write(&shared.poller, |_| {})
    }

    fn on_answer(
        &mut self,
        fields: &[u8],
        shared: &mut Shared,
        now_ns: i64,
        found: &mut Vec<Found>,
    ) -> Result<(), Lost> {
        self.backoff.works();
        let mut reader = Reader::new(fields);
        reader.u32()?;
        let streams = wire::read_metadata(&mut reader)?;
        for (number, stream) in self.wanted.drain(..self.asked).collect::<Vec<_>>() {
            let told = streams.iter().find(|told| told.stream == stream);
            let place = match told {
                Some(told) if told.code == code::OK => self.place(told, shared),
                Some(told) => Err(told.code),
                None => Err(code::STREAM_DOES_NOT_EXIST),
            };
            if place.is_err() {
                self.wanted.push_back((number, stream));
                self.ask_at_ns = now_ns + ASK_AGAIN_NS;
            }
            found.push((number, place));
        }
        self.asked = 0;
        Ok(())
    }

    fn place(&mut self, told: &wire::Whereabouts, shared: &mut Shared) -> Result<Place, u16> {
        let leader = told.leader.as_deref().and_then(|node| self.peer(node, shared));
        let leader = leader.ok_or(code::STREAM_NOT_AVAILABLE)?;
        let replicas = told.replicas.iter().filter_map(|node| self.peer(node, shared));
        Ok(Place {
            replicas: replicas.collect(),
            leader,
        })
    }

    /// The node behind the name that it advertises, once that has an address.
    fn peer(&mut self, node: &str, shared: &mut Shared) -> Option<Peer> {
        if let Some(peer) = self.peers.get(node) {
            return Some(peer.clone());
        }
        let trouble = match find(node, shared.tls.as_ref()) {
            Ok(peer) if peer.address().is_some() => {
                self.peers.insert(node.to_owned(), peer.clone());
                return Some(peer);
            }
            Ok(peer) => peer.trouble(),
            Err(trouble) => trouble,
        };
        shared.trouble = Some(format!(
            "RabbitMQ advertises {node} to stream clients, which has no address here: {trouble}"
        ));
        None
    }

    fn lose(&mut self, lost: &Lost, shared: &mut Shared, now_ns: i64) -> Result<(), ClientError> {
        let fault = format!("looking for streams: {lost}");
        self.session = None;
        self.asked = 0;
        self.backoff.pause(now_ns);
        if let Lost::Refused(amqp_error::ACCESS_REFUSED, _) = lost {
            return Err(ClientError::system(fault));
        }
        shared.trouble = Some(fault);
        Ok(())
    }

    /// When `drive` must be called at the latest.
    pub fn deadline_ns(&self) -> i64 {
        match &self.session {
            _ if self.wanted.is_empty() => i64::MAX,
            None => self.backoff.retry_at_ns().max(self.ask_at_ns),
            Some(session) if self.asked > 0 => session.deadline_ns().min(self.answer_by_ns),
            Some(session) if session.is_ready() => session.deadline_ns().min(self.ask_at_ns),
            Some(session) => session.deadline_ns(),
        }
    }
}

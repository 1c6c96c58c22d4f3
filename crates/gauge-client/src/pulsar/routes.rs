//! Where the partitions of a producer or consumer are: connections to brokers, lookups, and the opening of a producer or consumer on
//! each partition's broker.
//!
//! Every partition has a [`Route`], which goes from not known over looked up and opened, and back to the beginning when its connection is
//! lost or the broker closes it because the topic moves. Lookups go to one of the brokers that were named; their answers name the broker,
//! and each broker that is needed has one connection.

use std::ops::Range;

use gauge_load::mutants::{self, Mutant};

use super::commands::{self, Command, Found, Urls};
use super::session::Session;
use crate::security::Auth;
use crate::shared::Shared;
use crate::stream::{Backoff, InputBytes, Lost, Peer, find};

/// Lookups and openings under way at a time; brokers refuse more than a few thousand.
const PENDING_MAX: usize = 500;
/// How long a lookup or an opening may take.
const ANSWER_NS: i64 = 30_000_000_000;
/// What could not be done (too much under way, a partition with something in the socket's queue) is looked at again so soon.
const LOOK_NS: i64 = 2_000_000;
/// A lookup that is sent from broker to broker more often than this has no answer.
const REDIRECTS_MAX: u32 = 20;

/// A broker, and the connection to it if there is one.
#[derive(Debug)]
pub(super) struct Link {
    peer: Peer,
    pub session: Option<Session>,
    backoff: Backoff,
    /// Batches without a receipt, and when there was one last.
    pub in_flight: usize,
    pub progress_ns: i64,
}

/// Where a partition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// To be looked up, from this time on.
    Unknown(i64),
    Looking,
    /// The broker is known; it is opened when the connection is ready and the owner agrees.
    Known,
    Opening,
    Open,
    /// Closed by the owner, whose wish it is to stay so.
    Resting,
    /// The owner has asked the broker to close it.
    Closing,
}

/// A partition's way to its broker.
#[derive(Debug)]
struct Route {
    topic: String,
    stage: Stage,
    /// The broker that was asked (Looking) or that has it.
    link: usize,
    /// The request that is not answered.
    request: u64,
    deadline_ns: i64,
    redirects: u32,
    /// The owner wants it closed.
    is_resting: bool,
    backoff: Backoff,
}

/// What an answer means for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Nothing,
    /// It may be used.
    Opened(usize),
    /// The broker has closed it; it is looked up again.
    Closed(usize),
    /// The owner's closing is done.
    Rested(usize),
    /// It could not be looked up or opened; it is tried again.
    Failed {
        error: u64,
        words: String,
    },
}

/// The partitions of a producer or consumer.
#[derive(Debug)]
pub(super) struct Routes {
    routes: Vec<Route>,
    pub links: Vec<Link>,
    /// The token of the first link; each link's own number stands above.
    token: u64,
    input: InputBytes,
    auth: Option<Auth>,
    /// The link that lookups go to, and how many servers were tried.
    service: Option<usize>,
    attempts: usize,
    requests: u64,
    /// Partitions that are neither open nor resting.
    unsettled: usize,
    pending: usize,
    /// When what could not be done at once is looked at again.
    look_ns: i64,
}

impl Routes {
    /// Routes for these topics (partitions by their full names), nothing connected.
    pub fn new(
        topics: impl Iterator<Item = String>,
        token: u64,
        input: InputBytes,
        auth: Option<Auth>,
        attempts: usize,
    ) -> Routes {
        let routes: Vec<Route> = topics
            .map(|topic| Route {
                topic,
                stage: Stage::Unknown(i64::MIN),
                link: 0,
                request: 0,
                deadline_ns: i64::MAX,
                redirects: 0,
                is_resting: false,
                backoff: Backoff::default(),
            })
            .collect();
        Routes {
            unsettled: routes.len(),
            routes,
            links: Vec::new(),
            token,
            input,
            auth,
            service: None,
            attempts,
            requests: 0,
            pending: 0,
            look_ns: i64::MIN,
        }
    }

    /// All partitions are where they should be.
    pub fn is_settled(&self) -> bool {
        self.unsettled == 0
    }

    /// The link of an open partition.
    #[inline]
    pub fn open_link(&self, at: usize) -> Option<usize> {
        let route = &self.routes[at];
        (route.stage == Stage::Open).then_some(route.link)
    }

    pub fn topic(&self, at: usize) -> &str {
        &self.routes[at].topic
    }

    /// Partitions that are open over a link.
    pub fn open_over(&self, link: usize) -> impl Iterator<Item = usize> {
        let routes = self.routes.iter().enumerate();
        routes
            .filter(move |(_, route)| route.stage == Stage::Open && route.link == link)
            .map(|(at, _)| at)
    }

    /// A request's number, whose lower half is the partition.
    pub fn request(&mut self, at: usize) -> u64 {
        self.requests = (self.requests + 1) & 0x7FFF_FFFF;
        self.requests << 32 | at as u64
    }

    fn set(&mut self, at: usize, stage: Stage) {
        let is_settled = |stage| matches!(stage, Stage::Open | Stage::Resting);
        let is_pending = |stage| matches!(stage, Stage::Looking | Stage::Opening);
        let before = std::mem::replace(&mut self.routes[at].stage, stage);
        self.unsettled += usize::from(is_settled(before));
        self.unsettled -= usize::from(is_settled(stage));
        self.pending += usize::from(is_pending(stage));
        self.pending -= usize::from(is_pending(before));
    }

    /// Back to the beginning, after a pause.
    fn restart(&mut self, at: usize, now_ns: i64) {
        let route = &mut self.routes[at];
        if !mutants::is(Mutant::PulsarRedirectsKept) {
            route.redirects = 0;
        }
        let stage = match route.is_resting {
            true => Stage::Resting,
            false => {
                route.backoff.pause(now_ns);
                Stage::Unknown(route.backoff.retry_at_ns())
            }
        };
        self.set(at, stage);
    }

    /// The owner wants this partition closed (the returned command, if it is open) or open again.
    pub fn rest(&mut self, at: usize, is_resting: bool, now_ns: i64) -> bool {
        self.routes[at].is_resting = is_resting;
        match (is_resting, self.routes[at].stage) {
            (true, Stage::Open) => {
                let request = self.request(at);
                let route = &mut self.routes[at];
                (route.request, route.deadline_ns) = (request, now_ns + ANSWER_NS);
                let (link, consumer) = (route.link, at as u64);
                self.set(at, Stage::Closing);
                if let Some(session) = &mut self.links[link].session {
                    session.push(commands::close_consumer(consumer, request));
                }
                true
            }
            (true, Stage::Unknown(_) | Stage::Known) => {
                self.set(at, Stage::Resting);
                false
            }
            (false, Stage::Resting) => {
                self.set(at, Stage::Unknown(now_ns));
                false
            }
            _ => false,
        }
    }

    /// The link to an address, a new one if need be.
    fn link_to(&mut self, peer: &Peer) -> usize {
        let known = self.links.iter().position(|link| link.peer == *peer);
        known.unwrap_or_else(|| {
            self.links.push(Link {
                peer: peer.clone(),
                session: None,
                backoff: Backoff::default(),
                in_flight: 0,
                progress_ns: 0,
            });
            self.links.len() - 1
        })
    }

    /// The link to a broker that an answer names: `pulsar://host:port`, or `pulsar+ssl://host:port` where TLS is spoken.
    fn link_of(&mut self, urls: Urls<'_>, shared: &Shared) -> Result<usize, Lost> {
        let (url, scheme) = match &shared.tls {
            None => (urls.plain, "pulsar://"),
            Some(_) => (urls.tls, "pulsar+ssl://"),
        };
        let fault = |words: String| Lost::Malformed(format!("the broker's address {url:?}: {words}"));
        let server = url
            .strip_prefix(scheme)
            .ok_or_else(|| fault(format!("expected {scheme}host:port")))?;
        let peer = find(server.trim_end_matches('/'), shared.tls.as_ref()).map_err(fault)?;
        Ok(self.link_to(&peer))
    }

    /// The link for lookups.
    fn service(&mut self, shared: &Shared) -> usize {
        match self.service {
            Some(link) => link,
            None => {
                let link = self.link_to(&shared.servers[self.attempts % shared.servers.len()]);
                self.attempts += 1;
                self.service = Some(link);
                link
            }
        }
    }

    /// Connects a link if it is not and may be; returns whether commands can be sent.
    fn ensure(&mut self, at: usize, shared: &Shared, now_ns: i64) -> Result<bool, (usize, Lost)> {
        let token = self.token | (at as u64) << 32;
        let link = &mut self.links[at];
        if let Some(session) = &link.session {
            return Ok(session.is_ready());
        }
        if link.backoff.is_over(now_ns) {
            let auth = self.auth.clone();
            let session = Session::connect(&link.peer, &shared.poller, token, self.input, auth, now_ns);
            link.session = Some(session.map_err(|lost| (at, lost))?);
        }
        Ok(false)
    }

    /// Looks up and opens what is not open. `open` makes the command that opens a partition, or puts it off.
    ///
    /// # Errors
    /// A link that is lost, to be given to `lose`.
    pub fn drive(
        &mut self,
        shared: &Shared,
        now_ns: i64,
        mut open: impl FnMut(usize, &str, u64) -> Option<Vec<u8>>,
    ) -> Result<(), (usize, Lost)> {
        for (at, link) in self.links.iter_mut().enumerate() {
            if let Some(session) = &mut link.session {
                session.drive(now_ns).map_err(|lost| (at, lost))?;
            }
        }
        if self.is_settled() {
            return Ok(());
        }
        self.look_ns = now_ns + LOOK_NS;
        for at in 0..self.routes.len() {
            let route = &self.routes[at];
            match route.stage {
                Stage::Unknown(from_ns) if now_ns >= from_ns && self.pending < PENDING_MAX => {
                    let service = self.service(shared);
                    if self.ensure(service, shared, now_ns)? {
                        self.look_up(at, service, false, now_ns);
                    }
                }
                Stage::Known if self.pending < PENDING_MAX => {
                    let link = route.link;
                    if self.ensure(link, shared, now_ns)? {
                        self.open(at, now_ns, &mut open);
                    }
                }
                Stage::Looking | Stage::Opening | Stage::Closing if now_ns >= route.deadline_ns => {
                    return Err((route.link, Lost::Timeout));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn look_up(&mut self, at: usize, link: usize, is_authoritative: bool, now_ns: i64) {
        let request = self.request(at);
        let route = &mut self.routes[at];
        (route.link, route.request, route.deadline_ns) = (link, request, now_ns + ANSWER_NS);
        let command = commands::lookup(&route.topic, request, is_authoritative);
        self.set(at, Stage::Looking);
        if let Some(session) = &mut self.links[link].session {
            session.push(command);
        }
    }

    fn open(&mut self, at: usize, now_ns: i64, open: &mut impl FnMut(usize, &str, u64) -> Option<Vec<u8>>) {
        let request = self.request(at);
        let route = &mut self.routes[at];
        let Some(command) = open(at, &route.topic, request) else {
            return;
        };
        (route.request, route.deadline_ns) = (request, now_ns + ANSWER_NS);
        let link = route.link;
        self.set(at, Stage::Opening);
        if let Some(session) = &mut self.links[link].session {
            session.push(command);
        }
    }

    /// The partition that a request is about, if its answer is waited for.
    fn asked(&self, request: u64, stages: &[Stage]) -> Option<usize> {
        let at = (request & u64::from(u32::MAX)) as usize;
        let route = self.routes.get(at)?;
        (route.request == request && stages.contains(&route.stage)).then_some(at)
    }

    /// What a command means for the routes.
    ///
    /// # Errors
    /// When the broker names another in a way that cannot be understood.
    pub fn on_command(
        &mut self,
        link: usize,
        command: &Command<'_>,
        shared: &Shared,
        now_ns: i64,
    ) -> Result<Event, Lost> {
        match *command {
            Command::Found { request, found } => self.on_found(link, request, found, shared, now_ns),
            Command::ProducerSuccess {
                request,
                is_ready: true,
            }
            | Command::Success { request } => {
                if let Some(at) = self.asked(request, &[Stage::Closing]) {
                    let is_resting = self.routes[at].is_resting;
                    self.set(at, if is_resting { Stage::Resting } else { Stage::Known });
                    return Ok(Event::Rested(at));
                }
                let Some(at) = self.asked(request, &[Stage::Opening]) else {
                    return Ok(Event::Nothing);
                };
                self.set(at, Stage::Open);
                self.routes[at].backoff.works();
                self.links[link].backoff.works();
                Ok(Event::Opened(at))
            }
            Command::Error {
                request,
                error,
                words,
            } => {
                let Some(at) = self.asked(request, &[Stage::Looking, Stage::Opening, Stage::Closing]) else {
                    return Ok(Event::Nothing);
                };
                self.restart(at, now_ns);
                let words = format!("{}: {words}", self.routes[at].topic);
                Ok(Event::Failed { error, words })
            }
            Command::CloseProducer { producer: id } | Command::CloseConsumer { consumer: id } => {
                let at = usize::try_from(id).unwrap_or(usize::MAX);
                match self.routes.get(at).map(|route| (route.stage, route.link)) {
                    Some((Stage::Open | Stage::Opening | Stage::Closing, from)) if from == link => {
                        self.restart(at, now_ns);
                        Ok(Event::Closed(at))
                    }
                    _ => Ok(Event::Nothing),
                }
            }
            _ => Ok(Event::Nothing),
        }
    }

    fn on_found(
        &mut self,
        from: usize,
        request: u64,
        found: Found<'_>,
        shared: &Shared,
        now_ns: i64,
    ) -> Result<Event, Lost> {
        let Some(at) = self.asked(request, &[Stage::Looking]) else {
            return Ok(Event::Nothing);
        };
        match found {
            Found::Connect { urls } => {
                let link = self.link_of(urls, shared)?;
                let route = &mut self.routes[at];
                (route.link, route.redirects) = (link, 0);
                self.set(at, Stage::Known);
            }
            Found::Redirect {
                urls,
                is_authoritative,
            } => {
                let link = self.link_of(urls, shared)?;
                self.routes[at].redirects += 1;
                // A broker that is not connected yet is asked once it is; a lookup begins anew then, which costs nothing but a redirect.
                // The connection that is being read is never asked: a broker that sends a lookup back to itself does not know yet.
                let is_ready = link != from && matches!(self.ensure(link, shared, now_ns), Ok(true));
                if self.routes[at].redirects > REDIRECTS_MAX || !is_ready {
                    self.restart(at, now_ns);
                } else {
                    self.look_up(at, link, is_authoritative, now_ns);
                }
            }
            Found::Failed { error, words } => {
                self.restart(at, now_ns);
                let words = format!("{}: {words}", self.routes[at].topic);
                return Ok(Event::Failed { error, words });
            }
        }
        Ok(Event::Nothing)
    }

    /// A connection was lost: everything that went over it begins anew. Returns what was not written.
    pub fn lose(&mut self, link: usize, now_ns: i64) -> Option<Session> {
        for at in 0..self.routes.len() {
            let route = &self.routes[at];
            let is_over = match route.stage {
                Stage::Looking | Stage::Known | Stage::Opening | Stage::Open | Stage::Closing => {
                    route.link == link
                }
                Stage::Unknown(_) | Stage::Resting => false,
            };
            if is_over {
                self.restart(at, now_ns);
            }
        }
        if self.service == Some(link) {
            self.service = None;
        }
        let lost = &mut self.links[link];
        lost.backoff.pause(now_ns);
        lost.in_flight = 0;
        lost.session.take()
    }

    /// When `drive` must be called at the latest.
    pub fn deadline_ns(&self) -> i64 {
        let mut deadline_ns = i64::MAX;
        for link in &self.links {
            if let Some(session) = &link.session {
                deadline_ns = deadline_ns.min(session.deadline_ns());
            }
        }
        if self.is_settled() {
            return deadline_ns;
        }
        for route in &self.routes {
            let at_ns = match route.stage {
                Stage::Unknown(from_ns) => self.connect_ns(self.service).max(from_ns),
                Stage::Known => self.connect_ns(Some(route.link)),
                Stage::Looking | Stage::Opening | Stage::Closing => route.deadline_ns,
                Stage::Open | Stage::Resting => i64::MAX,
            };
            deadline_ns = deadline_ns.min(at_ns);
        }
        deadline_ns
    }

    /// When something can be done about a link without an event: soon when it is connected, never while it connects.
    fn connect_ns(&self, link: Option<usize>) -> i64 {
        let Some(link) = link.map(|link| &self.links[link]) else {
            return self.look_ns;
        };
        match &link.session {
            None => link.backoff.retry_at_ns(),
            Some(session) if session.is_ready() => self.look_ns,
            Some(_) => i64::MAX,
        }
    }

    /// Writes on all connections as much as the sockets take.
    pub fn write(
        &mut self,
        links: Range<usize>,
        shared: &Shared,
        mut done: impl FnMut(usize, Box<super::batch::Batch>),
    ) -> Result<(), (usize, Lost)> {
        for at in links {
            if let Some(session) = &mut self.links[at].session {
                let written = session.write(&shared.poller, |batch| done(at, batch));
                written.map_err(|lost| (at, lost))?;
            }
        }
        Ok(())
    }
}

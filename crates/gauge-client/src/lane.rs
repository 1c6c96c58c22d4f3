//! A lane's client: the producers and consumers of one thread, their sockets, and the order in which they get their turn. The same for
//! every protocol that brings a [`Source`] and a [`Sink`].

use gauge_load::clock::monotonic_ns;
use gauge_load::{Emitter, Observer};

use crate::stream::{Peer, resolve};
use crate::tls::Tls;
use crate::turns::Turns;
use crate::{ClientError, Endpoint, LaneClient, LaneSpec, Offer, Poller, Ready, Waker};

/// Received messages are looked at for this long per call of `drive`.
pub(crate) const DRIVE_NS: i64 = 1_000_000;
/// How long `prepare` sleeps at most between two looks.
const PREPARE_STEP_NS: i64 = 10_000_000;

/// How long a lane that ends waits for what its consumers still have to say.
const LEAVE_NS: i64 = 1_000_000_000;

/// What the producers and consumers of a lane have in common. `own` is what only one protocol has.
pub(crate) struct Shared<O = ()> {
    pub spec: LaneSpec,
    pub poller: Poller,
    bootstrap: Vec<String>,
    /// The servers that were named, resolved by `prepare`.
    pub servers: Vec<Peer>,
    /// How the servers are spoken to, if in TLS: those that were named and those that answers name.
    pub tls: Option<Tls>,
    /// Bytes that wait or travel, over all producers.
    pub buffered_bytes: usize,
    /// The lane is connected: from now on what is missing may come back.
    pub is_prepared: bool,
    /// The lane ends: nothing is begun any more.
    pub is_closing: bool,
    /// The last thing that went wrong, for the message of a `prepare` that does not succeed.
    pub trouble: Option<String>,
    pub own: O,
}

impl<O> Shared<O> {
    pub fn new(endpoint: &Endpoint, spec: LaneSpec, own: O) -> Result<Shared<O>, ClientError> {
        let poller = Poller::new()
            .map_err(|error| ClientError::system(format!("cannot make an epoll instance: {error}")))?;
        Ok(Shared {
            spec,
            poller,
            bootstrap: endpoint.bootstrap.clone(),
            servers: Vec::new(),
            tls: endpoint.security.tls.clone(),
            buffered_bytes: 0,
            is_prepared: false,
            is_closing: false,
            trouble: None,
            own,
        })
    }

    /// Looks the named servers up; blocks.
    pub fn resolve(&mut self) -> Result<(), ClientError> {
        let mut errors = Vec::new();
        for server in &self.bootstrap {
            match resolve(server, self.tls.as_ref()) {
                Ok(peers) => self.servers.extend(peers.into_iter().next()),
                Err(error) => errors.push(error),
            }
        }
        if self.servers.is_empty() {
            return Err(ClientError::system(errors.join("; ")));
        }
        Ok(())
    }
}

/// Which of a lane's ready sockets is whose: even tokens are producers', odd ones consumers'; above, the owner's own number.
pub(crate) fn producer_token(index: usize, link: usize) -> u64 {
    (link as u64) << 32 | (index as u64) << 1
}

/// As `producer_token`.
pub(crate) fn consumer_token(index: usize, link: usize) -> u64 {
    producer_token(index, link) | 1
}

/// The number of the consumer whose socket has this token; None: it is not a consumer's.
pub fn consumer_of(token: u64) -> Option<usize> {
    (token & 1 == 1).then_some(index_of(token))
}

fn index_of(token: u64) -> usize {
    (token as u32 >> 1) as usize
}

/// The index of nobody: sockets of the lane itself.
const NOBODY: usize = i32::MAX as usize;

/// As `producer_token`, of a socket that is no producer's and no consumer's.
pub(crate) fn own_token(link: usize) -> u64 {
    producer_token(NOBODY, link)
}

/// What a protocol does besides what its producers and consumers do. Most do nothing.
pub(crate) trait Own<P, C>: Sized {
    /// Looks the named servers up; blocks.
    fn resolve(shared: &mut Shared<Self>) -> Result<(), ClientError> {
        shared.resolve()
    }
    /// A socket of the lane itself is ready.
    fn on_ready(_shared: &mut Shared<Self>, _ready: &Ready) -> Result<(), ClientError> {
        Ok(())
    }
    /// Between the turns of sockets and those of producers and consumers.
    fn drive_before(
        _shared: &mut Shared<Self>,
        _producers: &mut [P],
        _consumers: &mut [C],
        _observer: &mut Observer,
        _now_ns: i64,
    ) -> Result<(), ClientError> {
        Ok(())
    }
    /// After those of producers and consumers.
    fn drive_after(_shared: &mut Shared<Self>, _now_ns: i64) -> Result<(), ClientError> {
        Ok(())
    }
    fn deadline_ns(_shared: &Shared<Self>) -> i64 {
        i64::MAX
    }
    /// See [`Shared::trouble`].
    fn trouble(shared: &mut Shared<Self>) -> Option<String> {
        shared.trouble.take()
    }
}

impl<P, C> Own<P, C> for () {}

/// A protocol's producer.
pub(crate) trait Source<O = ()> {
    fn is_ready(&self) -> bool;
    fn has_slot(&self, slot: usize) -> bool;
    fn waiting_msgs(&self) -> u64;
    fn probes_waiting(&self) -> usize;
    /// See [`LaneClient::offer`].
    fn offer(
        &mut self,
        emitter: &mut Emitter,
        observer: &mut Observer,
        shared: &mut Shared<O>,
        now_ns: i64,
    ) -> Offer;
    fn send_probe(&mut self, slot: usize, shared: &mut Shared<O>, now_ns: i64);
    fn flush(&mut self);
    /// A socket is ready; `link` is the producer's own number for it.
    fn on_ready(
        &mut self,
        link: usize,
        ready: &Ready,
        shared: &mut Shared<O>,
        observer: &mut Observer,
    ) -> Result<(), ClientError>;
    /// What is to be done without an event. Returns whether there is more to do at once.
    fn drive(
        &mut self,
        shared: &mut Shared<O>,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<bool, ClientError>;
    fn deadline_ns(&self) -> i64;
    fn abandon(&mut self, shared: &mut Shared<O>, observer: &mut Observer);
}

/// A protocol's consumer.
pub(crate) trait Sink<O = ()> {
    /// What there was no time for is left to another turn of its socket, and not to `drive`.
    const TURN_AGAIN: bool = true;
    fn subscription(&self) -> usize;
    fn partitions(&self) -> usize;
    fn assigned(&self) -> usize;
    fn pause(&mut self, paused: bool);
    fn is_caught_up(&self) -> bool;
    /// The trial drains: it will be asked whether everything was read.
    fn flush(&mut self);
    /// Returns whether more was read than there was time for; then it is called again without an event.
    fn on_ready(
        &mut self,
        link: usize,
        ready: &Ready,
        shared: &mut Shared<O>,
        observer: &mut Observer,
        until_ns: i64,
    ) -> Result<bool, ClientError>;
    fn drive(
        &mut self,
        shared: &mut Shared<O>,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<bool, ClientError>;
    fn deadline_ns(&self) -> i64;
    fn abandon(&mut self, shared: &mut Shared<O>, observer: &mut Observer);
    /// After `abandon`: it has something to say to its server before it goes.
    fn is_leaving(&self) -> bool {
        false
    }
}

/// A lane's client.
pub(crate) struct Lane<P, C, O = ()> {
    shared: Shared<O>,
    producers: Vec<P>,
    consumers: Vec<C>,
    /// Begins the message of a `prepare` that does not succeed.
    failure: &'static str,
    turns: Turns,
    has_work: bool,
}

impl<P, C, O> Lane<P, C, O>
where
    P: Source<O>,
    C: Sink<O>,
    O: Own<P, C>,
{
    /// A lane that is not connected. `failure` begins the message of a `prepare` that runs out of time: "the RabbitMQ client could not
    /// connect and find its queues".
    pub fn new(
        failure: &'static str,
        shared: Shared<O>,
        producer: impl Fn(usize, &Shared<O>) -> Result<P, ClientError>,
        consumer: impl Fn(usize, &Shared<O>) -> C,
    ) -> Result<Lane<P, C, O>, ClientError> {
        Ok(Lane {
            producers: (0..shared.spec.producers.len())
                .map(|at| producer(at, &shared))
                .collect::<Result<_, _>>()?,
            consumers: (0..shared.spec.consumers.len())
                .map(|at| consumer(at, &shared))
                .collect(),
            shared,
            failure,
            turns: Turns::default(),
            has_work: false,
        })
    }

    /// Gives every ready socket its turn, until the time is over.
    fn handle_ready(&mut self, observer: &mut Observer, until_ns: i64) -> Result<(), ClientError> {
        while let Some(turn) = self.turns.next() {
            let ready = &turn.ready;
            let (owner, link) = (index_of(ready.token), (ready.token >> 32) as usize);
            observer.turn(turn.since_ns);
            if owner == NOBODY {
                O::on_ready(&mut self.shared, ready)?;
            } else if ready.token & 1 == 0 {
                if let Some(producer) = self.producers.get_mut(owner) {
                    producer.on_ready(link, ready, &mut self.shared, observer)?;
                }
            } else if let Some(consumer) = self.consumers.get_mut(owner)
                && consumer.on_ready(link, ready, &mut self.shared, observer, until_ns)?
            {
                if C::TURN_AGAIN {
                    self.turns.again(turn);
                }
                break;
            }
        }
        observer.turn(i64::MAX);
        Ok(())
    }

    fn is_ready(&self) -> bool {
        let consumers = &self.consumers;
        self.producers.iter().all(Source::is_ready)
            && consumers
                .iter()
                .all(|consumer| consumer.assigned() == consumer.partitions())
    }

    /// Lets consumers say their last, as far as that goes quickly.
    fn leave(&mut self, observer: &mut Observer) {
        let until_ns = monotonic_ns() + LEAVE_NS;
        while self.consumers.iter().any(Sink::is_leaving) {
            let now_ns = monotonic_ns();
            if now_ns >= until_ns || self.drive(observer, now_ns).is_err() {
                return;
            }
            self.turns
                .wait(&mut self.shared.poller, (now_ns + PREPARE_STEP_NS).min(until_ns));
        }
    }
}

impl<P, C, O> LaneClient for Lane<P, C, O>
where
    P: Source<O>,
    C: Sink<O>,
    O: Own<P, C>,
{
    fn prepare(&mut self, observer: &mut Observer, deadline_ns: i64) -> Result<(), ClientError> {
        O::resolve(&mut self.shared)?;
        loop {
            let now_ns = monotonic_ns();
            self.drive(observer, now_ns)?;
            if self.is_ready() {
                self.shared.is_prepared = true;
                return Ok(());
            }
            if now_ns >= deadline_ns {
                let trouble = O::trouble(&mut self.shared);
                return Err(ClientError::system(format!(
                    "{} in time ({})",
                    self.failure,
                    trouble
                        .as_deref()
                        .unwrap_or("no error was seen, the server is slow")
                )));
            }
            self.wait(deadline_ns.min(now_ns + PREPARE_STEP_NS));
        }
    }

    fn assigned(&self) -> usize {
        self.consumers.iter().map(Sink::assigned).sum()
    }

    fn send_probes(&mut self, slots: &[usize]) {
        let now_ns = monotonic_ns();
        for slot in slots {
            let owner = self
                .producers
                .iter_mut()
                .find(|producer| producer.has_slot(*slot));
            if let Some(producer) = owner {
                producer.send_probe(*slot, &mut self.shared, now_ns);
            }
        }
        self.has_work = true;
    }

    fn probes_waiting(&self) -> usize {
        self.producers.iter().map(Source::probes_waiting).sum()
    }

    fn offer(
        &mut self,
        producer: usize,
        emitter: &mut Emitter,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Offer {
        match self.producers.get_mut(producer) {
            Some(producer) => producer.offer(emitter, observer, &mut self.shared, now_ns),
            None => Offer::Taken,
        }
    }

    fn drive(&mut self, observer: &mut Observer, now_ns: i64) -> Result<bool, ClientError> {
        self.turns.begin(&mut self.shared.poller, now_ns);
        self.handle_ready(observer, now_ns + DRIVE_NS)?;
        O::drive_before(
            &mut self.shared,
            &mut self.producers,
            &mut self.consumers,
            observer,
            now_ns,
        )?;
        let mut has_work = self.turns.are_left();
        for producer in &mut self.producers {
            has_work |= producer.drive(&mut self.shared, observer, now_ns)?;
        }
        for at in self.turns.order(self.consumers.len()) {
            has_work |= self.consumers[at].drive(&mut self.shared, observer, now_ns)?;
        }
        O::drive_after(&mut self.shared, now_ns)?;
        self.has_work = has_work;
        Ok(has_work)
    }

    fn next_deadline_ns(&self) -> i64 {
        let producers = self.producers.iter().map(Source::deadline_ns);
        producers
            .chain(self.consumers.iter().map(Sink::deadline_ns))
            .fold(O::deadline_ns(&self.shared), i64::min)
    }

    fn wait(&mut self, until_ns: i64) {
        let until_ns = if self.has_work { 0 } else { until_ns };
        let until_ns = until_ns.min(self.next_deadline_ns()).max(0);
        self.turns.wait(&mut self.shared.poller, until_ns);
    }

    fn waker(&self) -> Waker {
        self.shared.poller.waker()
    }

    fn flush(&mut self) {
        self.producers.iter_mut().for_each(Source::flush);
        self.consumers.iter_mut().for_each(Sink::flush);
        self.has_work = true;
    }

    fn waiting_msgs(&self) -> u64 {
        self.producers.iter().map(Source::waiting_msgs).sum()
    }

    fn pause(&mut self, subscription: usize, paused: bool) {
        for consumer in &mut self.consumers {
            if consumer.subscription() == subscription {
                consumer.pause(paused);
            }
        }
        self.has_work = true;
    }

    fn caught_up(&self, subscription: usize) -> bool {
        self.consumers
            .iter()
            .filter(|consumer| consumer.subscription() == subscription)
            .all(Sink::is_caught_up)
    }

    fn abandon(&mut self, observer: &mut Observer) {
        self.shared.is_closing = true;
        for producer in &mut self.producers {
            producer.abandon(&mut self.shared, observer);
        }
        for consumer in &mut self.consumers {
            consumer.abandon(&mut self.shared, observer);
        }
        self.leave(observer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_tell_their_owner() {
        for (index, link) in [(0, 0), (1, 0), (70_000, 3), (NOBODY, 0)] {
            let token = producer_token(index, link);
            assert_eq!(index_of(token), index);
            assert_eq!((token >> 32) as usize, link);
            assert_eq!(consumer_of(token), None);
            assert_eq!(consumer_of(consumer_token(index, link)), Some(index));
            assert_eq!(consumer_token(index, link), token | 1);
        }
        assert_eq!(own_token(2), producer_token(NOBODY, 2));
    }
}

//! A lane's client: the producers and consumers of one thread, their sockets, and the order in which they get their turn. The same for
//! every protocol that brings a [`Source`] and a [`Sink`].

use gauge_load::clock::monotonic_ns;
use gauge_load::{Emitter, Observer};

use crate::stream::{Peer, resolve};
use crate::tls::Tls;
use crate::turns::Turns;
use crate::{ClientError, Endpoint, LaneClient, LaneSpec, Offer, Poller, Ready, Waker};

/// Received messages are looked at for this long per call of `drive`.
const DRIVE_NS: i64 = 1_000_000;
/// How long `prepare` sleeps at most between two looks.
const PREPARE_STEP_NS: i64 = 10_000_000;

/// What the producers and consumers of a lane have in common.
pub(crate) struct Shared {
    pub spec: LaneSpec,
    pub poller: Poller,
    /// The servers that were named, resolved by `prepare`.
    pub servers: Vec<Peer>,
    /// How the servers are spoken to, if in TLS: those that were named and those that answers name.
    pub tls: Option<Tls>,
    /// Bytes that wait or travel, over all producers.
    pub buffered_bytes: usize,
    /// The lane is connected: from now on what is missing may come back.
    pub is_prepared: bool,
    /// The last thing that went wrong, for the message of a `prepare` that does not succeed.
    pub trouble: Option<String>,
}

impl Shared {
    /// Which of a lane's ready sockets is whose: even tokens are producers', odd ones consumers'; above, the owner's own number.
    pub fn producer_token(index: usize, link: usize) -> u64 {
        (link as u64) << 32 | (index as u64) << 1
    }

    /// As `producer_token`.
    pub fn consumer_token(index: usize, link: usize) -> u64 {
        Shared::producer_token(index, link) | 1
    }
}

/// A protocol's producer.
pub(crate) trait Source {
    fn is_ready(&self) -> bool;
    fn has_slot(&self, slot: usize) -> bool;
    fn waiting_msgs(&self) -> u64;
    fn probes_waiting(&self) -> usize;
    /// See [`LaneClient::offer`].
    fn offer(
        &mut self,
        emitter: &mut Emitter,
        observer: &mut Observer,
        shared: &mut Shared,
        now_ns: i64,
    ) -> Offer;
    fn send_probe(&mut self, slot: usize, shared: &mut Shared, now_ns: i64);
    fn flush(&mut self);
    /// A socket is ready; `link` is the producer's own number for it.
    fn on_ready(
        &mut self,
        link: usize,
        ready: &Ready,
        shared: &mut Shared,
        observer: &mut Observer,
    ) -> Result<(), ClientError>;
    /// What is to be done without an event. Returns whether there is more to do at once.
    fn drive(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<bool, ClientError>;
    fn deadline_ns(&self) -> i64;
    fn abandon(&mut self, shared: &mut Shared, observer: &mut Observer);
}

/// A protocol's consumer.
pub(crate) trait Sink {
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
        shared: &mut Shared,
        observer: &mut Observer,
        until_ns: i64,
    ) -> Result<bool, ClientError>;
    fn drive(
        &mut self,
        shared: &mut Shared,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Result<bool, ClientError>;
    fn deadline_ns(&self) -> i64;
    fn abandon(&mut self, shared: &mut Shared);
}

/// A lane's client.
pub(crate) struct Lane<P, C> {
    shared: Shared,
    producers: Vec<P>,
    consumers: Vec<C>,
    bootstrap: Vec<String>,
    /// Begins the message of a `prepare` that does not succeed.
    failure: &'static str,
    turns: Turns,
    has_work: bool,
}

impl<P: Source, C: Sink> Lane<P, C> {
    /// A lane that is not connected. `failure` begins the message of a `prepare` that runs out of time: "the RabbitMQ client could not
    /// connect and find its queues".
    pub fn new(
        failure: &'static str,
        endpoint: &Endpoint,
        spec: LaneSpec,
        producer: impl Fn(usize, &LaneSpec) -> P,
        consumer: impl Fn(usize, &LaneSpec) -> C,
    ) -> Result<Lane<P, C>, ClientError> {
        let poller = Poller::new()
            .map_err(|error| ClientError::system(format!("cannot make an epoll instance: {error}")))?;
        Ok(Lane {
            producers: (0..spec.producers.len()).map(|at| producer(at, &spec)).collect(),
            consumers: (0..spec.consumers.len()).map(|at| consumer(at, &spec)).collect(),
            shared: Shared {
                spec,
                poller,
                servers: Vec::new(),
                tls: endpoint.security.tls.clone(),
                buffered_bytes: 0,
                is_prepared: false,
                trouble: None,
            },
            bootstrap: endpoint.bootstrap.clone(),
            failure,
            turns: Turns::default(),
            has_work: false,
        })
    }

    /// Gives every ready socket its turn, until the time is over.
    fn handle_ready(&mut self, observer: &mut Observer, until_ns: i64) -> Result<(), ClientError> {
        while let Some(turn) = self.turns.next() {
            let ready = &turn.ready;
            let (owner, link) = ((ready.token as u32 >> 1) as usize, (ready.token >> 32) as usize);
            observer.turn(turn.since_ns);
            if ready.token & 1 == 0 {
                if let Some(producer) = self.producers.get_mut(owner) {
                    producer.on_ready(link, ready, &mut self.shared, observer)?;
                }
            } else if let Some(consumer) = self.consumers.get_mut(owner)
                && consumer.on_ready(link, ready, &mut self.shared, observer, until_ns)?
            {
                self.turns.again(turn);
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

    fn resolve(&mut self) -> Result<(), ClientError> {
        let mut errors = Vec::new();
        for server in &self.bootstrap {
            match resolve(server, self.shared.tls.as_ref()) {
                Ok(peers) => self.shared.servers.extend(peers.into_iter().next()),
                Err(error) => errors.push(error),
            }
        }
        if self.shared.servers.is_empty() {
            return Err(ClientError::system(errors.join("; ")));
        }
        Ok(())
    }
}

impl<P: Source, C: Sink> LaneClient for Lane<P, C> {
    fn prepare(&mut self, observer: &mut Observer, deadline_ns: i64) -> Result<(), ClientError> {
        self.resolve()?;
        loop {
            let now_ns = monotonic_ns();
            self.drive(observer, now_ns)?;
            if self.is_ready() {
                self.shared.is_prepared = true;
                return Ok(());
            }
            if now_ns >= deadline_ns {
                let trouble = self.shared.trouble.take();
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
        let mut has_work = self.turns.are_left();
        for producer in &mut self.producers {
            has_work |= producer.drive(&mut self.shared, observer, now_ns)?;
        }
        for at in self.turns.order(self.consumers.len()) {
            has_work |= self.consumers[at].drive(&mut self.shared, observer, now_ns)?;
        }
        self.has_work = has_work;
        Ok(has_work)
    }

    fn next_deadline_ns(&self) -> i64 {
        let producers = self.producers.iter().map(Source::deadline_ns);
        producers
            .chain(self.consumers.iter().map(Sink::deadline_ns))
            .fold(i64::MAX, i64::min)
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
        for producer in &mut self.producers {
            producer.abandon(&mut self.shared, observer);
        }
        for consumer in &mut self.consumers {
            consumer.abandon(&mut self.shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_tell_their_owner() {
        for (index, link) in [(0, 0), (1, 0), (70_000, 3)] {
            let token = Shared::producer_token(index, link);
            assert_eq!((token as u32 >> 1) as usize, index);
            assert_eq!((token >> 32) as usize, link);
            assert_eq!(Shared::consumer_token(index, link), token | 1);
        }
    }
}

//! A lane's client: the producers and consumers of one thread, their sockets, and the order in which they get their turn. The same for
//! every protocol that brings a [`Source`] and a [`Sink`].

use gauge_load::clock::monotonic_ns;
use gauge_load::{Emitter, Observer};

use gauge_load::stamp::{self, Stamp};

use crate::shared::{NOBODY, Shared, index_of};
use crate::source::{self, Source};
use crate::turns::Turns;
use crate::{ClientError, LaneClient, Offer, Patience, Ready, Waker};

/// Received messages are looked at for this long per call of `drive`.
pub(crate) const DRIVE_NS: i64 = 1_000_000;
/// How long `prepare` sleeps at most between two looks.
const PREPARE_STEP_NS: i64 = 10_000_000;

/// How long a lane that ends waits for what its consumers still have to say.
const LEAVE_NS: i64 = 1_000_000_000;

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
    fn flush(&mut self) {}
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
                .find(|producer| producer.held().slots.contains(slot));
            let Some(producer) = owner else { continue };
            let probe = Stamp {
                run: self.shared.spec.run,
                producer: stamp::PROBE_PRODUCER,
                sequence: *slot as u64,
                intended_ns: now_ns,
            };
            producer.held_mut().probes += 1;
            producer.send_probe(slot - producer.held().slots.start, &probe, &mut self.shared);
        }
        self.has_work = true;
    }

    fn probes_waiting(&self) -> usize {
        self.producers.iter().map(|producer| producer.held().probes).sum()
    }

    fn offer(
        &mut self,
        producer: usize,
        emitter: &mut Emitter,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Offer {
        match self.producers.get_mut(producer) {
            Some(producer) => source::offer(producer, emitter, observer, &mut self.shared, now_ns),
            None => Offer::Taken,
        }
    }

    fn patience(&self, producer: usize, emitter: &Emitter) -> Option<Patience> {
        let linger_ns = self.shared.spec.batch.linger_ns;
        if self.shared.spec.closed_loop || linger_ns <= 0 {
            return None;
        }
        let room_msgs = source::room_msgs(self.producers.get(producer)?, emitter, &self.shared)?;
        Some(Patience { linger_ns, room_msgs })
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
            producer.drive(&mut self.shared, observer, now_ns)?;
            has_work |= std::mem::take(&mut producer.held_mut().has_room);
        }
        for at in self.turns.order(self.consumers.len()) {
            has_work |= self.consumers[at].drive(&mut self.shared, observer, now_ns)?;
        }
        O::drive_after(&mut self.shared, now_ns)?;
        self.has_work = has_work;
        Ok(has_work)
    }

    fn check(&self) {
        self.producers.iter().for_each(Source::check);
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
        self.producers.iter().map(|producer| producer.held().msgs).sum()
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
            producer.held_mut().msgs = 0;
        }
        for consumer in &mut self.consumers {
            consumer.abandon(&mut self.shared, observer);
        }
        self.leave(observer);
    }
}

//! A lane's client: the producers and consumers of one thread, their sockets, and the order in which they get their turn.

use gauge_load::clock::monotonic_ns;
use gauge_load::{Emitter, Observer};

use super::Access;
use super::cluster::{Answer, Cluster};
use super::commit::Committer;
use super::consumer::Consumer;
use super::producer::Producer;
use super::shared::Shared;
use crate::turns::Turns;
use crate::{ClientError, LaneClient, LaneSpec, Offer, Poller, Waker};

/// Received messages are looked at for this long per call of `drive`.
const DRIVE_NS: i64 = 1_000_000;
/// Positions are committed for this long at the end.
const LAST_COMMIT_NS: i64 = 1_000_000_000;
/// How long `prepare` sleeps at most between two looks.
const PREPARE_STEP_NS: i64 = 10_000_000;

/// Whose a socket is, as a token of the poller: two bits for the kind, then the owner's index, then the link's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Cluster,
    Producer(usize, usize),
    Consumer(usize, usize),
    Committer(usize),
}

const OWNER_BITS: u32 = 30;

impl Owner {
    fn token(self) -> u64 {
        let pack = |kind: u64, owner: usize, link: usize| {
            kind << (2 * OWNER_BITS) | (owner as u64) << OWNER_BITS | link as u64
        };
        match self {
            Owner::Cluster => pack(0, 0, 0),
            Owner::Producer(owner, link) => pack(1, owner, link),
            Owner::Consumer(owner, link) => pack(2, owner, link),
            Owner::Committer(owner) => pack(3, owner, 0),
        }
    }

    fn of(token: u64) -> Owner {
        let mask = (1 << OWNER_BITS) - 1;
        let (owner, link) = ((token >> OWNER_BITS & mask) as usize, (token & mask) as usize);
        match token >> (2 * OWNER_BITS) {
            0 => Owner::Cluster,
            1 => Owner::Producer(owner, link),
            2 => Owner::Consumer(owner, link),
            _ => Owner::Committer(owner),
        }
    }
}

/// A lane's client.
pub(super) struct Lane {
    shared: Shared,
    producers: Vec<Producer>,
    consumers: Vec<Consumer>,
    turns: Turns,
    has_work: bool,
    /// Nothing is sent or fetched any more.
    is_closing: bool,
    answers: Vec<Answer>,
}

impl Lane {
    pub fn new(bootstrap: &[String], access: Access, spec: LaneSpec) -> Result<Lane, ClientError> {
        let poller = Poller::new()
            .map_err(|error| ClientError::system(format!("cannot make an epoll instance: {error}")))?;
        let groups = spec
            .consumers
            .iter()
            .map(|consumer| consumer.name.clone())
            .collect();
        let client_id = access.client_id.clone();
        let cluster = Cluster::new(access, bootstrap, &spec.topics, groups, Owner::Cluster.token());
        let shared = Shared::new(spec, client_id, poller, cluster);
        let producers = shared.spec.producers.iter().enumerate();
        let producers = producers
            .map(|(at, spec)| Producer::new(at, spec, &shared))
            .collect::<Result<_, _>>()?;
        let consumers = shared.spec.consumers.iter().enumerate();
        let consumers = consumers
            .map(|(at, spec)| Consumer::new(at, spec, &shared, Owner::Committer(at).token()))
            .collect();
        Ok(Lane {
            shared,
            producers,
            consumers,
            turns: Turns::default(),
            has_work: false,
            is_closing: false,
            answers: Vec::new(),
        })
    }

    /// Gives every ready socket its turn, until the time is over.
    fn handle_ready(&mut self, observer: &mut Observer, until_ns: i64) -> Result<(), ClientError> {
        while let Some(turn) = self.turns.next() {
            let ready = &turn.ready;
            observer.turn(turn.since_ns);
            match Owner::of(ready.token) {
                Owner::Cluster => {
                    self.shared
                        .cluster
                        .on_ready(&self.shared.poller, ready, monotonic_ns())?;
                }
                Owner::Producer(owner, link) => {
                    if let Some(producer) = self.producers.get_mut(owner) {
                        producer.on_ready(link, ready, &mut self.shared, observer)?;
                    }
                }
                Owner::Consumer(owner, link) => {
                    if let Some(consumer) = self.consumers.get_mut(owner) {
                        consumer.on_ready(link, ready, &mut self.shared, observer)?;
                        if consumer.work_off(link, observer, until_ns) {
                            break;
                        }
                    }
                }
                Owner::Committer(owner) => {
                    if let Some(consumer) = self.consumers.get_mut(owner) {
                        consumer.on_committer_ready(ready, &mut self.shared, observer);
                    }
                }
            }
        }
        observer.turn(i64::MAX);
        Ok(())
    }

    /// Takes over what the cluster has answered.
    fn take_answers(&mut self, observer: &mut Observer, now_ns: i64) -> Result<(), ClientError> {
        self.shared.cluster.take_answers(&mut self.answers);
        let mut answers = std::mem::take(&mut self.answers);
        for answer in answers.drain(..) {
            match answer {
                Answer::Metadata if self.is_closing => {}
                Answer::Metadata => {
                    for producer in &mut self.producers {
                        producer
                            .apply_metadata(&self.shared, |owner, link| Owner::Producer(owner, link).token());
                    }
                    for consumer in &mut self.consumers {
                        let token = |owner, link| Owner::Consumer(owner, link).token();
                        consumer.apply_metadata(&self.shared.cluster, token);
                    }
                }
                Answer::ProducerId {
                    producer,
                    code,
                    id,
                    epoch,
                } => {
                    if let Some(producer) = self.producers.get_mut(producer) {
                        producer.identify(code, id, epoch, &mut self.shared, now_ns)?;
                    }
                }
                Answer::Coordinator {
                    consumer,
                    code,
                    broker,
                } => {
                    let consumer = self.consumers.get_mut(consumer);
                    if let Some(committer) = consumer.and_then(|consumer| consumer.committer.as_mut()) {
                        committer.found(code, broker, observer, now_ns);
                    }
                }
            }
        }
        self.answers = answers;
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.producers.iter().all(Producer::is_ready) && self.consumers.iter().all(Consumer::is_ready)
    }

    fn commit_behind(&self) -> bool {
        self.consumers
            .iter()
            .any(|consumer| consumer.committer.is_some() && Committer::is_behind(&consumer.positions))
    }

    /// Commits the last positions, as far as that goes quickly.
    fn commit_last(&mut self, observer: &mut Observer) {
        let until_ns = monotonic_ns() + LAST_COMMIT_NS;
        for consumer in &mut self.consumers {
            consumer.close(observer);
            if let Some(committer) = &mut consumer.committer {
                committer.hurry();
            }
        }
        while self.commit_behind() {
            let now_ns = monotonic_ns();
            if now_ns >= until_ns || self.drive(observer, now_ns).is_err() {
                return;
            }
            self.turns
                .wait(&mut self.shared.poller, (now_ns + PREPARE_STEP_NS).min(until_ns));
        }
    }
}

impl LaneClient for Lane {
    fn prepare(&mut self, observer: &mut Observer, deadline_ns: i64) -> Result<(), ClientError> {
        self.shared.cluster.resolve_bootstrap()?;
        loop {
            let now_ns = monotonic_ns();
            self.drive(observer, now_ns)?;
            if self.is_ready() {
                return Ok(());
            }
            if now_ns >= deadline_ns {
                let trouble = self.shared.cluster.trouble();
                return Err(ClientError::system(format!(
                    "the Kafka client could not connect and find its partitions in time ({})",
                    trouble.unwrap_or("no error was seen, the server is slow")
                )));
            }
            self.wait(deadline_ns.min(now_ns + PREPARE_STEP_NS));
        }
    }

    fn assigned(&self) -> usize {
        self.consumers.iter().map(Consumer::assigned).sum()
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
        self.producers.iter().map(Producer::probes_waiting).sum()
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
        let until_ns = now_ns + DRIVE_NS;
        self.handle_ready(observer, until_ns)?;
        self.take_answers(observer, now_ns)?;
        let mut has_work = self.turns.are_left();
        for producer in &mut self.producers {
            has_work |= producer.drive(&mut self.shared, observer, now_ns)?;
        }
        for at in self.turns.order(self.consumers.len()) {
            has_work |= self.consumers[at].drive(&mut self.shared, observer, now_ns, until_ns);
        }
        self.shared.cluster.drive(&self.shared.poller, now_ns)?;
        self.has_work = has_work;
        Ok(has_work)
    }

    fn next_deadline_ns(&self) -> i64 {
        let producers = self.producers.iter().map(Producer::deadline_ns);
        let consumers = self.consumers.iter().map(Consumer::deadline_ns);
        producers
            .chain(consumers)
            .fold(self.shared.cluster.deadline_ns(), i64::min)
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
        for producer in &mut self.producers {
            producer.flush();
        }
        self.has_work = true;
    }

    fn waiting_msgs(&self) -> u64 {
        self.producers.iter().map(Producer::waiting_msgs).sum()
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
            .all(Consumer::is_caught_up)
    }

    fn abandon(&mut self, observer: &mut Observer) {
        self.is_closing = true;
        for producer in &mut self.producers {
            producer.abandon(&mut self.shared, observer);
        }
        self.commit_last(observer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_tell_their_owner() {
        for owner in [
            Owner::Cluster,
            Owner::Producer(3, 9),
            Owner::Consumer(70_000, 1),
            Owner::Committer(2),
        ] {
            assert_eq!(Owner::of(owner.token()), owner);
            assert!(owner.token() < 1 << 63);
        }
    }
}

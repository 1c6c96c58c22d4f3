//! One lane's NATS client: its producers and consumers, and the poller that they share.

use gauge_load::clock::monotonic_ns;
use gauge_load::{Emitter, Observer};

use super::consumer::Consumer;
use super::options::Options;
use super::producer::Producer;
use super::shared::Shared;
use crate::stream::resolve;
use crate::{ClientError, Endpoint, LaneClient, LaneSpec, Offer, Poller, Ready, Waker};

/// Received messages are handed over for this long before `drive` returns.
const DRIVE_NS: i64 = 1_000_000;
/// How long `prepare` sleeps at most between looks.
const PREPARE_LOOK_NS: i64 = 20_000_000;

/// One lane's client.
pub(crate) struct NatsLane {
    shared: Shared,
    producers: Vec<Producer>,
    consumers: Vec<Consumer>,
    ready: Vec<Ready>,
    /// Something can be done at once.
    has_work: bool,
}

impl NatsLane {
    /// Not connected yet.
    pub fn new(endpoint: &Endpoint, options: Options, spec: LaneSpec) -> Result<NatsLane, ClientError> {
        let poller = Poller::new()
            .map_err(|error| ClientError::system(format!("cannot wait for sockets: {error}")))?;
        let mut addresses = Vec::new();
        let mut trouble = Vec::new();
        for server in &endpoint.bootstrap {
            match resolve(server) {
                // One address per server, so that connections are spread over servers.
                Ok(found) => addresses.extend(found.first()),
                Err(error) => trouble.push(error),
            }
        }
        if addresses.is_empty() {
            return Err(ClientError::system(format!(
                "no NATS server can be found: {}",
                trouble.join("; ")
            )));
        }
        let shared = Shared::new(spec, options, addresses, poller);
        let producers: Vec<Producer> = shared
            .spec
            .producers
            .iter()
            .enumerate()
            .map(|(index, spec)| Producer::new(index, spec, &shared, index as u64))
            .collect();
        let consumers = shared
            .spec
            .consumers
            .iter()
            .enumerate()
            .map(|(index, spec)| Consumer::new(index, spec, &shared, (producers.len() + index) as u64))
            .collect();
        Ok(NatsLane {
            shared,
            producers,
            consumers,
            ready: Vec::new(),
            has_work: false,
        })
    }

    /// What keeps the lane from being prepared.
    fn trouble(&self) -> String {
        let of_producers = self
            .producers
            .iter()
            .filter(|producer| !producer.is_ready())
            .find_map(Producer::trouble);
        let of_consumers = self
            .consumers
            .iter()
            .filter(|consumer| !consumer.is_ready())
            .find_map(Consumer::trouble);
        of_consumers.or(of_producers).unwrap_or("no answer").to_owned()
    }

    /// Messages with their headers must fit what the server takes.
    fn check_payload(&self) -> Result<(), ClientError> {
        let longest_bytes = self.shared.spec.payload_bytes_max;
        match self
            .producers
            .iter()
            .map(Producer::max_payload_bytes)
            .find(|most| *most < longest_bytes)
        {
            Some(most) => Err(ClientError::input(
                "payload.size_bytes",
                format!(
                    "the NATS server takes messages up to {most} bytes (max_payload), and these have {longest_bytes}; make them smaller or raise max_payload"
                ),
            )),
            None => Ok(()),
        }
    }
}

impl LaneClient for NatsLane {
    fn prepare(&mut self, observer: &mut Observer, deadline_ns: i64) -> Result<(), ClientError> {
        loop {
            let now_ns = monotonic_ns();
            self.drive(observer, now_ns)?;
            let is_ready = self.producers.iter().all(Producer::is_ready)
                && self.consumers.iter().all(Consumer::is_ready);
            if is_ready {
                return self.check_payload();
            }
            if now_ns >= deadline_ns {
                return Err(ClientError::system(format!(
                    "NATS was not ready in time: {}",
                    self.trouble()
                )));
            }
            let until_ns = self.next_deadline_ns().min(now_ns + PREPARE_LOOK_NS);
            self.wait(until_ns.min(deadline_ns));
        }
    }

    fn assigned(&self) -> usize {
        self.consumers.iter().map(Consumer::assigned).sum()
    }

    fn send_probes(&mut self, slots: &[usize]) {
        let now_ns = monotonic_ns();
        let mut left = slots.to_vec();
        for producer in &mut self.producers {
            let (own, others): (Vec<usize>, Vec<usize>) =
                left.into_iter().partition(|slot| producer.has_slot(*slot));
            if !own.is_empty() {
                producer.send_probes(&own, &mut self.shared, now_ns);
            }
            left = others;
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
        self.producers[producer].offer(emitter, observer, &mut self.shared, now_ns)
    }

    fn drive(&mut self, observer: &mut Observer, now_ns: i64) -> Result<bool, ClientError> {
        let until_ns = now_ns + DRIVE_NS;
        let producers = self.producers.len();
        let ready = std::mem::take(&mut self.ready);
        for event in &ready {
            let at = event.token as usize;
            if at < producers {
                self.producers[at].on_ready(event, &mut self.shared, observer)?;
            } else if let Some(consumer) = self.consumers.get_mut(at - producers) {
                consumer.on_ready(event, &mut self.shared, observer, until_ns)?;
            }
        }
        self.ready = ready;
        self.ready.clear();
        self.has_work = false;
        let mut more = false;
        for producer in &mut self.producers {
            more |= producer.drive(&mut self.shared, observer, now_ns)?;
        }
        for consumer in &mut self.consumers {
            let has_more = consumer.drive(&mut self.shared, observer, now_ns, until_ns)?;
            self.has_work |= has_more;
            more |= has_more;
        }
        Ok(more)
    }

    fn next_deadline_ns(&self) -> i64 {
        let of_producers = self.producers.iter().map(Producer::deadline_ns);
        let of_consumers = self.consumers.iter().map(Consumer::deadline_ns);
        of_producers.chain(of_consumers).min().unwrap_or(i64::MAX)
    }

    fn wait(&mut self, until_ns: i64) {
        let until_ns = if self.has_work { i64::MIN } else { until_ns };
        if self.shared.poller.wait(until_ns, &mut self.ready).is_err() {
            self.ready.clear();
        }
    }

    fn waker(&self) -> Waker {
        self.shared.poller.waker()
    }

    fn flush(&mut self) {
        self.producers.iter_mut().for_each(Producer::flush);
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
        for producer in &mut self.producers {
            producer.abandon(&mut self.shared, observer);
        }
        for consumer in &mut self.consumers {
            consumer.close(&self.shared);
        }
    }
}

//! A system in memory whose every misbehaviour can be switched on: what the state machine is tested against.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gauge_client::{
    Admin, ClientError, Endpoint, LaneClient, LaneSpec, NewTopic, Offer, Patience, Poller, Protocol, StartAt,
    Waker,
};
use gauge_load::clock::monotonic_ns;
use gauge_load::stamp::{PROBE_PRODUCER, STAMP_BYTES, Stamp};
use gauge_load::{BatchLedger, Emitter, Observer, stamp};

/// How the system behaves; may be changed at any time.
#[derive(Default)]
pub struct Knobs {
    /// Time between a message and its acknowledgement.
    pub ack_delay_ns: AtomicI64,
    /// Nothing is acknowledged.
    pub stalled: AtomicBool,
    /// Messages that a lane has room for; 0: any number.
    pub room_msgs: AtomicU64,
    /// The next messages are acknowledged and thrown away.
    pub lose: AtomicU64,
    /// The next messages are stored twice.
    pub duplicate: AtomicU64,
    /// When the trial drains, so many of the messages of the first partition are stored again, behind all others.
    pub echo: AtomicU64,
    /// Messages that a consumer gets of a partition in each turn; 0: any number.
    pub receive_msgs: AtomicU64,
    /// The next messages are stored in another partition than theirs.
    pub misroute: AtomicU64,
    /// The next messages are stored with a flipped bit.
    pub corrupt: AtomicU64,
    /// The next batches fail and are thrown away.
    pub fail: AtomicU64,
    /// The next batches fail and are stored all the same.
    pub fail_stored: AtomicU64,
    /// Probes vanish.
    pub swallow_probes: AtomicBool,
    /// `prepare` returns this error.
    pub prepare_error: Mutex<Option<String>>,
    /// `drive` returns this error.
    pub drive_error: Mutex<Option<String>>,
    /// The next `drive` takes so long before it does anything: its lane is without a CPU.
    pub away_ns: AtomicU64,
    /// `drive` panics.
    pub drive_panic: AtomicBool,
    /// Messages taken in all, of all trials.
    pub taken: AtomicU64,
}

fn spend(knob: &AtomicU64) -> bool {
    knob.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
        .is_ok()
}

type Logs = HashMap<(String, u32), Vec<Vec<u8>>>;

#[derive(Default)]
pub struct System {
    pub knobs: Knobs,
    logs: Mutex<Logs>,
}

pub struct Fake(pub Arc<System>);

impl Protocol for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn client_name(&self) -> &'static str {
        "fake in memory"
    }

    fn check(&self, endpoint: &Endpoint, spec: &LaneSpec) -> Result<Vec<String>, ClientError> {
        if let Some(option) = endpoint.options.keys().next() {
            return Err(ClientError::input(
                format!("system.options.{option}"),
                "is unknown",
            ));
        }
        Ok(if spec.idempotence {
            vec!["repeated batches are not dropped".to_owned()]
        } else {
            vec![]
        })
    }

    fn lane(&self, _: &Endpoint, spec: LaneSpec) -> Result<Box<dyn LaneClient>, ClientError> {
        let positions = spec
            .consumers
            .iter()
            .map(|consumer| vec![0; consumer.partitions.len()])
            .collect();
        Ok(Box::new(FakeLane {
            system: Arc::clone(&self.0),
            poller: Poller::new().map_err(|error| ClientError::system(error.to_string()))?,
            ready: Vec::new(),
            positions,
            prepared: false,
            batches: VecDeque::new(),
            probes: Vec::new(),
            waiting: 0,
            paused: vec![false; 16],
            turn: 0,
            spec,
        }))
    }

    fn admin(&self, endpoint: &Endpoint) -> Result<Box<dyn Admin>, ClientError> {
        if endpoint.bootstrap[0].starts_with("nowhere") {
            return Err(ClientError::system("nowhere:1 could not be reached"));
        }
        Ok(Box::new(FakeAdmin(Arc::clone(&self.0))))
    }
}

struct FakeAdmin(Arc<System>);

impl Admin for FakeAdmin {
    fn create_topics(&mut self, topics: &[NewTopic], _: i64) -> Result<(), ClientError> {
        let mut logs = self.0.logs.lock().unwrap();
        for topic in topics {
            assert!(topic.name != "panic", "the test asked for a panic");
            if logs.contains_key(&(topic.name.clone(), 0)) {
                return Err(ClientError::system(format!("topic {} exists", topic.name)));
            }
            for partition in 0..topic.partitions {
                logs.insert((topic.name.clone(), partition), Vec::new());
            }
        }
        Ok(())
    }

    fn delete_topics(&mut self, topics: &[String], _: i64) -> Result<Vec<String>, ClientError> {
        let mut logs = self.0.logs.lock().unwrap();
        let missing = topics
            .iter()
            .filter(|topic| !logs.contains_key(&((*topic).clone(), 0)));
        let missing = missing.cloned().collect();
        logs.retain(|(name, _), _| !topics.contains(name));
        Ok(missing)
    }

    fn describe(&mut self, topics: &[String], _: i64) -> Result<serde_json::Value, ClientError> {
        Ok(serde_json::json!({"cluster_id": "fake", "topics": topics}))
    }
}

struct Batch {
    ledger: BatchLedger,
    messages: Vec<(usize, u32, Vec<u8>)>,
    ready_ns: i64,
}

struct FakeLane {
    spec: LaneSpec,
    system: Arc<System>,
    poller: Poller,
    ready: Vec<gauge_client::Ready>,
    positions: Vec<Vec<usize>>,
    prepared: bool,
    batches: VecDeque<Batch>,
    probes: Vec<usize>,
    waiting: u64,
    paused: Vec<bool>,
    turn: u32,
}

impl FakeLane {
    fn slot(&self, topic: usize, partition: u32) -> usize {
        self.spec.topics[topic].first_slot + partition as usize
    }

    fn acknowledge(&mut self, batch: &Batch, observer: &mut Observer, now_ns: i64) {
        let knobs = &self.system.knobs;
        self.waiting -= u64::from(batch.ledger.messages());
        let fails_stored = spend(&knobs.fail_stored);
        if fails_stored || spend(&knobs.fail) {
            observer.failed(&batch.ledger, "FAKE_FAILURE");
            if !fails_stored {
                return;
            }
        } else {
            observer.acked(&batch.ledger, now_ns);
        }
        let mut logs = self.system.logs.lock().unwrap();
        for (topic, partition, message) in &batch.messages {
            let topic = &self.spec.topics[*topic];
            let goes = u32::from(topic.partitions > 1 && spend(&knobs.misroute));
            let partition = (*partition + goes) % topic.partitions;
            let log = logs.entry((topic.name.clone(), partition)).or_default();
            if spend(&knobs.lose) {
                continue;
            }
            let mut message = message.clone();
            if spend(&knobs.duplicate) {
                log.push(message.clone());
            }
            if spend(&knobs.corrupt) {
                let last = message.len() - 1;
                message[last] ^= 1;
            }
            log.push(message);
        }
    }

    fn receive(&mut self, observer: &mut Observer) {
        let logs = self.system.logs.lock().unwrap();
        for (consumer, positions) in self.spec.consumers.iter().zip(&mut self.positions) {
            if self.paused[consumer.subscription] {
                continue;
            }
            let now_ns = monotonic_ns();
            for (&(topic, partition), position) in consumer.partitions.iter().zip(positions) {
                let name = &self.spec.topics[topic].name;
                let Some(log) = logs.get(&(name.clone(), partition)) else {
                    continue;
                };
                if *position < log.len() {
                    observer.fetched(consumer.subscription);
                }
                let slot = self.spec.topics[topic].first_slot + partition as usize;
                let until = match self.system.knobs.receive_msgs.load(Ordering::Relaxed) {
                    0 => log.len(),
                    some => log.len().min(*position + some as usize),
                };
                for message in &log[*position..until] {
                    observer.received(consumer.subscription, slot, message, now_ns);
                }
                *position = until;
            }
        }
    }
}

impl LaneClient for FakeLane {
    fn prepare(&mut self, observer: &mut Observer, _: i64) -> Result<(), ClientError> {
        if let Some(error) = self.system.knobs.prepare_error.lock().unwrap().take() {
            return Err(ClientError::system(error));
        }
        observer.error("PREPARATION");
        let logs = self.system.logs.lock().unwrap();
        for (consumer, positions) in self.spec.consumers.iter().zip(&mut self.positions) {
            for (&(topic, partition), position) in consumer.partitions.iter().zip(positions) {
                let log = logs.get(&(self.spec.topics[topic].name.clone(), partition));
                if consumer.start == StartAt::Latest {
                    *position = log.map_or(0, Vec::len);
                }
            }
        }
        self.prepared = true;
        Ok(())
    }

    fn patience(&self, _: usize, _: &Emitter) -> Option<Patience> {
        None
    }

    fn assigned(&self) -> usize {
        let all = self.spec.consumers.iter();
        if self.prepared {
            all.map(|consumer| consumer.partitions.len()).sum()
        } else {
            0
        }
    }

    fn send_probes(&mut self, slots: &[usize]) {
        self.probes = slots.to_vec();
    }

    fn probes_waiting(&self) -> usize {
        self.probes.len()
    }

    fn offer(
        &mut self,
        producer: usize,
        emitter: &mut Emitter,
        observer: &mut Observer,
        now_ns: i64,
    ) -> Offer {
        let topic = self.spec.producers[producer].topic;
        let partitions = self.spec.topics[topic].partitions;
        let room = self.system.knobs.room_msgs.load(Ordering::Relaxed);
        let mut batch = Batch {
            ledger: BatchLedger::new(emitter.producer()),
            messages: Vec::new(),
            ready_ns: now_ns + self.system.knobs.ack_delay_ns.load(Ordering::Relaxed),
        };
        self.turn += 1;
        let mut offer = Offer::Taken;
        loop {
            if room > 0 && self.waiting >= room {
                offer = Offer::Full;
                break;
            }
            if batch.messages.len() == 500 {
                offer = Offer::More;
                break;
            }
            let Some(departure) = emitter.take(now_ns) else {
                break;
            };
            let partition = departure.key.unwrap_or(self.turn) % partitions;
            let mut message = vec![0; departure.payload_bytes()];
            departure.write_into(&mut message, partition as usize);
            observer.sent(&departure);
            batch.ledger.push(
                departure.stamp.sequence,
                departure.stamp.intended_ns,
                now_ns,
                message.len(),
            );
            batch.messages.push((topic, partition, message));
            self.waiting += 1;
            self.system.knobs.taken.fetch_add(1, Ordering::Relaxed);
        }
        if !batch.ledger.is_empty() {
            self.batches.push_back(batch);
        }
        offer
    }

    fn drive(&mut self, observer: &mut Observer, _: i64) -> Result<bool, ClientError> {
        let knobs = &self.system.knobs;
        assert!(
            !knobs.drive_panic.swap(false, Ordering::Relaxed),
            "the test asked for a panic"
        );
        if let Some(error) = knobs.drive_error.lock().unwrap().take() {
            return Err(ClientError::system(error));
        }
        std::thread::sleep(Duration::from_nanos(knobs.away_ns.swap(0, Ordering::Relaxed)));
        if !knobs.swallow_probes.load(Ordering::Relaxed) {
            let mut logs = self.system.logs.lock().unwrap();
            for slot in std::mem::take(&mut self.probes) {
                let topic = self.spec.topics.iter().rfind(|topic| topic.first_slot <= slot);
                let topic = topic.unwrap();
                let mut probe = vec![0; STAMP_BYTES];
                let stamp = Stamp {
                    run: self.spec.run,
                    producer: PROBE_PRODUCER,
                    sequence: slot as u64,
                    intended_ns: monotonic_ns(),
                };
                stamp::write(&mut probe, &stamp, stamp::tail_crc(&[]));
                let partition = (slot - topic.first_slot) as u32;
                assert_eq!(self.slot(0, 0), self.spec.topics[0].first_slot);
                logs.entry((topic.name.clone(), partition))
                    .or_default()
                    .push(probe);
            }
        }
        while !self.system.knobs.stalled.load(Ordering::Relaxed)
            && self
                .batches
                .front()
                .is_some_and(|batch| batch.ready_ns <= monotonic_ns())
        {
            let batch = self.batches.pop_front().unwrap();
            observer.request();
            self.acknowledge(&batch, observer, monotonic_ns());
        }
        self.receive(observer);
        Ok(false)
    }

    fn check(&self) {}

    fn next_deadline_ns(&self) -> i64 {
        // A memory has no sockets, so the lane looks again every millisecond.
        monotonic_ns() + 1_000_000
    }

    fn wait(&mut self, until_ns: i64) {
        self.poller.wait(until_ns, &mut self.ready).unwrap();
    }

    fn waker(&self) -> Waker {
        self.poller.waker()
    }

    fn flush(&mut self) {
        let echo = self.system.knobs.echo.swap(0, Ordering::Relaxed) as usize;
        let mut logs = self.system.logs.lock().unwrap();
        let first = (self.spec.topics[0].name.clone(), 0);
        if let Some(log) = logs.get_mut(&first) {
            let again: Vec<_> = log.iter().rev().take(echo).cloned().collect();
            log.extend(again);
        }
    }

    fn waiting_msgs(&self) -> u64 {
        self.waiting
    }

    fn pause(&mut self, subscription: usize, paused: bool) {
        self.paused[subscription] = paused;
    }

    fn caught_up(&self, subscription: usize) -> bool {
        let logs = self.system.logs.lock().unwrap();
        self.spec
            .consumers
            .iter()
            .zip(&self.positions)
            .filter(|(consumer, _)| consumer.subscription == subscription)
            .all(|(consumer, positions)| {
                consumer
                    .partitions
                    .iter()
                    .zip(positions)
                    .all(|(&(topic, partition), position)| {
                        let log = logs.get(&(self.spec.topics[topic].name.clone(), partition));
                        *position >= log.map_or(0, Vec::len)
                    })
            })
    }

    fn abandon(&mut self, observer: &mut Observer) {
        for batch in self.batches.drain(..) {
            observer.censored(&batch.ledger);
        }
        self.waiting = 0;
    }
}

//! Drives one lane of producers and one lane of consumers against a Kafka server, without the worker around them: what the client
//! itself costs and reaches.
//!
//! ```text
//! cargo run --release -p gauge-client --example kafka_bench -- --bootstrap 127.0.0.1:9092 --rate 50000 --linger-ms 1 --seconds 10
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use clap::{Parser, ValueEnum};
use gauge_client::kafka::Kafka;
use gauge_client::{
    Acks, BatchPolicy, ClientError, Compression, ConsumerSpec, Endpoint, Keys, LaneSpec, NewTopic, Offer,
    ProducerSpec, Protocol, StartAt, Topic,
};
use gauge_load::clock::{monotonic_ns, process_cpu_ns, thread_cpu_ns};
use gauge_load::{
    Arrival, Books, Counters, Emitter, EmitterSpec, Latency, Observer, PayloadPool, PhaseLatencies,
    ScheduleSpec, Tally, audit,
};

/// Wake-ups for the schedule are at least this far apart.
const QUANTUM_NS: i64 = 100_000;
const SECOND_NS: i64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    Produce,
    Consume,
    Both,
}

#[derive(Clone, Debug, Parser)]
#[command(about = "Measures the native Kafka client by itself")]
struct Arguments {
    /// host:port of a broker.
    #[arg(long, default_value = "127.0.0.1:9092")]
    bootstrap: String,
    #[arg(long, value_enum, default_value = "both")]
    mode: Mode,
    /// Messages per second over all producers, or "max" for a closed loop.
    #[arg(long, default_value = "max")]
    rate: String,
    /// Bytes of a message.
    #[arg(long, default_value_t = 100)]
    size: usize,
    /// Bytes of a message that do not compress, as a share from 0 to 1.
    #[arg(long, default_value_t = 1.0)]
    random_ratio: f64,
    #[arg(long, default_value_t = 16)]
    partitions: u32,
    #[arg(long, default_value_t = 1)]
    replication: u32,
    #[arg(long, default_value_t = 1)]
    producers: u32,
    #[arg(long, default_value_t = 1)]
    consumers: u32,
    #[arg(long, default_value_t = 1.0)]
    linger_ms: f64,
    #[arg(long, default_value_t = 128 << 10)]
    batch_bytes: usize,
    #[arg(long, default_value_t = 5)]
    in_flight: usize,
    #[arg(long, default_value_t = 64 << 20)]
    buffer_bytes: usize,
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// all, leader or none.
    #[arg(long, default_value = "all")]
    acks: String,
    /// none, gzip, snappy, lz4 or zstd.
    #[arg(long, default_value = "none")]
    compression: String,
    /// sticky, round-robin or keyed.
    #[arg(long, default_value = "sticky")]
    keys: String,
    #[arg(long)]
    idempotence: bool,
    #[arg(long, default_value_t = 30.0)]
    request_timeout_s: f64,
    #[arg(long, default_value_t = 120.0)]
    retry_for_s: f64,
    /// Commit positions this often.
    #[arg(long)]
    commit_ms: Option<i64>,
    /// Use this topic and keep it; otherwise one is made and deleted. It is created unless it exists.
    #[arg(long)]
    topic: Option<String>,
    /// Consume mode: end after this many messages.
    #[arg(long, default_value_t = u64::MAX)]
    messages: u64,
    /// Pin the lane of producers to this CPU.
    #[arg(long)]
    pin: Option<usize>,
    /// Print the counters every second.
    #[arg(long)]
    verbose: bool,
}

struct Outcome {
    tally: Tally,
    books: Books,
    cpu_ns: i64,
    busy_ns: i64,
}

/// What the two lanes tell each other.
#[derive(Default)]
struct Signals {
    consumer_ready: AtomicBool,
    producer_done: AtomicBool,
    acked: AtomicU64,
}

fn main() {
    let arguments = Arguments::parse();
    if let Err(error) = run(&arguments) {
        eprintln!("kafka_bench: {error}");
        std::process::exit(3);
    }
}

fn run(arguments: &Arguments) -> Result<(), ClientError> {
    let endpoint = Endpoint {
        bootstrap: vec![arguments.bootstrap.clone()],
        options: serde_json::Map::new(),
        security: gauge_client::Security::default(),
    };
    let name = arguments
        .topic
        .clone()
        .unwrap_or_else(|| format!("bench-{}", std::process::id()));
    let mut admin = Kafka.admin(&endpoint)?;
    let topic = NewTopic {
        name: name.clone(),
        partitions: arguments.partitions,
        replication_factor: arguments.replication,
        configs: vec![],
    };
    let created = admin.create_topics(&[topic], monotonic_ns() + 30 * SECOND_NS);
    match created {
        Err(error) if arguments.topic.is_none() => return Err(error),
        Err(error) if !error.to_string().contains("ALREADY_EXISTS") => return Err(error),
        _ => {}
    }
    let signals = Signals::default();
    let outcomes = thread::scope(|scope| {
        let producers = (arguments.mode != Mode::Consume).then(|| {
            let spec = spec(arguments, &name, true);
            scope.spawn(|| produce(arguments, &endpoint, spec?, &signals))
        });
        let consumers = (arguments.mode != Mode::Produce).then(|| {
            let spec = spec(arguments, &name, false);
            scope.spawn(|| consume(arguments, &endpoint, spec?, &signals))
        });
        let join = |handle: thread::ScopedJoinHandle<'_, Result<Outcome, ClientError>>| {
            handle.join().expect("a lane does not panic")
        };
        let produced = producers.map(join).transpose();
        signals.producer_done.store(true, Ordering::Release);
        (produced, consumers.map(join).transpose())
    });
    if arguments.topic.is_none() {
        admin.delete_topics(&[name], monotonic_ns() + 30 * SECOND_NS)?;
    }
    report(arguments, outcomes.0?.as_ref(), outcomes.1?.as_ref());
    Ok(())
}

fn spec(arguments: &Arguments, name: &str, is_producer: bool) -> Result<LaneSpec, ClientError> {
    let closed = arguments.rate == "max";
    let keys = match arguments.keys.as_str() {
        "sticky" => Keys::Sticky,
        "round-robin" => Keys::RoundRobin,
        "keyed" => Keys::Keyed,
        _ => {
            return Err(ClientError::input(
                "--keys",
                "expected sticky, round-robin or keyed",
            ));
        }
    };
    let producers = (0..arguments.producers)
        .map(|id| ProducerSpec { id, topic: 0, keys })
        .collect();
    let consumers = (0..arguments.consumers).map(|consumer| ConsumerSpec {
        subscription: 0,
        name: format!("{name}-group"),
        start: if arguments.mode == Mode::Consume {
            StartAt::Earliest
        } else {
            StartAt::Latest
        },
        partitions: (0..arguments.partitions)
            .filter(|partition| partition % arguments.consumers == consumer)
            .map(|partition| (0, partition))
            .collect(),
        commit_interval_ns: arguments.commit_ms.map(|ms| ms * 1_000_000),
    });
    let consumers: Vec<ConsumerSpec> = consumers.collect();
    Ok(LaneSpec {
        run: 1,
        topics: Arc::new([Topic {
            name: name.to_owned(),
            partitions: arguments.partitions,
            first_slot: 0,
        }]),
        producers: if is_producer { producers } else { vec![] },
        consumers: if is_producer { vec![] } else { consumers },
        batch: BatchPolicy {
            bytes: arguments.batch_bytes,
            linger_ns: (arguments.linger_ms * 1e6) as i64,
            in_flight: arguments.in_flight,
            buffer_bytes: arguments.buffer_bytes,
        },
        closed_loop: closed,
        acks: match arguments.acks.as_str() {
            "all" => Acks::All,
            "leader" => Acks::Leader,
            "none" => Acks::None,
            _ => return Err(ClientError::input("--acks", "expected all, leader or none")),
        },
        idempotence: arguments.idempotence,
        compression: match arguments.compression.as_str() {
            "none" => Compression::None,
            "gzip" => Compression::Gzip,
            "snappy" => Compression::Snappy,
            "lz4" => Compression::Lz4,
            "zstd" => Compression::Zstd,
            _ => {
                return Err(ClientError::input(
                    "--compression",
                    "expected none, gzip, snappy, lz4 or zstd",
                ));
            }
        },
        request_timeout_ns: (arguments.request_timeout_s * 1e9) as i64,
        retry_for_ns: (arguments.retry_for_s * 1e9) as i64,
        payload_bytes_max: arguments.size,
    })
}

fn emitters(arguments: &Arguments) -> Result<Vec<Emitter>, ClientError> {
    let rate = match arguments.rate.as_str() {
        "max" => None,
        text => Some(
            text.parse::<f64>()
                .ok()
                .filter(|rate| *rate > 0.0)
                .ok_or_else(|| {
                    ClientError::input(
                        "--rate",
                        format!("expected \"max\" or messages per second, got {text:?}"),
                    )
                })?,
        ),
    };
    let pool = Arc::new(PayloadPool::generate(
        arguments.size,
        arguments.random_ratio,
        64,
        7,
    ));
    let share = 1.0 / f64::from(arguments.producers);
    Ok((0..arguments.producers)
        .map(|producer| {
            Emitter::new(&EmitterSpec {
                run: 1,
                producer,
                schedule: ScheduleSpec {
                    arrival: if rate.is_some() {
                        Arrival::Uniform
                    } else {
                        Arrival::Closed
                    },
                    rate_msgs_s: rate.unwrap_or(0.0) * share,
                    ramp: None,
                    stagger: f64::from(producer) * share,
                    stop_ns: Some((arguments.seconds * 1e9) as i64),
                    seed: u64::from(producer),
                },
                pool: Arc::clone(&pool),
                key_count: if arguments.keys == "keyed" { 1000 } else { 0 },
                changes: Vec::new(),
                skew: None,
            })
        })
        .collect())
}

fn pin(cpu: usize) {
    // SAFETY: the set is plain memory that lives for the call; zero means the calling thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

fn produce(
    arguments: &Arguments,
    endpoint: &Endpoint,
    spec: LaneSpec,
    signals: &Signals,
) -> Result<Outcome, ClientError> {
    if let Some(cpu) = arguments.pin {
        pin(cpu);
    }
    // SAFETY: plain system call on the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let slots = arguments.partitions as usize;
    let ids: Vec<u32> = (0..arguments.producers).collect();
    let mut observer = Observer::new(1, arguments.size >= 32, &ids, 0, slots);
    let mut emitters = emitters(arguments)?;
    let mut client = Kafka.lane(endpoint, spec)?;
    client.prepare(&mut observer, monotonic_ns() + 60 * SECOND_NS)?;
    while arguments.mode == Mode::Both && !signals.consumer_ready.load(Ordering::Acquire) {
        client.drive(&mut observer, monotonic_ns())?;
        client.wait(monotonic_ns() + SECOND_NS / 100);
    }
    // Readiness as the worker proves it, which also touches every partition once.
    client.send_probes(&(0..slots).collect::<Vec<_>>());
    while client.probes_waiting() > 0 {
        client.drive(&mut observer, monotonic_ns())?;
        client.wait(monotonic_ns() + SECOND_NS / 100);
    }
    let start_ns = monotonic_ns();
    let (cpu_before_ns, stop_ns) = (thread_cpu_ns(), start_ns + (arguments.seconds * 1e9) as i64);
    observer.start(start_ns);
    emitters.iter_mut().for_each(|emitter| emitter.start(start_ns));
    let mut tick = Ticker::new(arguments.verbose, "produce");
    let mut is_flushed = false;
    loop {
        let now_ns = monotonic_ns();
        let mut next_ns = i64::MAX;
        let mut has_more = false;
        for (at, emitter) in emitters.iter_mut().enumerate() {
            match client.offer(at, emitter, &mut observer, now_ns) {
                Offer::Taken => next_ns = next_ns.min(emitter.next_due_ns().unwrap_or(i64::MAX)),
                // For a client without room, the schedule waits until a socket brings some.
                Offer::Full => {
                    emitter.hold(monotonic_ns());
                }
                Offer::More => has_more = true,
            }
        }
        let soon = client.drive(&mut observer, monotonic_ns())?;
        let now_ns = monotonic_ns();
        if now_ns >= stop_ns {
            if !is_flushed {
                client.flush();
                is_flushed = true;
            }
            if client.waiting_msgs() == 0 || now_ns >= stop_ns + 30 * SECOND_NS {
                break;
            }
        }
        tick.tick(&mut observer, now_ns);
        if !has_more && !soon {
            let until_ns = next_ns.max(now_ns + QUANTUM_NS).min(if is_flushed {
                now_ns + SECOND_NS / 100
            } else {
                stop_ns
            });
            client.wait(until_ns);
        }
    }
    let busy_ns = monotonic_ns() - start_ns;
    client.abandon(&mut observer);
    let cpu_ns = thread_cpu_ns() - cpu_before_ns;
    for emitter in &emitters {
        observer.close_producer(emitter.producer(), emitter.sequence());
    }
    let tally = tick.end(&mut observer);
    signals.acked.store(tally.counters.acked_msgs, Ordering::Release);
    Ok(Outcome {
        tally,
        books: observer.into_books(),
        cpu_ns,
        busy_ns,
    })
}

fn consume(
    arguments: &Arguments,
    endpoint: &Endpoint,
    spec: LaneSpec,
    signals: &Signals,
) -> Result<Outcome, ClientError> {
    let slots = arguments.partitions as usize;
    let mut observer = Observer::new(1, arguments.size >= 32, &[], 1, slots);
    let mut client = Kafka.lane(endpoint, spec)?;
    let prepared = client.prepare(&mut observer, monotonic_ns() + 60 * SECOND_NS);
    // Also after an error: the producers must not wait for what will not come.
    signals.consumer_ready.store(true, Ordering::Release);
    prepared?;
    let start_ns = monotonic_ns();
    let cpu_before_ns = thread_cpu_ns();
    let mut tick = Ticker::new(arguments.verbose, "consume");
    let (mut last_ns, mut seen) = (start_ns, 0);
    loop {
        let soon = client.drive(&mut observer, monotonic_ns())?;
        let now_ns = monotonic_ns();
        tick.tick(&mut observer, now_ns);
        let received = tick.received(&observer);
        if received > seen {
            (seen, last_ns) = (received, now_ns);
        }
        let is_done = match arguments.mode {
            Mode::Consume => {
                received >= arguments.messages
                    || (seen > 0 && client.caught_up(0))
                    || now_ns - last_ns > 10 * SECOND_NS
            }
            _ => {
                // Everything is there and nothing follows; repeated messages would make a count alone end too early.
                let quiet_ns = now_ns - last_ns;
                signals.producer_done.load(Ordering::Acquire)
                    && ((received >= signals.acked.load(Ordering::Acquire)
                        && client.caught_up(0)
                        && quiet_ns > SECOND_NS / 2)
                        || quiet_ns > 5 * SECOND_NS)
            }
        };
        if is_done {
            break;
        }
        if !soon {
            client.wait(now_ns + SECOND_NS / 100);
        }
    }
    let cpu_ns = thread_cpu_ns() - cpu_before_ns;
    client.abandon(&mut observer);
    let tally = tick.end(&mut observer);
    Ok(Outcome {
        tally,
        books: observer.into_books(),
        cpu_ns,
        busy_ns: last_ns - start_ns,
    })
}

/// Swaps the tally out every second, as the worker does, and adds it up.
struct Ticker {
    verbose: bool,
    name: &'static str,
    next_ns: i64,
    seconds: u32,
    total: Counters,
    latencies: Option<PhaseLatencies>,
    spare: Tally,
}

impl Ticker {
    fn new(verbose: bool, name: &'static str) -> Ticker {
        Ticker {
            verbose,
            name,
            next_ns: monotonic_ns() + SECOND_NS,
            seconds: 0,
            total: Counters::default(),
            latencies: None,
            spare: Tally::default(),
        }
    }

    fn received(&self, _observer: &Observer) -> u64 {
        // Up to the last whole second, which is enough to see whether anything moves.
        self.total.received.first().map_or(0, |received| received.msgs)
    }

    fn tick(&mut self, observer: &mut Observer, now_ns: i64) {
        if now_ns < self.next_ns {
            return;
        }
        // In the first second and at the end, shorter steps tell sooner that everything is there.
        self.next_ns = now_ns + SECOND_NS / 4;
        self.seconds += 1;
        self.take(observer);
    }

    fn take(&mut self, observer: &mut Observer) {
        let tally = observer.swap(std::mem::take(&mut self.spare));
        if self.verbose {
            let received = tally
                .counters
                .received
                .first()
                .map_or(0, |received| received.msgs);
            println!(
                "{} {:4}: sent {} acked {} failed {} retries {} received {received} errors {:?}",
                self.name,
                self.seconds,
                tally.counters.sent_msgs,
                tally.counters.acked_msgs,
                tally.counters.failed_msgs,
                tally.counters.retries,
                tally.counters.errors
            );
        }
        self.total.add(&tally.counters);
        for latencies in &tally.latencies {
            match &mut self.latencies {
                Some(total) => total.add(latencies),
                None => self.latencies = Some(latencies.clone()),
            }
        }
        self.spare = tally;
        self.spare.clear();
    }

    fn end(mut self, observer: &mut Observer) -> Tally {
        self.take(observer);
        let mut tally = Tally::default();
        tally.counters = self.total;
        tally.latencies.extend(self.latencies);
        tally
    }
}

fn line(name: &str, latency: &Latency) {
    if !latency.is_empty() {
        let ms = |percentile| latency.percentile_ns(percentile) as f64 / 1e6;
        println!(
            "  {name:<12} ms: p50 {:.3}  p90 {:.3}  p99 {:.3}  p99.9 {:.3}  max {:.3}  ({} samples)",
            ms(50.0),
            ms(90.0),
            ms(99.0),
            ms(99.9),
            latency.max_ns() as f64 / 1e6,
            latency.count()
        );
    }
}

fn rate(name: &str, msgs: u64, bytes: u64, outcome: &Outcome) {
    let seconds = outcome.busy_ns.max(1) as f64 / 1e9;
    println!(
        "{name}: {msgs} msgs in {seconds:.2} s = {:.0} msg/s, {:.1} MB/s; lane CPU {:.3} us/msg ({:.0} % of a core)",
        msgs as f64 / seconds,
        bytes as f64 / seconds / 1e6,
        outcome.cpu_ns as f64 / 1e3 / msgs.max(1) as f64,
        outcome.cpu_ns as f64 / outcome.busy_ns.max(1) as f64 * 100.0
    );
}

fn report(arguments: &Arguments, produced: Option<&Outcome>, consumed: Option<&Outcome>) {
    if let Some(outcome) = produced {
        let counters = &outcome.tally.counters;
        rate("produced", counters.acked_msgs, counters.acked_bytes, outcome);
        println!(
            "  sent {}  acked {}  failed {}  retries {}  requests {}  batches {}  errors {:?}",
            counters.sent_msgs,
            counters.acked_msgs,
            counters.failed_msgs,
            counters.retries,
            counters.requests,
            counters.batches,
            counters.errors
        );
        for latencies in &outcome.tally.latencies {
            line("publish", &latencies.publish);
            line("service", &latencies.service);
            line("send delay", &latencies.send_delay);
            line("back-pressure", &latencies.backpressure);
        }
        let verdict = audit::judge_sent(&outcome.books.sent, outcome.books.publish_samples);
        println!("  books {verdict:?}");
    }
    if let Some(outcome) = consumed {
        let received = outcome
            .tally
            .counters
            .received
            .first()
            .copied()
            .unwrap_or_default();
        rate("consumed", received.msgs, received.bytes, outcome);
        println!(
            "  fetches {}  errors {:?}",
            received.fetches, outcome.tally.counters.errors
        );
        for latencies in &outcome.tally.latencies {
            latencies
                .end_to_end
                .iter()
                .for_each(|latency| line("end to end", latency));
        }
        if let (Some(receipts), Some(samples)) = (
            outcome.books.receipts.first(),
            outcome.books.end_to_end_samples.first(),
        ) && arguments.mode == Mode::Both
        {
            let sent = produced.map_or(&[][..], |produced| &produced.books.sent);
            println!("  audit {:?}", audit::judge(sent, receipts, *samples, false));
        }
    }
    let rss = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = rss
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap_or_default();
    println!("process CPU {:.2} s, {peak}", process_cpu_ns() as f64 / 1e9);
}

//! Administration over AMQP: blocking calls on a connection of their own.
//!
//! A topic is a durable direct exchange of its name; partition p is the durable queue `topic.p`, bound with routing key `p`.

use gauge_load::clock::monotonic_ns;
use serde_json::{Map, Value, json};

use super::codec::{self, Frame, Method, Put, Reader, kind, method, method_frame};

use super::options::{Options, SUBSCRIPTIONS_MAX, check_topic_name, queue_name, routing_key};
use super::queues::{put_bind, put_declare};
use super::session::{Session, error};
use crate::stream::{InputBytes, Lost, resolve};
use crate::{Admin, ClientError, NewTopic, Poller, Ready};

const INPUT: InputBytes = InputBytes {
    first: 16 << 10,
    max: 512 << 10,
};
const CHANNEL: u16 = 1;
/// Connecting and opening may take this long per server.
const CONNECT_NS: i64 = 10_000_000_000;
/// Requests under way at a time.
const PIPELINE: usize = 64;
/// How long to sleep at most between two looks.
const STEP_NS: i64 = 50_000_000;

/// A connection for administration.
pub(super) struct RabbitAdmin {
    options: Options,
    poller: Poller,
    session: Session,
    is_channel_open: bool,
    ready: Vec<Ready>,
}

/// What came of a request.
enum Reply {
    /// It was answered.
    Done,
    /// The channel was closed.
    Refused(codec::Closing),
}

/// A request: its frame, and the method that answers it.
type Request = (Vec<u8>, Method);

impl RabbitAdmin {
    /// Connects to the first server that answers.
    pub fn connect(options: Options) -> Result<RabbitAdmin, ClientError> {
        let mut faults = Vec::new();
        for server in &options.servers {
            match Self::connect_to(server, &options) {
                Ok(admin) => return Ok(admin),
                Err(fault) => faults.push(format!("{server}: {fault}")),
            }
        }
        Err(ClientError::system(format!(
            "cannot connect to RabbitMQ: {}",
            faults.join("; ")
        )))
    }

    fn connect_to(server: &str, options: &Options) -> Result<RabbitAdmin, String> {
        let peers = resolve(server, options.tls.as_ref())?;
        let peer = peers.first().ok_or("the name has no address")?;
        let poller = Poller::new().map_err(|error| format!("cannot make an epoll instance: {error}"))?;
        let now_ns = monotonic_ns();
        let session = Session::connect(peer, &poller, 0, INPUT, now_ns).map_err(|lost| lost.to_string())?;
        let mut admin = RabbitAdmin {
            options: options.clone(),
            poller,
            session,
            is_channel_open: false,
            ready: Vec::new(),
        };
        while !admin.session.is_ready() {
            admin.step(now_ns + CONNECT_NS).map_err(|lost| lost.to_string())?;
        }
        Ok(admin)
    }

    /// One turn: writes, waits, reads. Returns the frames that came.
    fn step(&mut self, deadline_ns: i64) -> Result<Vec<(Frame, Vec<u8>)>, Lost> {
        let now_ns = monotonic_ns();
        if now_ns >= deadline_ns {
            return Err(Lost::Timeout);
        }
        self.session.drive(now_ns)?;
        self.session.write(&self.poller, |_| {})?;
        let until_ns = deadline_ns.min(now_ns + STEP_NS);
        // As in a lane: the poller has no error but a closed descriptor.
        if self.poller.wait(until_ns, &mut self.ready).is_err() {
            self.ready.clear();
        }
        let mut frames = Vec::new();
        for ready in std::mem::take(&mut self.ready) {
            self.session.advance(&ready, &self.poller, now_ns)?;
            let mut may_have_more = ready.readable;
            while may_have_more {
                may_have_more = self.session.read(now_ns)?;
                while let Some(frame) = self.session.next(&self.options, now_ns)? {
                    frames.push((frame, self.session.payload(frame).to_vec()));
                }
            }
        }
        Ok(frames)
    }

    /// Sends requests, several at a time, and waits for their answers. The first refusal ends it.
    fn call(&mut self, requests: Vec<Request>, deadline_ns: i64) -> Result<Vec<Reply>, ClientError> {
        let failed = |lost: Lost| ClientError::system(format!("RabbitMQ: {lost}"));
        let mut replies = Vec::with_capacity(requests.len());
        let mut waiting = requests.into_iter().peekable();
        let mut expected = std::collections::VecDeque::new();
        if !self.is_channel_open {
            let open = method_frame(CHANNEL, method::CHANNEL_OPEN, |arguments| {
                arguments.put_short_string("")
            });
            self.session.push_control(open, monotonic_ns());
            self.is_channel_open = true;
        }
        while waiting.peek().is_some() || !expected.is_empty() {
            while expected.len() < PIPELINE
                && let Some((bytes, answer)) = waiting.next()
            {
                self.session.push_control(bytes, monotonic_ns());
                expected.push_back(answer);
            }
            for (frame, payload) in self.step(deadline_ns).map_err(failed)? {
                if frame.kind != kind::METHOD {
                    continue;
                }
                let mut reader = Reader::new(&payload);
                let found = reader.method().map_err(|error| failed(error.into()))?;
                if found == method::CHANNEL_CLOSE {
                    let closing = codec::read_closing(&mut reader).map_err(|error| failed(error.into()))?;
                    let answer = method_frame(CHANNEL, method::CHANNEL_CLOSE_OK, |_| {});
                    self.session.push_control(answer, monotonic_ns());
                    self.is_channel_open = false;
                    replies.push(Reply::Refused(closing));
                    return Ok(replies);
                }
                if expected.front() == Some(&found) {
                    expected.pop_front();
                    replies.push(Reply::Done);
                }
            }
        }
        Ok(replies)
    }

    /// As `call`, where a refusal is an error.
    fn demand(&mut self, what: &str, requests: Vec<Request>, deadline_ns: i64) -> Result<(), ClientError> {
        match self.call(requests, deadline_ns)?.pop() {
            Some(Reply::Refused(closing)) => Err(ClientError::system(format!(
                "RabbitMQ would not {what}: {} (code {})",
                closing.words, closing.code
            ))),
            _ => Ok(()),
        }
    }

    /// Whether something exists that is asked for passively.
    fn exists(&mut self, request: Request, deadline_ns: i64) -> Result<bool, ClientError> {
        match self.call(vec![request], deadline_ns)?.pop() {
            Some(Reply::Refused(closing)) if error::of(closing.code) == error::NOT_FOUND => Ok(false),
            Some(Reply::Refused(closing)) => Err(ClientError::system(format!(
                "RabbitMQ refused: {} (code {})",
                closing.words, closing.code
            ))),
            _ => Ok(true),
        }
    }

    /// Makes the direct exchange of a super stream, to which its streams are bound with their numbers as routing keys, in order.
    pub fn bind_super_stream(
        &mut self,
        topic: &str,
        streams: &[String],
        deadline_ns: i64,
    ) -> Result<(), ClientError> {
        let arguments = Map::from_iter([("x-super-stream".to_owned(), json!(true))]);
        let mut requests = vec![declare_exchange(topic, false, &arguments)];
        for (partition, stream) in streams.iter().enumerate() {
            let order = Map::from_iter([("x-stream-partition-order".to_owned(), json!(partition))]);
            let mut bind = Vec::new();
            put_bind(&mut bind, CHANNEL, stream, topic, &partition.to_string(), &order);
            requests.push((bind, method::QUEUE_BIND_OK));
        }
        self.demand(&format!("make super stream {topic:?}"), requests, deadline_ns)
    }

    /// Deletes an exchange; one that is not there is no error in RabbitMQ.
    pub fn delete_exchange(&mut self, topic: &str, deadline_ns: i64) -> Result<(), ClientError> {
        let requests = vec![delete_exchange(topic)];
        self.demand(&format!("delete exchange {topic:?}"), requests, deadline_ns)
    }

    fn create(&mut self, topic: &NewTopic, deadline_ns: i64) -> Result<(), ClientError> {
        let mut options = self.options.clone();
        for (name, value) in &topic.configs {
            options.queue_arguments.insert(name.clone(), argument(value));
        }
        let mut requests = vec![declare_exchange(&topic.name, false, &Map::new())];
        for partition in 0..topic.partitions {
            let (queue, key) = (queue_name(&topic.name, partition, 0), routing_key(partition));
            let mut declare = Vec::new();
            put_declare(&mut declare, CHANNEL, &queue, &options);
            requests.push((declare, method::QUEUE_DECLARE_OK));
            let mut bind = Vec::new();
            put_bind(&mut bind, CHANNEL, &queue, &topic.name, &key, &Map::new());
            requests.push((bind, method::QUEUE_BIND_OK));
        }
        self.demand(&format!("create topic {:?}", topic.name), requests, deadline_ns)
    }

    /// Number of partitions: queues are numbered without a gap.
    fn partitions(&mut self, topic: &str, deadline_ns: i64) -> Result<u32, ClientError> {
        let mut partitions = 0;
        while self.exists(passive_queue(&queue_name(topic, partitions, 0)), deadline_ns)? {
            partitions += 1;
        }
        Ok(partitions)
    }

    /// What the first queue is: RabbitMQ refuses to declare a queue again with other properties than it has, so a declaration that it
    /// accepts is a reading of them.
    fn settings(&mut self, topic: &str, deadline_ns: i64) -> Result<Value, ClientError> {
        let mut declare = Vec::new();
        put_declare(&mut declare, CHANNEL, &queue_name(topic, 0, 0), &self.options);
        let request = (declare, method::QUEUE_DECLARE_OK);
        Ok(match self.call(vec![request], deadline_ns)?.pop() {
            Some(Reply::Refused(closing)) => json!({"mismatch": closing.words}),
            _ => {
                let mut settings = Map::new();
                settings.insert("durable".to_owned(), json!("true"));
                for (name, value) in &self.options.queue_arguments {
                    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    settings.insert(name.clone(), json!(text));
                }
                Value::Object(settings)
            }
        })
    }
}

/// A queue's argument from its text: a number or a truth value where it looks like one.
fn argument(text: &str) -> Value {
    match (text.parse::<i64>(), text.parse::<bool>()) {
        (Ok(number), _) => json!(number),
        (_, Ok(truth)) => json!(truth),
        _ => json!(text),
    }
}

fn declare_exchange(name: &str, is_passive: bool, given: &Map<String, Value>) -> Request {
    let bytes = method_frame(CHANNEL, method::EXCHANGE_DECLARE, |arguments| {
        arguments.put_u16(0);
        arguments.put_short_string(name);
        arguments.put_short_string("direct");
        // Bit 0: passive; bit 1: durable.
        arguments.put_u8(if is_passive { 1 } else { 2 });
        arguments.put_table(given);
    });
    (bytes, method::EXCHANGE_DECLARE_OK)
}

fn passive_queue(queue: &str) -> Request {
    let bytes = method_frame(CHANNEL, method::QUEUE_DECLARE, |arguments| {
        arguments.put_u16(0);
        arguments.put_short_string(queue);
        arguments.put_u8(1);
        arguments.put_u32(0);
    });
    (bytes, method::QUEUE_DECLARE_OK)
}

fn delete_queue(queue: &str) -> Request {
    let bytes = method_frame(CHANNEL, method::QUEUE_DELETE, |arguments| {
        arguments.put_u16(0);
        arguments.put_short_string(queue);
        arguments.put_u8(0);
    });
    (bytes, method::QUEUE_DELETE_OK)
}

fn delete_exchange(exchange: &str) -> Request {
    let bytes = method_frame(CHANNEL, method::EXCHANGE_DELETE, |arguments| {
        arguments.put_u16(0);
        arguments.put_short_string(exchange);
        arguments.put_u8(0);
    });
    (bytes, method::EXCHANGE_DELETE_OK)
}

impl Admin for RabbitAdmin {
    fn create_topics(&mut self, topics: &[NewTopic], deadline_ns: i64) -> Result<(), ClientError> {
        for topic in topics {
            check_topic_name(&topic.name)?;
            if self.exists(declare_exchange(&topic.name, true, &Map::new()), deadline_ns)? {
                return Err(ClientError::system(format!(
                    "topic {:?} exists already (an exchange of that name)",
                    topic.name
                )));
            }
            self.create(topic, deadline_ns)?;
        }
        Ok(())
    }

    fn delete_topics(&mut self, topics: &[String], deadline_ns: i64) -> Result<Vec<String>, ClientError> {
        let mut missing = Vec::new();
        for topic in topics {
            if !self.exists(declare_exchange(topic, true, &Map::new()), deadline_ns)? {
                missing.push(topic.clone());
                continue;
            }
            let partitions = self.partitions(topic, deadline_ns)?;
            // Deleting a queue that is not there is no error in RabbitMQ, so nobody need know how many subscriptions there were.
            let queues = (0..SUBSCRIPTIONS_MAX).flat_map(|subscription| {
                (0..partitions).map(move |partition| queue_name(topic, partition, subscription))
            });
            let mut requests: Vec<Request> = queues.map(|queue| delete_queue(&queue)).collect();
            requests.push(delete_exchange(topic));
            self.demand(&format!("delete topic {topic:?}"), requests, deadline_ns)?;
        }
        Ok(missing)
    }

    fn describe(&mut self, topics: &[String], deadline_ns: i64) -> Result<Value, ClientError> {
        let said = |wanted: &str| {
            let found = self.session.server().iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone())
        };
        let (cluster, product, version) = (said("cluster_name"), said("product"), said("version"));
        let mut described = Map::new();
        for topic in topics {
            if !self.exists(declare_exchange(topic, true, &Map::new()), deadline_ns)? {
                continue;
            }
            let partitions = self.partitions(topic, deadline_ns)?;
            let settings = match partitions {
                0 => json!({}),
                _ => self.settings(topic, deadline_ns)?,
            };
            let entry = json!({"partitions": partitions, "replication_factor": null, "settings": settings});
            described.insert(topic.clone(), entry);
        }
        Ok(json!({
            "cluster_id": cluster,
            "controller": null,
            "nodes": [],
            "node_settings": {},
            "topics": described,
            "software": {"name": product, "version": version},
        }))
    }
}

impl Drop for RabbitAdmin {
    fn drop(&mut self) {
        self.session.close(&self.poller, monotonic_ns());
    }
}

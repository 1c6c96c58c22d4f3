//! Administration of streams: blocking calls on connections of their own.
//!
//! A topic of one partition is a stream of its name. One of several is a super stream: streams `topic-0`, `topic-1`, ..., and over AMQP a
//! direct exchange of the topic's name, to which they are bound with their numbers as routing keys, in the way of RabbitMQ's own tool
//! (`rabbitmq-streams add_super_stream`), so that its clients find them. Without an AMQP listener only the streams are made.

use std::collections::VecDeque;

use gauge_load::clock::monotonic_ns;
use serde_json::{Map, Value, json};

use super::super::admin::RabbitAdmin;
use super::super::codec::Reader;
use super::super::options::check_topic_name;
use super::options::{Options, stream_name, streams_of};
use super::session::Session;
use super::wire::{self, Whereabouts, code, key};
use crate::stream::{Lost, resolve};
use crate::{Admin, ClientError, NewTopic, Poller, Ready};

/// Connecting and opening may take this long per server.
const CONNECT_NS: i64 = 10_000_000_000;
/// Requests under way at a time.
const PIPELINE: usize = 32;
/// How long to sleep at most between two looks.
const STEP_NS: i64 = 50_000_000;
/// Pause before a stream is asked for its leader again.
const LEADER_PAUSE_NS: i64 = 50_000_000;

/// A connection for administration.
pub(super) struct StreamAdmin {
    options: Options,
    poller: Poller,
    session: Session,
    amqp: Option<RabbitAdmin>,
    ready: Vec<Ready>,
    correlation: u32,
}

/// An answer: response code and the fields behind it.
type Answer = (u16, Vec<u8>);

fn failed(lost: Lost) -> ClientError {
    ClientError::system(format!("RabbitMQ's stream plugin: {lost}"))
}

impl StreamAdmin {
    /// Connects to the first server that answers.
    pub fn connect(options: Options) -> Result<StreamAdmin, ClientError> {
        let mut faults = Vec::new();
        for server in &options.servers {
            match Self::connect_to(server, &options) {
                Ok((poller, session)) => {
                    let amqp = options.amqp.clone().map(RabbitAdmin::connect).transpose()?;
                    return Ok(StreamAdmin {
                        options,
                        poller,
                        session,
                        amqp,
                        ready: Vec::new(),
                        correlation: 0,
                    });
                }
                Err(fault) => faults.push(format!("{server}: {fault}")),
            }
        }
        Err(ClientError::system(format!(
            "cannot connect to RabbitMQ's stream listeners: {}",
            faults.join("; ")
        )))
    }

    fn connect_to(server: &str, options: &Options) -> Result<(Poller, Session), String> {
        let peers = resolve(server, options.tls.as_ref())?;
        let peer = peers.first().ok_or("the name has no address")?;
        let mut poller = Poller::new().map_err(|error| format!("cannot make an epoll instance: {error}"))?;
        let now_ns = monotonic_ns();
        let mut session = Session::connect(peer, &poller, 0, now_ns).map_err(|lost| lost.to_string())?;
        let mut ready = Vec::new();
        while !session.is_ready() {
            step(
                &mut poller,
                &mut session,
                &mut ready,
                options,
                now_ns + CONNECT_NS,
            )
            .map_err(|lost| lost.to_string())?;
        }
        Ok((poller, session))
    }

    /// Sends requests, several at a time, and returns their answers in order.
    fn call(
        &mut self,
        key: u16,
        requests: impl Iterator<Item = Vec<u8>>,
        deadline_ns: i64,
    ) -> Result<Vec<Answer>, ClientError> {
        let mut waiting = requests.peekable();
        let mut expected = VecDeque::new();
        let mut answers = Vec::new();
        while waiting.peek().is_some() || !expected.is_empty() {
            while expected.len() < PIPELINE
                && let Some(fields) = waiting.next()
            {
                self.correlation += 1;
                let bytes = wire::request(key, self.correlation, |into| into.extend(fields));
                self.session.push_control(bytes, monotonic_ns());
                expected.push_back(self.correlation);
            }
            let frames = step(
                &mut self.poller,
                &mut self.session,
                &mut self.ready,
                &self.options,
                deadline_ns,
            )
            .map_err(failed)?;
            for (found, fields) in frames {
                let mut reader = Reader::new(&fields);
                // The server tells of streams that are gone, unasked.
                if found != key {
                    continue;
                }
                let correlation = reader.u32().map_err(|error| failed(error.into()))?;
                if expected.front() != Some(&correlation) {
                    return Err(failed(Lost::Malformed("answers come out of order".to_owned())));
                }
                expected.pop_front();
                // An answer to a question for metadata has no code of its own.
                let response = match key {
                    key::METADATA => code::OK,
                    _ => reader.u16().map_err(|error| failed(error.into()))?,
                };
                let head_bytes = if key == key::METADATA { 4 } else { 6 };
                answers.push((response, fields[head_bytes..].to_vec()));
            }
        }
        Ok(answers)
    }

    /// Where streams are.
    fn locate(&mut self, streams: &[String], deadline_ns: i64) -> Result<Vec<Whereabouts>, ClientError> {
        let mut found = Vec::new();
        let questions: Vec<Vec<u8>> = streams
            .chunks(1000)
            .map(|streams| {
                let question = wire::metadata(0, streams.iter().map(String::as_str));
                // Without head and correlation number, which `call` writes.
                question[wire::HEAD_BYTES + 4..].to_vec()
            })
            .collect();
        for (_, fields) in self.call(key::METADATA, questions.into_iter(), deadline_ns)? {
            let told = wire::read_metadata(&mut Reader::new(&fields));
            found.extend(told.map_err(|error| failed(error.into()))?);
        }
        Ok(found)
    }

    /// The number of partitions of a topic; 0: there is none.
    fn partitions(&mut self, topic: &str, deadline_ns: i64) -> Result<u32, ClientError> {
        let question = text_field(topic);
        let answers = self.call(key::PARTITIONS, std::iter::once(question), deadline_ns)?;
        if let Some((code::OK, fields)) = answers.first() {
            let count = wire::count(&mut Reader::new(fields)).map_err(|error| failed(error.into()))?;
            if count > 0 {
                return Ok(count);
            }
        }
        if self.is_there(topic, deadline_ns)? {
            return Ok(1);
        }
        // Streams without an exchange: they are numbered without a gap.
        let mut partitions = 0;
        while self.is_there(&stream_name(topic, partitions, 2), deadline_ns)? {
            partitions += 1;
        }
        Ok(partitions)
    }

    fn is_there(&mut self, stream: &str, deadline_ns: i64) -> Result<bool, ClientError> {
        let found = self.locate(&[stream.to_owned()], deadline_ns)?;
        Ok(found.iter().any(|told| told.code != code::STREAM_DOES_NOT_EXIST))
    }

    fn create(&mut self, topic: &NewTopic, deadline_ns: i64) -> Result<(), ClientError> {
        let mut arguments: Vec<(String, String)> = Vec::new();
        if topic.replication_factor > 0 {
            arguments.push((
                "initial-cluster-size".to_owned(),
                topic.replication_factor.to_string(),
            ));
        }
        for (name, value) in &self.options.stream_arguments {
            arguments.push((name.clone(), value.as_str().unwrap_or_default().to_owned()));
        }
        arguments.extend(topic.configs.iter().cloned());
        let streams: Vec<String> = streams_of(&topic.name, topic.partitions).collect();
        let requests: Vec<Vec<u8>> = streams
            .iter()
            .map(|stream| {
                let mut fields = text_field(stream);
                wire::put_texts(
                    &mut fields,
                    arguments
                        .iter()
                        .map(|(name, value)| (name.as_str(), value.as_str())),
                );
                fields
            })
            .collect();
        for (stream, (response, _)) in
            streams
                .iter()
                .zip(self.call(key::CREATE, requests.into_iter(), deadline_ns)?)
        {
            refuse(response, &format!("create stream {stream:?}"))?;
        }
        if topic.partitions > 1
            && let Some(amqp) = &mut self.amqp
        {
            amqp.bind_super_stream(&topic.name, &streams, deadline_ns)?;
        }
        self.await_leaders(&streams, deadline_ns)
    }

    fn await_leaders(&mut self, streams: &[String], deadline_ns: i64) -> Result<(), ClientError> {
        loop {
            let found = self.locate(streams, deadline_ns)?;
            let is_led = |told: &Whereabouts| told.code == code::OK && told.leader.is_some();
            let Some(late) = found.iter().find(|told| !is_led(told)) else {
                return Ok(());
            };
            if monotonic_ns() + LEADER_PAUSE_NS >= deadline_ns {
                let stream = &late.stream;
                return Err(ClientError::system(format!(
                    "RabbitMQ has created stream {stream:?}, which got no leader in time"
                )));
            }
            std::thread::sleep(std::time::Duration::from_nanos(LEADER_PAUSE_NS.cast_unsigned()));
        }
    }
}

/// One turn: writes, waits, reads. Returns key and fields of the frames that came.
fn step(
    poller: &mut Poller,
    session: &mut Session,
    ready: &mut Vec<Ready>,
    options: &Options,
    deadline_ns: i64,
) -> Result<Vec<(u16, Vec<u8>)>, Lost> {
    let now_ns = monotonic_ns();
    if now_ns >= deadline_ns {
        return Err(Lost::Timeout);
    }
    session.drive(now_ns)?;
    session.write(poller, |_| {})?;
    // As in a lane: the poller has no error but a closed descriptor.
    if poller.wait(deadline_ns.min(now_ns + STEP_NS), ready).is_err() {
        ready.clear();
    }
    let mut frames = Vec::new();
    for ready in std::mem::take(ready) {
        session.advance(&ready, poller, now_ns)?;
        let mut may_have_more = ready.readable;
        while may_have_more {
            may_have_more = session.read(now_ns)?;
            while let Some(frame) = session.next(options, now_ns)? {
                frames.push((frame.key, session.fields(frame).to_vec()));
            }
        }
    }
    Ok(frames)
}

fn text_field(text: &str) -> Vec<u8> {
    let mut fields = Vec::new();
    wire::put_text(&mut fields, text);
    fields
}

/// An answer that is no success is an error.
fn refuse(response: u16, what: &str) -> Result<(), ClientError> {
    match response {
        code::OK => Ok(()),
        _ => Err(ClientError::system(format!(
            "RabbitMQ would not {what}: {} (code {response})",
            wire::meaning(response).1
        ))),
    }
}

impl Admin for StreamAdmin {
    fn create_topics(&mut self, topics: &[NewTopic], deadline_ns: i64) -> Result<(), ClientError> {
        for topic in topics {
            check_topic_name(&topic.name)?;
            self.create(topic, deadline_ns)?;
        }
        Ok(())
    }

    fn delete_topics(&mut self, topics: &[String], deadline_ns: i64) -> Result<Vec<String>, ClientError> {
        let mut missing = Vec::new();
        for topic in topics {
            let partitions = self.partitions(topic, deadline_ns)?;
            if partitions == 0 {
                missing.push(topic.clone());
                continue;
            }
            let requests: Vec<Vec<u8>> = streams_of(topic, partitions)
                .map(|stream| text_field(&stream))
                .collect();
            for (response, _) in self.call(key::DELETE, requests.into_iter(), deadline_ns)? {
                // What is not there need not be deleted.
                if response != code::STREAM_DOES_NOT_EXIST {
                    refuse(response, &format!("delete the streams of topic {topic:?}"))?;
                }
            }
            if partitions > 1
                && let Some(amqp) = &mut self.amqp
            {
                amqp.delete_exchange(topic, deadline_ns)?;
            }
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
            let partitions = self.partitions(topic, deadline_ns)?;
            if partitions == 0 {
                continue;
            }
            let streams: Vec<String> = streams_of(topic, partitions).collect();
            let found = self.locate(&streams, deadline_ns)?;
            // The leader is a copy too.
            let copies = found.iter().map(|told| 1 + told.replicas.len()).min();
            let entry = json!({"partitions": partitions, "replication_factor": copies, "settings": {}});
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

impl Drop for StreamAdmin {
    fn drop(&mut self) {
        self.session.close(&self.poller, monotonic_ns());
    }
}

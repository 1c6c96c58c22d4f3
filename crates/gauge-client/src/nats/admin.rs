//! Administration: streams by JetStream's API, with blocking calls.

use std::time::Duration;

use gauge_load::clock::monotonic_ns;
use serde_json::{Map, Value, json};

use super::answer::error_words;
use super::connection::{connect_line, read_info, refusal};
use super::names;
use super::options::Options;
use super::wire::{self, Operation};
use crate::transport::{Blocking, Lost, Peer, resolve};
use crate::{Admin, ClientError, Endpoint, NewTopic};

/// Pause between looks whether a stream has a leader.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// Pause before a request is made again that nobody answered.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// One request may take this long before it is made again.
const REQUEST_NS: i64 = 10_000_000_000;
/// JetStream's error for a stream that does not exist.
const STREAM_NOT_FOUND: u64 = 10059;
/// Metadata in which a stream keeps how many partitions its topic has.
const PARTITIONS_KEY: &str = "streamgauge.partitions";

/// A connection for administration.
pub(crate) struct NatsAdmin {
    transport: Blocking,
    input: Vec<u8>,
    inbox: String,
    requests: u64,
    info: Value,
}

impl NatsAdmin {
    /// Connects to the first server that answers.
    pub fn connect(endpoint: &Endpoint, options: &Options) -> Result<NatsAdmin, ClientError> {
        let mut trouble = Vec::new();
        for server in &endpoint.bootstrap {
            let peers = match resolve(server, endpoint.security.tls.as_ref()) {
                Ok(peers) => peers,
                Err(error) => {
                    trouble.push(error);
                    continue;
                }
            };
            for peer in peers {
                match NatsAdmin::greet(&peer, options) {
                    Ok(admin) => return Ok(admin),
                    Err(error) => trouble.push(format!("{peer}: {error}")),
                }
            }
        }
        Err(ClientError::system(format!(
            "cannot connect to NATS: {}",
            trouble.join("; ")
        )))
    }

    fn greet(peer: &Peer, options: &Options) -> Result<NatsAdmin, String> {
        let deadline_ns = monotonic_ns() + REQUEST_NS;
        let words = |lost: Lost| lost.to_string();
        let mut admin = NatsAdmin {
            transport: Blocking::connect_plain(peer, deadline_ns).map_err(words)?,
            input: Vec::new(),
            inbox: format!("_INBOX.{}", names::unique()),
            requests: 0,
            info: Value::Null,
        };
        let take_info = |operation: &Operation<'_>| match operation {
            Operation::Info(info) => {
                let told = serde_json::from_slice::<Value>(info).unwrap_or(Value::Null);
                Some(read_info(info, peer.has_tls()).map(|info| (info, told)))
            }
            _ => None,
        };
        let info = admin
            .read_until(deadline_ns, take_info)?
            .ok_or("it says nothing")?;
        let (info, told) = info.map_err(words)?;
        admin.info = told;
        if peer.has_tls() {
            if !admin.input.is_empty() {
                return Err("it sends more before TLS has begun".to_owned());
            }
            admin.transport.start_tls(peer, deadline_ns).map_err(words)?;
        }
        let name = format!("{}-admin", options.client_name);
        let mut greeting = connect_line(&name, &options.login, &info, peer.has_tls()).map_err(words)?;
        greeting.extend_from_slice(format!("SUB {}.* 1\r\nPING\r\n", admin.inbox).as_bytes());
        admin.send(&greeting)?;
        let is_pong = |operation: &Operation<'_>| matches!(operation, Operation::Pong).then_some(());
        admin
            .read_until(deadline_ns, is_pong)?
            .ok_or("it does not answer the greeting")?;
        Ok(admin)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.transport
            .write_all(bytes, monotonic_ns() + REQUEST_NS)
            .map_err(|lost| lost.to_string())
    }

    /// Reads operations until one of them is what is looked for; None: the time is over.
    fn read_until<T>(
        &mut self,
        deadline_ns: i64,
        mut look: impl FnMut(&Operation<'_>) -> Option<T>,
    ) -> Result<Option<T>, String> {
        loop {
            let (found, length, is_ping) = match wire::parse(&self.input) {
                Ok(Some((operation, length))) => {
                    if let Operation::Error(words) = operation
                        && let Some(lost) = refusal(words)
                    {
                        return Err(lost.to_string());
                    }
                    (look(&operation), length, operation == Operation::Ping)
                }
                Ok(None) => {
                    if !self.fill(deadline_ns)? {
                        return Ok(None);
                    }
                    continue;
                }
                Err(malformed) => return Err(format!("it does not speak NATS: {}", malformed.0)),
            };
            self.input.drain(..length);
            if is_ping {
                self.send(b"PONG\r\n")?;
            }
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Reads some bytes. False: the time is over.
    fn fill(&mut self, deadline_ns: i64) -> Result<bool, String> {
        let mut buffer = [0; 16 << 10];
        match self.transport.read(&mut buffer, deadline_ns) {
            Ok(0) => Err(Lost::Closed(None).to_string()),
            Ok(bytes) => {
                self.input.extend_from_slice(&buffer[..bytes]);
                Ok(true)
            }
            Err(Lost::Timeout) => Ok(false),
            Err(lost) => Err(lost.to_string()),
        }
    }

    /// Asks once; None: nobody listens, or nobody answered in time.
    fn ask(
        &mut self,
        subject: &str,
        request: &Value,
        deadline_ns: i64,
    ) -> Result<Option<Value>, ClientError> {
        self.requests += 1;
        let reply = format!("{}.{}", self.inbox, self.requests);
        let body = if request.is_null() {
            String::new()
        } else {
            request.to_string()
        };
        let mut words = Vec::new();
        wire::put_publish(&mut words, subject.as_bytes(), reply.as_bytes(), body.as_bytes());
        let until_ns = deadline_ns.min(monotonic_ns() + REQUEST_NS);
        let take_answer = |operation: &Operation<'_>| match operation {
            Operation::Message(message) if message.subject == reply.as_bytes() => {
                if wire::status(message.headers) == Some(503) {
                    Some(None)
                } else {
                    Some(Some(
                        serde_json::from_slice::<Value>(message.payload).unwrap_or(Value::Null),
                    ))
                }
            }
            _ => None,
        };
        let answer = self
            .send(&words)
            .and_then(|()| self.read_until(until_ns, take_answer));
        match answer {
            Ok(answer) => Ok(answer.flatten()),
            Err(error) => Err(ClientError::system(format!("NATS, asked for {subject}: {error}"))),
        }
    }

    /// Asks until there is an answer or the time is over.
    fn request(&mut self, subject: &str, request: &Value, deadline_ns: i64) -> Result<Value, ClientError> {
        loop {
            if let Some(answer) = self.ask(subject, request, deadline_ns)? {
                return Ok(answer);
            }
            if monotonic_ns() >= deadline_ns {
                let message = format!(
                    "NATS does not answer {subject}; is JetStream switched on, and does the cluster have a leader?"
                );
                return Err(ClientError::system(message));
            }
            std::thread::sleep(RETRY_PAUSE);
        }
    }

    /// A stream's description; None when it does not exist.
    fn stream(&mut self, name: &str, deadline_ns: i64) -> Result<Option<Value>, ClientError> {
        let answer = self.request(&format!("$JS.API.STREAM.INFO.{name}"), &Value::Null, deadline_ns)?;
        if answer["error"]["err_code"] == STREAM_NOT_FOUND {
            return Ok(None);
        }
        if answer["config"].is_null() {
            return Err(ClientError::system(format!(
                "topic '{name}': {}",
                error_words(&answer)
            )));
        }
        Ok(Some(answer))
    }

    /// Waits until a stream has a leader and all its copies follow it.
    fn await_leader(&mut self, name: &str, deadline_ns: i64) -> Result<(), ClientError> {
        loop {
            let answer = self.stream(name, deadline_ns)?.unwrap_or(Value::Null);
            if is_led(&answer) {
                return Ok(());
            }
            if monotonic_ns() >= deadline_ns {
                let cluster = &answer["cluster"];
                let message = format!("topic '{name}': not all copies of its stream are there: {cluster}");
                return Err(ClientError::system(message));
            }
            std::thread::sleep(LOOK_PAUSE);
        }
    }
}

/// Whether a stream can be used as it was asked for. A server that is no part of a cluster names no leader.
pub(super) fn is_led(answer: &Value) -> bool {
    let replicas = answer["config"]["num_replicas"].as_u64().unwrap_or(1);
    let cluster = &answer["cluster"];
    if replicas <= 1 {
        return !answer["config"].is_null() && (cluster.is_null() || cluster["leader"].is_string());
    }
    let followers = cluster["replicas"].as_array().map_or(&[][..], Vec::as_slice);
    cluster["leader"].is_string()
        && followers.len() as u64 + 1 == replicas
        && followers
            .iter()
            .all(|follower| follower["current"] == true && follower["offline"] != true)
}

/// The configuration of a topic's stream. A setting of the request is one of the stream's, its value JSON or else text.
pub(crate) fn stream_config(topic: &NewTopic) -> Value {
    let mut config = json!({
        "name": topic.name,
        "subjects": [format!("{}.*", names::prefix(&topic.name))],
        "retention": "limits",
        "storage": "file",
        "num_replicas": topic.replication_factor,
        "metadata": {PARTITIONS_KEY: topic.partitions.to_string()},
    });
    for (key, value) in &topic.configs {
        config[key] = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
    }
    config
}

/// A value in the form in which the worker API tells settings: text.
fn as_text(value: &Value) -> Value {
    match value {
        Value::String(_) | Value::Null => value.clone(),
        other => Value::String(other.to_string()),
    }
}

impl Admin for NatsAdmin {
    fn create_topics(&mut self, topics: &[NewTopic], deadline_ns: i64) -> Result<(), ClientError> {
        // The server takes a second creation with the same settings for the first one, so it is asked before anything is made.
        for (at, topic) in topics.iter().enumerate() {
            names::check(&format!("topics[{at}].name"), &topic.name)?;
            if self.stream(&topic.name, deadline_ns)?.is_some() {
                return Err(ClientError::system(format!(
                    "topic '{}': a stream of this name exists already",
                    topic.name
                )));
            }
        }
        for topic in topics {
            let subject = format!("$JS.API.STREAM.CREATE.{}", topic.name);
            let answer = self.request(&subject, &stream_config(topic), deadline_ns)?;
            if answer["config"].is_null() {
                return Err(ClientError::system(format!(
                    "topic '{}' was not created: {}",
                    topic.name,
                    error_words(&answer)
                )));
            }
        }
        for topic in topics {
            self.await_leader(&topic.name, deadline_ns)?;
        }
        Ok(())
    }

    fn delete_topics(&mut self, topics: &[String], deadline_ns: i64) -> Result<Vec<String>, ClientError> {
        let mut missing = Vec::new();
        for name in topics {
            names::check("topics", name)?;
            let subject = format!("$JS.API.STREAM.DELETE.{name}");
            let answer = self.request(&subject, &Value::Null, deadline_ns)?;
            if answer["error"]["err_code"] == STREAM_NOT_FOUND {
                missing.push(name.clone());
            } else if answer["success"] != true {
                return Err(ClientError::system(format!(
                    "topic '{name}' was not deleted: {}",
                    error_words(&answer)
                )));
            }
        }
        Ok(missing)
    }

    fn describe(&mut self, topics: &[String], deadline_ns: i64) -> Result<Value, ClientError> {
        let mut described = Map::new();
        for name in topics {
            names::check("topics", name)?;
            let Some(answer) = self.stream(name, deadline_ns)? else {
                return Err(ClientError::system(format!(
                    "topic '{name}': there is no stream of this name"
                )));
            };
            let config = &answer["config"];
            let mut settings = Map::new();
            for (key, value) in config.as_object().into_iter().flatten() {
                settings.insert(key.clone(), as_text(value));
            }
            let partitions = config["metadata"][PARTITIONS_KEY]
                .as_str()
                .and_then(|text| text.parse::<u32>().ok());
            described.insert(
                name.clone(),
                json!({
                    "partitions": partitions,
                    "replication_factor": config["num_replicas"],
                    "settings": settings,
                }),
            );
        }
        let info = &self.info;
        let name = info["server_name"].as_str().unwrap_or("server").to_owned();
        let mut node_settings = Map::new();
        let mut settings = Map::new();
        for key in [
            "version",
            "go",
            "max_payload",
            "jetstream",
            "headers",
            "cluster",
            "api_lvl",
        ] {
            settings.insert(key.to_owned(), as_text(&info[key]));
        }
        node_settings.insert(name.clone(), Value::Object(settings));
        Ok(json!({
            "cluster_id": info["cluster"],
            "controller": null,
            "nodes": [{"id": name, "host": info["host"], "port": info["port"]}],
            "node_settings": node_settings,
            "topics": described,
            "software": {"name": "nats-server", "version": info["version"]},
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_the_streams_own() {
        let topic = NewTopic {
            name: "t".to_owned(),
            partitions: 16,
            replication_factor: 3,
            configs: vec![
                ("max_bytes".to_owned(), "1000".to_owned()),
                ("compression".to_owned(), "s2".to_owned()),
            ],
        };
        let config = stream_config(&topic);
        assert_eq!(config["subjects"], json!(["t.*"]));
        assert_eq!(config["num_replicas"], 3);
        assert_eq!(config["max_bytes"], 1000);
        assert_eq!(config["compression"], "s2");
        assert_eq!(config["metadata"][PARTITIONS_KEY], "16");
    }

    #[test]
    fn a_replicated_stream_is_there_when_its_copies_are() {
        let answer = |current: bool, count: usize| {
            json!({"config": {"num_replicas": 3}, "cluster": {"leader": "n1",
                "replicas": vec![json!({"current": current}); count]}})
        };
        assert!(is_led(&answer(true, 2)));
        assert!(!is_led(&answer(false, 2)));
        assert!(!is_led(&answer(true, 1)));
        assert!(is_led(&json!({"config": {"num_replicas": 1}})));
        assert!(!is_led(
            &json!({"config": {"num_replicas": 1}, "cluster": {"leader": null}})
        ));
        assert!(!is_led(&Value::Null));
    }
}

//! Administration: topics are created, deleted and described with blocking calls, outside of any lane.

use std::collections::BTreeMap;
use std::time::Duration;

use gauge_load::clock::monotonic_ns;
use serde_json::{Map, Value, json};

use super::Access;
use super::caller::Caller;
use super::cluster::{NO_BROKER, bracketed, require_versions};
use super::errors::{Code, Remedy};
use super::messages::{self, ConfigRow, Metadata, RESOURCE_BROKER, RESOURCE_TOPIC};
use super::wire::{self, Api, Malformed};
use crate::transport::{Lost, resolve};
use crate::{Admin, ClientError, NewTopic};

/// Connecting and logging in may take this long per server, and so may its first answer.
const CONNECT_NS: i64 = 10_000_000_000;
/// A controller refuses a request that makes more than 10,000 records (KRaft's limit of a batch): a topic is one, each of its
/// settings and partitions another. This stays well below it.
const RECORDS_PER_REQUEST_MAX: usize = 5_000;
/// A topic is created with so many partitions at most; the others are added.
const FIRST_PARTITIONS_MAX: u32 = 4_000;
/// Pause between two looks at what the cluster has made of a request.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Administration of a Kafka cluster.
pub(super) struct KafkaAdmin {
    bootstrap: Vec<String>,
    access: Access,
    /// The connection to one of the bootstrap servers.
    caller: Caller,
    features: Vec<(String, i16)>,
}

impl KafkaAdmin {
    /// Connects to the first bootstrap server that answers.
    pub fn connect(bootstrap: &[String], access: &Access) -> Result<KafkaAdmin, ClientError> {
        let mut troubles = Vec::new();
        for server in bootstrap {
            let peers = match resolve(server, access.tls.as_ref()) {
                Ok(peers) => peers,
                Err(trouble) => {
                    troubles.push(trouble);
                    continue;
                }
            };
            for peer in peers {
                match Caller::greeted(&peer, access, CONNECT_NS) {
                    Ok((caller, versions)) => {
                        let needed = [wire::METADATA, wire::CREATE_TOPICS, wire::DELETE_TOPICS];
                        require_versions(&versions.ranges, &needed)?;
                        return Ok(KafkaAdmin {
                            bootstrap: bootstrap.to_vec(),
                            access: access.clone(),
                            caller,
                            features: versions.finalized,
                        });
                    }
                    // The others have the same users.
                    Err(lost @ Lost::Refused(_, _)) => {
                        return Err(ClientError::system(format!("{peer}: {lost}")));
                    }
                    Err(lost) => troubles.push(format!("{peer}: {lost}")),
                }
            }
        }
        Err(ClientError::system(format!(
            "no Kafka server can be reached: {}",
            troubles.join("; ")
        )))
    }

    fn metadata(&mut self, topics: &[String], deadline_ns: i64) -> Result<Metadata, ClientError> {
        let body = self.ask(wire::METADATA, deadline_ns, |out| {
            messages::put_metadata(out, topics.iter().map(String::as_str));
        })?;
        messages::read_metadata(&body).map_err(|error| self.malformed(error))
    }

    /// Asks the bootstrap server a question that may be asked twice: the connection may have ended since the last one, because the
    /// server was restarted or found it idle for too long.
    fn ask(
        &mut self,
        api: Api,
        deadline_ns: i64,
        body: impl Fn(&mut Vec<u8>),
    ) -> Result<Vec<u8>, ClientError> {
        if let Ok(answer) = self.caller.call(api, deadline_ns, &body) {
            return Ok(answer);
        }
        *self = KafkaAdmin::connect(&self.bootstrap, &self.access.clone())?;
        self.caller
            .call(api, deadline_ns, &body)
            .map_err(ClientError::System)
    }

    fn malformed(&self, error: Malformed) -> ClientError {
        ClientError::system(format!("{} sent {error}", self.caller.peer()))
    }

    /// A connection to a broker.
    fn broker(&self, metadata: &Metadata, id: i32) -> Result<Caller, ClientError> {
        let row = metadata.brokers.iter().find(|row| row.id == id);
        let row =
            row.ok_or_else(|| ClientError::system(format!("the cluster does not say where broker {id} is")))?;
        let server = format!("{}:{}", bracketed(&row.host), row.port);
        let peers = resolve(&server, self.access.tls.as_ref()).map_err(ClientError::System)?;
        let mut trouble = format!("{server} has no address");
        for peer in peers {
            match Caller::connect(&peer, &self.access, CONNECT_NS) {
                Ok(caller) => return Ok(caller),
                Err(lost) => trouble = format!("{peer}: {lost}"),
            }
        }
        Err(ClientError::System(trouble))
    }

    /// Calls the controller: a cluster with ZooKeeper changes topics only there, one with KRaft forwards from anywhere.
    fn call_controller(
        &mut self,
        api: Api,
        deadline_ns: i64,
        body: impl Fn(&mut Vec<u8>),
    ) -> Result<Vec<u8>, ClientError> {
        let metadata = self.metadata(&[], deadline_ns)?;
        let mut caller = self.broker(&metadata, metadata.controller)?;
        caller.call(api, deadline_ns, body).map_err(ClientError::System)
    }

    /// Adds what a topic was not created with, a request's worth at a time.
    fn add_partitions(&mut self, topic: &NewTopic, deadline_ns: i64) -> Result<(), ClientError> {
        let mut there = topic.partitions.min(FIRST_PARTITIONS_MAX);
        while there < topic.partitions {
            there = topic.partitions.min(there + FIRST_PARTITIONS_MAX);
            let body = self.call_controller(wire::CREATE_PARTITIONS, deadline_ns, |out| {
                messages::put_create_partitions(out, &topic.name, there, timeout_ms(deadline_ns));
            })?;
            self.check_created(&body, "extended")?;
        }
        Ok(())
    }

    fn check_created(&self, body: &[u8], what: &str) -> Result<(), ClientError> {
        let rows = messages::read_create_topics(body).map_err(|error| self.malformed(error))?;
        for (name, code, message) in rows {
            if !Code(code).is_none() {
                return Err(ClientError::system(format!(
                    "topic {name:?} cannot be {what}: {}",
                    told(code, &message)
                )));
            }
        }
        Ok(())
    }

    /// Waits until `is_done` finds nothing to complain about.
    fn wait_for(
        &mut self,
        topics: &[String],
        deadline_ns: i64,
        is_done: impl Fn(&Metadata) -> Result<(), String>,
    ) -> Result<(), ClientError> {
        loop {
            let metadata = self.metadata(topics, deadline_ns)?;
            let Err(complaint) = is_done(&metadata) else {
                return Ok(());
            };
            if monotonic_ns() >= deadline_ns {
                return Err(ClientError::System(complaint));
            }
            std::thread::sleep(LOOK_PAUSE);
        }
    }

    fn configs(
        caller: &mut Caller,
        resource_type: i8,
        names: &[String],
        deadline_ns: i64,
    ) -> Result<Vec<ConfigRow>, ClientError> {
        let body = caller
            .call(wire::DESCRIBE_CONFIGS, deadline_ns, |out| {
                messages::put_describe_configs(out, resource_type, names);
            })
            .map_err(ClientError::System)?;
        let rows = messages::read_describe_configs(&body)
            .map_err(|error| ClientError::system(format!("{} sent {error}", caller.peer())))?;
        for row in &rows {
            if !Code(row.code).is_none() {
                return Err(ClientError::system(format!(
                    "the settings of {:?} cannot be read: {}",
                    row.name,
                    told(row.code, &row.message)
                )));
            }
        }
        Ok(rows)
    }
}

/// An error code with the server's words, when it has any.
fn told(code: i16, message: &str) -> String {
    let name = Code(code).name();
    if message.is_empty() {
        format!("the server answers {name} ({code})")
    } else {
        format!("the server answers {name}: {message}")
    }
}

/// Topics in as many requests as it takes for each to stay below the limit, none with more partitions than a request may make.
fn creation_requests(topics: &[NewTopic]) -> Vec<Vec<NewTopic>> {
    let mut requests: Vec<Vec<NewTopic>> = Vec::new();
    let mut records = 0;
    for topic in topics {
        let first = NewTopic {
            partitions: topic.partitions.min(FIRST_PARTITIONS_MAX),
            ..topic.clone()
        };
        let more = 1 + first.configs.len() + first.partitions as usize;
        match requests.last_mut() {
            Some(last) if records + more <= RECORDS_PER_REQUEST_MAX => {
                records += more;
                last.push(first);
            }
            _ => {
                records = more;
                requests.push(vec![first]);
            }
        }
    }
    requests
}

fn timeout_ms(deadline_ns: i64) -> i32 {
    i32::try_from(((deadline_ns - monotonic_ns()) / 1_000_000).clamp(1, 60_000)).unwrap_or(60_000)
}

impl Admin for KafkaAdmin {
    fn create_topics(&mut self, topics: &[NewTopic], deadline_ns: i64) -> Result<(), ClientError> {
        for request in creation_requests(topics) {
            let body = self.call_controller(wire::CREATE_TOPICS, deadline_ns, |out| {
                messages::put_create_topics(out, &request, timeout_ms(deadline_ns));
            })?;
            self.check_created(&body, "created")?;
        }
        for topic in topics {
            self.add_partitions(topic, deadline_ns)?;
        }
        let names: Vec<String> = topics.iter().map(|topic| topic.name.clone()).collect();
        self.wait_for(&names, deadline_ns, |metadata| {
            for topic in topics {
                let row = metadata.topics.iter().find(|row| row.name == topic.name);
                let led = row.map_or(0, |row| {
                    row.partitions
                        .iter()
                        .filter(|partition| partition.leader != NO_BROKER)
                        .count()
                });
                if led < topic.partitions as usize {
                    return Err(format!(
                        "topic {:?} was created, but only {led} of its {} partitions have a leader in time",
                        topic.name, topic.partitions
                    ));
                }
            }
            Ok(())
        })
    }

    fn delete_topics(&mut self, topics: &[String], deadline_ns: i64) -> Result<Vec<String>, ClientError> {
        let body = self.call_controller(wire::DELETE_TOPICS, deadline_ns, |out| {
            messages::put_delete_topics(out, topics, timeout_ms(deadline_ns));
        })?;
        let rows = messages::read_delete_topics(&body).map_err(|error| self.malformed(error))?;
        let mut missing = Vec::new();
        for (name, code) in rows {
            match Code(code) {
                Code::UNKNOWN_TOPIC_OR_PARTITION => missing.push(name),
                code if code.is_none() => {}
                code => {
                    return Err(ClientError::system(format!(
                        "topic {name:?} cannot be deleted: {}",
                        told(code.0, "")
                    )));
                }
            }
        }
        // Deleted means that a topic of the same name may be created again.
        self.wait_for(topics, deadline_ns, |metadata| {
            let left = metadata
                .topics
                .iter()
                .find(|row| Code(row.code) != Code::UNKNOWN_TOPIC_OR_PARTITION);
            match left {
                Some(row) => Err(format!(
                    "topic {:?} is still there although it was deleted",
                    row.name
                )),
                None => Ok(()),
            }
        })?;
        Ok(missing)
    }

    fn describe(&mut self, topics: &[String], deadline_ns: i64) -> Result<Value, ClientError> {
        let metadata = self.metadata(topics, deadline_ns)?;
        let mut node_settings = Map::new();
        for broker in &metadata.brokers {
            let name = broker.id.to_string();
            let mut caller = self.broker(&metadata, broker.id)?;
            let names = [name.clone()];
            let rows = KafkaAdmin::configs(&mut caller, RESOURCE_BROKER, &names, deadline_ns)?;
            let settings = rows.into_iter().next().map(|row| settings_of(&row));
            node_settings.insert(name, settings.unwrap_or_default());
        }
        let mut described = Map::new();
        let mut settings = BTreeMap::new();
        if !topics.is_empty() {
            // The connection was good a moment ago: the metadata came on it, or on its successor.
            for row in KafkaAdmin::configs(&mut self.caller, RESOURCE_TOPIC, topics, deadline_ns)? {
                settings.insert(row.name.clone(), settings_of(&row));
            }
        }
        for row in &metadata.topics {
            if Code(row.code).remedy() != Remedy::Retry && !Code(row.code).is_none() {
                return Err(ClientError::system(format!(
                    "topic {:?} cannot be described: {}",
                    row.name,
                    told(row.code, "")
                )));
            }
            let copies = row.partitions.iter().map(|partition| partition.replicas).max();
            described.insert(
                row.name.clone(),
                json!({
                    "partitions": row.partitions.len(),
                    "replication_factor": copies.unwrap_or(0),
                    "settings": settings.remove(&row.name).unwrap_or_default(),
                }),
            );
        }
        let nodes: Vec<Value> = metadata
            .brokers
            .iter()
            .map(|broker| json!({"id": broker.id, "host": broker.host, "port": broker.port}))
            .collect();
        // Kafka's protocol has no name or version of the server, but the cluster's finalised features tell its release.
        let mut software = Map::new();
        software.insert("name".to_owned(), Value::Null);
        software.insert("version".to_owned(), Value::Null);
        for (name, level) in &self.features {
            software.insert(name.clone(), Value::String(level.to_string()));
        }
        Ok(json!({
            "cluster_id": metadata.cluster_id,
            "controller": metadata.controller,
            "nodes": nodes,
            "node_settings": node_settings,
            "topics": described,
            "software": software,
        }))
    }
}

fn settings_of(row: &ConfigRow) -> Value {
    let settings = row.settings.iter().map(|(name, value)| {
        let value = value.clone().map_or(Value::Null, Value::String);
        (name.clone(), value)
    });
    Value::Object(settings.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(partitions: u32) -> NewTopic {
        NewTopic {
            name: format!("t-{partitions}"),
            partitions,
            replication_factor: 1,
            configs: Vec::new(),
        }
    }

    #[test]
    fn few_partitions_are_created_at_once() {
        let requests = creation_requests(&[topic(16), topic(100)]);
        let sizes: Vec<Vec<u32>> = requests
            .iter()
            .map(|request| request.iter().map(|topic| topic.partitions).collect())
            .collect();
        assert_eq!(sizes, [[16, 100]]);
    }

    #[test]
    fn no_request_makes_more_records_than_a_controller_takes() {
        let topics: Vec<NewTopic> = std::iter::repeat_n(topic(10), 2_000)
            .chain([topic(10_000)])
            .collect();
        let requests = creation_requests(&topics);
        assert_eq!(requests.iter().map(Vec::len).sum::<usize>(), topics.len());
        for request in &requests {
            let records: usize = request.iter().map(|topic| 1 + topic.partitions as usize).sum();
            assert!(records <= RECORDS_PER_REQUEST_MAX);
        }
        // What is missing is added afterwards.
        assert_eq!(
            requests
                .last()
                .and_then(|last| last.last())
                .map(|last| last.partitions),
            Some(4_000)
        );
    }
}

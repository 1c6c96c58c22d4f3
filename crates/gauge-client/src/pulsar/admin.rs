//! Administration over the brokers' web service. A topic is a partitioned topic of the options' namespace, which must exist: how many
//! bookies keep a message is the namespace's business.
//!
//! Source: "Pulsar Admin REST API", version 2, of Pulsar's documentation.

use serde_json::{Map, Value, json};

use super::http::{self, Answer, Request};
use super::options::{Options, check_topic_name};
use crate::{Admin, ClientError, NewTopic};

/// A connection for administration. Every request has a socket of its own.
pub(super) struct PulsarAdmin {
    options: Options,
}

impl PulsarAdmin {
    pub fn new(options: Options) -> PulsarAdmin {
        PulsarAdmin { options }
    }

    /// Asks the first server that answers.
    fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&str>,
        deadline_ns: i64,
    ) -> Result<Answer, ClientError> {
        let request = self.request(method, path, body);
        let mut faults = Vec::new();
        for server in &self.options.admin {
            match http::send(server, &request, deadline_ns) {
                Ok(answer) => return Ok(answer),
                Err(fault) => faults.push(fault),
            }
        }
        Err(ClientError::system(format!(
            "Pulsar's web service cannot be reached: {} (option admin names the brokers' web addresses)",
            faults.join("; ")
        )))
    }

    fn request<'a>(&'a self, method: &'a str, path: &'a str, body: Option<&'a str>) -> Request<'a> {
        Request {
            method,
            path,
            body,
            token: self.options.token(),
            tls: self.options.tls.as_ref(),
        }
    }

    /// Where the web service of a broker in the cluster's list may be. The list has one address of each broker: that without TLS, if
    /// there is one. With TLS, another web service of the same host that the options name is asked next, if it is the only one.
    fn web_addresses<'a>(&'a self, listed: &'a str) -> Vec<&'a str> {
        let host = |server: &str| server.rsplit_once(':').map(|(host, _)| host.to_owned());
        let mut addresses = vec![listed];
        if self.options.tls.is_some() {
            let named = self.options.admin.iter().map(String::as_str);
            let same: Vec<&str> = named
                .filter(|server| *server != listed && host(server) == host(listed))
                .collect();
            if let [only] = same[..] {
                addresses.push(only);
            }
        }
        addresses
    }

    /// A JSON answer; None where there is nothing.
    fn get(&self, path: &str, deadline_ns: i64) -> Result<Option<Value>, ClientError> {
        let answer = self.ask("GET", path, None, deadline_ns)?;
        match answer.status {
            200 => match serde_json::from_slice(&answer.body) {
                Ok(value) => Ok(Some(value)),
                // The version is a bare text.
                Err(_) => Ok(Some(json!(String::from_utf8_lossy(&answer.body)))),
            },
            204 | 404 => Ok(None),
            _ => Err(refused(path, &answer)),
        }
    }

    fn topic_path(&self, topic: &str) -> String {
        format!(
            "/admin/v2/persistent/{}/{topic}/partitions",
            self.options.namespace
        )
    }

    fn create(&self, topic: &NewTopic, deadline_ns: i64) -> Result<(), ClientError> {
        let path = self.topic_path(&topic.name);
        let answer = self.ask("PUT", &path, Some(&topic.partitions.to_string()), deadline_ns)?;
        match answer.status {
            200..=299 => Ok(()),
            _ => Err(refused(&format!("create topic {:?}", topic.name), &answer)),
        }
    }

    /// Settings of every broker that runs, by its number in the list.
    fn brokers(
        &self,
        cluster: &str,
        deadline_ns: i64,
    ) -> Result<(Vec<Value>, Map<String, Value>), ClientError> {
        let listed = self.get(&format!("/admin/v2/brokers/{cluster}"), deadline_ns)?;
        let mut addresses: Vec<String> = texts(listed.as_ref());
        addresses.sort();
        let (mut nodes, mut settings) = (Vec::new(), Map::new());
        for (at, address) in addresses.iter().enumerate() {
            let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
            nodes.push(json!({"id": at + 1, "host": host, "port": port.parse::<u16>().ok()}));
            let request = self.request("GET", "/admin/v2/brokers/configuration/runtime", None);
            // A broker that has just gone is left out; the caller sees that its settings are missing.
            for server in self.web_addresses(address) {
                if let Ok(answer) = http::send(server, &request, deadline_ns)
                    && let Ok(read @ Value::Object(_)) = serde_json::from_slice(&answer.body)
                {
                    settings.insert((at + 1).to_string(), read);
                    break;
                }
            }
        }
        Ok((nodes, settings))
    }
}

fn refused(what: &str, answer: &Answer) -> ClientError {
    ClientError::system(format!("Pulsar would not {what}: {}", answer.reason()))
}

/// host:port of each bookie.
fn bookie_addresses(told: &Value) -> Vec<String> {
    let listed = told["bookies"].as_array().into_iter().flatten();
    let ids = listed.filter_map(|one| one["bookieId"].as_str());
    ids.map(str::to_owned).collect()
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let list = value.and_then(Value::as_array);
    let texts = list.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

impl Admin for PulsarAdmin {
    fn create_topics(&mut self, topics: &[NewTopic], deadline_ns: i64) -> Result<(), ClientError> {
        for topic in topics {
            check_topic_name(&topic.name)?;
            if let Some((name, _)) = topic.configs.first() {
                return Err(ClientError::input(
                    "topics.configs",
                    format!("{name}: Pulsar's topics have the settings of their namespace; expected none"),
                ));
            }
            self.create(topic, deadline_ns)?;
        }
        Ok(())
    }

    fn delete_topics(&mut self, topics: &[String], deadline_ns: i64) -> Result<Vec<String>, ClientError> {
        let mut missing = Vec::new();
        for topic in topics {
            check_topic_name(topic)?;
            let path = format!("{}?force=true", self.topic_path(topic));
            let answer = self.ask("DELETE", &path, None, deadline_ns)?;
            match answer.status {
                200..=299 => {}
                404 => missing.push(topic.clone()),
                _ => return Err(refused(&format!("delete topic {topic:?}"), &answer)),
            }
        }
        Ok(missing)
    }

    fn describe(&mut self, topics: &[String], deadline_ns: i64) -> Result<Value, ClientError> {
        let clusters = texts(self.get("/admin/v2/clusters", deadline_ns)?.as_ref());
        let cluster = clusters.iter().find(|name| *name != "global");
        let cluster = cluster.ok_or_else(|| ClientError::system("Pulsar names no cluster"))?;
        let (nodes, node_settings) = self.brokers(cluster, deadline_ns)?;
        let bookies = self.get("/admin/v2/bookies/all", deadline_ns);
        let namespace = &self.options.namespace;
        let path = format!("/admin/v2/namespaces/{namespace}/persistence");
        let persistence = self.get(&path, deadline_ns)?.unwrap_or(Value::Null);
        let mut described = Map::new();
        for topic in topics {
            check_topic_name(topic)?;
            let Some(read) = self.get(&self.topic_path(topic), deadline_ns)? else {
                continue;
            };
            let partitions = read["partitions"].as_u64().unwrap_or(0);
            if partitions == 0 {
                continue;
            }
            let entry = json!({
                "partitions": partitions,
                "replication_factor": persistence["bookkeeperWriteQuorum"],
                "settings": persistence,
            });
            described.insert(topic.clone(), entry);
        }
        let version = self.get("/admin/v2/brokers/version", deadline_ns)?;
        Ok(json!({
            "cluster_id": cluster,
            "controller": null,
            "nodes": nodes,
            "node_settings": node_settings,
            "storage_nodes": bookies.ok().flatten().map(|told| bookie_addresses(&told)),
            "topics": described,
            "software": {"name": "Apache Pulsar", "version": version},
        }))
    }
}

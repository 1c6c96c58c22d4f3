//! A driver file of OMB: which system, how it is reached, and how its clients are set.
//!
//! What our client does not honour is listed, not dropped in silence.

use serde_json::{Map, Value, json};
use yaml_rust2::{Yaml, YamlLoader};

/// What a driver file says, in the terms of docs/worker-api.md.
#[derive(Clone, Debug, PartialEq)]
pub struct Driver {
    /// The `system` of requests.
    pub system: Value,
    /// Copies of each partition, where the topic says.
    pub replication_factor: Option<i64>,
    /// Settings of topics.
    pub topic_settings: Map<String, Value>,
    /// `batch` of trials.
    pub batch: Map<String, Value>,
    /// `acks`, `compression` and `idempotence` of trials.
    pub client: Map<String, Value>,
    /// How names of topics begin.
    pub topic_prefix: String,
    /// Settings that our client does not honour.
    pub ignored: Vec<String>,
}

/// Reads a driver file.
///
/// # Errors
/// A sentence that says what was expected.
pub fn parse(text: &str) -> Result<Driver, String> {
    let documents =
        YamlLoader::load_from_str(text).map_err(|error| format!("the driver file is no YAML: {error}"))?;
    let file = documents.first().ok_or("the driver file is empty")?;
    let class = file["driverClass"]
        .as_str()
        .ok_or("the driver file has no driverClass")?;
    match class.rsplit('.').next() {
        Some("KafkaBenchmarkDriver") => kafka(file),
        Some("PulsarBenchmarkDriver") => pulsar(file),
        Some("RabbitMqBenchmarkDriver") => rabbitmq(file),
        _ => Err(format!(
            "driverClass {class}: expected the driver of Kafka, Pulsar or RabbitMQ \
             (io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver and so on)"
        )),
    }
}

/// Java properties: lines of `key=value` or `key: value`, comments with # or !.
fn properties(text: &str) -> Vec<(String, String)> {
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', '!']));
    lines
        .filter_map(|line| line.split_once(['=', ':']))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

fn number(key: &str, value: &str) -> Result<f64, String> {
    value
        .parse()
        .map_err(|_| format!("{key}={value}: expected a number"))
}

fn kafka(file: &Yaml) -> Result<Driver, String> {
    let block = |name: &str| properties(file[name].as_str().unwrap_or_default());
    let mut found = Driver {
        system: Value::Null,
        replication_factor: file["replicationFactor"].as_i64(),
        topic_settings: block("topicConfig")
            .into_iter()
            .map(|(key, value)| (key, json!(value)))
            .collect(),
        // The defaults of Kafka's own client, which OMB would use.
        batch: Map::from_iter([
            ("bytes".to_owned(), json!(16_384)),
            ("linger_ms".to_owned(), json!(0.0)),
            ("buffer_bytes".to_owned(), json!(32 << 20)),
        ]),
        client: Map::new(),
        topic_prefix: file["topicNamePrefix"]
            .as_str()
            .unwrap_or("test-topic")
            .to_owned(),
        ignored: Vec::new(),
    };
    let mut bootstrap = Vec::new();
    for (key, value) in block("commonConfig").into_iter().chain(block("producerConfig")) {
        match key.as_str() {
            "bootstrap.servers" => bootstrap = value.split(',').map(|one| one.trim().to_owned()).collect(),
            "acks" => {
                let acks = match value.as_str() {
                    "all" | "-1" => "all",
                    "1" => "leader",
                    "0" => "none",
                    _ => return Err(format!("acks={value}: expected all, 1 or 0")),
                };
                found.client.insert("acks".into(), json!(acks));
            }
            "linger.ms" => {
                let linger_ms = number(&key, &value)?;
                found.batch.insert("linger_ms".into(), json!(linger_ms));
            }
            "batch.size" => {
                let bytes = number(&key, &value)?.max(1.0) as u64;
                found.batch.insert("bytes".into(), json!(bytes));
            }
            "buffer.memory" => {
                let bytes = number(&key, &value)? as u64;
                found.batch.insert("buffer_bytes".into(), json!(bytes));
            }
            "max.in.flight.requests.per.connection" => {
                let requests = number(&key, &value)? as u64;
                found.batch.insert("in_flight".into(), json!(requests));
            }
            "compression.type" => {
                found.client.insert("compression".into(), json!(value));
            }
            "enable.idempotence" => {
                found.client.insert("idempotence".into(), json!(value == "true"));
            }
            "security.protocol" if value != "PLAINTEXT" => {
                return Err(format!("security.protocol={value}: expected PLAINTEXT"));
            }
            "security.protocol" | "client.id" | "key.serializer" | "value.serializer" => {}
            _ => found.ignored.push(format!("{key}={value}")),
        }
    }
    // Consumers fetch from the tail on their own terms; where they begin is the only thing that a driver file can alter.
    for (key, value) in block("consumerConfig") {
        if !matches!(key.as_str(), "auto.offset.reset" | "enable.auto.commit") {
            found.ignored.push(format!("{key}={value}"));
        }
    }
    if bootstrap.is_empty() {
        return Err("commonConfig has no bootstrap.servers".into());
    }
    found.system = json!({"protocol": "kafka", "bootstrap": bootstrap, "options": {}});
    Ok(found)
}

/// The parts of a URL.
struct Url {
    user: Option<(String, String)>,
    /// `host:port` each.
    hosts: Vec<String>,
    path: String,
}

/// Reads `scheme://[user:password@]host[:port][,host[:port]][/path]`.
fn url(text: &str, scheme: &str, port: u16) -> Result<Url, String> {
    let rest = text
        .strip_prefix(scheme)
        .and_then(|rest| rest.strip_prefix("://"))
        .ok_or_else(|| format!("{text}: expected {scheme}://HOST:PORT"))?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            (Some((name.to_owned(), password.to_owned())), hosts)
        }
        None => (None, authority),
    };
    let with_port = |host: &str| match host.rsplit_once(':') {
        Some(_) => host.to_owned(),
        None => format!("{host}:{port}"),
    };
    Ok(Url {
        user,
        hosts: hosts.split(',').map(with_port).collect(),
        path: path.to_owned(),
    })
}

fn pulsar(file: &Yaml) -> Result<Driver, String> {
    let (client, producer, consumer) = (&file["client"], &file["producer"], &file["consumer"]);
    let service = client["serviceUrl"].as_str().ok_or("client has no serviceUrl")?;
    let bootstrap = url(service, "pulsar", 6650)?.hosts;
    let namespace = client["namespacePrefix"].as_str().unwrap_or("public/default");
    let mut options = Map::from_iter([("namespace".to_owned(), json!(namespace))]);
    if let Some(http) = client["httpUrl"].as_str() {
        options.insert("admin".into(), json!(url(http, "http", 8080)?.hosts));
    }
    let mut ignored = Vec::new();
    if client["authentication"]["plugin"]
        .as_str()
        .is_some_and(|plugin| !plugin.is_empty())
    {
        let token = client["authentication"]["data"]
            .as_str()
            .and_then(|data| data.strip_prefix("token:"));
        match token {
            Some(token) => {
                options.insert("token".into(), json!(token));
            }
            None => return Err("client.authentication: expected a token (data: token:...)".into()),
        }
    }
    for (block, known) in [
        (
            client,
            &[
                "serviceUrl",
                "httpUrl",
                "namespacePrefix",
                "clusterName",
                "topicType",
                "authentication",
            ][..],
        ),
        (
            producer,
            &["batchingEnabled", "batchingMaxPublishDelayMs", "batchingMaxBytes"][..],
        ),
        (consumer, &[][..]),
    ] {
        for (key, value) in block.as_hash().into_iter().flatten() {
            let key = key.as_str().unwrap_or_default();
            if !known.contains(&key) {
                ignored.push(match value {
                    Yaml::Hash(_) => key.to_owned(),
                    Yaml::Integer(number) => format!("{key}: {number}"),
                    Yaml::Boolean(truth) => format!("{key}: {truth}"),
                    other => format!("{key}: {}", other.as_str().unwrap_or("...")),
                });
            }
        }
    }
    let batching = producer["batchingEnabled"].as_bool().unwrap_or(true);
    let delay_ms = producer["batchingMaxPublishDelayMs"].as_i64().unwrap_or(1);
    let bytes = if batching {
        producer["batchingMaxBytes"].as_i64().unwrap_or(128 << 10)
    } else {
        1
    };
    Ok(Driver {
        system: json!({"protocol": "pulsar", "bootstrap": bootstrap, "options": options}),
        replication_factor: None,
        topic_settings: Map::new(),
        batch: Map::from_iter([
            ("bytes".to_owned(), json!(bytes)),
            (
                "linger_ms".to_owned(),
                json!(if batching { delay_ms as f64 } else { 0.0 }),
            ),
        ]),
        client: Map::new(),
        topic_prefix: "test-topic".to_owned(),
        ignored,
    })
}

fn rabbitmq(file: &Yaml) -> Result<Driver, String> {
    let uris: Vec<&str> = file["amqpUris"]
        .as_vec()
        .into_iter()
        .flatten()
        .filter_map(Yaml::as_str)
        .collect();
    if uris.is_empty() {
        return Err("the driver file has no amqpUris".into());
    }
    let (mut bootstrap, mut options) = (Vec::new(), Map::new());
    for uri in uris {
        let Url { user, hosts, path } = url(uri, "amqp", 5672)?;
        bootstrap.extend(hosts);
        if let Some((name, password)) = user {
            options.insert("user".into(), json!(name));
            options.insert("password".into(), json!(password));
        }
        if !path.is_empty() {
            options.insert(
                "virtual_host".into(),
                json!(path.replace("%2f", "/").replace("%2F", "/")),
            );
        }
    }
    let queue = file["queueType"].as_str().unwrap_or("CLASSIC").to_lowercase();
    if !["classic", "quorum", "stream"].contains(&queue.as_str()) {
        return Err(format!("queueType: {queue}: expected CLASSIC, QUORUM or STREAM"));
    }
    options.insert(
        "persistent".into(),
        json!(file["messagePersistence"].as_bool().unwrap_or(false)),
    );
    options.insert("queue_arguments".into(), json!({"x-queue-type": queue}));
    let known = [
        "name",
        "driverClass",
        "amqpUris",
        "messagePersistence",
        "queueType",
    ];
    let ignored = file.as_hash().into_iter().flatten();
    Ok(Driver {
        system: json!({"protocol": "rabbitmq", "bootstrap": bootstrap, "options": options}),
        replication_factor: None,
        topic_settings: Map::new(),
        batch: Map::new(),
        client: Map::new(),
        topic_prefix: "test-topic".to_owned(),
        ignored: ignored
            .filter_map(|(key, _)| key.as_str())
            .filter(|key| !known.contains(key))
            .map(str::to_owned)
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

    use super::*;

    const KAFKA: &str = "
name: Kafka
driverClass: io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver
replicationFactor: 3
topicConfig: |
  min.insync.replicas=2
commonConfig: |
  bootstrap.servers=a:9092, b:9093
  default.api.timeout.ms=1200000
producerConfig: |
  # as OMB ships it
  acks=all
  linger.ms=1
  batch.size=1048576
consumerConfig: |
  auto.offset.reset=earliest
  max.partition.fetch.bytes=10485760
";

    #[test]
    fn a_driver_file_of_kafka_is_read() {
        let found = parse(KAFKA).unwrap();
        assert_eq!(found.system["bootstrap"], json!(["a:9092", "b:9093"]));
        assert_eq!(found.replication_factor, Some(3));
        assert_eq!(found.topic_settings["min.insync.replicas"], "2");
        assert_eq!(
            (&found.batch["bytes"], &found.batch["linger_ms"]),
            (&json!(1_048_576), &json!(1.0))
        );
        assert_eq!(found.client["acks"], "all");
        let ignored = [
            "default.api.timeout.ms=1200000",
            "max.partition.fetch.bytes=10485760",
        ];
        assert_eq!(found.ignored, ignored);
    }

    #[test]
    fn driver_files_of_pulsar_and_rabbitmq_are_read() {
        let found = parse(
            "driverClass: io.openmessaging.benchmark.driver.pulsar.PulsarBenchmarkDriver
client: {serviceUrl: 'pulsar://a:6650,b', httpUrl: 'http://a:8080', ioThreads: 8, namespacePrefix: benchmark/ns}
producer: {batchingEnabled: true, batchingMaxPublishDelayMs: 2, batchingMaxBytes: 131072}
",
        )
        .unwrap();
        assert_eq!(found.system["bootstrap"], json!(["a:6650", "b:6650"]));
        assert_eq!(found.system["options"]["admin"], json!(["a:8080"]));
        assert_eq!(found.batch["linger_ms"], json!(2.0));
        assert_eq!(found.ignored, ["ioThreads: 8"]);
        let found = parse(
            "driverClass: io.openmessaging.benchmark.driver.rabbitmq.RabbitMqBenchmarkDriver
amqpUris: ['amqp://guest:secret@host/%2f']
messagePersistence: true
queueType: QUORUM
",
        )
        .unwrap();
        let options = &found.system["options"];
        assert_eq!(found.system["bootstrap"], json!(["host:5672"]));
        assert_eq!(
            (&options["password"], &options["virtual_host"]),
            (&json!("secret"), &json!("/"))
        );
        assert_eq!(options["queue_arguments"]["x-queue-type"], "quorum");
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_sentence() {
        for (text, expected) in [
            ("", "is empty"),
            ("a: [", "no YAML"),
            ("name: x", "no driverClass"),
            (
                "driverClass: org.example.Anything",
                "expected the driver of Kafka, Pulsar or RabbitMQ",
            ),
            ("driverClass: a.KafkaBenchmarkDriver", "no bootstrap.servers"),
            (
                "driverClass: a.PulsarBenchmarkDriver\nclient: {serviceUrl: 'http://x'}",
                "expected pulsar://HOST:PORT",
            ),
            (
                "driverClass: a.RabbitMqBenchmarkDriver\namqpUris: ['amqp://a']\nqueueType: FAST",
                "expected CLASSIC",
            ),
        ] {
            let refusal = parse(text).unwrap_err();
            assert!(refusal.contains(expected), "{text:?}: {refusal}");
        }
    }
}

//! A driver file of OMB: which system, how it is reached, and how its clients are set.
//!
//! What our client does not honour is listed by its key, not dropped in silence. Values are in no message: URLs and
//! `sasl.jaas.config` hold passwords.

use serde_json::{Map, Value, json};
use yaml_rust2::Yaml;

use super::yaml;

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
    let file = &yaml::first_document(text).map_err(|wrong| format!("the driver file {wrong}"))?;
    let class = file["driverClass"]
        .as_str()
        .ok_or("the driver file has no driverClass")?;
    match class.rsplit('.').next() {
        Some("KafkaBenchmarkDriver") => kafka(file),
        Some("PulsarBenchmarkDriver") => pulsar(file),
        Some("RabbitMqBenchmarkDriver") => rabbitmq(file),
        _ => Err("driverClass: expected the driver of Kafka, Pulsar or RabbitMQ \
             (io.openmessaging.benchmark.driver.kafka.KafkaBenchmarkDriver and so on)"
            .into()),
    }
}

/// Java properties: lines of `key=value` or `key: value`, comments with # or !, a backslash at the end of a line that goes on.
fn properties(text: &str) -> Vec<(String, String)> {
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines().map(str::trim) {
        if !goes_on && line.starts_with(['#', '!']) {
            continue;
        }
        let part = line.strip_suffix('\\');
        match lines.last_mut() {
            Some(last) if goes_on => last.push_str(part.unwrap_or(line)),
            _ => lines.push(part.unwrap_or(line).to_owned()),
        }
        goes_on = part.is_some();
    }
    lines
        .iter()
        .filter_map(|line| line.split_once(['=', ':']))
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

/// A key as it may be shown: what is no name may be a part of a value that somebody broke over lines.
fn shown(key: &str) -> String {
    let is_name = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    if (1..=100).contains(&key.len()) && key.chars().all(is_name) {
        key.to_owned()
    } else {
        "(a key that is no name)".to_owned()
    }
}

fn number(key: &str, value: &str) -> Result<f64, String> {
    value.parse().map_err(|_| format!("{key}: expected a number"))
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
                    _ => return Err("acks: expected all, 1 or 0".into()),
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
                return Err("security.protocol: expected PLAINTEXT".into());
            }
            "security.protocol" | "client.id" | "key.serializer" | "value.serializer" => {}
            _ => found.ignored.push(shown(&key)),
        }
    }
    // Consumers fetch from the tail on their own terms; where they begin is the only thing that a driver file can alter.
    for (key, _) in block("consumerConfig") {
        if !matches!(key.as_str(), "auto.offset.reset" | "enable.auto.commit") {
            found.ignored.push(shown(&key));
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

/// Reads `scheme://[user:password@]host[:port][,host[:port]][/path]`, the value of a key.
fn url(key: &str, text: &str, scheme: &str, port: u16) -> Result<Url, String> {
    let wrong = || {
        format!("{key}: expected {scheme}://HOST:PORT, with what is no letter or digit in a password as %XX")
    };
    let rest = text
        .strip_prefix(scheme)
        .and_then(|rest| rest.strip_prefix("://"))
        .ok_or_else(wrong)?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, hosts) = match authority.split_once('@') {
        Some((user, hosts)) => {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            let (name, password) = (decoded(name), decoded(password));
            (
                Some((name.ok_or_else(wrong)?, password.ok_or_else(wrong)?)),
                hosts,
            )
        }
        None => (None, authority),
    };
    // A password with an unescaped @ or / would be cut in two, of which one were taken for a host and shown as one.
    if hosts.contains('@') || path.contains('@') {
        return Err(wrong());
    }
    let with_port = |host: &str| match host.rsplit_once(':') {
        Some(_) => host.to_owned(),
        None => format!("{host}:{port}"),
    };
    Ok(Url {
        user,
        hosts: hosts.split(',').map(with_port).collect(),
        path: decoded(path).ok_or_else(wrong)?,
    })
}

/// A part of a URL without its escapes (RFC 3986, section 2.1).
fn decoded(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
    for piece in pieces {
        let (digits, rest) = piece.split_at_checked(2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

fn pulsar(file: &Yaml) -> Result<Driver, String> {
    let (client, producer, consumer) = (&file["client"], &file["producer"], &file["consumer"]);
    let service = client["serviceUrl"].as_str().ok_or("client has no serviceUrl")?;
    let bootstrap = url("client.serviceUrl", service, "pulsar", 6650)?.hosts;
    let namespace = client["namespacePrefix"].as_str().unwrap_or("public/default");
    let mut options = Map::from_iter([("namespace".to_owned(), json!(namespace))]);
    if let Some(http) = client["httpUrl"].as_str() {
        options.insert(
            "admin".into(),
            json!(url("client.httpUrl", http, "http", 8080)?.hosts),
        );
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
        for (key, _) in block.as_hash().into_iter().flatten() {
            let key = key.as_str().unwrap_or_default();
            if !known.contains(&key) {
                ignored.push(shown(key));
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
        let Url { user, hosts, path } = url("amqpUris", uri, "amqp", 5672)?;
        bootstrap.extend(hosts);
        if let Some((name, password)) = user {
            options.insert("user".into(), json!(name));
            options.insert("password".into(), json!(password));
        }
        if !path.is_empty() {
            options.insert("virtual_host".into(), json!(path));
        }
    }
    let queue = file["queueType"].as_str().unwrap_or("CLASSIC").to_lowercase();
    if !["classic", "quorum", "stream"].contains(&queue.as_str()) {
        return Err("queueType: expected CLASSIC, QUORUM or STREAM".into());
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
            .map(shown)
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
        let ignored = ["default.api.timeout.ms", "max.partition.fetch.bytes"];
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
        assert_eq!(found.ignored, ["ioThreads"]);
        let found = parse(
            "driverClass: io.openmessaging.benchmark.driver.rabbitmq.RabbitMqBenchmarkDriver
amqpUris: ['amqp://guest:s%40c%2Fret@host/%2f']
messagePersistence: true
queueType: QUORUM
",
        )
        .unwrap();
        let options = &found.system["options"];
        assert_eq!(found.system["bootstrap"], json!(["host:5672"]));
        assert_eq!(
            (&options["password"], &options["virtual_host"]),
            (&json!("s@c/ret"), &json!("/"))
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

    #[test]
    fn no_message_has_a_secret_in_it() {
        let jaas = "driverClass: a.KafkaBenchmarkDriver
commonConfig: |
  bootstrap.servers=a:9092
  sasl.jaas.config=org.example.PlainLoginModule required \\
    username=\"u\" \\
    password=\"hunter2secret\";
  hunter2secret with spaces=1
";
        let ignored = parse(jaas).unwrap().ignored;
        assert_eq!(ignored, ["sasl.jaas.config", "(a key that is no name)"]);
        let rabbit = |uri: &str| {
            parse(&format!(
                "driverClass: a.RabbitMqBenchmarkDriver\namqpUris: ['{uri}']"
            ))
        };
        let pulsar = |uri: &str| {
            parse(&format!(
                "driverClass: a.PulsarBenchmarkDriver\nclient: {{serviceUrl: '{uri}', x: hunter2secret}}"
            ))
        };
        for refusal in [
            rabbit("amqps://u:hunter2secret@host").unwrap_err(),
            rabbit("u:hunter2secret@host").unwrap_err(),
            rabbit("amqp://u:hunter2@secret@host").unwrap_err(),
            rabbit("amqp://u:hunter2/secret@host").unwrap_err(),
            rabbit("amqp://u:hunter2%zzsecret@host").unwrap_err(),
            pulsar("pulsar+ssl://u:hunter2secret@host").unwrap_err(),
            parse("driverClass: a.KafkaBenchmarkDriver\ncommonConfig: 'acks=hunter2secret'").unwrap_err(),
            parse("driverClass: a.KafkaBenchmarkDriver\nproducerConfig: 'linger.ms=hunter2secret'")
                .unwrap_err(),
            parse("driverClass: a.KafkaBenchmarkDriver\nhunter2secret: 1\nhunter2secret: 2").unwrap_err(),
            parse("driverClass: hunter2secret").unwrap_err(),
        ] {
            assert!(
                !refusal.contains("hunter2") && !refusal.contains("secret"),
                "{refusal}"
            );
        }
        assert_eq!(pulsar("pulsar://u:p@h").unwrap().ignored, ["x"]);
    }
}

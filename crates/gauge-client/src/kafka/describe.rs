//! What one broker says of itself and of its cluster: whether it serves, of which release it is, who else is there, who leads a topic.
//!
//! For the lab, which must know before there is a worker to ask (`gauge describe`). Every failure has a code, so that the lab can tell
//! them apart, and a sentence for people.

use std::io;

use gauge_load::clock::monotonic_ns;
use serde_json::{Value, json};

use super::caller::Caller;
use super::cluster::{NO_BROKER, require_versions};
use super::messages::{self, ApiVersions, Metadata};
use super::{Access, access, wire};
use crate::transport::{Lost, Peer, resolve};
use crate::{ClientError, Endpoint, Security};

/// Connecting (with TLS and a login) may take this long, and so may each answer. A broker that does not serve yet is asked again soon.
const WITHIN_NS: i64 = 3_000_000_000;
const WITHIN: &str = "3 s";

const METADATA_VERSION: &str = "metadata.version";
/// Highest level of `metadata.version` that the releases of a line support, and the line (KIP-778; Kafka's enum MetadataVersion).
const RELEASES: &[(i16, &str)] = &[
    (7, "3.3"),
    (8, "3.4"),
    (11, "3.5"),
    (14, "3.6"),
    (19, "3.7"),
    (20, "3.8"),
    (21, "3.9"),
    (25, "4.0"),
    (27, "4.1"),
    (29, "4.2"),
    (30, "4.3"),
];

/// The code of a request that is wrong.
pub(crate) const BAD_REQUEST: &str = "bad_request";

/// Why a broker could not be described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// [`BAD_REQUEST`], or what was found: `unreachable`, `silent`, `tls_refused`, `login_refused`, `closed`, `not_kafka`, `too_old`.
    pub code: &'static str,
    /// One sentence that names the server.
    pub message: String,
}

impl Failure {
    pub fn new(code: &'static str, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
        }
    }
}

/// Asks a server (`host:port`) as this user over this TLS; `topic`: whose leaders are wanted.
///
/// Returns `{"release", "cluster_id", "brokers": [{"id", "host", "port"}], "leaders": [{"partition", "leader"}]}`: the release's line
/// ("4.3") or null when the server does not say, the leader null where there is none at the moment.
pub(crate) fn describe(server: &str, security: Security, topic: Option<&str>) -> Result<Value, Failure> {
    let endpoint = Endpoint {
        bootstrap: vec![server.to_owned()],
        options: serde_json::Map::new(),
        security,
    };
    let access = access(&endpoint).map_err(|error| Failure::new(BAD_REQUEST, error.to_string()))?;
    let peers =
        resolve(server, access.tls.as_ref()).map_err(|trouble| Failure::new("unreachable", trouble))?;
    let mut found = Err(Failure::new("unreachable", format!("{server} has no address")));
    for peer in peers {
        found = ask(server, &peer, &access, topic);
        // A name may have addresses on which nobody listens.
        if !matches!(&found, Err(failure) if failure.code == "unreachable") {
            break;
        }
    }
    found
}

fn ask(server: &str, peer: &Peer, access: &Access, topic: Option<&str>) -> Result<Value, Failure> {
    let failure = |lost| failure(server, peer, lost);
    let (mut caller, versions) = Caller::greeted(peer, access, WITHIN_NS).map_err(failure)?;
    if let Err(ClientError::System(words)) = require_versions(&versions.ranges, &[wire::METADATA]) {
        return Err(Failure::new("too_old", format!("{server}: {words}")));
    }
    let body = caller
        .exchange(wire::METADATA, monotonic_ns() + WITHIN_NS, |out| {
            messages::put_metadata(out, topic.into_iter());
        })
        .map_err(failure)?;
    let metadata = messages::read_metadata(&body).map_err(|malformed| failure(malformed.into()))?;
    Ok(told(&versions, &metadata))
}

fn told(versions: &ApiVersions, metadata: &Metadata) -> Value {
    let brokers = metadata.brokers.iter();
    let brokers = brokers.map(|row| json!({"id": row.id, "host": row.host, "port": row.port}));
    let partitions = metadata.topics.iter().flat_map(|topic| &topic.partitions);
    let leaders = partitions.map(|row| {
        let leader = Some(row.leader).filter(|leader| *leader != NO_BROKER);
        json!({"partition": row.partition, "leader": leader})
    });
    json!({
        "release": release(&versions.supported),
        "cluster_id": metadata.cluster_id,
        "brokers": brokers.collect::<Vec<_>>(),
        "leaders": leaders.collect::<Vec<_>>(),
    })
}

/// A broker never tells its version. What it supports is a property of its code, unlike what the cluster has finalised.
fn release(supported: &[(String, i16)]) -> Option<String> {
    let (_, level) = supported.iter().find(|(name, _)| name == METADATA_VERSION)?;
    match RELEASES.iter().find(|(highest, _)| level <= highest) {
        Some((_, line)) => Some((*line).to_owned()),
        None => RELEASES.last().map(|(_, line)| format!("newer than {line}")),
    }
}

fn failure(server: &str, peer: &Peer, lost: Lost) -> Failure {
    let how = if peer.has_tls() {
        "over TLS"
    } else {
        "in plain text"
    };
    // What TLS has to say comes as invalid data, wherever it is met: a server looks at a client's certificate after the handshake.
    let is_of_tls = |error: &io::Error| {
        peer.has_tls()
            && matches!(
                error.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof
            )
    };
    match lost {
        Lost::Connect(error) | Lost::Closed(Some(error)) if is_of_tls(&error) => {
            Failure::new("tls_refused", format!("{server}: {error}"))
        }
        Lost::Connect(error) => Failure::new("unreachable", format!("{server} cannot be reached: {error}")),
        Lost::Timeout => Failure::new(
            "silent",
            format!("{server} does not answer {how} within {WITHIN}"),
        ),
        Lost::Closed(_) => Failure::new(
            "closed",
            format!(
                "{server} closed the connection without an answer; is this a Kafka listener {how}, that asks for these credentials?"
            ),
        ),
        Lost::Malformed(what) => Failure::new(
            "not_kafka",
            format!("{server} does not speak the Kafka protocol {how}: {what}"),
        ),
        Lost::Refused(_, words) => Failure::new("login_refused", format!("{server}: {words}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::messages::{BrokerRow, PartitionRow, TopicRow};
    use super::*;

    #[test]
    fn brokers_and_leaders_are_told_and_no_leader_is_none() {
        let partition = |partition, leader| PartitionRow {
            partition,
            leader,
            ..PartitionRow::default()
        };
        let metadata = Metadata {
            brokers: vec![BrokerRow {
                id: 2,
                host: "h".to_owned(),
                port: 9092,
            }],
            cluster_id: Some("c".to_owned()),
            controller: 2,
            topics: vec![TopicRow {
                code: 0,
                name: "t".to_owned(),
                partitions: vec![partition(1, NO_BROKER), partition(0, 2)],
            }],
        };
        let versions = ApiVersions {
            supported: vec![(METADATA_VERSION.to_owned(), 29)],
            ..ApiVersions::default()
        };
        assert_eq!(
            told(&versions, &metadata),
            json!({
                "release": "4.2",
                "cluster_id": "c",
                "brokers": [{"id": 2, "host": "h", "port": 9092}],
                "leaders": [{"partition": 1, "leader": null}, {"partition": 0, "leader": 2}],
            })
        );
    }

    #[test]
    fn the_release_is_told_from_what_the_code_supports() {
        let of = |level| {
            release(&[
                ("kraft.version".to_owned(), 1),
                (METADATA_VERSION.to_owned(), level),
            ])
        };
        for (level, line) in [
            (7, "3.3"),
            (9, "3.5"),
            (22, "4.0"),
            (30, "4.3"),
            (31, "newer than 4.3"),
        ] {
            assert_eq!(of(level).as_deref(), Some(line), "{level}");
        }
        assert_eq!(release(&[]), None);
    }
}

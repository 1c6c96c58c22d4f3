//! Looks at single values of requests: ranges, counts, names, addresses. Every refusal names the field and says what was expected.

use std::collections::HashSet;

use gauge_client::{Endpoint, NewTopic, Security};

use crate::error::ApiError;
use crate::request;

/// Topics of one request.
pub const TOPICS_MAX: usize = 10_000;
/// Partitions of one trial.
pub const PARTITIONS_MAX: u64 = 100_000;
const NAME_BYTES_MAX: usize = 249;
const BOOTSTRAP_MAX: usize = 100;
/// The longest time that a request may name: 30 days.
pub const DURATION_S_MAX: f64 = 2_592_000.0;
/// The highest rate that a request may name.
pub const RATE_MSGS_S_MAX: f64 = 1e9;

/// Nanoseconds of a number of seconds that was checked.
pub fn ns(seconds: f64) -> i64 {
    (seconds * 1e9).round() as i64
}

/// Looks whether a number lies in a range, ends included.
///
/// # Errors
/// A bad request that says what was expected.
pub fn within(field: &str, value: f64, least: f64, most: f64, unit: &str) -> Result<f64, ApiError> {
    if (least..=most).contains(&value) {
        return Ok(value);
    }
    let unit = if unit.is_empty() {
        String::new()
    } else {
        format!(" {unit}")
    };
    Err(ApiError::field(
        field,
        format!("{value} is out of range: expected {least} to {most}{unit}"),
    ))
}

/// `within` for whole numbers.
///
/// # Errors
/// As `within`.
pub fn whole(field: &str, value: u64, least: u64, most: u64, unit: &str) -> Result<u64, ApiError> {
    within(field, value as f64, least as f64, most as f64, unit).map(|_| value)
}

/// Looks at the length of a list.
///
/// # Errors
/// A bad request that says what was expected.
pub fn count(field: &str, found: usize, least: usize, most: usize) -> Result<(), ApiError> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    Err(ApiError::field(
        field,
        format!("has {found} entries: expected {least} to {most}"),
    ))
}

/// Looks at a name.
///
/// # Errors
/// A bad request that says what was expected.
pub fn name(field: &str, name: &str) -> Result<(), ApiError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(ApiError::field(
            field,
            format!("expected a name of 1 to {NAME_BYTES_MAX} bytes without control characters"),
        ));
    }
    Ok(())
}

/// The endpoint of a request's `system`.
///
/// # Errors
/// A bad request when an address is not `host:port`, or the security is not what it must be.
pub fn endpoint(system: &request::System) -> Result<Endpoint, ApiError> {
    count("system.bootstrap", system.bootstrap.len(), 1, BOOTSTRAP_MAX)?;
    for (at, address) in system.bootstrap.iter().enumerate() {
        let is_address = address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty()
                && !host.contains('@')
                && port.parse::<u16>().is_ok_and(|port| port > 0)
                && address.len() < 300
        });
        if !is_address {
            return Err(ApiError::field(
                format!("system.bootstrap[{at}]"),
                // Not repeated: somebody may have written a URL with a password in it.
                "is no address: expected host:port, for instance 127.0.0.1:9092",
            ));
        }
    }
    Ok(Endpoint {
        bootstrap: system.bootstrap.clone(),
        options: system.options.clone(),
        security: Security::read(&system.security)?,
    })
}

/// The topics of a `create-topics` request.
///
/// # Errors
/// A bad request that names the field.
pub fn new_topics(topics: &[request::NewTopic]) -> Result<Vec<NewTopic>, ApiError> {
    count("topics", topics.len(), 1, TOPICS_MAX)?;
    let mut names = HashSet::new();
    let check = |(at, topic): (usize, &request::NewTopic)| {
        let path = |field: &str| format!("topics[{at}].{field}");
        name(&path("name"), &topic.name)?;
        if !names.insert(topic.name.clone()) {
            return Err(ApiError::field(
                path("name"),
                format!("topic '{}' is named twice", topic.name),
            ));
        }
        whole(
            &path("partitions"),
            u64::from(topic.partitions),
            1,
            PARTITIONS_MAX,
            "partitions",
        )?;
        whole(
            &path("replication_factor"),
            u64::from(topic.replication_factor),
            1,
            1000,
            "copies",
        )?;
        Ok(NewTopic {
            name: topic.name.clone(),
            partitions: topic.partitions,
            replication_factor: topic.replication_factor,
            configs: topic
                .configs
                .iter()
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        })
    };
    topics.iter().enumerate().map(check).collect()
}

/// The topic names of a request.
///
/// # Errors
/// A bad request that names the field.
pub fn topic_names(names: &[String], least: usize) -> Result<(), ApiError> {
    count("topics", names.len(), least, TOPICS_MAX)?;
    names
        .iter()
        .enumerate()
        .try_for_each(|(at, topic)| name(&format!("topics[{at}]"), topic))
}

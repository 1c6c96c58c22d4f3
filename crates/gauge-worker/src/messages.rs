//! The messages of a trial: their bodies and their keys, each value looked at.

use base64::Engine;
use gauge_client::Keys;
use gauge_load::PayloadPool;

use crate::check::{count, whole, within};
use crate::error::ApiError;
use crate::request;

const SIZES_MAX: usize = 65_536;
const ZIPF_KEYS_MAX: u64 = 10_000_000;
const ZIPF_EXPONENT_MAX: f64 = 10.0;
const PAYLOAD_BYTES_MAX: u64 = 64 << 20;
const POOL_BYTES_MAX: u64 = 128 << 20;

/// The messages' bodies.
///
/// # Errors
/// A bad request that names the field.
pub fn payload(request: &request::Trial) -> Result<PayloadPool, ApiError> {
    let payload = &request.payload;
    if let Some(templates) = &payload.templates_base64 {
        if payload.size_bytes.is_some()
            || payload.sizes_bytes.is_some()
            || payload.random_ratio.is_some()
            || payload.pool.is_some()
        {
            return Err(ApiError::field(
                "payload.templates_base64",
                "are whole messages: leave out size_bytes, sizes_bytes, random_ratio and pool",
            ));
        }
        count("payload.templates_base64", templates.len(), 1, 65_536)?;
        let decode = |(at, text): (usize, &String)| {
            let field = format!("payload.templates_base64[{at}]");
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(text)
                .map_err(|error| ApiError::field(&field, format!("is no base64: {error}")))?;
            whole(&field, bytes.len() as u64, 1, PAYLOAD_BYTES_MAX, "bytes")?;
            Ok(bytes)
        };
        let bodies = templates
            .iter()
            .enumerate()
            .map(decode)
            .collect::<Result<Vec<_>, ApiError>>()?;
        return PayloadPool::from_bodies(bodies)
            .ok_or_else(|| ApiError::field("payload.templates_base64", "expected at least one template"));
    }
    let random_ratio = within(
        "payload.random_ratio",
        payload.random_ratio.unwrap_or(0.0),
        0.0,
        1.0,
        "",
    )?;
    if let Some(sizes_bytes) = &payload.sizes_bytes {
        return payload_of_sizes(payload, sizes_bytes, random_ratio, request.seed);
    }
    let size_bytes = match payload.size_bytes {
        Some(size_bytes) => whole("payload.size_bytes", size_bytes, 1, PAYLOAD_BYTES_MAX, "bytes")?,
        None if request.producers.is_empty() => gauge_load::stamp::STAMP_BYTES as u64,
        None => {
            return Err(ApiError::field(
                "payload.size_bytes",
                "is missing, and there are producers: expected the size of a message in bytes",
            ));
        }
    };
    let pool = whole(
        "payload.pool",
        payload.pool.unwrap_or(64),
        1,
        1_000_000,
        "templates",
    )?;
    // A pool that was not asked for is made smaller rather than refused.
    let fitting = (POOL_BYTES_MAX / 4 / size_bytes).max(1);
    let pool = if payload.pool.is_none() {
        pool.min(fitting)
    } else {
        pool
    };
    if pool * size_bytes > POOL_BYTES_MAX {
        return Err(ApiError::field(
            "payload.pool",
            format!(
                "{pool} templates of {size_bytes} bytes take more than {POOL_BYTES_MAX} bytes: expected a smaller pool"
            ),
        ));
    }
    Ok(PayloadPool::generate(
        size_bytes as usize,
        random_ratio,
        pool as usize,
        request.seed,
    ))
}

/// Bodies of sizes that differ: one for each entry of the list, in its order.
fn payload_of_sizes(
    payload: &request::Payload,
    sizes_bytes: &[u64],
    random_ratio: f64,
    seed: u64,
) -> Result<PayloadPool, ApiError> {
    let field = "payload.sizes_bytes";
    if payload.size_bytes.is_some() || payload.pool.is_some() {
        return Err(ApiError::field(
            field,
            "are the sizes of all bodies, each of which has one: leave out size_bytes and pool",
        ));
    }
    count(field, sizes_bytes.len(), 1, SIZES_MAX)?;
    for (at, size_bytes) in sizes_bytes.iter().enumerate() {
        whole(
            &format!("{field}[{at}]"),
            *size_bytes,
            1,
            PAYLOAD_BYTES_MAX,
            "bytes",
        )?;
    }
    let total: u64 = sizes_bytes.iter().sum();
    if total > POOL_BYTES_MAX {
        return Err(ApiError::field(
            field,
            format!("take {total} bytes in all: expected at most {POOL_BYTES_MAX}, so fewer or smaller ones"),
        ));
    }
    let sizes_bytes: Vec<usize> = sizes_bytes.iter().map(|size| *size as usize).collect();
    PayloadPool::of_sizes(&sizes_bytes, random_ratio, seed)
        .ok_or_else(|| ApiError::field(field, "expected at least one size"))
}

/// How a producer chooses its messages' partitions and keys.
#[derive(Clone, PartialEq)]
pub struct KeyPlan {
    /// How partitions are chosen.
    pub keys: Keys,
    /// Number of distinct keys; 0: messages have none.
    pub key_count: u32,
    /// Exponent of Zipf's law, where the keys follow it.
    pub exponent: Option<f64>,
}

/// The keys of a producer's messages.
///
/// # Errors
/// A bad request that names the field.
pub fn key_plan(producer: &request::Producer, path: impl Fn(&str) -> String) -> Result<KeyPlan, ApiError> {
    let (keyed, skewed) = match producer.keys {
        request::Keys::None | request::Keys::RoundRobin => (false, false),
        request::Keys::Keyed => (true, false),
        request::Keys::Zipf => (true, true),
    };
    let key_count = match (keyed, producer.key_count) {
        (true, Some(key_count)) => {
            let most = if skewed {
                ZIPF_KEYS_MAX
            } else {
                u64::from(u32::MAX)
            };
            whole(&path("key_count"), u64::from(key_count), 1, most, "keys")?;
            key_count
        }
        (true, None) => {
            return Err(ApiError::field(
                path("key_count"),
                "is missing: expected the number of distinct keys",
            ));
        }
        (false, Some(_)) => {
            return Err(ApiError::field(
                path("key_count"),
                "goes with \"keys\": \"keyed\" and \"zipf\" only",
            ));
        }
        (false, None) => 0,
    };
    let exponent = match (skewed, producer.zipf_exponent) {
        (true, exponent) => {
            let field = path("zipf_exponent");
            Some(within(
                &field,
                exponent.unwrap_or(1.0),
                0.0,
                ZIPF_EXPONENT_MAX,
                "",
            )?)
        }
        (false, None) => None,
        (false, Some(_)) => {
            return Err(ApiError::field(
                path("zipf_exponent"),
                "goes with \"keys\": \"zipf\" only",
            ));
        }
    };
    Ok(KeyPlan {
        keys: match producer.keys {
            request::Keys::None => Keys::Sticky,
            request::Keys::RoundRobin => Keys::RoundRobin,
            request::Keys::Keyed | request::Keys::Zipf => Keys::Keyed,
        },
        key_count,
        exponent,
    })
}

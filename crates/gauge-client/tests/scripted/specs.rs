//! What the tests ask the client for.

use std::sync::Arc;

use gauge_client::{Acks, BatchPolicy, Compression, Endpoint, Keys, LaneSpec, ProducerSpec, Security, Topic};

pub const SECOND_NS: i64 = 1_000_000_000;
pub const MS_NS: i64 = 1_000_000;

/// A server without security.
pub fn endpoint(bootstrap: impl ToString) -> Endpoint {
    Endpoint {
        bootstrap: vec![bootstrap.to_string()],
        options: serde_json::Map::new(),
        security: Security::default(),
    }
}

/// One producer of one topic and no consumer.
pub fn spec(partitions: u32, keys: Keys, payload_bytes: usize, batch: BatchPolicy) -> LaneSpec {
    LaneSpec {
        run: 1,
        topics: Arc::new([Topic {
            name: "t".into(),
            partitions,
            first_slot: 0,
        }]),
        producers: vec![ProducerSpec {
            id: 0,
            topic: 0,
            keys,
        }],
        consumers: vec![],
        batch,
        closed_loop: false,
        acks: Acks::All,
        idempotence: false,
        compression: Compression::None,
        request_timeout_ns: 30 * SECOND_NS,
        retry_for_ns: 60 * SECOND_NS,
        payload_bytes_max: payload_bytes,
    }
}

/// Batches of so many bytes that linger for a millisecond.
pub fn batches(bytes: usize, buffer_bytes: usize) -> BatchPolicy {
    BatchPolicy {
        bytes,
        linger_ns: MS_NS,
        in_flight: 5,
        buffer_bytes,
    }
}

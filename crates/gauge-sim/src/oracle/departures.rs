//! Do batches leave when they have lingered?

use super::{Case, Told};
use crate::marks::{Mark, Marks};

/// What a lane does besides, and what a node may have to do before.
const REST_NS: i64 = 5_000_000;
/// Ways and answers that may lie before a batch: of who leads, and of what was sent before.
const WAYS: i64 = 4;

/// Where nothing goes wrong, and all that a producer had sent was acknowledged when a message was due, nothing is in its way but its linger.
pub(super) fn departures(case: &Case<'_>, marks: &mut Marks, told: &mut Told) {
    let scenario = case.scenario;
    if !case.is_calm || scenario.acks == 0 || scenario.is_closed_loop {
        return;
    }
    let number = |path: &str| scenario.request.pointer(path).and_then(serde_json::Value::as_f64);
    let linger_ns = (number("/batch/linger_ms").unwrap_or(0.0) * 1e6) as i64;
    let quantum_ns = (number("/lanes/quantum_us").unwrap_or(0.0) * 1e3) as i64;
    let batch_bytes = number("/batch/bytes").unwrap_or(0.0) as i64;
    // What a socket has room for is under way for there and back before more of the batch is.
    let rounds = batch_bytes / scenario.room_bytes as i64;
    let wire_ns = batch_bytes * 1_000_000_000 / scenario.bytes_s + 2 * rounds * scenario.delay_ns;
    let way_ns = scenario.delay_ns + scenario.service_ns + wire_ns;
    let away_ns = scenario.away.as_ref().map_or(0, |away| WAYS * away.longest_ns());
    let patience_ns = linger_ns + quantum_ns + scenario.wake_ns + away_ns + WAYS * way_ns + REST_NS;
    for (producer, taken) in &case.truth.taken {
        let mut acked_ns = i64::MIN;
        for (sequence, taken) in taken.iter().enumerate() {
            let key = (*producer, sequence as u64);
            let all = (
                case.truth.intended.get(&key),
                case.truth.met_ns.get(&key),
                case.truth.acked.get(&key),
            );
            let (Some(due_ns), Some(met_ns), Some(seen)) = all else {
                break;
            };
            let is_alone = acked_ns < *due_ns && !taken.is_held;
            acked_ns = acked_ns.max(seen.read_ns);
            if !is_alone {
                continue;
            }
            marks.set(Mark::LeftAlone);
            if *met_ns > due_ns + patience_ns {
                told.say(|| {
                    format!(
                        "message {sequence} of producer {producer} was due at {due_ns} and reached its node {} ns later, with {linger_ns} ns of linger and nothing before it",
                        met_ns - due_ns
                    )
                });
            }
        }
    }
}

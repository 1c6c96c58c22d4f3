//! Quiet time: what the machine was not to blame for.
//!
//! A probe on each CPU wakes up every millisecond or two, above everybody who is measured. Where it wakes up late, the CPU was not to be had,
//! by the load as little as by the probe: a window, which the probe writes on the [`Board`]. Until what has piled up meanwhile is worked
//! off the CPU recovers ([`recovery_ns`]); window and recovery together are a disturbed span, and what is in no span of any CPU is
//! quiet time.
//!
//! A message that is due within a span is left out. One that is due before a span and answered after its beginning is censored there:
//! that long it had waited in quiet time, and what it waited beyond is nobody's measurement. All others are quiet. That is
//! decided for whole batches, as soon as every probe has looked past the answer ([`Pending`]): before, a window may still be open.
//!
//! Nothing here does I/O or reads a clock: times are values.

mod apart;
mod board;
mod pending;
mod spans;
mod under_way;

pub use apart::{Apart, Few, GROUPS_MAX, QuietCounters};
pub(crate) use apart::{Apartments, Kind, MaybeApart, Read, Watch, add, made};
pub use board::{Board, BoardReader, NOTHING_DUE_NS, Sample, Window};
pub use pending::{Group, Pending};
pub use spans::{Fate, Spans};
pub use under_way::UnderWay;

/// How often a probe wakes up at most.
pub const PROBE_PERIOD_NS: i64 = 1_000_000;
/// A wake-up that is this late, or later, makes a window.
pub const LATE_NS_MIN: i64 = 500_000;
/// A recovery takes this long at least...
pub const RECOVERY_NS_MIN: i64 = 500_000;
/// ...and at most so many times as long as the CPU was away (it comes to that at a utilisation of 0.8).
pub const RECOVERY_TIMES_MAX: f64 = 4.0;

/// How long a CPU that was away for `late_ns` needs until what has piled up is worked off: `late * rho / (1 - rho)`, between
/// [`RECOVERY_NS_MIN`] and [`RECOVERY_TIMES_MAX`] times `late_ns`.
///
/// `rho` is the CPU's utilisation before: the share of the time that it had in which it was busy. The assumption is that of a fluid
/// queue: work arrives evenly, `rho` of it per unit of time. While the CPU is away `rho * late` piles up; once it is back, the CPU
/// works that off at the rate `1 - rho` that it has to spare. No latency enters: whether a message is left out must not depend on how slow it was.
pub fn recovery_ns(late_ns: i64, rho: f64) -> i64 {
    let late_ns = late_ns.max(0) as f64;
    let rho = if rho.is_finite() { rho.clamp(0.0, 1.0) } else { 1.0 };
    let times = if rho < 1.0 {
        (rho / (1.0 - rho)).min(RECOVERY_TIMES_MAX)
    } else {
        RECOVERY_TIMES_MAX
    };
    ((late_ns * times) as i64).max(RECOVERY_NS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_follows_from_the_time_away_and_the_utilisation() {
        assert_eq!(recovery_ns(10_000_000, 0.5), 10_000_000);
        assert_eq!(recovery_ns(10_000_000, 0.2), 2_500_000);
        assert_eq!(recovery_ns(10_000_000, 0.0), RECOVERY_NS_MIN);
        for rho in [0.8, 0.99, 1.0, 2.0, f64::NAN] {
            let recovery = recovery_ns(10_000_000, rho);
            assert!((39_999_999..=40_000_000).contains(&recovery), "{rho}: {recovery}");
        }
        assert_eq!(recovery_ns(-5, 0.5), RECOVERY_NS_MIN);
    }
}

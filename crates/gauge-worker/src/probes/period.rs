//! How often probes wake up: as often as a share of each CPU pays for, within bounds. A wake-up costs 3 us of CPU or, where timers are expensive as within
//! some virtual machines, 40.

use std::sync::OnceLock;

use gauge_load::clock::{monotonic_ns, simulated, thread_cpu_ns};
use gauge_load::quiet::PROBE_PERIOD_NS;

use crate::scheduling;

/// Wake-ups from which their cost is learnt.
const NAPS: i64 = 32;
const NAP_NS: i64 = 500_000;

/// What probes may take.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Of each CPU.
    share: f64,
    /// The longest period, whatever they take.
    longest_ns: i64,
}

/// Of those that follow messages. What lies between two wake-ups is seen by none: a CPU that is away for 2.5 ms or longer is always seen.
pub const FOLLOWING: Budget = Budget {
    // Beside a load a wake-up takes a fifth more than in a pause: 1 %.
    share: 0.008,
    longest_ns: 2 * PROBE_PERIOD_NS,
};
/// Of those that sample, on the brokers' machines: it is enough to tell how long CPUs were away.
pub const SAMPLING: Budget = Budget {
    share: 0.0025,
    longest_ns: 20 * PROBE_PERIOD_NS,
};

impl Budget {
    /// The period that it pays for on this machine.
    pub fn period_ns(self) -> i64 {
        static WAKE_UP_NS: OnceLock<i64> = OnceLock::new();
        if simulated::now_ns().is_some() {
            // Nothing can be learnt in a world whose clock does not pass by itself, and every trial of it must be the same.
            return PROBE_PERIOD_NS;
        }
        self.pays_for_ns(*WAKE_UP_NS.get_or_init(wake_up_ns))
    }

    fn pays_for_ns(self, wake_up_ns: i64) -> i64 {
        ((wake_up_ns as f64 / self.share) as i64).clamp(PROBE_PERIOD_NS, self.longest_ns)
    }
}

/// What one costs here. Takes some ms.
fn wake_up_ns() -> i64 {
    let (began_ns, used_ns) = (monotonic_ns(), thread_cpu_ns());
    for nap in 1..=NAPS {
        scheduling::sleep_until(began_ns + nap * NAP_NS);
    }
    (thread_cpu_ns() - used_ns) / NAPS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_wake_up_as_often_as_their_share_pays_for() {
        for budget in [FOLLOWING, SAMPLING] {
            assert_eq!(budget.pays_for_ns(2_000), PROBE_PERIOD_NS, "where it is cheap");
            assert_eq!(budget.pays_for_ns(400_000), budget.longest_ns);
        }
        assert_eq!(FOLLOWING.pays_for_ns(12_000), 1_500_000);
        assert_eq!(SAMPLING.pays_for_ns(20_000), 8_000_000);
        assert!(wake_up_ns() > 0);
    }
}

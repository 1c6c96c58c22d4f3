//! The machine's probes, as the world makes them up: a CPU is away now and then, and what is known of that is known a little later.

use std::collections::VecDeque;

use gauge_load::quiet::{NOTHING_DUE_NS, Window};
use gauge_worker::simulation::SimulatedProbes;

use crate::scenario::Probed;

/// At peace everything is known, for so long ahead: nobody has to wait for a probe at the end.
const AHEAD_NS: i64 = 10_000_000_000;

/// Probes at work.
#[derive(Debug)]
pub struct Probes {
    hand: SimulatedProbes,
    /// Those that nobody knows of yet.
    windows: VecDeque<Window>,
    lag_ns: i64,
}

impl Probes {
    /// Of a trial that begins at `start_ns`.
    pub fn new(hand: SimulatedProbes, probed: &Probed, start_ns: i64) -> Probes {
        let windows = probed.windows.iter().map(|away| Window {
            seat: 0,
            from_ns: start_ns + away.from_ns,
            due_ns: start_ns + away.from_ns,
            to_ns: start_ns + away.to_ns,
            recovered_ns: start_ns + away.recovered_ns,
            waited_ns: 0,
            oldest_due_ns: NOTHING_DUE_NS,
        });
        Probes {
            hand,
            windows: windows.collect(),
            lag_ns: probed.lag_ns,
        }
    }

    /// Tells what they know by now.
    pub fn look(&mut self, now_ns: i64, is_at_peace: bool) {
        let until_ns = if is_at_peace {
            let last_ns = self.windows.back().map_or(now_ns, |window| window.to_ns);
            now_ns.max(last_ns) + AHEAD_NS
        } else {
            now_ns - self.lag_ns
        };
        while let Some(window) = self.windows.pop_front_if(|window| window.to_ns <= until_ns) {
            self.hand.window(&window);
        }
        // While a window is open its probe has looked before it for the last time.
        let open_ns = self.windows.front().map_or(i64::MAX, |window| window.from_ns);
        self.hand.looked(until_ns.min(open_ns));
    }
}

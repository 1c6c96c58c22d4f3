//! The witness: reads the kernel's accounts beside the probes, and finds out who took a CPU that was not to be had.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gauge_load::clock::{monotonic_ns, thread_cpu_ns};
use gauge_load::quiet::{Board, BoardReader, Window};

use super::own::Finder;
use super::{Seen, Stretches};
use crate::accounts::{self, Account};
use crate::disturbance::Evidence;

/// How often the witness reads the accounts; of sparse probes once in ten wake-ups.
const ACCOUNTS_PERIOD_NS: i64 = 20_000_000;
const ACCOUNTS_WAKE_UPS: i64 = 10;
/// Over so long the utilisation is taken.
const UTILISATION_NS: i64 = 1_000_000_000;
/// The kernel enters steal and softirq with its next tick, 10 ms later at most.
const ENTERED_NS: i64 = 10_000_000;
/// Readings for which a window waits for it, when the next windows follow at once.
const HELD_READINGS_MAX: u32 = 5;

/// Reads the accounts, and finds out who took what.
pub(super) struct Witness {
    cpus: Vec<usize>,
    board: Arc<Board>,
    stretches: Arc<Stretches>,
    finder: Finder,
    seen: Seen,
    reader: BoardReader,
    tick_ns: i64,
    /// Between two readings.
    period_ns: i64,
    /// The last readings, the newest last.
    readings: VecDeque<(i64, Vec<Account>)>,
    /// Per CPU: windows that wait for their account, the account before them, and for how many readings they have waited.
    held: Vec<Held>,
}

#[derive(Debug, Default)]
struct Held {
    windows: Vec<Window>,
    before: Account,
    readings: u32,
}

impl Witness {
    pub(super) fn new(
        cpus: Vec<usize>,
        board: Arc<Board>,
        stretches: Arc<Stretches>,
        finder: Finder,
        seen: Seen,
    ) -> Witness {
        Witness {
            reader: BoardReader::new(&board),
            held: cpus.iter().map(|_| Held::default()).collect(),
            cpus,
            period_ns: ACCOUNTS_PERIOD_NS.max(ACCOUNTS_WAKE_UPS * board.period_ns()),
            board,
            stretches,
            finder,
            seen,
            tick_ns: accounts::tick_ns(),
            readings: VecDeque::new(),
        }
    }

    pub(super) fn run(mut self, stop: &AtomicBool) {
        let now_ns = monotonic_ns();
        let accounts = self.read();
        for (held, account) in self.held.iter_mut().zip(&accounts) {
            held.before = *account;
        }
        self.readings.push_back((now_ns, accounts));
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_nanos(self.period_ns.unsigned_abs()));
            self.finder.look();
            let accounts = self.read();
            self.look(monotonic_ns(), accounts);
        }
    }

    fn read(&self) -> Vec<Account> {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        accounts::parse(&text, &self.cpus, self.tick_ns)
    }

    /// One look: the accounts at `now_ns`, and what is on the board.
    fn look(&mut self, now_ns: i64, accounts: Vec<Account>) {
        let mut horizon_ns = self
            .reader
            .read(&self.board, |window| self.held[window.seat].windows.push(window));
        let mut seen = self.seen.lock();
        let is_on = self.board.is_on();
        if is_on {
            self.reader.samples(&self.board, |sample| seen.sample(sample));
        }
        for (seat, (held, account)) in self.held.iter_mut().zip(&accounts).enumerate() {
            if self.board.is_overdue(seat, now_ns) && is_on {
                // A window is open: its account begins where the last one ended.
                if let Some(first) = held.windows.first() {
                    horizon_ns = horizon_ns.min(first.from_ns);
                }
                continue;
            }
            let is_fresh = held
                .windows
                .last()
                .is_some_and(|last| now_ns - last.to_ns < ENTERED_NS);
            if is_fresh && held.readings < HELD_READINGS_MAX {
                held.readings += 1;
                horizon_ns = horizon_ns.min(held.windows[0].from_ns);
                continue;
            }
            let grown = account.since(held.before);
            for (window, evidence) in share_out(&held.windows, grown) {
                seen.window(window, evidence);
            }
            held.windows.clear();
            held.readings = 0;
            held.before = *account;
        }
        if let Some((_, last)) = self.readings.back() {
            let grown = accounts
                .iter()
                .zip(last)
                .map(|(now, last)| now.since(*last).steal_ns);
            seen.steal(now_ns, grown.collect());
        }
        seen.cost(self.board.cpu_ns() + thread_cpu_ns());
        seen.stretched(self.stretches.told_ns());
        seen.settle(if is_on { horizon_ns } else { now_ns });
        drop(seen);
        self.enter_utilisation(now_ns, accounts);
    }

    /// A CPU counts as busy as it was itself over the last second, or as all were, whichever is more: what waits for it may run elsewhere, and what
    /// ran elsewhere may wait for it.
    fn enter_utilisation(&mut self, now_ns: i64, accounts: Vec<Account>) {
        if let Some((then_ns, then)) = self.readings.front() {
            let busy: Vec<f64> = accounts
                .iter()
                .zip(then)
                .map(|(now, then)| now.since(*then).busy(now_ns - then_ns))
                .collect();
            let mean = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
            for (seat, busy) in busy.iter().enumerate() {
                self.board.set_busy(seat, busy.max(mean));
            }
        }
        self.readings.push_back((now_ns, accounts));
        if self.readings.len() as i64 * self.period_ns > UTILISATION_NS {
            self.readings.pop_front();
        }
    }
}

/// What an account has grown, shared out over the windows of that time in proportion to how late the probe was.
fn share_out(windows: &[Window], grown: Account) -> impl Iterator<Item = (Window, Evidence)> {
    let late_ns: i64 = windows.iter().map(Window::late_ns).sum();
    windows.iter().map(move |window| {
        let share = window.late_ns() as f64 / late_ns.max(1) as f64;
        let evidence = Evidence {
            late_ns: window.late_ns(),
            waited_ns: window.waited_ns,
            steal_ns: (grown.steal_ns as f64 * share) as i64,
            softirq_ns: (grown.softirq_ns as f64 * share) as i64,
        };
        (*window, evidence)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use gauge_load::quiet::PROBE_PERIOD_NS;

    use super::*;
    use crate::disturbance::Disturbance;
    use crate::probes::Own;

    const MS: i64 = 1_000_000;

    fn window(seat: usize, from_ns: i64, late_ns: i64) -> Window {
        let to_ns = from_ns + PROBE_PERIOD_NS + late_ns;
        Window {
            seat,
            from_ns,
            due_ns: from_ns + PROBE_PERIOD_NS,
            to_ns,
            recovered_ns: to_ns,
            waited_ns: 0,
            oldest_due_ns: i64::MAX,
        }
    }

    fn stolen(steal_ns: i64) -> Account {
        Account {
            steal_ns,
            ..Account::default()
        }
    }

    #[test]
    fn what_was_stolen_is_shared_out_over_the_windows_of_that_time() {
        let windows = [window(0, 0, MS), window(0, 10 * MS, 3 * MS)];
        let shares: Vec<i64> = share_out(&windows, stolen(8 * MS))
            .map(|(_, evidence)| evidence.steal_ns)
            .collect();
        assert_eq!(shares, [2 * MS, 6 * MS]);
    }

    #[test]
    fn a_window_waits_until_its_account_is_entered_and_not_forever() {
        let board = Arc::new(Board::new(1, 1));
        board.looked(0, 0);
        board.turn_on();
        let seen = Seen(Arc::new(Mutex::new(Disturbance::new(vec![0], true))));
        let mut witness = Witness::new(
            vec![0],
            Arc::clone(&board),
            Arc::default(),
            Finder::new(Arc::new(Own::of(BTreeSet::new(), BTreeSet::new()))),
            seen.clone(),
        );
        board.window(&window(0, 100 * MS, 5 * MS));
        witness.look(107 * MS, vec![stolen(0)]);
        assert_eq!(seen.lock().settled_ns(), 100 * MS, "the tick may be on its way");
        board.looked(0, 127 * MS);
        witness.look(127 * MS, vec![stolen(10 * MS)]);
        assert_eq!(seen.lock().settled_ns(), 127 * MS);
        // A window is open: what is known ends where it began.
        witness.look(147 * MS, vec![stolen(10 * MS)]);
        assert_eq!(seen.lock().settled_ns(), 127 * MS);
        // One window after the other: they wait for a while only.
        let mut now_ns = 160 * MS;
        while seen.lock().settled_ns() < 160 * MS {
            board.window(&window(0, now_ns - 5 * MS, MS));
            board.looked(0, now_ns);
            witness.look(now_ns, vec![stolen(10 * MS)]);
            now_ns += 20 * MS;
            assert!(now_ns < 400 * MS);
        }
        let out = serde_json::to_value(seen.lock().take(0, 0, 120 * MS)).unwrap();
        assert_eq!(out["windows"][0]["cause"], "host");
        assert_eq!(out["windows"][0]["steal_s"], 0.01);
    }
}

//! Where the probes write what they see: one writer per CPU, any number of readers, and nobody ever waits.
//!
//! A probe that waited for a lock which a thread of lower priority holds would be late by its own fault. So each CPU has a ring of windows
//! that only its probe writes; a reader keeps its own place in it, and learns when it was lapped.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

use super::{PROBE_PERIOD_NS, Spans, recovery_ns};
use crate::mutants::{self, Mutant};

/// Windows of a CPU that are kept: those of 1.5 s, if there is one after the other.
const WINDOWS_MAX: u64 = 1024;
/// Samples of what is under way that are kept: those of 2 s.
const SAMPLES_MAX: u64 = 2048;
/// The value where nothing is under way.
pub const NOTHING_DUE_NS: i64 = i64::MAX;

/// A window of a CPU in which it was not to be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Index of the CPU's seat on the board.
    pub seat: usize,
    /// The probe's last wake-up before.
    pub from_ns: i64,
    /// When it should have woken up.
    pub due_ns: i64,
    /// When it did.
    pub to_ns: i64,
    /// When the CPU has recovered.
    pub recovered_ns: i64,
    /// For how much of it the probe could have run and was not let.
    pub waited_ns: i64,
    /// At `from_ns`, when the oldest message under way was due; [`NOTHING_DUE_NS`] if there was none.
    pub oldest_due_ns: i64,
}

impl Window {
    /// How late the probe was.
    pub fn late_ns(&self) -> i64 {
        self.to_ns - self.due_ns
    }
}

/// When the oldest message under way was due, at a wake-up that was on time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The wake-up.
    pub at_ns: i64,
    /// [`NOTHING_DUE_NS`] if there was none.
    pub oldest_due_ns: i64,
}

/// A window's values; the order is that of `Window`, less the seat.
#[derive(Debug, Default)]
struct Slot([AtomicI64; 6]);

/// One CPU's part. On cache lines of its own: each is written a thousand times a second.
#[derive(Debug)]
#[repr(align(128))]
struct Seat {
    /// What happened before is known: the last wake-up.
    looked_ns: AtomicI64,
    /// Windows so far.
    written: AtomicU64,
    slots: Box<[Slot]>,
    /// Utilisation in thousandths.
    busy: AtomicU32,
    /// CPU time of the probe.
    cpu_ns: AtomicI64,
}

impl Seat {
    /// A window by its number, unless it has been written over, or may be just now: the probe writes the window that follows
    /// the last one in the place of the oldest.
    fn read(&self, seat: usize, number: u64) -> Option<Window> {
        let values = &self.slots[(number % WINDOWS_MAX) as usize].0;
        let [from_ns, due_ns, to_ns, recovered_ns, waited_ns, oldest_due_ns] =
            [0, 1, 2, 3, 4, 5].map(|place: usize| values[place].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = self.written.load(Ordering::Relaxed) - number < WINDOWS_MAX;
        is_whole.then_some(Window {
            seat,
            from_ns,
            due_ns,
            to_ns,
            recovered_ns,
            waited_ns,
            oldest_due_ns,
        })
    }

    /// The last window that has been written, with its number; none if all places were written anew meanwhile.
    fn newest(&self, seat: usize) -> Option<(u64, Window)> {
        let number = self.written.load(Ordering::Acquire).checked_sub(1)?;
        Some((number, self.read(seat, number)?))
    }
}

/// A lane's part: when its oldest message under way was due.
#[derive(Debug)]
#[repr(align(128))]
struct Oldest(AtomicI64);

/// What all probes have seen.
#[derive(Debug)]
pub struct Board {
    seats: Box<[Seat]>,
    oldest: Box<[Oldest]>,
    samples: Box<[[AtomicI64; 2]]>,
    sampled: AtomicU64,
    is_on: AtomicBool,
    period_ns: i64,
    is_sampled: bool,
}

impl Board {
    /// A board for so many CPUs and lanes. It is off: nobody looks yet.
    pub fn new(cpus: usize, lanes: usize) -> Board {
        let seat = |_| Seat {
            looked_ns: AtomicI64::new(i64::MIN),
            written: AtomicU64::new(0),
            slots: (0..WINDOWS_MAX).map(|_| Slot::default()).collect(),
            busy: AtomicU32::new(500),
            cpu_ns: AtomicI64::new(0),
        };
        Board {
            seats: (0..cpus).map(seat).collect(),
            oldest: (0..lanes)
                .map(|_| Oldest(AtomicI64::new(NOTHING_DUE_NS)))
                .collect(),
            samples: (0..SAMPLES_MAX).map(|_| Default::default()).collect(),
            sampled: AtomicU64::new(0),
            is_on: AtomicBool::new(false),
            period_ns: PROBE_PERIOD_NS,
            is_sampled: false,
        }
    }

    /// The same board, for probes that wake up once in so long.
    #[must_use]
    pub fn every(mut self, period_ns: i64) -> Board {
        self.period_ns = period_ns;
        self
    }

    /// The same board, for probes that follow no messages.
    #[must_use]
    pub fn sampled_every(mut self, period_ns: i64) -> Board {
        self.is_sampled = true;
        self.every(period_ns)
    }

    /// Whether its probes follow no messages: how long windows are has to be right on average, and not each of them to hold all of the time for which a
    /// CPU may have been away.
    pub fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// How often its probes wake up.
    pub fn period_ns(&self) -> i64 {
        self.period_ns
    }

    /// All probes are at work.
    pub fn turn_on(&self) {
        self.is_on.store(true, Ordering::Release);
    }

    /// Whether all probes are at work.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// How many CPUs there are.
    pub fn cpus(&self) -> usize {
        self.seats.len()
    }

    /// A probe begins, or has woken up on time: up to now there is no window but those that were written.
    pub fn looked(&self, seat: usize, now_ns: i64) {
        self.seats[seat].looked_ns.store(now_ns, Ordering::Release);
    }

    /// A probe has woken up late. Only the probe of this seat may write here.
    pub fn window(&self, window: &Window) {
        let seat = &self.seats[window.seat];
        let written = seat.written.load(Ordering::Relaxed);
        let slot = &seat.slots[(written % WINDOWS_MAX) as usize];
        let values = [
            window.from_ns,
            window.due_ns,
            window.to_ns,
            window.recovered_ns,
            window.waited_ns,
            window.oldest_due_ns,
        ];
        for (place, value) in slot.0.iter().zip(values) {
            place.store(value, Ordering::Relaxed);
        }
        // In this order: whoever sees that the probe has looked sees the window.
        seat.written.store(written + 1, Ordering::Release);
        self.looked(window.seat, window.to_ns);
    }

    /// How long the CPU will take to recover from having been away.
    pub fn recovery_ns(&self, seat: usize, late_ns: i64) -> i64 {
        recovery_ns(
            late_ns,
            f64::from(self.seats[seat].busy.load(Ordering::Relaxed)) / 1000.0,
        )
    }

    /// Enters a CPU's utilisation, 0 to 1.
    pub fn set_busy(&self, seat: usize, rho: f64) {
        let thousandths = (rho.clamp(0.0, 1.0) * 1000.0) as u32;
        self.seats[seat].busy.store(thousandths, Ordering::Relaxed);
    }

    /// Enters the CPU time of a probe.
    pub fn set_cpu_ns(&self, seat: usize, cpu_ns: i64) {
        self.seats[seat].cpu_ns.store(cpu_ns, Ordering::Relaxed);
    }

    /// CPU time of all probes.
    pub fn cpu_ns(&self) -> i64 {
        self.seats
            .iter()
            .map(|seat| seat.cpu_ns.load(Ordering::Relaxed))
            .sum()
    }

    /// A lane tells when its oldest message under way was due.
    pub fn set_oldest_due_ns(&self, lane: usize, due_ns: i64) {
        let place = &self.oldest[lane].0;
        // Writing takes the cache line from the probes, which read it.
        if place.load(Ordering::Relaxed) != due_ns {
            place.store(due_ns, Ordering::Relaxed);
        }
    }

    /// When the oldest message under way was due, over all lanes.
    pub fn oldest_due_ns(&self) -> i64 {
        self.oldest
            .iter()
            .map(|lane| lane.0.load(Ordering::Relaxed))
            .min()
            .unwrap_or(NOTHING_DUE_NS)
    }

    /// A sample of it, by the first CPU's probe, and by no other.
    pub fn sample(&self, sample: Sample) {
        let sampled = self.sampled.load(Ordering::Relaxed);
        let place = &self.samples[(sampled % SAMPLES_MAX) as usize];
        place[0].store(sample.at_ns, Ordering::Relaxed);
        place[1].store(sample.oldest_due_ns, Ordering::Relaxed);
        self.sampled.store(sampled + 1, Ordering::Release);
    }

    /// Whether the probe of this seat has been away for longer than it may: a window is open, or is about to be written.
    pub fn is_overdue(&self, seat: usize, now_ns: i64) -> bool {
        let looked_ns = self.seats[seat].looked_ns.load(Ordering::Acquire);
        now_ns.saturating_sub(looked_ns) >= self.period_ns + super::LATE_NS_MIN
    }
}

/// A reader's place on the board.
#[derive(Debug)]
pub struct BoardReader {
    read: Vec<u64>,
    /// Up to where each seat's windows have been read.
    known_ns: Vec<i64>,
    sampled: u64,
}

impl BoardReader {
    /// A reader that begins with what is written from now on.
    pub fn new(board: &Board) -> BoardReader {
        BoardReader {
            known_ns: board
                .seats
                .iter()
                .map(|seat| seat.looked_ns.load(Ordering::Acquire))
                .collect(),
            read: board
                .seats
                .iter()
                .map(|seat| seat.written.load(Ordering::Acquire))
                .collect(),
            sampled: board.sampled.load(Ordering::Acquire),
        }
    }

    /// Until when everything is known: all windows that begin before it have been given to `take`, in their order. A
    /// reader that was lapped gives one window over all the time from what it knew to the newest window's end.
    pub fn read(&mut self, board: &Board, mut take: impl FnMut(Window)) -> i64 {
        let mut horizon_ns = i64::MAX;
        for (at, seat) in board.seats.iter().enumerate() {
            // The time first: the windows up to then are written.
            let looked_ns = seat.looked_ns.load(Ordering::Acquire);
            let written = seat.written.load(Ordering::Acquire);
            while self.read[at] < written {
                let window = match seat.read(at, self.read[at]) {
                    Some(window) => window,
                    None => {
                        let Some((newest, last)) = seat.newest(at) else {
                            continue;
                        };
                        let (from_ns, to_ns) = (self.known_ns[at], last.to_ns);
                        self.read[at] = newest;
                        Window {
                            from_ns,
                            due_ns: from_ns,
                            recovered_ns: to_ns + board.recovery_ns(at, to_ns - from_ns),
                            waited_ns: 0,
                            oldest_due_ns: NOTHING_DUE_NS,
                            ..last
                        }
                    }
                };
                self.read[at] += 1;
                self.known_ns[at] = window.to_ns;
                take(window);
            }
            // Windows that were written since the time was read are known already.
            self.known_ns[at] = self.known_ns[at].max(looked_ns);
            horizon_ns = horizon_ns.min(looked_ns);
        }
        horizon_ns
    }

    /// The samples since the last call; those that were overwritten meanwhile are missing.
    pub fn samples(&mut self, board: &Board, mut take: impl FnMut(Sample)) {
        let sampled = board.sampled.load(Ordering::Acquire);
        for number in self.sampled.max(sampled.saturating_sub(SAMPLES_MAX - 1))..sampled {
            let place = &board.samples[(number % SAMPLES_MAX) as usize];
            let (at_ns, oldest_due_ns) = (place[0].load(Ordering::Relaxed), place[1].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if board.sampled.load(Ordering::Relaxed) - number < SAMPLES_MAX {
                take(Sample { at_ns, oldest_due_ns });
            }
        }
        self.sampled = sampled;
    }

    /// Reads into spans.
    pub fn read_spans(&mut self, board: &Board, spans: &mut Spans) -> i64 {
        self.read(board, |window| {
            let until_ns = if mutants::is(Mutant::RecoveryForgotten) {
                window.to_ns
            } else {
                window.recovered_ns
            };
            spans.add(window.from_ns, until_ns);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(seat: usize, from_ns: i64, to_ns: i64) -> Window {
        Window {
            seat,
            from_ns,
            due_ns: from_ns + PROBE_PERIOD_NS,
            to_ns,
            recovered_ns: to_ns + 1,
            waited_ns: 0,
            oldest_due_ns: NOTHING_DUE_NS,
        }
    }

    #[test]
    fn what_is_known_ends_where_the_slowest_probe_has_looked() {
        let board = Board::new(2, 1);
        let mut reader = BoardReader::new(&board);
        board.looked(0, 50);
        assert_eq!(reader.read(&board, |_| panic!("no window")), i64::MIN);
        board.looked(1, 40);
        assert_eq!(reader.read(&board, |_| panic!("no window")), 40);
        let written = window(1, 40, 3_000_040);
        board.window(&written);
        let mut seen = Vec::new();
        assert_eq!(reader.read(&board, |window| seen.push(window)), 50);
        assert_eq!(seen, [written]);
        board.looked(0, 4_000_000);
        assert_eq!(reader.read(&board, |_| panic!("it was read")), 3_000_040);
        assert!(board.is_overdue(1, 4_600_000) && !board.is_overdue(0, 4_600_000));
    }

    #[test]
    fn a_reader_that_was_lapped_takes_all_the_time_for_disturbed() {
        let board = Board::new(1, 1);
        board.looked(0, 7);
        let mut reader = BoardReader::new(&board);
        for at in 0..3000 {
            board.window(&window(0, at * 10, at * 10 + 5));
        }
        let mut spans = Spans::default();
        assert_eq!(reader.read_spans(&board, &mut spans), 29_995);
        assert_eq!(spans.as_slice().len(), 1);
        let (from_ns, to_ns) = spans.as_slice()[0];
        assert!(from_ns == 7 && to_ns >= 29_995);
    }

    #[test]
    fn a_reader_that_is_lapped_while_it_reads_goes_on_from_where_it_was() {
        let board = Board::new(1, 1);
        board.looked(0, 0);
        let mut reader = BoardReader::new(&board);
        let mut times = 0..;
        let mut write = |windows: usize| {
            for at in times.by_ref().take(windows) {
                board.window(&window(0, at, at + 5));
            }
        };
        write(3);
        let mut seen = Vec::new();
        let mut take = |window: Window| {
            if seen.is_empty() {
                write(WINDOWS_MAX as usize + 10);
            }
            seen.push((window.from_ns, window.to_ns));
        };
        reader.read(&board, &mut take);
        reader.read(&board, &mut take);
        // The first window, one over what was missed, and nothing twice.
        let end_ns = WINDOWS_MAX as i64 + 17;
        assert_eq!(seen, [(0, 5), (5, end_ns)]);
    }

    #[test]
    fn readers_beside_a_writer_see_whole_windows() {
        let board = Board::new(1, 1);
        board.looked(0, 0);
        let (mut reader, mut slow) = (BoardReader::new(&board), BoardReader::new(&board));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for at in 1..200_000 {
                    board.window(&window(0, at, at + 5));
                    board.sample(Sample {
                        at_ns: at,
                        oldest_due_ns: at,
                    });
                }
            });
            let (mut known_ns, mut last, mut ended_ns) = (0, 0, 1);
            while known_ns < 200_004 {
                known_ns = reader.read(&board, |window| {
                    assert!(window.from_ns >= last, "in order");
                    // Each window of this writer begins within the one before it: nothing between two is missed.
                    assert!(window.from_ns <= ended_ns, "without a gap");
                    (last, ended_ns) = (window.from_ns, window.to_ns);
                    // Whole, unless it stands for what was missed.
                    assert!(
                        window.due_ns == window.from_ns + PROBE_PERIOD_NS || window.due_ns == window.from_ns
                    );
                    assert!(window.to_ns >= window.from_ns);
                });
                slow.samples(&board, |sample| assert_eq!(sample.at_ns, sample.oldest_due_ns));
            }
        });
    }

    #[test]
    fn the_oldest_of_all_lanes_counts() {
        let board = Board::new(1, 2);
        assert_eq!(board.oldest_due_ns(), NOTHING_DUE_NS);
        board.set_oldest_due_ns(1, 5);
        board.set_oldest_due_ns(0, 9);
        assert_eq!(board.oldest_due_ns(), 5);
    }
}

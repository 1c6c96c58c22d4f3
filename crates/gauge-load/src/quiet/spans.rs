//! Disturbed spans, and what they mean for a message.

/// Spans that are remembered: at the worst that a probe can see, one every 1.5 ms, those of 25 s; usually those of many minutes.
const SPANS_MAX: usize = 16_384;

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its latency is one of quiet time.
    Quiet,
    /// A span began at this time, while the message was under way.
    Censored(i64),
    /// It was due within a span.
    LeftOut,
    /// It was due before what is remembered.
    Unknown,
}

/// The union of disturbed spans: disjoint, in order.
#[derive(Clone, Debug)]
pub struct Spans {
    spans: Vec<(i64, i64)>,
    /// Spans that ended before this are forgotten.
    known_from_ns: i64,
    max: usize,
}

impl Default for Spans {
    fn default() -> Spans {
        Spans::remembering(SPANS_MAX)
    }
}

impl Spans {
    /// None yet; remembers `max` at most.
    pub fn remembering(max: usize) -> Spans {
        Spans {
            spans: Vec::with_capacity(max),
            known_from_ns: i64::MIN,
            max: max.max(2),
        }
    }

    /// Adds `[from_ns, to_ns)`, in any order. Spans that touch become one.
    pub fn add(&mut self, from_ns: i64, to_ns: i64) {
        if to_ns <= from_ns {
            return;
        }
        let first = self.spans.partition_point(|span| span.1 < from_ns);
        let until = self.spans.partition_point(|span| span.0 <= to_ns);
        if first < until {
            let from_ns = from_ns.min(self.spans[first].0);
            let to_ns = to_ns.max(self.spans[until - 1].1);
            self.spans[first] = (from_ns, to_ns);
            self.spans.drain(first + 1..until);
            return;
        }
        if self.spans.len() == self.max {
            self.forget(self.max / 2);
            self.add(from_ns, to_ns);
            return;
        }
        self.spans.insert(first, (from_ns, to_ns));
    }

    /// Forgets the oldest.
    fn forget(&mut self, count: usize) {
        self.known_from_ns = self.spans[count - 1].1;
        self.spans.drain(..count);
    }

    /// Forgets what ended before a time of which nobody will ask any more.
    pub fn forget_before(&mut self, ns: i64) {
        let count = self.spans.partition_point(|span| span.1 < ns);
        if count > 0 {
            self.forget(count);
        }
    }

    /// Whether no span touches what lies between the two times: messages that were all due after the one and answered before the other
    /// are quiet, all of them.
    #[inline]
    pub fn is_clear(&self, from_ns: i64, until_ns: i64) -> bool {
        if from_ns < self.known_from_ns {
            return false;
        }
        match self.spans.last() {
            None => true,
            Some(last) if last.1 <= from_ns => true,
            Some(_) => {
                let at = self.spans.partition_point(|span| span.1 <= from_ns);
                self.spans.get(at).is_none_or(|span| span.0 > until_ns)
            }
        }
    }

    /// What becomes of a message that began (was due, or was sent) and was answered at these times.
    #[inline]
    pub fn judge(&self, began_ns: i64, answered_ns: i64) -> Fate {
        if began_ns < self.known_from_ns {
            return Fate::Unknown;
        }
        let at = self.spans.partition_point(|span| span.1 <= began_ns);
        match self.spans.get(at) {
            Some(&(from_ns, _)) if from_ns <= began_ns => Fate::LeftOut,
            Some(&(from_ns, _)) if from_ns < answered_ns => Fate::Censored(from_ns),
            _ => Fate::Quiet,
        }
    }

    /// Whether a time lies in a span.
    pub fn contains(&self, ns: i64) -> bool {
        let at = self.spans.partition_point(|span| span.1 <= ns);
        self.spans.get(at).is_some_and(|span| span.0 <= ns)
    }

    /// How much of `[from_ns, to_ns)` is disturbed.
    pub fn within_ns(&self, from_ns: i64, to_ns: i64) -> i64 {
        let at = self.spans.partition_point(|span| span.1 <= from_ns);
        self.spans[at..]
            .iter()
            .take_while(|span| span.0 < to_ns)
            .map(|span| span.1.min(to_ns) - span.0.max(from_ns))
            .sum()
    }

    /// The spans.
    pub fn as_slice(&self) -> &[(i64, i64)] {
        &self.spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator of numbers for tests.
    fn numbers(seed: u64) -> impl FnMut(i64) -> i64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below.unsigned_abs()).cast_signed()
        }
    }

    /// The same, said as the definition says it: any window that holds the due time, else the first that begins before the answer.
    fn model(windows: &[(i64, i64)], began_ns: i64, answered_ns: i64) -> Fate {
        if windows
            .iter()
            .any(|w| w.0 < w.1 && w.0 <= began_ns && began_ns < w.1)
        {
            return Fate::LeftOut;
        }
        windows
            .iter()
            .filter(|w| w.0 < w.1 && w.0 > began_ns && w.0 < answered_ns)
            .map(|w| w.0)
            .min()
            .map_or(Fate::Quiet, Fate::Censored)
    }

    #[test]
    fn a_message_is_judged_as_the_definition_says_in_whatever_order_windows_come() {
        for seed in 1..400 {
            let mut number = numbers(seed);
            let mut windows = Vec::new();
            let mut spans = Spans::default();
            for _ in 0..number(12) {
                let from = number(200);
                let window = (from, from + number(30));
                windows.push(window);
                spans.add(window.0, window.1);
            }
            assert!(
                spans.as_slice().windows(2).all(|pair| pair[0].1 < pair[1].0),
                "{:?}",
                spans.as_slice()
            );
            for _ in 0..200 {
                let began = number(240) - 10;
                let answered = began + number(80);
                let expected = model(&windows, began, answered);
                assert_eq!(
                    spans.judge(began, answered),
                    expected,
                    "{windows:?} {began} {answered}"
                );
                if spans.is_clear(began, answered) {
                    assert_eq!(expected, Fate::Quiet);
                }
                assert_eq!(
                    spans.contains(began),
                    expected == Fate::LeftOut,
                    "{windows:?} {began}"
                );
            }
            let disturbed = (-10..250).filter(|&ns| spans.contains(ns)).count() as i64;
            assert_eq!(spans.within_ns(-10, 250), disturbed);
        }
    }

    #[test]
    fn what_is_forgotten_is_unknown_and_not_quiet() {
        let mut spans = Spans::remembering(4);
        for at in 0..10 {
            spans.add(at * 100, at * 100 + 10);
        }
        assert!(spans.as_slice().len() <= 4);
        assert_eq!(spans.judge(50, 60), Fate::Unknown);
        assert!(!spans.is_clear(50, 60));
        assert_eq!(spans.judge(950, 960), Fate::Quiet);
        assert_eq!(spans.judge(850, 960), Fate::Censored(900));
        spans.forget_before(1000);
        assert_eq!(spans.judge(905, 960), Fate::Unknown);
    }
}

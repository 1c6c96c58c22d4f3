//! Where a partition's records lie, chunk by chunk, and of which time they are at most.
//!
//! A time is looked for by halving, as an offset is: beside its own largest timestamp each mark has the largest one up to there, which never falls from one mark to the next.

use std::ops::Deref;

/// A chunk that holds records of the partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Offset of the first record in the chunk.
    pub first_offset: i64,
    /// Start of the chunk.
    pub chunk: u64,
    /// No record from here to the next mark has a larger timestamp, ms.
    pub timestamp_ms_max: i64,
    /// No record from the first mark to the next one has a larger timestamp, ms.
    rising_ms: i64,
}

impl Mark {
    /// A mark that is not among others yet.
    pub fn new(first_offset: i64, chunk: u64, timestamp_ms_max: i64) -> Self {
        Self {
            first_offset,
            chunk,
            timestamp_ms_max,
            rising_ms: timestamp_ms_max,
        }
    }
}

/// A partition's marks, ascending.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Marks(Vec<Mark>);

impl Deref for Marks {
    type Target = [Mark];

    fn deref(&self) -> &[Mark] {
        &self.0
    }
}

impl Marks {
    /// Adds a mark behind the others.
    pub fn push(&mut self, first_offset: i64, chunk: u64, timestamp_ms_max: i64) {
        let mut mark = Mark::new(first_offset, chunk, timestamp_ms_max);
        mark.rising_ms = mark.rising_ms.max(self.newest_before(self.0.len()));
        self.0.push(mark);
    }

    /// Notes a record's timestamp in the last mark if that reaches to `chunk`; false when there is no such mark.
    pub fn raise_last(&mut self, chunk: u64, timestamp_ms: i64) -> bool {
        let Some(last) = self.0.last_mut().filter(|last| last.chunk >= chunk) else {
            return false;
        };
        last.timestamp_ms_max = last.timestamp_ms_max.max(timestamp_ms);
        last.rising_ms = last.rising_ms.max(timestamp_ms);
        true
    }

    /// Forgets every second mark; the one before it stands for its records as well.
    pub fn thin(&mut self) {
        let pairs = self.0.chunks(2).map(|pair| {
            let last = pair[pair.len() - 1];
            Mark {
                timestamp_ms_max: pair[0].timestamp_ms_max.max(last.timestamp_ms_max),
                rising_ms: last.rising_ms,
                ..pair[0]
            }
        });
        self.0 = pairs.collect();
    }

    /// Forgets the first `count` marks.
    pub fn forget_first(&mut self, count: usize) {
        self.0.drain(..count);
        if count > 0 {
            self.mend(0);
        }
    }

    /// Forgets what times there are: any may be anywhere.
    pub fn forget_times(&mut self) {
        for mark in &mut self.0 {
            (mark.timestamp_ms_max, mark.rising_ms) = (i64::MAX, i64::MAX);
        }
    }

    /// Notes that no record of a mark has a larger timestamp than this one.
    pub fn lower(&mut self, index: usize, timestamp_ms_max: i64) {
        let mark = &mut self.0[index];
        mark.timestamp_ms_max = mark.timestamp_ms_max.min(timestamp_ms_max);
        self.mend(index);
    }

    /// Computes what rises anew from a mark on, up to one that it does not change.
    fn mend(&mut self, from: usize) {
        let mut newest = self.newest_before(from);
        for mark in &mut self.0[from..] {
            newest = newest.max(mark.timestamp_ms_max);
            if mark.rising_ms == newest {
                return;
            }
            mark.rising_ms = newest;
        }
    }

    /// The largest timestamp of the marks before that one; the smallest possible for the first.
    pub fn newest_before(&self, index: usize) -> i64 {
        index
            .checked_sub(1)
            .map_or(i64::MIN, |last| self.0[last].rising_ms)
    }

    /// The first mark that may have a record of this time or a later one.
    pub fn first_reaching(&self, timestamp_ms: i64) -> Option<&Mark> {
        self.0
            .get(self.0.partition_point(|mark| mark.rising_ms < timestamp_ms))
    }

    /// The mark of a chunk.
    pub fn index_of(&self, chunk: u64) -> Option<usize> {
        self.0.binary_search_by_key(&chunk, |mark| mark.chunk).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(times: &[i64]) -> Marks {
        let mut marks = Marks::default();
        for (at, &time) in times.iter().enumerate() {
            marks.push(at as i64 * 10, at as u64 * 4096, time);
        }
        marks
    }

    fn plainly(marks: &Marks, time: i64) -> Option<u64> {
        let found = marks.iter().find(|mark| mark.timestamp_ms_max >= time);
        found.map(|mark| mark.chunk)
    }

    fn agree(marks: &Marks) {
        for time in 0..12 {
            let found = marks.first_reaching(time).map(|mark| mark.chunk);
            assert_eq!(found, plainly(marks, time), "time {time} in {marks:?}");
        }
    }

    #[test]
    fn halving_finds_the_first_mark_of_a_time_whatever_happens_to_them() {
        let mut random = 1u64;
        for _ in 0..500 {
            let mut next = |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % below
            };
            let times: Vec<i64> = (0..next(20)).map(|_| next(10) as i64).collect();
            let mut marks = marks(&times);
            agree(&marks);
            for _ in 0..6 {
                match next(5) {
                    0 => marks.forget_first(next(marks.len() as u64 + 1) as usize),
                    1 => marks.thin(),
                    2 if !marks.is_empty() => {
                        let index = next(marks.len() as u64) as usize;
                        marks.lower(index, next(10) as i64);
                    }
                    3 => drop(marks.raise_last(0, next(12) as i64)),
                    _ => marks.push(
                        1000,
                        marks.last().map_or(0, |mark| mark.chunk + 4096),
                        next(12) as i64,
                    ),
                }
                agree(&marks);
            }
        }
    }
}

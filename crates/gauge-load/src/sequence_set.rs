//! Sets of sequence numbers, exact, in bounded memory.
//!
//! Sequences run from 0 without gaps, so a set of those received is nearly full nearly everywhere. [`SequenceSet`] cuts them
//! into chunks of 65,536; a full chunk costs 16 bytes, a partial one 8 KiB. A billion messages with nothing missing take 250 KB, and
//! in the worst case (something missing from every chunk) a bit each, 125 MB. [`RangeSet`] is for the few: messages
//! without an acknowledgement come in long runs.

const CHUNK_BITS: u64 = 65_536;
const CHUNK_WORDS: usize = (CHUNK_BITS / 64) as usize;

/// Sequences at or beyond this do not exist: a stamp that claims one is not ours. It bounds the table of chunks to 16 MB.
pub const SEQUENCE_END: u64 = 1 << 36;

const TAG_EMPTY: u8 = 0;
const TAG_FULL: u8 = 1;
const TAG_PARTIAL: u8 = 2;

type Words = [u64; CHUNK_WORDS];

#[derive(Clone, Debug)]
enum Chunk {
    Empty,
    Partial(Box<Partial>),
    Full,
}

#[derive(Clone, Debug)]
struct Partial {
    count: u32,
    words: Words,
}

impl Chunk {
    fn count(&self) -> u64 {
        match self {
            Chunk::Empty => 0,
            Chunk::Partial(partial) => u64::from(partial.count),
            Chunk::Full => CHUNK_BITS,
        }
    }

    fn word(&self, at: usize) -> u64 {
        match self {
            Chunk::Empty => 0,
            Chunk::Partial(partial) => partial.words[at],
            Chunk::Full => u64::MAX,
        }
    }
}

/// A set of sequences that is expected to fill up.
#[derive(Clone, Debug, Default)]
pub struct SequenceSet {
    chunks: Vec<Chunk>,
}

impl SequenceSet {
    /// The empty set.
    pub fn new() -> SequenceSet {
        SequenceSet::default()
    }

    /// Adds a sequence below [`SEQUENCE_END`]; false when it was there.
    #[inline]
    pub fn insert(&mut self, sequence: u64) -> bool {
        assert!(
            sequence < SEQUENCE_END,
            "the caller has compared the sequence with the end"
        );
        let index = (sequence / CHUNK_BITS) as usize;
        if index >= self.chunks.len() {
            self.chunks.resize(index + 1, Chunk::Empty);
        }
        let chunk = &mut self.chunks[index];
        let partial = match chunk {
            Chunk::Full => return false,
            Chunk::Partial(partial) => partial,
            Chunk::Empty => {
                *chunk = Chunk::Partial(Box::new(Partial {
                    count: 0,
                    words: [0; CHUNK_WORDS],
                }));
                let Chunk::Partial(partial) = chunk else {
                    unreachable!("it was written in the line above")
                };
                partial
            }
        };
        let bit = sequence % CHUNK_BITS;
        let word = &mut partial.words[(bit / 64) as usize];
        let mask = 1 << (bit % 64);
        if *word & mask != 0 {
            return false;
        }
        *word |= mask;
        partial.count += 1;
        if u64::from(partial.count) == CHUNK_BITS {
            *chunk = Chunk::Full;
        }
        true
    }

    /// Whether a sequence is in the set.
    pub fn contains(&self, sequence: u64) -> bool {
        self.chunks
            .get((sequence / CHUNK_BITS) as usize)
            .is_some_and(|chunk| {
                chunk.word((sequence % CHUNK_BITS / 64) as usize) & (1 << (sequence % 64)) != 0
            })
    }

    /// How many sequences.
    pub fn len(&self) -> u64 {
        self.chunks.iter().map(Chunk::count).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds another set; returns how many sequences were in both.
    pub fn unite(&mut self, other: &SequenceSet) -> u64 {
        let before = self.len() + other.len();
        if self.chunks.len() < other.chunks.len() {
            self.chunks.resize(other.chunks.len(), Chunk::Empty);
        }
        for (mine, theirs) in self.chunks.iter_mut().zip(&other.chunks) {
            match (&mut *mine, theirs) {
                (Chunk::Full, _) | (_, Chunk::Empty) => {}
                (Chunk::Empty, _) | (_, Chunk::Full) => *mine = theirs.clone(),
                (Chunk::Partial(mine_partial), Chunk::Partial(their_partial)) => {
                    let mut count = 0;
                    for (word, their_word) in mine_partial.words.iter_mut().zip(&their_partial.words) {
                        *word |= their_word;
                        count += word.count_ones();
                    }
                    mine_partial.count = count;
                    if u64::from(count) == CHUNK_BITS {
                        *mine = Chunk::Full;
                    }
                }
            }
        }
        before - self.len()
    }

    /// The runs of sequences in `0..end` that are not in the set, in order, as half-open ranges.
    pub fn missing_below(&self, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        Missing {
            set: self,
            at: 0,
            end,
        }
    }

    /// The set as bytes: per chunk a tag (0 empty, 1 full, 2 partial), behind a partial one its words, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.chunks.len());
        for chunk in &self.chunks {
            match chunk {
                Chunk::Empty => bytes.push(TAG_EMPTY),
                Chunk::Full => bytes.push(TAG_FULL),
                Chunk::Partial(partial) => {
                    bytes.push(TAG_PARTIAL);
                    bytes.extend(partial.words.iter().flat_map(|word| word.to_le_bytes()));
                }
            }
        }
        bytes
    }

    /// The set that `to_bytes` wrote; None when the bytes are something else.
    pub fn from_bytes(bytes: &[u8]) -> Option<SequenceSet> {
        let mut chunks = Vec::new();
        let mut rest = bytes;
        while let Some((tag, behind)) = rest.split_first() {
            rest = behind;
            chunks.push(match *tag {
                TAG_EMPTY => Chunk::Empty,
                TAG_FULL => Chunk::Full,
                TAG_PARTIAL => {
                    let (words_bytes, behind) = rest.split_at_checked(CHUNK_WORDS * 8)?;
                    rest = behind;
                    let mut words = [0; CHUNK_WORDS];
                    for (word, bytes) in words.iter_mut().zip(words_bytes.chunks_exact(8)) {
                        *word = u64::from_le_bytes(bytes.try_into().ok()?);
                    }
                    let count = words.iter().map(|word| word.count_ones()).sum();
                    Chunk::Partial(Box::new(Partial { count, words }))
                }
                _ => return None,
            });
            if chunks.len() as u64 * CHUNK_BITS > SEQUENCE_END {
                return None;
            }
        }
        Some(SequenceSet { chunks })
    }

    /// The largest sequence in the set.
    pub fn last(&self) -> Option<u64> {
        for (index, chunk) in self.chunks.iter().enumerate().rev() {
            for at in (0..CHUNK_WORDS).rev() {
                let word = chunk.word(at);
                if word != 0 {
                    let bit = 63 - u64::from(word.leading_zeros());
                    return Some(index as u64 * CHUNK_BITS + at as u64 * 64 + bit);
                }
                if matches!(chunk, Chunk::Empty) {
                    break;
                }
            }
        }
        None
    }

    /// The first sequence from `from` on that is (`present`) or is not in the set; None when there is none before `end`.
    fn find(&self, from: u64, end: u64, present: bool) -> Option<u64> {
        let mut at = from;
        while at < end {
            let Some(chunk) = self.chunks.get((at / CHUNK_BITS) as usize) else {
                return if present { None } else { Some(at) };
            };
            let skips = match chunk {
                Chunk::Empty => present,
                Chunk::Full => !present,
                Chunk::Partial(_) => false,
            };
            if skips {
                at = (at / CHUNK_BITS + 1) * CHUNK_BITS;
                continue;
            }
            let word = chunk.word((at % CHUNK_BITS / 64) as usize);
            let wanted = (if present { word } else { !word }) >> (at % 64);
            if wanted != 0 {
                let found = at + u64::from(wanted.trailing_zeros());
                return (found < end).then_some(found);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

struct Missing<'a> {
    set: &'a SequenceSet,
    at: u64,
    end: u64,
}

impl Iterator for Missing<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let from = self.set.find(self.at, self.end, false)?;
        let until = self.set.find(from, self.end, true).unwrap_or(self.end);
        self.at = until;
        Some((from, until))
    }
}

/// A set of sequences that come in runs: half-open ranges, sorted, apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: std::collections::BTreeMap<u64, u64>,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> RangeSet {
        RangeSet::default()
    }

    /// Adds `from..until`; what was there stays.
    pub fn insert(&mut self, from: u64, until: u64) {
        if from >= until {
            return;
        }
        let (mut from, mut until) = (from, until);
        // Every range that touches the new one is joined with it.
        while let Some((&start, &end)) = self.ranges.range(..=until).next_back() {
            if end < from {
                break;
            }
            from = from.min(start);
            until = until.max(end);
            self.ranges.remove(&start);
        }
        self.ranges.insert(from, until);
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(&from, &until)| (from, until))
    }

    /// How many sequences.
    pub fn len(&self) -> u64 {
        self.ranges().map(|(from, until)| until - from).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many of `from..until` are in the set.
    pub fn overlap(&self, from: u64, until: u64) -> u64 {
        let before = self
            .ranges
            .range(..from)
            .next_back()
            .map(|(&start, &end)| (start, end));
        before
            .into_iter()
            .chain(self.ranges.range(from..until).map(|(&start, &end)| (start, end)))
            .map(|(start, end)| end.min(until).saturating_sub(start.max(from)))
            .sum()
    }

    /// The parts of `from..until` that are not in the set.
    pub fn gaps(&self, from: u64, until: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = from;
        let first = self
            .ranges
            .range(..=from)
            .next_back()
            .map_or(from, |(&start, _)| start);
        for (&start, &end) in self.ranges.range(first..until) {
            if start > at {
                gaps.push((at, start));
            }
            at = at.max(end);
        }
        if at < until {
            gaps.push((at, until));
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_sequence_set_is_a_set(values in proptest::collection::vec(0..300_000u64, 0..400), more in proptest::collection::vec(0..300_000u64, 0..400)) {
            let mut set = SequenceSet::new();
            let mut model = BTreeSet::new();
            for value in values {
                prop_assert_eq!(set.insert(value), model.insert(value));
            }
            let mut other = SequenceSet::new();
            let other_model: BTreeSet<u64> = more.iter().copied().collect();
            for value in &other_model {
                other.insert(*value);
            }
            let both = model.intersection(&other_model).count() as u64;
            prop_assert_eq!(set.unite(&other), both);
            model.extend(&other_model);
            prop_assert_eq!(set.len(), model.len() as u64);
            prop_assert_eq!(set.last(), model.last().copied());
            let travelled = SequenceSet::from_bytes(&set.to_bytes()).unwrap();
            prop_assert_eq!(travelled.len(), set.len());
            prop_assert_eq!(travelled.missing_below(310_000).collect::<Vec<_>>(), set.missing_below(310_000).collect::<Vec<_>>());
            let end = 290_000;
            let missing: u64 = set.missing_below(end).map(|(from, until)| until - from).sum();
            prop_assert_eq!(missing, end - model.range(..end).count() as u64);
            for (from, until) in set.missing_below(end).take(50) {
                prop_assert!(from < until && !set.contains(from) && !set.contains(until - 1));
                prop_assert!(until == end || set.contains(until));
            }
        }

        #[test]
        fn a_range_set_is_a_set(ranges in proptest::collection::vec((0..200u64, 0..20u64), 0..40), from in 0..220u64, length in 0..60u64) {
            let mut set = RangeSet::new();
            let mut model = BTreeSet::new();
            for (start, length) in ranges {
                set.insert(start, start + length);
                model.extend(start..start + length);
            }
            prop_assert_eq!(set.len(), model.len() as u64);
            let inside = model.range(from..from + length).count() as u64;
            prop_assert_eq!(set.overlap(from, from + length), inside);
            let gaps: u64 = set.gaps(from, from + length).iter().map(|(a, b)| b - a).sum();
            prop_assert_eq!(gaps, length - inside);
        }
    }

    #[test]
    fn full_chunks_take_no_words() {
        let mut set = SequenceSet::new();
        for sequence in 0..10 * CHUNK_BITS {
            assert!(set.insert(sequence));
        }
        assert!(set.chunks.iter().all(|chunk| matches!(chunk, Chunk::Full)));
        assert_eq!(set.missing_below(10 * CHUNK_BITS).count(), 0);
        assert_eq!(
            set.missing_below(10 * CHUNK_BITS + 5).collect::<Vec<_>>(),
            [(655_360, 655_365)]
        );
    }
}

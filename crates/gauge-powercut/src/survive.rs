//! What of the un-synced data a power cut leaves.

use crate::extents::Extents;

/// Bytes that a disk writes or does not write as a whole.
pub const SECTOR_BYTES: u64 = 512;

/// Which un-synced data survives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Survive {
    /// None: the worst case.
    Nothing,
    /// Per file, what was dirtied first, up to a random place at the end of a sector.
    Torn {
        /// Makes it repeatable.
        seed: u64,
    },
    /// Each sector by itself with this probability, so that writes survive out of order.
    Random {
        /// Probability, 0 to 1.
        keep: f64,
        /// Makes it repeatable.
        seed: u64,
    },
    /// As `Random`, for each write since the last sync by itself, so that a sector may be left as it was between two of them. For disks in memory, which remember them.
    Versions {
        /// Probability, 0 to 1.
        keep: f64,
        /// Makes it repeatable.
        seed: u64,
    },
}

impl Survive {
    /// The part of `dirty` that survives in file `id`.
    pub fn choose(self, dirty: &Extents, id: u64) -> Extents {
        match self {
            Survive::Nothing => Extents::default(),
            Survive::Torn { seed } => torn(dirty, &mut generator(seed, id, 0)),
            Survive::Random { keep, seed } | Survive::Versions { keep, seed } => {
                random(dirty, |sector| generator(seed, id, sector + 1).f64() < keep)
            }
        }
    }
}

/// One generator per place, so that a decision does not depend on the order in which places are looked at.
fn generator(seed: u64, id: u64, place: u64) -> fastrand::Rng {
    let mut generator = fastrand::Rng::with_seed(seed);
    for part in [id, place] {
        generator = fastrand::Rng::with_seed(generator.u64(..) ^ part.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    }
    generator
}

fn sector_end(position: u64) -> u64 {
    (position / SECTOR_BYTES + 1) * SECTOR_BYTES
}

fn sectors(start: u64, end: u64) -> u64 {
    end.div_ceil(SECTOR_BYTES) - start / SECTOR_BYTES
}

fn torn(dirty: &Extents, generator: &mut fastrand::Rng) -> Extents {
    let ranges = dirty.by_order();
    let total: u64 = ranges.iter().map(|&(start, end)| sectors(start, end)).sum();
    let mut left = generator.u64(0..=total);
    let mut kept = Extents::default();
    for (start, end) in ranges {
        let here = sectors(start, end).min(left);
        let until = (start / SECTOR_BYTES + here) * SECTOR_BYTES;
        kept.insert(start, until.clamp(start, end), 0);
        left -= here;
    }
    kept
}

fn random(dirty: &Extents, keep: impl Fn(u64) -> bool) -> Extents {
    let mut kept = Extents::default();
    for (start, end) in dirty.ranges() {
        let mut position = start;
        while position < end {
            let next = sector_end(position).min(end);
            if keep(position / SECTOR_BYTES) {
                kept.insert(position, next, 0);
            }
            position = next;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_write_keeps_whole_sectors_from_its_start() {
        let mut dirty = Extents::default();
        dirty.insert(100, 3000, 1);
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let kept: Vec<_> = Survive::Torn { seed }.choose(&dirty, 1).ranges().collect();
            match kept[..] {
                [] => seen.insert(0),
                [(100, end)] => {
                    assert!(end == 3000 || end % SECTOR_BYTES == 0);
                    seen.insert(end)
                }
                _ => panic!("{kept:?}"),
            };
        }
        assert_eq!(
            seen.into_iter().collect::<Vec<_>>(),
            [0, 512, 1024, 1536, 2048, 2560, 3000]
        );
    }

    #[test]
    fn the_same_seed_keeps_the_same() {
        let mut dirty = Extents::default();
        dirty.insert(0, 1 << 20, 1);
        let kept = |seed| {
            Survive::Random { keep: 0.25, seed }
                .choose(&dirty, 9)
                .ranges()
                .collect::<Vec<_>>()
        };
        assert_eq!(kept(3), kept(3));
        assert_ne!(kept(3), kept(4));
        let share = kept(3).iter().map(|(start, end)| end - start).sum::<u64>() as f64 / f64::from(1 << 20);
        assert!((0.2..0.3).contains(&share), "{share}");
    }
}

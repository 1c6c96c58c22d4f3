//! What of the un-synced data a power cut leaves.

use std::collections::BTreeMap;

use crate::extents::Extents;
use crate::versions::Piece;

/// Bytes that a disk writes or does not write as a whole, unless it is told otherwise: what every disk promises.
pub const SECTOR_BYTES: u64 = 512;
/// Larger blocks than this are no disk's.
pub const BLOCK_BYTES_MAX: u64 = 1 << 20;

/// Which un-synced data survives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Survive {
    /// None: the worst case for what was promised, and the easiest for recovery.
    Nothing,
    /// All of it.
    Everything,
    /// What was written to the disk up to a random write, over all files in the order of the writes.
    Prefix {
        /// Makes it repeatable.
        seed: u64,
    },
    /// As `Prefix`, up to the write with this number.
    Until {
        /// Number of the last write that survives.
        order: u64,
    },
    /// Per file, what was dirtied first, up to a random place at the end of a block.
    Torn {
        /// Makes it repeatable.
        seed: u64,
    },
    /// Each block by itself with this probability, so that writes survive out of order.
    Random {
        /// Probability, 0 to 1.
        keep: f64,
        /// Makes it repeatable.
        seed: u64,
    },
    /// As `Random`, and a block that survives is as it was after any of the writes to it, so that it may be left as it was between two of them.
    Versions {
        /// Probability, 0 to 1.
        keep: f64,
        /// Makes it repeatable.
        seed: u64,
    },
}

/// The last write: all of what is there.
const NEWEST: u64 = u64::MAX;

impl Survive {
    /// What survives of `dirty` in file `id`: its parts in order, each with the last write that it may show. `writes` tells which writes went to a block.
    pub fn pieces(
        self,
        dirty: &Extents,
        writes: impl FnOnce() -> BTreeMap<u64, Vec<u64>>,
        id: u64,
        block_bytes: u64,
    ) -> Vec<Piece> {
        let whole = |last| dirty.ranges().map(|(start, end)| (start, end, last)).collect();
        match self {
            Survive::Nothing | Survive::Prefix { .. } => whole(0),
            Survive::Everything => whole(NEWEST),
            Survive::Until { order } => whole(order),
            Survive::Torn { seed } => torn(dirty, &mut generator(seed, id, 0), block_bytes)
                .ranges()
                .map(|(start, end)| (start, end, NEWEST))
                .collect(),
            Survive::Random { keep, seed } => by_blocks(dirty, block_bytes, |block| {
                if generator(seed, id, block + 1).f64() < keep {
                    NEWEST
                } else {
                    0
                }
            }),
            Survive::Versions { keep, seed } => {
                let writes = writes();
                by_blocks(dirty, block_bytes, |block| {
                    let mut generator = generator(seed, id, block + 1);
                    match writes.get(&block) {
                        Some(orders) if generator.f64() < keep => orders[generator.usize(..orders.len())],
                        _ => 0,
                    }
                })
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

fn blocks(start: u64, end: u64, block_bytes: u64) -> u64 {
    end.div_ceil(block_bytes) - start / block_bytes
}

fn torn(dirty: &Extents, generator: &mut fastrand::Rng, block_bytes: u64) -> Extents {
    let ranges = dirty.by_order();
    let total: u64 = ranges
        .iter()
        .map(|&(start, end)| blocks(start, end, block_bytes))
        .sum();
    let mut left = generator.u64(0..=total);
    let mut kept = Extents::default();
    for (start, end) in ranges {
        let here = blocks(start, end, block_bytes).min(left);
        let until = (start / block_bytes + here) * block_bytes;
        kept.insert(start, until.clamp(start, end), 0);
        left -= here;
    }
    kept
}

fn by_blocks(dirty: &Extents, block_bytes: u64, last: impl Fn(u64) -> u64) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (start, end) in dirty.ranges() {
        let mut position = start;
        while position < end {
            let next = ((position / block_bytes + 1) * block_bytes).min(end);
            pieces.push((position, next, last(position / block_bytes)));
            position = next;
        }
    }
    pieces
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
            let kept = Survive::Torn { seed }.pieces(&dirty, BTreeMap::new, 1, SECTOR_BYTES);
            match kept[..] {
                [] => seen.insert(0),
                [(100, end, NEWEST)] => {
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
            let pieces = Survive::Random { keep: 0.25, seed }.pieces(&dirty, BTreeMap::new, 9, SECTOR_BYTES);
            pieces
                .into_iter()
                .filter(|&(_, _, last)| last > 0)
                .collect::<Vec<_>>()
        };
        assert_eq!(kept(3), kept(3));
        assert_ne!(kept(3), kept(4));
        let share =
            kept(3).iter().map(|(start, end, _)| end - start).sum::<u64>() as f64 / f64::from(1 << 20);
        assert!((0.2..0.3).contains(&share), "{share}");
    }
}

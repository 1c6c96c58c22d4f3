//! Sets of byte ranges that know in which order their bytes were written.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    end: u64,
    /// Order of the first and of the last write of which the range consists.
    first: u64,
    last: u64,
}

/// Byte ranges `[start, end)` without overlap, each with the order of its writes. A later write takes over what it covers.
#[derive(Clone, Debug, Default)]
pub struct Extents {
    map: BTreeMap<u64, Extent>,
    bytes: u64,
    /// Order of the write that was entered last.
    latest: u64,
}

impl Extents {
    /// Bytes in all ranges.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there is no range.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Removes all ranges.
    pub fn clear(&mut self) {
        self.map.clear();
        self.bytes = 0;
    }

    /// End of the last range, 0 without ranges.
    pub fn end(&self) -> u64 {
        self.map.last_key_value().map_or(0, |(_, extent)| extent.end)
    }

    /// Adds `[start, end)`, written as number `order`. What goes on where the write before it (of this set) ended joins its range, so
    /// that appending costs no memory.
    pub fn insert(&mut self, start: u64, end: u64, order: u64) {
        if start >= end {
            return;
        }
        self.remove(start, end);
        self.bytes += end - start;
        let before_this = std::mem::replace(&mut self.latest, order);
        let mut start = start;
        let mut extent = Extent {
            end,
            first: order,
            last: order,
        };
        if let Some((&before, previous)) = self.map.range(..start).next_back()
            && previous.end == start
            && (previous.last == order || previous.last == before_this)
        {
            extent.first = previous.first;
            start = before;
        }
        if let Some(next) = self.map.get(&end).copied()
            && next.first == order
        {
            extent.end = next.end;
            extent.last = next.last;
            self.map.remove(&end);
        }
        self.map.insert(start, extent);
    }

    /// Removes `[start, end)`.
    pub fn remove(&mut self, start: u64, end: u64) {
        let touched: Vec<(u64, Extent)> = self.touching(start, end).collect();
        for (from, extent) in touched {
            self.map.remove(&from);
            self.bytes -= extent.end.min(end) - from.max(start);
            if from < start {
                self.map.insert(from, Extent { end: start, ..extent });
            }
            if extent.end > end {
                self.map.insert(end, extent);
            }
        }
    }

    fn touching(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, Extent)> + '_ {
        let before = self.map.range(..start).next_back();
        let from = match before {
            Some((&from, extent)) if extent.end > start => from,
            _ => start,
        };
        let until = end.max(from);
        self.map.range(from..until).map(|(&from, &extent)| (from, extent))
    }

    /// The parts of `[start, end)` that are in the set.
    pub fn within(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.touching(start, end)
            .map(|(from, extent)| (from.max(start), extent.end.min(end)))
            .collect()
    }

    /// The parts of `[start, end)` that are not in the set.
    pub fn gaps(&self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut position = start;
        for (from, until) in self.within(start, end) {
            if from > position {
                gaps.push((position, from));
            }
            position = until;
        }
        if position < end {
            gaps.push((position, end));
        }
        gaps
    }

    /// All ranges, by place.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.map.iter().map(|(&start, extent)| (start, extent.end))
    }

    /// All ranges, by place, with the order of their first write.
    pub fn ranges_with_order(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.map
            .iter()
            .map(|(&start, extent)| (start, extent.end, extent.first))
    }

    /// All ranges in the order in which they were written.
    pub fn by_order(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64, u64)> = self
            .map
            .iter()
            .map(|(&start, extent)| (extent.first, start, extent.end))
            .collect();
        ranges.sort_unstable();
        ranges.into_iter().map(|(_, start, end)| (start, end)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_of_ranges_is_a_set_of_bytes(
            steps in prop::collection::vec((0u64..64, 0u64..32, prop::bool::ANY), 1..40),
        ) {
            let mut extents = Extents::default();
            let mut bytes = [0u64; 128];
            for (order, &(start, length, add)) in steps.iter().enumerate() {
                let order = order as u64 + 1;
                if add { extents.insert(start, start + length, order) } else { extents.remove(start, start + length) }
                for byte in start..start + length {
                    bytes[byte as usize] = if add { order } else { 0 };
                }
            }
            let expected = |from: u64, until: u64, present: bool| -> Vec<u64> {
                (from..until).filter(|&byte| (bytes[byte as usize] > 0) == present).collect()
            };
            let flat = |ranges: Vec<(u64, u64)>| -> Vec<u64> { ranges.into_iter().flat_map(|(a, b)| a..b).collect() };
            prop_assert_eq!(flat(extents.ranges().collect()), expected(0, 128, true));
            prop_assert_eq!(flat(extents.within(10, 50)), expected(10, 50, true));
            prop_assert_eq!(flat(extents.gaps(10, 50)), expected(10, 50, false));
            prop_assert_eq!(extents.bytes(), expected(0, 128, true).len() as u64);
            let mut ordered = flat(extents.by_order());
            ordered.sort_unstable();
            prop_assert_eq!(ordered, expected(0, 128, true));
        }
    }

    #[test]
    fn appending_joins_and_a_write_elsewhere_parts() {
        let mut extents = Extents::default();
        extents.insert(0, 10, 1);
        extents.insert(10, 20, 2);
        extents.insert(100, 110, 3);
        extents.insert(20, 30, 4);
        assert_eq!(extents.by_order(), [(0, 20), (100, 110), (20, 30)]);
    }
}

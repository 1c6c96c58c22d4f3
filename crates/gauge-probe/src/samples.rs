//! Exact percentiles of a bounded number of samples.
//!
//! A probe takes at most some ten thousand samples of a kind, so they are kept and sorted: no histogram, and no rounding of its buckets.

use std::collections::TryReserveError;

/// Samples in nanoseconds, never more than were reserved.
pub struct Samples {
    values_ns: Vec<i64>,
    limit: usize,
    sorted: bool,
}

impl Samples {
    /// Room for `limit` samples, reserved at once so that recording never allocates.
    pub fn with_limit(limit: usize) -> Result<Self, TryReserveError> {
        let mut values_ns = Vec::new();
        values_ns.try_reserve_exact(limit)?;
        Ok(Samples {
            values_ns,
            limit,
            sorted: false,
        })
    }

    /// Keeps one sample. The caller stops at `is_full`; one sample too many is a fault in the caller.
    pub fn record(&mut self, value_ns: i64) {
        assert!(
            self.values_ns.len() < self.limit,
            "a sample beyond the reserved {}",
            self.limit
        );
        self.values_ns.push(value_ns);
        self.sorted = false;
    }

    /// Whether there is no room for another sample.
    pub fn is_full(&self) -> bool {
        self.values_ns.len() == self.limit
    }

    /// How many samples there are.
    pub fn count(&self) -> u64 {
        self.values_ns.len() as u64
    }

    /// The samples of each `interval_ns`, one after the other, of such that follow each other without a gap (each one's value is how long it took); the last
    /// interval only where it is whole. Before any percentile, which changes their order.
    pub fn intervals(&self, interval_ns: i64) -> Result<Vec<Samples>, TryReserveError> {
        assert!(interval_ns > 0, "an interval of {interval_ns} ns has no samples");
        assert!(!self.sorted, "sorted samples have lost their order");
        let (mut found, mut from, mut end_ns, mut now_ns) = (Vec::new(), 0, interval_ns, 0i64);
        for (at, value_ns) in self.values_ns.iter().enumerate() {
            now_ns += value_ns;
            if now_ns < end_ns {
                continue;
            }
            let mut own = Samples::with_limit(at + 1 - from)?;
            own.values_ns.extend_from_slice(&self.values_ns[from..=at]);
            found.push(own);
            from = at + 1;
            // One that took several of them is in the first, and the others have none.
            while end_ns <= now_ns {
                end_ns += interval_ns;
            }
        }
        Ok(found)
    }

    /// The smallest sample that is not below a share `quantile` (0-1) of all samples, in nanoseconds (nearest rank). 0 without samples.
    pub fn quantile_ns(&mut self, quantile: f64) -> i64 {
        assert!(
            (0.0..=1.0).contains(&quantile),
            "a quantile is between 0 and 1, not {quantile}"
        );
        if !self.sorted {
            self.values_ns.sort_unstable();
            self.sorted = true;
        }
        let count = self.values_ns.len();
        // The product is lowered by a hair, so that 0.99 * 100, which is 99.00000000000001 or the like, still means the 99th sample.
        let rank = (quantile * count as f64 - 1e-9).ceil().max(1.0) as usize;
        self.values_ns
            .get(rank.min(count).saturating_sub(1))
            .copied()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: impl IntoIterator<Item = i64>) -> Samples {
        let mut samples = Samples::with_limit(10_000).unwrap();
        values.into_iter().for_each(|value| samples.record(value));
        samples
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut hundred = samples((1..=100).rev());
        assert_eq!(hundred.quantile_ns(0.5), 50);
        assert_eq!(hundred.quantile_ns(0.99), 99);
        assert_eq!(hundred.quantile_ns(0.999), 100);
        assert_eq!(hundred.quantile_ns(1.0), 100);
        assert_eq!(hundred.quantile_ns(0.0), 1);
    }

    #[test]
    fn negative_and_single_samples_count() {
        assert_eq!(samples([-5]).quantile_ns(0.99), -5);
        assert_eq!(samples([-5, 3]).quantile_ns(0.5), -5);
    }

    #[test]
    fn a_sample_after_a_percentile_is_sorted_in() {
        let mut growing = samples([10, 20]);
        assert_eq!(growing.quantile_ns(1.0), 20);
        growing.record(5);
        assert_eq!(growing.quantile_ns(0.0), 5);
    }

    #[test]
    fn intervals_have_what_ended_in_them() {
        let told = samples([4, 5, 6, 1, 30, 2, 1]);
        let mut found = told.intervals(10).unwrap();
        let counts: Vec<u64> = found.iter().map(Samples::count).collect();
        assert_eq!(
            counts,
            [3, 2],
            "what took three intervals is in one, and the last one is not whole"
        );
        assert_eq!(found[0].quantile_ns(1.0), 6);
        assert_eq!(found[1].quantile_ns(1.0), 30);
    }

    #[test]
    fn no_samples_are_zero() {
        assert_eq!(samples([]).quantile_ns(0.99), 0);
    }
}

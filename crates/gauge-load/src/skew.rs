//! Keys that are not equally popular.
//!
//! Zipf's law: the k-th most popular of n keys is drawn with a probability proportional to 1 / k^s. Drawn by Walker's alias method (Walker 1977,
//! "An efficient method for generating discrete random variables with general distributions"; the table is built as in Vose 1991):
//! whatever the weights, a draw costs one random number and one look into a table.

/// A column of the table: it is the key itself with the probability `keep` / 2^32, else `alias`.
#[derive(Clone, Copy, Debug)]
struct Column {
    keep: u32,
    alias: u32,
}

/// How popular each key is. Shared by all producers; each draws with a generator of its own.
#[derive(Debug)]
pub struct KeySkew {
    columns: Vec<Column>,
}

impl KeySkew {
    /// `key_count` keys by Zipf's law with this exponent: 0 makes them equally popular, 1 is the classical law.
    ///
    /// # Panics
    /// When there are no keys, or the exponent is negative or not finite: the caller has looked at both.
    pub fn zipf(key_count: u32, exponent: f64) -> KeySkew {
        assert!(key_count > 0, "there is a key");
        assert!(
            exponent.is_finite() && exponent >= 0.0,
            "an exponent is finite and not negative"
        );
        let weights: Vec<f64> = (1..=key_count)
            .map(|rank| f64::from(rank).powf(-exponent))
            .collect();
        KeySkew::of_weights(&weights)
    }

    fn of_weights(weights: &[f64]) -> KeySkew {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        let mut shares: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
        let mut columns: Vec<Column> = (0..shares.len() as u32)
            .map(|key| Column {
                keep: u32::MAX,
                alias: key,
            })
            .collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..shares.len()).partition(|&key| shares[key] < 1.0);
        // Each key that has less than a whole column gets the rest of it filled by one that has more.
        while let (Some(&poor), Some(&rich)) = (small.last(), large.last()) {
            small.pop();
            columns[poor] = Column {
                keep: (shares[poor] * f64::from(u32::MAX)) as u32,
                alias: rich as u32,
            };
            shares[rich] -= 1.0 - shares[poor];
            if shares[rich] < 1.0 {
                large.pop();
                small.push(rich);
            }
        }
        KeySkew { columns }
    }

    /// The next key, from 0 (the most popular one) on.
    #[inline]
    pub fn draw(&self, random: &mut fastrand::Rng) -> u32 {
        let bits = random.u64(..);
        // The upper half picks the column (Lemire's multiplication instead of a division), the lower half decides within it.
        let key = (((bits >> 32) * self.columns.len() as u64) >> 32) as u32;
        let column = self.columns[key as usize];
        if bits as u32 <= column.keep {
            key
        } else {
            column.alias
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_popular_as_zipf_says() {
        let (keys, draws) = (1000_u32, 1_000_000_u32);
        for exponent in [0.0, 0.5, 0.99, 2.0] {
            let skew = KeySkew::zipf(keys, exponent);
            let mut random = fastrand::Rng::with_seed(7);
            let mut counts = vec![0_u32; keys as usize];
            (0..draws).for_each(|_| counts[skew.draw(&mut random) as usize] += 1);
            let total: f64 = (1..=keys).map(|rank| f64::from(rank).powf(-exponent)).sum();
            for rank in [1_u32, 2, 10, 100, 1000] {
                let expected = f64::from(draws) * f64::from(rank).powf(-exponent) / total;
                let found = f64::from(counts[rank as usize - 1]);
                assert!(
                    (found - expected).abs() <= 5.0 * expected.sqrt() + 1.0,
                    "exponent {exponent}, rank {rank}: {found} instead of {expected}"
                );
            }
        }
    }

    #[test]
    fn a_single_key_is_always_drawn() {
        let mut random = fastrand::Rng::with_seed(1);
        assert_eq!(KeySkew::zipf(1, 1.0).draw(&mut random), 0);
    }
}

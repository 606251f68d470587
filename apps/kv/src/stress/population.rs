//! The distribution of a client's keys, in cassandra-stress's syntax.
//!
//! # Why
//! Readers that prefer some keys and writers of keys that are never read are different loads.
//!
//! # How it works
//! `dist=uniform(1..N)`, `dist=gaussian(1..N,MEAN,DEVIATION)`, `seq=A..B` (each in turn, then again from A). A
//! bijection maps each number to a key: adjacent numbers lie far apart in the database, like partitions of Cassandra.
//!
//! # Limits
//! Draws of the normal distribution outside of the range are drawn again, at most 100 times, then clamped.
//!
//! # Example
//! `"dist=gaussian(1..1000,500,100)".parse::<Population>()`

use std::str::FromStr;

use rand::{Rng, RngExt};

/// The numbers of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Population {
    /// All equally often.
    Uniform {
        /// The first number.
        first: u64,
        /// The last number, at least `first`.
        last: u64,
    },
    /// Normally distributed around the mean.
    Gaussian {
        /// The first number.
        first: u64,
        /// The last number, at least `first`.
        last: u64,
        /// The mean.
        mean: f64,
        /// The standard deviation, above 0.
        deviation: f64,
    },
    /// In turn, repeatedly.
    Sequence {
        /// The first number.
        first: u64,
        /// The last number, at least `first`.
        last: u64,
    },
}

/// Most draws of a normal distribution for one key.
const DRAWS_MAX: u32 = 100;

impl Population {
    /// Returns the number of the key of operation `operation`, counted from 0.
    pub fn number(&self, operation: u64, random: &mut impl Rng) -> u64 {
        match *self {
            Population::Uniform { first, last } => random.random_range(first..=last),
            Population::Sequence { first, last } => match (last - first).checked_add(1) {
                Some(len) => first + operation % len,
                None => operation,
            },
            Population::Gaussian { first, last, mean, deviation } => {
                let (low, high) = (first as f64, last as f64);
                let mut drawn = mean;
                for _ in 0..DRAWS_MAX {
                    drawn = (mean + deviation * normal(random)).round();
                    if (low..=high).contains(&drawn) {
                        break;
                    }
                }
                drawn.clamp(low, high) as u64
            }
        }
    }
}

/// Draws from the standard normal distribution (Box and Muller, 1958).
fn normal(random: &mut impl Rng) -> f64 {
    let (radius, angle): (f64, f64) = (1.0 - random.random::<f64>(), random.random());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// Returns the key of `number`: 16 hexadecimal digits, which differ for each number.
#[must_use]
pub fn key(number: u64) -> [u8; 16] {
    // The finalizer of splitmix64 (Steele et al., 2014), which is a bijection.
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^= mixed >> 31;
    std::array::from_fn(|at| b"0123456789abcdef"[(mixed >> (60 - 4 * at)) as usize & 15])
}

impl FromStr for Population {
    type Err = String;

    fn from_str(text: &str) -> Result<Population, String> {
        let wrong = || format!("`{text}`: write dist=uniform(1..N), dist=gaussian(1..N,MEAN,DEVIATION) or seq=A..B");
        if let Some(range) = text.strip_prefix("seq=") {
            let (first, last) = range_of(range).ok_or_else(wrong)?;
            return Ok(Population::Sequence { first, last });
        }

        let (name, arguments) = text.strip_prefix("dist=").and_then(call_of).ok_or_else(wrong)?;
        let mut arguments = arguments.split(',').map(str::trim);
        let (first, last) = arguments.next().and_then(range_of).ok_or_else(wrong)?;
        let numbers: Option<Vec<f64>> =
            arguments.map(|word| word.parse().ok().filter(|n: &f64| n.is_finite())).collect();

        match (name.to_ascii_lowercase().as_str(), numbers.as_deref()) {
            ("uniform", Some([])) => Ok(Population::Uniform { first, last }),
            ("gaussian", Some([mean, deviation])) if *deviation > 0.0 => {
                Ok(Population::Gaussian { first, last, mean: *mean, deviation: *deviation })
            }
            _ => Err(wrong()),
        }
    }
}

/// Splits `name(arguments)`.
pub fn call_of(text: &str) -> Option<(&str, &str)> {
    text.strip_suffix(')')?.split_once('(')
}

/// Parses `A..B`, where B is at least A.
pub fn range_of(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.split_once("..")?;
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = StdRng::seed_from_u64(1);
        for text in [
            "dist=uniform(5..9)",
            "dist=gaussian(5..9,7,1)",
            "dist=gaussian(5..9,7,100)",
            "dist=gaussian(5..9,1000,1)",
            "seq=5..9",
        ] {
            let population: Population = text.parse().unwrap();
            let numbers: Vec<u64> = (0..1000).map(|at| population.number(at, &mut random)).collect();
            assert!(numbers.iter().all(|number| (5..=9).contains(number)), "{text}");
            assert_eq!(numbers.contains(&5), !text.contains("1000"), "{text}");
            assert!(numbers.contains(&9), "{text}");
        }
    }

    #[test]
    fn a_gaussian_has_its_mean_and_deviation() {
        let mut random = StdRng::seed_from_u64(1);
        let population: Population = "dist=GAUSSIAN(1..1000000,500000,10000)".parse().unwrap();
        let drawn: Vec<f64> = (0..20_000).map(|at| population.number(at, &mut random) as f64).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let deviation = (drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64).sqrt();
        assert!((mean - 500_000.0).abs() < 500.0 && (deviation - 10_000.0).abs() < 300.0, "{mean} {deviation}");
    }

    #[test]
    fn keys_differ() {
        let keys: std::collections::HashSet<[u8; 16]> = (0..10_000).map(key).collect();
        assert_eq!(keys.len(), 10_000);
    }

    #[test]
    fn what_is_no_population() {
        for text in [
            "",
            "uniform(1..2)",
            "dist=uniform(2..1)",
            "dist=uniform(1..2",
            "dist=gaussian(1..2)",
            "seq=1",
            "dist=gaussian(1..2,1,0)",
            "dist=uniform(1..2,3)",
            "dist=zipf(1..2)",
            "dist=gaussian(1..2,NaN,1)",
        ] {
            assert!(text.parse::<Population>().is_err(), "{text}");
        }
    }
}

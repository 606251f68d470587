//! Random numbers for workloads: fast, seeded, the same everywhere.
//!
//! xoshiro256++ (Blackman, Vigna 2019), seeded by splitmix64. A workload with the same seed requests the same blocks in
//! the same order, with any version of any library. Not for secrets.
//!
//! ```
//! use plimsoll_sim::rng::Rng;
//! let (mut a, mut b) = (Rng::new(7), Rng::new(7));
//! assert_eq!(a.below(1_000_000), b.below(1_000_000));
//! assert!(a.below(10) < 10);
//! ```

/// A generator of random numbers: xoshiro256++.
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Returns the generator of `seed`; any number is valid.
    pub fn new(seed: u64) -> Rng {
        let mut x = seed;
        let mut next = || {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        Rng { state: [next(), next(), next(), next()] }
    }

    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Draws uniformly from `0..bound` (0 for a bound of 0), by multiplication (Lemire 2019); the bias is below 2^-32
    /// for the bounds of any disk.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Draws from the exponential distribution with the given mean: the gaps of a Poisson process.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // 53 bits in (0, 1], so that the logarithm is finite.
        let uniform = ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -mean * plimsoll_core::math::ln(uniform)
    }

    /// Fills `bytes` with data that does not compress.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uniform_and_exponential_have_their_means() {
        let mut rng = Rng::new(1);
        let n = 200_000;
        let uniform = (0..n).map(|_| rng.below(1000)).sum::<u64>() as f64 / f64::from(n);
        assert!((uniform - 499.5).abs() < 5.0, "{uniform}");
        let gaps = (0..n).map(|_| rng.exponential(3.0)).sum::<f64>() / f64::from(n);
        assert!((gaps - 3.0).abs() < 0.05, "{gaps}");
    }
}

//! Measures the processor: hashing, products of matrices, sorting; on one thread and on all.
//!
//! **Why.** Cores and clocks do not show the work of a processor in a second, and twice as many hardware threads do not
//! do twice the work.
//!
//! **How.** Three kinds of work that stay in the second-level cache: XXH3 of 64 KiB (bytes in, multiplications), the
//! product of two matrices of 192 x 192 `f64` (floating point), and sorting 65 536 random `u64` keys (branches). Each
//! runs on the last processor that this process may use (the first takes most interrupts), then on all at once.
//!
//! **Limits.** The program is compiled for all machines of its architecture; a build for this processor might be
//! faster. Compare cards of the same version of this program only.
//!
//! **Example.** A product of two 192 x 192 matrices takes 2 x 192^3 = 14.2 million operations; 250 of them in a second
//! are 3.5 Gflop/s.

use std::hint::black_box;

use plimsoll_sim::rng::Rng;
use twox_hash::XxHash3_64;

use super::sampler::{Sampling, Work, rates};
use crate::instance::Card;
use crate::tune::Observer;

const HASH_BYTES: usize = 64 << 10;
const HASHES: usize = 16;
const MATRIX_SIDE: usize = 192;
const KEYS: usize = 64 << 10;

/// Name, end of the key with the unit, and the function that makes the work.
type Kernel = (&'static str, &'static str, fn() -> Work);

/// The three kinds of work.
const KERNELS: [Kernel; 3] = [("hash", "bytes_per_s", hash), ("matrix", "flop_per_s", matrix), ("sort", "per_s", sort)];

/// Measurements that [`run`] makes.
pub(super) const MEASUREMENTS: usize = 2 * KERNELS.len();

/// Measures all three kinds of work, on one of `cpus` and on all of them.
pub(super) fn run(card: &mut Card, sampling: &Sampling<'_>, cpus: &[usize], observer: &mut dyn Observer) {
    let one: Vec<usize> = cpus.last().copied().into_iter().collect();
    let mut done = 0;
    for (name, unit, make) in KERNELS {
        for (who, cpus) in [("one", one.as_slice()), ("all", cpus)] {
            card.sampled(&format!("cpu.{name}_{who}_{unit}"), rates(sampling, cpus, &|| Ok(make())));
            done += 1;
            observer.on_progress(done as f64 / MEASUREMENTS as f64);
        }
    }
    let method = format!(
        "XXH3 of {HASH_BYTES} bytes, product of {MATRIX_SIDE} x {MATRIX_SIDE} f64, unstable sort of {KEYS} u64; pinned \
         to {} thread(s)",
        cpus.len()
    );
    card.fact("cpu.method", method);
}

fn hash() -> Work {
    let mut data = vec![0; HASH_BYTES];
    Rng::new(0).fill(&mut data);
    Box::new(move || {
        for _ in 0..HASHES {
            black_box(XxHash3_64::oneshot(black_box(&data)));
        }
        (HASHES * HASH_BYTES) as f64
    })
}

fn matrix() -> Work {
    let mut random = Rng::new(0);
    let mut fill = || -> Vec<f64> { (0..MATRIX_SIDE * MATRIX_SIDE).map(|_| random.next_u64() as f64 / 1e19).collect() };
    let (left, right) = (fill(), fill());
    let mut product = vec![0.0; MATRIX_SIDE * MATRIX_SIDE];
    Box::new(move || {
        multiply(black_box(&left), black_box(&right), &mut product, MATRIX_SIDE);
        black_box(&product);
        2.0 * (MATRIX_SIDE as f64).powi(3)
    })
}

/// Computes `product = left x right` row by row, of square matrices of `side` rows. The innermost loop runs along rows,
/// so that the compiler uses vector instructions.
fn multiply(left: &[f64], right: &[f64], product: &mut [f64], side: usize) {
    for (left_row, product_row) in left.chunks_exact(side).zip(product.chunks_exact_mut(side)) {
        product_row.fill(0.0);
        for (factor, right_row) in left_row.iter().zip(right.chunks_exact(side)) {
            for (sum, value) in product_row.iter_mut().zip(right_row) {
                *sum += factor * value;
            }
        }
    }
}

fn sort() -> Work {
    let mut random = Rng::new(0);
    let keys: Vec<u64> = (0..KEYS).map(|_| random.next_u64()).collect();
    let mut sorted = keys.clone();
    Box::new(move || {
        sorted.copy_from_slice(&keys);
        black_box(&mut sorted).sort_unstable();
        KEYS as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::figures;
    use crate::instance::measure::card_of;
    use crate::load::Stop;

    #[test]
    fn a_product_is_the_product() {
        // (1 2; 3 4) x (5 6; 7 8)
        let mut product = vec![9.0; 4];
        multiply(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0], &mut product, 2);
        assert_eq!(product, [19.0, 22.0, 43.0, 50.0]);
    }

    #[test]
    fn every_kernel_has_its_figures() {
        let stop = Stop::default();
        let sampling = Sampling { samples: 2, sample_ns: 1, stop: &stop };
        let card = card_of(|card| run(card, &sampling, &[0, 0], &mut ()));
        assert_eq!((card.figures.len(), card.missing.len()), (MEASUREMENTS, 0));
        for (key, figure) in &card.figures {
            assert!(figures::kind(key).is_some(), "{key}");
            assert!(figure.samples.len() == 2 && figure.value > 0.0, "{key}: {figure:?}");
        }
        stop.ask();
        let sampling = Sampling { samples: 2, sample_ns: 1, stop: &stop };
        assert_eq!(card_of(|card| run(card, &sampling, &[0], &mut ())).missing.len(), MEASUREMENTS);
    }
}

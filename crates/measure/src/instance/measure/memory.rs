//! Measures the memory: sequential reads and copies, and the latency of random reads.
//!
//! **Why.** A database that holds its rows in memory is bound by latency, a scan by bandwidth; sizes show neither.
//!
//! **How.** Arrays are several times the third-level cache ([`arrays`]). Each thread allocates its own, so that the
//! memory is on the thread's node. Bandwidth is measured in pieces of 4 MiB that go round the array: eight independent
//! sums for reads, the standard copy for copies, whose bytes count once, though they are read and written. Latency is
//! measured along one cycle through all cache lines in random order (Sattolo's algorithm, Information Processing
//! Letters 22, 1986): each read waits for the one before it.
//!
//! **Limits.** Pages are ordinary ones: latency includes the address translation, which at this length misses its
//! caches too, unless the kernel uses huge pages by itself. If too little memory is free, arrays are shorter, with a
//! warning.
//!
//! **Example.** 32 MiB of third-level cache for 8 threads: one thread reads 128 MiB, each of eight 16 MiB.

use std::hint::black_box;

use plimsoll_figures::units::format_bytes_binary;
use plimsoll_sim::rng::Rng;

use super::machine::Machine;
use super::sampler::{Sampling, Work, rates};
use crate::instance::Card;
use crate::tune::Observer;

/// Length of an array, in third-level caches.
const TIMES_L3: u64 = 4;
/// Shortest array: of one thread alone, and of each of all threads.
const LEAST_BYTES: [u64; 2] = [64 << 20, 16 << 20];
/// Longest array: the largest caches are four times smaller.
const MOST_BYTES: u64 = 2 << 30;
/// Length of a third-level cache that the kernel does not show.
const USUAL_L3_BYTES: u64 = 32 << 20;
/// All arrays together take at most the available memory divided by this, before they are rounded up to whole pieces.
const PART_OF_AVAILABLE: u64 = 4;
const PIECE_BYTES: usize = 4 << 20;
/// Words of 8 bytes in a cache line.
const LINE_WORDS: usize = 8;
/// Reads in a round of [`chase`].
const HOPS: usize = 10_000;

/// Measurements that [`run`] makes.
pub(super) const MEASUREMENTS: usize = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrays {
    one_bytes: u64,
    /// The array of each of all threads.
    all_bytes: u64,
    /// Whether there was too little memory for [`TIMES_L3`].
    is_short: bool,
}

/// Returns the lengths of arrays on this machine if `threads` measure.
fn arrays(machine: &Machine, threads: usize) -> Arrays {
    let l3_bytes = machine.l3_one_bytes.unwrap_or(USUAL_L3_BYTES);
    let sharing = machine.threads_per_l3.unwrap_or(threads).min(threads).max(1) as u64;
    let wished = l3_bytes.saturating_mul(TIMES_L3);
    let [one_least, all_least] = LEAST_BYTES;
    let one_bytes = wished.max(one_least).min(MOST_BYTES);
    let all_bytes = (wished / sharing).max(all_least).min(MOST_BYTES);

    let room_bytes = machine.available_bytes.map_or(u64::MAX, |bytes| bytes / PART_OF_AVAILABLE);
    let share_bytes = room_bytes / threads.max(1) as u64;
    // A copy has two halves, each of whole pieces.
    let whole = |bytes: u64| bytes.max(2 * PIECE_BYTES as u64).next_multiple_of(2 * PIECE_BYTES as u64);
    Arrays {
        one_bytes: whole(one_bytes.min(room_bytes)),
        all_bytes: whole(all_bytes.min(share_bytes)),
        is_short: room_bytes < one_bytes || share_bytes < all_bytes,
    }
}

/// Makes work on an array of some bytes, if there is memory for it.
type MakeWork = fn(u64) -> Result<Work, String>;

/// Measures the memory of `machine`, with one of `cpus` and with all of them.
pub(super) fn run(
    card: &mut Card,
    sampling: &Sampling<'_>,
    cpus: &[usize],
    machine: &Machine,
    observer: &mut dyn Observer,
) {
    let arrays = arrays(machine, cpus.len());
    let one: Vec<usize> = cpus.last().copied().into_iter().collect();
    let kinds: [(&str, MakeWork); 2] = [("read", read), ("copy", copy)];
    let mut done = 0;
    for (name, make) in kinds {
        for (who, cpus, bytes) in [("one", one.as_slice(), arrays.one_bytes), ("all", cpus, arrays.all_bytes)] {
            card.sampled(&format!("memory.{name}_{who}_bytes_per_s"), rates(sampling, cpus, &|| make(bytes)));
            done += 1;
            observer.on_progress(f64::from(done) / MEASUREMENTS as f64);
        }
    }

    let hops_per_s = rates(sampling, &one, &|| chase(arrays.one_bytes));
    let to_ns = |rates: Vec<f64>| rates.into_iter().map(|hops_per_s| 1e9 / hops_per_s).collect();
    card.sampled("memory.latency_ns", hops_per_s.map(to_ns));
    observer.on_progress(1.0);

    let (one, all) = (format_bytes_binary(arrays.one_bytes), format_bytes_binary(arrays.all_bytes));
    card.fact("memory.method", format!("arrays of {one} on one thread, {all} on each of all; copied bytes count once"));
    if arrays.is_short {
        card.warnings.push(format!(
            "memory: too little of it is free for arrays of {TIMES_L3} times the third-level cache ({one} and {all} \
             were taken): bandwidth and latency may be those of the cache; free some memory and measure again"
        ));
    }
}

/// Allocates memory and writes all of it once, so that the kernel provides it.
fn words(bytes: u64) -> Result<Vec<u64>, String> {
    let words = usize::try_from(bytes / 8).unwrap_or(usize::MAX);
    let mut memory = Vec::new();
    memory.try_reserve_exact(words).map_err(|_| format!("there is no memory for {}", format_bytes_binary(bytes)))?;
    memory.resize(words, 1);
    Ok(memory)
}

fn read(bytes: u64) -> Result<Work, String> {
    let memory = words(bytes)?;
    let mut at = 0;
    Ok(Box::new(move || {
        let piece = next_piece(&memory, &mut at);
        black_box(sum(black_box(piece)));
        (piece.len() * 8) as f64
    }))
}

/// Adds in eight independent sums, so that none waits for another.
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0_u64; 8];
    for chunk in words.chunks_exact(sums.len()) {
        sums.iter_mut().zip(chunk).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
    }
    sums.into_iter().fold(0, u64::wrapping_add)
}

/// Returns the next piece of `memory`, and begins again at its end.
fn next_piece<'a>(memory: &'a [u64], at: &mut usize) -> &'a [u64] {
    let begin = *at;
    *at = (begin + PIECE_BYTES / 8) % memory.len().max(1);
    memory.get(begin..begin + PIECE_BYTES / 8).unwrap_or(memory)
}

fn copy(bytes: u64) -> Result<Work, String> {
    let (from, mut to) = (words(bytes / 2)?, words(bytes / 2)?);
    let mut at = 0;
    Ok(Box::new(move || {
        let begin = at;
        let piece = next_piece(black_box(&from), &mut at);
        if let Some(target) = to.get_mut(begin..begin + piece.len()) {
            target.copy_from_slice(piece);
        }
        black_box(&mut to);
        (piece.len() * 8) as f64
    }))
}

/// Makes reads that wait for each other; a round is [`HOPS`] of them.
fn chase(bytes: u64) -> Result<Work, String> {
    let lines = usize::try_from(bytes / 8).unwrap_or(usize::MAX) / LINE_WORDS;
    let order = sattolo(lines)?;
    let mut memory = words(bytes)?;
    for (line, next) in order.into_iter().enumerate() {
        if let Some(word) = memory.get_mut(line * LINE_WORDS) {
            *word = (next as usize * LINE_WORDS) as u64;
        }
    }
    let mut at = 0_usize;
    Ok(Box::new(move || {
        for _ in 0..HOPS {
            at = memory.get(at).map_or(0, |next| *next as usize);
        }
        black_box(at);
        HOPS as f64
    }))
}

/// Returns a random permutation that is one cycle: a walk from any element visits all others before it returns.
fn sattolo(length: usize) -> Result<Vec<u32>, String> {
    let count = u32::try_from(length).map_err(|_| format!("{length} cache lines are too many"))?;
    let mut order: Vec<u32> = (0..count).collect();
    let mut random = Rng::new(0);
    for last in (1..order.len()).rev() {
        // Drawing below `last`, never `last` itself, makes one cycle.
        order.swap(last, random.below(last as u64) as usize);
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::measure::card_of;
    use crate::load::Stop;

    #[test]
    fn a_chase_goes_through_every_line() {
        for length in [1, 2, 3, 10, 1_000] {
            let order = sattolo(length).unwrap();
            let (mut at, mut hops) = (0, 0);
            loop {
                at = order[at] as usize;
                hops += 1;
                if at == 0 {
                    break;
                }
            }
            assert_eq!(hops, length);
        }
        assert!(sattolo(1 << 33).is_err());
    }

    #[test]
    fn arrays_follow_the_cache_and_the_room() {
        const MIB: u64 = 1 << 20;
        let machine = |l3_mib: Option<u64>, sharing, available_mib: u64| Machine {
            l3_one_bytes: l3_mib.map(|mib| mib * MIB),
            threads_per_l3: sharing,
            available_bytes: Some(available_mib * MIB),
            threads: 0,
        };
        let cases = [
            // Cache, threads that share it, free memory, threads: one array, each of all, too short.
            (Some(32), Some(8), 64_000, 8, (128, 16, false)),
            (Some(32), Some(2), 64_000, 2, (128, 64, false)),
            (Some(32), Some(16), 64_000, 2, (128, 64, false)),
            (None, None, 64_000, 4, (128, 32, false)),
            (Some(1), Some(2), 64_000, 2, (64, 16, false)),
            (Some(1_000), Some(96), 640_000, 96, (2_048, 48, false)),
            (Some(32), Some(8), 256, 8, (64, 8, true)),
            (Some(32), Some(8), 1, 8, (8, 8, true)),
        ];
        for (l3_mib, sharing, available_mib, threads, (one, all, is_short)) in cases {
            let found = arrays(&machine(l3_mib, sharing, available_mib), threads);
            let expected = Arrays { one_bytes: one * MIB, all_bytes: all * MIB, is_short };
            assert_eq!(found, expected, "{l3_mib:?} {sharing:?} {available_mib} {threads}");
        }
    }

    #[test]
    fn pieces_go_round_and_sums_are_right() {
        let memory = words(2 * PIECE_BYTES as u64).unwrap();
        let mut at = 0;
        let starts: Vec<usize> = (0..4)
            .map(|_| {
                assert_eq!(next_piece(&memory, &mut at).len(), PIECE_BYTES / 8);
                at
            })
            .collect();
        assert_eq!(starts, [PIECE_BYTES / 8, 0, PIECE_BYTES / 8, 0]);
        assert_eq!(sum(&memory), memory.len() as u64);
        assert!(words(u64::MAX).is_err());
    }

    #[test]
    fn figures_are_there_for_a_small_machine() {
        let stop = Stop::default();
        let sampling = Sampling { samples: 2, sample_ns: 1, stop: &stop };
        let machine = Machine { available_bytes: Some(64 << 20), ..Machine::default() };
        let card = card_of(|card| run(card, &sampling, &[0, 0], &machine, &mut ()));
        assert_eq!((card.figures.len(), card.missing.len(), card.warnings.len()), (MEASUREMENTS, 0, 1));
    }
}

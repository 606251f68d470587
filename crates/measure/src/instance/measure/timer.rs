//! Measures the cost of reading the clock, and the delay of sleeps.
//!
//! **Why.** A scheduler reads the clock for every request and sleeps between them: a clock that needs a system call, or
//! timers that fire late, lengthen the tail of every latency.
//!
//! **How.** A loop reads `CLOCK_MONOTONIC`. Then a thread without timer slack (like the library's shards) sleeps for
//! 100 us again and again, and records the excess of each sleep. The intervals of its percentiles are those of order
//! statistics: the ranks n p -+ 1.96 sqrt(n p (1 - p)) of the sorted sleeps, whatever their distribution.
//!
//! **Limits.** On an idle machine, the delays include the processor's wake-up from deep sleep. Fewer than 1000 sleeps
//! have no p99.9.
//!
//! **Example.** 10 000 sleeps, the 9990th of the sorted ones 180 us: p99.9 80 us late, between the 9984th and the
//! 9997th.

use std::time::Duration;

use plimsoll::sys::clock::now_ns;
use plimsoll::sys::pin;

use super::INTERRUPTED;
use super::sampler::{Sampling, Work, rates};
use crate::instance::{Card, Figure};
use crate::tune::Observer;

const SLEEP_NS: u64 = 100_000;
const READS: usize = 1_000;
/// Part of the time for reading the clock: one in this many.
const PART_OF_READING: u64 = 5;
/// Fewest sleeps with a p99.9.
const SLEEPS_MIN: usize = 1_000;

/// Measures reads of the clock and sleeps in about `time_ns`, on the last of `cpus`.
pub(super) fn run(card: &mut Card, sampling: &Sampling<'_>, time_ns: u64, cpus: &[usize], observer: &mut dyn Observer) {
    let one: Vec<usize> = cpus.last().copied().into_iter().collect();

    let reading_ns = time_ns / PART_OF_READING;
    let sampling = Sampling { sample_ns: reading_ns / sampling.samples.max(1) as u64, ..*sampling };
    let reads_per_s = rates(&sampling, &one, &|| Ok(read_clock()));
    let to_ns = |rates: Vec<f64>| rates.into_iter().map(|reads_per_s| 1e9 / reads_per_s).collect();
    card.sampled("timer.read_ns", reads_per_s.map(to_ns));
    observer.on_progress(1.0 / PART_OF_READING as f64);

    let late_ns = late(&sampling, now_ns().saturating_add(time_ns.saturating_sub(reading_ns)), one.first().copied());
    observer.on_progress(1.0);
    for (key, fraction, least) in [("timer.late_p50_ns", 0.5, 1), ("timer.late_p999_ns", 0.999, SLEEPS_MIN)] {
        match &late_ns {
            _ if sampling.stop.is_asked() => card.miss(key, INTERRUPTED),
            Err(reason) => card.miss(key, reason),
            Ok(late_ns) if late_ns.len() < least => {
                let sleeps = late_ns.len();
                card.miss(key, &format!("{sleeps} sleeps of 100 us in the time there was: {least} are needed"));
            }
            Ok(late_ns) => card.set(key, percentile(late_ns, fraction)),
        }
    }
}

fn read_clock() -> Work {
    Box::new(|| {
        for _ in 0..READS {
            std::hint::black_box(now_ns());
        }
        READS as f64
    })
}

/// Sleeps until `end_ns`, and returns how late each sleep was, sorted.
fn late(sampling: &Sampling<'_>, end_ns: u64, cpu: Option<usize>) -> Result<Vec<u64>, String> {
    let sleep = || {
        // If either fails, sleeps are later, as they would be for this process.
        let _ = cpu.map(pin::pin_current_thread);
        let _ = pin::sharpen_timers();
        let mut late_ns = Vec::new();
        while now_ns() < end_ns && !sampling.stop.is_asked() {
            let begin_ns = now_ns();
            std::thread::sleep(Duration::from_nanos(SLEEP_NS));
            late_ns.push(now_ns().saturating_sub(begin_ns).saturating_sub(SLEEP_NS));
        }
        late_ns.sort_unstable();
        late_ns
    };
    std::thread::scope(|scope| match std::thread::Builder::new().spawn_scoped(scope, sleep) {
        Ok(thread) => thread.join().map_err(|_| "the sleeping thread panicked".to_owned()),
        Err(error) => Err(format!("cannot start a thread: {error}")),
    })
}

/// Returns the value at `fraction` of sorted values (nearest rank), with its interval if there are enough values.
fn percentile(sorted: &[u64], fraction: f64) -> Figure {
    let count = sorted.len() as f64;
    let (rank, half_width) = (count * fraction, 1.96 * (count * fraction * (1.0 - fraction)).sqrt());
    let at = |rank: f64| {
        // A negative rank becomes 0, and ranks begin at 1.
        let index = (rank.ceil() as usize).checked_sub(1)?;
        sorted.get(index).map(|value| *value as f64)
    };
    let interval = at(rank - half_width).zip(at(rank + half_width)).map(|(low, high)| [low, high]);
    Figure { interval, ..Figure::exact(at(rank).unwrap_or(0.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::measure::card_of;
    use crate::load::Stop;

    #[test]
    fn percentiles_are_values_with_the_ranks_around_them() {
        let values: Vec<u64> = (1..=10_000).collect();
        let cases = [
            (values.as_slice(), 0.5, 5_000.0, Some([4_902.0, 5_098.0])),
            (values.as_slice(), 0.999, 9_990.0, Some([9_984.0, 9_997.0])),
            (&values[..1_000], 0.999, 999.0, None),
            (&[7], 0.5, 7.0, None),
            (&[], 0.5, 0.0, None),
        ];
        for (sorted, fraction, value, interval) in cases {
            assert_eq!(percentile(sorted, fraction), Figure { interval, ..Figure::exact(value) }, "{fraction}");
        }
    }

    #[test]
    fn too_few_sleeps_say_so() {
        let stop = Stop::default();
        let sampling = Sampling { samples: 2, sample_ns: 0, stop: &stop };
        let card = card_of(|card| run(card, &sampling, 20_000_000, &[0], &mut ()));
        assert_eq!(card.keys(), ["timer.read_ns", "timer.late_p50_ns"]);
        assert!(card.missing["timer.late_p999_ns"].contains("1000 are needed"));
    }
}

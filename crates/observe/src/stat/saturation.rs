//! Queue saturation (S): which part of their time requests wait.
//!
//! # Why
//! A full device makes requests wait; so does one that is throttled or ill. A latency shows this only beside the
//! latency that the same requests have on the idle device: a long request takes longer than a short one.
//!
//! # How it works
//! With L the time that the requests would take on the idle device, by their sizes, and U the capacity use:
//!
//! S = max(0, 1 - L / (await * min(max(U, 1 - U), 1))), and S = max(0, 1 - L / await) without a model.
//!
//! From half the capacity on this is Little's law at the knee. To be full, a device must hold N* = X_max L requests.
//! With X = U X_max, and N = X `await` requests under way, N* / N is L / (U await): requests that are needed to fill
//! the device do not wait. On a nearly idle device this form would call any latency good. There requests need not meet,
//! and all of `await` above L is waiting: the plain share. The term 1 - U makes the transition. So with an `await` of
//! 0.19 ms, L of 0.138 ms and U of 51 %, S is 0, though single requests meet; with 0.36 ms at 97 %, 60 % of the time is
//! waiting; and with three times L at 10 %, 63 %: that device is ill.
//!
//! L comes from the first of these that knows it:
//! 1. the model: the latency of the idle device was measured or published for it. It comes first since it does not
//!    depend on the intervals seen;
//! 2. [`Seen`]: the 5th percentile of `await` among intervals with at most one request under way, by direction and by
//!    size (powers of 2). A request that is alone waits for no other. A size without such an interval takes the latency
//!    of one up to four times smaller; this can only make S too high, by the time of the larger transfer. Latencies
//!    count at most as the usual one of the device's class: otherwise a disk that is ill when first seen would set its
//!    own standard.
//!
//! Otherwise S is not known, and the verdict uses the usual latency of the device's class.
//!
//! # Limits
//! `await` includes the kernel's queue, where a scheduler may hold requests back. iostat rounds `await` to 0.01 ms, so
//! that on the fastest devices S is coarse. Means of a long interval hide bursts.
//!
//! # Example
//! 72 915 reads of 4 KiB took 0.21 ms each; with less than one under way the same device took 0.06 ms. S is 0.71.

use std::collections::{BTreeMap, VecDeque};

use plimsoll_core::Direction;

use super::Columns;
use super::capacity::{Capacity, positive};

/// Most latencies kept for each direction and size: those of the latest unloaded intervals.
const SEEN_MOST: usize = 32;
/// Percentile of those latencies that is taken as the latency of the idle device.
const SEEN_PERCENTILE: f64 = 5.0;
/// Most requests under way, on average, in an unloaded interval: one load that waits for each request, and a
/// neighbour's few beside it.
const UNLOADED_QUEUE: f64 = 2.0;
/// Fewest requests a second of a direction in an unloaded interval: fewer meet a device that went to sleep.
const UNLOADED_PER_S: f64 = 20.0;

/// S of an interval, each 0 to 1; `None` where no latency is known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Saturation {
    /// S of reads and writes together.
    pub overall: Option<f64>,
    pub read: Option<f64>,
    pub write: Option<f64>,
    /// Latency on the idle device in milliseconds: the mean over those requests for which it is known.
    pub unloaded_ms: Option<f64>,
}

impl Saturation {
    /// Computes S from `model` if it knows the latency, else from `seen`. `capacity_use` is U by the model; `None`
    /// without one.
    pub fn new(columns: &Columns, model: Option<&Capacity>, capacity_use: Option<f64>, seen: &Seen) -> Saturation {
        let part = capacity_use.map_or(1.0, |capacity_use| capacity_use.max(1.0 - capacity_use).min(1.0));
        let waiting = |unloaded_ms: f64, await_ms: f64| (1.0 - unloaded_ms / (await_ms * part)).clamp(0.0, 1.0);

        let kinds = [kind(columns, Direction::Read), kind(columns, Direction::Write)];
        let known = kinds.map(|kind| {
            let kind = kind?;
            let by_model = model.and_then(|capacity| capacity.unloaded_ms(kind.direction, kind.size_kib));
            let unloaded_ms = by_model.or_else(|| seen.unloaded_ms(kind.direction, kind.size_kib))?;
            Some((kind, unloaded_ms))
        });
        let each = known.map(|known| known.and_then(|(kind, ms)| kind.await_ms.map(|await_ms| waiting(ms, await_ms))));

        // Both together: means by rate.
        let rate: f64 = known.iter().flatten().map(|(kind, _)| kind.per_s).sum();
        let mean = |of: &dyn Fn(&Kind, f64) -> f64| {
            known.iter().flatten().map(|(kind, ms)| kind.per_s * of(kind, *ms)).sum::<f64>() / rate
        };
        let unloaded_ms = (rate > 0.0).then(|| mean(&|_, ms| ms));
        let all_timed = known.iter().flatten().all(|(kind, _)| kind.await_ms.is_some());
        let await_ms = match all_timed {
            true => Some(mean(&|kind, _| kind.await_ms.unwrap_or(0.0))),
            false => mean_await_ms(columns),
        };
        let overall = unloaded_ms.zip(positive(await_ms)).map(|(unloaded, await_ms)| waiting(unloaded, await_ms));

        let [read, write] = each;
        Saturation { overall, read, write, unloaded_ms }
    }
}

/// Reads or writes of an interval.
#[derive(Clone, Copy)]
struct Kind {
    direction: Direction,
    per_s: f64,
    size_kib: f64,
    await_ms: Option<f64>,
}

fn kind(columns: &Columns, direction: Direction) -> Option<Kind> {
    let (per_s, size_kib, await_ms) = match direction {
        Direction::Read => (columns.reads_per_s, columns.read_size(), columns.read_await_ms),
        Direction::Write => (columns.writes_per_s, columns.write_size(), columns.write_await_ms),
    };
    Some(Kind { direction, per_s: positive(per_s)?, size_kib: size_kib?, await_ms: positive(await_ms) })
}

/// Returns the mean time of a read or write in milliseconds: as given, else by Little's law from those under way;
/// `None` if it is not known or nothing completed. Discards are left out: their time says nothing about reads and
/// writes.
pub fn mean_await_ms(columns: &Columns) -> Option<f64> {
    if positive(columns.discards_per_s).is_some() {
        let without = Columns { discards_per_s: None, await_ms: None, ..*columns };
        return positive(without.mean_await_ms());
    }
    let by_law = || {
        let per_s = positive(columns.requests_per_s())?;
        columns.queue.map(|queue| queue * 1000.0 / per_s)
    };
    positive(columns.mean_await_ms()).or_else(by_law)
}

/// Returns the requests under way on average by Little's law, from rates and latencies alone; `None` if one of them is
/// missing.
///
/// Adds 0.005 ms to each latency: the most that rounding may have taken.
pub(crate) fn under_way_at_most(columns: &Columns) -> Option<f64> {
    const ROUNDING_MS: f64 = 0.005;
    let kinds = [
        (columns.reads_per_s, columns.read_await_ms),
        (columns.writes_per_s, columns.write_await_ms),
        (columns.discards_per_s, columns.discard_await_ms),
        (columns.flushes_per_s, columns.flush_await_ms),
    ];
    let done = || kinds.iter().filter(|(per_s, _)| positive(*per_s).is_some());
    let sum = done().map(|(per_s, ms)| Some((*per_s)? * ((*ms)? + ROUNDING_MS) / 1000.0)).sum::<Option<f64>>();
    let of_all = || Some(columns.requests_per_s()? * (columns.await_ms? + ROUNDING_MS) / 1000.0);
    match done().next() {
        Some(_) => sum.or_else(of_all),
        None => columns.requests_per_s().filter(|per_s| *per_s == 0.0),
    }
}

/// Latencies of a device in intervals in which it had little to do: at most 32 for each direction and size.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// By [`key`]: whether they are writes, and the power of 2 of their KiB.
    latencies_ms: BTreeMap<(bool, i32), VecDeque<f64>>,
}

impl Seen {
    /// Records the latencies of an interval, if at most two requests were under way on average. Each counts at most as
    /// `usual_ms` of the mean size in KiB.
    pub fn note(&mut self, columns: &Columns, usual_ms: &dyn Fn(f64) -> f64) {
        let queue = columns.queue.or_else(|| under_way_at_most(columns));
        if !queue.is_some_and(|queue| queue <= UNLOADED_QUEUE) {
            return;
        }
        for kind in [Direction::Read, Direction::Write].into_iter().filter_map(|direction| kind(columns, direction)) {
            if let (Some(ms), true) = (kind.await_ms, kind.per_s >= UNLOADED_PER_S) {
                let of_size = self.latencies_ms.entry(key(kind.direction, kind.size_kib)).or_default();
                if of_size.len() == SEEN_MOST {
                    of_size.pop_front();
                }
                of_size.push_back(ms.min(usual_ms(kind.size_kib)));
            }
        }
    }

    /// Returns the 5th percentile of the latencies seen for requests of this size, or of up to four times smaller ones.
    pub(crate) fn unloaded_ms(&self, direction: Direction, size_kib: f64) -> Option<f64> {
        let (is_write, power) = key(direction, size_kib);
        let nearest = (power - 2..=power).rev().find_map(|power| self.latencies_ms.get(&(is_write, power)))?;
        let mut sorted: Vec<f64> = nearest.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        let rank = (SEEN_PERCENTILE / 100.0 * sorted.len() as f64).ceil().max(1.0) as usize;
        sorted.get(rank - 1).copied()
    }
}

/// Returns the direction (true for writes) and the size step: a power of 2 of KiB, from 1/2 KiB to 64 MiB; sizes beyond
/// take the nearest step. Most sizes are powers of 2, and their means fall short by rounding or by a few shorter
/// requests, so steps begin 5 % below.
fn key(direction: Direction, size_kib: f64) -> (bool, i32) {
    let power = (size_kib * 1.05).max(0.5).log2().floor().clamp(-1.0, 16.0) as i32;
    (direction == Direction::Write, power)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use plimsoll_files::disk;
    use proptest::prelude::*;

    use super::*;

    /// The usual latency of a class in which any latency is usual.
    const ANY: fn(f64) -> f64 = |_| f64::INFINITY;

    fn reads(per_s: f64, kib: f64, await_ms: f64) -> Columns {
        Columns {
            reads_per_s: Some(per_s),
            read_kib_per_s: Some(per_s * kib),
            read_await_ms: Some(await_ms),
            queue: Some(per_s * await_ms / 1000.0),
            ..Columns::default()
        }
    }

    /// Returns a disk of 237 000 reads a second and 0.138 ms: the knee is at 33 requests.
    fn surface() -> Capacity {
        let text = "disk: {read_iops: 237000, write_iops: 174080, read_bandwidth: 2043674624, \
                    write_bandwidth: 1024458752, \
                    mix_exponent: 1.2, unloaded_latency_ns: 138000}";
        Capacity::of_model("i3en.3xlarge", &disk::parse("test", text).unwrap())
    }

    #[test]
    fn the_measured_surface_of_an_i3en_3xlarge() {
        // Reads a second, await in ms, MB/s of writes; U and S of reads in percent.
        let cases = [
            (7_246.0, 0.138, 0.0, 3.0, 0.0),
            (121_000.0, 0.19, 0.0, 51.0, 0.0),
            (206_000.0, 0.27, 0.0, 87.0, 41.0),
            (231_000.0, 0.36, 0.0, 97.0, 60.0),
            (24_000.0, 0.49, 1020.0, 100.0, 72.0),
        ];

        let disk = surface();
        for (per_s, await_ms, write_mb_per_s, u_percent, s_percent) in cases {
            let mut columns = reads(per_s, 4.0, await_ms);
            let writes_kib_per_s = write_mb_per_s * 1e6 / 1024.0;
            columns.write_kib_per_s = Some(writes_kib_per_s);
            columns.writes_per_s = Some(writes_kib_per_s / 128.0);
            let u = disk.capacity_use(&columns).unwrap();
            let s = Saturation::new(&columns, Some(&disk), Some(u), &Seen::default()).read.unwrap();
            // The last line is a full disk: about 100 %.
            assert!((u * 100.0 - u_percent).abs() < 7.0, "{per_s}: U {u}");
            assert!((s * 100.0 - s_percent).abs() < 3.0, "{per_s}: S {s}");
        }
    }

    #[test]
    fn the_form_is_that_of_little() {
        // N* = 237 000 * 0.138 ms = 32.7; S = 1 - N* / aqu-sz.
        let disk = surface();
        for (per_s, await_ms) in [(206_000.0, 0.27), (231_000.0, 0.36), (237_000.0, 4.0)] {
            let columns = reads(per_s, 4.0, await_ms);
            let u = disk.capacity_use(&columns).unwrap();
            let s = Saturation::new(&columns, Some(&disk), Some(u), &Seen::default()).overall.unwrap();
            let by_law = 1.0 - 237_000.0 * 0.138e-3 / columns.queue.unwrap();
            assert!((s - by_law).abs() < 1e-6, "{s} {by_law}");
        }
    }

    #[test]
    fn without_a_model_the_least_seen_counts() {
        let mut seen = Seen::default();
        let (low, high) = (reads(13_823.0, 4.0, 0.06), reads(72_914.67, 4.0, 0.21));
        assert_eq!(Saturation::new(&high, None, None, &seen), Saturation::default());
        seen.note(&low, &ANY);
        seen.note(&high, &ANY);
        let s = Saturation::new(&high, None, None, &seen);
        assert_eq!((s.overall.map(|s| (s * 100.0).round()), s.write), (Some(71.0), None));
        assert_eq!(Saturation::new(&low, None, None, &seen).overall, Some(0.0));
        // Longer requests take longer: 0.06 ms says nothing about 512 KiB, and little about 16 KiB.
        assert_eq!(Saturation::new(&reads(100.0, 512.0, 1.0), None, None, &seen).overall, None);
        assert!(Saturation::new(&reads(100.0, 16.0, 0.12), None, None, &seen).overall.is_some());
        for _ in 0..1000 {
            seen.note(&low, &ANY);
        }
        assert_eq!(seen.latencies_ms.values().map(VecDeque::len).sum::<usize>(), SEEN_MOST);
    }

    #[test]
    fn sizes_a_little_short_of_a_power_of_2_and_latencies_beyond_the_usual() {
        let mut seen = Seen::default();
        seen.note(&reads(13_823.0, 4.0, 0.06), &ANY);
        // As in a published report: 291658.67 kB/s over 72914.67 r/s.
        assert_eq!(seen.unloaded_ms(Direction::Read, 291_658.67 / 72_914.67), Some(0.06));
        for (kib, expected) in [(3.9, Some(0.06)), (3.7, None), (16.0, Some(0.06)), (32.0, None)] {
            assert_eq!(seen.unloaded_ms(Direction::Read, kib), expected, "{kib}");
        }
        let mut ill = Seen::default();
        ill.note(&reads(195.0, 4.0, 5.1), &|_| 0.3);
        assert_eq!(ill.unloaded_ms(Direction::Read, 4.0), Some(0.3));
        // Beside discards, only reads and writes count.
        let trims = Columns { discards_per_s: Some(500.0), discard_await_ms: Some(22.0), ..reads(10.0, 4.0, 0.2) };
        assert_eq!(mean_await_ms(&Columns { await_ms: Some(21.0), ..trims }), Some(0.2));
    }

    #[test]
    fn directions_have_their_own() {
        let disk = Capacity::find("i4i.2xlarge", Path::new(".")).unwrap();
        let columns = Columns {
            writes_per_s: Some(1000.0),
            write_size_kib: Some(16.0),
            write_await_ms: Some(2.0),
            ..reads(1000.0, 16.0, 0.1)
        };
        let u = disk.capacity_use(&columns).unwrap();
        let s = Saturation::new(&columns, Some(&disk), Some(u), &Seen::default());
        assert!(s.read.unwrap() < 0.1 && s.write.unwrap() > 0.9, "{s:?}");
        assert!((0.5..0.99).contains(&s.overall.unwrap()), "{s:?}");
    }

    #[test]
    fn what_is_under_way_follows_from_rates() {
        let columns = Columns { writes_per_s: Some(7497.0), write_await_ms: Some(0.03), ..Columns::default() };
        assert!((0.25..0.27).contains(&under_way_at_most(&columns).unwrap()));
        assert_eq!(under_way_at_most(&Columns::default()), None);
        assert_eq!(under_way_at_most(&Columns { reads_per_s: Some(0.0), ..Columns::default() }), Some(0.0));
        assert_eq!(under_way_at_most(&Columns { reads_per_s: Some(10.0), ..Columns::default() }), None);
        let by_queue = Columns { reads_per_s: Some(100.0), queue: Some(2.0), ..Columns::default() };
        assert_eq!(mean_await_ms(&by_queue), Some(20.0));
    }

    proptest! {
        #[test]
        fn always_a_part_of_one(
            per_s in proptest::option::of(0.0..1e7_f64), kib in proptest::option::of(0.0..1e5_f64),
            ms in proptest::option::of(0.0..1e6_f64), queue in proptest::option::of(0.0..1e6_f64),
        ) {
            let columns = Columns {
                reads_per_s: per_s, read_size_kib: kib, read_await_ms: ms, queue,
                writes_per_s: queue, write_size_kib: ms, write_await_ms: kib, ..Columns::default()
            };
            let mut seen = Seen::default();
            seen.note(&columns, &ANY);
            let disk = surface();
            let u = disk.capacity_use(&columns);
            prop_assert!(u.is_none_or(|u| u >= 0.0 && u.is_finite()));
            for (model, u) in [(None, None), (Some(&disk), u), (None, u)] {
                let s = Saturation::new(&columns, model, u, &seen);
                for part in [s.overall, s.read, s.write].into_iter().flatten() {
                    prop_assert!((0.0..=1.0).contains(&part));
                }
            }
        }
    }
}

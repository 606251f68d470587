//! Reservations: N operations or bytes a second whenever a class asks for them, whatever its shares.
//!
//! # Why
//! A commit log must get its part in each tenth of a second, not on the average of a minute; and if more is reserved
//! than the disk has, the first to ask must not get everything.
//!
//! # How it works
//! Classes with one share each and reservations of 90 % of the disk in all run beside a class with 1000 shares that
//! takes the rest. In each window of 100 ms a class must have dispatched its requests, or the reserved number if that
//! is less, except one: the output of a server with exactly the reserved rate. A request may wait for one latency
//! goal before it counts as asked, because a request that arrives at a window's very end cannot be dispatched in it.
//!
//! # Limits
//! Windows follow each other from the end of the warm-up; sliding ones are not checked. If the others' requests take
//! longer than the time between two reserved ones, a second one can be late at the end of a window: the bulk's take 131
//! us here, and 6000 a second are 167 us apart.
//!
//! # Example
//! 6000 operations a second are 600 in a window: 599 are enough.

use crate::scenario::Target::{AtLeast, Between};
use crate::scenario::support::{Course, MS, S, plain_world, reads};
use crate::scenario::{Advance, Outcome, ScenarioError, Table};
use crate::workload::{JobSpec, Load};
use crate::world::{ClassSpec, Event, EventKind, WorldSpec};
use plimsoll_core::{DEFAULT_LATENCY_GOAL_NS, Qos, Reservation};

/// A disk of 20 000 operations and 500 MB/s.
const DISK: [u64; 4] = [20_000, 500_000_000, 20_000, 500_000_000];
const WINDOW_NS: u64 = 100 * MS;
const BULK_FROM_NS: u64 = 2 * S;

fn reserved(name: &str, reservation: Reservation) -> ClassSpec {
    ClassSpec { qos: Qos { reservation, ..Qos::default() }, ..ClassSpec::new(name, 1) }
}

fn iops(iops: u64) -> Reservation {
    Reservation { iops, ..Reservation::default() }
}

fn world(shards: usize, duration_ns: u64, seed: u64) -> WorldSpec {
    WorldSpec { warmup_ns: 500 * MS, duration_ns, ..plain_world(DISK, shards, seed) }
}

/// Requests due to a class and dispatched, window by window. In each window a server with exactly the reserved rate
/// begins with the requests waiting at the window's beginning, and takes new ones one latency goal after their arrival.
/// The requests that it completes within the window must have been dispatched.
struct Windows {
    gap_ns: f64,
    window: u64,
    backlog: u64,
    needed: u64,
    got: u64,
    /// When the server completes its last request.
    until_ns: f64,
    windows: u32,
    kept: u32,
    /// The most requests by which the promise was missed.
    worst: f64,
}

impl Windows {
    fn new(per_s: f64, from_ns: u64) -> Windows {
        let (backlog, needed, got, until_ns) = (0, 0, 0, from_ns as f64);
        let window = from_ns / WINDOW_NS;
        Windows { gap_ns: 1e9 / per_s, window, backlog, needed, got, until_ns, windows: 0, kept: 0, worst: 0.0 }
    }

    fn end_ns(&self) -> u64 {
        (self.window + 1) * WINDOW_NS
    }

    fn serve(&mut self, from_ns: f64) {
        self.until_ns = self.until_ns.max(from_ns) + self.gap_ns;
        self.needed += u64::from(self.until_ns <= self.end_ns() as f64);
    }

    /// Closes all windows before the one of `at_ns`.
    fn go_on(&mut self, at_ns: u64) {
        while at_ns >= self.end_ns() {
            let missing = self.needed as f64 - 1.0 - self.got as f64;
            self.windows += 1;
            self.kept += u32::from(missing <= 0.0);
            self.worst = self.worst.max(missing);
            (self.needed, self.got, self.until_ns) = (0, 0, self.end_ns() as f64);
            self.window += 1;
            (0..self.backlog).for_each(|_| self.serve(0.0));
        }
    }

    fn note(&mut self, event: &Event) {
        let is_in_time = event.at_ns >= self.window * WINDOW_NS;
        if is_in_time {
            self.go_on(event.at_ns);
        }
        match event.kind {
            EventKind::Enqueue => {
                self.backlog += 1;
                if is_in_time {
                    self.serve((event.at_ns + DEFAULT_LATENCY_GOAL_NS) as f64);
                }
            }
            EventKind::Dispatch => {
                self.backlog = self.backlog.saturating_sub(1);
                self.got += u64::from(is_in_time);
            }
            _ => {}
        }
    }

    /// Returns the part of the windows in which the promise was kept.
    fn kept_part(&self) -> f64 {
        f64::from(self.kept) / f64::from(self.windows.max(1))
    }
}

pub(super) fn reservation(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(4, advance);
    within_capacity(&mut course, seed)?;
    above_capacity(&mut course, seed)?;
    course.remark(
        "Beside requests that take longer than the time between two reserved ones, a second request can be late at \
         the end of a window: nobody can dispatch sooner without holding the disk idle.",
    );
    Ok(course.outcome)
}

/// Runs three reservations of 30 % each: one class always asks, one asks for a little more than is reserved, one for
/// less. The bulk starts after the others have had the disk for themselves for a while.
fn within_capacity(course: &mut Course<'_>, seed: u64) -> Result<(), ScenarioError> {
    let columns = ["shards", "class", "reserved/s", "got/s", "windows kept %", "most missing, requests"];
    let mut table =
        Table::new("Reservations of 90 % of the disk beside a class of 1000 shares, windows of 100 ms", &columns);
    for shards in [1, 4] {
        let each = shards as f64;
        let open = |name: &str, per_s: f64| JobSpec { load: Load::poisson(per_s / each), ..reads(name, 1, 4096) };
        let bandwidth = Reservation { bandwidth: 150_000_000, ..Reservation::default() };
        let spec = WorldSpec {
            classes: vec![
                reserved("backlogged", bandwidth),
                reserved("asks for more", iops(6000)),
                reserved("asks for less", iops(6000)),
                ClassSpec::new("bulk", 1000),
            ],
            jobs: vec![
                reads("backlogged", 64 / shards as u32, 64 << 10),
                open("asks for more", 6600.0),
                open("asks for less", 3000.0),
                // Until the bulk starts, the others have the disk for themselves and get much more than is reserved.
                JobSpec { start_ns: Some(BULK_FROM_NS), ..reads("bulk", 64, 64 << 10) },
            ],
            ..world(shards, 20 * S, seed)
        };

        let rates_per_s = [150e6 / f64::from(64 << 10), 6000.0, 6000.0];
        let mut windows = rates_per_s.map(|per_s| Windows::new(per_s, spec.warmup_ns));
        let report = course.run_logged(&spec, &mut |event| {
            if let Some(windows) = windows.get_mut(event.class as usize) {
                windows.note(event);
            }
        })?;

        let mut least = 1.0_f64;
        for ((windows, class), per_s) in windows.iter_mut().zip(&report.classes).zip(rates_per_s) {
            windows.go_on(spec.warmup_ns + spec.duration_ns);
            least = least.min(windows.kept_part());
            table.row([
                shards.to_string(),
                class.name.clone(),
                format!("{per_s:.0}"),
                format!("{:.0}", class.iops),
                format!("{:.1}", windows.kept_part() * 100.0),
                format!("{:.1}", windows.worst),
            ]);
        }

        course.figure(
            format!("{shards} shards: windows in which a reservation was kept, %"),
            least * 100.0,
            AtLeast(99.0),
        );
        let used = report.disks[0].utilisation;
        course.figure(format!("{shards} shards: part of the disk used"), used, AtLeast(0.95));
    }
    course.outcome.tables.push(table);
    Ok(())
}

/// Runs reservations of 80 and 60 % of the disk: 4 to 3.
fn above_capacity(course: &mut Course<'_>, seed: u64) -> Result<(), ScenarioError> {
    let mut table =
        Table::new("Reservations of 140 % of the disk", &["shards", "reserved 16000/s got", "12000/s got", "ratio"]);

    for shards in [1, 4] {
        let spec = WorldSpec {
            classes: vec![reserved("a", iops(16_000)), reserved("b", iops(12_000)), ClassSpec::new("bulk", 1000)],
            jobs: vec![
                reads("a", 128 / shards as u32, 4096),
                reads("b", 128 / shards as u32, 4096),
                reads("bulk", 32, 4096),
            ],
            ..world(shards, 4 * S, seed)
        };

        let report = course.run(&spec)?;
        let [a, b] = [0, 1].map(|at| report.classes[at].iops);
        table.row([shards.to_string(), format!("{a:.0}"), format!("{b:.0}"), format!("{:.3}", a / b)]);
        let name = format!("{shards} shards: reservations of 140 % shrink in proportion, ratio of 4 to 3");
        course.figure(name, a / b / (4.0 / 3.0), Between(0.97, 1.03));
    }
    course.outcome.tables.push(table);
    Ok(())
}

//! Readings of a host's counters, and what happened between two of them.
//!
//! # Why
//! Every live figure begins here: one reading of `/proc` an interval, cheap enough for a host with hundreds of devices,
//! and a difference that equals that of `iostat` to the last digit it prints.
//!
//! # How it works
//! A [`Sampler`] reads `/proc/uptime`, `/proc/stat` and `/proc/diskstats`, in this order, as sysstat does. Intervals
//! are differences of the uptime, which the kernel prints in hundredths of a second: with a finer clock the figures
//! would differ from iostat's. [`Reading::since`] computes what happened between two readings. A device that appeared,
//! disappeared, or whose counters fell is a [`Gap`], never a figure. The [`facts`] of a device are read once, when it
//! appears.
//!
//! Source: `iostat.c`, `rd_stats.c` and `common.c` of sysstat 12.6 for the length of an interval (at least a
//! hundredth), the first report (means since the host began), which devices are shown, and the CPUs' shares.
//!
//! # Limits
//! In a container that has an uptime of its own (lxcfs) the report since boot is wrong, as iostat's is. A device that
//! replaces another of the same name and number, with higher counters, passes for the old one.
//!
//! # Example
//! ```
//! use std::path::Path;
//! use plimsoll_observe::stat::host::Sampler;
//! # let root = tempfile::tempdir()?;
//! # let (proc_root, sys_root) = (root.path(), root.path());
//! # let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text);
//! // With `/proc` and `/sys` it is this host.
//! write("uptime", "100.00 50.00\n")?;
//! write("diskstats", "8 0 sda 1000 0 8000 100 0 0 0 0 0 90 100\n")?;
//! let mut sampler = Sampler::new(proc_root, sys_root);
//! let before = sampler.sample()?;
//! write("uptime", "102.00 50.00\n")?;
//! write("diskstats", "8 0 sda 3000 0 24000 300 0 0 0 0 0 290 300\n")?;
//! let interval = sampler.sample()?.since(&before);
//! assert_eq!((interval.duration_s, interval.devices[0].columns.reads_per_s), (Some(2.0), Some(1000.0)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod against_iostat;
mod facts;
mod sampler;

pub(crate) use facts::looks_like_partition;
pub use facts::{Host, facts};
pub use sampler::Sampler;

use std::collections::{HashMap, HashSet};

use plimsoll::sys::diskstats::{Counters, DiskStats};

use super::{Columns, CpuShares, DeviceInterval, Facts, Gap, Interval};

/// The counters of a host at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The time, in milliseconds since 1970 (UTC), by the host's clock, which may be set between readings.
    pub at_unix_ms: u64,
    /// Time since the host began, in hundredths of a second.
    pub uptime_cs: u64,
    /// Where the CPUs' time went; `None` if `/proc/stat` cannot be read.
    pub cpu: Option<CpuTicks>,
    /// All devices, partitions included, in the kernel's order.
    pub devices: Vec<DiskStats>,
}

/// Where the time of all CPUs went since the host began, in ticks (`USER_HZ`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTicks {
    /// In programs; guests of virtual machines included.
    pub user: u64,
    /// In programs of lower priority.
    pub nice: u64,
    /// In the kernel.
    pub system: u64,
    /// Idle.
    pub idle: u64,
    /// Idle while a request was under way.
    pub iowait: u64,
    /// In interrupts.
    pub irq: u64,
    /// In work that interrupts left for later.
    pub softirq: u64,
    /// Taken by the host of a virtual machine.
    pub steal: u64,
}

impl CpuTicks {
    /// Returns the ticks in the order of `/proc/stat`.
    #[must_use]
    pub(crate) fn to_array(self) -> [u64; 8] {
        [self.user, self.nice, self.system, self.idle, self.iowait, self.irq, self.softirq, self.steal]
    }

    /// Takes ticks in the order of `/proc/stat`.
    #[must_use]
    pub(crate) fn from_array(ticks: [u64; 8]) -> CpuTicks {
        let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks;
        CpuTicks { user, nice, system, idle, iowait, irq, softirq, steal }
    }

    /// Returns the shares since `earlier`; `None` if no time has passed. A count that fell (`iowait` does) counts as 0.
    fn since(self, earlier: CpuTicks) -> Option<CpuShares> {
        let (mut moved, before) = (self.to_array(), earlier.to_array());
        moved.iter_mut().zip(before).for_each(|(now, before)| *now = now.saturating_sub(before));
        let all: f64 = moved.iter().map(|&ticks| ticks as f64).sum();
        let moved = CpuTicks::from_array(moved);
        let percent = |ticks: u64| 100.0 * ticks as f64 / all;
        (all > 0.0).then(|| CpuShares {
            user: percent(moved.user),
            nice: percent(moved.nice),
            system: percent(moved.system) + percent(moved.irq) + percent(moved.softirq),
            iowait: percent(moved.iowait),
            steal: percent(moved.steal),
            idle: percent(moved.idle),
        })
    }
}

impl Reading {
    /// Returns what happened between `earlier` and `self`. The devices are those of `self` in its order, then those
    /// that have disappeared. If the uptime fell, the host restarted: every device is [`Gap::Reset`], and there is no
    /// length.
    #[must_use]
    pub fn since(&self, earlier: &Reading) -> Interval {
        let Some(duration_cs) = self.uptime_cs.checked_sub(earlier.uptime_cs) else { return self.after_a_restart() };
        let duration_s = duration_s(duration_cs);

        // Of several devices with one name the first counts.
        let mut before: HashMap<&str, &DiskStats> = HashMap::with_capacity(earlier.devices.len());
        for disk in &earlier.devices {
            before.entry(&disk.name).or_insert(disk);
        }
        let mut seen: HashSet<&str> = HashSet::with_capacity(self.devices.len());
        let there = self.devices.iter().filter(|disk| seen.insert(&disk.name));
        let mut devices: Vec<DeviceInterval> =
            there.map(|disk| between(before.get(disk.name.as_str()).copied(), disk, duration_s)).collect();
        let gone = earlier.devices.iter().filter(|disk| seen.insert(&disk.name));
        devices.extend(gone.map(|disk| gap(&disk.name, Gap::Disappeared, None)));

        Interval {
            end_unix_ms: Some(self.at_unix_ms),
            duration_s: Some(duration_s),
            is_since_boot: false,
            cpu: self.cpu.zip(earlier.cpu).and_then(|(now, before)| now.since(before)),
            devices,
        }
    }

    /// Returns what happened since the host began: iostat's first report.
    #[must_use]
    pub fn since_boot(&self) -> Interval {
        let duration_s = duration_s(self.uptime_cs);
        let mut seen: HashSet<&str> = HashSet::with_capacity(self.devices.len());
        let there = self.devices.iter().filter(|disk| seen.insert(&disk.name));
        let devices = there.map(|disk| moved(disk, &disk.counters, duration_s)).collect();
        Interval {
            end_unix_ms: Some(self.at_unix_ms),
            duration_s: Some(duration_s),
            is_since_boot: true,
            cpu: self.cpu.and_then(|now| now.since(CpuTicks::default())),
            devices,
        }
    }

    fn after_a_restart(&self) -> Interval {
        let mut seen: HashSet<&str> = HashSet::new();
        let there = self.devices.iter().filter(|disk| seen.insert(&disk.name));
        let devices = there.map(|disk| gap(&disk.name, Gap::Reset, disk.counters.in_flight)).collect();
        Interval { end_unix_ms: Some(self.at_unix_ms), devices, ..Interval::default() }
    }

    /// Removes from `interval`, which ends with this reading, the devices that iostat does not show: those without any
    /// read, write, discard or flush since they appeared, and, without `with_partitions`, partitions. Keeps devices
    /// that have disappeared, except such partitions.
    pub fn keep_shown(&self, interval: &mut Interval, facts: &Facts, with_partitions: bool) {
        let used = |disk: &&DiskStats| is_used(&disk.counters);
        let used: HashSet<&str> = self.devices.iter().filter(used).map(|disk| disk.name.as_str()).collect();
        interval.devices.retain(|device| {
            let name = device.device.as_str();
            let is_gone = device.gap == Some(Gap::Disappeared);
            (is_gone || used.contains(name)) && (with_partitions || !is_partition(name, facts))
        });
    }
}

/// Returns whether a device is a partition: by its facts, or without any by its name.
#[must_use]
pub fn is_partition(name: &str, facts: &Facts) -> bool {
    facts.get(name).map_or_else(|| looks_like_partition(name), |facts| facts.is_partition)
}

fn is_used(counters: &Counters) -> bool {
    let optional = [counters.discards, counters.flushes];
    counters.reads > 0 || counters.writes > 0 || optional.iter().any(|count| count.is_some_and(|count| count > 0))
}

/// Converts hundredths to seconds, at least one hundredth, as sysstat does.
fn duration_s(cs: u64) -> f64 {
    cs.max(1) as f64 / 100.0
}

fn between(before: Option<&DiskStats>, now: &DiskStats, duration_s: f64) -> DeviceInterval {
    let in_flight = now.counters.in_flight;
    let Some(before) = before else { return gap(&now.name, Gap::Appeared, in_flight) };
    let is_same = (before.major, before.minor) == (now.major, now.minor);
    match now.counters.since(&before.counters).filter(|_| is_same) {
        Some(counters) => moved(now, &counters, duration_s),
        None => gap(&now.name, Gap::Reset, in_flight),
    }
}

fn moved(disk: &DiskStats, counters: &Counters, duration_s: f64) -> DeviceInterval {
    let columns = Columns::from_counters(counters, duration_s);
    DeviceInterval { device: disk.name.clone(), columns, in_flight: disk.counters.in_flight, gap: None }
}

fn gap(name: &str, gap: Gap, in_flight: Option<u64>) -> DeviceInterval {
    DeviceInterval { device: name.to_owned(), columns: Columns::default(), in_flight, gap: Some(gap) }
}

#[cfg(test)]
mod tests {
    use plimsoll::sys::diskstats;

    use super::*;
    use crate::stat::DeviceFacts;

    fn reading(uptime_cs: u64, lines: &str) -> Reading {
        Reading { at_unix_ms: uptime_cs * 10, uptime_cs, cpu: None, devices: diskstats::parse(lines).unwrap() }
    }

    const NVME: &str = "259 0 nvme0n1 1000 10 8000 100 500 0 4000 900 1 90 100\n";

    #[test]
    fn devices_come_go_and_begin_anew() {
        let table = [
            ("the same", NVME, NVME, None),
            ("new", "", NVME, Some(Gap::Appeared)),
            ("gone", NVME, "", Some(Gap::Disappeared)),
            ("fell", NVME, "259 0 nvme0n1 5 0 40 1 0 0 0 0 0 1 1\n", Some(Gap::Reset)),
            ("another number", NVME, "259 7 nvme0n1 9999 10 99999 100 999 0 9999 900 1 90 100\n", Some(Gap::Reset)),
            ("wrapped", "8 0 a 4294967290 0 8 1 0 0 0 0 0 1 1\n", "8 0 a 4 0 8 1 0 0 0 0 0 1 1\n", None),
        ];
        for (case, before, after, expect) in table {
            let interval = reading(1100, after).since(&reading(1000, before));
            assert_eq!(interval.devices.len(), 1, "{case}");
            let device = &interval.devices[0];
            assert_eq!(device.gap, expect, "{case}");
            assert_eq!(device.columns == Columns::default(), expect.is_some(), "{case}");
        }
        let wrapped = reading(1100, "8 0 a 4 0 8 1 0 0 0 0 0 1 1\n");
        let wrapped = wrapped.since(&reading(1000, "8 0 a 4294967290 0 8 1 0 0 0 0 0 1 1\n"));
        assert_eq!(wrapped.devices[0].columns.reads_per_s, Some(10.0));
    }

    #[test]
    fn order_is_that_of_the_later_reading_and_a_name_stands_once() {
        let line = |name: &str| format!("8 0 {name} 1 0 8 1 0 0 0 0 0 1 1\n");
        let before = reading(0, &["a", "b", "c"].map(line).concat());
        let after = reading(100, &["c", "d", "c", "a"].map(line).concat());
        let interval = after.since(&before);
        let found: Vec<_> = interval.devices.iter().map(|device| (device.device.as_str(), device.gap)).collect();
        let expect = [("c", None), ("d", Some(Gap::Appeared)), ("a", None), ("b", Some(Gap::Disappeared))];
        assert_eq!(found, expect);
        assert_eq!(after.since_boot().devices.len(), 3);
    }

    #[test]
    fn lengths_are_hundredths_and_a_restart_is_no_length() {
        let seconds = |before, after| reading(after, NVME).since(&reading(before, NVME)).duration_s;
        assert_eq!((seconds(1000, 1101), seconds(1000, 1000)), (Some(1.01), Some(0.01)));
        let restarted = reading(500, NVME).since(&reading(1000, NVME));
        assert_eq!((restarted.duration_s, restarted.devices[0].gap), (None, Some(Gap::Reset)));
        let boot = reading(1000, NVME).since_boot();
        assert!(boot.is_since_boot);
        assert_eq!((boot.duration_s, boot.devices[0].columns.reads_per_s), (Some(10.0), Some(100.0)));
        assert_eq!(boot.devices[0].in_flight, Some(1));
    }

    #[test]
    fn shares_of_the_cpus_are_those_of_iostat() {
        let before = CpuTicks::from_array([100, 0, 50, 1000, 30, 0, 0, 0]);
        // iowait fell: it counts as 0.
        let after = CpuTicks::from_array([150, 10, 60, 1110, 20, 5, 5, 10]);
        let shares = after.since(before).unwrap();
        let expect = CpuShares { user: 25.0, nice: 5.0, system: 10.0, iowait: 0.0, steal: 5.0, idle: 55.0 };
        assert_eq!(shares, expect);
        assert_eq!(before.since(before), None);
    }

    #[test]
    fn what_was_never_used_and_partitions_are_left_out() {
        let lines = "8 0 sda 1 0 8 1 0 0 0 0 0 1 1\n8 1 sda1 1 0 8 1 0 0 0 0 0 1 1\n7 0 loop0 0 0 0 0 0 0 0 0 3 1 1\n\
            8 16 sdb 0 0 0 0 0 0 0 0 0 1 1 4 0 8 1\n8 32 sdc 0 0 0 0 0 0 0 0 0 1 1 0 0 0 0 3 3\n\
            259 0 x1 1 0 8 1 0 0 0 0 0 1 1\n";
        let facts = Facts::from([("x1".to_owned(), DeviceFacts { is_partition: true, ..DeviceFacts::default() })]);
        let earlier = reading(0, &format!("{lines}8 48 sdd 1 0 8 1 0 0 0 0 0 1 1\n"));
        let later = reading(100, lines);
        for (with_partitions, expect) in
            [(false, vec!["sda", "sdb", "sdc", "sdd"]), (true, vec!["sda", "sda1", "sdb", "sdc", "x1", "sdd"])]
        {
            let mut interval = later.since(&earlier);
            later.keep_shown(&mut interval, &facts, with_partitions);
            let shown: Vec<&str> = interval.devices.iter().map(|device| device.device.as_str()).collect();
            assert_eq!(shown, expect);
        }
    }
}

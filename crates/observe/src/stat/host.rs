//! Readings of a host's counters, and the interval between two of them.
//!
//! # Why
//! Every live figure begins here: one reading of `/proc` an interval, cheap enough for a host with hundreds of devices,
//! and a difference that equals that of `iostat` to the last digit it prints.
//!
//! # How it works
//! A [`Sampler`] reads `/proc/uptime`, `/proc/stat` and `/proc/diskstats`, in this order, as sysstat does. Intervals
//! are differences of the uptime, which the kernel prints in hundredths of a second: with a finer clock the figures
//! would differ from iostat's. [`Reading::since`] computes the interval between two readings. A device that appeared,
//! disappeared, or whose counters fell is a [`Gap`], never a figure. Files are read into one buffer that is reused: on
//! a host with hundreds of devices most of the cost is in strings and small files that do not change. The [`facts`] of
//! a device (a dozen small files) are read if it was absent from the reading before, or had another number there.
//!
//! Source: `iostat.c`, `rd_stats.c` and `common.c` of sysstat 12.6 for the length of an interval (at least a
//! hundredth), the first report (means since the host began), which devices are shown, and the CPUs' shares.
//!
//! # Limits
//! In a container that has an uptime of its own (lxcfs) the report since boot is wrong, as iostat's is. A device that
//! replaces another of the same name and number, with higher counters, passes for the old one. A disk that grows or
//! gets another queue while it is watched keeps the facts of when it appeared.
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

mod facts;

pub(crate) use facts::looks_like_partition;
pub use facts::{Host, facts};

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll::sys::diskstats::{self, Counters, DiskStats};
use serde::{Deserialize, Serialize};

use super::{Columns, CpuShares, DeviceInterval, Facts, Gap, Interval};

/// Takes readings of a host and keeps the facts about its devices.
#[derive(Debug)]
pub struct Sampler {
    proc_root: PathBuf,
    sys_root: PathBuf,
    text: String,
    /// Names and numbers of the devices in the latest reading.
    known: HashMap<String, (u32, u32)>,
    facts: Facts,
}

impl Sampler {
    /// Returns a sampler that reads these directories: `/proc` and `/sys` for this host.
    pub fn new(proc_root: &Path, sys_root: &Path) -> Sampler {
        let (proc_root, sys_root) = (proc_root.to_owned(), sys_root.to_owned());
        Sampler { proc_root, sys_root, text: String::new(), known: HashMap::new(), facts: Facts::new() }
    }

    pub fn sample(&mut self) -> io::Result<Reading> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let uptime_cs = self.read("uptime", |text| uptime_cs(text).ok_or_else(|| "no uptime".to_owned()))?;
        let cpu = self.read("stat", |text| Ok(cpu_ticks(text))).unwrap_or(None);
        let devices = self.read("diskstats", |text| diskstats::parse(text).map_err(|error| error.to_string()))?;
        let reading = Reading { at_unix_ms: at.as_millis() as u64, uptime_cs, cpu, devices };
        self.look_up(&reading);
        Ok(reading)
    }

    /// Returns the facts about all devices seen so far, those that have disappeared included.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read<T>(&mut self, name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> io::Result<T> {
        let path = self.proc_root.join(name);
        self.text.clear();
        let read = File::open(&path).and_then(|mut file| file.read_to_string(&mut self.text));
        read.map_err(|error| io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display())))?;
        let wrong = |reason| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {reason}", path.display()));
        parse(&self.text).map_err(wrong)
    }

    /// Reads the facts of devices that are new in `reading`.
    fn look_up(&mut self, reading: &Reading) {
        let number = |disk: &DiskStats| (disk.major, disk.minor);
        let is_new = |disk: &&DiskStats| self.known.get(&disk.name) != Some(&number(disk));
        let new: Vec<&DiskStats> = reading.devices.iter().filter(is_new).collect();
        for disk in &new {
            self.facts.insert(disk.name.clone(), facts(&self.sys_root, &disk.name));
        }
        if self.known.len() != reading.devices.len() || !new.is_empty() {
            self.known = reading.devices.iter().map(|disk| (disk.name.clone(), number(disk))).collect();
        }
    }
}

/// Returns the first number of `/proc/uptime`, `45126.08 25924.85`, in hundredths.
fn uptime_cs(text: &str) -> Option<u64> {
    let (seconds, hundredths) = text.split_ascii_whitespace().next()?.split_once('.')?;
    let hundredths = Some(hundredths).filter(|digits| digits.len() == 2)?;
    seconds.parse::<u64>().ok()?.checked_mul(100)?.checked_add(hundredths.parse().ok()?)
}

/// Parses the line of all CPUs in `/proc/stat`. Numbers that old kernels lack, after the first four, are 0.
fn cpu_ticks(text: &str) -> Option<CpuTicks> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut ticks = [0; 8];
    let mut numbers = line.split_ascii_whitespace().map_while(|word| word.parse().ok());
    let read = ticks.iter_mut().zip(&mut numbers).map(|(tick, number)| *tick = number).count();
    (read >= 4).then_some(CpuTicks(ticks))
}

/// The counters of a host at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The time, in milliseconds since 1970 (UTC), by the host's clock, which may be set between readings.
    pub at_unix_ms: u64,
    /// Time since the host began, in hundredths of a second.
    pub uptime_cs: u64,
    /// CPU time by kind; `None` if `/proc/stat` cannot be read.
    pub cpu: Option<CpuTicks>,
    /// All devices, partitions included, in the kernel's order.
    pub devices: Vec<DiskStats>,
}

/// CPU time of all CPUs since the host began, in ticks (`USER_HZ`), in the order of `/proc/stat`: user (with guests of
/// virtual machines), nice, system, idle, iowait, irq, softirq, steal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTicks(pub [u64; 8]);

impl CpuTicks {
    /// Returns the shares since `earlier`; `None` if no time has passed. A count that fell (`iowait` does) counts as 0.
    fn since(self, earlier: CpuTicks) -> Option<CpuShares> {
        let moved: [f64; 8] = std::array::from_fn(|at| self.0[at].saturating_sub(earlier.0[at]) as f64);
        let all: f64 = moved.iter().sum();
        let [user, nice, system, idle, iowait, irq, softirq, steal] = moved.map(|ticks| 100.0 * ticks / all);
        (all > 0.0).then_some(CpuShares { user, nice, system: system + irq + softirq, iowait, steal, idle })
    }
}

impl Reading {
    /// Computes the interval from `earlier` to `self`. The devices are those of `self` in its order, then those that
    /// have disappeared. If the uptime fell, the host restarted: every device is [`Gap::Reset`], and there is no
    /// length.
    pub fn since(&self, earlier: &Reading) -> Interval {
        let Some(duration_cs) = self.uptime_cs.checked_sub(earlier.uptime_cs) else { return self.after_a_restart() };
        let duration_s = duration_s(duration_cs);

        let before: HashMap<&str, &DiskStats> = earlier.unique().map(|disk| (disk.name.as_str(), disk)).collect();
        let now = |disk: &DiskStats| between(before.get(disk.name.as_str()).copied(), disk, duration_s);
        let mut devices: Vec<DeviceInterval> = self.unique().map(now).collect();
        let there: HashSet<&str> = self.devices.iter().map(|disk| disk.name.as_str()).collect();
        let gone = earlier.unique().filter(|disk| !there.contains(disk.name.as_str()));
        devices.extend(gone.map(|disk| gap(&disk.name, Gap::Disappeared, None)));

        Interval {
            end_unix_ms: Some(self.at_unix_ms),
            duration_s: Some(duration_s),
            cpu: self.cpu.zip(earlier.cpu).and_then(|(now, before)| now.since(before)),
            devices,
            ..Interval::default()
        }
    }

    /// Computes the interval since the host began: iostat's first report.
    pub fn since_boot(&self) -> Interval {
        let duration_s = duration_s(self.uptime_cs);
        Interval {
            end_unix_ms: Some(self.at_unix_ms),
            duration_s: Some(duration_s),
            is_since_boot: true,
            cpu: self.cpu.and_then(|now| now.since(CpuTicks::default())),
            devices: self.unique().map(|disk| moved(disk, &disk.counters, duration_s)).collect(),
            ..Interval::default()
        }
    }

    /// Returns the devices; of several with one name, the first.
    fn unique(&self) -> impl Iterator<Item = &DiskStats> {
        let mut seen: HashSet<&str> = HashSet::with_capacity(self.devices.len());
        self.devices.iter().filter(move |disk| seen.insert(&disk.name))
    }

    fn after_a_restart(&self) -> Interval {
        let devices = self.unique().map(|disk| gap(&disk.name, Gap::Reset, disk.counters.in_flight)).collect();
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
    mod against_iostat;

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
        let before = CpuTicks([100, 0, 50, 1000, 30, 0, 0, 0]);
        // iowait fell: it counts as 0.
        let after = CpuTicks([150, 10, 60, 1110, 20, 5, 5, 10]);
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

    #[test]
    fn uptimes_and_ticks_are_read_or_refused() {
        let table = [
            ("45126.08 25924.85\n", Some(4_512_608)),
            ("0.00 0.00", Some(0)),
            ("1.5 1", None),
            ("", None),
            ("12 13", None),
            ("99999999999999999999.00 1", None),
            ("-1.00 1", None),
        ];
        for (text, expect) in table {
            assert_eq!(uptime_cs(text), expect, "{text}");
        }

        let table = [
            ("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 1 1 1\n", Some([1, 2, 3, 4, 5, 6, 7, 8])),
            ("cpu0 1 1 1 1\ncpu  1 2 3 4\n", Some([1, 2, 3, 4, 0, 0, 0, 0])),
            ("cpu 1 2 x 4\n", None),
            ("", None),
        ];
        for (text, expect) in table {
            assert_eq!(cpu_ticks(text).map(|ticks| ticks.0), expect, "{text}");
        }
    }

    #[test]
    fn a_host_without_counters_is_an_error_with_the_path() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text);
        let mut sampler = Sampler::new(root.path(), root.path());
        let failed = |sampler: &mut Sampler| sampler.sample().map_err(|error| error.to_string());
        assert!(failed(&mut sampler).is_err_and(|error| error.contains("uptime")));
        write("uptime", "5.00 5.00\n")?;
        assert!(failed(&mut sampler).is_err_and(|error| error.contains("diskstats")));
        write("diskstats", "8 0 sda 1\n")?;
        assert!(failed(&mut sampler).is_err_and(|error| error.contains("diskstats: line 1")));
        write("diskstats", "8 0 sda 1 0 8 1 0 0 0 0 0 1 1\n")?;
        let reading = sampler.sample()?;
        assert_eq!((reading.uptime_cs, reading.cpu, reading.devices.len()), (500, None, 1));
        assert!(sampler.facts().contains_key("sda"));
        Ok(())
    }

    #[test]
    fn facts_are_looked_up_again_for_another_device_of_the_name() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text);
        std::fs::create_dir_all(root.path().join("class/block/sda"))?;
        write("uptime", "5.00 5.00\n")?;
        let mut sampler = Sampler::new(root.path(), root.path());
        let table = [
            ("8 0 sda 1 0 8 1 0 0 0 0 0 1 1\n", "100", Some(51_200)),
            ("8 0 sda 1 0 8 1 0 0 0 0 0 1 1\n", "200", Some(51_200)),
            ("8 16 sda 1 0 8 1 0 0 0 0 0 1 1\n", "300", Some(153_600)),
            ("", "400", Some(153_600)),
            ("8 16 sda 1 0 8 1 0 0 0 0 0 1 1\n", "500", Some(256_000)),
        ];
        for (lines, sectors, expect) in table {
            write("diskstats", lines)?;
            write("class/block/sda/size", sectors)?;
            sampler.sample()?;
            assert_eq!(sampler.facts()["sda"].size_bytes, expect, "{lines}{sectors}");
        }
        Ok(())
    }
}

//! A watch over the devices of a host: judges interval after interval, with the history of each device.
//!
//! # Why
//! The capacity of a device, and its latency under little load, show in other intervals than the one that is judged.
//!
//! # How it works
//! [`Watch::observe`] computes U ([`super::capacity`]), S ([`super::saturation`]) and the verdict ([`super::verdict`])
//! of each device, then judges the groups ([`super::groups`]). It remembers the highest rates of each device, the
//! latencies of quiet intervals, the requests under way and since when none completes. A device whose counters were
//! reset, or that was absent, counts as a new one. Means since the start of the host are judged, but not remembered; of
//! a report that may be such a mean, no verdict says that requests wait.
//!
//! # Limits
//! Memory: some kB for each name; beyond [`DEVICES_MOST`] names, absent devices are dropped. A watch keeps nothing on
//! disk.
//!
//! # Example
//! ```
//! use plimsoll_observe::stat::watch::{Watch, WatchOptions};
//! use plimsoll_observe::stat::{Columns, DeviceInterval, Facts, Interval, Verdict};
//! let columns = Columns {
//!     writes_per_s: Some(7497.0),
//!     write_await_ms: Some(0.03),
//!     write_size_kib: Some(14.04),
//!     queue: Some(0.23),
//!     util_percent: Some(100.0),
//!     ..Columns::default()
//! };
//! let device = DeviceInterval { device: "nvme1n1".to_owned(), columns, ..DeviceInterval::default() };
//! let interval = Interval { devices: vec![device], ..Interval::default() };
//! let observed = Watch::new(WatchOptions::default()).observe(&interval, &Facts::new());
//! assert_eq!(observed.devices[0].verdict, Verdict::BusyButFree);
//! ```

use std::collections::{BTreeMap, BTreeSet};

use super::capacity::{Capacity, Peaks};
use super::groups::{Groups, LikeDevices};
use super::saturation::{self, Saturation, Seen};
use super::verdict::{self, Evidence, HUNG_AFTER_S};
use super::{Basis, DeviceFacts, DeviceInterval, Facts, Gap, Interval, Judged, Observed, Remark, Verdict};

/// Most device names in memory; if there are more, those absent from the interval are dropped.
pub const DEVICES_MOST: usize = 4096;

/// Part of the highest rate seen from which U would contradict that a device has room.
const FREE_USE_LEAST: f64 = 0.3;

/// The key of [`WatchOptions::capacities`] for every whole disk without a key of its own.
pub const ANY_DEVICE: &str = "*";

#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// Capacities by device name; [`ANY_DEVICE`] stands for all other whole disks. Partitions and arrays need a key of
    /// their own.
    pub capacities: BTreeMap<String, Capacity>,
    /// Groups named by the user: a name, and its devices.
    pub groups: Vec<(String, Vec<String>)>,
}

/// Judges the devices of a host, interval after interval, and remembers the figures that later judgements need.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    capacities: BTreeMap<String, Capacity>,
    groups: Groups,
    like: LikeDevices,
    devices: BTreeMap<String, Memory>,
}

/// The history of a device.
#[derive(Clone, Debug, Default)]
struct Memory {
    peaks: Peaks,
    seen: Seen,
    /// Requests under way at the end of the latest interval, where the next one begins.
    in_flight: Option<u64>,
    is_stuck: bool,
    stuck_s: f64,
    /// Whether the remark on the first interval was made.
    has_begun: bool,
}

impl Watch {
    /// Returns a watch without history.
    pub fn new(options: WatchOptions) -> Watch {
        Watch { capacities: options.capacities, groups: Groups::new(options.groups), ..Watch::default() }
    }

    /// Judges an interval and remembers it. `facts` may lack any device.
    pub fn observe(&mut self, interval: &Interval, facts: &Facts) -> Observed {
        self.forget(interval);
        let mut devices = self.judge_all(interval, facts);
        verdict::compare_arrays(&mut devices, facts);
        let groups = match interval.is_since_boot || interval.may_be_since_boot {
            true => self.groups.observe_means(&devices, facts),
            false => self.groups.observe(&devices, facts, interval.duration_s),
        };
        let mut remarks = verdict::of_interval(interval.is_since_boot, interval.cpu.as_ref(), &devices);
        if !interval.is_since_boot && !interval.may_be_since_boot {
            remarks.extend(self.like.observe(&devices, &groups, facts, interval.duration_s));
        }

        Observed {
            end_unix_ms: interval.end_unix_ms,
            duration_s: interval.duration_s,
            is_since_boot: interval.is_since_boot,
            may_be_since_boot: interval.may_be_since_boot,
            cpu: interval.cpu,
            groups,
            remarks,
            devices,
        }
    }

    /// Judges the devices, in their order. Those that are made of others come after the disks that these may be.
    fn judge_all(&mut self, interval: &Interval, facts: &Facts) -> Vec<Judged> {
        let mut judged: Vec<(usize, Judged)> = Vec::with_capacity(interval.devices.len());
        for is_stacked in [false, true] {
            let is_disk_full = is_stacked && judged.iter().any(|(_, disk)| disk.verdict == Verdict::Saturated);
            let devices = interval.devices.iter().enumerate();
            for (at, device) in devices.filter(|(_, device)| verdict::is_stacked(&device.device) == is_stacked) {
                judged.push((at, self.judge(device, interval, facts.get(&device.device), is_disk_full)));
            }
        }
        judged.sort_by_key(|(at, _)| *at);
        judged.into_iter().map(|(_, judged)| judged).collect()
    }

    fn judge(
        &mut self,
        device: &DeviceInterval,
        interval: &Interval,
        facts: Option<&DeviceFacts>,
        is_disk_full: bool,
    ) -> Judged {
        let invalid = verdict::invalid_util(device);
        let mut device = device.clone();
        device.columns.util_percent = device.columns.util_percent.filter(|_| invalid.is_none());
        let device = &device;
        let memory = self.devices.entry(device.device.clone()).or_default();
        let in_flight_before = memory.in_flight;
        memory.note(device, interval, facts);

        // U: by a model, else by a like load when the device was full, else by the highest rates seen.
        let columns = &device.columns;
        let model = capacity_for(&self.capacities, &device.device, facts);
        let model = model.and_then(|capacity| Some((capacity, capacity.capacity_use(columns)?)));
        let of_full = memory.peaks.use_of_full(columns);
        let steady = verdict::steady_under_way(device, in_flight_before);
        let (capacity_use, basis) = match model {
            Some((capacity, capacity_use)) => (Some(capacity_use), Basis::Model(capacity.name().to_owned())),
            None => match of_full.or_else(|| memory.peaks.capacity_use(columns)) {
                Some(capacity_use) => (Some(capacity_use), Basis::HighestSeen),
                None => (None, Basis::Unknown),
            },
        };

        let of_model = model.map(|(_, capacity_use)| capacity_use);
        let capacity = model.map(|(capacity, _)| capacity);
        let saturation = Saturation::new(columns, capacity, of_model, &memory.seen);
        let evidence = Evidence {
            interval: device,
            facts,
            capacity_use,
            basis: &basis,
            was_full: of_full.is_some(),
            did_far_more: memory.peaks.did_far_more(columns),
            enough_under_way: steady.and_then(|steady| memory.peaks.enough_under_way(columns, steady)),
            saturation: &saturation,
            in_flight_before,
            is_stuck: memory.is_stuck,
            stuck_s: memory.stuck_s,
            is_disk_full,
        };
        let found = verdict::judge(&evidence);
        let (verdict, why) = if interval.may_be_since_boot { verdict::of_unclear_report(found) } else { found };
        if verdict == Verdict::Saturated && !interval.is_since_boot {
            memory.peaks.note_full(columns);
        }
        if let (Some(steady), false) = (steady, interval.is_since_boot) {
            memory.peaks.note_steady(columns, steady);
        }

        // The rates seen are enough to judge a device that waits; as U they are shown only if they say something about
        // it. A device with room has not been seen at its limit: a large part of those rates would contradict the
        // verdict.
        let has_room = |part: f64| verdict == Verdict::BusyButFree && part >= FREE_USE_LEAST;
        let known_use = memory.peaks.known_use(columns).filter(|part| !has_room(*part));
        let (capacity_use, capacity_basis) = match (&basis, known_use) {
            (Basis::HighestSeen, None) => (None, Basis::Unknown),
            (Basis::HighestSeen, known) => (known, Basis::HighestSeen),
            (basis, _) => (capacity_use, (*basis).clone()),
        };
        let mut remarks = verdict::of_device(&Evidence { basis: &capacity_basis, ..evidence }, verdict);
        let is_first = |remark: &Remark| remark.code == verdict::FIRST_INTERVAL;
        if memory.has_begun {
            remarks.retain(|remark| !is_first(remark));
        }
        memory.has_begun |= remarks.iter().any(is_first);
        remarks.extend(invalid);
        Judged {
            interval: device.clone(),
            capacity_use,
            capacity_basis,
            saturation: saturation.overall,
            read_saturation: saturation.read,
            write_saturation: saturation.write,
            verdict,
            why,
            remarks,
        }
    }

    /// Drops absent devices if there are more than [`DEVICES_MOST`].
    fn forget(&mut self, interval: &Interval) {
        if self.devices.len() > DEVICES_MOST {
            let present: BTreeSet<&str> = interval.devices.iter().map(|device| device.device.as_str()).collect();
            self.devices.retain(|name, _| present.contains(name.as_str()));
        }
    }
}

impl Memory {
    fn note(&mut self, device: &DeviceInterval, interval: &Interval, facts: Option<&DeviceFacts>) {
        let in_flight_before = std::mem::replace(&mut self.in_flight, device.in_flight);
        if let Some(gap) = device.gap {
            let in_flight = device.in_flight.filter(|_| gap != Gap::Disappeared);
            *self = Memory { in_flight, ..Memory::default() };
            return;
        }

        self.is_stuck = !interval.is_since_boot && verdict::is_stuck(device, in_flight_before, interval.duration_s);
        // Means since the start of the host say nothing about now.
        if interval.is_since_boot {
            return;
        }

        self.peaks.note(&device.columns, saturation::under_way_at_most(&device.columns));
        let usual_ms = |size_kib| verdict::usual_ms(&device.device, facts, &device.columns, size_kib);
        self.seen.note(&device.columns, &usual_ms);
        match self.is_stuck {
            true => self.stuck_s += interval.duration_s.unwrap_or(HUNG_AFTER_S).max(0.0),
            false => self.stuck_s = 0.0,
        }
    }
}

fn capacity_for<'a>(
    capacities: &'a BTreeMap<String, Capacity>,
    device: &str,
    facts: Option<&DeviceFacts>,
) -> Option<&'a Capacity> {
    let is_whole = match facts {
        Some(facts) => !facts.is_partition && facts.members.is_empty(),
        None => !verdict::is_stacked(device),
    };
    let of_all = || is_whole.then(|| capacities.get(ANY_DEVICE)).flatten();
    capacities.get(device).or_else(of_all)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{Columns, CpuShares};
    use super::*;

    fn reads(per_s: f64, await_ms: f64, util_percent: f64) -> Columns {
        Columns {
            reads_per_s: Some(per_s),
            writes_per_s: Some(0.0),
            read_kib_per_s: Some(per_s * 4.0),
            read_await_ms: Some(await_ms),
            queue: Some(per_s * await_ms / 1000.0),
            util_percent: Some(util_percent),
            ..Columns::default()
        }
    }

    fn interval(device: &str, columns: Columns) -> Interval {
        let device = DeviceInterval { device: device.to_owned(), columns, ..DeviceInterval::default() };
        Interval { duration_s: Some(1.0), devices: vec![device], ..Interval::default() }
    }

    fn see(watch: &mut Watch, interval: &Interval) -> Judged {
        watch.observe(interval, &Facts::new()).devices.remove(0)
    }

    #[test]
    fn two_loads_of_one_disk() {
        let mut watch = Watch::new(WatchOptions::default());
        let first = see(&mut watch, &interval("sdd", reads(13_823.0, 0.06, 78.4)));
        assert_eq!((first.verdict, &first.capacity_basis), (Verdict::Ok, &Basis::Unknown));

        let second = see(&mut watch, &interval("sdd", reads(72_914.67, 0.21, 100.0)));
        assert_eq!(second.capacity_basis, Basis::HighestSeen);
        assert_eq!(second.saturation.map(|s| (s * 100.0).round()), Some(71.0));
        assert_eq!(second.verdict, Verdict::Saturated, "{}", second.why);

        let third = see(&mut watch, &interval("sdd", reads(72_914.67, 0.06, 100.0)));
        assert_eq!((third.verdict, third.capacity_use), (Verdict::Ok, Some(1.0)), "{}", third.why);

        // The rate with requests waiting shows free capacity, and slowness.
        let fourth = see(&mut watch, &interval("sdd", reads(13_823.0, 0.06, 99.0)));
        assert_eq!(
            (fourth.verdict, fourth.capacity_use.unwrap() < 0.2),
            (Verdict::BusyButFree, true),
            "{}",
            fourth.why
        );

        let fifth = see(&mut watch, &interval("sdd", reads(13_823.0, 0.5, 100.0)));
        assert_eq!((fifth.verdict, fifth.capacity_basis), (Verdict::Degraded, Basis::HighestSeen), "{}", fifth.why);
    }

    /// Samples of a virtual disk of some 100 000 reads a second: bursts of 200 reads of 4 KiB, each as large as the one
    /// before is done, and later the same of a disk that serves a quarter of that.
    const BURSTS: &str = "1767657600
254 0 vda 13316743 67705 543799434 32159484 7344400 144135 504139914 19344098 22 1024004 51631806
1767657601
254 0 vda 13341440 67719 543997122 32210629 7344400 144135 504139914 19344098 155 1024320 51682952
1767657602
254 0 vda 13371276 67740 544235978 32274026 7344400 144135 504139914 19344098 83 1024708 51746350
1767657603
254 0 vda 13399869 67759 544464890 32341041 7344400 144135 504139914 19344098 0 1025088 51813366
1767657604
254 0 vda 13409869 67759 544544890 32401041 7344400 144135 504139914 19344098 0 1025588 51873366
";

    #[test]
    fn the_latency_of_bursts_is_no_sign_of_a_slow_disk() {
        let recorded = super::super::from::read("diskstats", BURSTS.as_bytes(), &Default::default()).unwrap();
        let text = "disk: {read_iops: 100000, read_bandwidth: 2G, write_iops: 60000, write_bandwidth: 1G, \
                    unloaded_latency_ns: 150000}";
        let model = plimsoll_files::disk::parse("vda.yaml", text).unwrap();
        let capacities = [("vda".to_owned(), Capacity::of_model("vda.yaml", &model))];
        let mut watch = Watch::new(WatchOptions { capacities: capacities.into(), ..WatchOptions::default() });
        let judged: Vec<Judged> = recorded.observed(&mut watch).map(|mut it| it.devices.remove(0)).collect();
        for (judged, expected) in judged.iter().zip([Verdict::Ok, Verdict::Ok, Verdict::Ok, Verdict::Degraded]) {
            assert_eq!(judged.verdict, expected, "{judged:?}");
            assert_eq!(judged.why.ends_with("they come in bursts"), expected == Verdict::Ok, "{}", judged.why);
        }
        assert_eq!(judged.len(), 4);
    }

    #[test]
    fn the_highest_seen_alone_saturates_nothing() {
        let mut watch = Watch::new(WatchOptions::default());
        for per_s in [5_000.0, 7_000.0, 9_000.0] {
            let judged = see(&mut watch, &interval("nvme0n1", reads(per_s, 0.1, 100.0)));
            assert_eq!(judged.verdict, Verdict::BusyButFree, "{}", judged.why);
        }
        assert_eq!(watch.devices["nvme0n1"].peaks.use_of_full(&reads(9_000.0, 0.1, 100.0)), None);
    }

    /// Three disks, of which `turn` names the one that does the work.
    fn of_three(names: [&str; 3], turn: usize) -> Interval {
        let devices = names.iter().enumerate().map(|(at, name)| DeviceInterval {
            device: (*name).to_owned(),
            columns: reads(if at == turn { 40_000.0 } else { 400.0 }, 0.1, 100.0),
            ..DeviceInterval::default()
        });
        Interval { duration_s: Some(1.0), devices: devices.collect(), ..Interval::default() }
    }

    #[test]
    fn like_devices_that_take_turns_are_proposed_as_a_group() {
        let nvme = ["nvme0n1", "nvme1n1", "nvme2n1"];
        let models = |models: [&str; 3]| -> Facts {
            let facts = |model: &str| DeviceFacts {
                model: Some(model.to_owned()),
                size_bytes: Some(1 << 40),
                ..DeviceFacts::default()
            };
            nvme.iter().zip(models).map(|(name, model)| ((*name).to_owned(), facts(model))).collect()
        };

        let named = vec![("data".to_owned(), nvme.map(str::to_owned).to_vec())];
        // Names, facts, groups, intervals of each turn, expected.
        let cases = [
            (nvme, Facts::new(), vec![], 10, true),
            (["sda", "sdb", "sdc"], Facts::new(), vec![], 10, true),
            (nvme, models(["A", "A", "A"]), vec![], 10, true),
            (nvme, models(["A", "B", "C"]), vec![], 10, false),
            (["dm-0", "dm-1", "dm-2"], Facts::new(), vec![], 10, false),
            (nvme, Facts::new(), named, 10, false),
            (nvme, Facts::new(), vec![], 1000, false),
        ];

        for (names, facts, groups, each, expected) in cases {
            let mut watch = Watch::new(WatchOptions { groups: groups.clone(), ..WatchOptions::default() });
            let mut observed = Observed::default();
            for at in 0..60 {
                observed = watch.observe(&of_three(names, at / each % 3), &facts);
            }
            let found = observed.remarks.iter().find(|remark| remark.code == "like-devices");
            assert_eq!(found.is_some(), expected, "{names:?} {each}: {:?}", observed.remarks);
            let proposal = format!("--group data={}", names.join(","));
            assert!(found.is_none_or(|remark| remark.message.contains(&proposal)), "{found:?}");
            assert!(groups.is_empty() == observed.groups.is_empty(), "nobody named a group");
        }
    }

    #[test]
    fn the_remark_on_the_first_interval_is_made_once() {
        let mut watch = Watch::new(WatchOptions::default());
        let mut made = Vec::new();
        for device in ["sdd", "sdd", "sde", "sdd", "sde"] {
            let judged = see(&mut watch, &interval(device, reads(5_000.0, 0.1, 50.0)));
            assert_eq!(judged.capacity_basis, Basis::Unknown);
            made.push(judged.remarks.iter().any(|remark| remark.code == verdict::FIRST_INTERVAL));
        }
        assert_eq!(made, [true, false, true, false, false]);
    }

    #[test]
    fn an_impossible_util_is_called_invalid_and_decides_nothing() {
        for util in [250.0, 1.8e11, 1.8446744e19] {
            let mut watch = Watch::new(WatchOptions::default());
            let judged = see(&mut watch, &interval("sda", reads(120.0, 0.1, util)));
            let mut without = interval("sda", reads(120.0, 0.1, util));
            without.devices[0].columns.util_percent = None;
            let expected = see(&mut Watch::new(WatchOptions::default()), &without);
            assert_eq!((judged.verdict, judged.interval.columns.util_percent), (expected.verdict, None), "{util}");
            let codes: Vec<_> = judged.remarks.iter().map(|remark| remark.code).collect();
            assert!(codes.contains(&"util-invalid") && !codes.contains(&"util-misleads"), "{codes:?}");
        }
        // Whole ticks may make a little more than 100 of a short interval.
        let judged = see(&mut Watch::new(WatchOptions::default()), &interval("sda", reads(120.0, 0.1, 104.0)));
        assert!(!judged.remarks.iter().any(|remark| remark.code == "util-invalid"));
    }

    fn of_devices(devices: &[(&str, Columns)]) -> Observed {
        let device = |(name, columns): &(&str, Columns)| DeviceInterval {
            device: (*name).to_owned(),
            columns: *columns,
            ..DeviceInterval::default()
        };
        let interval = Interval { devices: devices.iter().map(device).collect(), ..Interval::default() };
        Watch::new(WatchOptions::default()).observe(&interval, &Facts::new())
    }

    #[test]
    fn what_lies_on_disks_is_judged_by_them() {
        let free = |per_s| reads(per_s, 7.0, per_s * 0.7);
        // Four disks that spin, each half busy; together they always have a request under way.
        let disks = [("sda", free(60.0)), ("sdb", free(70.0)), ("sdc", free(80.0)), ("sdd", free(75.0))];
        for (per_s, await_ms) in [(285.0, 7.0), (285.0, 3.6), (285.0, 40.0)] {
            let stacked = reads(per_s, await_ms, 99.0);
            for name in ["dm-3", "md0"] {
                let observed = of_devices(&[&[(name, stacked)][..], &disks[..]].concat());
                let found = &observed.devices[0];
                assert_eq!(found.interval.device, name);
                assert_ne!(found.verdict, Verdict::Saturated, "{name} {await_ms}: {}", found.why);
                assert!(!found.why.contains("one request after the other"), "{name} {await_ms}: {}", found.why);
                assert!(observed.devices[1..].iter().all(|disk| disk.verdict == Verdict::Ok));
            }
        }

        // Alone, nothing says that it spins.
        let alone = of_devices(&[("dm-3", reads(118.0, 8.4, 99.0))]);
        assert_eq!(alone.devices[0].verdict, Verdict::Ok, "{}", alone.devices[0].why);

        // On a full disk it is full, too, and no limit of a volume: 100 requests a second are one that is sold.
        let full = reads(100.0, 40.0, 100.0);
        for name in ["dm-3", "md0"] {
            let observed = of_devices(&[(name, full), ("sda", full)]);
            let verdicts: Vec<Verdict> = observed.devices.iter().map(|device| device.verdict).collect();
            assert_eq!(verdicts, [Verdict::Saturated; 2], "{name}: {}", observed.devices[0].why);
            assert!(!observed.devices[0].why.contains("limit"), "{name}: {}", observed.devices[0].why);
        }
        assert!(of_devices(&[("md0", full)]).devices[0].why.contains("limit"));
    }

    #[test]
    fn a_report_that_may_be_since_boot_is_not_told_full() {
        let full = Interval { may_be_since_boot: true, ..interval("sda", reads(100.0, 40.0, 100.0)) };
        let mut watch = Watch::new(WatchOptions::default());
        let first = see(&mut watch, &full);
        assert_eq!(first.verdict, Verdict::Unknown);
        assert!(first.why.contains("-y") && first.why.contains("banner line"), "{}", first.why);
        let second = see(&mut watch, &Interval { may_be_since_boot: false, ..full });
        assert_eq!(second.verdict, Verdict::Saturated, "{}", second.why);
        let quiet = Interval { may_be_since_boot: true, ..interval("sda", reads(10.0, 5.0, 5.0)) };
        assert_eq!(see(&mut watch, &quiet).verdict, Verdict::Ok);
    }

    #[test]
    fn an_array_is_not_full_whose_members_are_free() {
        let member = |name: &str, await_ms: f64, queue: f64| DeviceInterval {
            device: name.to_owned(),
            columns: Columns { queue: Some(queue), ..reads(queue / await_ms * 1000.0, await_ms, 100.0) },
            ..DeviceInterval::default()
        };
        let facts = |members: &[&str]| -> Facts {
            let members = members.iter().map(|name| (*name).to_owned()).collect();
            [("md0".to_owned(), DeviceFacts { members, ..DeviceFacts::default() })].into()
        };
        let both = ["nvme0n1", "nvme1n1"];

        let cases = [
            (facts(&both), 0.1, Verdict::Unknown),
            (facts(&["nvme0n1", "nvme9n1"]), 0.1, Verdict::Saturated),
            (facts(&[]), 0.1, Verdict::Saturated),
            (facts(&both), 8.0, Verdict::Saturated),
        ];

        for (facts, await_ms, expected) in cases {
            let mut devices = vec![member("md0", 40.0, 64.0)];
            let queue = if await_ms > 1.0 { 200.0 } else { 1.0 };
            devices.extend(both.map(|name| member(name, await_ms, queue)));
            let interval = Interval { duration_s: Some(1.0), devices, ..Interval::default() };
            let observed = Watch::new(WatchOptions::default()).observe(&interval, &facts);
            let md0 = &observed.devices[0];
            assert_eq!(md0.verdict, expected, "{await_ms}: {} {:?}", md0.why, observed.devices[1].why);
            assert_eq!(md0.why.contains("not clear"), expected == Verdict::Unknown, "{}", md0.why);
        }
    }

    #[test]
    fn a_model_by_name_or_for_all() {
        let find = |name: &str| Capacity::find(name, Path::new(".")).unwrap();
        let capacities = [("*".to_owned(), find("i3en.3xlarge")), ("nvme1n1".to_owned(), find("gp3"))].into();
        let mut watch = Watch::new(WatchOptions { capacities, ..WatchOptions::default() });
        let first = see(&mut watch, &interval("nvme0n1", reads(7_246.0, 0.138, 100.0)));
        assert_eq!(first.verdict, Verdict::BusyButFree, "{}", first.why);
        assert!(first.capacity_use.unwrap() < 0.05 && first.remarks.iter().any(|r| r.code == "util-misleads"));
        let second = see(&mut watch, &interval("nvme1n1", reads(3_000.0, 20.0, 100.0)));
        assert_eq!(second.verdict, Verdict::Saturated, "{}", second.why);
        let part: Facts =
            [("nvme0n1p1".to_owned(), DeviceFacts { is_partition: true, ..DeviceFacts::default() })].into();
        let of_part = watch.observe(&interval("nvme0n1p1", reads(100.0, 0.1, 1.0)), &part);
        assert_eq!(of_part.devices[0].capacity_basis, Basis::Unknown);
        // Text of iostat does not name the members of an array.
        for array in ["md0", "dm-0"] {
            let of_array = see(&mut watch, &interval(array, reads(400_000.0, 0.1, 100.0)));
            assert_eq!(of_array.capacity_basis, Basis::Unknown, "{array}");
        }
    }

    #[test]
    fn a_published_file_of_two_loads() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stat_samples/brooker_2014_samsung840evo_two_loads.txt");
        let bytes = std::fs::read(&path).unwrap();
        let recorded = super::super::from::read("brooker", &bytes, &Default::default()).unwrap();
        let mut watch = Watch::new(WatchOptions::default());
        let judged: Vec<Judged> = recorded.intervals.iter().map(|interval| see(&mut watch, interval)).collect();
        let part = judged[1].saturation.unwrap();
        assert!((part - 0.71).abs() < 0.01, "{part}");
        assert_eq!((judged[0].verdict, judged[1].verdict), (Verdict::Ok, Verdict::Saturated), "{}", judged[1].why);
    }

    #[test]
    fn a_quiet_interval_does_not_make_a_moderate_load_full() {
        let mut watch = Watch::new(WatchOptions::default());
        see(&mut watch, &interval("nvme0n1", reads(7_246.0, 0.08, 60.0)));
        let both = Columns {
            writes_per_s: Some(10_000.0),
            write_kib_per_s: Some(40_000.0),
            write_await_ms: Some(0.1),
            queue: Some(9.8),
            ..reads(60_000.0, 0.14, 100.0)
        };
        let judged = see(&mut watch, &interval("nvme0n1", both));
        // Ten under way and twice the least latency: a burst, or a slower device. It is not called full.
        assert_eq!(judged.verdict, Verdict::Unknown, "{}", judged.why);
    }

    #[test]
    fn fewer_workers_have_less_done() {
        for (per_s, await_ms, expected) in [(150_000.0, 0.25, Verdict::Ok), (50_000.0, 0.75, Verdict::Degraded)] {
            let mut watch = Watch::new(WatchOptions::default());
            see(&mut watch, &interval("nvme0n1", reads(7_246.0, 0.08, 60.0)));
            let full = see(&mut watch, &interval("nvme0n1", reads(231_000.0, 0.36, 100.0)));
            assert_eq!(full.verdict, Verdict::Saturated, "{}", full.why);
            let judged = see(&mut watch, &interval("nvme0n1", reads(per_s, await_ms, 100.0)));
            assert_eq!(judged.verdict, expected, "{}", judged.why);
        }
    }

    #[test]
    fn a_hang_where_busy_time_stands_still() {
        let mut watch = Watch::new(WatchOptions::default());
        let mut before = interval("sda", reads(100.0, 5.0, 50.0));
        before.devices[0].in_flight = Some(1);
        see(&mut watch, &before);
        let mut stuck = interval("sda", reads(0.0, 0.0, 0.0));
        stuck.devices[0].in_flight = Some(1);
        stuck.duration_s = Some(0.5);
        assert_eq!(see(&mut watch, &stuck).verdict, Verdict::Unknown);
        assert_eq!(see(&mut watch, &stuck).verdict, Verdict::Hung);
    }

    #[test]
    fn a_hang_grows_and_ends() {
        let mut watch = Watch::new(WatchOptions::default());
        let mut stuck =
            interval("sda", Columns { reads_per_s: Some(0.0), writes_per_s: Some(0.0), ..Columns::default() });
        stuck.devices[0].in_flight = Some(3);
        stuck.duration_s = Some(0.5);
        assert_ne!(see(&mut watch, &stuck).verdict, Verdict::Hung);
        let hung = see(&mut watch, &stuck);
        assert_eq!((hung.verdict, hung.why.contains("1.0 s")), (Verdict::Hung, true), "{}", hung.why);
        assert_eq!(see(&mut watch, &interval("sda", reads(100.0, 5.0, 50.0))).verdict, Verdict::Ok);
        assert_ne!(see(&mut watch, &stuck).verdict, Verdict::Hung);
    }

    #[test]
    fn another_device_of_the_same_name_begins_anew() {
        let mut watch = Watch::new(WatchOptions::default());
        for _ in 0..2 {
            see(&mut watch, &interval("sda", reads(1000.0, 0.1, 50.0)));
        }
        let mut reset = interval("sda", Columns::default());
        reset.devices[0].gap = Some(Gap::Reset);
        assert_eq!(see(&mut watch, &reset).verdict, Verdict::Unknown);
        assert_eq!(see(&mut watch, &interval("sda", reads(10.0, 0.1, 50.0))).capacity_use, None);
    }

    #[test]
    fn remarks_on_the_whole() {
        let mut watch = Watch::new(WatchOptions::default());
        let mut since_boot = interval("nvme0n1", reads(50_000.0, 0.1, 100.0));
        since_boot.is_since_boot = true;
        since_boot.cpu = Some(CpuShares { iowait: 40.0, ..CpuShares::default() });
        let codes: Vec<_> = watch.observe(&since_boot, &Facts::new()).remarks.iter().map(|r| r.code).collect();
        assert_eq!(codes, ["since-boot", "iowait-is-no-evidence"]);
        assert_eq!(watch.devices["nvme0n1"].peaks, Peaks::default());
        let mut full = interval("nvme0n1", reads(50_000.0, 2.0, 100.0));
        full.cpu = Some(CpuShares { iowait: 0.4, ..CpuShares::default() });
        let observed = watch.observe(&full, &Facts::new());
        assert_eq!(observed.devices[0].verdict, Verdict::Saturated, "{}", observed.devices[0].why);
        assert!(observed.remarks[0].message.contains("nvme0n1 being saturated"), "{:?}", observed.remarks);
    }

    #[test]
    fn names_that_come_and_go_are_forgotten() {
        let mut watch = Watch::new(WatchOptions::default());
        for index in 0..DEVICES_MOST + 10 {
            see(&mut watch, &interval(&format!("dm-{index}"), reads(1.0, 0.1, 0.0)));
        }
        assert!(watch.devices.len() <= DEVICES_MOST + 1);
    }
}

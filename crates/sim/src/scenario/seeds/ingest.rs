//! A database ingests until its disk is 80 % full: static shares, a cap on compaction, a bound on its debt,
//! controllers.
//!
//! # Why
//! ScyllaDB on an i3en.24xlarge ingested 2 million rows of 1 kB a second, 1.5 when the tree had grown and needed
//! compaction, and 1 when the disk was three quarters full and slower, without being configured for it. Static shares
//! cannot adapt like that.
//!
//! # How it works
//! Clients write the commitlog; their data is dirty memory until it is flushed; flushed files are merged four at a
//! time, tier by tier; queries read beside it all. Only lengths of files are modelled. Every 5 ms the database inspects
//! the bytes that its classes have moved, starts and stops its jobs and, if it has controllers
//! (`plimsoll_core::backlog`), adjusts shares and the delay of writes.
//!
//! # Limits
//! Disk, memory and time are a thousandth. Merging takes no CPU and no key overwrites another. Space that a merge needs
//! while it runs is not counted.
//!
//! # Example
//! 45 GB in memtables of 48 MB are 940 files, and each byte is written 4 times more until there are 4 of them.

use plimsoll_core::backlog::{
    DebtLimits, Ingestion, IngestionRate, ShareController, ShareCurve, TreeFile, ingestion_delay_ns, size_tiered_bytes,
};
use plimsoll_core::{Limits, Op, Qos, Rate};

use super::super::Target::{AtLeast, AtMost, Between};
use super::super::support::{Course, MS, S, as_one_disk, config_of, preset, reads};
use super::super::{Advance, Outcome, ScenarioError, Series, Table};
use crate::report::Sample;
use crate::workload::{JobSpec, Load, Pattern, Region, Spacing};
use crate::world::{Change, ClassSpec, ShardSpec, SimDisk, WorldSpec, run_steered};

const CAPACITY_BYTES: u64 = 60_000_000_000;
/// Data at which the run ends: 80 % of the capacity, late enough to show the effect of the slower disk.
const DATA_BYTES: u64 = 48_000_000_000;
const MEMORY_BYTES: f64 = 768e6;
const DIRTY_MAX_BYTES: f64 = MEMORY_BYTES / 2.0;
const MEMTABLE_BYTES: u64 = 48_000_000;
/// Rate that clients offer: 2 million rows of 1 kB a second.
const OFFERED_BYTES_PER_S: f64 = 2e9;
/// Writes that clients have outstanding, and the length of a commitlog write.
const WRITERS: f64 = 64.0;
const COMMIT_BYTES: u32 = 128 << 10;
/// Longest delay of a write.
const DELAY_MAX_NS: u64 = 10 * MS;
/// Bytes that merging may read ahead of its writes.
const READ_AHEAD_BYTES: u64 = 64 << 20;
const FILES_PER_MERGE: u32 = 4;
const LOOK_NS: u64 = 5 * MS;
const DURATION_NS: u64 = 60 * S;
/// Cap on compaction: the rate that the tree needs at 2 GB/s while it is small.
const CAP_BYTES_PER_S: u64 = 1_000_000_000;

/// Shares of flushes and compaction without a controller.
const STATIC_SHARES: u32 = 100;

const CLASSES: [&str; 6] = ["query", "commitlog", "memtable", "compaction", "compaction-read", "compaction-write"];

/// Debt of due merges that bounds writes: delayed from 8 times the memory on, stopped at 40 times.
const DEBT: DebtLimits = DebtLimits {
    soft_bytes: 8 * MEMORY_BYTES as u64,
    hard_bytes: 40 * MEMORY_BYTES as u64,
    rate_max_bytes_per_s: OFFERED_BYTES_PER_S as u64,
};

/// Fill levels of the run that are rows of the table; between 70 and 76 % the disk becomes slower.
const PHASES: [(f64, f64); 5] = [(0.02, 0.1), (0.1, 0.3), (0.3, 0.5), (0.5, 0.7), (0.76, 0.8)];

/// How the database controls itself.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Static,
    Capped,
    /// Static shares; writes slow down if compaction has too much to do.
    Bounded,
    Controlled,
}

/// Files of one length.
#[derive(Clone, Copy, Default)]
struct Tier {
    files: u32,
    /// Bytes done of a merge of [`FILES_PER_MERGE`] further files.
    merged_bytes: Option<u64>,
}

impl Tier {
    fn files(&self) -> u32 {
        self.files + self.merged_bytes.map_or(0, |_| FILES_PER_MERGE)
    }
}

/// The state of the database.
struct Database {
    way: Way,
    dirty_bytes: f64,
    flushed_bytes: u64,
    data_bytes: u64,
    tiers: Vec<Tier>,
    /// Files that flushes and merges have made so far.
    files: u64,
    /// Bytes read and written by merges.
    merge: [u64; 2],
    running: [bool; 4],
    flush: ShareController,
    compaction: ShareController,
    rate: IngestionRate,
    ingestion: Ingestion,
    stopped_ns: u64,
    looks: Vec<Look>,
}

/// The measurements of one step.
#[derive(Clone, Copy)]
struct Look {
    at_ns: u64,
    ingested_bytes: u64,
    disk_bytes: u64,
    fill: f64,
    query_p99_ns: u64,
    backlog: f64,
    dirty: f64,
    shares: [u32; 2],
    files: u32,
}

impl Database {
    fn new(way: Way) -> Database {
        Database {
            way,
            dirty_bytes: 0.0,
            flushed_bytes: 0,
            data_bytes: 0,
            tiers: Vec::new(),
            files: 0,
            merge: [0; 2],
            running: [false; 4],
            flush: ShareController::new(ShareCurve::flush(), 50 * MS),
            compaction: ShareController::new(ShareCurve::compaction(), 250 * MS),
            rate: IngestionRate::new(DEBT),
            ingestion: Ingestion::Free,
            stopped_ns: 0,
            looks: Vec::new(),
        }
    }

    fn file_bytes(tier: usize) -> u64 {
        MEMTABLE_BYTES * u64::from(FILES_PER_MERGE).pow(tier as u32)
    }

    fn backlog(&self) -> f64 {
        let mut files = Vec::new();
        for (tier, of) in self.tiers.iter().enumerate() {
            let bytes = Self::file_bytes(tier);
            files.extend((0..of.files).map(|_| TreeFile { bytes, compacted_bytes: 0 }));
            let compacted_bytes = of.merged_bytes.map(|bytes| bytes / u64::from(FILES_PER_MERGE));
            let merging = compacted_bytes.map(|compacted_bytes| TreeFile { bytes, compacted_bytes });
            files.extend(merging.into_iter().flat_map(|file| [file; FILES_PER_MERGE as usize]));
        }
        size_tiered_bytes(&files) / MEMORY_BYTES
    }

    /// Returns the bytes still to be written by merges that could run now.
    fn due_bytes(&self) -> u64 {
        let of_tier = |(tier, of): (usize, &Tier)| {
            let merged_bytes = Self::file_bytes(tier + 1);
            let going_bytes = of.merged_bytes.map_or(0, |done_bytes| merged_bytes - done_bytes);
            u64::from(of.files / FILES_PER_MERGE) * merged_bytes + going_bytes
        };
        self.tiers.iter().enumerate().map(of_tier).sum()
    }

    fn add_file(&mut self, tier: usize) {
        if self.tiers.len() <= tier {
            self.tiers.resize(tier + 1, Tier::default());
        }
        self.tiers[tier].files += 1;
        self.files += 1;
    }

    /// Advances merges by `bytes`: the shortest files first, because they slow reads down most.
    fn merge_on(&mut self, mut bytes: u64) {
        let mut tier = 0;
        while tier < self.tiers.len() {
            let of = &mut self.tiers[tier];
            if of.merged_bytes.is_none() && of.files >= FILES_PER_MERGE {
                of.files -= FILES_PER_MERGE;
                of.merged_bytes = Some(0);
            }

            let Some(done_bytes) = of.merged_bytes else {
                tier += 1;
                continue;
            };

            let left_bytes = Self::file_bytes(tier + 1) - done_bytes;
            if bytes < left_bytes {
                self.tiers[tier].merged_bytes = Some(done_bytes + bytes);
                return;
            }
            bytes -= left_bytes;
            self.tiers[tier].merged_bytes = None;
            self.add_file(tier + 1);
        }
    }

    /// Accounts for the bytes moved. Returns the changes to make.
    fn look(&mut self, sample: &Sample) -> Vec<Change> {
        let files_before = self.files;
        let [query, commit, memtable, _, read, write] = [0, 1, 2, 3, 4, 5].map(|class| sample.classes[class]);
        // Bytes that a flush wrote too many before it was stopped are the next one's beginning.
        self.dirty_bytes += commit.bytes as f64 - memtable.bytes as f64;
        self.data_bytes += memtable.bytes;
        self.flushed_bytes += memtable.bytes;
        while self.flushed_bytes >= MEMTABLE_BYTES {
            self.flushed_bytes -= MEMTABLE_BYTES;
            self.add_file(0);
        }

        let done_before = self.merge[0].min(self.merge[1]);
        self.merge = [self.merge[0] + read.bytes, self.merge[1] + write.bytes];
        self.merge_on(self.merge[0].min(self.merge[1]) - done_before);

        let backlog = self.backlog();
        let dirty = self.dirty_bytes.max(0.0) / DIRTY_MAX_BYTES;
        let mut changes = Vec::new();

        if self.way == Way::Bounded && self.files != files_before {
            self.ingestion = self.rate.update(self.due_bytes());
        }
        if self.way == Way::Controlled {
            let pairs = [("memtable", &mut self.flush, dirty), ("compaction", &mut self.compaction, backlog)];
            for (class, controller, input) in pairs {
                let shares = controller.update(sample.at_ns, input);
                changes.extend(shares.map(|shares| Change::SetShares { class: class.into(), shares }));
            }
        }

        changes.push(Change::SetQos { class: "commitlog".into(), qos: limited(self.allowed_bytes_per_s(dirty)) });
        let merges = self.tiers.iter().any(|tier| tier.merged_bytes.is_some() || tier.files >= FILES_PER_MERGE);
        let [read_bytes, written_bytes] = self.merge;
        let wanted = [
            self.dirty_bytes >= if self.running[0] { 1e6 } else { MEMTABLE_BYTES as f64 },
            merges && read_bytes < written_bytes + READ_AHEAD_BYTES,
            merges && written_bytes < read_bytes,
            dirty < 1.0 && self.ingestion != Ingestion::Stopped && self.data_bytes < DATA_BYTES,
        ];

        for (job, (wanted, running)) in
            ["flush", "read", "write", "ingest"].into_iter().zip(wanted.into_iter().zip(&mut self.running))
        {
            if wanted != *running {
                *running = wanted;
                let job = job.to_owned();
                changes.push(if wanted { Change::StartJob { job } } else { Change::StopJob { job } });
            }
        }

        if dirty >= 1.0 || self.ingestion == Ingestion::Stopped {
            self.stopped_ns += sample.interval_ns;
        }

        self.looks.push(Look {
            at_ns: sample.at_ns,
            ingested_bytes: commit.bytes,
            disk_bytes: sample.classes.iter().map(|class| class.bytes).sum(),
            fill: self.data_bytes as f64 / CAPACITY_BYTES as f64,
            query_p99_ns: query.p99_ns,
            backlog,
            dirty,
            shares: match self.way {
                Way::Controlled => [self.flush.shares(), self.compaction.shares()],
                _ => [STATIC_SHARES; 2],
            },
            files: self.tiers.iter().map(Tier::files).sum(),
        });
        changes
    }

    /// Returns the rate of clients. They wait for their answers, so a delay slows them down.
    fn allowed_bytes_per_s(&self, dirty: f64) -> f64 {
        if let Ingestion::Delayed { bytes_per_s } = self.ingestion {
            return bytes_per_s as f64;
        }
        let delay_ns = if self.way == Way::Controlled { ingestion_delay_ns(dirty, DELAY_MAX_NS) } else { 0 };
        let outstanding_bytes = WRITERS * f64::from(COMMIT_BYTES);
        outstanding_bytes / (outstanding_bytes / OFFERED_BYTES_PER_S + delay_ns as f64 / 1e9)
    }
}

fn limited(bytes_per_s: f64) -> Qos {
    let bandwidth = Rate::per_second(bytes_per_s as u64);
    Qos { limits: Limits { bandwidth, ..Limits::default() }, ..Qos::default() }
}

fn run(seed: u64, way: Way, course: &mut Course<'_>) -> Result<Database, ScenarioError> {
    let preset = preset("i3en.24xlarge")?;
    let mut device = as_one_disk(&preset);
    device.capacity_bytes = CAPACITY_BYTES;
    device.flash.fill_curve = vec![(0.0, 1.0), (0.7, 1.0), (0.8, 0.625), (1.0, 0.61)];
    let disk = SimDisk::new(device, config_of(&preset.figures));
    let region = |offset_bytes, len_bytes| Region { offset_bytes, len_bytes, shard_stride_bytes: 0 };
    // Flushes fill the disk; the other writes go to its filled part.
    let old = region(0, 1 << 30);
    let job = |name: &str, class: &str, op, pattern, region, parallelism, len_bytes| JobSpec {
        class: class.into(),
        op,
        pattern,
        region,
        start_ns: None,
        ..reads(name, parallelism, len_bytes)
    };

    let query = JobSpec {
        start_ns: Some(0),
        load: Load::Open { requests_per_s: 20_000.0, spacing: Spacing::Poisson, batch: 1, max_outstanding: None },
        ..job("query", "query", Op::Read, Pattern::Random, region(0, CAPACITY_BYTES), 1, 4096)
    };

    let mut classes = [1000, 1000, 100, 100, 100, 100]
        .into_iter()
        .zip(CLASSES)
        .map(|(shares, name)| match name {
            "compaction" => ClassSpec::group(name, shares),
            "compaction-read" | "compaction-write" => ClassSpec::new(name, shares).in_group("compaction"),
            _ => ClassSpec::new(name, shares),
        })
        .collect::<Vec<_>>();
    if way == Way::Capped {
        classes[3].qos = limited(CAP_BYTES_PER_S as f64);
    }

    let spec = WorldSpec {
        seed,
        warmup_ns: 0,
        duration_ns: DURATION_NS,
        sample_ns: LOOK_NS,
        shards: vec![ShardSpec::default()],
        disks: vec![disk],
        classes,
        jobs: vec![
            query,
            job("ingest", "commitlog", Op::Write, Pattern::Sequential, old, WRITERS as u32, COMMIT_BYTES),
            job("flush", "memtable", Op::Write, Pattern::Append, region(0, CAPACITY_BYTES), 8, 1 << 20),
            job("read", "compaction-read", Op::Read, Pattern::Sequential, old, 32, 1 << 20),
            job("write", "compaction-write", Op::Write, Pattern::Sequential, old, 32, 1 << 20),
        ],
        ..WorldSpec::default()
    };

    let mut database = Database::new(way);
    let report = run_steered(&spec, &mut |sample| {
        course.advance_within(&spec, sample);
        database.look(sample)
    })?;
    course.note(&report);
    Ok(database)
}

/// Runs all ways of ingesting.
pub(super) fn ingest_controllers(seed: u64, advance: Advance<'_>) -> Result<Outcome, ScenarioError> {
    let mut course = Course::of(4, advance);
    let mut table = Table::new(
        "i3en.24xlarge (a thousandth of it), clients offer 2 GB/s; rows by how full the disk is",
        &["way", "fill", "ingested", "disk", "dirty", "backlog", "files", "flush, comp. shares", "query p99"],
    );
    let ways =
        [("static", Way::Static), ("capped", Way::Capped), ("bounded", Way::Bounded), ("controllers", Way::Controlled)];

    let (mut ingested, mut backlogs) = (Vec::new(), Vec::new());
    let mut found = Vec::new();
    for (name, way) in ways {
        let database = run(seed, way, &mut course)?;
        let full = DATA_BYTES as f64 / CAPACITY_BYTES as f64;
        let end = database.looks.iter().position(|look| look.fill >= full);
        let looks = &database.looks[..end.unwrap_or(database.looks.len())];

        let phases = PHASES.map(|(from, until)| {
            let of: Vec<Look> = looks.iter().filter(|look| (from..until).contains(&look.fill)).copied().collect();
            table.row(row_of(name, (from, until), &of));
            of
        });
        let seconds = looks.chunks_exact((S / LOOK_NS) as usize).map(|second| (second[0].at_ns as f64 / 1e9, second));
        ingested
            .push((name.to_owned(), seconds.clone().map(|(at_s, second)| (at_s, ingested_gb_per_s(second))).collect()));
        backlogs.push((name.to_owned(), seconds.clone().map(|(at_s, second)| (at_s, second[0].backlog)).collect()));
        let mut p99s: Vec<f64> = seconds.map(|(_, second)| query_p99_ns(second) as f64).collect();
        p99s.sort_by(f64::total_cmp);
        let worst_p99 = p99s.last().copied().unwrap_or_default() / p99s.get(p99s.len() / 2).copied().unwrap_or(1.0);
        let rates = phases.each_ref().map(|looks| ingested_gb_per_s(looks));
        let (fill, backlog) = looks.last().map_or((0.0, f64::INFINITY), |look| (look.fill, look.backlog));
        found.push(Found { fill, backlog, stopped_ns: database.stopped_ns, worst_p99, rates });
    }

    course.outcome.tables.push(table);
    judge(&mut course, &found);
    let curves = [
        ("ingestion while the tree grows", "GB/s", ingested),
        ("what compaction has still to write, over memory", "1", backlogs),
    ];
    for (title, y, curves) in curves {
        course.outcome.series.push(Series { title: title.into(), x: "s".into(), y: y.into(), curves });
    }
    course.remark(
        "Published: 2, 1.5 and 1 million rows of 1 kB a second. Ours takes less at first, as its compaction works from the \
         first file on. Time, capacity and memory are a thousandth; backlog is in units of memory.",
    );
    Ok(course.outcome)
}

/// The judged results of one way.
struct Found {
    fill: f64,
    /// Backlog at the end, in units of memory.
    backlog: f64,
    stopped_ns: u64,
    /// p99 of queries: the worst second over the median one.
    worst_p99: f64,
    /// Ingested in each phase, GB/s.
    rates: [f64; 5],
}

fn judge(course: &mut Course<'_>, found: &[Found]) {
    let [fixed, capped, bounded, controlled] = found else { return };
    let (beginning, half_full, slow) = (controlled.rates[0], controlled.rates[3], controlled.rates[4]);

    let fill = found.iter().map(|way| way.fill).fold(1.0, f64::min);
    course.figure("the disk is full at the end, whichever way", fill, AtLeast(0.79));
    course.figure("bounded: backlog at the end, over static shares'", bounded.backlog / fixed.backlog, AtMost(0.7));

    course.figure("controllers: writes stood still, ms", (controlled.stopped_ns / MS) as f64, AtMost(0.0));
    for (name, other) in [("static shares'", fixed), ("a cap's", capped)] {
        let name = format!("controllers: backlog at the end, over {name}");
        course.figure(name, controlled.backlog / other.backlog, AtMost(0.5));
    }
    course.figure("controllers: query p99, worst second over the middle one", controlled.worst_p99, AtMost(2.5));
    course.figure("controllers: ingested when half full, over the beginning", half_full / beginning, Between(0.6, 0.9));
    course.figure("controllers: ingested when full and slow, over the beginning", slow / beginning, Between(0.4, 0.75));
}

fn row_of(name: &str, (from, until): (f64, f64), looks: &[Look]) -> [String; 9] {
    let mean = |of: &dyn Fn(&Look) -> f64| looks.iter().map(of).sum::<f64>() / looks.len().max(1) as f64;
    let shares = [0, 1].map(|at| mean(&|look| f64::from(look.shares[at])));
    [
        name.to_owned(),
        format!("{:.0} to {:.0} %", from * 100.0, until * 100.0),
        format!("{:.2} GB/s", ingested_gb_per_s(looks)),
        format!("{:.1} GB/s", mean(&|look| look.disk_bytes as f64) / LOOK_NS as f64),
        format!("{:.0} %", 100.0 * mean(&|look| look.dirty)),
        format!("{:.1}", mean(&|look| look.backlog)),
        format!("{:.0}", mean(&|look| f64::from(look.files))),
        format!("{:.0}, {:.0}", shares[0], shares[1]),
        format!("{:.2} ms", query_p99_ns(looks) as f64 / 1e6),
    ]
}

fn ingested_gb_per_s(looks: &[Look]) -> f64 {
    let bytes: u64 = looks.iter().map(|look| look.ingested_bytes).sum();
    bytes as f64 / (looks.len().max(1) as u64 * LOOK_NS) as f64
}

/// Returns the median of the 99th percentiles of all steps.
fn query_p99_ns(looks: &[Look]) -> u64 {
    let mut p99s: Vec<u64> = looks.iter().map(|look| look.query_p99_ns).collect();
    p99s.sort_unstable();
    p99s.get(p99s.len() / 2).copied().unwrap_or(0)
}

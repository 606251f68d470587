//! The stages of a trace as figures, verdicts, JSON, CSV, pictures and a page.

use plimsoll::core::{Histogram, Op, WaitReason};
use plimsoll_figures::units::{format_bytes_binary, format_count, format_duration_ns};
use plimsoll_show::answer::{Answer, Mood};
use plimsoll_show::page::{self, Block, Section};
use plimsoll_show::plot::{Axis, Chart, Layer, Unit};
use plimsoll_show::table::{Column, Table, csv, fixed, known};
use serde::Serialize;

use super::super::span::{Origin, Trace};
use super::{BINS_MAX, By, C2R, ClassSums, D2C, Disk, Group, Key, Q2C, Q2D, STAGE_NAMES, Stages, TimePoint, Waits};

pub const SCHEMA: u32 = 1;

/// Names of the pictures of a report, in the order of [`StagesReport::charts`].
pub const PICTURES: [&str; 2] = ["depth", "bandwidth"];

/// Where the time from D to R went. Lateness is time in which a piece was done and the shard did not poll: surely C2R,
/// and at most `late` of D2C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Lateness is less than half of the time, even if every piece was done as early as possible.
    Disk,
    /// Lateness is at least half of the time if pieces were done in the middle of the time in which the shard did not
    /// poll.
    Late,
    /// Either: the shard polled too rarely to tell.
    Open,
    /// The trace does not say when the shard polled.
    Unknown,
}

impl Verdict {
    pub const fn words(self) -> &'static str {
        match self {
            Verdict::Disk => "in the disk",
            Verdict::Late => "seen late",
            Verdict::Open => "open",
            Verdict::Unknown => "not known",
        }
    }
}

/// Figures of one stage. Times are in ns, percentiles within 0.78 %.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReport {
    /// `Q2D`, `D2C`, `late`, `C2R`, `R2U` or `Q2C`.
    pub stage: &'static str,
    /// Pieces with both ends of the stage known, above 0.
    pub n: u64,
    pub min_ns: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub p99_9_ns: u64,
    pub max_ns: u64,
    /// Part of the sum of Q2C, over the pieces with Q, D and C; stages after C may exceed it. `None` without any.
    pub share: Option<f64>,
}

/// Time in the queue by reason.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WaitReport {
    /// The reason for which the class waited longest, or `none`.
    pub reason: &'static str,
    /// Part of the time from Q to D of pieces with this reason, 0 to 1.
    pub share: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupReport {
    pub class: Option<String>,
    /// Highest length of its pieces, a power of two; all are longer than half of it.
    pub size_max_bytes: Option<u64>,
    pub op: Option<&'static str>,
    pub disk: Option<String>,
    pub shard: Option<u16>,
    /// Whether this stands for all groups beyond [`super::GROUPS_MAX`].
    pub is_rest: bool,
    pub spans: u64,
    pub bytes: u64,
    pub stages: Vec<StageReport>,
    /// Reasons with any time, the longest first.
    pub waits: Vec<WaitReport>,
}

impl GroupReport {
    /// Returns a name for people that distinguishes the group from others.
    pub fn label(&self) -> String {
        if self.is_rest {
            return "further groups".to_owned();
        }
        let size = self.size_max_bytes.map(|size_bytes| match size_bytes {
            0 => "no length".to_owned(),
            _ => format!("to {}", format_bytes_binary(size_bytes)),
        });
        let shard = self.shard.map(|shard| format!("shard {shard}"));
        let parts = [self.class.clone(), size, self.op.map(str::to_owned), self.disk.clone(), shard];
        let label = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
        if label.is_empty() { "all".to_owned() } else { label }
    }
}

/// A class and where its time went.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassReport {
    pub class: String,
    pub spans: u64,
    /// Part of the time from Q to C that was before D, 0 to 1; `None` if no piece has Q, D and C.
    pub queue_share: Option<f64>,
    /// Wait reasons of its pieces, the longest first.
    pub waits: Vec<WaitReport>,
    /// Mean from D to R of pieces with all of D, C and R, in ns.
    pub out_to_reaped_mean_ns: f64,
    /// Part of D2C that was lateness at most, 0 to 1.
    pub late_of_d2c_max: f64,
    /// Part of the time from D to R that was surely lateness.
    pub late_min: f64,
    /// Part of the time from D to R that was lateness at most.
    pub late_max: f64,
    pub verdict: Verdict,
    pub sentence: String,
}

/// A disk: depths are of pieces, means over the whole time of the trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskReport {
    pub disk: String,
    pub queue_depth_mean: f64,
    pub queue_depth_max: u64,
    pub device_depth_mean: f64,
    pub device_depth_max: u64,
    /// Whether the highest numbers are exact; otherwise they may be a little off.
    pub is_max_exact: bool,
    pub read_bytes_per_s: f64,
    pub write_bytes_per_s: f64,
    pub series_step_ns: u64,
    pub series: Vec<TimePoint>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StagesReport {
    pub schema: u32,
    pub plimsoll: &'static str,
    /// `own` or `kernel`.
    pub origin: &'static str,
    pub events: u64,
    pub spans: u64,
    pub duration_ns: u64,
    pub errors: u64,
    /// Pieces cancelled before they went out.
    pub cancelled: u64,
    /// Stages left out because they ended before they began.
    pub backwards: u64,
    pub by: Vec<&'static str>,
    /// Groups, the one with the most time first.
    pub groups: Vec<GroupReport>,
    /// Classes, the one with the most pieces first.
    pub classes: Vec<ClassReport>,
    pub disks: Vec<DiskReport>,
    pub lost: Vec<String>,
}

pub(super) fn of(stages: Stages, trace: &Trace) -> StagesReport {
    let Stages { by, groups, others, classes, disks, other_disks, covered, .. } = stages;
    let (begin_ns, end_ns) = covered.range_ns();
    let duration_ns = end_ns.saturating_sub(begin_ns);
    let mut found: Vec<(f64, GroupReport)> =
        groups.iter().map(|(key, group)| (time_ns(group), group_report(*key, group, &by, trace))).collect();
    found.sort_by(|(a_ns, a), (b_ns, b)| b_ns.total_cmp(a_ns).then_with(|| a.label().cmp(&b.label())));
    let mut groups: Vec<GroupReport> = found.into_iter().map(|(_, group)| group).collect();
    if let Some(others) = others {
        groups.push(GroupReport { is_rest: true, ..group_report(Key::default(), &others, &[], trace) });
    }

    let mut class_reports: Vec<ClassReport> =
        classes.iter().map(|(number, sums)| class_report(trace.class_name(*number), sums, trace.origin)).collect();
    class_reports.sort_by(|a, b| b.spans.cmp(&a.spans).then_with(|| a.class.cmp(&b.class)));
    let named = disks.into_iter().map(|(number, disk)| (trace.disk_name(number), disk));
    let all = named.chain(other_disks.map(|disk| ("further disks".to_owned(), disk)));

    StagesReport {
        schema: SCHEMA,
        plimsoll: env!("CARGO_PKG_VERSION"),
        origin: match trace.origin {
            Origin::Own => "own",
            Origin::Kernel => "kernel",
        },
        events: trace.events,
        spans: trace.spans,
        duration_ns,
        errors: stages.errors,
        cancelled: stages.cancelled,
        backwards: stages.backwards,
        by: by.iter().map(|by| by.name()).collect(),
        groups,
        classes: class_reports,
        disks: all.map(|(name, disk)| disk_report(name, disk, begin_ns, duration_ns)).collect(),
        lost: trace.lost.clone(),
    }
}

fn sum_ns(histogram: &Histogram) -> f64 {
    histogram.mean() * histogram.count() as f64
}

/// Returns the time of a group's pieces as far as it is known; groups are ordered by it.
fn time_ns(group: &Group) -> f64 {
    sum_ns(&group.stages[Q2D]) + sum_ns(&group.stages[D2C]) + sum_ns(&group.stages[C2R])
}

fn group_report(key: Key, group: &Group, by: &[By], trace: &Trace) -> GroupReport {
    let whole_ns = Some(group.whole_ns[Q2C]).filter(|whole_ns| *whole_ns > 0);
    let is_known = |((_, histogram), _): &((&'static str, &Histogram), &u64)| !histogram.is_empty();
    let stage = |((stage, histogram), sum_ns): ((&'static str, &Histogram), &u64)| StageReport {
        stage,
        n: histogram.count(),
        min_ns: histogram.min(),
        mean_ns: histogram.mean(),
        p50_ns: histogram.percentile(50.0),
        p99_ns: histogram.percentile(99.0),
        p99_9_ns: histogram.percentile(99.9),
        max_ns: histogram.max(),
        share: whole_ns.map(|whole_ns| part(*sum_ns, whole_ns)),
    };

    let size_max_bytes = key.size.checked_sub(1).map_or(0, |exponent| 1_u64 << exponent);
    GroupReport {
        class: by.contains(&By::Class).then(|| trace.class_name(key.class)),
        size_max_bytes: by.contains(&By::Size).then_some(size_max_bytes),
        op: Op::ALL.get(usize::from(key.op)).filter(|_| by.contains(&By::Op)).map(|op| op.name()),
        disk: by.contains(&By::Disk).then(|| trace.disk_name(key.disk)),
        shard: by.contains(&By::Shard).then_some(key.shard),
        is_rest: false,
        spans: group.spans,
        bytes: group.bytes,
        stages: STAGE_NAMES.into_iter().zip(&group.stages).zip(&group.whole_ns).filter(is_known).map(stage).collect(),
        waits: waits(&group.waits),
    }
}

/// Parts of the sum, the largest first.
fn waits(waits: &Waits) -> Vec<WaitReport> {
    let total_ns: f64 = waits.iter().map(|wait_ns| *wait_ns as f64).sum();
    let names = WaitReason::ALL.iter().map(|reason| reason.name()).chain(["none"]);
    let mut found: Vec<WaitReport> = names
        .zip(waits)
        .filter(|(_, wait_ns)| **wait_ns > 0)
        .map(|(reason, wait_ns)| WaitReport { reason, share: *wait_ns as f64 / total_ns })
        .collect();
    found.sort_by(|a, b| b.share.total_cmp(&a.share));
    found
}

fn part(of: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { of as f64 / whole as f64 }
}

fn class_report(class: String, sums: &ClassSums, origin: Origin) -> ClassReport {
    let out_to_reaped_ns = sums.judged_d2c_ns.saturating_add(sums.c2r_ns);
    let late_min = part(sums.c2r_ns, out_to_reaped_ns);
    let late_max = part(sums.c2r_ns.saturating_add(sums.late_ns), out_to_reaped_ns);

    let verdict = match () {
        () if sums.judged == 0 || out_to_reaped_ns == 0 => Verdict::Unknown,
        () if late_max < 0.5 => Verdict::Disk,
        () if f64::midpoint(late_min, late_max) >= 0.5 => Verdict::Late,
        () => Verdict::Open,
    };

    let mut report = ClassReport {
        class,
        spans: sums.spans,
        queue_share: Some(sums.q2d_ns.saturating_add(sums.d2c_ns))
            .filter(|q2c_ns| *q2c_ns > 0)
            .map(|q2c_ns| part(sums.q2d_ns, q2c_ns)),
        waits: waits(&sums.waits),
        out_to_reaped_mean_ns: part(out_to_reaped_ns, sums.judged),
        late_of_d2c_max: part(sums.late_ns, sums.judged_d2c_ns),
        late_min,
        late_max,
        verdict,
        sentence: String::new(),
    };
    report.sentence = sentence(&report, origin);
    report
}

fn sentence(report: &ClassReport, origin: Origin) -> String {
    let ClassReport { class, late_min, late_max, late_of_d2c_max, verdict, .. } = report;
    let percent = |part: f64| format!("{:.0} %", 100.0 * part);

    let mostly = match report.waits.first() {
        Some(wait) if wait.reason != "none" => format!(", mostly for {}", wait.reason),
        _ => String::new(),
    };
    let queue = match report.queue_share {
        Some(share) => format!("{class}: {} of the time to C in the queue{mostly}", percent(share)),
        None => format!("{class}: no piece has the times Q, D and C"),
    };

    let figures = format!(
        "{} from D to R on average, of it {} surely and {} at most spent done and unseen ({} of D2C at most)",
        format_duration_ns(report.out_to_reaped_mean_ns as u64),
        percent(*late_min),
        percent(*late_max),
        percent(*late_of_d2c_max)
    );

    match (verdict, origin) {
        (Verdict::Unknown, Origin::Kernel) => {
            format!("{queue}. A kernel trace does not say when the program looked.")
        }
        (Verdict::Unknown, Origin::Own) => format!("{queue}. No piece has the times D, C and R."),
        // The queue has at least half of the time, so the disk is not the slow part.
        (Verdict::Disk, _) if report.queue_share.is_some_and(|share| share >= 0.5) => {
            format!("{queue}. What came after that was the disk's: {figures}.")
        }
        (Verdict::Disk, _) => format!("{queue}. The rest is mostly the disk's: {figures}."),
        (Verdict::Late, _) => format!("{queue}. The rest was seen late: {figures}. Look more often."),
        (Verdict::Open, _) => format!("{queue}. Open is whether the rest is the disk's or was seen late: {figures}."),
    }
}

fn disk_report(name: String, mut disk: Disk, begin_ns: u64, duration_ns: u64) -> DiskReport {
    let duration = duration_ns.max(1) as f64;
    let series = disk.timeline.points(begin_ns);
    DiskReport {
        disk: name,
        queue_depth_mean: disk.queue_ns as f64 / duration,
        queue_depth_max: disk.queue.finish(),
        device_depth_mean: disk.device_ns as f64 / duration,
        device_depth_max: disk.device.finish(),
        is_max_exact: disk.queue.late_edges() + disk.device.late_edges() == 0,
        read_bytes_per_s: disk.read_bytes as f64 * 1e9 / duration,
        write_bytes_per_s: disk.write_bytes as f64 * 1e9 / duration,
        series_step_ns: series.first().map_or(0, |point| point.length_ns),
        series,
    }
}

impl StagesReport {
    pub fn to_csv(&self) -> String {
        let columns: &[Column<(&GroupReport, &StageReport)>] = &[
            ("class", |it| if it.0.is_rest { it.0.label() } else { known(it.0.class.as_ref()) }),
            ("size_max_bytes", |it| known(it.0.size_max_bytes)),
            ("op", |it| known(it.0.op)),
            ("disk", |it| known(it.0.disk.as_ref())),
            ("shard", |it| known(it.0.shard)),
            ("stage", |it| it.1.stage.to_owned()),
            ("n", |it| it.1.n.to_string()),
            ("min_ns", |it| it.1.min_ns.to_string()),
            ("mean_ns", |it| fixed(it.1.mean_ns, 1)),
            ("p50_ns", |it| it.1.p50_ns.to_string()),
            ("p99_ns", |it| it.1.p99_ns.to_string()),
            ("p99_9_ns", |it| it.1.p99_9_ns.to_string()),
            ("max_ns", |it| it.1.max_ns.to_string()),
            ("share", |it| fixed(it.1.share, 6)),
        ];
        csv(&self.rows().collect::<Vec<_>>(), columns)
    }

    fn rows(&self) -> impl Iterator<Item = (&GroupReport, &StageReport)> {
        self.groups.iter().flat_map(|group| group.stages.iter().map(move |stage| (group, stage)))
    }

    /// Returns the pictures of depth and bandwidth over time, in the order of [`PICTURES`].
    pub fn charts(&self) -> Vec<Chart> {
        type Value = fn(&TimePoint) -> f64;
        let chart = |title: &str, label: &str, unit: Unit, curves: [(&str, Value); 2]| {
            let line = |disk: &DiskReport, name: &str, value: Value| Layer::Line {
                name: if self.disks.len() > 1 { format!("{}: {name}", disk.disk) } else { name.to_owned() },
                points: disk.series.iter().map(|point| (point.from_ns as f64, value(point))).collect(),
                dashed: false,
            };
            let of_disk = |disk| curves.map(|(name, value)| line(disk, name, value));
            Chart {
                title: title.to_owned(),
                x: Axis::linear("time", Unit::Nanoseconds),
                y: Axis::linear(label, unit),
                layers: self.disks.iter().flat_map(of_disk).collect(),
                note: Some(format!("Means of at most {BINS_MAX} parts of the time.")),
            }
        };

        let depths: [(&str, Value); 2] =
            [("in the queue", |point| point.queue_depth), ("in the device", |point| point.device_depth)];
        let rates: [(&str, Value); 2] =
            [("read", |point| point.read_bytes_per_s), ("written", |point| point.write_bytes_per_s)];

        vec![
            chart("Depth over time", "pieces", Unit::None, depths),
            chart("Bandwidth over time", "bytes per second", Unit::BytesPerSecond, rates),
        ]
    }

    /// Returns where the time of the first class went; `None` if nothing is known of any.
    pub fn answer(&self) -> Option<Answer> {
        let first = self.classes.first().filter(|_| !self.groups.is_empty());
        first.map(|class| Answer::new(Mood::Quiet, class.sentence.clone(), "", ""))
    }

    pub fn page(&self, title: &str) -> String {
        page::html(title, &self.sections())
    }

    pub fn sections(&self) -> Vec<Section> {
        let answer = self.answer().map(Block::Answer);
        let others = self.classes.iter().skip(1).map(|class| Block::Text(class.sentence.clone()));
        vec![
            Section {
                heading: "Where the time went".into(),
                blocks: answer.into_iter().chain([Block::Warnings(self.lost.clone())]).chain(others).collect(),
            },
            Section::new("Over time", [Block::Picture(self.charts())]),
            Section::new("Stages", [self.page_table().into()]),
        ]
    }

    fn page_table(&self) -> Table {
        let headers = ["group", "stage", "n", "min", "mean", "p50", "p99", "p99.9", "max", "share"];
        let rows = self.rows().map(|(group, stage)| [vec![group.label()], stage.cells().into()].concat());
        Table::new("Q2D queue, D2C device, late: of D2C at most, C2R unseen, R2U until the program knew", headers, rows)
    }
}

impl StageReport {
    /// Returns the figures for people: name, number, min, mean, p50, p99, p99.9, max, share of Q2C.
    pub fn cells(&self) -> [String; 9] {
        let ns = format_duration_ns;
        [
            self.stage.to_owned(),
            format_count(self.n),
            ns(self.min_ns),
            ns(self.mean_ns as u64),
            ns(self.p50_ns),
            ns(self.p99_ns),
            ns(self.p99_9_ns),
            ns(self.max_ns),
            self.share.map_or_else(String::new, |share| format!("{:.1} %", 100.0 * share)),
        ]
    }
}

//! Programs' metrics as Prometheus text: names and labels.
//!
//! # Why
//! Dashboards and alert rules depend on the names. All names are in the tables of this file.
//!
//! # How it works
//! A family's samples must be contiguous, so the outer loop is over families and the inner over programs. Every sample
//! has the labels `program` and `pid`; a disk's also `disk` (its number), a class's also `class`, and `group` if it is
//! in one.
//!
//! Seastar's names: those with `total_`, `_sec`, `queue_length`, `disk_queue_length`, `shares`, `consumption`,
//! `starvation_time_sec`, `activations`. Bytes and operations count at completion, Seastar's at dispatch; they differ
//! only by the requests under way. `consumption` and `activations` have `stream="rw"`, reads and writes together, even
//! on a disk whose directions have a bucket each.
//!
//! # Limits
//! 72 lines of histograms for each class, disk and direction in use.
//!
//! # Example
//! `plimsoll_io_queue_total_bytes{program="my-database",pid="7",disk="0",class="query"} 4096`

use super::figures::{
    ClassMetrics, DirectionMetrics, DiskMetrics, LATENCY_BOUNDS_NS, LatencyMetrics, ModelMetrics, ProgramMetrics,
};
use super::text::{Exposition, Kind};

/// Name (after the prefix), help text, kind, and the figure.
type Family<T> = (&'static str, &'static str, Kind, fn(&T) -> f64);

const CLASS: &str = "plimsoll_io_queue_";
const DISK: &str = "plimsoll_io_disk_";

/// Families with Seastar's names.
const LIKE_SEASTAR: [Family<ClassMetrics>; 16] = [
    ("total_bytes", "Bytes moved by requests that came back.", Kind::Counter, |class| {
        (class.read.bytes + class.write.bytes) as f64
    }),
    ("total_operations", "Requests that came back.", Kind::Counter, |class| {
        (class.read.requests + class.write.requests) as f64
    }),
    ("total_read_bytes", "Bytes read.", Kind::Counter, |class| class.read.bytes as f64),
    ("total_read_ops", "Reads that came back.", Kind::Counter, |class| class.read.requests as f64),
    ("total_write_bytes", "Bytes written.", Kind::Counter, |class| class.write.bytes as f64),
    ("total_write_ops", "Writes, flushes, discards and allocations that came back.", Kind::Counter, |class| {
        class.write.requests as f64
    }),
    ("total_split_ops", "Requests that were split into pieces.", Kind::Counter, |class| class.split as f64),
    ("total_delay_sec", "Time that requests waited in the queue, summed, in seconds.", Kind::Counter, |class| {
        seconds(class.read.queue.sum_ns) + seconds(class.write.queue.sum_ns)
    }),
    (
        "total_exec_sec",
        "Time that pieces of requests were in the device, summed, in seconds.",
        Kind::Counter,
        |class| seconds(class.read.device.sum_ns) + seconds(class.write.device.sum_ns),
    ),
    (
        "starvation_time_sec",
        "Time with work queued and nothing of the class in the device, in seconds.",
        Kind::Counter,
        |class| seconds(class.starved_ns),
    ),
    ("queue_length", "Requests that wait.", Kind::Gauge, |class| class.queued as f64),
    ("disk_queue_length", "Pieces of requests in the device.", Kind::Gauge, |class| class.in_flight as f64),
    ("shares", "Shares of the class.", Kind::Gauge, |class| f64::from(class.shares)),
    (
        CONSUMPTION,
        "Device time used by the disk model, in seconds: a rate of 1 is the whole disk.",
        Kind::Counter,
        |class| seconds(class.consumed_ns),
    ),
    (ACTIVATIONS, "How often the class woke up from idleness.", Kind::Counter, |class| class.activations as f64),
    ("oldest_wait_seconds", "How long the oldest queued request has waited.", Kind::Gauge, |class| {
        seconds(class.oldest_wait_ns)
    }),
];
/// Names of the two families with a label `stream`.
const CONSUMPTION: &str = "consumption";
const ACTIVATIONS: &str = "activations";

const OF_CLASSES: [Family<ClassMetrics>; 6] = [
    ("dispatched_total", "Pieces of requests that went to the device.", Kind::Counter, |class| class.dispatched as f64),
    ("errors_total", "Requests that ended in an error.", Kind::Counter, |class| class.errors as f64),
    ("cancelled_total", "Requests cancelled before they ended.", Kind::Counter, |class| class.cancelled as f64),
    (
        "refused_total",
        "Requests refused because the queue was full or the expected delay too long.",
        Kind::Counter,
        |class| class.refused as f64,
    ),
    ("reserved_total", "Pieces dispatched because a reservation was due.", Kind::Counter, |class| {
        class.reserved as f64
    }),
    ("aged_total", "Pieces dispatched because they had waited as long as the class allows.", Kind::Counter, |class| {
        class.aged as f64
    }),
];

const OF_MODELS: [Family<ModelMetrics>; 7] = [
    ("window_seconds", "Device time that may be in the device.", Kind::Gauge, |model| seconds(model.window_ns)),
    ("window_max_seconds", "The largest window of device time.", Kind::Gauge, |model| seconds(model.window_max_ns)),
    (
        "window_needed_seconds",
        "A window that would keep the throughput goal, where the latency goal keeps it from that; else 0.",
        Kind::Gauge,
        |model| seconds(model.window_needed_ns),
    ),
    ("in_flight_seconds", "Device time in the device.", Kind::Gauge, |model| seconds(model.in_flight_ns)),
    ("capacity_scale_ratio", "Rate of the disk over that of its model.", Kind::Gauge, |model| model.capacity_scale),
    ("tokens_seconds", "Device time for which there are tokens; below 0 where taken ahead.", Kind::Gauge, |model| {
        model.tokens_ns as f64 / 1e9
    }),
    ("tokens_max_seconds", "Depth of the bucket of tokens.", Kind::Gauge, |model| seconds(model.tokens_max_ns)),
];

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Returns the metrics of `programs` as one page, to be sent with [`CONTENT_TYPE`](super::CONTENT_TYPE). Each should
/// have a distinct process number (`pid`).
#[must_use]
pub fn encode(programs: &[ProgramMetrics]) -> String {
    let programs: Vec<Named> = programs.iter().map(Named::new).collect();
    let mut page = Exposition::default();
    of_programs(&mut page, &programs);
    of_disks(&mut page, &programs);
    for family in LIKE_SEASTAR.iter().chain(&OF_CLASSES) {
        of_classes(&mut page, &programs, family);
    }
    waits(&mut page, &programs);
    latencies(&mut page, &programs);
    page.finish()
}

/// A program, with its process number as text.
struct Named<'a> {
    metrics: &'a ProgramMetrics,
    pid: String,
}

type Labels<'a> = Vec<(&'a str, &'a str)>;

impl Named<'_> {
    fn new(metrics: &ProgramMetrics) -> Named<'_> {
        Named { metrics, pid: metrics.pid.to_string() }
    }

    fn labels(&self) -> Labels<'_> {
        vec![("program", &self.metrics.program), ("pid", &self.pid)]
    }

    /// Calls `visit` with all disks, each with the labels of its samples.
    fn each_disk(&self, mut visit: impl FnMut(&DiskMetrics, &Labels)) {
        for disk in &self.metrics.disks {
            let number = disk.disk.to_string();
            let mut labels = self.labels();
            labels.push(("disk", &number));
            visit(disk, &labels);
        }
    }

    /// Calls `visit` with all classes of all disks, each with the labels of its samples.
    fn each_class(&self, mut visit: impl FnMut(&ClassMetrics, &Labels)) {
        self.each_disk(|disk, labels| {
            for class in &disk.classes {
                let mut labels = labels.clone();
                labels.push(("class", &class.class));
                labels.extend(class.group.as_deref().map(|group| ("group", group)));
                visit(class, &labels);
            }
        });
    }
}

fn with<'a>(labels: &Labels<'a>, more: &[(&'a str, &'a str)]) -> Labels<'a> {
    labels.iter().chain(more).copied().collect()
}

fn of_programs(page: &mut Exposition, programs: &[Named]) {
    page.family("plimsoll_program_info", "1 for each program; its library's version is a label.", Kind::Gauge);
    for program in programs {
        page.sample(&with(&program.labels(), &[("version", &program.metrics.plimsoll)]), 1.0);
    }

    page.family("plimsoll_program_shards", "Shards of the program.", Kind::Gauge);
    for program in programs {
        page.sample(&program.labels(), f64::from(program.metrics.shards));
    }

    let help = "Shards that did not answer in time: their part of all figures is that of their last answer.";
    page.family("plimsoll_program_missing_shards", help, Kind::Gauge);
    for program in programs {
        page.sample(&program.labels(), program.metrics.missing_shards.len() as f64);
    }

    let help = "Jobs of handles refused because too many waited for their shard.";
    page.family("plimsoll_program_refused_jobs_total", help, Kind::Counter);
    for program in programs {
        page.sample(&program.labels(), program.metrics.refused_jobs as f64);
    }
}

fn of_disks(page: &mut Exposition, programs: &[Named]) {
    page.family(&format!("{DISK}mode"), "1 for what holds the disk's requests back, 0 for what does not.", Kind::Gauge);
    for program in programs {
        program.each_disk(|disk, labels| {
            for mode in ["scheduled", "depth", "drain"] {
                page.sample(&with(labels, &[("mode", mode)]), f64::from(u8::from(disk.mode == mode)));
            }
        });
    }

    let help = "I/O queues of the disk, each of which counts its own waiting.";
    page.family(&format!("{DISK}queues"), help, Kind::Gauge);
    for program in programs {
        program.each_disk(|disk, labels| {
            if disk.queues > 0 {
                page.sample(labels, f64::from(disk.queues));
            }
        });
    }

    for (name, help, kind, of) in OF_MODELS {
        page.family(&format!("{DISK}{name}"), help, kind);
        for program in programs {
            program.each_disk(|disk, labels| {
                if let Some(model) = &disk.model {
                    page.sample(labels, of(model));
                }
            });
        }
    }
}

fn of_classes(page: &mut Exposition, programs: &[Named], (name, help, kind, of): &Family<ClassMetrics>) {
    let stream: &[(&str, &str)] = if [CONSUMPTION, ACTIVATIONS].contains(name) { &[("stream", "rw")] } else { &[] };
    page.family(&format!("{CLASS}{name}"), help, *kind);
    for program in programs {
        program.each_class(|class, labels| page.sample(&with(labels, stream), of(class)));
    }
}

fn waits(page: &mut Exposition, programs: &[Named]) {
    let help = "Time waited with work queued, in seconds, by what it was waited for.";
    page.family(&format!("{CLASS}waited_seconds_total"), help, Kind::Counter);
    for program in programs {
        program.each_class(|class, labels| {
            for waited in &class.waited {
                page.sample(&with(labels, &[("reason", &waited.reason)]), seconds(waited.waited_ns));
            }
        });
    }
}

/// Writes the latency histograms. Leaves out directions that were never used.
fn latencies(page: &mut Exposition, programs: &[Named]) {
    let help = "Durations of requests: waiting in the queue, in the device (of pieces), and in total.";
    page.family(&format!("{CLASS}latency_seconds"), help, Kind::Histogram);
    for program in programs {
        program.each_class(|class, labels| {
            let directions = [("read", &class.read), ("write", &class.write)];
            for (direction, figures) in directions {
                for (stage, latency) in stages(figures) {
                    let labels = with(labels, &[("direction", direction), ("stage", stage)]);
                    if latency.count > 0 {
                        histogram(page, &labels, latency);
                    }
                }
            }
        });
    }
}

fn stages(figures: &DirectionMetrics) -> [(&'static str, &LatencyMetrics); 3] {
    [("queue", &figures.queue), ("device", &figures.device), ("total", &figures.total)]
}

fn histogram(page: &mut Exposition, labels: &Labels, latency: &LatencyMetrics) {
    let mut buckets = latency.buckets.iter().peekable();
    let mut below = 0;
    let at_most: Vec<(f64, u64)> = LATENCY_BOUNDS_NS
        .iter()
        .map(|bound_ns| {
            while let Some((_, count)) = buckets.next_if(|(upper_ns, _)| upper_ns <= bound_ns) {
                below += count;
            }
            (seconds(*bound_ns), below)
        })
        .collect();
    page.histogram(labels, &at_most, latency.count.max(below), seconds(latency.sum_ns));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::ReasonMetrics;

    fn program(pid: u32) -> ProgramMetrics {
        let class = ClassMetrics {
            class: "a \"b\"".to_owned(),
            group: Some("background".to_owned()),
            shares: 100,
            read: DirectionMetrics {
                requests: 3,
                bytes: 12_288,
                queue: LatencyMetrics {
                    count: 3,
                    sum_ns: 2_000_000_000,
                    buckets: vec![(LATENCY_BOUNDS_NS[1], 1), (LATENCY_BOUNDS_NS[3], 1)],
                },
                ..DirectionMetrics::default()
            },
            waited: vec![ReasonMetrics { reason: "tokens".to_owned(), waited_ns: 500_000_000 }],
            ..ClassMetrics::default()
        };
        let model = ModelMetrics { tokens_ns: -1_500_000_000, capacity_scale: 0.5, ..ModelMetrics::default() };
        let classes = vec![class];
        let disk =
            |disk| DiskMetrics { disk, mode: "drain".to_owned(), queues: 2, model: None, classes: classes.clone() };
        ProgramMetrics {
            program: "p".to_owned(),
            pid,
            plimsoll: "0.1.0".to_owned(),
            shards: 2,
            missing_shards: vec![1],
            refused_jobs: 9,
            disks: vec![DiskMetrics { model: Some(model), ..disk(0) }, disk(1)],
        }
    }

    #[test]
    fn samples_are_found_under_their_names() {
        let text = encode(&[program(7), program(8)]);
        let class = r#"program="p",pid="8",disk="1",class="a \"b\"",group="background""#;
        let lines = [
            r#"plimsoll_program_info{program="p",pid="7",version="0.1.0"} 1"#.to_owned(),
            r#"plimsoll_program_missing_shards{program="p",pid="8"} 1"#.to_owned(),
            r#"plimsoll_program_refused_jobs_total{program="p",pid="7"} 9"#.to_owned(),
            r#"plimsoll_io_disk_mode{program="p",pid="7",disk="0",mode="drain"} 1"#.to_owned(),
            r#"plimsoll_io_disk_mode{program="p",pid="7",disk="0",mode="depth"} 0"#.to_owned(),
            r#"plimsoll_io_disk_queues{program="p",pid="7",disk="1"} 2"#.to_owned(),
            r#"plimsoll_io_disk_tokens_seconds{program="p",pid="7",disk="0"} -1.5"#.to_owned(),
            format!("plimsoll_io_queue_total_bytes{{{class}}} 12288"),
            format!("plimsoll_io_queue_total_delay_sec{{{class}}} 2"),
            format!("plimsoll_io_queue_consumption{{{class},stream=\"rw\"}} 0"),
            format!("plimsoll_io_queue_waited_seconds_total{{{class},reason=\"tokens\"}} 0.5"),
            format!("plimsoll_io_queue_latency_seconds_sum{{{class},direction=\"read\",stage=\"queue\"}} 2"),
            format!(
                "plimsoll_io_queue_latency_seconds_bucket{{{class},direction=\"read\",stage=\"queue\",le=\"+Inf\"}} 3"
            ),
        ];
        for line in lines {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let of_disk_1 = |line: &&str| line.starts_with("plimsoll_io_disk_tokens") && line.contains("disk=\"1\"");
        assert_eq!(text.lines().find(of_disk_1), None, "without a model there are no tokens");
        assert!(!text.contains("direction=\"write\""), "nothing was written");
    }

    #[test]
    fn each_family_begins_once() {
        let text = encode(&[program(7), program(8)]);
        let mut names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn buckets_are_cumulative() {
        let text = encode(&[program(7)]);
        let is_bucket = |line: &&str| line.contains("latency_seconds_bucket{") && line.contains("disk=\"0\"");
        let counts: Vec<&str> = text.lines().filter(is_bucket).filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(counts.len(), LATENCY_BOUNDS_NS.len() + 1);
        assert_eq!((&counts[..5], counts[21]), (&["0", "1", "1", "2", "2"][..], "3"));
    }
}

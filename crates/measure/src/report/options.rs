//! The options of a job, as its result keeps them.
//!
//! **Why.** Two results can be compared only if their jobs were the same, and any difference must be nameable.
//!
//! **How.** [`JobOptions`] has a field for each option of a load in a job file, in the file's words if the option is a
//! word. A field without a description is the one of the same name of [`Job`] or of its
//! [`Shape`](plimsoll_files::jobs::Shape). Options that do not apply to a job are `None`.
//!
//! **Limits.** The class and its shares are in the job's report instead.
//!
//! **Example.** A job `{type: randread, shards: all, shard_info: {parallelism: 4, access: "zipf:1.1"}}` has the kind
//! `randread`, no `shards` (all of them), 4 as `parallelism` and `zipf:1.1` as `access`.

use plimsoll_files::jobs::{Access, Job, JobKind, PauseDistribution, ShardSet, SizeShare};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobOptions {
    /// `type` of the job file.
    pub kind: String,
    /// Reads in a hundred requests, for a mixed job.
    pub read_pct: Option<u8>,
    /// Files on each shard, for a job that removes files.
    pub files: Option<u32>,
    /// Length of a slice in nanoseconds, for a job that uses the CPU.
    pub execution_ns: Option<u64>,
    /// Shards of the job; `None`: all.
    pub shards: Option<Vec<u32>>,
    /// Total bytes of all shards; `None`: 1 GiB a shard, or unlimited for an appending job.
    pub data_size_bytes: Option<u64>,
    /// First byte of the region in a named file or device.
    pub offset_bytes: u64,
    /// Storage of the job's own; `None`: that of the run.
    #[serde(default)]
    pub storage: Option<String>,
    pub parallelism: u32,
    /// Length of a request in bytes; with `sizes` the longest.
    pub request_bytes: u64,
    /// Lengths in bytes and their percentages of the requests; empty: all have `request_bytes`.
    pub sizes: Vec<(u32, f64)>,
    /// Those of the writes of a mixed job; empty: as of its reads.
    #[serde(default)]
    pub write_sizes: Vec<(u32, f64)>,
    #[serde(default)]
    pub align_bytes: Option<u32>,
    #[serde(default)]
    pub step_bytes: i64,
    #[serde(default)]
    pub run_length: u32,
    /// Reads and writes in a hundred at random positions; `None`: the job has no random positions.
    #[serde(default)]
    pub random_pct: Option<[u8; 2]>,
    /// Distribution of the positions of random requests, as in a job file.
    pub access: String,
    pub requests_per_s_per_fiber: Option<u32>,
    pub requests_per_s_per_shard: Option<f64>,
    /// Distribution of the pauses: `uniform` or `poisson`.
    pub pause_distribution: String,
    pub batch: u32,
    pub limit_requests: Option<u32>,
    pub limit_bytes: Option<u64>,
    pub think_time_ns: u64,
    pub think_after_ns: u64,
    #[serde(default)]
    pub think_blocks: u32,
    pub iov_count: Option<u32>,
    pub bandwidth_limit_bytes_per_s: Option<u64>,
    pub start_delay_ns: u64,
    pub ramp_up_ns: u64,
    pub stage: u32,
    pub fallocate: bool,
    pub dsync: bool,
    /// Whether requests go through the page cache.
    #[serde(default)]
    pub buffered: bool,
    pub runtime_ns: Option<u64>,
    /// Rates below which the job ends with an error, and the time over which they are averaged; `None`: any rate.
    #[serde(default)]
    pub least_bytes_per_s: Option<f64>,
    #[serde(default)]
    pub least_requests_per_s: Option<f64>,
    #[serde(default)]
    pub least_cycle_ns: Option<u64>,
    pub verify: bool,
    #[serde(default)]
    pub read_back: bool,
    /// Part of the written data that a compressor can save, in per cent.
    pub compressible_pct: u8,
    pub flush_every: u32,
    pub flush_data_only: bool,
}

impl JobOptions {
    pub fn of(job: &Job) -> JobOptions {
        JobOptions {
            kind: job.kind.as_str().to_owned(),
            read_pct: match job.kind {
                JobKind::RandMixed { read_pct } | JobKind::SeqMixed { read_pct } => Some(read_pct),
                _ => None,
            },
            files: if let JobKind::Unlink { files } = job.kind { Some(files) } else { None },
            execution_ns: if let JobKind::Cpu { execution_ns } = job.kind { Some(execution_ns) } else { None },
            shards: match &job.shards {
                ShardSet::All => None,
                ShardSet::List(shards) => Some(shards.clone()),
            },
            data_size_bytes: job.data_size_bytes,
            offset_bytes: job.offset_bytes,
            storage: job.storage.as_ref().map(|storage| storage.path.display().to_string()),
            parallelism: job.parallelism,
            request_bytes: job.request_bytes.into(),
            sizes: pairs(&job.sizes),
            write_sizes: pairs(&job.write_sizes),
            align_bytes: job.align_bytes,
            step_bytes: job.step_bytes,
            run_length: job.run_length,
            random_pct: job.kind.is_random().then_some(job.random_pct),
            access: access_text(&job.access),
            // A job file has only whole numbers here.
            requests_per_s_per_fiber: job.requests_per_s_per_fiber.map(|rate| rate as u32),
            requests_per_s_per_shard: job.requests_per_s_per_shard,
            pause_distribution: match job.pause_distribution {
                PauseDistribution::Uniform => "uniform".to_owned(),
                PauseDistribution::Poisson => "poisson".to_owned(),
            },
            batch: job.batch,
            limit_requests: job.limit_requests,
            limit_bytes: job.limit_bytes,
            think_time_ns: job.think_time_ns,
            think_after_ns: job.think_after_ns,
            think_blocks: job.think_blocks,
            iov_count: job.iov_count,
            bandwidth_limit_bytes_per_s: job.bandwidth_limit_bytes_per_s,
            start_delay_ns: job.start_delay_ns,
            ramp_up_ns: job.ramp_up_ns,
            stage: job.stage,
            fallocate: job.fallocate,
            dsync: job.dsync,
            buffered: !job.direct,
            runtime_ns: job.runtime_ns,
            least_bytes_per_s: job.rate_min.map(|least| least.bytes_per_s),
            least_requests_per_s: job.rate_min.map(|least| least.requests_per_s),
            least_cycle_ns: job.rate_min.map(|least| least.cycle_ns),
            verify: job.verify,
            read_back: job.verify && job.read_back,
            compressible_pct: job.content.compressible_pct,
            flush_every: job.flush_every,
            flush_data_only: job.flush_data_only,
        }
    }
}

fn pairs(sizes: &[SizeShare]) -> Vec<(u32, f64)> {
    sizes.iter().map(|size| (size.bytes, size.percent)).collect()
}

/// Returns the distribution in the words of a job file.
fn access_text(access: &Access) -> String {
    match access {
        Access::Uniform => "uniform".to_owned(),
        Access::Once => "once".to_owned(),
        Access::Zipf { theta } => format!("zipf:{theta}"),
        Access::Pareto { h } => format!("pareto:{h}"),
        Access::Normal { deviation_pct } => format!("normal:{deviation_pct}"),
        Access::HotSet { data_pct, access_pct } => format!("hot:{data_pct}/{access_pct}"),
        Access::Zoned(zones) => {
            let zones: Vec<String> = zones.iter().map(|(requests, data)| format!("{requests}/{data}")).collect();
            format!("zoned:{}", zones.join(":"))
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_files::job_reader::parse;
    use plimsoll_files::sched_groups::SchedGroups;

    use super::*;

    /// `compare` did not name them.
    #[test]
    fn what_only_files_of_fio_say_is_kept() {
        let of = |line: &str| {
            let text = format!("[j]\nrw=randrw\nsize=64m\nbssplit=4k/50:8k/50\nruntime=9\n{line}\n");
            JobOptions::of(&plimsoll_files::fio::parse("j.fio", &text).unwrap().jobs[0].job)
        };
        let plain = of("");
        for line in [
            "percentage_random=50",
            "bssplit=4k/50:8k/50,8k/50:16k/50",
            "blockalign=2k",
            "rw=randrw:8",
            "rw=rw:4k",
            "thinktime=1ms\nthinktime_blocks=4",
            "verify=crc32c",
            "verify=crc32c\ndo_verify=0",
        ] {
            assert_ne!(of(line), plain, "{line}");
        }
        let reads = |line: &str| of(&format!("rw=randread\n{line}"));
        for line in ["rate_min=1m", "rate_iops_min=10", "rate_iops_min=10\nrate_cycle=500"] {
            assert_ne!(reads(line), reads(""), "{line}");
        }
        let pauses = |blocks: u32| of(&format!("thinktime=1ms\nthinktime_blocks={blocks}"));
        assert_ne!(pauses(4), pauses(5));
        assert_ne!(of("verify=crc32c"), of("verify=crc32c\ndo_verify=0"));
        assert_ne!(reads("rate_iops_min=10"), reads("rate_iops_min=10\nrate_cycle=500"));
    }

    #[test]
    fn what_is_kept_is_what_the_file_said() {
        for access in ["uniform", "zipf:1.1", "pareto:0.2", "normal:10", "hot:10/90", "zoned:60/10:30/20:8/30:2/40"] {
            let text = format!(
                "[{{name: j, type: randrw, rwmixread: 70, shards: [1], shard_info: {{parallelism: 4, \
                 access: \"{access}\", rate: 0.5, bssplit: 4k/60:64k/40}}, \
                 options: {{fdatasync: 3, compressible: 20}}}}]"
            );
            let file = parse("jobs.yaml", &text, &SchedGroups::default()).unwrap();
            let options = JobOptions::of(&file.jobs[0]);
            assert_eq!((options.kind.as_str(), options.access.as_str()), ("randrw", access));
            assert_eq!((options.read_pct, &options.shards), (Some(70), &Some(vec![1])));
            assert_eq!(options.sizes, [(4096, 60.0), (65_536, 40.0)]);
            assert_eq!((options.requests_per_s_per_shard, options.request_bytes), (Some(0.5), 65_536));
            assert_eq!((options.flush_every, options.flush_data_only, options.compressible_pct), (3, true, 20));
        }
    }
}

//! The settings of a sweep, and how to apply them.

use plimsoll::DiskMode;
use plimsoll::core::{ControlConfig, LatencyGoal};
use plimsoll_figures::units::{UnitError, format_bytes_binary, parse_count, parse_duration_ns, parse_size_bytes};
use plimsoll_files::jobs::{
    Content, Job, JobClass, JobKind, MAX_BATCH, MAX_IOV_COUNT, MAX_PARALLELISM, MAX_REQUEST_BYTES, MAX_REQUESTS_PER_S,
};
use plimsoll_files::sched_groups::MAX_SHARES;
use plimsoll_files::setup::{ModelChoice, parse_capacity_scale, parse_latency_goal};
use plimsoll_observe::attach::parse_mode;

use crate::experiment::Situation;

const REQUEST_UNIT_BYTES: u64 = 512;
/// Longest pause, in nanoseconds: a day.
const THINK_TIME_MAX_NS: u64 = 86_400_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Fibers on each shard.
    Parallelism,
    /// Length of requests in bytes; replaces distributions, also that of writes.
    RequestBytes,
    /// Requests (or batches) a second of each fiber.
    RatePerFiber,
    /// Requests a second of all fibers on all shards together.
    Rate,
    /// Requests issued together.
    Batch,
    /// Shares of the job's own class.
    Shares,
    /// Pause after each request.
    ThinkTime,
    IovCount,
    /// Part of the data that a compressor can save, in per cent.
    Compressible,
    /// Reads in a hundred requests of a mixed job.
    ReadPct,
    Shards,
    /// Longest device time of a piece.
    LatencyGoal,
    /// Cost form, or the old defaults.
    Model,
    /// Scheduling of the disk: `scheduled`, `drain` or `depth:N`.
    Mode,
    IoQueues,
    /// Range in which the capacity may follow the disk.
    CapacityScale,
}

/// Names of keys, from job files and flags. A `-` counts as `_`.
const NAMES: [(&str, Key); 20] = [
    ("parallelism", Key::Parallelism),
    ("iodepth", Key::Parallelism),
    ("reqsize", Key::RequestBytes),
    ("bs", Key::RequestBytes),
    ("rps", Key::RatePerFiber),
    ("rate", Key::Rate),
    ("batch", Key::Batch),
    ("shares", Key::Shares),
    ("think_time", Key::ThinkTime),
    ("iov_count", Key::IovCount),
    ("compressible", Key::Compressible),
    ("read_pct", Key::ReadPct),
    ("shards", Key::Shards),
    ("smp", Key::Shards),
    ("latency_goal", Key::LatencyGoal),
    ("io_latency_goal_ms", Key::LatencyGoal),
    ("model", Key::Model),
    ("mode", Key::Mode),
    ("num_io_queues", Key::IoQueues),
    ("capacity_scale", Key::CapacityScale),
];

#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    pub key: Key,
    /// The job to change; `None`: all jobs, or the run.
    pub job: Option<String>,
    /// The value as the user wrote it.
    pub text: String,
    value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Whole(u64),
    Real(f64),
    Goal(LatencyGoal),
    Model(ModelChoice),
    Mode(DiskMode),
    Scale(ControlConfig),
}

impl Key {
    /// Finds the job (if given) and the key of `name`: `reqsize`, `reads.reqsize`. Names of jobs may have dots.
    pub fn find(name: &str) -> Result<(Option<String>, Key), String> {
        let (job, word) = match name.rsplit_once('.') {
            Some((job, word)) => (Some(job.to_owned()), word),
            None => (None, name),
        };

        let plain = word.replace('-', "_");
        let Some((_, key)) = NAMES.iter().find(|(known, _)| *known == plain) else {
            let all: Vec<&str> = NAMES.iter().map(|(known, _)| *known).collect();
            return Err(format!("unknown key `{word}`: expected one of {}", all.join(", ")));
        };

        if job.is_some() && !key.is_of_job() {
            return Err(format!("`{word}` is a setting of the run, not of a job: write {word}=..."));
        }
        Ok((job, *key))
    }

    fn is_of_job(self) -> bool {
        !matches!(self, Key::Shards | Key::LatencyGoal | Key::Model | Key::Mode | Key::IoQueues | Key::CapacityScale)
    }
}

impl Setting {
    pub fn parse(job: Option<&str>, key: Key, text: &str) -> Result<Setting, String> {
        let whole = |min: u64, max: u64| match parse_count(text) {
            Ok(value) if (min..=max).contains(&value) => Ok(Value::Whole(value)),
            _ => Err(format!("`{text}`: expected a whole number from {min} to {max}")),
        };

        let unit = |error: UnitError| format!("{}: {}", error.message, error.help);
        let value = match key {
            Key::Parallelism => whole(1, u64::from(MAX_PARALLELISM))?,
            Key::RatePerFiber => whole(1, u64::from(MAX_REQUESTS_PER_S))?,
            Key::Rate => match text.parse::<f64>() {
                Ok(rate) if (1e-3..=1e9).contains(&rate) => Value::Real(rate),
                _ => return Err(format!("`{text}`: expected requests a second, 0.001 to 1000000000")),
            },
            Key::Batch => whole(1, u64::from(MAX_BATCH))?,
            Key::Shares => whole(1, u64::from(MAX_SHARES))?,
            Key::IovCount => whole(1, u64::from(MAX_IOV_COUNT))?,
            Key::Compressible | Key::ReadPct => whole(0, 100)?,
            Key::Shards | Key::IoQueues => whole(1, u64::from(u16::MAX))?,
            Key::RequestBytes => {
                let bytes = parse_size_bytes(text).map_err(unit)?;
                if bytes == 0 || bytes > MAX_REQUEST_BYTES || bytes % REQUEST_UNIT_BYTES != 0 {
                    let most = format_bytes_binary(MAX_REQUEST_BYTES);
                    return Err(format!("`{text}`: expected a multiple of {REQUEST_UNIT_BYTES} bytes up to {most}"));
                }
                Value::Whole(bytes)
            }
            Key::ThinkTime => match parse_duration_ns(text) {
                Ok(ns) if ns <= THINK_TIME_MAX_NS => Value::Whole(ns),
                Ok(_) => return Err(format!("`{text}`: expected a pause of at most a day")),
                Err(error) => return Err(unit(error)),
            },
            Key::LatencyGoal => Value::Goal(parse_latency_goal(text).map_err(unit)?),
            Key::Model => Value::Model(text.parse().map_err(|error| format!("`{text}`: {error}"))?),
            Key::Mode => Value::Mode(parse_mode(text).map_err(unit)?.into()),
            Key::CapacityScale => Value::Scale(parse_capacity_scale(text).map_err(unit)?),
        };

        Ok(Setting { key, job: job.map(str::to_owned), text: text.to_owned(), value })
    }

    /// Returns whether both set the same to the same value.
    pub fn is_same(&self, other: &Setting) -> bool {
        (self.key, &self.job, self.value) == (other.key, &other.job, other.value)
    }

    pub fn apply(&self, situation: &mut Situation) -> Result<(), String> {
        match (self.key, self.value) {
            (Key::Shards, Value::Whole(shards)) => situation.options.shards = u16::try_from(shards).unwrap_or(u16::MAX),
            (Key::IoQueues, Value::Whole(queues)) => situation.choice.num_io_queues = u16::try_from(queues).ok(),
            (_, Value::Goal(goal)) => situation.choice.latency_goal = Some(goal),
            (_, Value::Model(model)) => situation.choice.model = Some(model),
            (_, Value::Mode(mode)) => situation.choice.mode = mode,
            (_, Value::Scale(control)) => situation.choice.control = Some(control),
            _ => return self.apply_to_jobs(situation),
        }
        Ok(())
    }

    fn apply_to_jobs(&self, situation: &mut Situation) -> Result<(), String> {
        let shards = u32::from(situation.options.shards);

        let is_meant = |job: &&mut Job| self.job.as_ref().is_none_or(|name| *name == job.name);
        let mut found = false;
        for job in situation.options.jobs.jobs.iter_mut().filter(is_meant) {
            found = true;
            self.apply_to(job, shards)?;
        }

        match (&self.job, found) {
            (Some(name), false) => Err(format!("there is no job `{name}` in the job file")),
            _ => Ok(()),
        }
    }

    fn apply_to(&self, job: &mut Job, shards: u32) -> Result<(), String> {
        // `parse` checked that each is in range.
        let (whole, real) = match self.value {
            Value::Whole(whole) => (whole, 0.0),
            Value::Real(real) => (0, real),
            _ => return Ok(()),
        };
        let small = u32::try_from(whole).unwrap_or(u32::MAX);
        let percent = u8::try_from(whole).unwrap_or(100);

        match self.key {
            Key::Parallelism => job.parallelism = small,
            Key::RequestBytes => {
                job.request_bytes = small;
                job.sizes.clear();
                job.write_sizes.clear();
            }
            Key::RatePerFiber => {
                (job.requests_per_s_per_fiber, job.requests_per_s_per_shard) = (Some(f64::from(small)), None);
                (job.think_time_ns, job.think_after_ns) = (0, 0);
            }
            Key::Rate => set_rate(job, real, shards),
            Key::Batch => job.batch = small,
            Key::ThinkTime => job.think_time_ns = whole,
            Key::IovCount => job.iov_count = Some(small),
            Key::Compressible => job.content = Content { compressible_pct: percent },
            Key::Shares => match &mut job.class {
                JobClass::Own { shares } => *shares = small,
                JobClass::Joined(class) => {
                    return Err(format!("job `{}` has no shares of its own: it is in class `{class}`", job.name));
                }
            },
            Key::ReadPct => match &mut job.kind {
                JobKind::RandMixed { read_pct } | JobKind::SeqMixed { read_pct } => *read_pct = percent,
                kind => {
                    let kind = kind.as_str();
                    return Err(format!("job `{}` is a {kind} and mixes nothing: make it randrw or seqrw", job.name));
                }
            },
            Key::Shards | Key::LatencyGoal | Key::Model | Key::Mode | Key::IoQueues | Key::CapacityScale => {}
        }
        Ok(())
    }
}

/// Makes the job an open loop of `rate` requests a second over all its shards, in batches of the job's size.
pub(in crate::experiment) fn set_rate(job: &mut Job, rate: f64, shards: u32) {
    let running = (0..shards).filter(|shard| job.shards.contains(*shard)).count().max(1);
    // The job's own rate counts batches.
    job.requests_per_s_per_shard = Some(rate / running as f64 / f64::from(job.batch.max(1)));
    job.requests_per_s_per_fiber = None;
    (job.think_time_ns, job.think_after_ns) = (0, 0);
}

#[cfg(test)]
mod tests {
    use plimsoll_files::jobs::SizeShare;

    use super::*;
    use crate::experiment::tests_support::situation;

    const TWO: &str = "[{name: a.b, type: randread, shards: all, shard_info: {parallelism: 1, reqsize: 4kB}}, \
                        {name: c, type: randwrite, shards: all, \
                         shard_info: {parallelism: 1, reqsize: 4kB, class: a.b}}]";

    fn set(name: &str, value: &str) -> Result<Situation, String> {
        let (job, key) = Key::find(name)?;
        let mut situation = situation(TWO);
        Setting::parse(job.as_deref(), key, value)?.apply(&mut situation)?;
        Ok(situation)
    }

    #[test]
    fn settings_reach_the_jobs_that_are_meant() {
        let both = set("parallelism", "8").unwrap().options.jobs.jobs;
        assert_eq!((both[0].parallelism, both[1].parallelism), (8, 8));
        let one = set("a.b.reqsize", "128k").unwrap().options.jobs.jobs;
        assert_eq!((one[0].request_bytes, one[1].request_bytes), (131_072, 4096));
        let rate = set("c.rate", "1500").unwrap().options.jobs.jobs;
        assert_eq!((rate[0].requests_per_s_per_shard, rate[1].requests_per_s_per_shard), (None, Some(1500.0)));
        assert_eq!(set("rps", "7").unwrap().options.jobs.jobs[0].requests_per_s_per_fiber, Some(7.0));
        assert_eq!(set("compressible", "40").unwrap().options.jobs.jobs[1].content.compressible_pct, 40);
    }

    #[test]
    fn a_length_of_requests_replaces_all_others() {
        let mut both = situation("[{name: m, type: randrw, shards: all, shard_info: {parallelism: 1}}]");
        let job = &mut both.options.jobs.jobs[0];
        (job.sizes, job.write_sizes) =
            (vec![SizeShare { bytes: 4096, percent: 100.0 }], vec![SizeShare { bytes: 65_536, percent: 100.0 }]);
        Setting::parse(None, Key::RequestBytes, "8k").unwrap().apply(&mut both).unwrap();
        let job = &both.options.jobs.jobs[0];
        assert_eq!((job.request_bytes, job.sizes.len(), job.write_sizes.len()), (8192, 0, 0));
    }

    #[test]
    fn settings_reach_the_run() {
        assert_eq!(set("shards", "3").unwrap().options.shards, 3);
        assert_eq!(set("latency-goal", "1.5").unwrap().choice.latency_goal, Some(LatencyGoal::Ns(1_500_000)));
        assert_eq!(set("model", "old-defaults").unwrap().choice.model, Some(ModelChoice::OldDefaults));
        assert_eq!(set("mode", "depth:32").unwrap().choice.mode, DiskMode::Depth { max_io_requests: 32 });
        assert_eq!(set("capacity_scale", "off").unwrap().choice.control, Some(ControlConfig::OFF));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (name, value, part) in [
            ("depth", "1", "unknown key `depth`: expected one of parallelism"),
            ("c.shards", "1", "setting of the run"),
            ("d.batch", "1", "no job `d`"),
            ("parallelism", "0", "from 1 to 65536"),
            ("parallelism", "", "`` has no digits"),
            ("reqsize", "1000", "multiple of 512"),
            ("reqsize", "2G", "up to 1 GiB"),
            ("rate", "nan", "requests a second"),
            ("mode", "depth:0", "depth:N"),
            ("model", "cubic", "knee, additive"),
            ("latency-goal", "0", "or `none`"),
            ("c.shares", "5", "no shares of its own"),
            ("c.read_pct", "5", "mixes nothing"),
            ("compressible", "101", "from 0 to 100"),
        ] {
            let Err(why) = set(name, value) else { panic!("{name}={value} was taken") };
            assert!(why.contains(part) || value.is_empty(), "{name}={value}: {why}");
        }
    }
}

//! A directory, the binary, and what came out of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The program under test.
pub(crate) const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// A job that reads 4 KiB at random positions of 8 MiB.
pub(crate) const READS: &str = "\
- name: reads
  type: randread
  shards: all
  data_size: 8MB
  shard_info: {parallelism: 4, reqsize: 4kB, shares: 100}
";

/// The same, writing.
pub(crate) const WRITES: &str = "\
- name: writes
  type: randwrite
  shards: all
  data_size: 8MB
  shard_info: {parallelism: 4, reqsize: 4kB, shares: 100}
";

/// Part of a disk's I/O, in percent, from which on others have disturbed a figure.
const FOREIGN_PCT: f64 = 10.0;
/// Largest over least sample of a figure from which on they disagree.
const DISAGREE_FACTOR: f64 = 1.1;

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn of(output: std::process::Output) -> Ended {
        let text = |bytes| String::from_utf8(bytes).expect("output is text");
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Returns the same, which must have ended with exit code 0.
    #[track_caller]
    pub(crate) fn done(self) -> Ended {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// Returns the output, which must be JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {self:#?}"))
    }

    /// No line of the output is longer than 100 columns.
    #[track_caller]
    pub(crate) fn assert_fits(&self) {
        assert!(self.out.lines().all(|line| line.chars().count() <= 100), "{}", self.out);
    }

    /// The output has all of these parts.
    #[track_caller]
    pub(crate) fn assert_says(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.out.contains(part), "no `{part}` in {self:#?}");
        }
    }

    /// Returns whether a measurement of `tune` ended with a finding that only a busy machine explains: a figure was
    /// measured for less than its time, its own samples disagree or are too few, others used the disk, or the curves went past it
    /// or did not reach it.
    pub(crate) fn is_of_a_busy_machine(&self) -> bool {
        match (self.code, serde_json::from_str::<Value>(&self.out)) {
            (Some(0 | 1), Ok(Value::Array(reports))) => reports.iter().any(is_disturbed),
            (Some(0 | 1), Ok(report)) => is_disturbed(&report),
            // The table begins with the doubtful figures; io-properties name them.
            (Some(1), Err(_)) => self.out.starts_with("doubtful: ") || self.out.contains("doubtful: ["),
            _ => false,
        }
    }

    /// Exactly one error, before anything else was said, and no result.
    pub(crate) fn assert_refused(&self, code: i32, fragments: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert_eq!(self.out, "", "{self:#?}");
        assert!(self.err.starts_with("error"), "{self:#?}");
        let errors = self.err.lines().filter(|line| line.starts_with("error")).count();
        assert_eq!(errors, 1, "{self:#?}");
        assert!(!self.err.contains("warning") && !self.err.contains("panicked"), "{self:#?}");
        for fragment in fragments {
            assert!(self.err.contains(fragment), "no `{fragment}` in {self:#?}");
        }
    }
}

/// Far longer than anything takes that a test waits for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks until there is an answer.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + PATIENCE;
    loop {
        match ask() {
            Some(answer) => return answer,
            None => assert!(Instant::now() < give_up, "in vain: {what}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All keys of all maps.
pub(crate) fn keys(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Object(map) => map.keys().cloned().chain(map.values().flat_map(keys)).collect(),
        Value::Array(items) => items.iter().flat_map(keys).collect(),
        _ => BTreeSet::new(),
    }
}

/// Returns whether a report of `tune` that ended by itself shows that the machine did something else meanwhile.
fn is_disturbed(report: &Value) -> bool {
    let doubt = |name: &str| {
        let of_figure = |warning: &&Value| {
            let message = warning["message"].as_str().unwrap_or_default();
            warning["code"] == "doubtful" && message.starts_with(&format!("{name} is doubtful: "))
        };
        report["warnings"].as_array()?.iter().find(of_figure)?["message"].as_str()
    };
    let is_disturbed = |name: &&str| {
        let figure = &report[*name];
        let samples: Vec<f64> = figure["samples"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        let settled = samples.get(figure["settled_at"].as_u64().unwrap_or(0) as usize..).unwrap_or_default();
        let least = settled.iter().copied().fold(f64::INFINITY, f64::min);
        // Of two samples even close ones tell little.
        let is_uneven = settled.len() < 3 || settled.iter().any(|sample| *sample > DISAGREE_FACTOR * least);
        let reason = doubt(name).unwrap_or_default();
        let is_shared = figure["foreign_pct"].as_f64().is_some_and(|percent| percent > FOREIGN_PCT);
        (is_shared && reason.contains("was not ours"))
            || figure["complete"] == false
            || (is_uneven && reason.contains("it is known to ±"))
            || reason.contains("the curves")
            || reason.contains("what was measured later reaches at most")
    };
    report["interrupted"] == false
        && ["read_iops", "write_iops", "read_bandwidth", "write_bandwidth"].iter().any(is_disturbed)
}

/// A directory on the disk that holds the build, removed at the end. A temporary directory in memory would refuse
/// direct I/O on older kernels.
pub(crate) struct World {
    directory: TempDir,
}

impl World {
    pub(crate) fn new(files: &[(&str, &str)]) -> World {
        let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory can be made");
        let world = World { directory };
        for (name, text) in files {
            std::fs::write(world.path().join(name), text).expect("a file can be written");
        }
        world
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PLIMSOLL);
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(self.command(arguments).output().expect("the binary starts"))
    }

    /// Runs the command of a line, whose words have a blank between them.
    pub(crate) fn line(&self, line: &str) -> Ended {
        self.run(&line.split(' ').collect::<Vec<_>>())
    }

    /// Every file and its contents; directories count as empty.
    pub(crate) fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = std::fs::read_dir(self.path()).expect("the directory is there");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.map(|path| (path.clone(), std::fs::read(path).unwrap_or_default())).collect()
    }
}

//! A directory, the binary, and what came out of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

    /// Whether a measurement of `tune` ended with a finding that only a busy machine explains: a figure was measured for
    /// less than its time, or the curves went past it.
    pub(crate) fn is_of_a_busy_machine(&self) -> bool {
        let is_cut = self.out.contains("\"complete\": false");
        // On stderr the warning may be folded into the count of all.
        let is_doubtful =
            self.code == Some(1) && (self.err.contains(" is doubtful: ") || self.out.contains("doubtful"));
        matches!(self.code, Some(0 | 1)) && (is_cut || is_doubtful)
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

    /// Every file and its contents; directories count as empty.
    pub(crate) fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let entries = std::fs::read_dir(self.path()).expect("the directory is there");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.map(|path| (path.clone(), std::fs::read(path).unwrap_or_default())).collect()
    }
}

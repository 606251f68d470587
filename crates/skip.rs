//! How a test says that this machine cannot run it: one place for the tests of all crates, which take it by `#[path]`.
//!
//! A probe decides before the work begins; what fails after that is a failure, never a reason to skip. Variables of the
//! environment: `PLIMSOLL_NO_SKIP=1` turns each skip into a failure; `PLIMSOLL_SKIP_LOG=FILE` collects the lines, since
//! `cargo test` shows what a test prints only where it fails.

#![allow(dead_code, reason = "each crate uses a part of it")]

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::Location;
use std::path::Path;

/// The flag of Linux on this architecture.
const O_DIRECT: i32 = if cfg!(any(target_arch = "aarch64", target_arch = "arm")) { 0o200_000 } else { 0o40_000 };

/// Says in one line that the running test, or a part of it, does nothing here, and why.
#[track_caller]
pub(crate) fn skip(reason: impl Display) {
    // The thread of a test has its name, but for that of `--test-threads 1`.
    let here = std::thread::current();
    let at = Location::caller();
    let place = format!("{}:{}", at.file(), at.line());
    let name = here.name().filter(|name| *name != "main").map_or(place.clone(), |name| format!("{name} ({place})"));
    let reason: Vec<String> = reason.to_string().split_whitespace().map(str::to_owned).collect();
    let log = std::env::var_os("PLIMSOLL_SKIP_LOG");
    let is_forbidden = std::env::var_os("PLIMSOLL_NO_SKIP").is_some_and(|value| value == "1");
    tell(&format!("SKIPPED {name}: {}", reason.join(" ")), log.as_deref().map(Path::new), is_forbidden);
}

/// Prints the line and appends it to `log`; panics where skips are forbidden.
#[track_caller]
pub(crate) fn tell(line: &str, log: Option<&Path>, is_forbidden: bool) {
    println!("{line}");
    if let Some(path) = log {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let written = file.and_then(|mut file: File| file.write_all(format!("{line}\n").as_bytes()));
        written.unwrap_or_else(|error| panic!("PLIMSOLL_SKIP_LOG, {}: {error}", path.display()));
    }
    assert!(!is_forbidden, "{line} (PLIMSOLL_NO_SKIP=1 forbids it)");
}

/// Whether files in `directory` take direct I/O, which every real disk's file system does; else says why not.
#[track_caller]
pub(crate) fn has_direct_io(directory: &Path) -> bool {
    let path = directory.join(format!("direct-io-{}-{:?}", std::process::id(), std::thread::current().id()));
    File::create_new(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let opened = OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(&path);
    std::fs::remove_file(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    opened.inspect_err(|error| skip(format_args!("no direct I/O in {}: {error}", directory.display()))).is_ok()
}

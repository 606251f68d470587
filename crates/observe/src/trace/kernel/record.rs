//! Records the kernel's block events through tracefs, without the `blktrace` command.
//!
//! **Why.** `blktrace` is often not installed, and its `ioctl` is refused in many containers and on hardened kernels.
//! The same events come through tracefs, in the same binary form.
//!
//! **How.** The kernel's `blk` tracer writes into a buffer for each CPU; `per_cpu/cpuN/trace_pipe` hands out the
//! buffer's contents. [`record`] sets tracefs up, writes whole records of one CPU after another, and restores all:
//!
//! ```text
//! trace_clock = mono   buffer_size_kb = 4096   current_tracer = blk   options: bin, no context-info
//! /sys/dev/block/MAJOR:MINOR/trace/enable = 1 ... 0
//! ```
//!
//! Before a process's first record comes a note with its name, from `/proc`. Notes at the beginning give the time of
//! day, the clock and the name of the disk; a note at the end gives the number of events that the buffers lost.
//!
//! **Limits.** A system has one `blk` tracer: [`record`] refuses while another tracer is in use or other trace events
//! are enabled. The former contents of the kernel's trace buffer are lost. A killed process (SIGKILL) restores nothing;
//! `echo 0 > /sys/block/DEV/trace/enable; echo nop > /sys/kernel/tracing/current_tracer` does, and for the options
//! `echo 0 > options/bin; echo 1 > options/context-info; echo local > trace_clock`.
//!
//! **Example.**
//! ```no_run
//! use std::path::Path;
//! use std::time::{Duration, Instant};
//! use plimsoll_observe::trace::kernel::record::{Place, record};
//! let mut file = std::fs::File::create("vda.blktrace")?;
//! let end = Instant::now() + Duration::from_secs(5);
//! let recorded = record(Path::new("/dev/vda"), &Place::find()?, &mut file, &mut || Instant::now() < end)?;
//! println!("{} events of {}", recorded.events, recorded.disk);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll::sys::clock::now_ns;
use rustix::fs::OFlags;

use super::blktrace::{HEAD_BYTES, Head, NOTE_MESSAGE, NOTE_PROCESS, NOTE_TIME};

/// Time between two reads of the kernel's buffers.
const LOOK: Duration = Duration::from_millis(20);
/// Buffer of one CPU in KiB: 60,000 events, as many as come in 20 ms at three million per second.
const BUFFER_KIB: u64 = 4096;
/// Most bytes read of one CPU before the next has its turn.
const TURN_BYTES: usize = 4 << 20;
const READ_BYTES: usize = 1 << 16;
/// Most processes remembered as noted. Beyond that, names are noted again.
const PROCESSES_MAX: usize = 1 << 16;

/// Why recording failed. Each message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("tracefs is not mounted: `mount -t tracefs nodev /sys/kernel/tracing` (as root) mounts it")]
    NotMounted,
    #[error(
        "{0}: permission denied; run this as root, or let root give you tracefs and the switch of the device: \
         `mount -o remount,gid=GROUP,mode=770 /sys/kernel/tracing` and `chown USER /sys/block/DEV/trace/*`"
    )]
    Permission(PathBuf),
    #[error("this kernel has no block tracer (CONFIG_BLK_DEV_IO_TRACE): {0}")]
    NoTracer(String),
    #[error("the tracer `{0}` is in use, and there is one for all: end it first (`echo nop > {1}`)")]
    OtherTracer(String, PathBuf),
    #[error("the trace event {0} is enabled, and would mix with block events: end its user first, or `echo > {1}`")]
    OtherEvents(String, PathBuf),
    #[error("{0} is being traced already: end that first (`echo 0 > {1}`)")]
    DeviceBusy(String, PathBuf),
    #[error("{0}: somebody else reads it, and would take a part of the events")]
    PipeBusy(PathBuf),
    #[error("{0}: {1}; expected a block device (/dev/nvme0n1, or a partition), or a file or directory on one")]
    NoDevice(PathBuf, String),
    #[error("{0}: {1}")]
    Kernel(PathBuf, io::Error),
    #[error("cannot write the trace: {0}")]
    Write(io::Error),
}

/// The mount points of the kernel's file systems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub tracefs: PathBuf,
    pub sys: PathBuf,
    pub proc: PathBuf,
}

impl Place {
    /// Finds the mount points of this machine.
    pub fn find() -> Result<Place, RecordError> {
        let mut denied = None;
        for tracefs in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(PathBuf::from) {
            match fs::metadata(tracefs.join("current_tracer")) {
                Ok(_) => return Ok(Place { tracefs, sys: "/sys".into(), proc: "/proc".into() }),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied = denied.or(Some(tracefs)),
                Err(_) => {}
            }
        }
        Err(denied.map_or(RecordError::NotMounted, RecordError::Permission))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    pub disk: String,
    pub events: u64,
    /// Events that did not fit into the kernel's buffers.
    pub lost_events: u64,
    /// Whether time stamps are CLOCK_MONOTONIC, as in our own traces.
    pub is_monotonic: bool,
}

/// Records the block events of `device` to `out` as a stream of `blktrace`, until `goes_on`, which is called every 20
/// ms, returns false. Restores all settings before it returns. If writing fails, `out` may end with a part of a record.
pub fn record(
    device: &Path,
    place: &Place,
    out: &mut dyn Write,
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<Recorded, RecordError> {
    let disk = Disk::find(device, place)?;
    check_free(place, &disk)?;

    let mut settings = Settings::default();
    let is_monotonic = set_up(place, &mut settings)?;
    let mut pipes = open_pipes(place)?;
    let lost_before = lost_events(place);
    let mut writer = Notes { out, place, known: HashSet::new(), events: 0 };
    writer.begin(&disk, is_monotonic).map_err(RecordError::Write)?;
    let mut switch = Settings::default();
    switch.set(disk.switch.clone(), "1")?;

    while goes_on() {
        std::thread::sleep(LOOK);
        drain(&mut pipes, &mut writer)?;
    }

    drop(switch);
    drain(&mut pipes, &mut writer)?;

    let lost = lost_events(place).saturating_sub(lost_before);
    if lost > 0 {
        writer.message(&format!("plimsoll lost {lost}")).map_err(RecordError::Write)?;
    }

    let events = writer.events;
    // The kernel refuses another tracer while a pipe is open.
    drop(pipes);
    drop(settings);
    Ok(Recorded { disk: disk.name, events, lost_events: lost, is_monotonic })
}

struct Disk {
    name: String,
    major: u32,
    minor: u32,
    switch: PathBuf,
}

impl Disk {
    fn find(device: &Path, place: &Place) -> Result<Disk, RecordError> {
        let dev = Path::new("/dev").join(device);
        let path = if device.exists() || device.is_absolute() { device } else { dev.as_path() };
        let metadata =
            fs::metadata(path).map_err(|error| RecordError::NoDevice(device.to_owned(), error.to_string()))?;
        let number = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));

        let link = place.sys.join(format!("dev/block/{major}:{minor}"));
        let directory = link.canonicalize().map_err(|_| {
            RecordError::NoDevice(
                device.to_owned(),
                format!("the file system on {major}:{minor} has no block device of its own"),
            )
        })?;

        let name = directory.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let switch = directory.join("trace/enable");
        if !switch.exists() {
            return Err(RecordError::NoTracer(format!("{} is not there", switch.display())));
        }
        Ok(Disk { name, major, minor, switch })
    }
}

/// Fails if another user has the tracer, the buffer or the device.
fn check_free(place: &Place, disk: &Disk) -> Result<(), RecordError> {
    let tracer_path = place.tracefs.join("current_tracer");
    let tracer = text(&tracer_path)?;
    if tracer != "nop" {
        return Err(RecordError::OtherTracer(tracer, tracer_path));
    }
    let tracers = text(&place.tracefs.join("available_tracers"))?;
    if !tracers.split(' ').any(|tracer| tracer == "blk") {
        return Err(RecordError::NoTracer(format!("its tracers are: {tracers}")));
    }
    let events_path = place.tracefs.join("set_event");
    if let Some(event) = text(&events_path)?.lines().next() {
        return Err(RecordError::OtherEvents(event.to_owned(), events_path));
    }
    if text(&disk.switch)? != "0" {
        return Err(RecordError::DeviceBusy(disk.name.clone(), disk.switch.clone()));
    }
    Ok(())
}

/// Sets tracefs up. Returns whether its clock is CLOCK_MONOTONIC.
fn set_up(place: &Place, settings: &mut Settings) -> Result<bool, RecordError> {
    let at = |name: &str| place.tracefs.join(name);
    let is_monotonic = text(&at("trace_clock"))?.split(' ').any(|clock| clock.trim_matches(['[', ']']) == "mono");
    if is_monotonic {
        settings.set(at("trace_clock"), "mono")?;
    }

    // `X`: the user gave the CPUs buffers of different sizes on purpose, so they stay.
    if buffer_kib(&text(&at("buffer_size_kb"))?).is_some_and(|size| size < BUFFER_KIB) {
        settings.set(at("buffer_size_kb"), &BUFFER_KIB.to_string())?;
    }

    settings.set(at("current_tracer"), "blk")?;
    for (option, value) in [("bin", "1"), ("context-info", "0"), ("blk_classic", "0"), ("raw", "0"), ("hex", "0")] {
        let path = at("options").join(option);
        if path.exists() {
            settings.set(path, value)?;
        }
    }
    settings.set(at("tracing_on"), "1")?;
    Ok(is_monotonic)
}

/// Reads the size: 1408 of `1408`, or of `7 (expanded: 1408)`, which the kernel shows before the buffer is made.
fn buffer_kib(text: &str) -> Option<u64> {
    let size = text.split_once("(expanded: ").map_or(text, |(_, size)| size.trim_end_matches(')'));
    size.trim().parse().ok()
}

/// Settings with their former values, which are restored in reverse order when this is dropped.
#[derive(Default)]
struct Settings(Vec<(PathBuf, String)>);

impl Settings {
    fn set(&mut self, path: PathBuf, value: &str) -> Result<(), RecordError> {
        let found = text(&path)?;
        let before = match found.split(' ').find_map(|word| word.strip_prefix('[')?.strip_suffix(']')) {
            Some(chosen) => chosen.to_owned(),
            None => buffer_kib(&found).map_or(found, |number| number.to_string()),
        };
        if before != value {
            fs::write(&path, value).map_err(|error| failure(&path, error))?;
            self.0.push((path, before));
        }
        Ok(())
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for (path, before) in self.0.drain(..).rev() {
            // An error cannot be reported here, and the others must be restored all the same.
            let _ = fs::write(path, before);
        }
    }
}

fn text(path: &Path) -> Result<String, RecordError> {
    let text = fs::read_to_string(path).map_err(|error| failure(path, error))?;
    Ok(text.trim().to_owned())
}

fn failure(path: &Path, error: io::Error) -> RecordError {
    match error.kind() {
        io::ErrorKind::PermissionDenied => RecordError::Permission(path.to_owned()),
        _ => RecordError::Kernel(path.to_owned(), error),
    }
}

/// The buffer of one CPU.
struct Pipe {
    path: PathBuf,
    file: File,
    /// The beginning of a record that is not whole yet.
    held: Vec<u8>,
}

fn open_pipes(place: &Place) -> Result<Vec<Pipe>, RecordError> {
    let directory = place.tracefs.join("per_cpu");
    let entries = fs::read_dir(&directory).map_err(|error| failure(&directory, error))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path().join("trace_pipe"))).collect();
    paths.sort();
    let open = |path: PathBuf| {
        let flags = OFlags::NONBLOCK.bits() as i32;
        match OpenOptions::new().read(true).custom_flags(flags).open(&path) {
            Ok(file) => Ok(Pipe { path, file, held: Vec::new() }),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(RecordError::PipeBusy(path)),
            Err(error) => Err(failure(&path, error)),
        }
    };
    paths.into_iter().map(open).collect()
}

/// Returns the events that the kernel has discarded, all CPUs together.
fn lost_events(place: &Place) -> u64 {
    let of_cpu = |path: PathBuf| {
        let stats = fs::read_to_string(path.join("stats")).unwrap_or_default();
        let counts = stats.lines().filter_map(|line| line.split_once(": "));
        let lost = counts.filter(|(name, _)| matches!(*name, "overrun" | "dropped events"));
        lost.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum::<u64>()
    };
    let entries = fs::read_dir(place.tracefs.join("per_cpu"));
    entries.map(|entries| entries.filter_map(|entry| Some(of_cpu(entry.ok()?.path()))).sum()).unwrap_or(0)
}

fn drain(pipes: &mut [Pipe], writer: &mut Notes) -> Result<(), RecordError> {
    for pipe in pipes {
        let mut turn_bytes = 0;
        while turn_bytes < TURN_BYTES {
            let mut part = [0; READ_BYTES];
            let read = match pipe.file.read(&mut part) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failure(&pipe.path, error)),
            };

            if read == 0 {
                break;
            }

            turn_bytes += read;
            pipe.held.extend_from_slice(part.get(..read).unwrap_or(&[]));
            let used = writer.records(&pipe.held).map_err(RecordError::Write)?;
            pipe.held.drain(..used);
        }
    }
    Ok(())
}

/// Writes records, with notes among them.
struct Notes<'a> {
    out: &'a mut dyn Write,
    place: &'a Place,
    known: HashSet<u32>,
    events: u64,
}

impl Notes<'_> {
    fn note(&mut self, action: u32, process: u32, more: &[u8]) -> io::Result<()> {
        let more = more.get(..usize::from(u16::MAX)).unwrap_or(more);
        let head = Head { time_ns: now_ns(), action, process, more_bytes: more.len() as u16, ..Head::default() };
        self.out.write_all(&head.to_bytes())?;
        self.out.write_all(more)
    }

    fn message(&mut self, text: &str) -> io::Result<()> {
        self.note(NOTE_MESSAGE, 0, text.as_bytes())
    }

    fn begin(&mut self, disk: &Disk, is_monotonic: bool) -> io::Result<()> {
        if is_monotonic {
            let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let [seconds, ns] = [unix.as_secs() as u32, unix.subsec_nanos()].map(u32::to_le_bytes);
            self.note(NOTE_TIME, 0, &[seconds, ns].concat())?;
        }
        self.message(if is_monotonic { "plimsoll clock mono" } else { "plimsoll clock local" })?;
        self.message(&format!("plimsoll disk {},{} {}", disk.major, disk.minor, disk.name))
    }

    /// Writes the whole records at the beginning of `bytes` and returns the bytes used up. Skips bytes that are no
    /// record: the kernel reports lost events in words.
    fn records(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| rest.len() >= HEAD_BYTES) {
            let Some(head) = Head::from_bytes(rest) else {
                at += 1;
                continue;
            };
            let Some(whole) = rest.get(..HEAD_BYTES + usize::from(head.more_bytes)) else { break };
            self.name(head.process)?;
            self.out.write_all(whole)?;
            self.events += 1;
            at += whole.len();
        }
        Ok(at)
    }

    /// Writes a note with the name of a process if it is new.
    fn name(&mut self, process: u32) -> io::Result<()> {
        if self.known.len() >= PROCESSES_MAX {
            self.known.clear();
        }
        if !self.known.insert(process) {
            return Ok(());
        }
        // If the process has ended, it stays a number.
        match fs::read(self.place.proc.join(process.to_string()).join("comm")) {
            Ok(name) => self.note(NOTE_PROCESS, process, name.trim_ascii()),
            Err(_) if process == 0 => self.note(NOTE_PROCESS, 0, b"idle"),
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

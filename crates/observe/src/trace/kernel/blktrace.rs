//! The binary stream of `blktrace`, which the kernel also writes through tracefs.
//!
//! **Why.** This is the kernel's own form, without loss of figures; reading it does not need `blkparse`.
//!
//! **How.** A record is a head of 48 bytes and further bytes, whose number ends the head. Numbers have the least
//! significant byte first, except sectors in the further bytes.
//!
//! ```text
//! 4 magic 0x65617400 | version 7   4 sequence   8 time, ns   8 sector   4 bytes   4 action | categories << 16
//! 4 process   4 device: major << 20 | minor   4 CPU   2 error   2 length of what follows
//! ```
//!
//! A file holds one CPU (`sda.blktrace.0`), or one stream holds all CPUs (`blktrace -o -`, [`super::record`]). The
//! files of one trace (`cpu_files`) are read together, the record with the earliest time first. Notes among the records
//! give names of processes, the time of day, and messages. The messages of [`super::record`] are `plimsoll clock NAME`,
//! `plimsoll disk MAJOR,MINOR NAME` and `plimsoll lost N`.
//!
//! After damage, reading continues at the next magic number. If a record's length does not lead to a magic number, its
//! further bytes are not read.
//!
//! **Limits.** Version 7 of little-endian machines, which kernels up to 6.18 write. Damaged figures inside a record go
//! unnoticed, because there is no checksum. Names of 65,536 processes at a time.
//!
//! **Example.** [`Head::to_bytes`] writes what [`read_blktrace`] reads; see its test in this file.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use plimsoll_figures::units::format_count;

use super::intake::Intake;
use super::matching::sentence;
use super::{Action, BlockEvent, SECTOR_BYTES, op_of};
use crate::trace::TraceError;
use crate::trace::span::{Item, Trace};

/// Length of a record's head in bytes.
pub const HEAD_BYTES: usize = 48;
/// Magic number and version; constants here are those of `linux/blktrace_api.h`.
const MAGIC: u32 = 0x6561_7407;
const VERSION: u32 = 7;
/// Longest record, with the magic number of the next one.
const RECORD_BYTES_MAX: usize = HEAD_BYTES + 0xffff + 4;
const READ_BYTES: usize = 1 << 18;
const PROCESSES_MAX: usize = 1 << 16;

const IS_WRITE: u32 = 1 << 17;
const IS_FLUSH: u32 = 1 << 18;
const IS_COMMAND: u32 = 1 << 25;
const IS_NOTE: u32 = 1 << 26;
const IS_DISCARD: u32 = 1 << 29;
/// The further bytes begin with eight bytes of a control group.
const HAS_GROUP: u32 = 1 << 8;

pub(super) const NOTE_PROCESS: u32 = IS_NOTE;
pub(super) const NOTE_TIME: u32 = IS_NOTE | 1;
pub(super) const NOTE_MESSAGE: u32 = IS_NOTE | 2;

/// The head of a record, in the kernel's form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The number of the record on its CPU for its device, from 1; 0 through tracefs.
    pub sequence: u32,
    pub time_ns: u64,
    /// First sector of 512 bytes.
    pub sector: u64,
    pub bytes: u32,
    /// The kind of event, and categories in the upper 16 bits.
    pub action: u32,
    /// The number of the thread.
    pub process: u32,
    /// Major number << 20 | minor number.
    pub device: u32,
    pub cpu: u32,
    pub error: u16,
    pub more_bytes: u16,
}

impl Head {
    pub fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let words = [self.bytes, self.action, self.process, self.device, self.cpu].map(u32::to_le_bytes);
        let parts: [&[u8]; 6] = [
            &[MAGIC, self.sequence].map(u32::to_le_bytes).concat(),
            &self.time_ns.to_le_bytes(),
            &self.sector.to_le_bytes(),
            &words.concat(),
            &self.error.to_le_bytes(),
            &self.more_bytes.to_le_bytes(),
        ];
        let mut head = [0; HEAD_BYTES];
        head.iter_mut().zip(parts.concat()).for_each(|(place, byte)| *place = byte);
        head
    }

    /// Reads the head at the beginning of `bytes`; `None` if there is none, or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Option<Head> {
        let short = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        word(0).filter(|magic| *magic == MAGIC)?;
        Some(Head {
            sequence: word(4)?,
            time_ns: long(8)?,
            sector: long(16)?,
            bytes: word(24)?,
            action: word(28)?,
            process: word(32)?,
            device: word(36)?,
            cpu: word(40)?,
            error: short(44)?,
            more_bytes: short(46)?,
        })
    }
}

/// Returns the files of one trace, one for each CPU: all `NAME.blktrace.N` if `path` is one of them, or is `NAME` and
/// no file of its own (what `blkparse -i` takes); otherwise `path`.
pub(crate) fn cpu_files(path: &Path) -> Vec<PathBuf> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let of_cpu = name.rsplit_once('.').filter(|(stem, cpu)| stem.ends_with(".blktrace") && is_number(cpu));
    let stem = match of_cpu {
        Some((stem, _)) => stem.to_owned(),
        None if path.exists() => return vec![path.to_owned()],
        None => format!("{name}.blktrace"),
    };

    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let is_of_this = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.rsplit_once('.'));
        name.is_some_and(|(other, cpu)| other == stem && is_number(cpu))
    };
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .map(|entries| entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_of_this).collect())
        .unwrap_or_default();

    if files.is_empty() {
        files.push(path.to_owned());
    }
    files.sort();
    files
}

/// Hands the spans of a trace in `blktrace` binary to `visit`, from one CPU or from all in one stream.
pub fn read_blktrace(input: &mut dyn BufRead, visit: &mut dyn FnMut(Item)) -> Result<Trace, TraceError> {
    read_streams(vec![Stream::new(Box::new(input))], visit)
}

/// Does as [`read_blktrace`] does, with the files of all CPUs.
pub(crate) fn read_blktrace_files(paths: &[PathBuf], visit: &mut dyn FnMut(Item)) -> Result<Trace, TraceError> {
    let open = |path: &PathBuf| {
        let file = File::open(path).map_err(TraceError::Open)?;
        Ok(Stream::new(Box::new(BufReader::new(file))))
    };
    read_streams(paths.iter().map(open).collect::<Result<_, TraceError>>()?, visit)
}

fn read_streams(mut streams: Vec<Stream>, visit: &mut dyn FnMut(Item)) -> Result<Trace, TraceError> {
    let (intake, processes) = (Intake::new(visit), HashMap::new());
    let mut reader = Records { intake, processes, is_monotonic: true };

    for stream in &mut streams {
        stream.next()?;
    }

    if let Some(version) = streams.iter().find_map(|stream| stream.other_version) {
        return Err(TraceError::Format(format!(
            "blktrace binary of version {version}, and version {VERSION} is read: print it with \
             blkparse, and give that text"
        )));
    }
    if streams.iter().all(|stream| stream.head.is_none()) {
        return Err(TraceError::Format("no record of blktrace binary is whole: expected 48 bytes or more".to_owned()));
    }

    let behind = |streams: &[Stream]| {
        let times = streams.iter().enumerate().filter_map(|(at, stream)| Some((stream.head?.time_ns, at)));
        times.min().map(|(_, at)| at)
    };

    while let Some(stream) = behind(&streams).and_then(|at| streams.get_mut(at)) {
        if let Some(head) = stream.head {
            reader.take(&head, stream.more());
        }
        stream.next()?;
    }

    for stream in &streams {
        reader.intake.lost.extend(stream.lost());
    }
    Ok(reader.intake.finish(reader.is_monotonic))
}

/// Turns records into events.
struct Records<'v> {
    intake: Intake<'v>,
    /// The number of each process's name, by process number.
    processes: HashMap<u32, u16>,
    is_monotonic: bool,
}

impl Records<'_> {
    fn take(&mut self, head: &Head, more: &[u8]) {
        let more = if head.action & HAS_GROUP == 0 { more } else { more.get(8..).unwrap_or(&[]) };
        if head.action & IS_NOTE != 0 {
            self.note(head, more);
            return;
        }

        let action = action_of(head.action & 0xff, more, &mut self.intake);
        let sectors = u64::from(head.bytes).div_ceil(SECTOR_BYTES);
        let [is_write, is_flush, is_discard, is_command] =
            [IS_WRITE, IS_FLUSH, IS_DISCARD, IS_COMMAND].map(|bit| head.action & bit != 0);
        let class = if action == Action::Complete { 0 } else { self.class(head.process) };
        let event = BlockEvent {
            time_ns: head.time_ns,
            sector: head.sector,
            sectors,
            action,
            op: op_of(is_write, is_flush, is_discard, sectors).filter(|_| !is_command),
            class,
            disk: self.intake.disk(head.device >> 20, head.device & 0xf_ffff),
            cpu: u16::try_from(head.cpu).unwrap_or(u16::MAX),
            sequence: head.sequence,
            error: if action == Action::Complete { i32::from(head.error as i16).abs() } else { 0 },
        };

        self.intake.event(event);
    }

    fn class(&mut self, process: u32) -> u16 {
        if let Some(class) = self.processes.get(&process) {
            return *class;
        }
        self.is_called(process, &format!("pid {process}"))
    }

    fn is_called(&mut self, process: u32, name: &str) -> u16 {
        if self.processes.len() >= PROCESSES_MAX {
            self.processes.clear();
        }
        let class = self.intake.class(name);
        self.processes.insert(process, class);
        class
    }

    fn note(&mut self, head: &Head, more: &[u8]) {
        let text = || String::from_utf8_lossy(more.split(|byte| *byte == 0).next().unwrap_or(&[])).into_owned();
        match (head.action & !HAS_GROUP) & (IS_NOTE | 0xff) {
            NOTE_PROCESS => drop(self.is_called(head.process, &text())),
            NOTE_TIME => {
                let mut words = more.as_chunks::<4>().0.iter().map(|word| u64::from(u32::from_le_bytes(*word)));
                if let (Some(seconds), Some(ns)) = (words.next(), words.next()) {
                    self.intake.unix_at_zero_ns = (seconds * 1_000_000_000 + ns).checked_sub(head.time_ns);
                }
            }
            NOTE_MESSAGE => self.message(&text()),
            _ => {}
        }
    }

    /// Takes a message of [`super::record`].
    fn message(&mut self, text: &str) {
        let mut words = text.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("plimsoll"), Some("clock"), Some(clock)) => self.is_monotonic = clock == "mono",
            (Some("plimsoll"), Some("lost"), Some(count)) => {
                let count = count.parse().unwrap_or(0);
                self.intake.lost.push(sentence(count, "events did not fit into the kernel's buffer while recording"));
            }
            (Some("plimsoll"), Some("disk"), Some(device)) => {
                let numbers = device.split_once(',').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
                if let (Some((major, minor)), Some(name)) = (numbers, words.next()) {
                    self.intake.disk_is_called(major, minor, name);
                }
            }
            _ => {}
        }
    }
}

fn action_of(number: u32, more: &[u8], intake: &mut Intake) -> Action {
    match number {
        1 => Action::Queue,
        2 => Action::BackMerge,
        3 => Action::FrontMerge,
        4 => Action::GetRequest,
        6 => Action::Requeue,
        7 => Action::Issue,
        8 => Action::Complete,
        12 => Action::Insert,
        13 => more.first_chunk().map_or(Action::Other, |sector| Action::Split(u64::from_be_bytes(*sector))),
        15 => Action::Remap(source_of(more, intake)),
        // S, P, U, UT, B, and kinds of later kernels.
        _ => Action::Other,
    }
}

/// Returns from where a bio was remapped. The record has its device, the device now, and its sector.
fn source_of(more: &[u8], intake: &mut Intake) -> Option<(u16, u64)> {
    let device = u32::from_be_bytes(*more.first_chunk()?);
    let sector = u64::from_be_bytes(*more.get(8..)?.first_chunk()?);
    Some((intake.number_of(device >> 20, device & 0xf_ffff), sector))
}

/// The records of one file.
struct Stream<'a> {
    input: Box<dyn Read + 'a>,
    held: Vec<u8>,
    at: usize,
    ended: bool,
    other_version: Option<u8>,
    head: Option<Head>,
    /// Length of that record: with its further bytes if they are intact, otherwise of its head alone.
    length: usize,
    lost_bytes: u64,
    lost_places: u64,
    is_lost_here: bool,
}

impl<'a> Stream<'a> {
    fn new(input: Box<dyn Read + 'a>) -> Stream<'a> {
        Stream {
            input,
            held: Vec::new(),
            at: 0,
            ended: false,
            other_version: None,
            head: None,
            length: 0,
            lost_bytes: 0,
            lost_places: 0,
            is_lost_here: false,
        }
    }

    /// Returns the further bytes of the record.
    fn more(&self) -> &[u8] {
        self.held.get(self.at + HEAD_BYTES..self.at + self.length).unwrap_or(&[])
    }

    /// Moves to the next record; `head` is `None` at the end.
    fn next(&mut self) -> io::Result<()> {
        self.at += self.length;
        self.length = 0;
        loop {
            self.fill()?;
            self.head = None;
            if self.held.len() == self.at || self.head_here() {
                return Ok(());
            }
            self.skip();
        }
    }

    /// Reads the record here. Returns whether there is one.
    fn head_here(&mut self) -> bool {
        let rest = self.held.get(self.at..).unwrap_or(&[]);
        let Some(head) = Head::from_bytes(rest) else {
            self.see_version();
            return false;
        };

        let whole = HEAD_BYTES + usize::from(head.more_bytes);
        let leads_on = rest.get(whole..).is_some_and(|next| next.is_empty() || next.starts_with(&MAGIC.to_le_bytes()));
        // Another record inside these bytes shows that the length is damaged.
        let inside = rest.get(HEAD_BYTES..whole.min(rest.len())).unwrap_or(&[]);
        let is_intact = find_magic(inside).is_none();
        if is_intact && rest.len() < whole {
            // The file was cut.
            return false;
        }

        self.head = Some(head);
        self.length = if leads_on && is_intact { whole } else { HEAD_BYTES };
        self.is_lost_here = false;
        true
    }

    fn see_version(&mut self) {
        let magic =
            self.held.get(self.at..).and_then(|rest| rest.first_chunk()).map(|magic| u32::from_le_bytes(*magic));
        if let Some(magic) = magic.filter(|magic| self.at == 0 && magic & !0xff == MAGIC & !0xff && *magic != MAGIC) {
            self.other_version = Some(magic as u8);
        }
    }

    /// Skips bytes that are no record.
    fn skip(&mut self) {
        let rest = self.held.get(self.at..).unwrap_or(&[]);
        let next = rest.get(1..).and_then(find_magic).map(|at| at + 1);
        // A magic number may begin in the last bytes held.
        let end = if self.ended { rest.len() } else { rest.len().saturating_sub(3).max(1) };
        let bytes = next.unwrap_or(end);
        self.at += bytes;
        self.lost_bytes += bytes as u64;
        self.lost_places += u64::from(!std::mem::replace(&mut self.is_lost_here, true));
    }

    /// Reads until a whole record is held, or the rest of the file.
    fn fill(&mut self) -> io::Result<()> {
        if self.ended || self.held.len() - self.at >= RECORD_BYTES_MAX {
            return Ok(());
        }
        self.held.drain(..self.at);
        self.at = 0;
        let read = self.input.by_ref().take(READ_BYTES as u64).read_to_end(&mut self.held)?;
        self.ended = read < READ_BYTES;
        Ok(())
    }

    fn lost(&self) -> Option<String> {
        let place = match (self.lost_places, self.is_lost_here) {
            (0, _) => return None,
            (1, true) => "at the end: the file was cut".to_owned(),
            (places, true) => format!("in {places} places, one of them at the end: damaged, and cut"),
            (places, false) => format!("in {places} places are no records: damaged"),
        };
        Some(format!("{} bytes {place}", format_count(self.lost_bytes)))
    }
}

fn find_magic(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == MAGIC.to_le_bytes())
}

#[cfg(test)]
mod tests;

//! The file format of a trace, with a reader for damaged files too.
//!
//! # Why
//! A trace is often from a program that died, cut by a full disk, or badly copied. The reader must return the intact
//! parts, and report the missing ones.
//!
//! # How it works
//! The file is a head, then chunks, each with its own head and checksums (CRC-32C) over head and body. All numbers are
//! little-endian.
//!
//! ```text
//! head    8 "PLIMTRCE"   4 version (1)   4 clock: 0 monotonic, 1 virtual   8 unix time at clock 0, ns   4 CRC of the above
//! chunk   4 "CHNK"   2 kind   2 shard   4 length of the body   8 events dropped before it   4 CRC of the body   4 CRC of the above
//!         the body: events of 40 bytes (kind 1), or names (kind 2)
//! ```
//!
//! Names are lines of text: `class NUMBER SHARES NAME`, `file NUMBER DISK PATH`, `disk NUMBER NAME`; a backslash or
//! line feed in a name is written `\\`, `\n`. Changed names are written again, in several chunks if one is too small;
//! the last line of a number is valid from there on. A line longer than a chunk is left out. Events of a chunk are of
//! one shard and in order of time.
//!
//! [`Reader`] skips a chunk whose body is damaged, searches for the next whole one if a head is damaged or a body cut,
//! and counts the skipped bytes in [`Lost`].
//!
//! # Limits
//! A body has at most [`BODY_MAX_BYTES`], which bounds the memory of a reader.
//!
//! # Example
//! ```
//! use plimsoll::trace::format::{Body, Clock, Names, Reader, Writer};
//! let mut file = Vec::new();
//! let mut writer = Writer::new(&mut file, Clock::Virtual, 0)?;
//! writer.names(&Names::default())?;
//! writer.events(3, 0, &[])?;
//! let mut reader = Reader::new(file.as_slice())?;
//! assert!(matches!(reader.next_chunk()?.map(|chunk| chunk.body), Some(Body::Names(_))));
//! assert_eq!(reader.next_chunk()?.map(|chunk| chunk.shard), Some(3));
//! assert!(reader.next_chunk()?.is_none() && reader.lost().is_nothing());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Seek, Write};

use plimsoll_core::trace::{EVENT_BYTES, Event};

const MAGIC: &[u8; 8] = b"PLIMTRCE";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 28;
const CHUNK_MARK: &[u8; 4] = b"CHNK";
const CHUNK_HEAD_BYTES: usize = 28;
const KIND_EVENTS: u16 = 1;
const KIND_NAMES: u16 = 2;
/// Longest body of a chunk, in bytes: a whole number of events.
pub const BODY_MAX_BYTES: usize = 26_214 * EVENT_BYTES;
/// Bytes that a reader asks for beyond those that it needs.
const AHEAD_BYTES: usize = 1 << 18;
/// The same, where most of the file is skipped.
const SPARSE_AHEAD_BYTES: usize = 1 << 12;
/// Most room of a reader: a chunk fits, and few are moved for lack of room behind them.
const HELD_MAX_BYTES: usize = 2 * (CHUNK_HEAD_BYTES + BODY_MAX_BYTES);

/// Clock of the time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// CLOCK_MONOTONIC of the machine.
    Monotonic,
    /// The clock of a simulation.
    Virtual,
}

/// A class in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassName {
    /// Its name.
    pub name: String,
    /// Its shares.
    pub shares: u32,
}

/// A file in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName {
    /// Its path.
    pub path: String,
    /// Number of its disk.
    pub disk: u16,
}

/// Names of the numbers in events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Classes by number.
    pub classes: BTreeMap<u16, ClassName>,
    /// Files by number.
    pub files: BTreeMap<u32, FileName>,
    /// Disks by number.
    pub disks: BTreeMap<u16, String>,
}

impl Names {
    fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        for (number, class) in &self.classes {
            let _ = writeln!(text, "class {number} {} {}", class.shares, escaped(&class.name));
        }
        for (number, file) in &self.files {
            let _ = writeln!(text, "file {number} {} {}", file.disk, escaped(&file.path));
        }
        for (number, name) in &self.disks {
            let _ = writeln!(text, "disk {number} {}", escaped(name));
        }
        text
    }

    /// Parses names. Skips unknown lines: a later version may have more kinds.
    fn from_text(text: &str) -> Names {
        let mut names = Names::default();
        for line in text.lines() {
            let _ = names.take_line(line);
        }
        names
    }

    fn take_line(&mut self, line: &str) -> Option<()> {
        let (kind, rest) = line.split_once(' ')?;
        let (number, rest) = rest.split_once(' ')?;
        match kind {
            "class" => {
                let (shares, name) = rest.split_once(' ')?;
                let class = ClassName { name: unescaped(name), shares: shares.parse().ok()? };
                self.classes.insert(number.parse().ok()?, class);
            }
            "file" => {
                let (disk, path) = rest.split_once(' ')?;
                let file = FileName { path: unescaped(path), disk: disk.parse().ok()? };
                self.files.insert(number.parse().ok()?, file);
            }
            "disk" => drop(self.disks.insert(number.parse().ok()?, unescaped(rest))),
            _ => {}
        }
        Some(())
    }
}

fn escaped(name: &str) -> String {
    name.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r")
}

fn unescaped(text: &str) -> String {
    let mut name = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        name.push(match (c, c == '\\') {
            (c, false) => c,
            (_, true) => match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
        });
    }
    name
}

/// Writes the file of a trace.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    clock: Clock,
    body: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a file. `unix_at_zero_ns` is the unix time in nanoseconds when the clock was 0 (0 for a virtual clock).
    ///
    /// # Errors
    /// The error of writing.
    pub fn new(mut out: W, clock: Clock, unix_at_zero_ns: u64) -> io::Result<Writer<W>> {
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&(clock as u32).to_le_bytes());
        head.extend_from_slice(&unix_at_zero_ns.to_le_bytes());
        head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
        out.write_all(&head)?;
        Ok(Writer { out, clock, body: Vec::new() })
    }

    /// Returns the clock of the time stamps.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Writes events of one shard in order of time. `dropped` is the number of events dropped before them for lack of
    /// room.
    ///
    /// # Errors
    /// The error of writing.
    pub fn events(&mut self, shard: u16, dropped: u64, events: &[Event]) -> io::Result<()> {
        let mut dropped = Some(dropped);
        let mut rest = events;
        while !rest.is_empty() || dropped.is_some() {
            let (now, later) = rest.split_at(rest.len().min(BODY_MAX_BYTES / EVENT_BYTES));
            rest = later;
            self.body.clear();
            now.iter().for_each(|event| self.body.extend_from_slice(&event.to_bytes()));
            self.chunk(KIND_EVENTS, shard, dropped.take().unwrap_or(0))?;
        }
        Ok(())
    }

    /// Writes the names of the numbers in later events, in as many chunks as needed. Leaves out a name whose line alone
    /// is longer than a chunk.
    ///
    /// # Errors
    /// The error of writing.
    pub fn names(&mut self, names: &Names) -> io::Result<()> {
        self.body.clear();
        for line in names.to_text().split_inclusive('\n').filter(|line| line.len() <= BODY_MAX_BYTES) {
            if self.body.len() + line.len() > BODY_MAX_BYTES {
                self.chunk(KIND_NAMES, 0, 0)?;
                self.body.clear();
            }
            self.body.extend_from_slice(line.as_bytes());
        }
        self.chunk(KIND_NAMES, 0, 0)
    }

    fn chunk(&mut self, kind: u16, shard: u16, dropped: u64) -> io::Result<()> {
        let mut head = Vec::with_capacity(CHUNK_HEAD_BYTES);
        head.extend_from_slice(CHUNK_MARK);
        head.extend_from_slice(&kind.to_le_bytes());
        head.extend_from_slice(&shard.to_le_bytes());
        head.extend_from_slice(&(self.body.len() as u32).to_le_bytes());
        head.extend_from_slice(&dropped.to_le_bytes());
        head.extend_from_slice(&crc32c::crc32c(&self.body).to_le_bytes());
        head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(&self.body)
    }

    /// Passes all bytes written so far to the system.
    ///
    /// # Errors
    /// The error of writing.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Why a file is not a trace that this version reads.
#[derive(Debug)]
pub enum OpenError {
    /// Reading failed.
    Io(io::Error),
    /// The file does not begin as a trace does.
    NotATrace,
    /// The head is damaged.
    DamagedHead,
    /// A version that this program does not know.
    Version(u32),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::Io(error) => write!(f, "cannot read it: {error}"),
            OpenError::NotATrace => f.write_str("this is no plimsoll trace (it does not begin with PLIMTRCE)"),
            OpenError::DamagedHead => f.write_str("the head of the trace is damaged or cut"),
            OpenError::Version(found) => {
                write!(f, "a trace of version {found}, and version {VERSION} is read: use the plimsoll that wrote it")
            }
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> OpenError {
        OpenError::Io(error)
    }
}

/// The unreadable parts of a file, and the events that were never in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Bytes outside whole chunks.
    pub bytes: u64,
    /// Ranges of such bytes.
    pub places: u64,
    /// Whether the last range is at the end of the file, so the file was cut.
    pub at_end: bool,
    /// Events for which the program had no room when it recorded.
    pub dropped_events: u64,
    /// Events with unknown numbers.
    pub unknown_events: u64,
}

impl Lost {
    /// Returns whether nothing was lost.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Lost::default()
    }
}

/// Events of a chunk, decoded one by one. Unknown ones are left out, and counted in [`Lost`].
#[derive(Debug)]
pub struct Events<'a> {
    places: std::slice::Iter<'a, [u8; EVENT_BYTES]>,
    unknown: &'a mut u64,
}

impl Iterator for Events<'_> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        loop {
            let event = Event::from_bytes(self.places.next()?);
            if event.is_some() {
                return event;
            }
            *self.unknown += 1;
        }
    }
}

/// Content of a chunk.
#[derive(Debug)]
pub enum Body<'a> {
    /// Events of one shard, in order of time.
    Events(Events<'a>),
    /// Names of numbers from here on, in addition to earlier ones.
    Names(Names),
}

/// A part of a trace.
#[derive(Debug)]
pub struct Chunk<'a> {
    /// The shard.
    pub shard: u16,
    /// Its content.
    pub body: Body<'a>,
}

/// Reads the file of a trace, front to back.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    /// Room for bytes read. Those from `at` to `end` are not yet parsed.
    held: Vec<u8>,
    at: usize,
    end: usize,
    ended: bool,
    clock: Clock,
    unix_at_zero_ns: u64,
    lost: Lost,
    is_lost_here: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head of `input`.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn new(mut input: R) -> Result<Reader<R>, OpenError> {
        let mut head = Vec::new();
        input.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        if !head.starts_with(MAGIC) {
            return Err(OpenError::NotATrace);
        }

        let (Some(version), Some(clock), Some(unix_low), Some(unix_high), Some(crc)) =
            (word(&head, 8), word(&head, 12), word(&head, 16), word(&head, 20), word(&head, 24))
        else {
            return Err(OpenError::DamagedHead);
        };

        if crc32c::crc32c(&head[..HEAD_BYTES - 4]) != crc {
            return Err(OpenError::DamagedHead);
        }

        if version != VERSION {
            return Err(OpenError::Version(version));
        }

        Ok(Reader {
            input,
            held: Vec::new(),
            at: 0,
            end: 0,
            ended: false,
            clock: if clock == Clock::Virtual as u32 { Clock::Virtual } else { Clock::Monotonic },
            unix_at_zero_ns: u64::from(unix_low) | u64::from(unix_high) << 32,
            lost: Lost::default(),
            is_lost_here: false,
        })
    }

    /// Returns the clock of the time stamps.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Returns the unix time in nanoseconds when the clock was 0; 0 for a virtual clock.
    #[must_use]
    pub fn unix_at_zero_ns(&self) -> u64 {
        self.unix_at_zero_ns
    }

    /// Returns the losses up to here.
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.lost
    }

    /// Returns the next whole chunk, or `None` at the end.
    ///
    /// # Errors
    /// The error of reading.
    pub fn next_chunk(&mut self) -> io::Result<Option<Chunk<'_>>> {
        let head = loop {
            self.fill(CHUNK_HEAD_BYTES, AHEAD_BYTES)?;
            if self.rest().is_empty() {
                self.lost.at_end = self.is_lost_here;
                return Ok(None);
            }

            if let Some(head) = ChunkHead::of(self.rest()) {
                self.fill(head.len_bytes, AHEAD_BYTES)?;
                if let Some(bytes) = self.rest().get(..head.len_bytes) {
                    if crc32c::crc32c(&bytes[CHUNK_HEAD_BYTES..]) == head.body_crc {
                        break head;
                    }
                    // A damaged body is skipped by its length, so that bytes in it that look like heads are not tried
                    // one by one.
                    self.lose(head.len_bytes);
                    continue;
                }
            }
            self.lose_up_to_mark()?;
        };

        self.is_lost_here = false;
        self.lost.dropped_events = self.lost.dropped_events.saturating_add(head.dropped_events);
        let body = &self.held[self.at + CHUNK_HEAD_BYTES..self.at + head.len_bytes];
        self.at += head.len_bytes;
        let body = match head.kind {
            KIND_NAMES => Body::Names(Names::from_text(&String::from_utf8_lossy(body))),
            kind => {
                // A kind of a later version is skipped.
                let places = if kind == KIND_EVENTS { body.as_chunks::<EVENT_BYTES>().0 } else { &[] };
                Body::Events(Events { places: places.iter(), unknown: &mut self.lost.unknown_events })
            }
        };
        Ok(Some(Chunk { shard: head.shard, body }))
    }

    /// The bytes that are held and not yet parsed.
    fn rest(&self) -> &[u8] {
        &self.held[self.at..self.end]
    }

    /// Counts the next bytes as lost.
    fn lose(&mut self, bytes: usize) {
        self.lost.bytes += bytes as u64;
        self.lost.places += u64::from(!std::mem::replace(&mut self.is_lost_here, true));
        self.at += bytes;
    }

    /// Counts the bytes before the next possible chunk as lost.
    fn lose_up_to_mark(&mut self) -> io::Result<()> {
        self.fill(CHUNK_HEAD_BYTES + BODY_MAX_BYTES, AHEAD_BYTES)?;
        let rest = self.rest();
        let mark = rest.get(1..).and_then(|rest| find(rest, CHUNK_MARK)).map(|at| at + 1);
        // The last bytes may be the beginning of a mark.
        let tail_bytes = if self.ended { 0 } else { CHUNK_MARK.len() - 1 };
        let lost_bytes = mark.unwrap_or(rest.len() - tail_bytes);
        self.lose(lost_bytes);
        Ok(())
    }

    /// Reads until at least `bytes` are held, or the input ends. Asks for `ahead_bytes` more.
    fn fill(&mut self, bytes: usize, ahead_bytes: usize) -> io::Result<()> {
        if self.ended || self.end - self.at >= bytes {
            return Ok(());
        }
        if self.at + bytes + ahead_bytes > HELD_MAX_BYTES {
            self.held.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
        }

        let limit = self.at + bytes + ahead_bytes;
        if self.held.len() < limit {
            self.held.resize(limit, 0);
        }
        while self.end < self.at + bytes {
            match self.input.read(&mut self.held[self.end..limit]) {
                Ok(0) => {
                    self.ended = true;
                    break;
                }
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Skips the next chunk without reading it, if it has events and none of them before `time_ns`. Returns whether it
    /// did. Losses in such a chunk are not counted.
    ///
    /// # Errors
    /// The error of reading.
    pub fn skip_events_from(&mut self, time_ns: u64) -> io::Result<bool> {
        self.fill(CHUNK_HEAD_BYTES + EVENT_BYTES, SPARSE_AHEAD_BYTES)?;
        let rest = self.rest();
        let Some(head) = ChunkHead::of(rest).filter(|head| head.kind == KIND_EVENTS) else { return Ok(false) };
        let first = rest.get(CHUNK_HEAD_BYTES..head.len_bytes.min(rest.len())).and_then(<[u8]>::first_chunk);
        if first.and_then(Event::from_bytes).is_none_or(|first| first.time_ns < time_ns) {
            return Ok(false);
        }

        let held_bytes = head.len_bytes.min(rest.len());
        self.at += held_bytes;
        self.is_lost_here = false;
        if held_bytes < head.len_bytes {
            self.input.seek_relative((head.len_bytes - held_bytes) as i64)?;
        }
        Ok(true)
    }
}

/// The head of a chunk.
struct ChunkHead {
    kind: u16,
    shard: u16,
    /// Length of the chunk, head and body.
    len_bytes: usize,
    dropped_events: u64,
    body_crc: u32,
}

impl ChunkHead {
    /// Returns the head at the beginning of `bytes`, if it is intact.
    fn of(bytes: &[u8]) -> Option<ChunkHead> {
        let head = bytes.get(..CHUNK_HEAD_BYTES)?;
        let is_intact =
            head.starts_with(CHUNK_MARK) && crc32c::crc32c(&head[..CHUNK_HEAD_BYTES - 4]) == word(head, 24)?;
        let body_bytes = word(head, 8)? as usize;
        (is_intact && body_bytes <= BODY_MAX_BYTES).then_some(ChunkHead {
            kind: word(head, 4)? as u16,
            shard: (word(head, 4)? >> 16) as u16,
            len_bytes: CHUNK_HEAD_BYTES + body_bytes,
            dropped_events: u64::from(word(head, 12)?) | u64::from(word(head, 16)?) << 32,
            body_crc: word(head, 20)?,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests;

//! A depot: what many hosts recorded, as Parquet files that every SQL engine reads.
//!
//! # Why
//! People with 500 hosts want one answer, from engines that they have. A directory of Parquet files with a documented
//! schema needs no daemon and no format of its own.
//!
//! # How it works
//! ```text
//! DEPOT/spans/host=db1/date=2026-03-14/trace-0123456789abcdef.parquet
//!       hist/...  disks/...  figures/...
//! ```
//! Four tables, each in parts by host and day (UTC), or also by hour. A file is named after the content of its
//! recording, so storing a recording again replaces its files; files of the same name in other parts are removed, so no
//! row is there twice. A file is written in its directory under a name that readers ignore, synced, and renamed: it is
//! whole or absent. For a bucket it is written to a temporary directory and sent; an object is whole or absent, too.
//! Each file has the version of the schema ([`SCHEMA`]) under the key [`SCHEMA_KEY`]. docs/depot.md has all columns.
//!
//! # Limits
//! A process that is killed leaves a hidden temporary file. A host is a name: two machines of one name are one host.
//! Buckets need the feature `s3`.
//!
//! # Example
//! ```
//! use plimsoll_observe::depot::{DepotError, Place, Root};
//! let place = Place::new(&Root::parse("depot".as_ref())?, "../db1", "trace-1".to_owned());
//! assert!(matches!(place, Err(DepotError::Host { .. })));
//! # Ok::<(), DepotError>(())
//! ```

pub mod disks;
pub mod figures;
#[cfg(feature = "s3")]
mod s3;
pub mod trace;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use crate::columns::Column;
use crate::columns::parquet::{GROUP_ROWS, Parquet};

/// Version of the tables. It rises when a column changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

/// The key of a file's metadata that has the version.
pub const SCHEMA_KEY: &str = "plimsoll.depot.schema";

/// Longest name of a host, in bytes: the `host=` part of a path has to be a file name.
const HOST_MAX_BYTES: usize = 200;

/// Most parts (days or hours) that one recording may touch: each is an open file.
const PARTS_MAX: usize = 400;

/// Most rows for which the open files of a recording have memory, apart from the file that rows are added to. A row of
/// spans takes some 280 bytes.
const ROOM_ROWS_MAX: usize = 4 * GROUP_ROWS;

const US_PER_HOUR: i64 = 3_600_000_000;
const US_PER_DAY: i64 = 24 * US_PER_HOUR;

/// Days since 1970 of 2000-01-01 and 2200-01-01. A time outside is that of a clock that was never set.
const DAYS: std::ops::Range<i64> = 10_957..84_006;

/// Why something was not stored.
#[derive(Debug, thiserror::Error)]
pub enum DepotError {
    #[error(
        "`{name}` cannot be a host in a depot: expected letters, digits, `.`, `_` and `-`, a letter or digit first"
    )]
    Host { name: String },
    #[error("this {what} does not say of which host it is: name it with --host NAME")]
    NoHost { what: &'static str },
    #[error("this {what} does not say when it was: give the time with --at TIME")]
    NoTime { what: &'static str },
    #[error("an interval has no time of day, and a depot keeps disks by it: record with `plimsoll stat --record`")]
    IntervalWithoutTime,
    #[error("its clock says {at_us} us since 1970, which is not between the years 2000 and 2200: {remedy}")]
    Clock { at_us: i64, remedy: &'static str },
    #[error("it touches more than {PARTS_MAX} {unit}: cut it into parts")]
    Parts { unit: &'static str },
    #[error("a depot cannot be at `{url}`: expected a directory, or s3://BUCKET/PREFIX")]
    Url { url: String },
    #[error("{url}: this plimsoll was built without S3: build it with `cargo build --release --features s3`")]
    NoS3 { url: String },
    #[error(
        "{url}: {reason}: the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL say how to reach it"
    )]
    Bucket { url: String, reason: String },
    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl DepotError {
    fn at(path: &Path) -> impl FnOnce(io::Error) -> DepotError {
        move |error| DepotError::Io { path: path.to_owned(), error }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Spans,
    Hist,
    Disks,
    Figures,
}

impl Table {
    pub const ALL: [Table; 4] = [Table::Spans, Table::Hist, Table::Disks, Table::Figures];

    /// Returns the name, which is that of its directory.
    pub const fn name(self) -> &'static str {
        match self {
            Table::Spans => "spans",
            Table::Hist => "hist",
            Table::Disks => "disks",
            Table::Figures => "figures",
        }
    }
}

/// The location of a depot.
#[derive(Clone, Debug)]
pub enum Root {
    Directory(PathBuf),
    #[cfg(feature = "s3")]
    Bucket(s3::Bucket),
}

impl Root {
    /// Reads the path of a directory, or `s3://BUCKET/PREFIX`. The environment says how to reach a bucket (AWS_...).
    ///
    /// # Errors
    /// [`DepotError`] for any other URL, or if the environment lacks a setting.
    pub fn parse(place: &Path) -> Result<Root, DepotError> {
        let Some((url, (scheme, rest))) = place.to_str().and_then(|url| Some((url, url.split_once("://")?))) else {
            return Ok(Root::Directory(place.to_owned()));
        };
        if scheme != "s3" || rest.split('/').next().is_none_or(str::is_empty) {
            return Err(DepotError::Url { url: url.to_owned() });
        }
        #[cfg(feature = "s3")]
        return s3::Bucket::open(url, rest).map(Root::Bucket);
        #[cfg(not(feature = "s3"))]
        return Err(DepotError::NoS3 { url: url.to_owned() });
    }
}

/// The place of a recording's rows.
#[derive(Clone, Debug)]
pub struct Place {
    root: Root,
    host: String,
    recording: String,
    /// Whether there is a directory for each hour, and not only for each day.
    pub is_by_hour: bool,
}

impl Place {
    /// Returns the place of a recording in the depot at `root`. `recording` names its files: letters, digits and `-`.
    ///
    /// # Errors
    /// [`DepotError::Host`] if the host's name would not be one directory.
    pub fn new(root: &Root, host: &str, recording: String) -> Result<Place, DepotError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let begins = host.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !begins || host.len() > HOST_MAX_BYTES || !host.bytes().all(is_plain) {
            return Err(DepotError::Host { name: host.to_owned() });
        }
        debug_assert!(recording.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
        Ok(Place { root: root.clone(), host: host.to_owned(), recording, is_by_hour: false })
    }
}

/// A file that was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub table: Table,
    /// Its path, or its URL in a bucket.
    pub path: PathBuf,
    pub rows: u64,
    pub len_bytes: u64,
}

/// The files of one recording in one table, a file for each part. If dropped before [`Files::finish`], leaves no file.
struct Files<R: 'static, C: 'static> {
    place: Place,
    table: Table,
    columns: Vec<&'static Column<R, C>>,
    /// Open files by the number of their part (day or hour) since 1970.
    parts: BTreeMap<i64, Open<R, C>>,
    /// The part of the last row.
    last: Option<i64>,
    /// Directory of files until they are sent to a bucket; made with the first.
    #[cfg(feature = "s3")]
    waiting: Option<tempfile::TempDir>,
}

struct Open<R: 'static, C: 'static> {
    file: Parquet<R, C, BufWriter<File>>,
    temporary: Temporary,
    /// The directories below that of the host: `date=2026-03-14`.
    part: String,
}

impl<R, C> Files<R, C> {
    fn new(place: &Place, table: Table, columns: impl IntoIterator<Item = &'static Column<R, C>>) -> Files<R, C> {
        Files {
            place: place.clone(),
            table,
            columns: columns.into_iter().collect(),
            parts: BTreeMap::new(),
            last: None,
            #[cfg(feature = "s3")]
            waiting: None,
        }
    }

    /// Returns the number since 1970 of the part with this time.
    fn part(&self, at_us: i64) -> i64 {
        // Two divisors that the compiler knows: a span needs no division.
        if self.place.is_by_hour { at_us.div_euclid(US_PER_HOUR) } else { at_us.div_euclid(US_PER_DAY) }
    }

    /// Adds rows of the part with this time, in microseconds since 1970.
    fn push(&mut self, at_us: i64, rows: &[R], shared: &C) -> Result<(), DepotError> {
        if rows.is_empty() {
            return Ok(());
        }
        let part = self.part(at_us);
        if self.last.replace(part) != Some(part) {
            self.bound_memory(part);
        }
        if let Some(open) = self.parts.get_mut(&part) {
            open.file.push(rows, shared);
            return Ok(());
        }

        let mut open = self.open(at_us)?;
        open.file.push(rows, shared);
        self.parts.insert(part, open);
        Ok(())
    }

    /// Ends the groups of all files but that of `part` if they have memory for too many rows.
    fn bound_memory(&mut self, part: i64) {
        let others = || self.parts.iter().filter(|(other, _)| **other != part);
        if others().map(|(_, open)| open.file.room_rows).sum::<usize>() > ROOM_ROWS_MAX {
            let others = self.parts.iter_mut().filter(|(other, _)| **other != part);
            others.for_each(|(_, open)| open.file.end_group());
        }
    }

    fn open(&mut self, at_us: i64) -> Result<Open<R, C>, DepotError> {
        let day = at_us.div_euclid(US_PER_DAY);
        let time = jiff::Timestamp::from_microsecond(at_us).ok().filter(|_| DAYS.contains(&day));
        let remedy = match self.table {
            Table::Disks => "cut what was recorded before the clock was set out of the recording",
            _ => "set it right with --at TIME",
        };
        let time = time.ok_or(DepotError::Clock { at_us, remedy })?;
        let (form, unit) = if self.place.is_by_hour { ("date=%F/hour=%H", "hours") } else { ("date=%F", "days") };
        if self.parts.len() >= PARTS_MAX {
            return Err(DepotError::Parts { unit });
        }

        let part = time.strftime(form).to_string();
        let directory = self.directory(&part)?;
        let (temporary, file) = Temporary::create(&directory, &self.place.recording)?;
        let metadata = [(SCHEMA_KEY, SCHEMA.to_string()), ("plimsoll.table", self.table.name().to_owned())];
        let file = Parquet::begin(BufWriter::new(file), self.columns.iter().copied(), &metadata)
            .map_err(DepotError::at(&temporary.0))?;
        Ok(Open { file, temporary, part })
    }

    /// Returns the directory in which the file of a part is written. Creates it if needed.
    fn directory(&mut self, part: &str) -> Result<PathBuf, DepotError> {
        match &self.place.root {
            Root::Directory(root) => {
                let directory = root.join(self.of_host()).join(part);
                make_directories(&directory).map_err(DepotError::at(&directory))?;
                Ok(directory)
            }
            #[cfg(feature = "s3")]
            Root::Bucket(_) => {
                let waiting = match self.waiting.take() {
                    Some(waiting) => waiting,
                    None => tempfile::tempdir().map_err(DepotError::at(&std::env::temp_dir()))?,
                };
                Ok(self.waiting.insert(waiting).path().to_owned())
            }
        }
    }

    /// Returns the directory of the host, below the root.
    fn of_host(&self) -> String {
        format!("{}/host={}", self.table.name(), self.place.host)
    }

    /// Puts the files in place, and removes the recording's files in other parts.
    fn finish(mut self) -> Result<Vec<Written>, DepotError> {
        let mut whole = Vec::new();
        for Open { file, temporary, part } in std::mem::take(&mut self.parts).into_values() {
            let rows = file.rows;
            let synced = file.finish().and_then(|out| {
                let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
                file.sync_all()?;
                Ok(file.metadata()?.len())
            });
            let len_bytes = synced.map_err(DepotError::at(&temporary.0))?;
            whole.push((temporary, part, rows, len_bytes));
        }

        let (table, of_host, name) = (self.table, self.of_host(), format!("{}.parquet", self.place.recording));
        let mut written = Vec::new();
        for (temporary, part, rows, len_bytes) in whole {
            let within = format!("{of_host}/{part}/{name}");
            let path = match &self.place.root {
                Root::Directory(root) => {
                    let path = root.join(within);
                    fs::rename(&temporary.0, &path).and_then(|()| sync_parent(&path)).map_err(DepotError::at(&path))?;
                    path
                }
                #[cfg(feature = "s3")]
                Root::Bucket(bucket) => bucket.put(&within, &temporary.0, len_bytes)?,
            };
            written.push(Written { table, path, rows, len_bytes });
        }
        match &self.place.root {
            Root::Directory(root) => remove_others(&root.join(of_host), &name, &written)?,
            #[cfg(feature = "s3")]
            Root::Bucket(bucket) => bucket.remove_others(&of_host, &name, &written)?,
        }
        Ok(written)
    }
}

/// Makes a new name in a directory durable.
fn sync_parent(path: &Path) -> io::Result<()> {
    // A relative path of one name is in the working directory.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// Makes a directory and those above it. A new directory is durable before anything is created in it.
fn make_directories(directory: &Path) -> io::Result<()> {
    let new: Vec<&Path> = directory.ancestors().take_while(|it| !it.as_os_str().is_empty() && !it.is_dir()).collect();
    fs::create_dir_all(directory)?;
    new.into_iter().rev().try_for_each(sync_parent)
}

/// Removes the files of this name in other parts than those of `written`.
fn remove_others(directory: &Path, name: &str, written: &[Written]) -> Result<(), DepotError> {
    for day in directories(directory)? {
        for part in directories(&day)?.into_iter().chain([day]) {
            let path = part.join(name);
            if path.is_file() && !written.iter().any(|file| file.path == path) {
                fs::remove_file(&path).map_err(DepotError::at(&path))?;
            }
        }
    }
    Ok(())
}

/// Returns the directories in a directory; none if it does not exist.
fn directories(directory: &Path) -> Result<Vec<PathBuf>, DepotError> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(DepotError::at(directory))?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>();
    Ok(paths.map_err(DepotError::at(directory))?.into_iter().filter(|path| path.is_dir()).collect())
}

/// A temporary file, which is removed unless it was renamed.
struct Temporary(PathBuf);

impl Temporary {
    /// Creates a file in `directory` that no other process uses: processes of two containers may have one number.
    fn create(directory: &Path, recording: &str) -> Result<(Temporary, File), DepotError> {
        let mut attempt = 0_u32;
        loop {
            let path = directory.join(format!(".{recording}-{}-{attempt}.tmp", std::process::id()));
            match File::create_new(&path) {
                Ok(file) => return Ok((Temporary(path), file)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => attempt += 1,
                Err(error) => return Err(DepotError::Io { path, error }),
            }
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename the file has another name.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests;

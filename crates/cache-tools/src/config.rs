//! CACHE.yaml: the disks of a cache, and its configuration.
//!
//! # Why
//! One file describes the cache as it should be. Commands and people change it; a process that has the cache open
//! follows its changes.
//!
//! # How it works
//! [`parse`] is strict: it refuses an unknown key, a value without its unit or a device listed twice, and names the
//! line. [`CacheFile::to_text`] writes what [`parse`] reads. Commands change the file with [`edit`]: under a lock on
//! its directory, the file is read, changed, written beside the old one and renamed onto it, so readers see either the
//! old file or the new one. Relative paths (of devices that are files, of disk models, of the key) start at the file's
//! directory.
//!
//! | key of `cache` | default | meaning |
//! |---|---|---|
//! | `checkpoint_interval` | `60s` | longest time between checkpoints: a crash loses the inserts since the last one |
//! | `target_free_blocks_pct` | `5` | kept free by eviction, in percent of the capacity |
//! | `placement` | `load` | which slab the next block goes to: `seed`, `discriminant`, `load` |
//! | `memory` | `0` | memory for blocks, besides the disks |
//! | `in_flight` | `256MiB` | most bytes of inserts in flight in each class; an insert beyond is dropped |
//! | `hit_deadline` | `none` (2 s) | a hit that takes longer is a miss |
//! | `hit_slowdown` | `1.5` | factor by which writes may lengthen the p99 of hits; `none`: writes are not held back |
//! | `ghost_pct` | `100` | entries without data, in percent of the capacity |
//! | `reject_first` | `false` | once the cache is full, store only blocks inserted a second time; needs ghosts |
//! | `writes_per_day` | `none` | most bytes written to the devices in a day; inserts beyond are dropped |
//! | `move_rate` | `none` | limit of evacuation and rebalancing, bytes a second |
//! | `index_memory` | `none` | limit of the index |
//! | `discard` | `false` | discard empty slabs on the device |
//! | `encryption_key_file` | | a file with 64 hexadecimal digits |
//! | `shards` | `2` | threads that do the I/O |
//! | `devices` | | a list; each has `path`, `size`, `disk` (a disk file or preset), `state` (`active`, `removing`) |
//!
//! # Limits
//! Comments in the file are lost when a command changes it. At most 128 devices.
//!
//! # Example
//! ```
//! use plimsoll_cache_tools::config::{self, DeviceState};
//! let text = "cache:
//!   checkpoint_interval: 5s
//!   target_free_blocks_pct: 20
//!   devices:
//!     - path: /dev/nvme1n1
//!       size: 100GiB
//!     - {path: /dev/nvme2n1, size: 50GiB, state: removing}
//! ";
//! let file = config::parse("c.yaml", text)?;
//! assert_eq!(file.devices[1].state, DeviceState::Removing);
//! assert_eq!(config::parse("copy", &file.to_text())?, file);
//! let error = config::parse("c.yaml", "cache:\n  devises: []").unwrap_err();
//! assert_eq!((error.line(), error.help()), (Some(2), Some("did you mean `devices`?")));
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_cache::{CacheConfig, DiskSource, Placement};
use plimsoll_figures::units::{parse_rate_bytes_per_s, parse_size_bytes};
use plimsoll_files::error::Source;
use plimsoll_files::fields::{Field, Fields, Schema};
use plimsoll_files::{Code, ConfigError, disk, keys, yaml};

pub const MAX_DEVICES: usize = 128;

/// Most shards that a cache may run on.
const MAX_SHARDS: u32 = 256;

const MIB: u64 = 1 << 20;

/// The largest size in the file, in bytes: 512 TiB, the largest offset that a block's address can hold.
const MAX_BYTES: u64 = 512 << 40;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceState {
    #[default]
    Active,
    /// Its blocks are to be moved away. Then the process that has the cache open removes the entry.
    Removing,
}

impl DeviceState {
    pub const ALL: [(&'static str, DeviceState); 2] =
        [("active", DeviceState::Active), ("removing", DeviceState::Removing)];

    pub fn name(self) -> &'static str {
        match self {
            DeviceState::Active => "active",
            DeviceState::Removing => "removing",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Path as written in the file: relative paths start at the file's directory.
    pub path: PathBuf,
    /// Its size in bytes, when it was added or last expanded; the cache uses all of it. A larger figure makes the
    /// process that has the cache open use the space by which the device has grown. `None`: unknown.
    pub size_bytes: Option<u64>,
    /// Its disk model: a disk file, or the name of a preset.
    pub disk: Option<String>,
    pub state: DeviceState,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CacheFile {
    /// The cache's configuration. Its encryption key is set by [`CacheFile::load_key`].
    pub config: CacheConfig,
    /// Path of the file with the encryption key, as written in the file.
    pub key_file: Option<PathBuf>,
    /// Threads that do the I/O: 1 to 256.
    pub shards: u16,
    pub devices: Vec<Device>,
}

impl Default for CacheFile {
    fn default() -> CacheFile {
        CacheFile { config: CacheConfig::default(), key_file: None, shards: 2, devices: Vec::new() }
    }
}

/// Why CACHE.yaml, or a file that it names, cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The text of CACHE.yaml, or of a disk file that it names, is wrong.
    #[error(transparent)]
    Text(#[from] ConfigError),
    #[error("{path}: {reason}")]
    Key { path: String, reason: String },
    #[error("cannot write {path}: {error}")]
    Write { path: String, error: io::Error },
    #[error("{0}")]
    Change(String),
}

const TOP: Schema<'static> = Schema::of("CACHE.yaml", &["cache"]);

const CACHE: Schema<'static> = Schema::of(
    "a cache",
    &keys![
        checkpoint_interval target_free_blocks_pct placement memory in_flight hit_deadline hit_slowdown ghost_pct
        reject_first writes_per_day move_rate index_memory discard encryption_key_file shards devices
    ],
);

const DEVICE: Schema<'static> = Schema::of("a device of a cache", &["path", "size", "disk", "state"]);

const TOP_HELP: &str = "`plimsoll cache create` writes such a file; by hand: `cache:` with `devices:` below it";

/// Parses the text of a CACHE.yaml. `source_name` is used in messages only.
///
/// # Errors
/// With the line: unknown keys, values out of range or without unit, no devices, a device twice.
pub fn parse(source_name: &str, text: &str) -> Result<CacheFile, ConfigError> {
    parse_source(&Source::new(source_name, text))
}

/// Reads and parses a CACHE.yaml.
///
/// # Errors
/// As [`parse`], and [`Code::Unreadable`] if the file cannot be read.
pub fn parse_from_file(path: &Path) -> Result<CacheFile, ConfigError> {
    parse_source(&yaml::read_file(path)?)
}

fn parse_source(source: &Source) -> Result<CacheFile, ConfigError> {
    let root = yaml::parse(source)?;
    let top = Fields::read(&Field::root(source, &root, TOP_HELP)?, &TOP)?;
    let cache = top.required("cache", TOP_HELP)?;
    let fields = Fields::read(&cache, &CACHE)?;
    let file = CacheFile {
        config: read_config(&fields)?,
        key_file: fields.optional("encryption_key_file", |field| field.text().map(PathBuf::from))?,
        shards: fields.or("shards", 2, |field| field.count(1..=MAX_SHARDS))?.try_into().unwrap_or(1),
        devices: read_devices(&fields.required("devices", "list the devices: `devices:` and `- path: ...` below it")?)?,
    };
    // Check the bounds that the field readers do not know.
    file.config.check().map_err(|bad| cache.error(Code::OutOfRange, bad.to_string()))?;
    Ok(file)
}

fn read_config(fields: &Fields<'_>) -> Result<CacheConfig, ConfigError> {
    let usual = CacheConfig::default();
    let time = |least_ns| move |field: &Field<'_>| field.time_ns(least_ns).map(Duration::from_nanos);
    let size = |field: &Field<'_>| field.figure(parse_size_bytes, MIB..=MAX_BYTES, "bytes");
    let rate = |field: &Field<'_>| field.figure(parse_rate_bytes_per_s, MIB..=MAX_BYTES, "bytes/s");
    let times =
        |field: &Field<'_>| field.number(|times| (1.01..=1000.0).contains(&times), "from 1.01 to 1000, or none");
    let budget = |field: &Field<'_>| field.figure(parse_size_bytes, 1024 * MIB..=u64::MAX, "bytes");
    let any_size = |field: &Field<'_>| field.figure(parse_size_bytes, 0..=MAX_BYTES, "bytes");

    Ok(CacheConfig {
        checkpoint_interval: fields.or("checkpoint_interval", usual.checkpoint_interval, time(1_000_000))?,
        target_free_blocks_pct: fields.or("target_free_blocks_pct", usual.target_free_blocks_pct, |field| {
            field.number(|pct| (0.1..=90.0).contains(&pct), "from 0.1 to 90")
        })?,
        ghost_pct: fields.or("ghost_pct", usual.ghost_pct, |field| {
            field.number(|pct| (0.0..=400.0).contains(&pct), "from 0 to 400")
        })?,
        placement: fields.or("placement", usual.placement, |field| field.one_of("a placement", &Placement::ALL))?,
        memory_bytes: fields.or("memory", Some(usual.memory_bytes), unless_none(any_size))?.unwrap_or(0),
        in_flight_bytes: fields.or("in_flight", usual.in_flight_bytes, size)?,
        hit_deadline: fields.or("hit_deadline", None, unless_none(time(1)))?,
        hit_slowdown: fields.or("hit_slowdown", usual.hit_slowdown, unless_none(times))?,
        reject_first: fields.or("reject_first", usual.reject_first, Field::boolean)?,
        write_bytes_per_day: fields.or("writes_per_day", None, unless_none(budget))?,
        move_bytes_per_s: fields.or("move_rate", None, unless_none(rate))?,
        index_bytes: fields.or("index_memory", None, unless_none(size))?,
        discard: fields.or("discard", usual.discard, Field::boolean)?,
        ..usual
    })
}

/// Returns a reader that also accepts `none`.
fn unless_none<T>(
    read: impl Fn(&Field<'_>) -> Result<T, ConfigError>,
) -> impl Fn(&Field<'_>) -> Result<Option<T>, ConfigError> {
    move |field| if field.text()? == "none" { Ok(None) } else { read(field).map(Some) }
}

fn read_devices(field: &Field<'_>) -> Result<Vec<Device>, ConfigError> {
    let items = field.list()?;
    if items.is_empty() || items.len() > MAX_DEVICES {
        let message = format!("a cache has 1 to {MAX_DEVICES} devices, and here are {}", items.len());
        return Err(field.error(Code::OutOfRange, message));
    }
    let mut devices: Vec<Device> = Vec::with_capacity(items.len());
    for item in &items {
        let fields = Fields::read(item, &DEVICE)?;
        let path = fields.required("path", "a device has a path, such as /dev/nvme1n1")?;

        let device = Device {
            path: PathBuf::from(path.text()?),
            size_bytes: fields.optional("size", |field| field.figure(parse_size_bytes, MIB..=MAX_BYTES, "bytes"))?,
            disk: fields.optional("disk", Field::string)?,
            state: fields.or("state", DeviceState::Active, |field| field.one_of("a state", &DeviceState::ALL))?,
        };

        if devices.iter().any(|other| other.path == device.path) {
            let message = format!("{} is listed twice", device.path.display());
            return Err(path.error(Code::DuplicateName, message).with_help("list each device once"));
        }
        devices.push(device);
    }
    Ok(devices)
}

impl CacheFile {
    /// Returns the file's text, which [`parse`] reads. It includes keys with default values, so that the file is
    /// complete.
    pub fn to_text(&self) -> String {
        let config = &self.config;
        let mut text = String::from("cache:\n");
        let mut line = |key: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {key}: {value}");
        };
        let placement = Placement::ALL.iter().find(|(_, placement)| *placement == config.placement);
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());

        line("checkpoint_interval", time_text(config.checkpoint_interval));
        line("target_free_blocks_pct", config.target_free_blocks_pct.to_string());
        line("placement", placement.map_or("load", |(name, _)| name).to_owned());
        line("memory", size_text(config.memory_bytes));
        line("in_flight", size_text(config.in_flight_bytes));
        line("hit_deadline", or_none(config.hit_deadline.map(time_text)));
        line("hit_slowdown", or_none(config.hit_slowdown.map(|times| times.to_string())));
        line("ghost_pct", config.ghost_pct.to_string());
        line("reject_first", config.reject_first.to_string());
        line("writes_per_day", or_none(config.write_bytes_per_day.map(size_text)));
        line("move_rate", or_none(config.move_bytes_per_s.map(size_text)));
        line("index_memory", or_none(config.index_bytes.map(size_text)));
        line("discard", config.discard.to_string());
        if let Some(path) = &self.key_file {
            line("encryption_key_file", scalar(&path.to_string_lossy()));
        }
        line("shards", self.shards.to_string());

        text.push_str("  devices:\n");
        for device in &self.devices {
            let _ = writeln!(text, "    - path: {}", scalar(&device.path.to_string_lossy()));
            if let Some(size) = device.size_bytes {
                let _ = writeln!(text, "      size: {}", size_text(size));
            }
            if let Some(disk) = &device.disk {
                let _ = writeln!(text, "      disk: {}", scalar(disk));
            }
            let _ = writeln!(text, "      state: {}", device.state.name());
        }
        text
    }

    /// Returns the devices to open the cache with, those being removed included. `path` is the path of this file.
    ///
    /// # Errors
    /// A disk model that is neither a preset nor a file, or a damaged one.
    pub fn sources(&self, path: &Path) -> Result<Vec<DiskSource>, FileError> {
        self.devices.iter().map(|device| device.source(path)).collect()
    }

    /// Reads the encryption key, if the file names one, into the configuration. `path` is the path of this file.
    ///
    /// # Errors
    /// A file that cannot be read, or does not hold 64 hexadecimal digits.
    pub fn load_key(&mut self, path: &Path) -> Result<(), FileError> {
        if let Some(key_file) = &self.key_file {
            self.config.encryption_key = Some(read_key(&base_of(path).join(key_file))?);
        }
        Ok(())
    }

    /// Writes the file as a whole or not at all. Replaces an existing file only if `may_replace`.
    pub fn write(&self, path: &Path, may_replace: bool) -> Result<(), FileError> {
        replace_file(path, &self.to_text(), may_replace)
            .map_err(|error| FileError::Write { path: path.display().to_string(), error })
    }

    /// Returns the position of the device at `path`, compared as text or as the disk it leads to. `file` is this file's
    /// path.
    pub fn position(&self, file: &Path, path: &Path) -> Option<usize> {
        let is_it =
            |device: &Device| device.path == path || plimsoll_cache::is_same_disk(&device.full_path(file), path);
        self.devices.iter().position(is_it)
    }
}

impl Device {
    /// Returns the device's path, if CACHE.yaml is at `file`.
    pub(crate) fn full_path(&self, file: &Path) -> PathBuf {
        file.parent().map_or_else(|| self.path.clone(), |base| base.join(&self.path))
    }

    /// Returns the device for the cache, if CACHE.yaml is at `file`.
    pub fn source(&self, file: &Path) -> Result<DiskSource, FileError> {
        let mut source = DiskSource { path: self.full_path(file), ..DiskSource::default() };
        if let Some(name) = &self.disk {
            let model = disk::find(name, base_of(file))?;
            source.write_bytes_per_s = model.figures.write_bandwidth.get().map(|rate| rate as f64);
            source.model = model.config();
        }
        Ok(source)
    }
}

/// Changes the file at `path`. Readers see the old file or the new one, and no other command's change is lost.
///
/// # Errors
/// A file that cannot be read or written, or the error of `change`; nothing has changed then.
pub fn edit<T>(path: &Path, change: impl FnOnce(&mut CacheFile) -> Result<T, FileError>) -> Result<T, FileError> {
    let write_error = |error| FileError::Write { path: path.display().to_string(), error };
    let directory = File::open(base_of(path)).map_err(write_error)?;
    directory.lock().map_err(write_error)?;
    let mut file = parse_from_file(path)?;
    let before = file.clone();
    let result = change(&mut file)?;
    if file != before {
        file.write(path, true)?;
    }
    Ok(result)
}

/// Reads an encryption key: 64 hexadecimal digits, with blanks around them allowed.
pub(crate) fn read_key(path: &Path) -> Result<[u8; 32], FileError> {
    let error = |reason: String| FileError::Key { path: path.display().to_string(), reason };
    let text = fs::read_to_string(path).map_err(|failed| error(format!("cannot read the key: {failed}")))?;

    let digits: Option<Vec<u32>> = text.trim().chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 64);
    let digits = digits.ok_or_else(|| {
        error("a key is 64 hexadecimal digits, such as `openssl rand -hex 32` prints, and this is not".to_owned())
    })?;
    let mut key = [0; 32];
    for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
        *byte = pair.iter().fold(0, |value, digit| (value << 4) | u8::try_from(*digit).unwrap_or(0));
    }
    Ok(key)
}

/// Returns the directory at which relative paths in the file at `path` start.
pub(crate) fn base_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes a file beside `path` and renames it onto `path`.
pub(super) fn replace_file(path: &Path, text: &str, may_replace: bool) -> io::Result<()> {
    let mut temporary = tempfile::Builder::new().prefix(".plimsoll-cache-").tempfile_in(base_of(path))?;
    temporary.write_all(text.as_bytes())?;
    temporary.as_file().sync_all()?;
    if let Ok(metadata) = fs::metadata(path) {
        temporary.as_file().set_permissions(metadata.permissions())?;
    } else {
        use std::os::unix::fs::PermissionsExt;
        temporary.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    }
    if may_replace {
        temporary.persist(path).map_err(|error| error.error)?;
    } else {
        temporary.persist_noclobber(path).map_err(|error| error.error)?;
    }
    Ok(())
}

/// Formats bytes in the largest unit without a fraction; [`parse_size_bytes`] reads them back exactly.
pub(super) fn size_text(bytes: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    unit.map_or_else(|| bytes.to_string(), |(unit, name)| format!("{}{name}", bytes / unit))
}

/// Formats a time in the largest unit without a fraction.
fn time_text(time: Duration) -> String {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let unit = units.iter().find(|(unit, _)| ns > 0 && ns.is_multiple_of(*unit));
    unit.map_or_else(|| format!("{ns}ns"), |(unit, name)| format!("{}{name}", ns / unit))
}

/// Formats a text as YAML: plain if no letter has a meaning in YAML, else as a JSON string, which YAML accepts.
fn scalar(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '/' | '.' | '_' | '-');
    let begins = |letter: char| letter.is_ascii_alphanumeric() || letter == '/';
    if text.starts_with(begins) && text.chars().all(is_plain) {
        return text.to_owned();
    }
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut file = CacheFile { key_file: Some("my key: 1.hex".into()), shards: 7, ..CacheFile::default() };
        file.config = CacheConfig {
            checkpoint_interval: Duration::from_millis(1500),
            target_free_blocks_pct: 12.5,
            placement: Placement::Discriminant,
            memory_bytes: 64 << 20,
            in_flight_bytes: (1 << 20) + 1,
            hit_deadline: Some(Duration::from_micros(1500)),
            hit_slowdown: Some(2.25),
            ghost_pct: 12.0,
            move_bytes_per_s: Some(50 << 20),
            write_bytes_per_day: Some(3 << 40),
            discard: true,
            ..CacheConfig::default()
        };
        let device = |path: &str, size_bytes, disk: Option<&str>, state| Device {
            path: path.into(),
            size_bytes,
            disk: disk.map(str::to_owned),
            state,
        };
        file.devices = vec![
            device("/dev/nvme1n1", Some(100 << 30), None, DeviceState::Active),
            device("a \"b\": # c", Some(1_234_567), Some("i4i.2xlarge"), DeviceState::Removing),
            device("-x", None, None, DeviceState::Active),
        ];
        // An index with a limit takes no ghosts of first uses.
        for (reject_first, index_bytes) in [(true, None), (false, Some(1 << 30))] {
            (file.config.reject_first, file.config.index_bytes) = (reject_first, index_bytes);
            let text = file.to_text();
            assert_eq!(parse("copy", &text).unwrap(), file, "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let device = "\n  devices: [{path: a}]";
        let cases = [
            ("", Code::Empty, None, ""),
            ("cache:\n  devices: []", Code::OutOfRange, Some(2), "devices"),
            ("cache:\n  devices: [{path: a}, {path: a}]", Code::DuplicateName, Some(2), "twice"),
            ("cache:\n  devices: [{size: 1GiB}]", Code::MissingKey, Some(2), "path"),
            ("cache:\n  devices:\n    - path: a\n      size: 12", Code::OutOfRange, Some(4), "too small"),
            ("cache:\n  devices: [{path: a, state: gone}]", Code::InvalidValue, Some(2), "state"),
            ("cache:\n  memory: 1GiB", Code::MissingKey, Some(2), "devices"),
            (&format!("cache:\n  checkpoint_interval: 60{device}"), Code::InvalidValue, Some(2), "unit"),
            (&format!("cache:\n  checkpoint_interval: 100us{device}"), Code::OutOfRange, Some(2), ""),
            (&format!("cache:\n  checkpoint_interval: 100h{device}"), Code::OutOfRange, Some(2), "1 day"),
            (&format!("cache:\n  placement: laod{device}"), Code::InvalidValue, Some(2), "placement"),
            (&format!("cache:\n  target_free_blocks_pct: 0{device}"), Code::OutOfRange, Some(2), ""),
            (&format!("cache:\n  shards: 0{device}"), Code::OutOfRange, Some(2), ""),
            (&format!("cache:\n  discard: maybe{device}"), Code::InvalidValue, Some(2), ""),
            (&format!("cache:\n  in_flight: 4k{device}"), Code::OutOfRange, Some(2), ""),
            (&format!("cache:\n  memroy: 1GiB{device}"), Code::UnknownKey, Some(2), "memroy"),
        ];
        for (text, code, line, fragment) in cases {
            let error = parse("c.yaml", text).unwrap_err();
            assert_eq!(error.code(), code, "{text}: {error}");
            assert!(line.is_none() || error.line().is_some_and(|found| Some(found) >= line), "{text}: {error}");
            assert!(error.to_string().contains(fragment), "{text}: {error}");
        }
    }

    #[test]
    fn a_change_is_whole_or_not_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("c.yaml");
        let file = parse("c", "cache:\n  devices: [{path: a, size: 1GiB}]").unwrap();
        file.write(&path, false).unwrap();
        assert!(file.write(&path, false).is_err(), "an existing file is kept");
        edit(&path, |file| {
            file.devices.push(Device { path: "b".into(), ..Device::default() });
            Ok(())
        })
        .unwrap();
        let refused = edit(&path, |file| {
            file.devices.clear();
            Err::<(), _>(FileError::Change("no".to_owned()))
        });
        assert!(refused.is_err());
        let found = parse_from_file(&path).unwrap();
        assert_eq!(found.devices.len(), 2);
        assert_eq!(found.position(&path, &directory.path().join("b")), Some(1));
        assert_eq!(found.position(&path, Path::new("c")), None);
        let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn keys_are_64_hexadecimal_digits() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key.hex");
        for (text, expected) in [
            (format!("{}\n", "0f".repeat(32)), Some([15; 32])),
            ("0f".repeat(31), None),
            ("zz".repeat(32), None),
            ("0f".repeat(33), None),
        ] {
            fs::write(&path, &text).unwrap();
            assert_eq!(read_key(&path).ok(), expected, "{text}");
        }
        assert!(read_key(&directory.path().join("none")).is_err());
        let mut file = parse("c", "cache: {encryption_key_file: key.hex, devices: [{path: a}]}").unwrap();
        fs::write(&path, "00".repeat(32)).unwrap();
        file.load_key(&directory.path().join("c.yaml")).unwrap();
        assert_eq!(file.config.encryption_key, Some([0; 32]));
    }
}

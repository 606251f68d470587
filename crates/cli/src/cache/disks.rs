//! `cache create`, `add`, `expand`, `remove`: change the disks of a cache.

use std::path::PathBuf;

use clap::Args;
use plimsoll_cache_tools::manage::{self, CreateFlags};
use plimsoll_figures::units::format_bytes_binary;
use plimsoll_measure::load::Stop;

use super::CacheFlag;
use crate::failure::{Failure, Outcome};
use crate::flags::size;
use crate::{interrupt, screen};

/// A cache, and the disks to add to it.
#[derive(Args, Debug)]
struct NewDisks {
    #[command(flatten)]
    file: CacheFlag,

    /// Empty devices, or files, to store blocks on
    #[arg(value_name = "DEVICE_OR_FILE", required = true)]
    disks: Vec<PathBuf>,

    /// Overwrite whatever is on the devices
    #[arg(long, alias = "force")]
    destructive: bool,

    /// Size of files that do not exist yet
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
}

/// Create a cache on empty devices or files, and its CACHE.yaml, which must not exist
#[derive(Args, Debug)]
pub(super) struct CreateArguments {
    #[command(flatten)]
    new: NewDisks,

    /// Size of a slab: a power of two, 1MiB to 32MiB [default: 1/1024 of the smallest disk]
    #[arg(long, value_name = "SIZE", value_parser = parse_slab_bytes)]
    slab_size: Option<u32>,

    /// Encrypt blocks with the key in this file (64 hexadecimal digits)
    #[arg(long, value_name = "KEYFILE")]
    encrypt: Option<PathBuf>,
}

fn parse_slab_bytes(text: &str) -> Result<u32, String> {
    let bytes = size(text)?;
    let bytes = u32::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two());
    let range = plimsoll_cache::MIN_SLAB_BYTES..=plimsoll_cache::MAX_SLAB_BYTES;
    bytes.filter(|bytes| range.contains(bytes)).ok_or_else(|| "expected a power of two, 1MiB to 32MiB".to_owned())
}

pub(super) fn create(arguments: &CreateArguments) -> Result<Outcome, Failure> {
    let flags = CreateFlags {
        force: arguments.new.destructive,
        size_bytes: arguments.new.size,
        slab_bytes: arguments.slab_size,
        key_file: arguments.encrypt.clone(),
    };
    let file = manage::create(&arguments.new.file.cache, &arguments.new.disks, &flags)?;
    let bytes = file.devices.iter().filter_map(|device| device.size_bytes).sum();
    let (count, path) = (file.devices.len(), arguments.new.file.cache.display());
    let disks = if count == 1 { "disk" } else { "disks" };
    screen::print(&format!("{path}: a cache of {count} {disks}, {}", format_bytes_binary(bytes)))?;
    Ok(Outcome::Done)
}

/// Add disks to a cache, whether it is in use or not
#[derive(Args, Debug)]
pub(super) struct AddArguments {
    #[command(flatten)]
    new: NewDisks,
}

pub(super) fn add(arguments: &AddArguments) -> Result<Outcome, Failure> {
    let NewDisks { file, disks, destructive, size } = &arguments.new;
    for disk in disks {
        screen::print(&manage::add(&file.cache, disk, *size, *destructive, &screen::warning)?)?;
    }
    Ok(Outcome::Done)
}

/// Use the whole of a disk that has grown, whether the cache is in use or not
#[derive(Args, Debug)]
pub(super) struct ExpandArguments {
    #[command(flatten)]
    file: CacheFlag,

    /// A disk of the cache
    #[arg(value_name = "DEVICE_OR_FILE")]
    disk: PathBuf,

    /// Grow the file to this size first
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
}

pub(super) fn expand(arguments: &ExpandArguments) -> Result<Outcome, Failure> {
    screen::print(&manage::expand(&arguments.file.cache, &arguments.disk, arguments.size, &screen::warning)?)?;
    Ok(Outcome::Done)
}

/// Remove disks from a cache, in use or not, after moving their blocks to the other disks
///
/// A disk that is lost, or came back blank or with other data, is removed without a move: its blocks are already lost.
/// Name all lost disks in one command.
#[derive(Args, Debug)]
pub(super) struct RemoveArguments {
    #[command(flatten)]
    file: CacheFlag,

    /// Disks of the cache
    #[arg(value_name = "DEVICE_OR_FILE", required = true)]
    disks: Vec<PathBuf>,
}

pub(super) fn remove(arguments: &RemoveArguments) -> Result<Outcome, Failure> {
    let stop = Stop::default();
    interrupt::stop_on_signal(&stop)?;
    let said = manage::remove(&arguments.file.cache, &arguments.disks, &|| stop.is_asked(), &screen::warning)?;
    screen::print(&said)?;
    Ok(if stop.is_asked() { Outcome::Interrupted } else { Outcome::Done })
}

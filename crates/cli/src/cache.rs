//! `plimsoll cache`: block caches over several disks.

mod bench;
mod closed;
mod disks;
mod looks;
mod tables;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use plimsoll_cache::CacheError;
use plimsoll_cache_tools::config::FileError;
use plimsoll_cache_tools::live::NoSnapshot;
use plimsoll_cache_tools::session::SessionError;

use crate::failure::{Failure, Outcome};

/// Create, change, watch and measure a block cache over several disks
///
/// CACHE.yaml says which disks a cache has and how it runs; `create` writes it. A process that has the cache open
/// follows the file's changes, and publishes statistics every second for `status`, `iostat` and `hits`. `slabs` and
/// `check` read the disks of a cache that no process has open.
#[derive(Args, Debug)]
pub(crate) struct CacheArguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Create(disks::CreateArguments),
    Add(disks::AddArguments),
    Expand(disks::ExpandArguments),
    Remove(disks::RemoveArguments),
    Status(looks::StatusArguments),
    Iostat(looks::IostatArguments),
    Hits(looks::HitsArguments),
    Slabs(closed::SlabsArguments),
    Check(closed::CheckArguments),
    Bench(Box<bench::BenchArguments>),
}

/// The file of a cache.
#[derive(Args, Debug)]
struct CacheFlag {
    /// The cache's configuration file
    #[arg(value_name = "CACHE.yaml")]
    cache: PathBuf,
}

pub(crate) fn run(arguments: &CacheArguments) -> Result<Outcome, Failure> {
    match &arguments.command {
        Command::Create(arguments) => disks::create(arguments),
        Command::Add(arguments) => disks::add(arguments),
        Command::Expand(arguments) => disks::expand(arguments),
        Command::Remove(arguments) => disks::remove(arguments),
        Command::Status(arguments) => looks::status(arguments),
        Command::Iostat(arguments) => looks::iostat(arguments),
        Command::Hits(arguments) => looks::hits(arguments),
        Command::Slabs(arguments) => closed::slabs(arguments),
        Command::Check(arguments) => closed::check(arguments),
        Command::Bench(arguments) => bench::run(arguments),
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Failure {
        let message = error.to_string();
        match error {
            SessionError::File(FileError::Write { .. })
            | SessionError::Thread(_)
            | SessionError::NotFollowed { .. }
            | SessionError::NoSnapshot(_) => Failure::Machine(message),
            SessionError::Cache(
                CacheError::Locked { .. }
                | CacheError::Io { .. }
                | CacheError::AllFailed
                | CacheError::NoDiskWorks { .. }
                | CacheError::Stopped(_),
            ) => Failure::Machine(message),
            _ => Failure::Input(message),
        }
    }
}

impl From<NoSnapshot> for Failure {
    fn from(error: NoSnapshot) -> Failure {
        Failure::Machine(error.to_string())
    }
}

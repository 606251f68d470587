//! The log that belongs to a database.
//!
//! # Why
//! The log may be in a directory of its own. A server that is started without this directory, or before its file system
//! is mounted, finds an empty log, and would lose the acknowledged writes in the right one. The log of another database
//! would be replayed into this one.
//!
//! # How it works
//! A log has an identity, in its file [`IDENTITY`]. The directory of the database names its log in the file [`NAMED`]: the
//! identity, the path, and whether the log may have writes that the tree lacks (`needed`) or not (`spent`, after a clean
//! stop). A needed log must be found again. A spent one may be replaced, by a new log.
//!
//! # Limits
//! The log of a database that has not named one yet is the one found first.
//!
//! # Example
//! `Claim::take(directory, log)?` before the log is opened, `release` after a clean stop.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::failure::Failure;

/// File of a log's directory: its identity.
const IDENTITY: &str = "identity";
/// File of a database's directory: the log that it uses.
const NAMED: &str = "plimsoll-kv.commitlog";
const NEEDED: &str = "needed";
const SPENT: &str = "spent";

/// A database's hold of its log.
#[derive(Debug)]
pub struct Claim {
    named: PathBuf,
    identity: String,
    log: PathBuf,
}

/// The content of [`NAMED`].
struct Named {
    identity: String,
    is_needed: bool,
    path: String,
}

impl Claim {
    /// Takes the log in the directory `log` for the database in `directory`; creates `log` if it is missing.
    ///
    /// # Errors
    /// [`Failure::Input`] if the database needs another log, or if this one belongs to another database;
    /// [`Failure::Machine`] for errors of the system.
    pub fn take(directory: &Path, log: &Path) -> Result<Claim, Failure> {
        let what = format!("cannot use the commit log in {}", log.display());
        let failed = |error: io::Error| Failure::machine(&what, error);
        let named_path = directory.join(NAMED);
        let named = read(&named_path).map_err(failed)?.map(|text| parse(&text, &named_path)).transpose()?;
        let found = read(&log.join(IDENTITY)).map_err(failed)?.map(|text| text.trim_end().to_owned());

        let is_same = found.is_some() && found.as_ref() == named.as_ref().map(|named| &named.identity);
        if let Some(named) = named.as_ref().filter(|named| named.is_needed && !is_same) {
            return Err(Failure::Input(format!(
                "the commit log of {} is {}, and may have acknowledged writes; {} is another one: give the right \
                 --commitlog-dir (none for {}), or mount its file system",
                directory.display(),
                named.path,
                log.display(),
                directory.display(),
            )));
        }
        if found.is_some() && !is_same {
            return Err(Failure::Input(format!(
                "{} is the commit log of another database, or an earlier one of {}: give another --commitlog-dir, or remove \
                 it if nothing needs it",
                log.display(),
                directory.display(),
            )));
        }

        std::fs::create_dir_all(log).map_err(failed)?;
        let log = std::fs::canonicalize(log).map_err(failed)?;
        let is_needed = named.as_ref().is_some_and(|named| named.is_needed);
        let claim = Claim { named: named_path, identity: found.clone().unwrap_or_else(new_identity), log };
        // In this order, each of the states between two writes can be opened again.
        if found.is_none() {
            let parent = claim.log.parent().unwrap_or(&claim.log);
            let made = claim.name(SPENT).and_then(|()| replace(&claim.log.join(IDENTITY), &claim.identity));
            made.and_then(|()| File::open(parent)?.sync_all()).map_err(failed)?;
        }
        if !is_needed {
            claim.name(NEEDED).map_err(failed)?;
        }
        Ok(claim)
    }

    /// Returns the directory of the log.
    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Returns the seed of the check sums of the log's records.
    pub(super) fn seed(&self) -> u32 {
        crc32c::crc32c(self.identity.as_bytes())
    }

    /// Records that the tree has all that the log has: the next server may use another log.
    ///
    /// # Errors
    /// The system's error.
    pub fn release(&self) -> io::Result<()> {
        self.name(SPENT)
    }

    fn name(&self, state: &str) -> io::Result<()> {
        replace(&self.named, &format!("{} {state} {}", self.identity, self.log.display()))
    }
}

/// Parses the content of the file `path`.
fn parse(text: &str, path: &Path) -> Result<Named, Failure> {
    let mut words = text.trim_end().splitn(3, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some(identity), Some(state @ (NEEDED | SPENT)), Some(log)) => {
            Ok(Named { identity: identity.to_owned(), is_needed: state == NEEDED, path: log.to_owned() })
        }
        _ => Err(Failure::Input(format!(
            "{}: expected `IDENTITY needed PATH` or `IDENTITY spent PATH`, found `{}`: restore it from a copy",
            path.display(),
            text.escape_debug()
        ))),
    }
}

/// Returns the content of the file `path`, or `None` if there is no such file.
fn read(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes the line `text` as the whole content of the file `path`, durably.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

/// Returns an identity that no other log has, and that nobody can guess.
fn new_identity() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Its keys are random.
    let random = RandomState::new().hash_one(since);
    format!("{:x}-{random:x}", since.as_nanos())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::*;

    #[test]
    fn a_needed_log_must_be_found_again_and_a_spent_one_may_be_replaced() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        let take = |database: &str, log: &str| {
            std::fs::create_dir_all(at(database)).unwrap();
            Claim::take(&at(database), &at(log))
        };
        let refused = |database: &str, log: &str, named: &str| match take(database, log) {
            Err(Failure::Input(message)) => assert!(message.contains(named), "{message}"),
            other => panic!("{database} with {log}: {other:?}"),
        };

        // The first one is needed from then on, also by the next server.
        drop(take("first", "log").unwrap());
        refused("first", "elsewhere", "log, and may have acknowledged writes");
        let first = take("first", "log").unwrap();
        refused("second", "log", "of another database");

        // As if its file system were not mounted.
        std::fs::rename(at("log"), at("aside")).unwrap();
        refused("first", "log", "is another one");
        assert!(!at("log").exists(), "a refusal makes nothing");
        std::fs::rename(at("aside"), at("log")).unwrap();

        // After a clean stop a new log will do, and the old one is no longer taken.
        first.release().unwrap();
        refused("second", "log", "of another database");
        let next = take("first", "new").unwrap();
        refused("first", "log", "new, and may have acknowledged writes");
        next.release().unwrap();
        refused("first", "log", "an earlier one");
        take("first", "new").unwrap();
    }

    #[test]
    fn a_start_that_ended_early_can_be_repeated() {
        let root = tempfile::tempdir().unwrap();
        let log = root.path().join("log");
        let claim = Claim { named: root.path().join(NAMED), identity: new_identity(), log: log.clone() };
        // It died before the log had its identity, and then before the log was needed.
        claim.name(SPENT).unwrap();
        let identity = Claim::take(root.path(), &log).unwrap().identity;
        replace(&root.path().join(NAMED), &format!("{identity} {SPENT} {}", log.display())).unwrap();
        assert_eq!(Claim::take(root.path(), &log).unwrap().identity, identity);

        std::fs::write(root.path().join(NAMED), "ahoy\n").unwrap();
        let Err(Failure::Input(message)) = Claim::take(root.path(), &log) else { panic!("it was taken") };
        assert!(message.contains("expected `IDENTITY needed PATH`"), "{message}");
    }
}

//! One run on a disk: two schedulers that do not know of each other would each grant the whole disk.
//!
//! # How it works
//! A file beside this user's control sockets, named by the device's number, is locked as long as the run lasts; the
//! kernel releases the lock however the command ends.
//!
//! # Limits
//! Another user's runs are not seen.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::failure::Failure;

/// The lock, held as long as the run lasts.
pub(super) struct DiskLock(#[allow(dead_code, reason = "its lock goes when it is closed")] File);

impl DiskLock {
    pub(super) fn take(device: u64, command: &str) -> Result<DiskLock, Failure> {
        let (major, minor) = plimsoll::sys::sysfs::major_minor(device);
        let directory = plimsoll::control::directory();
        let cannot = |error: &dyn std::fmt::Display| {
            Failure::Machine(format!("cannot lock disk {major}:{minor} in {}: {error}", directory.display()))
        };
        // In /tmp another user may have created the directory first, with links to our files in it.
        plimsoll::control::prepare(&directory).map_err(|error| match without_runtime(&directory, &error) {
            Some(reason) => cannot(&reason),
            None => cannot(&error),
        })?;

        let path = directory.join(format!("disk-{major}-{minor}.lock"));
        let mut options = File::options();
        let mut file =
            options.read(true).write(true).create(true).truncate(false).open(path).map_err(|e| cannot(&e))?;

        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                return Err(Failure::Machine(format!(
                    "another `plimsoll run` has disk {major}:{minor} ({}): two schedulers on one disk would not know of each \
                     other; wait for it, or put both programs under one run",
                    holder.trim()
                )));
            }
            Err(error) => return Err(cannot(&error)),
        }

        let text = format!("process {}: {command}\n", std::process::id());
        // The text is for people; the lock alone matters.
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(text.as_bytes()));
        Ok(DiskLock(file))
    }
}

/// Returns the remedy if `directory` is in XDG_RUNTIME_DIR, which does not exist.
fn without_runtime(directory: &Path, error: &std::io::Error) -> Option<String> {
    let named = std::env::var_os("XDG_RUNTIME_DIR")?;
    let is_it = error.kind() == std::io::ErrorKind::NotFound && directory.parent() == Some(Path::new(&named));
    is_it.then(|| {
        let named = Path::new(&named).display();
        format!("XDG_RUNTIME_DIR names {named}, which does not exist; unset it, or make that directory")
    })
}

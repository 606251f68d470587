//! Removes files, one at a time, on a thread of its own.
//!
//! **Why.** Removing a file may block for long, and not all kernels do it through a ring, so it must not run on the
//! shard's thread.
//!
//! **How.** Each shard that removes files has one helper thread. The thread takes names from a channel, removes the
//! files, answers through another channel, and wakes the shard. Requests wait for each other, which shows in their
//! latency.
//!
//! **Limits.** One file at a time on each shard, whatever the parallelism, as io_tester's syscall thread does.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_load::unlink_path;
//! assert_eq!(unlink_path("/mnt/f".as_ref(), 7).to_str(), Some("/mnt/f.7"));
//! ```

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use plimsoll::backend::WakeHandle;
use plimsoll::backend::memory::MemoryStore;

/// Returns the path of file `number` (from 0) of a job that removes files and whose target is at `base`.
pub fn unlink_path(base: &Path, number: u32) -> PathBuf {
    let mut name = base.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

#[derive(Clone)]
pub(super) enum Place {
    Disk,
    Memory(MemoryStore),
    /// Every file exists, and removing it takes no time.
    Nowhere,
}

impl Place {
    /// Removes a file. On failure returns the error number.
    fn remove(&self, path: &Path) -> Result<(), i32> {
        match self {
            Place::Disk => std::fs::remove_file(path).map_err(|error| error.raw_os_error().unwrap_or(EIO)),
            Place::Memory(store) => {
                if store.remove(path) {
                    Ok(())
                } else {
                    Err(ENOENT)
                }
            }
            Place::Nowhere => Ok(()),
        }
    }
}

/// Linux's number for an I/O error, for errors that carry no number.
const EIO: i32 = 5;
/// Linux's number for a file that does not exist.
const ENOENT: i32 = 2;

/// The helper thread. Dropping it waits for all queued removals.
pub(super) struct Unlinker {
    to: Option<Sender<(u32, PathBuf)>>,
    from: Receiver<(u32, Result<(), i32>)>,
    thread: Option<JoinHandle<()>>,
}

impl Unlinker {
    /// Starts a thread that removes files from `place` and wakes `wake` after each.
    pub(super) fn start(place: Place, wake: WakeHandle) -> std::io::Result<Unlinker> {
        let (to, work) = channel::<(u32, PathBuf)>();
        let (answer, from) = channel();
        let body = move || {
            for (fiber, path) in work {
                let result = place.remove(&path);
                if answer.send((fiber, result)).is_err() {
                    break;
                }
                wake.wake();
            }
        };
        let thread = std::thread::Builder::new().name("plimsoll-unlink".to_owned()).spawn(body)?;
        Ok(Unlinker { to: Some(to), from, thread: Some(thread) })
    }

    pub(super) fn send(&self, fiber: u32, path: PathBuf) {
        if let Some(to) = &self.to {
            // The thread receives as long as this sender exists.
            let _ = to.send((fiber, path));
        }
    }

    /// Returns a finished removal, if any: its fiber and its result.
    pub(super) fn poll(&self) -> Option<(u32, Result<(), i32>)> {
        self.from.try_recv().ok()
    }
}

impl Drop for Unlinker {
    fn drop(&mut self) {
        self.to = None;
        if let Some(thread) = self.thread.take() {
            // The thread does not panic, and a failure could not be reported here.
            let _ = thread.join();
        }
    }
}

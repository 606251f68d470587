//! Files that every shard of a program can use.
//!
//! A [`SharedFile`] is a path, its open options, and once opened, the open file. The first shard that uses it (or calls
//! [`Reactor::open`](crate::Reactor::open)) opens the path for all shards; the others attach the same open file to
//! their backends, because a ring knows only its own file numbers. If the path later leads to another file, that has no
//! effect. After a failed open, the next use tries again. When the last reference is dropped, the shards that have the
//! file get a message to close it; the descriptor is closed once the last of them, and of the operations in flight, has
//! released it.
//!
//! A file does not keep its topology alive. Shards, handles and [`File`](crate::File)s do; after the last of them a
//! file can only be dropped. So a request in the topology's mail that no shard will ever take is dropped with the
//! topology.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, Weak};

use crate::backend::{Backend, FileId, FileInfo, OpResult, OpenOptions, OpenedFile, explained};

/// The topology that made a file: the calls that the file makes to it.
pub(crate) trait FileOwner: Send + Sync {
    /// Closes a file without references on the shards of `open_on`, and frees its number.
    fn retire(&self, number: u32, uid: u64, open_on: &[u16]);
}

/// A file that all shards can use; see the module's documentation. Made by [`Topology::file`](crate::Topology::file).
pub struct SharedFile {
    number: u32,
    uid: u64,
    path: PathBuf,
    options: OpenOptions,
    disk: u16,
    owner: Weak<dyn FileOwner>,
    state: Mutex<State>,
    /// Error number of the last sync that lost pages of the page cache; 0 if none has.
    sync_error: AtomicI32,
}

#[derive(Default)]
struct State {
    opened: Option<OpenedFile>,
    open_on: Vec<u16>,
}

impl SharedFile {
    pub(crate) fn new(
        owner: Weak<dyn FileOwner>,
        number: u32,
        uid: u64,
        path: &Path,
        options: OpenOptions,
        disk: u16,
    ) -> SharedFile {
        SharedFile {
            number,
            uid,
            path: path.to_owned(),
            options,
            disk,
            owner,
            state: Mutex::default(),
            sync_error: AtomicI32::new(0),
        }
    }

    /// Returns the path that opens it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of the disk (in the topology) that schedules its I/O.
    #[must_use]
    pub fn disk(&self) -> u16 {
        self.disk
    }

    /// Returns whether its options open it for writing.
    pub(crate) fn is_writable(&self) -> bool {
        self.options.write || self.options.create_new
    }

    /// Returns the result of a sync whose system call returned `result`. The kernel reports a failed writeback once for
    /// an open file, and drops the pages; so after one, every sync of a buffered file fails.
    pub(crate) fn sync_result(&self, result: OpResult) -> OpResult {
        match result {
            // These come before the kernel looks for failed writeback, or from outside of it.
            Err(libc::EAGAIN | libc::ECANCELED | libc::EINTR | libc::ENOMEM) => result,
            _ if self.options.direct || self.options.directory => result,
            Err(code) => {
                self.sync_error.store(code, Relaxed);
                result
            }
            Ok(_) => match self.sync_error.load(Relaxed) {
                0 => result,
                earlier => Err(earlier),
            },
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn owner(&self) -> &Weak<dyn FileOwner> {
        &self.owner
    }

    pub(crate) fn uid(&self) -> u64 {
        self.uid
    }

    /// Attaches the file to the backend of `shard`, in a topology with `disks` disks. If no shard has opened the file
    /// yet, this one does.
    pub(crate) fn attach_on(
        &self,
        shard: u16,
        disks: u16,
        backend: &mut dyn Backend,
    ) -> io::Result<(FileId, FileInfo)> {
        if self.disk >= disks {
            let path = self.path.display();
            let message = format!("cannot open {path}: there is no disk {}: they are 0 to {}", self.disk, disks - 1);
            return Err(explained(libc::EINVAL, message));
        }

        // Held while the path is opened, so that a second caller gets the same file.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);

        let opened = match &state.opened {
            Some(opened) => opened.clone(),
            None => backend.open_shared(&self.path, &self.options)?,
        };

        // Kept even if attaching fails: a file that was created must not be created again.
        state.opened = Some(opened.clone());

        let attached = backend.attach(&opened)?;
        if !state.open_on.contains(&shard) {
            state.open_on.push(shard);
        }
        Ok(attached)
    }
}

impl std::fmt::Debug for SharedFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedFile({}, disk {})", self.path.display(), self.disk)
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // Without its topology no shard has the file open, and its number means nothing.
        if let Some(owner) = self.owner.upgrade() {
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            // First, so that a shard closes the file, not this thread, which may be one of an async runtime.
            state.opened = None;
            owner.retire(self.number, self.uid, &state.open_on);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::*;
    use crate::buffer::AlignedBuf;
    use crate::{Class, Classes, DiskSetup, Handle, Topology};

    #[test]
    fn a_request_in_the_mail_of_a_shard_that_never_starts_ends_with_its_topology() {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let file = topology.file("data".as_ref(), OpenOptions::default(), 0);
        let handle = Handle::new(&topology, 0);
        {
            let mut read = pin!(handle.read_at(&file, Class::DEFAULT, 0, AlignedBuf::new(4096).unwrap()));
            assert!(read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }

        let in_mail = Arc::downgrade(&file);
        drop((file, handle));
        assert_eq!(in_mail.strong_count(), 1);
        drop(topology);
        assert_eq!(in_mail.strong_count(), 0);
    }
}

//! Files that every shard of a program can use.
//!
//! A [`SharedFile`] is a path, its open options, and once opened, the open file. The first shard that uses it (or calls
//! [`Reactor::open`](crate::Reactor::open)) opens the path for all shards; the others attach the same open file to
//! their backends, because a ring knows only its own file numbers. If the path later leads to another file, nothing
//! changes. After a failed open, the next use tries again. When the last reference is dropped, the shards that have the
//! file get a message to close it; the descriptor is closed once the last of them, and of the operations in flight, has
//! released it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::backend::{Backend, FileId, FileInfo, OpenOptions, OpenedFile, explained};
use crate::mailbox::Message;
use crate::topology::Topology;

/// A file that all shards can use; see the module's documentation. Made by [`Topology::file`].
pub struct SharedFile {
    number: u32,
    uid: u64,
    path: PathBuf,
    options: OpenOptions,
    disk: u16,
    topology: Topology,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    opened: Option<OpenedFile>,
    open_on: Vec<u16>,
}

impl SharedFile {
    pub(crate) fn new(
        topology: &Topology,
        number: u32,
        uid: u64,
        path: &Path,
        options: OpenOptions,
        disk: u16,
    ) -> SharedFile {
        let (path, topology) = (path.to_owned(), topology.clone());
        SharedFile { number, uid, path, options, disk, topology, state: Mutex::default() }
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

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Returns whether `topology` made it: its numbers mean nothing elsewhere.
    pub(crate) fn is_of(&self, topology: &Topology) -> bool {
        self.topology.is(topology)
    }

    pub(crate) fn uid(&self) -> u64 {
        self.uid
    }

    /// Attaches the file to the backend of `shard`. If no shard has opened it yet, this one does.
    pub(crate) fn attach_on(&self, shard: u16, backend: &mut dyn Backend) -> io::Result<(FileId, FileInfo)> {
        let disks = self.topology.disks();
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
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for shard in &state.open_on {
            let message = Message::Close { number: self.number, uid: self.uid };
            self.topology.mailboxes().send(*shard, message);
        }
        self.topology.give_back_file_number(self.number);
    }
}

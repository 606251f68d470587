//! Files that every shard of a program can use.
//!
//! A [`SharedFile`] is a path and how to open it. Each shard opens it for itself, in its own backend, the first time it is
//! used there (or before, with `open`), because a ring knows its own file numbers only. When the last reference goes, the shards
//! that have it open are told to close it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::backend::{Backend, FileId, FileInfo, OpenOptions};
use crate::mailbox::Message;
use crate::topology::Topology;

/// See the module's documentation. Made by [`Topology::file`].
pub struct SharedFile {
    number: u32,
    uid: u64,
    path: PathBuf,
    disk: u16,
    topology: Topology,
    state: Mutex<State>,
}

struct State {
    options: OpenOptions,
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
        let state = Mutex::new(State { options, open_on: Vec::new() });
        SharedFile { number, uid, path: path.to_owned(), disk, topology: topology.clone(), state }
    }

    /// The path it is opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of the disk (in the topology) that schedules its I/O.
    #[must_use]
    pub fn disk(&self) -> u16 {
        self.disk
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Whether it was made by `topology`: numbers mean nothing elsewhere.
    pub(crate) fn is_of(&self, topology: &Topology) -> bool {
        self.topology.is(topology)
    }

    pub(crate) fn uid(&self) -> u64 {
        self.uid
    }

    /// Opens it on `shard`. A file that is to be created is created by the first shard; the others open what is there.
    pub(crate) fn open_on(&self, shard: u16, backend: &mut dyn Backend) -> io::Result<(FileId, FileInfo)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = backend.open(&self.path, &state.options)?;
        state.options.create_new = false;
        state.open_on.push(shard);
        Ok(opened)
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

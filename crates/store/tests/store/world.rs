//! A store in a directory of its own, on shards of its own.

use std::path::{Path, PathBuf};

use plimsoll::{Class, Classes, DiskSetup, Runtime, ShardOptions, Topology};
use plimsoll_store::ScheduledStore;
use tempfile::TempDir;

pub(crate) struct World {
    pub(crate) classes: Classes,
    pub(crate) runtime: Runtime,
    pub(crate) store: ScheduledStore,
    directory: TempDir,
}

/// Creates a directory on the disk that holds the build, which is rarely a tmpfs.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

pub(crate) fn start(topology: &Topology) -> Runtime {
    Runtime::start(topology, &ShardOptions { pin: false, ..ShardOptions::default() }).unwrap()
}

/// Opens a store in `directory`, on one shard.
pub(crate) async fn open(directory: &Path) -> (Runtime, ScheduledStore) {
    let runtime = start(&Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap());
    let store = ScheduledStore::open(runtime.any_shard(), directory).await.unwrap();
    (runtime, store)
}

impl World {
    pub(crate) async fn new(shards: u16) -> World {
        let (classes, directory) = (Classes::new(), directory());
        let runtime = start(&Topology::new(shards, classes.clone(), vec![DiskSetup::unlimited()]).unwrap());
        let store = ScheduledStore::open(runtime.any_shard(), directory.path()).await.unwrap();
        World { classes, runtime, store, directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn leftovers(&self) -> Vec<PathBuf> {
        leftovers(self.path())
    }

    /// Returns the bytes written and read in each of `classes`, on the only shard.
    pub(crate) async fn done(&self, classes: &[Class]) -> Vec<[u64; 2]> {
        let classes = classes.to_vec();
        let look = move |shard: plimsoll::Shard| async move {
            let stats = classes.iter().map(|class| shard.reactor().class_stats(0, *class));
            stats.map(|stats| stats.map_or([0; 2], |stats| [stats.write.bytes, stats.read.bytes])).collect()
        };
        self.runtime.any_shard().run(look).await.unwrap()
    }

    /// Returns the block size of direct I/O, in bytes.
    pub(crate) async fn block_bytes(&self) -> u64 {
        let options = plimsoll::OpenOptions { create_new: true, write: true, direct: true, ..Default::default() };
        let path = self.path().join("probe");
        let file = self.runtime.any_shard().open(&path, &options).await.unwrap();
        std::fs::remove_file(path).unwrap();
        u64::from(file.info().offset_align_bytes)
    }

    pub(crate) async fn end(self) {
        drop(self.store);
        self.runtime.shutdown().await.unwrap();
    }
}

/// Returns the temporary files below `directory`.
pub(crate) fn leftovers(directory: &Path) -> Vec<PathBuf> {
    let mut found = vec![];
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(leftovers(&path));
        } else if path.to_str().unwrap().contains(".plimsoll-store") {
            found.push(path);
        }
    }
    found
}

/// Returns bytes that differ between any two blocks, and between any two salts.
pub(crate) fn patterned(len_bytes: usize, salt: u8) -> Vec<u8> {
    (0..len_bytes).map(|at| (at ^ (at >> 8) ^ (at >> 14).wrapping_mul(37)) as u8 ^ salt).collect()
}

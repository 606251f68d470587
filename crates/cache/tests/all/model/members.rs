//! The disks that an operator takes for those of the cache.

use plimsoll_cache::{CacheError, DiskSource};

use crate::world::Town;

/// What the operator knows of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Never added, or taken out of the list.
    Out,
    /// Its addition failed or was cut short, or its removal was requested, or it was forgotten.
    Perhaps,
    /// Its addition was acknowledged.
    In,
}

/// What the operator knows of each disk of a town.
pub(crate) struct Members(Vec<Standing>);

impl Members {
    /// Returns the members of a new cache of the first `first` disks.
    pub(crate) fn new(disks: usize, first: usize) -> Members {
        Members((0..disks).map(|disk| if disk < first { Standing::In } else { Standing::Out }).collect())
    }

    /// Returns the disks that the operator lists at an opening.
    pub(crate) fn listed(&self, town: &Town) -> Vec<DiskSource> {
        let listed = town.disks.iter().zip(&self.0).filter(|(_, standing)| **standing != Standing::Out);
        listed.map(|(source, _)| source.clone()).collect()
    }

    pub(crate) fn begins_to_add(&mut self, disk: usize) {
        if self.0[disk] == Standing::Out {
            self.0[disk] = Standing::Perhaps;
        }
    }

    pub(crate) fn is_added(&mut self, disk: usize) {
        self.0[disk] = Standing::In;
    }

    pub(crate) fn begins_to_leave(&mut self, disk: usize) {
        self.0[disk] = Standing::Perhaps;
    }

    /// Records that the cache has forgotten one of the disks that are not `present`.
    pub(crate) fn forgotten(&mut self, town: &Town, present: &[String]) {
        for (source, standing) in town.disks.iter().zip(&mut self.0) {
            if *standing == Standing::In && !present.iter().any(|path| source.path.to_str() == Some(path)) {
                *standing = Standing::Perhaps;
            }
        }
    }

    /// Takes the disk of which an opening says that it is no member out of the list. Returns whether there is one.
    ///
    /// # Panics
    /// If its addition was acknowledged.
    pub(crate) fn refused(&mut self, town: &Town, error: &CacheError) -> bool {
        let (CacheError::NotAMember { path } | CacheError::HalfAdded { path } | CacheError::NotACache { path, .. }) =
            error
        else {
            return false;
        };
        let Some(disk) = town.disks.iter().position(|source| source.path == *path) else { return false };
        assert_ne!(self.0[disk], Standing::In, "a member is refused: {error}");
        self.0[disk] = Standing::Out;
        true
    }
}

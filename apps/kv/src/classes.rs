//! The priority classes of the database's I/O, and the rule that gives each call its class.
//!
//! # Why
//! A commit that waits behind a compaction makes every writer wait. SlateDB knows the purpose of each call, the
//! scheduler does not.
//!
//! # How it works
//! SlateDB puts an [`ObjectStoreCallTag`], which names the caller, among the extensions of each read and write of a
//! sorted file. [`ClassTable::of_call`] maps the tag to a class. Manifests and the compactor's state carry no tag;
//! their path decides. The write-ahead log ([`crate::commitlog`]) is opened in its class.
//!
//! | class | shares | its I/O |
//! |---|---|---|
//! | `commitlog` | 100 | the write-ahead log, manifests |
//! | `memtable` | 100 | memory tables that are flushed to files |
//! | `compaction` | 100 | reads and writes of merged files |
//! | `query` | 100 | point reads |
//! | `repair-read`, `repair-write` | 20 | copies to another server |
//! | `analytics` | 20 | SCAN, which has its own reader |
//! | `default` | 100 | the rest: garbage collection, lists |
//!
//! The names and shares of the first six are ScyllaDB's.
//!
//! # Limits
//! The tag does not distinguish a point read from the read-ahead of a scan through the same database handle, so scans
//! and repairs have their own readers, whose stores have their own tables. The server has no repair command; only the
//! story repairs.
//!
//! # Example
//! A put tagged `Main` is `memtable`; a get tagged `Compactor` is `compaction`.

use plimsoll::{Class, ClassError, Classes};
use plimsoll_store::Operation;
use slatedb::object_store::{Extensions, path::Path};
use slatedb::object_store_tag::{ObjectStoreCallTag, TableStoreKind};

/// Shares of the queries, on which those that the controllers set are based.
pub const QUERY_SHARES: u32 = 100;

/// Names and initial shares of the classes other than `default`.
pub const CLASSES: [(&str, u32); 7] = [
    ("commitlog", 100),
    ("memtable", 100),
    ("compaction", 100),
    ("query", QUERY_SHARES),
    ("repair-read", 20),
    ("repair-write", 20),
    ("analytics", 20),
];

/// The classes of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassTable {
    /// The write-ahead log, and manifests.
    pub commitlog: Class,
    /// Memory tables that are flushed to files.
    pub memtable: Class,
    /// Compactions.
    pub compaction: Class,
    /// Point reads.
    pub query: Class,
    /// Reads of keys that are copied to another server.
    pub repair_read: Class,
    /// Writes of keys that another server sent.
    pub repair_write: Class,
    /// Scans.
    pub analytics: Class,
}

impl ClassTable {
    /// Adds the classes to `classes`.
    ///
    /// # Errors
    /// A class with one of these names already exists.
    pub fn register(classes: &Classes) -> Result<ClassTable, ClassError> {
        let mut made = [Class::DEFAULT; CLASSES.len()];
        for (class, (name, shares)) in made.iter_mut().zip(CLASSES) {
            *class = classes.add_class(name, None, shares)?;
        }
        let [commitlog, memtable, compaction, query, repair_read, repair_write, analytics] = made;
        Ok(ClassTable { commitlog, memtable, compaction, query, repair_read, repair_write, analytics })
    }

    /// Returns the table of a server that only receives copies: its reads and writes are all repair.
    #[must_use]
    pub fn of_receiver(&self) -> ClassTable {
        let (read, write) = (self.repair_read, self.repair_write);
        ClassTable { commitlog: write, memtable: write, compaction: write, query: read, analytics: read, ..*self }
    }

    /// Returns the rule for a store that classifies its calls by this table.
    pub fn rule(self) -> impl Fn(Operation, &Path, &Extensions) -> Class + Send + Sync + 'static {
        move |operation, path, extensions| self.of_call(operation, path, extensions)
    }

    /// Returns the class of a call on the object store.
    #[must_use]
    pub fn of_call(&self, operation: Operation, path: &Path, extensions: &Extensions) -> Class {
        let is_write = matches!(operation, Operation::Put | Operation::PutMultipart);
        let Some(tag) = extensions.get::<ObjectStoreCallTag>() else {
            // A flush or compaction takes effect once the manifest lists it, and commits may wait for that.
            let is_manifest = path.parts().any(|part| part.as_ref() == "manifest");
            return if is_manifest { self.commitlog } else { Class::DEFAULT };
        };
        match tag.kind {
            TableStoreKind::Main if is_write => self.memtable,
            TableStoreKind::Main => self.query,
            TableStoreKind::Compactor => self.compaction,
            TableStoreKind::Reader => self.analytics,
            TableStoreKind::GC => Class::DEFAULT,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use slatedb::object_store_tag::SstType;

    use super::*;

    #[test]
    fn every_call_has_its_class() {
        let classes = Classes::new();
        let table = ClassTable::register(&classes).unwrap();
        let name = |class: Class| classes.list()[class.index()].name.to_string();
        let tagged = |kind| Extensions::from(ObjectStoreCallTag::new(kind, SstType::Compacted));
        let (get, put, upload) = (Operation::Get, Operation::Put, Operation::PutMultipart);
        let cases = [
            (put, "kv/compacted/1.sst", tagged(TableStoreKind::Main), "memtable"),
            (upload, "kv/compacted/1.sst", tagged(TableStoreKind::Main), "memtable"),
            (get, "kv/compacted/1.sst", tagged(TableStoreKind::Main), "query"),
            (get, "kv/compacted/1.sst", tagged(TableStoreKind::Compactor), "compaction"),
            (upload, "kv/compacted/1.sst", tagged(TableStoreKind::Compactor), "compaction"),
            (get, "kv/compacted/1.sst", tagged(TableStoreKind::Reader), "analytics"),
            (get, "kv/compacted/1.sst", tagged(TableStoreKind::GC), "default"),
            (put, "kv/manifest/1.manifest", Extensions::new(), "commitlog"),
            (put, "kv/compactions/1.compactions", Extensions::new(), "default"),
        ];
        for (operation, path, extensions, expected) in cases {
            let class = table.of_call(operation, &Path::from(path), &extensions);
            assert_eq!(name(class), expected, "{operation:?} of {path} {extensions:?}");
        }
    }

    #[test]
    fn classes_are_registered_once() {
        let classes = Classes::new();
        ClassTable::register(&classes).unwrap();
        assert!(ClassTable::register(&classes).is_err());
    }
}

//! The classes of a program: named once, known to every shard.
//!
//! # Why
//! A class is one thing to its user ("compaction, 100 shares") and many to the machine: one entry in the I/O queue of
//! every disk on every shard. This registry is the one place where classes are made and changed; the shards follow.
//!
//! # How it works
//! Every change to another value raises an epoch. A shard compares the epoch once a turn (one load of a line that is
//! only written by changes) and copies the table if the epoch has risen.
//!
//! # Limits
//! At most 65,535 classes and groups in the life of a registry: the number of a removed one is not given out again.
//! Requests under way, traces, metrics and the program's own [`Class`] values name a class by its number alone, and
//! would mean the new class. A program whose classes come and go without end gives a class another use, or makes a new
//! registry. Queued requests of a removed class end with `ECANCELED`.
//!
//! # Example
//! ```
//! use plimsoll::{ClassError, Classes};
//! let classes = Classes::new();
//! let background = classes.add_group("background", None, 100)?;
//! let query = classes.add_class("query", None, 100)?;
//! let repair = classes.add_class("repair", Some(background), 20)?;
//! assert_eq!(classes.find("repair"), Some(repair));
//! classes.set_shares(query, 200)?;
//! # Ok::<(), ClassError>(())
//! ```

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plimsoll_core::Qos;

/// A priority class, or a group of them. Valid in the registry that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class(pub(crate) u16);

impl Class {
    /// The class that every registry begins with: name `default`, 100 shares.
    pub const DEFAULT: Class = Class(0);

    /// Returns the class of a number that was kept as such. Calls refuse a number that their registry has not given out.
    #[must_use]
    pub const fn from_index(index: u16) -> Class {
        Class(index)
    }

    /// Returns its number: classes count from 0 in the order of their creation.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Why a change of classes was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClassError {
    /// Another class or group has this name already.
    NameTaken(String),
    /// No such class or group (any more).
    Unknown,
    /// The name is empty.
    NoName,
    /// The default class cannot be removed.
    Default,
    /// The parent is a class, not a group.
    NotAGroup(String),
    /// The group still has members.
    NotEmpty(String),
    /// All 65,535 numbers have been used.
    TooMany,
    /// The quantile of a latency target is not above 0 and below 1; holds the quantile.
    BadQuantile(String),
    /// A group was given settings that are about single requests, which only classes have.
    ForClassesOnly {
        /// The group.
        group: String,
        /// These settings, in words.
        given: String,
    },
}

impl fmt::Display for ClassError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClassError::NameTaken(name) => write!(f, "there is a class or group named `{name}` already"),
            ClassError::Unknown => write!(f, "no such class or group (was it removed?)"),
            ClassError::NoName => write!(f, "a class or group has a name of at least one character"),
            ClassError::Default => {
                write!(f, "the class `default` cannot be removed: requests without a class are in it")
            }
            ClassError::NotAGroup(name) => write!(f, "`{name}` is a class: only a group can have members"),
            ClassError::NotEmpty(name) => write!(f, "group `{name}` still has members: remove them first"),
            ClassError::TooMany => write!(f, "65,535 classes have been made: use fewer, or make a new registry"),
            ClassError::BadQuantile(quantile) => write!(
                f,
                "a latency target cannot be for the part {quantile} of the requests: name one above 0 and below 1, such as \
                 0.99 for a p99"
            ),
            ClassError::ForClassesOnly { group, given } => write!(
                f,
                "group `{group}` was given {given}, but a group has shares, limits and a reservation only: give the \
                 rest to the classes inside it"
            ),
        }
    }
}

impl std::error::Error for ClassError {}

/// A class as the shards see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassInfo {
    /// Its name.
    pub name: Arc<str>,
    /// Its group; `None` for the root.
    pub parent: Option<Class>,
    /// Its shares.
    pub shares: u32,
    /// Limits, reservation, latency target, ageing, refusal.
    pub qos: Qos,
    /// Whether it is a group: groups have members, classes have requests.
    pub is_group: bool,
    /// Whether it has been removed.
    pub removed: bool,
}

impl ClassInfo {
    fn new(name: &str, parent: Option<Class>, shares: u32, is_group: bool) -> ClassInfo {
        let (name, shares, qos) = (name.into(), shares.max(1), Qos::default());
        ClassInfo { name, parent, shares, qos, is_group, removed: false }
    }
}

#[derive(Debug)]
struct Registry {
    epoch: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Debug)]
struct Table {
    /// By number.
    classes: Vec<ClassInfo>,
    /// The numbers of those that have not been removed.
    names: HashMap<Arc<str>, u16>,
}

impl Table {
    /// Returns the class or group, unless it has been removed.
    fn get(&mut self, class: Class) -> Result<&mut ClassInfo, ClassError> {
        self.classes.get_mut(class.index()).filter(|info| !info.removed).ok_or(ClassError::Unknown)
    }

    fn add(&mut self, info: ClassInfo) -> Result<Class, ClassError> {
        let number = u16::try_from(self.classes.len()).ok().filter(|number| *number < u16::MAX);
        let number = number.ok_or(ClassError::TooMany)?;
        self.names.insert(Arc::clone(&info.name), number);
        self.classes.push(info);
        Ok(Class(number))
    }
}

/// The registry of classes; see the module's documentation. Clones share one registry.
#[derive(Clone, Debug)]
pub struct Classes(Arc<Registry>);

impl Default for Classes {
    fn default() -> Classes {
        Classes::new()
    }
}

impl Classes {
    /// Returns a registry that has only the default class.
    #[must_use]
    pub fn new() -> Classes {
        let default = ClassInfo::new("default", None, 100, false);
        let names = HashMap::from([(Arc::clone(&default.name), Class::DEFAULT.0)]);
        let table = Mutex::new(Table { classes: vec![default], names });
        Classes(Arc::new(Registry { epoch: AtomicU64::new(1), table }))
    }

    /// Adds a class with `shares` (0 counts as 1).
    ///
    /// # Errors
    /// See [`ClassError`].
    pub fn add_class(&self, name: &str, parent: Option<Class>, shares: u32) -> Result<Class, ClassError> {
        self.add(name, parent, shares, false)
    }

    /// Adds a group with `shares` (0 counts as 1).
    ///
    /// # Errors
    /// See [`ClassError`].
    pub fn add_group(&self, name: &str, parent: Option<Class>, shares: u32) -> Result<Class, ClassError> {
        self.add(name, parent, shares, true)
    }

    fn add(&self, name: &str, parent: Option<Class>, shares: u32, is_group: bool) -> Result<Class, ClassError> {
        if name.is_empty() {
            return Err(ClassError::NoName);
        }
        let mut table = self.table();
        if table.names.contains_key(name) {
            return Err(ClassError::NameTaken(name.to_owned()));
        }
        if let Some(parent) = parent {
            let group = table.get(parent)?;
            if !group.is_group {
                return Err(ClassError::NotAGroup(group.name.to_string()));
            }
        }
        let class = table.add(ClassInfo::new(name, parent, shares, is_group))?;
        self.changed();
        Ok(class)
    }

    /// Changes the shares of a class or group, in all shards, while they run.
    ///
    /// # Errors
    /// [`ClassError::Unknown`].
    pub fn set_shares(&self, class: Class, shares: u32) -> Result<(), ClassError> {
        let mut table = self.table();
        let old = std::mem::replace(&mut table.get(class)?.shares, shares.max(1));
        if old != shares.max(1) {
            self.changed();
        }
        Ok(())
    }

    /// Changes the quality of service of a class or group, on every disk and in all shards, while they run. Each disk
    /// has the limits and reservations for itself. Those of a group are for its classes together, whichever ask; it has
    /// nothing else.
    ///
    /// # Errors
    /// [`ClassError::Unknown`]; [`ClassError::BadQuantile`] if the target's quantile is not above 0 and below 1;
    /// [`ClassError::ForClassesOnly`] if a group is given anything but limits and a reservation. Nothing has changed
    /// then.
    pub fn set_qos(&self, class: Class, qos: Qos) -> Result<(), ClassError> {
        self.update_qos(class, |now| *now = qos)
    }

    /// Changes a part of the quality of service of a class or group, as [`Classes::set_qos`] does the whole. No other
    /// change, such as one by the control socket, comes between. `update` must not call the registry.
    ///
    /// # Errors
    /// As [`Classes::set_qos`].
    pub fn update_qos(&self, class: Class, update: impl FnOnce(&mut Qos)) -> Result<(), ClassError> {
        let mut table = self.table();
        let entry = table.get(class)?;
        let mut qos = entry.qos;
        update(&mut qos);

        if let Some(target) = qos.latency_target
            && !(target.quantile > 0.0 && target.quantile < 1.0)
        {
            return Err(ClassError::BadQuantile(target.quantile.to_string()));
        }
        if entry.is_group
            && let Some(given) = qos.for_classes_only()
        {
            return Err(ClassError::ForClassesOnly { group: entry.name.to_string(), given });
        }
        if std::mem::replace(&mut entry.qos, qos) != qos {
            self.changed();
        }
        Ok(())
    }

    /// Removes a class or an empty group. Queued requests of the class end with `ECANCELED`; those in the device end
    /// normally.
    ///
    /// # Errors
    /// [`ClassError::Unknown`], [`ClassError::Default`], [`ClassError::NotEmpty`].
    pub fn remove(&self, class: Class) -> Result<(), ClassError> {
        if class == Class::DEFAULT {
            return Err(ClassError::Default);
        }
        let mut table = self.table();
        let name = Arc::clone(&table.get(class)?.name);
        if table.classes.iter().any(|c| !c.removed && c.parent == Some(class)) {
            return Err(ClassError::NotEmpty(name.to_string()));
        }
        table.get(class)?.removed = true;
        table.names.remove(&name);
        self.changed();
        Ok(())
    }

    /// Returns the class or group of that name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Class> {
        self.table().names.get(name).copied().map(Class)
    }

    /// Returns all classes and groups, removed ones included, by number.
    #[must_use]
    pub fn list(&self) -> Vec<ClassInfo> {
        self.table().classes.clone()
    }

    /// Returns the epoch, which rises with every change to another value.
    pub(crate) fn epoch(&self) -> u64 {
        self.0.epoch.load(Ordering::Acquire)
    }

    /// Raises the epoch, so that shards read the table again, and other state that the epoch covers.
    pub(crate) fn changed(&self) {
        self.0.epoch.fetch_add(1, Ordering::Release);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // The table is complete after every change, so a panic elsewhere leaves it valid.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{LatencyTarget, Limits, Rate, Reservation};

    use super::*;

    #[test]
    fn names_parents_and_removal_are_checked() {
        let classes = Classes::new();
        let group = classes.add_group("g", None, 10).unwrap();
        let a = classes.add_class("a", Some(group), 0).unwrap();
        assert_eq!(classes.list()[a.index()].shares, 1);
        assert_eq!(classes.add_class("a", None, 1), Err(ClassError::NameTaken("a".into())));
        assert_eq!(classes.add_class("b", Some(a), 1), Err(ClassError::NotAGroup("a".into())));
        assert_eq!(classes.remove(group), Err(ClassError::NotEmpty("g".into())));
        assert_eq!(classes.remove(Class::DEFAULT), Err(ClassError::Default));
        assert!(classes.remove(Class::DEFAULT).unwrap_err().to_string().contains("`default` cannot be removed"));
        assert_eq!(classes.add_class("", None, 1), Err(ClassError::NoName));
        assert_eq!(classes.add_group("", None, 1), Err(ClassError::NoName));
        let epoch = classes.epoch();
        classes.remove(a).unwrap();
        assert!(classes.epoch() > epoch);
        assert_eq!(classes.set_shares(a, 5), Err(ClassError::Unknown));
        assert_eq!(classes.find("a"), None);
        classes.add_class("a", None, 7).unwrap();
    }

    /// Each rise of the epoch makes every shard copy the table.
    #[test]
    fn a_change_to_the_same_values_raises_no_epoch() {
        let classes = Classes::new();
        let qos = Qos { max_wait_ns: Some(5), ..Qos::default() };
        classes.set_qos(Class::DEFAULT, qos).unwrap();
        let epoch = classes.epoch();
        classes.set_shares(Class::DEFAULT, 100).unwrap();
        classes.set_qos(Class::DEFAULT, qos).unwrap();
        classes.update_qos(Class::DEFAULT, |_| {}).unwrap();
        assert_eq!(classes.epoch(), epoch);
        classes.set_shares(Class::DEFAULT, 101).unwrap();
        classes.set_qos(Class::DEFAULT, Qos::default()).unwrap();
        assert_eq!(classes.epoch(), epoch + 2);
    }

    /// What else a group was given was ignored without a word.
    #[test]
    fn a_group_has_limits_and_a_reservation_only() {
        let classes = Classes::new();
        let group = classes.add_group("background", None, 10).unwrap();
        let limits = Limits { iops: Rate::per_second(5), ..Limits::default() };
        let both = Qos { limits, reservation: Reservation { iops: 5, bandwidth: 0 }, ..Qos::default() };
        classes.set_qos(group, both).unwrap();

        let latency_target = Some(LatencyTarget { latency_ns: 1_000_000, quantile: 0.99 });
        let table = [
            (Qos { latency_target, ..both }, "a latency target"),
            (Qos { latency_target, max_wait_ns: Some(5), ..both }, "a latency target, a longest wait"),
            (Qos { max_delay_ns: Some(5), ..both }, "a longest delay"),
        ];
        for (qos, expected) in table {
            let error = classes.set_qos(group, qos).unwrap_err();
            let (group, given) = ("background".to_owned(), expected.to_owned());
            assert_eq!(error, ClassError::ForClassesOnly { group, given });
            assert!(error.to_string().contains("shares, limits and a reservation only"), "{error}");
            classes.set_qos(Class::DEFAULT, qos).unwrap();
        }
        assert_eq!(classes.list()[group.index()].qos, both, "nothing has changed");
    }

    /// Adding one searched the names of all before: 58 s for these.
    #[test]
    fn a_registry_is_full_after_all_numbers_and_none_is_given_out_again() {
        let classes = Classes::new();
        for number in 1..u16::MAX {
            assert_eq!(classes.add_class(&number.to_string(), None, 1), Ok(Class(number)));
        }
        assert_eq!(classes.find("65534"), Some(Class(65_534)));
        classes.remove(Class(7)).unwrap();
        assert_eq!((classes.find("7"), classes.find("8")), (None, Some(Class(8))));
        assert_eq!(classes.add_class("7", None, 1), Err(ClassError::TooMany));
        assert_eq!(classes.set_shares(Class(7), 1), Err(ClassError::Unknown));
    }

    #[test]
    fn a_latency_target_is_for_a_part_of_the_requests() {
        let classes = Classes::new();
        let target = |quantile| Qos {
            latency_target: Some(LatencyTarget { latency_ns: 1_000_000, quantile }),
            ..Qos::default()
        };
        let epoch = classes.epoch();
        for quantile in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0, 99.0] {
            let error = classes.set_qos(Class::DEFAULT, target(quantile)).unwrap_err();
            assert!(error.to_string().contains("above 0 and below 1, such as 0.99 for a p99"), "{error}");
        }
        assert_eq!((classes.list()[0].qos, classes.epoch()), (Qos::default(), epoch), "nothing has changed");
        for quantile in [f64::MIN_POSITIVE, 0.5, 0.99, 1.0 - f64::EPSILON] {
            classes.set_qos(Class::DEFAULT, target(quantile)).unwrap();
        }
    }
}

//! A report of iostat while it is read: the figures of each device so far.
//!
//! # Why
//! A report is several tables, and a device has a row in each.
//!
//! # How it works
//! Rows of a device add up to its columns. Rows of groups are kept apart, and used only if there are no others.
//!
//! # Limits
//! Rows of groups are used only from the first table with the name in front: iostat 12.6 prints zeros in all but the
//! first of split tables when it is asked for groups alone.
//!
//! # Example
//! `r/s` of sda in one table and `w/s` of sda in the next are one [`DeviceInterval`].

use std::collections::{HashMap, HashSet};

use super::super::{Notes, figure, shown};
use super::line::Place;
use super::table::{Row, Table};
use crate::stat::readers::times::Stamp;
use crate::stat::{Columns, CpuShares, DeviceInterval, Interval};

/// A report so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub interval: Interval,
    /// The time above it.
    pub stamp: Option<Stamp>,
    /// Number of its tables.
    pub tables: usize,
    places: HashMap<String, usize>,
    groups: Vec<DeviceInterval>,
    group_rows: usize,
    names: HashSet<String>,
}

impl Report {
    /// Returns whether at most a time is known.
    pub(super) fn is_empty(&self) -> bool {
        self.tables == 0 && self.interval.cpu.is_none()
    }

    /// Returns the number of devices.
    pub(super) fn len(&self) -> usize {
        self.interval.devices.len()
    }

    /// Adds names of columns that the report has.
    pub(super) fn add_names(&mut self, names: &[String]) {
        self.names.extend(names.iter().cloned());
    }

    /// Returns whether the report has one of these columns.
    pub(super) fn has_any_of(&self, names: &[String]) -> bool {
        names.iter().any(|name| self.names.contains(name))
    }

    /// Adds a row. Returns a sentence for each figure that is unknown.
    pub(super) fn add(&mut self, table: &Table, row: &Row) -> Vec<String> {
        if row.is_group {
            self.group_rows += 1;
            let is_known = self.groups.iter().any(|group| group.device == row.device);
            if table.place != Place::First || is_known {
                return Vec::new();
            }
            let mut columns = Columns::default();
            let sentences = table.set(row, &mut columns);
            self.groups.push(DeviceInterval { device: row.device.clone(), columns, ..DeviceInterval::default() });
            return sentences;
        }

        let devices = &mut self.interval.devices;
        let place = *self.places.entry(row.device.clone()).or_insert_with(|| {
            devices.push(DeviceInterval { device: row.device.clone(), ..DeviceInterval::default() });
            devices.len() - 1
        });
        devices.get_mut(place).map(|device| table.set(row, &mut device.columns)).unwrap_or_default()
    }

    /// Sets the shares of the CPUs' time.
    pub(super) fn set_cpu(&mut self, names: &[String], words: &[String], at: usize, notes: &mut Notes) {
        let figures = names.iter().zip(words).map(|(name, word)| {
            let number = figure::parse(word).and_then(|figure| figure.number);
            (name.as_str(), number)
        });
        self.interval.cpu = cpu_shares(figures).filter(|_| names.len() == words.len());
        if self.interval.cpu.is_none() {
            notes.line(at, &format!("`{}` are no shares of the CPUs' time: left out", shown(&words.join(" "))));
        }
    }

    /// Returns the complete report as an interval.
    pub(super) fn into_interval(mut self, notes: &mut Notes) -> Interval {
        if self.group_rows > 0 && self.interval.devices.is_empty() && !self.groups.is_empty() {
            notes.file("only sums of groups are in it: read as if each were a device; their %util is a mean");
            self.interval.devices = self.groups;
        } else if self.group_rows > 0 {
            notes.file("lines of groups are sums of others: left out");
        }
        self.interval
    }
}

/// Returns the shares by their names; `None` if a figure is unknown, or one that every version has is missing.
pub(in crate::stat) fn cpu_shares<'a>(figures: impl Iterator<Item = (&'a str, Option<f64>)>) -> Option<CpuShares> {
    let figures: HashMap<&str, Option<f64>> = figures.collect();
    let get = |name: &str| figures.get(name).copied().flatten();
    let optional = |name: &str| figures.get(name).copied().unwrap_or(Some(0.0));
    Some(CpuShares {
        user: get("user")?,
        nice: get("nice")?,
        system: get("system").or_else(|| get("sys"))?,
        // Kernels before 2.5 have no iowait, before 2.6.11 no steal.
        iowait: optional("iowait")?,
        steal: optional("steal")?,
        idle: get("idle")?,
    })
}

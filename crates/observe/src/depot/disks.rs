//! Recordings of `stat` in a depot: a row for each disk and interval.
//!
//! **Why.** Which disk of which host is full, and which is bought and not used, is a question about all of them.
//!
//! **How.** The columns of iostat under names with units, then U, S and the verdict as `stat` draws them. A disk
//! without figures in an interval (it appeared, disappeared or was reset) has a row with its `gap`. Arrays (md, LVM)
//! are left out beside their members, because sums over a host would count their work twice, and so are devices that
//! are no disks (loop, ram) unless something used them.
//!
//! **Limits.** Means since boot are left out, and first reports that may be such: they would count days as an interval.
//!
//! **Example.** `plimsoll depot DEPOT db1.stat`.

use std::collections::HashSet;

use super::{DepotError, Files, Place, Table, Written};
use crate::columns::{Column, cell, int, known, maybe, text, text_cell};
use crate::stat::{Columns, Facts, Gap, Judged, Observed};

/// Prefixes of the names of devices that often exist and are never used.
const NO_DISKS: [&str; 6] = ["loop", "ram", "zram", "sr", "fd", "nbd"];

macro_rules! figures {
    ($($field:ident)+) => {
        [$(maybe(stringify!($field), cell!(F64, |it: &Judged, _| float(columns(it).$field)))),+]
    };
}

/// Returns the columns of iostat. If the mean time of all requests is missing, computes it from the others.
fn columns(judged: &Judged) -> Columns {
    let columns = judged.interval.columns;
    Columns { await_ms: columns.mean_await_ms(), ..columns }
}

fn float(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

fn at_us(observed: &Observed) -> Option<i64> {
    i64::try_from(observed.end_unix_ms?).ok()?.checked_mul(1000)
}

static WHEN: [Column<Judged, Observed>; 3] = [
    known("at_utc", cell!(Micros, |_, observed| at_us(observed))),
    maybe("duration_s", cell!(F64, |_, observed| float(observed.duration_s))),
    known("disk", text_cell!(|it, _| text(&it.interval.device))),
];

static FIGURES: [Column<Judged, Observed>; 26] = figures! {
    reads_per_s writes_per_s discards_per_s flushes_per_s read_kib_per_s write_kib_per_s discard_kib_per_s
    read_merges_per_s write_merges_per_s discard_merges_per_s read_merged_percent write_merged_percent
    discard_merged_percent read_await_ms write_await_ms discard_await_ms flush_await_ms read_size_kib write_size_kib
    discard_size_kib queue util_percent transfers_per_s all_kib_per_s await_ms size_kib
};

static JUDGED: [Column<Judged, Observed>; 10] = [
    maybe("in_flight", cell!(I64, |it, _| it.interval.in_flight.and_then(int))),
    maybe("gap", text_cell!(|it, _| it.interval.gap.map(Gap::name).and_then(text))),
    maybe("capacity_use", cell!(F64, |it, _| float(it.capacity_use))),
    known("capacity_basis", text_cell!(|it, _| text(it.capacity_basis.name()))),
    maybe("capacity_model", text_cell!(|it, _| it.capacity_basis.model().and_then(text))),
    maybe("saturation", cell!(F64, |it, _| float(it.saturation))),
    maybe("read_saturation", cell!(F64, |it, _| float(it.read_saturation))),
    maybe("write_saturation", cell!(F64, |it, _| float(it.write_saturation))),
    known("verdict", text_cell!(|it, _| text(it.verdict.name()))),
    known("why", text_cell!(|it, _| text(&it.why))),
];

/// Stores the observed intervals of disks, in their order. `facts` show which devices are arrays.
///
/// # Errors
/// [`DepotError`], also if an interval has no time. Nothing is stored then.
pub fn store(place: &Place, observed: &[Observed], facts: &Facts) -> Result<Vec<Written>, DepotError> {
    let all = || observed.iter().flat_map(|observed| &observed.devices);
    let there: HashSet<&str> = all().map(|it| it.interval.device.as_str()).collect();
    let is_used = |it: &&Judged| it.interval.columns.requests_per_s().is_some_and(|rate| rate > 0.0);
    let used: HashSet<&str> = all().filter(is_used).map(|it| it.interval.device.as_str()).collect();
    let is_disk = |name: &str| {
        let members = facts.get(name).map_or(&[][..], |facts| &facts.members);
        let is_array = members.iter().any(|member| there.contains(member.as_str()));
        !is_array && (used.contains(name) || !NO_DISKS.iter().any(|begin| name.starts_with(begin)))
    };

    let mut files = Files::new(place, Table::Disks, WHEN.iter().chain(&FIGURES).chain(&JUDGED));
    for observed in observed.iter().filter(|it| !it.is_since_boot && !it.may_be_since_boot) {
        let at_us = at_us(observed).ok_or(DepotError::IntervalWithoutTime)?;
        for judged in observed.devices.iter().filter(|it| is_disk(&it.interval.device)) {
            files.push(at_us, std::slice::from_ref(judged), observed)?;
        }
    }
    files.finish()
}

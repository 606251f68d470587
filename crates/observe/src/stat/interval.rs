//! The activity of a host between two readings: the common form of all sources.
//!
//! # Why
//! Live counters, our recordings, saved `/proc/diskstats` and the text of ten years of `iostat` hold different figures.
//! The judging code must not depend on the source, and must see a missing figure as missing, never as 0.
//!
//! # How it works
//! [`Columns`] are those of `iostat -x`, each optional. [`Columns::from_counters`] computes them by sysstat's formulas
//! (`iostat.c` and `rd_stats.c` of sysstat 12.7): rates are differences over the interval; `await` is time over
//! completions, 0 where nothing completed; `aqu-sz` is weighted time over the interval; `%util` is busy time over the
//! interval.
//!
//! # Limits
//! kB in iostat are KiB, here too. A column that a kernel does not count is `None`; sysstat prints 0.00 there.
//!
//! # Example
//! 2000 reads of 4 KiB in one second that took 200 ms in all: 2000 r/s, 8000 rkB/s, r_await 0.10 ms, rareq-sz 4 kB.

use std::collections::BTreeMap;

use plimsoll::sys::diskstats::Counters;
use serde::{Deserialize, Serialize};

/// The activity of a host between two readings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    pub end_unix_ms: Option<u64>,
    pub duration_s: Option<f64>,
    /// Whether it begins with the start of the host: iostat's first report, means over days.
    pub is_since_boot: bool,
    /// Whether it may be one since the start of the host, and its source does not say.
    pub may_be_since_boot: bool,
    pub cpu: Option<CpuShares>,
    /// The devices, in the order of the source; each name occurs once.
    pub devices: Vec<DeviceInterval>,
}

/// CPU time of all CPUs by kind, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuShares {
    pub user: f64,
    pub nice: f64,
    /// In the kernel, interrupts included.
    pub system: f64,
    /// Idle while a task that last ran there waited for a request.
    pub iowait: f64,
    /// Taken by the host of a virtual machine.
    pub steal: f64,
    pub idle: f64,
}

impl CpuShares {
    pub(crate) fn to_array(self) -> [f64; 6] {
        [self.user, self.nice, self.system, self.iowait, self.steal, self.idle]
    }

    pub(crate) fn from_array([user, nice, system, iowait, steal, idle]: [f64; 6]) -> CpuShares {
        CpuShares { user, nice, system, iowait, steal, idle }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceInterval {
    pub device: String,
    pub columns: Columns,
    /// Requests under way at the end; `None` if not known (iostat does not print them).
    pub in_flight: Option<u64>,
    pub gap: Option<Gap>,
}

/// Why a device has no columns in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Gap {
    /// The device was absent at the begin.
    Appeared,
    /// The device is absent at the end.
    Disappeared,
    /// Its counters fell, and not by a wrap of 32 bits: another device, or counters that were reset.
    Reset,
}

impl Gap {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Gap::Appeared => "appeared",
            Gap::Disappeared => "disappeared",
            Gap::Reset => "reset",
        }
    }
}

/// How the mean of a column over several intervals is weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mean {
    /// By time: the column is a rate, or a part of the time.
    ByTime,
    /// By the requests of one kind, or of all kinds.
    ByReads,
    ByWrites,
    ByDiscards,
    ByFlushes,
    ByRequests,
    /// A part of requests that follows from the rates of merges and requests.
    OfMerges,
}

/// The key of a column in iostat's JSON, and its mean.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) key: &'static str,
    pub(crate) mean: Mean,
}

macro_rules! columns {
    ($($(#[$doc:meta])* $field:ident, $key:literal, $mean:ident;)+) => {
        /// The columns of `iostat -x`, in its order and units: per second, KiB, milliseconds, percent. `None`: not
        /// known.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub struct Columns {
            $(
                #[doc = concat!("`", $key, "` of iostat's JSON.")]
                $(#[$doc])*
                pub $field: Option<f64>,
            )+
        }

        /// The fields of [`Columns`], in their order.
        pub(crate) const COLUMNS: &[Column] = &[$(Column { key: $key, mean: Mean::$mean }),+];

        impl Columns {
            /// Returns the values in the order of [`COLUMNS`].
            pub(crate) fn all(&self) -> [Option<f64>; COLUMNS.len()] {
                [$(self.$field),+]
            }

            /// Returns the places of the values in the order of [`COLUMNS`].
            pub(crate) fn all_mut(&mut self) -> [&mut Option<f64>; COLUMNS.len()] {
                [$(&mut self.$field),+]
            }
        }
    };
}

columns! {
    reads_per_s, "r/s", ByTime;
    writes_per_s, "w/s", ByTime;
    discards_per_s, "d/s", ByTime;
    flushes_per_s, "f/s", ByTime;
    read_kib_per_s, "rkB/s", ByTime;
    write_kib_per_s, "wkB/s", ByTime;
    discard_kib_per_s, "dkB/s", ByTime;
    read_merges_per_s, "rrqm/s", ByTime;
    write_merges_per_s, "wrqm/s", ByTime;
    discard_merges_per_s, "drqm/s", ByTime;
    read_merged_percent, "rrqm", OfMerges;
    write_merged_percent, "wrqm", OfMerges;
    discard_merged_percent, "drqm", OfMerges;
    read_await_ms, "r_await", ByReads;
    write_await_ms, "w_await", ByWrites;
    discard_await_ms, "d_await", ByDiscards;
    flush_await_ms, "f_await", ByFlushes;
    read_size_kib, "rareq-sz", ByReads;
    write_size_kib, "wareq-sz", ByWrites;
    discard_size_kib, "dareq-sz", ByDiscards;
    /// `avgqu-sz` before sysstat 12.
    queue, "aqu-sz", ByTime;
    util_percent, "util", ByTime;
    /// Reads, writes and discards a second. Basic and short layouts print only this sum.
    transfers_per_s, "tps", ByTime;
    /// KiB read, written and discarded a second, of the short layout.
    all_kib_per_s, "kB/s", ByTime;
    /// Of reads, writes and discards together. Only short and old layouts print it.
    await_ms, "await", ByRequests;
    /// Mean size of all requests in KiB; half of `avgrq-sz` before sysstat 12.
    size_kib, "areq-sz", ByRequests;
}

impl Columns {
    /// Computes the columns by sysstat's formulas, from the counts ([`Counters::since`]) of `duration_s` seconds (above
    /// 0).
    pub fn from_counters(moved: &Counters, duration_s: f64) -> Columns {
        let rate = |count: Option<u64>| count.map(|count| count as f64 / duration_s);
        let kib = |sectors: Option<u64>| sectors.map(|sectors| sectors as f64 / 2.0 / duration_s);
        // If nothing completed: 0, as iostat prints it.
        let mean = |sum: Option<f64>, count: Option<u64>| match (sum, count) {
            (Some(_), Some(0)) => Some(0.0),
            (Some(sum), Some(count)) => Some(sum / count as f64),
            _ => None,
        };
        let ms = |ms: Option<u64>| ms.map(|ms| ms as f64);
        let half = |sectors: Option<u64>| sectors.map(|sectors| sectors as f64 / 2.0);
        let merged = |merges: Option<u64>, count: Option<u64>| {
            let (merges, count) = (merges?, count?);
            let all = merges as f64 + count as f64;
            Some(if all == 0.0 { 0.0 } else { 100.0 * merges as f64 / all })
        };

        let (reads, writes) = (Some(moved.reads), Some(moved.writes));
        let (read_sectors, write_sectors) = (Some(moved.read_sectors), Some(moved.write_sectors));
        let total = |kinds: [u64; 3]| kinds.into_iter().fold(0, u64::saturating_add);
        let all = Some(total([moved.reads, moved.writes, moved.discards.unwrap_or(0)]));
        let all_sectors = Some(total([moved.read_sectors, moved.write_sectors, moved.discard_sectors.unwrap_or(0)]));
        let both_ms = moved.read_ms.zip(moved.write_ms);
        let all_ms = both_ms.map(|(read, write)| total([read, write, moved.discard_ms.unwrap_or(0)]) as f64);

        Columns {
            reads_per_s: rate(reads),
            writes_per_s: rate(writes),
            discards_per_s: rate(moved.discards),
            flushes_per_s: rate(moved.flushes),
            read_kib_per_s: kib(read_sectors),
            write_kib_per_s: kib(write_sectors),
            discard_kib_per_s: kib(moved.discard_sectors),
            read_merges_per_s: rate(moved.read_merges),
            write_merges_per_s: rate(moved.write_merges),
            discard_merges_per_s: rate(moved.discard_merges),
            read_merged_percent: merged(moved.read_merges, reads),
            write_merged_percent: merged(moved.write_merges, writes),
            discard_merged_percent: merged(moved.discard_merges, moved.discards),
            read_await_ms: mean(ms(moved.read_ms), reads),
            write_await_ms: mean(ms(moved.write_ms), writes),
            discard_await_ms: mean(ms(moved.discard_ms), moved.discards),
            flush_await_ms: mean(ms(moved.flush_ms), moved.flushes),
            read_size_kib: mean(half(read_sectors), reads),
            write_size_kib: mean(half(write_sectors), writes),
            discard_size_kib: mean(half(moved.discard_sectors), moved.discards),
            queue: moved.weighted_ms.map(|ms| ms as f64 / 1000.0 / duration_s),
            util_percent: moved.busy_ms.map(|ms| ms as f64 / 10.0 / duration_s),
            await_ms: mean(all_ms, all),
            size_kib: mean(half(all_sectors), all),
            transfers_per_s: rate(all),
            all_kib_per_s: kib(all_sectors),
        }
    }

    /// Formats the known columns to six decimals: `r/s 1.5, util 2`.
    #[cfg(test)]
    pub(crate) fn known(&self) -> String {
        let known = COLUMNS.iter().zip(self.all()).filter_map(|(column, value)| Some((column.key, value?)));
        let texts: Vec<String> = known.map(|(key, value)| format!("{key} {}", (value * 1e6).round() / 1e6)).collect();
        texts.join(", ")
    }

    /// Returns the column of a key of iostat's JSON; `None` also for another key.
    pub fn of_key(&self, key: &str) -> Option<f64> {
        let mut columns = COLUMNS.iter().zip(self.all());
        columns.find(|(column, _)| column.key == key)?.1
    }

    /// Returns reads, writes and discards a second; `None` if no rate is known.
    pub fn requests_per_s(&self) -> Option<f64> {
        sum([self.reads_per_s, self.writes_per_s, self.discards_per_s]).or(self.transfers_per_s)
    }

    /// Returns KiB read and written a second (in the short layout: and discarded); `None` if no rate is known.
    pub fn moved_kib_per_s(&self) -> Option<f64> {
        sum([self.read_kib_per_s, self.write_kib_per_s]).or(self.all_kib_per_s)
    }

    /// Returns the KiB a second of the direction that moves more, reads or writes; of both together if they are not
    /// known apart.
    pub(crate) fn one_way_kib_per_s(&self) -> Option<f64> {
        [self.read_kib_per_s, self.write_kib_per_s].into_iter().flatten().reduce(f64::max).or(self.all_kib_per_s)
    }

    /// Returns the mean time of reads, writes and discards in milliseconds: as given, else from each kind by its rate.
    pub fn mean_await_ms(&self) -> Option<f64> {
        self.await_ms.or_else(|| {
            let kinds = [
                (self.reads_per_s, self.read_await_ms),
                (self.writes_per_s, self.write_await_ms),
                (self.discards_per_s, self.discard_await_ms),
            ];
            let known = || kinds.iter().filter_map(|(rate, ms)| rate.zip(*ms));
            let rate: f64 = known().map(|(rate, _)| rate).sum();
            let weighted: f64 = known().map(|(rate, ms)| rate * ms).sum();
            known().next().map(|_| if rate > 0.0 { weighted / rate } else { 0.0 })
        })
    }
}

fn sum<const N: usize>(values: [Option<f64>; N]) -> Option<f64> {
    values.into_iter().flatten().reduce(|total, more| total + more)
}

/// Facts about a device, as far as its host knows them. Saved recordings contain this, texts of iostat do not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceFacts {
    /// The maker's name for it, such as `SAMSUNG MZVL21T0HCLR`, or a cloud's: `Amazon EC2 NVMe Instance Storage`.
    pub model: Option<String>,
    pub size_bytes: Option<u64>,
    pub is_rotational: Option<bool>,
    pub is_partition: bool,
    /// The devices it consists of (md, dm, multipath); empty for a device without members.
    pub members: Vec<String>,
    /// Requests that the kernel's queue of the device holds at once.
    pub nr_requests: Option<u32>,
    /// The network in front of its data, if there is one: its link may be the limit.
    pub remote: Option<Remote>,
    pub is_ephemeral: bool,
}

/// A network between a host and the medium.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remote {
    /// `rbd`, `nbd`, `iscsi`, `nvme-tcp`, `nvme-rdma`, `nvme-fc`, `ebs`, `gcp-pd`, `azure-disk`, `drbd`.
    pub kind: String,
    /// What the fastest network link of the host carries, in bytes a second, if the host reports its speed.
    pub link_bytes_per_s: Option<u64>,
}

pub type Facts = BTreeMap<String, DeviceFacts>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_those_of_iostat() {
        let moved = Counters {
            reads: 100,
            read_merges: Some(25),
            read_sectors: 800,
            read_ms: Some(40),
            writes: 0,
            write_merges: Some(0),
            write_ms: Some(0),
            busy_ms: Some(1000),
            weighted_ms: Some(500),
            ..Counters::default()
        };

        let columns = Columns::from_counters(&moved, 2.0);
        assert_eq!((columns.reads_per_s, columns.read_kib_per_s), (Some(50.0), Some(200.0)));
        assert_eq!((columns.read_merges_per_s, columns.read_merged_percent), (Some(12.5), Some(20.0)));
        assert_eq!((columns.read_await_ms, columns.read_size_kib), (Some(0.4), Some(4.0)));
        assert_eq!((columns.write_await_ms, columns.write_size_kib), (Some(0.0), Some(0.0)));
        assert_eq!((columns.queue, columns.util_percent), (Some(0.25), Some(50.0)));
        assert_eq!((columns.discards_per_s, columns.flush_await_ms), (None, None));
        assert_eq!((columns.requests_per_s(), columns.mean_await_ms()), (Some(50.0), Some(0.4)));
    }

    #[test]
    fn what_is_not_known_is_not_zero() {
        let columns = Columns::default();
        assert_eq!((columns.requests_per_s(), columns.moved_kib_per_s(), columns.mean_await_ms()), (None, None, None));
        let columns = Columns {
            reads_per_s: Some(30.0),
            read_await_ms: Some(1.0),
            writes_per_s: Some(10.0),
            write_await_ms: Some(5.0),
            ..Columns::default()
        };
        assert_eq!(columns.mean_await_ms(), Some(2.0));
    }
}

//! Computes how many network volumes replace some disks, their size, and their price.
//!
//! **Why.** A volume's rates follow from its size and from what is paid for, by rules of the table of presets. This
//! module asks [`Volume::provision`] instead of repeating them.
//!
//! **How.** The largest volume, with all the operations and bandwidth that are sold for it, gives the number needed.
//! Each volume then gets the fewest operations, and after that the fewest GiB, with which [`Volume::provision`] reaches
//! its share.
//!
//! **Limits.** Sustained rates count, not bursts. All volumes are alike, and have whole GiB and operations.
//!
//! **Example.** 100 MiB/s from io1: one volume of 8 GiB with 400 operations a second.

use plimsoll_sim::device::CapUnit;
use plimsoll_sim::device::presets::{Provision, Volume};
use serde::Serialize;

use crate::instance::prices::VolumePrice;

const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1u64 << 20) as f64;

/// Relative difference below which two rates are equal: a rate in MiB/s need not be a whole number of bytes.
const ROUNDING: f64 = 1e-9;

/// Most volumes that are tried; no instance takes as many.
const VOLUMES_MAX: u64 = 1 << 20;

/// Size and rates of one volume or of all together: needed, asked for, or given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rates {
    pub size_gib: f64,
    /// Operations a second, without bursts.
    pub iops: f64,
    /// MiB/s, without bursts.
    pub mibps: f64,
}

impl Rates {
    fn times(self, factor: f64) -> Rates {
        Rates { size_gib: self.size_gib * factor, iops: self.iops * factor, mibps: self.mibps * factor }
    }

    fn reaches(self, needed: Rates) -> bool {
        let is_enough = |has: f64, needed: f64| has >= needed * (1.0 - ROUNDING);
        is_enough(self.size_gib, needed.size_gib)
            && is_enough(self.iops, needed.iops)
            && is_enough(self.mibps, needed.mibps)
    }
}

/// A number of equal volumes, and their size and rates together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Volumes {
    pub volumes: f64,
    /// The size, larger than the stored bytes if operations or bandwidth need it, and the rates of all of them.
    #[serde(flatten)]
    pub all: Rates,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Month {
    pub size_month: f64,
    /// Price of the operations beyond those included.
    pub iops_month: f64,
    /// Price of the bandwidth beyond the included one.
    pub mibps_month: f64,
    pub volumes_month: f64,
}

/// Returns the sustained rates of a volume that is asked for as `ask`, or `None` if it is not sold.
fn provisioned(volume: &Volume, ask: Rates) -> Option<Rates> {
    let mibps = ask.mibps.max(volume.mib_least.unwrap_or(0.0));
    let preset = volume.provision(&Provision {
        size_bytes: Some((ask.size_gib * GIB) as u64),
        iops: volume.iops_ratio.map(|_| ask.iops as u64),
        bandwidth_bytes_per_s: volume.mib_ratio.map(|_| (mibps * MIB).ceil() as u64),
    });
    let spec = preset.ok()?.spec;
    // Credits do not limit a rate without a cap.
    let base = |is_wanted: fn(&CapUnit) -> bool, rate: f64| {
        spec.caps.iter().find(|cap| is_wanted(&cap.unit)).map_or(rate, |cap| cap.base_per_s)
    };
    let iops = base(|unit| matches!(unit, CapUnit::Operations { .. }), spec.rates.read_iops);
    let bytes_per_s = base(|unit| matches!(unit, CapUnit::Bytes), spec.rates.read_bytes_per_s);
    Some(Rates { size_gib: ask.size_gib, iops, mibps: bytes_per_s / MIB })
}

fn most(volume: &Volume) -> Option<Rates> {
    provisioned(volume, Rates { size_gib: volume.size_gib[2], iops: volume.iops_most, mibps: volume.mib_most })
}

/// Returns the fewest volumes that reach `needed`, each as small as possible, or `None` if no number does.
pub(super) fn fewest(volume: &Volume, needed: Rates) -> Option<Volumes> {
    let most = most(volume)?;
    let number = (needed.size_gib / most.size_gib).max(needed.iops / most.iops).max(needed.mibps / most.mibps);
    let number = (number * (1.0 - ROUNDING)).ceil().max(1.0);

    let each = needed.times(1.0 / number);
    let given = |size_gib: u64, iops: u64| {
        let ask = Rates { size_gib: size_gib as f64, iops: iops as f64, mibps: each.mibps };
        provisioned(volume, ask).filter(|given| given.reaches(each))
    };
    // Operations first, since bandwidth may need some; the largest volume allows any number.
    let [_, least_gib, most_gib] = volume.size_gib;
    let least_iops = each.iops.max(volume.iops_least.unwrap_or(1.0));
    let iops = first(whole(least_iops), whole(volume.iops_most), |iops| given(whole(most_gib), iops).is_some())?;
    let size_gib = whole(each.size_gib.max(least_gib));
    let size_gib = first(size_gib, whole(most_gib), |size_gib| given(size_gib, iops).is_some())?;
    Some(Volumes { volumes: number, all: given(size_gib, iops)?.times(number) })
}

/// Rounds up to a whole number, except for an excess within [`ROUNDING`].
fn whole(value: f64) -> u64 {
    (value * (1.0 - ROUNDING)).ceil() as u64
}

/// Returns the first number from `low` to `high` for which `holds`, which must then hold for all above it.
fn first(low: u64, high: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (low, high);
    if low > high || !holds(high) {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    Some(high)
}

/// Returns the price of `volumes`. Each of them includes what the price of a volume includes.
pub(super) fn month(price: &VolumePrice, volumes: &Volumes) -> Month {
    let beyond = |all: f64, included: f64| (all - included * volumes.volumes).max(0.0);
    let size_month = volumes.all.size_gib * price.per_gib_month;
    let iops_month = beyond(volumes.all.iops, price.iops_included) * price.per_iops_month;
    let mibps_month = beyond(volumes.all.mibps, price.mibps_included) * price.per_mibps_month;
    Month { size_month, iops_month, mibps_month, volumes_month: size_month + iops_month + mibps_month }
}

/// Returns the fewest operations a second at which volumes of this size together cost at least `limit_month`, or `None`
/// if they never do.
///
/// The cost grows with the operations, except for a step down with each further volume, whose price includes some. So
/// first the number of volumes is searched, then the operations that this number can do.
pub(super) fn least_iops(price: &VolumePrice, size_gib: f64, limit_month: f64) -> Option<f64> {
    let each = most(price.volume)?.iops.floor();
    let is_as_dear = |iops: u64| {
        let needed = Rates { size_gib, iops: iops as f64, mibps: 0.0 };
        fewest(price.volume, needed).is_some_and(|volumes| month(price, &volumes).volumes_month >= limit_month)
    };
    let end = |number: u64| number * each as u64;
    let number = first(1, VOLUMES_MAX, |number| is_as_dear(end(number)))?;
    let low = if is_as_dear(0) { 0 } else { end(number - 1) + 1 };
    first(low, end(number), is_as_dear).map(|iops| iops as f64)
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::device::presets;

    use super::*;

    fn kind(name: &str) -> &'static Volume {
        presets::volumes().iter().find(|volume| volume.name == name).unwrap()
    }

    #[test]
    fn volumes_obey_the_limits_of_their_provider() {
        // Kind; GiB, operations, MiB/s needed; volumes, and GiB, operations and MiB/s of all of them.
        let cases = [
            ("gp3", [1000.0, 3000.0, 125.0], [1.0, 1000.0, 3000.0, 125.0]),
            // 500 operations for each GiB.
            ("gp3", [10.0, 16_000.0, 125.0], [1.0, 32.0, 16_000.0, 125.0]),
            // 4 operations for each MiB/s.
            ("gp3", [1000.0, 3000.0, 1000.0], [1.0, 1000.0, 4000.0, 1000.0]),
            ("gp3", [163_840.0, 0.0, 0.0], [3.0, 163_842.0, 9000.0, 375.0]),
            ("gp3", [1e5, 280_000.0, 0.0], [4.0, 1e5, 280_000.0, 500.0]),
            // Operations by size alone, without the burst; above 170 GiB the whole bandwidth.
            ("gp2", [100.0, 3000.0, 0.0], [1.0, 1000.0, 3000.0, 250.0]),
            ("gp2", [100.0, 0.0, 200.0], [1.0, 171.0, 513.0, 250.0]),
            // 256 KiB for each operation up to 500 MiB/s, beyond that 16 KiB: the whole bandwidth needs all operations.
            ("io1", [4.0, 100.0, 100.0], [1.0, 8.0, 400.0, 100.0]),
            ("io1", [4.0, 100.0, 1000.0], [1.0, 1280.0, 64_000.0, 1000.0]),
            ("io2", [4.0, 300_000.0, 0.0], [2.0, 300.0, 300_000.0, 8000.0]),
            // 40 MiB/s for each TiB without the burst: 500 need 12.5 TiB.
            ("st1", [1024.0, 0.0, 500.0], [1.0, 12_800.0, 500.0, 500.0]),
            ("st1", [1024.0, 500.0, 0.0], [1.0, 2048.0, 500.0, 80.0]),
            ("st1", [1024.0, 1000.0, 0.0], [2.0, 4096.0, 1000.0, 160.0]),
        ];
        for (name, [size_gib, iops, mibps], expected) in cases {
            let found = fewest(kind(name), Rates { size_gib, iops, mibps }).unwrap();
            let all = found.all;
            let found = [found.volumes, all.size_gib, all.iops, all.mibps];
            let is_close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-6 * b);
            assert!(is_close, "{name} of {size_gib} GiB, {iops}/s, {mibps} MiB/s: {found:?}, not {expected:?}");
        }
    }

    #[test]
    fn the_least_operations_are_where_the_cost_passes() {
        let gp3 = VolumePrice {
            volume: kind("gp3"),
            per_gib_month: 0.08,
            per_iops_month: 0.005,
            iops_included: 3000.0,
            per_mibps_month: 0.04,
            mibps_included: 125.0,
            date: "2020-12".to_owned(),
        };
        // GiB, money a month. 1000 GiB cost 80, the operations included nothing; one volume reaches its limit at 385
        // more, a second one includes 3000 operations more.
        let cases = [
            (1000.0, 80.0, Some(0.0)),
            (1000.0, 85.0, Some(4000.0)),
            (1000.0, 465.0, Some(80_000.0)),
            // Both volumes have the same number: the next even one is 83 200.
            (1000.0, 465.999, Some(83_199.0)),
            (1000.0, 1e12, None),
        ];
        for (size_gib, limit, expected) in cases {
            assert_eq!(least_iops(&gp3, size_gib, limit), expected, "{size_gib} GiB, {limit}");
            let Some(iops) = expected.filter(|iops| *iops > 0.0) else { continue };
            let cost = |iops: f64| {
                month(&gp3, &fewest(gp3.volume, Rates { size_gib, iops, mibps: 0.0 }).unwrap()).volumes_month
            };
            assert!(cost(iops) >= limit && cost(iops - 1.0) < limit, "{iops}: {}", cost(iops));
        }
    }
}

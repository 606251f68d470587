//! Finds figures whose ratio is unlike the others of their group, with known causes.
//!
//! **Why.** A processor that is faster in all figures but one need not be a measuring error. The cause decides whether
//! the figure matters for a load; without a known cause, the user should measure again.
//!
//! **How.** The ratios of a group (all stressors) are inverted where less is better. A ratio stands out if its distance
//! from the group's median exceeds both [`FAR_DEVIATIONS`] times the group's scatter (median absolute deviation of the
//! logarithms, as a standard deviation) and [`FAR_LEAST`]. It also stands out if it is worse while the median is better
//! by more than [`NOISE`], or the other way round. For disks, operations are compared with bytes of the same direction:
//! both come from the same flash, so if they differ by more than [`APART`], the path to the flash has changed.
//!
//! Known causes, and only these: copies in memory follow the size of the L3 cache if both changed in the same
//! direction; operations follow another hypervisor; single runs scatter by [`NOISE`].
//!
//! **Limits.** A cause that fits is not proven. Groups of fewer than [`GROUP_LEAST`] figures are not judged.
//!
//! **Example.** Of nine stressors with ratios from 0.98 to 1.42 and one of 0.67, copying in memory stands out; with an
//! L3 cache of 33 MiB against 45 MiB its cause is known.

use plimsoll_figures::series;
use serde::Serialize;

use super::super::figures::{self, Better, Unit};
use super::super::find::Candidate;

/// Fewest figures of a group that is judged. The median of fewer is chance.
pub const GROUP_LEAST: usize = 5;

/// Standard deviations between an outlier and the median of its group, at least.
pub const FAR_DEVIATIONS: f64 = 3.0;

/// Factor between an outlier and the median of its group, at least.
pub const FAR_LEAST: f64 = 1.25;

/// Factor between the ratios of a disk's operations and bytes beyond which they stand out.
pub const APART: f64 = 1.25;

/// Largest relative difference of two equal runs that needs no cause.
pub const NOISE: f64 = 0.05;

/// The standard deviation of normal values per median absolute deviation: 1 / 0.6745.
const DEVIATION_PER_MAD: f64 = 1.4826;

/// The figure that depends on the L3 cache: it copies more than L2 holds and, on large caches, less than L3 does.
const COPIES: &str = "stress_ng.memcpy";

/// The group of figures that is judged; disks have rules of their own.
const GROUP: &str = "stress_ng";

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outlier {
    pub label: String,
    pub key: String,
    pub title: String,
    /// The figure divided by that of the base, as in the table.
    pub ratio: f64,
    /// The reference: `median of stress_ng`, `disk.read_bytes_per_s`.
    pub against: String,
    /// The ratio of the reference, in the direction of `ratio`.
    pub against_ratio: f64,
    pub cause: Option<String>,
    /// Facts known or missing about a cause, if none fits.
    pub remark: Option<String>,
}

/// Returns all figures of `other` that stand out against `base`.
pub fn outliers(base: &Candidate, other: &Candidate) -> Vec<Outlier> {
    let mut found = of_group(GROUP, base, other);
    for direction in ["read", "write"] {
        found.extend(of_disks(direction, base, other));
    }
    found
}

/// Divides `other` by `base`; returns `None` if one lacks the figure or is 0, or if they cannot be compared.
fn ratio(key: &str, base: &Candidate, other: &Candidate) -> Option<f64> {
    let ratio = other.card.value(key)? / base.card.value(key)?;
    let is_comparable = super::ratios::incomparable(key, &other.card, &base.card).is_none();
    (is_comparable && ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

fn of_group(group: &str, base: &Candidate, other: &Candidate) -> Vec<Outlier> {
    let keys = other.card.keys().into_iter();
    let measured = keys.filter(|key| figures::group(key) == group);
    // Logarithms of the ratios; inverted where less is better.
    let logs: Vec<(&str, f64, f64)> = measured
        .filter_map(|key| {
            let kind = figures::kind(key).filter(|kind| !kind.is_counted)?;
            let ratio = ratio(key, base, other)?;
            let sign = if kind.better == Better::Less { -1.0 } else { 1.0 };
            Some((key, sign, sign * ratio.ln()))
        })
        .collect();

    let values: Vec<f64> = logs.iter().map(|(_, _, log)| *log).collect();
    let Some(median) = series::median(&values).filter(|_| values.len() >= GROUP_LEAST) else { return Vec::new() };
    let distances: Vec<f64> = values.iter().map(|log| (log - median).abs()).collect();
    let scatter = DEVIATION_PER_MAD * series::median(&distances).unwrap_or(0.0);

    let far = (FAR_DEVIATIONS * scatter).max(FAR_LEAST.ln());
    let stands_out = |log: f64| (log - median).abs() > far || (log * median < 0.0 && median.abs() > NOISE);

    let outlier = |(key, sign, log): &(&str, f64, f64)| {
        let is_noise = log.abs() <= NOISE;
        let (cause, remark) = if is_noise { (Some(noise()), None) } else { copies(key, *log, base, other) };
        Outlier {
            label: other.label.clone(),
            key: (*key).to_owned(),
            title: figures::title(key),
            ratio: (sign * log).exp(),
            against: format!("median of {group}"),
            against_ratio: (sign * median).exp(),
            cause,
            remark,
        }
    };
    logs.iter().filter(|(_, _, log)| stands_out(*log)).map(outlier).collect()
}

fn noise() -> String {
    format!("equal but for what single runs scatter by ({:.0} %)", NOISE * 100.0)
}

/// Returns cause and remark of a figure that depends on the L3 cache; nothing for others.
fn copies(key: &str, log: f64, base: &Candidate, other: &Candidate) -> (Option<String>, Option<String>) {
    if key != COPIES {
        return (None, None);
    }
    let Some(l3_ratio) = ratio("cpu.l3_bytes", base, other) else {
        return (None, Some("the size of the L3 cache would tell more, and is not on both cards".to_owned()));
    };
    let l3 = |side: &Candidate| Unit::BytesBinary.format(side.card.value("cpu.l3_bytes").unwrap_or(0.0));
    let sizes = format!("{} against {} (ratio {l3_ratio:.2})", l3(other), l3(base));
    if (l3_ratio - 1.0) * log > 0.0 {
        let word = if l3_ratio < 1.0 { "smaller" } else { "larger" };
        return (Some(format!("copies follow the L3 cache, which is {word}: {sizes}")), None);
    }
    (None, Some(format!("the L3 cache does not explain it: {sizes}")))
}

/// Compares operations with bytes of the same direction.
fn of_disks(direction: &str, base: &Candidate, other: &Candidate) -> Option<Outlier> {
    let (key, bytes_key) = (format!("disk.{direction}_iops"), format!("disk.{direction}_bytes_per_s"));
    let (iops, bytes) = (ratio(&key, base, other)?, ratio(&bytes_key, base, other)?);
    if (iops / bytes).max(bytes / iops) <= APART {
        return None;
    }

    let (mut cause, mut remark) = (None, None);
    match (hypervisor(base), hypervisor(other)) {
        (Some(before), Some(after)) if family(&before).is_none() || family(&after).is_none() => {
            remark = Some(format!("whether {before} and {after} are the same hypervisor is not known"));
        }
        (Some(before), Some(after)) if family(&before) != family(&after) => {
            cause = Some(format!("operations pass another hypervisor: {after} instead of {before}"));
        }
        (Some(same), Some(_)) => remark = Some(format!("both run under the same hypervisor: {same}")),
        _ => remark = Some("another hypervisor or host would do this; the cards do not say".to_owned()),
    }

    Some(Outlier {
        label: other.label.clone(),
        title: figures::title(&key),
        key,
        ratio: iops,
        against: bytes_key,
        against_ratio: bytes,
        cause,
        remark,
    })
}

/// Returns the hypervisor of a machine, if known; the clouds call machines without one `metal`.
fn hypervisor(side: &Candidate) -> Option<String> {
    let stated = side.card.facts.get("machine.hypervisor").cloned();
    stated.or_else(|| side.card.name.ends_with(".metal").then(|| "no hypervisor".to_owned()))
}

/// Returns the kind of hypervisor by its published or measured name; `None` if the name does not show it.
fn family(name: &str) -> Option<&'static str> {
    const FAMILIES: [(&str, &str); 6] = [
        ("no hypervisor", "none"),
        ("nitro", "nitro"),
        // The firmware of such a machine states this vendor.
        ("amazon ec2", "nitro"),
        ("xen", "xen"),
        ("kvm", "kvm"),
        ("hyper-v", "hyper-v"),
    ];
    let name = name.to_lowercase();
    FAMILIES.into_iter().find(|(part, _)| name.contains(part)).map(|(_, family)| family)
}

#[cfg(test)]
mod tests {
    use super::super::super::find::find_all;
    use super::super::super::{Card, Figure, Origin};
    use super::*;

    fn seeds(base: &str, other: &str) -> Vec<Outlier> {
        let found = find_all(&[base, other]).unwrap();
        let [base, other] = found.as_slice() else { panic!("two cards") };
        outliers(base, other)
    }

    #[test]
    fn the_article_s_outliers_have_the_causes_that_it_gives() {
        let found = seeds("i3.16xlarge", "i3en.24xlarge");
        let of = |key: &str| found.iter().find(|outlier| outlier.key == key).and_then(|o| o.cause.clone()).unwrap();
        let keys: Vec<&str> = found.iter().map(|outlier| outlier.key.as_str()).collect();
        assert_eq!(keys, ["stress_ng.matrix", "stress_ng.memcpy", "disk.read_iops", "disk.write_iops"]);
        assert!(of("stress_ng.matrix").contains("what single runs scatter by"));
        assert!(of("stress_ng.memcpy").contains("L3 cache, which is smaller: 33 MiB against 45 MiB (ratio 0.73)"));
        assert!(of("disk.read_iops").contains("Nitro (KVM) instead of Xen"));
        let metal = seeds("i3.16xlarge", "i3.metal");
        assert!(metal.iter().all(|outlier| outlier.cause.as_deref().unwrap_or("").contains("no hypervisor")));
        assert_eq!(metal.len(), 2);
    }

    fn candidate(name: &str, l3_bytes: f64, ratios: &[(&str, f64)]) -> Candidate {
        let mut card = Card::new(name, Origin::measured("2026-01-01"));
        card.facts.insert("stress_ng.version".to_owned(), "0.17.06".to_owned());
        let figures = ratios.iter().map(|(key, ratio)| (*key, 100.0 * ratio));
        for (key, value) in figures.chain([("cpu.l3_bytes", l3_bytes)]) {
            card.set(key, Figure::exact(value));
        }
        Candidate { argument: name.to_owned(), label: name.to_owned(), card }
    }

    #[test]
    fn what_fits_no_cause_has_none() {
        let keys = ["stress_ng.cpu", "stress_ng.qsort", "stress_ng.tsc", "stress_ng.icache", "stress_ng.memcpy"];
        let ones: Vec<(&str, f64)> = keys.map(|key| (key, 1.0)).into();
        let base = candidate("a", 32e6, &ones);
        // The ratios, the other's L3 cache, and the expected outliers with and without a cause.
        let cases = [
            ([1.3, 1.3, 1.2, 1.2, 1.25], 32e6, "", ""),
            ([1.3, 1.3, 1.2, 1.2, 0.6], 16e6, "stress_ng.memcpy", ""),
            ([1.3, 1.3, 1.2, 1.2, 0.6], 64e6, "", "stress_ng.memcpy"),
            ([1.3, 1.3, 1.2, 0.6, 1.2], 16e6, "", "stress_ng.icache"),
            ([1.3, 1.3, 1.2, 0.97, 1.2], 16e6, "stress_ng.icache", ""),
            ([0.6, 0.6, 0.6, 1.2, 0.6], 16e6, "", "stress_ng.icache"),
        ];
        for (ratios, l3_bytes, with, without) in cases {
            let all: Vec<(&str, f64)> = keys.into_iter().zip(ratios).collect();
            let found = outliers(&base, &candidate("b", l3_bytes, &all));
            let names = |has_cause: bool| {
                let kept = found.iter().filter(|outlier| outlier.cause.is_some() == has_cause);
                kept.map(|outlier| outlier.key.clone()).collect::<Vec<_>>().join(" ")
            };
            assert_eq!((names(true).as_str(), names(false).as_str()), (with, without), "{ratios:?}");
        }
        let few = candidate("b", 1e6, &ones[..4]);
        assert!(outliers(&base, &few).is_empty());
    }

    #[test]
    fn names_of_hypervisors_are_told_apart_by_family() {
        assert_eq!(family("Nitro (KVM)"), family("yes, Amazon EC2"));
        assert_eq!(family("Xen"), family("xen"));
        assert_ne!(family("Xen"), family("Nitro (KVM)"));
        assert_eq!((family("yes, of unknown kind"), family("yes, Firecracker")), (None, None));
    }
}

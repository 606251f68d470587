//! Compares a disk with the instances that it might belong to.
//!
//! **Why.** A figure that is possible in itself can be impossible for this disk: a third of that of the same disk in
//! the next larger instance, or the total times the number of disks.
//!
//! **How.** A *reference* is an instance's total, or one of its disks. Relatives of the file's disk are references
//! whose reads are both within 10 % of its reads and a write figure within 15 %, and those that agree in three of four
//! figures within 3 %. Equal reads alone make no relative: families that are not in the table (m7gd, z1d ...) have
//! disks with the reads of others and writes of their own. If a relative as near as the nearest has no outlier, there
//! is no finding; otherwise the finding compares with the nearest. If a row is suspect itself, its write operations per
//! disk are replaced by the median of its sisters with the same disks.
//!
//! **Limits.** Instances of other clouds may pass for relatives, which hides errors but causes none. Factors of at most
//! [`OUTLIER`] are not found.
//!
//! **Example.** 884 946 reads/s, 9.35 GB/s, 201 849 writes/s, 6.86 GB/s: the reads are those of i4i.12xlarge with three
//! disks, whose sisters take 240 185 writes/s each; 720 555 are expected, and the finding is `write_outlier`.

use plimsoll_figures::units::format_count;

use super::{Beside, Finding, FindingCode, Subject};
use crate::presets::{FIGURE_KEYS, Figures, Instance, SAME_FIGURE, distance, instances};

/// Factor, up or down, beyond which a figure is an outlier. A peak of seconds is known to be 1.36 times the figure of
/// an hour, and two releases of a tool to differ by 1.3.
const OUTLIER: f64 = 1.6;
/// Largest distance of multiplied rows, which agree exactly except for rounding, since they are not measured.
const ARITHMETIC: f64 = 0.001;
/// Distance above the nearest reference's mean distance up to which references are as near. Two tools that measured the
/// same instance differ by as much.
const AS_NEAR: f64 = 0.05;
/// Distance of three figures that is no accident.
const CLOSE: f64 = 0.03;
/// Distance of one write figure at which reads within 10 % are no accident.
const SIMILAR: f64 = 0.15;
/// Part of the writes that remains on disks that report sectors of 512 bytes and work in 4096: they lose 30 to 60 %.
const HALF_WRITES: std::ops::RangeInclusive<f64> = 0.35..=0.72;
/// Families whose disks report physical sectors of 512 bytes and work in 4096, according to AWS's documentation.
const MISREPORTING: [&str; 4] = ["i4i", "i7i", "i8g", "i8ge"];
/// The sectors in which those disks work.
const TRUE_BLOCK_BYTES: u64 = 4_096;

struct Reference {
    instance: &'static Instance,
    /// The reference in words, such as "all its disks" or "one of its 4 disks".
    what: String,
    figures: Figures,
}

pub(super) fn check(subject: &Subject<'_>, beside: Beside, findings: &mut Vec<Finding>) {
    let named = match beside {
        Beside::Instance(instance) => Some(instance),
        Beside::Nearest => None,
        Beside::Nothing => return,
    };
    let candidates = named.map_or(instances(), std::slice::from_ref);
    let references: Vec<Reference> = candidates.iter().flat_map(references_of).collect();

    if let Some(finding) = multiplied_twice(subject, named.is_some(), candidates, &references) {
        findings.push(finding);
        return;
    }

    let relatives = references.iter().filter(|reference| named.is_some() || is_relative(subject, reference));
    let mut relatives: Vec<Relative<'_>> = relatives.map(|reference| relative(subject, reference)).collect();
    relatives.sort_by(|a, b| b.agreeing.cmp(&a.agreeing).then(a.mean_distance.total_cmp(&b.mean_distance)));
    let Some(nearest) = relatives.first() else { return };

    let is_near = |relative: &Relative<'_>| relative.mean_distance <= nearest.mean_distance + AS_NEAR;
    if relatives.iter().any(|relative| relative.outliers.is_empty() && (named.is_some() || is_near(relative))) {
        return;
    }
    findings.extend(nearest.outliers.iter().map(|index| outlier_finding(subject, nearest.reference, *index)));
}

struct Relative<'a> {
    reference: &'a Reference,
    /// Number of figures within [`SAME_FIGURE`].
    agreeing: usize,
    mean_distance: f64,
    outliers: Vec<usize>,
}

fn relative<'a>(subject: &Subject<'_>, reference: &'a Reference) -> Relative<'a> {
    let distances = distances(&subject.figures, &reference.figures);
    let agreeing: Vec<f64> = distances.into_iter().filter(|distance| *distance <= SAME_FIGURE).collect();
    Relative {
        reference,
        agreeing: agreeing.len(),
        mean_distance: agreeing.iter().sum::<f64>() / agreeing.len().max(1) as f64,
        outliers: outliers(subject, reference),
    }
}

fn references_of(instance: &'static Instance) -> Vec<Reference> {
    let disks = instance.n_disks.unwrap_or(1);
    let (total, per_disk) = trusted(instance);
    let what = match instance.n_disks {
        Some(1) => "its one disk".to_owned(),
        Some(n_disks) => format!("all its {n_disks} disks"),
        None => "all its disks".to_owned(),
    };
    let mut references = vec![Reference { instance, what, figures: total }];
    if let Some(figures) = per_disk.filter(|_| disks > 1) {
        references.push(Reference { instance, what: format!("one of its {disks} disks"), figures });
    }
    references
}

/// Returns the figures of all disks and of one; if the row is suspect, with the write operations of its sisters.
fn trusted(instance: &'static Instance) -> (Figures, Option<Figures>) {
    let (total, per_disk) = (instance.total(), instance.per_disk());
    let (Some(disk), Some(n_disks), Some(_)) = (per_disk, instance.n_disks, instance.suspect) else {
        return (total, per_disk);
    };
    let has_same_disk = |figures: &Figures| {
        distance(figures.write_bandwidth_bytes_per_s, disk.write_bandwidth_bytes_per_s) <= SAME_FIGURE
    };

    let sisters = crate::presets::family(instance.name).into_iter().filter(|sister| sister.suspect.is_none());
    let sisters = sisters.filter_map(Instance::per_disk).filter(has_same_disk);
    let mut write_iops: Vec<u64> = sisters.map(|figures| figures.write_iops).collect();
    write_iops.sort_unstable();
    let write_iops = write_iops.get(write_iops.len() / 2).copied().unwrap_or(disk.write_iops);

    let total = Figures { write_iops: write_iops.saturating_mul(u64::from(n_disks)), ..total };
    (total, Some(Figures { write_iops, ..disk }))
}

fn distances(figures: &Figures, reference: &Figures) -> [f64; 4] {
    let ([a, b, c, d], [e, f, g, h]) = (figures.in_order(), reference.in_order());
    [distance(a, e), distance(b, f), distance(c, g), distance(d, h)]
}

fn is_relative(subject: &Subject<'_>, reference: &Reference) -> bool {
    let distances = distances(&subject.figures, &reference.figures);
    let [read_iops, read_bytes, write_iops, write_bytes] = distances;
    let reads = read_iops.max(read_bytes);
    let has_similar_write = write_iops.min(write_bytes) <= SIMILAR;
    let close = distances.iter().filter(|distance| **distance <= CLOSE).count();
    (reads <= SAME_FIGURE && has_similar_write) || close >= 3
}

/// Returns the indices of the figures that are too far from those of `reference`.
fn outliers(subject: &Subject<'_>, reference: &Reference) -> Vec<usize> {
    let distances = distances(&subject.figures, &reference.figures);
    let outlier = |(index, distance): (usize, f64)| {
        let is_half_write = index == WRITE_IOPS && loses_half_its_writes(subject, reference);
        (distance > OUTLIER - 1.0 || is_half_write).then_some(index)
    };
    distances.into_iter().enumerate().filter_map(outlier).collect()
}

/// Index of `write_iops` in [`FIGURE_KEYS`].
const WRITE_IOPS: usize = 2;

fn loses_half_its_writes(subject: &Subject<'_>, reference: &Reference) -> bool {
    let family = reference.instance.family();
    let part = subject.figures.write_iops as f64 / reference.figures.write_iops.max(1) as f64;
    let is_set = subject.disk.properties.physical_block_bytes.is_some_and(|bytes| bytes >= TRUE_BLOCK_BYTES);
    // If the bandwidth is wrong too, it is another disk.
    let bandwidth = subject.figures.write_bandwidth_bytes_per_s;
    let is_same_disk = distance(bandwidth, reference.figures.write_bandwidth_bytes_per_s) <= SIMILAR;
    MISREPORTING.contains(&family.as_str()) && HALF_WRITES.contains(&part) && is_same_disk && !is_set
}

fn outlier_finding(subject: &Subject<'_>, reference: &Reference, index: usize) -> Finding {
    let key = FIGURE_KEYS.get(index).copied().unwrap_or("");
    let figure = subject.figures.in_order().get(index).copied().unwrap_or(0);
    let expected = reference.figures.in_order().get(index).copied().unwrap_or(0);
    let Reference { instance, what, .. } = reference;
    let of_sisters = if instance.suspect.is_some() { " by its sister sizes" } else { "" };
    let message = format!(
        "{} is {:.2} times the {} of {} ({what}{of_sisters})",
        format_count(figure),
        figure as f64 / expected.max(1) as f64,
        format_count(expected),
        instance.name
    );

    if index == WRITE_IOPS && loses_half_its_writes(subject, reference) {
        let message = format!(
            "{message}, whose disks report sectors of 512 bytes and work in {TRUE_BLOCK_BYTES}: smaller writes cost \
             them a read"
        );
        let remedy = format!(
            "measure write operations with blocks of {TRUE_BLOCK_BYTES} bytes, and set `physical_block_size: \
             {TRUE_BLOCK_BYTES}`"
        );
        return subject.finding(FindingCode::WriteBlockSize, key, message, remedy);
    }

    let code = if index < WRITE_IOPS { FindingCode::ReadOutlier } else { FindingCode::WriteOutlier };
    let remedy = format!(
        "measure again, or take {expected}; if this is another machine, say `--instance NAME`, or `--instance none`"
    );
    subject.finding(code, key, message, remedy)
}

/// Finds figures that are an instance's total times its number of disks, and not nearer to another instance.
fn multiplied_twice(
    subject: &Subject<'_>,
    is_named: bool,
    candidates: &'static [Instance],
    references: &[Reference],
) -> Option<Finding> {
    let farthest = |figures: &Figures| distances(&subject.figures, figures).into_iter().fold(0.0, f64::max);
    let plain = references.iter().map(|reference| farthest(&reference.figures)).fold(f64::INFINITY, f64::min);
    let multiplied = candidates.iter().filter_map(|instance| {
        let n_disks = instance.n_disks.filter(|n_disks| *n_disks > 1)?;
        Some((farthest(&instance.total().times(n_disks)), instance, n_disks))
    });
    let (nearest, instance, n_disks) = multiplied.min_by(|a, b| a.0.total_cmp(&b.0))?;

    let is_clear = plain > 3.0 * SAME_FIGURE || is_named;
    let allowed = if is_clear { SAME_FIGURE } else { ARITHMETIC };
    if nearest > allowed || nearest >= plain {
        return None;
    }

    let total = instance.total();
    let message = format!(
        "{} reads/s and {} B/s are {n_disks} times the {} and {} of all {n_disks} disks of {} together",
        format_count(subject.figures.read_iops),
        format_count(subject.figures.read_bandwidth_bytes_per_s),
        format_count(total.read_iops),
        format_count(total.read_bandwidth_bytes_per_s),
        instance.name
    );
    let remedy = format!(
        "divide all four figures by {n_disks}: read_iops {}, read_bandwidth {}, write_iops {}, write_bandwidth {}",
        total.read_iops, total.read_bandwidth_bytes_per_s, total.write_iops, total.write_bandwidth_bytes_per_s
    );
    Some(subject.finding(FindingCode::MultipliedTwice, "read_iops", message, remedy))
}

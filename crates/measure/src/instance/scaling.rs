//! Judges how the figures of a family of machines scale with size: advertised against measured.
//!
//! **Why.** A larger machine should reach more. If it does not, the shape of the figure points to the cause: a figure
//! that grows but stays low (requests of the wrong size, a disk slower than stated) is another fault than a constant
//! figure (a limit before the disks). The two were once debugged as one.
//!
//! **How.** A [`Family`] is a list of [`Size`]s, from the table of presets, a CSV or cards. [`report`] orders the sizes
//! by their vCPUs, and finds the [`Shape`] of each of the four figures over them:
//!
//! - A measured figure *departs* if it is below 90 % of the advertised one: two runs on the same kind of disk differ by
//!   some per cent, so 10 % ([`SAME_FIGURE`]) are evidence.
//! - It *plateaus* if the figures of the last sizes (two or more) are within 10 % of each other, while the advertised
//!   figure (or, without one, the number of vCPUs) grows by a quarter or more over them, and the last one departs or
//!   has no advertised figure. One size is enough if it departs at a power of two of bytes per second.
//! - It *scales but low* if it departs at the largest size, does not plateau, and exceeds that of the smallest size by
//!   more than 10 %; if it does not, it is *low without growth*.
//!
//! For a plateau, known causes are tried (`scaling/cause.rs`): a power of two, the same disks, one submitting thread,
//! reads and writes with the same limit.
//!
//! **Limits.** A size is known only by its name or its number of vCPUs. A cause that fits is a hint, not a proof.
//! Without an advertised figure only plateaus are found.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::scaling::{self, Shape};
//! let text = "\
//! instance,read_bytes_per_s,advertised_read_bytes_per_s
//! i7i.4xlarge,4200000000,4300000000
//! i7i.12xlarge,8500000000,9600000000
//! i7i.48xlarge,8500000000,40000000000
//! ";
//! let report = scaling::report(scaling::parse_csv("family.csv", text)?);
//! let figure = &report.families[0].figures[0];
//! assert_eq!(figure.shape, Shape::Plateaus);
//! assert!(figure.sentence.contains("2^33"));
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

mod cause;
mod csv;
mod gather;
mod names;
mod output;
mod shape;

use plimsoll_files::variant_name;
use serde::Serialize;

pub use csv::parse as parse_csv;
pub use gather::{ScalingError, families};
pub use output::{page, pictures, to_csv};

pub use plimsoll_files::presets::SAME_FIGURE;

/// The four figures: key on a card, and name.
pub const FIGURES: [(&str, &str); 4] = [
    ("disk.read_iops", "read IOPS"),
    ("disk.read_bytes_per_s", "read bandwidth"),
    ("disk.write_iops", "write IOPS"),
    ("disk.write_bytes_per_s", "write bandwidth"),
];

/// Returns whether a figure of [`FIGURES`] is operations per second; the others are bytes per second.
pub(crate) fn is_iops(figure: usize) -> bool {
    matches!(figure, 0 | 2)
}

/// One size of a family. Figures are in the order of [`FIGURES`], operations and bytes per second, above 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Size {
    pub name: String,
    /// The size in vCPUs, above 0.
    pub vcpus: f64,
    pub n_disks: Option<u32>,
    pub measured: [Option<f64>; 4],
    /// The figures advertised or expected, and the basis of each.
    pub advertised: [Option<(f64, AdvertisedKind)>; 4],
    /// Figures that another program measured.
    pub reference: [Option<f64>; 4],
    /// CPU time of a 4 KiB read in nanoseconds, if it was measured.
    pub submission_ns: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AdvertisedKind {
    #[default]
    Stated,
    /// The figure was inferred from measured figures of small sizes, so their agreement proves nothing.
    Inferred,
    /// Nothing is advertised; the figure was expected, for instance from an older preset.
    Expected,
}

impl AdvertisedKind {
    /// Returns the word that replaces `advertised` in a sentence.
    pub(crate) fn as_word(self) -> &'static str {
        match self {
            AdvertisedKind::Stated => "advertised",
            AdvertisedKind::Inferred => "advertised (inferred)",
            AdvertisedKind::Expected => "expected",
        }
    }

    /// Returns the mark behind a figure in a column `advertised`.
    fn mark(self) -> &'static str {
        match self {
            AdvertisedKind::Stated => "",
            AdvertisedKind::Inferred => " (inferred)",
            AdvertisedKind::Expected => " (expected)",
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Family {
    pub name: String,
    pub source: String,
    pub sizes: Vec<Size>,
}

/// Families that were read, and warnings about them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    /// The families, each with at least two sizes that have measured figures.
    pub families: Vec<Family>,
    /// Names left out, and suspicious figures.
    pub warnings: Vec<String>,
}

impl Input {
    fn add(&mut self, family: String, source: &str, size: Size) {
        match self.families.iter_mut().find(|known| known.name == family) {
            Some(known) => known.sizes.push(size),
            None => self.families.push(Family { name: family, source: source.to_owned(), sizes: vec![size] }),
        }
    }

    fn without_single_sizes(&mut self) -> Vec<String> {
        let alone = self.families.extract_if(.., |family| family.sizes.len() < 2);
        alone.map(|family| family.name).collect()
    }
}

/// How a figure changes with size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// No size is below 90 % of the advertised figure.
    AsAdvertised,
    /// Some sizes are below 90 % of it, but not the largest that has an advertised figure.
    LowAtSomeSizes,
    /// The figure grows, and the largest size with an advertised figure is below 90 % of it.
    ScalesButLow,
    /// The figure does not grow from the smallest size to the largest, which is below 90 % of the advertised one. It is
    /// no plateau: the advertised figure is as flat, or the measured one falls.
    LowWithoutGrowth,
    /// The figure is constant while the size grows.
    Plateaus,
    /// The figure does not plateau, and nothing is advertised for any size.
    Grows,
}

impl Shape {
    pub fn as_words(self) -> String {
        variant_name(self).replace('_', " ")
    }

    pub fn is_finding(self) -> bool {
        matches!(self, Shape::LowAtSomeSizes | Shape::ScalesButLow | Shape::LowWithoutGrowth | Shape::Plateaus)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScalePoint {
    pub instance: String,
    pub vcpus: f64,
    /// The measured figure, in operations or bytes per second.
    pub measured: f64,
    /// The advertised figure, in the same unit.
    pub advertised: Option<f64>,
    /// The basis of the advertised figure, if there is one.
    pub advertised_kind: Option<AdvertisedKind>,
    /// The measured figure less the advertised one, in per cent of the advertised one.
    pub difference_pct: Option<f64>,
    /// Whether the difference is below -10 %.
    pub departs: bool,
    /// The figure that another program measured, in the same unit.
    pub reference: Option<f64>,
    /// The measured figure less the reference, in per cent of the reference.
    pub reference_difference_pct: Option<f64>,
}

/// The sizes over which a figure is constant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plateau {
    /// The mean of these sizes, in operations or bytes per second.
    pub value: f64,
    pub from: String,
    pub sizes: usize,
    /// Known causes that fit, as sentences; empty if none does.
    pub causes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureReport {
    /// The key on a card: `disk.read_iops`.
    pub key: &'static str,
    pub title: &'static str,
    pub shape: Shape,
    /// The first instance from which on every size with an advertised figure departs.
    pub departs_from: Option<String>,
    pub plateau: Option<Plateau>,
    pub sentence: String,
    /// The sizes that have the figure, from the smallest.
    pub points: Vec<ScalePoint>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FamilyReport {
    pub family: String,
    pub source: String,
    /// The figures that at least two sizes have, in the order of [`FIGURES`].
    pub figures: Vec<FigureReport>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScalingReport {
    pub schema: u32,
    pub plimsoll: &'static str,
    pub families: Vec<FamilyReport>,
    /// Names left out, and suspicious figures.
    pub warnings: Vec<String>,
}

impl ScalingReport {
    /// Returns whether any figure departs or plateaus.
    pub fn has_finding(&self) -> bool {
        self.families.iter().flat_map(|family| &family.figures).any(|figure| figure.shape.is_finding())
    }
}

/// Judges every figure of every family.
pub fn report(input: Input) -> ScalingReport {
    let families = input.families.into_iter().map(|mut family| {
        family.sizes.sort_by(|a, b| a.vcpus.total_cmp(&b.vcpus).then_with(|| a.name.cmp(&b.name)));
        let figures = (0..FIGURES.len()).filter_map(|figure| shape::judge(&family.sizes, figure)).collect();
        FamilyReport { family: family.name, source: family.source, figures }
    });
    ScalingReport {
        schema: 1,
        plimsoll: env!("CARGO_PKG_VERSION"),
        families: families.collect(),
        warnings: input.warnings,
    }
}

/// Prints a figure of [`FIGURES`] for people.
pub fn format_figure(figure: usize, value: f64) -> String {
    if is_iops(figure) {
        plimsoll_figures::units::format_iops(value)
    } else {
        plimsoll_figures::units::format_throughput_decimal(value)
    }
}

#[cfg(test)]
mod tests;

//! What a family of machines makes of its sizes: advertised against measured, and how the two part.
//!
//! **Why.** A larger machine should carry more. Where it does not, the way in which it does not tells where to look: a
//! figure that grows but stays below (requests of the wrong size, a disk that is slower than it is said to be) is
//! another fault than one that stands still (a limit before the disks). The two were once hunted as one.
//!
//! **How.** A [`Family`] is a list of [`Size`]s, from the table of presets, a CSV or cards. [`report`] takes each of the
//! four figures over the sizes, in the order of their vCPUs, and gives it a [`Shape`]:
//!
//! - A measured figure *departs* if it is below 90 % of the advertised one: two runs on the same kind of disk differ by
//!   some per cent, so that 10 % ([`SAME_FIGURE`]) say something.
//! - It *plateaus* if the figures of the last sizes (two or more) are within 10 % of each other, while what is
//!   advertised (or, where nothing is, the number of vCPUs) grows by a quarter or more over them, and the last one
//!   departs. One size is enough where it departs at a power of two of bytes per second.
//! - It *scales but low* if it departs at the largest size, does not plateau, and is more than 10 % above that of the
//!   smallest size there; if not, it is *low without growth*.
//!
//! For a plateau, known causes are tried (`scaling/cause.rs`): a power of two, the same disks, one submitting thread,
//! reads and writes that stop at the same rate.
//!
//! **Limits.** Nothing says what a size is but its name or its number of vCPUs. A cause that fits is a place to look at,
//! not a proof. Without an advertised figure only plateaus are found.
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

use serde::Serialize;

pub use csv::parse as parse_csv;
pub use gather::{ScalingError, families};
pub use output::{page, pictures, to_csv};

pub use plimsoll_files::presets::SAME_FIGURE;

/// The four figures: key of a card, and name.
pub const FIGURES: [(&str, &str); 4] = [
    ("disk.read_iops", "read IOPS"),
    ("disk.read_bytes_per_s", "read bandwidth"),
    ("disk.write_iops", "write IOPS"),
    ("disk.write_bytes_per_s", "write bandwidth"),
];

/// Which of [`FIGURES`] are operations per second; the others are bytes per second.
#[must_use]
pub(crate) fn is_iops(figure: usize) -> bool {
    matches!(figure, 0 | 2)
}

/// One size of a family. Figures are in the order of [`FIGURES`], operations and bytes per second, above 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Size {
    /// Name of the instance.
    pub name: String,
    /// How large it is, in vCPUs, above 0.
    pub vcpus: f64,
    /// How many local disks it has.
    pub n_disks: Option<u32>,
    /// What was measured.
    pub measured: [Option<f64>; 4],
    /// What is advertised or was expected.
    pub advertised: [Option<f64>; 4],
    /// Which of the two each of them is; of no meaning where there is none.
    pub advertised_kind: [AdvertisedKind; 4],
    /// CPU time that a 4 KiB read takes where it was measured, in nanoseconds.
    pub submission_ns: Option<f64>,
}

/// What an advertised figure rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AdvertisedKind {
    /// The provider states it.
    #[default]
    Stated,
    /// It was inferred from measured figures of small sizes: that these agree with it says nothing.
    Inferred,
    /// Nothing is advertised; somebody expected it, from an older preset for instance.
    Expected,
}

impl AdvertisedKind {
    /// In a sentence, where `advertised` would stand.
    #[must_use]
    pub(crate) fn as_word(self) -> &'static str {
        match self {
            AdvertisedKind::Stated => "advertised",
            AdvertisedKind::Inferred => "advertised (inferred)",
            AdvertisedKind::Expected => "expected",
        }
    }

    /// Behind a figure in a column `advertised`.
    fn mark(self) -> &'static str {
        match self {
            AdvertisedKind::Stated => "",
            AdvertisedKind::Inferred => " (inferred)",
            AdvertisedKind::Expected => " (expected)",
        }
    }
}

/// Sizes to compare.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Family {
    /// What they have in common: `i7i`.
    pub name: String,
    /// Where the figures come from.
    pub source: String,
    /// In any order.
    pub sizes: Vec<Size>,
}

/// Families that were read, and what a reader should know of how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    /// At least two sizes with measured figures each.
    pub families: Vec<Family>,
    /// What was left out, and what is suspicious.
    pub warnings: Vec<String>,
}

/// How a figure goes with size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// No size is below 90 % of what is advertised.
    AsAdvertised,
    /// Some are, the largest with an advertised figure is not.
    LowAtSomeSizes,
    /// It grows, and the largest size with an advertised figure is below 90 % of what is advertised.
    ScalesButLow,
    /// It does not grow from the smallest size to the largest, which is below 90 % of what is advertised, and is no
    /// plateau: what is advertised is as flat, or the figure falls.
    LowWithoutGrowth,
    /// It stands still while size grows.
    Plateaus,
    /// It grows; nothing is advertised for any size.
    Grows,
}

impl Shape {
    /// In words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Shape::AsAdvertised => "as advertised",
            Shape::LowAtSomeSizes => "low at some sizes",
            Shape::ScalesButLow => "scales but low",
            Shape::LowWithoutGrowth => "low without growth",
            Shape::Plateaus => "plateaus",
            Shape::Grows => "grows",
        }
    }

    /// Whether this is what somebody should look into.
    #[must_use]
    pub fn is_finding(self) -> bool {
        matches!(self, Shape::LowAtSomeSizes | Shape::ScalesButLow | Shape::LowWithoutGrowth | Shape::Plateaus)
    }
}

/// A figure at one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScalePoint {
    /// Name of the instance.
    pub instance: String,
    /// Its size.
    pub vcpus: f64,
    /// Operations or bytes per second.
    pub measured: f64,
    /// The same.
    pub advertised: Option<f64>,
    /// What that rests on; `None` where there is none.
    pub advertised_kind: Option<AdvertisedKind>,
    /// How much more was measured than is advertised, in per cent of the latter.
    pub difference_pct: Option<f64>,
    /// Whether that is below -10.
    pub departs: bool,
}

/// Where a figure stands still.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plateau {
    /// The mean of the sizes on it, operations or bytes per second.
    pub value: f64,
    /// The first instance on it.
    pub from: String,
    /// How many sizes are on it.
    pub sizes: usize,
    /// Known causes that fit, as sentences; empty if none does.
    pub causes: Vec<String>,
}

/// One figure over the sizes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FigureReport {
    /// Key of a card: `disk.read_iops`.
    pub key: &'static str,
    /// For people.
    pub title: &'static str,
    /// How it goes with size.
    pub shape: Shape,
    /// The first instance from which on every size departs.
    pub departs_from: Option<String>,
    /// Where it stands still.
    pub plateau: Option<Plateau>,
    /// All of it in words.
    pub sentence: String,
    /// By rising size.
    pub points: Vec<ScalePoint>,
}

/// One family.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FamilyReport {
    /// What the sizes have in common.
    pub family: String,
    /// Where the figures come from.
    pub source: String,
    /// Those that at least two sizes have, in the order of [`FIGURES`].
    pub figures: Vec<FigureReport>,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScalingReport {
    /// Version of this form.
    pub schema: u32,
    /// Version of the program.
    pub plimsoll: &'static str,
    /// In the order they were given.
    pub families: Vec<FamilyReport>,
    /// What was left out, and what is suspicious.
    pub warnings: Vec<String>,
}

impl ScalingReport {
    /// Whether any figure departs or plateaus.
    #[must_use]
    pub fn has_finding(&self) -> bool {
        self.families.iter().flat_map(|family| &family.figures).any(|figure| figure.shape.is_finding())
    }
}

/// Judges every figure of every family.
#[must_use]
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

/// A figure of [`FIGURES`] for people.
#[must_use]
pub fn format_figure(figure: usize, value: f64) -> String {
    if is_iops(figure) {
        plimsoll_figures::units::format_iops(value)
    } else {
        plimsoll_figures::units::format_throughput_decimal(value)
    }
}

#[cfg(test)]
mod tests;

//! Computes claims about machines again: exact, within rounding, or wrong, and by which slip.
//!
//! **Why.** "50 % more cores", "a 36 % decrease", "more than 5 million packets a second": articles decide purchases,
//! and such numbers are seldom checked. A wrong number is mostly the right one for something else: the other base, the
//! other direction, another unit.
//!
//! **How.** A [`Ledger`] names machines ([`Card`]s) and claims of three kinds ([`Kind`]): a difference in per cent
//! between two machines, a figure of one, a product of figures and numbers. [`check`] computes each:
//!
//! - *exact*: the computed value rounds to the stated number, or keeps the stated bound.
//! - *within rounding*: it does so if digits were cut off, if zeros at the end of the stated number are rounding, if
//!   the inputs are as rounded as they are written, or if a decimal prefix of bytes was meant binary (the TBytes of
//!   iperf). Counts, capacities and clocks are taken as exact.
//! - *wrong*: none of these. The slips of `claims/slips.rs` are then tried one at a time, and the first that gives the
//!   stated number is named. The ledger knows nothing of slips. Last, claims that no slip explains are solved for an
//!   input that they share (`claims/shared.rs`).
//!
//! The report also has tables of the machines' figures (economics, processors, storage), with differences in per cent
//! of the first machine.
//!
//! **Limits.** A slip that fits need not be what happened. Two slips at once are not found. Some slip fits a stated
//! number of one or two digits by chance: read the reason.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::claims::{self, Verdict};
//! let text = "
//! source: an article
//! date: 2019-05
//! machines: [{card: i3.16xlarge}, {card: i3.metal}, {card: i3en.24xlarge}]
//! claims:
//!   - {claim: 50 % more cores, kind: percent, figure: cpu.cores, of: i3en.24xlarge, against: i3.metal, stated: 50 %}
//! ";
//! let ledger = claims::parse("claims.yaml", text, &claims::find_published)?;
//! let report = claims::check(&ledger);
//! assert_eq!((report.wrong, report.claims[0].verdict), (1, Verdict::Wrong));
//! assert_eq!(report.claims[0].slip, Some("other-base"));
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

mod compute;
mod output;
mod quantity;
mod reader;
mod shared;
mod slips;
mod tables;

use plimsoll_files::ConfigError;
use serde::Serialize;

use crate::instance::figures::Unit;
use crate::instance::{Card, figures, published};
use compute::{Fit, Input};

pub use output::{page, to_csv};
pub use quantity::Quantity;
pub(crate) use quantity::half_digit_of;
pub use reader::{FindCard, find_published, parse, parse_from_file};
pub use tables::{Row, Table};

/// The key of a machine's price among the figures: the price of a core for a year.
pub const PRICE: &str = "price_per_core_year";

/// The claims of one source about some machines.
#[derive(Clone, Debug, PartialEq)]
pub struct Ledger {
    /// The file's name, for messages.
    pub name: String,
    /// The source of the claims.
    pub source: String,
    /// The date of the claims.
    pub date: String,
    /// The machines; the first is the base of the tables.
    pub machines: Vec<Machine>,
    /// The claims, in their order.
    pub claims: Vec<Claim>,
}

/// A machine that claims are about.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The machine's figures.
    pub card: Card,
    /// The price of a core for a year.
    pub price_per_core_year: Option<Quantity>,
}

impl Machine {
    /// Returns a figure or [`PRICE`] in base units, bits as eighths of bytes.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<f64> {
        self.input(key).map(|input| input.value)
    }

    fn input(&self, key: &str) -> Option<Input> {
        if key == PRICE {
            return self.price_per_core_year.as_ref().map(|price| Input { value: price.value, half: price.fine });
        }
        let (value, unit) = (self.card.value(key)?, figures::kind(key)?.unit);
        let half = match unit {
            Unit::Count | Unit::BytesBinary | Unit::BytesDecimal | Unit::Hz => 0.0,
            _ => quantity::half_digit_of(value),
        };
        let scale = if unit == Unit::BitsPerS { 0.125 } else { 1.0 };
        Some(Input { value: value * scale, half: half * scale })
    }
}

/// One claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The claim in words.
    pub text: String,
    /// The line in the file, from 1.
    pub line: usize,
    /// How it is computed.
    pub kind: Kind,
    /// The stated result.
    pub stated: Quantity,
    /// Whether the result is claimed to be that number, or more.
    pub bound: Bound,
}

/// How a claim is computed. Machines are places in [`Ledger::machines`].
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// The difference of a figure between two machines, in per cent of the second.
    Percent {
        /// Key of the figure.
        figure: String,
        /// The machine compared.
        of: usize,
        /// The base.
        against: usize,
    },
    /// A figure of a machine.
    Value {
        /// Key of the figure.
        figure: String,
        /// The machine.
        of: usize,
    },
    /// Figures of a machine and numbers, multiplied and divided.
    Product {
        /// The machine, if figures are among the factors.
        of: Option<usize>,
        /// The factors.
        factors: Vec<Factor>,
        /// The divisors.
        divisors: Vec<Factor>,
    },
}

impl Kind {
    /// Returns the kind's name in files.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Percent { .. } => "percent",
            Kind::Value { .. } => "value",
            Kind::Product { .. } => "product",
        }
    }
}

/// A part of a product.
#[derive(Clone, Debug, PartialEq)]
pub enum Factor {
    /// Key of a figure, or [`PRICE`].
    Figure(String),
    /// A number.
    Number(Quantity),
}

/// The direction of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The stated number.
    About,
    /// More than the stated number.
    Above,
    /// The stated number or more.
    AtLeast,
}

/// The result of checking a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The value is as stated.
    Exact,
    /// The value is as stated if rounding is allowed for.
    WithinRounding,
    /// The value is another.
    Wrong,
}

impl Verdict {
    /// Returns the verdict for tables: `exact`, `within rounding`, `WRONG`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Exact => "exact",
            Verdict::WithinRounding => "within rounding",
            Verdict::Wrong => "WRONG",
        }
    }
}

/// A claim, computed again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The claim in words.
    pub claim: String,
    /// The line in the file, from 1.
    pub line: usize,
    /// `percent`, `value` or `product`.
    pub kind: &'static str,
    /// The stated number with its bound.
    pub stated: String,
    /// The computed value, in the unit of the stated number.
    pub computed: String,
    /// The computed value as a number, in the same unit.
    pub computed_value: f64,
    /// The stated value as a number, in the same unit.
    pub stated_value: f64,
    /// The result.
    pub verdict: Verdict,
    /// The slip or reading that gives the stated number, if one was found: `swapped-base`.
    pub slip: Option<&'static str>,
    /// Why the verdict is not `exact`; empty if it is.
    pub why: String,
}

/// A ledger, computed again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimsReport {
    /// The version of this report's schema.
    pub schema: u32,
    /// The version of the program.
    pub plimsoll: &'static str,
    /// The name of the ledger's file.
    pub file: String,
    /// The source of the claims.
    pub source: String,
    /// The date of the claims.
    pub date: String,
    /// The figures of the machines.
    pub tables: Vec<Table>,
    /// The claims, in their order.
    pub claims: Vec<Checked>,
    /// The number of wrong claims.
    pub wrong: usize,
}

/// Returns the ledger that is part of the program: the claims of ScyllaDB's article on i3en.24xlarge.
///
/// # Errors
/// None in a program whose tests have passed.
pub fn built_in() -> Result<Ledger, ConfigError> {
    parse(published::LEDGER_NAME, published::LEDGER, &find_published)
}

/// Computes every claim of a ledger.
#[must_use]
pub fn check(ledger: &Ledger) -> ClaimsReport {
    let mut claims: Vec<Checked> = ledger.claims.iter().map(|claim| check_one(claim, &ledger.machines)).collect();
    shared::explain(ledger, &mut claims);
    ClaimsReport {
        schema: 1,
        plimsoll: env!("CARGO_PKG_VERSION"),
        file: ledger.name.clone(),
        source: ledger.source.clone(),
        date: ledger.date.clone(),
        tables: tables::of(&ledger.machines),
        wrong: claims.iter().filter(|checked| checked.verdict == Verdict::Wrong).count(),
        claims,
    }
}

fn check_one(claim: &Claim, machines: &[Machine]) -> Checked {
    let computed = compute::value(&claim.kind, machines);
    let (verdict, slip, why) = match compute::fit(&computed, claim) {
        Fit::Exact => (Verdict::Exact, None, String::new()),
        Fit::Rounded(why) => (Verdict::WithinRounding, None, why.to_owned()),
        Fit::No => match slips::find(claim, machines, &computed) {
            Some(slip) => {
                (if slip.is_reading { Verdict::WithinRounding } else { Verdict::Wrong }, Some(slip.name), slip.why)
            }
            None => (Verdict::Wrong, None, slips::none_found(claim, machines, &computed)),
        },
    };

    let in_unit = |value: f64| value / claim.stated.unit_scale;
    Checked {
        claim: claim.text.clone(),
        line: claim.line,
        kind: claim.kind.name(),
        stated: stated(claim),
        computed: claim.stated.write(computed.value, 1),
        computed_value: in_unit(computed.value),
        stated_value: in_unit(claim.stated.value),
        verdict,
        slip,
        why,
    }
}

/// Returns the stated number with its bound.
fn stated(claim: &Claim) -> String {
    let bound = match claim.bound {
        Bound::About => "",
        Bound::Above => "above ",
        Bound::AtLeast => "at least ",
    };
    format!("{bound}{}", claim.stated.text)
}

#[cfg(test)]
mod tests;

//! Computes claims about machines again: exact, within rounding, in binary units, or wrong, and by which known slip.
//!
//! **Why.** "50 % more cores", "a 36 % decrease", "more than 5 million packets a second": articles decide purchases,
//! and such numbers are seldom checked. A wrong number is mostly the right one for something else: the other base, the
//! other direction, another unit.
//!
//! **How.** A [`Ledger`] names machines ([`Card`]s) and claims of four kinds ([`Kind`]): a difference in per cent
//! between two machines, the share that one is of another, a figure, a product of figures and numbers. [`check`]
//! computes each:
//!
//! - *exact*: the computed value rounds to the stated number, or keeps the stated bound.
//! - *within rounding*: it does so if digits were cut off, if zeros at the end of the stated number are rounding, or if
//!   the inputs are as rounded as they are written. Counts, capacities and clocks are taken as exact.
//! - *binary prefix*: a decimal prefix, read as the binary one, gives the stated number (95.1 Gbit/s for 86.53).
//! - *wrong*: none of these.
//!
//! The ledger is also a table of known errors: a claim may have a [`Slip`], the claim that would have been right. It is
//! named only if it gives the stated number, which proves it.
//!
//! The report also has tables of the machines' figures (economics, processors, storage), with differences in per cent
//! of the first machine.
//!
//! **Limits.** A slip that gives the stated number need not be what happened; the reader of the article writes it down,
//! and it is not searched.
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
//!   - {claim: 50 % more cores, kind: percent, figure: cpu.cores, of: i3en.24xlarge, against: i3.metal, stated: 50 %,
//!      slip: {name: other-base, against: i3.16xlarge, why: that is against i3.16xlarge}}
//! ";
//! let ledger = claims::parse("claims.yaml", text, &claims::find_published)?;
//! let report = claims::check(&ledger);
//! assert_eq!((report.wrong, report.claims[0].verdict), (1, Verdict::Wrong));
//! assert_eq!(report.claims[0].slip, Some("other-base"));
//! # Ok::<(), plimsoll_files::ConfigError>(())
//! ```

mod compute;
mod quantity;
mod reader;
mod tables;

use plimsoll_files::ConfigError;
use serde::Serialize;

use crate::instance::figures::Unit;
use crate::instance::{Card, figures, published};
use compute::Input;

pub use quantity::Quantity;
pub(crate) use quantity::half_digit_of;
pub use reader::{FindCard, find_published, parse, parse_from_file};
pub use tables::{Row, Table, answer, page, to_csv};

/// The key of a machine's price among the figures: the price of a core for a year.
pub const PRICE: &str = "price_per_core_year";

#[derive(Clone, Debug, PartialEq)]
pub struct Ledger {
    /// The file's name, for messages.
    pub name: String,
    pub source: String,
    pub date: String,
    /// The machines; the first is the base of the tables.
    pub machines: Vec<Machine>,
    pub claims: Vec<Claim>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    pub card: Card,
    pub price_per_core_year: Option<Quantity>,
}

impl Machine {
    /// Returns a figure or [`PRICE`] in base units, bits as eighths of bytes.
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

/// One claim: factors divided by divisors, and what is said to come out.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub text: String,
    /// The line in the file, from 1.
    pub line: usize,
    pub kind: Kind,
    /// The factors: of a product as written, else the figure of the machine that is compared.
    pub factors: Vec<Factor>,
    /// The divisors: of a product as written, else the figure of the base, if there is one.
    pub divisors: Vec<Factor>,
    pub stated: Quantity,
    /// Whether the result is claimed to be that number, or more.
    pub bound: Bound,
    pub slip: Option<Box<Slip>>,
}

/// A known error, and its proof.
#[derive(Clone, Debug, PartialEq)]
pub struct Slip {
    /// The name of the error, of [`SLIPS`].
    pub name: &'static str,
    pub verdict: Verdict,
    pub why: String,
    /// The claim that would have been right, which proves the error.
    pub instead: Claim,
}

/// The kinds of known errors, and the verdict on a claim that has one.
pub const SLIPS: [(&str, Verdict); 8] = [
    // The difference in per cent of the wrong one of the two machines.
    ("swapped-base", Verdict::Wrong),
    // Against another machine.
    ("other-base", Verdict::Wrong),
    // "400 % more" for 400 % of.
    ("of-for-more", Verdict::Wrong),
    // Sent for received, reads for writes.
    ("sister-figure", Verdict::Wrong),
    // A digit lost or doubled.
    ("power-of-ten", Verdict::Wrong),
    // Computed from a figure that was rounded before.
    ("rounded-input", Verdict::Wrong),
    // Computed from another figure than that of the card.
    ("other-input", Verdict::Wrong),
    // TB for TiB: a reading that makes the claim right.
    ("binary-prefix", Verdict::OtherPrefix),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The difference of a figure between two machines, in per cent of the second.
    Percent,
    /// A figure of a machine, in per cent of that of another.
    Share,
    Value,
    /// Figures of a machine and numbers, multiplied and divided.
    Product,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Factor {
    Figure {
        /// The machine's place in [`Ledger::machines`].
        of: usize,
        /// Key of the figure, or [`PRICE`].
        key: String,
    },
    Number(Quantity),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    About,
    Above,
    AtLeast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Exact,
    /// The value is as stated if rounding is allowed for.
    WithinRounding,
    /// The value is as stated if a decimal prefix is read as the binary one; as written it is another.
    OtherPrefix,
    Wrong,
}

impl Verdict {
    /// Returns the verdict for tables: `exact`, `within rounding`, `binary prefix`, `WRONG`.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Exact => "exact",
            Verdict::WithinRounding => "within rounding",
            Verdict::OtherPrefix => "binary prefix",
            Verdict::Wrong => "WRONG",
        }
    }
}

/// A claim, computed again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    pub claim: String,
    pub line: usize,
    pub kind: Kind,
    pub stated: String,
    /// The computed value, in the unit of the stated number.
    pub computed: String,
    /// The computed value as a number, in the same unit.
    pub computed_value: f64,
    /// The stated value as a number, in the same unit.
    pub stated_value: f64,
    pub verdict: Verdict,
    /// The slip that gives the stated number, if the ledger names one: `swapped-base`.
    pub slip: Option<&'static str>,
    /// Why the verdict is not `exact`; empty if it is.
    pub why: String,
}

/// A ledger, computed again.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimsReport {
    pub schema: u32,
    pub plimsoll: &'static str,
    pub file: String,
    pub source: String,
    pub date: String,
    pub tables: Vec<Table>,
    pub claims: Vec<Checked>,
    pub wrong: usize,
}

/// Returns the ledger that is part of the program: the claims of ScyllaDB's article on i3en.24xlarge.
pub fn built_in() -> Result<Ledger, ConfigError> {
    parse(published::LEDGER_NAME, published::LEDGER, &find_published)
}

pub fn check(ledger: &Ledger) -> ClaimsReport {
    let claims: Vec<Checked> = ledger.claims.iter().map(|claim| check_one(claim, &ledger.machines)).collect();
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
    let computed = compute::value(claim, machines);
    let gives_the_number =
        |slip: &&Slip| compute::fit(&compute::value(&slip.instead, machines), &slip.instead).is_some();
    let slip = claim.slip.as_deref().filter(gives_the_number);
    let (verdict, slip, why) = match (compute::fit(&computed, claim), slip) {
        (Some(""), _) => (Verdict::Exact, None, ""),
        (_, Some(slip)) => (slip.verdict, Some(slip.name), slip.why.as_str()),
        (Some(rounding), None) => (Verdict::WithinRounding, None, rounding),
        (None, None) if claim.slip.is_some() => {
            (Verdict::Wrong, None, "the slip that the file names does not give the stated number either")
        }
        (None, None) => (Verdict::Wrong, None, "no known slip gives the stated number"),
    };

    Checked {
        claim: claim.text.clone(),
        line: claim.line,
        kind: claim.kind,
        stated: stated(claim),
        computed: claim.stated.write(computed.value, 1),
        computed_value: computed.value / claim.stated.unit_scale,
        stated_value: claim.stated.value / claim.stated.unit_scale,
        verdict,
        slip,
        why: why.to_owned(),
    }
}

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

//! Recomputes published claims about machines: exact, within rounding, in binary units, or wrong, and by which known
//! slip.
//!
//! **Why.** "50 % more cores", "a 36 % decrease", "more than 5 million packets a second": articles decide purchases,
//! and such numbers are seldom checked. A wrong number is often the right one for something else: another base, another
//! direction, another unit.
//!
//! **How.** `article.rs` has the claims about machines with published [`Card`]s, each with a `Formula`. [`check`]
//! computes each:
//!
//! - *exact*: the computed value rounds to the stated number, or keeps the stated bound.
//! - *within rounding*: it does so if digits were cut off, if zeros at the end of the stated number are rounding, or if
//!   the inputs are as rounded as they are written. Counts, capacities and clocks are taken as exact.
//! - *binary prefix*: a decimal prefix, read as the binary one, gives the stated number (95.1 Gbit/s for 86.53).
//! - *wrong*: none of these.
//!
//! The claims are also a table of known errors: a claim may have a `Slip`, the claim that would have been right. The
//! slip is reported only if it gives the stated number, which proves it.
//!
//! **Limits.** A slip that gives the stated number need not be the author's actual mistake. Slips are written by hand;
//! the program does not search for them.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::claims::{self, SlipKind, Verdict};
//! let report = claims::check();
//! let cores = report.claims.iter().find(|checked| checked.claim.contains("50 % more cores")).ok_or("no such claim")?;
//! assert_eq!((cores.verdict, cores.slip), (Verdict::Wrong, Some(SlipKind::OtherBase)));
//! # Ok::<(), &str>(())
//! ```

mod article;
mod compute;
mod output;
mod quantity;

use serde::Serialize;

use crate::instance::figures::Unit;
use crate::instance::{Card, figures, published};
use compute::Input;
use quantity::Quantity;

pub use output::{answer, page, to_csv};
pub(crate) use quantity::half_digit_of;

/// The key of a machine's price among the figures: the price of a core for a year.
const PRICE: &str = "price_per_core_year";

/// A published machine.
struct Machine {
    card: Card,
    price_per_core_year: Quantity,
}

impl Machine {
    fn all() -> Vec<Machine> {
        let machine = |(name, price): (&str, &'static str)| {
            Some(Machine { card: published::find(name)?, price_per_core_year: Quantity::parse(price)? })
        };
        article::MACHINES.into_iter().filter_map(machine).collect()
    }

    /// Returns a figure or [`PRICE`] in base units, bits as eighths of bytes, with its rounding.
    fn input(&self, key: &str) -> Option<Input> {
        if key == PRICE {
            return Some(Input { value: self.price_per_core_year.value, half: self.price_per_core_year.fine });
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

/// One claim: the formula of the number, and the stated result.
struct Claim {
    text: &'static str,
    formula: Formula,
    stated: &'static str,
    bound: Bound,
    slip: Option<Slip>,
}

impl Claim {
    fn new(text: &'static str, formula: Formula, stated: &'static str) -> Claim {
        Claim { text, formula, stated, bound: Bound::About, slip: None }
    }

    fn above(self) -> Claim {
        Claim { bound: Bound::Above, ..self }
    }

    fn at_least(self) -> Claim {
        Claim { bound: Bound::AtLeast, ..self }
    }

    /// Adds the known error: `instead` gives the stated number.
    fn slip(self, kind: SlipKind, instead: Formula, why: &'static str) -> Claim {
        let stated = self.stated;
        self.slip_stated(kind, instead, stated, why)
    }

    /// Adds the known error: `instead` gives `stated`, which is the number with another sign.
    fn slip_stated(self, kind: SlipKind, instead: Formula, stated: &'static str, why: &'static str) -> Claim {
        Claim { slip: Some(Slip { kind, instead, stated, why }), ..self }
    }
}

/// A known error, and its proof.
struct Slip {
    kind: SlipKind,
    /// The formula that would have been right, which proves the error.
    instead: Formula,
    stated: &'static str,
    why: &'static str,
}

/// The kinds of known errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlipKind {
    /// The difference is in per cent of the wrong one of the two machines.
    SwappedBase,
    /// The difference is to another machine.
    OtherBase,
    /// "400 % more" instead of "400 % of".
    OfForMore,
    /// A digit is lost or doubled.
    PowerOfTen,
    /// The number was computed from a figure that was already rounded.
    RoundedInput,
    /// The number was computed from another figure than the card's.
    OtherInput,
    /// TB stands for TiB; read so, the claim is right.
    BinaryPrefix,
}

/// How a claimed number is computed; `of` and `against` are names of machines.
enum Formula {
    /// The difference of a figure between two machines, in per cent of the second.
    Percent {
        figure: &'static str,
        of: &'static str,
        against: &'static str,
    },
    /// A figure of a machine, in per cent of that of another.
    Share {
        figure: &'static str,
        of: &'static str,
        against: &'static str,
    },
    Value {
        figure: &'static str,
        of: &'static str,
    },
    /// Figures and numbers, multiplied and divided.
    Product {
        factors: Vec<Factor>,
        divisors: Vec<Factor>,
    },
}

impl Formula {
    fn product(factors: impl Into<Vec<Factor>>, divisors: impl Into<Vec<Factor>>) -> Formula {
        Formula::Product { factors: factors.into(), divisors: divisors.into() }
    }

    fn kind(&self) -> &'static str {
        match self {
            Formula::Percent { .. } => "percent",
            Formula::Share { .. } => "share",
            Formula::Value { .. } => "value",
            Formula::Product { .. } => "product",
        }
    }
}

#[derive(Clone, Copy)]
enum Factor {
    /// A figure of a machine, by the machine's name and the figure's key.
    Figure(&'static str, &'static str),
    Number(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    About,
    Above,
    AtLeast,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Exact,
    /// The value is as stated if rounding is allowed.
    WithinRounding,
    /// The value is as stated if a decimal prefix is read as the binary one, and another as written.
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

/// A recomputed claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    pub claim: &'static str,
    pub kind: &'static str,
    pub stated: String,
    /// The computed value, in the unit of the stated number.
    pub computed: String,
    /// The computed value as a number, in the same unit.
    pub computed_value: f64,
    /// The stated value as a number, in the same unit.
    pub stated_value: f64,
    pub verdict: Verdict,
    /// The slip that gives the stated number, if one is known.
    pub slip: Option<SlipKind>,
    /// Why the verdict is not `exact`; empty if it is.
    pub why: &'static str,
}

/// All claims, recomputed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimsReport {
    pub schema: u32,
    pub plimsoll: &'static str,
    pub source: &'static str,
    pub date: &'static str,
    pub claims: Vec<Checked>,
    pub wrong: usize,
}

/// Recomputes all claims.
pub fn check() -> ClaimsReport {
    let machines = Machine::all();
    let claims: Vec<Checked> = article::claims().iter().filter_map(|claim| check_one(claim, &machines)).collect();
    ClaimsReport {
        schema: 3,
        plimsoll: env!("CARGO_PKG_VERSION"),
        source: article::SOURCE,
        date: article::DATE,
        wrong: claims.iter().filter(|checked| checked.verdict == Verdict::Wrong).count(),
        claims,
    }
}

/// Recomputes a claim; `None` if its machine, figure or unit is unknown, which a test excludes.
fn check_one(claim: &Claim, machines: &[Machine]) -> Option<Checked> {
    let computed = compute::value(&claim.formula, machines)?;
    let stated = Quantity::parse(claim.stated)?;
    let gives_the_number = |slip: &&Slip| {
        let instead = compute::value(&slip.instead, machines).zip(Quantity::parse(slip.stated));
        instead.is_some_and(|(value, stated)| compute::fit(&value, &stated, claim.bound).is_some())
    };

    let slip = claim.slip.as_ref().filter(gives_the_number);
    let (verdict, slip, why) = match (compute::fit(&computed, &stated, claim.bound), slip) {
        (Some(""), _) => (Verdict::Exact, None, ""),
        (_, Some(slip)) if slip.kind == SlipKind::BinaryPrefix => (Verdict::OtherPrefix, Some(slip.kind), slip.why),
        (_, Some(slip)) => (Verdict::Wrong, Some(slip.kind), slip.why),
        (Some(rounding), None) => (Verdict::WithinRounding, None, rounding),
        (None, None) => (Verdict::Wrong, None, "no known slip gives the stated number"),
    };

    let bound = match claim.bound {
        Bound::About => "",
        Bound::Above => "above ",
        Bound::AtLeast => "at least ",
    };
    Some(Checked {
        claim: claim.text,
        kind: claim.formula.kind(),
        stated: format!("{bound}{}", claim.stated),
        computed: stated.write(computed.value, 1),
        computed_value: computed.value / stated.unit_scale,
        stated_value: stated.value / stated.unit_scale,
        verdict,
        slip,
        why,
    })
}

#[cfg(test)]
mod tests;

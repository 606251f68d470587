//! Claims of a published comparison of machines beside what its own figures give: exact, within rounding, in binary
//! units, or wrong, and by which known error.
//!
//! **Why.** "50 % more cores", "a 36 % decrease", "more than 5 million packets a second": articles decide purchases,
//! and such numbers are seldom checked. A wrong number is often the right one for something else: another base, another
//! direction, another unit.
//!
//! **How.** `published/claims.json` is a table of the claims of ScyllaDB's article on i3en.24xlarge of May 2019, in its
//! order. Each number is computed from the [`super::published`] cards and the article's prices; a test computes all of
//! them again, and also the number that each known error gives, which must be the stated one. Verdicts:
//!
//! - *exact*: the computed value rounds to the stated number, or keeps the stated bound.
//! - *within rounding*: it does so if digits were cut off, or if the inputs are as rounded as they are written.
//! - *binary prefix*: a decimal prefix, read as the binary one, gives the stated number (95.1 Gbit/s for 86.53).
//! - *wrong*: none of these.
//!
//! **Limits.** The table is written by hand. An error that gives the stated number need not be the author's.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::claims::{self, SlipKind, Verdict};
//! let report = claims::report();
//! let cores = report.claims.iter().find(|claim| claim.text.contains("50 % more cores")).ok_or("no such claim")?;
//! assert_eq!((cores.verdict, cores.slip), (Verdict::Wrong, Some(SlipKind::OtherBase)));
//! # Ok::<(), &str>(())
//! ```

mod output;

use serde::{Deserialize, Serialize};

pub use output::{answer, page, to_csv};

/// The kinds of known errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    #[serde(rename = "claim")]
    pub text: String,
    /// How the number is computed: `percent`, `share`, `value` or `product`.
    pub kind: String,
    pub stated: String,
    /// The computed value, in the unit of the stated number.
    pub computed: String,
    /// The computed value as a number, in the same unit.
    pub computed_value: f64,
    /// The stated value as a number, in the same unit.
    pub stated_value: f64,
    pub verdict: Verdict,
    /// The known error that gives the stated number.
    pub slip: Option<SlipKind>,
    /// Why the verdict is not `exact`; empty if it is.
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimsReport {
    pub schema: u32,
    pub plimsoll: &'static str,
    pub source: &'static str,
    pub date: &'static str,
    pub claims: Vec<Claim>,
    pub wrong: usize,
}

/// Returns all claims, in the order of the article.
pub fn report() -> ClaimsReport {
    let claims: Vec<Claim> = serde_json::from_str(include_str!("published/claims.json")).unwrap_or_default();
    ClaimsReport {
        schema: 3,
        plimsoll: env!("CARGO_PKG_VERSION"),
        source: "ScyllaDB blog, AWS new I3en Meganode",
        date: "2019-05",
        wrong: claims.iter().filter(|claim| claim.verdict == Verdict::Wrong).count(),
        claims,
    }
}

#[cfg(test)]
mod tests;

//! Tries known slips on a wrong claim until one gives the stated number.
//!
//! **Why.** "Wrong" ends a discussion; "you divided by the other one" helps.
//!
//! **How.** Each slip computes the claim as an author who made it would. [`find`] tries them from the most to the least
//! specific and returns the first whose result fits ([`compute::fit`]):
//!
//! | slip | what was done |
//! |---|---|
//! | `swapped-base` | the difference in per cent of the wrong one of the two machines |
//! | `other-base` | against another machine of the ledger |
//! | `of-for-more` | "400 % more" for 400 % of |
//! | `wrong-sign` | more for less, or less for more |
//! | `sister-figure` | sent for received, reads for writes |
//! | `other-machine` | the figure of another machine |
//! | `binary-prefix` | kB, MB, GB, TB for KiB ...; a reading, not an error |
//! | `bits-for-bytes` | a factor of 8 |
//! | `power-of-ten` | a digit lost or doubled, up to a million |
//! | `rounded-input` | computed from a figure that was rounded before |
//! | `other-input` | computed from another figure, with which a second claim comes out as well: `claims/shared.rs` |
//!
//! **Limits.** One slip at a time. Bounds ("more than") are not tried with other units, powers of ten or rounded
//! inputs: any bound holds with some power of ten.
//!
//! **Example.** 33 MiB against 45 MiB are -26.7 %; 45 against 33 are +36.4 %: "a 36 % decrease" is `swapped-base`.

use super::compute::{self, Computed, Fit, as_difference_pct, ratio};
use super::quantity::grouped;
use super::{Bound, Claim, Factor, Kind, Machine, PRICE};
use crate::instance::figures;

/// An explanation of a stated number.
pub(super) struct Slip {
    pub(super) name: &'static str,
    /// Whether the number is right if read in another way.
    pub(super) is_reading: bool,
    pub(super) why: String,
}

impl Slip {
    fn error(name: &'static str, why: String) -> Slip {
        Slip { name, is_reading: false, why }
    }
}

/// Figures that are easily confused.
const SISTERS: [(&str, &str); 7] = [
    ("network.packets_sent_per_s", "network.packets_received_per_s"),
    ("network.link_bits_per_s", "network.received_bits_per_s"),
    ("disk.read_iops", "disk.write_iops"),
    ("disk.read_bytes_per_s", "disk.write_bytes_per_s"),
    ("cpu.cores", "cpu.threads"),
    ("submission.io_uring_ns", "submission.aio_ns"),
    ("memory.read_all_bytes_per_s", "memory.copy_all_bytes_per_s"),
];

/// Returns the slip that gives the stated number; `computed` is the right one.
pub(super) fn find(claim: &Claim, machines: &[Machine], computed: &Computed) -> Option<Slip> {
    let tries = Tries { claim, machines, computed };
    let of_percent = || match &claim.kind {
        Kind::Percent { figure, of, against } => tries.of_percent(figure, *of, *against),
        _ => None,
    };
    let is_about = claim.bound == Bound::About;
    of_percent()
        .or_else(|| tries.sister_figure())
        .or_else(|| tries.other_machine())
        .or_else(|| is_about.then(|| tries.factors_of_units()).flatten())
        .or_else(|| is_about.then(|| tries.rounded_input()).flatten())
}

/// Returns the reason if no slip fits: for a product, the inputs with which the claim would come out.
pub(super) fn none_found(claim: &Claim, machines: &[Machine], computed: &Computed) -> String {
    let Kind::Product { of: Some(of), factors, divisors } = &claim.kind else {
        return "no known slip gives the stated number".to_owned();
    };
    let wanted = claim.stated.value / computed.value;
    let needs = |parts: &[Factor], by: f64| -> Vec<String> {
        let keys = parts.iter().filter_map(|part| match part {
            Factor::Figure(key) => Some(key.as_str()),
            Factor::Number(_) => None,
        });
        let value = |key: &str| machines.get(*of).and_then(|machine| machine.value(key));
        keys.filter_map(|key| {
            let value = value(key)?;
            Some(format!("{} of {} in place of {}", title(key), precise(key, value * by), precise(key, value)))
        })
        .collect()
    };
    let needed = [needs(factors, wanted), needs(divisors, 1.0 / wanted)].concat().join(", or ");
    format!("no known slip gives the stated number; it would take {needed}")
}

struct Tries<'t> {
    claim: &'t Claim,
    machines: &'t [Machine],
    /// The right value of the claim.
    computed: &'t Computed,
}

impl Tries<'_> {
    fn fits(&self, computed: &Computed) -> bool {
        compute::fit(computed, self.claim) != Fit::No
    }

    fn name(&self, at: usize) -> &str {
        self.machines.get(at).map_or("?", |machine| &machine.card.name)
    }

    /// Prints a figure of a machine for people.
    fn figure(&self, at: usize, key: &str) -> String {
        let value = self.machines.get(at).and_then(|machine| machine.value(key));
        value.map_or_else(|| "?".to_owned(), |value| written(key, value))
    }

    /// Prints a value in the unit of the claim.
    fn write(&self, value: f64) -> String {
        self.claim.stated.write(value, 1)
    }

    /// Prints a difference in per cent, with its sign.
    fn difference(&self, value: f64) -> String {
        let sign = if value > 0.0 { "+" } else { "" };
        format!("{sign}{}", self.write(value))
    }

    fn of_percent(&self, figure: &str, of: usize, against: usize) -> Option<Slip> {
        let truth = self.difference(self.computed.value);
        let sign = self.claim.stated.value.signum();
        let swapped = ratio(self.machines, figure, against, of).map(as_difference_pct);
        // An author who swaps the machines may keep the number and change only "more" to "less".
        if self.fits(&swapped) || self.fits(&Computed { value: swapped.value.abs() * sign, low: 0.0, high: 0.0 }) {
            let why = format!(
                "base and compared are swapped: {} against {} is {}, but {} against {} is {truth}",
                self.with_figure(against, figure),
                self.with_figure(of, figure),
                self.difference(swapped.value),
                self.name(of),
                self.name(against)
            );
            return Some(Slip::error("swapped-base", why));
        }

        for other in (0..self.machines.len()).filter(|other| ![of, against].contains(other)) {
            let difference = ratio(self.machines, figure, of, other).map(as_difference_pct);
            if self.fits(&difference) {
                let why = format!(
                    "that is {} against {}, {}; against {} it is {truth}",
                    self.with_figure(of, figure),
                    self.with_figure(other, figure),
                    self.difference(difference.value),
                    self.with_figure(against, figure)
                );
                return Some(Slip::error("other-base", why));
            }
        }

        let part = ratio(self.machines, figure, of, against).map(|ratio| ratio * 100.0);
        if self.fits(&part) {
            let why = format!(
                "\"% more\" for \"% of\": {} is {} of {}, a difference of {truth}",
                self.with_figure(of, figure),
                self.write(part.value),
                self.with_figure(against, figure)
            );
            return Some(Slip::error("of-for-more", why));
        }

        let mirrored = Computed { value: -self.computed.value, low: -self.computed.high, high: -self.computed.low };
        let why = format!("the sign is wrong: it is {truth}");
        self.fits(&mirrored).then(|| Slip::error("wrong-sign", why))
    }

    /// Prints a machine with a figure: `i3.metal (36)`.
    fn with_figure(&self, at: usize, figure: &str) -> String {
        format!("{} ({})", self.name(at), self.figure(at, figure))
    }

    fn sister_figure(&self) -> Option<Slip> {
        let (Kind::Percent { figure, of, .. } | Kind::Value { figure, of }) = &self.claim.kind else { return None };
        let sister = SISTERS.iter().find_map(|(one, other)| match figure.as_str() {
            figure if figure == *one => Some(*other),
            figure if figure == *other => Some(*one),
            _ => None,
        })?;
        let mut kind = self.claim.kind.clone();
        if let Kind::Percent { figure, .. } | Kind::Value { figure, .. } = &mut kind {
            sister.clone_into(figure);
        }
        let why = format!(
            "that holds for \"{}\" ({}); \"{}\" are {}",
            figures::title(sister),
            self.figure(*of, sister),
            figures::title(figure),
            self.figure(*of, figure)
        );
        self.fits(&compute::value(&kind, self.machines)).then(|| Slip::error("sister-figure", why))
    }

    fn other_machine(&self) -> Option<Slip> {
        let (Kind::Percent { of, .. } | Kind::Value { of, .. } | Kind::Product { of: Some(of), .. }) = self.claim.kind
        else {
            return None;
        };
        let put = |other: usize| {
            let mut kind = self.claim.kind.clone();
            match &mut kind {
                Kind::Percent { of, .. } | Kind::Value { of, .. } => *of = other,
                Kind::Product { of, .. } => *of = Some(other),
            }
            kind
        };

        let others = (0..self.machines.len()).filter(|other| *other != of);
        let other = others.into_iter().find(|other| self.fits(&compute::value(&put(*other), self.machines)))?;
        let value = compute::value(&put(other), self.machines).value;
        let why = format!(
            "that is {}: {}; for {} it is {}",
            self.name(other),
            self.write(value),
            self.name(of),
            self.write(self.computed.value)
        );
        Some(Slip::error("other-machine", why))
    }

    /// Tries binary prefixes, bits for bytes, and powers of ten.
    fn factors_of_units(&self) -> Option<Slip> {
        let by = |factor: f64| self.fits(&self.computed.map(|value| value * factor));
        let truth = self.write(self.computed.value);
        for power in self.prefixes() {
            let factor = 1.024_f64.powi(power);
            let binary =
                ["KiB", "MiB", "GiB", "TiB", "PiB"].get(usize::try_from(power - 1).unwrap_or(0)).unwrap_or(&"?");
            if by(factor) || by(1.0 / factor) {
                let why = format!(
                    "right if the decimal prefix of its bytes is read as {binary} (2^{}); as written it is {truth}",
                    power * 10
                );
                return Some(Slip { name: "binary-prefix", is_reading: true, why });
            }
        }

        for (factor, words) in [(8.0, "bits for bytes"), (0.125, "bytes for bits")] {
            if by(factor) {
                return Some(Slip::error("bits-for-bytes", format!("a factor of 8, {words}: it is {truth}")));
            }
        }

        let power = (1..=6).flat_map(|power| [power, -power]).find(|power| by(10f64.powi(*power)))?;
        let times = grouped(10f64.powi(power.abs()), 0);
        let direction = if power < 0 { "too small" } else { "too large" };
        let why = format!("off by a power of ten: it is {truth}, so what is stated is {times} times {direction}");
        Some(Slip::error("power-of-ten", why))
    }

    /// Returns the powers of 1000 in the decimal prefixes of bytes that the claim is written with.
    fn prefixes(&self) -> Vec<i32> {
        let factors: &[&[Factor]] = match &self.claim.kind {
            Kind::Product { factors, divisors, .. } => &[factors, divisors],
            _ => &[],
        };
        let in_factors = factors.iter().copied().flatten().filter_map(|factor| match factor {
            Factor::Number(number) => number.decimal_bytes_power,
            Factor::Figure(_) => None,
        });
        self.claim.stated.decimal_bytes_power.into_iter().chain(in_factors).collect()
    }

    /// Tries each figure of a product, rounded to three, two or one digits before the product was computed.
    fn rounded_input(&self) -> Option<Slip> {
        let Kind::Product { of: Some(of), factors, divisors } = &self.claim.kind else { return None };

        let parts = factors.iter().map(|part| (part, 1)).chain(divisors.iter().map(|part| (part, -1)));
        for (part, power) in parts {
            let Factor::Figure(key) = part else { continue };
            let Some(value) = self.machines.get(*of).and_then(|machine| machine.value(key)) else { continue };
            for digits in [3, 2, 1] {
                let rounded = rounded(value, digits);
                let changed = self.computed.map(|computed| computed * (rounded / value).powi(power));
                if rounded != value && self.fits(&changed) {
                    let why = format!(
                        "that is computed from {} of {}, which is {}; so it is {}",
                        title(key),
                        written(key, rounded),
                        written(key, value),
                        self.write(self.computed.value)
                    );
                    return Some(Slip::error("rounded-input", why));
                }
            }
        }
        None
    }
}

/// Rounds `value` to `digits` significant digits.
fn rounded(value: f64, digits: i32) -> f64 {
    let step = 10f64.powi(value.abs().log10().floor() as i32 + 1 - digits);
    (value / step).round() * step
}

pub(super) fn title(key: &str) -> String {
    if key == PRICE { "a price per core and year".to_owned() } else { format!("\"{}\"", figures::title(key)) }
}

/// Prints a figure for people; a figure in bits is given as eighths of bytes.
fn written(key: &str, value: f64) -> String {
    match figures::kind(key) {
        Some(kind) if kind.unit == figures::Unit::BitsPerS => kind.unit.format(value * 8.0),
        Some(kind) => kind.unit.format(value),
        None => grouped(value, 2),
    }
}

/// Prints as [`written`], but capacities and counts with enough digits to see one per mille.
pub(super) fn precise(key: &str, value: f64) -> String {
    match figures::kind(key).map(|kind| kind.unit) {
        Some(figures::Unit::BytesDecimal) => format!("{} GB", grouped(value / 1e9, 0)),
        Some(figures::Unit::Count) => grouped(value, if value.fract() == 0.0 { 0 } else { 2 }),
        _ => written(key, value),
    }
}

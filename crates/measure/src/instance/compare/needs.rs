//! Recommends a machine for a stated need.
//!
//! **Why.** No machine is best for every load. One is best for a load that first runs out of processor, capacity, reads
//! or write bandwidth.
//!
//! **How.** One figure decides each need; for processors, it is the first of a list that most machines have. With
//! prices, the machine with the lowest price for a unit of the figure wins; without, the machine with the most. A
//! machine wins over the next only if the interval of their ratio excludes 1 ([`super::ratios`]). Without intervals,
//! counted figures decide as they are, and others if they differ by more than [`NOISE`]; the reasons then say so.
//! stress-ng counts only if all machines that have it ran the same version.
//!
//! **Limits.** Only one figure decides; the tables show the others. A machine with cheap terabytes may have too few
//! cores.
//!
//! **Example.** `write-bandwidth` without prices: 8.3 GB/s of i3en.24xlarge before 6.5 GB/s of i3.16xlarge.

use serde::Serialize;

use super::super::Figure;
use super::super::economics;
use super::super::figures::{self, Unit};
use super::super::find::Candidate;
use super::super::prices::PriceList;
use super::outliers::NOISE;
use super::ratios::{self, Verdict};

/// The resource that a load runs out of first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    Cpu,
    Capacity,
    ReadIops,
    WriteBandwidth,
}

impl Need {
    /// Returns the figures that may decide; the first that most machines have does.
    fn measures(self) -> &'static [Measure] {
        match self {
            Need::Cpu => {
                const {
                    &[
                        Measure {
                            times: Some("cpu.cores"),
                            ..Measure::new("stress_ng.cpu", "stress-ng cpu times cores", 1.0, "operation/s")
                        },
                        Measure::new("cpu.cores", "cores", 1.0, "core"),
                        Measure::new("cpu.threads", "vCPUs", 1.0, "vCPU"),
                    ]
                }
            }
            Need::Capacity => const { &[Measure::new("disk.bytes", "local disk capacity", 1e12, "TB")] },
            Need::ReadIops => const { &[Measure::new("disk.read_iops", "random reads", 1e6, "M reads/s")] },
            Need::WriteBandwidth => {
                const { &[Measure::new("disk.write_bytes_per_s", "sequential writes", 1e9, "GB/s")] }
            }
        }
    }
}

/// A figure that may decide.
struct Measure {
    key: &'static str,
    /// A counted figure that `key` is multiplied by.
    times: Option<&'static str>,
    title: &'static str,
    per: (f64, &'static str),
}

impl Measure {
    const fn new(key: &'static str, title: &'static str, per: f64, unit: &'static str) -> Measure {
        Measure { key, times: None, title, per: (per, unit) }
    }

    /// Returns the figure of a machine, with its samples or interval.
    fn figure(&self, candidate: &Candidate) -> Option<Figure> {
        let times = self.times.map_or(Some(1.0), |key| candidate.card.value(key))?;
        let figure = candidate.card.figures.get(self.key).filter(|figure| figure.value * times > 0.0)?;
        Some(Figure {
            value: figure.value * times,
            samples: figure.samples.iter().map(|sample| sample * times).collect(),
            interval: figure.interval.map(|interval| interval.map(|end| end * times)),
        })
    }

    /// Returns whether the figure means the same on all machines that have it.
    fn is_comparable(&self, candidates: &[Candidate]) -> bool {
        let mut with = candidates.iter().filter(|machine| machine.card.figures.contains_key(self.key));
        let Some(first) = with.next() else { return true };
        // A figure without a stated version cannot be compared with any other, but alone it does decide.
        with.all(|machine| ratios::incomparable(self.key, &machine.card, &first.card).is_none())
    }

    fn unit(&self) -> Unit {
        figures::kind(self.key).map_or(Unit::Plain, |kind| kind.unit)
    }
}

/// A machine's place for a need.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    pub label: String,
    /// The deciding figure, in base units; null if not known.
    pub value: Option<f64>,
    pub shown: String,
    /// The price of a unit of the figure for a year; null without prices.
    pub price_per_unit_year: Option<f64>,
    /// Why the machine has no place; null if it has one.
    pub unranked: Option<String>,
    /// The deciding figure with its samples, if the machine has a place.
    #[serde(skip)]
    figure: Option<Figure>,
    /// The amount, or the amount for the price of a year: more is better.
    #[serde(skip)]
    score: f64,
}

/// The machine to take for a need, and the reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    pub need: Need,
    /// The figure that decided: `random reads`.
    pub measure: String,
    /// Whether prices decided, not amounts.
    pub by_price: bool,
    /// The unit that `price_per_unit_year` is for.
    pub price_unit: &'static str,
    /// All machines, the best first, those without a place last.
    pub ranking: Vec<Ranked>,
    /// The machine to take; null without evidence for one.
    pub winner: Option<String>,
    pub reasons: Vec<String>,
}

/// Ranks machines for a need, by price if `prices` is given. Returns `None` if no figure decides the need.
pub fn recommend(need: Need, candidates: &[Candidate], prices: Option<&PriceList>) -> Option<Recommendation> {
    let is_known = |measure: &&Measure| candidates.iter().filter(|machine| measure.figure(machine).is_some()).count();
    // `max_by_key` returns the last of equals; in reverse order, that is the first.
    let comparable = need.measures().iter().filter(|measure| measure.is_comparable(candidates));
    let measure = comparable.rev().max_by_key(is_known).or(need.measures().first())?;

    let of_machine = |candidate: &Candidate| rank(measure, candidate, prices);
    let (mut ranking, unranked): (Vec<Ranked>, Vec<Ranked>) =
        candidates.iter().map(of_machine).partition(|ranked| ranked.unranked.is_none());
    ranking.sort_by(|a, b| b.score.total_cmp(&a.score));
    let (winner, mut reasons) = judged(measure, &ranking, prices);
    if let (None, Some(best)) = (prices, winner) {
        reasons.push(format!("by amounts alone, for there are no prices: what {best} costs is not weighed"));
    }
    Some(Recommendation {
        need,
        measure: measure.title.to_owned(),
        by_price: prices.is_some(),
        price_unit: measure.per.1,
        winner: winner.map(str::to_owned),
        reasons,
        ranking: ranking.into_iter().chain(unranked).collect(),
    })
}

/// Returns a machine with its figure and its score, or why it has none.
fn rank(measure: &Measure, candidate: &Candidate, prices: Option<&PriceList>) -> Ranked {
    let figure = measure.figure(candidate);
    let value = figure.as_ref().map(|figure| figure.value);
    let price = prices.and_then(|prices| prices.instance(&candidate.card.name)).map(|price| price.per_year);
    let unranked = match (&figure, prices, price) {
        (None, ..) => Some(format!("missing: {}", measure.title)),
        (Some(_), Some(_), None) => Some("no price".to_owned()),
        _ => None,
    };
    Ranked {
        label: candidate.label.clone(),
        value,
        shown: value.map_or_else(String::new, |value| measure.unit().format(value)),
        price_per_unit_year: price.zip(value).map(|(price, value)| price / value * measure.per.0),
        unranked,
        figure,
        score: value.unwrap_or(0.0) / price.unwrap_or(1.0),
    }
}

/// Returns the winner, if there is evidence for one, and the reasons.
fn judged<'a>(measure: &Measure, ranking: &'a [Ranked], prices: Option<&PriceList>) -> (Option<&'a str>, Vec<String>) {
    let Some((first, others)) = ranking.split_first() else {
        return (None, vec![format!("no machine has both {} and what is needed to weigh it", measure.title)]);
    };

    let best = first.label.as_str();
    let currency = prices.map_or("", |prices| prices.currency.as_str());
    let amount = |ranked: &Ranked| match ranked.price_per_unit_year {
        Some(price) => format!("{} {currency} a year for a {}", economics::money(price), measure.per.1),
        None => ranked.shown.clone(),
    };

    let Some(second) = others.first() else {
        return (None, vec![format!("only {best} can be weighed: {}", amount(first))]);
    };

    let factor = first.score / second.score;
    let next = second.label.as_str();
    let mut reasons = vec![format!("{best}: {}; next {next}: {} ({factor:.2} times)", amount(first), amount(second))];
    let Some((figure, other)) = first.figure.as_ref().zip(second.figure.as_ref()) else { return (None, reasons) };
    // Prices and core counts are exact, so they only scale the interval of the two figures.
    let scale = factor / (figure.value / other.value);
    let measured = figures::kind(measure.key).and_then(|kind| ratios::ratio(kind, figure, other));
    let interval = measured.and_then(|ratio| ratio.interval).map(|interval| interval.map(|end| end * scale));
    let is_counted = measured.is_some_and(|ratio| ratio.verdict == Verdict::Counted);

    if factor <= 1.0 {
        reasons.push(format!("{best} and {next} are equal"));
        return (None, reasons);
    }
    match (measured.map(|ratio| ratio.verdict), interval) {
        (Some(Verdict::Scattered), _) => {
            let limit = ratios::SCATTER_MAX_PCT;
            reasons.push(format!("no winner: the samples of one of the two scatter by more than {limit} %"));
            return (None, reasons);
        }
        (_, Some([low, high])) if low <= 1.0 => {
            reasons.push(format!("no winner: the 95 % interval of the factor, {low:.2} to {high:.2}, contains 1"));
            return (None, reasons);
        }
        (_, Some([low, high])) => reasons.push(format!("the 95 % interval of the factor is {low:.2} to {high:.2}")),
        (_, None) if is_counted => {
            reasons.push("these are counted: a core of one may do more than one of another".to_owned())
        }
        (_, None) if factor <= 1.0 + NOISE => {
            let pct = NOISE * 100.0;
            reasons.push(format!("no winner: no interval, and single runs differ by {pct:.0} % without a cause"));
            return (None, reasons);
        }
        (_, None) => reasons.push("no interval: single or stated figures, so chance is not excluded".to_owned()),
    }
    if is_counted && measure.key == "disk.bytes" {
        reasons.pop();
    }
    (Some(best), reasons)
}

#[cfg(test)]
mod tests {
    use super::super::super::find::find_all;
    use super::super::super::{Card, Origin, prices};
    use super::*;

    const PRICES: &str = "
date: 2019-05
currency: USD
region: us-east
source: the article
commitment: 1 year
instances:
- {name: i3.16xlarge, per_core_year: 880.50, cores: 32}
- {name: i3.metal, per_core_year: 773.78, cores: 36}
- {name: i3en.24xlarge, per_core_year: 1258.43, cores: 48}
";

    #[test]
    fn the_article_s_choices() {
        let three = find_all(&["i3.16xlarge", "i3.metal", "i3en.24xlarge"]).unwrap();
        let list = prices::parse("p.yaml", PRICES).unwrap();
        // By price: processors and reads from i3, capacity from i3en; write bandwidth costs the same within 1 % on both
        // kinds of i3. By amount: i3en, except for reads.
        let cases = [
            (Need::Cpu, Some("i3.metal"), Some("i3en.24xlarge")),
            (Need::Capacity, Some("i3en.24xlarge"), Some("i3en.24xlarge")),
            (Need::ReadIops, Some("i3.metal"), Some("i3.metal")),
            (Need::WriteBandwidth, None, Some("i3en.24xlarge")),
        ];
        for (need, by_price, by_amount) in cases {
            let recommended = recommend(need, &three, Some(&list)).unwrap();
            assert_eq!(recommended.winner.as_deref(), by_price, "{need:?}: {:?}", recommended.reasons);
            let recommended = recommend(need, &three, None).unwrap();
            assert_eq!(recommended.winner.as_deref(), by_amount, "{need:?}: {:?}", recommended.reasons);
            assert!(recommended.reasons.concat().contains("there are no prices"), "{need:?}");
        }
        let capacity = recommend(Need::Capacity, &three, Some(&list)).unwrap();
        let price = capacity.ranking[0].price_per_unit_year.unwrap();
        assert!((price - 1006.744).abs() < 1e-3, "{price}");
        assert!(capacity.reasons[0].contains("1,006.74 USD a year for a TB"), "{:?}", capacity.reasons);
    }

    #[test]
    fn machines_without_a_price_or_a_figure_have_no_place() {
        let list = prices::parse("p.yaml", PRICES).unwrap();
        let all = find_all(&["i4i.16xlarge", "i3en.24xlarge", "i3.metal", "Standard_L8s_v3"]).unwrap();
        let recommended = recommend(Need::Capacity, &all, Some(&list)).unwrap();
        let places: Vec<Option<&str>> = recommended.ranking.iter().map(|ranked| ranked.unranked.as_deref()).collect();
        assert_eq!(places, [None, None, Some("no price"), Some("missing: local disk capacity")]);
        let recommended = recommend(Need::Capacity, &all[..1], Some(&list)).unwrap();
        assert_eq!((recommended.winner, recommended.ranking.len()), (None, 1));
    }

    #[test]
    fn a_winner_needs_evidence() {
        let card = |name: &str, samples: &[f64]| {
            let mut card = Card::new(name, Origin::measured("2026-01-01"));
            card.set("disk.read_iops", Figure::of_samples(samples.to_vec()).unwrap());
            Candidate { argument: name.to_owned(), label: name.to_owned(), card }
        };
        let base = card("a", &[100.0, 101.0, 99.0]);
        let cases: [(&[f64], Option<&str>, &str); 6] = [
            (&[120.0, 121.0, 119.0], Some("b"), "95 % interval of the factor is 1."),
            (&[101.0, 102.0, 100.0], None, "contains 1"),
            (&[120.0, 160.0, 200.0], None, "scatter by more than 10 %"),
            (&[120.0], Some("b"), "chance is not excluded"),
            (&[104.9], None, "single runs differ by 5 % without a cause"),
            (&[100.0], None, "are equal"),
        ];
        for (samples, winner, reason) in cases {
            let recommended = recommend(Need::ReadIops, &[base.clone(), card("b", samples)], None).unwrap();
            assert_eq!(recommended.winner.as_deref(), winner, "{samples:?}");
            assert!(recommended.reasons.concat().contains(reason), "{:?}", recommended.reasons);
        }
    }
}

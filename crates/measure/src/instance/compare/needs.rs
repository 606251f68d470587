//! Recommends a machine for a stated need.
//!
//! **Why.** No machine is best for every load. One is best for a load that first runs out of processor, capacity, reads
//! or write bandwidth.
//!
//! **How.** One figure decides each need; for processors, it is the first of a list that most machines have. With
//! prices, the machine with the lowest price for a unit of it wins; without, the one with the most. A machine wins over
//! the next only if the interval of their ratio excludes 1 ([`super::ratios`]). Without intervals, counted figures
//! decide as they are, and others if they differ by more than [`NOISE`]; the reasons then say so. stress-ng counts only
//! if all machines that have it ran the same version.
//!
//! **Limits.** One figure decides. The tables show the others, for the reader to weigh: a machine with cheap terabytes
//! may have too few cores.
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
    /// Processors.
    Cpu,
    /// Bytes on local disks.
    Capacity,
    /// Random reads a second.
    ReadIops,
    /// Bytes written a second.
    WriteBandwidth,
}

impl Need {
    /// Returns the need's name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Need::Cpu => "cpu",
            Need::Capacity => "capacity",
            Need::ReadIops => "read-iops",
            Need::WriteBandwidth => "write-bandwidth",
        }
    }

    /// Returns the figures that may decide; the first that most machines have does.
    fn measures(self) -> &'static [Measure] {
        const fn measure(
            key: &'static str,
            times: Option<&'static str>,
            title: &'static str,
            per: (f64, &'static str),
        ) -> Measure {
            Measure { key, times, title, per }
        }

        const CPU: &[Measure] = &[
            measure("cpu.hash_all_bytes_per_s", None, "hashing, all threads", (1e9, "GB/s")),
            measure("stress_ng.cpu", Some("cpu.cores"), "stress-ng cpu times cores", (1.0, "operation/s")),
            measure("cpu.cores", None, "cores", (1.0, "core")),
            measure("cpu.threads", None, "vCPUs", (1.0, "vCPU")),
        ];
        const CAPACITY: &[Measure] = &[measure("disk.bytes", None, "local disk capacity", (1e12, "TB"))];
        const READS: &[Measure] = &[measure("disk.read_iops", None, "random reads", (1e6, "M reads/s"))];
        const WRITES: &[Measure] = &[measure("disk.write_bytes_per_s", None, "sequential writes", (1e9, "GB/s"))];

        match self {
            Need::Cpu => CPU,
            Need::Capacity => CAPACITY,
            Need::ReadIops => READS,
            Need::WriteBandwidth => WRITES,
        }
    }
}

/// A figure that may decide.
struct Measure {
    key: &'static str,
    /// A counted figure that `key` is multiplied by.
    times: Option<&'static str>,
    title: &'static str,
    /// The unit that prices are given for, and its name.
    per: (f64, &'static str),
}

impl Measure {
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
        // A figure without a stated version compares with no other; alone, it does decide.
        with.all(|machine| ratios::incomparable(self.key, &machine.card, &first.card).is_none())
    }

    fn unit(&self) -> Unit {
        figures::kind(self.key).map_or(Unit::Plain, |kind| kind.unit)
    }
}

/// A machine's place for a need.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    /// The machine.
    pub label: String,
    /// The deciding figure, in base units; null if not known.
    pub value: Option<f64>,
    /// The deciding figure, for people.
    pub shown: String,
    /// The price of a unit of it for a year; null without prices.
    pub price_per_unit_year: Option<f64>,
    /// Why the machine has no place; null if it has one.
    pub unranked: Option<String>,
}

/// The machine to take for a need, and the reasons.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// The need.
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
    /// The reasons, a sentence each.
    pub reasons: Vec<String>,
}

struct Standing<'a> {
    candidate: &'a Candidate,
    figure: Figure,
    per_year: Option<f64>,
}

impl Standing<'_> {
    /// Returns the amount, or the amount per price: more is better.
    fn score(&self) -> f64 {
        self.figure.value / self.per_year.unwrap_or(1.0)
    }
}

/// Orders machines for a need, by price if `prices` is given.
#[must_use]
pub fn recommend(need: Need, candidates: &[Candidate], prices: Option<&PriceList>) -> Recommendation {
    let is_known = |measure: &&Measure| candidates.iter().filter(|machine| measure.figure(machine).is_some()).count();
    // `max_by_key` returns the last of equals: in reverse order, the first.
    let comparable = need.measures().iter().filter(|measure| measure.is_comparable(candidates));
    let most = comparable.rev().max_by_key(is_known);
    let Some(measure) = most.or(need.measures().first()) else {
        return nothing(need);
    };

    let (mut standings, mut unranked) = (Vec::new(), Vec::new());
    for candidate in candidates {
        let per_year = prices.map(|prices| prices.instance(&candidate.card.name).map(|price| price.per_year));
        match (measure.figure(candidate), per_year) {
            (Some(figure), None) => standings.push(Standing { candidate, figure, per_year: None }),
            (Some(figure), Some(Some(price))) => standings.push(Standing { candidate, figure, per_year: Some(price) }),
            (figure, _) => unranked.push(without_place(candidate, measure, figure)),
        }
    }

    standings.sort_by(|a, b| b.score().total_cmp(&a.score()));
    let (winner, mut reasons) = judged(measure, &standings, prices);
    if let (true, Some(best)) = (prices.is_none(), winner) {
        reasons.push(format!("by amounts alone, for there are no prices: what {best} costs is not weighed"));
    }

    let ranked = standings.iter().map(|standing| Ranked {
        label: standing.candidate.label.clone(),
        value: Some(standing.figure.value),
        shown: measure.unit().format(standing.figure.value),
        price_per_unit_year: standing.per_year.map(|price| price / standing.figure.value * measure.per.0),
        unranked: None,
    });
    Recommendation {
        need,
        measure: measure.title.to_owned(),
        by_price: prices.is_some(),
        price_unit: measure.per.1,
        ranking: ranked.chain(unranked).collect(),
        winner: winner.map(str::to_owned),
        reasons,
    }
}

fn nothing(need: Need) -> Recommendation {
    let reasons = vec!["nothing is known that decides this".to_owned()];
    Recommendation {
        need,
        measure: String::new(),
        by_price: false,
        price_unit: "",
        ranking: vec![],
        winner: None,
        reasons,
    }
}

fn without_place(candidate: &Candidate, measure: &Measure, figure: Option<Figure>) -> Ranked {
    let reason = match figure {
        Some(_) => "no price".to_owned(),
        None => format!("missing: {}", measure.title),
    };
    Ranked {
        label: candidate.label.clone(),
        value: figure.as_ref().map(|figure| figure.value),
        shown: figure.map_or_else(String::new, |figure| measure.unit().format(figure.value)),
        price_per_unit_year: None,
        unranked: Some(reason),
    }
}

/// Returns the winner, if there is evidence for one, and the reasons.
fn judged<'a>(
    measure: &Measure,
    standings: &[Standing<'a>],
    prices: Option<&PriceList>,
) -> (Option<&'a str>, Vec<String>) {
    let Some((first, others)) = standings.split_first() else {
        return (None, vec![format!("no machine has both {} and what is needed to weigh it", measure.title)]);
    };

    let best = first.candidate.label.as_str();
    let currency = prices.map_or("", |prices| prices.currency.as_str());
    let amount = |standing: &Standing<'_>| match standing.per_year {
        Some(price) => {
            let per_unit = economics::money(price / standing.figure.value * measure.per.0);
            format!("{per_unit} {currency} a year for a {}", measure.per.1)
        }
        None => measure.unit().format(standing.figure.value),
    };

    let Some(second) = others.first() else {
        return (None, vec![format!("only {best} can be weighed: {}", amount(first))]);
    };

    let factor = first.score() / second.score();
    let next = second.candidate.label.as_str();
    let mut reasons = vec![format!("{best}: {}; next {next}: {} ({factor:.2} times)", amount(first), amount(second))];
    // Prices and core counts are exact, so they only scale the interval of the two figures.
    let scale = factor / (first.figure.value / second.figure.value);
    let measured = figures::kind(measure.key).and_then(|kind| {
        let key = if measure.times.is_none() { measure.key } else { "" };
        ratios::ratio(key, kind, &first.figure, &second.figure)
    });
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

    fn candidates(names: &[&str]) -> Vec<Candidate> {
        find_all(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn the_article_s_choices() {
        let three = candidates(&["i3.16xlarge", "i3.metal", "i3en.24xlarge"]);
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
            let recommended = recommend(need, &three, Some(&list));
            assert_eq!(recommended.winner.as_deref(), by_price, "{need:?}: {:?}", recommended.reasons);
            let recommended = recommend(need, &three, None);
            assert_eq!(recommended.winner.as_deref(), by_amount, "{need:?}: {:?}", recommended.reasons);
            assert!(recommended.reasons.concat().contains("there are no prices"), "{need:?}");
        }
        let capacity = recommend(Need::Capacity, &three, Some(&list));
        let price = capacity.ranking[0].price_per_unit_year.unwrap();
        assert!((price - 1006.744).abs() < 1e-3, "{price}");
        assert!(capacity.reasons[0].contains("1,006.74 USD a year for a TB"), "{:?}", capacity.reasons);
    }

    #[test]
    fn machines_without_a_price_or_a_figure_have_no_place() {
        let list = prices::parse("p.yaml", PRICES).unwrap();
        let all = candidates(&["i4i.16xlarge", "i3en.24xlarge", "i3.metal", "Standard_L8s_v3"]);
        let recommended = recommend(Need::Capacity, &all, Some(&list));
        let places: Vec<Option<&str>> = recommended.ranking.iter().map(|ranked| ranked.unranked.as_deref()).collect();
        assert_eq!(places, [None, None, Some("no price"), Some("missing: local disk capacity")]);
        let recommended = recommend(Need::Capacity, &all[..1], Some(&list));
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
            let recommended = recommend(Need::ReadIops, &[base.clone(), card("b", samples)], None);
            assert_eq!(recommended.winner.as_deref(), winner, "{samples:?}");
            assert!(recommended.reasons.concat().contains(reason), "{:?}", recommended.reasons);
        }
    }
}

//! The rates of the disk model that granted tokens, from the costs of pieces.
//!
//! **Why.** "Tokens" is half an answer. The other half is the rate of tokens, and whether it is a rate of this disk at
//! all. Seed 000 was a limit of 2^33 bytes per second that no user had set.
//!
//! **How.** The cost of a trace's shortest pieces gives operations per second of their length, that of its longest
//! pieces bytes per second. Nothing is computed for lengths that the trace lacks, so that the form of the cost does not
//! matter: a line, a line with a floor, the larger of two limits, a table. If all pieces have one length, there is one
//! rate.
//!
//! **Limits.** Traces cut costs off to whole ns; half a ns is added. One rate in 35 is within 1 % of a power of two by
//! chance.
//!
//! **Example.** 1 MiB for 122,129 ns is 8.586 GB/s, 0.05 % below 2^33 bytes per second.

use plimsoll::core::Op;
use serde::Serialize;

/// Largest relative distance at which a rate looks like a power of two.
const NEAR: f64 = 0.01;

/// Smallest exponent that looks like a default; lower powers of two are common figures of disks.
const POWER_MIN: f64 = 20.0;

/// Length from which nearly all of a cost is for the bytes.
const LONG_BYTES: u32 = 131_072;

/// Costs of the pieces of one length.
#[derive(Clone, Copy, Debug)]
struct OfLength {
    len_bytes: u32,
    n: f64,
    sum_ns: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    n: f64,
    sum_bytes: f64,
    /// Costs of the shortest and the longest pieces.
    ends: Option<[OfLength; 2]>,
}

/// Sums of all costs of a disk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rates {
    read: Costs,
    write: Costs,
}

/// The rates that a disk model grants to one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Implied {
    /// `read` or `write`.
    pub direction: &'static str,
    /// Pieces that the rates are computed from.
    pub pieces: u64,
    /// Bytes per second of the longest requests in the trace.
    pub bytes_per_s: f64,
    /// Rate of the shortest requests in the trace, per second; `None` if all have one length.
    pub iops: Option<f64>,
    pub len_mean_bytes: f64,
    pub len_min_bytes: u32,
    pub len_max_bytes: u32,
    /// Such as `2^33 B/s`, if a rate is within 1 % of a power of two.
    pub looks_like: Option<String>,
}

impl Rates {
    pub(super) fn add(&mut self, op: Op, len_bytes: u32, cost_ns: u32) {
        match op {
            Op::Read => self.read.add(len_bytes, cost_ns),
            Op::Write => self.write.add(len_bytes, cost_ns),
            Op::Flush | Op::Discard | Op::Allocate => {}
        }
    }

    pub(super) fn implied(&self) -> Vec<Implied> {
        [("read", &self.read), ("write", &self.write)].into_iter().filter_map(|(name, it)| it.implied(name)).collect()
    }
}

impl Costs {
    fn add(&mut self, len_bytes: u32, cost_ns: u32) {
        if cost_ns == 0 || len_bytes == 0 {
            return;
        }
        self.n += 1.0;
        self.sum_bytes += f64::from(len_bytes);
        let new = OfLength { len_bytes, n: 0.0, sum_ns: 0.0 };
        let [shortest, longest] = self.ends.get_or_insert([new; 2]);
        if len_bytes < shortest.len_bytes {
            *shortest = new;
        }
        if len_bytes > longest.len_bytes {
            *longest = new;
        }
        for end in [shortest, longest].into_iter().filter(|end| end.len_bytes == len_bytes) {
            end.n += 1.0;
            end.sum_ns += f64::from(cost_ns) + 0.5;
        }
    }

    fn implied(&self, direction: &'static str) -> Option<Implied> {
        let [shortest, longest] = self.ends?;
        let bytes_per_s = f64::from(longest.len_bytes) * longest.per_s();
        let iops = (shortest.len_bytes < longest.len_bytes).then(|| shortest.per_s());
        let of_bytes = Some(bytes_per_s).filter(|_| longest.len_bytes >= LONG_BYTES).and_then(power_of_two);
        let looks_like = of_bytes.map(|power| format!("2^{power} B/s"));
        let of_iops = || iops.and_then(power_of_two).map(|power| format!("2^{power} IOPS"));

        Some(Implied {
            direction,
            pieces: self.n as u64,
            bytes_per_s,
            iops,
            len_mean_bytes: self.sum_bytes / self.n,
            len_min_bytes: shortest.len_bytes,
            len_max_bytes: longest.len_bytes,
            looks_like: looks_like.or_else(of_iops),
        })
    }
}

impl OfLength {
    /// Returns the pieces of this length that are granted each second.
    fn per_s(&self) -> f64 {
        1e9 * self.n / self.sum_ns
    }
}

/// Returns the exponent if `rate` is nearly a power of two.
fn power_of_two(rate: f64) -> Option<u32> {
    let power = rate.log2().round();
    ((POWER_MIN..64.0).contains(&power) && (rate / power.exp2() - 1.0).abs() <= NEAR).then_some(power as u32)
}

#[cfg(test)]
mod tests {
    use plimsoll::core::{CostForm, CostModel, FourFigures, Rate};

    use super::*;

    fn rates(costs: impl IntoIterator<Item = (u32, u32)>) -> Implied {
        let mut rates = Rates::default();
        costs.into_iter().for_each(|(len_bytes, cost_ns)| rates.add(Op::Write, len_bytes, cost_ns));
        let mut implied = rates.implied();
        assert_eq!(implied.len(), 1);
        implied.remove(0)
    }

    /// Returns the costs of writes of these lengths, cut off to whole ns as in traces.
    fn costs(model: &CostModel, lengths: &[u32]) -> Vec<(u32, u32)> {
        let cost = |len_bytes: &u32| (*len_bytes, (model.cost(Op::Write, *len_bytes).as_fs() / 1_000_000) as u32);
        (0..100).flat_map(|_| lengths).map(cost).collect()
    }

    fn model(form: CostForm, iops: u64, bytes_per_s: u64) -> CostModel {
        let (write_iops, write_bandwidth) = (Rate::per_second(iops), Rate::per_second(bytes_per_s));
        let figures = FourFigures { write_iops, write_bandwidth, ..FourFigures::UNLIMITED };
        CostModel::from_figures(&figures, form, 4096, 4096)
    }

    #[test]
    fn rates_of_models_and_which_of_them_look_like_a_default() {
        let (two_24, two_33) = (1 << 24, 1 << 33);
        let long = [131_072, 262_144, 524_288, 1_048_576];
        /// Lengths, IOPS, bandwidth, and what the rates look like.
        type Case<'a> = (&'a [u32], u64, u64, Option<&'a str>);
        let cases: [Case<'_>; 5] = [
            (&[1 << 20], two_24, two_33, Some("2^33 B/s")),
            (&long, two_24, two_33, Some("2^33 B/s")),
            (&[4096, 1 << 20], 218_786, 1_540_000_000, None),
            (&[4096], two_24, two_33, None),
            (&[1 << 20], 500_000, 7_000_000_000, None),
        ];
        for (lengths, iops, bytes_per_s, looks_like) in cases {
            let found = rates(costs(&model(CostForm::Additive, iops, bytes_per_s), lengths));
            assert_eq!(found.looks_like.as_deref(), looks_like, "{found:?}");
            assert_eq!(found.iops.is_some(), lengths.len() > 1, "{found:?}");
        }
    }

    #[test]
    fn rates_are_those_of_the_lengths_in_the_trace_in_each_form_of_the_cost() {
        let (iops, bytes_per_s) = (181_000, 2_000_000_000);
        let table = [(512, 150_000.0), (4096, 181_000.0), (65_536, 25_000.0), (1 << 20, 1_900.0)];
        let forms = [CostForm::Knee, CostForm::Additive, CostForm::Max, CostForm::Seastar];
        let models = forms.map(|form| model(form, iops, bytes_per_s));
        let models = models.into_iter().chain([CostModel::from_table(&table, &table).expect("a table")]);

        for model in models {
            for lengths in [&[4096, 16_384][..], &[512, 4096, 65_536, 1 << 20], &[65_536, 131_072]] {
                let found = rates(costs(&model, lengths));
                let [first, .., last] = lengths else { panic!("two lengths or more") };
                let per_s = |len_bytes: &u32| 1.0 / model.cost(Op::Write, *len_bytes).as_secs_f64();
                let expected = [per_s(first), per_s(last) * f64::from(*last)];
                let rates = [found.iops.unwrap_or(0.0), found.bytes_per_s];
                let is_near = |(found, expected): (f64, f64)| (found / expected - 1.0).abs() < 0.001;
                assert!(rates.into_iter().zip(expected).all(is_near), "{found:?}: {expected:?}, {:?}", model.form());
                assert_eq!([found.len_min_bytes, found.len_max_bytes], [*first, *last]);
            }
        }

        // The figure that the knee has at its block, whatever else the trace holds.
        let knee = rates(costs(&model(CostForm::Knee, iops, bytes_per_s), &[4096, 65_536]));
        assert!((knee.iops.unwrap_or(0.0) / 181e3 - 1.0).abs() < 0.001, "{knee:?}");
    }

    #[test]
    fn what_costs_nothing_is_granted_by_nobody() {
        assert!(Rates::default().implied().is_empty());
        let mut free = Rates::default();
        free.add(Op::Read, 4096, 0);
        free.add(Op::Flush, 0, 100);
        assert!(free.implied().is_empty());
    }
}

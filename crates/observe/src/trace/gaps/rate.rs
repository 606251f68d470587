//! The rates of the disk model that granted tokens, from the costs of pieces.
//!
//! **Why.** "Tokens" is half an answer. The other half is how fast they come, and whether that is a figure of this disk
//! at all. Seed 000 was a limit of 2^33 bytes per second that no user had set.
//!
//! **How.** A piece of n bytes costs 1 / IOPS + n / bandwidth of device time. A line through costs over lengths gives
//! both (least squares, summed by Welford's method). If all pieces have one length, there is one rate, for that length.
//!
//! **Limits.** Traces cut costs off to whole ns; half a ns is added. If costs are no line over lengths, there is one
//! rate, all bytes by all costs. One rate in 35 is within 1 % of a power of two by chance.
//!
//! **Example.** 1 MiB for 122,129 ns is 8.586 GB/s, 0.05 % below 2^33 bytes per second.

use plimsoll::core::Op;
use serde::Serialize;

/// Largest relative distance at which a rate looks like a power of two.
const NEAR: f64 = 0.01;

/// Smallest exponent that looks like a default; lower powers of two are common figures of disks.
const POWER_MIN: f64 = 20.0;

/// Mean length from which nearly all of a cost is for the bytes.
const LONG_BYTES: f64 = 131_072.0;

/// Least part of the variance that a line over lengths must explain.
const LINE_MIN: f64 = 0.999;

/// Means and sums of squared deviations of the costs of one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    n: f64,
    bytes: f64,
    cost_ns: f64,
    bytes_bytes: f64,
    cost_cost: f64,
    bytes_cost: f64,
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
    /// Bytes per second: of very long requests if `iops` is known, else of the requests in the trace.
    pub bytes_per_s: f64,
    /// Rate of very short requests, per second; `None` if lengths do not differ enough to compute it.
    pub iops: Option<f64>,
    pub len_mean_bytes: f64,
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
        let (from_bytes, from_ns) = (f64::from(len_bytes) - self.bytes, f64::from(cost_ns) + 0.5 - self.cost_ns);
        self.bytes += from_bytes / self.n;
        self.cost_ns += from_ns / self.n;
        let to_ns = f64::from(cost_ns) + 0.5 - self.cost_ns;
        self.bytes_bytes += from_bytes * (f64::from(len_bytes) - self.bytes);
        self.cost_cost += from_ns * to_ns;
        self.bytes_cost += from_bytes * to_ns;
    }

    fn implied(&self, direction: &'static str) -> Option<Implied> {
        if self.n < 1.0 {
            return None;
        }

        let explained = self.bytes_cost * self.bytes_cost / (self.bytes_bytes * self.cost_cost);
        let ns_per_byte = self.bytes_cost / self.bytes_bytes;
        let base_ns = self.cost_ns - ns_per_byte * self.bytes;
        let is_line = explained >= LINE_MIN && ns_per_byte > 0.0;
        let bytes_per_s = if is_line { 1e9 / ns_per_byte } else { self.bytes * 1e9 / self.cost_ns };
        let iops = Some(1e9 / base_ns).filter(|_| is_line && base_ns >= 1.0);
        let of_bytes = Some(bytes_per_s).filter(|_| is_line || self.bytes >= LONG_BYTES).and_then(power_of_two);
        let looks_like = of_bytes.map(|power| format!("2^{power} B/s"));
        let of_iops = || iops.and_then(power_of_two).map(|power| format!("2^{power} IOPS"));

        Some(Implied {
            direction,
            pieces: self.n as u64,
            bytes_per_s,
            iops,
            len_mean_bytes: self.bytes,
            looks_like: looks_like.or_else(of_iops),
        })
    }
}

/// Returns the exponent if `rate` is nearly a power of two.
fn power_of_two(rate: f64) -> Option<u32> {
    let power = rate.log2().round();
    ((POWER_MIN..64.0).contains(&power) && (rate / power.exp2() - 1.0).abs() <= NEAR).then_some(power as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(costs: impl IntoIterator<Item = (u32, u32)>) -> Implied {
        let mut rates = Rates::default();
        costs.into_iter().for_each(|(len_bytes, cost_ns)| rates.add(Op::Write, len_bytes, cost_ns));
        let mut implied = rates.implied();
        assert_eq!(implied.len(), 1);
        implied.remove(0)
    }

    /// Returns a length and its cost in a model of these rates, cut off to whole ns.
    fn cost_ns(len_bytes: u32, iops: f64, bytes_per_s: f64) -> (u32, u32) {
        (len_bytes, (1e9 / iops + f64::from(len_bytes) * 1e9 / bytes_per_s) as u32)
    }

    #[test]
    fn rates_of_models_and_which_of_them_look_like_a_default() {
        let (two_24, two_33) = (24_f64.exp2(), 33_f64.exp2());
        let long = [131_072, 262_144, 524_288, 1_048_576];
        /// Lengths, IOPS, bandwidth; whether IOPS can be computed; what the rates look like.
        type Case<'a> = (&'a [u32], f64, f64, bool, Option<&'a str>);
        let cases: [Case<'_>; 5] = [
            (&[1 << 20], two_24, two_33, false, Some("2^33 B/s")),
            (&long, two_24, two_33, true, Some("2^33 B/s")),
            (&[4096, 1 << 20], 218_786.0, 1_540_000_000.0, true, None),
            (&[4096], two_24, two_33, false, None),
            (&[1 << 20], 500_000.0, 7e9, false, None),
        ];

        for (lengths, iops, bytes_per_s, has_iops, looks_like) in cases {
            let found = rates((0..100).flat_map(|_| lengths.iter().map(|bytes| cost_ns(*bytes, iops, bytes_per_s))));
            assert_eq!(found.looks_like.as_deref(), looks_like, "{found:?}");
            assert_eq!(found.iops.is_some(), has_iops, "{found:?}");
            if has_iops {
                assert!((found.bytes_per_s / bytes_per_s - 1.0).abs() < 0.001, "{found:?}");
                assert!((found.iops.unwrap_or(0.0) / iops - 1.0).abs() < 0.02, "{found:?}");
            }
        }
    }

    #[test]
    fn costs_that_are_no_line_give_one_rate() {
        let found = rates([(1000, 1000), (2000, 50), (3000, 3000)]);
        assert!(found.iops.is_none() && (found.bytes_per_s - 6000.0 * 1e9 / 4051.5).abs() < 1e3, "{found:?}");
        assert!(Rates::default().implied().is_empty());
        let mut free = Rates::default();
        free.add(Op::Read, 4096, 0);
        free.add(Op::Flush, 0, 100);
        assert!(free.implied().is_empty(), "what costs nothing is granted by nobody");
    }
}

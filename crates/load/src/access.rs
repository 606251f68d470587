//! Chooses the position of the next random request.
//!
//! **Why.** Real data has popular places. A cache, a journal or a disk's mapping table that does well under uniform
//! requests may do badly (or much better) under skewed ones, so the skew is part of the load.
//!
//! **How.** [`AccessPicker`] draws positions `0..positions` in constant time and without tables:
//! * *Zipf* by rejection-inversion (Hoermann, Derflinger: "Rejection-inversion to generate variates from monotone
//!   discrete distributions", ACM TOMACS 6(3), 1996): the area under x^-theta is inverted, the result rounded, and the
//!   small difference from the true probabilities rejected. The method is exact for every theta, including 1.
//! * *Pareto* as fio defines it: rank = positions * u^(ln h / ln(1 - h)), so a part h of the data gets 1 - h of the
//!   requests.
//! * *Hot set*: two uniform distributions. *Normal*: Marsaglia's polar method, drawn again outside the data.
//! * *Once*: a uniform draw, then the next position not drawn yet, with a bit for each position. A request of
//!   several positions ends before the first drawn one, as in fio.
//! * *Zoned*: a zone by its part of the requests, then uniform in it. A zone too small for one position still gets one.
//!
//! Ranks of Zipf, Pareto and the hot set are scattered over the data by a seeded permutation, so popular positions
//! are not neighbours: multiplications by odd numbers and shifted exclusive-ors on as many bits as the last position
//! has, repeated while the result lies outside (less than twice on average). Pickers of the same seed have the same
//! popular positions, whatever random numbers they draw with. Normal and zoned positions stay next to each other.
//!
//! **Limits.** *Once* takes a bit for each position: 32 MiB for 1 TiB in 4 KiB. Logarithm and exponential are the
//! platform's and may differ in the last bit: the same seed gives the same positions on the same kind of machine. Draws
//! other than uniform have 53 bits: of more than 2^53 positions, some unpopular ones are never drawn.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_sim::rng::Rng;
//! use plimsoll_load::{Access, AccessPicker};
//! let mut picker = AccessPicker::new(&Access::HotSet { data_pct: 10.0, access_pct: 90.0 }, 1000, 7)?;
//! let mut rng = Rng::new(1);
//! let mut hits = vec![0; 1000];
//! (0..10_000).for_each(|_| hits[picker.next(&mut rng) as usize] += 1);
//! // 100 positions are drawn about 90 times each, the others about once.
//! assert_eq!(hits.iter().filter(|&&hits| hits > 30).count(), 100);
//! # Ok::<(), plimsoll_load::AccessError>(())
//! ```

use plimsoll_sim::dist::uniform;
use plimsoll_sim::rng::Rng;

use super::Access;

/// Largest difference of a sum of percentages from 100: three times 33.33 are 99.99.
const SUM_TOLERANCE_PCT: f64 = 0.1;
/// Below this [`exp_quotient`] and [`ln_quotient`] use their series.
const SERIES_BELOW: f64 = 1e-3;

/// Distance of theta from 1 below which the slower method is used, which is exact there. Farther off, powers lose at
/// most 3 of their 16 digits.
const NEAR_ONE: f64 = 1e-3;

/// Most positions of a [`Map`], which then takes 1 GiB.
const MAP_POSITIONS_MAX: u64 = 1 << 33;

/// A distribution that cannot be drawn from.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum AccessError {
    #[error("{parameter} is {value}, but must be {valid}")]
    OutOfRange { parameter: &'static str, value: f64, valid: &'static str },
    #[error("a map of {positions} positions takes more than 1 GiB: let them come more than once (fio: `norandommap`)")]
    TooMany { positions: u64 },
    #[error("the zones' parts of the {whole} make {sum_pct} %, but must make 100 %")]
    Sum {
        /// The whole: requests or data.
        whole: &'static str,
        sum_pct: f64,
    },
}

/// Draws positions from a distribution.
#[derive(Clone, Debug)]
pub struct AccessPicker {
    positions: u64,
    shape: Shape,
}

#[derive(Clone, Debug)]
enum Shape {
    Uniform,
    Once(Map),
    Zipf(Zipf, Scatter),
    /// The exponent applied to the uniform variate.
    Pareto(f64, Scatter),
    HotSet {
        hot: u64,
        /// Part of the requests that goes to the hot positions, 0 to 1.
        share: f64,
        scatter: Scatter,
    },
    /// Standard deviation as a fraction of the data.
    Normal(f64),
    Zoned(Vec<Zone>),
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    /// Requests of this zone and those before it, as a fraction of all.
    share_up_to: f64,
    first: u64,
    /// At least 1.
    count: u64,
}

impl AccessPicker {
    /// Returns a picker of positions below `positions` (0 counts as 1: the only position is 0). `seed` decides which
    /// positions are popular, not the order of the draws.
    pub fn new(access: &Access, positions: u64, seed: u64) -> Result<AccessPicker, AccessError> {
        let positions = positions.max(1);
        let scatter = || Scatter::new(positions, seed);

        let shape = match access {
            Access::Uniform => Shape::Uniform,
            Access::Once if positions > MAP_POSITIONS_MAX => return Err(AccessError::TooMany { positions }),
            Access::Once => Shape::Once(Map::new(positions)),
            Access::Zipf { theta } => {
                check("theta", *theta, *theta > 0.0 && *theta <= 10.0, "above 0 and at most 10")?;
                Shape::Zipf(Zipf::new(positions, *theta), scatter())
            }
            Access::Pareto { h } => {
                check("h", *h, *h > 0.0 && *h < 1.0, "above 0 and below 1")?;
                Shape::Pareto(h.ln() / (-h).ln_1p(), scatter())
            }
            Access::HotSet { data_pct, access_pct } => {
                check(
                    "the hot part of the data",
                    *data_pct,
                    *data_pct > 0.0 && *data_pct < 100.0,
                    "0 to 100 %, exclusive",
                )?;
                check("its part of the requests", *access_pct, (0.0..=100.0).contains(access_pct), "0 to 100 %")?;
                let hot = ((positions as f64 * data_pct / 100.0).round() as u64).clamp(1, positions);
                Shape::HotSet { hot, share: access_pct / 100.0, scatter: scatter() }
            }
            Access::Normal { deviation_pct } => {
                let is_valid = *deviation_pct > 0.0 && *deviation_pct <= 100.0;
                check("the standard deviation", *deviation_pct, is_valid, "above 0 and at most 100 % of the data")?;
                Shape::Normal(deviation_pct / 100.0)
            }
            Access::Zoned(zones) => Shape::Zoned(place_zones(zones, positions)?),
        };

        Ok(AccessPicker { positions, shape })
    }

    /// Draws a position for a request of `most` positions (at least 1). Returns the position, and the number of
    /// positions that the request may have.
    pub(super) fn take(&mut self, rng: &mut Rng, most: u64) -> (u64, u64) {
        if let Shape::Once(map) = &mut self.shape {
            return map.take(rng.below(self.positions), most);
        }
        (self.next(rng), most)
    }

    #[inline]
    pub fn next(&mut self, rng: &mut Rng) -> u64 {
        let last = self.positions - 1;
        match &mut self.shape {
            Shape::Uniform => rng.below(self.positions),
            Shape::Once(map) => map.take(rng.below(self.positions), 1).0,
            Shape::Zipf(zipf, scatter) => scatter.place(zipf.rank(rng)),
            Shape::Pareto(exponent, scatter) => {
                let rank = self.positions as f64 * uniform(rng).powf(*exponent);
                scatter.place((rank as u64).min(last))
            }
            Shape::HotSet { hot, share, scatter } => {
                let is_hot = uniform(rng) < *share || *hot == self.positions;
                let rank = if is_hot { rng.below(*hot) } else { *hot + rng.below(self.positions - *hot) };
                scatter.place(rank)
            }
            Shape::Normal(deviation) => ((normal_share(rng, *deviation) * self.positions as f64) as u64).min(last),
            Shape::Zoned(zones) => {
                let share = uniform(rng);
                let at = zones.partition_point(|zone| zone.share_up_to <= share);
                zones.get(at).or(zones.last()).map_or(0, |zone| zone.first + rng.below(zone.count))
            }
        }
    }
}

fn check(parameter: &'static str, value: f64, is_valid: bool, valid: &'static str) -> Result<(), AccessError> {
    if is_valid { Ok(()) } else { Err(AccessError::OutOfRange { parameter, value, valid }) }
}

/// Returns the beginning and length of each zone. The last zone gets the remainder of rounding.
fn place_zones(zones: &[(f64, f64)], positions: u64) -> Result<Vec<Zone>, AccessError> {
    let valid = 0.0..=100.0 + SUM_TOLERANCE_PCT;
    for &(requests_pct, data_pct) in zones {
        check("a zone's part of the requests", requests_pct, valid.contains(&requests_pct), "0 to 100 %")?;
        check("a zone's part of the data", data_pct, valid.contains(&data_pct), "0 to 100 %")?;
    }
    let sums = zones.iter().fold((0.0, 0.0), |sum, zone| (sum.0 + zone.0, sum.1 + zone.1));
    for (whole, sum_pct) in [("requests", sums.0), ("data", sums.1)] {
        if (sum_pct - 100.0).abs() > SUM_TOLERANCE_PCT {
            return Err(AccessError::Sum { whole, sum_pct });
        }
    }

    let (mut requests, mut data) = (0.0, 0.0);
    let (mut placed, mut first) = (Vec::with_capacity(zones.len()), 0);
    for (number, zone) in zones.iter().enumerate() {
        requests += zone.0;
        data += zone.1;
        let is_last = number + 1 == zones.len();
        let end = if is_last { positions } else { ((data / sums.1 * positions as f64).round() as u64).min(positions) };
        let start = first.min(positions - 1);
        placed.push(Zone { share_up_to: requests / sums.0, first: start, count: end.saturating_sub(start).max(1) });

        first = first.max(end);
    }
    Ok(placed)
}

/// Returns a point of the data (0 to 1, exclusive), normally distributed around 1/2.
fn normal_share(rng: &mut Rng, deviation: f64) -> f64 {
    loop {
        let (x, y) = (2.0 * uniform(rng) - 1.0, 2.0 * uniform(rng) - 1.0);
        let square = x * x + y * y;
        if square >= 1.0 || square == 0.0 {
            continue;
        }
        let share = 0.5 + deviation * x * (-2.0 * square.ln() / square).sqrt();
        if (0.0..1.0).contains(&share) {
            return share;
        }
    }
}

/// The positions drawn so far.
#[derive(Clone, Debug)]
struct Map {
    positions: u64,
    /// A bit for each position. Bits past the last position are set.
    words: Vec<u64>,
    left: u64,
}

impl Map {
    fn new(positions: u64) -> Map {
        let mut map = Map { positions, words: vec![0; positions.div_ceil(64) as usize], left: 0 };
        map.clear();
        map
    }

    fn clear(&mut self) {
        self.words.fill(0);
        self.left = self.positions;
        let beyond = self.positions % 64;
        if let (Some(last), 1..) = (self.words.last_mut(), beyond) {
            *last = u64::MAX << beyond;
        }
    }

    /// Takes at most `most` positions, beginning with the first undrawn one at or after `from` (wrapping around).
    /// Returns the first, and their number. Once all are drawn, begins again.
    fn take(&mut self, from: u64, most: u64) -> (u64, u64) {
        if self.left == 0 {
            self.clear();
        }
        let first = self.next_free(from).or_else(|| self.next_free(0)).unwrap_or(from);

        let mut count = 0;
        while count < most
            && let Some(word) = self.words.get_mut(((first + count) / 64) as usize)
            && *word & (1 << ((first + count) % 64)) == 0
        {
            *word |= 1 << ((first + count) % 64);
            count += 1;
        }
        self.left -= count;
        (first, count)
    }

    fn next_free(&self, from: u64) -> Option<u64> {
        let (first, begin) = ((from / 64) as usize, u64::MAX << (from % 64));
        let words = self.words.get(first..)?.iter().zip(first as u64..);
        let mut free = words.map(|(word, at)| (if at == first as u64 { !word & begin } else { !word }, at));
        free.find(|(free, _)| *free != 0).map(|(free, at)| at * 64 + u64::from(free.trailing_zeros()))
    }
}

/// A distribution of ranks from 0: rank n has a probability proportional to 1 / (n + 1)^theta.
#[derive(Clone, Debug)]
struct Zipf {
    theta: f64,
    /// 1 / (1 - theta).
    exponent: f64,
    /// Whether theta is so near 1 that powers would lose too many digits.
    is_near_one: bool,
    ranks: u64,
    /// Area at the lower end, including the first rank's whole probability.
    area_low: f64,
    area_high: f64,
    /// Distance from a rank's number within which no draw is rejected.
    sure: f64,
}

impl Zipf {
    fn new(ranks: u64, theta: f64) -> Zipf {
        let is_near_one = (theta - 1.0).abs() < NEAR_ONE;
        let exponent = 1.0 / (1.0 - theta);
        let zipf = Zipf { theta, exponent, is_near_one, ranks, area_low: 0.0, area_high: 0.0, sure: 0.0 };
        let sure = 2.0 - zipf.inverse(zipf.area(2.5) - 2.0_f64.powf(-theta));
        Zipf { area_low: zipf.area(1.5) - 1.0, area_high: zipf.area(ranks as f64 + 0.5), sure, ..zipf }
    }

    /// Returns the integral of t^-theta from 1 to `x`.
    fn area(&self, x: f64) -> f64 {
        let complement = 1.0 - self.theta;
        if self.is_near_one {
            let ln_x = x.ln();
            return exp_quotient(complement * ln_x) * ln_x;
        }
        (x.powf(complement) - 1.0) / complement
    }

    /// Returns the `x` at which the integral has the value `area`.
    fn inverse(&self, area: f64) -> f64 {
        let t = (area * (1.0 - self.theta)).max(-1.0);
        if self.is_near_one { (ln_quotient(t) * area).exp() } else { (1.0 + t).powf(self.exponent) }
    }

    fn rank(&self, rng: &mut Rng) -> u64 {
        loop {
            let area = self.area_high + uniform(rng) * (self.area_low - self.area_high);
            let x = self.inverse(area);
            // A cast rounds down, and saturates at the largest number.
            let number = ((x + 0.5) as u64).clamp(1, self.ranks);
            let rounded = number as f64;
            if rounded - x <= self.sure || area >= self.area(rounded + 0.5) - rounded.powf(-self.theta) {
                return number - 1;
            }
        }
    }
}

/// Returns (e^x - 1) / x, also near 0.
fn exp_quotient(x: f64) -> f64 {
    if x.abs() < SERIES_BELOW {
        return 1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0)));
    }
    x.exp_m1() / x
}

/// Returns ln(1 + x) / x, also near 0; `x` is at least -1.
fn ln_quotient(x: f64) -> f64 {
    if x.abs() < SERIES_BELOW {
        return 1.0 - x * (1.0 / 2.0 - x * (1.0 / 3.0 - x * (1.0 / 4.0 - x * (1.0 / 5.0 - x / 6.0))));
    }
    x.ln_1p() / x
}

/// A permutation of `0..count`.
#[derive(Clone, Debug)]
struct Scatter {
    count: u64,
    mask: u64,
    shift: u32,
    /// Addend and odd factor of each round.
    rounds: [(u64, u64); 3],
}

impl Scatter {
    /// Returns the permutation of `0..count` for `seed`; `count` is at least 1.
    fn new(count: u64, seed: u64) -> Scatter {
        let bits = (u64::BITS - (count - 1).leading_zeros()).max(1);
        let mut rng = Rng::new(seed);
        let rounds = [(); 3].map(|()| (rng.next_u64(), rng.next_u64() | 1));
        Scatter { count, mask: u64::MAX >> (u64::BITS - bits), shift: bits.div_ceil(2), rounds }
    }

    /// Returns the image of `rank`. Ranks from `count` on count as the last.
    #[inline]
    fn place(&self, rank: u64) -> u64 {
        let mut x = rank.min(self.count - 1);
        loop {
            for (addend, factor) in self.rounds {
                x = x.wrapping_add(addend).wrapping_mul(factor) & self.mask;
                x ^= x >> self.shift;
            }
            // Every step is invertible, so this ends, at the latest where it began.
            if x < self.count {
                return x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_sim::rng::Rng;
    use proptest::prelude::{Just, Strategy, prop_assert, prop_oneof, proptest};

    use super::*;

    fn hits_by_rank(access: &Access, positions: u64, draws: u32) -> Vec<f64> {
        let mut picker = AccessPicker::new(access, positions, 5).unwrap();
        let mut rank_at: Vec<usize> = (0..positions as usize).collect();
        if let Shape::Zipf(_, scatter) | Shape::Pareto(_, scatter) | Shape::HotSet { scatter, .. } = &picker.shape {
            (0..positions).for_each(|rank| rank_at[scatter.place(rank) as usize] = rank as usize);
        }
        let mut rng = Rng::new(11);
        let mut hits = vec![0.0; positions as usize];
        (0..draws).for_each(|_| hits[rank_at[picker.next(&mut rng) as usize]] += 1.0);
        hits
    }

    /// Checks Pearson's statistic against exact probabilities, with cells of fewer than 10 expected hits merged. With
    /// k degrees of freedom its mean is k and its variance 2k: six standard deviations are far beyond chance.
    fn check_fit(access: &Access, probabilities: &[f64]) {
        let draws = 400_000_u32;
        let hits = hits_by_rank(access, probabilities.len() as u64, draws);
        let (mut statistic, mut cells, mut rest) = (0.0, 0.0, (0.0, 0.0));
        let mut add = |hits: f64, expected: f64| {
            statistic += (hits - expected).powi(2) / expected;
            cells += 1.0;
        };
        for (hits, probability) in hits.iter().zip(probabilities) {
            let expected = probability * f64::from(draws);
            if expected >= 10.0 {
                add(*hits, expected);
            } else {
                rest = (rest.0 + hits, rest.1 + expected);
            }
        }
        if rest.1 >= 10.0 {
            add(rest.0, rest.1);
        }
        let freedom: f64 = cells - 1.0;
        let limit = freedom + 6.0 * (2.0 * freedom).sqrt() + 6.0;
        assert!(statistic < limit, "{access:?} of {}: {statistic} with {freedom} degrees", probabilities.len());
    }

    fn normalized(weights: Vec<f64>) -> Vec<f64> {
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect()
    }

    #[test]
    fn zipf_has_its_probabilities() {
        for theta in [0.01, 0.5, 0.8, 0.99, 0.9995, 1.0 - 1e-9, 1.0, 1.0 + 1e-6, 1.0011, 1.1, 1.5, 2.0, 4.0, 10.0] {
            for positions in [1, 2, 3, 10, 1000, 20_000] {
                let weights = (1..=positions).map(|n| f64::from(n).powf(-theta)).collect();
                check_fit(&Access::Zipf { theta }, &normalized(weights));
            }
        }
    }

    #[test]
    fn the_others_have_their_probabilities() {
        check_fit(&Access::Uniform, &[0.001; 1000]);
        for h in [0.1, 0.2, 0.5, 0.9] {
            let inverse = (1.0_f64 - h).ln() / h.ln();
            let up_to = |n: i32| (f64::from(n) / 500.0).powf(inverse);
            check_fit(&Access::Pareto { h }, &(0..500).map(|n| up_to(n + 1) - up_to(n)).collect::<Vec<_>>());
        }
        let hot: Vec<_> = (0..1000).map(|n| if n < 200 { 0.75 / 200.0 } else { 0.25 / 800.0 }).collect();
        check_fit(&Access::HotSet { data_pct: 20.0, access_pct: 75.0 }, &hot);
        let zones = vec![(60.0, 10.0), (30.0, 20.0), (0.0, 20.0), (10.0, 50.0)];
        let part = |n| match n {
            0..10 => 6e-2,
            10..30 => 1.5e-2,
            30..50 => 0.0,
            _ => 2e-3,
        };
        check_fit(&Access::Zoned(zones), &(0..100).map(part).collect::<Vec<_>>());
        for deviation_pct in [5.0, 20.0, 100.0] {
            let density = |n: i32| (-((f64::from(n) - 499.5) / (10.0 * deviation_pct)).powi(2) / 2.0).exp();
            check_fit(&Access::Normal { deviation_pct }, &normalized((0..1000).map(density).collect()));
        }
    }

    #[test]
    fn once_brings_every_position_before_any_again() {
        for positions in [1, 2, 63, 64, 65, 1000] {
            let mut picker = AccessPicker::new(&Access::Once, positions, 0).unwrap();
            let mut rng = Rng::new(positions);
            let mut round = || {
                let mut drawn: Vec<u64> = (0..positions).map(|_| picker.next(&mut rng)).collect();
                let is_sorted = drawn.is_sorted();
                drawn.sort_unstable();
                (drawn, is_sorted)
            };
            let all: Vec<u64> = (0..positions).collect();
            for nth in 0..3 {
                let (drawn, is_sorted) = round();
                assert_eq!(drawn, all, "round {nth} of {positions}");
                assert!(positions < 60 || !is_sorted, "in a drawn order");
            }
        }
    }

    #[test]
    fn long_requests_end_where_a_position_has_come() {
        let mut picker = AccessPicker::new(&Access::Once, 100, 0).unwrap();
        let (mut rng, mut hits) = (Rng::new(7), vec![0; 100]);
        let mut lengths = Vec::new();
        while hits.contains(&0) {
            let (first, count) = picker.take(&mut rng, 16);
            assert!((1..=16).contains(&count), "{first} {count}");
            (first..first + count).for_each(|at| hits[at as usize] += 1);
            lengths.push(count);
        }
        assert!(hits.iter().all(|hits| *hits == 1), "{hits:?}");
        assert!(lengths.contains(&16) && lengths.iter().any(|count| *count < 16), "{lengths:?}");
    }

    #[test]
    fn pareto_gives_a_fifth_of_the_data_four_fifths_of_the_requests() {
        let hits = hits_by_rank(&Access::Pareto { h: 0.2 }, 10_000, 100_000);
        let part = hits[..2000].iter().sum::<f64>() / 1e5;
        assert!((part - 0.8).abs() < 0.01, "{part}");
    }

    #[test]
    fn scattering_is_a_permutation_that_leaves_no_neighbours() {
        for count in (1..300).chain([1000, 4096, 65_537]) {
            let scatter = Scatter::new(count, count ^ 77);
            let mut is_hit = vec![false; count as usize];
            (0..count).for_each(|rank| is_hit[scatter.place(rank) as usize] = true);
            assert!(is_hit.iter().all(|&is_hit| is_hit), "{count}");
        }
        for (count, seed) in [(1 << 20, 1), (1_000_003, 2), ((1 << 40) + 1, 3), (1 << 60, 4)] {
            let scatter = Scatter::new(count, seed);
            let mut places: Vec<_> = (0..100).map(|rank| scatter.place(rank)).collect();
            places.sort_unstable();
            // Of 100 places in 10 equal parts no part has all, and almost no two are nearer than a 10000th of the
            // data.
            let near = places.windows(2).filter(|pair| pair[1] - pair[0] < count / 10_000).count();
            assert!(near < 8, "{count}: {near} of the popular positions are neighbours");
            for part in 0..10 {
                let in_part = places.iter().filter(|&&place| place / (count / 10 + 1) == part).count();
                assert!((1..=25).contains(&in_part), "{count}: {in_part} in part {part}");
            }
        }
    }

    #[test]
    fn the_seed_decides_what_is_popular_and_the_generator_in_which_order() {
        let access = Access::Zipf { theta: 1.0 };
        let draw = |seed, draws| {
            let (mut picker, mut rng) = (AccessPicker::new(&access, 1 << 30, seed).unwrap(), Rng::new(draws));
            (0..1000).map(|_| picker.next(&mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1, 1), draw(1, 1));
        assert_ne!(draw(1, 1), draw(2, 1));
        let most = |drawn: Vec<u64>| *drawn.iter().max_by_key(|&&a| drawn.iter().filter(|&&b| a == b).count()).unwrap();
        assert_eq!(most(draw(1, 1)), most(draw(1, 2)));
    }

    #[test]
    fn what_cannot_be_drawn_from_is_refused() {
        let zoned = |zones: &[(f64, f64)]| Access::Zoned(zones.to_vec());
        let cases = [
            (Access::Zipf { theta: 0.0 }, "theta is 0, but must be above 0 and at most 10"),
            (Access::Zipf { theta: f64::NAN }, "theta is NaN"),
            (Access::Pareto { h: 1.0 }, "h is 1, but must be above 0 and below 1"),
            (Access::HotSet { data_pct: 100.0, access_pct: 50.0 }, "the hot part of the data is 100"),
            (Access::HotSet { data_pct: 10.0, access_pct: -1.0 }, "its part of the requests is -1"),
            (Access::Normal { deviation_pct: 101.0 }, "the standard deviation is 101"),
            (zoned(&[]), "requests make 0 %"),
            (zoned(&[(50.0, 50.0), (50.0, 40.0)]), "data make 90 %"),
            (zoned(&[(120.0, 50.0), (-20.0, 50.0)]), "a zone's part of the requests is 120"),
        ];
        for (access, message) in cases {
            let error = AccessPicker::new(&access, 10, 0).unwrap_err().to_string();
            assert!(error.contains(message), "{access:?}: {error}");
        }
        let error = AccessPicker::new(&Access::Once, u64::MAX, 0).unwrap_err().to_string();
        assert!(error.contains("takes more than 1 GiB"), "{error}");
    }

    fn any_access() -> impl Strategy<Value = Access> {
        prop_oneof![
            Just(Access::Uniform),
            (1e-6..=10.0_f64).prop_map(|theta| Access::Zipf { theta }),
            (1e-6..0.999_999_f64).prop_map(|h| Access::Pareto { h }),
            (1e-6..99.999_f64, 0.0..=100.0_f64)
                .prop_map(|(data_pct, access_pct)| Access::HotSet { data_pct, access_pct }),
            (1e-6..=100.0_f64).prop_map(|deviation_pct| Access::Normal { deviation_pct }),
            proptest::collection::vec((1e-3..1.0_f64, 0.0..1.0_f64), 1..20).prop_map(|parts| {
                let sums = parts.iter().fold((0.0, 1e-9), |sum, part| (sum.0 + part.0, sum.1 + part.1));
                let data = |part: f64| (part + 1e-9 / parts.len() as f64) * 100.0 / sums.1;
                Access::Zoned(parts.iter().map(|part| (part.0 * 100.0 / sums.0, data(part.1))).collect())
            }),
        ]
    }

    proptest! {
        #[test]
        fn positions_stay_in_bounds(
            access in any_access(), positions in 0..=(1_u64 << 60), shift in 0..60_u32, seed: u64,
        ) {
            let positions = positions >> shift;
            let mut picker = AccessPicker::new(&access, positions, seed).unwrap();
            let mut rng = Rng::new(seed ^ 1);
            for _ in 0..100 {
                prop_assert!(picker.next(&mut rng) < positions.max(1));
            }
        }

        #[test]
        fn no_input_panics(a: f64, b: f64, positions: u64, seed: u64) {
            let accesses = [
                Access::Zipf { theta: a },
                Access::Pareto { h: a },
                Access::HotSet { data_pct: a, access_pct: b },
                Access::Normal { deviation_pct: a },
                Access::Zoned(vec![(a, b), (100.0 - a, 100.0 - b)]),
            ];
            for access in accesses {
                if let Ok(mut picker) = AccessPicker::new(&access, positions, seed) {
                    prop_assert!(picker.next(&mut Rng::new(seed)) < positions.max(1));
                }
            }
        }
    }
}

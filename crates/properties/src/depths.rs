//! Rates by the number of requests in flight: what a part of a disk's throughput costs in latency.
//!
//! # Why
//! On a disk without a sharp knee, the last tenth of the throughput costs many times the latency of the first nine. A
//! user who chooses a throughput goal and a latency goal for it needs that price.
//!
//! # How it works
//! A curve is a list of points by rising depth. The price of a goal is the shallowest point that reaches it.
//!
//! # Limits
//! Between two measured depths nothing is known: a goal's depth is at most the stated one. Latencies are medians.
//!
//! # Example
//! ```
//! use plimsoll_properties::depths::{DepthRate, prices, sentence};
//! let point = |depth, iops, p50_ns| DepthRate { depth, iops, p50_ns };
//! let prices = prices(&[point(1, 9_800, 101_000), point(4, 38_000, 104_000), point(16, 40_000, 390_000)]);
//! assert_eq!(prices.iter().map(|price| price.at.depth).collect::<Vec<_>>(), [4, 4, 16]);
//! let said = sentence("reads", &prices[1..]);
//! assert_eq!(said.as_deref(), Some("reads: 0.95 of the best rate needs depth 4 (p50 104 us), 0.99 depth 16 (p50 390 us)"));
//! ```

use plimsoll_figures::units::{format_duration_ns, parse_count};

use crate::error::{Code, ConfigError};
use crate::fields::{Field, Fields, MAX_FIGURE};

/// The throughput goals whose price is shown.
pub const GOALS: [f64; 3] = [0.90, 0.95, 0.99];

/// Most points of a curve: one for each power of two, with room.
const MAX_POINTS: usize = 32;
/// Description of a point in messages.
const POINT_HELP: &str = "[depth, IOPS, median latency in ns]";

/// The rate and latency of random requests of one length at one depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepthRate {
    /// Requests in flight, at least 1.
    pub depth: u32,
    /// Requests a second, 1 to [`MAX_FIGURE`].
    pub iops: u64,
    /// Median latency in nanoseconds, at most a minute.
    pub p50_ns: u64,
}

/// The price of a part of the best rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// The part, 0 to 1.
    pub goal: f64,
    /// The shallowest measured point that reaches it.
    pub at: DepthRate,
}

/// Returns the price of each of [`GOALS`], or none for an empty curve.
#[must_use]
pub fn prices(curve: &[DepthRate]) -> Vec<Price> {
    let best = curve.iter().map(|point| point.iops).max().unwrap_or(0) as f64;
    let price = |goal: f64| {
        let at = *curve.iter().find(|point| point.iops as f64 >= goal * best)?;
        Some(Price { goal, at })
    };
    GOALS.into_iter().filter_map(price).collect()
}

/// Returns the prices as a sentence without a full stop, or `None` without prices. `what` names the requests, such as
/// "random reads".
#[must_use]
pub fn sentence(what: &str, prices: &[Price]) -> Option<String> {
    let at = |price: &Price| format!("depth {} (p50 {})", price.at.depth, format_duration_ns(price.at.p50_ns));
    let (first, rest) = prices.split_first()?;
    let mut text = format!("{what}: {:.2} of the best rate needs {}", first.goal, at(first));
    for price in rest {
        text += &format!(", {:.2} {}", price.goal, at(price));
    }
    Some(text)
}

/// Reads the curve under `key`, a list of `[depth, IOPS, median latency in ns]` with rising depths. Empty without the
/// key.
pub(crate) fn parse(fields: &Fields<'_>, key: &str) -> Result<Vec<DepthRate>, ConfigError> {
    let Some(list) = fields.get(key) else { return Ok(Vec::new()) };
    let points = list.list().map_err(|error| error.with_help(format!("write a list of {POINT_HELP}")))?;
    if points.len() > MAX_POINTS {
        let error = list.error(Code::OutOfRange, format!("{} points are too many", points.len()));
        return Err(error.with_help(format!("keep {MAX_POINTS} at most")));
    }
    let mut curve: Vec<DepthRate> = Vec::with_capacity(points.len());
    for point in &points {
        let rate = parse_point(point)?;
        if curve.last().is_some_and(|last| last.depth >= rate.depth) {
            let error = point.error(Code::InvalidValue, format!("depth {} does not rise", rate.depth));
            return Err(error.with_help("order the points by rising depth, each depth once"));
        }
        curve.push(rate);
    }
    Ok(curve)
}

fn parse_point(point: &Field<'_>) -> Result<DepthRate, ConfigError> {
    let items = point.list()?;
    let [depth, iops, p50_ns] = items.as_slice() else {
        let error = point.error(Code::InvalidValue, format!("a point has three numbers, not {}", items.len()));
        return Err(error.with_help(format!("write {POINT_HELP}")));
    };
    Ok(DepthRate {
        depth: depth.count(1..=u32::MAX)?,
        iops: iops.figure(parse_count, 1..=MAX_FIGURE, "per second")?,
        p50_ns: p50_ns.latency_ns()?,
    })
}

/// Returns the text that [`parse`] reads.
pub(crate) fn text(curve: &[DepthRate]) -> String {
    let point = |DepthRate { depth, iops, p50_ns }: &DepthRate| format!("[{depth}, {iops}, {p50_ns}]");
    format!("[{}]", curve.iter().map(point).collect::<Vec<_>>().join(", "))
}

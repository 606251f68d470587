//! The median and the range of several figures.
//!
//! # Limits
//! Of an even number, the median is the lesser of the middle two.
//!
//! # Example
//! Of 9, 1 and 5 the median is 5, the range from 1 to 9.

/// A figure in several rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of `figures`; zeros if there are none.
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Spread {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let Some(last) = figures.len().checked_sub(1) else { return Spread::default() };
        Spread { median: figures[last / 2], min: figures[0], max: figures[last] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_figures_are_their_median_and_their_range() {
        let spread = |median, min, max| Spread { median, min, max };
        assert_eq!(Spread::of([]), spread(0.0, 0.0, 0.0));
        assert_eq!(Spread::of([3.0]), spread(3.0, 3.0, 3.0));
        assert_eq!(Spread::of([9.0, 1.0, 5.0]), spread(5.0, 1.0, 9.0));
        assert_eq!(Spread::of([8.0, 2.0]), spread(2.0, 2.0, 8.0));
    }
}

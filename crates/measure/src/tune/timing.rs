//! How long the parts of a measurement take.
//!
//! # Why
//! Three promises hold on any disk: `--quick` takes a minute at most, the default five, and `--full` as many rounds as
//! it was given. Inside, a phase ends when its figure is known well enough.
//!
//! # How it works
//! [`Timing::of`] is a table by mode. A length that the user sets for each figure shortens everything in proportion.
//!
//! # Limits
//! The lengths are those of samples; threads that start and files that are opened come on top, some milliseconds each.
//!
//! # Example
//! Quick: a figure takes 2 to 4 s in samples of 0.25 s, and ends as soon as its 95 % interval is within 2 %.

use super::Mode;

/// See the module's documentation. Seconds, unless named otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timing {
    /// Filling ends then, though less data is there than wanted.
    pub(super) fill_max_s: f64,
    /// One depth of a search.
    pub(super) search_s: f64,
    /// One sample of a figure.
    pub(super) sample_s: f64,
    /// The samples of a figure: at least,
    pub(super) figure_min_s: f64,
    /// and at most.
    pub(super) figure_max_s: f64,
    /// Half the width of the 95 % interval that is good enough, in per cent.
    pub(super) enough_pct: f64,
    /// One size of a curve, each time it comes.
    pub(super) size_s: f64,
    /// How often each size comes.
    pub(super) size_rounds: u32,
    /// One size of the search for the physical block, each time it comes.
    pub(super) block_s: f64,
    /// How often each comes.
    pub(super) block_rounds: u32,
    /// Mixes of reads and writes.
    pub(super) rays: u32,
    /// Steps by which each mix is bisected.
    pub(super) bisections: u32,
    /// One step.
    pub(super) ray_s: f64,
    /// How often a phase is made, at most, while others use the disk.
    pub(super) attempts_max: u32,
    /// No phase is repeated when it would end after this.
    pub(super) total_max_s: f64,
}

impl Timing {
    /// Of a mode; `phase_s` is the length of each figure where the user set one.
    pub(super) fn of(mode: Mode, phase_s: Option<f64>) -> Timing {
        let usual = match mode {
            Mode::Quick => Timing {
                fill_max_s: 4.0,
                search_s: 0.25,
                sample_s: 0.25,
                figure_min_s: 2.0,
                figure_max_s: 4.0,
                enough_pct: 2.0,
                size_s: 0.2,
                size_rounds: 1,
                block_s: 0.12,
                block_rounds: 3,
                rays: 3,
                bisections: 4,
                ray_s: 0.4,
                attempts_max: 2,
                total_max_s: 55.0,
            },
            Mode::Standard => Timing {
                fill_max_s: 25.0,
                search_s: 0.6,
                sample_s: 0.5,
                figure_min_s: 8.0,
                figure_max_s: 25.0,
                enough_pct: 1.0,
                size_s: 0.4,
                size_rounds: 2,
                block_s: 0.25,
                block_rounds: 4,
                rays: 5,
                bisections: 5,
                ray_s: 0.9,
                attempts_max: 3,
                total_max_s: 280.0,
            },
            Mode::Full => Timing {
                fill_max_s: f64::INFINITY,
                search_s: 1.0,
                size_s: 1.0,
                size_rounds: 3,
                block_s: 0.5,
                rays: 7,
                bisections: 6,
                ray_s: 2.0,
                total_max_s: f64::INFINITY,
                ..Timing::of(Mode::Standard, None)
            },
        };
        let Some(phase_s) = phase_s else { return usual };
        let part = |seconds: f64| seconds.min(phase_s / 8.0);
        Timing {
            search_s: part(usual.search_s),
            sample_s: usual.sample_s.min(phase_s / 6.0),
            figure_min_s: phase_s,
            figure_max_s: phase_s,
            size_s: part(usual.size_s),
            block_s: part(usual.block_s),
            ray_s: part(usual.ray_s),
            total_max_s: f64::INFINITY,
            ..usual
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most that all samples of a mode take, without repeated phases: 9 depths for IOPS, 6 for bandwidths.
    fn longest_s(timing: &Timing) -> f64 {
        let searches = 2.0 * (9.0 + 6.0) * timing.search_s;
        let figures = 4.0 * timing.figure_max_s * 1.1;
        let sizes = (2.0 * 12.0 + 2.0 * 9.0) * timing.size_s * f64::from(timing.size_rounds);
        let blocks = 8.0 * timing.block_s * f64::from(timing.block_rounds);
        let rays = (2.0 + f64::from(timing.rays * timing.bisections)) * timing.ray_s;
        // A warm-up of a tenth of a second at most inside each sample, and the cost of single operations.
        (timing.fill_max_s + searches + figures + sizes + blocks + rays) * 1.15 + 3.0
    }

    #[test]
    fn promises_are_kept() {
        let quick_s = longest_s(&Timing::of(Mode::Quick, None));
        let standard_s = longest_s(&Timing::of(Mode::Standard, None));
        assert!(quick_s <= 60.0, "{quick_s}");
        assert!(standard_s <= 300.0, "{standard_s}");
    }

    #[test]
    fn a_set_length_shortens_everything() {
        let timing = Timing::of(Mode::Standard, Some(0.12));
        assert_eq!((timing.figure_min_s, timing.figure_max_s), (0.12, 0.12));
        assert!(timing.search_s <= 0.015 && timing.ray_s <= 0.015 && timing.sample_s <= 0.02);
    }
}

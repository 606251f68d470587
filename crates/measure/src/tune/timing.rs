//! Lengths of the parts of a measurement.
//!
//! **Why.** Three bounds hold on any disk: `--quick` takes at most a minute, the default at most five, and `--full` at
//! most the given rounds. Within them, a phase ends when its figure is known precisely enough.
//!
//! **How.** [`Timing::of`] is a table by mode. If the user sets a length for each figure, all lengths shrink in
//! proportion.
//!
//! **Limits.** The lengths are those of samples; starting threads and opening files adds some milliseconds each.
//!
//! **Example.** Quick: a figure takes 2 to 4 s in samples of 0.3 s, and ends as soon as its 95 % interval is within 2
//! %.

use super::Mode;

/// Lengths and counts of the parts of a measurement. Lengths are in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timing {
    /// Longest time to fill scratch data. Filling ends then, even with less data than requested.
    pub(super) fill_max_s: f64,
    /// Length of one depth of a search. Like that of a sample, a multiple of 100 ms: a limiter may count over slices of
    /// that length, as a control group does, and a part of a slice would add all or none of its allowance.
    pub(super) search_s: f64,
    /// Length of one sample of a figure.
    pub(super) sample_s: f64,
    /// Shortest total of a figure's samples.
    pub(super) figure_min_s: f64,
    /// Longest total of a figure's samples.
    pub(super) figure_max_s: f64,
    /// Half width of a 95 % interval that is narrow enough, in per cent.
    pub(super) enough_pct: f64,
    /// Length of each visit to a size of a curve.
    pub(super) size_s: f64,
    pub(super) size_rounds: u32,
    /// Length of each visit to a size in the search for the physical block.
    pub(super) block_s: f64,
    /// Visits to each such size.
    pub(super) block_rounds: u32,
    /// Number of mixes of reads and writes.
    pub(super) rays: u32,
    /// Steps of the bisection of each mix.
    pub(super) bisections: u32,
    /// Length of one such step.
    pub(super) ray_s: f64,
    /// Most attempts at a phase while other programs use the disk.
    pub(super) attempts_max: u32,
    /// Latest end of the measurement at which a phase may still be repeated.
    pub(super) total_max_s: f64,
}

impl Timing {
    /// Returns the timing of a mode. `phase_s` is the length of each figure, if the user set one.
    pub(super) fn of(mode: Mode, phase_s: Option<f64>) -> Timing {
        let usual = match mode {
            Mode::Quick => Timing {
                fill_max_s: 4.0,
                search_s: 0.3,
                sample_s: 0.3,
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

    /// Returns the longest time of a mode's samples, without repeated phases: 9 depths for IOPS, 6 for bandwidths.
    fn longest_s(timing: &Timing) -> f64 {
        let searches = 2.0 * (9.0 + 6.0) * timing.search_s;
        let figures = 4.0 * timing.figure_max_s * 1.1;
        let sizes = (2.0 * 12.0 + 2.0 * 9.0) * timing.size_s * f64::from(timing.size_rounds);
        let blocks = 8.0 * timing.block_s * f64::from(timing.block_rounds);
        let rays = (2.0 + f64::from(timing.rays * timing.bisections)) * timing.ray_s;
        // Each sample contains a warm-up of at most a tenth of a second; single operations add to the time.
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
    fn samples_last_for_whole_slices_of_what_may_limit_the_disk() {
        for mode in [Mode::Quick, Mode::Standard, Mode::Full] {
            let Timing { search_s, sample_s, .. } = Timing::of(mode, None);
            for slices in [search_s * 10.0, sample_s * 10.0] {
                assert!((slices - slices.round()).abs() < 1e-9, "{mode:?}: {slices} slices");
            }
        }
    }

    #[test]
    fn a_set_length_shortens_everything() {
        let timing = Timing::of(Mode::Standard, Some(0.12));
        assert_eq!((timing.figure_min_s, timing.figure_max_s), (0.12, 0.12));
        assert!(timing.search_s <= 0.015 && timing.ray_s <= 0.015 && timing.sample_s <= 0.02);
    }
}

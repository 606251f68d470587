//! The number of devices that a cache effectively writes to: series and windows of bytes by device.
//!
//! # Why
//! A cache on three disks that writes to one of them at a time has the speed of one. If the disks take turns, the mean
//! over a minute hides that; a window of two seconds does not.
//!
//! # How it works
//! [`Series`] keeps samples of bytes written since the beginning. A window's effective number of devices is
//! (sum x)^2 / sum x^2 of the bytes x that each device wrote in it: n for n equal devices, 1 for one that writes alone
//! (the inverse of Herfindahl's index; Jain, Chiu, Hawe 1984 divide it by n). Bytes at the ends of a window are
//! interpolated between samples.
//!
//! # Limits
//! A window in which nothing is written counts as 0 devices. The rest after the last full window is ignored.
//!
//! # Example
//! ```
//! use plimsoll_cache_tools::bench::windows::{Series, effective_devices};
//! assert_eq!(effective_devices(&[100.0, 100.0, 100.0]), 3.0);
//! let mut series = Series::default();
//! series.push(0.0, vec![0, 0]);
//! series.push(2.0, vec![200, 0]);
//! series.push(4.0, vec![200, 200]);
//! assert_eq!(series.effective(2.0), [1.0, 1.0]);
//! ```

/// Length of a window, in seconds, as documented for `cache bench`.
pub const WINDOW_S: f64 = 2.0;

/// Returns the number of devices that effectively did the work; 0 if there was none.
pub fn effective_devices(bytes: &[f64]) -> f64 {
    let sum: f64 = bytes.iter().sum();
    let squares: f64 = bytes.iter().map(|bytes| bytes * bytes).sum();
    if squares > 0.0 { sum * sum / squares } else { 0.0 }
}

/// Seconds since the beginning, and bytes of each device since then.
type Sample = (f64, Vec<u64>);

/// Bytes written by device over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// In order of time.
    samples: Vec<Sample>,
}

impl Series {
    /// Adds a sample. A device that joined later has written nothing before.
    pub fn push(&mut self, at_s: f64, bytes: Vec<u64>) {
        self.samples.push((at_s, bytes));
    }

    /// Returns the number of devices in the last sample.
    pub fn devices(&self) -> usize {
        self.samples.last().map_or(0, |(_, bytes)| bytes.len())
    }

    /// Returns the write rate of a device: (time between two samples in seconds, bytes per second).
    pub fn rates(&self, device: usize) -> Vec<(f64, f64)> {
        let of = |bytes: &[u64]| bytes.get(device).copied().unwrap_or(0);
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        let rate = |((from_s, before), (to_s, after)): (&Sample, &Sample)| {
            let seconds = (to_s - from_s).max(1e-9);
            ((from_s + to_s) / 2.0, of(after).saturating_sub(of(before)) as f64 / seconds)
        };
        pairs.map(rate).collect()
    }

    /// Returns the effective number of devices in each full window of `window_s` seconds (above 0).
    pub fn effective(&self, window_s: f64) -> Vec<f64> {
        let (Some((begin_s, _)), Some((end_s, _))) = (self.samples.first(), self.samples.last()) else {
            return Vec::new();
        };
        // A last sample that comes a little early still completes the window.
        let full = ((end_s - begin_s) / window_s + 0.02).floor().max(0.0) as usize;
        let window = |at: usize| {
            let from_s = begin_s + at as f64 * window_s;
            let bytes: Vec<f64> = (0..self.devices())
                .map(|device| self.bytes_at(device, from_s + window_s) - self.bytes_at(device, from_s))
                .collect();
            effective_devices(&bytes)
        };
        (0..full).map(window).collect()
    }

    fn bytes_at(&self, device: usize, at_s: f64) -> f64 {
        let of = |sample: &Sample| (sample.0, sample.1.get(device).copied().unwrap_or(0) as f64);
        let next = self.samples.partition_point(|(time_s, _)| *time_s < at_s);
        let before = next.checked_sub(1).and_then(|at| self.samples.get(at)).map(of);
        match (before, self.samples.get(next).map(of)) {
            (Some((from_s, from)), Some((to_s, to))) => from + (to - from) * (at_s - from_s) / (to_s - from_s),
            (Some((_, bytes)), None) | (None, Some((_, bytes))) => bytes,
            (None, None) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effective_devices_count_equal_shares() {
        let cases: [(&[f64], f64); 6] =
            [(&[], 0.0), (&[0.0, 0.0], 0.0), (&[5.0], 1.0), (&[5.0, 0.0], 1.0), (&[5.0, 5.0], 2.0), (&[3.0, 1.0], 1.6)];
        for (bytes, expected) in cases {
            assert!((effective_devices(bytes) - expected).abs() < 1e-12, "{bytes:?}");
        }
    }

    #[test]
    fn windows_are_full_and_interpolated() {
        let mut series = Series::default();
        // Two devices in turns of a second: 1 in windows of a second, 2 in those of two.
        for step in 0..=50u64 {
            let (turns, rest) = (step / 20, step % 20);
            let of_first = turns * 10 + rest.min(10);
            series.push(step as f64 * 0.1, vec![of_first, step - of_first]);
        }
        assert_eq!(series.effective(2.0).len(), 2, "five seconds have two full windows");
        for effective in series.effective(2.0) {
            assert!((effective - 2.0).abs() < 1e-9, "{effective}");
        }
        for effective in series.effective(1.0) {
            assert!((effective - 1.0).abs() < 1e-6, "{effective}");
        }
        assert_eq!(series.effective(0.25).len(), 20);
        assert!(Series::default().effective(2.0).is_empty());
    }

    #[test]
    fn a_device_that_joins_has_written_nothing_before() {
        let mut series = Series::default();
        series.push(0.0, vec![100]);
        series.push(2.0, vec![300]);
        series.push(4.0, vec![500, 200]);
        assert_eq!(series.effective(2.0), [1.0, 2.0]);
        assert_eq!(series.rates(1), [(1.0, 0.0), (3.0, 100.0)]);
        assert_eq!(series.devices(), 2);
    }

    #[test]
    fn a_window_without_writes_is_no_device() {
        let mut series = Series::default();
        series.push(0.0, vec![0, 0]);
        series.push(2.0, vec![10, 10]);
        series.push(4.0, vec![10, 10]);
        assert_eq!(series.effective(2.0), [2.0, 0.0]);
    }
}

//! Searches presets by words and by figures.
//!
//! **Why.** "Which instance has 600 000 reads per second?" is asked before a name is known.
//!
//! **How.** [`search`] keeps the presets whose name, title, family or source contains every word of a text, and whose
//! figures (of all disks) are at least a [`Minimum`]. They are sorted by the largest ratio of a figure to its minimum,
//! the smallest first.
//!
//! **Limits.** Volumes are judged by their base: bursts do not count, and provisioning is not tried. A preset of
//! unknown capacity meets no minimum of it.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_files::presets::{Minimum, search};
//! let minimum = Minimum { read_iops: Some(750_000), write_iops: Some(400_000), ..Minimum::default() };
//! let found = search("i4i", &minimum);
//! assert_eq!(found[0].name, "i4i.8xlarge");
//! ```

use plimsoll_sim::device::presets::names;

use super::{PresetInfo, resolve};

/// Least figures of a preset, all its disks together; `None`: any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minimum {
    pub read_iops: Option<u64>,
    pub write_iops: Option<u64>,
    pub read_bandwidth_bytes_per_s: Option<u64>,
    pub write_bandwidth_bytes_per_s: Option<u64>,
    pub capacity_bytes: Option<u64>,
}

impl Minimum {
    /// Returns the largest ratio of a figure to its minimum, at least 1; 1 if there is no minimum, `None` if a figure
    /// is too small or unknown.
    fn excess(&self, preset: &PresetInfo) -> Option<f64> {
        let total = &preset.total;
        let pairs = [
            (self.read_iops, Some(total.read_iops)),
            (self.write_iops, Some(total.write_iops)),
            (self.read_bandwidth_bytes_per_s, Some(total.read_bandwidth)),
            (self.write_bandwidth_bytes_per_s, Some(total.write_bandwidth)),
            (self.capacity_bytes, preset.capacity_bytes),
        ];
        let mut most = 1.0f64;
        for (asked, has) in pairs.into_iter().filter_map(|(asked, has)| Some((asked?, has))) {
            let has = has.filter(|has| *has >= asked)?;
            most = most.max(has as f64 / asked.max(1) as f64);
        }
        Some(most)
    }
}

pub fn all() -> Vec<PresetInfo> {
    names().filter_map(|name| resolve(name).ok()).map(|resolved| PresetInfo::of(&resolved)).collect()
}

/// Returns the presets with every word of `text` (in upper or lower case) and at least `minimum`, the nearest first.
pub fn search(text: &str, minimum: &Minimum) -> Vec<PresetInfo> {
    let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
    let has_words = |preset: &PresetInfo| {
        let of_text = [preset.title, preset.family.as_deref(), Some(preset.source)];
        let fields = [Some(preset.name.as_str()), Some(preset.kind)].into_iter().chain(of_text);
        let fields: Vec<String> = fields.flatten().map(str::to_lowercase).collect();
        words.iter().all(|word| fields.iter().any(|field| field.contains(word)))
    };
    let mut found: Vec<(f64, PresetInfo)> = all()
        .into_iter()
        .filter(has_words)
        .filter_map(|preset| minimum.excess(&preset).map(|excess| (excess, preset)))
        .collect();
    // The sort is stable: equals stay in the order of the tables.
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found.into_iter().map(|(_, preset)| preset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_of(presets: &[PresetInfo]) -> Vec<&str> {
        presets.iter().map(|preset| preset.name.as_str()).collect()
    }

    #[test]
    fn the_nearest_that_carries_it_comes_first() {
        // Least reads, writes and bytes read per second, and capacity in GB; a text, and the preset found first.
        let cases = [
            (Some(220_000), None, None, None, "i7ie", "i7ie.3xlarge"),
            (Some(700_000), Some(400_000), None, None, "i4i", "i4i.8xlarge"),
            (None, None, Some(15_000_000_000), None, "i3en", "i3en.24xlarge"),
            (None, None, None, Some(6000), "i4i", "i4i.8xlarge"),
            (Some(400_000), None, None, None, "samsung 990", "samsung-ssd-990-evo-1tb"),
        ];
        for (read_iops, write_iops, read_bandwidth_bytes_per_s, gb, text, expected) in cases {
            let capacity_bytes = gb.map(|gb: u64| gb * 1_000_000_000);
            let minimum =
                Minimum { read_iops, write_iops, read_bandwidth_bytes_per_s, capacity_bytes, ..Minimum::default() };
            let found = search(text, &minimum);
            assert_eq!(names_of(&found).first(), Some(&expected), "{text} {minimum:?}");
            assert!(found.iter().all(|preset| minimum.excess(preset).is_some()));
        }

        assert!(search("", &Minimum { read_iops: Some(u64::MAX), ..Minimum::default() }).is_empty());
        let burst = Minimum { read_iops: Some(3000), ..Minimum::default() };
        assert!(search("gp2", &burst).is_empty(), "3000 is its burst");
        assert!(search("oci", &Minimum { capacity_bytes: Some(1), ..Minimum::default() }).is_empty());
        assert_eq!(names_of(&search("983 rating", &Minimum::default())), ["samsung-983-dct-1.92tb"]);
        assert_eq!(search(" ", &Minimum::default()).len(), all().len());
    }
}

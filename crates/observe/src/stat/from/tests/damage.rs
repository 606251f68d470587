//! Any bytes, words and changes of samples: read soundly, or refused with the file's name.

use proptest::prelude::*;

use super::*;

/// Returns a sample with some bytes changed.
fn mutated(bytes: &[u8], edits: &[(usize, u8, u8)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, kind, byte) in edits {
        let at = at % (bytes.len() + 1);
        match kind % 4 {
            0 => bytes.truncate(at.max(1)),
            1 => bytes.insert(at, *byte),
            2 if at < bytes.len() => bytes[at] = *byte,
            _ if at < bytes.len() => drop(bytes.remove(at)),
            _ => {}
        }
    }
    bytes
}

/// Checks that the result is sound: figures are finite and not negative, names occur once, errors name the file.
fn check(bytes: &[u8]) {
    match read("file", bytes, &ReadOptions { interval_s: Some(1.0), ..ReadOptions::default() }) {
        Ok(recorded) => {
            for interval in &recorded.intervals {
                let mut names: Vec<&str> = interval.devices.iter().map(|device| device.device.as_str()).collect();
                names.sort_unstable();
                assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
                assert!(interval.duration_s.is_none_or(|seconds| seconds > 0.0 && seconds.is_finite()));
                for device in &interval.devices {
                    let mut values = device.columns.all().into_iter().flatten();
                    assert!(values.all(|value| value.is_finite() && value >= 0.0), "{device:?}");
                }
            }
        }
        Err(error) => assert!(error.to_string().starts_with("file")),
    }
}

/// A pattern for words that may occur in a text of iostat.
const WORD: &str = "[a-z%/_\\-]{0,6}|[0-9.,-]{1,6}|Device|r/s|%util|\n|\n";

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        check(&bytes);
    }

    #[test]
    fn any_words_are_read_or_refused(words in prop::collection::vec(WORD, 0..80)) {
        check(words.join(" ").as_bytes());
    }

    #[test]
    fn changed_samples_are_read_or_refused(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec((any::<usize>(), any::<u8>(), any::<u8>()), 0..6),
    ) {
        let samples = samples();
        check(&mutated(&samples[which.index(samples.len())].1, &edits));
    }
}

//! Which seeds a randomised test runs: one place for the tests of all crates, which take it by `#[path]`.
//!
//! A few run always; `PLIMSOLL_SEEDS=FIRST..END` runs those from FIRST to before END instead. `bench/soak` does so for
//! hours; what it finds is repeated with that variable.

#![allow(dead_code, reason = "each crate uses a part of it")]
#![allow(clippy::disallowed_methods, reason = "core does not see the environment, its tests do")]

use std::ops::Range;

/// What `PLIMSOLL_SEEDS` says, or the first `few`.
pub(crate) fn seeds(few: u64) -> Range<u64> {
    let Ok(text) = std::env::var("PLIMSOLL_SEEDS") else { return 0..few };
    let parse = |text: &str| text.trim().parse::<u64>().ok();
    let range = text.split_once("..").and_then(|(first, end)| Some(parse(first)?..parse(end)?));
    // A run without seeds would pass.
    range
        .filter(|range: &Range<u64>| !range.is_empty())
        .unwrap_or_else(|| panic!("PLIMSOLL_SEEDS is `{text}`: give FIRST..END, as in 17..18"))
}

/// Runs `run` with each of them, and says how many they were; names the one that fails.
pub(crate) fn each(few: u64, mut run: impl FnMut(u64)) -> u64 {
    let seeds = seeds(few);
    let count = seeds.end.saturating_sub(seeds.start);
    for seed in seeds {
        let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed)));
        if let Err(why) = end {
            println!("seed {seed} fails: PLIMSOLL_SEEDS={seed}..{} repeats it", seed + 1);
            std::panic::resume_unwind(why);
        }
    }
    count
}

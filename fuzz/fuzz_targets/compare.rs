//! libFuzzer's way into [`plimsoll_fuzz::compare_results`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plimsoll_fuzz::run(plimsoll_fuzz::compare_results, bytes));

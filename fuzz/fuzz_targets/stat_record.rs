//! libFuzzer's way into [`plimsoll_fuzz::stat_record`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plimsoll_fuzz::run(plimsoll_fuzz::stat_record, bytes));

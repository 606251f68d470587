//! libFuzzer's way into [`plimsoll_fuzz::iostat_json`].

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| plimsoll_fuzz::run(plimsoll_fuzz::iostat_json, bytes));

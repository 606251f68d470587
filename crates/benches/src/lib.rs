//! Benchmarks of `core`, `sim` and `io`: `cargo bench -p plimsoll-benches --bench queue`.
//!
//! They stand apart so that criterion and its dependencies are built for benchmarks alone: not for the tests of these crates,
//! and not again for loom and AddressSanitizer.

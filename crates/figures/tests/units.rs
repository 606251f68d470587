//! Sizes, rates, durations and counts: one table per grammar, one per way of printing.

use plimsoll_figures::units::{
    UnitError, format_bytes_binary, format_bytes_decimal, format_count, format_duration_ns, format_iops,
    format_iops_short, format_throughput_binary, format_throughput_decimal, parse_count, parse_duration_ns,
    parse_io_properties_figure, parse_io_tester_duration_ns, parse_io_tester_size_bytes, parse_rate_bytes_per_s,
    parse_size_bytes,
};

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
const G: u64 = 1 << 30;
const T: u64 = 1 << 40;

/// Checks that texts in `good` are read, and those in `bad` refused.
fn check(parse: fn(&str) -> Result<u64, UnitError>, good: &[(&str, u64)], bad: &[&str]) {
    for (text, expected) in good {
        assert_eq!(parse(text), Ok(*expected), "{text}");
    }
    for text in bad {
        let error = parse(text).expect_err(text);
        assert!(!error.message.is_empty() && !error.help.is_empty(), "{text}");
    }
}

#[test]
fn io_properties_figures_have_binary_suffixes() {
    check(
        parse_io_properties_figure,
        &[
            ("0", 0),
            ("95000", 95_000),
            ("010", 10),
            ("95k", 97_280),
            ("1K", K),
            ("545M", 545 * M),
            ("1G", G),
            ("2T", 2 * T),
            ("1ki", K),
            ("1kB", K),
            ("1KiB", K),
            ("1GB", G),
            ("64MiB", 64 * M),
            ("18446744073709551615", u64::MAX),
        ],
        &[
            "",
            " ",
            "k",
            "B",
            "5 k",
            "5B",
            "1.5G",
            "1e9",
            "0x10",
            "1_000",
            "1,000",
            "-5",
            "+5",
            "5m",
            "5g",
            "5kb",
            "5P",
            "5kHz",
            "5kk",
            "5k/s",
            "18446744073709551616",
            "16777216T",
            "\u{664}",
            "5\u{b5}",
        ],
    );
}

#[test]
fn io_tester_sizes_are_its_own_and_a_documented_superset() {
    check(
        parse_io_tester_size_bytes,
        &[
            ("0", 0),
            ("512", 512),
            ("4kB", 4 * K),
            ("256kB", 256 * K),
            ("1MB", M),
            ("21GB", 21 * G),
            ("4k", 4 * K),
            ("4K", 4 * K),
            ("4KiB", 4 * K),
            ("1M", M),
            ("1MiB", M),
            ("1G", G),
            ("1GiB", G),
        ],
        &["", "512B", "1.5MB", "4 kB", "4KB", "1TB", "1e3", "kB", "17179869184GB", "-1"],
    );
}

#[test]
fn io_tester_durations_need_a_unit() {
    check(
        parse_io_tester_duration_ns,
        &[
            ("0", 0),
            ("0us", 0),
            ("90us", 90_000),
            ("1000us", 1_000_000),
            ("5ns", 5),
            ("3ms", 3_000_000),
            ("2s", 2_000_000_000),
        ],
        &["", "5", "00", "1.5ms", "5m", "5 us", "us", "-1us", "5min", "18446744073710s"],
    );
}

#[test]
fn command_line_sizes_and_rates() {
    check(
        parse_size_bytes,
        &[
            ("512", 512),
            ("512B", 512),
            ("128k", 128 * K),
            ("128 KiB", 128 * K),
            ("8GiB", 8 * G),
            ("8gb", 8 * G),
            (" 1T ", T),
            ("1mi", M),
        ],
        &["", "8x", "1.5G", "G", "8GBit", "16777216T"],
    );
    check(
        parse_rate_bytes_per_s,
        &[("100MiB/s", 100 * M), ("100M", 100 * M), ("5/s", 5)],
        &["", "/s", "5/m", "5M/s/s"],
    );
}

#[test]
fn command_line_durations_have_decimals() {
    check(
        parse_duration_ns,
        &[
            ("0", 0),
            ("0.0", 0),
            ("1.5ms", 1_500_000),
            ("0.75 ms", 750_000),
            ("10s", 10_000_000_000),
            ("2m", 120_000_000_000),
            ("2min", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("1.9ns", 1),
            ("0.3333333333333333333333333s", 333_333_333),
        ],
        &["", "5", ".5s", "1.s", "1..5s", "1.2.3s", "ms", "1e3s", "-1s", "10000000h", "18446744073709551615h", "5d"],
    );
}

#[test]
fn command_line_counts_have_no_suffix() {
    check(
        parse_count,
        &[("0", 0), ("16", 16), ("1_000_000", 1_000_000), (" 7 ", 7)],
        &["", "_", "1__0", "_1", "1_", "16k", "1.0", "-1", "1,000", "18446744073709551616"],
    );
}

#[test]
fn mistakes_are_named() {
    let cases = [
        ("1.5G", "decimals"),
        ("1e9", "exponent"),
        ("0x10", "not a decimal number"),
        ("1_000", "separators"),
        ("-3", "negative"),
        ("5Q", "not a unit"),
        ("99999999999999999999", "64 bits"),
    ];
    for (text, expected) in cases {
        let error = parse_io_properties_figure(text).expect_err(text);
        assert!(error.message.contains(expected), "{text}: {error}");
    }
}

#[test]
fn bytes_are_printed_with_three_digits() {
    let cases = [
        (0, "0 B", "0 B"),
        (512, "512 B", "512 B"),
        (999, "999 B", "999 B"),
        (1000, "1000 B", "1 kB"),
        (1023, "1023 B", "1.02 kB"),
        (4096, "4 KiB", "4.1 kB"),
        (65_536, "64 KiB", "65.5 kB"),
        (1_048_575, "1 MiB", "1.05 MB"),
        (1_572_864, "1.5 MiB", "1.57 MB"),
        (999_999, "977 KiB", "1 MB"),
        (1_073_741_824, "1 GiB", "1.07 GB"),
        (u64::MAX, "16384 PiB", "18447 PB"),
    ];
    for (bytes, binary, decimal) in cases {
        assert_eq!(format_bytes_binary(bytes), binary, "{bytes}");
        assert_eq!(format_bytes_decimal(bytes), decimal, "{bytes}");
    }
}

#[test]
fn rates_are_printed_with_three_digits() {
    let throughputs = [
        (0.0, "0 B/s", "0 B/s"),
        (1_542_559_872.0, "1.54 GB/s", "1.44 GiB/s"),
        (250_000_000.0, "250 MB/s", "238 MiB/s"),
        (12.3456, "12.3 B/s", "12.3 B/s"),
        (f64::NAN, "n/a", "n/a"),
        (f64::INFINITY, "n/a", "n/a"),
        (-2048.0, "-2.05 kB/s", "-2.00 KiB/s"),
    ];
    for (rate, decimal, binary) in throughputs {
        assert_eq!(format_throughput_decimal(rate), decimal, "{rate}");
        assert_eq!(format_throughput_binary(rate), binary, "{rate}");
    }
    let iops = [
        (0.0, "0", "0"),
        (950.0, "950", "950"),
        (999.7, "1.00k", "1,000"),
        (218_786.0, "219k", "218,786"),
        (1_864_000.0, "1.86M", "1,864,000"),
        (f64::NAN, "n/a", "n/a"),
        (-1.0, "-1", "0"),
    ];
    for (rate, short, grouped) in iops {
        assert_eq!(format_iops_short(rate), short, "{rate}");
        assert_eq!(format_iops(rate), grouped, "{rate}");
    }
}

#[test]
fn counts_are_grouped() {
    let cases = [(0, "0"), (12, "12"), (123, "123"), (1234, "1,234"), (123_456, "123,456"), (1_234_567, "1,234,567")];
    for (count, expected) in cases {
        assert_eq!(format_count(count), expected);
    }
    assert_eq!(format_count(u64::MAX), "18,446,744,073,709,551,615");
}

#[test]
fn durations_are_printed_with_three_digits() {
    let cases = [
        (0, "0 ns"),
        (85, "85 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (750_000, "750 us"),
        (999_499, "999 us"),
        (999_500, "1.00 ms"),
        (1_346_000, "1.35 ms"),
        (12_345_678, "12.3 ms"),
        (135_000_000_000, "135 s"),
        (86_400_000_000_000, "86400 s"),
    ];
    for (duration_ns, expected) in cases {
        assert_eq!(format_duration_ns(duration_ns), expected, "{duration_ns}");
    }
}

//! Surfaces and recordings as CSV.

use plimsoll_core::Op;
use plimsoll_files::Code;
use plimsoll_files::csv::{parse_arrivals, parse_surface};
use plimsoll_sim::fit::fit;

const HEADER: &str = "write_MBps,read_iops,p50_ms,p95_ms\n";

#[test]
fn columns_in_any_order_with_comments_and_quotes() {
    let text = "# measured\np95_ms,p50_ms,read_iops,write_MBps\n\n0.3, 0.15 ,\"1000\",51\n";
    let cell = parse_surface("s.csv", text).unwrap()[0];
    assert_eq!((cell.write_bytes_per_s, cell.read_iops), (51e6, 1000.0));
    assert_eq!((cell.p50_ns, cell.p95_ns), (150e3, 300e3));
}

#[test]
fn surfaces_that_are_refused() {
    let cases = [
        ("", Code::Empty, "columns"),
        (HEADER, Code::Empty, "remove the line"),
        ("write_MBps,read_iops,p50_ms\n", Code::MissingKey, "p95_ms"),
        ("write_MBps,read_iops,p50_ms,p95_us\n", Code::UnknownKey, "did you mean `p95_ms`"),
        ("write_MBps,read_iops,p50_ms,p50_ms,p95_ms\n", Code::DuplicateKey, "columns"),
        ("0,5,0.1,0.2\n", Code::UnknownKey, "columns"),
    ];
    let rows = [
        ("0,5,,0.2", Code::MissingKey, "fills the hole"),
        ("0,5,0.1", Code::InvalidValue, "each column"),
        ("0,5,nan,0.2", Code::InvalidValue, "remove the line"),
        ("0,five,0.1,0.2", Code::InvalidValue, "remove the line"),
        ("-1,5,0.1,0.2", Code::OutOfRange, "leave the line out"),
        ("0,1e12,0.1,0.2", Code::OutOfRange, "leave the line out"),
        ("0,5,0,0.2", Code::OutOfRange, "leave the line out"),
        ("0,5,0.3,0.2", Code::OutOfRange, "leave the line out"),
    ];
    for (text, code, help) in cases {
        let error = parse_surface("s.csv", text).expect_err(text);
        assert_eq!(error.code(), code, "{error}");
        assert!(error.help().is_some_and(|advice| advice.contains(help)), "expected {help}:\n{error}");
    }
    for (row, code, help) in rows {
        let error = parse_surface("s.csv", &format!("{HEADER}0,1,0.1,0.2\n{row}\n")).expect_err(row);
        assert_eq!((error.code(), error.line()), (code, Some(3)), "{error}");
        assert!(error.help().is_some_and(|advice| advice.contains(help)), "expected {help}:\n{error}");
    }
}

#[test]
fn holes_that_are_whole_lines_are_filled_and_said() {
    let mut text = HEADER.to_owned();
    for write in 0..6 {
        for read in 0..6 - write {
            if (write, read) != (1, 2) {
                text.push_str(&format!("{},{},{},{}\n", write * 100, read * 1000, 0.1, 0.2));
            }
        }
    }
    let fit = fit(&parse_surface("s.csv", &text).unwrap()).unwrap();
    assert!(fit.notes.iter().any(|note| note.to_string().contains("were not measured")), "{:?}", fit.notes);
}

#[test]
fn recordings() {
    let header = "at_us,op,offset_bytes,len_bytes\n";
    let list = parse_arrivals("r.csv", &format!("{header}0,read,4096,4096\n1.5,flush,0,0\n")).unwrap();
    assert_eq!((list[0].op, list[0].offset_bytes, list[1].at_ns, list[1].op), (Op::Read, 4096, 1500, Op::Flush));
    for (rows, code) in [
        ("", Code::Empty),
        ("0,reed,0,4096\n", Code::InvalidValue),
        ("0,read,0,0\n", Code::OutOfRange),
        ("5,read,0,4096\n4,read,0,4096\n", Code::OutOfRange),
    ] {
        assert_eq!(parse_arrivals("r.csv", &format!("{header}{rows}")).expect_err(rows).code(), code);
    }
}

#[test]
fn offsets_and_lengths_are_whole_and_exact() {
    let read = |row: &str| parse_arrivals("r.csv", &format!("at_us,op,offset_bytes,len_bytes\n{row}\n"));
    // The first is the next whole number after 2^53; spreadsheets write the second.
    for (row, offset_bytes, len_bytes) in
        [("0,read,9007199254740993,4294967295", (1 << 53) + 1, u32::MAX), ("0.5,read,1.048576E6,4096.0", 1 << 20, 4096)]
    {
        let list = read(row).unwrap();
        assert_eq!((list[0].offset_bytes, list[0].len_bytes), (offset_bytes, len_bytes), "{row}");
    }
    for (row, expected) in [
        ("0,read,0,4096.9", "a whole number from 0 to 4294967295"),
        ("0,read,0,5000000000", "a whole number from 0 to 4294967295"),
        ("0,read,0,-1", "a whole number from 0 to 4294967295"),
        ("0,read,0.5,4096", "a whole number from 0 to 9223372036854775807"),
        ("0,read,1e19,4096", "a whole number from 0 to 9223372036854775807"),
        ("-1,read,0,4096", "from 0 to 1e12"),
    ] {
        let error = read(row).unwrap_err();
        assert!(error.code() == Code::OutOfRange && error.to_string().contains(expected), "{row}: {error}");
    }
}

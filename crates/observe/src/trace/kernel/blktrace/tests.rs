use super::*;
use crate::trace::span::Span;

const DEVICE: u32 = 254 << 20 | 16;

fn head(time_ns: u64, action: u32, sector: u64) -> Head {
    Head { time_ns, action, sector, bytes: 4096, process: 7, device: DEVICE, ..Head::default() }
}

fn push(stream: &mut Vec<u8>, head: Head, more: &[u8]) {
    stream.extend(Head { more_bytes: more.len() as u16, ..head }.to_bytes());
    stream.extend(more);
}

/// Returns a write that is split in two, the second part failing, with notes.
fn stream() -> Vec<u8> {
    let mut stream = Vec::new();
    let seconds = u32::to_le_bytes;
    push(&mut stream, head(50, NOTE_TIME, 0), &[seconds(1_700_000_000), seconds(500_000_000)].concat());
    push(&mut stream, head(60, NOTE_PROCESS, 0), b"fio\0\0");
    push(&mut stream, head(60, NOTE_MESSAGE, 0), b"plimsoll disk 254,16 vdb");
    push(&mut stream, Head { bytes: 8192, ..head(100, IS_WRITE | 1, 8) }, &[]);
    // The further bytes begin with the eight bytes of a control group.
    push(&mut stream, head(110, IS_WRITE | HAS_GROUP | 13, 8), &[[9; 8], 16_u64.to_be_bytes()].concat());
    push(&mut stream, head(120, IS_WRITE | 7, 8), &[]);
    push(&mut stream, head(130, IS_WRITE | 7, 16), &[]);
    push(&mut stream, head(140, IS_WRITE | 8, 8), &[]);
    push(&mut stream, Head { error: -5_i16 as u16, ..head(150, IS_WRITE | 8, 16) }, &[]);
    stream
}

fn read(stream: &[u8]) -> Result<(Vec<Span>, Trace), TraceError> {
    let mut spans = Vec::new();
    let trace = read_blktrace(&mut &*stream, &mut |item| {
        if let Item::Span(span) = item {
            spans.push(span);
        }
    })?;
    Ok((spans, trace))
}

#[test]
fn a_split_write_an_error_and_names_are_read() {
    let (spans, trace) = read(&stream()).unwrap();
    let figures = |span: &Span| (span.offset_bytes, span.piece, span.queued_ns, span.submitted_ns, span.completed_ns);
    let found: Vec<_> = spans.iter().map(figures).collect();
    let expected = [(4096, 0, Some(100), Some(120), Some(140)), (8192, 1, Some(100), Some(130), Some(150))];
    assert_eq!(found, expected);
    assert_eq!((spans[0].error, spans[1].error), (None, Some(5)));
    assert_eq!(trace.names.classes[&spans[0].class].name, "fio");
    assert_eq!(trace.names.disks[&0], "vdb");
    assert_eq!(trace.unix_at_zero_ns, Some(1_700_000_000_499_999_950));
    assert!(trace.is_monotonic && trace.lost.is_empty(), "{:?}", trace.lost);
}

#[test]
fn of_a_stream_cut_anywhere_whole_records_are_read_and_the_cut_is_told() {
    let whole = stream();
    for cut in 1..whole.len() {
        match read(&whole[..cut]) {
            Err(error) => assert!(cut < HEAD_BYTES + 8, "{cut}: {error}"),
            Ok((_, trace)) => {
                let is_told = trace.lost.iter().any(|sentence| sentence.contains("the file was cut"));
                let mut ends = Vec::new();
                let mut at = 0;
                while let Some(head) = Head::from_bytes(&whole[at..]) {
                    at += HEAD_BYTES + usize::from(head.more_bytes);
                    ends.push(at);
                }
                assert_eq!(is_told, !ends.contains(&cut), "cut at {cut}: {:?}", trace.lost);
            }
        }
    }
}

#[test]
fn any_flipped_bit_costs_little_and_ends_in_a_trace() {
    let whole = stream();
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        match read(&damaged) {
            Ok((_, trace)) => assert!(trace.events >= 4, "bit {bit}: {trace:?}"),
            Err(error) => assert!(bit < 32 && error.to_string().contains("version"), "bit {bit}: {error}"),
        }
    }
}

#[test]
fn another_version_is_named() {
    let mut stream = stream();
    stream[0] = 8;
    let error = read(&stream).unwrap_err().to_string();
    assert!(error.contains("version 8") && error.contains("version 7"), "{error}");
}

#[test]
fn a_local_clock_and_lost_events_are_told() {
    let mut stream = Vec::new();
    for text in ["plimsoll clock local", "plimsoll lost 41724", "somebody else's"] {
        push(&mut stream, head(1, NOTE_MESSAGE, 0), text.as_bytes());
    }
    let (_, trace) = read(&stream).unwrap();
    assert!(!trace.is_monotonic);
    assert_eq!(trace.lost, ["41,724 events did not fit into the kernel's buffer while recording"]);
}

#[test]
fn files_of_all_cpus_are_one_trace() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    let (mut one, mut two) = (Vec::new(), Vec::new());

    push(&mut one, head(100, 7, 8), &[]);
    push(&mut one, head(300, 7, 16), &[]);
    push(&mut two, head(200, 8, 8), &[]);
    push(&mut two, head(400, 8, 16), &[]);
    fs::write(file("vda.blktrace.0"), one).unwrap();
    fs::write(file("vda.blktrace.10"), two).unwrap();
    fs::write(file("vdb.blktrace.0"), "another").unwrap();

    let files = cpu_files(&file("vda.blktrace.10"));
    assert_eq!(files, [file("vda.blktrace.0"), file("vda.blktrace.10")]);
    // `blkparse -i vda` takes these, too.
    assert_eq!(cpu_files(&file("vda")), files);
    assert_eq!(cpu_files(&file("vdb")), [file("vdb.blktrace.0")]);
    assert_eq!(cpu_files(&file("vdc")), [file("vdc")]);

    let mut ends = Vec::new();
    read_blktrace_files(&files, &mut |item| {
        if let Item::Span(span) = item {
            ends.push((span.submitted_ns, span.completed_ns));
        }
    })
    .unwrap();
    assert_eq!(ends, [(Some(100), Some(200)), (Some(300), Some(400))]);
    assert_eq!(cpu_files(&file("trace.bin")), [file("trace.bin")]);
}

//! The text that `blkparse` prints, in its standard form.
//!
//! **Why.** People share traces as this text: in bug reports, in tickets, from machines without access.
//!
//! **How.** A line is an event:
//!
//! ```text
//! device cpu sequence seconds    pid action RWBS
//!   8,16   7     2156 0.999444277 630169  G   W 425409840 + 8 [kworker/u482:0]
//!   8,16   7     2154 0.999442195 630169  A   W 425409840 + 8 <- (8,22) 131806512
//!   8,16   6     5648 0.999403047  16921  C   W 347875880 + 8 [0]
//!   8,16   7     2153 0.999402195 630169  U   N [kworker/u482:0] 14
//! ```
//!
//! The process's name stands between the first `[` and the last `]`; a completion has its error number there. Empty
//! lines and the summary at the end are skipped. Other lines that are no events are counted, also events whose name
//! holds a line feed or another control character.
//!
//! **Limits.** Custom formats (`blkparse -f`) are not read. Time stamps count from the beginning of the trace, so the
//! trace shares no clock with another. Lines of at most 64 KiB.
//!
//! **Example.** See [the module above](super).

use std::io::{self, BufRead, Read};

use super::intake::Intake;
use super::matching::sentence;
use super::{Action, BlockEvent, op_of};
use crate::trace::TraceError;
use crate::trace::span::{Item, Trace};

/// Longest line that is read as one, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 16;

/// Hands the spans of a trace that `blkparse` printed to `visit`.
pub fn read_blkparse(input: &mut dyn BufRead, visit: &mut dyn FnMut(Item)) -> Result<Trace, TraceError> {
    let mut intake = Intake::new(visit);
    let mut line = Vec::new();
    let (mut unread, mut is_summary) = (0_u64, false);

    while next_line(input, &mut line)? {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim();
        if let Some(event) = event_of(text, &mut intake) {
            is_summary = false;
            intake.event(event);
        } else if !text.is_empty() && !is_summary {
            is_summary = is_heading(text);
            unread += u64::from(!is_summary && !text.starts_with("Input file "));
        }
    }

    if intake.events() == 0 {
        let expected =
            "this is no trace of blkparse: no line is an event, such as `8,0 1 5 0.000105 123 D R 2048 + 8 [name]`";
        return Err(TraceError::Format(expected.to_owned()));
    }
    if unread > 0 {
        intake.lost.push(sentence(unread, "lines are no events as blkparse prints them"));
    }

    Ok(intake.finish(false))
}

/// Returns whether the summary follows this line: `CPU0 (sda):`, `Total (sda):`.
fn is_heading(line: &str) -> bool {
    (line.starts_with("CPU") || line.starts_with("Total (")) && line.ends_with(':')
}

/// Reads the next line, or the next part of one that is too long. Returns `false` at the end.
fn next_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    Ok(input.take(LINE_BYTES_MAX).read_until(b'\n', line)? > 0)
}

fn event_of(line: &str, intake: &mut Intake) -> Option<BlockEvent> {
    let mut words = line.split_ascii_whitespace();
    let (major, minor) = words.next()?.split_once(',')?;
    let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
    let cpu = words.next()?.parse().ok()?;
    let sequence = words.next()?.parse().ok()?;
    let time_ns = seconds_to_ns(words.next()?)?;
    let _pid: u32 = words.next()?.parse().ok()?;

    let letters = words.next()?;
    let is_event = letters.len() <= 2 && letters.bytes().all(|letter| letter.is_ascii_alphabetic());
    if !is_event {
        return None;
    }

    let rwbs = words.next().unwrap_or("N");
    let [first, second, third] = std::array::from_fn(|_| words.next().unwrap_or(""));
    let sector = first.parse().unwrap_or(0);
    let sectors = if second == "+" { third.parse().ok()? } else { 0 };
    let bracket = line.find('[').zip(line.rfind(']')).and_then(|(from, to)| line.get(from + 1..to));
    let [sign, at_sector, source_sector] = std::array::from_fn(|_| words.next());
    let action = match letters {
        // `A R 2112 + 8 <- (8,1) 64`.
        "A" if sign == Some("<-") => Action::Remap(source_of(at_sector, source_sector, intake)),
        "A" => Action::Remap(None),
        letters => action_of(letters, sign, at_sector),
    };
    let has_name = !matches!(action, Action::Complete | Action::Other | Action::Remap(_));
    if has_name && !is_whole_name(line, bracket) {
        return None;
    }

    let is_flush = rwbs.starts_with('F');
    Some(BlockEvent {
        time_ns,
        sector,
        sectors,
        action,
        op: op_of(rwbs.contains('W'), is_flush, rwbs.contains('D'), sectors),
        class: bracket.filter(|_| has_name).map_or(0, |name| intake.class(name)),
        disk: intake.disk(major, minor),
        cpu,
        sequence,
        error: bracket.filter(|_| action == Action::Complete).map_or(0, error_of),
    })
}

/// Returns from where a bio was remapped: `(8,1)` and `64`.
fn source_of(device: Option<&str>, sector: Option<&str>, intake: &mut Intake) -> Option<(u16, u64)> {
    let (major, minor) = device?.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
    let sector = sector?.parse().ok()?;
    Some((intake.number_of(major.parse().ok()?, minor.parse().ok()?), sector))
}

/// Returns whether the name, if there is one, ends on its line and has no control characters.
fn is_whole_name(line: &str, name: Option<&str>) -> bool {
    name.map_or(!line.contains('['), |name| !name.contains(char::is_control))
}

/// Returns the action of these letters; `X` is followed by `/ SECTOR`.
fn action_of(letters: &str, slash: Option<&str>, at_sector: Option<&str>) -> Action {
    match letters {
        "Q" => Action::Queue,
        "G" => Action::GetRequest,
        "I" => Action::Insert,
        "D" => Action::Issue,
        "C" => Action::Complete,
        "M" => Action::BackMerge,
        "F" => Action::FrontMerge,
        "R" => Action::Requeue,
        "X" if slash == Some("/") => at_sector.and_then(|at| at.parse().ok()).map_or(Action::Other, Action::Split),
        _ => Action::Other,
    }
}

/// Returns the error number. Kernels print 16 bits of its negative.
fn error_of(text: &str) -> i32 {
    let number: i32 = text.parse().unwrap_or(0);
    i32::from(number as i16).abs()
}

/// Converts a time such as `0.999400390` exactly.
fn seconds_to_ns(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let is_number = !fraction.is_empty() && fraction.len() <= 9 && fraction.bytes().all(|it| it.is_ascii_digit());
    let fraction_ns = fraction.parse::<u64>().ok().filter(|_| is_number)? * 10_u64.pow(9 - fraction.len() as u32);
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact() {
        let cases = [
            ("0.999400390", Some(999_400_390)),
            ("1266874889.709450585", Some(1_266_874_889_709_450_585)),
            ("0.5", Some(500_000_000)),
            ("99999999999999.1", None),
            ("1", None),
            ("1.", None),
            ("1.-5", None),
            ("-1.5", None),
            ("1.0000000001", None),
        ];
        for (text, ns) in cases {
            assert_eq!(seconds_to_ns(text), ns, "{text}");
        }
    }

    #[test]
    fn errors_are_positive_however_they_are_written() {
        for (text, error) in [("0", 0), ("-5", 5), ("5", 5), ("65531", 5), ("x", 0)] {
            assert_eq!(error_of(text), error, "{text}");
        }
    }

    #[test]
    fn names_with_control_characters_are_refused_and_counted() {
        let cases = [("[db 1]", 0), ("", 0), ("[d\x1b[31mb]", 1), ("[d\nb]", 2), ("[d\tb]", 1), ("[d\u{9b}b]", 1)];
        for (name, unread) in cases {
            let text = format!("8,0 1 1 0.1 5 Q R 8 + 8 [a]\n8,0 1 2 0.2 5 Q R 64 + 8 {name}\n");
            let trace = read_blkparse(&mut text.as_bytes(), &mut |_| {}).unwrap();
            let told = trace.lost.iter().find(|it| it.ends_with("lines are no events as blkparse prints them"));
            let expected = (unread > 0).then(|| sentence(unread, "lines are no events as blkparse prints them"));
            assert_eq!(told, expected.as_ref(), "{name:?}: {:?}", trace.lost);
        }
    }

    #[test]
    fn what_is_no_event_is_counted_and_a_text_without_events_is_refused() {
        let text = "Input file sda.blktrace.0 added\n\n  8,0 1 1 0.1 5 Q R 8 + 8 [a b]\n...\n\
                    8,0 1 2 0.2 5 D R 8 + 8 [a b]\n\
                    8,0 0 1 0.3 0 C R 8 + 8 [65531]\n8,0 0 2 0.3 9 m N cfq schedule dispatch\n\
                    CPU0 (sda):\n Reads Queued:  1,  4KiB\t Writes Queued: 0\n\nTotal (sda):\n Reads\n";
        let mut spans = Vec::new();
        let trace = read_blkparse(&mut text.as_bytes(), &mut |item| spans.push(item)).unwrap();
        assert_eq!(trace.lost, ["1 lines are no events as blkparse prints them"]);
        assert_eq!((trace.events, trace.spans, spans.len()), (4, 1, 1));
        assert_eq!(trace.names.classes[&0].name, "a b");
        assert_eq!(trace.names.disks[&0], "8,0");
        assert!(matches!(spans[0], Item::Span(span) if span.error == Some(5) && span.len_bytes == 4096));
        for text in ["", "hello\n", "CPU0 (sda):\n"] {
            let error = read_blkparse(&mut text.as_bytes(), &mut |_| {}).unwrap_err();
            assert!(error.to_string().contains("no line is an event"), "{error}");
        }
    }
}

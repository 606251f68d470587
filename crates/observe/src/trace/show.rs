//! A trace as text: a line for each piece of a request, and for each event that belongs to no request.
//!
//! **Why.** Users check the data before they trust an analysis.
//!
//! **How.** [`line()`] makes one line of at most [`COLUMNS`] characters; [`HEAD`] names the columns. Times are seconds
//! from the begin in [`Head`]. Stages are durations: Q2D in the queue, D2C in the disk, C2R completed and not yet
//! reaped. A stage whose end is not known, or that ran backwards, is `-`. [`Head`] collects begin and names, which may
//! stand anywhere in a trace, so the trace is read twice.
//!
//! **Limits.** Lines come in the order in which the reader hands items over, roughly that of their ends. Long names are
//! cut.
//!
//! **Example.**
//! ```
//! use plimsoll_observe::trace::show::{Head, line};
//! use plimsoll_observe::trace::read_from;
//!
//! let text = "8,0 1 1 5.000000000 9 Q R 2048 + 8 [db]\n8,0 1 2 5.000100000 9 D R 2048 + 8 [db]\n\
//!             8,0 1 3 5.000400000 0 C R 2048 + 8 [0]\n";
//! let mut head = Head::default();
//! head.names = read_from(text.as_bytes(), &mut |item| head.visit(&item))?.names;
//! let mut lines = Vec::new();
//! read_from(text.as_bytes(), &mut |item| lines.push(line(&item, &head)))?;
//! assert_eq!(lines.len(), 1);
//! assert!(lines[0].contains("100 us") && lines[0].contains("300 us"), "{}", lines[0]);
//! # Ok::<(), plimsoll_observe::trace::TraceError>(())
//! ```

use std::borrow::Cow;

use plimsoll::core::trace::{Event, EventKind};
use plimsoll::trace::format::Names;
use plimsoll_figures::units::{format_bytes_binary, format_duration_ns};

use super::span::{Item, Span};

/// Longest line in characters.
pub const COLUMNS: usize = 100;

/// Longest name of a class, or a disk, in characters.
const CLASS_COLUMNS: usize = 10;

pub const HEAD: &str = "     time, s shard class      op       size         offset     Q2D     D2C     C2R remarks";

/// The begin and the names of a trace: all of it must be read before its first line can be written.
#[derive(Clone, Debug, Default)]
pub struct Head {
    pub names: Names,
    /// The earliest time in the trace, in ns on its clock; `None` if there is none.
    pub begin_ns: Option<u64>,
    /// Unix time in ns at time stamp 0; `None` if it is not known, or not needed.
    pub unix_at_zero_ns: Option<i64>,
}

impl Head {
    pub fn visit(&mut self, item: &Item) {
        let begin_ns = match item {
            Item::Span(span) => span.begin_ns(),
            Item::Event(_, event) => Some(event.time_ns),
        };
        self.begin_ns = self.begin_ns.into_iter().chain(begin_ns).min();
    }

    /// Returns the name of a class; `class 3` if it has none.
    pub fn class(&self, number: u16) -> Cow<'_, str> {
        let known = self.names.classes.get(&number);
        known.map_or_else(|| format!("class {number}").into(), |class| Cow::from(&class.name))
    }

    /// Returns the name of a disk; `disk 0` if it has none.
    pub fn disk(&self, number: u16) -> Cow<'_, str> {
        self.names.disks.get(&number).map_or_else(|| format!("disk {number}").into(), Cow::from)
    }
}

/// A selection of items: the class by name, and the time from the beginning of the trace.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Takes items of this class only; events without a class are left out. `None`: all.
    pub class: Option<String>,
    /// Takes items that end at this time or later, in ns from the beginning of the trace.
    pub from_ns: u64,
    /// Takes items that begin before this time, in ns from the beginning of the trace; `None`: all.
    pub to_ns: Option<u64>,
}

impl Filter {
    pub fn takes(&self, item: &Item, head: &Head) -> bool {
        let zero_ns = head.begin_ns.unwrap_or(0);
        let (class, begin_ns, end_ns) = match item {
            Item::Span(span) => (Some(span.class), span.begin_ns(), span.end_ns().or(span.begin_ns())),
            Item::Event(_, event) => {
                let class = (event.kind != EventKind::Control).then_some(event.class);
                (class, Some(event.time_ns), Some(event.time_ns))
            }
        };
        let is_class = self.class.as_ref().is_none_or(|name| class.is_some_and(|class| head.class(class) == *name));
        let since_zero = |ns: Option<u64>| ns.map(|ns| ns.saturating_sub(zero_ns));
        let is_late_enough = self.from_ns == 0 || since_zero(end_ns).is_some_and(|ns| ns >= self.from_ns);
        let is_early_enough = self.to_ns.is_none_or(|to_ns| since_zero(begin_ns).is_some_and(|ns| ns < to_ns));
        is_class && is_late_enough && is_early_enough
    }
}

pub fn line(item: &Item, head: &Head) -> String {
    let text = match item {
        Item::Span(span) => span_line(span, head),
        Item::Event(shard, event) => event_line(*shard, event, head),
    };
    cut(&text, COLUMNS).trim_end().to_owned()
}

fn span_line(span: &Span, head: &Head) -> String {
    format!(
        "{} {:>5} {:<CLASS_COLUMNS$} {:<7} {:>5} {:>14} {:>7} {:>7} {:>7} {}",
        seconds(span.begin_ns(), head),
        span.shard,
        cut(&head.class(span.class), CLASS_COLUMNS),
        span.op.name(),
        size(span.len_bytes),
        span.offset_bytes,
        stage(span.queued_ns, span.out_ns()),
        stage(span.out_ns(), span.completed_ns),
        stage(span.completed_ns, span.reaped_ns),
        remarks(span),
    )
}

fn event_line(shard: u16, event: &Event, head: &Head) -> String {
    let (class, what) = match (event.kind, event.control()) {
        (_, Some((decision, window_ns, scale))) => {
            let window = format_duration_ns(window_ns);
            (head.disk(event.disk), format!("{}: window {window}, capacity {:.1} %", decision.words(), 100.0 * scale))
        }
        (EventKind::Blocked, None) => {
            let reason = event.reason.map_or("nothing known", |reason| reason.name());
            let until = match event.detail {
                0 => String::new(),
                ns => format!(", looks again in {}", format_duration_ns(u64::from(ns))),
            };
            (head.class(event.class), format!("blocked, waits for {reason}{until}"))
        }
        (kind, None) => (head.class(event.class), kind.name().to_owned()),
    };
    let class = cut(&class, CLASS_COLUMNS);
    format!("{} {shard:>5} {class:<CLASS_COLUMNS$} {what}", seconds(Some(event.time_ns), head))
}

/// Formats a time as seconds from the beginning of the trace, in 12 characters or more.
fn seconds(time_ns: Option<u64>, head: &Head) -> String {
    let Some(time_ns) = time_ns else { return format!("{:>12}", "-") };
    let zero_ns = head.begin_ns.unwrap_or(0);
    // A time before zero occurs only if the trace cannot be read twice.
    let (sign, ns) = if time_ns < zero_ns { ("-", zero_ns - time_ns) } else { ("", time_ns - zero_ns) };
    format!("{:>12}", format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000))
}

/// Formats a length for a narrow column: `4 KiB` as `4K`.
fn size(len_bytes: u32) -> String {
    let text = format_bytes_binary(u64::from(len_bytes));
    text.replace(" KiB", "K").replace(" MiB", "M").replace(" GiB", "G").replace(" B", "")
}

fn stage(from_ns: Option<u64>, to_ns: Option<u64>) -> String {
    let time_ns = from_ns.zip(to_ns).and_then(|(from_ns, to_ns)| to_ns.checked_sub(from_ns));
    time_ns.map_or_else(|| "-".to_owned(), format_duration_ns)
}

/// Formats the facts that have no column. The wait reason comes last: it can be recognised even if the line is cut.
fn remarks(span: &Span) -> String {
    let remarks = [
        span.is_split.then(|| format!("#{}", span.piece)),
        span.error.map(|error| format!("error {error}")),
        span.is_cancelled.then(|| "cancelled".to_owned()),
        (span.merged > 0).then(|| format!("+{}", span.merged)),
        span.reason.map(|reason| reason.name().to_owned()),
    ];
    remarks.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Returns the first `columns` characters. Control characters, which would move the cursor, become `?`.
fn cut(text: &str, columns: usize) -> String {
    text.chars().take(columns).map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll::core::EventKind as Decision;
    use plimsoll::core::{Op, WaitReason};
    use plimsoll::trace::format::ClassName;

    use super::super::arrivals::tests::span;
    use super::*;

    fn head() -> Head {
        let mut head = Head { begin_ns: Some(1_000), ..Head::default() };
        let name = "a class\twith a long name".to_owned();
        head.names.classes.insert(1, ClassName { name, shares: 1 });
        head
    }

    #[test]
    fn a_span_is_one_line_below_its_head() {
        let span = Span {
            completed_ns: Some(303_002),
            reaped_ns: Some(303_102),
            reason: Some(WaitReason::Tokens),
            is_split: true,
            piece: 2,
            error: Some(5),
            ..span(1_000, 0)
        };
        let text = line(&Item::Span(span), &head());
        let expected = " 0.000000000     0 a class?wi read       4K           8192    2 ns  302 us  100 ns #2 error 5 \
                        tokens";
        assert_eq!(text, cut(expected, COLUMNS));
        let ends = [("time, s", 12), ("shard", 18), ("size", 43), ("Q2D", 66), ("C2R", 82)];
        for (word, end) in ends {
            assert_eq!(HEAD.find(word).map(|at| at + word.len()), Some(end), "{word}");
        }
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        let none = Span {
            queued_ns: None,
            dispatched_ns: None,
            submitted_ns: None,
            completed_ns: None,
            reaped_ns: None,
            ..span(1, 2)
        };
        let text = line(&Item::Span(none), &head());
        assert_eq!(text.matches(" -").count(), 4, "{text}");
        let backwards = Span { queued_ns: Some(9_000), submitted_ns: Some(8_000), ..span(1, 20_000) };
        assert!(line(&Item::Span(backwards), &head()).contains(" - "), "a stage that ran backwards");
    }

    #[test]
    fn remarks_are_whole() {
        let base = Span { shard: 12, offset_bytes: 1_920_383_410_176, ..span(400_000, 912_000_000) };
        let cancelled = Span { is_cancelled: true, is_split: true, piece: 12, ..base };
        let waited = Span { reason: Some(WaitReason::Fairness), is_split: true, piece: 7, merged: 10, ..base };
        let failed = Span { error: Some(28), reason: Some(WaitReason::Limit), ..base };
        let cases = [
            (cancelled, "#12 cancelled"),
            (Span { reason: Some(WaitReason::Tokens), is_split: false, ..cancelled }, "cancelled tokens"),
            (waited, "#7 +10 fairness"),
            (failed, "error 28 limit"),
        ];
        for (span, expected) in cases {
            let text = line(&Item::Span(span), &head());
            assert!(text.ends_with(&format!(" {expected}")) && text.chars().count() <= COLUMNS, "{text}");
        }
    }

    #[test]
    fn decisions_are_in_plain_words() {
        let decision = Event::of_decision(Decision::WindowRaised, 0, 1_000, 250_000, 0.98);
        let text = line(&Item::Event(0, decision), &head());
        assert!(text.ends_with(" window raised: window 250 us, capacity 98.0 %"), "{text}");
    }

    #[test]
    fn every_line_fits() {
        let longest = Span {
            shard: u16::MAX,
            offset_bytes: u64::MAX,
            len_bytes: u32::MAX,
            op: Op::Allocate,
            error: Some(i32::MIN),
            is_cancelled: true,
            reason: Some(WaitReason::Fairness),
            merged: u16::MAX,
            ..span(u64::MAX - 10, u64::MAX)
        };
        let decision = Event::of_decision(Decision::TargetUnreachable, u16::MAX, u64::MAX, u64::MAX, 4000.0);
        let blocked = Event { kind: EventKind::Blocked, reason: Some(WaitReason::Backend), class: 1, ..decision };

        for item in [Item::Span(longest), Item::Event(u16::MAX, decision), Item::Event(3, blocked)] {
            let text = line(&item, &head());
            assert!(text.chars().count() <= COLUMNS && !text.contains('\n'), "{text}");
        }
        assert!(line(&Item::Event(3, blocked), &head()).contains("waits for backend"));
    }

    #[test]
    fn filters_take_classes_and_times() {
        let filter = |class: Option<&str>, from_ns, to_ns| Filter { class: class.map(str::to_owned), from_ns, to_ns };
        let mut head = head();
        head.names.classes.insert(1, ClassName { name: "db".to_owned(), shares: 1 });

        // From 1 us to 2 us after the beginning.
        let item = Item::Span(span(2_000, 3_000));
        let cases = [
            (filter(None, 0, None), true),
            (filter(Some("db"), 0, None), true),
            (filter(Some("class 1"), 0, None), false),
            (filter(None, 2_000, None), true),
            (filter(None, 2_001, None), false),
            (filter(None, 0, Some(1_000)), false),
            (filter(None, 0, Some(1_001)), true),
        ];

        for (filter, expected) in cases {
            assert_eq!(filter.takes(&item, &head), expected, "{filter:?}");
        }

        let control = Item::Event(0, Event::of_decision(Decision::Fall, 0, 2_000, 1, 1.0));
        assert!(filter(None, 0, None).takes(&control, &head));
        assert!(!filter(Some("db"), 0, None).takes(&control, &head));
    }

    #[test]
    fn the_head_is_that_of_the_earliest() {
        let mut head = Head::default();
        for item in [span(500, 900), span(200, 950)] {
            head.visit(&Item::Span(item));
        }
        assert_eq!(head.begin_ns, Some(200));
    }
}

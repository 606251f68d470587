//! A trace as CSV: a line for each piece of a request.
//!
//! **Why.** Every spreadsheet and every database reads CSV.
//!
//! **How.** [`COLUMNS`] are the fields of [`Span`], with units in their names. Times are ns on the clock of the trace.
//! Classes and disks are names, files are paths; without a name in the trace, `class 3`. Unknown values are empty.
//! Fields are quoted as RFC 4180 says.
//!
//! **Limits.** Events that belong to no request are left out.
//!
//! **Example.**
//! ```
//! use plimsoll_observe::trace::export::csv::COLUMNS;
//! assert!(COLUMNS.contains(&"offset_bytes"));
//! ```

use std::fmt::Write as _;
use std::io::{self, Write};

use plimsoll_figures::units::csv_field;

use super::super::show::Head;
use super::super::span::{Item, Span};
use super::{Exported, Sticky};

/// The columns in their order.
pub const COLUMNS: [&str; 22] = [
    "shard",
    "disk",
    "class",
    "op",
    "request",
    "piece",
    "is_split",
    "file",
    "offset_bytes",
    "len_bytes",
    "merged",
    "cost_ns",
    "wait_reason",
    "queued_ns",
    "dispatched_ns",
    "submitted_ns",
    "completed_ns",
    "late_max_ns",
    "reaped_ns",
    "callback_ns",
    "error",
    "is_cancelled",
];

/// See the module's documentation.
pub(super) struct Csv<W> {
    out: Sticky<W>,
    head: Head,
    exported: Exported,
    line: String,
}

impl<W: Write> Csv<W> {
    pub(super) fn begin(out: W, head: Head) -> io::Result<Csv<W>> {
        let mut out = Sticky::new(out);
        out.write(format!("{}\n", COLUMNS.join(",")).as_bytes());
        Ok(Csv { out, head, exported: Exported::default(), line: String::new() })
    }

    pub(super) fn visit(&mut self, item: &Item) {
        let Item::Span(span) = item else { return };
        self.line.clear();
        write_line(&mut self.line, span, &self.head);
        self.out.write(self.line.as_bytes());
        self.exported.rows += 1;
    }

    pub(super) fn finish(self) -> io::Result<Exported> {
        self.out.finish()?;
        Ok(self.exported)
    }
}

fn write_line(line: &mut String, span: &Span, head: &Head) {
    let file = file_name(span, head).unwrap_or_default();
    let (disk, class, op) = (head.disk(span.disk), head.class(span.class), span.op.name());
    // Writing to a string does not fail.
    let _ = write!(
        line,
        "{},{},{},{op},{},{},{},{},{},{},{}",
        span.shard,
        csv_field(&disk),
        csv_field(&class),
        span.request,
        span.piece,
        span.is_split,
        csv_field(&file),
        span.offset_bytes,
        span.len_bytes,
        span.merged
    );

    number(line, span.cost_ns);
    number(line, span.reason.map(|reason| reason.name()));
    number(line, span.queued_ns);
    number(line, span.dispatched_ns);
    number(line, span.submitted_ns);
    number(line, span.completed_ns);
    number(line, Some(span.late_max_ns));
    number(line, span.reaped_ns);
    number(line, span.callback_ns);
    number(line, span.error);
    number(line, Some(span.is_cancelled));
    line.push('\n');
}

/// Returns the path of the file; `file 7` if it has no name; `None` in a kernel trace.
pub(super) fn file_name(span: &Span, head: &Head) -> Option<String> {
    let known = head.names.files.get(&span.file).map(|file| file.path.clone());
    known.or_else(|| (span.file > 0).then(|| format!("file {}", span.file)))
}

fn number(line: &mut String, value: Option<impl std::fmt::Display>) {
    line.push(',');
    if let Some(value) = value {
        let _ = write!(line, "{value}");
    }
}

#[cfg(test)]
mod tests {
    use plimsoll::core::WaitReason;
    use plimsoll::trace::format::ClassName;

    use super::super::super::arrivals::tests::span;
    use super::*;

    #[test]
    fn a_line_has_a_field_for_each_column() {
        let mut head = Head::default();
        head.names.classes.insert(1, ClassName { name: "a, \"b\"".to_owned(), shares: 1 });
        let span = Span { reason: Some(WaitReason::Tokens), error: Some(5), ..span(1_000, 9_000) };
        let mut out = Vec::new();
        let mut csv = Csv::begin(&mut out, head).unwrap();
        csv.visit(&Item::Span(span));
        csv.visit(&Item::Span(Span { cost_ns: None, queued_ns: None, file: 0, ..span }));
        assert_eq!(csv.finish().unwrap().rows, 2);
        let text = String::from_utf8(out).unwrap();
        let expected = [
            "shard,disk,class,op,request,piece,is_split,file,offset_bytes,len_bytes,merged,cost_ns,wait_reason,queued_ns,\
             dispatched_ns,submitted_ns,completed_ns,late_max_ns,reaped_ns,callback_ns,error,is_cancelled",
            "0,disk 0,\"a, \"\"b\"\"\",read,1,0,false,file 1,8192,4096,0,100,tokens,1000,1001,1002,9000,0,9000,,5,false",
            "0,disk 0,\"a, \"\"b\"\"\",read,1,0,false,,8192,4096,0,,tokens,,1001,1002,9000,0,9000,,5,false",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}

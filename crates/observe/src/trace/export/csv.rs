//! A trace as CSV: a line for each piece of a request.
//!
//! **Why.** Every spreadsheet and every database reads CSV.
//!
//! **How.** [`COLUMNS`] are the fields of [`Span`], with units in their names; `parquet` has the same. Times are ns on
//! the clock of the trace. Classes and disks are names, files are paths; without a name in the trace, `class 3`.
//! Unknown values are empty. Fields are quoted as RFC 4180 says.
//!
//! **Limits.** Events that belong to no request are left out.
//!
//! **Example.** `plimsoll trace export run.plt --to csv -o run.csv`.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};
use std::io::{self, Write};

use plimsoll_figures::units::csv_field;

use super::super::show::Head;
use super::super::span::{Item, Span};
use super::{Exported, Sink, Sticky};
use crate::columns::{Cell, Column, cell, int, known, maybe, name_cell, text};

/// The columns in their order.
pub(crate) static COLUMNS: [Column<Span, Head>; 22] = [
    known("shard", cell!(I32, |it, _| Some(it.shard.into()))),
    known("disk", name_cell!(|it| it.disk.into(), |it, head| text(head.disk(it.disk)))),
    known("class", name_cell!(|it| it.class.into(), |it, head| text(head.class(it.class)))),
    known("op", name_cell!(|it| it.op as u32, |it, _| text(it.op.name()))),
    known("request", cell!(Varied, |it, _| int(it.request))),
    known("piece", cell!(I32, |it, _| Some(it.piece.into()))),
    known("is_split", cell!(Bool, |it, _| Some(it.is_split))),
    maybe("file", name_cell!(|it| it.file, file_name)),
    known("offset_bytes", cell!(Varied, |it, _| int(it.offset_bytes))),
    known("len_bytes", cell!(Varied, |it, _| int(it.len_bytes))),
    known("merged", cell!(I32, |it, _| Some(it.merged.into()))),
    maybe("cost_ns", cell!(Varied, |it, _| it.cost_ns.and_then(int))),
    maybe("wait_reason", name_cell!(reason_number, |it, _| text(it.reason?.name()))),
    maybe("queued_ns", cell!(Varied, |it, _| it.queued_ns.and_then(int))),
    maybe("dispatched_ns", cell!(Varied, |it, _| it.dispatched_ns.and_then(int))),
    maybe("submitted_ns", cell!(Varied, |it, _| it.submitted_ns.and_then(int))),
    maybe("completed_ns", cell!(Varied, |it, _| it.completed_ns.and_then(int))),
    known("late_max_ns", cell!(Varied, |it, _| int(it.late_max_ns))),
    maybe("reaped_ns", cell!(Varied, |it, _| it.reaped_ns.and_then(int))),
    maybe("callback_ns", cell!(Varied, |it, _| it.callback_ns.and_then(int))),
    maybe("error", cell!(I32, |it, _| it.error)),
    known("is_cancelled", cell!(Bool, |it, _| Some(it.is_cancelled))),
];

#[cfg(feature = "parquet")]
fn reason_number(span: &Span) -> u32 {
    span.reason.map_or(u32::MAX, |reason| reason as u32)
}

/// Returns the path of the file; `file 7` if it has no name; `None` in a kernel trace.
fn file_name<'a>(span: &Span, head: &'a Head) -> Option<Cow<'a, str>> {
    let known = head.names.files.get(&span.file).map(|file| Cow::from(&file.path));
    known.or_else(|| (span.file > 0).then(|| format!("file {}", span.file).into()))
}

pub(super) struct Csv<W> {
    out: Sticky<W>,
    head: Head,
    exported: Exported,
    line: String,
}

impl<W: Write> Csv<W> {
    pub(super) fn begin(out: W, head: Head) -> Csv<W> {
        let mut out = Sticky::new(out);
        let names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        out.write(format!("{}\n", names.join(",")).as_bytes());
        Csv { out, head, exported: Exported::default(), line: String::new() }
    }
}

impl<W: Write> Sink for Csv<W> {
    fn visit(&mut self, item: &Item) {
        let Item::Span(span) = item else { return };
        self.line.clear();

        for (at, column) in COLUMNS.iter().enumerate() {
            self.line.push_str(if at == 0 { "" } else { "," });
            let line = &mut self.line;
            match &column.cell {
                Cell::I32(value) => write_value(line, (value.of)(span, &self.head)),
                Cell::I64(value) | Cell::Varied(value) | Cell::Micros(value) => {
                    write_value(line, (value.of)(span, &self.head));
                }
                Cell::F64(value) => write_value(line, (value.of)(span, &self.head)),
                Cell::Bool(value) => write_value(line, (value.of)(span, &self.head)),
                Cell::Text(text) => write_value(line, (text.of)(span, &self.head).as_deref().map(csv_field)),
            }
        }

        self.line.push('\n');
        self.out.write(self.line.as_bytes());
        self.exported.rows += 1;
    }

    fn finish(self: Box<Self>) -> io::Result<Exported> {
        self.out.finish()?;
        Ok(self.exported)
    }
}

fn write_value(line: &mut String, value: Option<impl Display>) {
    // Writing to a string does not fail.
    let _ = value.map_or(Ok(()), |value| write!(line, "{value}"));
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
        let mut csv = Box::new(Csv::begin(&mut out, head));
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

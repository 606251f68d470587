//! A trace in the formats of other programs.
//!
//! **Why.** If no analysis here answers a question, a database table, a zoomable picture or the simulator may.
//!
//! **How.** [`Export`] takes items one by one and writes them as one of
//!
//! | [`Form`] | for | what |
//! |---|---|---|
//! | `Csv` | spreadsheets | a line for each piece of a request |
//! | `Parquet` | data frames | the same as columns, compressed; only with the feature `parquet` |
//! | `Perfetto` | ui.perfetto.dev | slices on a track per shard, class and disk |
//! | `Arrivals` | `plimsoll sim run` | requests in the order of their beginnings: `at_us,op,offset_bytes,len_bytes` |
//!
//! The first line already needs the names, so the trace is read once before ([`Head`]).
//!
//! **Limits.** Memory is bounded, whatever the length of the trace. Arrivals and the counters of Perfetto need the
//! order of time; entries that come too late are counted in [`Exported::unordered`].
//!
//! **Example.**
//! ```
//! use plimsoll_observe::trace::export::{Export, Form};
//! use plimsoll_observe::trace::read_from;
//! use plimsoll_observe::trace::show::Head;
//!
//! let text = "8,0 1 1 0.5 9 Q R 2048 + 8 [db]\n8,0 1 2 0.6 9 D R 2048 + 8 [db]\n8,0 1 3 0.7 0 C R 2048 + 8 [0]\n";
//! let mut head = Head::default();
//! head.names = read_from(text.as_bytes(), &mut |item| head.visit(&item))?.names;
//! let mut out = Vec::new();
//! let mut export = Export::begin(Form::Arrivals, &mut out, head)?;
//! read_from(text.as_bytes(), &mut |item| export.visit(&item))?;
//! assert_eq!(export.finish()?.rows, 1);
//! assert_eq!(String::from_utf8(out)?, "at_us,op,offset_bytes,len_bytes\n0.000,read,1048576,4096\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod csv;
#[cfg(feature = "parquet")]
mod parquet;
mod perfetto;
mod proto;

use std::io::{self, Write};

use plimsoll_files::csv::ARRIVAL_COLUMNS;

use super::arrivals::{Arrival, Arrivals};
use super::show::Head;
use super::span::Item;

/// Formats of exported files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Csv,
    /// Columns, compressed.
    Parquet,
    /// Protobuf for ui.perfetto.dev.
    Perfetto,
    /// One line for each request, for scenarios of the simulator.
    Arrivals,
}

/// Whether this program was built with Parquet.
pub const HAS_PARQUET: bool = cfg!(feature = "parquet");

/// The counts of a finished export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Rows, lines without the header, or slices.
    pub rows: u64,
    /// Entries too late for the order of time: arrivals, which are left out, or changes of Perfetto's counters, which
    /// are drawn later than they happened.
    pub unordered: u64,
    /// Slices left out because too many overlap; Perfetto only.
    pub without_place: u64,
    /// Requests left out because their beginning is not known, they were cancelled, or they transfer nothing; arrivals
    /// only.
    pub left_out: u64,
}

/// A format that takes items one by one.
trait Sink {
    fn visit(&mut self, item: &Item);

    fn finish(self: Box<Self>) -> io::Result<Exported>;
}

/// A file being written. Errors wait for [`Export::finish`].
pub struct Export<'a>(Box<dyn Sink + 'a>);

impl<'a> Export<'a> {
    pub fn begin<W: Write + Send + 'a>(form: Form, out: W, head: Head) -> io::Result<Export<'a>> {
        Export::begin_boxed(form, Box::new(out), head)
    }

    /// Begins an export. The writer is boxed so that formats are compiled in this crate, which is optimised, not in the
    /// caller's.
    fn begin_boxed(form: Form, out: Box<dyn Write + Send + 'a>, head: Head) -> io::Result<Export<'a>> {
        Ok(Export(match form {
            Form::Csv => Box::new(csv::Csv::begin(out, head)),
            #[cfg(feature = "parquet")]
            Form::Parquet => Box::new(parquet::Spans::begin(out, head)?),
            #[cfg(not(feature = "parquet"))]
            Form::Parquet => return Err(io::Error::new(io::ErrorKind::Unsupported, "built without Parquet")),
            Form::Perfetto => Box::new(perfetto::Perfetto::begin(out, head)),
            Form::Arrivals => Box::new(ArrivalsCsv::begin(out, &head)),
        }))
    }

    pub fn visit(&mut self, item: &Item) {
        self.0.visit(item);
    }

    /// Ends the file. Returns the first error since the beginning.
    pub fn finish(self) -> io::Result<Exported> {
        self.0.finish()
    }
}

/// A writer that keeps its first error and writes nothing after it: visitors cannot return errors.
struct Sticky<W> {
    out: W,
    error: Option<io::Error>,
}

impl<W: Write> Sticky<W> {
    fn new(out: W) -> Sticky<W> {
        Sticky { out, error: None }
    }

    fn write(&mut self, bytes: &[u8]) {
        if self.error.is_none() {
            self.error = self.out.write_all(bytes).err();
        }
    }

    fn finish(mut self) -> io::Result<()> {
        self.error.map_or_else(|| self.out.flush(), Err)
    }
}

/// Requests in the order of their beginnings, as scenarios of the simulator read them.
struct ArrivalsCsv<W> {
    arrivals: Arrivals,
    lines: Lines<W>,
}

struct Lines<W> {
    out: Sticky<W>,
    zero_ns: Option<u64>,
    last_ns: u64,
    exported: Exported,
}

impl<W: Write> Lines<W> {
    fn add(&mut self, arrival: &Arrival) {
        if arrival.queued_ns < self.last_ns {
            self.exported.unordered += 1;
            return;
        }
        if arrival.op.is_transfer() && arrival.len_bytes == 0 {
            self.exported.left_out += 1;
            return;
        }

        self.last_ns = arrival.queued_ns;
        let zero_ns = *self.zero_ns.get_or_insert(arrival.queued_ns);
        let at_ns = arrival.queued_ns.saturating_sub(zero_ns);
        let (op, offset_bytes, len_bytes) = (arrival.op.name(), arrival.offset_bytes, arrival.len_bytes);
        let line = format!("{}.{:03},{op},{offset_bytes},{len_bytes}\n", at_ns / 1000, at_ns % 1000);
        self.out.write(line.as_bytes());
        self.exported.rows += 1;
    }
}

impl<W: Write> ArrivalsCsv<W> {
    /// Begins the file. Times count from the beginning of the trace, so that files of several classes fit together.
    fn begin(out: W, head: &Head) -> ArrivalsCsv<W> {
        let mut out = Sticky::new(out);
        out.write(format!("{}\n", ARRIVAL_COLUMNS.join(",")).as_bytes());
        let lines = Lines { out, zero_ns: head.begin_ns, last_ns: 0, exported: Exported::default() };
        ArrivalsCsv { arrivals: Arrivals::new(), lines }
    }
}

impl<W: Write> Sink for ArrivalsCsv<W> {
    fn visit(&mut self, item: &Item) {
        let lines = &mut self.lines;
        self.arrivals.visit(item, &mut |arrival| lines.add(&arrival));
    }

    fn finish(mut self: Box<Self>) -> io::Result<Exported> {
        let lines = &mut self.lines;
        self.arrivals.finish(&mut |arrival| lines.add(&arrival));
        self.lines.exported.left_out += self.arrivals.without_begin + self.arrivals.cancelled;
        self.lines.out.finish()?;
        Ok(self.lines.exported)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_files::csv::parse_arrivals;

    use super::super::arrivals::tests::span;
    use super::super::span::Span;
    use super::*;

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn arrivals_are_read_by_the_simulator() {
        let spans = [(5_000, 9_000), (1_500, 9_500), (2_000, 9_900)];
        let spans = (1..).zip(spans).map(|(request, (from, to))| Span { request, ..span(from, to) });
        let cancelled = Span { is_cancelled: true, ..span(1, 2) };
        let mut out = Vec::new();
        let head = Head { begin_ns: Some(1_000), ..Head::default() };
        let mut export = Export::begin(Form::Arrivals, &mut out, head).unwrap();
        spans.chain([cancelled]).for_each(|span| export.visit(&Item::Span(span)));
        let exported = export.finish().unwrap();
        assert_eq!((exported.rows, exported.left_out), (3, 1));
        let text = String::from_utf8(out).unwrap();
        let read = parse_arrivals("arrivals.csv", &text).unwrap();
        let times: Vec<u64> = read.iter().map(|arrival| arrival.at_ns).collect();
        assert_eq!(times, [500, 1_000, 4_000], "{text}");
        assert!(read.iter().all(|arrival| (arrival.offset_bytes, arrival.len_bytes) == (8192, 4096)));
    }

    #[test]
    fn each_form_counts_what_it_wrote() {
        // Requests in the device one after another, then two at once.
        let spans = [(1_000, 2_000), (3_000, 4_000), (5_000, 9_000), (5_500, 9_500)];
        // A request is three slices: itself, its time in the queue, and that in the device.
        for (form, rows) in [(Form::Csv, 4), (Form::Parquet, 4), (Form::Arrivals, 4), (Form::Perfetto, 12)] {
            let mut out = Vec::new();
            let head = Head { begin_ns: Some(0), ..Head::default() };
            let Ok(mut export) = Export::begin(form, &mut out, head) else {
                assert!(form == Form::Parquet && !HAS_PARQUET);
                continue;
            };

            for (request, (from, to)) in (1..).zip(spans) {
                export.visit(&Item::Span(Span { request, ..span(from, to) }));
            }

            let exported = export.finish().unwrap();
            assert_eq!(exported, Exported { rows, ..Exported::default() }, "{form:?}");
            if let Form::Csv | Form::Arrivals = form {
                assert_eq!(String::from_utf8(out).unwrap().lines().count() as u64, 1 + rows, "{form:?}");
            }
        }
    }

    #[test]
    fn a_full_disk_is_told_at_the_end_in_every_form() {
        let forms = [Form::Csv, Form::Perfetto, Form::Arrivals];
        for form in forms.into_iter().chain(HAS_PARQUET.then_some(Form::Parquet)) {
            let ended = Export::begin(form, Full, Head::default()).and_then(|mut export| {
                export.visit(&Item::Span(span(1, 2)));
                export.finish()
            });
            let is_told = ended.is_err_and(|error| error.to_string().contains("space") || form == Form::Parquet);
            assert!(is_told, "{form:?}");
        }
    }

    #[test]
    fn without_the_feature_parquet_is_refused() {
        let begun = Export::begin(Form::Parquet, Vec::new(), Head::default());
        assert_eq!(begun.is_ok(), HAS_PARQUET);
    }
}

//! `plimsoll trace export`: a trace in the formats of other programs.

use std::io::{BufWriter, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use plimsoll_figures::units::format_count;
use plimsoll_observe::trace::export::{Export, Exported, Form, HAS_PARQUET};

use super::read;
use super::show::{FilterFlags, check_class, head};
use crate::failure::{Failure, Outcome, without_parquet};
use crate::flags::{nanos, time};
use crate::interrupt::remove_on_signal;
use crate::output::{Output, Unfinished, refuse_input};
use crate::screen;

/// Bytes per write to the file.
const BUFFER_BYTES: usize = 1 << 18;

/// Write a trace as CSV, Parquet, for ui.perfetto.dev, or as arrivals for `plimsoll sim run`
///
/// The columns are described in docs/formats.md. Open a file for Perfetto at https://ui.perfetto.dev: it has a track
/// for each shard, class and disk.
#[derive(Args, Debug)]
pub(crate) struct ExportArguments {
    /// The trace
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Format of the file
    #[arg(long, value_enum)]
    to: ExportForm,

    /// File to write [default: standard output; Parquet and Perfetto need a file]
    #[arg(long, short = 'o', value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    filter: FilterFlags,

    /// Only pieces that begin before this time, counted from the start of the trace
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Duration>,

    /// Overwrite an existing file
    #[arg(long)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportForm {
    /// A line for each piece of a request.
    Csv,
    /// The same in columns, for data frames.
    Parquet,
    /// For ui.perfetto.dev.
    Perfetto,
    /// The arrival of each request: for `replay` in a scenario of `plimsoll sim run`.
    Arrivals,
}

impl ExportForm {
    const fn form(self) -> Form {
        match self {
            ExportForm::Csv => Form::Csv,
            ExportForm::Parquet => Form::Parquet,
            ExportForm::Perfetto => Form::Perfetto,
            ExportForm::Arrivals => Form::Arrivals,
        }
    }

    const fn is_text(self) -> bool {
        matches!(self, ExportForm::Csv | ExportForm::Arrivals)
    }
}

pub(super) fn run(arguments: &ExportArguments) -> Result<Outcome, Failure> {
    if arguments.to == ExportForm::Parquet && !HAS_PARQUET {
        return Err(without_parquet("or take --to csv"));
    }

    let filter = arguments.filter.filter(arguments.until.map(nanos))?;
    let output = match &arguments.output {
        Some(path) => {
            refuse_input(path, "--output", &arguments.trace)?;
            Some(Output::check(path, arguments.force, "--output")?)
        }
        None if !arguments.to.is_text() => {
            return Err(Failure::Input("this format is not for reading: name a file with -o FILE".to_owned()));
        }
        None => None,
    };

    let head = head(&arguments.trace)?;
    check_class(&filter, &head, &arguments.trace)?;

    let unfinished = output.as_ref().map(Output::begin).transpose()?;
    if let Some(temporary) = unfinished.as_ref().and_then(Unfinished::temporary) {
        remove_on_signal(temporary.to_owned())?;
    }

    let out: Box<dyn Write + Send> = match &unfinished {
        None if std::io::stdout().is_terminal() => Box::new(screen::TerminalOut),
        None => Box::new(std::io::stdout()),
        Some(unfinished) => Box::new(unfinished.writer()?),
    };
    let failed = |error: std::io::Error| match &output {
        Some(output) => output.cannot_write(&error),
        None => error.into(),
    };

    let out = BufWriter::with_capacity(BUFFER_BYTES, out);
    let mut export = Export::begin(arguments.to.form(), out, head.clone()).map_err(failed)?;
    read(&arguments.trace, &mut |item| {
        if filter.takes(&item, &head) {
            export.visit(&item);
        }
    })?;
    let exported = export.finish().map_err(failed)?;
    unfinished.map_or(Ok(()), Unfinished::finish)?;

    tell(arguments, exported);
    Ok(Outcome::Done)
}

/// Prints to stderr the number of exported items, and of omitted ones.
fn tell(arguments: &ExportArguments, exported: Exported) {
    let Exported { rows, unordered, without_place, left_out } = exported;
    let what = match arguments.to {
        ExportForm::Csv | ExportForm::Parquet => "pieces of requests",
        ExportForm::Perfetto => "slices",
        ExportForm::Arrivals => "requests",
    };

    if let Some(path) = &arguments.output {
        screen::note(&format!("{}: {} {what}", path.display(), format_count(rows)));
    }

    let late = match arguments.to {
        ExportForm::Arrivals => "requests came too late in the trace to be put in order, and are left out",
        _ => "changes of counters came too late in the trace, and are drawn later than they were",
    };

    let warnings = [
        (unordered, late),
        (
            without_place,
            "slices overlap so many others that they have no place, and are left out: narrow --from and --until",
        ),
        (left_out, "requests were taken back or have no known beginning, and are left out"),
    ];
    for (count, text) in warnings.into_iter().filter(|(count, _)| *count > 0) {
        screen::warning(&format!("{} {text}", format_count(count)));
    }
}

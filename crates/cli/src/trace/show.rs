//! `plimsoll trace show`: prints a trace as text.

use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use plimsoll_figures::units::format_count;
use plimsoll_observe::stat::output::listed;
use plimsoll_observe::trace;
use plimsoll_observe::trace::show::{self, Filter, Head};

use crate::failure::{Failure, Outcome};
use crate::flags::{nanos, time};
use crate::screen;

/// Show a trace as text: a line for each piece of a request, and for each other event
///
/// Times are seconds from the start of the trace. Q2D: in the queue; D2C: in the disk; C2R: done and unseen. Remarks:
/// errors, what the class waited for, #N: piece of a split request, +N: requests merged into it. Lines are roughly in
/// the order of their ends.
#[derive(Args, Debug)]
pub(crate) struct ShowArguments {
    /// The trace
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    #[command(flatten)]
    filter: FilterFlags,

    /// Only pieces that begin before this time, counted from the start of the trace
    #[arg(long, visible_alias = "until", value_name = "TIME", value_parser = time)]
    to: Option<Duration>,

    /// Show at most N lines
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

/// The part of a trace to take.
#[derive(Args, Debug)]
pub(super) struct FilterFlags {
    /// Only this class, or this process of a kernel trace
    #[arg(long, value_name = "NAME")]
    class: Option<String>,

    /// Only pieces that end at or after this time, counted from the start of the trace: 1.5s, 300ms
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<Duration>,
}

impl FilterFlags {
    /// Returns the filter for the part of the trace up to `to_ns`.
    pub(super) fn filter(&self, to_ns: Option<u64>) -> Result<Filter, Failure> {
        let from_ns = self.from.map_or(0, nanos);
        if to_ns.is_some_and(|to_ns| to_ns <= from_ns) {
            return Err(Failure::Input("the part of the trace must end later than --from".to_owned()));
        }
        Ok(Filter { class: self.class.clone(), from_ns, to_ns })
    }
}

/// Reads the trace for its names and its start. Standard input can be read only once: then classes are numbers, and
/// times those of its clock.
pub(super) fn head(path: &Path) -> Result<Head, Failure> {
    if path == Path::new("-") {
        screen::note(
            "standard input is read once: classes and disks are numbers, times those of the clock of the trace",
        );
        return Ok(Head::default());
    }
    trace::read_head(path).map_err(|error| Failure::Input(format!("{}: {error}", path.display())))
}

/// Refuses a class that the trace lacks, and names those that it has.
pub(super) fn check_class(filter: &Filter, head: &Head, path: &Path) -> Result<(), Failure> {
    let Some(wanted) = &filter.class else { return Ok(()) };
    let mut names: Vec<&str> = head.names.classes.values().map(|class| class.name.as_str()).collect();
    if names.is_empty() || names.contains(&wanted.as_str()) {
        return Ok(());
    }
    names.sort_unstable();
    names.dedup();
    Err(Failure::Input(format!("{}: no class `{wanted}`; it has {}", path.display(), listed(names.iter(), 20))))
}

pub(super) fn run(arguments: &ShowArguments) -> Result<Outcome, Failure> {
    let filter = arguments.filter.filter(arguments.to.map(nanos))?;
    let head = head(&arguments.trace)?;
    check_class(&filter, &head, &arguments.trace)?;

    let limit = arguments.limit.unwrap_or(u64::MAX);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let (mut shown, mut further) = (0, 0);
    let mut end = writeln!(out, "{}", show::HEAD);

    super::read(&arguments.trace, &mut |item| {
        if end.is_err() || !filter.takes(&item, &head) {
            return;
        }
        if shown == limit {
            further += 1;
            return;
        }
        shown += 1;
        end = writeln!(out, "{}", show::line(&item, &head));
        if end.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe) {
            // A visitor cannot stop the reader, and the trace may have no end.
            std::process::exit(0);
        }
    })?;
    end.and_then(|()| out.flush())?;
    drop(out);

    if further > 0 {
        screen::note(&format!("{} more: raise --limit", format_count(further)));
    }
    if shown == 0 && limit > 0 {
        screen::note("there is nothing of that in the trace");
    }
    Ok(Outcome::Done)
}

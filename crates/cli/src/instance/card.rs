//! `plimsoll instance card`: figures of this machine, in a file that can be compared with others.

use std::path::PathBuf;

use clap::Args;
use plimsoll_measure::instance::measure::iperf3::Peer;
use plimsoll_measure::instance::measure::{self, Budgets, CardOptions, Group, Measured, measure};
use plimsoll_measure::instance::{Card, page};
use plimsoll_measure::load::Control;
use plimsoll_measure::tune::TuneOptions;

use crate::failure::{Failure, Outcome};
use crate::flags::{PageFlags, ReportFormat, size};
use crate::output::{Output, refuse_same, two_on_stdout};
use crate::{interrupt, screen};

/// Measure this machine: its disk, the cost of a read, and with stress-ng and iperf3 processor and network
///
/// Takes at most six minutes. The disk is measured if --storage names a directory on it; scratch files there are
/// removed. Figures whose tool is not installed or that were not requested are listed as missing, with the remedy.
#[derive(Args, Debug)]
pub(crate) struct CardArguments {
    /// Write the card to this file, for `plimsoll instance compare` (JSON; `-`: stdout)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    #[command(flatten)]
    page: PageFlags,

    /// Name of the machine [default: its host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Directory on the disk to measure; 8 GiB of scratch data there (with --quick 2 GiB) are overwritten
    #[arg(long, value_name = "DIR")]
    storage: Option<PathBuf>,

    /// Take at most 90 seconds, instead of six minutes
    #[arg(long)]
    quick: bool,

    /// Skip these figures: disk, submission, stress-ng, network
    #[arg(long, value_name = "GROUP", value_delimiter = ',')]
    skip: Vec<Group>,

    /// Measure the network to this host, on which `iperf3 -s` runs [default: no network]
    #[arg(long, value_name = "HOST[:PORT]")]
    peer: Option<Peer>,

    /// With --peer: streams at a time [default: doubled while that gains 5 %]
    #[arg(long, value_name = "N", requires = "peer", value_parser = clap::value_parser!(u16).range(1..=128))]
    streams: Option<u16>,

    /// Write at most this much to the disk [default: 256GiB, with --quick 64GiB]
    #[arg(long, value_name = "BYTES", value_parser = size, requires = "storage")]
    max_write: Option<u64>,

    /// Format of the result on stdout
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(crate) fn run(arguments: &CardArguments) -> Result<Outcome, Failure> {
    let is_to_stdout = arguments.output.as_deref().is_some_and(|path| path.as_os_str() == "-");
    let file = arguments.output.as_deref().filter(|_| !is_to_stdout);
    if is_to_stdout && arguments.format == ReportFormat::Csv {
        return Err(Failure::Input(two_on_stdout("the card")));
    }
    refuse_same([("--output", file), ("--page", arguments.page.page.as_deref())])?;

    let output = file.map(|path| Output::check(path, arguments.page.force, "--output")).transpose()?;
    let html = arguments.page.check()?;
    let options = options(arguments)?;

    let control = Control::default();
    interrupt::stop_on_signal(&control.stop)?;
    let Measured { card, disk } = measure(&options, &mut screen::Phases::new(), &control)?;

    // Write the files first: the reader of stdout may close it at any time. Report their errors after the result.
    let written = output.map_or(Ok(()), |output| output.write(&card.to_json()));
    let written = written.and(html.map_or(Ok(()), |output| output.write(&page::html(&card, disk.as_ref()))));

    let format = if is_to_stdout { ReportFormat::Json } else { arguments.format };
    format.print(|| table(&card), &card, || page::csv(&card))?;
    written?;
    if control.stop.is_asked() {
        screen::note("interrupted: the card holds what was measured until then; scratch files are removed");
        return Ok(Outcome::Interrupted);
    }
    Ok(Outcome::Done)
}

fn options(arguments: &CardArguments) -> Result<CardOptions, Failure> {
    let name = arguments.name.clone().unwrap_or_else(measure::host_name);
    if name.trim().is_empty() {
        return Err(Failure::Input("--name: a machine needs a name".to_owned()));
    }

    let disk = match &arguments.storage {
        Some(path) if !path.is_dir() => {
            let message = format!(
                "--storage {}: no such directory: name one on the disk to be measured (a block device is measured by \
                 `plimsoll tune --destructive`)",
                path.display()
            );
            return Err(Failure::Input(message));
        }
        Some(path) => {
            let options = if arguments.quick { TuneOptions::quick(path) } else { TuneOptions::new(path) };
            let max_write_bytes = arguments.max_write.or_else(|| options.usual_max_write_bytes());
            Some(TuneOptions { max_write_bytes, ..options })
        }
        None => None,
    };

    let budgets = if arguments.quick { Budgets::QUICK } else { Budgets::STANDARD };
    let (skip, peer) = (arguments.skip.clone(), arguments.peer.clone());
    let streams = arguments.streams.map(usize::from);
    Ok(CardOptions { disk, budgets, skip, peer, streams, ..CardOptions::new(name) })
}

/// Returns a card as text of one or two screens.
fn table(card: &Card) -> String {
    let mut rows = Vec::new();
    for (heading, of_group) in page::rows(card) {
        rows.push(vec![heading.to_owned()]);
        let row = |row: page::Row| vec![format!("  {}", row.title), row.value, row.interval];
        rows.extend(of_group.into_iter().map(row));
    }

    let model = card.facts.get("cpu.model").map_or_else(String::new, |model| format!(", {model}"));
    let mut parts =
        vec![screen::wrap(&format!("{}{model}", card.name)), screen::table(&["", "value", "95 % interval"], rows)];

    let list = |heading: &str, lines: Vec<String>| {
        let lines = lines.iter().map(|line| screen::wrap(&format!("- {line}")).replace('\n', "\n  "));
        format!("{heading}:\n{}", lines.collect::<Vec<String>>().join("\n"))
    };
    if !card.missing.is_empty() {
        parts.push(list("Missing", card.missing.iter().map(|(key, why)| format!("{key}: {why}")).collect()));
    }
    if !card.warnings.is_empty() {
        parts.push(list("Warnings", card.warnings.clone()));
    }
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        card: CardArguments,
    }

    #[test]
    fn writes_have_the_bound_that_help_names() {
        for (options, expected_bytes) in
            [(&[][..], 256 << 30), (&["--quick"], 64 << 30), (&["--max-write", "9G"], 9 << 30)]
        {
            let line = [&["card", "--storage", "."], options].concat();
            let arguments = Line::try_parse_from(line).unwrap_or_else(|error| panic!("{error}")).card;
            let disk = super::options(&arguments).unwrap_or_else(|error| panic!("{error:?}")).disk;
            assert_eq!(disk.and_then(|disk| disk.max_write_bytes), Some(expected_bytes), "{options:?}");
        }
    }
}

//! `plimsoll report`: one page from any results.

use std::path::PathBuf;

use clap::Args;
use plimsoll_files::variant_name;
use plimsoll_measure::report_page::{self, ReadError, Shown};
use plimsoll_show::table::{self, Column};

use crate::failure::{Failure, Outcome};
use crate::flags::ReportFormat;
use crate::output::{Output, refuse_input};
use crate::screen;

/// Make one page (HTML) from results: tables and pictures; the page needs no network
///
/// Takes JSON of tune, test, compare, sim run and sim surface; records of tune; cards of machines; traces; recordings
/// of stat, samples of /proc/diskstats and output of iostat. Their content shows which they are. Prints a row for each
/// file.
#[derive(Args, Debug)]
pub(crate) struct ReportArguments {
    /// Results, in the order in which the page shows them
    #[arg(value_name = "FILE", num_args = 1.., required = true)]
    results: Vec<PathBuf>,

    /// File of the page
    #[arg(short, long, default_value = "report.html", value_name = "FILE")]
    output: PathBuf,

    /// Overwrite an existing output file
    #[arg(long)]
    force: bool,

    /// Title of the page [default: that of a single result, else the number of results]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    /// Format of the result on stdout
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(crate) fn run(arguments: &ReportArguments) -> Result<Outcome, Failure> {
    arguments.results.iter().try_for_each(|path| refuse_input(&arguments.output, "--output", path))?;
    let output = Output::check(&arguments.output, arguments.force, "--output")?;
    let read = arguments.results.iter().map(|path| report_page::read(path));
    let results: Vec<Shown> =
        read.collect::<Result<_, _>>().map_err(|error: ReadError| Failure::Input(error.to_string()))?;
    for shown in &results {
        shown.notes.iter().for_each(|note| screen::warning(&format!("{}: {note}", shown.file)));
    }
    let title = match (&arguments.title, results.as_slice()) {
        (Some(title), _) => title.clone(),
        (None, [only]) => only.part.title.clone(),
        (None, several) => format!("Report of {} results", several.len()),
    };
    output.write(&report_page::page(&title, &results))?;
    arguments.format.print(|| table(arguments, &results), &json(arguments, &results), || csv(&results))?;
    Ok(Outcome::Done)
}

fn table(arguments: &ReportArguments, results: &[Shown]) -> String {
    const COLUMNS: &[Column<Shown>] = &[
        ("file", |it| it.file.clone()),
        ("what it is", |it| it.kind.words().to_owned()),
        ("sections", |it| it.part.sections.len().to_string()),
    ];
    let table = screen::columns(results, COLUMNS);
    format!("{table}\n\n{}\n", screen::wrap(&format!("wrote {}", arguments.output.display())))
}

fn json(arguments: &ReportArguments, results: &[Shown]) -> serde_json::Value {
    let file = |shown: &Shown| {
        let sections: Vec<&str> = shown.part.sections.iter().map(|section| section.heading.as_str()).collect();
        serde_json::json!({
            "file": shown.file,
            "kind": shown.kind,
            "title": shown.part.title,
            "sections": sections,
            "notes": shown.notes,
        })
    };
    let files: Vec<serde_json::Value> = results.iter().map(file).collect();
    let page = arguments.output.display().to_string();
    serde_json::json!({"schema": 1, "page": page, "files": files})
}

fn csv(results: &[Shown]) -> String {
    const COLUMNS: &[Column<Shown>] = &[
        ("file", |it| it.file.clone()),
        ("kind", |it| variant_name(it.kind)),
        ("title", |it| it.part.title.clone()),
        ("sections", |it| it.part.sections.len().to_string()),
    ];
    table::csv(results, COLUMNS)
}

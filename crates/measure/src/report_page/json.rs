//! Recognises results in JSON, and makes their sections.
//!
//! **Why.** The keys of a result identify its kind; its file name does not.
//!
//! **How.** [`read`] looks for keys that only one kind of result has, and reads the text as that kind. If it is
//! damaged, the message is that kind's own.
//!
//! **Limits.** If only a result's own command can show it on a page, a message says what to do.
//!
//! **Example.** A map with `jobs` and `by_shard` is the result of a test.

use plimsoll_show::page::Section;
use serde_json::Value;

use super::{Content, EXPECTED, Kind, sim};
use crate::compare::CompareReport;
use crate::experiment::dual::DualReport;
use crate::experiment::find_rate::RateReport;
use crate::experiment::matrix::MatrixReport;
use crate::experiment::pictures::{self, Picture};
use crate::experiment::sweep::SweepReport;
use crate::experiment::words::{self, Said};
use crate::instance::{self, Card};
use crate::report::{Circumstances, TestReport};
use crate::tune::{self, TuneReport};

/// Results without sections here: the keys that identify them, and what to do.
const ELSEWHERE: [(&[&str], &str); 7] = [
    (&["spans", "groups"], "an analysis by `plimsoll trace stages`: give the trace itself"),
    (&["spans", "disks"], "an analysis of a trace: give the trace itself"),
    (&["comparisons"], "a comparison of two intervals: `plimsoll stat --compare A B --page FILE` makes its page"),
    (&["families"], "the result of `plimsoll instance scaling`: make its page with --page"),
    (&["machines", "figures"], "the result of `plimsoll instance compare`: make its page with --page"),
    (&["findings"], "what `plimsoll info --check` found: it has no page"),
    (&["fio version"], "output of fio: run the job with `plimsoll test JOBS.fio --format json`"),
];

/// Returns the sections of a result; `None` for JSON that may be another program's.
pub(super) fn read(file: &str, text: &str, value: &Value) -> Option<Result<Content, String>> {
    let found = kind(value).transpose()?.and_then(|kind| match kind {
        Kind::Card => of_card(file, text),
        Kind::Tune => tunes(value).map(|reports| of_tunes(&reports)),
        Kind::Test => of_test(file, text),
        Kind::Sweep => experiment("sweep", text).map(|report| of_sweep(file, report)),
        Kind::Search => experiment("search", text).map(|report: RateReport| {
            let sections = of_experiment(Some(&report.made), words::of_search(&report), &pictures::of_search(&report));
            Content::new(Kind::Search, format!("Search {file}"), sections)
        }),
        Kind::Matrix => experiment("matrix", text).map(|report: MatrixReport| {
            let sections = of_experiment(report.made.as_ref(), words::of_matrix(&report), &[]);
            Content::new(Kind::Matrix, format!("Matrix {file}"), sections)
        }),
        Kind::Dual => DualReport::from_json(text).map_err(|error| damaged("dual run", &error)).map(|report| {
            let sections = of_experiment(report.made.as_ref(), words::of_dual(&report), &[]);
            Content::new(Kind::Dual, format!("Dual run {file}"), sections)
        }),
        Kind::Compare => CompareReport::from_json(text)
            .map(|report| Content::new(Kind::Compare, format!("Comparison {file}"), report.sections())),
        Kind::Sim => sim::of_runs(file, value),
        Kind::Surface => sim::of_surface(file, value),
        Kind::TuneRecord | Kind::Trace | Kind::Stat => Err(unknown(value)),
    });
    Some(found)
}

/// Returns the kind of a result by keys that only this kind has; `None` for JSON that may be another program's.
///
/// # Errors
/// A sentence on a result that has no page here, with what to do.
pub(crate) fn kind(value: &Value) -> Result<Option<Kind>, String> {
    let is_tune = |item: &Value| has(item, &["mountpoint", "read_block"]);
    Ok(Some(match value {
        Value::Array(items) if !items.is_empty() && items.iter().all(is_tune) => Kind::Tune,
        value if value.is_array() || has(value, &["sysstat"]) => return Ok(None),
        value if has(value, &["plimsoll_card"]) => Kind::Card,
        value if is_tune(value) => Kind::Tune,
        value if has(value, &["jobs", "by_shard"]) => Kind::Test,
        value if has(value, &["axes", "points"]) => Kind::Sweep,
        value if has(value, &["closed_loop_iops", "trials"]) => Kind::Search,
        value if has(value, &["rows", "written_bytes"]) => Kind::Matrix,
        value if has(value, &["runs", "finding"]) => Kind::Dual,
        value if has(value, &["sides", "comparisons"]) => Kind::Compare,
        value if has(value, &["runs", "seeds"]) => Kind::Sim,
        value if has(value, &["cells"]) => Kind::Surface,
        value if has(value, &["record"]) => return Ok(None),
        value => return Err(unknown(value)),
    }))
}

/// Returns a sentence on JSON that is no known result.
fn unknown(value: &Value) -> String {
    match ELSEWHERE.iter().find(|(keys, _)| has(value, keys)) {
        Some((_, what)) => format!("this is {what}"),
        None => format!("this JSON is no result that is known: {EXPECTED}"),
    }
}

fn has(value: &Value, keys: &[&str]) -> bool {
    keys.iter().all(|key| value.get(key).is_some())
}

/// Returns the measurements of one disk or several.
pub(crate) fn tunes(value: &Value) -> Result<Vec<TuneReport>, String> {
    let items = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
    let report = |item: &Value| {
        let schema = item.get("schema").and_then(Value::as_u64);
        let known = u64::from(tune::SCHEMA);
        if schema != Some(known) {
            let found = schema.map_or_else(|| "none".to_owned(), |schema| schema.to_string());
            return Err(format!(
                "this measurement has schema {found}, and this version of plimsoll knows {known}: analyse its record \
                 again with `plimsoll tune --from RECORD --format json`"
            ));
        }
        serde_json::from_value(item.clone()).map_err(|error| format!("this measurement is damaged: {error}"))
    };
    items.iter().map(report).collect()
}

fn of_tunes(reports: &[TuneReport]) -> Content {
    let mut titles = Vec::new();
    let mut all: Vec<Section> = Vec::new();
    for report in reports {
        let (title, mut sections) = tune::pictures::sections(report);
        if reports.len() > 1 {
            sections
                .iter_mut()
                .for_each(|section| section.heading = format!("{}: {}", report.site.mountpoint, section.heading));
        }

        titles.push(title);
        all.extend(sections);
    }
    Content::new(Kind::Tune, titles.join("; "), all)
}

fn of_card(file: &str, text: &str) -> Result<Content, String> {
    let card = Card::from_json(file, text).map_err(|error| error.to_string())?;
    let (title, sections) = instance::page::sections(&card, None);
    Ok(Content::new(Kind::Card, title, sections))
}

pub(crate) fn experiment<T: serde::de::DeserializeOwned>(what: &str, text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| damaged(what, &error))
}

pub(crate) fn damaged(what: &str, error: &serde_json::Error) -> String {
    format!("this {what} is damaged: {error}")
}

fn of_sweep(file: &str, report: SweepReport) -> Content {
    let sections = of_experiment(report.made.as_ref(), words::of_sweep(&report), &pictures::of_sweep(&report));
    Content { sweep: Some(report), ..Content::new(Kind::Sweep, format!("Sweep {file}"), sections) }
}

fn of_experiment(made: Option<&Circumstances>, said: Said, drawn: &[Picture]) -> Vec<Section> {
    let made = made.into_iter().flat_map(Circumstances::sentences);
    let remarks: Vec<String> = made.chain(said.remarks).collect();
    pictures::sections(said.answer, &remarks, said.table, drawn)
}

fn of_test(file: &str, text: &str) -> Result<Content, String> {
    let report = TestReport::from_json(text).map_err(|error| error.to_string())?;
    let sections = pictures::sections(None, &report.remarks(), pictures::table(&report), &pictures::of_report(&report));
    Ok(Content::new(Kind::Test, format!("Test {file}"), sections))
}

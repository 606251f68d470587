//! Recognises results in JSON, and makes their sections.
//!
//! **Why.** The keys of a result tell its kind; its file name does not.
//!
//! **How.** [`read`] looks for keys that only one kind of result has, and reads the text as that kind, with that kind's
//! own message if it is damaged.
//!
//! **Limits.** If only its own command can show a result on a page, a message says what to do.
//!
//! **Example.** A map with `jobs` and `by_shard` is the result of a test.

use plimsoll_show::page::Section;
use serde_json::Value;

use super::{Content, EXPECTED, Kind, sim};
use crate::compare::CompareReport;
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
    if let Value::Array(items) = value {
        let is_tune = !items.is_empty() && items.iter().all(|item| has(item, &["mountpoint", "read_block"]));
        return is_tune.then(|| of_tunes(items));
    }
    Some(match value {
        value if has(value, &["sysstat"]) => return None,
        value if has(value, &["plimsoll_card"]) => of_card(file, text),
        value if has(value, &["mountpoint", "read_block"]) => of_tunes(std::slice::from_ref(value)),
        value if has(value, &["jobs", "by_shard"]) => of_test(file, text),
        value if has(value, &["axes", "points"]) => experiment("sweep", text).map(|report| of_sweep(file, report)),
        value if has(value, &["closed_loop_iops", "trials"]) => experiment("search", text).map(|report: RateReport| {
            let sections = of_experiment(Some(&report.made), words::of_search(&report), &pictures::of_search(&report));
            Content::new(Kind::Search, format!("Search {file}"), sections)
        }),
        value if has(value, &["rows", "written_bytes"]) => experiment("matrix", text).map(|report: MatrixReport| {
            let sections = of_experiment(report.made.as_ref(), words::of_matrix(&report), &[]);
            Content::new(Kind::Matrix, format!("Matrix {file}"), sections)
        }),
        value if has(value, &["sides", "comparisons"]) => CompareReport::from_json(text)
            .map(|report| Content::new(Kind::Compare, format!("Comparison {file}"), report.sections())),
        value if has(value, &["runs", "seeds"]) => sim::of_runs(file, value),
        value if has(value, &["cells"]) => sim::of_surface(file, value),
        value => match ELSEWHERE.iter().find(|(keys, _)| has(value, keys)) {
            Some((_, what)) => Err(format!("this is {what}")),
            None if value.get("record").is_some() => return None,
            None => Err(format!("this JSON is no result that is known: {EXPECTED}")),
        },
    })
}

fn has(value: &Value, keys: &[&str]) -> bool {
    keys.iter().all(|key| value.get(key).is_some())
}

fn of_tunes(items: &[Value]) -> Result<Content, String> {
    let mut titles = Vec::new();
    let mut all: Vec<Section> = Vec::new();
    for item in items {
        let schema = item.get("schema").and_then(Value::as_u64);
        let known = u64::from(tune::SCHEMA);
        if schema != Some(known) {
            let found = schema.map_or_else(|| "none".to_owned(), |schema| schema.to_string());
            return Err(format!(
                "this measurement has schema {found}, and this version of plimsoll knows {known}: analyse its record \
                 again with `plimsoll tune --from RECORD --format json`"
            ));
        }

        let report: TuneReport =
            serde_json::from_value(item.clone()).map_err(|error| format!("this measurement is damaged: {error}"))?;

        let (title, mut sections) = tune::pictures::sections(&report);
        if items.len() > 1 {
            sections
                .iter_mut()
                .for_each(|section| section.heading = format!("{}: {}", report.site.mountpoint, section.heading));
        }

        titles.push(title);
        all.extend(sections);
    }
    Ok(Content::new(Kind::Tune, titles.join("; "), all))
}

fn of_card(file: &str, text: &str) -> Result<Content, String> {
    let card = Card::from_json(file, text).map_err(|error| error.to_string())?;
    let (title, sections) = instance::page::sections(&card, None);
    Ok(Content::new(Kind::Card, title, sections))
}

fn experiment<T: serde::de::DeserializeOwned>(what: &str, text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("this {what} is damaged: {error}"))
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

//! `plimsoll test --replay`: prints the result of a replay.

use std::path::Path;

use plimsoll_figures::units::format_count;
use plimsoll_measure::experiment::words::us;
use plimsoll_measure::load::Control;
use plimsoll_measure::load::replay::{ReplayError, Speed, Survey};
use plimsoll_measure::report::Latency;
use plimsoll_measure::test::TestError;
use plimsoll_measure::test::replay::{
    ReplayFigures, ReplayOptions, ReplayResult, ReplayTestError, remarks, run as replay, write_flag,
};
use serde_json::json;

use super::arguments::{Checked, TestArguments, checked};
use super::outputs::Outputs;
use super::{Steps, conclude, hand_over, remove_leftovers, scratch_words, table};
use crate::failure::{Failure, Outcome, as_json};
use crate::flags::{TestFormat, nanos};
use crate::recording::Recording;
use crate::{interrupt, screen};

/// Version of the key `replay` in the JSON.
const SCHEMA: u32 = 1;

pub(super) fn run(path: &Path, arguments: &TestArguments) -> Result<Outcome, Failure> {
    if matches!(arguments.format, TestFormat::FioJson | TestFormat::FioJsonPlus) {
        return Err(Failure::Input("a replay has no jobs of fio: take --format table, json, csv or yaml".to_owned()));
    }

    let outputs = Outputs::check(arguments)?;
    let checked = checked(arguments)?;
    let options = ReplayOptions {
        test: checked.situation.options.clone(),
        trace: path.to_owned(),
        speed: arguments.speed.unwrap_or(Speed::Times(1.0)),
        data_size_bytes: arguments.data_size,
        duration_ns: arguments.duration.map(nanos),
    };

    // Read the trace before setting the Ctrl-C handler: a pipe without a writer blocks, and must stay interruptible.
    let survey = Survey::read(path).map_err(|error| failure(error.into()))?;

    remove_leftovers(&options.test);
    let control = Control::default();
    interrupt::stop_on_signal(&control.stop)?;
    let recording = Recording::start(arguments.trace.as_deref(), arguments.pictures.page.force, &control.instruments)?;
    let mut steps = Steps::new(&arguments.disk, &checked, &control.instruments, None);
    let result = replay(&options, survey, &control, &mut |what, expected_ns| steps.next(what, expected_ns));
    steps.end();
    let recorded = recording.end();

    let scratch = scratch_words(arguments.keep_files);
    let result = match result {
        Err(ReplayTestError::Test(error @ TestError::Interrupted)) => {
            screen::note(&format!("{error}; {scratch}"));
            return Ok(Outcome::Interrupted);
        }
        other => other.map_err(failure)?,
    };

    tell(&result.figures, &checked);
    hand_over("replay", &result.report, &text(arguments.format, &result)?, &outputs)?;
    recorded?;
    Ok(conclude(&result.report, scratch))
}

fn failure(error: ReplayTestError) -> Failure {
    match error {
        ReplayTestError::Test(error) => error.into(),
        ReplayTestError::Replay(ReplayError::Load(error)) => TestError::Load(error).into(),
        error => Failure::Input(error.to_string()),
    }
}

fn tell(figures: &ReplayFigures, checked: &Checked) {
    let flag = write_flag(&checked.situation.options.storage);
    remarks(figures, flag).iter().for_each(|remark| screen::warning(remark));
}

fn text(format: TestFormat, ReplayResult { report, figures }: &ReplayResult) -> Result<String, Failure> {
    Ok(match format {
        TestFormat::Json => {
            let mut value = json!(report);
            value["replay"] = json!(figures);
            value["replay"]["schema"] = json!(SCHEMA);
            as_json(&value)?
        }
        TestFormat::Csv => report.to_csv(),
        TestFormat::Yaml => report.to_yaml(),
        _ => format!("{}\n{}", table::table(report), own_table(figures)),
    })
}

fn own_table(figures: &ReplayFigures) -> String {
    let late = |late: &Option<Latency>| match late {
        Some(late) => [us(late.p50_us), us(late.p99_us), us(late.max_us)],
        None => ["-", "-", "-"].map(str::to_owned),
    };
    let headers = ["class", "sent", "late p50", "p99", "max", "trace p50", "p99", "replay p50", "p99"];
    let rows = figures.classes.iter().map(|class| {
        let mut row = vec![class.name.clone(), format_count(class.issued)];
        row.extend(late(&class.lateness));
        let (then, now) = (&class.original, &class.replayed);
        let compared = |value| if class.compared == 0 { "-".to_owned() } else { us(value) };
        row.extend([then.p50_us, then.p99_us, now.p50_us, now.p99_us].map(compared));
        row
    });

    let speed = match figures.speed {
        Some(1.0) => "as fast as recorded".to_owned(),
        Some(times) => format!("{times} times as fast as recorded"),
        None => "as fast as it went".to_owned(),
    };

    let said = format!(
        "Replayed {} of {} requests of {} ({}), recorded over {:.2} s, {speed}. late: from when a request was due to when it \
         was sent. trace and replay: latencies of the same requests there and here.",
        format_count(figures.totals.issued),
        format_count(figures.requests),
        figures.trace,
        figures.origin,
        figures.trace_s
    );
    format!("{}\n\n{}\n", screen::table(&headers, rows.collect()), screen::wrap(&said))
}

#[cfg(test)]
mod tests {
    use plimsoll_measure::test::replay::ReplayClassFigures;

    use super::*;

    #[test]
    fn a_table_fits_100_columns() {
        let latency = Latency { p50_us: 123_456.0, p99_us: 234_567.0, max_us: 345_678.0, ..Latency::default() };
        let class = ReplayClassFigures {
            name: "a class with a name that is so long that no column of a table can hold all of it".to_owned(),
            issued: 123_456_789,
            lateness: Some(latency),
            compared: 1,
            original: latency,
            replayed: latency,
        };
        let max = ReplayClassFigures { lateness: None, ..class.clone() };
        let figures = ReplayFigures { classes: vec![class, max], speed: Some(0.5), ..ReplayFigures::default() };
        let text = own_table(&figures);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(text.contains("0.5 times as fast") && text.contains("346 ms"), "{text}");
    }
}

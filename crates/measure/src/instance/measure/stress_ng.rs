//! Runs stress-ng, and reads its figures.
//!
//! **Why.** Published comparisons of machines show its nine stressors, so figures of other machines from an independent
//! program exist.
//!
//! **How.** One instance of one stressor runs at a time, each for the same number of seconds, and the whole list up to
//! three times: a machine that gets slower meanwhile shows in the interval of every stressor, not in the last ones.
//! stress-ng writes its figures as YAML into a private directory that is removed afterwards, as are the files of its
//! `dentry` stressor. The figure is `bogo-ops-per-second-real-time`: operations per second, waiting included.
//!
//! **Limits.** Published runs start all nine together (`stress-ng --cache 1 --icache 1 ... -t 1m`). On a machine with
//! fewer than nine processors the stressors then disturb each other: compare such figures with care. Operations are
//! comparable only between runs of the same version; the `cache` stressor differs between versions by orders of
//! magnitude. Times are whole seconds, because stress-ng accepts no others.
//!
//! **Example.**
//!
//! ```
//! use plimsoll_measure::instance::measure::stress_ng;
//! let text = "system-info:\n  stress-ng-version: 0.15.06\nmetrics:\n  - stressor: cpu\n    bogo-ops: 1054\n    \
//!             bogo-ops-per-second-real-time: 1051.6\n";
//! let report = stress_ng::read(text)?;
//! assert_eq!(report.version.as_deref(), Some("0.15.06"));
//! assert_eq!(report.stressors[0].per_s, 1051.6);
//! # Ok::<(), stress_ng::ReadError>(())
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use super::child::{self, Failure};
use super::{Card, Figure, figures};
use crate::load::Stop;

/// The stressors, as published comparisons list them.
pub const STRESSORS: [&str; 9] = ["cache", "cpu", "dentry", "icache", "matrix", "memcpy", "qsort", "timer", "tsc"];

/// Most runs of the list: the fewest samples that have an interval.
const ROUNDS: u64 = 3;
/// Time that a run may take beyond its seconds, to set up and to clean up.
const SPARE: Duration = Duration::from_secs(15);
/// Fewest operations of a run that show a difference of 5 %.
const OPS_MIN: f64 = 20.0;
const SECOND_NS: u64 = 1_000_000_000;
/// The longest text that is read, in bytes; stress-ng writes about one thousand for each stressor.
const TEXT_BYTES_MAX: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq)]
pub struct Stressor {
    pub name: String,
    /// Operations of the run, if the text has them.
    pub ops: Option<f64>,
    /// Operations per second of real time; finite and at least 0.
    pub per_s: f64,
}

/// The content of stress-ng's YAML.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The version of stress-ng that wrote the file.
    pub version: Option<String>,
    /// The stressors that were measured; skipped ones are left out.
    pub stressors: Vec<Stressor>,
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ReadError {
    #[error("this is not what stress-ng writes: {0}")]
    NotStressNg(String),
    #[error("stress-ng's {0} has no rate: expected `bogo-ops-per-second-real-time`, a finite number of at least 0")]
    NoRate(String),
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "system-info")]
    system: Option<System>,
    metrics: Option<Vec<Metric>>,
}

#[derive(Deserialize)]
struct System {
    #[serde(rename = "stress-ng-version")]
    version: Option<String>,
}

/// The keys that are read; some versions add processor time, memory, and figures of the stressor's own.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Metric {
    stressor: String,
    bogo_ops: Option<f64>,
    bogo_ops_per_second_real_time: Option<f64>,
    wall_clock_time: Option<f64>,
}

/// Reads the file of `stress-ng --metrics --yaml FILE`, of versions 0.13 to 0.18 at least.
///
/// # Errors
/// The text is longer than 1 MiB or not stress-ng's, or a stressor has no rate.
pub fn read(text: &str) -> Result<Report, ReadError> {
    let not_stress_ng = |what: &str| ReadError::NotStressNg(what.to_owned());
    if text.len() > TEXT_BYTES_MAX {
        return Err(not_stress_ng("it is longer than 1 MiB"));
    }

    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        with_snippet: false,
    };
    let file: File = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| not_stress_ng(error.to_string().lines().next().unwrap_or_default()))?;
    let stressor = |metric: Metric| {
        let ops = metric.bogo_ops.filter(|ops| ops.is_finite() && *ops >= 0.0);
        let counted = ops.zip(metric.wall_clock_time).map(|(ops, wall_clock_s)| ops / wall_clock_s);
        match metric.bogo_ops_per_second_real_time.or(counted) {
            Some(per_s) if per_s.is_finite() && per_s >= 0.0 => Ok(Stressor { name: metric.stressor, ops, per_s }),
            _ => Err(ReadError::NoRate(metric.stressor)),
        }
    };
    let stressors = file.metrics.unwrap_or_default().into_iter().map(stressor).collect::<Result<_, _>>()?;
    Ok(Report { version: file.system.and_then(|system| system.version), stressors })
}

/// Runs the stressors one after the other, with their files in a new directory in `directory`.
///
/// Takes about `budget_ns`, at least 9 s. Figures that cannot be measured are `missing`: all of them under `stress_ng`
/// if stress-ng is not installed or no files can be created, else by stressor.
pub fn measure(card: &mut Card, directory: &Path, budget_ns: u64, stop: &Stop) {
    Runs::planned("stress-ng".into(), budget_ns, stop).measure(card, directory);
}

struct Runs<'a> {
    program: PathBuf,
    rounds: u64,
    seconds: u64,
    stop: &'a Stop,
}

impl Runs<'_> {
    /// Plans at most [`ROUNDS`] rounds: as many as the budget allows with runs of at least a second.
    fn planned(program: PathBuf, budget_ns: u64, stop: &Stop) -> Runs<'_> {
        let runs_max = budget_ns / SECOND_NS / STRESSORS.len() as u64;
        let rounds = runs_max.clamp(1, ROUNDS);
        Runs { program, rounds, seconds: (runs_max / rounds).max(1), stop }
    }

    fn measure(&self, card: &mut Card, directory: &Path) {
        let private = match tempfile::Builder::new().prefix("plimsoll-stress-ng-").tempdir_in(directory) {
            Ok(private) => private,
            Err(error) => {
                let directory = directory.display();
                card.miss(
                    "stress_ng",
                    &format!("no files can be made in {directory}: {error}: choose another directory"),
                );
                return;
            }
        };

        let mut runs: [Vec<Stressor>; STRESSORS.len()] = Default::default();
        let mut failures: [Option<Failure>; STRESSORS.len()] = Default::default();
        let mut version = None;
        for _ in 0..self.rounds {
            for ((name, runs), failure) in STRESSORS.into_iter().zip(&mut runs).zip(&mut failures) {
                // A stressor that failed is not run again.
                if failure.is_some() {
                    continue;
                }
                match self.run(private.path(), name) {
                    Ok((stressor, of_run)) => {
                        runs.push(stressor);
                        version = of_run.or(version);
                    }
                    Err(error @ Failure::NotInstalled(_)) => {
                        card.miss("stress_ng", &error.to_string());
                        return;
                    }
                    Err(error) => *failure = Some(error),
                }
            }
        }

        if failures.contains(&Some(Failure::Stopped)) {
            card.warnings.push("stress-ng was stopped before its end".to_owned());
        }
        version.into_iter().for_each(|version| card.fact("stress_ng.version", version));
        card.fact("stress_ng.method", self.method());
        for ((name, runs), failure) in STRESSORS.into_iter().zip(runs).zip(failures) {
            self.note(card, name, &runs, failure);
        }
    }

    /// Runs one stressor once. Returns its result, and the version of stress-ng.
    fn run(&self, private: &Path, name: &str) -> Result<(Stressor, Option<String>), Failure> {
        let yaml = private.join("metrics.yaml");
        // An earlier run may have left its file there.
        let _ = std::fs::remove_file(&yaml);
        let mut command = Command::new(&self.program);
        command.arg(format!("--{name}")).args(["1", "--timeout", &format!("{}s", self.seconds), "--metrics", "--yaml"]);
        command.arg(&yaml).arg("--temp-path").arg(private).current_dir(private);
        let ended = child::run(&mut command, Duration::from_secs(self.seconds) + SPARE, self.stop)?;

        let complaint = complaint(name, &[&ended.stderr, &ended.stdout]);
        let failure = |otherwise: &str| Failure::Other(complaint.clone().unwrap_or_else(|| otherwise.to_owned()));
        if !ended.is_success {
            return Err(failure("stress-ng failed without a word"));
        }
        let text = std::fs::read_to_string(&yaml).unwrap_or_default();
        let report = read(if text.is_empty() { "metrics:" } else { &text });
        let report = report.map_err(|error| Failure::Other(error.to_string()))?;
        let measured = report.stressors.into_iter().find(|stressor| stressor.name == name && stressor.per_s > 0.0);
        Ok((measured.ok_or_else(|| failure("stress-ng did not measure it"))?, report.version))
    }

    /// Returns how the stressors were run, for the facts of a card.
    fn method(&self) -> String {
        let (stressors, seconds) = (STRESSORS.len(), self.seconds);
        let rounds = if self.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", self.rounds) };
        format!(
            "{stressors} stressors, one instance each, one after the other (not all at once), {rounds} of {seconds} s"
        )
    }

    fn note(&self, card: &mut Card, name: &str, runs: &[Stressor], failure: Option<Failure>) {
        let samples = runs.iter().map(|run| run.per_s).collect();
        let key = format!("{}{name}", figures::STRESS_NG);

        match (Figure::of_samples(samples), failure) {
            (None, failure) => card.miss(&key, &failure.unwrap_or(Failure::Stopped).to_string()),
            (Some(figure), failure) => {
                card.set(&key, figure);
                let failure = failure.filter(|failure| *failure != Failure::Stopped);
                let warning = failure.map(|failure| format!("stress-ng {name} was not repeated: {failure}"));
                card.warnings.extend(warning);
            }
        }

        if let Some(ops) = runs.iter().filter_map(|run| run.ops).reduce(f64::min).filter(|ops| *ops < OPS_MIN) {
            let step_pct = 100.0 / ops.max(1.0);
            card.warnings.push(format!(
                "stress-ng {name}: {ops} operations in a run of {} s, so that one more or less is {step_pct:.0} %",
                self.seconds
            ));
        }
    }
}

/// Returns the line with which stress-ng skips a stressor or names an error.
fn complaint(name: &str, outputs: &[&str]) -> Option<String> {
    let lines = || outputs.iter().flat_map(|text| text.lines());
    let is_skipped = |line: &&str| line.contains(name) && (line.contains("skip") || line.contains("not supported"));
    let is_error = |line: &&str| line.contains("error") || line.contains("fail") || line.contains("unrecognized");
    let line = lines().find(is_skipped).or_else(|| lines().find(is_error))?;
    // Of `stress-ng: info:  [25941] tsc stressor will be skipped, ...`, the words after the process number.
    let words = line.split_once("] ").map_or(line, |(_, words)| words);
    Some(words.chars().filter(|c| !c.is_control()).take(200).collect::<String>().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::instance::measure::card_of;
    use crate::skip::skip;

    /// The text of a version that adds processor time and figures of the stressors.
    const NEWER: &str = "---
system-info:
      stress-ng-version: 0.18.02
      date-yyyy-mm-dd: 2026:11:21
      time-hh-mm-ss: 19:02:35
      version: '#1 SMP'

metrics:
    - stressor: memcpy
      bogo-ops: 219
      bogo-ops-per-second-usr-sys-time: 309.734138
      bogo-ops-per-second-real-time: 218.800048
      wall-clock-time: 1.000914
      cpu-usage-per-instance: 70.641244
      max-rss: 6524
    - stressor: matrix
      bogo-ops: 2292
      bogo-ops-per-second-real-time: 2291.258154
      add-matrix-ops-per-sec: 318899.330552
      add-matrix-ops-per-sec: 318899.330552

...
";

    fn stressor(name: &str, ops: Option<f64>, per_s: f64) -> Stressor {
        Stressor { name: name.to_owned(), ops, per_s }
    }

    #[test]
    fn what_versions_write() {
        let older = "---\nsystem-info:\n  stress-ng-version: 0.13.12\n\nmetrics:\n    - stressor: tsc\n      \
                     bogo-ops: 40\n      \
                     bogo-ops-per-second-usr-sys-time: 0.000000\n      bogo-ops-per-second-real-time: 20.5\n...\n";
        let counted = "metrics: [{stressor: cpu, bogo-ops: 30, wall-clock-time: 1.5}]";
        let cases: [(&str, Option<&str>, Vec<Stressor>); 5] = [
            (
                NEWER,
                Some("0.18.02"),
                vec![stressor("memcpy", Some(219.0), 218.800048), stressor("matrix", Some(2292.0), 2291.258154)],
            ),
            (older, Some("0.13.12"), vec![stressor("tsc", Some(40.0), 20.5)]),
            (counted, None, vec![stressor("cpu", Some(30.0), 20.0)]),
            ("system-info:\n  stress-ng-version: 0.18\nmetrics:\n", Some("0.18"), vec![]),
            ("---\nsystem-info:\n  hostname: a\n", None, vec![]),
        ];
        for (text, version, stressors) in cases {
            let expected = Report { version: version.map(str::to_owned), stressors };
            assert_eq!(read(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_refused() {
        for (text, expected) in [
            ("[1, 2]", "not what stress-ng writes"),
            ("metrics: {", "not what stress-ng writes"),
            ("metrics: [{bogo-ops: 1}]", "not what stress-ng writes"),
            ("metrics: [{stressor: cpu}]", "stress-ng's cpu has no rate"),
            ("metrics: [{stressor: cpu, bogo-ops-per-second-real-time: .nan}]", "stress-ng's cpu has no rate"),
            ("metrics: [{stressor: cpu, bogo-ops-per-second-real-time: -1}]", "stress-ng's cpu has no rate"),
            ("metrics: [{stressor: cpu, bogo-ops: 1, wall-clock-time: 0}]", "stress-ng's cpu has no rate"),
            (&" ".repeat(TEXT_BYTES_MAX + 1), "longer than 1 MiB"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}: expected {expected}");
        }
    }

    #[test]
    fn truncated_texts_never_bring_what_the_whole_does_not() {
        let whole = read(NEWER).unwrap();
        for length in 0..NEWER.len() {
            let Ok(part) = read(&NEWER[..length]) else { continue };
            assert!(part.stressors.len() <= whole.stressors.len(), "{length}");
        }
    }

    #[test]
    fn a_budget_is_rounds_of_whole_seconds() {
        for (budget_s, expected) in
            [(0, (1, 1)), (9, (1, 1)), (18, (2, 1)), (27, (3, 1)), (60, (3, 2)), (90, (3, 3)), (600, (3, 22))]
        {
            let stop = Stop::default();
            let runs = Runs::planned(PathBuf::new(), budget_s * SECOND_NS, &stop);
            assert_eq!((runs.rounds, runs.seconds), expected, "{budget_s} s");
        }
    }

    #[test]
    fn what_is_said_of_stressors_that_were_not_measured() {
        let skipped = "stress-ng: info:  [7] tsc stressor will be skipped, no such instruction\n\
                       stress-ng: error: [7] No stress workers invoked\n";
        for (text, expected) in [
            (skipped, Some("tsc stressor will be skipped, no such instruction")),
            ("stress-ng: error: [7] No stress workers invoked", Some("No stress workers invoked")),
            ("stress-ng: unrecognized option '--tsc'", Some("stress-ng: unrecognized option '--tsc'")),
            ("stress-ng: info:  [7] all is well", None),
            ("", None),
        ] {
            assert_eq!(complaint("tsc", &["", text]).as_deref(), expected, "{text}");
        }
    }

    /// Measures with a script in the place of stress-ng, whose arguments have the stressor's option in `$1` and the
    /// file in `$7`, and checks that no files are left.
    fn with_script(script: &str, budget_ns: u64, stop: &Stop) -> Card {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("stress-ng");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let scratch = directory.path().join("scratch");
        std::fs::create_dir(&scratch).unwrap();
        let card = card_of(|card| Runs::planned(program, budget_ns, stop).measure(card, &scratch));
        assert_eq!(std::fs::read_dir(scratch).unwrap().count(), 0, "files are left");
        card
    }

    fn missing<'a>(card: &'a Card, key: &str) -> &'a str {
        card.missing.get(key).map_or("", String::as_str)
    }

    #[test]
    fn figures_of_some_reasons_of_others() {
        let script = r#"case "$1" in
            --tsc) echo "stress-ng: info:  [1] tsc stressor will be skipped, no such instruction" >&2; exit 0;;
            --timer) echo "stress-ng: error: [1] out of timers" >&2; exit 2;;
            --qsort) echo "metrics: [" >"$7"; exit 0;;
        esac
        echo 'system-info: {stress-ng-version: 0.15.06}' >"$7"
        echo "metrics: [{stressor: ${1#--}, bogo-ops: 8, bogo-ops-per-second-real-time: 4.0}]" >>"$7""#;
        let card = with_script(script, 27 * SECOND_NS, &Stop::default());
        assert_eq!(card.figures.len(), 6, "{card:?}");
        let figure = &card.figures["stress_ng.cache"];
        assert_eq!((figure.value, figure.samples.len()), (4.0, 3));
        assert!(card.figures.keys().all(|key| figures::kind(key).is_some()));
        assert!(missing(&card, "stress_ng.tsc").contains("skipped, no such instruction"), "{card:?}");
        assert_eq!(missing(&card, "stress_ng.timer"), "out of timers");
        assert!(missing(&card, "stress_ng.qsort").contains("not what stress-ng writes"), "{card:?}");
        assert!(card.facts["stress_ng.version"] == "0.15.06");
        assert!(card.facts["stress_ng.method"].contains("3 rounds of 1 s"));
        assert!(card.warnings.iter().any(|text| text.contains("cpu: 8 operations")), "{card:?}");
    }

    #[test]
    fn a_stop_ends_it_and_leaves_nothing() {
        let stop = Stop::default();
        let stopper = stop.clone();
        let stopping = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            stopper.ask();
        });
        let card = with_script("sleep 600", 0, &stop);
        assert!(stopping.join().is_ok());
        assert_eq!((card.figures.len(), card.missing.len()), (0, STRESSORS.len()));
        assert_eq!(card.warnings, ["stress-ng was stopped before its end"]);
    }

    #[test]
    fn no_program_and_no_directory() {
        let stop = Stop::default();
        let runs = Runs::planned("plimsoll-no-such-program".into(), 0, &stop);
        let card = card_of(|card| runs.measure(card, &std::env::temp_dir()));
        assert!(missing(&card, "stress_ng").contains("apt install plimsoll-no-such-program"), "{card:?}");
        let card = card_of(|card| runs.measure(card, Path::new("/plimsoll/no/such/directory")));
        assert!(missing(&card, "stress_ng").contains("choose another directory"), "{card:?}");
    }

    /// Takes nine seconds.
    #[test]
    fn the_real_one() {
        let card = card_of(|card| measure(card, &std::env::temp_dir(), 0, &Stop::default()));
        if let Some(reason) = card.missing.get("stress_ng") {
            skip(reason);
            return;
        }
        println!("{card:#?}");
        assert_eq!(card.figures.len() + card.missing.len(), STRESSORS.len(), "{card:?}");
        assert!(card.facts.contains_key("stress_ng.version") || card.figures.is_empty(), "{card:?}");
    }
}

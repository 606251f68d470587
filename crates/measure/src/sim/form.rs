//! A run in the JSON of `sim run`, written and read back.
//!
//! **Why.** The parts of a run are merged from their JSON, and `compare` reads it.
//!
//! **How.** [`RunForm`] is the form of one run; its keys are in docs/formats.md.
//!
//! **Limits.** Curves (`series`) and the time that a run took are not in the JSON.
//!
//! **Example.** `RunForm::of(&run).finished(&sweep)` is the run again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::result::{Measured, RunResult, Table as ResultTable};
use super::run::Finished;

/// The schema of the JSON of `sim run`.
pub(crate) const SCHEMA: u64 = 1;

/// One run in the JSON of `sim run`. Fields of a successful run are `None` in a failed one.
#[derive(Serialize, Deserialize)]
pub(crate) struct RunForm {
    pub(crate) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) figures: Option<Vec<Measured>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) log_hash: Option<String>,
    pub(crate) name: String,
    #[serde(skip_deserializing)]
    passed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remarks: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) requests: Option<u64>,
    pub(crate) seed: u64,
    #[serde(default)]
    pub(crate) sweep: BTreeMap<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tables: Option<Vec<ResultTable>>,
    #[serde(default)]
    pub(crate) title: String,
}

impl RunForm {
    pub(super) fn of(finished: &Finished) -> RunForm {
        let result = finished.result.as_ref().ok();
        RunForm {
            error: finished.result.as_ref().err().cloned(),
            figures: result.map(|result| result.figures.clone()),
            log_hash: result.map(|result| format!("{:016x}", result.log_hash)),
            name: finished.name.clone(),
            passed: finished.passed(),
            remarks: result.map(|result| result.remarks.clone()),
            requests: result.map(|result| result.requests),
            seed: finished.seed,
            sweep: finished.changes.iter().map(|(key, value)| (key.clone(), json!(value))).collect(),
            tables: result.map(|result| result.tables.clone()),
            title: finished.title.clone(),
        }
    }

    /// Returns the run that has this form. `sweep` are the swept keys in their order.
    pub(super) fn finished(self, sweep: &[String]) -> Result<Finished, String> {
        let damaged = {
            let name = self.name.clone();
            move |key: &str| format!("a run of {name} has no `{key}`: the file is damaged")
        };

        let change = |key: &String| Some((key.clone(), self.sweep.get(key)?.as_str()?.to_owned()));
        let changes = sweep.iter().map(change).collect::<Option<_>>().ok_or_else(|| damaged("sweep"))?;

        let result = match self.error {
            Some(error) => Err(error),
            None => {
                let hash = self.log_hash.as_deref().and_then(|digits| u64::from_str_radix(digits, 16).ok());
                Ok(RunResult {
                    log_hash: hash.ok_or_else(|| damaged("log_hash"))?,
                    requests: self.requests.ok_or_else(|| damaged("requests"))?,
                    figures: self.figures.unwrap_or_default(),
                    tables: self.tables.unwrap_or_default(),
                    remarks: self.remarks.unwrap_or_default(),
                    series: Vec::new(),
                })
            }
        };

        Ok(Finished { name: self.name, title: self.title, changes, seed: self.seed, result, elapsed_s: 0.0 })
    }

    /// Returns the changes of the sweep, a `KEY=VALUE` each.
    pub(crate) fn changes(&self) -> impl Iterator<Item = String> {
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.sweep.iter().map(move |(key, value)| format!("{key}={}", plain(value)))
    }
}

//! The card of a machine: figures, facts, and what could not be measured.
//!
//! **Why.** "Characterise, then compare" needs a record that outlives the machine.
//!
//! **How.** A JSON file. `plimsoll_card` marks a file as a card and is the version of its schema (docs/formats.md).
//! Figures are numbers in base units (bytes, nanoseconds, per second) under the keys of [`super::figures`]; facts are
//! texts (a processor's name). Each figure that could not be measured is under `missing` with the reason, so that an
//! incomplete card never looks complete.
//!
//! **Limits.** An interval holds for this machine during this measurement.
//!
//! **Example.** See [`super`].

use std::collections::BTreeMap;

use plimsoll_figures::series;
use plimsoll_files::bounded::{RESULT_MAX_BYTES, read_text};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::figures;

/// The schema's version that is written and read.
const VERSION: u64 = 2;

/// The highest figure. No machine has more of anything, and the product of two is still finite.
const FIGURE_MAX: f64 = 1e18;

/// Relative difference allowed between a value and the mean of its samples: files written by hand are rounded.
const MEAN_TOLERANCE: f64 = 1e-6;

/// The longest name of a machine, in characters.
const NAME_MAX_CHARS: usize = 64;

/// One figure, in the unit of its key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    pub value: f64,
    /// The samples whose mean the value is, in the order of measuring; empty if it was not sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<f64>,
    /// The 95 % interval, if the measurement knows it more precisely than `samples` show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

impl Figure {
    /// Returns a figure that is counted or stated, not measured.
    pub fn exact(value: f64) -> Figure {
        Figure { value, samples: Vec::new(), interval: None }
    }

    /// Returns the mean of samples in the order they were taken, or `None` if there are none.
    pub fn of_samples(samples: Vec<f64>) -> Option<Figure> {
        let value = (!samples.is_empty()).then(|| series::mean(&samples))?;
        Some(Figure { value, samples, interval: None })
    }

    /// Returns the 95 % interval: as measured, or computed from at least three samples; else `None`.
    pub fn interval(&self) -> Option<[f64; 2]> {
        let of_samples = || {
            let interval = (self.samples.len() >= 3).then(|| series::mean_interval(&self.samples)).flatten()?;
            // No figure is below 0, so its interval is not either.
            Some([(interval.mean - interval.half_width).max(0.0), interval.mean + interval.half_width])
        };
        self.interval.or_else(of_samples)
    }
}

/// How the figures of a card came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OriginKind {
    Measured,
    Published,
    Preset,
}

/// Where the figures of a card come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    pub kind: OriginKind,
    pub source: String,
    /// The year, month or day of the figures (`2019`, `2019-05`, `2019-05-08`).
    pub date: String,
}

impl Origin {
    /// Returns the origin of figures that this program measures on `date`.
    pub fn measured(date: impl Into<String>) -> Origin {
        let source = format!("plimsoll {}", env!("CARGO_PKG_VERSION"));
        Origin { kind: OriginKind::Measured, source, date: date.into() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    /// The version of the schema; marks the file as a card.
    plimsoll_card: u64,
    /// The machine's name: `i3en.24xlarge`, a host name.
    pub name: String,
    pub origin: Origin,
    /// The figures by key, see [`figures`].
    pub figures: BTreeMap<String, Figure>,
    /// Texts by name: `cpu.model`, `os.kernel`, `stress_ng.version`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
    /// The reason for each missing key or group, with the remedy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Why a card cannot be read.
#[derive(Debug, Error)]
pub enum CardError {
    #[error("{path}: {error}")]
    Unreadable { path: String, error: std::io::Error },
    #[error("{path}:{line}: {what}; a card is written by `plimsoll instance card -o FILE`")]
    NotACard {
        path: String,
        /// Line of the file, from 1.
        line: usize,
        what: String,
    },
    #[error("{path}: this is a card of version {found}, and version {VERSION} is read: {remedy}")]
    Version { path: String, found: u64, remedy: &'static str },
    #[error("{path}: figures: {key}: {what}")]
    Figure { path: String, key: String, what: String },
}

impl Card {
    /// Returns a card without figures. Cuts `name` at 64 characters and replaces control characters by `?`.
    pub fn new(name: impl Into<String>, origin: Origin) -> Card {
        Card {
            plimsoll_card: VERSION,
            name: name.into().chars().map(printed).take(NAME_MAX_CHARS).collect(),
            origin,
            figures: BTreeMap::new(),
            facts: BTreeMap::new(),
            missing: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }

    /// Sets the figure of a key of [`figures`]. If the key is unknown, or the figure is out of range or contradicts
    /// itself, adds the reason to `missing` instead. A key is never in both.
    pub fn set(&mut self, key: &str, figure: Figure) {
        match wrong(key, &figure) {
            Some(what) => self.miss(key, &what),
            None => {
                self.missing.remove(key);
                self.figures.insert(key.to_owned(), figure);
            }
        }
    }

    /// Sets the mean of samples as the figure of a key, or adds the reason why there are none.
    pub(super) fn sampled(&mut self, key: &str, samples: Result<Vec<f64>, String>) {
        match samples.map(Figure::of_samples) {
            Ok(Some(figure)) => self.set(key, figure),
            Ok(None) => self.miss(key, "there was no time for a sample"),
            Err(reason) => self.miss(key, &reason),
        }
    }

    /// Adds the reason why a key, or a whole group, is missing.
    pub(super) fn miss(&mut self, key: &str, reason: &str) {
        self.figures.remove(key);
        self.missing.insert(key.to_owned(), reason.to_owned());
    }

    pub(super) fn fact(&mut self, name: &str, text: impl Into<String>) {
        self.facts.insert(name.to_owned(), text.into());
    }

    pub fn value(&self, key: &str) -> Option<f64> {
        self.figures.get(key).map(|figure| figure.value)
    }

    /// Returns the keys of the card's figures in the order of [`figures::FIGURES`], those of stress-ng last.
    pub fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<&str> = self.figures.keys().map(String::as_str).collect();
        keys.sort_by_key(|key| figures::rank(key));
        keys
    }

    /// Returns the text of the card's file.
    pub fn to_json(&self) -> String {
        // Strings and finite numbers can always be written.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Reads a card from a file.
    ///
    /// # Errors
    /// The file cannot be read, or as [`Card::from_json`].
    pub fn read(path: &std::path::Path) -> Result<Card, CardError> {
        let name = path.display().to_string();
        let text =
            read_text(path, RESULT_MAX_BYTES).map_err(|error| CardError::Unreadable { path: name.clone(), error })?;
        Card::from_json(&name, &text)
    }

    /// Reads a card from its text; `path` is for messages.
    ///
    /// # Errors
    /// The text is not JSON or not a card, or has another version; the name is longer than 64 characters or has control
    /// characters; a figure's key is unknown, or its value is not from 0 to 10^18 or contradicts itself.
    pub fn from_json(path: &str, text: &str) -> Result<Card, CardError> {
        let not_a_card = |line, what: String| CardError::NotACard { path: path.to_owned(), line, what };
        if text.trim().is_empty() {
            return Err(not_a_card(1, "not JSON: the file is empty".to_owned()));
        }
        let value: serde_json::Value =
            serde_json::from_str(text).map_err(|error| not_a_card(error.line(), format!("not JSON: {error}")))?;
        let version = value.get("plimsoll_card").ok_or_else(|| not_a_card(1, "this JSON is no card".to_owned()))?;
        match version.as_u64() {
            Some(VERSION) => {}
            Some(found) => {
                let remedy =
                    if found > VERSION { "use the newer plimsoll that wrote it" } else { "measure the machine again" };
                return Err(CardError::Version { path: path.to_owned(), found, remedy });
            }
            None => return Err(not_a_card(1, "`plimsoll_card` must be the number of a version".to_owned())),
        }

        let card: Card = serde_json::from_str(text).map_err(|error| not_a_card(error.line(), error.to_string()))?;
        if card.name.chars().count() > NAME_MAX_CHARS || card.name.chars().any(char::is_control) {
            let what = format!("`name` must have at most {NAME_MAX_CHARS} characters, all of which can be printed");
            return Err(not_a_card(1, what));
        }

        for (key, figure) in &card.figures {
            if let Some(what) = wrong(key, figure) {
                return Err(CardError::Figure { path: path.to_owned(), key: key.clone(), what });
            }
        }
        Ok(card)
    }
}

/// Returns `character`, or `?` for a control character.
fn printed(character: char) -> char {
    if character.is_control() { '?' } else { character }
}

fn wrong(key: &str, figure: &Figure) -> Option<String> {
    if figures::kind(key).is_none() {
        let meant = figures::closest(key).map_or_else(String::new, |key| format!(": did you mean `{key}`?"));
        return Some(format!("no figure has this name{meant}"));
    }
    let mut numbers = std::iter::once(figure.value).chain(figure.samples.iter().copied());
    if let Some(number) = numbers.find(|number| !(0.0..=FIGURE_MAX).contains(number)) {
        return Some(format!("expected a number from 0 to {FIGURE_MAX:e}, not {number}"));
    }
    contradiction(figure)
}

/// Returns how a figure's interval or samples contradict its value, or `None`.
fn contradiction(figure: &Figure) -> Option<String> {
    let value = figure.value;
    if let Some([low, high]) = figure.interval {
        let is_around = low <= value && value <= high && low >= -FIGURE_MAX && high <= FIGURE_MAX;
        if !is_around {
            return Some(format!("the interval from {low} to {high} is not around the value {value}"));
        }
    }

    if figure.samples.is_empty() {
        return None;
    }
    let mean = series::mean(&figure.samples);
    let is_mean = (value - mean).abs() <= MEAN_TOLERANCE * mean;
    (!is_mean).then(|| format!("the value {value} is not the mean of its samples, {mean}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> Card {
        let mut card = Card::new("a", Origin::measured("2026-01-02"));
        card.set("cpu.cores", Figure::exact(4.0));
        card.set("stress_ng.cpu", Figure::exact(221.21));
        card.set("disk.read_iops", Figure { interval: Some([90.0, 120.0]), ..Figure::exact(100.0) });
        card
    }

    #[test]
    fn a_card_reads_what_it_writes_in_the_order_of_the_table() {
        let card = card();
        assert_eq!(Card::from_json("a.json", &card.to_json()).unwrap(), card);
        assert_eq!(card.keys(), ["cpu.cores", "disk.read_iops", "stress_ng.cpu"]);
    }

    #[test]
    fn what_is_no_card_is_refused_with_the_reason() {
        let good = card().to_json();
        let cases = [
            ("", "a.json:1: not JSON"),
            ("{}", "this JSON is no card"),
            (&good.replace("\"plimsoll_card\": 2", "\"plimsoll_card\": 3"), "use the newer plimsoll"),
            (&good.replace("\"plimsoll_card\": 2", "\"plimsoll_card\": 1"), "measure the machine again"),
            (&good.replace("\"plimsoll_card\": 2", "\"plimsoll_card\": \"1\""), "must be the number of a version"),
            (&good.replace("cpu.cores", "cpu.coers"), "did you mean `cpu.cores`?"),
            (&good.replace("221.21", "-3"), "stress_ng.cpu: expected a number from 0 to 1e18, not -3"),
            (&good.replace("221.21", "1e19"), "expected a number from 0 to 1e18"),
            (
                &good.replace("221.21", "221.21, \"samples\": [221.21, 221.22]"),
                "is not the mean of its samples, 221.215",
            ),
            (&good.replace("221.21", "0, \"samples\": [1, -1]"), "expected a number from 0 to 1e18, not -1"),
            (&good.replace("120.0", "99.0"), "the interval from 90 to 99 is not around the value 100"),
            (&good.replace("90.0", "100.5"), "the interval from 100.5 to 120 is not around"),
            (&good.replace("221.21", "null"), "a.json:"),
            (&good.replace("\"name\": \"a\"", "\"name\": \"a\\u001b[2J\""), "at most 64 characters"),
            (&good.replace("\"name\": \"a\"", &format!("\"name\": {:?}", "a".repeat(65))), "at most 64 characters"),
            (&good.replace("\"source\"", "\"sauce\""), "unknown field `sauce`"),
        ];
        for (text, expected) in cases {
            let message = Card::from_json("a.json", text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}: expected {expected}");
        }
    }

    #[test]
    fn intervals_are_given_or_from_three_samples() {
        assert_eq!(Figure::exact(1.0).interval(), None);
        assert_eq!(Figure::of_samples(vec![1.0, 2.0]).unwrap().interval(), None);
        let [low, high] = Figure::of_samples(vec![9.0, 10.0, 11.0]).unwrap().interval().unwrap();
        // 4.303 x 1 / sqrt(3)
        assert!((low - 7.516).abs() < 0.01 && (high - 12.484).abs() < 0.01, "{low} {high}");
    }

    #[test]
    fn figures_that_cannot_be_are_missing() {
        let mut card = card();
        card.set("memory.bytes", Figure::exact(f64::NAN));
        card.set("nonsense", Figure::exact(1.0));
        card.set("cpu.threads", Figure { samples: vec![1.0, 2.0], ..Figure::exact(2.0) });
        assert_eq!(card.missing.len(), 3);
        assert_eq!(
            Card::new(format!("a\n{}", "b".repeat(80)), Origin::measured("2026")).name,
            format!("a?{}", "b".repeat(62))
        );
        assert_eq!(card.value("memory.bytes"), None);
    }

    #[test]
    fn a_key_has_a_figure_or_a_reason() {
        let mut card = card();
        card.set("cpu.cores", Figure::exact(-1.0));
        assert!(card.value("cpu.cores").is_none() && card.missing.contains_key("cpu.cores"));
        card.set("cpu.cores", Figure::exact(8.0));
        assert!(card.value("cpu.cores") == Some(8.0) && card.missing.is_empty());
    }
}

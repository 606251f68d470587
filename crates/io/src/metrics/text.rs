//! Prometheus's text format 0.0.4: families of samples, with labels and values escaped.
//!
//! # Why
//! Seastar's counters are called `total_bytes`, not `bytes_total`. Exporters for OpenMetrics add the missing suffix,
//! and existing dashboards then find no data. The format itself has five rules.
//!
//! # How it works
//! A family is named once, with its help and kind; its samples follow. A family without samples writes no text. Names
//! are constants of the program; label values may be any text.
//!
//! # Limits
//! Names are not checked: the caller uses only letters, digits and `_`, and begins no family twice.
//!
//! # Example
//! ```
//! use plimsoll::metrics::{Exposition, Kind};
//! let mut page = Exposition::default();
//! page.family("app_requests_total", "Requests that ended.", Kind::Counter);
//! page.sample(&[("path", "/a\"b")], 3.0);
//! let text = page.finish();
//! assert!(text.ends_with("# TYPE app_requests_total counter\napp_requests_total{path=\"/a\\\"b\"} 3\n"));
//! ```

use std::fmt::Write;

/// The `Content-Type` of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Kind of a family's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, until the program restarts.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts by upper bound.
    Histogram,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A page of metrics while it is written. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Exposition {
    text: String,
    name: String,
    /// Help and kind of a family that has no sample yet.
    head: Option<String>,
}

impl Exposition {
    /// Begins the family `name`; `help` explains its figures in a sentence.
    pub fn family(&mut self, name: &str, help: &str, kind: Kind) {
        name.clone_into(&mut self.name);
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.head = Some(format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.name()));
    }

    /// Writes a sample of the present family.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.line("", labels, None, value);
    }

    /// Writes a histogram of the present family: the number of values at or below each bound (ascending, in the
    /// family's unit), the number of all values, and their sum.
    pub fn histogram(&mut self, labels: &[(&str, &str)], at_most: &[(f64, u64)], count: u64, sum: f64) {
        for (bound, below) in at_most {
            self.line("_bucket", labels, Some(&number(*bound)), *below as f64);
        }
        self.line("_bucket", labels, Some("+Inf"), count as f64);
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, count as f64);
    }

    /// Returns the text of the page.
    #[must_use]
    pub fn finish(self) -> String {
        self.text
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], le: Option<&str>, value: f64) {
        if let Some(head) = self.head.take() {
            self.text.push_str(&head);
        }
        self.text.push_str(&self.name);
        self.text.push_str(suffix);

        let labels = labels.iter().copied().chain(le.map(|le| ("le", le)));
        let mut opening = '{';
        for (label, value) in labels {
            self.text.push(opening);
            self.text.push_str(label);
            self.text.push_str("=\"");
            push_escaped(&mut self.text, value);
            self.text.push('"');
            opening = ',';
        }
        if opening == ',' {
            self.text.push('}');
        }

        // Writing to a String does not fail.
        let _ = writeln!(self.text, " {}", number(value));
    }
}

fn push_escaped(text: &mut String, value: &str) {
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

/// Formats a number as Rust does, except for the infinities.
fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_have_a_head_once_and_only_with_samples() {
        let mut page = Exposition::default();
        page.family("empty", "Nothing.", Kind::Gauge);
        page.family("some", "Line one\nand \\ two.", Kind::Gauge);
        page.sample(&[], -1.5);
        page.sample(&[("a", "x\ny\\z\"")], f64::INFINITY);
        page.sample(&[("a", "b"), ("c", "d")], f64::NAN);
        let expected = "# HELP some Line one\\nand \\\\ two.\n# TYPE some gauge\nsome -1.5\nsome{a=\"x\\ny\\\\z\\\"\"} +Inf\n\
                        some{a=\"b\",c=\"d\"} NaN\n";
        assert_eq!(page.finish(), expected);
    }

    #[test]
    fn histograms_end_with_all_sum_and_count() {
        let mut page = Exposition::default();
        page.family("h_seconds", "Times.", Kind::Histogram);
        page.histogram(&[("a", "b")], &[(0.001, 2), (0.002, 3)], 4, 0.5);
        let text = page.finish();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        let expected = [
            "h_seconds_bucket{a=\"b\",le=\"0.001\"} 2",
            "h_seconds_bucket{a=\"b\",le=\"0.002\"} 3",
            "h_seconds_bucket{a=\"b\",le=\"+Inf\"} 4",
            "h_seconds_sum{a=\"b\"} 0.5",
            "h_seconds_count{a=\"b\"} 4",
        ];
        assert_eq!(lines, expected);
    }
}

//! Reads the settings of one job, and reports errors in them.
//!
//! **Why.** Every option is read in the same way: it may be missing, its value may be missing or wrong, and an error
//! states its position.
//!
//! **How.** [`Reader`] has the settings that apply to a job, those of `[global]` included; the last of each counts.
//!
//! **Limits.** Options that are refused or have no effect never get here; see [`super::text`].
//!
//! **Example.** `reader.int("iodepth", 1..=65_536)?.unwrap_or(1)`

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use plimsoll_figures::units::{UnitError, quoted};

use super::text::Setting;
use super::values;
use crate::error::{Code, ConfigError, Diagnostic, Source, Span};

pub(super) struct Reader<'a> {
    pub(super) source: &'a Source,
    /// The header of the job's section.
    pub(super) header: &'a Span,
    pub(super) settings: HashMap<&'static str, &'a Setting>,
    /// All settings of `filename`, those of `[global]` first.
    pub(super) filenames: Vec<&'a Setting>,
    /// Whether the job does direct I/O.
    pub(super) direct: bool,
    /// The value of `k`: 1000 or 1024.
    pub(super) kb_base: u64,
    pub(super) warnings: &'a mut Vec<Diagnostic>,
    /// Remarks already made: their position and option.
    pub(super) noted: &'a mut HashSet<(usize, &'static str)>,
}

impl<'a> Reader<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&'a Setting> {
        self.settings.get(name).copied()
    }

    /// Returns whether the option `name` stands after `other`, or alone.
    pub(super) fn is_later(&self, name: &str, other: &str) -> bool {
        let order = |name: &str| self.get(name).map(|setting| setting.order);
        order(name) > order(other)
    }

    /// Returns the position of an option's value, or of the header if there is none.
    pub(super) fn span(&self, name: &str) -> Span {
        self.get(name).map_or(self.header, |setting| &setting.value_span).clone()
    }

    pub(super) fn error(&self, name: &str, code: Code, message: impl Into<String>) -> ConfigError {
        self.source.error_at(&self.span(name), code, message).with_key(name)
    }

    /// Warns, once for each position, that an option has no effect or another effect than expected.
    pub(super) fn note(&mut self, name: &'static str, message: impl Into<String>, help: &str) {
        let span = self.span(name);
        if self.noted.insert((span.start, name)) {
            let warning = self.source.error_at(&span, Code::Ignored, message).with_key(name).with_help(help);
            self.warnings.push(warning.into_warning());
        }
    }

    pub(super) fn wrong(&self, name: &str, wrong: UnitError) -> ConfigError {
        self.error(name, Code::InvalidValue, wrong.message).with_help(wrong.help)
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, ConfigError> {
        let Some(setting) = self.get(name) else { return Ok(None) };
        match setting.value.as_deref() {
            Some(text) if !text.is_empty() => Ok(Some(text)),
            _ => {
                let error = self.error(name, Code::WrongType, format!("`{name}` has no value"));
                Err(error.with_help(format!("write `{name}=` and the value")))
            }
        }
    }

    /// Reads a whole number within a range.
    pub(super) fn int(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, ConfigError> {
        self.text(name)?.map(|text| self.int_of(name, text, range)).transpose()
    }

    /// Reads a part of a value as a whole number within a range.
    pub(super) fn int_of(&self, name: &str, text: &str, range: RangeInclusive<u64>) -> Result<u64, ConfigError> {
        let value = values::int(text, self.kb_base).map_err(|wrong| self.wrong(name, wrong))?;
        if range.contains(&value) {
            return Ok(value);
        }
        let error = self.error(name, Code::OutOfRange, format!("`{name}` is {value}"));
        Err(error.with_help(format!("write a number from {} to {}", range.start(), range.end())))
    }

    /// Returns the length `bytes`. With direct I/O, refuses what is not whole sectors; `form` says what to write.
    pub(super) fn whole_sectors(&self, name: &str, bytes: u64, form: &str) -> Result<u64, ConfigError> {
        if !self.direct || bytes.is_multiple_of(512) {
            return Ok(bytes);
        }
        let error = self.error(name, Code::OutOfRange, format!("{bytes} bytes is not a multiple of 512"));
        Err(error.with_help(format!("direct I/O works in whole sectors: write a multiple of 512{form}")))
    }

    /// Reads a time in nanoseconds; without a unit it counts units of `default_ns`.
    pub(super) fn time(&self, name: &str, default_ns: u64) -> Result<Option<u64>, ConfigError> {
        let parse = |text| values::time_ns(text, default_ns).map_err(|wrong| self.wrong(name, wrong));
        self.text(name)?.map(parse).transpose()
    }

    /// Reads a switch: on without a value and with 1, off with 0 and if it is missing.
    pub(super) fn flag(&self, name: &str) -> Result<bool, ConfigError> {
        self.flag_or(name, false)
    }

    /// Reads a switch; returns `missing` if the option is missing.
    pub(super) fn flag_or(&self, name: &str, missing: bool) -> Result<bool, ConfigError> {
        match self.get(name).map(|setting| setting.value.as_deref()) {
            None => Ok(missing),
            Some(Some("0")) => Ok(false),
            Some(None | Some("1")) => Ok(true),
            Some(Some(other)) => {
                let error = self.error(name, Code::InvalidValue, format!("{} is neither 0 nor 1", quoted(other)));
                Err(error.with_help("write 0 or 1"))
            }
        }
    }
}

pub(super) fn not_supported<T>(reader: &Reader<'_>, name: &str, message: &str, help: &str) -> Result<T, ConfigError> {
    Err(reader.error(name, Code::NotSupported, message).with_help(help))
}

//! Output formats: `--format`.
//!
//! **Why.** The same word means the same everywhere, and the parser refuses a format that a command cannot print.
//!
//! **How.** One list for each set of formats that commands share; [`ReportFormat::print`] makes only the requested
//! form.
//!
//! **Limits.** Schemas are in docs/formats.md.
//!
//! **Example.** `--format csv` of `trace gaps` is [`ReportFormat::Csv`].

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::{Failure, as_json};
use crate::screen;

/// Formats of `test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TestFormat {
    /// For people.
    Table,
    /// For programs; the schema is in docs/formats.md.
    Json,
    /// A line for each job.
    Csv,
    /// As Seastar's io_tester prints it.
    Yaml,
    /// As fio prints it.
    FioJson,
    /// As fio prints it, with the buckets of all latencies.
    #[value(name = "fio-json+")]
    FioJsonPlus,
}

/// Formats of commands about disks, whose results have a YAML form in Seastar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiskFormat {
    /// For people.
    Table,
    /// For programs; the schema is in docs/formats.md.
    Json,
    /// A line for each row.
    Csv,
    /// As Seastar has it: io-properties, or the output of ioinfo.
    Yaml,
}

/// Formats of most commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// For people.
    Table,
    /// For programs; the schema is in docs/formats.md.
    Json,
    /// A line for each row.
    Csv,
}

impl ReportFormat {
    /// Prints a report in this form, without making the others.
    pub(crate) fn print(
        self,
        table: impl FnOnce() -> String,
        json: &impl Serialize,
        csv: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let text = match self {
            ReportFormat::Table => table(),
            ReportFormat::Json => as_json(json)?,
            ReportFormat::Csv => csv(),
        };
        screen::print_if_open(&text)?;
        Ok(())
    }
}

/// Formats of commands whose result has no rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BriefFormat {
    /// For people.
    Table,
    /// For programs; the schema is in docs/formats.md.
    Json,
}

//! `plimsoll sim list`.

use clap::Args;
use plimsoll_measure::sim::{report, scenarios};

use crate::failure::{Failure, Outcome};
use crate::flags::ReportFormat;
use crate::screen;

/// List the named scenarios
#[derive(Args, Debug)]
pub(crate) struct ListArguments {
    /// Format of the list
    #[arg(long, value_enum, default_value_t = ReportFormat::Table)]
    format: ReportFormat,
}

pub(crate) fn run(arguments: &ListArguments) -> Result<Outcome, Failure> {
    let scenarios = scenarios::all();
    let table = || {
        let mut text = String::new();
        for scenario in &scenarios {
            let items = scenario.seed_items.join(" ");
            let items = if items.is_empty() { items } else { format!(" ({items})") };
            text.push_str(&format!("{}{items}\n{}\n\n", scenario.name, screen::wrap(scenario.title)));
        }
        text + "In brackets: items of the source documents. Run one with `plimsoll sim run NAME`.\n"
    };
    arguments.format.print(table, &report::list_json(&scenarios), || report::list_csv(&scenarios))?;
    Ok(Outcome::Done)
}

//! A line for each device of an interval.
//!
//! # Why
//! For spreadsheets and scripts that want figures in columns.
//!
//! # How it works
//! [`header`] once, then [`lines`] for each interval: time, device, the columns of iostat under the keys of its JSON,
//! then ours. `warnings` has the codes, separated by blanks.
//!
//! # Limits
//! Groups and classes have no lines: JSON has them. Unknown figures are empty.
//!
//! # Example
//! `plimsoll stat -y 1 10 --format csv > disks.csv`.

use plimsoll_figures::units::csv_field;
use plimsoll_show::table::{Column, fixed, known};

use super::{keyed_all, rounded, time};
use crate::stat::interval::COLUMNS;
use crate::stat::{Gap, Judged, Observed};

/// The columns that iostat does not have.
const OURS: &[Column<Judged>] = &[
    ("in_flight", |it| known(it.interval.in_flight)),
    ("gap", |it| known(it.interval.gap.map(Gap::name))),
    ("capacity_use", |it| figure(it.capacity_use, 4)),
    ("capacity_basis", |it| it.capacity_basis.name().to_owned()),
    ("capacity_model", |it| known(it.capacity_basis.model())),
    ("saturation", |it| figure(it.saturation, 4)),
    ("read_saturation", |it| figure(it.read_saturation, 4)),
    ("write_saturation", |it| figure(it.write_saturation, 4)),
    ("verdict", |it| it.verdict.name().to_owned()),
    ("why", |it| it.why.clone()),
    ("warnings", |it| it.remarks.iter().map(|remark| remark.code).collect::<Vec<_>>().join(" ")),
];

/// Returns the names of the columns, with a line end.
pub fn header() -> String {
    let begin = ["timestamp", "duration_s", "is_since_boot", "disk_device"].into_iter();
    let names = begin.chain(COLUMNS.iter().map(|column| column.key)).chain(OURS.iter().map(|(name, _)| *name));
    names.collect::<Vec<_>>().join(",") + "\n"
}

/// Renders the lines of an interval, each with its line end.
pub fn lines(observed: &Observed) -> String {
    let timestamp = observed.end_unix_ms.and_then(|ms| time(ms, "%Y-%m-%dT%H:%M:%S.%3fZ"));
    let when = [known(timestamp), figure(observed.duration_s, 6), known(observed.since_boot())];
    let line = |judged: &Judged| {
        // Two decimals, as iostat prints them.
        let columns = keyed_all(&judged.interval.columns).map(|(_, value)| fixed(value.filter(|it| it.is_finite()), 2));
        let ours = OURS.iter().map(|(_, cell)| csv_field(&cell(judged)));
        let cells = when.iter().cloned().chain([csv_field(&judged.interval.device)]).chain(columns).chain(ours);
        cells.collect::<Vec<_>>().join(",") + "\n"
    };
    observed.devices.iter().map(line).collect()
}

fn figure(value: Option<f64>, decimals: usize) -> String {
    known(rounded(value, decimals))
}

#[cfg(test)]
mod tests {
    use super::super::tests::observed;
    use super::*;

    #[test]
    fn every_device_has_a_line_with_all_columns() {
        let text = lines(&observed());
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 3);
        let columns = header().trim_end().split(',').count();
        for row in &rows {
            let outside: Vec<&str> = row.split('"').step_by(2).collect();
            let commas: usize = outside.iter().map(|part| part.matches(',').count()).sum();
            assert_eq!(commas + 1, columns, "{row}");
        }
        let start = "2024-03-15T00:53:14.000Z,1,false,nvme0n1,1234.57,0.00,,,4938.27,";
        assert!(rows.get(1).is_some_and(|row| row.starts_with(start)), "{text}");
        assert!(text.contains(
            ",0.23,100.00,,,0.13,,0,,0.1235,model,i4i.2xlarge,0,,,saturated,\"a \"\"reason\"\", with a comma\""
        ));
        assert!(rows.get(2).is_some_and(|row| row.contains(",appeared,")), "{text}");
    }
}

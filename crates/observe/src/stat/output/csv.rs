//! A line for each device of an interval.
//!
//! # Why
//! For spreadsheets and scripts that want figures in columns.
//!
//! # How it works
//! [`HEADER`] once, then [`lines`] for each interval: time, device, the columns of iostat under the keys of its JSON,
//! then ours. `warnings` has the codes, separated by blanks.
//!
//! # Limits
//! Groups and classes have no lines: JSON has them. Unknown figures are empty.
//!
//! # Example
//! `plimsoll stat -y 1 10 --format csv > disks.csv`.

use std::fmt::Write as _;

use plimsoll_figures::units::csv_field;

use super::json::model;
use super::{keyed, keyed_short, rounded, time};
use crate::stat::{Gap, Judged, Observed};

/// The names of the columns.
pub const HEADER: &str = "\
timestamp,duration_s,is_since_boot,disk_device,r/s,w/s,d/s,f/s,rkB/s,wkB/s,dkB/s,rrqm/s,wrqm/s,drqm/s,rrqm,wrqm,drqm,\
r_await,w_await,d_await,f_await,rareq-sz,wareq-sz,dareq-sz,aqu-sz,util,\
tps,kB/s,await,areq-sz,in_flight,gap,capacity_use,capacity_basis,\
capacity_model,saturation,read_saturation,write_saturation,verdict,why,warnings\n";

/// Renders the lines of an interval, each with its line end.
#[must_use]
pub fn lines(observed: &Observed) -> String {
    let timestamp = observed.end_unix_ms.and_then(|ms| time(ms, "%Y-%m-%dT%H:%M:%S.%3fZ")).unwrap_or_default();
    let duration_s = figure(observed.duration_s, 6);
    let when = format!("{timestamp},{duration_s},{}", observed.is_since_boot);
    let mut text = String::new();
    for judged in &observed.devices {
        let _ = write!(text, "{when},");
        line(&mut text, judged);
    }
    text
}

fn line(text: &mut String, judged: &Judged) {
    let interval = &judged.interval;
    text.push_str(&csv_field(&interval.device));
    for (_, value) in keyed(&interval.columns).into_iter().chain(keyed_short(&interval.columns)) {
        text.push(',');
        // Two decimals, as iostat prints them. Writing to a string cannot fail.
        if let Some(value) = value.filter(|value| value.is_finite()) {
            let _ = write!(text, "{value:.2}");
        }
    }

    let in_flight = interval.in_flight.map(|count| count.to_string()).unwrap_or_default();
    let gap = interval.gap.map(gap_name).unwrap_or_default();
    let capacity = [
        figure(judged.capacity_use, 4),
        judged.capacity_basis.name().to_owned(),
        csv_field(model(&judged.capacity_basis).unwrap_or_default()),
    ];
    let saturation = [judged.saturation, judged.read_saturation, judged.write_saturation].map(|value| figure(value, 4));
    let (verdict, why) = (judged.verdict.name(), csv_field(&judged.why));

    let codes: Vec<&str> = judged.remarks.iter().map(|remark| remark.code).collect();
    let codes = codes.join(" ");
    let _ =
        writeln!(text, ",{in_flight},{gap},{},{},{verdict},{why},{codes}", capacity.join(","), saturation.join(","));
}

/// Returns the name of a gap, as in JSON.
pub(crate) const fn gap_name(gap: Gap) -> &'static str {
    match gap {
        Gap::Appeared => "appeared",
        Gap::Disappeared => "disappeared",
        Gap::Reset => "reset",
    }
}

fn figure(value: Option<f64>, decimals: usize) -> String {
    rounded(value, decimals).map(|value| value.to_string()).unwrap_or_default()
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
        let columns = HEADER.trim_end().split(',').count();
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

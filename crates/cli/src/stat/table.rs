//! The tables of `stat`: iostat's figures with its digits, and our own, within 100 columns.
//!
//! # Why
//! iostat -x needs 190 columns. The figures that most users need fit 100 beside U, S and the verdict; the extended form
//! prints the lines in four parts as `iostat -x --pretty` does.
//!
//! # How it works
//! Every figure has the width and decimals of iostat. In a line of the short table each cell ends where its column
//! ends; a cell that is too long takes the blanks of the following ones. Below the devices are the reasons for verdicts
//! other than idle, ok and unknown, and remarks on misleading figures, each once in a run.
//!
//! # Limits
//! A line with a long name and long figures is broken after the name.
//!
//! # Example
//! ```text
//! Device        r/s     w/s     rkB/s     wkB/s r_await w_await aqu-sz  %util     U    S verdict
//! nvme0n1      0.00 7497.00      0.00 105250.50       -    0.03   0.23 100.00   15%*  0% busy-but-free
//! ```

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_figures::units::{format_duration_ns, format_iops_short, format_throughput_decimal};
use plimsoll_observe::stat::host::Host;
use plimsoll_observe::stat::output::{listed, says_no, time};
use plimsoll_observe::stat::programs::ClassRow;
use plimsoll_observe::stat::{Basis, CpuShares, Gap, GroupObserved, Judged, Observed, Remark, Verdict};
use plimsoll_show::table::Column;

use crate::screen;

/// Most columns of a line.
const WIDTH: usize = 100;

/// Most members of a group that are shown with their parts.
const PARTS_SHOWN: usize = 8;

/// Most devices that a remark names besides the first.
const NAMES_SHOWN: usize = 4;

/// Code of our remark on U without a model.
const HIGHEST_SEEN: &str = "capacity-highest-seen";

/// Columns of the short table and where they end.
const SHORT: [(&str, usize); 12] = [
    ("Device", 9),
    ("r/s", 17),
    ("w/s", 25),
    ("rkB/s", 35),
    ("wkB/s", 45),
    ("r_await", 53),
    ("w_await", 61),
    ("aqu-sz", 68),
    ("%util", 75),
    ("U", 81),
    ("S", 86),
    ("verdict", 100),
];

/// The parts of iostat's pretty layout: names of columns with their widths.
const PARTS: [&[(&str, usize)]; 4] = [
    &[("r/s", 8), ("rkB/s", 10), ("rrqm/s", 9), ("%rrqm", 7), ("r_await", 8), ("rareq-sz", 9)],
    &[("w/s", 8), ("wkB/s", 10), ("wrqm/s", 9), ("%wrqm", 7), ("w_await", 8), ("wareq-sz", 9)],
    &[("d/s", 8), ("dkB/s", 10), ("drqm/s", 9), ("%drqm", 7), ("d_await", 8), ("dareq-sz", 9)],
    &[("f/s", 8), ("f_await", 8), ("aqu-sz", 8), ("%util", 7)],
];

/// The figures that iostat before version 11 has only for reads and writes together.
const OLD_PART: &[(&str, usize)] = &[("areq-sz", 9), ("await", 8)];

/// Returns whether await is known only for reads and writes together.
fn is_old(devices: &[Judged]) -> bool {
    let columns = || devices.iter().map(|judged| &judged.interval.columns);
    columns().any(|c| c.await_ms.is_some())
        && columns().all(|c| c.read_await_ms.is_none() && c.write_await_ms.is_none())
}

/// The settings of a run's tables, and the remarks already printed.
pub(super) struct Tables {
    /// Whether all columns of iostat are shown.
    pub(super) is_extended: bool,
    /// Whether each interval has its time above it.
    pub(super) has_time: bool,
    /// Whether the CPUs' time is shown.
    pub(super) has_cpu: bool,
    said: BTreeSet<(String, &'static str)>,
}

impl Tables {
    pub(super) fn new(is_extended: bool, has_time: bool, has_cpu: bool) -> Tables {
        Tables { is_extended, has_time, has_cpu, said: BTreeSet::new() }
    }

    /// Returns an interval as text, with an empty line after it.
    pub(super) fn interval(&mut self, observed: &Observed) -> String {
        let mut blocks = Vec::new();
        if self.has_time
            && let Some(time) = observed.end_unix_ms.and_then(|ms| time(ms, "%F %T UTC"))
        {
            blocks.push(time);
        }

        if let Some(cpu) = observed.cpu.filter(|_| self.has_cpu) {
            blocks.push(format!("{}\n", cpu_lines(&cpu)));
        }

        if !observed.devices.is_empty() {
            blocks.push(if self.is_extended { extended(&observed.devices) } else { short(&observed.devices) });
        }

        blocks.extend(observed.groups.iter().map(group));
        let why: Vec<String> = observed.devices.iter().filter(|judged| is_told(judged)).map(why).collect();
        blocks.extend((!why.is_empty()).then(|| why.join("\n")));
        let remarks = self.remarks(observed);
        blocks.extend((!remarks.is_empty()).then(|| remarks.join("\n")));
        format!("{}\n\n", blocks.join("\n"))
    }

    /// Returns the new remarks, a line for each kind with its devices.
    fn remarks(&mut self, observed: &Observed) -> Vec<String> {
        let highest_seen = Remark {
            code: HIGHEST_SEEN,
            message: "U with a star is a part of the highest rate seen so far, so it may be too high: --disk or \
                      --io-properties say what the disk can do"
                .to_owned(),
        };

        let of_devices = observed.devices.iter().flat_map(|judged| {
            let name = judged.interval.device.as_str();
            let is_guess = judged.capacity_use.is_some() && judged.capacity_basis == Basis::HighestSeen;
            judged.remarks.iter().chain(is_guess.then_some(&highest_seen)).map(move |remark| (name, remark))
        });
        let of_groups =
            observed.groups.iter().flat_map(|group| group.remarks.iter().map(|remark| (group.group.as_str(), remark)));
        let of_all = observed.remarks.iter().map(|remark| ("", remark));

        let mut fresh: BTreeMap<&'static str, (String, Vec<&str>)> = BTreeMap::new();
        for (name, remark) in of_devices.chain(of_groups).chain(of_all) {
            // Explain the star once, not for each device.
            let key = if remark.code == HIGHEST_SEEN { "" } else { name };
            if self.said.insert((key.to_owned(), remark.code)) {
                fresh.entry(remark.code).or_insert_with(|| (remark.message.clone(), Vec::new())).1.push(key);
            }
        }
        fresh.into_values().map(|(message, names)| remark_line(&message, &names)).collect()
    }
}

fn remark_line(message: &str, names: &[&str]) -> String {
    let (first, others) = names.split_first().unwrap_or((&"", &[]));
    let of = if first.is_empty() { String::new() } else { format!("{first}: ") };
    let names = listed(others.iter(), NAMES_SHOWN);
    let also = if names.is_empty() { String::new() } else { format!(" (also {names})") };
    screen::wrap(&format!("note: {of}{message}{also}"))
}

/// Returns iostat's two lines about the CPUs.
fn cpu_lines(cpu: &CpuShares) -> String {
    let shares = [cpu.user, cpu.nice, cpu.system, cpu.iowait, cpu.steal, cpu.idle];
    let shares: String = shares.iter().map(|share| format!(" {share:7.2}")).collect();
    format!("avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n       {shares}")
}

/// Formats with two decimals, or a dash.
fn figure(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

/// Formats a share in percent, or a dash.
pub(super) fn percent(share: Option<f64>) -> String {
    share.filter(|share| share.is_finite()).map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", 100.0 * share))
}

/// Formats U, with a star if it is a share of the highest rate seen.
pub(super) fn capacity(judged: &Judged) -> String {
    let star = if judged.capacity_use.is_some() && judged.capacity_basis == Basis::HighestSeen { "*" } else { "" };
    format!("{}{star}", percent(judged.capacity_use))
}

pub(super) const fn verdict(judged: &Judged) -> &'static str {
    match judged.interval.gap {
        Some(Gap::Appeared) => "appeared",
        Some(Gap::Disappeared) => "gone",
        Some(Gap::Reset) => "reset",
        None => judged.verdict.name(),
    }
}

fn short(devices: &[Judged]) -> String {
    let is_old = is_old(devices);
    let header = SHORT.map(|(name, _)| match name {
        "r_await" if is_old => String::new(),
        "w_await" if is_old => "await".to_owned(),
        name => name.to_owned(),
    });

    let cell = |judged: &Judged, name: &str| match name {
        "Device" => screen::printable(&judged.interval.device),
        "r_await" if is_old => String::new(),
        "w_await" if is_old => figure(judged.interval.columns.await_ms),
        "U" => capacity(judged),
        "S" => percent(judged.saturation),
        "verdict" => verdict(judged).to_owned(),
        name => figure(of_name(judged, name)),
    };
    let mut lines = vec![aligned(&header)];
    lines.extend(devices.iter().map(|judged| aligned(&SHORT.map(|(name, _)| cell(judged, name)))));
    lines.join("\n")
}

/// Returns the column of this name in iostat's text, where percent have a sign before their key.
fn of_name(judged: &Judged, name: &str) -> Option<f64> {
    judged.interval.columns.of_key(name.trim_start_matches('%'))
}

/// Aligns a line of the short table: the first and last cell to the left, the others to the right.
fn aligned(cells: &[String; SHORT.len()]) -> String {
    let [device, figures @ .., verdict] = cells;
    let letters = |text: &str| text.chars().count();
    let rest = |mut line: String| {
        for (cell, (_, end)) in figures.iter().zip(&SHORT[1..]) {
            let blanks = end.saturating_sub(letters(&line) + letters(cell)).max(1);
            line.push_str(&" ".repeat(blanks));
            line.push_str(cell);
        }
        format!("{line} {verdict}")
    };
    let line = rest(device.clone());
    if letters(&line) <= WIDTH { line } else { format!("{device}\n{}", rest(String::new())) }
}

fn extended(devices: &[Judged]) -> String {
    let old = is_old(devices).then_some(&OLD_PART);
    let mut blocks: Vec<String> = PARTS.iter().chain(old).map(|part| pretty(part, devices)).collect();
    let mut ours = vec!["       U       S      rS      wS in-flight verdict       Device".to_owned()];
    for judged in devices {
        let in_flight = judged.interval.in_flight.map_or_else(|| "-".to_owned(), |count| count.to_string());
        ours.push(format!(
            "{:>8}{:>8}{:>8}{:>8}{in_flight:>10} {:<13} {}",
            capacity(judged),
            percent(judged.saturation),
            percent(judged.read_saturation),
            percent(judged.write_saturation),
            verdict(judged),
            screen::printable(&judged.interval.device),
        ));
    }
    blocks.push(ours.join("\n"));
    blocks.join("\n\n")
}

/// Returns a part of iostat's layout: the figures, then the name.
fn pretty(part: &[(&str, usize)], devices: &[Judged]) -> String {
    let header: String = part.iter().map(|(name, width)| format!("{name:>width$}")).collect();
    let line = |judged: &Judged| {
        // A figure that fills its column still has a blank before it.
        let cell =
            |(name, width): &(&str, usize)| format!(" {:>width$}", figure(of_name(judged, name)), width = width - 1);
        let figures: String = part.iter().map(cell).collect();
        format!("{figures} {}", screen::printable(&judged.interval.device))
    };
    let lines: Vec<String> = devices.iter().map(line).collect();
    format!("{header} Device\n{}", lines.join("\n"))
}

/// Returns whether the verdict needs its reason: idle, ok and unknown do not.
fn is_told(judged: &Judged) -> bool {
    judged.interval.gap.is_some() || !matches!(judged.verdict, Verdict::Idle | Verdict::Ok | Verdict::Unknown)
}

fn why(judged: &Judged) -> String {
    screen::wrap(&format!("{} {}: {}", judged.interval.device, verdict(judged), judged.why))
}

/// Describes how the work of a group is spread, with the parts of its members if anything moved.
pub(super) fn group(group: &GroupObserved) -> String {
    let name = &group.group;
    let members = group.parts.len();
    let spread = match group.effective_devices {
        Some(effective) => format!("{effective:.2} of {members} devices do the work"),
        None if says_no(group.verdict) => format!("{members} devices"),
        None => format!("{members} devices, {}", group.why),
    };

    let mut parts: Vec<_> = group.parts.iter().collect();
    parts.sort_by(|one, other| other.bytes_share.total_cmp(&one.bytes_share));
    let shown = parts.iter().map(|part| {
        let wait = part.await_ms.map(|ms| format!(" at {ms:.2} ms")).unwrap_or_default();
        format!("{} {:.0} %{wait}", part.device, 100.0 * part.bytes_share)
    });
    let parts = match group.effective_devices {
        Some(_) => format!(" ({})", listed(shown, PARTS_SHOWN)),
        None => String::new(),
    };

    let why = if says_no(group.verdict) { format!(": {}", group.why) } else { String::new() };
    screen::wrap(&format!("group {name}: {spread}{parts}; {}{why}", group.verdict.name()))
}

/// Returns the first line, as iostat's, or an empty text if the host is unknown.
pub(super) fn banner(host: &Host, date: Option<&str>) -> String {
    if host.name.is_empty() && host.kernel.is_empty() {
        return String::new();
    }
    let Host { name, kernel, machine, cpus } = host;
    let (name, kernel, machine) = (screen::printable(name), screen::printable(kernel), screen::printable(machine));
    format!("Linux {kernel} ({name}) \t{} \t_{machine}_\t({cpus} CPU)\n\n", date.unwrap_or_default())
}

/// Returns the scheduling classes of running programs within `width` columns, or an empty text without rows.
pub(super) fn classes(rows: &[ClassRow], width: u16) -> String {
    if rows.is_empty() {
        return String::new();
    }

    const COLUMNS: &[Column<ClassRow>] = &[
        ("class", |row| format!("{} of {} ({})", row.class, row.program, row.pid)),
        ("shares", |row| row.shares.to_string()),
        ("r/s", |row| format_iops_short(row.reads_per_s)),
        ("w/s", |row| format_iops_short(row.writes_per_s)),
        ("read", |row| format_throughput_decimal(row.read_bytes_per_s)),
        ("written", |row| format_throughput_decimal(row.write_bytes_per_s)),
        ("queue", |row| milliseconds(row.queue_ms)),
        ("device", |row| milliseconds(row.device_ms)),
        ("queued", |row| row.queued.to_string()),
        ("waits for", waits_for),
    ];
    format!("{}\n\n", screen::columns_within(width, rows, COLUMNS))
}

fn milliseconds(ms: Option<f64>) -> String {
    ms.map_or_else(|| "-".to_owned(), |ms| format_duration_ns((ms * 1e6) as u64))
}

fn waits_for(row: &ClassRow) -> String {
    let waits = row.waited_for.as_ref().and_then(|reason| Some((reason, row.waited.get(reason)?)));
    waits.map_or_else(|| "-".to_owned(), |(reason, part)| format!("{reason} {:.0}%", 100.0 * part))
}

#[cfg(test)]
mod tests {
    use plimsoll_observe::stat::{Columns, DeviceInterval, Part as Share};

    use super::*;

    fn judged(device: &str, columns: Columns, verdict: Verdict) -> Judged {
        Judged {
            interval: DeviceInterval { device: device.to_owned(), columns, ..DeviceInterval::default() },
            capacity_use: Some(0.514),
            capacity_basis: Basis::HighestSeen,
            verdict,
            why: "for a reason".to_owned(),
            remarks: vec![Remark { code: "util-misleads", message: "it does".to_owned() }],
            ..Judged::default()
        }
    }

    fn columns(per_s: f64) -> Columns {
        Columns {
            reads_per_s: Some(per_s),
            writes_per_s: Some(per_s),
            read_kib_per_s: Some(128.0 * per_s),
            write_kib_per_s: Some(4.0 * per_s),
            read_await_ms: Some(0.135),
            queue: Some(per_s / 1e4),
            util_percent: Some(100.0),
            ..Columns::default()
        }
    }

    fn observed(devices: Vec<Judged>) -> Observed {
        Observed { devices, ..Observed::default() }
    }

    #[test]
    fn the_await_of_old_versions_is_shown() {
        let old =
            |per_s| Columns { read_await_ms: None, await_ms: Some(12.34), size_kib: Some(16.0), ..columns(per_s) };
        let devices = [judged("sda", old(75.0), Verdict::Ok), judged("sdb", old(7.0), Verdict::Ok)];
        let text = short(&devices);
        let ends = |word: &str| text.lines().map(|line| line.find(word).map(|at| at + word.len())).collect::<Vec<_>>();
        assert_eq!(ends(" await"), [Some(61), None, None], "{text}");
        assert_eq!(ends("12.34"), [None, Some(61), Some(61)], "{text}");
        assert!(extended(&devices).contains("areq-sz   await Device\n    16.00   12.34 sda"), "{}", extended(&devices));
        assert!(!short(&[judged("sda", columns(75.0), Verdict::Ok)]).contains(" await"));
    }

    #[test]
    fn figures_stand_in_their_columns_and_lines_fit() {
        let text = short(&[
            judged("sda", columns(7497.0), Verdict::BusyButFree),
            judged("nvme0n1", columns(1_234_567.891), Verdict::Saturated),
            judged(&"long-name-".repeat(6), columns(1_234_567.891), Verdict::BusyButFree),
        ]);
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            "Device        r/s     w/s     rkB/s     wkB/s r_await w_await aqu-sz  %util     U    S verdict",
            "sda       7497.00 7497.00 959616.00  29988.00    0.14       -   0.75 100.00  51%*    - busy-but-free",
        ];
        assert_eq!(lines.iter().take(2).copied().collect::<Vec<_>>(), expected, "{text}");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(lines.len(), 5, "a long name has a line of its own\n{text}");
    }

    #[test]
    fn the_long_layout_is_that_of_iostat() {
        let text = extended(&[judged("vda", columns(2873.69), Verdict::Ok)]);
        let expected = [
            "     r/s     rkB/s   rrqm/s  %rrqm r_await rareq-sz Device",
            " 2873.69 367832.32        -      -    0.14        - vda",
            "     f/s f_await  aqu-sz  %util Device",
            "       -       -    0.29 100.00 vda",
        ];
        for line in expected {
            assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
        }
    }

    #[test]
    fn a_remark_is_made_once_with_the_devices_it_holds_for() {
        let mut tables = Tables::new(false, false, true);
        let devices =
            || ["a", "b", "c", "d", "e", "f", "g"].map(|name| judged(name, columns(9.0), Verdict::Ok)).to_vec();
        let first = tables.interval(&observed(devices()));
        assert!(first.contains("note: a: it does (also b, c, d, e and 2 more)"), "{first}");
        assert_eq!(first.matches("a part of the highest rate").count(), 1, "{first}");
        let mut later = devices();
        later.push(judged("new", columns(9.0), Verdict::Saturated));
        let second = tables.interval(&observed(later));
        assert_eq!(second.matches("note:").count(), 1, "{second}");
        assert!(second.contains("note: new: it does") && second.contains("new saturated: for a reason"), "{second}");
    }

    #[test]
    fn a_group_tells_who_does_the_work() {
        let share = |device: &str, bytes_share| Share { device: device.to_owned(), bytes_share, await_ms: Some(1.25) };
        let observed = GroupObserved {
            group: "md0".to_owned(),
            parts: vec![share("a", 0.03), share("b", 0.97)],
            effective_devices: Some(1.06),
            verdict: Verdict::Imbalanced,
            why: "one does it all".to_owned(),
            ..GroupObserved::default()
        };
        let text = group(&observed);
        let expected = "group md0: 1.06 of 2 devices do the work (b 97 % at 1.25 ms, a 3 % at 1.25 ms); imbalanced: \
                        one does\nit all";
        assert_eq!(text, expected);
    }
}

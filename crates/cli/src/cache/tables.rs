//! Tables of the `cache` commands for people: at most 100 columns.

use std::fmt::Write as _;

use plimsoll_cache::stats::{ByName, IoKind};
use plimsoll_cache_tools::bench::report::BenchReport;
use plimsoll_cache_tools::check::Checked;
use plimsoll_cache_tools::hits::HitTable;
use plimsoll_cache_tools::iostat::{Figures, GROUPS, Interval, Row};
use plimsoll_cache_tools::slabs::{SlabRow, SlabTable};
use plimsoll_cache_tools::status::{DiskStatus, Status};
use plimsoll_figures::units::{format_bytes_binary, format_count, format_duration_ns, format_iops_short};
use plimsoll_show::answer::{Answer, Mood};
use plimsoll_show::table::Column;

use crate::screen;

/// Width of the name of a row of `iostat`, without and with operations in flight.
const NAME: [usize; 2] = [20, 8];

const DISKS: &[Column<DiskStatus>] = &[
    ("DISK", |DiskStatus { stats, .. }| match stats.path.as_str() {
        "" => format!("disk {}", stats.number),
        path => path.to_owned(),
    }),
    ("HEALTH", |it| it.stats.health.name().to_owned()),
    ("SIZE", |it| format_bytes_binary(it.stats.capacity_bytes)),
    ("BLOCKS", |it| format_bytes_binary(it.stats.allocated_bytes)),
    ("METADATA", |it| format_bytes_binary(it.stats.metadata_bytes)),
    ("FREE SLABS", |it| format_count(it.stats.free_slabs.into())),
    ("TO MOVE", |it| bytes(it.stats.to_move_bytes)),
    ("ERRORS", |it| format_count(it.errors)),
];

/// Formats a length, or `-` for none.
fn bytes(bytes: u64) -> String {
    if bytes == 0 { "-".to_owned() } else { format_bytes_binary(bytes) }
}

pub(super) fn status(status: &Status) -> String {
    let mut text = screen::columns(&status.disks, DISKS);
    let lookups = status.hits + status.misses.values().sum::<u64>();
    let counts = |named: &ByName<u64>| -> String {
        let named = named.iter().filter(|(_, count)| **count > 0);
        let named: Vec<String> = named.map(|(name, count)| format!("{name} {}", format_count(*count))).collect();
        if named.is_empty() { "none".to_owned() } else { named.join(", ") }
    };

    let opened = if status.is_open {
        format!(
            "open for {:.0} s by process {}; checkpoint {}, the last took {}",
            status.open_s,
            status.pid,
            status.generation,
            format_duration_ns(status.last_checkpoint_ns)
        )
    } else {
        format!("no process has it open; checkpoint {}", status.generation)
    };

    let lines = [
        opened,
        format!(
            "{} blocks, {}; index {}",
            format_count(status.blocks),
            format_bytes_binary(status.block_bytes),
            format_bytes_binary(status.index_bytes)
        ),
        format!(
            "{} look-ups, {} hits; misses: {}",
            format_count(lookups),
            format_count(status.hits),
            counts(&status.misses)
        ),
        format!(
            "{} inserts, {} evicted, {} healed; drops: {}",
            format_count(status.inserts),
            format_count(status.evictions),
            format_count(status.healed),
            counts(&status.drops)
        ),
    ];

    text.push_str("\n\n");
    // A closed cache has no counters: show only the first two lines.
    text.push_str(&screen::paragraphs(lines.iter().take(if status.is_open { 4 } else { 2 })));

    let of_disks = status.disks.iter().filter(|disk| !disk.stats.why.is_empty() && !disk.stats.path.is_empty());
    let label = if status.is_open { "not followed: " } else { "" };
    let why = of_disks.map(|disk| format!("{} is {}: {}", disk.stats.path, disk.stats.health.name(), disk.stats.why));
    let problems = status.problems.iter().map(|problem| format!("{label}{problem}"));
    text + &screen::paragraphs(why.chain(problems))
}

/// Returns a report as text, below the names of the columns if `with_header`.
pub(super) fn iostat(interval: &Interval, with_disks: bool, with_active: bool, with_header: bool) -> String {
    let name = NAME[usize::from(with_active)];
    let mut text = String::new();
    if with_header {
        let (group, figures) = (if with_active { 22 } else { 17 }, if with_active { " ACT" } else { "" });
        let groups: String = GROUPS.iter().map(|(group_name, _)| format!(" {group_name:>group$}")).collect();
        let figures = if figures.is_empty() { String::new() } else { format!(" {figures:>4}") };
        let columns = format!(" {:>5} {:>5} {:>5}{figures}", "IOPS", "MiB/s", "ms").repeat(GROUPS.len());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:name$}{groups}\n{:name$}{columns}", "", "");
    }

    for row in interval.rows(with_disks) {
        let _ = write!(text, "{:name$}", last_letters(&row.name, name));
        for (_, kinds) in GROUPS {
            let figures = row.sum(kinds);
            let ms = figures.mean_ms.map_or("-".to_owned(), five);
            let _ = write!(text, " {:>5} {:>5} {ms:>5}", short(figures.iops), five(figures.bytes_per_s / 1048576.0));
            if with_active {
                let _ = write!(text, " {:>4}", four(figures.in_flight));
            }
        }
        text.push('\n');
    }
    text
}

/// Formats a count in at most five characters.
fn short(count: f64) -> String {
    let text = format_iops_short(count);
    if text.len() <= 5 { text } else { format_iops_short(count.round()) }
}

/// Formats a count in at most four characters.
fn four(count: u64) -> String {
    match count {
        0..=9_999 => count.to_string(),
        10_000..=999_999 => format!("{}k", count / 1000),
        _ => format!("{}M", count / 1_000_000),
    }
}

/// Formats a figure in at most five characters.
fn five(value: f64) -> String {
    match value {
        value if value < 99.995 => format!("{value:.2}"),
        value if value < 999.95 => format!("{value:.1}"),
        value if value < 99_999.5 => format!("{value:.0}"),
        value => short(value),
    }
}

fn last_letters(text: &str, most: usize) -> String {
    let text = screen::printable(text);
    let count = text.chars().count();
    text.chars().skip(count.saturating_sub(most)).collect()
}

/// Returns a histogram for each row and kind with I/O.
pub(super) fn latencies(interval: &Interval, with_disks: bool) -> String {
    let mut text = String::new();
    for row in interval.rows(with_disks) {
        for (_, kind) in IoKind::ALL {
            histogram(&mut text, row, kind, &row.of(kind));
        }
    }
    text
}

fn histogram(text: &mut String, row: &Row, kind: &str, figures: &Figures) {
    let counts = &figures.latency_ns_log2;
    let (Some(first), Some(last)) = (counts.iter().position(|n| *n > 0), counts.iter().rposition(|n| *n > 0)) else {
        return;
    };
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "\n{} {kind}", screen::printable(&row.name));
    for (at, count) in counts.iter().enumerate().take(last + 1).skip(first) {
        let bar = "#".repeat((*count as f64 / most as f64 * 50.0).ceil() as usize);
        let line = format!("{:>9} {:>15} {bar}", format_duration_ns(1 << at), format_count(*count));
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

pub(super) fn hits(table: &HitTable) -> String {
    if table.rows.is_empty() || table.lookups == 0 {
        return "no look-ups yet".to_owned();
    }

    let mut text = format!("{:>10} {:>15} {:>7}\n", "SIZE", "HITS", "%");
    let mut is_beyond = false;
    for row in &table.rows {
        if row.is_ghost && !is_beyond {
            is_beyond = true;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{:-<60}",
                format!("--- present size: {}; beyond it: ghosts ", format_bytes_binary(table.capacity_bytes))
            );
        }
        let bar = if row.is_ghost { "+" } else { "#" }.repeat((row.pct / 2.0).round().clamp(0.0, 50.0) as usize);
        let (size, hits) = (format_bytes_binary(row.size_bytes), format_count(row.hits));
        let _ = writeln!(text, "{}", format!("{size:>10} {hits:>15} {:>7.2} {bar}", row.pct).trim_end());
    }

    let _ = writeln!(text, "of {} look-ups; {} ghosts", format_count(table.lookups), format_count(table.ghosts));
    text
}

pub(super) fn bench(report: &BenchReport) -> String {
    let rows = report.rows().into_iter().map(|(name, value)| vec![name, value]).collect();
    let mut text = screen::table(&["FIGURE", "VALUE"], rows);
    for violation in &report.invariants_violated {
        text.push('\n');
        text.push_str(&screen::wrap(violation));
    }
    text
}

/// Returns slabs by disk and block size, then the sums; if `is_verbose`, also slabs by how full they are.
pub(super) fn slabs(table: &SlabTable, is_verbose: bool) -> String {
    let row = |name: String, row: &SlabRow| {
        vec![
            name,
            bytes(row.max_size_bytes.into()),
            format_count(row.usage.slabs.into()),
            bytes(row.usage.size_bytes),
            bytes(row.usage.allocated_bytes),
            bytes(row.usage.free_bytes),
            bytes(row.usage.freeing_bytes),
            format!("{:.0}", row.capacity_pct()),
            row.bar(),
        ]
    };
    let headers = |first| [first, "MAX SIZE", "SLABS", "SIZE", "ALLOC", "FREE", "FREEING", "CAP %", ""];
    let name = |row: &SlabRow| last_letters(&row.device, 14);

    let mut text = String::new();
    if !table.rows.is_empty() {
        text = screen::table(&headers("DEVICE"), table.rows.iter().map(|bucket| row(name(bucket), bucket)).collect());
        text.push_str("\n\n");
    }
    let sums = table.summaries.iter().map(|sum| row(sum.kind.clone(), sum)).collect();
    text.push_str(&screen::table(&headers("ALL"), sums));

    if is_verbose && !table.rows.is_empty() {
        let row = |row: &SlabRow| {
            let mut cells =
                vec![name(row), bytes(row.max_size_bytes.into()), format!("{:.1}", row.usage.mean_free_segments)];
            cells.extend(row.usage.slabs_by_tenth.iter().map(|count| format_count((*count).into())));
            cells
        };
        text.push_str("\n\nslabs by how full they are (lower bound in percent); PIECES: of free space, on average\n");
        let headers = ["DEVICE", "MAX SIZE", "PIECES", "0", "10", "20", "30", "40", "50", "60", "70", "80", "90"];
        text.push_str(&screen::table(&headers, table.rows.iter().map(row).collect()));
    }
    text
}

/// Returns the order in which slabs are opened, a row for each run of slabs on one disk.
pub(super) fn slab_order(table: &SlabTable) -> String {
    let mut at = 1;
    let rows = table.runs().filter_map(|run| {
        let (first, last) = run.first().zip(run.last())?;
        let both = |low: String, high: String| if low == high { low } else { format!("{low} to {high}") };
        let size = match first.max_size_bytes {
            0 => "any (unused)".to_owned(),
            bytes => format_bytes_binary(bytes.into()),
        };
        let from = at;
        at += run.len();
        Some(vec![
            both(format_count(from as u64), format_count(at as u64 - 1)),
            size,
            last_letters(&first.device, 14),
            both(first.slab.to_string(), last.slab.to_string()),
            both(format_bytes_binary(first.allocated_bytes), format_bytes_binary(last.allocated_bytes)),
            both(format_bytes_binary(first.free_bytes), format_bytes_binary(last.free_bytes)),
        ])
    });

    let headers = ["NTH", "MAX SIZE", "DEVICE", "SLABS", "ALLOC", "FREE"];
    let text = screen::table(&headers, rows.collect());
    let how = match table.placement.as_str() {
        "seed" => "placement seed: slabs are opened in this order, whichever device they are on.",
        "discriminant" => "placement discriminant: equally full slabs are opened by lot.",
        _ => "placement load: a disk is chosen by its load first, then its slabs in this order.",
    };

    format!("{text}\n\n{}", screen::wrap(how))
}

pub(super) fn check(checked: &Checked) -> String {
    let figures = [
        ("blocks read", format_count(checked.counts.blocks)),
        ("bytes read", format_bytes_binary(checked.counts.bytes)),
        ("checksum errors", format_count(checked.counts.checksum_errors)),
        ("blocks that cannot be read", format_count(checked.counts.unreadable)),
        ("places that two blocks have", format_count(checked.counts.double_references)),
    ];
    let (mood, verdict) = if checked.is_sound() { (Mood::Good, "sound") } else { (Mood::Bad, "not sound") };
    let disks = if checked.disks == 1 { "disk" } else { "disks" };
    let verdict = format!("{verdict}: {} {disks}, checkpoint {}", checked.disks, checked.generation);
    let mut text = screen::answer(&Answer::new(mood, verdict, "", ""));
    if !checked.findings.is_empty() {
        text.push_str(&screen::paragraphs(&checked.findings));
        text.push('\n');
    }
    let rows = figures.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    text + &screen::table(&["FIGURE", "VALUE"], rows)
}

#[cfg(test)]
mod tests {
    use plimsoll_cache_tools::hits::HitRow;
    use plimsoll_cache_tools::slabs::OrderRow;

    use plimsoll_cache::SlabUse;
    use plimsoll_cache::stats::DiskStats;

    use super::*;

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn tables_fit_100_columns() {
        let figures = Figures {
            iops: 1_234_567.8,
            bytes_per_s: 123_456.0 * 1048576.0,
            mean_ms: Some(123_456.0),
            operations: 1000,
            total_ns: 123_456_000_000_000,
            in_flight: 32_768,
            latency_ns_log2: (0..40).map(|at| at * 1_000_000_000).collect(),
            ..Figures::default()
        };
        let io = IoKind::ALL.iter().map(|(_, kind)| ((*kind).into(), figures.clone())).collect();
        let row = Row { name: "a-long-name-of-a-file-in-some-directory.img".to_owned(), path: String::new(), io };
        let interval = Interval { total: row.clone(), disks: vec![row], ..Interval::default() };
        for with_active in [false, true] {
            let text = iostat(&interval, true, with_active, true);
            assert!(widest(&text) <= 100, "{} in {text}", widest(&text));
            assert_eq!(text.lines().count(), 4);
        }
        assert!(widest(&latencies(&interval, true)) <= 100);
        let stats = DiskStats { path: "/dev/disk/by-id/".to_owned() + &"x".repeat(100), ..DiskStats::default() };
        let disk = DiskStatus { stats, errors: 0 };
        let text = status(&Status { disks: vec![disk], problems: vec!["y ".repeat(200)], ..Status::default() });
        assert!(widest(&text) <= 100, "{text}");
    }

    #[test]
    fn slabs_and_checks_fit_100_columns() {
        let row = SlabRow {
            device: "/dev/disk/by-id/".to_owned() + &"x".repeat(100),
            kind: "bitmap".to_owned(),
            max_size_bytes: 1_100_000,
            usage: SlabUse {
                slabs: 1_000_000,
                size_bytes: 1023 << 40,
                allocated_bytes: 1023 << 40,
                free_bytes: 1023 << 30,
                freeing_bytes: 1023 << 20,
                mean_free_segments: 12_345.6,
                slabs_by_tenth: [123_456; 10],
            },
        };
        let table = SlabTable { rows: vec![row.clone()], summaries: vec![row], ..SlabTable::default() };
        let text = slabs(&table, true);
        assert!(widest(&text) <= 100 && text.contains(&"#".repeat(20)), "{text}");
        assert!(!slabs(&SlabTable::default(), true).contains("DEVICE"));
        let at = |device: &str, slab: u32, allocated_bytes: u64| OrderRow {
            device: device.to_owned(),
            slab,
            allocated_bytes,
            free_bytes: (16 << 20) - allocated_bytes,
            max_size_bytes: if allocated_bytes > 0 { 8192 } else { 0 },
        };
        // The published case: all slabs alike, and numbers by device.
        let rows = (0..100).map(|slab| at("d0", slab, 0)).chain((100..150).map(|slab| at("d1", slab, 0)));
        let order: Vec<OrderRow> = rows.chain([at("d1", 200, 8192), at("d0", 201, 1 << 20)]).collect();
        let text = slab_order(&SlabTable { order, placement: "seed".to_owned(), ..SlabTable::default() });
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let found = |words: &str| lines.iter().any(|line| line.join(" ") == words);
        for words in [
            "1 to 100 any (unused) d0 0 to 99 0 B 16 MiB",
            "101 to 150 any (unused) d1 100 to 149 0 B 16 MiB",
            "151 8 KiB d1 200 8 KiB 16 MiB",
            "152 8 KiB d0 201 1 MiB 15 MiB",
        ] {
            assert!(found(words), "{words}: {text}");
        }
        assert!(widest(&text) <= 100 && text.contains("placement seed"), "{text}");
        let sound = check(&Checked { disks: 3, ..Checked::default() });
        assert!(sound.starts_with("sound: 3 disks, checkpoint 0\n\nFIGURE"), "{sound}");
        let findings = vec!["y ".repeat(200)];
        let text = check(&Checked { findings, ..Checked::default() });
        assert!(widest(&text) <= 100 && text.starts_with("not sound: "), "{text}");
    }

    #[test]
    fn hits_show_where_the_cache_ends() {
        let row = |size: u64, pct, is_ghost| HitRow { size_bytes: size << 30, hits: 5, pct, gain_pct: 0.0, is_ghost };
        let rows = vec![row(1, 30.0, false), row(2, 50.0, false), row(3, 100.0, true)];
        let text = hits(&HitTable { rows, lookups: 10, capacity_bytes: 2 << 30, ..HitTable::default() });
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[3].starts_with("--- present size: 2 GiB"), "{text}");
        assert!(lines[4].ends_with(&"+".repeat(50)), "{text}");
        assert!(widest(&text) <= 100);
        assert_eq!(hits(&HitTable::default()), "no look-ups yet");
    }
}

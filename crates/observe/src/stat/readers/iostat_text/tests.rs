//! Layouts of iostat, wraps, quotes, locales, damage.

use super::*;

fn read_with(text: &str, options: &ReadOptions) -> (Reports, Vec<String>) {
    let mut notes = Notes::of("t");
    let read = read(text, options, DayOrder::default(), &mut notes);
    (read, notes.into_vec())
}

fn read_text(text: &str) -> (Vec<Interval>, Vec<String>) {
    let (read, notes) = read_with(text, &ReadOptions::default());
    (read.intervals, notes)
}

fn rows(interval: &Interval) -> Vec<(&str, Option<f64>, Option<f64>)> {
    let devices = interval.devices.iter();
    devices.map(|it| (it.device.as_str(), it.columns.reads_per_s, it.columns.util_percent)).collect()
}

#[test]
fn layouts_of_ten_years() {
    let table = [
        (
            "sysstat 10, basic",
            "Device:            tps    kB_read/s    kB_wrtn/s    kB_read    kB_wrtn\nsda 3.00 1.50 2.50 100 200\n",
            "rkB/s 1.5, wkB/s 2.5, tps 3",
        ),
        (
            "sysstat 9, blocks",
            "Device:            tps   Blk_read/s   Blk_wrtn/s   Blk_read   Blk_wrtn\nsda 3.00 8.00 16.00 100 200\n",
            "rkB/s 4, wkB/s 8, tps 3",
        ),
        (
            "sysstat 9, sectors",
            "Device:  rrqm/s  wrqm/s  r/s  w/s  rsec/s  wsec/s avgrq-sz avgqu-sz  await  svctm  %util\n\
             sda 0.10 0.20 1.00 2.00 8.00 16.00 8.00 0.50 1.25 0.30 7.00\n",
            "r/s 1, w/s 2, rkB/s 4, wkB/s 8, rrqm/s 0.1, wrqm/s 0.2, aqu-sz 0.5, util 7, await 1.25, areq-sz 4",
        ),
        (
            "sysstat 11.7, another order",
            "Device  r/s  w/s  rkB/s  wkB/s  %rrqm r_await w_await aqu-sz rareq-sz wareq-sz  svctm  %util\n\
             sda 1.00 2.00 3.00 4.00 5.00 6.00 7.00 8.00 9.00 10.00 11.00 12.00\n",
            "r/s 1, w/s 2, rkB/s 3, wkB/s 4, rrqm 5, r_await 6, w_await 7, rareq-sz 9, wareq-sz 10, aqu-sz 8, util 12",
        ),
        (
            "sysstat 12, short",
            "Device             tps      kB/s    rqm/s   await  areq-sz  aqu-sz  %util\n\
             sda 5.00 20.00 1.00 0.25 4.00 0.10 3.00\n",
            "aqu-sz 0.1, util 3, tps 5, kB/s 20, await 0.25, areq-sz 4",
        ),
        (
            "short and human",
            "      tps      kB/s    rqm/s   await  areq-sz  aqu-sz  %util Device\n 5.00 12.5M 1.00 0.25 6.6k \
             0.10 0.8% sda\n",
            "aqu-sz 0.1, util 0.8, tps 5, kB/s 12800, await 0.25, areq-sz 6.6",
        ),
        (
            "writes added to discards are unknown",
            "Device  tps    kB_read/s     kB_w+d/s    kB_read     kB_w+d\nsda 5.00 1.00 2.00 3 4\n",
            "rkB/s 1, tps 5",
        ),
        (
            "sysstat 10 -h: the name on a line of its own",
            "Device:            tps    kB_read/s    kB_wrtn/s    kB_read    kB_wrtn\nsda\n            5.00 1.00 \
             2.00 3 4\n",
            "rkB/s 1, wkB/s 2, tps 5",
        ),
        ("two columns picked", "r/s Device\n5.00 sda\n\nw/s Device\n1.00 sda\n", "r/s 5, w/s 1"),
    ];
    for (layout, text, columns) in table {
        let (intervals, notes) = read_text(text);
        assert_eq!((intervals.len(), notes), (1, Vec::new()), "{layout}");
        assert_eq!(intervals[0].devices.len(), 1, "{layout}");
        let device = &intervals[0].devices[0];
        assert_eq!((device.device.as_str(), device.columns.known().as_str()), ("sda", columns), "{layout}");
    }
}

#[test]
fn lines_as_they_are_pasted() {
    let plain = "Device r/s w/s %util\nsda 1.00 2.00 3.00\nsdb 4.00 5.00 6.00\n";
    let expect = vec![("sda", Some(1.0), Some(3.0)), ("sdb", Some(4.0), Some(6.0))];
    let quoted = |mark: &str| plain.lines().map(|line| format!("{mark}{line}\n")).collect::<String>();
    let table = [
        plain.to_owned(),
        quoted("    "),
        quoted("\t"),
        plain.replace('\n', "\r\n"),
        format!("\u{feff}{plain}"),
        format!("root@db7:~# iostat -dx 1\n{plain}^C\nroot@db7:~#\n"),
        format!("What do you think of this?\n\n```\n{plain}```\nIt shows 3 disks and 100 % use.\n"),
        plain.replace('.', ","),
        plain.replace("Device", "Gerät"),
        plain.replace("Device", "Device:"),
        plain.replace("sda 1.00", "\u{1b}[32;22msda\u{1b}[0m\u{1b}[34;1m 1.00\u{1b}[0m"),
        "Device r/s w/s\n  %util\nsda 1.00 2.00\n 3.00\nsdb 4.00 5.00\n 6.00\n".to_owned(),
        "Device r/s w/s\nsda 1.00 2.00\nsdb 4.00 5.00\n   aqu-sz %util\n 0.00 3.00\n 0.00 6.00\n".to_owned(),
        "r/s Device\n1.00 sda\n4.00 sdb\n\nw/s %util Device\n2.00 3.00 sda\n5.00 6.00 sdb\n".to_owned(),
        plain.trim_end().to_owned(),
    ];

    for text in table {
        let (intervals, notes) = read_text(&text);
        assert_eq!((intervals.len(), notes), (1, Vec::new()), "{text}");
        assert_eq!(rows(&intervals[0]), expect, "{text}");
    }
}

#[test]
fn reports_begin_where_the_next_one_does() {
    let table = "Device r/s %util\nsda 1.00 2.00\nsdb 1.00 2.00\n";
    let cpu = "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n 1.00 0.00 2.00 0.00 0.00 97.00\n";
    let banner = "Linux 6.1.0 (db7) \t12/02/2021 \t_x86_64_\t(8 CPU)\n";

    for (text, count, since_boot, is_unclear) in [
        (table.to_owned(), 1, 0, false),
        (format!("{table}\n{table}"), 2, 0, true),
        (format!("{cpu}\n{table}\n{cpu}\n{table}"), 2, 0, true),
        (format!("{banner}\n{cpu}\n{table}\n{cpu}\n{table}"), 2, 1, false),
        (format!("{banner}\n{table}\n{banner}\n{table}{table}"), 3, 2, false),
        (format!("iostat during the run:\n{table}{table}"), 2, 0, true),
    ] {
        let (intervals, notes) = read_text(&text);
        let first = intervals.iter().filter(|interval| interval.is_since_boot).count();
        assert_eq!((intervals.len(), first, notes), (count, since_boot, Vec::new()), "{text}");
        let unclear: Vec<bool> = intervals.iter().map(|interval| interval.may_be_since_boot).collect();
        assert!(unclear[0] == is_unclear && !unclear[1..].contains(&true), "{text}");
        let options = ReadOptions { is_first_an_interval: true, ..ReadOptions::default() };
        assert!(read_with(&text, &options).0.intervals.iter().all(|interval| !interval.may_be_since_boot), "{text}");
    }

    let options = ReadOptions { is_first_an_interval: true, interval_s: Some(5.0) };
    let (read, _) = read_with(&format!("{banner}\n{table}"), &options);
    assert_eq!((read.intervals[0].is_since_boot, read.intervals[0].duration_s), (false, Some(5.0)));
    assert_eq!(read.hosts, ["db7, Linux 6.1.0, 8 CPU"]);
}

#[test]
fn times_give_lengths() {
    let table = "Device r/s %util\nsda 1.00 2.00\n\n";
    for (stamps, seconds) in [
        (["03/14/2024 05:53:14 PM", "03/14/2024 05:53:16 PM"], Some(2.0)),
        (["03/14/24 17:53:14", "03/14/24 17:53:15"], Some(1.0)),
        (["2024-03-14T17:53:14+0000", "2024-03-14T17:53:24+0000"], Some(10.0)),
        (["30.11.2024 23:59:59", "01.12.2024 00:00:01"], Some(2.0)),
        (["Time: 11:59:59 PM", "Time: 12:00:01 AM"], Some(2.0)),
        (["03/14/24 17:53:14", "03/14/24 17:53:10"], None),
    ] {
        let (intervals, _) = read_text(&format!("{}\n{table}{}\n{table}", stamps[0], stamps[1]));
        assert_eq!(intervals.len(), 2, "{stamps:?}");
        assert_eq!((intervals[0].duration_s, intervals[1].duration_s), (None, seconds), "{stamps:?}");
    }
}

#[test]
fn what_is_wrong_is_unknown_and_said() {
    let header = "Device r/s w/s %util\n";
    let known = |text: &str| {
        let (intervals, notes) = read_text(text);
        let rows: Vec<String> = intervals.iter().flat_map(rows).map(|row| format!("{row:?}")).collect();
        (rows.join(" "), notes.join(" "))
    };

    for (text, expect, note) in [
        (format!("{header}sda nan 1.00 2.00\n"), "(\"sda\", None, Some(2.0))", "t:2: r/s of sda is `nan`"),
        (format!("{header}sda -1.00 1.00 2.00\n"), "(\"sda\", None, Some(2.0))", "r/s of sda is `-1.00`"),
        (format!("{header}sda x.1 1.00 2.00\n"), "(\"sda\", None, Some(2.0))", "r/s of sda is `x.1`"),
        (format!("{header}sda 1.00 2.00\n"), "", "sda has 2 figures, the header 3 columns"),
        (format!("{header}sda 1.00 2.00 3.00 4.00\n"), "", "more figures than the 3 columns"),
        (format!("{header}sda 1.00 2.00 10"), "", "ends within"),
        (format!("{header}sda 1.00 2.00 10.00\nsdb 1.0"), "(\"sda\", Some(1.0), Some(10.0))", "sdb has 1 figures"),
        (
            format!("{header}sda 1.00 2.00 3.00\nsdb 1.00 2.00 3.00\nsdb 1.00 2.00 9.00\n"),
            "(\"sda\", Some(1.0), Some(3.0)) (\"sdb\", Some(1.0), Some(3.0))",
            "t:4: sdb stands twice",
        ),
        (
            "Device r/s w/s %util new/s\nsda 1.00 2.00 3.00 4.00\n".to_owned(),
            "(\"sda\", Some(1.0), Some(3.0))",
            "column `new/s` is not known",
        ),
        (
            format!("{header}sda 1.00 2.00 3.00\n G 4.00 5.00 6.00\n"),
            "(\"sda\", Some(1.0), Some(3.0))",
            "lines of groups are sums",
        ),
        (format!("{header} G 4.00 5.00 6.00\n"), "(\"G\", Some(4.0), Some(6.0))", "only sums of groups"),
        (
            "r/s %util Device\n1.00 2.00 nvme0n1\n3.00 4.00  G\n".to_owned(),
            "(\"nvme0n1\", Some(1.0), Some(2.0))",
            "lines of groups are sums",
        ),
        (
            "r/s %util Device\n1.00 2.00 nvme0n1\n\nw/s Device\n5.00 nvme0".to_owned(),
            "(\"nvme0n1\", Some(1.0), Some(2.0))",
            "ends within",
        ),
    ] {
        let (rows, notes) = known(&text);
        assert_eq!(rows, expect, "{text}");
        assert!(notes.contains(note), "{text}: {notes}");
    }
}

#[test]
fn every_end_of_a_text_is_one_that_was_said_or_is_right() {
    let text = "Linux 6.1.0 (db7) \t12/02/2021 \t_x86_64_\t(8 CPU)\n\nDevice            r/s     rkB/s  aqu-sz  %util\n\
                nvme0n1       1929.52  10649.00    0.34   0.78\nnvme1n1        559.49  31130.51    0.47  10.57\n";
    let (whole, _) = read_text(text);
    for end in 0..=text.len() {
        let (cut, _) = read_text(&text[..end]);
        for device in cut.iter().flat_map(|interval| &interval.devices) {
            let same =
                whole[0].devices.iter().find(|other| other.device == device.device).expect("a name that is none");
            assert_eq!(device.columns, same.columns, "cut at {end}");
        }
    }
}

//! Files that belong together: series, directories, archives.

use super::*;

#[test]
fn files_of_one_series_and_of_several() {
    let named =
        |name: &str, text: &str| Saved { name: name.to_owned(), bytes: text.as_bytes().to_vec(), is_found: false };
    let options = ReadOptions { interval_s: Some(2.0), ..ReadOptions::default() };
    let files = [
        named("1/sys/block/sda/stat", "1000 0 8000 100 0 0 0 0 0 90 100 0 0 0 0 0 0\n"),
        named("1/sdb.stat", "10 0 80 1 0 0 0 0 0 9 10\n"),
        named("2/sys/block/sda/stat", "1500 0 12000 150 0 0 0 0 0 290 150 0 0 0 0 0 0\n"),
        named("2/sdb.stat", "10 0 80 1 0 0 0 0 0 9 10\n"),
        named("later.txt", "Device tps\nsdc 5.00\n"),
    ];

    let recorded = read_all(&files, &options).unwrap();
    let rates = recorded.intervals.iter().map(|interval| {
        let rate = |device: &DeviceInterval| (device.device.clone(), device.columns.requests_per_s());
        interval.devices.iter().map(rate).collect::<Vec<_>>()
    });
    let expect = [vec![("sda", 250.0), ("sdb", 0.0)], vec![("sdc", 5.0)]];
    let expect =
        expect.map(|list| list.into_iter().map(|(name, rate)| (name.to_owned(), Some(rate))).collect::<Vec<_>>());
    assert_eq!(rates.collect::<Vec<_>>(), expect);

    assert!(read_all(&[named("sda.stat", "1 2 3\n")], &options).is_err());
    assert_eq!(read_all(&[], &options).unwrap(), Recorded::default());
}

/// Text of `iostat -xty` on a host: reads a second at each second.
fn iostat_of(host: &str, reads: &[(u32, f64)]) -> Vec<u8> {
    let reports = reads.iter().map(|(second, reads)| {
        format!("\n03/14/2024 17:53:{second:02}\nDevice            r/s     w/s\nsda   {reads:.2}    0.00\n")
    });
    let banner = format!("Linux 6.1.0 ({host}) \t03/14/2024 \t_x86_64_\t(2 CPU)\n");
    (banner + &reports.collect::<String>()).into_bytes()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

fn tar(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, name, bytes.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn an_archive_is_one_story_in_the_order_of_time() {
    let options = ReadOptions { is_first_an_interval: true, ..ReadOptions::default() };
    let early = iostat_of("db1", &[(10, 1.0), (11, 2.0)]);
    let late = iostat_of("db1", &[(30, 3.0), (31, 4.0)]);
    let rest = [("bundle/dmesg.txt", b"oops\n".to_vec()), ("bundle/shot.png", b"\x89PNG\r\n\x1a\n\0".to_vec())];
    let files = |first: &[u8], second: &[u8]| {
        let mut files = vec![("bundle/a.iostat", first.to_vec()), ("bundle/b.iostat.gz", gzip(second))];
        files.extend(rest.clone());
        tar(&files)
    };
    let long_name = format!("bundle/{}/a.iostat", "directory/".repeat(30));
    for (name, bytes) in [
        ("in order", files(&early, &late)),
        ("against it", files(&late, &early)),
        ("compressed", gzip(&files(&late, &early))),
        ("a long name", tar(&[(&long_name, late.clone()), ("b", early.clone()), ("c", b"oops\n".to_vec())])),
    ] {
        let recorded = read(name, &bytes, &options).unwrap();
        let reads = recorded.intervals.iter().map(|interval| interval.devices[0].columns.reads_per_s.unwrap());
        assert_eq!(reads.collect::<Vec<_>>(), [1.0, 2.0, 3.0, 4.0], "{name}");
        let is_left_out = |note: &String| note.contains("no figures of disks, left out");
        assert_eq!(recorded.notes.iter().filter(|note| is_left_out(note)).count(), 1, "{:?}", recorded.notes);
        assert!(recorded.origin.contains("a.iostat: text of iostat of db1"), "{}", recorded.origin);
    }

    let refused = |bytes: &[u8]| read("bundle", bytes, &options).unwrap_err().to_string();
    let other = iostat_of("db2", &[(30, 3.0)]);
    for (bytes, part) in [
        (files(&early, &other), "files of several hosts (db1, db2): name those of one host"),
        (tar(&[]), "looks like"),
        (tar(&rest), "bundle/bundle/dmesg.txt: looks like some other text"),
        (gzip(&early)[..40].to_vec(), "the archive is damaged"),
        ((0..9).fold(early.clone(), |bytes, _| gzip(&bytes)), "an archive in too many others"),
        (files(&early, &late)[..1500].to_vec(), "damaged"),
    ] {
        assert!(refused(&bytes).contains(part), "{part}: {}", refused(&bytes));
    }

    // Reports of several hosts in one file.
    let iostat = [early.clone(), other.clone()].concat();
    let json = |host: &str| {
        let disks = r#"{"disk": [{"disk_device": "sda", "r/s": 1.00}]}"#;
        format!(r#"{{"sysstat": {{"hosts": [{{"nodename": "{host}", "statistics": [{disks}, {disks}]}}]}}}}"#)
    };
    let record = |host: &str| {
        use crate::stat::host::{Host, Reading};
        let host = Host { name: host.to_owned(), ..Host::default() };
        let mut writer = record::Writer::new(Vec::new(), &host).unwrap();
        let devices = plimsoll::sys::diskstats::parse("8 0 sda 1000 0 8000 100 0 0 0 0 0 90 100\n").unwrap();
        writer.append(&Reading { uptime_cs: 100, devices, ..Reading::default() }, &Facts::new()).unwrap();
        writer.into_inner()
    };
    for bytes in [iostat, (json("db1") + &json("db2")).into_bytes(), [record("db1"), record("db2")].concat()] {
        let error = refused(&bytes);
        assert!(error.contains("one file of several hosts (db1, db2): split it"), "{error}");
    }

    // Files that are named are judged together, too: their disks have the same names.
    let named =
        [("a", early), ("b", other)].map(|(name, bytes)| Saved { name: name.to_owned(), bytes, is_found: false });
    let error = read_all(&named, &options).unwrap_err().to_string();
    assert!(error.contains("files of several hosts (db1, db2): name those of one host"), "{error}");
}

#[test]
fn samples_in_an_archive_are_one_series() {
    let sample = |reads: u32| format!("8 0 sda {reads} 0 8000 100 0 0 0 0 0 90 100\n").into_bytes();
    let archive = tar(&[("t/10", sample(4000)), ("t/notes", b"oops\n".to_vec()), ("t/2", sample(1000))]);
    let recorded = read("t.tar", &archive, &ReadOptions { interval_s: Some(2.0), ..ReadOptions::default() }).unwrap();
    let reads = recorded.intervals.iter().map(|interval| interval.devices[0].columns.reads_per_s);
    assert_eq!(reads.collect::<Vec<_>>(), [Some(1500.0)]);
}

#[test]
fn thousands_of_files_are_counted_and_not_named() {
    let late = (0..2000).map(|file| Saved {
        name: format!("{file}.txt"),
        bytes: b"03/14/2024 17:53:10\nDevice tps\nsda 5.00\n".to_vec(),
        is_found: true,
    });
    let recorded = read_all(&late.collect::<Vec<_>>(), &ReadOptions::default()).unwrap();
    assert_eq!(recorded.intervals.len(), 2000);
    assert!(recorded.origin.len() < 1000 && recorded.origin.ends_with("; and 1992 more"), "{}", recorded.origin);
    let last = recorded.notes.last().unwrap();
    assert!(recorded.notes.len() == 101 && last.ends_with("more notes, on these or other files"), "{last}");
}

/// Files of `iostat -t`, or of samples, of the 11th to the 14th of March in a locale that puts the day first.
#[test]
fn one_file_shows_the_order_of_all_dates() {
    let of = |text: fn(u32) -> String| -> Vec<Saved> {
        let named = |day| Saved { name: format!("{day}.txt"), bytes: text(day).into_bytes(), is_found: true };
        (11..15).map(named).collect()
    };
    let iostat = |day| format!("{day}/03/24 10:00:00\nDevice r/s w/s\nsda 1.00 2.00\n");
    let json = |day| {
        let disks = r#""disk": [{"disk_device": "sda", "r/s": 1.00}]"#;
        let report = format!(r#"{{"timestamp": "{day}/03/24 10:00:00", {disks}}}"#);
        format!(r#"{{"sysstat": {{"hosts": [{{"nodename": "db1", "statistics": [{report}]}}]}}}}"#)
    };
    let samples = |day| format!("{day}/03/24 10:00:00\n8 0 sda {day} 0 8000 100 0 0 0 0 0 90 100\n");
    for (files, count) in [(of(iostat), 4), (of(json), 4), (of(samples), 3)] {
        let recorded = read_all(&files, &ReadOptions::default()).unwrap();
        let days = recorded.intervals.iter().map(|interval| interval.end_unix_ms.unwrap() / 86_400_000);
        let days: Vec<u64> = days.collect();
        assert_eq!(days.len(), count, "{days:?}");
        // The last one is 2024-03-14.
        let expected: Vec<u64> = (19_796 - count as u64 + 1..=19_796).collect();
        assert_eq!(days, expected, "{:?}", recorded.notes);
        let first = read_all(&files[..1], &ReadOptions::default()).unwrap();
        assert_eq!((recorded.is_day_order_open, first.is_day_order_open), (false, true));
    }
}

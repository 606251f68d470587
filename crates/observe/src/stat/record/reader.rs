//! Reads recordings, damaged ones included.
//!
//! # Why
//! See the parent module: intact lines are read, and losses are reported.
//!
//! # How it works
//! Lines whose sum is wrong are left out. Each line has a number, which shows missing lines. Where the numbers start
//! again, another recording begins, and no interval spans the boundary.
//!
//! # Limits
//! Notes name ten lines; the rest are counted.
//!
//! # Example
//! See the parent module.

use super::{KIND, Line, RecordError, VERSION, open};
use crate::stat::host::{Host, Reading};
use crate::stat::output::listed;
use crate::stat::{Facts, Interval};

/// The content of a file of recordings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The recorded host, and the first of another name; none if every such line is damaged.
    pub hosts: Vec<Host>,
    /// The readings in the order of the file: a list for each recording in it, none of them empty.
    pub series: Vec<Vec<Reading>>,
    pub facts: Facts,
    /// One sentence for each kind of loss, and one if the file holds several recordings; empty for a whole recording.
    pub notes: Vec<String>,
}

impl Recording {
    /// Returns the intervals from each reading to the next. A recording with a single reading yields the interval since
    /// the host began.
    pub fn intervals(&self) -> Vec<Interval> {
        let of_series = |readings: &Vec<Reading>| match readings.as_slice() {
            [single] => vec![single.since_boot()],
            several => several.iter().zip(several.iter().skip(1)).map(|(before, after)| after.since(before)).collect(),
        };
        self.series.iter().flat_map(of_series).collect()
    }
}

/// Bytes of a file in which `is_record` looks for an intact line, beside the first three lines.
const LOOK_BYTES: usize = 64 << 10;

/// Returns whether `bytes` (of a file, from its begin) are a recording, though perhaps a damaged one.
pub(crate) fn is_record(bytes: &[u8]) -> bool {
    let begin = format!("{{\"plimsoll\":\"{KIND}\"");
    let looked_at = bytes.get(..LOOK_BYTES).unwrap_or(bytes);
    // A line counts only with a right sum. Lines of a large host may be longer than LOOK_BYTES, so the first three are
    // checked whole.
    let ours = |line: &[u8]| line.starts_with(b"{\"") && open(line).is_some_and(|line| line.line.is_some());
    bytes.starts_with(begin.as_bytes())
        || looked_at.split(|byte| *byte == b'\n').any(ours)
        || bytes.split(|byte| *byte == b'\n').take(3).any(ours)
}

/// Reads a recording. Damaged lines are left out, with a note.
pub fn read(bytes: &[u8]) -> Result<Recording, RecordError> {
    if !is_record(bytes) {
        return Err(RecordError::NotARecord);
    }

    let mut reader = Reader::default();
    let lines = bytes.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    for (index, line) in lines {
        match open(line) {
            Some(line) => reader.line(index + 1, line)?,
            None => reader.damaged.push(index + 1),
        }
    }
    reader.finish(bytes)
}

#[derive(Default)]
struct Reader {
    recording: Recording,
    damaged: Vec<usize>,
    /// The number in the latest intact line.
    last: Option<u64>,
    /// Lines absent by the numbers in the intact ones, damaged lines included.
    missing: u64,
    recordings: usize,
}

impl Reader {
    /// Takes an intact line, the `at`-th of the file.
    fn line(&mut self, at: usize, line: Line<'_>) -> Result<(), RecordError> {
        if let Some(version) = line.version.filter(|version| *version > VERSION) {
            return Err(RecordError::Version(version));
        }

        let number = line.line;
        let begins = number == Some(0) || self.last.is_none() || self.last >= number;
        if begins {
            self.recordings += 1;
            self.recording.series.push(Vec::new());
        }
        let expected = if begins { 0 } else { self.last.map_or(0, |last| last + 1) };
        self.missing = self.missing.saturating_add(number.map_or(0, |number| number.saturating_sub(expected)));
        self.last = number;

        if let Some(host) = &line.host {
            let hosts = &mut self.recording.hosts;
            if hosts.len() < 2 && hosts.first().is_none_or(|first| first.name != host.name) {
                hosts.push(host.clone());
            }
        } else if let Some(facts) = line.facts {
            self.recording.facts.extend(facts);
        } else {
            match (line.into_reading(), self.recording.series.last_mut()) {
                (Some(reading), Some(series)) => series.push(reading),
                _ => self.damaged.push(at),
            }
        }
        Ok(())
    }

    /// Returns the recording, with notes about losses.
    fn finish(mut self, bytes: &[u8]) -> Result<Recording, RecordError> {
        let lines = bytes.split(|byte| *byte == b'\n').count();
        let is_cut = !bytes.ends_with(b"\n") && self.damaged.last() == Some(&lines);
        if is_cut {
            self.damaged.pop();
        }
        self.recording.series.retain(|series| !series.is_empty());
        if self.recording.series.is_empty() {
            return Err(RecordError::NoReading);
        }

        let notes = &mut self.recording.notes;
        notes.extend(damaged_note(&self.damaged));
        let without_trace = self.missing.saturating_sub(self.damaged.len() as u64);
        if without_trace > 0 {
            let lines = if without_trace == 1 { "line is" } else { "lines are" };
            notes.push(format!("{without_trace} {lines} missing: the intervals around become one"));
        }
        if is_cut {
            notes.push(format!("the file ends in the middle of line {lines}, which is left out"));
        }
        if self.recording.hosts.is_empty() {
            notes.push("the line that names the host is lost".to_owned());
        }
        if self.recordings > 1 {
            notes.push(format!("the file holds {} recordings, one behind the other", self.recordings));
        }
        Ok(self.recording)
    }
}

fn damaged_note(damaged: &[usize]) -> Option<String> {
    const NAMED: usize = 10;
    if let [one] = damaged {
        return Some(format!("line {one} is damaged and left out: the intervals around it become one"));
    }
    let lines = listed(damaged.iter(), NAMED);
    (!damaged.is_empty())
        .then(|| format!("lines {lines} are damaged and left out: the intervals around them become one"))
}

#[cfg(test)]
mod tests {
    use plimsoll::sys::diskstats;

    use super::super::Writer;
    use super::*;
    use crate::stat::DeviceFacts;
    use crate::stat::host::CpuTicks;

    fn readings() -> Vec<Reading> {
        let reading = |at: u64| Reading {
            at_unix_ms: 1_773_480_000_000 + at * 1000,
            uptime_cs: 5000 + at * 100,
            cpu: Some(CpuTicks([at, 0, 1, 200 + at * 90, 3, 0, 0, 0])),
            devices: diskstats::parse(&format!(
                "259 0 nvme0n1 {} 10 {} {} 500 0 4000 900 1 {} {} 0 0 0 0 3 4\n8 0 sda {at} 8 0 0\n",
                1000 + at * at * 77,
                8000 + at * 800,
                100 + at * 30,
                90 + at * 50,
                100 + at * 60
            ))
            .unwrap(),
        };
        (0..5).map(reading).collect()
    }

    fn host() -> Host {
        Host { name: "db7".into(), kernel: "6.1.0".into(), machine: "x86_64".into(), cpus: 2 }
    }

    fn facts() -> Facts {
        let facts = DeviceFacts { model: Some("SSD \"7\"".into()), nr_requests: Some(1023), ..DeviceFacts::default() };
        Facts::from([("nvme0n1".to_owned(), facts)])
    }

    fn recorded(readings: &[Reading]) -> Vec<u8> {
        let mut writer = Writer::new(Vec::new(), &host()).unwrap();
        readings.iter().for_each(|reading| writer.append(reading, &facts()).unwrap());
        writer.into_inner()
    }

    /// Checks that all readings found were written, that they are in order, and that losses have a note.
    fn check(bytes: &[u8], case: &str) {
        let all = readings();
        match read(bytes) {
            Ok(found) => {
                // A file cut between two lines is a whole, shorter recording.
                let is_shorter = || all.starts_with(&found.series[0]) && bytes.ends_with(b"}");
                let is_between = bytes.ends_with(b"\n") || is_shorter();
                assert!(!found.notes.is_empty() || is_between, "{case}: nothing said");
                for series in &found.series {
                    let places = series.iter().map(|one| all.iter().position(|other| other == one));
                    let places: Option<Vec<usize>> = places.collect();
                    assert!(places.is_some_and(|places| places.is_sorted_by(|a, b| a < b)), "{case}: another reading");
                }
                assert!(found.facts.is_empty() || found.facts == facts(), "{case}");
                assert!(found.hosts.iter().all(|found| *found == host()), "{case}");
                assert!(!found.series.is_empty(), "{case}");
            }
            Err(RecordError::NotARecord | RecordError::NoReading) => {}
            Err(other) => panic!("{case}: {other}"),
        }
    }

    #[test]
    fn what_was_written_is_read() {
        let found = read(&recorded(&readings())).unwrap();
        let expect = Recording { hosts: vec![host()], series: vec![readings()], facts: facts(), notes: Vec::new() };
        assert_eq!(found, expect);
        let all = readings();
        let expect: Vec<Interval> = all.windows(2).map(|pair| pair[1].since(&pair[0])).collect();
        assert_eq!(found.intervals(), expect);
        assert!(read(&recorded(&all[..1])).unwrap().intervals()[0].is_since_boot);
    }

    #[test]
    fn cut_anywhere_it_tells_what_is_whole() {
        let whole = recorded(&readings());
        for length in 0..whole.len() {
            check(&whole[..length], &format!("cut at {length}"));
        }
        let no_newline = &whole[..whole.len() - 1];
        assert_eq!(read(no_newline).unwrap(), read(&whole).unwrap());
        let cut = read(&whole[..whole.len() - 9]).unwrap();
        assert_eq!(
            (cut.series[0].len(), cut.notes),
            (4, vec!["the file ends in the middle of line 7, which is left out".to_owned()])
        );
    }

    #[test]
    fn no_flipped_bit_becomes_a_figure() {
        let whole = recorded(&readings()[..3]);
        let intact = read(&whole).unwrap();
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[at] ^= 1 << bit;
                if let Ok(found) = read(&flipped) {
                    assert!(!found.notes.is_empty() || found == intact, "byte {at} bit {bit}");
                    let is_known = |one: &Reading| intact.series[0].contains(one);
                    assert!(found.series.iter().flatten().all(is_known), "byte {at} bit {bit}");
                }
            }
        }
    }

    #[test]
    fn lost_lines_join_their_intervals() {
        let whole = String::from_utf8(recorded(&readings())).unwrap();
        let lines: Vec<&str> = whole.lines().collect();
        let all = readings();
        // The lines are the header, facts and five readings; this one lacks the third reading.
        let without = |at: usize| [&lines[..at], &lines[at + 1..]].concat().join("\n");
        let found = read(without(4).as_bytes()).unwrap();
        assert_eq!(found.intervals()[1], all[3].since(&all[1]));
        assert_eq!(found.notes, ["1 line is missing: the intervals around become one"]);
        let damaged = whole.replacen("\"uptime_cs\":5200", "\"uptime_cs\":5201", 1);
        let found = read(damaged.as_bytes()).unwrap();
        assert_eq!(found.intervals()[1], all[3].since(&all[1]));
        assert_eq!(found.notes, ["line 5 is damaged and left out: the intervals around it become one"]);
        let found = read(without(0).as_bytes()).unwrap();
        assert_eq!((found.hosts, found.series, found.facts), (vec![], vec![all], facts()));
    }

    #[test]
    fn recordings_one_behind_the_other_are_not_mixed() {
        let one = recorded(&readings()[..2]);
        let two = recorded(&readings()[2..]);
        let found = read(&[one.as_slice(), &two].concat()).unwrap();
        assert_eq!((found.series.len(), found.intervals().len()), (2, 1 + 2));
        assert_eq!(found.notes, ["the file holds 2 recordings, one behind the other"]);
        // Without the second header, the line numbers still show another recording.
        let start = two.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let found = read(&[one.as_slice(), &two[start..]].concat()).unwrap();
        assert_eq!(found.series.len(), 2);
    }

    #[test]
    fn other_files_and_later_versions_are_refused() {
        let header = super::super::seal("{\"plimsoll\":\"stat-record\",\"version\":2,\"line\":0");
        let table = [
            (String::new(), RecordError::NotARecord),
            ("{\"sysstat\":{}}".into(), RecordError::NotARecord),
            (super::super::seal("{\"line\":0"), RecordError::NoReading),
            ("{\"plimsoll\":\"stat-record\"".into(), RecordError::NoReading),
            (header, RecordError::Version(2)),
        ];
        for (text, expect) in table {
            assert_eq!(read(text.as_bytes()), Err(expect), "{text}");
        }
        for bytes in [&b"\x89PNG\r\n\xff\xfe"[..], &[b'\n'; 1000], &[b'{'; 100_000]] {
            assert_eq!(read(bytes), Err(RecordError::NotARecord));
        }
    }

    #[test]
    fn a_full_disk_loses_one_reading() {
        /// A disk that is full after half of the third line, and later has room again.
        #[derive(Default)]
        struct Full(Vec<u8>, usize);
        impl std::io::Write for Full {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                self.1 += 1;
                match self.1 {
                    3 => {
                        self.0.extend(&bytes[..bytes.len() / 2]);
                        Ok(bytes.len() / 2)
                    }
                    4 => Err(std::io::ErrorKind::StorageFull.into()),
                    _ => {
                        self.0.extend(bytes);
                        Ok(bytes.len())
                    }
                }
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        let all = readings();
        let mut writer = Writer::new(Full::default(), &host()).unwrap();
        let failed: Vec<bool> = all.iter().map(|reading| writer.append(reading, &facts()).is_err()).collect();
        assert_eq!(failed, [true, false, false, false, false]);
        let found = read(&writer.into_inner().0).unwrap();
        assert_eq!(found.series, [all[1..].to_vec()]);
        assert_eq!(found.notes, ["line 3 is damaged and left out: the intervals around it become one"]);
    }
}

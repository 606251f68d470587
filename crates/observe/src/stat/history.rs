//! The work of disks as sections of a page: of a recording, and of the latest interval.
//!
//! # Why
//! The live page of a host and the page of its recording show the same figures in the same way.
//!
//! # How it works
//! A [`History`] takes one [`Observed`] after the other. [`History::live`] shows the latest, with earlier ones as lines
//! and pictures. [`History::recorded`] sums up all: how long each verdict held for each device and group, and why.
//! Columns have two decimals as in iostat; U and S are percent with two decimals, so that they are the same numbers as
//! in the JSON of `stat`, which has parts of 1 with four.
//!
//! # Limits
//! A mean since boot is shown only without an interval, and enters no sum. Memory is bounded: the pictures become
//! coarser, and the lines of tiles span the latest [`LINE_MAX`] intervals.
//!
//! # Example
//! ```
//! use plimsoll_observe::stat::history::{History, part_text};
//! assert_eq!(part_text(Some(0.12345)), "12.35 %");
//! assert_eq!(History::default().live(&[]).len(), 1);
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use plimsoll_figures::units::{format_count, format_duration_ns, format_iops, format_throughput_decimal};
use plimsoll_show::answer::{Answer, Mood, upper_first};
use plimsoll_show::page::{Block, Section, Tile};
use plimsoll_show::plot::Chart;
use plimsoll_show::table::Table;

use crate::entry_within;
use crate::stat::from::Recorded;
use crate::stat::output::{listed, says_no, time};
use crate::stat::pictures::{PICTURES, Series};
use crate::stat::programs::ClassRow;
use crate::stat::watch::Watch;
use crate::stat::{Basis, GroupObserved, Judged, Observed, Part, Verdict};

/// Most intervals in the line of a tile.
pub const LINE_MAX: usize = 60;

/// The columns of iostat that a table shows, by their keys.
const COLUMNS: [&str; 9] = ["r/s", "w/s", "rkB/s", "wkB/s", "r_await", "w_await", "f_await", "aqu-sz", "util"];

/// Most devices and groups remembered, each.
const NAMES_MAX: usize = 4096;
/// Codes of the remarks on how devices share their work.
const OF_SHARING: [&str; 4] = ["like-devices", "hot-spot-rotation", "uneven", "straggler"];
/// Most names that a remark lists beside the first.
const NAMES_SHOWN: usize = 5;

/// The legend below the tables.
const LEGEND: &str = "U: the part of what the device can do that is done. S: the part of their time that requests \
                      wait. util: the part of the time in which anything was under way, which on a device that does several \
                      things at once says little.";

pub(crate) fn verdict_words(verdict: Verdict) -> String {
    match verdict {
        Verdict::Degraded => "degraded or throttled".to_owned(),
        other => other.name().replace('-', " "),
    }
}

/// Returns the mood in which a page shows a verdict.
pub const fn mood(verdict: Verdict) -> Mood {
    match verdict {
        Verdict::Idle | Verdict::Unknown => Mood::Quiet,
        Verdict::Ok | Verdict::BusyButFree => Mood::Good,
        Verdict::Imbalanced | Verdict::Degraded | Verdict::Saturated => Mood::Heed,
        Verdict::Hung => Mood::Bad,
    }
}

/// Formats a part of 1 as percent with two decimals; an unknown one as `n/a`.
pub fn part_text(part: Option<f64>) -> String {
    part.filter(|part| part.is_finite()).map_or_else(|| "n/a".to_owned(), |part| format!("{:.2} %", 100.0 * part))
}

fn column(value: Option<f64>) -> String {
    value.filter(|value| value.is_finite()).map_or_else(|| "n/a".to_owned(), |value| format!("{value:.2}"))
}

/// Collects observations, as far as pages need them.
#[derive(Clone, Debug, Default)]
pub struct History {
    series: Series,
    last: Option<Observed>,
    intervals: u64,
    devices: BTreeMap<String, Track>,
    groups: BTreeMap<String, Track>,
    remarks: Remarks,
}

/// The history of a device or group.
#[derive(Clone, Debug, Default)]
struct Track {
    /// Seconds by verdict, each with the latest reason.
    verdicts: BTreeMap<Verdict, (f64, String)>,
    highest_use: Option<f64>,
    highest_saturation: Option<f64>,
    lowest_effective: Option<f64>,
    line: VecDeque<Option<f64>>,
}

impl Track {
    fn note(&mut self, verdict: Verdict, why: &str, duration_s: f64) {
        let (seconds, reason) = self.verdicts.entry(verdict).or_default();
        *seconds += duration_s;
        why.clone_into(reason);
    }

    fn add_to_line(&mut self, value: Option<f64>) {
        if self.line.len() == LINE_MAX {
            self.line.pop_front();
        }
        self.line.push_back(value);
    }

    /// Formats the verdicts by their time, the longest first: `ok 80 %, saturated 20 %`.
    fn times(&self) -> String {
        let total_s: f64 = self.verdicts.values().map(|(seconds, _)| seconds).sum();
        let mut all: Vec<(Verdict, f64)> = self.verdicts.iter().map(|(verdict, (s, _))| (*verdict, *s)).collect();
        all.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let text = |(verdict, seconds): &(Verdict, f64)| {
            format!("{} {:.0} %", verdict_words(*verdict), 100.0 * seconds / total_s.max(f64::MIN_POSITIVE))
        };
        all.iter().map(text).collect::<Vec<_>>().join(", ")
    }

    /// Sums up the intervals in a clause, without the times or the reason if an answer gives them; empty if nothing is
    /// left.
    fn summary(&self, has_times: bool, has_why: bool) -> String {
        let (worst, why) = self.worst();
        let effective = self.lowest_effective.map(|least| format!("effective {least:.2} at least"));
        let times = [has_times.then(|| self.times()), effective];
        let times = times.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let why = (has_why && worst > Verdict::Ok).then(|| format!("{}: {why}", verdict_words(worst)));
        [times, why.unwrap_or_default()].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// Returns the worst verdict and its reason; `Unknown` only if there is no other.
    fn worst(&self) -> (Verdict, &str) {
        let known = self.verdicts.iter().rfind(|(verdict, _)| **verdict != Verdict::Unknown);
        let worst = known.or_else(|| self.verdicts.iter().next_back());
        worst.map_or((Verdict::Unknown, ""), |(verdict, (_, why))| (*verdict, why))
    }

    fn worst_s(&self) -> f64 {
        self.verdicts.get(&self.worst().0).map_or(0.0, |(seconds, _)| *seconds)
    }
}

fn raise(highest: &mut Option<f64>, value: Option<f64>) {
    *highest = [*highest, value].into_iter().flatten().reduce(f64::max);
}

impl History {
    /// Collects all of a recording, as [`Recorded::observed`] judges it.
    pub fn of_recorded(recorded: &Recorded) -> History {
        let mut history = History::default();
        recorded.observed(&mut Watch::default()).for_each(|observed| history.push(observed));
        history
    }

    /// Adds an interval.
    pub fn push(&mut self, observed: Observed) {
        self.series.push(&observed);
        if observed.is_since_boot {
            // Shown only until the first interval.
            if self.intervals == 0 {
                self.last = Some(observed);
            }
            return;
        }

        self.intervals += 1;
        let duration_s = observed.duration_s.filter(|seconds| seconds.is_finite() && *seconds > 0.0).unwrap_or(1.0);
        for judged in &observed.devices {
            let device = judged.interval.device.clone();
            let Some(track) = entry_within(&mut self.devices, device, NAMES_MAX) else { continue };
            track.note(judged.verdict, &judged.why, duration_s);
            track.add_to_line(judged.capacity_use);
            raise(&mut track.highest_use, judged.capacity_use);
            raise(&mut track.highest_saturation, judged.saturation);
        }

        for group in &observed.groups {
            let Some(track) = entry_within(&mut self.groups, group.group.clone(), NAMES_MAX) else { continue };
            track.note(group.verdict, &group.why, duration_s);
            let known = [track.lowest_effective, group.effective_devices];
            track.lowest_effective = known.into_iter().flatten().reduce(f64::min);
        }

        self.remarks.note(&observed);
        self.last = Some(observed);
    }

    /// Returns the latest interval; without one, the mean since boot.
    pub fn last(&self) -> Option<&Observed> {
        self.last.as_ref()
    }

    /// Draws one of [`PICTURES`]; no chart for another name, or without any figures for it.
    pub fn picture(&self, name: &str) -> Vec<Chart> {
        self.series.picture(name)
    }

    /// Renders the latest interval, and earlier ones as pictures. `classes` are those of running programs.
    pub fn live(&self, classes: &[ClassRow]) -> Vec<Section> {
        let Some(last) = &self.last else {
            let text = "Nothing has been measured yet: the first interval is under way.";
            return vec![Section::new("Disks", [Block::Text(text.to_owned())])];
        };

        let mut blocks = vec![self.tiles(last)];
        if last.devices.is_empty() {
            blocks.push(Block::Text("This host shows no block devices.".to_owned()));
        }

        let mut sections = vec![Section::new("Disks", blocks)];
        sections.extend(groups_section(last));
        sections.extend(self.figures_section(last));
        sections.extend(classes_section(classes));
        sections.extend(self.pictures_sections());
        let mut remarks = Remarks::default();
        remarks.note(last);
        sections.extend(remarks.section());
        sections
    }

    /// Renders all intervals, summed up, and the latest one.
    pub fn recorded(&self) -> Vec<Section> {
        let Some(last) = &self.last else {
            return vec![Section::new("Devices", [Block::Text("There is no interval in it.".to_owned())])];
        };

        let devices = match self.devices.is_empty() {
            true => self.tiles(last),
            false => self.devices_summary().into(),
        };
        let blocks: Vec<Block> = self.answer().map(Block::Answer).into_iter().chain([devices]).collect();
        let mut sections = vec![Section::new("Devices", blocks)];
        if !self.groups.is_empty() {
            sections.push(Section::new("Groups", [self.groups_summary().into()]));
        }
        sections.extend(self.pictures_sections());
        sections.extend(self.figures_section(last));
        sections.extend(self.remarks.section());
        sections
    }

    /// Returns the verdict on the device or group that needs attention most, or on how devices share their work; `None`
    /// without intervals.
    #[must_use]
    pub fn answer(&self) -> Option<Answer> {
        let (name, track, is_group) = self.worst()?;
        let (verdict, why) = track.worst();
        let (count, what) = if is_group { (self.groups.len(), "groups") } else { (self.devices.len(), "devices") };
        let of = if count == 1 { String::new() } else { format!(", the worst of {count} {what}") };
        let said = format!("{name}: {}{of}", verdict_words(verdict));
        let times = format!("of the time: {}", track.times());
        match self.sharing().filter(|_| !says_no(verdict)) {
            Some(sharing) => Some(Answer::new(Mood::Heed, split_sharing(&sharing).0, said, times)),
            None => Some(Answer::new(mood(verdict), said, why, times)),
        }
    }

    /// Returns whether the answer is about a group, or about how devices share their work. Then no single device need
    /// stand out.
    #[must_use]
    pub fn is_of_several(&self) -> bool {
        self.worst()
            .is_some_and(|(_, track, is_group)| is_group || (self.sharing().is_some() && !says_no(track.worst().0)))
    }

    /// Returns the device or group with the worst verdict, and whether it is a group. Known verdicts come before
    /// unknown ones, a device before a group that is no worse, and of several the one with the verdict for longer.
    fn worst(&self) -> Option<(&String, &Track, bool)> {
        let groups = self.groups.iter().map(|(name, track)| (name, track, true));
        let devices = self.devices.iter().map(|(name, track)| (name, track, false));
        let rank = |(_, track, is_group): &(_, &Track, bool)| {
            let worst = track.worst().0;
            (worst != Verdict::Unknown, worst, !is_group)
        };
        groups.chain(devices).max_by(|a, b| rank(a).cmp(&rank(b)).then(a.1.worst_s().total_cmp(&b.1.worst_s())))
    }

    fn sharing(&self) -> Option<String> {
        self.remarks.sentences(|code| OF_SHARING.contains(&code)).into_iter().next()
    }

    /// Returns whether there are at least two intervals to sum up.
    #[must_use]
    pub fn has_summary(&self) -> bool {
        self.intervals >= 2
    }

    /// Sums up all intervals in sentences: how devices share their work, groups, devices (those with the worst verdict
    /// first), and the idle. If `is_answered`, leaves out what [`answer`](History::answer) says. Empty for fewer than
    /// two intervals, and if the answer says it all.
    pub fn summary(&self, is_answered: bool) -> Vec<String> {
        if !self.has_summary() {
            return Vec::new();
        }

        let mut sharing = self.remarks.sentences(|code| OF_SHARING.contains(&code));
        let answered = self.worst().filter(|_| is_answered).map(|(_, track, _)| track);
        let is_of_sharing = !sharing.is_empty() && answered.is_some_and(|track| !says_no(track.worst().0));
        let line = |(name, track): &(&String, &Track)| {
            let is_named = answered.is_some_and(|answered| std::ptr::eq(answered, *track));
            let summary = track.summary(!is_named, !is_named || is_of_sharing);
            (!summary.is_empty()).then(|| format!("{name}: {summary}"))
        };
        let (idle, mut devices): (Vec<_>, Vec<_>) =
            self.devices.iter().partition(|(_, track)| track.worst().0 == Verdict::Idle);
        devices.sort_by_key(|(_, track)| std::cmp::Reverse(track.worst().0));

        if let Some(first) = sharing.first_mut().filter(|_| is_of_sharing) {
            *first = upper_first(split_sharing(first).1);
        }
        sharing.retain(|sentence| !sentence.is_empty());

        let mut lines = sharing;
        lines.extend(self.groups.iter().collect::<Vec<_>>().iter().chain(&devices).filter_map(line));
        if !idle.is_empty() {
            let names: Vec<&str> = idle.iter().map(|(name, _)| name.as_str()).collect();
            lines.push(format!("idle all the time: {}", names.join(", ")));
        }
        if !lines.is_empty() {
            lines.insert(0, format!("Summary of {} intervals:", format_count(self.intervals)));
        }
        lines
    }

    fn devices_summary(&self) -> Table {
        let row = |(device, track): (&String, &Track)| {
            let (worst, why) = track.worst();
            let highest = [part_text(track.highest_use), part_text(track.highest_saturation)];
            let head = [device.clone(), verdict_words(worst), track.times()];
            head.into_iter().chain(highest).chain([why.to_owned()]).collect::<Vec<_>>()
        };
        let headers = ["device", "worst", "part of the time", "highest U", "highest S", "why the worst"];
        Table::new(format!("Over {} interval(s)", self.intervals), headers, self.devices.iter().map(row))
    }

    fn groups_summary(&self) -> Table {
        let row = |(group, track): (&String, &Track)| {
            let (worst, why) = track.worst();
            let effective = column(track.lowest_effective);
            [group.clone(), verdict_words(worst), track.times(), effective, why.to_owned()]
        };
        let headers = ["group", "worst", "part of the time", "fewest effective devices", "why the worst"];
        Table::new("Devices that do one work together", headers, self.groups.iter().map(row))
    }

    fn pictures_sections(&self) -> Vec<Section> {
        let headings = ["Throughput over time", "Capacity use over time", "Queues over time", "Groups over time"];
        let section = |(name, heading): (&str, &str)| {
            let charts = self.picture(name);
            (!charts.is_empty()).then(|| Section::new(heading, [Block::Picture(charts)]))
        };
        // A line needs two intervals.
        if self.intervals < 2 {
            return Vec::new();
        }
        PICTURES.into_iter().zip(headings).filter_map(section).collect()
    }

    fn figures_section(&self, last: &Observed) -> Option<Section> {
        let heading = if self.intervals > 0 { "Figures of the last interval" } else { "Figures" };
        let blocks = [device_table(last).into(), Block::Text(LEGEND.to_owned())];
        (!last.devices.is_empty()).then(|| Section::new(heading, blocks))
    }

    fn tiles(&self, observed: &Observed) -> Block {
        Block::Tiles(observed.devices.iter().map(|judged| self.tile(judged)).collect())
    }

    fn tile(&self, judged: &Judged) -> Tile {
        let device = &judged.interval.device;
        let util = judged.interval.columns.util_percent.map(|percent| percent / 100.0);
        let figures = [("U", judged.capacity_use), ("S", judged.saturation), ("%util", util)];
        let line = self.devices.get(device).map(|track| track.line.iter().copied().collect());
        Tile {
            name: device.clone(),
            state: verdict_words(judged.verdict),
            mood: mood(judged.verdict),
            why: judged.why.clone(),
            figures: figures.into_iter().map(|(name, part)| (name.to_owned(), part_text(part))).collect(),
            line: ("Capacity use".to_owned(), line.unwrap_or_default()),
        }
    }
}

/// Splits a sentence on how devices share their work into the finding, which is an answer, and its consequence.
fn split_sharing(sentence: &str) -> (&str, &str) {
    sentence.split_once("; ").unwrap_or((sentence, ""))
}

/// Formats the end of an interval, if it is known, as a clause of a caption.
fn until(observed: &Observed) -> String {
    let text = observed.end_unix_ms.and_then(|ms| time(ms, "%Y-%m-%d %H:%M:%S UTC"));
    text.map_or_else(String::new, |text| format!(", until {text}"))
}

/// Renders a row for each device of an interval; devices that came or went have no figures.
fn device_table(observed: &Observed) -> Table {
    let headers = ["device", "verdict", "U", "S"].into_iter().chain(COLUMNS).chain(["capacity known from"]);
    let row = |judged: &Judged| {
        let columns = COLUMNS.map(|key| column(judged.interval.columns.of_key(key)));
        let basis = match &judged.capacity_basis {
            Basis::Model(name) => name.clone(),
            Basis::HighestSeen => "the highest seen".to_owned(),
            Basis::Unknown => "nothing".to_owned(),
        };
        let mut row = vec![judged.interval.device.clone(), verdict_words(judged.verdict)];
        row.extend([part_text(judged.capacity_use), part_text(judged.saturation)]);
        row.extend(columns);
        row.push(basis);
        row
    };

    let caption = match (observed.is_since_boot, observed.duration_s) {
        (true, _) => format!("Means since the host started{}", until(observed)),
        (false, Some(duration_s)) => {
            format!("Over {}{}", format_duration_ns((duration_s.max(0.0) * 1e9) as u64), until(observed))
        }
        (false, None) => format!("Over an interval of unknown length{}", until(observed)),
    };
    Table::new(caption, headers, observed.devices.iter().map(row))
}

fn groups_section(observed: &Observed) -> Option<Section> {
    let tile = |group: &GroupObserved| {
        let effective = column(group.effective_devices);
        Tile {
            name: group.group.clone(),
            state: verdict_words(group.verdict),
            mood: mood(group.verdict),
            why: group.why.clone(),
            figures: vec![("effective devices".to_owned(), format!("{effective} of {}", group.parts.len()))],
            ..Tile::default()
        }
    };

    let row = |group: &str, part: &Part| {
        [group.to_owned(), part.device.clone(), part_text(Some(part.bytes_share)), column(part.await_ms)]
    };

    let rows = observed.groups.iter().flat_map(|group| group.parts.iter().map(|part| row(&group.group, part)));
    let table = Table::new("Parts of the bytes that were moved", ["group", "device", "part", "await, ms"], rows);
    let blocks = [Block::Tiles(observed.groups.iter().map(tile).collect()), table.into()];
    (!observed.groups.is_empty()).then(|| Section::new("Groups", blocks))
}

/// Renders the scheduling classes of running programs.
fn classes_section(classes: &[ClassRow]) -> Option<Section> {
    let ms = |ms: Option<f64>| ms.map_or_else(|| "n/a".to_owned(), |ms| format_duration_ns((ms.max(0.0) * 1e6) as u64));
    let row = |row: &ClassRow| {
        [
            format!("{} ({})", row.program, row.pid),
            row.class.clone(),
            row.disk.to_string(),
            row.shares.to_string(),
            format_iops(row.reads_per_s + row.writes_per_s),
            format_throughput_decimal(row.read_bytes_per_s + row.write_bytes_per_s),
            ms(row.queue_ms),
            ms(row.device_ms),
            part_text(row.queue_share),
            row.waited_for.clone().unwrap_or_default(),
        ]
    };

    let device = ["in queue", "in device", "of it in queue", "waits for"];
    let headers = ["program", "class", "disk", "shares", "requests/s", "rate"].into_iter().chain(device);
    let caption = "What they did in the last interval, and what they wait for";
    let table = Table::new(caption, headers, classes.iter().map(row));
    (!classes.is_empty()).then(|| Section::new("Classes of running programs", [table.into()]))
}

/// Remarks by their codes: the latest message on the first device or group that has one, and the others' names.
#[derive(Clone, Debug, Default)]
struct Remarks(BTreeMap<&'static str, (String, String, BTreeSet<String>)>);

impl Remarks {
    /// Adds the remarks on an interval: on the whole, on groups, on devices.
    fn note(&mut self, observed: &Observed) {
        let of_devices = observed.devices.iter().map(|judged| (judged.interval.device.as_str(), &judged.remarks));
        let of_groups = observed.groups.iter().map(|group| (group.group.as_str(), &group.remarks));
        let all = [("", &observed.remarks)].into_iter().chain(of_groups).chain(of_devices);
        for (name, remark) in all.flat_map(|(name, remarks)| remarks.iter().map(move |remark| (name, remark))) {
            let (first, message, others) =
                self.0.entry(remark.code).or_insert_with(|| (name.to_owned(), String::new(), BTreeSet::new()));
            if first == name {
                remark.message.clone_into(message);
            } else if others.len() < NAMES_MAX {
                others.insert(name.to_owned());
            }
        }
    }

    /// Returns the remarks of some codes as sentences.
    fn sentences(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let sentence = |(first, message, others): &(String, String, BTreeSet<String>)| {
            let of = if first.is_empty() || message.contains(first) { String::new() } else { format!("{first}: ") };
            let names = listed(others.iter(), NAMES_SHOWN);
            let also = if names.is_empty() { String::new() } else { format!(" (also {names})") };
            format!("{of}{message}{also}")
        };
        self.0.iter().filter(|(code, _)| is_wanted(code)).map(|(_, remark)| sentence(remark)).collect()
    }

    fn section(&self) -> Option<Section> {
        let sentences = self.sentences(|_| true);
        (!sentences.is_empty()).then(|| Section::new("To know when reading this", [Block::Warnings(sentences)]))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_show::page;

    use super::*;
    use crate::stat::Remark;
    use crate::stat::output::tests::{judged, observed};

    #[test]
    fn a_page_begins_with_what_is_worst_or_with_how_work_is_shared() {
        let mut history = History::default();
        let push = |history: &mut History, verdict, remark: Option<&str>| {
            let remarks = remark.map(|message| Remark { code: "like-devices", message: message.to_owned() });
            let devices = vec![judged("sda", 9.0, Verdict::Ok), judged("sdb", 9.0, verdict)];
            let remarks = remarks.into_iter().collect();
            history.push(Observed { duration_s: Some(1.0), devices, remarks, ..Observed::default() });
        };

        push(&mut history, Verdict::Ok, Some("2 disks take turns"));
        let lines = |history: &History| history.answer().unwrap().lines(usize::MAX);
        assert_eq!(lines(&history)[..2], ["2 disks take turns", "sdb: ok, the worst of 2 devices"]);

        push(&mut history, Verdict::Saturated, None);
        let said = [
            "sdb: saturated, the worst of 2 devices",
            "a \"reason\", with a comma",
            "of the time: ok 50 %, saturated 50 %",
        ];
        assert_eq!(lines(&history), said);
        assert!(page::html("", &history.recorded()).contains("<div class=\"answer heed\">\n<p><strong>sdb: saturated"));

        let devices = vec![judged("sda", 9.0, Verdict::Saturated)];
        history.push(Observed { duration_s: Some(2.0), devices, ..Observed::default() });
        assert_eq!(lines(&history)[0], "sda: saturated, the worst of 2 devices", "for longer than sdb");
    }

    #[test]
    fn a_summary_begins_with_what_is_worst() {
        let mut history = History::default();
        assert!(history.summary(false).is_empty());
        for at in 0..10 {
            let devices = vec![
                judged("sda", 0.0, Verdict::Idle),
                judged("nvme0n1", 100.0, Verdict::Ok),
                judged("nvme1n1", 100.0, if at < 3 { Verdict::Saturated } else { Verdict::Ok }),
                judged("loop0", 0.0, Verdict::Idle),
            ];
            history.push(Observed { duration_s: Some(1.0), devices, ..observed() });
        }
        let lines = history.summary(false);
        let begins = ["Summary of 10 intervals:", "nvme1n1: ok 70 %, saturated 30 %; saturated: ", "nvme0n1: ok 100 %"];
        assert!(begins.iter().all(|begin| lines.iter().any(|line| line.starts_with(begin))), "{lines:?}");
        let at = |begin: &str| lines.iter().position(|line| line.starts_with(begin));
        assert!(at("nvme1n1") < at("nvme0n1"), "{lines:?}");
        assert_eq!(lines.last().map(String::as_str), Some("idle all the time: loop0, sda"));

        let below = history.summary(true);
        let said = history.answer().unwrap().lines(usize::MAX).join("\n");
        let without = |line: &&String| !line.starts_with("nvme1n1: ");
        assert!(said.contains("of the time: ok 70 %, saturated 30 %"), "{said}");
        assert_eq!(below, lines.iter().filter(without).cloned().collect::<Vec<_>>());
    }

    #[test]
    fn a_history_sums_up_by_time_and_keeps_no_more_than_it_shows() {
        let mut history = History::default();
        history.push(Observed { is_since_boot: true, ..observed() });
        assert!(history.last().is_some_and(|last| last.is_since_boot), "better than nothing");
        let of = |verdict, seconds: f64| Observed {
            duration_s: Some(seconds),
            devices: vec![judged("nvme0n1", 100.0, verdict)],
            ..observed()
        };

        history.push(of(Verdict::Ok, 30.0));
        for _ in 0..100 {
            history.push(of(Verdict::Saturated, 0.1));
        }
        history.push(Observed { is_since_boot: true, ..observed() });
        assert!(history.last().is_some_and(|last| !last.is_since_boot), "never instead of an interval");

        let recorded = page::body(&[page::Part { title: String::new(), sections: history.recorded() }]);
        for part in [
            "Over 101 interval(s)",
            "ok 75 %, saturated 25 %",
            "imbalanced 100 %",
            "one of two does the work",
            "it does",
        ] {
            assert!(recorded.contains(part), "{part}: {recorded}");
        }

        let live = history.live(&[]);
        let Some(Block::Tiles(tiles)) = live[0].blocks.first() else { panic!("{live:?}") };
        assert_eq!((tiles[0].state.as_str(), tiles[0].line.1.len()), ("saturated", LINE_MAX));
        assert_eq!(tiles[0].figures[0], ("U".to_owned(), "12.35 %".to_owned()));
        let live = page::body(&[page::Part { title: String::new(), sections: live }]);
        for part in ["97.00 %", "1.06 of 2", "100.00", "<svg ", "i4i.2xlarge"] {
            assert!(live.contains(part), "{part}: {live}");
        }

        assert_eq!([Some(f64::NAN), None, Some(1.0)].map(part_text), ["n/a", "n/a", "100.00 %"]);
    }

    #[test]
    fn a_remark_on_many_devices_is_made_once() {
        let devices: Vec<Judged> = (0..9).map(|at| judged(&format!("sd{at}"), 100.0, Verdict::Ok)).collect();
        let mut history = History::default();
        history.push(Observed { devices, ..observed() });
        for sections in [history.live(&[]), history.recorded()] {
            let warnings = sections.iter().flat_map(|section| &section.blocks).find_map(|block| match block {
                Block::Warnings(warnings) => Some(warnings.clone()),
                _ => None,
            });
            assert_eq!(warnings.unwrap(), ["sd0: it does (also sd1, sd2, sd3, sd4, sd5 and 3 more)"]);
        }
    }
}

//! Runs cases through a [`Watch`], compares with what was so, and counts.

use std::collections::BTreeMap;

use plimsoll_observe::stat::capacity::Capacity;
use plimsoll_observe::stat::watch::{Watch, WatchOptions};
use plimsoll_observe::stat::{Facts, Judged, Observed, Verdict};

use super::samples::{self, Sample};
use super::truth::{Reference, Truth};
use super::world::{Disk, Look, Timeline};

/// How far U and S may be off.
const USE_TOLERANCE: f64 = 0.05;
const SATURATION_TOLERANCE: f64 = 0.10;
/// The parts of the verdicts that may be wrong, and that may be unclear.
const WRONG_MOST: f64 = 0.0011;
const UNCLEAR_MOST: f64 = 0.10;

/// A phase of a disk of which nothing is known but what it did in such phases.
const RISING: &str = "rising depth";

/// What was found so far.
#[derive(Default)]
pub(crate) struct Score {
    /// Cases of which one verdict is right, and those of them that were disturbed or called unknown.
    cases: usize,
    disturbed: usize,
    unclear: usize,
    /// By first acceptable verdict and the one given.
    confusion: BTreeMap<(Verdict, Verdict), usize>,
    wrong: Vec<String>,
    figures: usize,
    figures_off: Vec<String>,
    /// The largest errors of U and of S.
    worst: [f64; 2],
    /// Of how many S is far from the part of the time that requests waited: what the other form of S excuses.
    excused: usize,
    /// Intervals so near a bound that more than one verdict is right: no cases, but other verdicts are wrong.
    lenient: usize,
}

impl Score {
    /// Every phase of a timeline, once with the models of the disks and once without. Without, only what follows the
    /// first saturated phase has a U to compare: before it nobody can know what the disk does at its most.
    pub(crate) fn timeline(&mut self, timeline: &Timeline, reference: &mut Reference) {
        let looks = timeline.looks();
        for has_model in [true, false] {
            let mut watch = watch(timeline, has_model);
            let facts = facts(timeline);
            let mut is_peak_known = has_model;
            for look in &looks {
                let observed = watch.observe(&look.interval, &facts);
                let Some(number) = look.ends_phase else { continue };
                is_peak_known |= is_full(timeline.phases[number].name);
                if is_peak_known {
                    self.phase(timeline, number, look, &observed, reference, has_model);
                }
            }
        }
    }

    fn phase(
        &mut self,
        timeline: &Timeline,
        number: usize,
        look: &Look,
        observed: &Observed,
        reference: &mut Reference,
        has_model: bool,
    ) {
        let phase = &timeline.phases[number];
        let basis = if has_model { "with a model" } else { "highest seen" };
        for (at, disk) in timeline.disks.iter().enumerate() {
            let streams: Vec<_> = phase.streams.iter().filter(|stream| stream.disk == at).cloned().collect();
            let truth = reference.truth(disk, &streams, &look.moved[at], timeline.interval_ns);
            let judged = &observed.devices[at];
            let case = format!("{}, {} ({}), {basis}", timeline.name, phase.name, disk.name);
            // By the highest seen, U is that of the mix in which it was seen.
            let is_a_bound = !has_model && timeline.phases[0].name == RISING;
            if !timeline.is_disturbed && !is_a_bound {
                self.figures(&case, &truth, judged, has_model || streams.len() == 1);
            }
            let until_ns = (look.number + 1) * timeline.interval_ns;
            let in_interval =
                |stall: &(u64, u64)| stall.0 < until_ns && stall.0 + stall.1 + timeline.interval_ns > until_ns;
            let has_fault = phase.name.starts_with("at the") || phase.fault.is_some_and(|(faulty, _)| faulty == at);
            let is_cap_unknown = !has_model && !disk.healthy.caps.is_empty();
            let mut labels = truth.labels(has_fault, is_cap_unknown);
            // The means of an interval with a stall are neither those of the healthy disk nor those of a slow one.
            if disk.actual.weather.stalls.iter().any(in_interval) {
                labels.extend(truth.labels(true, is_cap_unknown));
                labels.sort();
                labels.dedup();
            }
            self.verdict(&case, &labels, judged.verdict, &truth.to_string(), judged);
            self.disturbed += usize::from(timeline.is_disturbed && labels.len() == 1);
        }
        if let Some(expected) = phase.group {
            let case = format!("{}, {}, the group, {basis}", timeline.name, phase.name);
            let group = &observed.groups[0];
            let is_capped = !has_model && expected == Verdict::Saturated;
            let accept = if is_capped { vec![expected, Verdict::Degraded] } else { vec![expected] };
            self.count(&case, &accept, group.verdict, &group.why);
        }
    }

    fn figures(&mut self, case: &str, truth: &Truth, judged: &Judged, is_peak_known: bool) {
        if let Some(found) = judged.capacity_use
            && is_peak_known
        {
            self.figure(case, 0, "U", found, [truth.capacity_use; 2]);
        }
        if let (Some(found), Some(waiting), Some(beyond)) = (judged.saturation, truth.waiting, truth.beyond_knee) {
            self.excused += usize::from((found - waiting).abs() > SATURATION_TOLERANCE);
            self.figure(case, 1, "S", found, [beyond.min(waiting), waiting.max(beyond)]);
        }
    }

    fn figure(&mut self, case: &str, which: usize, name: &str, found: f64, [least, most]: [f64; 2]) {
        let error = (least - found).max(found - most).max(0.0);
        self.figures += 1;
        self.worst[which] = self.worst[which].max(error);
        if error > [USE_TOLERANCE, SATURATION_TOLERANCE][which] {
            self.figures_off.push(format!("{case}: {name} {found:.2}, truth {least:.2} to {most:.2}"));
        }
    }

    fn verdict(&mut self, case: &str, accept: &[Verdict], found: Verdict, truth: &str, judged: &Judged) {
        let [use_, saturation] = [judged.capacity_use, judged.saturation]
            .map(|figure| figure.map_or("-".to_owned(), |figure| format!("{figure:.2}")));
        self.count(case, accept, found, &format!("truth {truth}; U {use_} S {saturation}: {}", judged.why));
    }

    fn count(&mut self, case: &str, accept: &[Verdict], found: Verdict, why: &str) {
        let is_right = accept.contains(&found);
        if let [_one] = accept {
            self.cases += 1;
            let expected = if is_right { found } else { accept[0] };
            *self.confusion.entry((expected, found)).or_default() += 1;
        } else {
            self.lenient += 1;
        }
        if is_right {
            return;
        }
        let accept: Vec<&str> = accept.iter().map(|verdict| verdict.name()).collect();
        let line = format!("{case}: {}, should be {}: {why}", found.name(), accept.join(" or "));
        if found == Verdict::Unknown {
            self.unclear += usize::from(accept.len() == 1);
            println!("{line}");
        } else {
            self.wrong.push(line);
        }
    }

    /// Every device of every report of a file.
    pub(crate) fn sample(&mut self, sample: &Sample) {
        let recorded = match sample.read() {
            Ok(recorded) => recorded,
            Err(refused) => {
                println!("{}: refused: {refused}", sample.file);
                assert_eq!(sample.reports_min, 0, "{refused}");
                return;
            }
        };
        assert!(
            recorded.intervals.len() >= sample.reports_min,
            "{}: {} reports",
            sample.file,
            recorded.intervals.len()
        );
        let mut watch = Watch::new(WatchOptions::default());
        for (report, interval) in recorded.intervals.iter().enumerate() {
            let observed = watch.observe(interval, &recorded.facts);
            for judged in &observed.devices {
                let device = &judged.interval.device;
                let label = samples::label(sample.file, report, device);
                let Some(label) = label else { panic!("{}: report {report}: {device} has no label", sample.file) };
                let case = format!("{}, report {report}, {device}", sample.file);
                // Of counters without a time only nothing has a rate.
                let is_used = judged.interval.columns.requests_per_s() != Some(0.0);
                self.verdict(&case, label.accept_of(is_used), judged.verdict, label.why, judged);
            }
        }
    }

    pub(crate) fn print(&self, title: &str) {
        let (cases, unclear, wrong) = (self.cases, self.unclear, self.wrong.len());
        println!("\n{title}: {} figures; S is right only by its other form {} times", self.figures, self.excused);
        println!("largest error: U {:.3}, S {:.3}", self.worst[0], self.worst[1]);
        println!("\n{:<16}{:<16}{:>6}", "is", "called", "cases");
        for ((is, called), count) in &self.confusion {
            println!(
                "{:<16}{:<16}{count:>6}{}",
                is.name(),
                called.name(),
                if is == called { "" } else { "  not right" }
            );
        }
        println!();
        self.figures_off.iter().chain(&self.wrong).for_each(|line| println!("{line}"));
        println!(
            "stat, {title}: {} right, {unclear} unclear, {wrong} wrong of {cases} ({} disturbed); {} without one truth",
            cases.saturating_sub(unclear + wrong),
            self.disturbed,
            self.lenient
        );
    }

    /// Fails where too much is wrong or unclear, where there are fewer than `cases_least` cases, or than `disturbed_least`
    /// disturbed ones, or where more than `excused_most` values of S are right by its other form only.
    pub(crate) fn check(&self, cases_least: usize, disturbed_least: usize, excused_most: usize) {
        assert!(self.cases >= cases_least, "only {} cases", self.cases);
        assert!(self.disturbed >= disturbed_least, "only {} cases are disturbed", self.disturbed);
        assert!(self.excused <= excused_most, "S is right only by its other form {} times", self.excused);
        assert!(
            self.figures_off.is_empty(),
            "{} figures are off:\n{}",
            self.figures_off.len(),
            self.figures_off.join("\n")
        );
        let part = |count: usize| count as f64 / self.cases as f64;
        assert!(part(self.wrong.len()) <= WRONG_MOST, "{} of {} are wrong", self.wrong.len(), self.cases);
        assert!(part(self.unclear) <= UNCLEAR_MOST, "{} of {} are unclear", self.unclear, self.cases);
    }
}

/// All disks are one group, called `all`.
fn watch(timeline: &Timeline, has_model: bool) -> Watch {
    let capacity = |disk: &Disk| (disk.device.clone(), Capacity::of_model(&disk.name, &disk.model));
    let known = timeline.disks.iter().filter(|_| has_model);
    let members = timeline.disks.iter().map(|disk| disk.device.clone()).collect();
    Watch::new(WatchOptions { capacities: known.map(capacity).collect(), groups: vec![("all".to_owned(), members)] })
}

fn facts(timeline: &Timeline) -> Facts {
    timeline.disks.iter().map(|disk| (disk.device.clone(), disk.facts.clone())).collect()
}

/// Whether a disk shows in it what it can do, or a case is about disks of which that is not known.
fn is_full(phase: &str) -> bool {
    ["saturated", "burst", "all are full", RISING].contains(&phase)
}

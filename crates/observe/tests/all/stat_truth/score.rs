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
/// The part of the verdicts that must be right.
const RIGHT_LEAST: f64 = 0.95;
/// Of how many, at least.
const CASES_LEAST: usize = 60;

/// What was found so far.
#[derive(Default)]
pub(crate) struct Score {
    cases: usize,
    /// By first acceptable verdict and the one given.
    confusion: BTreeMap<(Verdict, Verdict), usize>,
    wrong: Vec<String>,
    figures: usize,
    figures_off: Vec<String>,
    /// The largest errors of U and of S.
    worst: [f64; 2],
    /// Of how many S is far from the part of the time that requests waited: what the other form of S excuses.
    excused: usize,
    /// Cases of which more than one verdict is right.
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
            self.figures(&case, &truth, judged, has_model || streams.len() == 1);
            let has_fault = phase.name.starts_with("at the") || phase.fault.is_some_and(|(faulty, _)| faulty == at);
            let is_cap_unknown = !has_model && !disk.healthy.caps.is_empty();
            let labels = truth.labels(has_fault, is_cap_unknown);
            self.verdict(&case, &labels, judged.verdict, &truth.to_string(), judged);
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
        let expected = if is_right { found } else { accept[0] };
        self.cases += 1;
        self.lenient += usize::from(accept.len() > 1);
        *self.confusion.entry((expected, found)).or_default() += 1;
        if !is_right {
            let accept: Vec<&str> = accept.iter().map(|verdict| verdict.name()).collect();
            self.wrong.push(format!("{case}: {}, should be {}: {why}", found.name(), accept.join(" or ")));
        }
    }

    /// Every device of every report of a file.
    pub(crate) fn sample(&mut self, sample: &Sample) {
        let recorded = match sample.read() {
            Ok(recorded) => recorded,
            Err(refused) => {
                println!("{}: refused: {refused}", sample.file);
                assert_eq!(sample.reports_min, 0, "{refused}");
                self.cases += 1;
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
        println!("\n{title}: {} cases, {} figures", self.cases, self.figures);
        println!(
            "{} cases have more than one right verdict; S is right only by its other form {} times",
            self.lenient, self.excused
        );
        println!("largest error: U {:.3}, S {:.3}", self.worst[0], self.worst[1]);
        println!("\n{:<16}{:<16}{:>6}", "is", "called", "cases");
        for ((is, called), count) in &self.confusion {
            println!("{:<16}{:<16}{count:>6}{}", is.name(), called.name(), if is == called { "" } else { "  wrong" });
        }
        println!();
        self.figures_off.iter().chain(&self.wrong).for_each(|line| println!("{line}"));
    }

    /// Fails where too much is wrong, or more is excused than `lenient_most` cases with several right verdicts and
    /// `excused_most` values of S that only its other form makes right.
    pub(crate) fn check(&self, lenient_most: usize, excused_most: usize) {
        assert!(self.cases >= CASES_LEAST, "only {} cases", self.cases);
        assert!(self.lenient <= lenient_most, "{} cases have more than one right verdict", self.lenient);
        assert!(self.excused <= excused_most, "S is right only by its other form {} times", self.excused);
        let right = 1.0 - self.wrong.len() as f64 / self.cases as f64;
        assert!(
            self.figures_off.is_empty(),
            "{} figures are off:\n{}",
            self.figures_off.len(),
            self.figures_off.join("\n")
        );
        assert!(right >= RIGHT_LEAST, "{:.1} % of {} verdicts are right", right * 100.0, self.cases);
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

/// Whether a disk shows in it what it can do.
fn is_full(phase: &str) -> bool {
    ["saturated", "burst", "all are full"].contains(&phase)
}

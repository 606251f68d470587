//! The usual explanations of a slow disk, each with the evidence of two sides for and against it.
//!
//! # Why
//! People with an explanation in mind see only the evidence for it. Here each has the evidence against it, too.
//!
//! # How it works
//! Each function gathers [`Evidence`] for one hypothesis; [`Case::judge`] weighs it. Three signs carry most, and each
//! side's own verdict counts, too:
//!
//! * More requests at no longer `await` show that the side with fewer was not at the limit of the device, unless the
//!   third sign holds. If bytes did not grow too, this does not exclude a limit of bandwidth, and counts in full only
//!   if few requests were under way on a device that serves many at once.
//! * The same throughput with more under way is the flat part of the curve beyond the knee (by Little's law `await`
//!   grows in proportion): the device, or a cap in front of it, is full. A flat rate at a round figure is a cap. With
//!   few under way it shows nothing if latencies are usual or the device rests in between: a program that asks at a
//!   given rate has more under way as soon as each request takes longer.
//! * If as many under way complete less, in requests and bytes, the device, or a cap in front of it, did less than it
//!   could. Reads and writes must have the same shares for this to count in full.
//!
//! A device that serves one request after the other, such as a disk that spins, completes several times more of them in
//! sequence than at random, so that what one side did says little about the other: there the first and the third sign
//! count in part.
//!
//! # Limits
//! Round figures are 1, 1.2, 1.25, 1.5, 1.6, 2, 2.5, 3, 3.2, 4, 5, 6, 6.4, 7.5 and 8 times a power of ten, with which
//! volumes and instances are sold; about one rate in seven is within 1 % of one by chance.
//!
//! # Example
//! 3,000 IOPS at 8 under way and 3,010 at 32: full, and at a round figure, so throttled is likely.

use plimsoll_figures::units::{format_iops, format_throughput_decimal};

use super::super::{Columns, DeviceFacts, Verdict, verdict};
use super::{Context, Hypothesis, Judgement, Pair, Side, Two, change_words, mib};

/// Largest difference, as a part of the larger, of rates that count as the same.
const SAME: f64 = 0.05;
/// Ratio of rates from which one counts as more.
const MORE: f64 = 1.10;
/// Part of the requests below which writes show nothing about flushes.
const HARDLY_ANY: f64 = 0.01;
/// Ratio from which more is under way, or `await` or merges have grown.
const LONGER: f64 = 1.20;
/// Requests under way below which a device that serves many at once is not full.
const FEW_UNDER_WAY: f64 = 4.0;
/// Requests under way below which a device waits for work most of the time, so that its rates are the program's, not
/// its own; the columns' two decimals hide values below 0.01.
const HARDLY_BUSY: f64 = 0.5;
/// Figures that volumes and instances are sold with, over a power of ten.
const ROUND: [f64; 15] = [1.0, 1.2, 1.25, 1.5, 1.6, 2.0, 2.5, 3.0, 3.2, 4.0, 5.0, 6.0, 6.4, 7.5, 8.0];

/// A sentence that speaks for or against a hypothesis.
struct Evidence {
    is_for: bool,
    is_strong: bool,
    sentence: String,
}

/// The evidence gathered for a hypothesis.
#[derive(Default)]
struct Case(Vec<Evidence>);

impl Case {
    fn add(&mut self, is_for: bool, is_strong: bool, sentence: impl Into<String>) {
        self.0.push(Evidence { is_for, is_strong, sentence: sentence.into() });
    }

    fn judge(self, code: &'static str, claim: &'static str) -> Hypothesis {
        let count = |is_for, is_strong| {
            self.0.iter().filter(|evidence| evidence.is_for == is_for && evidence.is_strong == is_strong).count()
        };
        let (strong_for, strong_against) = (count(true, true), count(false, true));
        let (weak_for, weak_against) = (count(true, false), count(false, false));
        let judgement = match (strong_for > 0, strong_against > 0) {
            (false, true) => Judgement::Refuted,
            (true, false) => Judgement::Likely,
            (true, true) => Judgement::CannotBeTold,
            (false, false) if weak_for + weak_against == 0 => Judgement::CannotBeTold,
            (false, false) if weak_against > weak_for => Judgement::Unlikely,
            (false, false) => Judgement::Possible,
        };

        let decides = |evidence: &&Evidence| match judgement {
            Judgement::Refuted | Judgement::Unlikely => !evidence.is_for,
            _ => evidence.is_for,
        };
        let strongest = self.0.iter().filter(decides).max_by_key(|evidence| evidence.is_strong);
        let reason = match judgement {
            Judgement::CannotBeTold if strong_for > 0 => "the evidence contradicts itself".to_owned(),
            Judgement::CannotBeTold => "the columns do not say".to_owned(),
            _ => strongest.map(|evidence| evidence.sentence.clone()).unwrap_or_default(),
        };

        let sentences = |is_for| {
            let side = self.0.iter().filter(|evidence| evidence.is_for == is_for);
            side.map(|evidence| evidence.sentence.clone()).collect()
        };
        Hypothesis { code, claim, judgement, reason, evidence_for: sentences(true), evidence_against: sentences(false) }
    }
}

pub(super) fn all(pair: &Pair, context: &Context) -> Vec<Hypothesis> {
    let signs = Signs::of(pair, context.facts.as_ref());
    vec![
        saturated(pair, &signs).judge("saturated", "the device is at its limit"),
        flush_pressure(pair).judge("flush-pressure", "write-back and flushes press on the device"),
        throttled(pair, &signs).judge("throttled", "a cap in front of the device, or less than it could before"),
        remote(pair, context).judge("remote", "a network to the medium is the limit"),
        above(pair, &signs).judge("above-the-disk", "CPU or software above limits, or no more was asked"),
    ]
}

/// Signs that several hypotheses rest on.
struct Signs {
    /// More requests on one side at no longer `await`.
    room: Option<Sign>,
    /// The same throughput with more under way.
    knee: Option<String>,
    /// A flat rate at a figure that is sold.
    cap: Option<String>,
    /// Fewer requests and bytes on one side, with at least as many under way.
    slower: Option<Sign>,
}

/// A sign that may count in full or in part.
struct Sign {
    sentence: String,
    is_strong: bool,
}

impl Signs {
    fn of(pair: &Pair, facts: Option<&DeviceFacts>) -> Signs {
        let knee = knee(pair, facts);
        let slower = slower(pair, facts);
        let room = if slower.is_none() { room(pair, facts) } else { None };
        Signs { room, cap: knee.as_ref().and_then(|_| cap(pair)), knee, slower }
    }
}

/// Returns whether a device serves many requests at once, by its facts and name.
fn is_parallel(device: &str, facts: Option<&DeviceFacts>) -> bool {
    let is_known = facts.is_some_and(|facts| facts.is_rotational == Some(false) || facts.members.len() > 1);
    (is_known || device.starts_with("nvme")) && facts.is_none_or(|facts| facts.remote.is_none())
}

/// Finds more requests on one side at no longer `await`. Counts in full if a limit of bandwidth is excluded, too, and
/// the device serves many at once.
fn room(named: &Pair, facts: Option<&DeviceFacts>) -> Option<Sign> {
    let pair = named.rising(named.requests()?);
    let (requests, await_ms, [fewer, more]) = (pair.requests()?, pair.await_ms()?, pair.letters);
    if requests.a <= 0.0 || requests.ratio() < MORE || await_ms.ratio() > 1.0 + SAME {
        return None;
    }

    let moves_more = pair.kib().is_none_or(|kib| kib.ratio() > 1.0 + SAME);
    let few = named.queue().filter(|queue| queue.both(|queue| queue < FEW_UNDER_WAY));
    let few = few.filter(|_| is_parallel(&named.a.device, facts));
    // Fewer bytes in more requests do not exclude a limit of bandwidth on the other side; few under way do.
    if few.is_none() && pair.kib().is_some_and(|kib| kib.a > 0.0 && kib.ratio() < 1.0 - SAME) {
        return None;
    }

    let bytes = match (moves_more, few) {
        (true, _) => String::new(),
        (false, Some(Two { a, b })) => {
            format!(
                "; bytes did not grow, but {a:.1} and {b:.1} under way do not fill a device that serves many at once"
            )
        }
        (false, None) => "; bytes did not grow, so a limit of bandwidth stays open".to_owned(),
    };

    let sentence = format!(
        "{more} completes {} than {fewer} at an await of {:.2} ms, not {:.2} ms: what {fewer} did is not the limit \
         of the device{bytes}",
        change_words(requests, "more requests", "fewer requests"),
        await_ms.b,
        await_ms.a,
    );
    Some(Sign { sentence, is_strong: (moves_more && !may_be_serial(&pair, facts)) || few.is_some() })
}

/// Returns whether few requests are under way on both sides of a device that serves many at once, at its usual
/// latencies. These vary with the load.
fn is_light(pair: &Pair, facts: Option<&DeviceFacts>) -> bool {
    is_parallel(&pair.a.device, facts)
        && pair.queue().is_some_and(|queue| queue.both(|queue| queue < FEW_UNDER_WAY))
        && [pair.a, pair.b].iter().all(|side| is_usual(side, facts))
}

/// Returns whether few requests are under way and the device has none part of the time on the side with more.
fn rests(pair: &Pair, queue: Two) -> bool {
    let more = if queue.b > queue.a { pair.b } else { pair.a };
    let util_percent = more.columns.util_percent;
    // Some drivers leave %util at 0.
    queue.most() < FEW_UNDER_WAY && util_percent.is_some_and(|util| util > 0.0 && util < verdict::UTIL_HIGH_PERCENT)
}

/// Finds the same throughput on both sides, with more under way on one.
fn knee(pair: &Pair, facts: Option<&DeviceFacts>) -> Option<String> {
    let (requests, queue) = (pair.requests()?, pair.queue()?);
    if is_light(pair, facts) || rests(pair, queue) {
        return None;
    }
    let is_flat = requests.is_within(SAME) && pair.kib().is_none_or(|kib| kib.is_within(SAME));
    let is_working = requests.a > 0.0 && queue.most() > 1.0;
    (is_flat && is_working && queue.spread() >= LONGER).then(|| {
        format!(
            "with {:.1} under way in place of {:.1} it completes no more ({} and {} requests a second)",
            queue.most(),
            queue.least(),
            format_iops(requests.a),
            format_iops(requests.b)
        )
    })
}

/// Returns whether reads and writes have the same shares on both sides, within 20 points.
fn has_same_parts(pair: &Pair) -> bool {
    let write_part = |side: &Side| {
        let all = side.columns.requests_per_s().filter(|all| *all > 0.0)?;
        side.columns.writes_per_s.map(|writes| writes / all)
    };
    pair.two(write_part).is_some_and(|parts| (parts.a - parts.b).abs() < 0.2)
}

/// Returns whether neither side shows that the device serves many requests at once.
fn may_be_serial(pair: &Pair, facts: Option<&DeviceFacts>) -> bool {
    [pair.a, pair.b].iter().all(|side| verdict::may_be_serial(&side.device, facts, &side.columns))
}

/// Finds fewer requests and bytes completed with as many under way: the device changed, or a cap in front of it. Counts
/// in full if reads and writes have the same shares and the device serves many at once.
fn slower(pair: &Pair, facts: Option<&DeviceFacts>) -> Option<Sign> {
    if is_light(pair, facts) {
        return None;
    }

    // Puts the side with fewer requests last.
    let requests = pair.requests()?;
    let pair = pair.rising(Two { a: -requests.a, b: -requests.b });
    let (requests, kib, queue, [_, slow]) = (pair.requests()?, pair.kib()?, pair.queue()?, pair.letters);

    if queue.most() < HARDLY_BUSY {
        return None;
    }
    let does_less = requests.b * MORE < requests.a && kib.b * (1.0 + SAME) < kib.a;
    if !does_less || requests.b <= 0.0 || queue.b < (1.0 - SAME) * queue.a {
        return None;
    }

    let sentence = format!(
        "{slow} has {:.1} under way, not {:.1}, and completes {} a second, not {}",
        queue.b,
        queue.a,
        format_iops(requests.b),
        format_iops(requests.a)
    );
    Some(Sign { sentence, is_strong: has_same_parts(&pair) && !may_be_serial(&pair, facts) })
}

/// Returns whether requests take no longer than on a healthy device of this kind with little to do.
fn is_usual(side: &Side, facts: Option<&DeviceFacts>) -> bool {
    let columns = &side.columns;
    let size_kib = columns.moved_kib_per_s().zip(columns.requests_per_s()).map(|(kib, requests)| kib / requests);
    let usual_ms = size_kib.map(|size_kib| verdict::usual_ms(&side.device, facts, columns, size_kib));
    columns.mean_await_ms().zip(usual_ms).is_some_and(|(await_ms, usual_ms)| await_ms <= usual_ms)
}

/// Returns the sold figure at which the rates of both sides are, in words.
fn cap(pair: &Pair) -> Option<String> {
    let near = |two: Two, unit: f64, least: f64| {
        let round_of = |value: f64| round_figure(value / unit).filter(|_| value / unit >= least);
        let (a, b) = (round_of(two.a)?, round_of(two.b)?);
        (a == b).then_some(a)
    };
    let iops = pair.requests().and_then(|two| near(two, 1.0, 100.0));
    let bandwidth = || {
        let kib = pair.kib()?;
        near(kib, 1e6 / 1024.0, 10.0)
            .map(|mb| format!("{mb:.0} MB/s"))
            .or_else(|| near(kib, 1024.0, 10.0).map(|mib| format!("{mib:.0} MiB/s")))
    };
    iops.map(|iops| format!("{} IOPS", format_iops(iops))).or_else(bandwidth)
}

/// Returns the sold figure within 1 % of `value`.
fn round_figure(value: f64) -> Option<f64> {
    if !(value.is_finite() && value > 0.0) {
        return None;
    }
    let power = 10f64.powi(value.log10().floor() as i32);
    let candidates = ROUND.iter().map(|figure| figure * power).chain([10.0 * power]);
    candidates.into_iter().find(|figure| Two { a: value, b: *figure }.is_within(0.01))
}

fn saturated(pair: &Pair, signs: &Signs) -> Case {
    let mut case = Case::default();
    let uses = pair.two(|side| side.capacity_use);
    let is_free = uses.is_some_and(|uses| uses.both(|part| part < 0.7));
    if let Some(Sign { sentence, is_strong }) = &signs.room {
        case.add(false, *is_strong, sentence);
    }
    if let Some(sentence) = &signs.knee {
        case.add(true, signs.cap.is_none() && !is_free, sentence);
    }
    if let Some(Sign { sentence, .. }) = &signs.slower {
        case.add(true, false, format!("{sentence}: if its limit fell, it was at it"));
    }
    verdicts(pair, signs, &mut case);

    if let Some(uses) = uses {
        let words =
            format!("by its model {:.0} % and {:.0} % of its capacity are used", 100.0 * uses.a, 100.0 * uses.b);
        if is_free {
            case.add(false, true, words);
        } else if uses.most() >= 0.9 {
            case.add(true, true, words);
        }
    }
    if let Some(queue) = pair.queue().filter(|queue| queue.both(|queue| queue < 1.0)) {
        let words = format!("aqu-sz of {:.2} and {:.2}: on average less than one request is there", queue.a, queue.b);
        case.add(false, false, words);
    }
    if let Some(kib) = pair.kib().filter(|kib| kib.a > 0.0 && kib.is_within(SAME))
        && signs.room.is_some()
    {
        let words =
            format!("{} and {} are nearly the same, as a limit of bandwidth would have it", mib(kib.a), mib(kib.b));
        case.add(true, false, words);
    }
    case
}

/// Adds the verdict that each side has by itself.
fn verdicts(pair: &Pair, signs: &Signs, case: &mut Case) {
    let Some((a, b)) = pair.a.verdict.zip(pair.b.verdict) else { return };
    let words = format!("by themselves A is judged {} and B {}", a.name(), b.name());
    let is_free = |verdict| matches!(verdict, Verdict::Idle | Verdict::Ok | Verdict::BusyButFree);
    if [a, b].contains(&Verdict::Saturated) {
        let is_strong = signs.room.is_none() && signs.cap.is_none() && signs.slower.is_none();
        case.add(true, is_strong, words);
    } else if is_free(a) && is_free(b) {
        case.add(false, false, words);
    }
}

fn flush_pressure(pair: &Pair) -> Case {
    let mut case = Case::default();
    let Some(writes) = pair.column(|columns| columns.writes_per_s) else { return case };
    if writes.most() <= 0.0 {
        case.add(false, true, "nothing is written");
        return case;
    }
    if pair.requests().is_some_and(|all| writes.most() < HARDLY_ANY * all.least()) {
        case.add(
            false,
            true,
            format!("hardly anything is written: {:.1} and {:.1} writes a second", writes.a, writes.b),
        );
        return case;
    }
    if let Some(merged) = pair.column(|c| c.write_merged_percent).filter(|merged| merged.most() >= 10.0) {
        let words = "of the writes were merged with neighbours, as write-back of dirty pages sends them";
        case.add(true, false, format!("{:.0} % and {:.0} % {words}", merged.a, merged.b));
    }

    // Puts the side that writes more last.
    let rising = pair.rising(writes);
    if let Some(merges) = rising.column(|c| c.write_merges_per_s).filter(|merges| merges.most() > 0.0)
        && let Some(size) = rising.column(|c| c.write_size_kib)
    {
        let words = format!(
            "where more is written merges change from {:.0} to {:.0} a second and writes from {:.1} to {:.1} KiB",
            merges.a, merges.b, size.a, size.b
        );
        if merges.ratio() >= LONGER && size.ratio() >= MORE {
            case.add(true, false, words + ": more and larger runs of dirty pages");
        } else if merges.ratio() < 1.0 && size.ratio() < 1.0 {
            case.add(false, false, words + ": no larger runs of dirty pages");
        }
    }

    write_await(&rising, &mut case);
    flushes(pair, &mut case);
    case
}

fn write_await(pair: &Pair, case: &mut Case) {
    let Some((writes, await_ms)) = pair.column(|c| c.writes_per_s).zip(pair.column(|c| c.write_await_ms)) else {
        return;
    };
    // Without writes there is no `await`.
    if writes.least() == 0.0 {
        return;
    }

    let words = format!("w_await goes from {:.2} to {:.2} ms", await_ms.a, await_ms.b);
    let more = change_words(writes, "more writes", "fewer writes");
    if await_ms.ratio() >= 1.5 && writes.ratio() >= MORE {
        // Writes that wait are a sign of flushes or write-back only beside flushes or merges.
        let rates = [pair.column(|c| c.flushes_per_s), pair.column(|c| c.write_merges_per_s)];
        let parts = pair.column(|c| c.write_merged_percent);
        let is_strong = rates.into_iter().chain([parts]).flatten().any(|two| two.most() > 0.0);
        case.add(true, is_strong, format!("{words} with {more}: writes wait for writes"));
    } else if await_ms.ratio() <= 1.0 + SAME && writes.ratio() >= MORE {
        case.add(false, false, format!("{words} with {more}: pressure makes writes wait"));
    }
}

fn flushes(pair: &Pair, case: &mut Case) {
    let Some(flushes) = pair.column(|columns| columns.flushes_per_s) else { return };
    let words = format!("f/s is {:.2} and {:.2}", flushes.a, flushes.b);
    if flushes.most() <= 0.0 {
        case.add(false, false, format!("{words}: nobody asked the device to flush its cache"));
    } else if !flushes.is_within(0.2) {
        case.add(true, false, format!("{words}: one side asks for far more flushes"));
    }
}

fn throttled(pair: &Pair, signs: &Signs) -> Case {
    let mut case = Case::default();
    match (&signs.knee, &signs.cap) {
        (Some(knee), Some(cap)) => case.add(true, true, format!("{knee}, and that is a figure that is sold: {cap}")),
        (Some(knee), None) => {
            case.add(true, false, knee);
            case.add(false, false, "neither operations nor bytes a second are at a figure that is sold");
        }
        (None, _) => {}
    }

    let waits = [("A", pair.a), ("B", pair.b)];
    for (letter, side) in waits {
        if let Some((part, wait)) = side.capacity_use.zip(side.saturation)
            && part < 0.7
            && wait >= 0.4
        {
            let words = format!("requests of {letter} wait {:.0} % of their time", 100.0 * wait);
            case.add(true, true, format!("{words}, though by its model only {:.0} % is used", 100.0 * part));
        }
    }
    if [pair.a.verdict, pair.b.verdict].contains(&Some(Verdict::Degraded)) {
        case.add(true, false, "one side is judged degraded by itself: it does less than it could");
    }
    if let Some(Sign { sentence, is_strong }) = &signs.slower {
        case.add(true, *is_strong, format!("{sentence}: as if it could do less then"));
    }

    let Some(requests) = pair.requests() else { return case };
    if let Some(kib) = pair.kib().filter(|kib| kib.a > 0.0 && kib.is_within(SAME))
        && !requests.is_within(SAME)
    {
        let words = format!("{} and {} are nearly the same at different sizes", mib(kib.a), mib(kib.b));
        case.add(true, false, words + ", as a cap on bandwidth would have it");
        if round_figure(kib.a * 1024.0 / 1e6).or(round_figure(kib.a / 1024.0)).is_none() {
            let rate = format_throughput_decimal(kib.a * 1024.0);
            case.add(false, false, format!("{rate} is no figure that volumes are sold with"));
        }
    }
    if signs.slower.is_none() && requests.a > 0.0 && !requests.is_within(0.09) {
        let words = format!("operations are {} and {} a second", format_iops(requests.a), format_iops(requests.b));
        case.add(false, false, format!("{words}: no cap on them held at both"));
    }
    if signs.room.is_some() {
        case.add(false, false, "await did not grow with the rate: under a cap what is too much waits");
    }
    case
}

fn remote(pair: &Pair, context: &Context) -> Case {
    let mut case = Case::default();
    let Some(facts) = &context.facts else { return case };
    let Some(remote) = &facts.remote else {
        if facts.model.is_some() || facts.size_bytes.is_some() {
            case.add(false, true, "its host sees no network between it and the medium");
        }
        return case;
    };

    let (Some(link), Some(kib)) = (remote.link_bytes_per_s, pair.column(Columns::one_way_kib_per_s)) else {
        case.add(true, false, format!("its data is behind a network ({}) whose speed is not known", remote.kind));
        return case;
    };

    let part = kib.most() * 1024.0 / link as f64;
    let words = format!("{:.0} % of the link of {} is used", 100.0 * part, format_throughput_decimal(link as f64));
    match part {
        part if part >= 0.9 => case.add(true, true, words),
        part if part < 0.5 => case.add(false, false, words),
        _ => case.add(true, false, words),
    }
    case
}

fn above(pair: &Pair, signs: &Signs) -> Case {
    let mut case = Case::default();
    if let Some(Sign { sentence, is_strong }) = &signs.room {
        case.add(true, *is_strong, format!("{sentence}; so what limited that side sits above it"));
    }
    if let Some(sentence) = &signs.knee {
        case.add(false, true, format!("{sentence}: enough was asked of it"));
    }
    if let Some(Sign { sentence, is_strong }) = &signs.slower {
        case.add(false, *is_strong, format!("{sentence}: no less was asked of it"));
    }

    if let Some((requests, await_ms)) = pair.requests().zip(pair.await_ms())
        && requests.a > 0.0
        && requests.is_within(SAME)
        && await_ms.is_within(SAME)
    {
        case.add(true, false, "throughput and await are both the same: whatever else changed did not reach the device");
    }

    if let Some(busy) = pair.two(|side| side.cpu.map(|cpu| 100.0 - cpu.idle - cpu.iowait)) {
        let words = format!("the CPUs are busy for {:.0} % and {:.0} % of their time", busy.a, busy.b);
        if busy.most() >= 90.0 {
            case.add(true, true, words);
        } else if busy.both(|busy| busy < 50.0) && !case.0.is_empty() {
            // As the only evidence it would decide, and it proves little.
            case.add(false, false, format!("{words}; a single one that is full does not show in this mean"));
        }
    }
    case
}

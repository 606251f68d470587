//! Groups of devices: do all of them work, does the work wander, is one of them slow?
//!
//! # Why
//! Of four disks one took nearly all writes, for minutes, then the next one did. The array was never faster than one
//! disk; sums over the array and means over half an hour looked healthy. Only a comparison of the members, interval by
//! interval, shows this.
//!
//! # How it works
//! A group is named by the user, or is an array that the host knows ([`DeviceFacts::members`]). Per interval, with x
//! the bytes that each member moved:
//!
//! | figure | formula | says |
//! |---|---|---|
//! | effective devices | (sum x)^2 / sum x^2 | how many do the work; Kish's effective sample size |
//! | imbalance I | max / mean - 1 | how much more than an equal part the busiest member has |
//! | loss | 1 - mean / max | the part of the group's capacity that this split leaves unused |
//!
//! Effective devices are always over bytes. Imbalance and loss are over capacity use U instead if U of every member
//! comes from a model of the disk: a disk twice as fast rightly takes twice the bytes. A U by the highest rate seen is
//! not used: for a disk that never had its turn that rate means nothing.
//!
//! A member that is not in an interval has done nothing there: `iostat -z` leaves out idle devices. If one is in it
//! without figures (it appeared, or its counters began anew), nothing is known of the split.
//!
//! An interval is *uneven* from a loss of a third on, if the busiest member uses a tenth of its capacity or time, and
//! its part is more than 4 standard deviations above that of requests dealt by lot. Over the last [`HISTORY_MAX`]
//! intervals these are found:
//!
//! * `hot-spot-rotation`: at least half of the work was done in intervals in which one member had more than half of it;
//!   this hot member changes at least three times, but at most a third as often as by lot; and over all intervals the
//!   parts are even.
//! * `uneven`: over all intervals, and in three of four busy ones, the same member has at least half as much again as
//!   the mean.
//! * `straggler`: over the last ten intervals the `await` of a member is more than 1.5 times the median of the others',
//!   by the mean of the logarithms, which is more than three standard errors above 0. If the member also has at least
//!   1.5 times an equal part of the work, the placement is at fault, else the disk. A saturated straggler with no more
//!   than its part is degraded, and not a sign of a full group.
//!
//! Devices that are alike and belong to no group are compared, too (`LikeDevices`): a rotation among them is a remark
//! that proposes `--group`, never a verdict, since they may have work of their own.
//!
//! # Limits
//! A rotation shows after 24 intervals with a hot member and three changes; turns longer than a quarter of the history
//! show as `uneven`. If each member is as large as the array (mirrors, paths to one disk), an uneven split is a choice
//! of path and no verdict. An array inside another is judged by its own members.
//!
//! # Example
//! Parts of 97, 1, 1 and 1 %: 1.06 of 4 devices are effective, I = 2.9, and three quarters of the group are unused.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::host::is_partition;
use super::verdict::ms;
use super::{Basis, DeviceFacts, Facts, GroupObserved, Judged, Part, Remark, Verdict};

/// Most intervals remembered of a group: an hour at 2 s.
pub const HISTORY_MAX: usize = 1800;

/// Code of the remark on members that take turns.
const HOT_SPOT_ROTATION: &str = "hot-spot-rotation";

/// Loss from which an interval is uneven: the busiest member has half as much again as the mean.
const UNEVEN_LOSS: f64 = 1.0 / 3.0;
/// Smallest used part of its capacity, else of its time, at which a member is pressed: less load proves nothing.
const PRESSED: f64 = 0.1;
/// Standard deviations of a part, if requests were dealt by lot, beyond which it is no chance.
const CHANCE_DEVIATIONS: f64 = 4.0;
/// Fewest intervals with a hot member for a rotation, and fewest busy ones for a lasting difference.
const INTERVALS_MIN: usize = 24;
/// Fewest changes of the hot member in a rotation.
const ROTATION_CHANGES_MIN: usize = 3;
/// Least ratio of the changes that independent intervals would have to those of a rotation.
const ROTATION_PERSISTENCE: f64 = 3.0;
/// Number of intervals over which a straggler is judged.
const STRAGGLER_INTERVALS: usize = 10;
/// Ratio of a straggler's `await` to the median of the others', to be exceeded. Also the least ratio of its part of the
/// work to an equal one at which the placement is at fault.
const STRAGGLER_FACTOR: f64 = 1.5;
/// Standard errors above 0 that the mean logarithm of that ratio must exceed.
const STRAGGLER_Z: f64 = 3.0;

/// Largest ratio of its part to an equal one at which a straggler has no more work than its siblings.
const STRAGGLER_SHARE: f64 = 1.05;

/// The groups of a host, and their history.
#[derive(Clone, Debug, Default)]
pub struct Groups {
    named: Vec<(String, Vec<String>)>,
    states: BTreeMap<String, State>,
}

impl Groups {
    /// Returns the groups that the user named, each with its members. The host's arrays are judged in addition, except
    /// those of the same names.
    pub fn new(named: Vec<(String, Vec<String>)>) -> Groups {
        Groups { named, states: BTreeMap::new() }
    }

    /// Judges the groups in an interval of `duration_s` seconds (`None` if not known): first the user's in their order,
    /// then arrays by name. Leaves out arrays with fewer than two members among `devices`.
    pub fn observe(&mut self, devices: &[Judged], facts: &Facts, duration_s: Option<f64>) -> Vec<GroupObserved> {
        self.judge(devices, facts, duration_s, true)
    }

    /// Judges the groups by the means since the host began, without remembering these: days in one interval would
    /// outweigh all later ones.
    pub(crate) fn observe_means(&mut self, devices: &[Judged], facts: &Facts) -> Vec<GroupObserved> {
        self.judge(devices, facts, None, false)
    }

    fn judge(
        &mut self,
        devices: &[Judged],
        facts: &Facts,
        duration_s: Option<f64>,
        is_remembered: bool,
    ) -> Vec<GroupObserved> {
        let by_name: HashMap<&str, &Judged> =
            devices.iter().map(|device| (device.interval.device.as_str(), device)).collect();
        let by_hand = self.named.iter().map(|(group, members)| (group.as_str(), members.as_slice(), true));
        let is_taken = |group: &str| self.named.iter().any(|(name, _)| name == group);
        let arrays = facts.iter().filter(|(group, facts)| facts.members.len() > 1 && !is_taken(group));
        let arrays = arrays.map(|(group, facts)| (group.as_str(), facts.members.as_slice(), false));

        // Groups that are not judged now lose their history.
        let mut states = std::mem::take(&mut self.states);
        let mut observed = Vec::new();
        for (group, names, is_by_hand) in by_hand.chain(arrays) {
            let found: Vec<Option<&Judged>> = names.iter().map(|name| by_name.get(name.as_str()).copied()).collect();
            if !is_by_hand && found.iter().flatten().count() < 2 {
                continue;
            }

            let mut state = states.remove(group).filter(|state| state.members == names);
            let state = state.get_or_insert_with(|| State::new(names));
            let members: Vec<Member> = found.into_iter().map(|judged| Member::of(judged, duration_s)).collect();
            let split = Split::of(&members);
            if is_remembered {
                state.remember(&members, &split, duration_s);
            }
            observed.push(state.observe(group, &members, &split, holds_same_data(group, names, facts)));
            self.states.insert(group.to_owned(), std::mem::take(state));
        }
        observed
    }
}

/// Prefixes of the names of disks, before a number or letters.
const DISK_NAMES: [&str; 4] = ["nvme", "sd", "vd", "xvd"];

/// Watches devices that are alike and belong to no group.
#[derive(Clone, Debug, Default)]
pub(crate) struct LikeDevices(Groups);

impl LikeDevices {
    /// Compares disks of one model and size, or without facts of one kind of name, that are in none of `groups`.
    /// Returns a remark for each set whose members take turns. Unequal parts alone are usual for disks with work of
    /// their own.
    pub(crate) fn observe(
        &mut self,
        devices: &[Judged],
        groups: &[GroupObserved],
        facts: &Facts,
        duration_s: Option<f64>,
    ) -> Vec<Remark> {
        let is_grouped = |name: &str| groups.iter().flat_map(|group| &group.parts).any(|part| part.device == name);
        let mut sets: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for judged in devices {
            let name = &judged.interval.device;
            if let Some(kind) = kind_of_disk(name, facts).filter(|_| !is_grouped(name)) {
                sets.entry(kind).or_default().push(name.clone());
            }
        }

        self.0.named =
            sets.into_values().filter(|names| names.len() > 1).map(|names| (names.join(","), names)).collect();
        let observed = self.0.observe(devices, &Facts::new(), duration_s);
        let proposal = |group: &GroupObserved| {
            let found = group.remarks.iter().find(|remark| remark.code == HOT_SPOT_ROTATION)?;
            let (names, count) = (&group.group, group.parts.len());
            let effective = group
                .effective_devices
                .map_or_else(String::new, |effective| format!("; effective {effective:.2} of {count} now"));
            let message = format!(
                "{count} like devices ({}): {}{effective}. If they share one work: --group data={names}",
                names.replace(',', ", "),
                found.message,
            );
            Some(Remark { code: "like-devices", message })
        };
        observed.iter().filter_map(proposal).collect()
    }
}

/// Returns the kind of a whole disk: its model and size, else the kind of its name. `None` for partitions, arrays and
/// other devices.
fn kind_of_disk(name: &str, facts: &Facts) -> Option<String> {
    let kind = DISK_NAMES.iter().find(|kind| name.starts_with(**kind))?;
    let of_name = facts.get(name);
    if is_partition(name, facts) || of_name.is_some_and(|facts| !facts.members.is_empty()) {
        return None;
    }
    let known = of_name.and_then(|facts| Some(format!("{} {}", facts.model.as_ref()?, facts.size_bytes?)));
    Some(known.unwrap_or_else(|| (*kind).to_owned()))
}

/// Returns how many devices do the work, as if each did an equal part: (sum x)^2 / sum x^2. `None` if all are 0.
pub fn effective_devices(loads: &[f64]) -> Option<f64> {
    let squares: f64 = loads.iter().map(|load| load * load).sum();
    let sum: f64 = loads.iter().sum();
    (squares > 0.0).then(|| sum * sum / squares)
}

/// Returns how much more than an equal part the busiest has: max / mean - 1, 0 and up. `None` if all are 0.
pub fn imbalance(loads: &[f64]) -> Option<f64> {
    let sum: f64 = loads.iter().sum();
    let most = loads.iter().copied().fold(0.0, f64::max);
    (sum > 0.0).then(|| most * loads.len() as f64 / sum - 1.0)
}

/// Returns the part of the capacity of equal devices that a split leaves unused: 1 - mean / max.
fn loss(imbalance: f64) -> f64 {
    1.0 - 1.0 / (1.0 + imbalance)
}

/// Returns whether each member is as large as the array: mirrors, or paths to one disk.
fn holds_same_data(group: &str, members: &[String], facts: &Facts) -> bool {
    let size = |facts: &DeviceFacts| facts.size_bytes;
    let Some(array_bytes) = facts.get(group).and_then(size) else { return false };
    members.iter().all(|name| {
        let member_bytes = facts.get(name).and_then(size);
        member_bytes.is_some_and(|bytes| array_bytes as f64 <= 1.05 * bytes as f64)
    })
}

/// A member in an interval. A missing one has done nothing.
struct Member<'a> {
    judged: Option<&'a Judged>,
    /// `None` if not known: it has appeared or been reset, or the length of the interval is not known.
    kib_per_s: Option<f64>,
    requests: f64,
    await_ms: Option<f64>,
    /// U by a model; 0 if no requests completed.
    capacity_use: Option<f64>,
    /// Whether it uses a tenth or more of its capacity or time, so that its part matters.
    is_pressed: bool,
}

impl<'a> Member<'a> {
    fn of(judged: Option<&'a Judged>, duration_s: Option<f64>) -> Member<'a> {
        let columns = judged.map(|judged| &judged.interval.columns);
        let is_above_0 = |value: &f64| value.is_finite() && *value > 0.0;
        let requests_per_s = columns.and_then(|columns| columns.requests_per_s()).filter(is_above_0).unwrap_or(0.0);
        let modelled = judged.filter(|judged| matches!(judged.capacity_basis, Basis::Model(_)));
        let capacity_use = modelled.and_then(|judged| judged.capacity_use);
        let busy_part = capacity_use.or(columns.and_then(|columns| columns.util_percent).map(|util| util / 100.0));
        let is_idle = judged.is_none_or(|judged| judged.verdict == Verdict::Idle);
        let is_finite = |value: &f64| value.is_finite();
        Member {
            judged,
            kib_per_s: columns.map_or(Some(0.0), |columns| columns.moved_kib_per_s().filter(is_finite)),
            requests: requests_per_s * duration_s.filter(is_above_0).unwrap_or(1.0),
            await_ms: columns.and_then(|columns| columns.mean_await_ms()).filter(is_above_0),
            capacity_use: if requests_per_s > 0.0 { capacity_use } else { Some(0.0) },
            is_pressed: !is_idle && busy_part.is_none_or(|part| part >= PRESSED),
        }
    }
}

/// The quantity over which imbalance is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Measure {
    #[default]
    Bytes,
    CapacityUse,
}

/// How the work of an interval is spread.
struct Split {
    measure: Measure,
    loads: Vec<f64>,
    byte_shares: Vec<f64>,
    effective: Option<f64>,
    imbalance: f64,
    busiest: usize,
    /// The first member whose bytes are not known. With one, nothing is known of the split.
    unknown: Option<usize>,
    is_uneven: bool,
}

impl Split {
    fn of(members: &[Member]) -> Split {
        let unknown = members.iter().position(|member| member.kib_per_s.is_none());
        let known = |member: &Member| member.kib_per_s.filter(|_| unknown.is_none()).unwrap_or(0.0);
        let bytes: Vec<f64> = members.iter().map(known).collect();
        let sum: f64 = bytes.iter().sum();
        let by_use: Option<Vec<f64>> = members.iter().map(|member| member.capacity_use).collect();
        let (measure, loads) = match by_use {
            Some(loads) => (Measure::CapacityUse, loads),
            None => (Measure::Bytes, bytes.clone()),
        };

        let busiest = busiest(&loads);
        let imbalance = imbalance(&loads).unwrap_or(0.0);

        // The deviation of a part if requests were dealt by lot.
        let requests: f64 = members.iter().map(|member| member.requests).sum();
        let equal = 1.0 / members.len().max(1) as f64;
        let deviation = (equal * (1.0 - equal) / requests.max(1.0)).sqrt();
        let part = (1.0 + imbalance) * equal;
        Split {
            is_uneven: sum > 0.0
                && members.get(busiest).is_some_and(|member| member.is_pressed)
                && loss(imbalance) >= UNEVEN_LOSS - 1e-9
                && part > equal + CHANCE_DEVIATIONS * deviation,
            byte_shares: bytes.iter().map(|kib| if sum > 0.0 { kib / sum } else { 0.0 }).collect(),
            effective: effective_devices(&bytes),
            measure,
            loads,
            imbalance,
            busiest,
            unknown,
        }
    }

    /// Returns whether the interval is uneven and its busiest member has more than half of the work.
    fn is_hot(&self) -> bool {
        let most = self.loads.get(self.busiest).copied().unwrap_or(0.0);
        self.is_uneven && most > 0.5 * self.loads.iter().sum::<f64>()
    }
}

fn busiest(loads: &[f64]) -> usize {
    let most = loads.iter().enumerate().max_by(|(_, a), (_, b)| a.total_cmp(b));
    most.map_or(0, |(index, _)| index)
}

/// A past interval in which bytes were moved.
#[derive(Clone, Debug)]
struct Past {
    duration_s: Option<f64>,
    /// Work of each member over the interval: KiB, or seconds of capacity.
    work: Vec<f64>,
    /// `await` of each member and the median of the others'; empty if one of them is not known.
    against_others: Vec<(f64, f64)>,
    is_busy: bool,
    /// The busiest member, if the interval is uneven.
    uneven: Option<usize>,
    /// Whether that member has more than half of the work.
    is_hot: bool,
}

impl Past {
    /// Returns the hot member, if there is one.
    fn hot(&self) -> Option<usize> {
        self.uneven.filter(|_| self.is_hot)
    }
}

/// A member that takes longer than its siblings.
struct Straggler {
    index: usize,
    own_ms: f64,
    others_ms: f64,
    /// Whether it has no more work than its siblings.
    is_ill: bool,
    remark: Remark,
}

/// The history of a group: intervals in which bytes were moved, the latest last.
#[derive(Clone, Debug, Default)]
struct State {
    members: Vec<String>,
    measure: Measure,
    past: VecDeque<Past>,
    /// Work of each member over all of `past`.
    work: Vec<f64>,
}

impl State {
    fn new(members: &[String]) -> State {
        State { members: members.to_vec(), work: vec![0.0; members.len()], ..State::default() }
    }

    fn observe(&self, group: &str, members: &[Member], split: &Split, is_same_data: bool) -> GroupObserved {
        let stragglers: Vec<Straggler> = (0..members.len()).filter_map(|index| self.straggler(index)).collect();
        let (verdict, why) = self.verdict(members, split, is_same_data, &stragglers);
        let mut remarks = self.missing(members);
        if !is_same_data {
            remarks.extend(self.rotation().or_else(|| self.uneven()));
        }
        remarks.extend(stragglers.into_iter().map(|straggler| straggler.remark));

        let parts = self.members.iter().zip(members).zip(&split.byte_shares);
        GroupObserved {
            group: group.to_owned(),
            parts: parts
                .map(|((device, member), share)| Part {
                    device: device.clone(),
                    bytes_share: *share,
                    await_ms: member.await_ms,
                })
                .collect(),
            effective_devices: split.effective,
            verdict,
            why,
            remarks,
        }
    }

    fn remember(&mut self, members: &[Member], split: &Split, duration_s: Option<f64>) {
        if split.effective.is_none() {
            return;
        }

        // Bytes and capacity use do not add up: another measure begins a new history.
        if self.measure != split.measure {
            self.past.clear();
            self.work.fill(0.0);
            self.measure = split.measure;
        }
        if self.past.len() == HISTORY_MAX
            && let Some(oldest) = self.past.pop_front()
        {
            // Rounding may leave a remainder below 0.
            self.work.iter_mut().zip(&oldest.work).for_each(|(sum, work)| *sum = (*sum - work).max(0.0));
        }

        let seconds = duration_s.unwrap_or(1.0);
        let work: Vec<f64> = split.loads.iter().map(|load| load * seconds).collect();
        self.work.iter_mut().zip(&work).for_each(|(sum, work)| *sum += work);
        self.past.push_back(Past {
            duration_s,
            work,
            against_others: against_others(members.iter().map(|member| member.await_ms)),
            is_busy: members.iter().any(|member| member.is_pressed),
            uneven: split.is_uneven.then_some(split.busiest),
            is_hot: split.is_hot(),
        });
    }

    /// Returns the verdict on a member within its group, and the reason. A saturated member is degraded instead if it
    /// takes longer than its siblings for no more work.
    fn beside_siblings(&self, index: usize, judged: &Judged, stragglers: &[Straggler]) -> (Verdict, String) {
        let straggler = stragglers.iter().find(|straggler| straggler.index == index && straggler.is_ill);
        match straggler.filter(|_| judged.verdict == Verdict::Saturated) {
            Some(straggler) => {
                let why = format!(
                    "its siblings do the same in {}, and it takes {}",
                    ms(straggler.others_ms),
                    ms(straggler.own_ms)
                );
                (Verdict::Degraded, why)
            }
            None => (judged.verdict, judged.why.clone()),
        }
    }

    fn verdict(
        &self,
        members: &[Member],
        split: &Split,
        is_same_data: bool,
        stragglers: &[Straggler],
    ) -> (Verdict, String) {
        let judged = self.members.iter().zip(members).enumerate();
        let judged = judged.filter_map(|(index, (name, member))| Some((index, name, member.judged?)));
        let known = judged.map(|(index, name, judged)| (name, self.beside_siblings(index, judged, stragglers)));
        let known = known.filter(|(_, (verdict, _))| *verdict != Verdict::Unknown);
        let worst = known.max_by_key(|(_, (verdict, _))| *verdict);

        if let Some((name, (Verdict::Hung, why))) = &worst {
            return (Verdict::Hung, format!("{name}: {why}"));
        }
        if members.iter().all(|member| member.judged.is_none()) {
            return (Verdict::Unknown, "none of its devices is in this interval".to_owned());
        }

        if let Some(index) = split.unknown {
            return match worst {
                Some((name, (verdict, why))) if verdict > Verdict::Ok => (verdict, format!("{name}: {why}")),
                _ => (Verdict::Unknown, format!("what {} moved in this interval is not known", self.name(index))),
            };
        }

        let (count, effective) = (members.len(), split.effective.unwrap_or(0.0));
        if split.effective.is_none() {
            return (worst.map_or(Verdict::Unknown, |(_, (verdict, _))| verdict), "nothing was moved".to_owned());
        }
        if split.is_uneven && !is_same_data {
            return (Verdict::Imbalanced, self.uneven_words(split));
        }

        let least = split.byte_shares.iter().copied().fold(1.0, f64::min);
        let most = split.byte_shares.iter().copied().fold(0.0, f64::max);
        let parts = format!("parts of {} to {}", percent(least), percent(most));
        let spread = format!("{effective:.2} of {count} devices effective, {parts} of the bytes");
        match worst {
            None => (Verdict::Unknown, format!("no member has a verdict; {spread}")),
            Some((name, (verdict, why))) if verdict > Verdict::Ok => (verdict, format!("{name}: {why}")),
            Some((_, (verdict, _))) if split.is_uneven && is_same_data => {
                (verdict, format!("{spread}; each holds all data, so this is a choice of path"))
            }
            Some((_, (verdict, _))) => (verdict, spread),
        }
    }

    fn uneven_words(&self, split: &Split) -> String {
        let share = split.byte_shares.get(split.busiest).copied().unwrap_or(0.0);
        let relative = match split.measure {
            Measure::Bytes => "",
            Measure::CapacityUse => ", by capacity use",
        };
        format!(
            "{} takes {} of the bytes: {:.2} of {} devices effective, {} of the group unused when it is full{relative}",
            self.name(split.busiest),
            percent(share),
            split.effective.unwrap_or(0.0),
            self.members.len(),
            percent(loss(split.imbalance)),
        )
    }

    fn missing(&self, members: &[Member]) -> Vec<Remark> {
        let missing = self.members.iter().zip(members).filter(|(_, member)| member.judged.is_none());
        let names: Vec<&str> = missing.map(|(name, _)| name.as_str()).collect();
        if names.is_empty() {
            return Vec::new();
        }
        let message = format!("not in this interval, and counted as doing nothing: {}", names.join(", "));
        vec![Remark { code: "member-missing", message }]
    }

    fn rotation(&self) -> Option<Remark> {
        let places = self.past.iter().enumerate();
        let hot: Vec<(usize, usize)> = places.filter_map(|(place, past)| Some((place, past.hot()?))).collect();
        let steps = hot.iter().zip(hot.iter().skip(1));
        let changed_at: Vec<usize> = steps.filter(|(a, b)| a.1 != b.1).map(|(_, (place, _))| *place).collect();
        let (begin, end, changes) = (hot.first()?.0, *changed_at.last()?, changed_at.len());
        if hot.len() < INTERVALS_MIN || changes < ROTATION_CHANGES_MIN {
            return None;
        }

        let mut turns = vec![0.0; self.members.len()];
        hot.iter().for_each(|(_, index)| turns.iter_mut().skip(*index).take(1).for_each(|count| *count += 1.0));
        // Dealt by lot, the hot member changes in 1 - sum p^2 of all steps, with p its share of the turns.
        let by_lot = (hot.len() - 1) as f64 * (1.0 - 1.0 / effective_devices(&turns)?);
        let work: f64 = self.work.iter().sum();
        let hot_work: f64 = self.past.iter().filter(|past| past.is_hot).flat_map(|past| &past.work).sum();
        let is_even = loss(imbalance(&self.work)?) < UNEVEN_LOSS;
        if changes as f64 * ROTATION_PERSISTENCE > by_lot || !is_even || hot_work < 0.5 * work {
            return None;
        }

        let least = self.work.iter().copied().fold(f64::INFINITY, f64::min) / work;
        let most = self.work.iter().copied().fold(0.0, f64::max) / work;
        let message = format!(
            "the hot device changed {changes} times in {}: each in turn has most of the work for about {}, though over \
             all of that time their parts are {} to {}; means hide it, and the group does what one device can",
            lasting(self.past.iter(), 1.0),
            lasting(self.past.range(begin..end), 1.0 / changes as f64),
            percent(least),
            percent(most),
        );
        Some(Remark { code: HOT_SPOT_ROTATION, message })
    }

    fn uneven(&self) -> Option<Remark> {
        let work = &self.work;
        let busy = self.past.iter().filter(|past| past.is_busy).count();
        if busy < INTERVALS_MIN || loss(imbalance(work)?) < UNEVEN_LOSS - 1e-9 {
            return None;
        }

        let busiest = busiest(work);
        let uneven = self.past.iter().filter(|past| past.uneven == Some(busiest)).count();
        let share = work.get(busiest)? / work.iter().sum::<f64>();
        // A single large burst, or chance among few requests, is not lasting.
        if 4 * uneven < 3 * busy {
            return None;
        }

        let what = match self.measure {
            Measure::Bytes => "bytes",
            Measure::CapacityUse => "work, by capacity use",
        };
        let message = format!(
            "{} had {} of the {what} over {}: where data is placed does not change with time",
            self.name(busiest),
            percent(share),
            lasting(self.past.iter(), 1.0),
        );
        Some(Remark { code: "uneven", message })
    }

    fn straggler(&self, index: usize) -> Option<Straggler> {
        let recent = || self.past.iter().rev().take(STRAGGLER_INTERVALS);
        let ratios: Option<Vec<(f64, f64)>> = recent().map(|past| past.against_others.get(index).copied()).collect();
        let ratios = ratios.filter(|ratios| ratios.len() == STRAGGLER_INTERVALS)?;

        let logarithms: Vec<f64> = ratios.iter().map(|(own, others)| (own / others).ln()).collect();
        let count = logarithms.len() as f64;
        let mean = logarithms.iter().sum::<f64>() / count;
        let variance = logarithms.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        if mean <= STRAGGLER_FACTOR.ln() || mean <= STRAGGLER_Z * (variance / count).sqrt() {
            return None;
        }

        let own_work: f64 = recent().filter_map(|past| past.work.get(index)).sum();
        let share = own_work / recent().flat_map(|past| &past.work).sum::<f64>();
        let equal = 1.0 / self.members.len() as f64;
        let fault = if share >= STRAGGLER_FACTOR * equal {
            format!("it has {} of the work, not {}: the placement is at fault", percent(share), percent(equal))
        } else {
            format!(
                "with {} of the work, where {} is an equal part: the disk is at fault",
                percent(share),
                percent(equal)
            )
        };

        let mean_of = |pick: fn(&(f64, f64)) -> f64| ratios.iter().map(pick).sum::<f64>() / count;
        let (own_ms, others_ms) = (mean_of(|(own, _)| *own), mean_of(|(_, others)| *others));
        let message = format!(
            "{} took {own_ms:.2} ms over the last {STRAGGLER_INTERVALS} intervals, the median of the others \
             {others_ms:.2} ms; {fault}",
            self.name(index),
        );
        let remark = Remark { code: "straggler", message };
        Some(Straggler { index, own_ms, others_ms, is_ill: share <= STRAGGLER_SHARE * equal, remark })
    }

    fn name(&self, index: usize) -> &str {
        self.members.get(index).map_or("", String::as_str)
    }
}

/// Returns the `await` of each member and the median of the others'; empty if one of them is not known, or there is
/// only one member.
fn against_others(await_ms: impl Iterator<Item = Option<f64>>) -> Vec<(f64, f64)> {
    let Some(await_ms) = await_ms.collect::<Option<Vec<f64>>>().filter(|await_ms| await_ms.len() > 1) else {
        return Vec::new();
    };
    let mut order: Vec<usize> = (0..await_ms.len()).collect();
    order.sort_by(|a, b| await_ms[*a].total_cmp(&await_ms[*b]));
    let others = await_ms.len() - 1;
    let mut against = vec![(0.0, 0.0); await_ms.len()];
    for (rank, index) in order.iter().enumerate() {
        // The order without this member.
        let at = |place: usize| await_ms[order[place + usize::from(place >= rank)]];
        against[*index] = (await_ms[*index], f64::midpoint(at((others - 1) / 2), at(others / 2)));
    }
    against
}

/// Formats the total length of intervals, times `factor`; counts intervals if one length is not known.
fn lasting<'a>(past: impl Iterator<Item = &'a Past> + Clone, factor: f64) -> String {
    let seconds: Option<f64> = past.clone().map(|past| past.duration_s).sum();
    match seconds.map(|seconds| seconds * factor) {
        Some(seconds) if seconds >= 120.0 => format!("{:.1} min", seconds / 60.0).replace(".0 min", " min"),
        Some(seconds) => format!("{seconds:.0} s"),
        None => format!("{:.0} intervals", past.count() as f64 * factor),
    }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests;

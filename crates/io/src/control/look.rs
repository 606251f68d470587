//! Asking the shards what is going on, without holding one up.
//!
//! # Why
//! What a shard knows of its classes lies in its own memory. It must be asked, and it must not matter if it does not answer.
//!
//! # How it works
//! Each shard gets a message and looks when it reads its mail; it copies its counters and goes on. Whoever asks waits until
//! all have answered or [`DEADLINE`] is over; shards without an answer are named, and not asked again before they have
//! answered the last question. What was learned less than [`FRESH`] ago is told again, so that many clients cost no more
//! than one.
//!
//! # Limits
//! The shards are looked at one after the other, not at one moment.
//!
//! # Example
//! A client asks 1000 times a second: each shard is asked 100 times a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use plimsoll_core::{ClassStats, Histogram, WaitReason};

use super::protocol::{ClassState, DiskState, Percentiles, Recent, Snapshot};
use crate::class::ClassInfo;
use crate::mailbox::Message;
use crate::queues::ClassView;
use crate::reactor::Reactor;
use crate::sys::clock::now_ns;
use crate::topology::Topology;

/// How long the shards have for their answers.
const DEADLINE: Duration = Duration::from_millis(200);
/// How long an answer is good enough for the next question.
const FRESH: Duration = Duration::from_millis(10);

/// What was learned at one time.
pub(super) struct Look {
    at_ns: u64,
    missing_shards: Vec<u16>,
    /// By disk, then by number of the class.
    disks: Vec<BTreeMap<usize, ClassView>>,
}

struct ShardView {
    shard: u16,
    now_ns: u64,
    disks: Vec<Vec<ClassView>>,
}

/// A question under way; asked or dropped unread, it is over.
struct Question {
    is_asked: Arc<AtomicBool>,
    answers: Sender<ShardView>,
}

impl Question {
    fn answer(&self, reactor: &Reactor) {
        let disks = (0..reactor.topology().disks()).map(|disk| reactor.class_views(disk)).collect();
        // Whoever asked may have gone meanwhile.
        let _ = self.answers.send(ShardView { shard: reactor.shard(), now_ns: reactor.now_ns(), disks });
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.is_asked.store(false, Ordering::Release);
    }
}

/// See the module's documentation.
pub(super) struct Looker {
    topology: Topology,
    is_asked: Vec<Arc<AtomicBool>>,
    last: Option<(Instant, Arc<Look>)>,
}

impl Looker {
    pub(super) fn new(topology: &Topology) -> Looker {
        let is_asked = (0..topology.shards()).map(|_| Arc::default()).collect();
        Looker { topology: topology.clone(), is_asked, last: None }
    }

    pub(super) fn look(&mut self) -> Arc<Look> {
        if let Some((_, look)) = self.last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Arc::clone(look);
        }
        let answers = self.ask();
        let look = Arc::new(self.collect(&answers, Instant::now() + DEADLINE));
        self.last = Some((Instant::now(), Arc::clone(&look)));
        look
    }

    fn ask(&self) -> Receiver<ShardView> {
        let (sender, answers) = channel();
        for (shard, is_asked) in self.is_asked.iter().enumerate() {
            if is_asked.swap(true, Ordering::AcqRel) {
                continue;
            }
            let question = Question { is_asked: Arc::clone(is_asked), answers: sender.clone() };
            let look = Message::Look(Box::new(move |reactor| question.answer(reactor)));
            self.topology.mailboxes().send(shard as u16, look);
        }
        answers
    }

    /// What has been answered by `until`.
    fn collect(&self, answers: &Receiver<ShardView>, until: Instant) -> Look {
        let mut disks: Vec<BTreeMap<usize, ClassView>> = Vec::new();
        disks.resize_with(usize::from(self.topology.disks()), BTreeMap::new);
        let mut missing: Vec<u16> = (0..self.topology.shards()).collect();
        let mut at_ns = 0;
        // Until the time is over, or nobody is left who could answer.
        while let Ok(view) = answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
            missing.retain(|shard| *shard != view.shard);
            at_ns = at_ns.max(view.now_ns);
            for (disk, classes) in disks.iter_mut().zip(view.disks) {
                classes.into_iter().for_each(|class| join(disk, class));
            }
        }
        Look { at_ns: if at_ns == 0 { now_ns() } else { at_ns }, missing_shards: missing, disks }
    }

    /// `now` in words, with rates since `before`.
    pub(super) fn snapshot(&self, now: &Look, before: Option<&Look>) -> Snapshot {
        // With a shard missing, differences mean nothing.
        let is_whole = |look: &&Look| look.missing_shards.is_empty();
        let before = before.filter(is_whole).filter(|_| is_whole(&now)).filter(|before| before.at_ns < now.at_ns);
        let table = self.topology.classes().list();
        let disks = (0..self.topology.disks()).filter_map(|disk| self.disk_state(disk, now, before, &table));
        Snapshot {
            at_ns: now.at_ns,
            over_ns: before.map(|before| now.at_ns - before.at_ns),
            missing_shards: now.missing_shards.clone(),
            disks: disks.collect(),
        }
    }

    fn disk_state(&self, number: u16, now: &Look, before: Option<&Look>, table: &[ClassInfo]) -> Option<DiskState> {
        let disk = self.topology.disk(number)?;
        let model = (!disk.is_unlimited()).then(|| disk.snapshot());
        let (views, old) = (now.disks.get(usize::from(number))?, before.and_then(|b| b.disks.get(usize::from(number))));
        let seconds = before.map_or(0.0, |before| (now.at_ns - before.at_ns) as f64 / 1e9);
        let shown = views.iter().filter_map(|(at, view)| {
            let info = table.get(*at).filter(|info| !info.removed)?;
            Some(class_state(info, view, old.and_then(|old| old.get(at)), seconds))
        });
        Some(DiskState {
            disk: number,
            mode: self.topology.mode(number)?.into(),
            window_ns: model.map(|model| model.window_ns),
            window_max_ns: model.map(|model| model.bound_ns),
            in_flight_ns: model.map(|model| model.in_flight_ns),
            capacity_scale: model.map(|model| model.capacity_scale),
            tokens_ns: disk.tokens_ns(now.at_ns),
            tokens_max_ns: model.map(|_| disk.effective_goal_ns()),
            classes: shown.collect(),
        })
    }
}

fn join(classes: &mut BTreeMap<usize, ClassView>, view: ClassView) {
    match classes.get_mut(&view.class.index()) {
        Some(known) => known.merge(&view),
        None => drop(classes.insert(view.class.index(), view)),
    }
}

fn class_state(info: &ClassInfo, view: &ClassView, before: Option<&ClassView>, seconds: f64) -> ClassState {
    let stats = &view.stats;
    // Counters that have become less began anew.
    let before = before.filter(|old| {
        old.stats.read.requests <= stats.read.requests && old.stats.write.requests <= stats.write.requests
    });
    let of = |pick: fn(&plimsoll_core::Latencies) -> &Histogram| {
        let old = before.and_then(|before| before.latencies.as_deref()).map(pick);
        view.latencies.as_deref().map_or(Percentiles::default(), |latencies| percentiles(pick(latencies), old))
    };
    ClassState {
        class: info.name.to_string(),
        shares: info.shares,
        queued: stats.queued.into(),
        in_flight: stats.in_flight.into(),
        oldest_wait_ns: view.delay_ns,
        waits_for: view.waits_for.map(|reason| reason.name().to_owned()),
        reads: stats.read.requests,
        writes: stats.write.requests,
        read_bytes: stats.read.bytes,
        written_bytes: stats.write.bytes,
        errors: stats.errors,
        waited_ns: by_reason(|reason| stats.waited_for_ns(reason)),
        recent: before.map(|before| recent(stats, &before.stats, seconds)),
        queue_latency: of(|latencies| &latencies.queue),
        device_latency: of(|latencies| &latencies.device),
        total_latency: of(|latencies| &latencies.total),
    }
}

fn by_reason<T>(of: impl Fn(WaitReason) -> T) -> BTreeMap<String, T> {
    WaitReason::ALL.into_iter().map(|reason| (reason.name().to_owned(), of(reason))).collect()
}

fn recent(now: &ClassStats, before: &ClassStats, seconds: f64) -> Recent {
    let rate = |now: u64, before: u64| if seconds > 0.0 { now.saturating_sub(before) as f64 / seconds } else { 0.0 };
    Recent {
        read_iops: rate(now.read.requests, before.read.requests),
        write_iops: rate(now.write.requests, before.write.requests),
        read_bytes_per_s: rate(now.read.bytes, before.read.bytes),
        write_bytes_per_s: rate(now.write.bytes, before.write.bytes),
        waited: by_reason(|reason| rate(now.waited_for_ns(reason), before.waited_for_ns(reason)) / 1e9),
    }
}

/// Of what `now` has counted and `before` had not.
fn percentiles(now: &Histogram, before: Option<&Histogram>) -> Percentiles {
    let old: BTreeMap<u64, u32> = before.map(|before| before.iter().collect()).unwrap_or_default();
    let new: Vec<(u64, u64)> = now
        .iter()
        .map(|(ns, count)| (ns, u64::from(count.saturating_sub(old.get(&ns).copied().unwrap_or(0)))))
        .filter(|(_, count)| *count > 0)
        .collect();
    let count: u64 = new.iter().map(|(_, count)| count).sum();
    let at = |part: f64| {
        let rank = ((part * count as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let reaches = |(_, count): &&(u64, u64)| {
            seen += count;
            seen >= rank
        };
        new.iter().find(reaches).map_or(0, |(ns, _)| *ns)
    };
    Percentiles { count, p50_ns: at(0.5), p99_ns: at(0.99), p99_9_ns: at(0.999) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_is_new() {
        let mut before = Histogram::new();
        (0..1000).for_each(|_| before.record(50));
        let mut now = before.clone();
        (0..98).for_each(|_| now.record(10));
        (0..2).for_each(|_| now.record(60));
        assert_eq!(percentiles(&now, Some(&before)), Percentiles { count: 100, p50_ns: 10, p99_ns: 60, p99_9_ns: 60 });
        assert_eq!(percentiles(&now, None).p50_ns, 50);
        assert_eq!(percentiles(&now, Some(&now)), Percentiles::default());
    }
}

//! Asks the shards for their counters, without delaying a shard.
//!
//! # Why
//! The counters of a shard's classes are in the shard's own memory, so each must be asked, and one that does not answer
//! must not block the rest.
//!
//! # How it works
//! Each shard gets a message, and copies its counters when it reads its mail. The caller waits until all have answered
//! or [`DEADLINE`] has passed. Shards without an answer are listed, and not asked again before they have answered the
//! last question. Their figures are those of their last answer, so that counters do not fall while a shard is busy; an
//! answer that comes too late for one sample counts in the next. The counters of shards that have ended stay in the
//! sums ([`crate::retired`]). A sample that is younger than [`FRESH`] is returned again, so that many clients cost as
//! little as one.
//!
//! # Limits
//! The shards are read one after the other, not at one moment. A shard that never answered has no figures.
//!
//! # Example
//! A client asks 1000 times a second: each shard is asked 100 times a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use crate::mailbox::Message;
use crate::queues::{ClassView, ShardQueues};
use crate::retired::{Figures, join};
use crate::sys::clock::now_ns;
use crate::topology::Topology;

/// Longest wait for the shards' answers.
const DEADLINE: Duration = Duration::from_millis(200);
/// Age up to which a sample is returned again.
const FRESH: Duration = Duration::from_millis(10);

/// The figures of one sample.
pub(crate) struct Sample {
    /// Time on the shards' clock.
    pub(crate) at_ns: u64,
    pub(crate) missing_shards: Vec<u16>,
    /// By disk, then by number of the class.
    pub(crate) disks: Vec<Figures>,
}

struct ShardView {
    shard: u16,
    /// The lives of the shard that had ended before this one.
    lives: u64,
    now_ns: u64,
    disks: Vec<Vec<ClassView>>,
}

impl ShardView {
    /// Copies the figures of a shard or a gate, in a topology with this number of disks.
    fn of(queues: &dyn ShardQueues, disks: u16) -> ShardView {
        let now_ns = queues.now_ns();
        let disks = (0..disks).map(|disk| queues.class_views(now_ns, disk)).collect();
        ShardView { shard: queues.shard(), lives: queues.lives_before(), now_ns, disks }
    }
}

/// A question to a shard. Dropping it, answered or not, ends it.
struct Question {
    is_asked: Arc<AtomicBool>,
    answers: Sender<ShardView>,
    /// The number of disks.
    disks: u16,
}

impl Question {
    fn answer(&self, queues: &dyn ShardQueues) {
        // The caller may have stopped waiting.
        let _ = self.answers.send(ShardView::of(queues, self.disks));
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.is_asked.store(false, Ordering::Release);
    }
}

/// Samples the counters of the shards; see the module's documentation.
pub(crate) struct Sampler {
    topology: Topology,
    is_asked: Vec<Arc<AtomicBool>>,
    /// The last answer of each shard.
    views: Vec<Option<ShardView>>,
    /// Channels on which answers to earlier questions may still come.
    late: Vec<Receiver<ShardView>>,
    last: Option<(Instant, Arc<Sample>)>,
}

impl Sampler {
    pub(crate) fn new(topology: &Topology) -> Sampler {
        let is_asked = (0..topology.shards()).map(|_| Arc::default()).collect();
        let views = (0..topology.shards()).map(|_| None).collect();
        Sampler { topology: topology.clone(), is_asked, views, late: Vec::new(), last: None }
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    pub(crate) fn sample(&mut self) -> Arc<Sample> {
        if let Some((_, sample)) = self.last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Arc::clone(sample);
        }
        self.take_late();
        let missing_shards = self.collect(Instant::now() + DEADLINE);
        let sample = Arc::new(self.sum(missing_shards));
        self.last = Some((Instant::now(), Arc::clone(&sample)));
        sample
    }

    /// Takes the answers since the last sample, and drops the channels on which none can come any more.
    fn take_late(&mut self) {
        for answers in std::mem::take(&mut self.late) {
            let is_over = loop {
                match answers.try_recv() {
                    Ok(view) => self.keep(view),
                    Err(error) => break error == TryRecvError::Disconnected,
                }
            };
            if !is_over {
                self.late.push(answers);
            }
        }
    }

    fn keep(&mut self, view: ShardView) {
        if let Some(place) = self.views.get_mut(usize::from(view.shard)) {
            *place = Some(view);
        }
    }

    /// Reads the gates, which need no question. Returns the shards whose places they hold.
    fn read_gates(&mut self) -> Vec<u16> {
        let gates = self.topology.gates();
        for gate in &gates {
            self.keep(ShardView::of(gate.as_ref(), self.topology.disks()));
        }
        gates.iter().map(|gate| gate.shard()).collect()
    }

    fn ask(&self, gates: &[u16]) -> Receiver<ShardView> {
        let (sender, answers) = channel();
        for (shard, is_asked) in self.is_asked.iter().enumerate() {
            if gates.contains(&(shard as u16)) || is_asked.swap(true, Ordering::AcqRel) {
                continue;
            }
            let (is_asked, answers) = (Arc::clone(is_asked), sender.clone());
            let question = Question { is_asked, answers, disks: self.topology.disks() };
            let question = Message::Read(Box::new(move |queues| question.answer(queues)));
            self.topology.mailboxes().send(shard as u16, question);
        }
        answers
    }

    /// Asks the shards, and keeps the answers that come by `until`. Returns the shards that have not answered.
    fn collect(&mut self, until: Instant) -> Vec<u16> {
        let gates = self.read_gates();
        let answers = self.ask(&gates);
        let mut missing: Vec<u16> = (0..self.topology.shards()).filter(|shard| !gates.contains(shard)).collect();
        loop {
            match answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(view) => {
                    missing.retain(|shard| *shard != view.shard);
                    self.keep(view);
                }
                // No shard is left that could answer.
                Err(RecvTimeoutError::Disconnected) => return missing,
                Err(RecvTimeoutError::Timeout) => {
                    self.late.push(answers);
                    return missing;
                }
            }
        }
    }

    /// Adds up the last answers of all shards, and the counters of those that have ended.
    fn sum(&self, missing_shards: Vec<u16>) -> Sample {
        let retired = self.topology.retired();
        let mut disks = retired.disks().to_vec();
        disks.resize_with(usize::from(self.topology.disks()), Figures::new);
        let mut at_ns = 0;
        // The counters of a shard that has ended since its answer are in `retired`.
        for view in self.views.iter().flatten().filter(|view| view.lives == retired.lives(view.shard)) {
            at_ns = at_ns.max(view.now_ns);
            for (disk, classes) in disks.iter_mut().zip(&view.disks) {
                classes.iter().for_each(|class| join(disk, class));
            }
        }
        Sample { at_ns: if at_ns == 0 { now_ns() } else { at_ns }, missing_shards, disks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::OpenOptions;
    use crate::backend::memory::MemoryBackend;
    use crate::buffer::AlignedBuf;
    use crate::core::Op;
    use crate::{Class, Classes, DiskSetup, Gate, Reactor, Shard};

    /// Counters of the default class on the only disk: writes, and latencies of writes.
    fn counted(sampler: &mut Sampler) -> (u64, u64) {
        sampler.last = None;
        let sample = sampler.sample();
        let view = &sample.disks[0][&Class::DEFAULT.index()];
        assert_eq!((view.stats.queued, view.stats.in_flight), (0, 0));
        (view.stats.write.requests, view.latencies[1].as_ref().map_or(0, |latencies| latencies.total.count()))
    }

    /// The counters of a replaced gate or shard were gone, and the sums fell.
    #[test]
    fn counters_of_a_shard_that_is_replaced_stay() {
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let mut early = Sampler::new(&topology);
        let mut expected = 0;
        for calls in [3, 1] {
            let gate = Gate::new(&topology, 0, 0).unwrap();
            for _ in 0..calls {
                gate.enter(Class::DEFAULT, Op::Write, 512).unwrap().end(Ok(512));
            }
            expected += calls;
            assert_eq!(counted(&mut early), (expected, expected));
        }
        assert_eq!(counted(&mut early), (expected, expected), "after the end of the last gate, too");

        for writes in [2, 1] {
            let backend = MemoryBackend::new(topology.memory()).unwrap();
            let shard = Shard::new(Reactor::new(0, &topology, Box::new(backend)).unwrap());
            let how = OpenOptions { write: true, create_new: expected == 4, ..OpenOptions::default() };
            let file = topology.file("file".as_ref(), how, 0);
            for _ in 0..writes {
                let buffer = AlignedBuf::new(512).unwrap();
                shard.block_on(shard.write_at(&file, Class::DEFAULT, 0, buffer)).unwrap().0.unwrap();
            }
            expected += writes;
            drop((file, shard));
            // One that has asked before, and one that has not.
            assert_eq!((counted(&mut early).0, counted(&mut Sampler::new(&topology)).0), (expected, expected));
        }

        let backend = MemoryBackend::new(topology.memory()).unwrap();
        Reactor::new(0, &topology, Box::new(backend)).unwrap().reset_stats();
        assert_eq!((counted(&mut early), counted(&mut Sampler::new(&topology))), ((0, 0), (0, 0)));
    }
}

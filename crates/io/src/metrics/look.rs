//! Asking the shards what is going on, without holding one up.
//!
//! # Why
//! What a shard knows of its classes lies in its own memory. It must be asked, and it must not matter if it does not
//! answer.
//!
//! # How it works
//! Each shard gets a message and looks when it reads its mail; it copies its counters and goes on. Whoever asks waits
//! until all have answered or [`DEADLINE`] is over; shards without an answer are named, and not asked again before they
//! have answered the last question. What was learned less than [`FRESH`] ago is told again, so that many clients cost
//! no more than one.
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
pub(crate) struct Look {
    /// By the shards' clock.
    pub(crate) at_ns: u64,
    pub(crate) missing_shards: Vec<u16>,
    /// By disk, then by number of the class.
    pub(crate) disks: Vec<BTreeMap<usize, ClassView>>,
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
pub(crate) struct Looker {
    topology: Topology,
    is_asked: Vec<Arc<AtomicBool>>,
    last: Option<(Instant, Arc<Look>)>,
}

impl Looker {
    pub(crate) fn new(topology: &Topology) -> Looker {
        let is_asked = (0..topology.shards()).map(|_| Arc::default()).collect();
        Looker { topology: topology.clone(), is_asked, last: None }
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    pub(crate) fn look(&mut self) -> Arc<Look> {
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
}

fn join(classes: &mut BTreeMap<usize, ClassView>, view: ClassView) {
    match classes.get_mut(&view.class.index()) {
        Some(known) => known.merge(&view),
        None => drop(classes.insert(view.class.index(), view)),
    }
}

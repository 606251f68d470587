//! Whatever is done to a queue in whatever order: each request ends exactly once, with the result that a naive
//! reference computes, in its turn, and every counter is what counting afresh gives.

use std::collections::{BTreeMap, VecDeque};

use crate::common::{KIB, MS, queue_of, usual};
use plimsoll_core::{
    CANCELLED, Cancel, ClassId, CostModel, DiskConfig, Dispatch, Failure, Finished, GroupId, IoQueue, Mode, Op,
    Outcome, Progress, QueueConfig, QueueError, RequestId, Stopped,
};
use proptest::prelude::*;

const MAX_REQUESTS: u32 = 24;
const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::Allocate];
const LENGTHS: [u32; 8] = [0, 1, 512, 4 * KIB, 64 * KIB + 3, 800 * KIB, 3000 * KIB, 40_000 * KIB];

/// One thing done to the queue; numbers choose among what there is at that moment.
#[derive(Clone, Copy, Debug)]
enum Step {
    Enqueue { class: usize, op: usize, length: usize },
    Poll,
    Complete { piece: usize, kind: u8, bytes: u32 },
    Refuse { piece: usize },
    Cancel { request: usize },
    SetShares { class: usize, shares: u32 },
    AddClass { grouped: bool, shares: u32 },
    RemoveClass { class: usize },
    Busy,
    Wait { ns: u64 },
}

fn any_step() -> impl Strategy<Value = Step> {
    let n = any::<usize>();
    prop_oneof![
        8 => (n, 0..OPS.len() * 4, 0..LENGTHS.len())
            .prop_map(|(class, op, length)| Step::Enqueue { class, op, length }),
        10 => Just(Step::Poll),
        8 => (n, 0..10_u8, any::<u32>()).prop_map(|(piece, kind, bytes)| Step::Complete { piece, kind, bytes }),
        1 => n.prop_map(|piece| Step::Refuse { piece }),
        2 => n.prop_map(|request| Step::Cancel { request }),
        1 => (n, 0..2000_u32).prop_map(|(class, shares)| Step::SetShares { class, shares }),
        1 => (any::<bool>(), 0..2000_u32).prop_map(|(grouped, shares)| Step::AddClass { grouped, shares }),
        1 => n.prop_map(|class| Step::RemoveClass { class }),
        1 => Just(Step::Busy),
        3 => (0..2 * MS).prop_map(|ns| Step::Wait { ns }),
    ]
}

/// A request as the reference sees it.
#[derive(Clone, Debug)]
struct Known {
    id: RequestId,
    class: usize,
    op: Op,
    len_bytes: u32,
    dispatched_bytes: u32,
    outstanding: u32,
    queued: bool,
    /// First byte that is known not to have been moved, and the error that says so.
    bad_at: Option<(u32, Option<i32>)>,
}

impl Known {
    /// What ended it first, by its place: an error, or the end of the file.
    fn result(&self) -> Result<u32, Failure> {
        match self.bad_at {
            Some((moved_bytes, Some(errno))) => Err(Failure { errno, moved_bytes }),
            Some((moved_bytes, None)) => Ok(moved_bytes),
            None => Ok(self.len_bytes),
        }
    }
}

struct Reference {
    queue: IoQueue,
    now_ns: u64,
    lanes: usize,
    group: GroupId,
    classes: Vec<Option<ClassId>>,
    requests: BTreeMap<u64, Known>,
    lines: BTreeMap<(usize, usize), VecDeque<u64>>,
    in_device: Vec<Dispatch>,
    next_user_data: u64,
    ended: u64,
}

impl Reference {
    fn new(mode: Mode, disk: DiskConfig) -> Reference {
        let lanes = if disk.duplex { 2 } else { 1 };
        let queue = queue_of(disk, QueueConfig { mode, max_requests: MAX_REQUESTS, ..QueueConfig::default() });
        let group = queue.disk().add_group(GroupId::ROOT, 50).unwrap();
        let classes =
            [(GroupId::ROOT, 100), (group, 10), (group, 200)].map(|(g, s)| Some(queue.disk().add_class(g, s).unwrap()));
        Reference {
            queue,
            now_ns: 0,
            lanes,
            group,
            classes: classes.to_vec(),
            requests: BTreeMap::new(),
            lines: BTreeMap::new(),
            in_device: Vec::new(),
            next_user_data: 0,
            ended: 0,
        }
    }

    fn apply(&mut self, step: Step) {
        let classes = self.classes.len();
        match step {
            Step::Enqueue { class, op, length } => {
                let op = OPS.get(op).copied().unwrap_or(if op % 2 == 0 { Op::Read } else { Op::Write });
                self.enqueue(class % classes, op, LENGTHS[length]);
            }
            Step::Poll => drop(self.poll()),
            Step::Complete { piece, kind, bytes } if !self.in_device.is_empty() => {
                let piece = self.in_device.swap_remove(piece % self.in_device.len());
                self.complete(piece, kind, bytes);
            }
            Step::Refuse { piece } if !self.in_device.is_empty() => {
                let piece = self.in_device.swap_remove(piece % self.in_device.len());
                let (user_data, at) = (piece.user_data(), piece.offset_bytes());
                let progress = self.queue.refuse(self.now_ns, piece, 11);
                self.settled(user_data, Some((at, Some(11))), progress);
            }
            Step::Cancel { request } if !self.requests.is_empty() => {
                let user_data = *self.requests.keys().nth(request % self.requests.len()).unwrap();
                self.cancel(user_data);
            }
            Step::SetShares { class, shares } => {
                if let Some(class) = self.classes[class % classes] {
                    self.queue.disk().set_shares(class, shares).unwrap();
                    assert_eq!(self.queue.disk().shares(class), Ok(shares.max(1)));
                }
            }
            Step::AddClass { grouped, shares } if classes < 12 => {
                let group = if grouped { self.group } else { GroupId::ROOT };
                self.classes.push(Some(self.queue.disk().add_class(group, shares).unwrap()));
            }
            Step::RemoveClass { class } => self.remove(class % classes),
            Step::Busy => self.queue.backend_is_busy(self.now_ns),
            Step::Wait { ns } => self.now_ns += ns,
            _ => {}
        }
    }

    fn lane(&self, op: Op) -> usize {
        usize::from(self.lanes == 2 && op != Op::Read)
    }

    fn enqueue(&mut self, class: usize, op: Op, len_bytes: u32) {
        let user_data = self.next_user_data;
        let Some(class_id) = self.classes[class] else { return };
        match self.queue.enqueue(self.now_ns, class_id, op, len_bytes, user_data) {
            Err(error) => {
                assert_eq!(error, QueueError::Full);
                assert_eq!(self.requests.len(), MAX_REQUESTS as usize);
            }
            Ok(id) => {
                assert!(self.requests.len() < MAX_REQUESTS as usize);
                self.next_user_data += 1;
                let len_bytes = if op.is_transfer() { len_bytes } else { 0 };
                let known =
                    Known { id, class, op, len_bytes, dispatched_bytes: 0, outstanding: 0, queued: true, bad_at: None };
                self.requests.insert(user_data, known);
                self.lines.entry((class, self.lane(op))).or_default().push_back(user_data);
            }
        }
    }

    /// Polls once: the piece must be the next one of the oldest request in its line.
    fn poll(&mut self) -> bool {
        let Some(piece) = self.queue.poll_dispatch(self.now_ns) else { return false };
        let user_data = piece.user_data();
        let line = (self.requests[&user_data].class, self.lane(piece.op()));
        let line = self.lines.get_mut(&line).unwrap();
        assert_eq!(line.front(), Some(&user_data), "out of turn");
        let known = self.requests.get_mut(&user_data).unwrap();
        assert!(known.queued && piece.op() == known.op && piece.offset_bytes() == known.dispatched_bytes);
        assert!(piece.len_bytes() > 0 || known.len_bytes == 0);
        known.dispatched_bytes += piece.len_bytes();
        assert!(known.dispatched_bytes <= known.len_bytes);
        known.outstanding += 1;
        if known.dispatched_bytes == known.len_bytes {
            known.queued = false;
            line.pop_front();
        }
        self.in_device.push(piece);
        true
    }

    fn complete(&mut self, piece: Dispatch, kind: u8, bytes: u32) {
        let (user_data, at, len_bytes) = (piece.user_data(), piece.offset_bytes(), piece.len_bytes());
        let transfer = piece.op().is_transfer();
        let some_bytes = if len_bytes == 0 { 0 } else { bytes % len_bytes };
        let (outcome, bad_at) = match kind {
            0 => (Outcome::Failed(5), Some((at, Some(5)))),
            1 if transfer => (Outcome::End(some_bytes), Some((at + some_bytes, None)).filter(|_| len_bytes > 0)),
            2 | 3 if transfer && some_bytes == 0 => (Outcome::Moved(0), Some((at, None)).filter(|_| len_bytes > 0)),
            2 | 3 if transfer => (Outcome::Moved(some_bytes), None),
            // What a device may claim, but cannot have done.
            4 => (Outcome::Moved(u32::MAX), None),
            _ => (Outcome::Moved(len_bytes), None),
        };
        let partial = matches!(outcome, Outcome::Moved(moved) if transfer && moved > 0 && moved < len_bytes);
        match self.queue.complete(self.now_ns, piece, outcome) {
            Progress::Continue(rest) => {
                assert!(partial);
                assert_eq!((rest.offset_bytes(), rest.len_bytes()), (at + some_bytes, len_bytes - some_bytes));
                self.in_device.push(rest);
            }
            progress => {
                assert!(!partial);
                self.settled(user_data, bad_at, progress);
            }
        }
    }

    fn settled(&mut self, user_data: u64, bad_at: Option<(u32, Option<i32>)>, progress: Progress) {
        let known = self.requests.get_mut(&user_data).unwrap();
        known.outstanding -= 1;
        if let Some(bad) = bad_at
            && known.bad_at.is_none_or(|(before, _)| bad.0 <= before)
        {
            known.bad_at = Some(bad);
        }
        if bad_at.is_some() && known.queued {
            known.queued = false;
            self.leave_line(user_data);
        }
        let known = self.requests[&user_data].clone();
        match progress {
            Progress::Finished(Finished { user_data: named, result, .. }) => {
                assert!(known.outstanding == 0 && !known.queued);
                assert_eq!((named, result), (user_data, known.result()));
                self.requests.remove(&user_data);
                self.ended += 1;
            }
            Progress::Pending => assert!(known.outstanding > 0 || known.queued),
            Progress::Continue(_) => unreachable!("handled by the caller"),
        }
    }

    fn leave_line(&mut self, user_data: u64) {
        let known = &self.requests[&user_data];
        let line = (known.class, self.lane(known.op));
        self.lines.get_mut(&line).unwrap().retain(|other| *other != user_data);
    }

    fn cancel(&mut self, user_data: u64) {
        let known = self.requests[&user_data].clone();
        let expected = match (known.queued, known.outstanding) {
            (false, _) => Cancel::TooLate,
            (true, 0) => Cancel::Cancelled(Stopped { user_data, moved_bytes: known.dispatched_bytes }),
            (true, _) => Cancel::Stopping,
        };
        assert_eq!(self.queue.cancel(known.id), expected);
        if known.queued {
            self.stopped(user_data);
            assert_eq!(self.queue.cancel(known.id), Cancel::TooLate);
        }
    }

    /// A queued request was stopped from outside.
    fn stopped(&mut self, user_data: u64) {
        self.leave_line(user_data);
        let known = self.requests.get_mut(&user_data).unwrap();
        known.queued = false;
        // It is queued, so nothing before this has failed.
        known.bad_at = Some((known.dispatched_bytes, Some(CANCELLED)));
        if known.outstanding == 0 {
            self.requests.remove(&user_data);
            self.ended += 1;
        }
    }

    fn remove(&mut self, class: usize) {
        let Some(id) = self.classes[class].take() else { return };
        let mut named = Vec::new();
        self.queue.disk().remove(id).unwrap();
        self.queue.follow_classes(|stopped| named.push(stopped));
        let queued: Vec<(u64, u32, u32)> = self
            .requests
            .iter()
            .filter(|(_, k)| k.class == class && k.queued)
            .map(|(u, k)| (*u, k.outstanding, k.dispatched_bytes))
            .collect();
        for (user_data, outstanding, moved_bytes) in queued {
            assert_eq!(named.contains(&Stopped { user_data, moved_bytes }), outstanding == 0);
            self.stopped(user_data);
        }
        assert_eq!(self.queue.enqueue(self.now_ns, id, Op::Read, 1, 0), Err(QueueError::Unknown));
        assert_eq!(self.queue.disk().remove(id), Err(QueueError::Unknown));
        assert_eq!(self.queue.disk().set_shares(id, 1), Err(QueueError::Unknown));
    }

    /// Everything that can be counted afresh.
    fn check_counters(&self) {
        let queued: Vec<&Known> = self.requests.values().filter(|known| known.queued).collect();
        assert_eq!(self.queue.queued() as usize, queued.len());
        assert_eq!(self.queue.in_flight() as usize, self.in_device.len());
        assert_eq!(self.queue.requests() as usize, self.requests.len());
        for (at, class) in self.classes.iter().enumerate() {
            let Some(class) = class else { continue };
            let stats = self.queue.class_stats(*class).unwrap();
            let of_class = || queued.iter().filter(|known| known.class == at);
            assert_eq!(stats.queued as usize, of_class().count());
            let bytes: u64 = of_class().map(|known| u64::from(known.len_bytes - known.dispatched_bytes)).sum();
            assert_eq!(stats.queued_bytes, bytes);
            let in_flight: u32 = self.requests.values().filter(|k| k.class == at).map(|k| k.outstanding).sum();
            assert_eq!(stats.in_flight, in_flight);
        }
    }

    /// Lets everything come to its end.
    fn drain(&mut self) {
        for _ in 0..1_000_000 {
            if self.poll() {
                continue;
            }
            if let Some(piece) = self.in_device.pop() {
                self.complete(piece, 9, 0);
            } else if let Some(wakeup_ns) = self.queue.next_wakeup() {
                assert!(wakeup_ns > self.now_ns, "no progress");
                self.now_ns = wakeup_ns;
            } else {
                break;
            }
        }
        self.check_counters();
        assert_eq!(self.requests.len(), 0, "never ended");
        assert_eq!(self.ended, self.next_user_data);
        assert_eq!(self.queue.disk().in_flight_ns(), 0);
        assert_eq!(self.queue.next_wakeup(), None);
    }
}

fn any_mode() -> impl Strategy<Value = Mode> {
    prop_oneof![3 => Just(Mode::Scheduled), 1 => (0..6_u32).prop_map(Mode::Depth), 1 => Just(Mode::Drain)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, ..ProptestConfig::default() })]

    #[test]
    fn every_request_ends_once_and_everything_adds_up(
        mode in any_mode(),
        duplex in any::<bool>(),
        unlimited in prop::bool::weighted(0.2),
        steps in prop::collection::vec(any_step(), 0..250),
    ) {
        let model = if unlimited { CostModel::unlimited() } else { usual().model };
        let mut reference = Reference::new(mode, DiskConfig { model, duplex, ..usual() });
        for step in steps {
            reference.apply(step);
            reference.check_counters();
        }
        reference.drain();
    }
}

#[test]
fn refused_exactly_at_the_bound() {
    for max_requests in [0, 1, 2, 100] {
        let mut queue = queue_of(usual(), QueueConfig { max_requests, ..QueueConfig::default() });
        let class = queue.disk().add_class(GroupId::ROOT, 1).unwrap();
        for _ in 0..3 {
            for n in 0..max_requests {
                queue.enqueue(0, class, Op::Read, 4096, u64::from(n)).unwrap();
            }
            assert_eq!(queue.enqueue(0, class, Op::Read, 4096, 0), Err(QueueError::Full));
            // What is in the device counts too.
            let mut pieces: Vec<_> = std::iter::from_fn(|| queue.poll_dispatch(u64::MAX / 8)).collect();
            assert_eq!(queue.enqueue(0, class, Op::Read, 4096, 0), Err(QueueError::Full));
            while let Some(piece) = pieces.pop().or_else(|| queue.poll_dispatch(u64::MAX / 4)) {
                let _ = queue.complete(0, piece, Outcome::Moved(4096));
            }
            while queue.requests() > 0 {
                let piece = queue.poll_dispatch(u64::MAX / 4).unwrap();
                let _ = queue.complete(0, piece, Outcome::Moved(4096));
            }
        }
        assert_eq!(queue.class_stats(class).unwrap().refused, 6);
    }
}

//! A scheduler for one queue that is slow and obviously correct: the reference of the differential test.
//!
//! # Why
//! The real one has heaps that are mended late, clocks in floating point, tags in compare-and-swap loops. This one
//! has lists that are searched from end to end, sums that are formed anew each time, and integers: it says what must
//! happen.
//!
//! # How it works
//! Virtual times are device time over shares, in [`FINE`] parts of a femtosecond, and never wrap. A group's mean
//! moves as the mean of its active children does: by cost / W when one is served, by (F - V) w / W when one joins or
//! leaves. Tokens, limits and reservations are theoretical arrival times in quarter nanoseconds. The one place where
//! two classes may both be right is a tie, or a comparison that is closer than rounding ([`CLOSE`]): then
//! [`Slow::unsure`] is set, and the test goes on to the next case.
//!
//! # Limits
//! One lane, one queue, no mix; pieces succeed or fail as a whole.

use std::collections::VecDeque;

use plimsoll_core::{Direction, Disk, Op, Qos, Rate};

/// Parts of a femtosecond (over shares) in which virtual time is counted.
const FINE: i128 = 1 << 30;
/// Virtual times that are closer than 10 ps (over shares) are a tie.
const CLOSE: i128 = 10_000 * FINE;
/// Less than 1 us of one share ahead of the mean is not ahead.
const MEAN_SLACK_FS: i128 = 1_000_000_000;
/// What a reservation is behind by more than this pulls the time of reservations back.
const DEBT_TICKS: u128 = 100_000_000 * TICKS_PER_NS;
const FS_PER_TICK: u128 = 250_000;
const TICKS_PER_NS: u128 = 4;

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) user: u64,
    pub(crate) op: Op,
    pub(crate) len_bytes: u32,
    pub(crate) sent_bytes: u32,
    pub(crate) enqueued_ns: u64,
}

#[derive(Debug)]
pub(crate) struct Node {
    parent: usize,
    shares: u32,
    is_group: bool,
    pub(crate) line: VecDeque<Request>,
    clock: i128,
    /// Of the children.
    mean: i128,
    active: bool,
    parked_until_ns: Option<u64>,
    qos: Qos,
    limits: [u128; 6],
    reservations: [u128; 2],
    /// When it came back from a limit, and when it could have.
    came_back_ns: (u64, u64),
    pub(crate) received_fs: u128,
}

/// What the reference expects of a poll.
#[derive(Debug)]
pub(crate) enum Expected {
    /// The next piece of one of these classes (more than one: a tie). `or_nothing`: of those that tie another must
    /// wait.
    Piece { classes: Vec<usize>, turn: Turn, or_nothing: bool },
    /// Nothing, and when to ask again. `is_tie`: or when another of those that tie may go.
    Nothing { wakeup_ns: Option<u64>, is_tie: bool },
}

impl Slow {
    /// Active nodes: number, parent, shares, clock in fs over shares.
    pub(crate) fn summary(&self) -> String {
        let line = |at: &usize| {
            let Node { parent, shares, clock, mean, active, .. } = &self.nodes[*at];
            format!("{at} in {parent}: {shares} shares, clock {}, mean {}, active {active}", clock / FINE, mean / FINE)
        };
        let nodes = (0..self.nodes.len()).map(|at| line(&at)).collect::<Vec<_>>().join("; ");
        format!("{nodes}; in the device {:?}, tokens {}, slip {}", self.in_device, self.tokens, self.slip)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Turn {
    Shares,
    /// A reservation, paid with shares.
    Charged,
    Aged,
    /// That of this node, the class or a group above it; not paid.
    Reserved(usize),
}

#[derive(Debug)]
pub(crate) struct Slow {
    pub(crate) nodes: Vec<Node>,
    /// Pieces in the device: an id, and device time in ticks.
    pub(crate) in_device: Vec<(u64, u128)>,
    pub(crate) unsure: bool,
    tokens: u128,
    /// By how much the time of reservations is behind the clock.
    slip: u128,
    /// When old requests may go first again.
    aged: u128,
    carry_fs: u128,
    /// The nodes that were due before their turn at the last poll.
    due: Vec<usize>,
    /// Nodes that a change of the table has unparked since the last poll.
    unparked: Vec<usize>,
    /// The longest piece so far.
    longest_ticks: u128,
    depth_ticks: u128,
    window_ticks: u128,
    bound_ticks: u128,
    credit_fs: i128,
    served: i128,
}

fn rate_ticks(rate: Rate, count: u32) -> u128 {
    rate.get().map_or(0, |per_s| (u128::from(count) * 4_000_000_000).div_ceil(u128::from(per_s)))
}

impl Slow {
    /// For a disk without closed loop, duplex, groups and mix.
    pub(crate) fn new(disk: &Disk) -> Slow {
        let ticks = |ns: u64| u128::from(ns) * TICKS_PER_NS;
        let mut slow = Slow {
            nodes: Vec::new(),
            in_device: Vec::new(),
            unsure: false,
            tokens: 0,
            slip: 0,
            aged: 0,
            carry_fs: 0,
            due: Vec::new(),
            unparked: Vec::new(),
            longest_ticks: 0,
            depth_ticks: ticks(disk.effective_goal_ns()),
            window_ticks: ticks(disk.window_ns()),
            bound_ticks: ticks(disk.bound_ns()),
            credit_fs: i128::from(disk.effective_goal_ns()) * 1_000_000,
            served: 0,
        };
        slow.add(0, 1, true, Qos::default());
        slow
    }

    pub(crate) fn add(&mut self, parent: usize, shares: u32, is_group: bool, qos: Qos) -> usize {
        self.nodes.push(Node {
            parent,
            shares,
            is_group,
            line: VecDeque::new(),
            clock: 0,
            mean: 0,
            active: false,
            parked_until_ns: None,
            qos,
            limits: [0; 6],
            reservations: [0; 2],
            came_back_ns: (0, 0),
            received_fs: 0,
        });
        self.table_changed();
        self.nodes.len() - 1
    }

    pub(crate) fn set_shares(&mut self, at: usize, shares: u32) {
        self.table_changed();
        self.nodes[at].shares = shares;
    }

    /// Who waits for a limit looks again.
    pub(crate) fn table_changed(&mut self) {
        while let Some((_, at)) = self.unpark_first(u64::MAX) {
            self.unparked.push(at);
        }
    }

    /// In the order in which they may go: the first that joins an idle group sets its clock. Who it is, and since when
    /// it could have gone.
    fn unpark_first(&mut self, now_ns: u64) -> Option<(u64, usize)> {
        let until = |at: usize| self.nodes[at].parked_until_ns.map(|until_ns| (until_ns, at));
        let (until_ns, at) =
            (0..self.nodes.len()).filter_map(until).min().filter(|(until_ns, _)| *until_ns <= now_ns)?;
        self.nodes[at].parked_until_ns = None;
        self.settle(at);
        Some((until_ns, at))
    }

    /// What a node that gets work or comes back from a limit has not asked for before, it is not owed; nor are the
    /// groups that become active with it.
    fn begin_reservations(&mut self, now_ns: u64, mut at: usize) {
        let now = self.reserved_time(now_ns);
        while at != 0 {
            let node = &mut self.nodes[at];
            node.reservations = node.reservations.map(|tag| tag.max(now));
            let (is_active, parent) = (node.active, node.parent);
            if !is_active || self.active_children(parent).count() > 1 {
                return;
            }
            at = parent;
        }
    }

    pub(crate) fn enqueue(&mut self, now_ns: u64, at: usize, user: u64, op: Op, len_bytes: u32) {
        let node = &mut self.nodes[at];
        let is_first = node.line.is_empty();
        node.line.push_back(Request { user, op, len_bytes, sent_bytes: 0, enqueued_ns: now_ns });
        self.settle(at);
        if is_first {
            self.begin_reservations(now_ns, at);
        }
    }

    /// Takes a request, or what is left of it, out of its line.
    pub(crate) fn take_out(&mut self, at: usize, user: u64) {
        self.nodes[at].line.retain(|request| request.user != user);
        self.settle(at);
    }

    pub(crate) fn left_device(&mut self, id: u64) {
        self.in_device.retain(|(other, _)| *other != id);
    }

    fn children(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        (1..self.nodes.len()).filter(move |at| self.nodes[*at].parent == group)
    }

    fn active_children(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        self.children(group).filter(|at| self.nodes[*at].active)
    }

    fn weight(&self, group: usize) -> i128 {
        self.active_children(group).map(|at| i128::from(self.nodes[at].shares)).sum()
    }

    /// Brings a node, and those above it, in line with whether they have work and are not parked.
    fn settle(&mut self, mut at: usize) {
        loop {
            let node = &self.nodes[at];
            let has_work =
                if node.is_group { self.active_children(at).next().is_some() } else { !node.line.is_empty() };
            let should = has_work && node.parked_until_ns.is_none();
            if should == node.active {
                return;
            }
            if at == 0 {
                self.nodes[0].active = should;
                return;
            }
            if should {
                self.join(at)
            } else {
                self.leave(at)
            }
            at = self.nodes[at].parent;
        }
    }

    fn join(&mut self, at: usize) {
        let parent = self.nodes[at].parent;
        let (others, mean) = (self.weight(parent), self.nodes[parent].mean);
        let own = i128::from(self.nodes[at].shares);
        let credit = self.credit_fs * FINE / own;
        let node = &mut self.nodes[at];
        node.clock = if others == 0 { mean } else { node.clock.max(mean - credit) };
        node.active = true;
        if parent == 0 && others == 0 {
            self.served = mean;
        }
        let ahead = node.clock - mean;
        if others > 0 {
            self.nodes[parent].mean += ahead * own / (others + own);
        }
    }

    fn leave(&mut self, at: usize) {
        self.nodes[at].active = false;
        let (parent, own, clock) = (self.nodes[at].parent, i128::from(self.nodes[at].shares), self.nodes[at].clock);
        let left = self.weight(parent);
        if left > 0 {
            let mean = self.nodes[parent].mean;
            self.nodes[parent].mean += (mean - clock) * own / left;
        }
    }

    /// Device time of all that waits in a class's line.
    pub(crate) fn queued_fs(&self, disk: &Disk, class: usize) -> u64 {
        let of_request = |request: &Request| {
            let most_bytes = disk.piece_max_bytes(request.op.direction());
            let (mut left_bytes, mut fs) = (request.len_bytes - request.sent_bytes, 0);
            while left_bytes > 0 {
                let bytes = left_bytes.min(most_bytes);
                fs += disk.cost(request.op, bytes).as_fs();
                left_bytes -= bytes;
            }
            fs
        };
        self.nodes[class].line.iter().map(of_request).sum()
    }

    /// What must happen at a poll now.
    pub(crate) fn poll(&mut self, disk: &Disk, now_ns: u64) -> Expected {
        for at in std::mem::take(&mut self.unparked) {
            self.begin_reservations(now_ns, at);
        }
        while let Some((until_ns, at)) = self.unpark_first(now_ns) {
            self.nodes[at].came_back_ns = (now_ns, until_ns);
            self.begin_reservations(now_ns, at);
        }
        let mut is_tie = false;
        let retry_ns = loop {
            let (classes, turn) = match self.urgent(now_ns) {
                Some(urgent) => urgent,
                None => (self.by_shares(0), Turn::Shares),
            };
            if classes.is_empty() {
                break None;
            }
            let limited: Vec<_> = classes.iter().map(|class| self.limited(disk, *class, now_ns)).collect();
            // Which of those that tie is asked first decides who else is asked.
            self.unsure |= classes.len() > 1 && limited.iter().any(Option::is_some);
            if let Some((node, until_ns)) = limited[0] {
                self.nodes[node].parked_until_ns = Some(until_ns);
                self.settle(node);
                continue;
            }
            let gates: Vec<_> = classes.iter().map(|class| self.gates(disk, *class, turn, now_ns)).collect();
            let may_go = |(class, gate): (&usize, &Result<(), _>)| gate.is_ok().then_some(*class);
            let passed: Vec<usize> = classes.iter().zip(&gates).filter_map(may_go).collect();
            if !passed.is_empty() {
                return Expected::Piece { or_nothing: passed.len() < classes.len(), classes: passed, turn };
            }
            is_tie = gates.iter().any(|gate| *gate != gates[0]);
            break gates[0].err().flatten();
        };
        let parked_ns = self.nodes.iter().filter_map(|node| node.parked_until_ns).min();
        let urgent_ns = (1..self.nodes.len()).filter_map(|at| self.urgent_at_ns(at, now_ns)).min();
        let is_empty = self.nodes.iter().all(|node| node.line.is_empty());
        let wakeup_ns = [retry_ns, parked_ns, urgent_ns].into_iter().flatten().min().filter(|_| !is_empty);
        Expected::Nothing { wakeup_ns, is_tie }
    }

    /// The active classes with the lowest clocks, level by level.
    fn by_shares(&self, group: usize) -> Vec<usize> {
        let Some(least) = self.active_children(group).map(|at| self.nodes[at].clock).min() else { return Vec::new() };
        let tied = self.active_children(group).filter(|at| self.nodes[*at].clock - least <= CLOSE);
        tied.flat_map(|at| if self.nodes[at].is_group { self.by_shares(at) } else { vec![at] }).collect()
    }

    fn can_run(&self, mut at: usize) -> bool {
        while at != 0 && self.nodes[at].active {
            at = self.nodes[at].parent;
        }
        at == 0 && self.nodes[0].active
    }

    fn reserved_time(&self, now_ns: u64) -> u128 {
        (u128::from(now_ns) * TICKS_PER_NS).saturating_sub(self.slip)
    }

    fn reserved_tag(&self, at: usize) -> Option<u128> {
        let Node { qos, reservations, .. } = &self.nodes[at];
        let iops = (qos.reservation.iops > 0).then_some(reservations[0]);
        let bandwidth = (qos.reservation.bandwidth > 0).then_some(reservations[1]);
        [iops, bandwidth].into_iter().flatten().min()
    }

    fn aged_at_ns(&self, at: usize) -> Option<u64> {
        let node = &self.nodes[at];
        let (head, most_ns) = (node.line.front()?, node.qos.max_wait_ns?);
        Some(head.enqueued_ns + most_ns)
    }

    fn aged_again_ns(&self) -> u64 {
        (self.aged / TICKS_PER_NS) as u64
    }

    fn urgent_at_ns(&self, at: usize, now_ns: u64) -> Option<u64> {
        if self.nodes[at].line.is_empty() && self.active_children(at).next().is_none() {
            return None;
        }
        let reserved = self.reserved_tag(at).map(|tag| (tag + self.slip).div_ceil(TICKS_PER_NS) as u64);
        let aged = self.aged_at_ns(at).map(|at_ns| at_ns.max(self.aged_again_ns()));
        [reserved, aged].into_iter().flatten().filter(|at_ns| *at_ns > now_ns).min()
    }

    fn urgent(&mut self, now_ns: u64) -> Option<(Vec<usize>, Turn)> {
        let due = |at: usize| {
            let reserved = self.reserved_tag(at).filter(|tag| *tag <= self.reserved_time(now_ns));
            let may_age = self.aged_again_ns() <= now_ns;
            let aged = self.aged_at_ns(at).filter(|at_ns| may_age && *at_ns <= now_ns);
            match (reserved, aged) {
                (Some(tag), _) => Some((tag, at, false)),
                (None, Some(at_ns)) => Some((u128::from(at_ns) * TICKS_PER_NS, at, true)),
                (None, None) => None,
            }
        };
        let due: Vec<(u128, usize, bool)> =
            (1..self.nodes.len()).filter(|at| self.can_run(*at)).filter_map(due).collect();
        let first = due.iter().map(|(tag, ..)| *tag).min()?;
        let mut tied: Vec<_> = due.into_iter().filter(|(tag, ..)| *tag == first).collect();
        // Groups are older than classes, and none is removed, so the class table names the first of them before all.
        if let Some(group) = tied.iter().position(|(_, at, _)| self.nodes[*at].is_group) {
            tied = vec![tied[group]];
        }
        let tied = tied.into_iter().map(|(_, node, aged)| (node, self.urgent_turn(node, aged)));
        let tied: Vec<(usize, Turn)> = tied.collect();
        // Whom the class table names first goes first; its order is not known here.
        self.unsure |= tied.iter().any(|(_, turn)| *turn != tied[0].1);
        self.due = tied.iter().map(|(node, _)| *node).collect();
        let below = |node: usize| if self.nodes[node].is_group { self.by_shares(node) } else { vec![node] };
        Some((tied.iter().flat_map(|(node, _)| below(*node)).collect(), tied[0].1))
    }

    /// Whether a class or group that goes before its turn pays with its shares.
    fn urgent_turn(&mut self, node: usize, aged: bool) -> Turn {
        let mut by_shares = true;
        let mut at = node;
        while at != 0 {
            let parent = self.nodes[at].parent;
            let slack = MEAN_SLACK_FS * FINE / i128::from(self.nodes[at].shares);
            let behind = self.nodes[parent].mean + slack - self.nodes[at].clock;
            by_shares &= behind >= 0;
            self.unsure |= !aged && behind.abs() <= CLOSE;
            at = parent;
        }
        match (aged, by_shares) {
            (true, _) => Turn::Aged,
            (false, true) => Turn::Charged,
            (false, false) => Turn::Reserved(node),
        }
    }

    fn next_piece(&self, disk: &Disk, class: usize) -> (Op, u32, bool) {
        let head = &self.nodes[class].line[0];
        let bytes = (head.len_bytes - head.sent_bytes).min(disk.piece_max_bytes(head.op.direction()));
        (head.op, bytes, head.sent_bytes == 0)
    }

    /// Which limits count a piece, and by how many ticks.
    fn limits_of(&self, at: usize, op: Op, bytes: u32, first: bool) -> Vec<(usize, u128)> {
        let limits = &self.nodes[at].qos.limits;
        let requests = u32::from(first);
        let of = |index, rate, count| (index, rate_ticks(rate, count));
        let both = [of(0, limits.iops, requests), of(1, limits.bandwidth, bytes)];
        let one = match op.direction() {
            Direction::Read => [of(2, limits.read_iops, requests), of(3, limits.read_bandwidth, bytes)],
            Direction::Write => [of(4, limits.write_iops, requests), of(5, limits.write_bandwidth, bytes)],
        };
        both.into_iter().chain(one).filter(|(_, ticks)| *ticks > 0).collect()
    }

    fn limited(&self, disk: &Disk, class: usize, now_ns: u64) -> Option<(usize, u64)> {
        let (op, bytes, first) = self.next_piece(disk, class);
        let now = u128::from(now_ns) * TICKS_PER_NS;
        let mut at = class;
        loop {
            let node = &self.nodes[at];
            let burst = u128::from(node.qos.limits.burst_ns) * TICKS_PER_NS;
            let until = |(index, ticks): (usize, u128)| {
                let full = node.limits[index].max(now) + ticks.min(burst);
                (full > now + burst).then(|| ((full - burst).div_ceil(TICKS_PER_NS) as u64).max(now_ns + 1))
            };
            if let Some(until_ns) = self.limits_of(at, op, bytes, first).into_iter().filter_map(until).max() {
                return Some((at, until_ns));
            }
            if at == 0 {
                return None;
            }
            at = node.parent;
        }
    }

    fn ticks(&self, disk: &Disk, class: usize) -> (u128, u128) {
        let (op, bytes, _) = self.next_piece(disk, class);
        let fs = u128::from(disk.cost(op, bytes).as_fs()) + self.carry_fs;
        (fs / FS_PER_TICK, fs % FS_PER_TICK)
    }

    fn lag_ticks(&self, class: usize) -> u128 {
        let mut top = class;
        while self.nodes[top].parent != 0 {
            top = self.nodes[top].parent;
        }
        let lag = (self.served - self.nodes[top].clock) * i128::from(self.nodes[top].shares) / FINE;
        lag.max(0) as u128 / FS_PER_TICK
    }

    /// Window and tokens: whether the class's next piece may go, or when to ask again.
    fn gates(&mut self, disk: &Disk, class: usize, turn: Turn, now_ns: u64) -> Result<(), Option<u64>> {
        let (ticks, _) = self.ticks(disk, class);
        let most = ticks.max(self.bound_ticks / 4);
        if turn == Turn::Shares {
            let overdraft = self.lag_ticks(class).saturating_sub(ticks).min(most);
            return self.gates_with(ticks, overdraft, 0, now_ns);
        }
        // Who goes before its turn may exceed the window by the longest piece of late: how late is not known here.
        let (least, longest) = (2 * most, most + most.max(self.longest_ticks));
        let one = self.gates_with(ticks, least, least, now_ns);
        self.unsure |= one != self.gates_with(ticks, longest, longest, now_ns);
        one
    }

    /// As [`Slow::gates`], with what the window and the bucket may be exceeded by.
    fn gates_with(&mut self, ticks: u128, overdraft: u128, deeper: u128, now_ns: u64) -> Result<(), Option<u64>> {
        let inside: u128 = self.in_device.iter().map(|(_, ticks)| ticks).sum();
        let margins = [(inside, self.window_ticks + overdraft), (inside + ticks, self.bound_ticks + overdraft)];
        self.unsure |= overdraft > 0 && margins.iter().any(|(have, most)| have.abs_diff(*most) <= 2);
        if inside > 0 && (margins[0].0 >= margins[0].1 || margins[1].0 > margins[1].1) {
            return Err(None);
        }
        let now = u128::from(now_ns) * TICKS_PER_NS;
        // In whole nanoseconds.
        let depth = self.depth_ticks + deeper / TICKS_PER_NS * TICKS_PER_NS;
        let full = self.tokens.max(now) + ticks.min(depth);
        if full > now + depth {
            return Err(Some(((full - depth).div_ceil(TICKS_PER_NS) as u64).max(now_ns + 1)));
        }
        Ok(())
    }

    /// The next piece of `class` went out, as `poll` said it may. Its length.
    pub(crate) fn dispatch(&mut self, disk: &Disk, class: usize, turn: Turn, id: u64, now_ns: u64) -> u32 {
        let (op, bytes, first) = self.next_piece(disk, class);
        let (ticks, carry_fs) = self.ticks(disk, class);
        let now = u128::from(now_ns) * TICKS_PER_NS;
        self.carry_fs = carry_fs;
        self.longest_ticks = self.longest_ticks.max(ticks);
        self.tokens = self.tokens.max(now) + ticks;
        self.in_device.push((id, ticks));
        self.charge_tags(class, turn, (op, bytes, first), now_ns);
        let cost_fs = i128::from(disk.cost(op, bytes).as_fs());
        if turn == Turn::Aged {
            self.aged = self.aged.max(now) + 8 * (cost_fs as u128 / FS_PER_TICK);
        }
        self.nodes[class].received_fs += cost_fs as u128;
        let top = if let Turn::Reserved(node) = turn { node } else { 0 };
        let mut at = class;
        while at != top {
            let parent = self.nodes[at].parent;
            if parent == 0 && turn == Turn::Shares {
                self.served = self.served.max(self.nodes[at].clock);
            }
            self.nodes[at].clock += cost_fs * FINE / i128::from(self.nodes[at].shares);
            let weight = self.weight(parent);
            self.nodes[parent].mean += cost_fs * FINE / weight;
            at = parent;
        }
        let head = &mut self.nodes[class].line[0];
        head.sent_bytes += bytes;
        if head.sent_bytes == head.len_bytes {
            self.nodes[class].line.pop_front();
            self.settle(class);
        }
        bytes
    }

    fn charge_tags(&mut self, class: usize, turn: Turn, (op, bytes, first): (Op, u32, bool), now_ns: u64) {
        let rate = |per_s: u64| if per_s == 0 { Rate::Unlimited } else { Rate::per_second(per_s) };
        let mut is_inner = false;
        let mut at = class;
        while at != 0 {
            let Node { parent, qos, reservations, .. } = &mut self.nodes[at];
            let of = qos.reservation;
            let moved = [rate_ticks(rate(of.iops), u32::from(first)), rate_ticks(rate(of.bandwidth), bytes)];
            let reserved_now = (u128::from(now_ns) * TICKS_PER_NS).saturating_sub(self.slip);
            for (tag, ticks) in reservations.iter_mut().zip(moved).filter(|(_, ticks)| *ticks > 0) {
                self.slip += reserved_now.saturating_sub(*tag).saturating_sub(DEBT_TICKS).min(ticks);
                let most = if is_inner { reserved_now + ticks } else { reserved_now };
                *tag = (*tag).min(most).max(reserved_now.saturating_sub(2 * DEBT_TICKS)) + ticks;
            }
            is_inner |= matches!(turn, Turn::Charged | Turn::Reserved(_)) && self.due.contains(&at);
            at = *parent;
        }
        // A late poll counts from when the request could have gone.
        let mut from_ns = now_ns;
        let mut at = class;
        loop {
            let (at_ns, due_ns) = self.nodes[at].came_back_ns;
            from_ns = if at_ns == now_ns { from_ns.min(due_ns) } else { from_ns };
            if at == 0 {
                break;
            }
            at = self.nodes[at].parent;
        }
        let from_ns = from_ns.max(self.nodes[class].line[0].enqueued_ns).max(now_ns.saturating_sub(1_000_000));
        let from = u128::from(from_ns) * TICKS_PER_NS;
        let mut at = class;
        loop {
            for (index, ticks) in self.limits_of(at, op, bytes, first) {
                let tag = &mut self.nodes[at].limits[index];
                *tag = (*tag).max(from) + ticks;
            }
            if at == 0 {
                return;
            }
            at = self.nodes[at].parent;
        }
    }
}

//! A small world for the controller: a device, a source with endless work, tokens, and a clock that jumps.
//!
//! Events happen in order of time; a seed fixes everything. The device is a set of FIFO queues with servers and a
//! latency that overlaps: one queue with k servers has a sharp knee, eight queues with one server each are independent
//! channels, one server and 50 us is a virtual disk behind a rate limiter.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::super::*;

pub(in crate::control) const MS: u64 = 1_000_000;
pub(in crate::control) const SECOND: u64 = 1000 * MS;

/// Costs in nanoseconds of model device time, each with its share in 100.
pub(in crate::control) type Sizes = &'static [(u64, u64)];
/// 4 KiB at 100,000 IOPS.
pub(in crate::control) const SMALL: Sizes = &[(10_000, 100)];
/// 4 KiB to 1 MiB at 100,000 IOPS and 2 GB/s, mostly small.
pub(in crate::control) const MIXED: Sizes = &[(10_000, 50), (16_000, 20), (41_000, 15), (139_000, 10), (532_000, 5)];

/// A change of the device at a given time.
#[derive(Clone, Copy, Debug)]
pub(in crate::control) enum Change {
    Speed(f64),
    Servers(usize),
    StallNs(u64),
    FixedNs(u64),
}

#[derive(Clone, Debug)]
pub(in crate::control) struct Device {
    pub(in crate::control) queues: usize,
    pub(in crate::control) servers: usize,
    pub(in crate::control) fixed_ns: u64,
    pub(in crate::control) speed: f64,
    pub(in crate::control) sigma: f64,
    /// Standard deviation of the logarithm of the whole device's speed, which is drawn every 20 ms.
    pub(in crate::control) weather: f64,
    /// With more than [`WAVE_REQUESTS`] in the device, completions are seen together, at multiples of this time.
    pub(in crate::control) wave_ns: u64,
    pub(in crate::control) sizes: Sizes,
    /// The rate with 1, 2, 3... requests in the device, over the model's; with more, the last one holds. One server.
    pub(in crate::control) curve: Option<&'static [f64]>,
    pub(in crate::control) changes: Vec<(u64, Change)>,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::control) enum Policy {
    Control(ControlConfig, Limits),
    Window(u64),
    /// This many requests in the device, whatever they cost.
    Drain(u32),
}

/// Behaviour of the source.
#[derive(Clone, Copy, Debug)]
pub(in crate::control) struct Source {
    /// Work arrives only in the first part of each period: (period, part) in nanoseconds.
    pub(in crate::control) on_off_ns: Option<(u64, u64)>,
    pub(in crate::control) cap_ns: Option<u64>,
    /// Most requests outstanding, of one cost; the device may hold all of them. If bounded, unloaded latencies are
    /// reported.
    pub(in crate::control) outstanding: u32,
    /// Completions for each wake-up of a guest; 0: all classes always have more.
    pub(in crate::control) completions_per_wakeup: u64,
    /// No guest wakes up between these times.
    pub(in crate::control) guests_away_ns: (u64, u64),
}

pub(in crate::control) const ENDLESS: Source =
    Source { on_off_ns: None, cap_ns: None, outstanding: u32::MAX, completions_per_wakeup: 0, guests_away_ns: (0, 0) };

/// Ten milliseconds of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::control) struct Bin {
    pub(in crate::control) work_ns: f64,
    /// Integral of the work in flight over the bin.
    in_flight_ns2: f64,
}

/// Requests in the device up to which completions are seen one by one.
const WAVE_REQUESTS: u32 = 32;

pub(in crate::control) const BIN_NS: u64 = 10 * MS;

#[derive(Debug)]
pub(in crate::control) struct Run {
    pub(in crate::control) bins: Vec<Bin>,
    pub(in crate::control) controller: Option<Controller>,
}

impl Run {
    fn part(&self, from_ns: u64, to_ns: u64) -> &[Bin] {
        &self.bins[(from_ns / BIN_NS) as usize..(to_ns / BIN_NS) as usize]
    }
    pub(in crate::control) fn rate(&self, from_ns: u64, to_ns: u64) -> f64 {
        self.part(from_ns, to_ns).iter().map(|b| b.work_ns).sum::<f64>() / (to_ns - from_ns) as f64
    }
    pub(in crate::control) fn in_flight_ns(&self, from_ns: u64, to_ns: u64) -> f64 {
        self.part(from_ns, to_ns).iter().map(|b| b.in_flight_ns2).sum::<f64>() / (to_ns - from_ns) as f64
    }
    /// Returns the median over the bins of the work in flight: excursions of the trim are rare, but long.
    pub(in crate::control) fn typical_in_flight_ns(&self, from_ns: u64, to_ns: u64) -> f64 {
        let mut bins: Vec<f64> = self.part(from_ns, to_ns).iter().map(|b| b.in_flight_ns2 / BIN_NS as f64).collect();
        bins.sort_by(f64::total_cmp);
        bins[bins.len() / 2]
    }
    /// Returns the relative root mean square of the rates of 100 ms around their mean.
    pub(in crate::control) fn oscillation(&self, from_ns: u64, to_ns: u64) -> f64 {
        let mean = self.rate(from_ns, to_ns);
        let rates: Vec<f64> = self
            .part(from_ns, to_ns)
            .chunks_exact(10)
            .map(|c| c.iter().map(|b| b.work_ns).sum::<f64>() / 1e8)
            .collect();
        (rates.iter().map(|r| (r / mean - 1.0) * (r / mean - 1.0)).sum::<f64>() / rates.len() as f64).sqrt()
    }
    pub(in crate::control) fn events(&self) -> Vec<ControlEvent> {
        self.controller.iter().flat_map(|c| c.events_since(0)).copied().collect()
    }
}

pub(in crate::control) struct Rng(u64);

impl Rng {
    pub(in crate::control) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }
    /// Returns the next number of splitmix64.
    pub(in crate::control) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Returns a lognormal number with mean 1; its normal number is a sum of 12 uniform ones.
    fn lognormal(&mut self, sigma: f64) -> f64 {
        if sigma == 0.0 {
            return 1.0;
        }
        let normal = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        exp(sigma * normal - sigma * sigma / 2.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Served { queue: usize, cost_ns: u64, sent_ns: u64 },
    Done { cost_ns: u64, sent_ns: u64 },
    Wake,
}

struct World<'a> {
    device: &'a Device,
    rng: Rng,
    now_ns: u64,
    seq: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    waiting: Vec<VecDeque<(u64, u64)>>,
    busy: Vec<usize>,
    servers: usize,
    speed: f64,
    fixed_ns: u64,
    weather: (u64, f64),
    stall: (u64, u64),
    policy: Policy,
    source: Source,
    next_cost_ns: Option<u64>,
    totals: Totals,
    tat_ns: f64,
    /// Time at which tokens will be asked for again, if in the future.
    wake_ns: u64,
    last_step: (u64, u64),
    least_ns: u64,
    run: Run,
}

/// Runs `device` under `policy` for `for_ns`, a multiple of [`BIN_NS`].
pub(in crate::control) fn run(device: &Device, policy: Policy, source: Source, seed: u64, for_ns: u64) -> Run {
    let controller = match policy {
        Policy::Control(config, limits) => Some(Controller::new(config, limits)),
        Policy::Window(_) | Policy::Drain(_) => None,
    };
    let bins = vec![Bin::default(); (for_ns / BIN_NS) as usize + 1];
    let mut world = World {
        device,
        rng: Rng::new(seed),
        now_ns: 0,
        seq: 0,
        events: BinaryHeap::new(),
        waiting: vec![VecDeque::new(); device.queues],
        busy: vec![0; device.queues],
        servers: device.servers,
        speed: device.speed,
        fixed_ns: device.fixed_ns,
        weather: (0, 1.0),
        stall: (0, 0),
        policy,
        source,
        next_cost_ns: None,
        totals: Totals { outstanding_cap_ns: source.cap_ns, ..Totals::default() },
        tat_ns: 0.0,
        wake_ns: 0,
        last_step: (0, 0),
        least_ns: u64::MAX,
        run: Run { bins, controller },
    };

    let mut changes = device.changes.iter().copied().peekable();
    world.dispatch();
    while let Some(Reverse((at_ns, _, event))) = world.events.pop() {
        while let Some((_, change)) = changes.next_if(|(change_ns, _)| *change_ns <= at_ns) {
            world.change(change, at_ns);
        }
        loop {
            let timer_ns = world.run.controller.as_ref().map_or(u64::MAX, Controller::next_step_ns);
            if timer_ns >= at_ns.min(for_ns) || timer_ns <= world.now_ns {
                break;
            }
            world.advance(timer_ns);
            world.step();
        }
        if at_ns >= for_ns {
            break;
        }

        world.advance(at_ns);
        world.handle(event);
        world.dispatch();
    }
    world.run.bins.pop();
    world.run
}

impl World<'_> {
    fn post(&mut self, at_ns: u64, event: Event) {
        self.seq += 1;
        self.events.push(Reverse((at_ns, self.seq, event)));
    }

    fn advance(&mut self, to_ns: u64) {
        while self.now_ns < to_ns {
            let bin = (self.now_ns / BIN_NS) as usize;
            let until_ns = to_ns.min((bin as u64 + 1) * BIN_NS);
            let span = (until_ns - self.now_ns) as f64;
            self.run.bins[bin].in_flight_ns2 += span * self.totals.in_flight_ns as f64;
            self.now_ns = until_ns;
        }
    }

    fn change(&mut self, change: Change, at_ns: u64) {
        match change {
            Change::Speed(speed) => self.speed = speed,
            Change::Servers(servers) => {
                self.servers = servers;
                for queue in 0..self.device.queues {
                    self.serve(queue);
                }
            }
            Change::FixedNs(fixed_ns) => self.fixed_ns = fixed_ns,
            Change::StallNs(for_ns) => self.stall = (at_ns, at_ns + for_ns),
        }
    }

    /// Returns the later time of an event that a stall delays: it ends as much after the stall as it would have been
    /// after the stall's begin.
    fn delayed(&self, at_ns: u64) -> Option<u64> {
        let (from_ns, to_ns) = self.stall;
        (from_ns..to_ns).contains(&at_ns).then(|| to_ns + (at_ns - from_ns))
    }

    fn handle(&mut self, event: Event) {
        if event != Event::Wake
            && let Some(later_ns) = self.delayed(self.now_ns)
        {
            self.post(later_ns, event);
            return;
        }
        match event {
            Event::Wake => {}
            Event::Served { queue, cost_ns, sent_ns } => {
                self.busy[queue] -= 1;
                self.serve(queue);
                let seen_ns = if self.device.wave_ns > 0 && self.totals.in_flight_requests > WAVE_REQUESTS {
                    self.now_ns.next_multiple_of(self.device.wave_ns)
                } else {
                    self.now_ns + self.fixed_ns
                };
                if seen_ns == self.now_ns {
                    self.complete(cost_ns, sent_ns);
                } else {
                    self.post(seen_ns, Event::Done { cost_ns, sent_ns });
                }
            }
            Event::Done { cost_ns, sent_ns } => self.complete(cost_ns, sent_ns),
        }
    }

    fn serve(&mut self, queue: usize) {
        while self.busy[queue] < self.servers
            && let Some((cost_ns, sent_ns)) = self.waiting[queue].pop_front()
        {
            self.busy[queue] += 1;
            let parallel = match self.device.curve {
                Some(curve) => 1.0 / curve[(self.totals.in_flight_requests as usize).clamp(1, curve.len()) - 1],
                None => (self.device.queues * self.device.servers) as f64,
            };
            let speed = self.speed * self.weather();
            let service = cost_ns as f64 * parallel / speed * self.rng.lognormal(self.device.sigma);
            self.post(self.now_ns + (service as u64).max(1), Event::Served { queue, cost_ns, sent_ns });
        }
    }

    fn weather(&mut self) -> f64 {
        if self.device.weather > 0.0 && self.now_ns >= self.weather.0 {
            self.weather = (self.now_ns + 20 * MS, self.rng.lognormal(self.device.weather));
        }
        self.weather.1
    }

    fn complete(&mut self, cost_ns: u64, sent_ns: u64) {
        let clip_ns = self.run.controller.as_ref().map_or(u64::MAX, Controller::latency_clip_ns);
        self.totals.completions += 1;

        let (away_ns, back_ns) = self.source.guests_away_ns;
        let is_wakeup = self.source.completions_per_wakeup > 0
            && !(away_ns..back_ns).contains(&self.now_ns)
            && self.totals.completions.is_multiple_of(self.source.completions_per_wakeup);
        self.totals.wakeups += u64::from(is_wakeup);

        self.totals.completed_ticks += cost_ns * TICKS_PER_NS;
        self.totals.lanes[0].completed_ticks += cost_ns * TICKS_PER_NS;
        self.totals.latency_ns += (self.now_ns - sent_ns).min(clip_ns);
        if self.source.outstanding < u32::MAX {
            self.least_ns = self.least_ns.min(self.now_ns - sent_ns);
            let work = unloaded_work(cost_ns * TICKS_PER_NS, self.least_ns);
            self.totals.unloaded_work = self.totals.unloaded_work.wrapping_add(work);
        }

        self.totals.in_flight_ns -= cost_ns;
        self.totals.in_flight_requests -= 1;
        self.run.bins[(self.now_ns / BIN_NS) as usize].work_ns += cost_ns as f64;

        let (step_ns, completions) = self.last_step;
        if self.totals.completions >= completions + 16 || self.now_ns >= step_ns + MS {
            self.step();
        }
    }

    fn step(&mut self) {
        self.last_step = (self.now_ns, self.totals.completions);
        if let Some(controller) = &mut self.run.controller {
            controller.step(self.now_ns, &self.totals);
        }
    }

    /// Returns whether the disk takes another request now. If not, counts the reason.
    fn has_room(&mut self, cost_ns: u64) -> bool {
        let Some(controller) = &self.run.controller else {
            return match self.policy {
                Policy::Window(window_ns) => self.totals.in_flight_ns < window_ns,
                Policy::Drain(requests) => self.totals.in_flight_requests < requests,
                Policy::Control(..) => false,
            };
        };

        if self.totals.in_flight_ns >= controller.window_ns() {
            self.totals.window_blocks += 1;
            self.totals.lanes[0].window_blocks += 1;
            return false;
        }

        let Policy::Control(_, limits) = self.policy else { return false };
        let cost = cost_ns as f64 / controller.token_scale()[0];
        let depth = (limits.bound_ns.max(controller.window_ns()) as f64).max(cost);
        let start = self.tat_ns.max(self.now_ns as f64);
        if start + cost > self.now_ns as f64 + depth {
            self.totals.lanes[0].token_blocks += 1;
            let wake_ns = (start + cost - depth) as u64 + 1;
            if self.wake_ns <= self.now_ns {
                self.wake_ns = wake_ns.max(self.now_ns + 1);
                self.post(self.wake_ns, Event::Wake);
            }
            return false;
        }

        self.tat_ns = start + cost;
        true
    }

    fn dispatch(&mut self) {
        if let Some((period_ns, on_ns)) = self.source.on_off_ns
            && self.now_ns % period_ns >= on_ns
        {
            if self.totals.in_flight_requests == 0 {
                let next_ns = (self.now_ns / period_ns + 1) * period_ns;
                self.post(next_ns, Event::Wake);
            }
            return;
        }

        while self.totals.in_flight_requests < self.source.outstanding {
            let cost_ns = match self.next_cost_ns {
                Some(cost_ns) => cost_ns,
                None => self.draw_cost(),
            };
            self.next_cost_ns = Some(cost_ns);
            if !self.has_room(cost_ns) {
                return;
            }
            self.next_cost_ns = None;
            self.totals.in_flight_ns += cost_ns;
            self.totals.in_flight_requests += 1;
            let queue = (self.rng.next() % self.device.queues as u64) as usize;
            self.waiting[queue].push_back((cost_ns, self.now_ns));
            self.serve(queue);
        }
    }

    fn draw_cost(&mut self) -> u64 {
        let mut ticket = self.rng.next() % 100;
        for (cost_ns, of_100) in self.device.sizes {
            if ticket < *of_100 {
                return *cost_ns;
            }
            ticket -= of_100;
        }
        self.device.sizes[0].0
    }
}

pub(in crate::control) fn limits(bound_ns: u64) -> Limits {
    Limits { bound_ns, min_window_ns: 0, unloaded_latency_ns: 0, rate_max: 1.0, is_duplex: false }
}

pub(in crate::control) fn mean_cost_ns(device: &Device) -> f64 {
    device.sizes.iter().map(|(cost_ns, of_100)| (cost_ns * of_100) as f64 / 100.0).sum()
}

pub(in crate::control) fn with(device: &Device, changes: &[(u64, Change)]) -> Device {
    Device { changes: changes.to_vec(), ..device.clone() }
}

pub(in crate::control) fn device(queues: usize, servers: usize, fixed_us: u64, sigma: f64, sizes: Sizes) -> Device {
    Device {
        queues,
        servers,
        fixed_ns: fixed_us * 1000,
        speed: 1.0,
        sigma,
        weather: 0.0,
        wave_ns: 0,
        sizes,
        curve: None,
        changes: Vec::new(),
    }
}

//! Simulated disks.
//!
//! # Why
//! A scheduler is judged by how it uses a disk: its parallelism, reads that suffer from writes, buffers that fill,
//! credits that run out, members that fail. These models show that, at some 10 million requests in a second of real
//! time and without owning the disk. They are queueing models with interference, not flash translation layers.
//!
//! # How it works
//! A request passes these stages in order:
//! 1. [`FaultWindow`]s, which may hang, fail or shorten it;
//! 2. caps in series (`caps`: burst credits, volume, instance);
//! 3. RAID 0: the request is cut by chunk, and complete when its last part is;
//! 4. in a member, the *capacity* stage (`member`): virtual-time servers that give each request exactly its device
//!    time, so that any mix of sizes saturates at the rates of the specification. The queue forms here, in order of
//!    arrival. Reads and writes share it by the mix exponent; writes may wait in a buffer and use idle time;
//! 5. the *latency* stage, overlapped with the capacity stage: lognormal around the unloaded latency, and for reads the
//!    wait for a die that is being programmed. The longer of the two stages counts;
//! 6. the network's round trip.
//!
//! The time of return is known at submission, so a request is stored as one event.
//!
//! # Limits
//! Capacity steps, stalls and faults act on requests submitted after they begin; requests already inside return at
//! their original time. Memory depends on the specification and on the most requests that were ever inside, never on
//! time.
//!
//! # Example
//! ```
//! use plimsoll_core::Op;
//! use plimsoll_sim::device::{Device, DeviceRequest, presets};
//! let preset = presets::find("i3en.3xlarge").unwrap();
//! let mut device = Device::new(&preset.spec, 7).unwrap();
//! device.submit(0, DeviceRequest { key: 1, op: Op::Read, offset_bytes: 0, len_bytes: 4096 });
//! let mut done = Vec::new();
//! device.advance(1_000_000, &mut done);
//! assert_eq!((done[0].key, done[0].result), (1, Ok(4096)));
//! ```

mod arm;
mod capacity;
mod caps;
mod channel;
mod check;
mod events;
mod faults;
mod flash;
mod member;
mod meter;
pub mod presets;
mod spec;
mod weather;

use std::collections::BTreeMap;

use plimsoll_core::Op;

pub use spec::*;

use crate::dist::uniform;
use crate::rng::Rng;
use caps::Cap;
use events::Events;
use faults::{Fate, Faults};
use flash::Flash;
use member::{Member, Part};
use weather::Weather;

/// The errno of a failed transfer: EIO.
const EIO: i32 = 5;
/// Largest offset, an exbibyte. Larger ones are cut to it: requests beyond the device cost the same time as others.
const OFFSET_MAX: u64 = 1 << 60;

/// One operation on its way into a simulated disk.
#[derive(Clone, Copy, Debug)]
pub struct DeviceRequest {
    /// The caller's name for the request, given back in [`DeviceCompletion::key`].
    pub key: u64,
    pub op: Op,
    pub offset_bytes: u64,
    /// Length in bytes; 0 for flush.
    pub len_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCompletion {
    /// [`DeviceRequest::key`] of the request.
    pub key: u64,
    /// Time of completion (virtual nanoseconds).
    pub at_ns: u64,
    /// Bytes moved (0 for operations without length), or a positive errno.
    pub result: Result<u32, i32>,
}

/// A simulated disk: requests enter with [`Device::submit`] and come back from [`Device::advance`].
#[derive(Debug)]
pub struct Device {
    rng: Rng,
    events: Events,
    /// Requests that will never come back.
    hung: usize,
    /// Requests held before the device, with their fate; the earliest to reach it first.
    held: BTreeMap<(u64, u64), (DeviceRequest, Fate)>,
    /// Number of requests that were ever held.
    ever_held: u64,
    faults: Faults,
    caps: Vec<Cap>,
    flash: Flash,
    weather: Weather,
    members: Vec<Member>,
    chunk_bytes: u64,
    network_rtt_ns: u64,
}

impl Device {
    /// Returns an idle device. The same specification and seed give the same times for the same requests.
    ///
    /// # Errors
    /// A specification that makes no disk: see [`DeviceSpec::check`].
    pub fn new(spec: &DeviceSpec, seed: u64) -> Result<Device, SpecError> {
        spec.check()?;
        let mut rng = Rng::new(seed);
        let members = (0..spec.raid0.members).map(|index| Member::new(spec, index)).collect::<Result<_, _>>()?;
        Ok(Device {
            events: Events::new(),
            hung: 0,
            held: BTreeMap::new(),
            ever_held: 0,
            faults: Faults::new(spec),
            caps: spec.caps.iter().map(Cap::new).collect(),
            flash: Flash::new(spec),
            weather: Weather::new(spec, &mut rng),
            members,
            chunk_bytes: spec.raid0.chunk_bytes,
            network_rtt_ns: spec.network_rtt_ns,
            rng,
        })
    }

    /// Submits one request at `now_ns`, which should not decrease. An earlier time than before is taken as given.
    pub fn submit(&mut self, now_ns: u64, request: DeviceRequest) {
        let fate = self.faults.fate(now_ns, &request, &mut self.rng);
        if let Some(hang) = fate.hang {
            match hang.for_ns {
                Some(for_ns) => self.events.push(now_ns.saturating_add(for_ns), request.key, fate.result),
                None => self.hung += 1,
            }
            return;
        }
        if let Some(until_ns) = fate.held_until_ns {
            self.held.insert((until_ns, self.ever_held), (request, fate));
            self.ever_held += 1;
            return;
        }
        self.enter(now_ns, &request, &fate);
    }

    /// Takes a request into the device at `now_ns`.
    fn enter(&mut self, now_ns: u64, request: &DeviceRequest, fate: &Fate) {
        self.weather.advance(now_ns, &mut self.rng);
        for stall in self.weather.stalls.drain(..) {
            self.members.iter_mut().for_each(|member| member.stand_still(stall, self.weather.factor));
        }
        let mut at_ns = now_ns.max(self.weather.stalled_until_ns);
        if request.op.is_transfer() {
            for cap in &mut self.caps {
                at_ns = cap.admit(at_ns, request.len_bytes);
            }
        }

        let write_factor = self.flash.pass(now_ns, request, &mut self.rng);
        at_ns = at_ns.max(self.flash.paused_until_ns());
        let speed = self.weather.factor * fate.speed_factor;
        let (taken_ns, failed) = self.serve(at_ns, request, write_factor, speed, 1.0 / fate.speed_factor);

        let done_ns = at_ns.saturating_add(taken_ns.ceil() as u64).saturating_add(self.network_rtt_ns);
        let result = if failed { Err(EIO) } else { fate.result };
        self.events.push(done_ns, request.key, result);
    }

    /// Returns when to call [`Device::advance`] next: when a request comes back, or a held one reaches the device; `None`
    /// if neither will happen.
    pub fn next_event_ns(&self) -> Option<u64> {
        let held_ns = self.held.first_key_value().map(|(&(until_ns, _), _)| until_ns);
        self.events.next_ns().into_iter().chain(held_ns).min()
    }

    /// Appends the completions due by `now_ns`, in order of time, and at the same time in order of submission.
    pub fn advance(&mut self, now_ns: u64, completions: &mut Vec<DeviceCompletion>) {
        while let Some(entry) = self.held.first_entry().filter(|entry| entry.key().0 <= now_ns) {
            let ((until_ns, _), (request, fate)) = entry.remove_entry();
            self.enter(until_ns, &request, &fate);
        }
        while let Some(completion) = self.events.pop_until(now_ns) {
            completions.push(completion);
        }
    }

    /// Returns the number of requests that have not come back, including those that hang for ever.
    pub fn in_flight(&self) -> usize {
        self.events.len() + self.held.len() + self.hung
    }

    /// Adds a fault; windows may overlap. Windows that have ended are dropped.
    ///
    /// # Errors
    /// See [`FaultWindow::check`].
    pub fn inject(&mut self, window: FaultWindow) -> Result<(), SpecError> {
        window.check()?;
        self.faults.inject(window);
        Ok(())
    }

    /// Replaces the fault of one member of the RAID 0 (or of the only one) from now on.
    ///
    /// # Errors
    /// No such member, or a factor or rate that is out of range.
    pub fn set_fault(&mut self, fault: MemberFault) -> Result<(), SpecError> {
        let members = self.members.len() as u32;
        let raid0 = RaidSpec { members, member_faults: vec![fault], ..RaidSpec::default() };
        DeviceSpec { raid0, ..DeviceSpec::default() }.check()?;
        if let Some(member) = self.members.get_mut(fault.member as usize) {
            member.set_fault(&fault);
        }
        Ok(())
    }

    /// Returns the part of the capacity that holds data, 0 to 1.
    pub fn fill_level(&self) -> f64 {
        self.flash.fill()
    }

    /// Serves a request in the members from `at_ns` on. Returns the time it takes, and whether a member failed.
    fn serve(&mut self, at_ns: u64, request: &DeviceRequest, write_factor: f64, speed: f64, slow: f64) -> (f64, bool) {
        let depth = self.events.len() + 1;
        let chunk_bytes = self.chunk_bytes;
        let count = self.members.len() as u64;
        let (offset, len) = (request.offset_bytes.min(OFFSET_MAX), u64::from(request.len_bytes));
        let part =
            Part { at_ns, op: request.op, offset_bytes: offset, len_bytes: len, write_factor, speed, slow, depth };

        if count == 1 {
            return self.serve_part(0, &part);
        }

        if request.op == Op::Flush || len == 0 {
            // Every member makes its data durable.
            let all = (0..count).map(|member| self.serve_part(member as usize, &part));
            return all.fold((0.0, false), worst);
        }

        let (first, last) = (offset / chunk_bytes, offset.saturating_add(len - 1) / chunk_bytes);
        let chunks = last - first + 1;
        let mut outcome = (0.0, false);
        for i in 0..chunks.min(count) {
            let chunk = first + i;
            let own_chunks = (chunks - 1 - i) / count + 1;
            let own_last = chunk + (own_chunks - 1) * count;
            let head_bytes = if i == 0 { offset - first * chunk_bytes } else { 0 };
            let tail_bytes = if own_last == last { (last + 1) * chunk_bytes - offset - len } else { 0 };
            let len_bytes = own_chunks * chunk_bytes - head_bytes - tail_bytes;
            let offset_bytes = chunk / count * chunk_bytes + head_bytes;
            outcome =
                worst(outcome, self.serve_part((chunk % count) as usize, &Part { offset_bytes, len_bytes, ..part }));
        }
        outcome
    }

    fn serve_part(&mut self, member: usize, part: &Part) -> (f64, bool) {
        let Some(member) = self.members.get_mut(member) else { return (0.0, true) };
        let failed = member.error_rate > 0.0 && uniform(&mut self.rng) < member.error_rate;
        (member.serve(part, &mut self.rng), failed)
    }
}

/// Joins the outcomes of two parts: the later time, and a failure if either failed.
fn worst(a: (f64, bool), b: (f64, bool)) -> (f64, bool) {
    (a.0.max(b.0), a.1 || b.1)
}

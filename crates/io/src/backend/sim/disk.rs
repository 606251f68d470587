//! One disk of a simulated world: its device model and its state.
//!
//! # Why
//! Code that uses several disks must survive a disk that becomes slow, refuses writes, fails, or is removed and
//! returns. A test decides when: [`SimWorld::set_disk_state`](super::SimWorld::set_disk_state).
//!
//! # How it works
//! * *Slow* changes the capacity of every member of the device model: service times and latencies grow by the factor,
//!   so the disk's rate falls by it too, and a queue forms in the disk.
//! * *Writes hang* holds operations that change or sync the disk until the state changes. They then enter the device in
//!   the order of their arrival. Reads are unaffected.
//! * *Read-only*, *failed* and *gone* are checked when an operation is submitted; a refused operation ends at once, and
//!   never enters the device.
//! * When a disk leaves (failed or gone), operations in flight end with the error. Whether a write, discard or
//!   allocation among them took effect is drawn as at a crash
//!   ([`SimFaults::unsynced_kept_probability`](super::SimFaults::unsynced_kept_probability), torn writes included).
//!   Contents then stay unchanged; when the disk returns, files opened before work again.
//!
//! # Limits
//! A new speed applies to operations submitted from then on: those inside the device complete as planned. Caps in
//! series (a volume, an instance), the burst rate of a write buffer and the network's round trip do not belong to the
//! disk, and do not change. Contents that were not synced when a disk left are still not synced when it returns: only a
//! crash of the world loses them.
//!
//! # Example
//! A write that ends after 50 us on the healthy disk takes 200 us with `Slow { factor: 4.0 }`:
//! ```
//! use plimsoll::backend::OpenOptions;
//! use plimsoll::backend::sim::{SimConfig, SimDisk, SimDiskState, SimWorld};
//! use plimsoll::buffer::AlignedBuf;
//! use plimsoll::{Class, Classes, DiskSetup, SimRuntime, Topology};
//!
//! let mut disk = SimDisk::default();
//! (disk.spec.latency.write_ns, disk.spec.latency.sigma) = (50e3, 0.0);
//! let world = SimWorld::new(&SimConfig { disks: vec![disk], ..SimConfig::default() })?;
//! let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()])?;
//! let runtime = SimRuntime::new(&world, &topology)?;
//! let create = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
//! let (shard, file) = (runtime.shard(0).clone(), topology.file("data".as_ref(), create, 0));
//! let mut ends = Vec::new();
//! for state in [SimDiskState::Healthy, SimDiskState::Slow { factor: 4.0 }, SimDiskState::Gone] {
//!     world.set_disk_state(0, state)?;
//!     let (begin_ns, block) = (world.now_ns(), AlignedBuf::new(4096)?);
//!     let (written, _) = runtime.block_on(0, shard.write_at(&file, Class::DEFAULT, 0, block))?;
//!     ends.push((written.is_ok(), world.now_ns() - begin_ns));
//! }
//! assert_eq!(ends, [(true, 50_000), (true, 200_000), (false, 0)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use plimsoll_core::Op;
use plimsoll_sim::device::{Device, DeviceRequest, DeviceSpec, MemberFault, SpecError};

/// The valid factors of [`SimDiskState::Slow`].
const SLOW_FACTORS: std::ops::RangeInclusive<f64> = 1.0..=1e6;

/// 2^64 / golden ratio (Knuth, The Art of Computer Programming 3, 6.4): seeds of successive restarts are far apart.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// State of a simulated disk; see [`SimWorld::set_disk_state`](super::SimWorld::set_disk_state).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum SimDiskState {
    /// As fast as its model.
    #[default]
    Healthy,
    /// Every operation takes `factor` times as long, and the disk's rate falls by the same factor.
    Slow {
        /// From 1 to 1 000 000.
        factor: f64,
    },
    /// Reads keep their speed. Writes, discards, allocations, new lengths and syncs that are submitted in this state do
    /// not end before the state does. Existing files can be opened.
    WritesHang,
    /// Writes, discards, allocations, new lengths and new files end with `EROFS`. Reads and syncs work; existing files
    /// can be opened, for writing too. Operations in flight when the state begins still take effect.
    ReadOnly,
    /// Every operation ends with `EIO`, including those in flight and opening files.
    Failed,
    /// Every operation ends with `ENODEV`, including those in flight and opening files.
    Gone,
}

/// One disk; see the module's documentation.
pub(super) struct Disk {
    pub(super) device: Device,
    pub(super) spec: DeviceSpec,
    state: SimDiskState,
    /// Requests that hang, in the order of their arrival; empty in every state but `WritesHang`.
    hanging: Vec<DeviceRequest>,
    seed: u64,
    /// Number of the disk in its world, from 0.
    number: u64,
    /// Number of restarts.
    restarts: u64,
}

impl Disk {
    pub(super) fn new(spec: &DeviceSpec, seed: u64, number: u64) -> Result<Disk, SpecError> {
        let device = Device::new(spec, device_seed(seed, number, 0))?;
        Ok(Disk {
            device,
            spec: spec.clone(),
            state: SimDiskState::Healthy,
            hanging: Vec::new(),
            seed,
            number,
            restarts: 0,
        })
    }

    /// Submits a request to the device, or holds it while writes hang.
    pub(super) fn submit(&mut self, now_ns: u64, request: DeviceRequest) {
        if self.state == SimDiskState::WritesHang && request.op != Op::Read {
            self.hanging.push(request);
        } else {
            self.device.submit(now_ns, request);
        }
    }

    /// Checks whether the state allows an operation that changes data (`is_change`) or one that does not. If not,
    /// returns the error number.
    pub(super) fn check(&self, is_change: bool) -> Result<(), i32> {
        match self.state {
            SimDiskState::ReadOnly if is_change => Err(libc::EROFS),
            SimDiskState::Failed => Err(libc::EIO),
            SimDiskState::Gone => Err(libc::ENODEV),
            SimDiskState::Healthy | SimDiskState::Slow { .. } | SimDiskState::WritesHang | SimDiskState::ReadOnly => {
                Ok(())
            }
        }
    }

    /// Restarts the device without requests. The state stays.
    pub(super) fn restart(&mut self) {
        self.restarts = self.restarts.wrapping_add(1);
        self.hanging.clear();
        // The specification and the speed were accepted before, so neither can be refused now.
        if let Ok(device) = Device::new(&self.spec, device_seed(self.seed, self.number, self.restarts)) {
            self.device = device;
        }
        let _ = self.set_speed(self.state);
    }

    /// Sets the state. If the state is refused, returns the reason and changes nothing.
    pub(super) fn set_state(&mut self, now_ns: u64, state: SimDiskState) -> Result<(), String> {
        if let SimDiskState::Slow { factor } = state
            && !SLOW_FACTORS.contains(&factor)
        {
            let (least, most) = (SLOW_FACTORS.start(), SLOW_FACTORS.end());
            return Err(format!("slow by a factor of {factor}: use {least} to {most}"));
        }
        if speed(self.state) != speed(state) {
            self.set_speed(state).map_err(|error| error.to_string())?;
        }
        self.state = state;
        if state != SimDiskState::WritesHang {
            self.release(now_ns);
        }
        Ok(())
    }

    /// Submits the hanging requests to the device. Returns whether there were any.
    pub(super) fn release(&mut self, now_ns: u64) -> bool {
        let had_any = !self.hanging.is_empty();
        self.hanging.drain(..).for_each(|request| self.device.submit(now_ns, request));
        had_any
    }

    /// Sets every member's speed for `state`, on top of the faults in its specification.
    fn set_speed(&mut self, state: SimDiskState) -> Result<(), SpecError> {
        let raid0 = &self.spec.raid0;
        for member in 0..raid0.members {
            let healthy = MemberFault { member, speed_factor: 1.0, error_rate: 0.0 };
            let own = raid0.member_faults.iter().rev().find(|fault| fault.member == member).unwrap_or(&healthy);
            self.device.set_fault(MemberFault { speed_factor: own.speed_factor * speed(state), ..*own })?;
        }
        Ok(())
    }
}

/// Returns the fraction of a disk's own speed in `state`.
fn speed(state: SimDiskState) -> f64 {
    if let SimDiskState::Slow { factor } = state { 1.0 / factor } else { 1.0 }
}

/// Returns a seed that differs for every disk of a world and every restart of it, so their times differ.
fn device_seed(seed: u64, number: u64, restarts: u64) -> u64 {
    seed.wrapping_add(restarts.wrapping_mul(SEED_STEP)) ^ number.wrapping_add(1).rotate_left(32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_let_in_what_they_should() {
        let (erofs, eio, enodev) = (Err(libc::EROFS), Err(libc::EIO), Err(libc::ENODEV));
        let cases = [
            (SimDiskState::Healthy, Ok(()), Ok(())),
            (SimDiskState::Slow { factor: 2.0 }, Ok(()), Ok(())),
            (SimDiskState::WritesHang, Ok(()), Ok(())),
            (SimDiskState::ReadOnly, Ok(()), erofs),
            (SimDiskState::Failed, eio, eio),
            (SimDiskState::Gone, enodev, enodev),
        ];
        let mut disk = Disk::new(&DeviceSpec::default(), 1, 0).unwrap();
        for (state, read, change) in cases {
            disk.set_state(0, state).unwrap();
            assert_eq!((disk.check(false), disk.check(true)), (read, change), "{state:?}");
        }
    }

    #[test]
    fn impossible_factors_are_refused_and_change_nothing() {
        let mut disk = Disk::new(&DeviceSpec::default(), 1, 0).unwrap();
        for factor in [0.0, -1.0, 0.5, 2e6, f64::INFINITY, f64::NAN] {
            let why = disk.set_state(0, SimDiskState::Slow { factor }).unwrap_err();
            assert!(why.contains("use 1 to 1000000"), "{why}");
            assert_eq!(disk.state, SimDiskState::Healthy);
        }
    }
}

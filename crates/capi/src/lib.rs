//! The gate of `plimsoll` under C names: a library for programs in C and C++ that make their own system calls.
//!
//! # Why
//! Most databases are not written in Rust, and do not leave their own threads and system calls.
//!
//! # How it works
//! `include/plimsoll.h` is the contract. A handle has a [`Topology`] of one shard, whose place its [`Gate`] takes. The
//! caller keeps the [`Permit`] of a call in memory of its own, so a call that does not wait allocates nothing.
//!
//! # Limits
//! One disk per handle; classes are not removed. A permit refers to its gate: the caller closes the gate after all its
//! calls have ended, and that is not checked. A panic ends the process.
//!
//! # Example
//! `examples/gate.c`

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use libc::{EAGAIN, EBUSY, ECANCELED, EEXIST, EINVAL, ENOSPC, ETIMEDOUT};
use plimsoll::control::Server;
use plimsoll::core::{Op, Rate};
use plimsoll::metrics::{Metrics, encode};
use plimsoll::{
    Class, ClassError, Classes, DiskSetup, Gate, GateError, LatencyTarget, Limits, Permit, Qos, Reservation, Topology,
};

/// The gate of one disk: `plimsoll_gate`.
#[derive(Debug)]
pub struct OpenGate {
    gate: Gate,
    server: Mutex<Option<Server>>,
}

/// The caller's memory for a permit: `plimsoll_permit`.
#[repr(C)]
pub struct HeldPermit {
    /// 1 if `permit` is initialised. All zeros is a permit that is not held.
    is_held: u64,
    permit: MaybeUninit<Permit<'static>>,
}

// The header's 24 words are enough.
const _: () = assert!(size_of::<HeldPermit>() <= 24 * 8 && align_of::<HeldPermit>() <= 8);

impl std::fmt::Debug for HeldPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldPermit").field("is_held", &self.is_held).finish_non_exhaustive()
    }
}

/// The quality of service of a class or group: `plimsoll_qos`. Each 0 is a setting that is not made.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QosFields {
    limit_iops: u64,
    limit_read_iops: u64,
    limit_write_iops: u64,
    limit_bytes_per_s: u64,
    limit_read_bytes_per_s: u64,
    limit_write_bytes_per_s: u64,
    limit_burst_ns: u64,
    reservation_iops: u64,
    reservation_bytes_per_s: u64,
    latency_target_ns: u64,
    latency_target_quantile: f64,
    max_wait_ns: u64,
    max_delay_ns: u64,
}

impl QosFields {
    fn to_qos(self) -> Qos {
        let rate = |per_s: u64| if per_s == 0 { Rate::Unlimited } else { Rate::per_second(per_s) };
        let time = |ns: u64| (ns > 0).then_some(ns);
        let quantile = self.latency_target_quantile;
        Qos {
            limits: Limits {
                iops: rate(self.limit_iops),
                read_iops: rate(self.limit_read_iops),
                write_iops: rate(self.limit_write_iops),
                bandwidth: rate(self.limit_bytes_per_s),
                read_bandwidth: rate(self.limit_read_bytes_per_s),
                write_bandwidth: rate(self.limit_write_bytes_per_s),
                burst_ns: self.limit_burst_ns,
            },
            reservation: Reservation { iops: self.reservation_iops, bandwidth: self.reservation_bytes_per_s },
            latency_target: time(self.latency_target_ns).map(|latency_ns| LatencyTarget { latency_ns, quantile }),
            max_wait_ns: time(self.max_wait_ns),
            max_delay_ns: time(self.max_delay_ns),
        }
    }
}

impl From<&Qos> for QosFields {
    fn from(qos: &Qos) -> QosFields {
        let (limits, target) = (&qos.limits, qos.latency_target);
        let per_s = |rate: Rate| rate.get().unwrap_or(0);
        QosFields {
            limit_iops: per_s(limits.iops),
            limit_read_iops: per_s(limits.read_iops),
            limit_write_iops: per_s(limits.write_iops),
            limit_bytes_per_s: per_s(limits.bandwidth),
            limit_read_bytes_per_s: per_s(limits.read_bandwidth),
            limit_write_bytes_per_s: per_s(limits.write_bandwidth),
            limit_burst_ns: limits.burst_ns,
            reservation_iops: qos.reservation.iops,
            reservation_bytes_per_s: qos.reservation.bandwidth,
            latency_target_ns: target.map_or(0, |target| target.latency_ns),
            latency_target_quantile: target.map_or(0.0, |target| target.quantile),
            max_wait_ns: qos.max_wait_ns.unwrap_or(0),
            max_delay_ns: qos.max_delay_ns.unwrap_or(0),
        }
    }
}

/// `PLIMSOLL_NO_GROUP` of the header.
const NO_GROUP: u32 = u32::MAX;

/// Returns the caller's text, or `None` for NULL.
///
/// # Safety
/// `text` is NULL or a C string that lives as long as the result.
unsafe fn bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller guarantees it.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Returns the caller's text, or `None` for NULL or text that is not UTF-8.
///
/// # Safety
/// As [`bytes`].
unsafe fn utf8<'a>(text: *const c_char) -> Option<&'a str> {
    // SAFETY: the caller guarantees it.
    unsafe { bytes(text) }.and_then(|text| std::str::from_utf8(text).ok())
}

/// Writes `text` and a NUL to the caller's `size` bytes at `to`, cut if they are too few.
///
/// # Safety
/// `to` is NULL or points to `size` writable bytes.
unsafe fn write_text(text: &str, to: *mut c_char, size: usize) {
    if to.is_null() || size == 0 {
        return;
    }
    let len = text.len().min(size - 1);
    // SAFETY: `len` bytes of the text are readable, and `size` > `len` writable; the caller's memory is not the text.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, len) };
    // SAFETY: `len` < `size`, so it is within the caller's memory.
    let end = unsafe { to.add(len) };
    // SAFETY: as above.
    unsafe { end.write(0) };
}

fn open(io_properties: Option<&[u8]>, path: Option<&[u8]>) -> Result<OpenGate, String> {
    let as_path = |bytes| Path::new(OsStr::from_bytes(bytes));
    let topology = match io_properties {
        Some(file) => Topology::from_io_properties(as_path(file), 1, Classes::new()).map_err(|error| error.to_string()),
        None => Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).map_err(|error| error.to_string()),
    }?;
    let disk = match path.filter(|_| io_properties.is_some()) {
        Some(path) => topology.disk_of(as_path(path)).map_err(|error| error.to_string())?,
        None if topology.disks() == 1 => 0,
        None => return Err(format!("the file has {} disks: give a path on one of them", topology.disks())),
    };
    let gate = Gate::new(&topology, 0, disk).map_err(|error| error.to_string())?;
    Ok(OpenGate { gate, server: Mutex::default() })
}

/// `plimsoll_open` of the header.
///
/// # Safety
/// As the header says: C strings or NULL, and `error_size` writable bytes at `error`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_open(
    io_properties: *const c_char,
    path: *const c_char,
    error: *mut c_char,
    error_size: usize,
) -> *mut OpenGate {
    // SAFETY: a C string of the caller, for this call.
    let io_properties = unsafe { bytes(io_properties) };
    // SAFETY: as above.
    let path = unsafe { bytes(path) };
    match open(io_properties, path) {
        Ok(gate) => Box::into_raw(Box::new(gate)),
        Err(reason) => {
            // SAFETY: memory of the caller, for this call.
            unsafe { write_text(&reason, error, error_size) };
            std::ptr::null_mut()
        }
    }
}

/// `plimsoll_close` of the header.
///
/// # Safety
/// `gate` is NULL or from [`plimsoll_open`]; nothing uses it or a permit of it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_close(gate: *mut OpenGate) {
    if !gate.is_null() {
        // SAFETY: `plimsoll_open` made the box, and the caller gives it back.
        drop(unsafe { Box::from_raw(gate) });
    }
}

/// `plimsoll_add_class` of the header.
///
/// # Safety
/// `gate` is open, `name` a C string, `class_id` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_add_class(
    gate: *mut OpenGate,
    name: *const c_char,
    shares: u32,
    class_id: *mut u32,
) -> c_int {
    // SAFETY: as the caller guarantees.
    unsafe { plimsoll_add_class_in(gate, NO_GROUP, name, shares, class_id) }
}

/// `plimsoll_add_class_in` of the header.
///
/// # Safety
/// As [`plimsoll_add_class`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_add_class_in(
    gate: *mut OpenGate,
    group_id: u32,
    name: *const c_char,
    shares: u32,
    class_id: *mut u32,
) -> c_int {
    // SAFETY: as the caller guarantees.
    unsafe { add(gate, Classes::add_class, group_id, (name, shares), class_id) }
}

/// `plimsoll_add_group` of the header.
///
/// # Safety
/// As [`plimsoll_add_class`], with `group_id` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_add_group(
    gate: *mut OpenGate,
    parent_id: u32,
    name: *const c_char,
    shares: u32,
    group_id: *mut u32,
) -> c_int {
    // SAFETY: as the caller guarantees.
    unsafe { add(gate, Classes::add_group, parent_id, (name, shares), group_id) }
}

/// A function that adds a class or a group.
type Add = fn(&Classes, &str, Option<Class>, u32) -> Result<Class, ClassError>;

/// Adds a class or group inside of group `parent_id`, and writes its number to `id`.
///
/// # Safety
/// `gate` is open, `name` a C string, `id` writable.
unsafe fn add(
    gate: *mut OpenGate,
    add: Add,
    parent_id: u32,
    (name, shares): (*const c_char, u32),
    id: *mut u32,
) -> c_int {
    // SAFETY: the caller keeps the gate open during this call.
    let gate = unsafe { &*gate };
    // SAFETY: a C string of the caller, for this call.
    let Some(name) = unsafe { utf8(name) }.filter(|_| shares > 0) else { return -EINVAL };
    let parent = class_of(parent_id);
    if parent.is_none() && parent_id != NO_GROUP {
        return -EINVAL;
    }
    match add(gate.gate.topology().classes(), name, parent, shares) {
        Ok(class) => {
            // SAFETY: memory of the caller, for this call.
            unsafe { id.write(class.index() as u32) };
            0
        }
        Err(ClassError::NameTaken(_)) => -EEXIST,
        Err(ClassError::TooMany) => -ENOSPC,
        Err(_) => -EINVAL,
    }
}

/// `plimsoll_set_shares` of the header.
///
/// # Safety
/// `gate` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_set_shares(gate: *mut OpenGate, class_id: u32, shares: u32) -> c_int {
    // SAFETY: the caller keeps the gate open during this call.
    let gate = unsafe { &*gate };
    let Some(class) = class_of(class_id).filter(|_| shares > 0) else { return -EINVAL };
    gate.gate.topology().classes().set_shares(class, shares).map_or(-EINVAL, |()| 0)
}

/// `plimsoll_set_qos` of the header.
///
/// # Safety
/// `gate` is open, `qos` readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_set_qos(gate: *mut OpenGate, class_id: u32, qos: *const QosFields) -> c_int {
    // SAFETY: the caller keeps the gate open during this call.
    let gate = unsafe { &*gate };
    // SAFETY: memory of the caller, for this call.
    let qos = unsafe { qos.read() }.to_qos();
    let Some(class) = class_of(class_id) else { return -EINVAL };
    gate.gate.topology().classes().set_qos(class, qos).map_or(-EINVAL, |()| 0)
}

/// `plimsoll_get_qos` of the header.
///
/// # Safety
/// `gate` is open, `qos` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_get_qos(gate: *mut OpenGate, class_id: u32, qos: *mut QosFields) -> c_int {
    // SAFETY: the caller keeps the gate open during this call.
    let gate = unsafe { &*gate };
    let classes = gate.gate.topology().classes().list();
    let Some(class) = class_of(class_id).and_then(|class| classes.get(class.index())) else { return -EINVAL };
    // SAFETY: memory of the caller, for this call.
    unsafe { qos.write(QosFields::from(&class.qos)) };
    0
}

/// `plimsoll_enter` of the header.
///
/// # Safety
/// `gate` is open until the permit has been left; `permit` is memory of a `plimsoll_permit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_enter(
    gate: *mut OpenGate,
    class_id: u32,
    op: c_uint,
    len_bytes: u64,
    timeout_ns: i64,
    permit: *mut HeldPermit,
) -> i64 {
    // SAFETY: the caller keeps the gate open until it has left; so the permit may be called static.
    let gate: &'static OpenGate = unsafe { &*gate };
    // SAFETY: memory of the caller, with room for a `HeldPermit`. Any bytes may be there.
    unsafe { permit.write(HeldPermit { is_held: 0, permit: MaybeUninit::uninit() }) };

    let (Some(class), Some(op)) = (class_of(class_id), op_of(op)) else { return i64::from(-EINVAL) };
    let len_bytes = len_bytes.min(Gate::CALL_BYTES_MAX.into()) as u32;
    let entered = match u64::try_from(timeout_ns) {
        Err(_) => gate.gate.enter(class, op, len_bytes).map(Some),
        Ok(timeout_ns) => gate.gate.enter_within(class, op, len_bytes, Duration::from_nanos(timeout_ns)),
    };
    let errno = match entered {
        Ok(Some(entered)) => {
            let allowed_bytes = i64::from(entered.len_bytes());
            let held = HeldPermit { is_held: 1, permit: MaybeUninit::new(entered) };
            // SAFETY: as above; the permit is the caller's until `plimsoll_leave`.
            unsafe { permit.write(held) };
            return allowed_bytes;
        }
        Ok(None) => ETIMEDOUT,
        Err(GateError::Full) => EAGAIN,
        Err(GateError::Overloaded { .. }) => EBUSY,
        Err(GateError::ClassRemoved) => ECANCELED,
        Err(_) => EINVAL,
    };
    i64::from(-errno)
}

/// `plimsoll_leave` of the header.
///
/// # Safety
/// `permit` is all zeros or was given to [`plimsoll_enter`], whose gate is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_leave(permit: *mut HeldPermit, result: i64) {
    // SAFETY: memory of the caller, for this call.
    let permit = unsafe { &mut *permit };
    if std::mem::replace(&mut permit.is_held, 0) == 1 {
        // SAFETY: it was held, so `plimsoll_enter` has written it, and nobody reads it again.
        let held = unsafe { permit.permit.assume_init_read() };
        let moved = u64::try_from(result).map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX));
        held.end(moved.map_err(|_| i32::try_from(result.unsigned_abs()).unwrap_or(i32::MAX)));
    }
}

/// `plimsoll_serve` of the header.
///
/// # Safety
/// `gate` is open; a C string; `error_size` writable bytes at `error`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_serve(
    gate: *mut OpenGate,
    program: *const c_char,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    // SAFETY: the caller keeps the gate open during this call.
    let gate = unsafe { &*gate };
    // SAFETY: a C string of the caller, for this call.
    let name = unsafe { utf8(program) };
    let started = name
        .ok_or_else(|| "the program's name is not UTF-8".to_owned())
        .and_then(|name| Server::start(gate.gate.topology(), name).map_err(|error| error.to_string()));
    match started {
        Ok(server) => {
            *gate.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(server);
            0
        }
        Err(reason) => {
            // SAFETY: memory of the caller, for this call.
            unsafe { write_text(&reason, error, error_size) };
            -1
        }
    }
}

/// `plimsoll_metrics` of the header.
///
/// # Safety
/// `gate` is open; a C string; `size` writable bytes at `text`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_metrics(
    gate: *mut OpenGate,
    program: *const c_char,
    text: *mut c_char,
    size: usize,
) -> usize {
    // SAFETY: the caller keeps the gate open during this call.
    let gate = unsafe { &*gate };
    // SAFETY: a C string of the caller, for this call.
    let name = unsafe { utf8(program) }.unwrap_or_default();
    // A gate is read at once; only shards would have late answers to keep.
    let exposition = encode(&[Metrics::new(gate.gate.topology(), name).take()]);
    // SAFETY: memory of the caller, for this call.
    unsafe { write_text(&exposition, text, size) };
    exposition.len()
}

fn class_of(class_id: u32) -> Option<Class> {
    u16::try_from(class_id).ok().map(Class::from_index)
}

fn op_of(op: c_uint) -> Option<Op> {
    Op::ALL.get(op as usize).copied()
}

//! Every backend of this crate against the one contract (module `conformance`).

use std::io;
use std::path::{Path, PathBuf};

use crate::common::skip::skip;
use plimsoll::backend::Backend;
use plimsoll::backend::aio::AioBackend;
use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::memory::{MemoryBackend, MemoryStore};
use plimsoll::backend::null::NullBackend;
use plimsoll::backend::pool::PoolBackend;
use plimsoll::backend::sim::{SimConfig, SimWorld};
use plimsoll::backend::uring::UringBackend;
use plimsoll::conformance::{Outcome, Promises, assert_passed, run};

/// Runs the kit, unless this machine does not allow the backend.
fn check(name: &str, make: impl Fn() -> io::Result<Box<dyn Backend>>, dir: &Path, promises: Promises) {
    match make() {
        Ok(backend) => drop(backend),
        Err(error) => {
            skip(format_args!("backend {name} cannot be used here: {error}"));
            return;
        }
    }
    let results = run(make, dir, promises);
    for result in &results {
        if let Outcome::Skipped(reason) = &result.outcome
            && !lies_in_its_nature(name, reason)
        {
            skip(format_args!("{name}: {}: {reason}", result.name));
        }
    }
    assert_passed(name, &results);
}

/// Whether the kit leaves a check out on every machine: because of what the backend is, not of what is missing here.
fn lies_in_its_nature(name: &str, reason: &str) -> bool {
    reason.starts_with("this backend ")
        || (reason.starts_with("memory is not registered") && !name.starts_with("uring"))
        || (reason.starts_with("direct I/O is refused") && name.starts_with("memory"))
}

fn temp() -> PathBuf {
    std::env::temp_dir()
}

#[test]
fn uring_keeps_the_contract() {
    check("uring", || Ok(Box::new(UringBackend::new(128)?)), &temp(), Promises::default());
}

#[test]
fn a_small_ring_keeps_the_contract() {
    check("uring, 1 entry", || Ok(Box::new(UringBackend::new(1)?)), &temp(), Promises::default());
    check("uring, 8 entries", || Ok(Box::new(UringBackend::new(8)?)), &temp(), Promises::default());
}

#[test]
fn aio_keeps_the_contract() {
    check("aio", || Ok(Box::new(AioBackend::new(128)?)), &temp(), Promises::default());
    check("aio, 1 entry", || Ok(Box::new(AioBackend::new(1)?)), &temp(), Promises::default());
}

#[test]
fn pool_keeps_the_contract() {
    check("pool", || Ok(Box::new(PoolBackend::new(4, 128)?)), &temp(), Promises::default());
    check("pool, 1 thread", || Ok(Box::new(PoolBackend::new(1, 3)?)), &temp(), Promises::default());
}

#[test]
fn memory_keeps_the_contract() {
    let at_once = || Ok(Box::new(MemoryBackend::new(&MemoryStore::default())?) as Box<dyn Backend>);
    check("memory", at_once, &temp(), Promises::default());
    let deferred = || Ok(Box::new(MemoryBackend::deferred(&MemoryStore::default(), 64)?) as Box<dyn Backend>);
    check("memory, deferred", deferred, &temp(), Promises::default());
}

#[test]
fn null_keeps_the_contract_but_no_data() {
    let promises = Promises { keeps_data: false, ..Promises::default() };
    check("null", || Ok(Box::new(NullBackend::new()?)), &temp(), promises);
}

#[test]
fn sim_keeps_the_contract_in_virtual_time() {
    let promises = Promises { real_time: false, ..Promises::default() };
    for (sector_bytes, capacity) in [(512, 128), (4096, 1)] {
        let config = SimConfig { sector_bytes, ..SimConfig::default() };
        let alone =
            || Ok(Box::new(SimWorld::new(&config).map_err(io::Error::other)?.backend(capacity)) as Box<dyn Backend>);
        check("sim", alone, &temp(), promises);
    }
    check("sim, for threads", || BackendKind::Sim.make(64).map_err(io::Error::other), &temp(), promises);
}

/// tmpfs takes `O_DIRECT` but does not say its alignment on older kernels.
#[test]
fn backends_work_on_a_memory_file_system() {
    let dir = Path::new("/dev/shm");
    if !dir.is_dir() {
        skip("no /dev/shm here");
        return;
    }
    for kind in [BackendKind::Uring, BackendKind::Aio, BackendKind::Pool] {
        let make = || kind.make(64).map_err(io::Error::other);
        check(&format!("{kind} on tmpfs"), make, dir, Promises::default());
    }
}

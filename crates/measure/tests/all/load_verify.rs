//! Verification: what a run of the load generator wrote is read back and compared.

use plimsoll::backend::OpenOptions;
use plimsoll::backend::choose::BackendKind;
use plimsoll::{Classes, DiskSetup, Topology};
use plimsoll_measure::load::{Control, FAULTS_MAX, Pattern, Plan, Target, run};

use crate::load::{FOR_EVER_NS, REGION_BYTES, alone, job, one_queue, plan, target};

#[test]
fn what_was_written_is_verified() {
    for (pattern, batch) in [(Pattern::RandWrite, 1), (Pattern::RandMixed { read_pct: 50 }, 4), (Pattern::Overwrite, 1)]
    {
        for iov_count in [None, Some(2)] {
            let verified = job("verified", pattern, 4).shaped(|it| {
                it.verify = true;
                it.batch = batch;
                it.iov_count = iov_count;
                it.request_bytes = 8192;
                it.limit_requests = Some(999);
            });
            // What is kept is what was written.
            let plan = alone(BackendKind::Memory, vec![verified.clone()], FOR_EVER_NS);
            let total = run(&plan, &Control::default()).unwrap().total("verified");
            assert_eq!((total.errors, total.fault_count, total.faults.len()), (0, 0, 0), "{pattern:?}: {total:?}");
            // A disk that keeps nothing is found out.
            let plan = alone(BackendKind::Null, vec![verified], FOR_EVER_NS);
            let total = run(&plan, &Control::default()).unwrap().total("verified");
            assert!(total.fault_count > 0 && total.faults.len() <= FAULTS_MAX, "{pattern:?}: {total:?}");
        }
    }
}

#[test]
fn what_was_written_is_read_back_through_the_queue_of_another_shard() {
    for backend in [BackendKind::Memory, BackendKind::Pool] {
        let Some(topology) = one_queue(3) else { return };
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        // The shard of the queue has no job, and each of the others has its limit.
        let jobs = [1, 2].map(|shard| {
            let name = directory.path().join(shard.to_string());
            let target = match backend {
                BackendKind::Memory => target(&topology, &name.display().to_string()),
                _ => {
                    std::fs::write(&name, vec![0; REGION_BYTES as usize]).unwrap();
                    let how = OpenOptions { write: true, ..OpenOptions::default() };
                    Target { file: topology.file(&name, how, 0), offset: 0, len_bytes: REGION_BYTES }
                }
            };
            let verified = job(&format!("on {shard}"), Pattern::Overwrite, 1).shaped(|it| {
                it.verify = true;
                it.limit_requests = Some(255);
            });
            verified.on_shard(shard, target)
        });
        let plan = Plan { duration_ns: FOR_EVER_NS, ..plan(topology, backend, jobs.to_vec()) };
        let result = run(&plan, &Control::default()).unwrap();
        for name in ["on 1", "on 2"] {
            let total = result.total(name);
            let back = &total.read_back;
            assert_eq!((total.requests, total.errors, total.fault_count), (256, 0, 0), "{backend:?}: {total:?}");
            assert_eq!((back.requests, back.bytes, back.errors), (256, REGION_BYTES, 0), "{backend:?}: {back:?}");
        }
    }
}

#[test]
fn a_job_that_mixes_writes_its_own_data_and_not_what_it_read() {
    const REQUEST_BYTES: u32 = 64 << 10;
    for (pattern, iov_count) in
        [(Pattern::RandMixed { read_pct: 50 }, None), (Pattern::SeqMixed { read_pct: 75 }, Some(2))]
    {
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        file.as_file().set_len(REGION_BYTES).unwrap();
        let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
        let how = OpenOptions { write: true, ..OpenOptions::default() };
        let region = Target { file: topology.file(file.path(), how, 0), offset: 0, len_bytes: REGION_BYTES };
        // The reads begin with zeros: the file has no data yet.
        let mixed = job("mixed", pattern, 2).shaped(|it| {
            it.request_bytes = REQUEST_BYTES;
            it.iov_count = iov_count;
            it.limit_requests = Some(399);
        });
        let jobs = vec![mixed.on_shard(0, region)];
        let plan = Plan { duration_ns: FOR_EVER_NS, ..plan(topology, BackendKind::Pool, jobs) };
        let total = run(&plan, &Control::default()).unwrap().total("mixed");
        assert_eq!((total.requests, total.errors), (400, 0));
        let bytes = std::fs::read(file.path()).unwrap();
        let mut written = 0;
        for block in bytes.chunks(REQUEST_BYTES as usize).filter(|block| block.iter().any(|byte| *byte != 0)) {
            let zeros = block.iter().filter(|byte| **byte == 0).count();
            // Of random bytes one in 256 is zero.
            assert!(zeros < block.len() / 100, "{pattern:?}: {zeros} zeros of {}", block.len());
            written += 1;
        }
        assert!(written > 0);
    }
}

#[test]
fn runs_over_the_stamps_of_earlier_ones_find_no_faults() {
    let verified = job("same", Pattern::Overwrite, 4).shaped(|it| {
        it.verify = true;
        it.limit_requests = Some(499);
    });
    let plan = alone(BackendKind::Memory, vec![verified], FOR_EVER_NS);
    for _ in 0..2 {
        let total = run(&plan, &Control::default()).unwrap().total("same");
        assert_eq!((total.errors, total.fault_count), (0, 0), "{total:?}");
    }
}

//! Runs of the load generator, on backends that need no disk.

use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::memory::MemoryBackend;
use plimsoll::backend::{Backend, OpenOptions};
use plimsoll::{Class, Classes, DiskSetup, ShardOptions, Topology};
use plimsoll_tools::config::{jobs, sched_groups};
use plimsoll_tools::load::{Control, JobSpec, LoadError, Pattern, Plan, Scratch, Target, run};
use plimsoll_tools::report::TestReport;
use plimsoll_tools::test::{Storage, TestOptions};

const REGION_BYTES: u64 = 1 << 20;
/// Long enough for a few requests on a busy machine.
const DURATION_NS: u64 = 50_000_000;

/// Two shards, of which the first has the only I/O queue. `None` where NUMA forbids that.
fn one_queue(shards: u16) -> Option<Topology> {
    let setup = DiskSetup { num_io_queues: Some(1), ..DiskSetup::unlimited() };
    Topology::new(shards, Classes::new(), vec![setup]).map_err(|error| println!("skipped: {error}")).ok()
}

/// A file of zeros in the memory of `topology`.
fn target(topology: &Topology, name: &str) -> Target {
    let mut backend = MemoryBackend::new(topology.memory()).expect("memory is there");
    let how = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let (file, _) = backend.open(name.as_ref(), &how).expect("a new file");
    backend.set_file_len(file, REGION_BYTES).expect("its length");
    let how = OpenOptions { write: true, ..OpenOptions::default() };
    Target { file: topology.file(name.as_ref(), how, 0), offset: 0, len_bytes: REGION_BYTES }
}

fn job(name: &str, pattern: Pattern, parallelism: u32) -> JobSpec {
    JobSpec::closed_loop(name, pattern, 4096, parallelism, Class::DEFAULT)
}

fn plan(topology: Topology, backend: BackendKind, jobs: Vec<JobSpec>) -> Plan {
    let options = ShardOptions { backend: Some(backend), pin: false, ..ShardOptions::default() };
    Plan { topology, options, jobs, warmup_ns: 0, duration_ns: DURATION_NS, seed: 1 }
}

#[test]
fn a_shard_stays_while_others_need_its_queue() {
    for backend in [BackendKind::Null, BackendKind::Memory] {
        for round in 0..10 {
            let Some(topology) = one_queue(2) else { return };
            let far = job("far", Pattern::RandRead, 1 + round).on_shard(1, target(&topology, "far"));
            // Ends long before the other: the shard of the queue has nothing to do of its own then.
            let short = JobSpec { limit_requests: Some(1), ..job("short", Pattern::RandRead, 1) };
            let short = short.on_shard(0, target(&topology, "short"));
            let jobs = if round % 2 == 0 { vec![far] } else { vec![short, far] };
            let result = run(&plan(topology, backend, jobs), &Control::default()).unwrap();
            let total = result.total("far");
            assert!(total.requests > 0 && total.errors == 0, "{backend:?} {round}: {total:?}");
            assert_eq!(result.total("short").errors, 0);
            // The shard that only serves is measured, too.
            assert!(result.shards[0].elapsed_ns > 0 && result.shards[0].cpu_ns > 0, "{:?}", result.shards[0]);
        }
    }
}

#[test]
fn a_run_ends_when_all_jobs_have_reached_their_limits() {
    let Some(topology) = one_queue(3) else { return };
    let limited = |name: &str, limit| JobSpec { limit_requests: Some(limit), ..job(name, Pattern::SeqRead, 2) };
    let jobs =
        vec![limited("a", 9).on_shard(1, target(&topology, "a")), limited("b", 99).on_shard(2, target(&topology, "b"))];
    let plan = Plan { duration_ns: u64::MAX / 2, ..plan(topology, BackendKind::Memory, jobs) };
    let result = run(&plan, &Control::default()).unwrap();
    assert_eq!((result.total("a").requests, result.total("b").requests), (10, 100));
    assert!(result.total("a").elapsed_ns > 0);
}

#[test]
fn writers_end_at_the_bound_and_readers_go_on() {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let jobs = vec![
        job("reads", Pattern::RandRead, 1).on_shard(0, target(&topology, "r")),
        job("writes", Pattern::RandWrite, 8).on_shard(0, target(&topology, "w")),
    ];
    let control = Control::default();
    control.bound_writes(100 * 4096 + 4095);
    let bounded = Plan { duration_ns: 4 * DURATION_NS, ..plan(topology, BackendKind::Memory, jobs) };
    let result = run(&bounded, &control).unwrap();
    assert_eq!((control.written_bytes(), control.is_write_bound_reached()), (100 * 4096, true));
    let (reads, writes) = (result.total("reads"), result.total("writes"));
    assert_eq!((writes.requests, writes.errors, reads.errors), (100, 0, 0));
    assert!(reads.elapsed_ns >= 4 * DURATION_NS && writes.elapsed_ns < reads.elapsed_ns);
    // Nothing to write with, and nothing else to do: over at once.
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let jobs = vec![job("writes", Pattern::RandWrite, 8).on_shard(0, target(&topology, "w"))];
    let long = Plan { duration_ns: u64::MAX / 2, ..plan(topology, BackendKind::Memory, jobs) };
    assert_eq!(run(&long, &control).unwrap().total("writes").requests, 0);
}

#[test]
fn plans_that_no_shard_can_hold_are_refused() {
    // (parallelism, batch) of two jobs, the shard of the second, and whether they fit.
    let cases = [
        ((65_536, 1), (1, 1), 0, false),
        ((65_536, 65_536), (1, 1), 0, false),
        ((65_535, 1), (1, 1), 0, true),
        // The second shard's requests have a place on the first one, too.
        ((65_536, 1), (1, 1), 1, false),
        ((8, 2), (16, 4), 1, true),
    ];
    for (first, second, shard, fits) in cases {
        let Some(topology) = one_queue(2) else { return };
        let sized = |name: &str, (parallelism, batch): (u32, u32)| JobSpec {
            requests_per_s_per_fiber: Some(0.01),
            batch,
            request_bytes: 512,
            ..job(name, Pattern::RandRead, parallelism)
        };
        let jobs = vec![
            sized("first", first).on_shard(0, target(&topology, "1")),
            sized("second", second).on_shard(shard, target(&topology, "2")),
        ];
        let plan = Plan { duration_ns: 1, ..plan(topology, BackendKind::Null, jobs) };
        match run(&plan, &Control::default()) {
            Ok(_) => assert!(fits, "{first:?} {second:?}"),
            Err(LoadError::Unsuitable { job, reason }) => {
                assert!(
                    !fits && reason.contains("65536") && reason.contains("lower its parallelism"),
                    "{job}: {reason}"
                );
                assert_eq!(job, if first.1 > 1 { "first" } else { "second" });
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_run_that_ends_in_the_warm_up_has_measured_nothing() {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let limited = JobSpec { limit_requests: Some(50), ..job("a", Pattern::RandRead, 4) };
    let jobs = vec![limited.on_shard(0, target(&topology, "a"))];
    let plan = Plan { warmup_ns: u64::MAX / 4, ..plan(topology, BackendKind::Memory, jobs) };
    let result = run(&plan, &Control::default()).unwrap();
    let total = result.total("a");
    assert_eq!((total.requests, total.errors, total.elapsed_ns, result.shards[0].elapsed_ns), (0, 0, 0, 0));
    assert_eq!(total.class.map(|class| class.stats.dispatched), Some(0));
}

#[test]
fn a_short_file_is_written_once() {
    let directory = env!("CARGO_TARGET_TMPDIR");
    let mut scratch = Scratch::new(directory.as_ref(), 0).unwrap();
    let path = scratch.create(&format!("plimsoll-load-{}", std::process::id())).unwrap();
    let control = Control::default();
    match scratch.fill(&[(path.clone(), 3 << 20)], Some(BackendKind::Pool), &control) {
        Ok(()) => assert_eq!(control.written_bytes(), 3 << 20),
        Err(error) => println!("skipped: {error}"),
    }
}

fn test_options(text: &str, groups: &str) -> TestOptions {
    let groups = match groups {
        "" => sched_groups::SchedGroups::default(),
        text => sched_groups::parse("groups", text).expect("a text of this test"),
    };
    TestOptions {
        jobs: jobs::parse("jobs", text, &groups).expect("a text of this test"),
        groups,
        storage: Storage::of(".".as_ref()).expect("a text of this test"),
        overwrite: false,
        destructive: false,
        keep_files: false,
        shards: 1,
        disk: DiskSetup::unlimited(),
        backend: Some(BackendKind::Memory),
        warmup_ns: 0,
        duration_ns: 4 * DURATION_NS,
        max_write_bytes: None,
        seed: 1,
    }
}

#[test]
fn a_job_file_runs_whatever_its_names_and_groups() {
    let text = "
- {name: a b, type: randread, shards: all, data_size: 1MB, shard_info: {parallelism: 1, class: leaf}}
- {name: a_b, type: randread, shards: all, data_size: 1MB, shard_info: {parallelism: 1}}
- {name: default, type: overwrite, shards: all, data_size: 1MB, shard_info: {parallelism: 1, shares: 33}}
";
    let groups = "[{name: leaf, shares: 3, parent: top}, {name: top, shares: 2}]";
    let options = TestOptions { max_write_bytes: Some(40_960), ..test_options(text, groups) };
    let result = plimsoll_tools::test::run(&options, &Control::default(), &mut |_, _| {}).unwrap();
    let report = TestReport::of(&result);
    for job in &report.jobs {
        assert!(job.requests > 0 && job.errors == 0, "{job:?}");
    }
    let shares: Vec<_> = report.jobs.iter().map(|job| (job.class.as_str(), job.shares)).collect();
    assert_eq!(shares, [("leaf", 3), ("a_b", 10), ("default", 33)]);
    assert_eq!((report.written_bytes, report.max_write_reached), (40_960, true));
}

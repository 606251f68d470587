//! Runs of the load generator, on backends that need no disk.

use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::memory::MemoryBackend;
use plimsoll::backend::{Backend, OpenOptions};
use plimsoll::{Class, Classes, DiskSetup, ShardOptions, Topology, TopologyError};
use plimsoll_files::{job_reader, sched_groups};
use plimsoll_measure::load::{
    Access, Control, JobSpec, LoadError, Pattern, Plan, Scratch, SizeShare, Target, Watch, run, run_watched,
    unlink_path,
};
use plimsoll_measure::report::TestReport;
use plimsoll_measure::test::{Storage, TestOptions};

use crate::skip::{self, skip};

pub(crate) const REGION_BYTES: u64 = 1 << 20;
/// Long enough for a few requests on a busy machine.
pub(crate) const DURATION_NS: u64 = 50_000_000;

/// Two shards, of which the first has the only I/O queue. `None` where NUMA forbids that.
pub(crate) fn one_queue(shards: u16) -> Option<Topology> {
    let setup = DiskSetup { num_io_queues: Some(1), ..DiskSetup::unlimited() };
    match Topology::new(shards, Classes::new(), vec![setup]) {
        Ok(topology) => Some(topology),
        Err(error @ TopologyError::FewerQueuesThanNodes { .. }) => {
            skip(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A file of zeros in the memory of `topology`.
pub(crate) fn target(topology: &Topology, name: &str) -> Target {
    let mut backend = MemoryBackend::new(topology.memory()).expect("memory is there");
    let how = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let (file, _) = backend.open(name.as_ref(), &how).expect("a new file");
    backend.set_file_len(file, REGION_BYTES).expect("its length");
    let how = OpenOptions { write: true, ..OpenOptions::default() };
    Target { file: topology.file(name.as_ref(), how, 0), offset: 0, len_bytes: REGION_BYTES }
}

pub(crate) fn job(name: &str, pattern: Pattern, parallelism: u32) -> JobSpec {
    JobSpec::closed_loop(name, pattern, 4096, parallelism, Class::DEFAULT)
}

pub(crate) fn plan(topology: Topology, backend: BackendKind, jobs: Vec<JobSpec>) -> Plan {
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
            let short = job("short", Pattern::RandRead, 1).shaped(|it| it.limit_requests = Some(1));
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
    let limited = |name: &str, limit| job(name, Pattern::SeqRead, 2).shaped(|it| it.limit_requests = Some(limit));
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
    let control = Control::default().with_write_bound(Some(100 * 4096 + 4095));
    let bounded = Plan { duration_ns: 4 * DURATION_NS, ..plan(topology, BackendKind::Memory, jobs) };
    let result = run(&bounded, &control).unwrap();
    assert_eq!((control.traffic.written_bytes(), control.traffic.is_write_bound_reached()), (100 * 4096, true));
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
        let sized = |name: &str, (parallelism, batch): (u32, u32)| {
            job(name, Pattern::RandRead, parallelism).shaped(|it| {
                it.requests_per_s_per_fiber = Some(0.01);
                it.batch = batch;
                it.request_bytes = 512;
            })
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
fn a_job_that_does_its_work_in_the_warm_up_is_measured_as_a_whole() {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let limited = job("a", Pattern::RandRead, 4).shaped(|it| it.limit_requests = Some(50));
    let jobs = vec![limited.on_shard(0, target(&topology, "a"))];
    let plan = Plan { warmup_ns: u64::MAX / 4, ..plan(topology, BackendKind::Memory, jobs) };
    let result = run(&plan, &Control::default()).unwrap();
    let total = result.total("a");
    assert_eq!((total.requests, total.errors, total.latency.count(), result.shards[0].elapsed_ns), (51, 0, 51, 0));
    assert!(total.elapsed_ns > 0, "as long as it worked");
    assert_eq!(total.class.map(|class| class.stats.dispatched), Some(0));
}

#[test]
fn a_short_file_is_written_once() {
    let directory = env!("CARGO_TARGET_TMPDIR");
    let mut scratch = Scratch::new(directory.as_ref(), 0).unwrap();
    let path = scratch.create(&format!("plimsoll-load-{}", std::process::id())).unwrap();
    let control = Control::default();
    if !skip::has_direct_io(directory.as_ref()) {
        return;
    }
    scratch.fill(&[(path.clone(), 3 << 20)], Some(BackendKind::Pool), &control).unwrap();
    assert_eq!(control.traffic.written_bytes(), 3 << 20);
}

fn test_options(text: &str, groups: &str) -> TestOptions {
    let groups = match groups {
        "" => sched_groups::SchedGroups::default(),
        text => sched_groups::parse("groups", text).expect("a text of this test"),
    };
    let jobs = job_reader::parse("jobs", text, &groups).expect("a text of this test");
    TestOptions {
        groups,
        backend: Some(BackendKind::Memory),
        duration_ns: 4 * DURATION_NS,
        ..TestOptions::new(jobs, Storage::of(".".as_ref()).expect("a text of this test"))
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
    let result = plimsoll_measure::test::run(&options, &Control::default(), &mut |_, _| {}).unwrap();
    let report = TestReport::of(&result);
    for job in &report.jobs {
        assert!(job.requests > 0 && job.errors == 0, "{job:?}");
    }
    let shares: Vec<_> = report.jobs.iter().map(|job| (job.class.as_str(), job.shares)).collect();
    assert_eq!(shares, [("leaf", 3), ("a_b", 10), ("default", 33)]);
    assert_eq!((report.written_bytes, report.max_write_reached), (40_960, true));
}

/// One shard on a backend, with a job on a file of its own for each name.
pub(crate) fn alone(backend: BackendKind, jobs: Vec<JobSpec>, duration_ns: u64) -> Plan {
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).expect("one shard and one disk");
    let placed = jobs.into_iter().map(|job| {
        let target = target(&topology, &job.name);
        job.on_shard(0, target)
    });
    let placed = placed.collect();
    Plan { duration_ns, ..plan(topology, backend, placed) }
}

/// Long enough that only limits end a run.
pub(crate) const FOR_EVER_NS: u64 = u64::MAX / 4;

#[test]
fn mixes_have_their_proportion_exactly() {
    for (read_pct, limit) in [(70, 999), (0, 99), (100, 99), (1, 999), (33, 299)] {
        for pattern in [Pattern::RandMixed { read_pct }, Pattern::SeqMixed { read_pct }] {
            let mixed = job("mix", pattern, 3).shaped(|it| it.limit_requests = Some(limit));
            let control = Control::default();
            let watched =
                run_watched(&alone(BackendKind::Memory, vec![mixed], FOR_EVER_NS), &Watch::default(), &control);
            let watched = watched.unwrap();
            let total = watched.total("mix");
            let directions = total.directions.unwrap();
            let made = u64::from(limit) + 1;
            assert_eq!((total.requests, total.errors), (made, 0));
            assert_eq!(directions.reads.requests, made * u64::from(read_pct) / 100, "{pattern:?}");
            assert_eq!(directions.reads.requests + directions.writes.requests, made);
            assert_eq!(control.traffic.written_bytes(), directions.writes.requests * 4096);
            assert_eq!(directions.reads.latency.count() + directions.writes.latency.count(), total.latency.count());
        }
    }
}

#[test]
fn sizes_come_as_often_as_they_should_and_fit_in_the_region() {
    for pattern in [Pattern::RandRead, Pattern::SeqRead, Pattern::RandWrite] {
        let sizes = vec![SizeShare { bytes: 4096, percent: 75.0 }, SizeShare { bytes: 65_536, percent: 25.0 }];
        let sized = job("sizes", pattern, 4).shaped(|it| {
            it.sizes = sizes;
            it.request_bytes = 65_536;
            it.limit_requests = Some(9_999);
        });
        let total =
            run(&alone(BackendKind::Memory, vec![sized], FOR_EVER_NS), &Control::default()).unwrap().total("sizes");
        // All of them are inside the file: a short transfer would be an error.
        assert_eq!((total.requests, total.errors), (10_000, 0));
        let mean_bytes = total.bytes as f64 / total.requests as f64;
        assert!((mean_bytes / (0.75 * 4096.0 + 0.25 * 65_536.0) - 1.0).abs() < 0.05, "{mean_bytes}");
    }
}

#[test]
fn popular_positions_are_read_too() {
    for access in [Access::Zipf { theta: 1.1 }, Access::HotSet { data_pct: 10.0, access_pct: 90.0 }] {
        let popular = job("zipf", Pattern::RandRead, 2).shaped(|it| {
            it.access = access;
            it.limit_requests = Some(999);
        });
        let total =
            run(&alone(BackendKind::Memory, vec![popular], FOR_EVER_NS), &Control::default()).unwrap().total("zipf");
        assert_eq!((total.requests, total.errors, total.bytes), (1000, 0, 1000 * 4096));
    }
}

#[test]
fn limits_count_bytes() {
    let sizes = vec![SizeShare { bytes: 4096, percent: 100.0 }];
    // (sizes, limit, requests)
    for (sizes, limit_bytes, requests) in
        [(vec![], 40_960, 10), (vec![], 40_961, 11), (sizes, 40_961, 11), (vec![], 1, 1)]
    {
        let limited = job("some", Pattern::SeqRead, 4).shaped(|it| {
            it.sizes = sizes;
            it.limit_bytes = Some(limit_bytes);
        });
        let total =
            run(&alone(BackendKind::Memory, vec![limited], FOR_EVER_NS), &Control::default()).unwrap().total("some");
        assert_eq!((total.requests, total.errors), (requests, 0), "{limit_bytes}");
    }
}

#[test]
fn limits_count_what_is_given_back() {
    let limited = job("trim", Pattern::Discard { is_random: false }, 4).shaped(|it| it.limit_bytes = Some(40_960));
    let total = run(&alone(BackendKind::Null, vec![limited], FOR_EVER_NS), &Control::default()).unwrap().total("trim");
    assert_eq!(total.requests, 10, "{total:?}");
}

#[test]
fn flushes_come_after_writes_and_are_counted_by_themselves() {
    for (every, limit, flushes) in [(1, 99, 99), (10, 99, 9), (7, 99, 14)] {
        let flushed = job("log", Pattern::Overwrite, 1).shaped(|it| {
            it.flush_every = every;
            it.limit_requests = Some(limit);
        });
        let plan = alone(BackendKind::Memory, vec![flushed], FOR_EVER_NS);
        let watched = run_watched(&plan, &Watch::default(), &Control::default()).unwrap();
        let total = watched.total("log");
        assert_eq!((total.requests, total.flushes.requests), (100, flushes));
    }
    let jobs = [
        ("flush", Pattern::Flush),
        ("discard", Pattern::Discard { is_random: false }),
        ("anywhere", Pattern::Discard { is_random: true }),
    ];
    let jobs = jobs.map(|(name, pattern)| job(name, pattern, 2).shaped(|it| it.limit_requests = Some(19)));
    let result = run(&alone(BackendKind::Memory, jobs.to_vec(), FOR_EVER_NS), &Control::default()).unwrap();
    let flush = result.total("flush");
    assert_eq!((flush.requests, flush.bytes, flush.errors), (20, 0, 0));
    for discard in ["discard", "anywhere"].map(|name| result.total(name)) {
        assert_eq!((discard.requests, discard.bytes, discard.errors), (20, 20 * 4096, 0));
    }
}

#[test]
fn cpu_slices_leave_time_for_others() {
    let cpu = job("cpu", Pattern::Cpu { execution_ns: 200_000 }, 3).shaped(|it| it.limit_requests = Some(49));
    let reads = job("reads", Pattern::RandRead, 1).shaped(|it| it.limit_requests = Some(199));
    let result = run(&alone(BackendKind::Memory, vec![cpu, reads], FOR_EVER_NS), &Control::default()).unwrap();
    let (cpu, reads) = (result.total("cpu"), result.total("reads"));
    assert_eq!((cpu.requests, cpu.bytes, cpu.errors, reads.requests), (50, 0, 0, 200));
    // A slice takes its time, and all of them are on one thread.
    assert!(cpu.latency.min() >= 200_000 && cpu.elapsed_ns >= 50 * 200_000, "{cpu:?}");
}

#[test]
fn files_are_removed_once_each() {
    let unlink = job("unlink", Pattern::Unlink { files: 20 }, 3).shaped(|it| it.think_time_ns = 1);
    let plan = alone(BackendKind::Memory, vec![unlink], FOR_EVER_NS);
    for number in 0..19 {
        let mut backend = MemoryBackend::new(plan.topology.memory()).unwrap();
        let how = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
        backend.open(&unlink_path("unlink".as_ref(), number), &how).unwrap();
    }
    let total = run(&plan, &Control::default()).unwrap().total("unlink");
    // The last file does not exist.
    assert_eq!((total.requests, total.errors, total.first_error), (19, 1, Some(2)));
}

#[test]
fn a_job_that_fails_does_not_hold_up_others() {
    let broken = job("broken", Pattern::RandWrite, 2).shaped(|it| it.limit_requests = Some(99));
    let well = job("well", Pattern::RandRead, 2).shaped(|it| it.limit_requests = Some(99));
    let mut plan = alone(BackendKind::Memory, vec![broken, well], FOR_EVER_NS);
    // A file that is open for reading only refuses what is written.
    let file = plan.topology.file("broken".as_ref(), OpenOptions::default(), 0);
    plan.jobs[0].targets[0].as_mut().unwrap().file = file;
    let result = run(&plan, &Control::default()).unwrap();
    let (broken, well) = (result.total("broken"), result.total("well"));
    assert_eq!((broken.requests, broken.errors, broken.first_error), (0, 100, Some(9)));
    assert_eq!((well.requests, well.errors), (100, 0));
}

#[test]
fn stages_follow_one_another() {
    let text = "
- {name: first, type: overwrite, shards: all, data_size: 1MB, shard_info: {parallelism: 2, limit: 99}}
- {name: second, type: randread, shards: all, data_size: 1MB, shard_info: {parallelism: 2, limit: 49}}
- {name: hog, type: randread, shards: all, data_size: 1MB, shard_info: {parallelism: 2, limit: 19}}
";
    let mut options = test_options(text, "");
    for (job, stage) in options.jobs.jobs.iter_mut().zip([0, 7, 7]) {
        job.stage = stage;
    }
    options.jobs.jobs[2].kind = Pattern::Cpu { execution_ns: 1 };
    let mut steps = Vec::new();
    let mut hear = |what: &str, _| steps.push(what.to_owned());
    let result = plimsoll_measure::test::run(&options, &Control::default(), &mut hear).unwrap();
    assert_eq!(steps, ["preparing files", "running stage 1 of 2", "running stage 2 of 2"]);
    let requests = ["first", "second", "hog"].map(|name| result.run.total(name).requests);
    assert_eq!((requests, result.interrupted), ([100, 50, 20], false));
}

#[test]
fn files_that_a_job_removes_are_open_nowhere() {
    // The kernel frees the space of a file that is open when it is closed: its removal is no work yet.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let text =
        "- {name: gone, type: unlink, shards: all, data_size: 8MB, files_count: 8, shard_info: {parallelism: 2}}";
    let mut options = test_options(text, "");
    options.storage = Storage::of(directory.path()).unwrap();
    options.backend = Some(BackendKind::Pool);
    let mut open = Vec::new();
    let mut look = |what: &str, _| {
        if what == "running" {
            let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path().read_link());
            open.extend(links.flatten().filter(|path| path.starts_with(directory.path())));
            assert!(std::fs::read_dir(&directory).unwrap().count() >= 8);
        }
    };
    match plimsoll_measure::test::run(&options, &Control::default(), &mut look) {
        Ok(result) => assert_eq!(result.run.total("gone").requests, 8),
        Err(error) => return skip(error),
    }
    let removed = |path: &&std::path::PathBuf| path.extension().is_some();
    assert_eq!(open.iter().find(removed), None, "{open:?}");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn files_of_all_kinds_are_made_and_removed() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let text = "
- {name: gone, type: randread, shards: all, data_size: 3MB, shard_info: {parallelism: 2}}
- {name: log, type: append, shards: all, data_size: 2MB, shard_info: {parallelism: 1, limit: 9}}
";
    let mut options = test_options(text, "");
    options.jobs.jobs[0].kind = Pattern::Unlink { files: 3 };
    options.jobs.jobs[1].fallocate = true;
    options.storage = Storage::of(directory.path()).unwrap();
    options.backend = Some(BackendKind::Pool);
    options.shards = 1;
    match plimsoll_measure::test::run(&options, &Control::default(), &mut |_, _| {}) {
        Ok(result) => {
            let [gone, log] = ["gone", "log"].map(|name| result.run.total(name));
            assert_eq!((gone.requests, gone.errors, log.requests, log.errors), (3, 0, 10, 0), "{gone:?} {log:?}");
        }
        Err(error) => skip(error),
    }
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    // More than there is: refused with the numbers before anything is made.
    options.jobs.jobs[1].data_size_bytes = Some(1 << 60);
    let refused = plimsoll_measure::test::run(&options, &Control::default(), &mut |_, _| {}).unwrap_err().to_string();
    assert!(refused.contains("free") && refused.contains("1024 PiB"), "{refused}");
}

//! The files of fio's jobs: which are shared, where they come from, who may write to them; and when such jobs end.

use plimsoll::backend::OpenOptions;
use plimsoll::backend::choose::BackendKind;
use plimsoll::backend::sim::{SimConfig, SimWorld};
use plimsoll::{Class, Classes, DiskSetup, Topology};
use plimsoll_files::fio;
use plimsoll_files::jobs::RateMin;
use plimsoll_measure::load::{Control, JobSpec, Pattern, Plan, RunResult, Scratch, Shape, Target, run_simulated};
use plimsoll_measure::test::{ReusedFiles, Storage, TestError, TestOptions, run};
use tempfile::TempDir;

use crate::skip;

const MIB: u64 = 1 << 20;
const S: u64 = 1_000_000_000;

/// A directory on the disk that holds the build.
struct Ground(TempDir);

impl Ground {
    fn new() -> Ground {
        Ground(TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap())
    }

    fn with_direct_io() -> Option<Ground> {
        Some(Ground::new()).filter(|ground| skip::has_direct_io(ground.0.path()))
    }

    /// The jobs of a file, in this directory, on real files.
    fn options(&self, text: &str) -> TestOptions {
        let text = format!("[global]\ndirectory={}\n{text}", self.0.path().display());
        let file = fio::parse("t.fio", &text).unwrap_or_else(|error| panic!("{error}"));
        TestOptions {
            backend: Some(BackendKind::Pool),
            duration_ns: file.duration_ns.unwrap_or(u64::MAX / 4),
            ..TestOptions::new(file.jobs_for(1), Storage::of(self.0.path()).unwrap())
        }
    }

    /// Names and lengths of the files.
    fn files(&self) -> Vec<(String, u64)> {
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap());
        let of = |entry: std::fs::DirEntry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().len());
        let mut files: Vec<_> = entries.map(of).collect();
        files.sort();
        files
    }
}

fn done(options: &TestOptions) -> RunResult {
    run(options, &Control::default(), &mut |_, _| {}).unwrap_or_else(|error| panic!("{error}")).run
}

#[test]
fn jobs_that_name_one_file_share_it() {
    let Some(ground) = Ground::with_direct_io() else { return };
    let text = "direct=1\nbs=64k\nsize=1m\n[writes]\nrw=write\nfilename=one\nnumjobs=2\noffset_increment=1m\n\
                [reads]\nstonewall\nrw=randread\nfilename=one\n[own]\nrw=read\n";
    let options = TestOptions { keep_files: true, ..ground.options(text) };
    let result = done(&options);
    for name in ["writes", "writes.2", "reads", "own"] {
        let total = result.total(name);
        assert_eq!((total.requests, total.bytes, total.errors), (16, MIB, 0), "{name}");
    }
    let files = ground.files();
    assert_eq!(files.len(), 2, "{files:?}");
    assert!(files.contains(&("one".to_owned(), 2 * MIB)), "the second clone's region, too: {files:?}");
}

#[test]
fn random_requests_of_any_lengths_come_to_every_place_once() {
    let ground = Ground::new();
    let path = ground.0.path().join("mine");
    std::fs::write(&path, vec![7; 256 << 10]).unwrap();
    let text = "direct=0\nfilename=mine\nsize=256k\n[w]\nrw=randwrite\nbssplit=512/20:1k/20:4k/40:16k/20\niodepth=4\n";
    let total = done(&TestOptions { overwrite: true, ..ground.options(text) }).total("w");
    assert_eq!((total.bytes, total.errors), (256 << 10, 0));
    let left = std::fs::read(&path).unwrap().chunks(512).filter(|sector| sector.iter().all(|byte| *byte == 7)).count();
    assert_eq!(left, 0, "as many bytes as the file has, and none of them twice");
}

#[test]
fn files_that_a_run_creates_are_removed() {
    let Some(ground) = Ground::with_direct_io() else { return };
    let text =
        "direct=1\nsize=256k\n[a]\nrw=randwrite\nfilename=x:y\n[b]\nnrfiles=4\n[c]\nfilesize=8k\nnrfiles=2\nsize=0\n";
    let result = done(&ground.options(text));
    assert_eq!(["a", "b", "c"].map(|name| result.total(name).requests), [64, 64, 4]);
    assert_eq!(ground.files(), []);
    let kept = TestOptions { keep_files: true, ..ground.options(text) };
    done(&kept);
    let lengths: Vec<u64> = ground.files().into_iter().map(|(_, len_bytes)| len_bytes >> 10).collect();
    assert_eq!(lengths, [64, 64, 64, 64, 8, 8, 128, 128], "{:?}", ground.files());
}

#[test]
fn what_a_killed_run_left_is_made_anew() {
    let Some(ground) = Ground::with_direct_io() else { return };
    let path = ground.0.path().join("data");
    let made = || {
        let mut scratch = Scratch::new(ground.0.path(), 0).unwrap();
        scratch.create("data").unwrap();
        std::fs::write(&path, vec![7; 64 << 10]).unwrap();
        scratch
    };
    for kind in ["read", "write"] {
        let options = ground.options(&format!("direct=1\nsize=256k\n[a]\nrw={kind}\nfilename=data\n"));
        let mut used = made();
        if rustix::fs::getxattr(&path, "user.plimsoll.scratch", &mut [0_u8; 16]).is_err() {
            return skip::skip("the file system of the build has no extended attributes");
        }
        let refused = run(&options, &Control::default(), &mut |_, _| {}).unwrap_err().to_string();
        assert!(refused.contains(&format!("data: process {} uses it", std::process::id())), "{refused}");

        // A kill runs no destructor; the kernel releases the lock.
        used.keep();
        drop(used);
        assert_eq!(done(&options).total("a").requests, 64, "of the new file, which is longer");
        assert_eq!(ground.files(), []);
    }
}

#[test]
fn runs_that_follow_one_another_use_the_files_again() {
    let Some(ground) = Ground::with_direct_io() else { return };
    let text = "direct=1\nsize=1m\nbs=64k\n[a]\nrw=randread\nfilename=x:y\n[b]\nrw=randwrite\n";
    let options = TestOptions { reused_files: Some(ReusedFiles::default()), ..ground.options(text) };
    let written = |control: &Control| run(&options, control, &mut |_, _| {}).unwrap().written_bytes;
    assert_eq!(written(&Control::default()), 2 * MIB + MIB, "three files are filled, one of them is written again");
    assert_eq!(written(&Control::default()), MIB);
    assert_eq!(ground.files().len(), 3);
    drop(options);
    assert_eq!(ground.files(), []);
}

#[test]
fn what_was_there_is_written_to_only_if_that_is_allowed() {
    let Some(ground) = Ground::with_direct_io() else { return };
    let path = ground.0.path().join("mine");
    std::fs::write(&path, vec![7; 64 << 10]).unwrap();
    let text = "direct=1\nsize=64k\nfilename=mine\n";
    let reads = done(&ground.options(&format!("{text}[r]\nrw=read\n")));
    assert_eq!(reads.total("r").requests, 16);

    let options = ground.options(&format!("{text}[r]\nrw=read\n[w]\nrw=write\nbs=32k\n"));
    let refused = run(&options, &Control::default(), &mut |_, _| {}).unwrap_err();
    assert!(matches!(&refused, TestError::WouldOverwrite { job, .. } if job == "w"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), vec![7; 64 << 10]);

    let allowed = TestOptions { overwrite: true, ..options };
    assert_eq!(done(&allowed).total("w").requests, 2);
    assert!(std::fs::read(&path).unwrap() != vec![7; 64 << 10]);
    assert_eq!(ground.files(), [("mine".to_owned(), 64 << 10)], "it is never made longer, nor removed");
}

#[test]
fn buffered_requests_have_any_length() {
    let Some(ground) = Ground::with_direct_io() else { return };
    let result = done(&ground.options("[log]\nrw=write\nioengine=sync\nbs=2300\nfdatasync=1\nsize=1m\n"));
    let log = result.total("log");
    // As many whole requests as fit, as in fio.
    assert_eq!((log.requests, log.bytes, log.errors), (455, 455 * 2300, 0));
    // A flush stands between two writes.
    assert_eq!(log.flushes.requests, 454);
}

#[test]
fn whole_files_and_parts_of_them() {
    let Some(ground) = Ground::with_direct_io() else { return };
    std::fs::write(ground.0.path().join("data"), vec![1; 256 << 10]).unwrap();
    let text = "direct=1\nfilename=data\n[all]\n[half]\nsize=50%\n[end]\noffset=75%\n[some]\nio_size=25%\n[back]\nrw=read:-8k\n";
    let result = done(&ground.options(text));
    let requests = ["all", "half", "end", "some", "back"].map(|name| result.total(name).requests);
    assert_eq!(requests, [64, 32, 16, 16, 64]);
}

#[test]
fn a_file_without_a_length_and_a_device_that_is_not_there_are_refused() {
    let ground = Ground::new();
    let refused = |text: &str| run(&ground.options(text), &Control::default(), &mut |_, _| {}).unwrap_err().to_string();
    assert!(refused("direct=1\n[a]\nfilename=none\n").contains("no job says how long it is"));
    let mut options = ground.options("direct=1\nsize=1m\n[a]\n");
    for job in &mut options.jobs.jobs {
        job.files.as_mut().unwrap().named = vec!["/dev/plimsoll-no-such-device".into()];
    }
    let error = run(&options, &Control::default(), &mut |_, _| {}).unwrap_err().to_string();
    assert!(error.contains("/dev/plimsoll-no-such-device: there is no such device"), "{error}");
    assert_eq!(ground.files(), []);
}

/// As in fio 3.33, a job goes around until it has moved as many bytes as its file has.
#[test]
fn strided_zones_are_written_and_what_lies_between_is_left() {
    let Some(ground) = Ground::with_direct_io() else { return };
    let path = ground.0.path().join("mine");
    std::fs::write(&path, vec![7; 64 << 10]).unwrap();
    let zones = "zonemode=strided\nzonesize=8k\nzoneskip=24k\n";
    let options = ground.options(&format!("direct=1\nsize=64k\nfilename=mine\n{zones}[w]\nrw=write\n"));
    let options = TestOptions { overwrite: true, ..options };
    assert_eq!(done(&options).total("w").requests, 16);
    let bytes = std::fs::read(&path).unwrap();
    let blocks = bytes.chunks(4096).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 7));
    assert_eq!(blocks.map(|(at, _)| at).collect::<Vec<usize>>(), [0, 1, 8, 9]);
}

#[test]
fn jobs_that_verify_need_a_part_of_the_file_for_themselves() {
    let Some(ground) = Ground::with_direct_io() else { return };
    let text = "direct=1\nfilename=one\nsize=64k\nrw=randwrite\nverify=md5\n[a]\nnumjobs=2\n";
    let result = done(&ground.options(&format!("{text}offset_increment=64k\n")));
    for name in ["a", "a.2"] {
        assert_eq!((result.total(name).requests, result.total(name).fault_count), (16, 0), "{name}");
    }
    // As in fio: a step leads over blocks that are never written, and around the end.
    let steps = done(&ground.options(&text.replace("rw=randwrite", "rw=write:12k").replace("numjobs=2", "numjobs=1")));
    assert_eq!((steps.total("a").requests, steps.total("a").fault_count), (16, 0));
    let refused = run(&ground.options(text), &Control::default(), &mut |_, _| {}).unwrap_err();
    assert!(matches!(refused, TestError::SharedVerify { .. }), "{refused}");
}

/// Runs jobs that write to a file of their own each, on a simulated disk, in virtual time.
fn simulated(jobs: Vec<(&str, Shape)>, warmup_ns: u64) -> RunResult {
    let world = SimWorld::new(&SimConfig { keep_contents: false, ..SimConfig::default() }).unwrap();
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let how = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let spec = |(name, shape): (&str, Shape)| {
        let target = Target { file: topology.file(name.as_ref(), how.clone(), 0), offset: 0, len_bytes: MIB };
        JobSpec::new(name, shape, Class::DEFAULT).on_shard(0, target)
    };
    let jobs = jobs.into_iter().map(spec).collect();
    let plan = Plan {
        topology: topology.clone(),
        options: plimsoll::ShardOptions::default(),
        jobs,
        warmup_ns,
        duration_ns: 100 * S,
        seed: 1,
    };
    run_simulated(&plan, &world, &Control::default()).unwrap()
}

fn writes(change: impl FnOnce(&mut Shape)) -> Shape {
    let mut shape = Shape::closed_loop(Pattern::Overwrite, 4096, 1);
    change(&mut shape);
    shape
}

#[test]
fn each_job_ends_at_its_own_time() {
    let result = simulated(
        vec![
            ("short", writes(|it| it.runtime_ns = Some(S))),
            ("long", writes(|it| it.runtime_ns = Some(3 * S))),
            ("late", writes(|it| (it.runtime_ns, it.start_delay_ns) = (Some(S), 2 * S))),
            ("paced", writes(|it| (it.runtime_ns, it.requests_per_s_per_shard) = (Some(2 * S), Some(0.1)))),
            ("pausing", writes(|it| (it.runtime_ns, it.think_time_ns) = (Some(2 * S), 60 * S))),
        ],
        S,
    );
    // The warm-up of the late job begins a second after the window, with the job.
    for (name, expected_s) in [("short", 1.0), ("long", 3.0), ("late", 1.0), ("paced", 2.0), ("pausing", 2.0)] {
        let elapsed_s = result.total(name).elapsed_ns as f64 / 1e9;
        // The last request ends after the time.
        assert!((elapsed_s - expected_s).abs() < 0.1, "{name}: {elapsed_s} s");
    }
    assert!(result.shards[0].elapsed_ns < 4 * S, "nobody waits for more: {}", result.shards[0].elapsed_ns);
}

#[test]
fn a_job_pauses_after_a_number_of_requests() {
    let pausing = |depth| {
        writes(|it| {
            (it.parallelism, it.limit_bytes) = (depth, Some(16 * 4096));
            (it.think_time_ns, it.think_blocks) = (10 * S, 5);
        })
    };
    let result = simulated(vec![("one", pausing(1)), ("three", pausing(3)), ("eight", pausing(8))], 0);
    // As fio 3.33 does with psync, and with a queue: all requests count, and all in flight complete before a pause.
    for (name, pauses) in [("one", 3), ("three", 2), ("eight", 2)] {
        let total = result.total(name);
        assert_eq!((total.requests, total.elapsed_ns / (10 * S)), (16, pauses), "{name}");
    }
}

/// A job with a rate and pauses: the schedule goes on during a pause, so that a rate that leaves time for the pauses is
/// kept, and one that does not is bounded by them. fio 3.33 took 2045 ms for 100 requests of the first, 1012 of the second.
#[test]
fn a_pause_beside_a_rate_counts_as_time_of_the_schedule() {
    let pausing = |blocks| {
        writes(|it| {
            (it.parallelism, it.limit_requests) = (1, Some(99));
            (it.think_time_ns, it.think_blocks) = (S / 50, blocks);
            it.requests_per_s_per_shard = Some(100.0);
        })
    };
    let result = simulated(vec![("each", pausing(1)), ("ten", pausing(10))], 0);
    for (name, expected_ms) in [("each", 99 * 20), ("ten", 990)] {
        let total = result.total(name);
        let elapsed_ms = total.elapsed_ns / 1_000_000;
        assert_eq!(total.requests, 100, "{name}");
        assert!(elapsed_ms.abs_diff(expected_ms) <= expected_ms / 20, "{name}: {elapsed_ms} ms");
        // A pause that the job makes delays nothing that counts as latency, but what came due before it does.
        assert!(total.latency.max() < 30_000_000, "{name}: {}", total.latency.max());
    }
    assert!(result.total("each").latency.max() < 2_000_000);
}

/// The first blocks of a file that a job wrote over, of 64.
fn written(ground: &Ground, lines: &str) -> Vec<usize> {
    let path = ground.0.path().join("mine");
    std::fs::write(&path, vec![7; 64 * 4096]).unwrap();
    let options = ground.options(&format!("filename=mine\nbs=4k\n[w]\n{lines}\n"));
    let total = done(&TestOptions { overwrite: true, ..options }).total("w");
    assert_eq!(total.errors, 0, "{total:?}");
    let bytes = std::fs::read(&path).unwrap();
    let blocks = bytes.chunks(4096).enumerate().filter(|(_, block)| block.iter().any(|byte| *byte != 7));
    blocks.map(|(at, _)| at).collect()
}

#[test]
fn a_part_of_random_requests_follows_the_last_one() {
    let ground = Ground::new();
    let some = "size=256k\nio_size=80k\nnorandommap";
    let first: Vec<usize> = (0..20).collect();
    assert_eq!(written(&ground, &format!("rw=randwrite\npercentage_random=0\n{some}")), first);
    // Writes have their own place: reads at random positions do not move it.
    let mixed = written(&ground, "rw=randrw\npercentage_random=100,0\nsize=256k\nio_size=160k");
    assert_eq!(mixed, first);
    // Of 20 requests about 5 are drawn, and the others follow one: fewer runs than requests.
    let part = written(&ground, &format!("rw=randwrite\npercentage_random=25\n{some}"));
    let runs = 1 + part.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
    assert!(part != first && runs <= 14, "{part:?}");
}

#[test]
fn written_blocks_are_read_back_unless_the_job_says_no() {
    let ground = Ground::new();
    let read_back = |lines: &str| {
        let text = format!("size=64k\nfilename=f\n[w]\nrw=randwrite\nverify=crc32c\n{lines}\n");
        let total = done(&ground.options(&text)).total("w");
        assert_eq!((total.requests, total.fault_count), (16, 0), "{lines}");
        total.read_back.requests
    };
    assert_eq!((read_back(""), read_back("do_verify=1"), read_back("do_verify=0")), (16, 16, 0));
    // What is drawn and what follows is verified together.
    assert_eq!(read_back("percentage_random=0"), 16);
}

#[test]
fn a_job_below_its_least_rate_ends_with_an_error() {
    let least = |requests_per_s| Some(RateMin { bytes_per_s: 0.0, requests_per_s, cycle_ns: S });
    let paced = |rate, least_rate| {
        writes(|it| {
            it.requests_per_s_per_shard = Some(rate);
            it.rate_min = least(least_rate);
            it.runtime_ns = Some(10 * S);
        })
    };
    let result = simulated(vec![("keeps", paced(100.0, 50.0)), ("falls", paced(100.0, 150.0))], 0);
    let (keeps, falls) = (result.total("keeps"), result.total("falls"));
    assert_eq!((keeps.errors, falls.errors, falls.first_error), (0, 1, Some(62)));
    assert!(keeps.elapsed_ns > 9 * S && falls.elapsed_ns < 5 * S, "{} {}", keeps.elapsed_ns, falls.elapsed_ns);
}

#[test]
fn requests_go_to_several_regions_in_turn() {
    let world = SimWorld::new(&SimConfig::default()).unwrap();
    let topology = Topology::new(1, Classes::new(), vec![DiskSetup::unlimited()]).unwrap();
    let how = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let target = |name: &str| Target { file: topology.file(name.as_ref(), how.clone(), 0), offset: 0, len_bytes: MIB };
    let shape = writes(|it| it.limit_bytes = Some(2 * MIB));
    let spec = JobSpec::new("j", shape, Class::DEFAULT).on_shard(0, target("a")).and_on_shard(0, target("b"));
    let options = plimsoll::ShardOptions::default();
    let plan =
        Plan { topology: topology.clone(), options, jobs: vec![spec], warmup_ns: 0, duration_ns: 100 * S, seed: 1 };
    let result = run_simulated(&plan, &world, &Control::default()).unwrap();
    assert_eq!((result.total("j").requests, result.total("j").errors), (512, 0));

    // Both files are full: each has been written once, from one end to the other.
    let mut backend = world.backend(64);
    for name in ["a", "b"] {
        let reopened = plimsoll::backend::Backend::open(&mut backend, name.as_ref(), &OpenOptions::default()).unwrap();
        assert_eq!(reopened.1.len_bytes, MIB, "{name}");
    }
}

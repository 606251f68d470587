//! Job files of fio: what each means here, and what is said about those that cannot run.

use std::path::Path;

use plimsoll::backend::choose::BackendKind;
use plimsoll_files::fio::{self, FioFile};
use plimsoll_files::job_files::Length;
use plimsoll_files::jobs::{Access, Job, JobKind, PauseDistribution, ShardSet, SizeShare, SteadyCriterion};
use plimsoll_files::{Code, ConfigError};

/// A file with one job, whose lines are these beside what every job needs.
fn one(lines: &str) -> Result<FioFile, ConfigError> {
    let text = format!("[global]\ndirect=1\nnorandommap\nioengine=io_uring\nsize=64m\n[j]\n{lines}\n");
    fio::parse_in("j.fio", &text, &|name| (name == "DEPTH").then(|| "7".to_owned()))
}

fn job(lines: &str) -> Job {
    one(lines).unwrap_or_else(|error| panic!("{lines}: {error}")).jobs_for(1).jobs.remove(0)
}

#[test]
fn every_mode_has_its_kind() {
    for (lines, expect) in [
        ("", JobKind::SeqRead),
        ("rw=read", JobKind::SeqRead),
        ("readwrite=write", JobKind::Overwrite),
        ("rw=randread", JobKind::RandRead),
        ("rw=randwrite", JobKind::RandWrite),
        ("rw=trim", JobKind::Discard { is_random: false }),
        ("rw=randtrim", JobKind::Discard { is_random: true }),
        ("rw=rw", JobKind::SeqMixed { read_pct: 50 }),
        ("rw=readwrite\nrwmixread=70", JobKind::SeqMixed { read_pct: 70 }),
        ("rw=randrw\nrwmixwrite=10", JobKind::RandMixed { read_pct: 90 }),
        ("rw=randrw\nrwmixread=70\nrwmixwrite=10", JobKind::RandMixed { read_pct: 90 }),
        ("rw=randrw\nrwmixwrite=10\nrwmixread=70", JobKind::RandMixed { read_pct: 70 }),
        ("rw=randrw\nrate_iops=300,100", JobKind::RandMixed { read_pct: 75 }),
    ] {
        assert_eq!(job(lines).kind, expect, "{lines}");
    }
}

#[test]
fn sizes_and_their_units() {
    for (lines, expect) in [
        ("", 4096),
        ("bs=128k", 128 << 10),
        ("bs = 4ki\nkb_base=1000", 4096),
        ("blocksize=8k,32k", 8 << 10),
        ("rw=write\nblocksize=8k,32k", 32 << 10),
        ("rw=trim\nbs=8k,32k", 32 << 10),
        // A direction that is left out takes the default.
        ("bs=,8k", 4096),
        ("rw=write\nbs=8k,", 4096),
        ("bs=64k ; large # blocks", 64 << 10),
        ("bs=4k\nbs=16k", 16 << 10),
        ("bssplit=4k/100", 4096),
        // fio 3.33 passes over the upper end.
        ("bssplit=5k-9k/100", 5 << 10),
        ("bs=1m\nblockalign=1m", 1 << 20),
        ("rw=trim\nbs=2300m\nsize=8g", 2300 << 20),
    ] {
        assert_eq!(job(lines).request_bytes, expect, "{lines}");
    }
    let split = job("rw=randread\nbssplit=4k/50:1k/:32k/");
    assert_eq!(
        split.sizes.iter().map(|s| (s.bytes, s.percent)).collect::<Vec<_>>(),
        [(4096, 50.0), (1024, 25.0), (32768, 25.0)]
    );
    assert_eq!(split.request_bytes, 32768);
    let writes = job("rw=randwrite\nbssplit=2k/50:4k/50,4k/90:8k/10");
    assert_eq!(writes.sizes.iter().map(|s| s.bytes).collect::<Vec<_>>(), [4096, 8192]);
}

#[test]
fn ranges_splits_and_directions_have_lengths_of_their_own() {
    let lengths = |sizes: &[SizeShare]| sizes.iter().map(|s| (s.bytes >> 10, s.percent)).collect::<Vec<_>>();
    let range = job("rw=randread\nbsrange=4k-16k");
    assert_eq!(lengths(&range.sizes), [(4, 25.0), (8, 25.0), (12, 25.0), (16, 25.0)]);
    assert_eq!((range.request_bytes, range.write_sizes.len()), (16 << 10, 0));
    assert_eq!(job("bsrange=4k:16k").sizes, range.sizes);
    assert!(job("bsrange=4k-4k").sizes.is_empty(), "one length");
    let mixed = job("rw=randrw\nbs=4k,8k");
    assert_eq!((lengths(&mixed.sizes), lengths(&mixed.write_sizes)), (vec![(4, 100.0)], vec![(8, 100.0)]));
    assert_eq!(mixed.request_bytes, 8 << 10);
    // Each direction's bytes are counted in its own length.
    assert_eq!(job("rw=randrw\nbs=4k,8k\nrate=4m,4m").requests_per_s_per_shard, Some(1536.0));
    let aligned = job("rw=randrw\nbssplit=512/50:8k/50\nblockalign=4k");
    assert_eq!((aligned.align_bytes, aligned.sizes.len()), (Some(4096), 2));
    assert_eq!(job("bs=4k\nba=4k").align_bytes, None);
}

#[test]
fn what_stands_behind_rw_is_a_step_or_a_count() {
    for (lines, step_bytes, run_length) in [
        ("rw=read", 0, 1),
        ("rw=read:8k", 8192, 1),
        ("rw=write:-8k", -8192, 1),
        ("rw=randrw:16", 0, 16),
        ("rw=randread:1k", 0, 1024),
        ("rw=read\nbs=64k\nzonemode=strided\nzonesize=256m\nzoneskip=2g", 2 << 30, 4096),
        ("rw=write\nzonesize=8k\nzonerange=8k", 0, 2),
        ("rw=read\nzonemode=none\nzonesize=8k", 0, 1),
    ] {
        let job = job(lines);
        assert_eq!((job.step_bytes, job.run_length), (step_bytes, run_length), "{lines}");
    }
}

#[test]
fn a_part_of_random_requests_follows_the_last_one() {
    for (lines, percent) in [
        ("rw=randread", [100, 100]),
        ("rw=randread\npercentage_random=25", [25, 25]),
        ("rw=randrw\npercentage_random=0,25,0", [0, 25]),
        ("rw=randwrite\npercentage_random=,60", [100, 60]),
        ("rw=randread\npercentage_random=50,", [50, 100]),
        // Where nothing is drawn, it counts for nothing, as in fio.
        ("rw=rw\npercentage_random=40", [100, 100]),
    ] {
        assert_eq!(job(lines).random_pct, percent, "{lines}");
    }
}

#[test]
fn requests_go_past_the_page_cache_only_if_the_job_says_so() {
    for (lines, direct) in [
        ("", true),
        ("direct=0", false),
        ("buffered=1", false),
        ("buffered=1\ndirect=1", true),
        ("direct=0\nbuffered=0", true),
    ] {
        assert_eq!(job(lines).direct, direct, "{lines}");
    }
    assert_eq!((job("direct=0\nbs=1").request_bytes, job("direct=0\nrw=write\nbs=1,1M").request_bytes), (1, 1 << 20));
    // Only then may requests have any length.
    let log = fio::parse("log.fio", "[log]\nrw=write\nbs=2300\nfdatasync=1\nsize=22m\n").unwrap();
    let job = &log.jobs[0].job;
    assert_eq!((job.direct, job.request_bytes, job.flush_every, job.flush_data_only), (false, 2300, 1, true));
    assert!(log.warnings.iter().any(|warning| warning.key() == Some("direct")), "{:?}", log.warnings);
}

#[test]
fn jobs_say_which_files_they_work_on_and_where() {
    let set = |lines: &str| job(lines).files.unwrap();
    assert_eq!(set("filename=a:b").named, [Path::new("a"), Path::new("b")]);
    assert_eq!(set("filename=a\nfilename=b\ndirectory=/mnt").named, [Path::new("/mnt/a"), Path::new("/mnt/b")]);
    assert_eq!((set("nr_files=4").count, set("nrfiles=4\nfilename=a").files()), (4, 1));
    assert_eq!(set("directory=/mnt").directory, Path::new("/mnt"));
    let part = set("size=30%\nfileoffset=50%\nfilename=a");
    assert_eq!((part.size, part.offset), (Some(Length::Percent(30)), Length::Percent(50)));
    assert_eq!(
        (set("size=100%%\nfilename=a").size, set("offset=5%%").offset),
        (Some(Length::Percent(100)), Length::Percent(5))
    );
    assert_eq!(set("offset=10%\noffset_align=64k\nfilename=a").region(1 << 20).0, 128 << 10);
    assert_eq!(set("offset=10%\nbs=8k\nfilename=a").region(1 << 20).0, 104 << 10);
    assert_eq!(
        set("filename_format=f.$jobname.$jobnum.$filenum\nnrfiles=2").named,
        [Path::new("./f.j.0.0"), Path::new("./f.j.0.1")]
    );
    assert_eq!(set("filename_format=$jobname.$jobnum.$filenum").named, [] as [&Path; 0], "fio's default");
    assert_eq!(set("filename_format=x\nfilename=a").named, [Path::new("a")]);
    assert_eq!(set("filesize=1m").new_file_bytes(), Some(1 << 20));
    assert_eq!(set("io_size=1g\nloops=2").limit_bytes(1 << 20), Some(2 << 30));
    assert_eq!(set("runtime=5\ntime_based").limit_bytes(1 << 20), None);

    // The names of [global] count, too, as in fio; and a job may be called like its device.
    let text = "[global]\ndirect=1\nfilename=a\nsize=1m\n[x]\nfilename=b\n[y]\n";
    let files: Vec<_> = fio::parse("n.fio", text).unwrap().jobs.into_iter().map(|fio| fio.job.files.unwrap()).collect();
    assert_eq!(files[0].named, [Path::new("a"), Path::new("b")]);
    assert_eq!(files[1].named, [Path::new("a")]);
    let device = fio::parse("d.fio", "[/dev/sdx]\ndirect=1\n").unwrap();
    assert_eq!(device.jobs[0].job.files.as_ref().unwrap().named, [Path::new("/dev/sdx")]);
    assert_eq!(device.existing_storage().as_deref(), Some(Path::new("/dev/sdx")), "never a file in /dev");
}

#[test]
fn files_move_to_the_storage_of_the_run() {
    let text = "[global]\ndirect=1\nsize=1m\n[a]\nfilename=x/f\n[b]\nfilename=x_f\n[c]\nfilename=x/f\n[d]\n";
    let mut jobs = fio::parse("m.fio", text).unwrap().jobs_for(1);
    jobs.move_files("/mnt".as_ref(), true);
    let sets: Vec<_> = jobs.jobs.iter().map(|job| job.files.clone().unwrap()).collect();
    assert!(sets.iter().all(|set| set.named.iter().all(|path| path.parent() == Some(Path::new("/mnt")))), "{sets:?}");
    assert!(sets[0].named == sets[2].named && sets[0].named != sets[1].named, "{sets:?}");
    assert_eq!((sets[3].named.len(), sets[3].directory.as_path()), (0, Path::new("/mnt")));
    jobs.move_files("/dev/sdx".as_ref(), false);
    assert!(jobs.jobs.iter().all(|job| job.files.as_ref().unwrap().named == [Path::new("/dev/sdx")]));
}

#[test]
fn jobs_that_end_at_different_times_know_their_own() {
    let times = |text: &str| {
        let file = fio::parse("t.fio", &format!("[global]\ndirect=1\nsize=1m\n{text}")).unwrap();
        let own = file.jobs.iter().map(|fio| fio.job.runtime_ns.map(|ns| ns / 1_000_000_000)).collect::<Vec<_>>();
        (file.duration_ns.map(|ns| ns / 1_000_000_000), own)
    };
    assert_eq!(times("[a]\nruntime=5\n[b]\nruntime=5\n"), (Some(5), vec![None, None]));
    assert_eq!(times("[a]\nruntime=5\n[b]\nruntime=9\n"), (Some(9), vec![Some(5), Some(9)]));
    assert_eq!(times("[a]\nruntime=5\n[b]\nruntime=5\nstartdelay=3\n"), (Some(8), vec![Some(5), Some(5)]));
    assert_eq!(times("[a]\nruntime=5\n[b]\n"), (None, vec![Some(5), None]));
}

#[test]
fn a_rate_that_must_be_kept() {
    let least = job("rate=4m\nratemin=2m\nratecycle=500").rate_min.unwrap();
    assert_eq!((least.bytes_per_s, least.requests_per_s, least.cycle_ns), (f64::from(2 << 20), 0.0, 500_000_000));
    let least = job("rw=write\nrate_iops_min=,100").rate_min.unwrap();
    assert_eq!((least.requests_per_s, least.cycle_ns), (100.0, 1_000_000_000));
    assert_eq!(job("rate_min=0").rate_min, None);
}

#[test]
fn included_files_are_lines_of_the_section() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fio-include-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    let read = |text: &str| {
        write("jobs.fio", text);
        fio::parse_from_file(&directory.join("jobs.fio"))
    };
    write("base.inc", "; what all have\ndirect=1\nsize=8m\ninclude deep.inc\n");
    write("deep.inc", "bs=16k\n");
    write("bad.inc", "bs=4k\nbs=x\n");
    write("section.inc", "[k]\n");
    write("unknown.inc", "direct=1\niodpeth=4\n");
    write("loop.inc", "include loop.inc\n");
    write("mix.inc", "rwmixread=70\nrwmixwrite=10\ndirect=1\nbuffered=1\n");

    let file = read("[global]\ninclude base.inc\n[a]\nbs=4k\n[b]\n").unwrap();
    let lengths: Vec<_> = file.jobs.iter().map(|fio| (fio.job.request_bytes, fio.job.direct)).collect();
    assert_eq!(lengths, [(4096, true), (16384, true)]);
    // Of two options of which the later counts, that is the later in the included file.
    let mixed = read("[j]\nrw=randrw\nsize=1m\ninclude mix.inc\n").unwrap().jobs.remove(0).job;
    assert_eq!((mixed.kind, mixed.direct), (JobKind::RandMixed { read_pct: 90 }, false));
    for (name, code, place) in [
        ("bad.inc", Code::InvalidValue, "jobs.fio:2:"),
        ("section.inc", Code::Syntax, "section.inc:1:"),
        ("unknown.inc", Code::UnknownKey, "unknown.inc:2:"),
        ("loop.inc", Code::TooLarge, "loop.inc:1:"),
        ("missing.inc", Code::Unreadable, "jobs.fio:2:"),
    ] {
        let error = read(&format!("[j]\ninclude {name}\nsize=1m\n")).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(place), "{error}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn rates_hold_for_each_clone() {
    for (lines, expect) in [
        ("", None),
        ("rate_iops=1000", Some(1000.0)),
        ("rate_iops=0", None),
        ("rate=1m\nbs=4k", Some(256.0)),
        ("rw=write\nrate=,1m\nbs=4k", Some(256.0)),
        ("rw=randrw\nrate_iops=1000", Some(2000.0)),
        ("rate=3m\nbssplit=4k/50:8k/50", Some(512.0)),
    ] {
        assert_eq!(job(lines).requests_per_s_per_shard, expect, "{lines}");
    }
    assert_eq!(job("rate_iops=10\nrate_process=poisson").pause_distribution, PauseDistribution::Poisson);
}

#[test]
fn a_job_ends_with_its_size_its_requests_or_its_time() {
    for (lines, bytes, requests) in [
        ("", Some(64 << 20), None),
        ("io_size=1g", Some(1 << 30), None),
        ("loops=3", Some(192 << 20), None),
        ("runtime=10", Some(64 << 20), None),
        ("runtime=10\ntime_based", None, None),
        ("time_based", Some(64 << 20), None),
        // A limit of N lets request N + 1 begin.
        ("number_ios=100", Some(64 << 20), Some(99)),
        ("number_ios=1", Some(64 << 20), Some(0)),
    ] {
        let job = job(lines);
        assert_eq!((job.limit_bytes, job.limit_requests), (bytes, requests), "{lines}");
    }
    let timed = one("runtime=2m\ntime_based=1\nramp_time=5s\nstartdelay=1500ms").unwrap();
    // A job's runtime begins when the job does.
    assert_eq!((timed.duration_ns, timed.common.ramp_ns), (Some(121_500_000_000), 5_000_000_000));
    assert_eq!(timed.jobs[0].job.start_delay_ns, 1_500_000_000);
}

#[test]
fn positions_content_and_flushes() {
    for (lines, expect) in [
        ("random_distribution=random", Access::Uniform),
        ("random_distribution=zipf:1.2", Access::Zipf { theta: 1.2 }),
        ("random_distribution=zipf", Access::Zipf { theta: 1.1 }),
        ("random_distribution=pareto:0.3", Access::Pareto { h: 0.3 }),
        ("random_distribution=normal:20", Access::Normal { deviation_pct: 20.0 }),
        ("random_distribution=zoned:60/10:40/", Access::Zoned(vec![(60.0, 10.0), (40.0, 90.0)])),
        ("norandommap=0", Access::Once),
        ("norandommap=0\nbssplit=512/50:4k/50", Access::Once),
        ("norandommap=0\nrandom_distribution=zipf:1.2", Access::Zipf { theta: 1.2 }),
        ("norandommap=0\nblockalign=8k", Access::Uniform),
        ("norandommap=0\nnrfiles=2", Access::Uniform),
        ("norandommap=0\nrw=randread:4", Access::Uniform),
    ] {
        assert_eq!(job(&format!("rw=randread\n{lines}")).access, expect, "{lines}");
    }
    assert_eq!(
        ["rw=randtrim\nnorandommap=0", "rw=randtrim"].map(|lines| job(lines).access.clone()),
        [Access::Once, Access::Uniform]
    );
    let writes = job("rw=randwrite\nfdatasync=8\nbuffer_compress_percentage=40\nverify=crc32c\nsync=dsync\noffset=1m");
    assert_eq!((writes.flush_every, writes.flush_data_only, writes.dsync, writes.verify), (8, true, true, true));
    assert_eq!((writes.content.compressible_pct, writes.offset_bytes), (40, 1 << 20));
    assert!(writes.read_back && !job("rw=write\nverify=md5\ndo_verify=0").read_back);
    assert!(job("rw=write:8k\nbs=4k\nverify=md5").verify, "each step leads over whole blocks");
    assert_eq!((job("rw=write\nfsync=1").flush_every, job("fsync=1").flush_every), (1, 0));
    assert_eq!(job("zero_buffers").content.compressible_pct, 100);
    for (lines, pct) in [("", 100), ("buffer_compress_percentage=30", 30)] {
        let pattern = job(&format!("rw=write\nbuffer_pattern=0xdeadbeef\n{lines}"));
        assert_eq!(pattern.content.compressible_pct, pct, "{lines}");
    }
}

#[test]
fn depth_follows_engine_and_pauses() {
    for (lines, depth, think_ns, phase_ns, blocks) in [
        ("iodepth=${DEPTH}", 7, 0, 0, 0),
        ("iodepth=16\nioengine=psync", 1, 0, 0, 0),
        ("iodepth=16\nthinktime=10", 1, 10_000, 0, 0),
        ("iodepth=16\nthinktime=1s\nthinktime_iotime=9s", 16, 1_000_000_000, 9_000_000_000, 0),
        ("iodepth=16\nthinktime=10\nthinktime_blocks=8", 16, 10_000, 0, 8),
        ("iodepth=16\nthinktime=10\nthinktime_blocks=1", 1, 10_000, 0, 0),
        ("iodepth=16\nthinktime_blocks=8", 16, 0, 0, 0),
        // Beside a rate the pause is one of the job, whose schedule goes on.
        ("rate_iops=100\nthinktime=10", 1, 10_000, 0, 1),
        ("iodepth=16\nrate_iops=100\nthinktime=10", 1, 10_000, 0, 1),
        ("rate=1m\nthinktime=10\nthinktime_blocks=8", 1, 10_000, 0, 8),
    ] {
        let job = job(lines);
        let think = (job.think_time_ns, job.think_after_ns, job.think_blocks);
        assert_eq!((job.parallelism, think), (depth, (think_ns, phase_ns, blocks)), "{lines}");
    }
    for (engine, expect) in [
        ("libaio", Some(BackendKind::Aio)),
        ("io_uring", Some(BackendKind::Uring)),
        ("posixaio", Some(BackendKind::Pool)),
        ("null", Some(BackendKind::Null)),
        ("sync", None),
    ] {
        assert_eq!(one(&format!("ioengine={engine}")).unwrap().common.backend, expect);
    }
}

#[test]
fn clones_go_to_the_shards_in_turn() {
    let text = "[global]\nioengine=libaio\ndirect=1\nsize=10m\n[a]\nnumjobs=3\noffset_increment=1m\n[a]\n[a.2]\n";
    let jobs = fio::parse("a.fio", text).unwrap().jobs_for(2);
    let seen: Vec<_> = jobs.jobs.iter().map(|j| (j.name.as_str(), j.shards.clone(), j.offset_bytes >> 20)).collect();
    let on = |shard| ShardSet::List(vec![shard]);
    assert_eq!(seen, [("a", on(0), 0), ("a.2", on(1), 1), ("a.3", on(0), 2), ("a.4", on(1), 0), ("a.2.2", on(0), 0)]);
    jobs.validate(2).unwrap();
    assert!(jobs.jobs.iter().all(|job| job.bytes_per_shard(2) == 10 << 20));
}

#[test]
fn stonewalls_and_waits_become_stages() {
    let stages = |text: &str| {
        let file = fio::parse("s.fio", &format!("[global]\ndirect=1\nsize=1m\n{text}"))?;
        Ok::<_, ConfigError>(file.jobs.iter().map(|job| (job.job.stage, job.group)).collect::<Vec<_>>())
    };
    assert_eq!(stages("[a]\nstonewall\n[b]\n[c]\nstonewall\n[d]\n").unwrap(), [(0, 0), (0, 0), (1, 1), (1, 1)]);
    assert_eq!(stages("[a]\n[b]\nnew_group\n[c]\nnew_group=0\n").unwrap(), [(0, 0), (0, 1), (0, 1)]);
    assert_eq!(stages("[a]\n[b]\nwait_for=a\n[c]\nwait_for=b\n").unwrap(), [(0, 0), (1, 0), (2, 0)]);
    assert_eq!(stages("[a]\n[b]\nwait_for=a\n[c]\n").unwrap_err().code(), Code::NotSupported);
    assert_eq!(stages("[a]\nwait_for=b\n[b]\n").unwrap_err().code(), Code::UnknownReference);
}

#[test]
fn storage_goal_steady_state_and_remarks() {
    let file = one(
        "directory=/mnt\nfilename=a\\:b\nlatency_target=2ms\nlatency_percentile=99\nlatency_window=5s\nss=iops_slope:0.1%\n\
         ss_dur=30\nrandseed=5\ncpus_allowed=0-3\nwrite_bw_log=x\nrw=randwrite\nverify=md5",
    )
    .unwrap();
    assert_eq!(file.storage.as_deref(), Some("/mnt/a:b".as_ref()));
    let goal = file.common.latency_goal.unwrap();
    assert_eq!((goal.target_ns, goal.percentile, goal.window_ns), (2_000_000, 99.0, Some(5_000_000_000)));
    let steady = file.common.steady.unwrap();
    assert_eq!(
        (steady.criterion, steady.is_slope, steady.limit, steady.is_percent),
        (SteadyCriterion::Iops, true, 0.1, true)
    );
    assert_eq!((file.common.seed, steady.window_ns), (Some(5), 30_000_000_000));
    assert_eq!(
        file.warnings.iter().filter_map(|w| w.key()).collect::<Vec<_>>(),
        ["cpus_allowed", "write_bw_log", "verify"]
    );
}

#[test]
fn what_cannot_run_is_refused_at_its_line() {
    use Code::*;
    for (lines, code, help) in [
        ("iodpeth=4", UnknownKey, "did you mean `iodepth`?"),
        ("IODEPTH=4", UnknownKey, "`iodepth`"),
        ("rw=randraed", InvalidValue, "did you mean `randread`?"),
        ("rw=trimwrite", NotSupported, "one job with `rw=trim`"),
        ("rw=randtrimwrite", NotSupported, "one job with `rw=trim`"),
        ("zonemode=zbd", NotSupported, "zoned"),
        ("flow=8", NotSupported, "rate_iops"),
        ("cmdprio_percentage=5", NotSupported, "shares"),
        ("read_iolog=x", NotSupported, "not replayed"),
        ("rw=randread\nrandom_distribution=zoned_abs:60/20G", NotSupported, "per cent"),
        ("ioengine=mmap", NotSupported, "io_uring"),
        ("ioengine=rbd", NotSupported, "over a network"),
        ("clientname=admin", NotSupported, "engine"),
        ("file_service_type=random", NotSupported, "in turn"),
        ("rw=randread\nrw_sequencer=identical", NotSupported, "rw=randread:N"),
        ("nrfiles=0", OutOfRange, "1 to"),
        ("size=16m\nbs=8m\nnrfiles=4", OutOfRange, "raise"),
        ("size=110%", OutOfRange, "1 to 100"),
        ("size=8z", NotSupported, "per cent"),
        ("filesize=4k-1m", NotSupported, "one length"),
        ("directory=/a:/b", NotSupported, "one"),
        ("bsrange=64k-4k", OutOfRange, "4k-64k"),
        ("bsrange=512-16m", TooLarge, "bssplit"),
        ("blockalign=1000", OutOfRange, "512"),
        ("rw=read:100", OutOfRange, "512"),
        ("rw=randread:0", OutOfRange, "1 to"),
        ("rw=randrw\nrate_min=1m", NotSupported, "one job for the reads"),
        ("rw=write:6k\nverify=md5", NotSupported, "step"),
        ("rw=write:-8k\nverify=md5", NotSupported, "step"),
        ("rw=read\nzonemode=strided", MissingKey, "zonesize=256m"),
        ("rw=randread\nzonesize=8k", NotSupported, "rw=read"),
        ("rw=read\nzonesize=10k\nzoneskip=4k", OutOfRange, "whole requests"),
        ("rw=read\nzonesize=8k\nfilename=a:b", NotSupported, "one job for each file"),
        ("rw=write:8k\nbs=8k,16k\nverify=md5\nbsrange=4k-8k", NotSupported, "step"),
        ("rw=randwrite\nfilename=a:b\nverify=md5", NotSupported, "all files but one"),
        ("bs=1000", OutOfRange, "512"),
        ("bs=1B,1M", OutOfRange, "direct=0"),
        ("bs", WrongType, "bs="),
        ("bs=", WrongType, "bs="),
        ("iodepth=0", OutOfRange, "1 to"),
        ("iodepth=99999999999999999999", InvalidValue, "number"),
        ("bssplit=4k/60:8k/60", InvalidValue, "100"),
        ("rw=randrw\nrate_iops=100,", NotSupported, "one job for the reads"),
        ("rate=1m\nrate_iops=4", Ignored, "one of the two"),
        ("size=0", MissingKey, "size"),
        ("size=2k", OutOfRange, "raise"),
        ("iodepth=$ncpus", NotSupported, "figure"),
        ("iodepth=${NOBODY}", UnknownReference, "set it"),
        ("iodepth=${DEPTH", Syntax, "}"),
        ("include other.fio", NotSupported, "copy"),
        ("verify=md6", InvalidValue, "md5"),
        ("rw=randread\nverify=md5", NotSupported, "rwmixread"),
        ("numjobs=5000", OutOfRange, "4096"),
        ("thinktime=5\nthinktime_iotime=1s\nthinktime_blocks=8", NotSupported, "thinktime_iotime"),
        ("rate_iops=9\nthinktime=5\nthinktime_iotime=1s", NotSupported, "remove the rate"),
        ("iodepth=4\nrate_iops=9\nthinktime=5\nthinktime_blocks=8", NotSupported, "`iodepth`"),
        ("rate_iops=9\nthinktime=5\nrate_ignore_thinktime=1", NotSupported, "remove it"),
        ("rw=randread\npercentage_random=101", OutOfRange, "0 to 100"),
        ("ss=iops", InvalidValue, "number"),
        ("offset=100", OutOfRange, "512"),
        ("offset=10%\noffset_align=100", OutOfRange, "512"),
        ("[k]\nioengine=null", NotSupported, "[global]"),
        ("[k", Syntax, "[name]"),
        ("[ ]", Empty, "name"),
    ] {
        let error = one(lines).unwrap_err();
        assert_eq!(error.code(), code, "{lines}: {error}");
        assert!(error.help().unwrap_or("").contains(help), "{lines}: {error}");
        assert!(error.line() >= Some(6), "{lines}: {error}");
    }
    for (text, code) in [("", Code::Empty), ("[global]\nbs=4k\n", Code::Empty), ("bs=4k\n[a]\n", Code::Syntax)] {
        assert_eq!(fio::parse("e.fio", text).unwrap_err().code(), code, "{text}");
    }
}

#[test]
fn an_error_shows_the_line() {
    let error = one("zonemode=zbd").unwrap_err().to_string();
    assert!(error.contains("--> j.fio:7:1") && error.contains("7 | zonemode=zbd"), "{error}");
}

#[test]
fn files_are_told_apart() {
    for (path, text, expect) in [
        ("a.fio", "", true),
        ("a.yaml", "[a]", false),
        ("a", "; fio\n[global]\nbs=4k", true),
        ("a", "- name: x", false),
        ("a", "[{name: x}]", false),
    ] {
        assert_eq!(fio::looks_like_fio(path.as_ref(), text), expect, "{path} {text}");
    }
}

/// A file as diskplorer writes it: one writer and many readers, which share a device.
#[test]
fn a_file_of_many_jobs() {
    let mut text = String::from(
        "[global]\n\nruntime=30s\ntime_based=1\nramp_time=5\nfilename=/dev/nvme1n1\ndirect=1\ngroup_reporting\nioengine=io_uring\n\
         size=0\nrandom_generator=tausworthe64\nrandrepeat=0\nthread\n\n[job(r_idx=1,w_idx=2)]\nstonewall\nnew_group\n\
         readwrite=write\nblocksize=131072\niodepth=4\nrate=202479574\n",
    );
    for reader in 1..16 {
        text += &format!(
            "[job(r_idx=1,w_idx=2).{reader}]\nreadwrite=randread\nblocksize=512\niodepth=1000\nrate_iops=9276\n"
        );
    }
    let file = fio::parse("d.fio", &text).unwrap();
    assert_eq!(
        (file.jobs.len(), file.common.ramp_ns, file.storage.as_deref()),
        (16, 5_000_000_000, Some("/dev/nvme1n1".as_ref()))
    );
    let jobs = file.jobs_for(4);
    jobs.validate(4).unwrap();
    assert_eq!(jobs.jobs[5].requests_per_s_per_shard, Some(9276.0));
    assert_eq!(jobs.jobs[0].requests_per_s_per_shard, Some(202_479_574.0 / 131_072.0));
    assert!(jobs.jobs.iter().all(|job| job.data_size_bytes.is_none() && job.limit_bytes.is_none()));
}

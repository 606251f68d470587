//! fio's job files through the binary: they run as fio would run them, and what was there stays as it was.

use serde_json::Value;

use crate::skip;
use crate::world::{Ended, World};

const POOL: [&str; 2] = ["--backend", "pool"];

fn entries(ended: &Ended) -> Vec<Value> {
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let report = ended.json();
    report["jobs"].as_array().expect("jobs").clone()
}

/// A log that is flushed after each write, as databases have it.
const LOG: &str = "[log]\nrw=write\nioengine=sync\nbs=2300\nfdatasync=1\nsize=1m\n";

#[test]
fn a_log_of_odd_lengths_runs_through_the_page_cache() {
    let world = World::new(&[("log.fio", LOG)]);
    if !skip::has_direct_io(world.path()) {
        return;
    }
    let before = world.contents();
    let ended = world.run(&[&["test", "log.fio", "--format", "fio-json"], &POOL[..]].concat());
    let jobs = entries(&ended);
    assert_eq!((&jobs[0]["write"]["total_ios"], &jobs[0]["write"]["io_bytes"]), (&455.into(), &(455 * 2300).into()));
    assert!(ended.err.contains("page cache, as in fio"), "{ended:#?}");
    assert!(world.contents() == before);
}

/// Two kinds of clones in two groups, on one file.
const GROUPS: &str = "\
[global]
direct=1
filename=one
size=256k
group_reporting
include more.inc
[writes]
rw=write
numjobs=2
[reads]
stonewall
rw=randread
numjobs=3
io_size=64k
";

#[test]
fn groups_on_one_file_are_entries_of_their_own() {
    let world = World::new(&[("groups.fio", GROUPS), ("more.inc", "bs=16k\n")]);
    if !skip::has_direct_io(world.path()) {
        return;
    }
    let before = world.contents();
    let jobs = entries(&world.run(&[&["test", "groups.fio", "--format", "fio-json"], &POOL[..]].concat()));
    let figures =
        |job: &Value| [&job["groupid"], &job["read"]["total_ios"], &job["write"]["total_ios"]].map(Value::as_u64);
    let figures: Vec<_> = jobs.iter().map(figures).collect();
    assert_eq!(figures, [[0, 0, 32], [1, 12, 0]].map(|row| row.map(Some)));
    assert!(world.contents() == before);
}

#[test]
fn what_exists_is_not_written_to_without_leave() {
    let world =
        World::new(&[("w.fio", "[w]\nrw=write\ndirect=1\nfilename=mine\nsize=16k\n"), ("mine", "my own words")]);
    let before = world.contents();
    let refused = world.run(&[&["test", "w.fio"], &POOL[..]].concat());
    refused.assert_refused(2, &["job `w` writes", "mine", "--overwrite"]);
    for path in ["/dev/plimsoll-no-such-device", "missing/dir/f"] {
        let text = format!("[w]\nrw=write\ndirect=1\nsize=16k\nfilename={path}\n");
        std::fs::write(world.path().join("d.fio"), text).unwrap();
        world.run(&[&["test", "d.fio"], &POOL[..]].concat()).assert_refused(2, &["No such file"]);
    }
    std::fs::remove_file(world.path().join("d.fio")).unwrap();
    assert!(world.contents() == before);
}

#[test]
fn a_job_that_ends_within_its_ramp_is_counted_as_a_whole() {
    let text = "[global]\nioengine=null\nramp_time=200ms\n[short]\nsize=64k\n[long]\nsize=1g\nruntime=2\ntime_based\n";
    let world = World::new(&[("ramp.fio", text), ("alone.fio", "[a]\nioengine=null\nramp_time=5\nsize=64k\n")]);
    let jobs = entries(&world.run(&["test", "ramp.fio", "--format", "fio-json", "--duration", "50ms"]));
    assert_eq!((&jobs[0]["read"]["total_ios"], &jobs[0]["read"]["io_bytes"]), (&16.into(), &(64 << 10).into()));
    assert!(jobs[1]["read"]["total_ios"].as_u64() > Some(0), "{jobs:?}");
    let alone = entries(&world.run(&["test", "alone.fio", "--format", "fio-json"]));
    assert_eq!(alone[0]["read"]["total_ios"], 16);
    assert!(alone[0]["read"]["iops"].as_f64() > Some(0.0), "{alone:?}");
}

/// A cache's files, which are named by clone, in the words of FioSynth: a part of the requests is sequential.
const NAMED: &str = "\
[global]
ioengine=libaio
iodepth=4
bs=512
size=100%%
filename_format=$jobname.$jobnum
[cache]
rw=randread
percentage_random=44,0
numjobs=2
thinktime=1
thinktime_blocks=6
[log]
rw=write
bs=1
size=64
filename_format=$jobname-of-its-own
";

#[test]
fn files_are_named_by_clone_and_some_requests_follow_others() {
    let data = "x".repeat(16 << 10);
    let world = World::new(&[("named.fio", NAMED), ("cache.0", &data), ("cache.1", &data)]);
    let before = world.contents();
    let jobs = entries(&world.run(&[&["test", "named.fio", "--format", "fio-json"], &POOL[..]].concat()));
    let figures = |job: &Value| [&job["read"]["total_ios"], &job["write"]["total_ios"]].map(Value::as_u64);
    let figures: Vec<_> = jobs.iter().map(figures).collect();
    assert_eq!(figures, [[32, 0], [32, 0], [0, 64]].map(|row| row.map(Some)));
    assert!(world.contents() == before);
}

/// A length that a file has no room for is refused before the first point of a sweep.
#[test]
fn a_sweep_beyond_a_named_file_writes_nothing() {
    let jobs = "[w]\nrw=randwrite\nbs=4k\nfilename=short.bin\n";
    let world = World::new(&[("short.fio", jobs), ("short.bin", &"x".repeat(16 << 10))]);
    let before = world.contents();
    let sweep = ["test", "short.fio", "--overwrite", "--sweep", "reqsize=4k,64k"];
    let refused = world.run(&[&sweep, &POOL[..]].concat());
    assert_eq!(refused.code, Some(2), "{refused:#?}");
    assert!(refused.err.contains("short.bin has 16384 bytes, too few for one request of 65536 bytes"), "{refused:#?}");
    assert!(world.contents() == before);
}

#[test]
fn a_job_may_have_more_files_than_the_soft_limit() {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if most.is_some_and(|most| most < 512) {
        return skip::skip("no more than 512 files may be open");
    }
    let world = World::new(&[("many.fio", "[many]\nrw=read\nbs=4k\nsize=800k\nnrfiles=200\n")]);
    let command = world.command(&[&["test", "many.fio", "--format", "fio-json"], &POOL[..]].concat());
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -Sn 128 && exec \"$0\" \"$@\""]).arg(command.get_program());
    let output = limited.args(command.get_args()).current_dir(world.path()).output().expect("sh starts");
    assert_eq!(entries(&Ended::of(output))[0]["read"]["total_ios"], 200);
}

/// Files whose jobs do the same wherever they run: names, requests and bytes of each entry are those of fio itself. How
/// many of a mix are reads is drawn; all together they are as many.
const AS_FIO: [&str; 10] = [
    "[a]\nrw=write\nbs=4k\nsize=256k\n[b]\nstonewall\nrw=read\nbs=16k\nsize=256k\n",
    "[a]\nrw=randread\nbs=16k\nsize=256k\nio_size=64k\nnumjobs=2\n",
    "[a]\nrw=randrw\nrwmixread=75\nbs=4k\nsize=1m\n",
    "[a]\nrw=randwrite\nbs=4k\nsize=256k\nnumber_ios=20\n",
    "[a]\nrw=read\nbs=8k\nsize=128k\nloops=3\n",
    "[a]\nrw=write\nbs=4k\nsize=256k\nnrfiles=4\nfsync=8\n",
    "[a]\nrw=write\nbs=2300\nsize=100k\nfdatasync=1\n",
    "[a]\nrw=randread\nbs=4k\nsize=256k\nnumber_ios=20\nrate_iops=2000\nthinktime=100\n",
    "[a]\nrw=read\nbs=4k\nsize=256k\nrate=8m\nthinktime=500\nthinktime_blocks=8\n",
    "[global]\ngroup_reporting\nbs=4k\nsize=64k\n[a]\nrw=read\nnumjobs=3\n[b]\nstonewall\nrw=write\n",
];

#[test]
fn jobs_requests_and_bytes_are_those_of_fio() {
    let of = |jobs: &[Value]| -> Vec<(String, [u64; 4])> {
        let entry = |job: &Value| {
            let figure = |part: &str, key: &str| job[part][key].as_u64().expect("a number");
            let sides = ["read", "write"].map(|part| [figure(part, "total_ios"), figure(part, "io_bytes")]);
            let is_mixed = sides.iter().all(|side| side[0] > 0);
            let [[reads, read_bytes], [writes, written_bytes]] = sides;
            let figures = match is_mixed {
                true => [reads + writes, read_bytes + written_bytes, 0, 0],
                false => [reads, read_bytes, writes, written_bytes],
            };
            (job["jobname"].as_str().expect("a name").to_owned(), figures)
        };
        jobs.iter().map(entry).collect()
    };
    for text in AS_FIO {
        let world = World::new(&[("jobs.fio", text)]);
        let mut fio = std::process::Command::new("fio");
        let Ok(output) = fio.args(["jobs.fio", "--output-format=json"]).current_dir(world.path()).output() else {
            return skip::skip("fio is not installed");
        };
        let fio = Ended::of(output);
        let begin = fio.out.find('{').unwrap_or_else(|| panic!("{fio:#?}"));
        let theirs: Value = serde_json::from_str(&fio.out[begin..]).expect("fio's output is JSON");

        let world = World::new(&[("jobs.fio", text)]);
        let ours = entries(&world.run(&[&["test", "jobs.fio", "--format", "fio-json"], &POOL[..]].concat()));
        assert_eq!(of(&ours), of(theirs["jobs"].as_array().expect("jobs")), "{text}");
    }
}

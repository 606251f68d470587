//! `plimsoll sim`: the contracts of its formats, its exit codes, and what it refuses.

use crate::world::World;

const SCENARIO: &str = "\
duration: 50ms
disks: [{disk: i4i.2xlarge}]
jobs:
  - {name: reads, type: randread, shards: all, shard_info: {parallelism: 4, reqsize: 4kB, shares: 100}}
";

fn surface() -> String {
    let mut text = String::from("write_MBps,read_iops,p50_ms,p95_ms\n");
    for write in 0..7 {
        for read in 0..7 - write {
            let p50_ms = 0.1 * (1.0 + 0.2 * f64::from(write + read));
            text.push_str(&format!("{},{},{p50_ms:.4},{:.4}\n", write * 150, read * 15_000, p50_ms * 1.5));
        }
    }
    text
}

fn world() -> World {
    let holes = surface().replacen("0.1000,0.1500", ",0.1500", 1);
    World::new(&[
        ("mine.yaml", SCENARIO),
        ("broken.yaml", &SCENARIO.replace("duration: 50ms\n", "")),
        ("nothing.yaml", &SCENARIO.replace("i4i.2xlarge}", "i4i.2xlarge, window: 0}")),
        ("idle.yaml", &SCENARIO.replace("type: randread", "start: never, type: randread")),
        ("surface.csv", &surface()),
        ("holes.csv", &holes),
        ("few.csv", "write_MBps,read_iops,p50_ms,p95_ms\n0,1,0.1,0.2\n"),
        ("bare.yaml", "disk: {read_iops: 1000, read_bandwidth: 1M, write_iops: 1000, write_bandwidth: 1M}"),
        ("groups.yaml", "- {name: a, shares: 100, limit_iops: 500, latency_target: 2ms p99}\n"),
    ])
}

#[test]
fn the_list_names_each_scenario() {
    let ended = world().run(&["sim", "list", "--format", "json"]).done();
    for entry in ended.json().as_array().expect("a list") {
        assert!(entry["name"].is_string() && entry["seed_items"].is_array() && entry["crate"].is_string(), "{entry}");
    }
    let table = world().run(&["sim", "list"]);
    table.assert_fits();
}

#[test]
fn a_scenario_file_gives_the_same_bytes_twice() {
    let world = world();
    let run = || world.run(&["sim", "run", "mine.yaml", "--format", "json"]);
    let (first, second) = (run(), run());
    assert_eq!((first.code, &first.out), (Some(0), &second.out), "{first:#?}");
    let result = first.json();
    assert_eq!(result["runs"][0]["log_hash"].as_str().map(str::len), Some(16));
    assert!(result["runs"][0]["figures"][0]["value"].as_f64().is_some_and(|value| value > 0.0));
    let table = world.run(&["sim", "run", "mine.yaml"]);
    assert!(table.out.contains("hash of the event log") && table.out.contains("reads"), "{}", table.out);
    table.assert_fits();
}

#[test]
fn sweeps_and_seeds() {
    let world = world();
    let swept = world.run(&["sim", "run", "mine.yaml", "--sweep", "parallelism=1,8", "--sweep", "shards=1,2"]).done();
    assert!(swept.out.contains("parallelism=8") && swept.out.contains("shards=2"), "{}", swept.out);
    swept.assert_fits();
    let seeds = world.run(&["sim", "run", "mine.yaml", "--seeds", "3", "--format", "json"]);
    let result = seeds.json();
    assert_eq!(result["runs"].as_array().map(Vec::len), Some(3));
    assert!(result["seeds"][0]["half_width_95"].as_f64().is_some_and(|half| half >= 0.0), "{}", seeds.out);
    for more in [["--seed", "7"], ["--seeds", "2"]] {
        let both = [&["sim", "run", "mine.yaml", "--sweep", "seed=2,3"][..], &more].concat();
        world.run(&both).assert_refused(2, &["--sweep seed=", "--seeds"]);
    }
    let csv = world.run(&["sim", "run", "mine.yaml", "--sweep", "parallelism=1,8", "--format", "csv"]);
    assert!(csv.out.starts_with("scenario,sweep,seed,figure,value,"), "{}", csv.out);
}

/// Runs all parts of a run, writes what they print into files, and returns these files' names.
fn run_parts(world: &World, arguments: &[&str], of: usize) -> Vec<String> {
    let part = |number: usize| {
        let (part, name) = (format!("{number}/{of}"), format!("part-{number}-of-{of}.json"));
        let ended = world.run(&[arguments, &["--part", &part, "--format", "json"]].concat());
        assert!(matches!(ended.code, Some(0 | 1)), "{ended:#?}");
        std::fs::write(world.path().join(&name), ended.out).expect("a file can be written");
        name
    };
    (1..=of).map(part).collect()
}

#[test]
fn neither_jobs_nor_parts_change_a_byte() {
    let world = world();
    let commands: [&[&str]; 4] = [
        &["sim", "run", "mine.yaml", "--sweep", "shards=1,2", "--sweep", "parallelism=1,8", "--seeds", "3"],
        &["sim", "run", "mine.yaml", "--sweep", "shards=2,1"],
        &["sim", "run", "metrics-sum", "mine.yaml"],
        // The last part has no run.
        &["sim", "run", "metrics-sum", "mine.yaml", "--seed", "7", "--seeds", "2"],
    ];
    for (arguments, of) in commands.into_iter().zip([3, 2, 2, 5]) {
        let parts = run_parts(&world, arguments, of);
        let in_any_order = parts.iter().rev().map(String::as_str);
        for format in ["table", "json", "csv"] {
            let whole = world.run(&[arguments, &["--jobs", "1", "--format", format]].concat());
            assert!(whole.code == Some(0) && !whole.out.is_empty(), "{whole:#?}");
            let parallel = world.run(&[arguments, &["--jobs", "3", "--format", format]].concat());
            assert_eq!((whole.code, &whole.out), (parallel.code, &parallel.out));
            let merge = ["sim", "merge", "--format", format].into_iter().chain(in_any_order.clone());
            let merged = world.run(&merge.collect::<Vec<_>>());
            assert_eq!((whole.code, &whole.out), (merged.code, &merged.out), "{}", merged.err);
        }
    }
}

#[test]
fn parts_that_make_no_whole_are_refused() {
    let world = world();
    let arguments = ["sim", "run", "mine.yaml", "--seeds", "5"];
    run_parts(&world, &arguments, 3);
    run_parts(&world, &arguments, 2);
    let write = |name: &str, text: &str| std::fs::write(world.path().join(name), text).expect("a file can be written");
    let part = std::fs::read_to_string(world.path().join("part-1-of-3.json")).expect("a part");
    let changed = |name: &str, from: &str, to: &str| {
        assert!(part.contains(from), "no `{from}` in {part}");
        write(name, &part.replacen(from, to, 1));
    };
    changed("newer.json", "\"schema\": 1", "\"schema\": 2");
    changed("version.json", "\"plimsoll\": \"", "\"plimsoll\": \"9.");
    changed("interrupted.json", "\"interrupted\": false", "\"interrupted\": true");
    changed("number.json", "\"number\": 1", "\"number\": 4");
    changed("short.json", "\"all_runs\": 5", "\"all_runs\": 50");
    changed("hash.json", "\"log_hash\": \"", "\"log_hash\": \"x");
    write("half.json", &part[..part.len() / 2]);
    write("whole.json", &world.run(&["sim", "run", "mine.yaml", "--format", "json"]).out);
    // The same command, but the scenario was changed meanwhile.
    write("mine.yaml", &SCENARIO.replace("4kB", "8kB"));
    let other = world.run(&[&arguments[..], &["--part", "2/3", "--format", "json"]].concat());
    write("other.json", &other.out);

    for command in
        [&["compare", "whole.json", "part-1-of-3.json"][..], &["report", "part-1-of-3.json", "-o", "page.html"]]
    {
        let run = world.run(command);
        assert_eq!(run.code, Some(2), "{}", run.err);
        assert!(run.err.contains("part-1-of-3.json") && run.err.contains("plimsoll sim merge"), "{}", run.err);
    }

    let cases: &[(&str, &[&str])] = &[
        ("part-1-of-3.json", &["parts 2/3, 3/3 are missing"]),
        ("part-3-of-3.json part-1-of-3.json", &["part 2/3 is missing"]),
        ("part-1-of-3.json part-1-of-3.json part-2-of-3.json", &["part 1/3, and so is part-1-of-3.json"]),
        ("part-1-of-3.json part-2-of-2.json", &["part-2-of-2.json", "another run than part-1-of-3.json"]),
        ("part-1-of-3.json other.json part-3-of-3.json", &["other.json", "another run than part-1-of-3.json"]),
        ("newer.json", &["newer.json", "schema 2", "merges 1"]),
        ("version.json", &["of plimsoll 9."]),
        ("interrupted.json", &["part 1/3 was interrupted", "run it again"]),
        ("number.json", &["no part 4/3", "damaged"]),
        ("short.json", &["2 of the 17 runs of part 1/3"]),
        ("hash.json part-2-of-3.json part-3-of-3.json", &["hash.json", "log_hash", "damaged"]),
        ("half.json", &["half.json", "no part of a run", "--part K/N"]),
        ("whole.json", &["whole.json", "no part of a run", "`part`", "--part K/N"]),
        ("mine.yaml", &["mine.yaml", "no part of a run"]),
        ("nowhere.json", &["nowhere.json", "No such file"]),
        ("", &["<PART.json>"]),
    ];
    for (files, fragments) in cases {
        let merge: Vec<&str> = ["sim", "merge"].into_iter().chain(files.split_whitespace()).collect();
        world.run(&merge).assert_refused(2, fragments);
    }
}

#[test]
fn a_line_for_each_scenario_shows_progress_in_the_order_of_the_tasks() {
    let sweep = ["sim", "run", "mine.yaml", "--sweep", "parallelism=64,1", "--seeds", "2", "--format", "csv"];
    let ended = world().run(&sweep);
    let lines: Vec<&str> = ended.err.lines().filter_map(|line| Some(line.split_once(',')?.0)).collect();
    assert_eq!(lines, ["mine parallelism=64: 2 runs", "mine parallelism=1: 2 runs"], "{ended:#?}");
}

#[test]
fn curves_are_written_once() {
    let world = world();
    let arguments = ["sim", "run", "mine.yaml", "--csv", "out", "--svg", "out"];
    assert_eq!(world.run(&arguments).code, Some(0));
    let read = |name: &str| std::fs::read_to_string(world.path().join("out").join(name)).expect(name);
    assert!(read("mine-seed1.csv").starts_with("panel,curve,x,y\nThroughput by class,reads,"));
    let svg = read("mine-seed1.svg");
    assert!(svg.starts_with("<svg") && svg.contains("Capacity scale") && svg.contains("time, s"));
    world.run(&arguments).assert_refused(2, &["mine-seed1.csv exists", "--force"]);
    let forced = [&arguments[..], &["--force"]].concat();
    assert_eq!(world.run(&forced).code, Some(0));
    let files = || std::fs::read_dir(world.path().join("out")).expect("a directory").count();
    assert_eq!(files(), 2);

    // What cannot be written is refused before the run, which would otherwise be lost.
    let curves = world.path().join("out/mine-seed1.csv");
    std::fs::remove_file(&curves).and_then(|()| std::fs::create_dir(&curves)).expect("a directory");
    let refused = world.run(&forced);
    refused.assert_refused(2, &["mine-seed1.csv is a directory", "--csv"]);
    assert_eq!((files(), refused.out.as_str()), (2, ""));
}

#[test]
fn a_surface_is_fitted_and_compared() {
    let world = world();
    let fitted = world.run(&["sim", "fit", "surface.csv", "-o", "disk.yaml"]).done();
    assert!(fitted.out.contains("mix exponent p"), "{fitted:#?}");
    world.run(&["sim", "fit", "surface.csv", "-o", "disk.yaml"]).assert_refused(2, &["disk.yaml exists", "--force"]);
    let compare = ["sim", "surface", "--disk", "disk.yaml", "--compare", "surface.csv", "--format"];
    let csv = world.run(&[&compare[..], &["csv"]].concat());
    let mut lines = csv.out.lines();
    assert_eq!(lines.next(), Some("write_MBps,read_iops,p50_ms,p95_ms,model_p50_ms,model_p95_ms"));
    assert_eq!(lines.count(), surface().lines().count() - 1);
    assert!(csv.err.contains("error of p50 mean"), "{csv:#?}");
    let errors = world.run(&[&compare[..], &["json"]].concat()).json();
    assert!(errors["errors"]["p50_error_mean"].as_f64().is_some_and(|error| error < 0.1), "{errors}");
    let grid = world.run(&["sim", "surface", "--disk", "i4i.2xlarge"]);
    assert!(grid.code == Some(0) && grid.out.lines().all(|line| line.chars().count() <= 100), "{grid:#?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = world();
    let before = world.contents();
    let cases: &[(&str, &[&str])] = &[
        ("sim run", &["nothing to run", "--all"]),
        ("sim run nobody-knows-this", &["there is no scenario", "sim list"]),
        ("sim run missing.yaml", &["missing.yaml", "No such file"]),
        ("sim run broken.yaml", &["a scenario ends", "duration"]),
        ("sim run nothing.yaml", &["nothing.yaml:2", "admits nothing"]),
        ("sim run mine.yaml --sweep parallelism", &["--sweep parallelism", "key=v1,v2"]),
        ("sim run mine.yaml --sweep parallelism=1,,2", &["is empty"]),
        ("sim run mine.yaml --sweep paralelism=1", &["did you mean `parallelism`?"]),
        ("sim run mine.yaml --sweep window=0", &["admits nothing"]),
        ("sim run mine.yaml --sweep shards=1 --sweep shards=2", &["swept twice"]),
        ("sim run mine.yaml --sweep shards=1,2,1", &["stands there twice"]),
        ("sim run mine.yaml mine.yaml --svg out", &["two runs would write", "mine-seed1.svg"]),
        ("sim run idle.yaml", &["idle.yaml:4", "no job ever starts"]),
        ("sim run mine.yaml --seeds 0", &["--seeds"]),
        ("sim run mine.yaml --seeds 1000 --sweep parallelism=1,2,3,4,5,6,7,8,9,10,11", &["11000 runs"]),
        ("sim run mine.yaml --csv mine.yaml", &["it is not a directory"]),
        ("sim run mine.yaml --csv mine.yaml/out", &["cannot make mine.yaml/out", "name another place for --csv"]),
        ("sim run mine.yaml --part 0/3 --format json", &["0/3", "K from 1 to N"]),
        ("sim run mine.yaml --part 4/3 --format json", &["4/3", "K from 1 to N"]),
        ("sim run mine.yaml --part 1 --format json", &["expected K/N"]),
        ("sim run mine.yaml --part 1/3", &["sim merge", "add --format json"]),
        ("sim run mine.yaml --jobs 0", &["--jobs"]),
        ("sim run mine.yaml --format yaml", &["table, json, csv"]),
        ("sim fit holes.csv", &["holes.csv:2", "p50_ms is empty", "remove the line"]),
        ("sim fit few.csv", &["few.csv", "at least 6 cells"]),
        ("sim fit mine.yaml", &["mine.yaml:1", "the first line names the columns"]),
        ("sim fit surface.csv -o mine.yaml", &["mine.yaml exists", "--force"]),
        ("sim surface --disk i4i.2xlarg", &["did you mean `i4i.2xlarge`?"]),
        ("sim surface --disk bare.yaml", &["no section `device:`", "sim fit"]),
        ("sim surface --disk i4i.2xlarge --compare holes.csv", &["p50_ms is empty"]),
        ("test missing.yaml --capacity-scale 2:1", &["--capacity-scale", "MIN:MAX"]),
        ("test missing.yaml --disk i4i.2xlarge --io-properties x", &["cannot be used with"]),
    ];
    for (line, fragments) in cases {
        let arguments: Vec<&str> = line.split_whitespace().collect();
        world.run(&arguments).assert_refused(2, fragments);
    }
    assert_eq!(world.contents(), before);
}

#[test]
fn a_test_takes_a_disk_model_and_quality_of_service() {
    let world = world();
    let jobs = "- {name: r, type: randread, shards: all, shard_info: {parallelism: 4, class: a}}\n";
    std::fs::write(world.path().join("jobs.yaml"), jobs).expect("a file can be written");
    let line = "test jobs.yaml --sched-groups groups.yaml --disk i4i.2xlarge --capacity-scale off --backend null \
                --duration 300ms --format json";
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let ended = world.run(&arguments).done();
    let iops = ended.json()["jobs"][0]["iops"].as_f64().expect("a figure");
    // The limit holds whatever the machine: 500 a second, and one request.
    assert!(iops <= 510.0, "{iops}");
}

//! `plimsoll instance compare`: tables, formats, prices, needs, and what it refuses.

use serde_json::Value;

use crate::world::{World, keys};

const FORMATS: &str = include_str!("../../../../docs/formats.md");
const PRICES_2019: &str = include_str!("../../../../docs/examples/prices-2019.yaml");
const PRICES: &str = include_str!("../../../../docs/examples/prices.yaml");

const CARD: &str = r#"{"plimsoll_card": 2, "name": "db-7",
  "origin": {"kind": "measured", "source": "plimsoll 0.1.0", "date": "2026-11-21"},
  "figures": {"cpu.cores": {"value": 8}, "disk.bytes": {"value": 1000000000000},
              "disk.read_iops": {"value": 100000, "samples": [99000, 101000, 100000]}},
  "missing": {"network": "no iperf3"}}"#;

const SEEDS: [&str; 3] = ["i3.16xlarge", "i3.metal", "i3en.24xlarge"];
const PRESETS: [&str; 5] = ["i4i.16xlarge", "i7i.24xlarge", "im4gn.16xlarge", "i8g.24xlarge", "i7ie.24xlarge"];

fn world() -> World {
    World::new(&[
        ("prices-2019.yaml", PRICES_2019),
        ("prices.yaml", PRICES),
        ("euro.yaml", &PRICES.replace("USD", "EUR")),
        ("free.yaml", &PRICES.replace("per_hour: 5.00", "per_hour: 0")),
        ("undated.yaml", &PRICES.replace("date: 2026-11-01\n", "")),
        ("a.json", CARD),
        ("b.json", &CARD.replace("99000, 101000, 100000", "129000, 131000, 130000").replace("100000,", "130000,")),
        ("old.json", &CARD.replace("\"plimsoll_card\": 2", "\"plimsoll_card\": 1")),
        ("newer.json", &CARD.replace("\"plimsoll_card\": 2", "\"plimsoll_card\": 3")),
        ("foreign.json", "{\"disks\": []}"),
        ("wrong.json", &CARD.replace("cpu.cores", "cpu.corse")),
        ("torn.json", &CARD.replace("\"value\": 100000,", "\"value\": 100100,")),
    ])
}

fn compare(world: &World, arguments: &[&str], code: i32) -> (String, String) {
    let ended = world.run(&[&["instance", "compare"], arguments].concat());
    assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:#?}");
    (ended.out, ended.err)
}

#[test]
fn three_machines_of_an_article_and_five_presets_in_one_table() {
    let all = [&SEEDS[..], &PRESETS[..], &["--prices", "prices-2019.yaml", "--need", "capacity"]].concat();
    let (out, err) = compare(&world(), &all, 0);
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    let expected = [
        "Ratios to i3.16xlarge",
        "1.67 *",
        "0.672 *",
        "missing",
        "known cause: copies follow the L3 cache",
        "USD a year",
        "1,006.74",
        "no price",
        "For capacity (local disk capacity, by price): i3en.24xlarge",
        "i8g.24xlarge has no place: no price",
    ];
    let flat = out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in expected {
        assert!(flat.contains(part), "no {part} in {out}");
    }
    for part in ["years old", "do not come from one measurement"] {
        assert!(err.contains(part), "no {part} in {err}");
    }
}

#[test]
fn a_difference_with_samples_has_an_interval_and_a_winner() {
    let world = world();
    let (out, _) = compare(&world, &["a.json", "b.json", "--need", "read-iops"], 0);
    assert!(out.contains("1.30 (1.27-1.33) +"), "{out}");
    assert!(out.starts_with("For read-iops (random reads, by amount): db-7 (b.json)"), "{out}");
    // The same capacity: nothing to recommend.
    let (out, _) = compare(&world, &["a.json", "b.json", "--need", "capacity"], 1);
    assert!(out.contains("no recommendation") && out.contains("are equal"), "{out}");
    let (out, _) = compare(&world, &["a.json", "i4i.16xlarge", "--base", "i4i.16xlarge"], 0);
    assert!(out.contains("Ratios to i4i.16xlarge"), "{out}");
}

#[test]
fn the_longest_names_and_the_largest_figures_fit_the_screen() {
    let card = |name: &str, value: f64| {
        let figures: Vec<String> = ["cpu.cores", "disk.bytes", "disk.read_iops", "disk.mix_exponent", "memory.bytes"]
            .map(|key| format!("{key:?}: {{\"value\": {value}, \"interval\": [{}, {value}]}}", value * 0.9))
            .into();
        let origin = r#"{"kind": "measured", "source": "s", "date": "2026-11-21"}"#;
        let figures = figures.join(", ");
        format!(r#"{{"plimsoll_card": 2, "name": {name:?}, "origin": {origin}, "figures": {{{figures}}}}}"#)
    };
    let names = ["a", "b", "c", "d"].map(|letter| letter.repeat(64));
    let rows: Vec<String> = names.iter().map(|name| format!("- {{name: {name}, per_year: 1e12}}\n")).collect();
    let head = PRICES.split("instances:").next().unwrap();
    let prices = format!("{head}instances:\n{}", rows.concat());
    let cards: Vec<String> =
        names.iter().zip([1e18, 9e17, 0.5, 0.001]).map(|(name, value)| card(name, value)).collect();
    let files = [("1.json", cards[0].as_str()), ("2.json", &cards[1]), ("3.json", &cards[2]), ("4.json", &cards[3])];
    let world = World::new(&[&files[..], &[("p.yaml", &prices)]].concat());
    for base in ["1.json", "4.json"] {
        let arguments = ["1.json", "2.json", "3.json", "4.json", "--base", base, "--prices", "p.yaml"];
        let (out, _) = compare(&world, &[&arguments[..], &["--need", "capacity"]].concat(), 0);
        assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    }
}

#[test]
fn json_is_as_documented_and_csv_has_a_line_for_each_cell() {
    let world = world();
    let arguments = [&SEEDS[..], &["--prices", "prices-2019.yaml", "--need", "cpu", "--format", "json"]].concat();
    let comparison: Value = serde_json::from_str(&compare(&world, &arguments, 0).0).unwrap();
    let section = FORMATS.split("## `instance compare`").nth(1).unwrap();
    let found = keys(&comparison);
    let undocumented: Vec<&String> = found.iter().filter(|key| !section.contains(&format!("`{key}`"))).collect();
    assert!(undocumented.is_empty(), "docs/formats.md does not describe {undocumented:?}");
    assert_eq!(comparison["recommendation"]["winner"], "i3.metal");
    let (csv, _) = compare(&world, &[&SEEDS[..], &["--format", "csv"]].concat(), 0);
    let rows = comparison["figures"].as_array().map_or(0, Vec::len) * 3;
    assert!(csv.lines().count() > rows && csv.contains("stress_ng.cpu,1/s,more,i3.metal,,,,,missing,not published"));
    assert!(csv.lines().all(|line| line.matches(',').count() >= 9), "{csv}");
}

#[test]
fn pages_and_pictures_are_written_and_not_over_others() {
    let world = world();
    let arguments = ["a.json", "b.json", "i4i.16xlarge", "--page", "page.html", "--pictures", "."];
    compare(&world, &arguments, 0);
    let text = |name: &str| std::fs::read_to_string(world.path().join(name)).unwrap();
    assert!(text("page.html").contains("db-7 (b.json)") && text("page.html").contains("<svg"));
    assert!(text("ratios.svg").starts_with("<svg"));
    let again = world.run(&[&["instance", "compare"], &arguments[..]].concat());
    again.assert_refused(2, &["page.html exists", "--force"]);
    compare(&world, &[&arguments[..], &["--force"]].concat(), 0);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let world = world();
    let before = world.contents();
    let cases: [(&str, &[&str]); 19] = [
        ("a.json", &["name 2 to 64 machines"]),
        ("a.json a.json", &["a.json and a.json are the same card"]),
        ("a.json old.json", &["a card of version 1", "measure the machine again"]),
        ("a.json newer.json", &["a card of version 3", "use the newer plimsoll"]),
        ("a.json foreign.json", &["this JSON is no card"]),
        ("a.json wrong.json", &["did you mean `cpu.cores`?"]),
        ("a.json torn.json", &["torn.json", "the value 100100 is not the mean of its samples, 100000"]),
        ("a.json missing.json", &["missing.json: No such file"]),
        ("/dev/null", &["/dev/null:1: ", "the file is empty"]),
        ("a.json i4i.16xlage", &["did you mean i4i.16xlarge?"]),
        ("a.json b.json --base c.json", &["--base c.json", "db-7 (a.json), db-7 (b.json)"]),
        ("a.json b.json --need money", &["cpu, capacity, read-iops, write-bandwidth"]),
        ("a.json b.json --prices free.yaml", &["free.yaml:8", "0", "above 0"]),
        ("a.json b.json --prices undated.yaml", &["needs `date`"]),
        ("a.json b.json --prices prices.yaml --prices euro.yaml", &["prices in EUR beside prices in USD"]),
        ("a.json b.json --prices none.yaml", &["none.yaml", "No such file"]),
        ("a.json b.json --page b.json --force", &["--page would write over b.json"]),
        ("a.json b.json --prices prices.yaml --page prices.yaml --force", &["--page would write over prices.yaml"]),
        ("a.json b.json --pictures nowhere", &["nowhere: no such directory"]),
    ];
    for (arguments, fragments) in cases {
        println!("plimsoll instance compare {arguments}");
        let arguments: Vec<&str> = ["instance", "compare"].into_iter().chain(arguments.split(' ')).collect();
        world.run(&arguments).assert_refused(2, fragments);
    }
    assert!(world.contents() == before);
}

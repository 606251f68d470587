//! `plimsoll instance card`: what it prints and writes, what it refuses, and how Ctrl-C ends it.

use serde_json::Value;

use crate::world::{Ended, World};

/// Nothing that takes time: facts of the machine only.
const FACTS: [&str; 5] = ["instance", "card", "--skip", "disk,submission,stress-ng,network", "--quick"];

#[track_caller]
fn card(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_card_goes_to_its_file_and_its_page_and_to_stdout() {
    let world = World::new(&[]);
    let files = ["-o", "card.json", "--page", "card.html", "--name", "db-7"];
    let ended = world.run(&[&FACTS[..], &files].concat()).done();
    assert!(ended.out.starts_with("db-7") && ended.out.contains("Missing:"), "{ended:#?}");
    ended.assert_fits();
    let read = |name: &str| std::fs::read_to_string(world.path().join(name)).expect("it was written");
    let written = card(&read("card.json"));
    assert_eq!((&written["plimsoll_card"], &written["name"]), (&2.into(), &"db-7".into()));
    for group in ["disk", "submission", "stress_ng", "network"] {
        assert_eq!(written["missing"][group], "left out (--skip)", "{group}");
    }
    assert!(read("card.html").contains("db-7: what this machine does"));
}

#[test]
fn formats_are_a_card_and_lines() {
    let world = World::new(&[]);
    let run = |format: &[&str]| -> Ended { world.run(&[&FACTS[..], format].concat()) };
    for format in [&["--format", "json"][..], &["-o", "-"]] {
        let ended = run(format);
        assert_eq!((ended.code, &card(&ended.out)["plimsoll_card"]), (Some(0), &2.into()), "{ended:#?}");
    }
    let ended = run(&["--format", "csv"]);
    assert!(ended.code == Some(0) && ended.out.starts_with("key,value,low,high,samples\n"), "{ended:#?}");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_measured() {
    let world = World::new(&[("card.json", "precious")]);
    let before = world.contents();
    let cases: [(&[&str], &[&str]); 11] = [
        (&["-o", "card.json"], &["card.json exists", "--force"]),
        (&["-o", "missing/card.json"], &["no such directory"]),
        (&["-o", "a", "--page", "a"], &["name the same file"]),
        (&["-o", "-", "--format", "csv"], &["--output - prints the card", "leave out one"]),
        (&["-o", "a", "--page", "./a"], &["name the same file"]),
        (&["--storage", "missing"], &["--storage missing: no such directory", "plimsoll tune"]),
        (&["--storage", "card.json"], &["--storage card.json: no such directory"]),
        (&["--skip", "gpu"], &["disk, submission, stress_ng"]),
        (&["--name", " "], &["--name: a machine needs a name"]),
        (&["--max-write", "1G"], &["--storage <DIR>"]),
        (&["--peer", "a b"], &["HOST:PORT"]),
    ];
    for (arguments, parts) in cases {
        world.run(&[&["instance", "card"], arguments].concat()).assert_refused(2, parts);
    }
    let small = ["instance", "card", "--quick", "--storage", ".", "--max-write", "1G"];
    world.run(&small).assert_refused(2, &["--max-write"]);
    assert!(world.contents() == before);
}

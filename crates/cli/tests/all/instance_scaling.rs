//! `plimsoll instance claims` and `plimsoll instance scaling`: exit codes, tables, formats, and what they refuse.

use crate::world::World;

/// What an article states of a family: writes 25 % low at 4xlarge and 42 % at 48xlarge, bandwidth of 8.5 GB/s.
const FAMILY: &str = "\
instance,write_iops,write_bytes_per_s,advertised_write_iops,advertised_write_bytes_per_s
i7i.4xlarge,247500,3370000000,330000,3370000000
i7i.12xlarge,,8500000000,,9600000000
i7i.48xlarge,2296800,8500000000,3960000,40000000000
";

fn world() -> World {
    World::new(&[
        ("family.csv", FAMILY),
        ("foreign.csv", "model,GB\nx,1\n"),
        ("one.csv", "instance,read_iops\na.large,100\n"),
    ])
}

#[test]
fn the_claims_come_with_their_reasons() {
    let ended = world().run(&["instance", "claims"]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(1), ""), "{ended:#?}");
    ended.assert_fits();
    let words = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for fragment in [
        "stress-ng memcpy, difference -32.85 %",
        "-36 % -26.7 % WRONG",
        "[swapped-base]",
        "[other-base]",
        "[other-input]",
        "[of-for-more]",
        "[power-of-ten]",
        "[binary-prefix]",
        "8 wrong",
    ] {
        assert!(words.contains(fragment), "no `{fragment}` in {}", ended.out);
    }
}

#[test]
fn exit_codes_of_scaling() {
    let world = world();
    let cases: [(&[&str], i32); 2] = [(&["scaling", "family.csv"], 1), (&["scaling", "Standard_Las_v4"], 0)];
    for (arguments, code) in cases {
        let ended = world.run(&[&["instance"], arguments].concat());
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:#?}");
        ended.assert_fits();
    }
}

#[test]
fn scaling_tells_the_shapes_apart_and_draws_them() {
    let world = world();
    let arguments = ["instance", "scaling", "family.csv", "--pictures", ".", "--page", "page.html"];
    let ended = world.run(&arguments);
    let words = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for fragment in [
        "scales but low: -25 % at i7i.4xlarge, -42 % at i7i.48xlarge",
        "plateaus at 8.50 GB/s from i7i.12xlarge on (2 sizes)",
        "2^33 bytes per second (8.59 GB/s)",
    ] {
        assert!(words.contains(fragment), "no `{fragment}` in {}", ended.out);
    }
    for (file, start) in [("scaling-i7i.svg", "<svg"), ("page.html", "<!DOCTYPE html>")] {
        let text = std::fs::read_to_string(world.path().join(file)).expect("it was written");
        assert!(text.starts_with(start) && text.contains("plateau"), "{file}");
    }
    world.run(&arguments).assert_refused(2, &["page.html exists", "--force"]);
    let ended = world.run(&["instance", "scaling", "family.csv", "--format", "json"]);
    let report = ended.json();
    assert_eq!(report["families"][0]["figures"][1]["plateau"]["from"], "i7i.12xlarge");
    let ended = world.run(&["instance", "scaling", "i7i"]);
    assert!(ended.err.contains("circular") && ended.out.contains("(inferred)"), "{ended:#?}");
    ended.assert_fits();
    let ended = world.run(&["instance", "claims", "--format", "csv"]);
    assert!(ended.out.contains("50 %,33.3 %,wrong,"), "{}", ended.out);
}

#[test]
fn what_claims_and_scaling_refuse() {
    let cases: [(&[&str], &[&str]); 11] = [
        (&["claims", "family.csv"], &["unexpected argument", "family.csv"]),
        (&["scaling"], &["FAMILY"]),
        (&["scaling", "i7j"], &["did you mean `i7i`"]),
        (&["scaling", "foreign.csv"], &["foreign.csv:1", "`instance` is missing"]),
        (&["scaling", "one.csv"], &["one measured size only of a"]),
        (&["scaling", "z3"], &["did you mean `z3-highmem-highlssd` or `z3-highmem-standardlssd`"]),
        (&["scaling", "family.csv", "--page", "family.csv", "--force"], &["--page would write over family.csv"]),
        (&["scaling", "family.csv", "--pictures", "nowhere"], &["nowhere: no such directory"]),
        // Nobody makes files there, not even root.
        (&["scaling", "family.csv", "--page", "/proc/x.html"], &["cannot write into /proc", "--page"]),
        (&["scaling", "family.csv", "--pictures", "/proc/nope"], &["/proc/nope: no such directory"]),
        (&["scaling", "family.csv", "--pictures", "/proc"], &["cannot write into /proc", "--pictures"]),
    ];
    for (arguments, fragments) in cases {
        world().run(&[&["instance"], arguments].concat()).assert_refused(2, fragments);
    }
}

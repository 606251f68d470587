//! `plimsoll test --examine`: figures of real blocks, and nothing run or written.

use crate::world::{READS, World};

/// Text that compresses, and files that hold none.
fn world() -> World {
    let world = World::new(&[("empty", ""), ("short", "short"), ("reads.yaml", READS)]);
    std::fs::create_dir(world.path().join("texts")).expect("a directory can be made");
    let words = "all work and no play ".repeat(2000);
    std::fs::write(world.path().join("texts/a"), words).expect("a file can be written");
    world
}

#[test]
fn a_file_is_examined_in_every_format() {
    let world = world();
    let before = world.contents();
    let ended = world.run(&["test", "--examine", "texts/a", "--block-size", "4k,64k,16k", "--format", "json"]).done();
    assert!(ended.err.contains("blocks of 64 KiB are left out"), "{ended:#?}");
    let found = ended.json();
    assert_eq!((&found["path"], &found["bytes"]), (&"texts/a".into(), &42_000.into()));
    assert_eq!(found["interrupted"], false);
    let blocks = found["blocks"].as_array().unwrap();
    let lengths: Vec<_> = blocks.iter().map(|block| (&block["block_bytes"], &block["samples"])).collect();
    assert_eq!(lengths, [(&4096.into(), &10.into()), (&16384.into(), &2.into())]);
    for block in blocks {
        assert!(
            block["lz4"]["saved_pct"].as_f64().unwrap() > 90.0 && block["deflate"]["mean_ratio"].as_f64() > Some(10.0)
        );
    }
    let table = world.run(&["test", "--examine", "texts/a"]);
    table.assert_says(&["texts/a: ", "4 KiB lz4", "16 KiB deflate", "does not shrink", "`compressible:"]);
    table.assert_fits();
    let csv = world.run(&["test", "--examine", "texts/a", "--block-size", "8k", "--format", "csv"]);
    assert!(csv.out.starts_with("block_bytes,compressor,samples,") && csv.out.lines().count() == 3, "{csv:#?}");
    assert!(world.contents() == before);
}

#[test]
fn what_cannot_be_examined_is_refused() {
    let world = world();
    let cases = [
        ("missing", "missing: No such file"),
        ("empty", "empty is empty"),
        ("texts", "texts is no file or block device"),
        ("short", "less than one block of 4096"),
        ("/dev/null", "is no file or block device"),
        ("texts/a --block-size 0", "blocks of 0 bytes cannot be examined: choose a power of two"),
        ("texts/a --block-size 4k,5000", "blocks of 5000 bytes"),
        ("texts/a --block-size 8g", "at most 16M"),
        ("texts/a --format yaml", "take table, json or csv"),
        ("texts/a reads.yaml", "cannot be used with"),
        ("texts/a --storage .", "cannot be used with"),
        ("texts/a --shards 1", "cannot be used with"),
        ("texts/a --duration 1", "cannot be used with"),
        ("texts/a --matrix", "cannot be used with"),
    ];
    for (line, said) in cases {
        let mut arguments = vec!["test", "--examine"];
        arguments.extend(line.split(' '));
        world.run(&arguments).assert_refused(2, &[said]);
    }
    world.run(&["test", "reads.yaml", "--block-size", "4k"]).assert_refused(2, &["--block-size"]);
}

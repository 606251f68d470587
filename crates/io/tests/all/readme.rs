//! README's library example is `examples/tokio.rs`, and works.

use std::path::Path;
use std::process::Command;

use crate::common::TempDir;
use crate::common::skip::skip;

const EXAMPLE: &str = include_str!("../../examples/tokio.rs");

#[test]
fn readme_shows_the_example() {
    let readme = include_str!("../../../../README.md");
    let block = readme.split("```rust,no_run\n").nth(1).and_then(|rest| rest.split_once("```"));
    assert_eq!(block.map(|(block, _)| block), Some(EXAMPLE));
    assert!(EXAMPLE.lines().count() <= 30);
}

/// Cargo builds examples when it runs all tests of a package; for this one alone, see what is said when it is missing.
#[test]
fn the_example_runs() {
    let own = std::env::current_exe().unwrap();
    let program = own.parent().and_then(Path::parent).unwrap().join("examples/tokio");
    if !program.exists() {
        return skip("the example is not built: cargo build -p plimsoll --all-features --example tokio");
    }
    let dir = TempDir::new_in(Path::new(env!("CARGO_TARGET_TMPDIR")), "readme");
    let properties = format!(
        "disks:\n  - mountpoint: {}\n    read_iops: 90000\n    read_bandwidth: 1200000000\n    write_iops: 60000\n    \
         write_bandwidth: 900000000\n    capacity_scale_max: 1.5\n",
        dir.path().display()
    );
    std::fs::write(dir.path().join("io-properties.yaml"), properties).unwrap();
    let ended = Command::new(program).current_dir(dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    if said.contains("refuses O_DIRECT") {
        return skip(&said);
    }
    assert!(ended.status.success(), "{said}");
    assert_eq!(std::fs::metadata(dir.path().join("table")).unwrap().len(), 9 << 20);
}

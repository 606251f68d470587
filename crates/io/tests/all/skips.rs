//! A skipped test is seen: in one line, in the list of a run, and as a failure where skips are forbidden.

use crate::common::skip;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn skips_are_collected_line_by_line() {
    let log = std::env::temp_dir().join(format!("plimsoll-skips-{}", std::process::id()));
    for line in ["SKIPPED one: no disk", "SKIPPED two: no network"] {
        skip::tell(line, Some(&log), false);
    }
    let collected = fs::read_to_string(&log);
    fs::remove_file(&log).unwrap();
    assert_eq!(collected.unwrap(), "SKIPPED one: no disk\nSKIPPED two: no network\n");
}

#[test]
fn where_skips_are_forbidden_a_skip_is_a_failure() {
    let told = std::panic::catch_unwind(|| skip::tell("SKIPPED one: no disk", None, true));
    let said = told.unwrap_err();
    assert!(said.downcast_ref::<String>().unwrap().starts_with("SKIPPED one: no disk (PLIMSOLL_NO_SKIP=1"));
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// But for the kit for backends, which is a library's and knows no environment.
#[test]
fn no_test_skips_in_a_way_of_its_own() {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut files);
    let own = concat!("println!(\"", "skip");
    let is_own = |path: &PathBuf| fs::read_to_string(path).unwrap().contains(own) && !path.ends_with("conformance.rs");
    let found: Vec<PathBuf> = files.into_iter().filter(is_own).collect();
    assert!(found.is_empty(), "take crates/skip.rs: {found:?}");
}

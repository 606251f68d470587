//! The scenarios of this crate keep what they promise. (`hot-disk` at full scale is `plimsoll sim run hot-disk`.)
#![cfg(feature = "sim")]

use std::collections::BTreeSet;

use plimsoll_cache::scenario::all;

#[test]
fn scenarios_are_named_and_about_something() {
    let scenarios = all();
    let names: BTreeSet<_> = scenarios.iter().map(|scenario| scenario.name).collect();
    assert_eq!(names.len(), scenarios.len());
    for scenario in scenarios {
        let is_good = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        assert!(scenario.name.bytes().all(is_good) && !scenario.seed_items.is_empty(), "{}", scenario.name);
    }
}

#[test]
fn a_busy_cache_keeps_its_figures_and_is_the_same_twice() {
    let scenario = all().into_iter().find(|scenario| scenario.name == "busy-cache").unwrap();
    let first = (scenario.run)(1).unwrap();
    for figure in &first.figures {
        assert!(figure.passed(), "{figure:?}");
    }
    let second = (scenario.run)(1).unwrap();
    assert_eq!((first.requests, first.log_hash), (second.requests, second.log_hash));
}

//! Scheduling-groups files: trees that are read, and trees that are none.

use plimsoll_tools::config::sched_groups::{MAX_DEPTH, SchedGroup, parse};
use plimsoll_tools::config::{Code, ConfigError};

fn refused(text: &str, code: Code, line: usize, help: &str) -> ConfigError {
    let error = parse("groups.yaml", text).expect_err(text);
    assert_eq!((error.code(), error.line()), (code, Some(line)), "{text}\n{error}");
    assert!(error.help().is_some_and(|text| text.contains(help)), "expected help with {help}:\n{error}");
    error
}

#[test]
fn a_tree_in_any_order() {
    let text = "
- {name: backup, shares: 50, parent: maintenance}
- {name: statement, shares: 1000}
- {name: maintenance, shares: 100, parent: system}
- {name: system, shares: 200}
";
    let groups = parse("groups.yaml", text).unwrap();
    let group = |name: &str, shares, parent| SchedGroup { name: name.to_owned(), shares, parent };
    let expected = [
        group("backup", 50, Some(2)),
        group("statement", 1000, None),
        group("maintenance", 100, Some(3)),
        group("system", 200, None),
    ];
    assert_eq!(groups.groups, expected);
    assert_eq!(groups.position("system"), Some(3));
    assert_eq!(groups.position("none"), None);
    let mut classes: Vec<&str> = groups.class_names().into_iter().collect();
    classes.sort_unstable();
    assert_eq!(classes, ["backup", "statement"]);
}

#[test]
fn entries_that_are_refused() {
    refused("- {shares: 5}", Code::MissingKey, 1, "name");
    refused("- {name: a}", Code::MissingKey, 1, "shares: 100");
    refused("- {name: a, shares: 0}", Code::OutOfRange, 1, "1 to 1,000,000");
    refused("- {name: a, shares: 1k}", Code::InvalidValue, 1, "whole number");
    refused("- {name: a, shares: 5, parents: b}", Code::UnknownKey, 1, "`parent`");
    refused("- {name: '', shares: 5}", Code::InvalidValue, 1, "value");
    refused("- {name: a, shares: 5}\n- {name: a, shares: 6}", Code::DuplicateName, 2, "its own");
    refused("name: a\nshares: 5\n", Code::WrongType, 1, "- ");
    assert_eq!(parse("groups.yaml", "").unwrap_err().code(), Code::Empty);
}

#[test]
fn later_keys_are_refused_by_name() {
    let keys = ["limit_iops", "limit_bandwidth_read", "reservation_iops", "reservation_bandwidth", "latency_target"];
    for key in keys {
        let error = refused(&format!("- name: a\n  shares: 5\n  {key}: 5\n"), Code::NotSupported, 3, "remove");
        assert!(error.message().contains(key));
    }
}

#[test]
fn parents_that_do_not_work() {
    refused("- {name: a, shares: 5}\n- {name: b, shares: 5, parent: c}", Code::UnknownReference, 2, "add one");
    refused("- {name: a, shares: 5, parent: a}", Code::Cycle, 1, "circle");
    let circle = "
- {name: a, shares: 5, parent: b}
- {name: b, shares: 5, parent: c}
- {name: c, shares: 5, parent: a}
";
    refused(circle, Code::Cycle, 2, "circle");
    // An entry that hangs on a circle, without being part of it, comes first.
    refused(&format!("- {{name: x, shares: 5, parent: a}}{circle}"), Code::Cycle, 1, "circle");
}

#[test]
fn the_default_class_takes_shares_only() {
    assert_eq!(parse("groups.yaml", "- {name: default, shares: 5}").unwrap().groups[0].shares, 5);
    refused("- {name: g, shares: 5}\n- {name: default, shares: 5, parent: g}", Code::InvalidValue, 2, "another name");
    refused(
        "- {name: a, shares: 5, parent: default}\n- {name: default, shares: 5}",
        Code::InvalidValue,
        2,
        "another name",
    );
}

#[test]
fn depth_is_bounded() {
    let chain = |length: usize| {
        let mut text = String::from("- {name: g0, shares: 1}\n");
        for index in 1..length {
            text.push_str(&format!("- {{name: g{index}, shares: 1, parent: g{}}}\n", index - 1));
        }
        text
    };
    assert_eq!(parse("groups.yaml", &chain(MAX_DEPTH)).unwrap().groups.len(), MAX_DEPTH);
    refused(&chain(MAX_DEPTH + 1), Code::Cycle, MAX_DEPTH + 1, "flatten");
    refused(&chain(5000), Code::Cycle, MAX_DEPTH + 1, "flatten");
}

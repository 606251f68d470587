//! Scheduling-groups files: trees that are read, and trees that are none.

use plimsoll_core::Qos;
use plimsoll_files::sched_groups::{MAX_DEPTH, SchedGroup, parse};
use plimsoll_files::{Code, ConfigError};

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
    let group = |name: &str, shares, parent| SchedGroup { name: name.to_owned(), shares, parent, qos: Qos::default() };
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
fn quality_of_service() {
    let group = "- {name: b, shares: 1, parent: a}\n- {name: a, shares: 5, limit_iops: 6, reservation_iops: 5}";
    let qos = parse("groups.yaml", group).unwrap().groups[1].qos;
    assert_eq!((qos.limits.iops.get(), qos.reservation.iops), (Some(6), 5));

    let text = "- {name: a, shares: 5, limit_iops: 100, limit_bandwidth_read: 1M/s, limit_burst: 10ms, \
                reservation_iops: 50, latency_target: 2ms p99, max_wait: 1s, max_delay: 20ms}";
    let qos = parse("groups.yaml", text).unwrap().groups[0].qos;
    assert_eq!((qos.limits.iops.get(), qos.limits.read_bandwidth.get()), (Some(100), Some(1 << 20)));
    assert_eq!((qos.limits.burst_ns, qos.reservation.iops, qos.limits.write_iops.get()), (10_000_000, 50, None));
    let target = qos.latency_target.unwrap();
    assert_eq!((target.latency_ns, target.quantile), (2_000_000, 0.99));
    assert_eq!((qos.max_wait_ns, qos.max_delay_ns), (Some(1_000_000_000), Some(20_000_000)));
}

#[test]
fn quality_of_service_that_is_refused() {
    let with = |key: &str| format!("- name: a\n  shares: 5\n  {key}\n");
    refused(&with("limit_iops: 0"), Code::OutOfRange, 3, "remove the key");
    refused(&with("limit_iops: 1k"), Code::InvalidValue, 3, "digits");
    refused(&with("limit_bandwith: 1M"), Code::UnknownKey, 3, "`limit_bandwidth`");
    refused(&with("latency_target: 2ms"), Code::InvalidValue, 3, "2ms p99");
    refused(&with("latency_target: 2ms p100"), Code::InvalidValue, 3, "2ms p99");
    refused(&with("latency_target: 0 p99"), Code::InvalidValue, 3, "2ms p99");
    refused(&with("max_wait: 5"), Code::InvalidValue, 3, "such as 1.5ms");
    // These were ignored.
    for key in ["latency_target: 2ms p99", "max_wait: 1s", "max_delay: 1s"] {
        let group = format!("- {{name: b, shares: 1, parent: a}}\n- {{name: a, shares: 5, limit_iops: 5, {key}}}");
        refused(&group, Code::NotSupported, 2, "classes inside");
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

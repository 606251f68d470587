//! `deploy/`: the programs whose files these are take them.

use std::io;
use std::path::Path;
use std::process::Command;

use crate::skip::skip;

/// Runs a checker in `deploy/`, or says in one line that it is not installed (`install` is how to).
fn check(program: &str, arguments: &[&str], install: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let output = match Command::new(program).args(arguments).current_dir(directory).output() {
        Ok(output) => output,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return skip(format_args!("{program} is not installed ({install}), so {arguments:?} was not checked"));
        }
        Err(error) => panic!("{program}: {error}"),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // Faults of a unit that systemd ignores are only printed.
    let faults = text(&output.stderr);
    assert!(output.status.success() && !faults.contains(".service:"), "{}{faults}", text(&output.stdout));
}

#[test]
fn systemd_takes_the_units() {
    check("systemd-analyze", &["verify", "./plimsoll-tune.service", "./plimsoll-stat.service"], "Debian: systemd");
}

#[test]
fn the_daemon_set_has_kubernetes_schema() {
    check("kubernetes-validate", &["--strict", "daemonset.yaml"], "pip install kubernetes-validate");
}

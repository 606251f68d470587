//! `plimsoll NAME` runs `plimsoll-NAME`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use crate::world::{Ended, World};

#[test]
fn a_program_on_the_path_is_a_command() {
    let world =
        World::new(&[("plimsoll-hello", "#!/bin/sh\necho \"$#: $*\"\nexit 7\n"), ("plimsoll-text", "no program")]);
    let program = |name: &str| world.path().join(name);
    fs::set_permissions(program("plimsoll-hello"), Permissions::from_mode(0o755)).expect("it is there");
    let run = |words: &[&str]| {
        let path = format!("{}:/usr/bin:/bin", world.path().display());
        Ended::of(world.command(words).env("PATH", path).output().expect("it starts"))
    };

    let hello = run(&["hello", "--depot", "a b", "--help"]);
    assert_eq!((hello.out.as_str(), hello.code), ("3: --depot a b --help\n", Some(7)), "{hello:#?}");
    run(&["text"]).assert_refused(3, &["plimsoll-text: cannot run it"]);

    // Anything else is refused as before.
    run(&["tun"]).assert_refused(2, &["unrecognized subcommand 'tun'", "'tune'"]);
    run(&["none"]).assert_refused(2, &["unrecognized subcommand 'none'"]);
    run(&["sim", "hello"]).assert_refused(2, &["unrecognized subcommand 'hello'"]);
    run(&["--verbose", "hello"]).assert_refused(2, &["unrecognized subcommand 'hello'"]);
    run(&["/hello"]).assert_refused(2, &["unrecognized subcommand '/hello'"]);
}

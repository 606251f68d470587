//! Paths that cannot be handed over to the program are refused: it would run unmanaged.

use super::{PLIMSOLL, World, ended, library};

#[test]
fn paths_that_cannot_be_handed_over_are_refused() {
    let world = World::new();
    let directory = world.path().join("a b");
    std::fs::create_dir(&directory).unwrap();
    std::fs::hard_link(PLIMSOLL, directory.join("plimsoll")).unwrap();
    std::fs::hard_link(library(), directory.join("libplimsoll_preload.so")).unwrap();
    let copy = directory.join("plimsoll").display().to_string();
    for (script, code, part) in [
        (format!("'{copy}' run"), 3, "whose path has a space or a colon"),
        (format!("mkdir $name; {PLIMSOLL} run --dir $name"), 2, "is not UTF-8"),
        (format!("{PLIMSOLL} run --trace $name.plt"), 2, "is not UTF-8"),
    ] {
        let script = format!("name=$(printf '\\377'); {script} -- touch x");
        let output = ended(world.command("sh", &["-c", &script]));
        let told = &output.err;
        assert_eq!(output.code, Some(code), "{script}: {told}");
        assert!(told.contains(part), "no {part:?} in {told}");
        assert!(!world.data().join("x").exists(), "{script}");
    }
}

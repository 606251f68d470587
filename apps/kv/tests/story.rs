//! A story on any disk: told to its end, and nothing left behind. Its figures are the business of the guide.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::process::Command;

#[test]
fn a_story_is_told_in_three_ways() {
    let directory = tempfile::tempdir().unwrap();
    let (disk, svg) = (directory.path().join("disk"), directory.path().join("story.svg"));
    std::fs::create_dir(&disk).unwrap();
    let properties = directory.path().join("io-properties.yaml");
    let figures = "read_iops: 20000\n    read_bandwidth: 250M\n    write_iops: 20000\n    write_bandwidth: 250M\n";
    std::fs::write(&properties, format!("disks:\n  - mountpoint: {}\n    {figures}", disk.display())).unwrap();
    let story = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll-kv"));
        command.args(["story", name]).arg(&disk).arg("--io-properties").arg(&properties).arg("--svg").arg(&svg);
        command.args(["--length", "1s", "--keys", "300", "--memory", "16MiB"]).output().unwrap()
    };

    let told = story("analytics");
    let (out, said) = (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    assert!(told.status.success(), "{said}");
    assert!(out.starts_with("analytics: p99 of reads "), "{out}");
    for way in ["drained", "static shares", "controllers"] {
        for phase in ["alone", "scan", "scan, 400 shares"] {
            assert!(out.contains(&format!("\n{way}, {phase} (")), "{way}, {phase}: {out}");
        }
    }
    assert!(out.contains("keys scanned"), "{out}");
    assert!(std::fs::read_to_string(&svg).unwrap().starts_with("<svg"));
    assert_eq!(std::fs::read_dir(&disk).unwrap().count(), 0, "the scratch directory is still there");

    // A disk that the file does not describe is an error, and nothing is left behind either.
    std::fs::write(&properties, format!("disks:\n  - mountpoint: /proc\n    {figures}")).unwrap();
    let refused = story("burst");
    assert_eq!(refused.status.code(), Some(3), "{}", String::from_utf8_lossy(&refused.stderr));
    assert_eq!(std::fs::read_dir(&disk).unwrap().count(), 0);
}

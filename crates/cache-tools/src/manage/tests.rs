//! Disks of closed caches, on real files.

use std::cell::RefCell;

use tempfile::TempDir;

use super::*;

#[path = "../../../skip.rs"]
mod skip;

/// Makes a cache of disks `a`, `b` and `c` of 32 MiB. Returns its directory and its file; `None`, with a line, without
/// direct I/O.
fn world() -> Option<(TempDir, PathBuf)> {
    let directory = tempfile::tempdir().unwrap();
    if !skip::has_direct_io(directory.path()) {
        return None;
    }
    let path = directory.path().join("c.yaml");
    let disks = ["a", "b", "c"].map(|name| directory.path().join(name));
    let flags = CreateFlags { size_bytes: Some(32 << 20), slab_bytes: Some(1 << 20), ..CreateFlags::default() };
    create(&path, &disks, &flags).unwrap();
    Some((directory, path))
}

/// Asks to stop after a minute: the end of a wait that would have no other.
fn patience() -> impl Fn() -> bool {
    let begin = Instant::now();
    move || begin.elapsed() > Duration::from_secs(60)
}

fn ignore(_: &str) {}

/// The device was taken out of the file before the cache had forgotten its disk, for which the command waited for ever.
#[test]
fn a_disk_that_holds_something_else_is_forgotten_and_not_written() {
    let Some((directory, path)) = world() else { return };
    let foreign = vec![7; 32 << 20];
    let lost = ["b", "c"].map(|name| directory.path().join(name));
    lost.iter().for_each(|disk| fs::write(disk, &foreign).unwrap());

    let said = remove(&path, &lost, &patience(), &ignore).unwrap();
    assert!(said.ends_with("b: removed") || said.ends_with("c: removed"), "{said}");
    assert!(lost.iter().all(|disk| fs::read(disk).unwrap() == foreign), "foreign data was written to");
    assert_eq!(config::parse_from_file(&path).unwrap().devices.len(), 1);
    let session = Session::open(&path, |_| ()).unwrap();
    assert_eq!((session.cache().stats().disks.len(), session.cache().findings()), (1, Vec::new()));
    session.close().unwrap();
}

/// The command was refused: it blamed whichever disk was named second.
#[test]
fn a_disk_that_holds_another_cache_is_forgotten_and_not_written() {
    let Some((directory, path)) = world() else { return };
    let Some((other, _)) = world() else { return };
    let [a, b] = ["a", "b"].map(|name| directory.path().join(name));
    // It is named first in the file, too.
    fs::copy(other.path().join("a"), &a).unwrap();
    let theirs = fs::read(&a).unwrap();
    let error = remove(&path, std::slice::from_ref(&b), &patience(), &ignore).unwrap_err().to_string();
    assert!(error.contains("the disks belong to 2 caches"), "{error}");

    let said = remove(&path, std::slice::from_ref(&a), &patience(), &ignore).unwrap();
    assert!(said.ends_with("a: removed"), "{said}");
    assert!(fs::read(&a).unwrap() == theirs, "the other cache's data was written to");
    let session = Session::open(&path, |_| ()).unwrap();
    assert_eq!((session.cache().stats().disks.len(), session.cache().findings()), (2, Vec::new()));
    session.close().unwrap();
}

/// The file called the first disk active again, whose removal went on: at its end it was no member any more, and the
/// cache could not be opened.
#[test]
fn a_removal_that_has_begun_stays_in_the_file_where_another_fails() {
    let Some((directory, path)) = world() else { return };
    let [a, b, c] = ["a", "b", "c"].map(|name| directory.path().join(name));
    fs::remove_file(&c).unwrap();
    let error = remove(&path, &[a, b], &patience(), &ignore).unwrap_err().to_string();
    assert!(error.contains("the last disk cannot be removed"), "{error}");
    let file = config::parse_from_file(&path).unwrap();
    let state = |name: &str| file.devices.iter().find(|device| device.path == Path::new(name)).map(|found| found.state);
    // It may have ended by now, and its entry with it.
    assert_ne!(state("a"), Some(DeviceState::Active));
    assert_eq!((state("b"), state("c")), (Some(DeviceState::Active), Some(DeviceState::Active)));
    Session::open(&path, |_| ()).unwrap().close().unwrap();
}

/// As after a crash between `cache add`, which writes the file, and the running cache's next look at it: the new device
/// was refused, and with it the cache.
#[test]
fn a_device_that_the_file_has_and_the_cache_not_yet_is_added_when_it_is_opened() {
    let Some((directory, path)) = world() else { return };
    let list = |name: &str| {
        let device = Device { path: name.into(), ..Device::default() };
        let change = |file: &mut CacheFile| {
            file.devices.push(device);
            Ok(())
        };
        config::edit(&path, change).unwrap();
    };
    File::create_new(directory.path().join("d")).unwrap().set_len(32 << 20).unwrap();
    list("d");
    assert!(check::check(&path, |_, _| ()).unwrap().is_sound());
    let session = Session::open(&path, |_| ()).unwrap();
    let (disks, is_over) = (|| session.cache().stats().disks.len(), patience());
    while disks() < 4 && !is_over() {
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(disks(), 4);
    session.close().unwrap();

    // A device with somebody's data may be a wrong path.
    fs::write(directory.path().join("e"), vec![7; 32 << 20]).unwrap();
    list("e");
    let error = Session::open(&path, |_| ()).err().unwrap().to_string();
    assert!(error.contains("data of something else"), "{error}");
}

/// A hard link stands for a bind mount, or a second node of a device: no path leads to the other.
#[test]
fn a_disk_by_another_name_is_the_same_disk() {
    let Some((directory, path)) = world() else { return };
    let [a, hard, soft, new] = ["a", "hard", "soft", "new.yaml"].map(|name| directory.path().join(name));
    fs::hard_link(&a, &hard).unwrap();
    std::os::unix::fs::symlink(&a, &soft).unwrap();
    for name in [&hard, &soft, &directory.path().join("./a")] {
        for force in [false, true] {
            let error = add(&path, name, None, force, &ignore).unwrap_err().to_string();
            let both = format!("{} is a disk of this cache already, named a", name.display());
            assert!(error.contains(&both), "{error}");
        }
        let flags = CreateFlags { force: true, ..CreateFlags::default() };
        let error = create(&new, &[a.clone(), name.clone()], &flags).unwrap_err().to_string();
        assert!(error.contains(&format!("{} is named twice: it is a", name.display())), "{error}");
    }
    let session = Session::open(&path, |_| ()).unwrap();
    assert_eq!((session.cache().stats().disks.len(), session.cache().findings()), (3, Vec::new()));
    session.close().unwrap();
}

#[test]
fn commands_say_what_opening_found() {
    let Some((directory, path)) = world() else { return };
    let [b, c, d] = ["b", "c", "d"].map(|name| directory.path().join(name));
    let told = RefCell::new(Vec::new());
    let warn = |warning: &str| told.borrow_mut().push(warning.to_owned());
    let has_told = || told.take().iter().any(|warning| warning.contains("opened without disk "));
    let has_told_once = || {
        let told = told.take();
        let of_b: Vec<_> = told.iter().filter(|warning| warning.contains(b.to_str().unwrap())).collect();
        assert_eq!((told.len(), of_b.len()), (1, 1), "{told:?}");
    };

    fs::remove_file(&b).unwrap();
    expand(&path, &c, Some(40 << 20), &warn).unwrap();
    has_told_once();
    let guid = &check::inspect(&path).unwrap().stats.disks[1].guid;
    let checked = check::check(&path, |_, _| ()).unwrap();
    let [finding] = &*checked.findings else { panic!("{:?}", checked.findings) };
    assert!(finding.contains(guid) && finding.contains(b.to_str().unwrap()), "which and why: {finding}");
    assert_eq!((checked.disks, checked.is_sound()), (2, false));
    add(&path, &d, Some(32 << 20), false, &warn).unwrap();
    assert!(has_told());
    remove(&path, &[b], &patience(), &warn).unwrap();
    assert!(has_told());
    expand(&path, &c, Some(48 << 20), &warn).unwrap();
    assert!(!has_told(), "it is forgotten");
}

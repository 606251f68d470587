//! Stories of disks that go bad, and of some that do not.

use super::*;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const MS: u64 = 1_000_000;

/// Reads every 10 ms for `for_ms`, and judges every 100 ms. Returns the states seen, with the time (ms) since the
/// beginning.
fn run(disk: &mut Health, from_ns: u64, for_ms: u64, read_ns: u64, peers: &[Typical]) -> Vec<(u64, DiskHealth)> {
    let mut seen = vec![(0, disk.state())];
    for ms in (10..=for_ms).step_by(10) {
        let now_ns = from_ns + ms * MS;
        disk.read_ok(now_ns, 8192, read_ns);
        if ms % 100 == 0 {
            disk.judge(now_ns, peers, None);
        }
        if seen.last().is_some_and(|(_, state)| *state != disk.state()) {
            seen.push((ms, disk.state()));
        }
    }
    seen
}

#[test]
fn a_bad_sector_is_not_a_bad_disk() {
    let mut disk = Health::new();
    for i in 0..1000 {
        disk.read_error(i * MS, EIO);
        if i % 7 == 6 {
            disk.read_ok(i * MS, 4096, MS);
        }
    }
    assert_eq!((disk.state(), disk.why()), (DiskHealth::Healthy, String::new()));
    // Errors that are far apart do not count as a row.
    let mut disk = Health::new();
    for i in 0..100 {
        disk.read_error(i * 10 * SECOND_NS, EIO);
    }
    assert_eq!(disk.state(), DiskHealth::Healthy);
}

#[test]
fn errors_and_what_they_make_of_a_disk() {
    use DiskHealth::{Failed, Healthy, ReadOnly};
    type Input = fn(&mut Health, u64, i32);
    let (read, write): (Input, Input) = (Health::read_error, Health::write_error);
    let flush: Input = Health::flush_error;
    let table = [
        (read, EIO, 7, Healthy, ""),
        (read, EIO, 8, Failed, "8 reads failed"),
        (read, errno::ENODEV, 1, Failed, "a read failed with"),
        (read, errno::EAGAIN, 100, Healthy, ""),
        (read, errno::EROFS, 7, Healthy, ""),
        (write, EIO, 3, Healthy, ""),
        (write, EIO, 4, ReadOnly, "4 writes failed"),
        (write, ENOSPC, 4, ReadOnly, "No space left"),
        (write, errno::EROFS, 1, ReadOnly, "Read-only file system"),
        (write, errno::ENXIO, 1, Failed, "the device is gone"),
        (write, errno::ENOMEM, 100, Healthy, ""),
        (flush, EIO, 1, ReadOnly, "a flush failed with"),
        (flush, errno::ESHUTDOWN, 1, Failed, "the device is gone"),
        (flush, errno::EINTR, 9, Healthy, ""),
    ];
    for (input, errno, times, expect, why) in table {
        let mut disk = Health::new();
        (0..times).for_each(|i| input(&mut disk, i * MS, errno));
        assert_eq!(disk.state(), expect, "{times} times {errno}");
        assert!(disk.why().contains(why) && disk.why().is_empty() == why.is_empty(), "{}", disk.why());
    }
}

#[test]
fn writes_fail_while_reads_work_and_then_everything_fails() {
    let mut disk = Health::new();
    for i in 0..10 {
        disk.write_error(i * MS, EIO);
        disk.read_ok(i * MS, 8192, MS);
    }
    assert_eq!(disk.state(), DiskHealth::ReadOnly);
    disk.write_ok(20 * MS);
    disk.flush_error(21 * MS, EIO);
    assert!(disk.state() == DiskHealth::ReadOnly && disk.why().starts_with("4 writes"), "{}", disk.why());
    (0..8).for_each(|i| disk.read_error((30 + i) * MS, EIO));
    assert_eq!(disk.state(), DiskHealth::Failed);
}

#[test]
fn a_slow_disk_is_found_after_two_seconds_and_forgiven_after_five() {
    let peers = [[Some(MS / 10), None, None], [Some(MS / 10), None, None], [Some(90 * MS), None, None]];
    let mut disk = Health::new();
    assert_eq!(run(&mut disk, 0, 3000, 4 * MS, &peers), [(0, DiskHealth::Healthy)], "under the floor");
    let seen = run(&mut disk, 10 * SECOND_NS, 4000, 6 * MS, &peers);
    assert!(matches!(seen[..], [_, (2100..=2300, DiskHealth::Slow)]), "{seen:?}");
    assert!(disk.why().starts_with("reads take ") && disk.why().ends_with(", those of the other disks 0.1 ms"));
    // Between half of the limit and the limit nothing changes.
    assert_eq!(run(&mut disk, 20 * SECOND_NS, 9000, 3 * MS, &peers), [(0, DiskHealth::Slow)]);
    let seen = run(&mut disk, 30 * SECOND_NS, 9000, 2 * MS, &peers);
    assert!(matches!(seen[..], [_, (5000..=5500, DiskHealth::Healthy)]), "{seen:?}");
    assert_eq!(disk.why(), "");
}

#[test]
fn all_disks_slow_is_load_and_short_is_nothing() {
    let peers = [[Some(50 * MS), None, None]; 2];
    let mut disk = Health::new();
    assert_eq!(run(&mut disk, 0, 9000, 150 * MS, &peers), [(0, DiskHealth::Healthy)]);
    let mut disk = Health::new();
    for second in 0..20 {
        // 1.5 s slow, 0.5 s not.
        let from_ns = second * 2 * SECOND_NS;
        run(&mut disk, from_ns, 1500, 300 * MS, &peers);
        run(&mut disk, from_ns + 1500 * MS, 500, 50 * MS, &peers);
        assert_eq!(disk.state(), DiskHealth::Healthy);
    }
}

#[test]
fn a_disk_without_peers_is_compared_with_half_a_second() {
    for (read_ns, expect) in [(450 * MS, DiskHealth::Healthy), (550 * MS, DiskHealth::Slow)] {
        for peers in [&[][..], &[[None, Some(MS), Some(MS)]][..]] {
            let mut disk = Health::new();
            run(&mut disk, 0, 5000, read_ns, peers);
            assert_eq!(disk.state(), expect);
        }
    }
}

#[test]
fn sizes_are_compared_with_their_like() {
    let peers = [[Some(MS / 10), Some(MS), Some(20 * MS)]];
    let mut disk = Health::new();
    for ms in (0..5000).step_by(10) {
        disk.read_ok(ms * MS, 1 << 20, 20 * MS);
        disk.read_ok(ms * MS, 4096, MS / 10);
        disk.judge(ms * MS, &peers, None);
    }
    assert_eq!((disk.state(), disk.typical()[1]), (DiskHealth::Healthy, None));
    assert_eq!([16 << 10, (16 << 10) + 1, 128 << 10, u32::MAX].map(size_class), [0, 1, 1, 2]);
}

#[test]
fn a_disk_that_hangs_is_slow_too() {
    let peers = [[Some(MS), None, None]; 2];
    let mut disk = Health::new();
    run(&mut disk, 0, 1000, MS, &peers);
    let mut slow_at_ms = None;
    for ms in (1000..5000).step_by(100) {
        disk.judge(ms * MS, &peers, Some((8192, (ms - 1000) * MS)));
        slow_at_ms = slow_at_ms.or((disk.state() == DiskHealth::Slow).then_some(ms));
    }
    assert_eq!(slow_at_ms, Some(3100));
    // The disk answers again, but has no reads: after 30 s it is healthy, and one old read no longer counts.
    disk.judge(30 * SECOND_NS, &peers, None);
    assert_eq!(disk.state(), DiskHealth::Slow);
    disk.judge(32 * SECOND_NS, &peers, None);
    assert_eq!(disk.state(), DiskHealth::Healthy);
    disk.read_ok(33 * SECOND_NS, 8192, MS);
    assert_eq!(disk.typical()[0], None);
}

#[test]
fn removing_comes_from_outside() {
    let mut disk = Health::new();
    disk.set_removing(true);
    run(&mut disk, 0, 4000, 600 * MS, &[]);
    assert_eq!(disk.state(), DiskHealth::Removing);
    assert!(disk.why().starts_with("its blocks are being moved away; reads take"), "{}", disk.why());
    disk.write_error(0, errno::EROFS);
    assert_eq!(disk.state(), DiskHealth::Removing);
    disk.set_failed("its superblock is that of another cache".to_string());
    assert_eq!((disk.state(), disk.why().as_str()), (DiskHealth::Failed, "its superblock is that of another cache"));
}

#[test]
fn reads_that_were_given_up_count_as_long_as_they_waited() {
    let mut health = Health::new();
    let peers = [[Some(100_000), None, None]];
    for at in 0..400 {
        let now_ns = at * 10_000_000;
        health.read_given_up(now_ns, 8192, 20_000_000);
        health.judge(now_ns, &peers, None);
    }
    assert_eq!(health.state(), DiskHealth::Slow, "a disk whose reads are all dropped");

    let mut sound = Health::new();
    for at in 0..400 {
        sound.read_ok(at * 10_000_000, 8192, 100_000);
        // The reader gave up at once: that says nothing.
        sound.read_given_up(at * 10_000_000, 8192, 1000);
    }
    assert_eq!(sound.typical()[0], Some(100_000));
}

#[test]
fn errors_of_the_moment_are_told_from_those_that_last() {
    let error = std::io::Error::from_raw_os_error;
    for errno in [errno::EINTR, errno::EAGAIN, errno::ENOMEM, errno::EBUSY] {
        assert!(is_passing(&error(errno)) && !is_final(&error(errno)), "{errno}");
    }
    for errno in [errno::ENODEV, errno::ENXIO, errno::EROFS] {
        assert!(!is_passing(&error(errno)) && is_final(&error(errno)), "{errno}");
    }
    let medium = error(5);
    assert!(!is_passing(&medium) && !is_final(&medium), "worth another try");
}

//! Two commands that look at one recording say the same of it.

use std::path::{Path, PathBuf};

use plimsoll_observe::trace::little::{Law, Little};
use plimsoll_observe::trace::read;
use plimsoll_observe::trace::stages::Stages;

/// The traces in the repository.
fn traces() -> Vec<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let directories = ["blkparse", "blktrace"].map(|format| std::fs::read_dir(corpus.join(format)).unwrap());
    let mut files: Vec<PathBuf> = directories.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// `stages` said that 0.35 requests were in the device, and `little` that 2 were.
#[test]
fn stages_and_little_count_the_same_requests() {
    let mut compared = 0;
    for path in traces() {
        let (mut stages, mut little) = (Stages::new(&[]), Little::default());
        let read_one = read(&path, &mut |item| {
            stages.visit(&item);
            little.visit(&item);
        });
        let trace = read_one.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (stages, little) = (stages.finish(&trace), little.finish(&trace));
        assert_eq!(stages.duration_ns, little.duration_ns, "{}", path.display());

        let queue: f64 = stages.disks.iter().map(|disk| disk.queue_depth_mean).sum();
        let device: f64 = stages.disks.iter().map(|disk| disk.device_depth_mean).sum();
        for (depth, law) in [(queue, &little.queue), (device, &little.device)] {
            let Law { depth_known, depth_mean, .. } = *law;
            assert!((depth - depth_known).abs() < 1e-9, "{}: {depth} {law:?}", path.display());
            assert!(depth_known <= depth_mean + 1e-9, "{}: {law:?}", path.display());
            compared += usize::from(depth > 0.0);
        }
    }
    assert!(compared >= 4, "of {compared} there is something to compare");
}

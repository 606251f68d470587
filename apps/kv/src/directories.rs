//! Directories whose names are durable.
//!
//! # Why
//! A synced file in a new directory is lost in a crash if the name of that directory, or of one above it, is not synced.
//!
//! # How it works
//! The directories that got a new name are synced.
//!
//! # Example
//! `create("/var/lib/kv".as_ref())?` syncs `/var/lib`, and `/var` if `lib` is new too.

use std::fs::File;
use std::io;
use std::path::Path;

/// Creates `directory` and those above it, as far as they are missing, durably.
///
/// # Errors
/// The system's error.
pub(crate) fn create(directory: &Path) -> io::Result<()> {
    create_with(directory, |above| File::open(above)?.sync_all())
}

fn create_with(directory: &Path, sync: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
    // A relative path ends with a name that has nothing above it.
    let directory = std::path::absolute(directory)?;
    let missing: Vec<&Path> = directory.ancestors().take_while(|ancestor| !ancestor.exists()).collect();
    std::fs::create_dir_all(&directory)?;
    missing.into_iter().filter_map(Path::parent).try_for_each(sync)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

    use super::*;

    #[test]
    fn what_got_a_new_name_is_synced() {
        let root = tempfile::tempdir().unwrap();
        for (made, expected) in [("a/b/c", vec!["a/b", "a", ""]), ("a/b/c", vec![]), ("a/d", vec!["a"])] {
            let mut synced = Vec::new();
            let sync = |above: &Path| {
                synced.push(above.to_owned());
                File::open(above)?.sync_all()
            };
            create_with(&root.path().join(made), sync).unwrap();
            let expected: Vec<_> = expected.into_iter().map(|name| root.path().join(name)).collect();
            assert_eq!(synced, expected, "{made}");
        }
    }
}

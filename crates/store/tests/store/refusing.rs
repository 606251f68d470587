//! A store with a subdirectory whose file system refuses direct I/O.

use std::process::Command;

use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use rustix::fs::{Mode, OFlags};

use crate::skip;
use crate::world::{directory, open, patterned};

/// Runs a shell script with these arguments in a mount namespace of its own. Returns whether it ended well, and what it
/// wrote.
fn beside(script: &str, arguments: &[&std::path::Path]) -> Result<(), String> {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]).args(arguments);
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            Err([output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Direct I/O was asked for once, at the root.
#[test]
fn objects_in_a_subdirectory_without_direct_io_go_through_the_page_cache() {
    let directory = directory();
    let below = directory.path().join("below");
    std::fs::create_dir(&below).unwrap();
    if !skip::has_direct_io(directory.path()) {
        return;
    }
    if let Err(error) = beside("mount -t ramfs none \"$1\"", &[&below]) {
        return skip::skip(format_args!("no ramfs in a namespace: {error}"));
    }
    let child = "mount -t ramfs none \"$1\" && cd \"$2\" && exec \"$3\" --exact refusing::child --ignored --quiet";
    beside(child, &[&below, directory.path(), &std::env::current_exe().unwrap()]).unwrap();
}

/// Started by the test above, in the root of the store.
#[tokio::test]
#[ignore = "the child of another test"]
async fn child() {
    if !std::fs::exists("below").unwrap() {
        return;
    }
    std::fs::write("below/file", "x").unwrap();
    let refused = rustix::fs::open("below/file", OFlags::DIRECT | OFlags::RDONLY, Mode::empty());
    assert_eq!(refused.unwrap_err(), rustix::io::Errno::INVAL, "this file system has direct I/O");

    let (runtime, store) = open(".".as_ref()).await;
    assert!(store.is_direct());
    let bytes = patterned((1 << 20) + 77, 5);
    store.put(&Path::from("below/put"), bytes.clone().into()).await.unwrap();
    let mut upload = store.put_multipart(&Path::from("below/upload")).await.unwrap();
    upload.put_part(PutPayload::from(bytes.clone())).await.unwrap();
    upload.complete().await.unwrap();
    for name in ["below/put", "below/upload"] {
        assert_eq!(store.get(&Path::from(name)).await.unwrap().bytes().await.unwrap(), bytes, "{name}");
    }
    runtime.shutdown().await.unwrap();
}

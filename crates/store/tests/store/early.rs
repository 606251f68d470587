//! Writes that end early: dropped, or with the whole process killed, at each of their awaits in turn.

use std::path::Path as FilePath;
use std::process::Command;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::stream::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, Result};
use plimsoll_store::ScheduledStore;

use crate::world::{World, directory, leftovers, open, patterned};

/// Length of an object: not a multiple of a block, and several writes long.
const LEN_BYTES: usize = (3 << 20) + 1;

const OLD: &str = "what was there before";

/// How an object is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Replace,
    Create,
    Upload,
}

const WAYS: [Way; 3] = [Way::Replace, Way::Create, Way::Upload];

async fn write(store: &ScheduledStore, way: Way, path: &Path) -> Result<()> {
    let bytes = patterned(LEN_BYTES, 9);
    match way {
        Way::Replace => store.put(path, bytes.into()).await.map(drop),
        Way::Create => store.put_opts(path, bytes.into(), PutMode::Create.into()).await.map(drop),
        Way::Upload => {
            let mut upload = store.put_multipart(path).await?;
            for part in bytes.chunks(LEN_BYTES / 3) {
                upload.put_part(part.to_vec().into()).await?;
            }
            upload.complete().await.map(drop)
        }
    }
}

/// Polls `future` up to `polls` times and calls `end_early` if that did not end it. Returns whether it ended.
async fn polled(future: impl Future<Output = Result<()>>, polls: usize, end_early: impl Fn()) -> bool {
    let (mut future, mut left) = (Box::pin(future), polls);
    std::future::poll_fn(|context| {
        if left > 0 {
            left -= 1;
            if let Poll::Ready(ended) = future.as_mut().poll(context) {
                ended.unwrap();
                return Poll::Ready(true);
            }
        }
        if left == 0 {
            end_early();
            return Poll::Ready(false);
        }
        Poll::Pending
    })
    .await
}

/// Asserts that each object is whole: what was there before, or what was written. Returns whether it is what was
/// written.
async fn check_whole(store: &dyn ObjectStore, path: &Path, is_old: bool) -> bool {
    let listed: Vec<_> = store.list(None).map_ok(|meta| meta.location).try_collect().await.unwrap();
    let found = match store.get(path).await {
        Ok(answer) => Some(answer.bytes().await.unwrap()),
        Err(object_store::Error::NotFound { .. }) => None,
        Err(error) => panic!("{error}"),
    };
    // Between the two, a blocking thread may have completed an operation that it had begun.
    assert!(listed.is_empty() || listed == std::slice::from_ref(path), "{listed:?}");
    let is_new = found.as_ref().is_some_and(|bytes| *bytes == patterned(LEN_BYTES, 9));
    assert!(is_new || found.as_deref() == is_old.then_some(OLD.as_bytes()), "neither the old object nor the new one");
    is_new
}

#[tokio::test]
async fn a_write_that_is_dropped_leaves_a_whole_object_or_none() {
    for way in WAYS {
        for polls in 0.. {
            let world = World::new(1).await;
            let (path, is_old) = (Path::from("a/object"), way != Way::Create);
            if is_old {
                world.store.put(&path, OLD.into()).await.unwrap();
            }
            let has_ended = polled(write(&world.store, way, &path), polls, || ()).await;
            check_whole(&LocalFileSystem::new_with_prefix(world.path()).unwrap(), &path, is_old).await;
            // A blocking thread completes the operation that it has begun, and then removes the file.
            let begun = Instant::now();
            while !world.leftovers().is_empty() {
                assert!(begun.elapsed() < Duration::from_secs(60), "{way:?}, {polls} polls: {:?}", world.leftovers());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let is_new = check_whole(&world.store, &path, is_old).await;
            // The store still works.
            write(&world.store, Way::Replace, &path).await.unwrap();
            assert!(check_whole(&world.store, &path, is_old).await);
            world.end().await;
            if has_ended {
                assert!(is_new && polls > 1, "{way:?}: {polls} awaits");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_write_whose_process_is_killed_leaves_a_whole_object_or_none() {
    for way in WAYS {
        let mut killed_with_leftovers = 0;
        for polls in 1.. {
            let (directory, path, is_old) = (directory(), Path::from("a/object"), way != Way::Create);
            let local = LocalFileSystem::new_with_prefix(directory.path()).unwrap();
            if is_old {
                local.put(&path, OLD.into()).await.unwrap();
            }
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "early::child", "--ignored", "--quiet"])
                .env("PLIMSOLL_STORE_CHILD", format!("{} {polls} {way:?}", directory.path().display()))
                .output()
                .unwrap();
            let has_ended = child.status.success();
            let killed = std::os::unix::process::ExitStatusExt::signal(&child.status) == Some(9);
            assert!(has_ended || killed, "{way:?}, {polls} polls: {child:?}");

            check_whole(&local, &path, is_old).await;
            let was_left = !leftovers(directory.path()).is_empty();
            let (runtime, store) = open(directory.path()).await;
            assert_eq!(leftovers(directory.path()), Vec::<std::path::PathBuf>::new());
            let is_new = check_whole(&store, &path, is_old).await;
            runtime.shutdown().await.unwrap();
            assert!(!(has_ended && was_left));
            killed_with_leftovers += usize::from(was_left);
            if has_ended {
                assert!(is_new && killed_with_leftovers > 0, "{way:?}: {polls} awaits");
                break;
            }
        }
    }
}

/// Started by the test above in a process of its own: writes, and kills itself at an await.
#[tokio::test]
#[ignore = "the child of another test"]
async fn child() {
    let Ok(told) = std::env::var("PLIMSOLL_STORE_CHILD") else { return };
    let [directory, polls, way] = told.split(' ').collect::<Vec<_>>()[..] else { panic!("{told}") };
    let way = *WAYS.iter().find(|known| format!("{known:?}") == way).unwrap();
    let (runtime, store) = open(FilePath::new(directory)).await;
    let kill = || rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL).unwrap();
    assert!(polled(write(&store, way, &Path::from("a/object")), polls.parse().unwrap(), kill).await);
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_another_store_is_writing_is_no_leftover() {
    let world = World::new(1).await;
    let path = Path::from("a/object");
    let mut upload = world.store.put_multipart(&path).await.unwrap();
    upload.put_part("ahoy".into()).await.unwrap();
    let (runtime, other) = open(world.path()).await;
    assert_eq!(world.leftovers().len(), 1);
    upload.complete().await.unwrap();
    assert_eq!(other.get(&path).await.unwrap().bytes().await.unwrap(), "ahoy");
    runtime.shutdown().await.unwrap();
    world.end().await;
}

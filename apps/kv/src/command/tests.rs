#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::num::NonZeroU64;

use plimsoll::core::Rate;
use tokio::io::AsyncReadExt;

use super::*;
use crate::options::DatabaseOptions;
use crate::settings::MEMORY_MIN_BYTES;

/// Returns a service on a database in `directory`.
async fn service(directory: &std::path::Path) -> Arc<Service> {
    let options = DatabaseOptions { memory_bytes: MEMORY_MIN_BYTES, ..DatabaseOptions::new(directory) };
    let limits = Limits { key_max_bytes: 1 << 10, value_max_bytes: 1 << 20 };
    Arc::new(Service::new(Database::open(&options).await.unwrap(), limits, 10))
}

/// Returns a session whose replies collect in memory.
fn session(service: &Arc<Service>) -> Session<io::Cursor<Vec<u8>>> {
    let shared = Shared::of(service.database.memory(), &service.limits);
    Session::new(Arc::clone(service), io::Cursor::default(), shared)
}

async fn close(service: Arc<Service>) {
    Arc::into_inner(service).unwrap().database.close().await.unwrap();
}

/// Each saw the value before the other had deleted it, and both counted it.
#[tokio::test]
async fn of_two_that_delete_a_key_one_counts_it() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path()).await;
    let [mut first, mut second] = [session(&service), session(&service)];
    first.execute(&[b"SET", b"ship", b"ahoy"]).await.unwrap();
    first.flush().await.unwrap();

    let delete: &[&[u8]] = &[b"DEL", b"ship", b"ship"];
    let (one, other) = tokio::join!(first.execute(delete), second.execute(delete));
    assert!(one.is_ok() && other.is_ok());
    let mut replies = [&first.output, &second.output].map(|output| String::from_utf8(output.clone()).unwrap());
    replies.sort();
    assert_eq!(replies, [":0\r\n", ":1\r\n"]);
    drop((first, second));
    close(service).await;
}

/// Many at once took memory that nothing bounded: it was counted when they had been read.
#[tokio::test]
async fn a_value_that_is_read_takes_memory_before_its_length_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path()).await;
    let mut session = session(&service);
    let replies = session.shared.replies.clone();
    let get: &[&[u8]] = &[b"GET", b"ship"];

    // At first a value may be as long as its bound, for which there is no memory now; another one is read alone.
    let all = replies.take(replies.total_bytes()).await.unwrap();
    let alone = Arc::clone(&session.shared.alone).lock_owned().await;
    for command in [get, &[b"DEL", b"ship"]] {
        let waits = tokio::time::timeout(Duration::from_millis(200), session.execute(command)).await;
        assert!(waits.is_err(), "{command:?}");
    }
    drop((all, alone));
    for _ in 0..30 {
        session.execute(get).await.unwrap();
    }

    // Those that were read are short, so the next one is expected to be.
    let all = replies.take(replies.total_bytes()).await.unwrap();
    session.execute(get).await.unwrap();
    assert_eq!(session.output, b"$-1\r\n".repeat(31));
    drop((session, all));
    close(service).await;
}

/// While clients read long values slowly, or not at all, reads of short ones waited for them.
#[tokio::test]
async fn a_short_value_does_not_wait_for_clients_that_read_long_ones() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path()).await;
    let mut session = session(&service);
    let long = vec![7; 2 * OUTPUT_BYTES];
    for (key, value) in [(b"long", &long[..]), (b"ship", b"ahoy")] {
        session.execute(&[b"SET", key, value]).await.unwrap();
    }
    session.flush().await.unwrap();
    session.writer = io::Cursor::default();

    let replies = session.shared.replies.clone();
    let all = replies.take(replies.total_bytes()).await.unwrap();
    session.execute(&[b"GET", b"ship"]).await.unwrap();
    session.execute(&[b"DEL", b"ship"]).await.unwrap();
    let waits = tokio::time::timeout(Duration::from_millis(200), session.execute(&[b"GET", b"long"])).await;
    assert!(waits.is_err());
    assert_eq!(session.writer.get_ref(), b"$4\r\nahoy\r\n:1\r\n");

    drop(all);
    session.execute(&[b"GET", b"long"]).await.unwrap();
    session.flush().await.unwrap();
    assert!(session.writer.get_ref().ends_with(&[&long[..], b"\r\n"].concat()));
    drop(session);
    close(service).await;
}

/// Has the last values be short, as after a while of reads.
fn expect_short_values(session: &Session<io::Cursor<Vec<u8>>>) {
    (0..100).for_each(|_| session.shared.value_bytes.add(0));
}

/// One was read after the other: MGET of 16 keys took 16 times as long as GET of one.
#[tokio::test]
async fn several_keys_are_read_from_the_disk_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let keys: Vec<String> = (0..16).map(|number| format!("key{number:02}")).collect();
    let filled = service(directory.path()).await;
    let mut writer = session(&filled);
    for key in &keys {
        // Each has a block of its own.
        writer.execute(&[b"SET", key.as_bytes(), &[7; 3000]]).await.unwrap();
    }
    writer.flush().await.unwrap();
    drop(writer);
    close(filled).await;

    let service = service(directory.path()).await;
    let mut session = session(&service);
    expect_short_values(&session);
    // Filter and index of the file.
    session.execute(&[b"GET", b"key00"]).await.unwrap();
    session.output.clear();

    let (classes, query) = (service.database.topology().classes().clone(), service.database.classes().query);
    let slow = Rate::PerSecond(NonZeroU64::MIN);
    classes.update_qos(query, |qos| qos.limits.iops = slow).unwrap();
    let shard = service.database.engine().runtime.any_shard();
    let queued = async || {
        let stats = shard.run(move |shard| async move { shard.reactor().class_stats(0, query) }).await.unwrap();
        stats.map_or(0, |stats| stats.queued)
    };
    let all_wait = async {
        let begun = Instant::now();
        while queued().await < 8 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} wait", queued().await);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        classes.update_qos(query, |qos| qos.limits.iops = Rate::Unlimited).unwrap();
    };
    let (read, ()) = tokio::join!(session.execute_gets(&keys), all_wait);
    read.unwrap();
    let reply = [&b"$3000\r\n"[..], &[7; 3000], b"\r\n"].concat();
    assert_eq!(session.output, reply.repeat(16));
    drop(session);
    close(service).await;
}

#[tokio::test]
async fn keys_that_are_read_at_once_have_their_replies_in_order_and_bounded_memory() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path()).await;
    let mut session = session(&service);
    let long = vec![7; OUTPUT_BYTES + 1];
    for number in 0..16 {
        let value = if number == 5 { &long[..] } else { &[number; 6000] };
        session.execute(&[b"SET", &[number], value]).await.unwrap();
    }
    session.flush().await.unwrap();

    let (keys, too_long): (Vec<[u8; 1]>, _) = ((0..17).map(|number| [number]).collect(), vec![7; 2 << 10]);
    let mut words: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    words.insert(3, b"");
    words.insert(15, &too_long);
    let bulk = |value: &[u8]| [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat();
    let values = (0..16).map(|number| if number == 5 { bulk(&long) } else { bulk(&[number; 6000]) });
    let mut expected: Vec<Vec<u8>> = values.chain([b"$-1\r\n".to_vec()]).collect();
    expected.insert(3, b"-ERR a key of 0 bytes: keys have 1 to 1024 bytes\r\n".to_vec());
    expected.insert(15, b"-ERR a key of 2048 bytes: keys have 1 to 1024 bytes\r\n".to_vec());

    // With and without memory for several, and places.
    let (replies, batches) = (session.shared.replies.clone(), Arc::clone(&session.shared.batches));
    for is_alone in [false, true] {
        let memory = replies.take(if is_alone { replies.total_bytes() - 2 * OUTPUT_BYTES } else { 0 }).await.unwrap();
        let _places = is_alone.then(|| batches.clone().try_acquire_many_owned(read::BATCHES_MAX as u32).unwrap());
        session.writer = io::Cursor::default();
        expect_short_values(&session);
        session.execute_gets(&words).await.unwrap();
        session.flush().await.unwrap();
        assert!(*session.writer.get_ref() == expected.concat(), "alone: {is_alone}");
        drop(memory);
    }
    // It is all free.
    let (all, places) = (replies.take(replies.total_bytes()), batches.acquire_many(read::BATCHES_MAX as u32));
    let (all, _) = (all.await.unwrap(), places.await.unwrap());
    drop((all, session));
    close(service).await;
}

/// SlateDB has one read of a block for all that ask for it: one that a client held up would hold up others.
#[tokio::test]
async fn a_client_that_reads_nothing_keeps_no_memory_of_values_read_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path()).await;
    let mut writer = session(&service);
    writer.execute(&[b"SET", b"ship", &[7; 4000]]).await.unwrap();
    writer.flush().await.unwrap();
    expect_short_values(&writer);

    let (server, _client) = tokio::io::duplex(10);
    let mut stuck = Session::new(Arc::clone(&service), server, writer.shared.clone());
    let waits = stuck.execute_gets(&[b"ship"; 64]);
    assert!(tokio::time::timeout(Duration::from_millis(300), waits).await.is_err());
    assert!(stuck.buffer_bytes() < 4 * OUTPUT_BYTES);
    let replies = &writer.shared.replies;
    drop(replies.take(replies.total_bytes()).await.unwrap());
    assert_eq!(writer.shared.batches.available_permits(), read::BATCHES_MAX);
    drop((stuck, writer));
    close(service).await;
}

#[tokio::test]
async fn each_key_of_several_has_the_error_of_a_database_that_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path()).await;
    let mut session = session(&service);
    expect_short_values(&session);
    service.database.slatedb().close().await.unwrap();
    session.execute_gets(&[b"a", b"b", b"c"]).await.unwrap();
    let replies = String::from_utf8(session.output.clone()).unwrap();
    assert!(replies.lines().count() == 3 && replies.lines().all(|line| line.starts_with("-ERR ")), "{replies}");
    drop(session);
    assert!(Arc::into_inner(service).unwrap().database.close().await.is_err());
}

/// Each of them was delayed, however short: a thousand of a few bytes took five minutes.
#[tokio::test]
async fn writes_of_a_pipeline_are_delayed_by_their_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(directory.path()).await;
    let mut session = session(&service);
    service.database.set_write_delay(Duration::from_millis(100));
    let (begun, mut delays, mut left_bytes) = (Instant::now(), 0, 0);
    for number in 0..300 {
        session.execute(&[b"SET", number.to_string().as_bytes(), b"ahoy"]).await.unwrap();
        delays += u32::from(session.delayed_bytes > left_bytes);
        left_bytes = session.delayed_bytes;
    }
    session.flush().await.unwrap();
    // 19,200 bytes.
    assert_eq!(delays, 2);
    assert!(begun.elapsed() >= Duration::from_millis(200));
    drop(session);
    close(service).await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_given_up() {
    let (mut server, mut client) = tokio::io::duplex(10);
    let failed = send(&mut server, &[7; 100], Duration::from_millis(1)).await.unwrap_err();
    assert_eq!(failed.kind(), io::ErrorKind::TimedOut);
    client.read_exact(&mut [0; 10]).await.unwrap();

    let reader = tokio::spawn(async move { client.read_exact(&mut [0; 100]).await.map(|_| ()) });
    send(&mut server, &[7; 100], PATIENCE).await.unwrap();
    reader.await.unwrap().unwrap();
}

/// With a few bytes now and then it kept its part of the memory for replies, and others waited for theirs.
#[tokio::test]
async fn a_client_that_reads_next_to_nothing_is_given_up() {
    let (mut server, mut client) = tokio::io::duplex(10);
    let reader = tokio::spawn(async move {
        while client.read(&mut [0; 1]).await.is_ok_and(|read| read > 0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let sent = send(&mut server, &[7; 1000], Duration::from_millis(500)).await;
    assert_eq!(sent.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
    drop(server);
    reader.await.unwrap();
}

//! The protocol as clients see it: right requests, wrong ones, too large ones.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::collections::HashMap;

use common::{Server, command, limited, plain_command, refusal, request};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

#[test]
fn each_command_has_its_answer() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let binary = [0_u8, 13, 10, 255];
    let cases: [(&[&[u8]], &str); 30] = [
        (&[b"PING"], "+PONG\r\n"),
        (&[b"ping", b"ahoy"], "$4\r\nahoy\r\n"),
        (&[b"echo", &binary], "$4\r\n\0\r\n\u{fffd}\r\n"),
        (&[b"ECHO"], "-ERR wrong number of arguments for 'ECHO'"),
        (&[b"GET", b"ship"], "$-1\r\n"),
        (&[b"SET", b"ship", b"ahoy"], "+OK\r\n"),
        (&[b"GET", b"ship"], "$4\r\nahoy\r\n"),
        (&[b"SET", b"empty", b""], "+OK\r\n"),
        (&[b"GET", b"empty"], "$0\r\n\r\n"),
        (&[b"MGET", b"ship", b"none", b"empty"], "*3\r\n$4\r\nahoy\r\n$-1\r\n$0\r\n\r\n"),
        (&[b"MGET", b"ship", b"", b"empty"], "-ERR a key of 0 bytes"),
        (&[b"DEL", b"ship", b"none"], ":1\r\n"),
        (&[b"GET", b"ship"], "$-1\r\n"),
        (&[b"SET", &binary, &binary], "+OK\r\n"),
        (&[b"DEL", &binary], ":1\r\n"),
        (&[b"COMMAND", b"DOCS"], "*0\r\n"),
        (&[b"COMMAND", b"count"], ":11\r\n"),
        (&[b"COMMAND", b"LIST"], "*11\r\n$3\r\nGET\r\n$3\r\nSET\r\n"),
        (&[b"CONFIG", b"GET", b"save"], "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        (&[b"CONFIG", b"GET", b"nothing"], "*0\r\n"),
        (&[b"CONFIG", b"SET", b"save", b""], "-ERR only CONFIG GET"),
        (&[b"GET"], "-ERR wrong number of arguments for 'GET'"),
        (&[b"SET", b"a", b"b", b"NX"], "-ERR wrong number of arguments for 'SET'"),
        (&[b"SET", b"", b"b"], "-ERR a key of 0 bytes"),
        (&[b"FLUSHALL"], "-ERR unknown command 'FLUSHALL'"),
        (&[b"SCAN", b"0", b"COUNT", b"0"], "-ERR COUNT is a number from 1"),
        (&[b"SCAN", b"0", b"MATCH", &[b'['; 1025]], "-ERR a pattern has at most 1024 bytes"),
        (&[b"SCAN", b"7"], "-ERR no such cursor"),
        (&[b"SCAN", b"x"], "-ERR invalid cursor"),
        (&[b"QUIT"], "+OK\r\n"),
    ];
    for (words, expected) in cases {
        let answer = server.exchange(&request(words));
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(expected), "{words:?}: {answer:?}");
    }
    assert_eq!(server.typed("PING"), "+PONG\r\n");
    assert_eq!(server.typed("\r\n  GET   empty  "), "$0\r\n\r\n");
    assert_eq!(server.typed(r#"SET "a ship" 'ahoy, it\'s me'"#), "+OK\r\n");
    assert_eq!(server.exchange(&request(&[b"GET", b"a ship"])), b"$13\r\nahoy, it's me\r\n");
    assert_eq!(server.typed("GET \"ship"), "-ERR Protocol error: unbalanced quotes in request\r\n");
    assert!(server.typed("INFO").contains("commitlog:shares="));
    assert!(server.stop().success());
}

/// Its first line ended it, and a later one the task that writes the commit log, for good.
#[test]
fn a_server_whose_log_file_is_full_serves_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    // An address of its own, on loopback as all that begin with 127: it cannot say which port it has got.
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = format!("127.{}.{high}.{low}:6380", 1 + low % 200);
    let flags = ["--memory", "16MiB", "--listen", &address];
    let mut command = plain_command(directory.path(), &flags);
    command.stderr(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let server = Server::start_unheard(command, address.parse().unwrap());
    assert_eq!(server.typed("SET ship ahoy"), "+OK\r\n");
    assert!(server.stop().success());
}

#[test]
fn a_pipeline_is_answered_in_its_order() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let (mut asked, mut expected) = (Vec::new(), Vec::new());
    for number in 0..500 {
        let (key, value) = (format!("key{number}"), format!("value{number}"));
        asked.extend(request(&[b"SET", key.as_bytes(), value.as_bytes()]));
        asked.extend(request(&[b"GET", key.as_bytes()]));
        expected.extend(format!("+OK\r\n${}\r\n{value}\r\n", value.len()).into_bytes());
    }
    assert_eq!(server.exchange(&asked), expected);
    // In pieces of any length.
    let mut stream = server.connect();
    for piece in asked.chunks(7).take(200) {
        std::io::Write::write_all(&mut stream, piece).unwrap();
    }
    let mut answer = [0; 5];
    std::io::Read::read_exact(&mut stream, &mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
}

/// A read behind a write of the same pipeline sees it, one before it does not, and each reply has its place.
#[test]
fn a_pipeline_of_reads_and_writes_is_answered_as_if_each_had_waited_for_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--static-shares"]);
    let mut kept: HashMap<String, Vec<u8>> = HashMap::new();
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut asked, mut expected) = (Vec::new(), Vec::new());
        // With the longest value, each read would be alone.
        let longest = [100, 3000, 20_000, 80_000][seed as usize % 4];
        for _ in 0..200 {
            let key = random.random_range(0..20).to_string();
            let bulk = |key: &String| match kept.get(key) {
                Some(value) => [format!("${}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat(),
                None => b"$-1\r\n".to_vec(),
            };
            match random.random_range(0..10) {
                0 => {
                    let value = vec![random.random(); random.random_range(0..longest)];
                    asked.extend(request(&[b"SET", key.as_bytes(), &value]));
                    kept.insert(key, value);
                    expected.extend(b"+OK\r\n");
                }
                1 => {
                    asked.extend(request(&[b"DEL", key.as_bytes()]));
                    expected.extend(format!(":{}\r\n", u8::from(kept.remove(&key).is_some())).into_bytes());
                }
                2 => {
                    let keys: Vec<String> = (0..20).map(|key| key.to_string()).collect();
                    let words: Vec<&[u8]> =
                        ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).map(str::as_bytes).collect();
                    asked.extend(request(&words));
                    expected.extend(b"*20\r\n");
                    keys.iter().for_each(|key| expected.extend(bulk(key)));
                }
                3 => {
                    asked.extend(b"get \"\"\r\n");
                    expected.extend(b"-ERR a key of 0 bytes: keys have 1 to 16384 bytes\r\n");
                }
                _ => {
                    asked.extend(request(&[b"get", key.as_bytes()]));
                    expected.extend(bulk(&key));
                }
            }
        }
        assert!(server.exchange(&asked) == expected, "seed {seed}");
    }
}

#[test]
fn a_scan_finds_every_key_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let mut asked = Vec::new();
    (0..95).for_each(|number| asked.extend(request(&[b"SET", format!("key{number:02}").as_bytes(), b"x"])));
    asked.extend(request(&[b"SCAN", b"0", b"COUNT", b"40"]));
    // A write after the beginning is not seen.
    asked.extend(request(&[b"SET", b"key99", b"x"]));
    asked.extend(request(&[b"SCAN", b"1", b"COUNT", b"40"]));
    asked.extend(request(&[b"SCAN", b"1", b"COUNT", b"40"]));
    asked.extend(request(&[b"SCAN", b"2", b"COUNT", b"40", b"MATCH", b"key9?"]));
    let answer = String::from_utf8(server.exchange(&asked)).unwrap();
    let lines: Vec<&str> = answer.lines().filter(|line| line.starts_with("key") || line.starts_with('-')).collect();
    let mut expected: Vec<String> = (0..80).map(|number| format!("key{number:02}")).collect();
    expected.push("-ERR no such cursor: a cursor is good once, on its own connection; begin with 0".to_owned());
    expected.extend((90..95).map(|number| format!("key{number}")));
    assert_eq!(lines, expected);
}

#[test]
fn what_is_no_request_is_named_and_the_server_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--max-value", "100"]);
    let long_line = "x".repeat(2000);
    let long_key = request(&[b"GET", &[b'k'; 20_000]]);
    let long_value = request(&[b"SET", b"k", &[b'v'; 101]]);
    let cases: [(&[u8], &str); 13] = [
        (b"*0\r\n", "0 arguments"),
        (b"*-1\r\n", "-1 arguments"),
        (b"*1025\r\n", "1025 arguments"),
        (b"*99999999999999999999\r\n", "expected a number after '*'"),
        (b"*1\n", "expected a number after '*'"),
        (b"*x\r\n", "expected a number after '*'"),
        (b"*1\r\n+PING\r\n", "expected '$', found '+'"),
        (b"*1\r\n$-1\r\n", "an argument of -1 bytes"),
        (b"*1\r\n$4\r\nPINGxx", "expected '\\r', found 'x'"),
        (b"*1\r\n$999999999999\r\n", "an argument of 999999999999 bytes, at most 16384"),
        (long_line.as_bytes(), "a line has more than 1024 bytes"),
        (&long_key, "an argument of 20000 bytes"),
        (&long_value, "a value of 101 bytes"),
    ];
    for (bytes, named) in cases {
        let answer = server.exchange(bytes);
        let answer = String::from_utf8_lossy(&answer);
        let shown = bytes[..bytes.len().min(40)].escape_ascii();
        assert!(answer.starts_with("-ERR ") && answer.contains(named), "{shown}: {answer:?}");
        assert!(answer.lines().count() == 1, "{shown}: {answer:?}");
    }
    // A part of a request is no request, and no error.
    assert_eq!(server.exchange(b"*2\r\n$3\r\nGET\r\n$5\r\nab"), b"");
    assert_eq!(server.typed("PING"), "+PONG\r\n");
}

#[test]
fn mutated_requests_leave_the_server_alive() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--max-value", "1000"]);
    let mut whole = request(&[b"SET", b"key", &[b'v'; 300]]);
    whole.extend(request(&[b"MGET", b"key", b"other"]));
    whole.extend(request(&[b"SCAN", b"0", b"MATCH", b"k*"]));
    whole.extend(request(&[b"DEL", b"key"]));
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut bytes = whole.clone();
        for _ in 0..random.random_range(1..8) {
            let at = random.random_range(0..bytes.len().max(1));
            match random.random_range(0..4) {
                0 => bytes[at] = random.random(),
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, b"*$\r\n0159-"[random.random_range(0..9)]),
                _ => bytes.truncate(at.max(10)),
            }
        }
        server.exchange(&bytes);
        assert_eq!(server.typed("PING"), "+PONG\r\n", "seed {seed}");
    }
}

#[test]
fn connections_and_memory_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &["--max-connections", "2", "--max-value", "4MiB"]);
    let (mut first, second) = (server.connect(), server.connect());
    // Both are served, or the third might be one of the two.
    for stream in [&mut first, &mut second.try_clone().unwrap()] {
        std::io::Write::write_all(stream, b"PING\r\n").unwrap();
        let mut answer = [0; 7];
        std::io::Read::read_exact(stream, &mut answer).unwrap();
    }
    assert!(server.typed("PING").starts_with("-ERR max number of clients reached"));

    // A budget of 16 MiB has 2 MiB for large requests.
    std::io::Write::write_all(&mut first, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4000000\r\n").unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut first, &mut answer).unwrap();
    assert!(answer.starts_with("-OOM "), "{answer}");
}

/// Returns whether the server has answered, or closed the connection.
fn has_answer(client: &std::net::TcpStream) -> bool {
    client.set_nonblocking(true).unwrap();
    let has_answer = client.peek(&mut [0]).is_ok();
    client.set_nonblocking(false).unwrap();
    has_answer
}

/// A client that sent the beginning of a long value and stayed held its memory, so that no other client got any.
#[test]
fn a_request_that_does_not_arrive_does_not_keep_its_memory() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let stay = || {
        let mut client = server.connect();
        std::io::Write::write_all(&mut client, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$70000\r\nv").unwrap();
        client
    };
    let mut first = stay();
    // A budget of 16 MiB has 1 MiB for large requests: all of it, but for what the first has.
    let long = request(&[b"SET", b"long", &vec![b'v'; 1_110_000]]);
    let mut is_refused = false;
    let begun = std::time::Instant::now();
    loop {
        match server.exchange(&long).as_slice() {
            b"+OK\r\n" if is_refused => break,
            // The long one was first, and the other was refused.
            b"+OK\r\n" if has_answer(&first) => first = stay(),
            // The first has not been read yet.
            b"+OK\r\n" => {}
            // The answer may be lost, because not all of the request was read.
            _ => is_refused = true,
        }
        assert!(begun.elapsed() < common::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut first, &mut answer).unwrap();
    assert!(answer.starts_with("-ERR a long request did not arrive in time"), "{answer}");
}

/// Of keys that come one at a time, the length of the request is known one at a time, and each byte was read alone.
#[test]
fn a_request_of_many_keys_is_longer_than_a_buffer() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let keys: Vec<String> = (0..1000).map(|number| format!("{number:0100}")).collect();
    let words: Vec<&[u8]> = [b"DEL".as_slice()].into_iter().chain(keys.iter().map(|key| key.as_bytes())).collect();
    let asked = [request(&words), request(&[b"PING"])].concat();
    assert_eq!(server.exchange(&asked), b":0\r\n+PONG\r\n");
}

#[test]
fn a_step_of_a_scan_is_bounded_by_the_bytes_of_its_keys() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    let keys: Vec<String> = (0..100).map(|number| format!("{number:04}").repeat(1024)).collect();
    let mut asked = Vec::new();
    keys.iter().for_each(|key| asked.extend(request(&[b"SET", key.as_bytes(), b"x"])));
    // 400 KiB of keys.
    asked.extend(request(&[b"SCAN", b"0", b"COUNT", b"1000"]));
    (1..100).for_each(|cursor: u32| asked.extend(request(&[b"SCAN", cursor.to_string().as_bytes()])));
    let answer = String::from_utf8(server.exchange(&asked)).unwrap();
    let found: Vec<&str> = answer.lines().filter(|line| line.len() == 4096).collect();
    assert!(found == keys, "{} keys", found.len());
    let first_step = answer.lines().skip_while(|line| *line != "*2").nth(3).unwrap();
    assert_eq!(first_step, "*16", "64 KiB");
}

#[test]
fn all_clients_together_have_few_scans() {
    let directory = tempfile::tempdir().unwrap();
    // 16 MiB have four.
    let server = Server::start(directory.path(), &[]);
    ["a", "b"].iter().for_each(|key| assert_eq!(server.typed(&format!("SET {key} x")), "+OK\r\n"));
    let mut first = server.connect();
    for cursor in 1..=4 {
        std::io::Write::write_all(&mut first, b"SCAN 0 COUNT 1\r\n").unwrap();
        let expected = format!("*2\r\n$1\r\n{cursor}\r\n*1\r\n$1\r\na\r\n");
        let mut answer = vec![0; expected.len()];
        std::io::Read::read_exact(&mut first, &mut answer).unwrap();
        assert_eq!(String::from_utf8(answer).unwrap(), expected);
    }
    let refused = server.typed("SCAN 0");
    assert!(refused.starts_with("-OOM 4 scans are under way"), "{refused}");

    // The oldest of a connection makes room for its own.
    std::io::Write::write_all(&mut first, b"SCAN 0 COUNT 1\r\nSCAN 1\r\n").unwrap();
    let expected = "*2\r\n$1\r\n5\r\n*1\r\n$1\r\na\r\n-ERR no such cursor";
    let mut answer = vec![0; expected.len()];
    std::io::Read::read_exact(&mut first, &mut answer).unwrap();
    assert_eq!(String::from_utf8(answer).unwrap(), expected);

    // Those of a client that is gone make room for others.
    drop(first);
    let begun = std::time::Instant::now();
    while server.typed("SCAN 0").starts_with("-OOM ") {
        assert!(begun.elapsed() < common::PATIENCE);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn what_clients_do_not_read_takes_little_memory() {
    let directory = tempfile::tempdir().unwrap();
    // Without the controllers, writes are not delayed.
    let server = Server::start(directory.path(), &["--static-shares"]);
    let (value, number_of_keys) = (vec![b'v'; 256 << 10], 160);
    let mut writer = server.connect();
    for number in 0..number_of_keys {
        std::io::Write::write_all(&mut writer, &request(&[b"SET", number.to_string().as_bytes(), &value])).unwrap();
        let mut answer = [0; 5];
        std::io::Read::read_exact(&mut writer, &mut answer).unwrap();
        assert_eq!(&answer, b"+OK\r\n");
    }

    // The caches fill.
    for number in 0..number_of_keys {
        assert!(server.exchange(&request(&[b"GET", number.to_string().as_bytes()])).len() > value.len());
    }
    let before = server.peak_bytes(true);
    let ask = |number: u32| request(&[b"GET", (number % number_of_keys).to_string().as_bytes()]);
    let asked = |from: u32| (0..64).flat_map(|number| ask(from + number)).collect::<Vec<u8>>();
    let mut clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        std::io::Write::write_all(client, &asked(3 * number as u32)).unwrap();
    }
    // Until the server has no room for further replies.
    let commands = || {
        let info = server.typed("INFO");
        let count = info.lines().find_map(|line| line.strip_prefix("total_commands_processed:"));
        count.unwrap().parse::<u64>().unwrap()
    };
    let mut last = 0;
    // INFO is a command too.
    while commands() > last + 1 {
        last = commands();
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
    let more = server.peak_bytes(false).saturating_sub(before);
    // Compactions take some, and values that are just being read.
    assert!(more < 80 << 20, "100 clients that read nothing took {} MiB", more >> 20);
    // Others are served, and get long values too once those clients are gone.
    assert_eq!(server.typed("SET ship ahoy"), "+OK\r\n");
    drop(clients);
    assert!(server.exchange(&ask(0)).len() > value.len());
}

#[test]
fn a_request_from_a_browser_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &[]);
    for request in ["POST / HTTP/1.1\r\n", "PUT / HTTP/1.1\r\nHost: localhost\r\n"] {
        let answer = server.typed(&format!("{request}\r\nSET ship ahoy"));
        assert!(!answer.contains("+OK"), "{answer}");
    }
    assert_eq!(server.typed("GET ship"), "$-1\r\n");
}

#[test]
fn connections_are_more_than_the_usual_limit_of_open_files() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--max-connections", "200"];
    let server = Server::start_command(limited("-S -n 64", &command(directory.path(), &flags)));
    let mut streams: Vec<_> = (0..150).map(|_| server.connect()).collect();
    for stream in &mut streams {
        std::io::Write::write_all(stream, b"PING\r\n").unwrap();
        let mut answer = [0; 7];
        std::io::Read::read_exact(stream, &mut answer).unwrap();
    }
    assert!(server.stop().success());

    let (code, said) = refusal(limited("-n 600", &command(directory.path(), &flags)));
    assert!(code == Some(3) && said.contains("--max-connections 200 needs up to 1168 open files"), "{code:?} {said}");
}

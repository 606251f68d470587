//! Programs in C that use the library by its header.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

#[path = "../../../skip.rs"]
mod skip;

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use plimsoll::control::{Client, Limit, LimitsChange, Request};
use tempfile::TempDir;

/// A disk of a thousand operations a second that holds every path.
const PROPERTIES: &str = "disks: [{mountpoint: /, read_iops: 1000, read_bandwidth: 100000000, write_iops: 1000, \
                          write_bandwidth: 100000000}]\n";

/// Everything that the header says about single calls. Each check has a number.
const CONTRACT: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "plimsoll.h"
#define CHECK(condition) if (!(condition)) { printf("line %d: %s\n", __LINE__, #condition); return 1; }
int main(int count, char **arguments) {
    char error[256] = "", few[9] = "";
    CHECK(count == 2);
    CHECK(!plimsoll_open("/no/such/file", "/", error, sizeof error));
    CHECK(strstr(error, "/no/such/file"));
    CHECK(!plimsoll_open("/no/such/file", "/", few, sizeof few));
    CHECK(strlen(few) == sizeof few - 1 && !strncmp(few, error, sizeof few - 1));
    CHECK(!plimsoll_open("/no/such/file", "/", NULL, 0));
    CHECK(!plimsoll_open(arguments[1], "/no/such/directory/file", error, sizeof error));

    plimsoll_gate *gate = plimsoll_open(arguments[1], "/", error, sizeof error);
    CHECK(gate);
    uint32_t query = 77, other = 77;
    CHECK(plimsoll_add_class(gate, "query", 0, &other) == -EINVAL);
    CHECK(plimsoll_add_class(gate, "\xff", 1, &other) == -EINVAL && other == 77);
    CHECK(plimsoll_add_class(gate, "query", 1000, &query) == 0 && query != PLIMSOLL_DEFAULT_CLASS);
    CHECK(plimsoll_add_class(gate, "query", 1000, &other) == -EEXIST);
    CHECK(plimsoll_set_shares(gate, query, 10) == 0);
    CHECK(plimsoll_set_shares(gate, query, 0) == -EINVAL);
    CHECK(plimsoll_set_shares(gate, 9, 10) == -EINVAL);
    CHECK(plimsoll_set_shares(gate, 1 << 20, 10) == -EINVAL);

    plimsoll_permit permit = {{0}};
    plimsoll_leave(&permit, 0);

    uint32_t group = 77, inner = 77, backup = 77;
    CHECK(plimsoll_add_group(gate, query, "background", 50, &group) == -EINVAL && group == 77);
    CHECK(plimsoll_add_group(gate, 1 << 20, "background", 50, &group) == -EINVAL);
    CHECK(plimsoll_add_group(gate, PLIMSOLL_NO_GROUP, "background", 50, &group) == 0);
    CHECK(plimsoll_add_group(gate, group, "inner", 50, &inner) == 0);
    CHECK(plimsoll_add_class_in(gate, query, "backup", 50, &backup) == -EINVAL && backup == 77);
    CHECK(plimsoll_add_class_in(gate, inner, "backup", 50, &backup) == 0);
    CHECK(plimsoll_set_shares(gate, group, 60) == 0);
    CHECK(plimsoll_enter(gate, group, PLIMSOLL_READ, 4096, PLIMSOLL_NO_TIMEOUT, &permit) == -EINVAL);

    /* Each setting comes back as it was set. */
    plimsoll_qos all = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0.99, 11, 12}, none = {0}, now;
    CHECK(plimsoll_get_qos(gate, backup, &now) == 0 && !memcmp(&now, &none, sizeof now));
    CHECK(plimsoll_set_qos(gate, backup, &all) == 0);
    CHECK(plimsoll_get_qos(gate, backup, &now) == 0 && !memcmp(&now, &all, sizeof now));
    CHECK(plimsoll_set_qos(gate, 9, &all) == -EINVAL && plimsoll_set_qos(gate, 1 << 20, &all) == -EINVAL);
    CHECK(plimsoll_get_qos(gate, 9, &now) == -EINVAL && plimsoll_get_qos(gate, 1 << 20, &now) == -EINVAL);
    CHECK(plimsoll_set_qos(gate, group, &all) == -EINVAL);
    plimsoll_qos of_group = {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0, 0};
    CHECK(plimsoll_set_qos(gate, group, &of_group) == 0);
    CHECK(plimsoll_get_qos(gate, group, &now) == 0 && !memcmp(&now, &of_group, sizeof now));
    CHECK(plimsoll_set_qos(gate, group, &none) == 0);
    plimsoll_qos bad = all;
    bad.latency_target_quantile = 99;
    CHECK(plimsoll_set_qos(gate, backup, &bad) == -EINVAL);
    CHECK(plimsoll_get_qos(gate, backup, &now) == 0 && !memcmp(&now, &all, sizeof now));

    /* At one byte a second the second call waits for an hour: by its own limit, by that of its group, or it is refused. */
    plimsoll_qos slow = {0};
    slow.limit_bytes_per_s = 1;
    CHECK(plimsoll_set_qos(gate, backup, &slow) == 0);
    CHECK(plimsoll_enter(gate, backup, PLIMSOLL_READ, 4096, 0, &permit) == 4096);
    plimsoll_leave(&permit, 4096);
    CHECK(plimsoll_enter(gate, backup, PLIMSOLL_READ, 4096, 0, &permit) == -ETIMEDOUT);
    slow.max_delay_ns = 1000000;
    CHECK(plimsoll_set_qos(gate, backup, &slow) == 0);
    CHECK(plimsoll_enter(gate, backup, PLIMSOLL_READ, 4096, 0, &permit) == -EBUSY);
    CHECK(plimsoll_set_qos(gate, backup, &none) == 0);
    CHECK(plimsoll_enter(gate, backup, PLIMSOLL_READ, 4096, PLIMSOLL_NO_TIMEOUT, &permit) == 4096);
    plimsoll_leave(&permit, 4096);
    slow.max_delay_ns = 0;
    CHECK(plimsoll_set_qos(gate, group, &slow) == 0);
    CHECK(plimsoll_enter(gate, backup, PLIMSOLL_READ, 4096, PLIMSOLL_NO_TIMEOUT, &permit) == 4096);
    plimsoll_leave(&permit, 4096);
    CHECK(plimsoll_enter(gate, backup, PLIMSOLL_READ, 4096, 0, &permit) == -ETIMEDOUT);
    CHECK(plimsoll_set_qos(gate, group, &none) == 0);

    memset(&permit, 0xff, sizeof permit);
    CHECK(plimsoll_enter(gate, 9, PLIMSOLL_READ, 4096, PLIMSOLL_NO_TIMEOUT, &permit) == -EINVAL);
    CHECK(plimsoll_enter(gate, query, (enum plimsoll_op)5, 4096, PLIMSOLL_NO_TIMEOUT, &permit) == -EINVAL);
    plimsoll_leave(&permit, 0);
    CHECK(plimsoll_enter(gate, query, PLIMSOLL_READ, 4096, PLIMSOLL_NO_TIMEOUT, &permit) == 4096);
    plimsoll_leave(&permit, 4096);
    plimsoll_leave(&permit, 4096);
    CHECK(plimsoll_enter(gate, PLIMSOLL_DEFAULT_CLASS, PLIMSOLL_FLUSH, 4096, PLIMSOLL_NO_TIMEOUT, &permit) == 0);
    plimsoll_leave(&permit, INT64_MIN);
    int64_t allowed = plimsoll_enter(gate, query, PLIMSOLL_WRITE, (uint64_t)1 << 40, PLIMSOLL_NO_TIMEOUT, &permit);
    /* Whole blocks, for direct I/O. */
    CHECK(allowed > 0 && allowed <= 1 << 30 && allowed % 4096 == 0);
    plimsoll_leave(&permit, allowed);

    /* As long as nobody leaves, the disk is full after some calls. */
    static plimsoll_permit held[10000];
    CHECK(plimsoll_enter(gate, query, PLIMSOLL_READ, 4096, PLIMSOLL_NO_TIMEOUT, &held[0]) == 4096);
    int in_device = 1;
    int64_t ended = 4096;
    for (; in_device < 10000 && ended == 4096; in_device += ended == 4096)
        ended = plimsoll_enter(gate, query, PLIMSOLL_READ, 4096, 0, &held[in_device]);
    CHECK(ended == -ETIMEDOUT);
    for (int n = 0; n < in_device; n++)
        plimsoll_leave(&held[n], 4096);

    char text[1 << 16];
    size_t len = plimsoll_metrics(gate, "test", NULL, 0);
    CHECK(len > 0 && plimsoll_metrics(gate, "test", text, sizeof text) < sizeof text);
    CHECK(strstr(text, "class=\"query\"") && strstr(text, "\"test\""));
    CHECK(plimsoll_metrics(gate, "test", few, sizeof few) > sizeof few && strlen(few) == sizeof few - 1);
    plimsoll_close(gate);
    plimsoll_close(NULL);

    gate = plimsoll_open(NULL, NULL, NULL, 0);
    CHECK(gate);
    CHECK(plimsoll_enter(gate, PLIMSOLL_DEFAULT_CLASS, PLIMSOLL_READ, 1 << 30, 0, &permit) == 1 << 30);
    plimsoll_leave(&permit, 1 << 30);
    plimsoll_close(gate);
    puts("all");
    return 0;
}
"#;

/// Threads of two classes; a thread may leave what another has entered.
const THREADS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include "plimsoll.h"
enum { THREADS = 8, CALLS = 50 };
static plimsoll_gate *gate;
static uint32_t classes[2];
static plimsoll_permit last[THREADS];
static void *run(void *number) {
    long at = (long)number;
    for (int n = 0; n < CALLS; n++) {
        if (n > 0)
            plimsoll_leave(&last[at], 4096);
        if (plimsoll_enter(gate, classes[at % 2], PLIMSOLL_READ, 4096, PLIMSOLL_NO_TIMEOUT, &last[at]) != 4096)
            return "refused";
        plimsoll_leave(&last[at], 4096);
        if (plimsoll_enter(gate, classes[at % 2], PLIMSOLL_WRITE, 4096, PLIMSOLL_NO_TIMEOUT, &last[at]) != 4096)
            return "refused";
    }
    return 0;
}
int main(void) {
    char error[256];
    gate = plimsoll_open(NULL, NULL, error, sizeof error);
    if (!gate || plimsoll_add_class(gate, "a", 1000, &classes[0]) || plimsoll_add_class(gate, "b", 1, &classes[1]))
        return 1;
    pthread_t threads[THREADS];
    for (long n = 0; n < THREADS; n++)
        pthread_create(&threads[n], 0, run, (void *)n);
    for (int n = 0; n < THREADS; n++) {
        void *failed;
        pthread_join(threads[n], &failed);
        if (failed)
            return 2;
        plimsoll_leave(&last[n], 4096);
    }
    static char text[1 << 20];
    plimsoll_metrics(gate, "threads", text, sizeof text);
    fputs(text, stdout);
    plimsoll_close(gate);
    return 0;
}
"#;

/// Sets a limit, serves the socket, and lets others look until the standard input ends. Then prints the limit as it is.
const SERVED: &str = r#"
#include <inttypes.h>
#include <stdio.h>
#include "plimsoll.h"
int main(void) {
    char error[256];
    uint32_t group, backup;
    plimsoll_gate *gate = plimsoll_open(NULL, NULL, error, sizeof error);
    if (!gate || plimsoll_add_group(gate, PLIMSOLL_NO_GROUP, "background", 100, &group) ||
        plimsoll_add_class_in(gate, group, "backup", 100, &backup))
        return 1;
    plimsoll_qos qos = {0};
    qos.limit_write_bytes_per_s = 50000000;
    qos.reservation_iops = 20;
    if (plimsoll_set_qos(gate, backup, &qos))
        return 2;
    if (plimsoll_serve(gate, "served", error, sizeof error)) {
        fputs(error, stderr);
        return 3;
    }
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {}
    if (plimsoll_get_qos(gate, backup, &qos))
        return 4;
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", qos.limit_iops, qos.limit_write_bytes_per_s, qos.reservation_iops);
    plimsoll_close(gate);
    return 0;
}
"#;

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        skip::skip(format_args!("no `{program}`"));
    }
    found
}

/// The directory of the library, which Cargo has built for this test.
fn libraries() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// Compiles a program with all warnings, and returns it.
fn compiled(world: &TempDir, source: &Path) -> PathBuf {
    let program = world.path().join("program");
    let compiled = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"])
        .arg(concat!("-I", env!("CARGO_MANIFEST_DIR"), "/include"))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(libraries())
        .args(["-lplimsoll_c", "-lpthread"])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

fn run(world: &TempDir, source: &str, arguments: &[&Path]) -> Option<String> {
    if !has("cc") {
        return None;
    }
    let path = world.path().join("program.c");
    std::fs::write(&path, source).unwrap();
    let ended = started(world, compiled(world, &path).as_ref(), arguments);
    let out = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success(), "{}: {out}{}", ended.status, String::from_utf8_lossy(&ended.stderr));
    Some(out)
}

fn command(world: &TempDir, program: &OsStr, arguments: &[&Path]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env("LD_LIBRARY_PATH", libraries()).env("XDG_RUNTIME_DIR", world.path());
    command
}

fn started(world: &TempDir, program: &OsStr, arguments: &[&Path]) -> Output {
    command(world, program, arguments).output().unwrap()
}

fn properties(world: &TempDir) -> PathBuf {
    let path = world.path().join("io-properties.yaml");
    std::fs::write(&path, PROPERTIES).unwrap();
    path
}

/// Returns the value of a sample whose line begins with `name` and has all of `labels`.
fn sample(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(name) && labels.iter().all(|label| line.contains(label)))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn each_call_does_what_the_header_says() {
    let world = tempfile::tempdir().unwrap();
    let Some(out) = run(&world, CONTRACT, &[&properties(&world)]) else { return };
    assert_eq!(out, "all\n");
}

/// Those who embed the library look for their own mistakes with it.
#[test]
fn valgrind_finds_nothing() {
    if !has("cc") || !has("valgrind") {
        return;
    }
    let world = tempfile::tempdir().unwrap();
    let source = world.path().join("program.c");
    std::fs::write(&source, CONTRACT).unwrap();
    let program = compiled(&world, &source);
    let properties = properties(&world);
    let arguments: [&Path; 5] =
        ["-q".as_ref(), "--error-exitcode=9".as_ref(), "--leak-check=full".as_ref(), &program, &properties];
    let ended = started(&world, "valgrind".as_ref(), &arguments);
    let (out, err) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
    assert_eq!((ended.status.code(), out.as_ref(), err.as_ref()), (Some(0), "all\n", ""));
}

#[test]
fn threads_of_two_classes_all_pass() {
    let world = tempfile::tempdir().unwrap();
    let Some(text) = run(&world, THREADS, &[]) else { return };
    for class in ["a", "b"] {
        let label = format!("class=\"{class}\"");
        for name in ["plimsoll_io_queue_total_read_ops", "plimsoll_io_queue_total_write_ops"] {
            assert_eq!(sample(&text, name, &[&label]), Some(200.0), "{name} of {class} in {text}");
        }
    }
}

#[test]
fn limits_are_those_of_the_control_socket() {
    let world = tempfile::tempdir().unwrap();
    if !has("cc") {
        return;
    }
    let source = world.path().join("program.c");
    std::fs::write(&source, SERVED).unwrap();
    let mut program = command(&world, compiled(&world, &source).as_ref(), &[]);
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(out.next().unwrap().unwrap(), "ready");

    let socket = world.path().join("plimsoll").join(format!("{}.sock", child.id()));
    let mut client = Client::connect(&socket).unwrap();
    let backup = client.hello().classes.iter().find(|class| class.class == "backup").unwrap();
    assert_eq!(backup.group.as_deref(), Some("background"));
    let limits = backup.limits;
    assert_eq!((limits.write_bytes_per_s, limits.iops), (Some(Limit::PerSecond(50_000_000)), Some(Limit::Unlimited)));

    let limits = LimitsChange { iops: Some(Limit::PerSecond(7)), ..LimitsChange::default() };
    client.change(&Request::SetLimits { class: "backup".into(), limits }).unwrap();
    drop(child.stdin.take());
    assert_eq!(out.next().unwrap().unwrap(), "7 50000000 20");
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_example_copies_a_file() {
    let world = tempfile::tempdir().unwrap();
    if !has("cc") {
        return;
    }
    let program = compiled(&world, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/gate.c")));
    let program = program.as_ref();
    let (from, to) = (world.path().join("from"), world.path().join("to"));
    let data: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    std::fs::write(&from, &data).unwrap();

    let fast = world.path().join("fast.yaml");
    std::fs::write(&fast, PROPERTIES.replace("000", "000000")).unwrap();
    let ended = started(&world, program, &[&fast, &from, &to]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert!(std::fs::read(&to).unwrap() == data);
    let text = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(sample(&text, "plimsoll_io_queue_total_read_ops", &["class=\"query\""]), Some(1000.0), "{text}");
    assert_eq!(sample(&text, "plimsoll_io_queue_total_write_bytes", &["class=\"copy\""]), Some(3e6), "{text}");

    let refused = started(&world, program, &[&world.path().join("none.yaml"), &from, &world.path().join("third")]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("none.yaml"));
}

#[test]
fn the_header_is_cpp_too() {
    if !has("c++") {
        return;
    }
    let checked = Command::new("c++")
        .args(["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/include/plimsoll.h"))
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

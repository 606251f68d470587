//! Calls that go to the disk in pieces have the effect of one call.

use super::in_c::check_as_natively;
use super::{DISK, World, compiled, ended};

/// Threads that append records with `pwrite`, to a file that another process has set to append.
const APPENDS: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
enum { LEN = 256 * 1024, RECORDS = 32 };
static int file;
static void *write_some(void *record) {
    for (int n = 0; n < RECORDS / 4; n++)
        if (pwrite(file, record, LEN, 0) != LEN) puts("short");
    return 0;
}
int main(void) {
    file = open("a", O_CREAT | O_RDWR | O_DSYNC, 0600);
    if (fork() == 0) _exit(fcntl(file, F_SETFL, O_APPEND));
    wait(0);
    pthread_t threads[4];
    for (int n = 0; n < 4; n++) pthread_create(&threads[n], 0, write_some, memset(malloc(LEN), 'a' + n, LEN));
    for (int n = 0; n < 4; n++) pthread_join(threads[n], 0);
    char *record = malloc(LEN);
    int records = 0, torn = 0;
    for (; pread(file, record, LEN, (off_t)records * LEN) == LEN; records++) torn += memcmp(record, record + 1, LEN - 1) != 0;
    printf("%d records, torn: %d\n", records, torn);
    unlink("a");
    return 0;
}
"#;

#[test]
fn records_are_appended_whole_to_a_file_that_another_process_has_set_to_append() {
    let world = World::new();
    let Some(program) = compiled(&world, APPENDS) else { return };
    let disk = world.file("disk.yaml", DISK);
    let [without, with] = [ended(world.command(&program, &[])), world.run(&["--disk", &disk], &[&program])];
    for output in [without, with] {
        assert_eq!(output.out, "32 records, torn: 0\n", "{}", output.err);
    }
}

/// Writes up to the longest file that the process may have. One that begins there gets a signal.
const UP_TO_THE_LIMIT: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>
enum { LEN = 512 << 10 };
static char buffer[LEN];
static volatile int signals;
static void count(int signal) { signals++; }
int main(void) {
    int from = open("from", O_CREAT | O_RDWR, 0600), to = open("to", O_CREAT | O_RDWR, 0600);
    int file = open("a", O_CREAT | O_RDWR | O_DSYNC, 0600);
    write(from, buffer, LEN);
    pwrite(from, buffer, 1, 3 << 20);
    signal(SIGXFSZ, count);
    // Some of them are where a piece ends.
    for (struct rlimit most = {4096, RLIM_INFINITY}; most.rlim_cur < LEN; most.rlim_cur += 4096) {
        setrlimit(RLIMIT_FSIZE, &most);
        printf("%zd, ", pwrite(file, buffer, LEN, 0));
    }
    struct rlimit most = {2 << 20, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &most);
    off_t in = 0, out = 0;
    printf("%zd, signals: %d\n", copy_file_range(from, &in, to, &out, 3 << 20, 0), signals);
    return 0;
}
"#;

#[test]
fn a_write_that_ends_at_the_longest_file_that_may_be_gets_no_signal() {
    check_as_natively(UP_TO_THE_LIMIT);
}

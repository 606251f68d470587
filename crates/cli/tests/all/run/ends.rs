//! Threads that end while their calls wait, by `pthread_exit` in a signal handler.

use super::{DISK, World, compiled};

/// Threads end in a signal handler while they wait, here or in a child without the gate. Others go on.
const EXITS: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
enum { LEN = 1 << 20 };
static char buffer[LEN];
static int file;
static void end(int signal) { pthread_exit(0); }
static void *write_all(void *none) {
    for (;;) pwrite(file, buffer, LEN, 0);
}
static int threads(void) {
    for (int n = 0; n < 12; n++) {
        pthread_t thread;
        pthread_create(&thread, 0, write_all, 0);
        usleep(20000);
        pthread_kill(thread, SIGUSR1);
        pthread_join(thread, 0);
    }
    for (int n = 0; n < 3; n++)
        if (pwrite(file, buffer, LEN, 0) != LEN) return 1;
    return 0;
}
int main(void) {
    int status;
    signal(SIGUSR1, end);
    file = open("a", O_RDWR | O_CREAT | O_DSYNC, 0600);
    pwrite(file, buffer, LEN, 0);
    printf("here: %d\n", threads());
    fflush(stdout);
    if (fork() == 0) _exit(threads());
    wait(&status);
    printf("in a child: %d\n", status);
    return 0;
}
"#;

#[test]
fn threads_that_end_in_a_signal_handler_while_they_wait_hold_no_other() {
    let world = World::new();
    let Some(program) = compiled(&world, EXITS) else { return };
    let disk = world.file("disk.yaml", DISK);
    let limit = "classes: [{name: slow, shares: 9, limit_bandwidth: 20M}]\nrules: [{class: slow}]\n";
    let rules = world.file("rules.yaml", limit);
    let output = world.run(&["--disk", &disk, "--rules", &rules], &[&program]);
    assert_eq!(output.out, "here: 0\nin a child: 0\n", "exit code {:?}: {}", output.code, output.err);
}

//! Calls that go to the disk in pieces have the effect of one call.

use super::{DISK, World, compiled, ended, err};

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
        assert_eq!(String::from_utf8_lossy(&output.stdout), "32 records, torn: 0\n", "{}", err(&output));
    }
}

//! Programs in C that do what the system allows and few do: threads that share a position.

use super::{DISK, World, compiled, ended, err};

/// Threads that read, and others that write, records at a position that they share.
const SHARED_POSITION: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
enum { LEN = 256 * 1024, RECORDS = 64 };
static int file;
static long torn;
static int is_whole(const char *record) { return memcmp(record, record + 1, LEN - 1) == 0; }
static void *read_all(void *record) {
    ssize_t len;
    while ((len = read(file, record, LEN)) > 0)
        if (len < LEN || !is_whole(record)) __sync_fetch_and_add(&torn, 1);
    return 0;
}
static void *write_some(void *record) {
    for (int n = 0; n < RECORDS / 4; n++)
        if (write(file, record, LEN) != LEN) __sync_fetch_and_add(&torn, 1);
    return 0;
}
static void with_threads(void *(*work)(void *)) {
    pthread_t threads[4];
    for (int n = 0; n < 4; n++) {
        char *record = malloc(LEN);
        memset(record, 'a' + n, LEN);
        pthread_create(&threads[n], 0, work, record);
    }
    for (int n = 0; n < 4; n++) pthread_join(threads[n], 0);
}
int main(void) {
    file = open("a", O_CREAT | O_RDWR | O_DSYNC, 0600);
    with_threads(write_some);
    char *record = malloc(LEN);
    int records = 0;
    for (; pread(file, record, LEN, (off_t)records * LEN) == LEN; records++) torn += !is_whole(record);
    printf("written: %d records, torn: %ld\n", records, torn);
    torn = 0;
    // Parts of the records are in the page cache.
    posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    for (int n = 0; n < RECORDS; n++) pread(file, record, 4096, (off_t)n * LEN);
    lseek(file, 0, SEEK_SET);
    with_threads(read_all);
    printf("read: torn: %ld\n", torn);
    return 0;
}
"#;

#[test]
fn records_at_a_position_that_threads_share_stay_whole() {
    let world = World::new();
    let Some(program) = compiled(&world, SHARED_POSITION) else { return };
    let disk = world.file("disk.yaml", DISK);
    let expected = "written: 64 records, torn: 0\nread: torn: 0\n";
    let without = ended(world.command(&program, &[]));
    assert_eq!(String::from_utf8_lossy(&without.stdout), expected, "without the library");
    let output = world.run(&["--disk", &disk], &[&program]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{}", err(&output));
}

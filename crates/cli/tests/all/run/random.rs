//! Random calls, right ones and wrong ones, have the results that they have without the library, and leave the same
//! files.

use super::programs::contents;
use super::{DISK, World, compiled, ended};

/// Makes calls that a seed chooses, and prints the result of each, its `errno`, and a sum of what it read.
const CALLS: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
enum { LEN = 1 << 20, FILES = 24 };
static unsigned long long state;
static char *buffer;
static unsigned any(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}
static int any_file(void) { return 3 + any(FILES - 3); }
static size_t any_len(void) {
    size_t few[] = {0, 1, 4096, 512 * (1 + any(64)), -1, LEN, 300000 + any(100000), 65536};
    return any(2) ? 1 + any(20000) : few[any(8)];
}
static off_t any_offset(void) {
    off_t few[] = {-1, 0, 4096 * any(300), -5};
    return any(2) ? any(1500000) : few[any(4)];
}
static int any_list(struct iovec *parts) {
    for (int n = 0; n < 4; n++) {
        parts[n].iov_base = any(40) ? buffer + any(1000) : (void *)16;
        parts[n].iov_len = any(20) ? 1 + any(60000) : (size_t)-1;
    }
    return any(30) ? any(5) : any(2) ? -1 : 2000;
}
/* Keeps the numbers below FILES. */
static int opened(int file) {
    if (file < FILES) return file;
    close(file);
    return FILES;
}
/* Others have no position, on which a call may wait for ever. */
static int is_regular(int file) {
    struct stat stat;
    return fstat(file, &stat) != 0 || S_ISREG(stat.st_mode);
}
static long stream(int file) {
    int twin = dup(file), mode = fcntl(twin, F_GETFL) & O_ACCMODE;
    FILE *stream = fdopen(twin, mode == O_RDONLY ? "r" : mode == O_WRONLY ? "w" : "r+");
    if (!stream) return close(twin);
    setvbuf(stream, 0, _IONBF, 0);
    long done = mode == O_RDONLY ? fread(buffer, 1, 100, stream) : fwrite("hello", 1, 5, stream);
    fclose(stream);
    return done;
}
static long through_a_pipe(int from, off_t *at, int to, size_t len) {
    int ends[2];
    pipe2(ends, O_NONBLOCK);
    long len_in = splice(from, at, ends[1], 0, len < 60000 ? len : 60000, SPLICE_F_NONBLOCK);
    long len_out = len_in > 0 ? splice(ends[0], 0, to, 0, len_in, SPLICE_F_NONBLOCK) : len_in;
    close(ends[0]);
    close(ends[1]);
    return len_out;
}
static long call(int which, int file, int other, size_t len, off_t at, off_t to) {
    static const char *names[] = {"a", "b", "c", "d"};
    static const int modes[] = {O_RDWR, O_RDWR | O_DSYNC, O_RDWR | O_SYNC, O_RDWR | O_TRUNC, O_RDWR | O_NONBLOCK, O_RDWR | O_DIRECT,
                                O_WRONLY | O_APPEND, O_RDWR | O_APPEND | O_DSYNC, O_RDONLY, O_PATH};
    static const int flags[] = {0, 0, RWF_DSYNC, RWF_SYNC, RWF_HIPRI, RWF_APPEND, 0x4000};
    struct iovec parts[4];
    int count = any_list(parts), flag = flags[any(7)], ends[2];
    off_t *at_or_none = any(2) ? &at : 0, *to_or_none = any(2) ? &to : 0;
    switch (which) {
    case 0: return close(file);
    case 1: return pread(file, buffer, len, at);
    case 2: case 3: return pwrite(file, buffer, len, at);
    case 4: return is_regular(file) ? read(file, buffer, len) : 0;
    case 5: return is_regular(file) ? write(file, buffer, len) : 0;
    case 6: return preadv(file, parts, count, at);
    case 7: return pwritev(file, parts, count, at);
    case 8: return is_regular(file) ? preadv2(file, parts, count, at, flag) : 0;
    case 9: return is_regular(file) ? pwritev2(file, parts, count, at, flag) : 0;
    case 10: return is_regular(file) ? readv(file, parts, count) : 0;
    case 11: return is_regular(file) ? writev(file, parts, count) : 0;
    case 12: return lseek(file, any(1000000), any(3));
    case 13: return opened(dup(file));
    case 14: case 15: return dup2(file, other);
    case 16: return dup3(file, other, any(2) ? O_CLOEXEC : 0);
    case 17: return opened(fcntl(file, F_DUPFD, 3 + any(10)));
    case 18: return fcntl(file, F_SETFL, (any(2) ? O_DIRECT : 0) | (any(2) ? O_APPEND : 0));
    case 19: return ftruncate(file, any(1500000));
    case 20: return any(2) ? fsync(file) : fdatasync(file);
    case 21: return fallocate(file, any(3) ? 0 : FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 1 + any(100000));
    case 22: return posix_fallocate(file, at, 1 + any(100000));
    case 23: return copy_file_range(file, at_or_none, other, to_or_none, len, any(20) ? 0 : 5);
    case 24: return is_regular(file) && is_regular(other) ? sendfile(other, file, at_or_none, len) : 0;
    case 25: return through_a_pipe(file, at_or_none, other, len);
    case 26: return close_range(file, file + any(3), any(8) ? 0 : CLOSE_RANGE_CLOEXEC);
    case 27: return is_regular(file) ? stream(file) : 0;
    case 28: return opened(any(2) ? memfd_create("m", 0) : eventfd(3, EFD_NONBLOCK));
    case 29: return pipe2(ends, O_NONBLOCK) == 0 ? opened(ends[0]) + opened(ends[1]) : -1;
    case 30: if (!any(4)) closefrom(file); return 0;
    case 31: return unlink(names[any(4)]);
    case 32: return sync_file_range(file, at, 4096, SYNC_FILE_RANGE_WRITE);
    default: return opened(open(names[any(4)], modes[any(10)] | O_CREAT, 0600));
    }
}
int main(int count, char **seed) {
    state = atoi(seed[1]);
    buffer = mmap(0, LEN + 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    signal(SIGPIPE, SIG_IGN);
    close_range(3, ~0u, 0);
    int is_child = 0;
    for (int n = 0; n < 400; n++) {
        int which = any(44), file = any_file(), other = any_file();
        if (which == 33 && !is_child && !any(3)) {
            fflush(stdout);
            pid_t child = fork();
            is_child = child == 0;
            if (child > 0) waitpid(child, 0, 0);
        }
        size_t len = any_len();
        off_t at = any_offset(), to = any_offset();
        memset(buffer, n, LEN);
        errno = 0;
        long result = call(which, file, other, len, at, to);
        int error = errno;
        unsigned sum = 0;
        for (int at = 0; at < LEN; at += 7) sum = sum * 31 + buffer[at];
        printf("%d: call %d of %d, %d, %zu at %ld: %ld, errno %d, sum %u\n", n, which, file, other, len, (long)at, result, error, sum);
    }
    return 0;
}
"#;

#[test]
fn random_calls_have_the_results_that_they_have_natively() {
    let world = World::new();
    let Some(program) = compiled(&world, CALLS) else { return };
    for seed in (0..8).map(|seed: u32| seed.to_string()) {
        let (plain, managed) = (World::new(), World::new());
        let disk = managed.file("disk.yaml", DISK);
        let without = ended(plain.command(&program, &[&seed])).done();
        let with = managed.run(&["--disk", &disk], &[&program, &seed]);
        let (without, printed) = (&without.out, &with.out);
        let first = without.lines().zip(printed.lines()).find(|(natively, here)| natively != here);
        assert_eq!((with.code, first), (Some(0), None), "seed {seed}: {}", with.err);
        assert_eq!(printed.len(), without.len(), "seed {seed}: {}", with.err);
        assert!(contents(&managed.data()) == contents(&plain.data()), "files differ: seed {seed}");
    }
}

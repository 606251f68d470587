//! Programs in C that do what the system allows and few do: threads that share a position, signal handlers that jump
//! or open files, descriptors that are closed during a call, bad pointers.

use super::{DISK, World, compiled, ended};
use crate::skip::skip;

/// Whether a thread sleeps. Stands before a program that asks.
const SLEEPS: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int sleeps(int thread) {
    char path[64], line[256] = {0};
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    int stat = open(path, O_RDONLY);
    read(stat, line, sizeof line - 1);
    close(stat);
    char *end = strrchr(line, ')');
    return end && end[2] == 'S';
}
"#;

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
    assert_eq!(without.out, expected, "without the library");
    let output = world.run(&["--disk", &disk], &[&program]);
    assert_eq!(output.out, expected, "{}", output.err);
}

/// A thread that leaves its calls by `siglongjmp`: first during the system call, then while it waits at the gate.
const JUMPS: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
enum { LEN = 1 << 20 };
static sigjmp_buf before;
static int file;
static volatile int waits;
static char buffer[LEN];
static void jump(int signal) { siglongjmp(before, 1); }
static void *signal_it(void *first) {
    for (int n = 0; n < 8; n++) {
        while (!waits || !sleeps(getpid())) usleep(1000);
        waits = 0;
        pthread_kill(*(pthread_t *)first, SIGUSR1);
    }
    return 0;
}
static void *write_some(void *none) {
    for (int n = 0; n < 3; n++)
        if (pwrite(file, buffer, LEN, 0) != LEN) puts("write");
    return none;
}
int main(void) {
    file = open("a", O_RDWR | O_CREAT | O_DSYNC, 0600);
    struct rlimit most = {LEN, LEN};
    setrlimit(RLIMIT_FSIZE, &most);
    signal(SIGXFSZ, jump);
    signal(SIGUSR1, jump);
    volatile int jumps = 0;
    for (volatile int n = 0; n < 40; n++)
        if (sigsetjmp(before, 1) == 0) pwrite(file, buffer, LEN, LEN);
        else jumps++;
    printf("in the call: %d\n", jumps);
    pthread_t first = pthread_self(), other;
    pthread_create(&other, 0, signal_it, &first);
    for (volatile int n = 0; n < 8; n++)
        if (sigsetjmp(before, 1) == 0)
            for (;;) {
                waits = 1;
                pwrite(file, buffer, LEN, 0);
                waits = 0;
            }
    pthread_join(other, 0);
    pthread_create(&other, 0, write_some, 0);
    write_some(0);
    pthread_join(other, 0);
    puts("done");
    return 0;
}
"#;

#[test]
fn a_call_that_is_left_by_a_jump_holds_no_other() {
    let world = World::new();
    let Some(program) = compiled(&world, &format!("{SLEEPS}{JUMPS}")) else { return };
    let disk = world.file("disk.yaml", DISK);
    let limit = "classes: [{name: slow, shares: 9, limit_bandwidth: 20M}]\nrules: [{class: slow}]\n";
    let rules = world.file("rules.yaml", limit);
    let output = world.run(&["--disk", &disk, "--rules", &rules], &[&program]);
    let told = &output.err;
    assert_eq!(output.out, "in the call: 40\ndone\n", "{told}");
    assert!(!told.contains("of signal handlers"), "the thread goes past the gate: {told}");
}

/// A signal handler that opens, reads and writes while its thread is in `malloc`.
const IN_MALLOC: &str = r#"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>
static volatile int signals, wrong;
static void use_a_file(int signal) {
    char buffer[512];
    int file = open("a", O_RDWR | O_DSYNC);
    if (pread(file, buffer, sizeof buffer, 0) != sizeof buffer) wrong++;
    if (signals % 64 == 0 && pwrite(file, buffer, sizeof buffer, 0) != sizeof buffer) wrong++;
    close(file);
    signals++;
}
int main(void) {
    static char first[512];
    if (pwrite(open("a", O_RDWR | O_CREAT | O_DSYNC, 0600), first, sizeof first, 0) != sizeof first) puts("write");
    signal(SIGALRM, use_a_file);
    struct itimerval often = {{0, 200}, {0, 200}}, never = {0};
    setitimer(ITIMER_REAL, &often, 0);
    void *blocks[64] = {0};
    for (unsigned long n = 0; signals < 3000; n++) {
        int at = (n * 2654435761u >> 8) % 64;
        free(blocks[at]);
        blocks[at] = malloc(n * 7919 % 200000);
    }
    setitimer(ITIMER_REAL, &never, 0);
    printf("wrong: %d\n", wrong);
    return 0;
}
"#;

#[test]
fn a_signal_handler_may_use_files_while_its_thread_is_in_malloc() {
    let world = World::new();
    let Some(program) = compiled(&world, IN_MALLOC) else { return };
    let disk = world
        .file("disk.yaml", "disk: {read_iops: 100M, read_bandwidth: 100G, write_iops: 100M, write_bandwidth: 100G}\n");
    let output = world.run(&["--disk", &disk], &[&program]);
    assert_eq!(output.out, "wrong: 0\n", "{output:#?}");
}

/// A thread closes a descriptor on which another one waits for its turn, and opens another file, which gets the number.
const CLOSED: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
enum { LEN = 1 << 20 };
static int file;
static char buffer[LEN];
static volatile int thread;
static void *write_one(void *is_well) {
    thread = gettid();
    ssize_t written = pwrite(file, buffer, LEN, 0);
    *(int *)is_well = written == LEN || (written == -1 && errno == EBADF);
    return 0;
}
static void *sync_it(void *is_well) {
    thread = gettid();
    *(int *)is_well = fsync(file) == -1 && errno == EBADF;
    return 0;
}
int main(int count, char **modes) {
    int flags = count > 1 ? 0 : O_DSYNC, is_well = 0, syncs = count > 1 && strcmp(modes[1], "sync") == 0;
    file = open("a", O_RDWR | O_CREAT | flags, 0600);
    // The disk owes a second and more afterwards.
    for (int n = 0; n < 4; n++) pwrite(file, buffer, LEN, LEN);
    pthread_t other;
    pthread_create(&other, 0, syncs ? sync_it : write_one, &is_well);
    while (!thread || !sleeps(thread)) usleep(1000);
    close(file);
    int next = open("b", O_RDWR | O_CREAT | flags, 0600);
    if (next != file) puts("another number");
    pthread_join(other, 0);
    printf("well: %d, in the other file: %ld\n", is_well, (long)lseek(next, 0, SEEK_END));
    return 0;
}
"#;

#[test]
fn a_call_on_a_descriptor_that_is_closed_meanwhile_does_not_reach_another_file() {
    let world = World::new();
    let Some(program) = compiled(&world, &format!("{SLEEPS}{CLOSED}")) else { return };
    // An fsync that made nothing durable said that it had.
    prints_at_a_limit(&program, &[&[], &["buffered"], &["sync"]], "well: 1, in the other file: 0\n");
}

/// Checks what the program prints at a limit of 1 MB a second, in each mode. They wait for the limit, all at once.
fn prints_at_a_limit(program: &str, modes: &[&[&str]], expected: &str) {
    let check = &|mode: &[&str]| {
        let world = World::new();
        let limit = "classes: [{name: slow, shares: 9, limit_bandwidth: 1M}]\nrules: [{class: slow}]\n";
        let rules = world.file("rules.yaml", limit);
        let output = world.run(&["--rules", &rules], &[&[program], mode].concat());
        assert_eq!(output.out, expected, "{mode:?}: {}", output.err);
    };
    std::thread::scope(|scope| {
        for mode in modes {
            scope.spawn(move || check(mode));
        }
    });
}

/// A thread puts another file in the place of one on which a call waits, as a daemon does that begins a new log.
const REPLACED: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
enum { LEN = 1 << 20 };
static int file;
static char buffer[LEN];
static volatile int thread;
static void *write_one(void *written) {
    thread = gettid();
    *(ssize_t *)written = pwrite(file, buffer, LEN, 0);
    return 0;
}
int main(int count, char **modes) {
    int flags = count > 1 ? 0 : O_DSYNC;
    file = open("a", O_RDWR | O_CREAT | flags, 0600);
    int next = open("b", O_RDWR | O_CREAT | flags, 0600);
    // The disk owes a second and more afterwards.
    for (int n = 0; n < 4; n++) pwrite(file, buffer, LEN, LEN);
    pthread_t other;
    ssize_t written = 0;
    pthread_create(&other, 0, write_one, &written);
    while (!thread || !sleeps(thread)) usleep(1000);
    dup2(next, file);
    pthread_join(other, 0);
    printf("written: %zd, in the new file: %ld\n", written, (long)lseek(next, 0, SEEK_END));
    return 0;
}
"#;

#[test]
fn a_call_that_waits_while_another_file_takes_the_place_of_its_own_is_for_that_one() {
    let world = World::new();
    let Some(program) = compiled(&world, &format!("{SLEEPS}{REPLACED}")) else { return };
    prints_at_a_limit(&program, &[&[], &["buffered"]], "written: 1048576, in the new file: 1048576\n");
}

/// Lists of buffers and offsets that are not there, or of which a part is not.
const BAD_POINTERS: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>
#define TRY(call) do { errno = 0; long result = (call); printf("%ld, errno %d: %s\n", result, errno, #call); } while (0)
int main(void) {
    int file = open("a", O_RDWR | O_CREAT | O_DSYNC, 0600), other = open("b", O_RDWR | O_CREAT, 0600);
    static char buffer[4096];
    write(file, buffer, sizeof buffer);
    char *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(pages + 4096, 4096);
    struct iovec *last = (struct iovec *)(pages + 4096) - 1, *bad = (void *)16;
    last->iov_base = buffer;
    last->iov_len = 100;
    TRY(preadv(file, last, 1, 0));
    TRY(preadv(file, last, 2, 0));
    TRY(preadv(file, bad, 1, 0));
    TRY(readv(file, bad, 1));
    TRY(writev(file, last, 2));
    TRY(writev(other, bad, 1));
    TRY(pwritev(other, bad, 1, 0));
    TRY(pwritev2(file, bad, 1, 0, 0));
    TRY(sendfile(other, file, (void *)16, 100));
    TRY(copy_file_range(file, (void *)16, other, 0, 100, 0));
    TRY(copy_file_range(file, 0, other, (void *)16, 100, 0));
    // They overlap, but their first pieces do not.
    off_t from = 0, to = 2 << 20;
    ftruncate(other, 4 << 20);
    TRY(copy_file_range(other, &from, other, &to, 3 << 20, 0));
    TRY(lseek(other, 0, SEEK_END));
    // The kernel takes them at any address.
    off_t at = 0;
    struct iovec part = {buffer, 100};
    memcpy(pages + 1, &at, sizeof at);
    TRY(sendfile(other, file, (void *)(pages + 1), 100));
    memcpy(pages + 1, &part, sizeof part);
    TRY(writev(file, (void *)(pages + 1), 1));
    return 0;
}
"#;

/// Lengths that are -1 in the program: `pwrite(file, buffer, read(...), 0)`.
const BAD_LENGTHS: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>
#include <unistd.h>
#define TRY(call) do { errno = 0; long result = (call); printf("%ld, errno %d: %s\n", result, errno, #call); } while (0)
int main(void) {
    static char buffer[4096];
    char *volatile place = buffer;
    volatile size_t none = -1;
    struct iovec parts[2] = {{buffer, 100}, {buffer, none}};
    for (int n = 0; n < 2; n++) {
        int file = open(n ? "a" : "b", O_RDWR | O_CREAT | (n ? O_DSYNC : 0), 0600);
        write(file, buffer, sizeof buffer);
        TRY(pwrite(file, place, none, 0));
        TRY(pread(file, place, none, 0));
        TRY(write(file, place, none));
        TRY(read(file, place, none));
        TRY(pwritev(file, parts, 2, 0));
        TRY(preadv(file, parts, 2, 0));
        TRY(writev(file, parts, 2));
        TRY(readv(file, parts, 2));
        TRY(lseek(file, 0, SEEK_CUR));
        TRY(lseek(file, 0, SEEK_END));
    }
    return 0;
}
"#;

/// Direct I/O that is no multiple of a block, on a disk that gets it in pieces.
const UNALIGNED: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#define TRY(call) do { errno = 0; long result = (call); printf("%ld, errno %d: %s\n", result, errno, #call); } while (0)
int main(void) {
    enum { LEN = 4 << 20 };
    char *buffer;
    posix_memalign((void **)&buffer, 4096, LEN + 4096);
    int plain = open("a", O_RDWR | O_CREAT, 0600), file = open("a", O_RDWR | O_DIRECT);
    ftruncate(plain, LEN);
    TRY(pwrite(file, buffer, LEN + 100, 0));
    TRY(pwrite(file, buffer, LEN, 0));
    TRY(pread(file, buffer, LEN - 100, 0));
    TRY(pread(file, buffer, LEN / 2, 100));
    // Duplicates have their flags in common.
    int twin = dup(plain);
    fcntl(twin, F_SETFL, O_DIRECT);
    TRY(pread(plain, buffer, LEN - 100, 0));
    TRY(pread(file, buffer, LEN, 0));
    TRY(lseek(file, 0, SEEK_END));
    return 0;
}
"#;

/// Checks that a program prints what it prints without the library.
pub(super) fn check_as_natively(source: &str) {
    let world = World::new();
    let Some(program) = compiled(&world, source) else { return };
    let without = ended(world.command(&program, &[]));
    let disk = world.file("disk.yaml", DISK);
    let with = world.run(&["--disk", &disk], &[&program]);
    assert_eq!(with.out, without.out, "{}", with.err);
    assert_eq!(with.code, Some(0));
}

#[test]
fn bad_pointers_are_errors_as_natively() {
    check_as_natively(BAD_POINTERS);
}

/// Pieces of them were written from memory behind the buffer, and read there.
#[test]
fn bad_lengths_are_errors_as_natively() {
    check_as_natively(BAD_LENGTHS);
}

/// The pieces before the last were moved: a short read, which a program takes for the end.
#[test]
fn direct_calls_of_wrong_lengths_are_errors_as_natively() {
    check_as_natively(UNALIGNED);
}

/// Streams that have no descriptor, which was an error of `fclose`.
const IN_MEMORY: &str = r#"
#include <errno.h>
#include <stdio.h>
int main(void) {
    char buffer[100];
    FILE *stream = fmemopen(buffer, sizeof buffer, "w");
    fputs("ahoy", stream);
    errno = 77;
    int result = fclose(stream);
    printf("%d, errno %d: %s\n", result, errno, buffer);
    return 0;
}
"#;

#[test]
fn a_stream_in_memory_is_closed_without_an_error() {
    check_as_natively(IN_MEMORY);
}

/// A kernel that returns 0 bytes for what is not in the page cache: a filter answers so to `preadv2`.
const NOTHING_CACHED: &str = r#"
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
int main(void) {
    static char buffer[4096];
    struct iovec part = {buffer, sizeof buffer};
    int file = open("a", O_RDWR | O_CREAT, 0600);
    for (int n = 0; n < 4; n++) write(file, buffer, sizeof buffer);
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_preadv2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {4, steps};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
        puts("no filter");
        return 0;
    }
    lseek(file, 4096, SEEK_SET);
    printf("%zd %zd", pread(file, buffer, sizeof buffer, 0), read(file, buffer, sizeof buffer));
    printf(" %zd %zd", preadv(file, &part, 1, 8192), pread(file, buffer, sizeof buffer, 12288 + 4000));
    printf(" %zd %zd\n", pread(file, buffer, sizeof buffer, 16384), preadv(file, &part, 1, 16384));
    return 0;
}
"#;

#[test]
fn a_kernel_that_finds_nothing_in_the_page_cache_does_not_end_the_file() {
    let world = World::new();
    let Some(program) = compiled(&world, NOTHING_CACHED) else { return };
    let output = world.run(&[], &[&program]);
    match output.out.as_str() {
        "no filter\n" => skip("this kernel takes no seccomp filter"),
        found => assert_eq!(found, "4096 4096 4096 96 0 0\n", "{}", output.err),
    }
}

/// A library whose constructor waits for a thread that uses a file.
const CONSTRUCTOR: &str = r#"
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>
static void *work(void *unused) {
    char bytes[4];
    int file = open("b", O_CREAT | O_RDWR | O_DSYNC, 0600);
    for (int n = 0; n < 5; n++) pwrite(file, "ahoy", 4, 0);
    fsync(file);
    pread(file, bytes, 4, 0);
    close(dup(file));
    close(file);
    return 0;
}
__attribute__((constructor)) static void begin(void) {
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    pthread_join(thread, 0);
}
"#;

/// A program that loads it: once there is a gate, here or in the shell, or before.
const LOADS: &str = r#"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **arguments) {
    if (count > 2) write(open(arguments[2], O_CREAT | O_WRONLY | O_DSYNC, 0600), "ahoy", 4);
    puts(dlopen(arguments[1], RTLD_NOW) ? "done" : dlerror());
    return 0;
}
"#;

/// The thread waited for the lock of `dlopen`: it asked the dynamic linker for a function at its first call, or
/// registered the destructor of a thread-local variable when it first waited; so did the thread that makes the gate.
#[test]
fn a_constructor_may_wait_for_a_thread_that_uses_files() {
    let world = World::new();
    let Some(program) = compiled(&world, LOADS) else { return };
    let source = world.file("constructor.c", CONSTRUCTOR);
    let library = world.path().join("constructor.so").to_str().unwrap().to_owned();
    let flags = ["-shared", "-fPIC", "-D_FILE_OFFSET_BITS=64", "-pthread", "-o", &library, &source];
    ended(world.command("cc", &flags)).done();
    let limit = "classes: [{name: slow, shares: 9, limit_iops: 50}]\nrules: [{class: slow}]\n";
    let rules = world.file("rules.yaml", limit);
    let load = format!("exec {program} {library}");
    for script in [format!("{load} a"), format!("echo ahoy >a; {program} {library}; true"), load] {
        for flags in [&["--rules", &rules][..], &["--rules", &rules, "--trace", "trace.plt", "--force"]] {
            let output = world.run(flags, &["sh", "-c", &script]);
            assert_eq!(output.out, "done\n", "{script}: {}", output.err);
            assert!(!output.err.contains("\npast the gate: "), "{script}: {}", output.err);
        }
    }
}

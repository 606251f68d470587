/* Copies a file beside random reads of it, both through a gate: the copy has a tenth of the shares of the reads,
 * and at most 200 MB a second.
 *
 *     cc -O2 -I crates/capi/include crates/capi/examples/gate.c -o gate -L target/release -lplimsoll_c -lpthread
 *     LD_LIBRARY_PATH=target/release ./gate io-properties.yaml FILE COPY
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plimsoll.h"

enum { BLOCK = 4096, CHUNK = 1 << 20, READS = 1000 };

static plimsoll_gate *gate;
static uint32_t query, copy;

/* Moves `len` bytes at `offset` with as many calls as the gate asks for. Returns the bytes moved, or -errno. */
static ssize_t transfer(uint32_t class_id, enum plimsoll_op op, int file, char *buffer, size_t len, off_t offset) {
    size_t moved = 0;
    while (moved < len) {
        plimsoll_permit permit;
        int64_t allowed = plimsoll_enter(gate, class_id, op, len - moved, PLIMSOLL_NO_TIMEOUT, &permit);
        if (allowed < 0)
            return allowed;
        ssize_t done = op == PLIMSOLL_READ ? pread(file, buffer + moved, (size_t)allowed, offset + (off_t)moved)
                                           : pwrite(file, buffer + moved, (size_t)allowed, offset + (off_t)moved);
        int64_t result = done < 0 ? -errno : done;
        plimsoll_leave(&permit, result);
        if (result < 0)
            return result;
        moved += (size_t)result;
        if (result < allowed)
            break;
    }
    return (ssize_t)moved;
}

static void *read_at_random(void *argument) {
    int file = *(int *)argument;
    off_t blocks = lseek(file, 0, SEEK_END) / BLOCK;
    unsigned seed = 1;
    char buffer[BLOCK];
    for (int n = 0; n < READS && blocks > 0; n++)
        if (transfer(query, PLIMSOLL_READ, file, buffer, BLOCK, rand_r(&seed) % blocks * BLOCK) < 0)
            return "a read failed";
    return NULL;
}

static const char *copy_all(int from, int to) {
    static char buffer[CHUNK];
    ssize_t len;
    for (off_t at = 0; (len = transfer(copy, PLIMSOLL_READ, from, buffer, CHUNK, at)) > 0; at += len)
        if (transfer(copy, PLIMSOLL_WRITE, to, buffer, (size_t)len, at) != len)
            return "a write failed";
    if (len < 0)
        return "a read failed";

    plimsoll_permit permit;
    if (plimsoll_enter(gate, copy, PLIMSOLL_FLUSH, 0, PLIMSOLL_NO_TIMEOUT, &permit) < 0)
        return "the gate refused a sync";
    int failed = fdatasync(to);
    plimsoll_leave(&permit, failed ? -errno : 0);
    return failed ? "a sync failed" : NULL;
}

int main(int count, char **arguments) {
    if (count != 4) {
        fprintf(stderr, "usage: gate IO-PROPERTIES FILE COPY\n");
        return 2;
    }
    int from = open(arguments[2], O_RDONLY), to = open(arguments[3], O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (from < 0 || to < 0) {
        fprintf(stderr, "cannot open %s: %s\n", arguments[from < 0 ? 2 : 3], strerror(errno));
        return 3;
    }
    char error[512];
    gate = plimsoll_open(arguments[1], arguments[2], error, sizeof error);
    if (!gate || plimsoll_serve(gate, "gate", error, sizeof error)) {
        fprintf(stderr, "%s\n", error);
        return 3;
    }
    if (plimsoll_add_class(gate, "query", 1000, &query) || plimsoll_add_class(gate, "copy", 100, &copy))
        return 3;
    plimsoll_qos at_most = {0};
    at_most.limit_bytes_per_s = 200000000;
    if (plimsoll_set_qos(gate, copy, &at_most))
        return 3;

    pthread_t reader;
    if (pthread_create(&reader, NULL, read_at_random, &from))
        return 3;
    const char *failed = copy_all(from, to);
    void *reader_failed;
    pthread_join(reader, &reader_failed);
    if (failed || reader_failed) {
        fprintf(stderr, "%s\n", failed ? failed : (const char *)reader_failed);
        return 3;
    }

    size_t len = plimsoll_metrics(gate, "gate", NULL, 0);
    char *text = malloc(len + 1);
    if (text && plimsoll_metrics(gate, "gate", text, len + 1))
        fputs(text, stdout);
    free(text);
    plimsoll_close(gate);
    return 0;
}

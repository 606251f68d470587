/* Plimsoll: a userspace disk I/O scheduler, for programs in C and C++ that make their own system calls.
 *
 * A thread enters the gate of a disk before each read, write or sync, makes the call, and leaves with its result. The gate
 * admits calls by the shares of their classes, and only as many as the disk needs to be busy. `plimsoll tune` measures
 * the disk. examples/gate.c is a whole program; link with -lplimsoll_c.
 *
 * All functions may be called from any thread, but not from signal handlers. Children of fork() must not use a gate.
 */
#ifndef PLIMSOLL_H
#define PLIMSOLL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The gate of one disk, with its classes. */
typedef struct plimsoll_gate plimsoll_gate;

/* An admitted call. The caller provides the memory; all zeros is no call. */
typedef struct plimsoll_permit {
    uint64_t reserved[24];
} plimsoll_permit;

/* The operation of a call. */
enum plimsoll_op {
    PLIMSOLL_READ = 0,
    PLIMSOLL_WRITE = 1,
    PLIMSOLL_FLUSH = 2,   /* fsync and fdatasync; moves no bytes */
    PLIMSOLL_DISCARD = 3, /* moves no bytes */
    PLIMSOLL_ALLOCATE = 4 /* moves no bytes */
};

/* The class that every gate has from the beginning: name "default", 100 shares. */
#define PLIMSOLL_DEFAULT_CLASS 0

/* For plimsoll_enter: wait as long as it takes. */
#define PLIMSOLL_NO_TIMEOUT (-1)

/* Opens a gate for the disk that holds `path`, by the figures of the file `io_properties`, which `plimsoll tune` writes.
 * `path` may be NULL if the file has one disk. With NULL for `io_properties` the disk has no limits: nothing waits.
 * On failure returns NULL, and writes the reason to `error`: at most `error_size` bytes with the final NUL. `error` may be
 * NULL. Close the gate with plimsoll_close. */
plimsoll_gate *plimsoll_open(const char *io_properties, const char *path, char *error, size_t error_size);

/* Closes a gate. No thread may be in one of its functions, and no permit may be held. NULL is ignored. */
void plimsoll_close(plimsoll_gate *gate);

/* Adds a class with `shares`, at least 1, and writes its number to `class_id`.
 * Returns 0; -EINVAL for no shares or a name that is not UTF-8, -EEXIST for a name that is taken, -ENOSPC after 65,535
 * classes. */
int plimsoll_add_class(plimsoll_gate *gate, const char *name, uint32_t shares, uint32_t *class_id);

/* Sets the shares of a class, at least 1. Calls that wait follow within 100 ms. Returns 0, or -EINVAL. */
int plimsoll_set_shares(plimsoll_gate *gate, uint32_t class_id, uint32_t shares);

/* Waits until a call of the class that moves `len_bytes` is admitted, at most `timeout_ns` nanoseconds. Signals do not end
 * the wait. On success the caller holds `permit`, makes the call and leaves. A permit held at this call is lost: leave
 * first.
 * Returns the bytes that the call may move: `len_bytes`, or fewer if a long call would delay others; then enter again for
 * the rest. 0 for operations that move none. On failure `permit` is not held: -EINVAL for an unknown class or operation,
 * -ETIMEDOUT, -EAGAIN if too many calls wait. */
int64_t plimsoll_enter(plimsoll_gate *gate, uint32_t class_id, enum plimsoll_op op, uint64_t len_bytes, int64_t timeout_ns,
                       plimsoll_permit *permit);

/* Ends an admitted call: `result` is the number of bytes moved, or -errno. Any thread may leave. Does nothing if `permit`
 * is not held. */
void plimsoll_leave(plimsoll_permit *permit, int64_t result);

/* Serves the control socket of this process until the gate is closed: `plimsoll attach` shows the classes and changes
 * their shares and limits. Returns 0, or -1 with the reason in `error`. */
int plimsoll_serve(plimsoll_gate *gate, const char *program, char *error, size_t error_size);

/* Writes the counters and latencies of all classes as Prometheus text (format 0.0.4): at most `size` bytes with the final
 * NUL. `text` may be NULL if `size` is 0. Returns the length of the whole text without the NUL: with `size` or more, the
 * text was cut. It grows between two calls. */
size_t plimsoll_metrics(plimsoll_gate *gate, const char *program, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif

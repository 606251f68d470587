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

/* The quality of service of a class or group besides its shares. 0 in a field is a setting that is not made, so initialise
 * it with plimsoll_qos qos = {0}. A group has limits and a reservation only, for its classes together. */
typedef struct plimsoll_qos {
    /* Upper limits a second: calls and bytes, of reads and writes together, of reads, and of all others. */
    uint64_t limit_iops, limit_read_iops, limit_write_iops;
    uint64_t limit_bytes_per_s, limit_read_bytes_per_s, limit_write_bytes_per_s;
    /* The burst after a pause, as time at the limit's rate. 0: one call. */
    uint64_t limit_burst_ns;
    /* Rates a second that the class, or whichever classes of the group ask, get whenever they have work. */
    uint64_t reservation_iops, reservation_bytes_per_s;
    /* A latency, from plimsoll_enter to plimsoll_leave, below which a part of the calls must stay: above 0 and below 1,
     * such as 0.99. If the class misses it, classes with looser targets yield. */
    uint64_t latency_target_ns;
    double latency_target_quantile;
    /* A call that has waited this long is admitted next, whatever its shares. */
    uint64_t max_wait_ns;
    /* A call that is expected to wait longer is refused: plimsoll_enter returns -EBUSY. */
    uint64_t max_delay_ns;
} plimsoll_qos;

/* The class that every gate has from the beginning: name "default", 100 shares. */
#define PLIMSOLL_DEFAULT_CLASS 0

/* For plimsoll_add_class_in and plimsoll_add_group: in no group. */
#define PLIMSOLL_NO_GROUP UINT32_MAX

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
 * Returns 0; -EINVAL for no shares or a name that is empty or not UTF-8, -EEXIST for a name that is taken, -ENOSPC after
 * 65,535 classes. */
int plimsoll_add_class(plimsoll_gate *gate, const char *name, uint32_t shares, uint32_t *class_id);

/* Adds a group with `shares`, at least 1, in the group `parent_id` or in PLIMSOLL_NO_GROUP, and writes its number to
 * `group_id`. The classes and groups in it divide its shares; calls belong to classes only. Returns as
 * plimsoll_add_class; -EINVAL also if `parent_id` is no group. */
int plimsoll_add_group(plimsoll_gate *gate, uint32_t parent_id, const char *name, uint32_t shares, uint32_t *group_id);

/* Adds a class as plimsoll_add_class, in a group. Returns as plimsoll_add_group. */
int plimsoll_add_class_in(plimsoll_gate *gate, uint32_t group_id, const char *name, uint32_t shares,
                          uint32_t *class_id);

/* Sets the shares of a class or group, at least 1. Calls that wait follow within 100 ms. Returns 0, or -EINVAL. */
int plimsoll_set_shares(plimsoll_gate *gate, uint32_t class_id, uint32_t shares);

/* Sets all of the quality of service of a class or group. Calls that wait follow within 100 ms. Returns 0, or -EINVAL if
 * nothing has changed: for an unknown class, a quantile that is not above 0 and below 1, or a group that is given more
 * than limits and a reservation. */
int plimsoll_set_qos(plimsoll_gate *gate, uint32_t class_id, const plimsoll_qos *qos);

/* Writes the present quality of service of a class or group to `qos`: `plimsoll attach` may have changed its limits.
 * Returns 0, or -EINVAL for an unknown class. */
int plimsoll_get_qos(plimsoll_gate *gate, uint32_t class_id, plimsoll_qos *qos);

/* Waits until a call of the class that moves `len_bytes` is admitted, at most `timeout_ns` nanoseconds. Signals do not end
 * the wait. On success the caller holds `permit`, makes the call and leaves. A permit held at this call is lost: leave
 * first.
 * Returns the bytes that the call may move: `len_bytes`, or fewer if that is more than 1 GiB or a long call would delay
 * others; then enter again for the rest. 0 for operations that move none. On failure `permit` is not held: -EINVAL for a
 * group or an unknown class or operation, -ETIMEDOUT, -EAGAIN if too many calls wait, -EBUSY if the call would wait longer
 * than `max_delay_ns` of its class. */
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

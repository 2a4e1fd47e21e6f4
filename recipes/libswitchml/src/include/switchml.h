/* SPDX-License-Identifier: BSD-3-Clause
 *
 * C ABI between a framework plugin and a SwitchML transport.
 *
 * One shared library, libswitchml.so.1, implements these functions for one
 * transport (udp, dummy, dpdk, rdma ...).  The transports are interchangeable
 * at run time: nothing here names one.  No C++ type, exception, process exit or
 * global constructor with visible effect crosses this interface.
 *
 * Wire protocol: the P4 program and client of the p4lang/p4app-switchML
 * repository (commit b5c74a0); Sapio et al., "Scaling Distributed Machine
 * Learning with In-Network Aggregation", NSDI 2021.
 */
#ifndef SWITCHML_H
#define SWITCHML_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SWITCHML_API __attribute__((visibility("default")))
#else
#define SWITCHML_API
#endif

/* Raised when a function, field or meaning changes incompatibly; equals the
 * number in the library's soname. Fields are only appended to structs, which
 * carry their size, within one ABI version. */
#define SWITCHML_ABI_VERSION 1

typedef struct switchml_context switchml_context;

typedef enum switchml_status {
    SWITCHML_OK = 0,
    SWITCHML_EINVAL = 1,       /* an argument is out of its range */
    SWITCHML_ENOMEM = 2,       /* memory or another resource ran out */
    SWITCHML_ECONFIG = 3,      /* configuration missing, malformed or contradictory */
    SWITCHML_EUNREACHABLE = 4, /* the controller was not reached within connect_timeout_ms, or later for a lease */
    SWITCHML_EREFUSED = 5,     /* the controller refused the session or a worker's parameters */
    SWITCHML_ETIMEDOUT = 6,    /* another worker or the switch did not take part: not all workers opened the session in
                                  time, a job made no progress for job_timeout_ms, or a worker has gone */
    SWITCHML_EABORTED = 7,     /* switchml_abort, switchml_close or is_cancelled ended it */
    SWITCHML_EIO = 8,          /* the operating system or a device refused an operation */
    SWITCHML_EUNSUPPORTED = 9, /* this transport cannot do that */
    SWITCHML_EINTERNAL = 10,   /* a defect in the library */
    SWITCHML_EMISMATCH = 11    /* the workers submitted different jobs */
} switchml_status;

typedef enum switchml_dtype { SWITCHML_FLOAT32 = 0, SWITCHML_INT32 = 1 } switchml_dtype;

/* Zero-initialise, set struct_size = sizeof(switchml_config), rank and
 * num_workers. Every other field left 0 or NULL is taken from the environment
 * variable named beside it, else from the default. */
typedef struct switchml_config {
    size_t struct_size;
    uint32_t rank;                    /* 0 .. num_workers - 1 */
    uint32_t num_workers;             /* 1 .. 32 (the switch keeps a 32-bit bitmap) */
    const char *controller;           /* SWITCHML_CONTROLLER, "host[:port]", default port 50099; an IPv6 address
                                         in brackets */
    const char *local_address;        /* SWITCHML_LOCAL_ADDRESS, IPv4 or IPv6 this worker sends from; default:
                                         the address the kernel routes to the controller from; when that is
                                         IPv4's loopback, 127.0.83.(rank + 1), since the switch tells workers
                                         apart by source address */
    uint32_t worker_port;             /* SWITCHML_WORKER_PORT, base UDP source port, default 4000; the same on
                                         all workers, thread t uses worker_port + t (on ::1, which all workers
                                         share, worker_port + rank * num_threads + t) */
    uint32_t num_threads;             /* SWITCHML_NUM_THREADS, default 1 */
    uint32_t max_outstanding_packets; /* SWITCHML_MAX_OUTSTANDING_PACKETS, all threads together, 1 .. 4096, a
                                         multiple of num_threads, default 252 (udp) or 256, or the next multiple */
    uint32_t packet_numel;            /* SWITCHML_PACKET_NUMEL, 64 or 256, default 256 */
    uint32_t retransmit_timeout_us;   /* SWITCHML_RETRANSMIT_TIMEOUT_US, default 10000 */
    uint32_t connect_timeout_ms;      /* SWITCHML_CONNECT_TIMEOUT_MS, controller reachable, default 3000 */
    uint32_t job_timeout_ms;          /* SWITCHML_JOB_TIMEOUT_MS, no progress at all (also while waiting for the
                                         other workers to open the session), default 30000 */
    const char *job_name;             /* SWITCHML_JOB_NAME, the same on all workers and no other job's: workers meet
                                         those of the same name only, and messages about the session give it;
                                         default: none, so that one job at a time may be opening its session */
    int (*is_cancelled)(void *user);  /* since 1.1; not 0 where nobody waits for switchml_open any longer, which then
                                         ends with SWITCHML_EABORTED and holds no port. Called on the thread that
                                         opens, until it returns: several times a second (udp), or before and after
                                         the session is set up (others); default: NULL, it is waited for */
    void *is_cancelled_user;          /* for is_cancelled; neither of the two is resolved or read elsewhere */
} switchml_config;

/* Counters since switchml_open. Set struct_size before the call. */
typedef struct switchml_stats {
    size_t struct_size;
    uint64_t jobs_submitted;
    uint64_t jobs_completed;
    uint64_t jobs_failed;
    uint64_t elements_reduced; /* sum of numel over completed jobs */
    uint64_t packets_sent;     /* first transmissions */
    uint64_t packets_received; /* results accepted */
    uint64_t packets_retransmitted;
    uint64_t packets_discarded; /* duplicates, other jobs' results, malformed */
    /* Socket receive buffers of all threads, bytes: what a full window may need,
     * and what the system granted. Less than wanted loses packets under load
     * (Linux: raise net.core.rmem_max). 0 where a transport has no sockets. */
    uint64_t receive_buffer_wanted;
    uint64_t receive_buffer_granted;
} switchml_stats;

/* Called once per accepted job, from a thread of the library, after `out` is
 * complete (status SWITCHML_OK) or abandoned. `message` explains a failure and
 * lives until the callback returns. The callback may submit, must not close. */
typedef void (*switchml_callback)(void *user, switchml_status status, const char *message);

/* SWITCHML_ABI_VERSION of the library loaded. */
SWITCHML_API uint32_t switchml_abi_version(void);

/* "udp", "dummy", "dpdk", "rdma" ...: the transport built into this library. */
SWITCHML_API const char *switchml_transport(void);

/* Library version, as the package's: "1.1.0". */
SWITCHML_API const char *switchml_version(void);

/* A short sentence for a status, never NULL. */
SWITCHML_API const char *switchml_strerror(switchml_status status);

/* Why the last call on this thread that returned an error failed, with the
 * name of the setting or address concerned; "" when none did. */
SWITCHML_API const char *switchml_last_error(void);

/* Opens the session: all num_workers workers must call it. Blocks until every
 * worker is in, at most connect_timeout_ms + job_timeout_ms, or until
 * is_cancelled says so. One context per switch and process. On failure *context
 * is NULL. */
SWITCHML_API switchml_status switchml_open(const switchml_config *config, switchml_context **context);

/* Sums `numel` elements over all workers into `out`, which may equal `in`.
 * Returns at once; both buffers stay the library's until the callback. Every
 * worker must submit the same jobs (numel, dtype) in the same order; where they
 * differ the job fails on all of them with SWITCHML_EMISMATCH and the ranks that
 * differ (udp). After a job failed the context accepts no other: the workers'
 * slot sequences may differ, so close it.
 *
 * int32 sums wrap modulo 2^32. float32 sums are made in fixed point, per packet
 * of packet_numel elements, whose unit is a power of two (udp): with n workers
 * and all magnitudes of the packet below 2^e, e the least such (and at least
 * -126), the unit is 2^(e + ceil(log2 n) - 31), and each element is within n / 2
 * units of the exact sum before the last rounding to float32. Addends that are
 * multiples of the unit are summed exactly. A thread's share of a job that has at
 * most (packet_numel - 2 n) / 11 elements is always summed exactly (udp), and
 * rounded once, to the nearest float32. All workers get the same bits.
 * Where any worker has Inf or NaN in a packet, all elements of that packet come
 * back as NaN. A sum beyond float32 is Inf; the sign of zero is not kept. */
SWITCHML_API switchml_status switchml_allreduce_submit(switchml_context *context, const void *in, void *out,
                                                       uint64_t numel, switchml_dtype dtype, switchml_callback callback,
                                                       void *user);

/* Fails every pending job with SWITCHML_EABORTED and refuses new ones. Safe
 * from any thread, also more than once. */
SWITCHML_API switchml_status switchml_abort(switchml_context *context);

SWITCHML_API switchml_status switchml_get_stats(const switchml_context *context, switchml_stats *stats);

/* Aborts what is pending, joins the library's threads, frees the context. NULL
 * is allowed. */
SWITCHML_API void switchml_close(switchml_context *context);

/* For integrations of frameworks, so that all of them settle, refuse and report
 * alike. Since version 1.1 of the library; programs made for 1.0 do not miss
 * them. Functions that give a text write at most `size` bytes of it to `text`,
 * a terminating 0 among them, and return the length of all of it, as snprintf
 * does; SIZE_MAX where memory ran out. */

/* Fills `resolved`, whose struct_size is set, with what switchml_open would work
 * with: every field from `config`, the environment or the defaults, the
 * controller with its port. Nothing is opened. Errors as switchml_open's. The
 * strings live until this is called again on the same thread, or that ends. */
SWITCHML_API switchml_status switchml_resolve(const switchml_config *config, switchml_config *resolved);

/* What all workers of a session must have alike, a line "name<tab>value" each,
 * of a resolved configuration: the part of a worker's report that comes from
 * here. */
SWITCHML_API size_t switchml_common_settings(const switchml_config *resolved, char *text, size_t size);

/* Why the workers cannot go on together, as one line for people, the same on all
 * that have the same reports; "" where they can. reports[rank] is what a worker
 * said, NULL where it said nothing within timeout_ms: a first line that is empty
 * or says why it cannot go on, then a line "name<tab>value" for each thing that
 * must be the same on all. */
SWITCHML_API size_t switchml_compare_reports(const char *const *reports, uint32_t num_workers, uint32_t timeout_ms,
                                             char *text, size_t size);

/* "path", "version", "transport" and "abi_version" of the library loaded, as a
 * JSON object. */
SWITCHML_API size_t switchml_describe_library(char *text, size_t size);

/* The counters by name, as a JSON object of numbers; those within struct_size. */
SWITCHML_API size_t switchml_describe_stats(const switchml_stats *stats, char *text, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* SWITCHML_H */

/* SPDX-License-Identifier: BSD-3-Clause
 * A program made with the header of libswitchml 1.0, whose structs were shorter, and which knew fewer functions: it
 * links and runs with every later library of the same ABI version. The declarations are those of 1.0; never update
 * them. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct old_config {
    size_t struct_size;
    uint32_t rank;
    uint32_t num_workers;
    const char *controller;
    const char *local_address;
    uint32_t worker_port;
    uint32_t num_threads;
    uint32_t max_outstanding_packets;
    uint32_t packet_numel;
    uint32_t retransmit_timeout_us;
    uint32_t connect_timeout_ms;
    uint32_t job_timeout_ms;
} old_config;

typedef struct old_stats {
    size_t struct_size;
    uint64_t jobs_submitted;
    uint64_t jobs_completed;
    uint64_t jobs_failed;
    uint64_t elements_reduced;
    uint64_t packets_sent;
    uint64_t packets_received;
    uint64_t packets_retransmitted;
    uint64_t packets_discarded;
} old_stats;

typedef void (*old_callback)(void *user, int status, const char *message);

/* by their symbols' versions, as a program that was linked with 1.0 asks for them */
#define OLD(name) __asm__(".symver " #name "," #name "@SWITCHML_1")
OLD(switchml_abi_version);
OLD(switchml_transport);
OLD(switchml_version);
OLD(switchml_strerror);
OLD(switchml_last_error);
OLD(switchml_open);
OLD(switchml_allreduce_submit);
OLD(switchml_abort);
OLD(switchml_get_stats);
OLD(switchml_close);
extern uint32_t switchml_abi_version(void);
extern const char *switchml_transport(void);
extern const char *switchml_version(void);
extern const char *switchml_strerror(int status);
extern const char *switchml_last_error(void);
extern int switchml_open(const old_config *config, void **context);
extern int switchml_allreduce_submit(void *context, const void *in, void *out, uint64_t numel, int dtype,
                                     old_callback callback, void *user);
extern int switchml_abort(void *context);
extern int switchml_get_stats(const void *context, old_stats *stats);
extern void switchml_close(void *context);

enum { OLD_OK = 0, OLD_EUNREACHABLE = 4 };

static void ignore(void *user, int status, const char *message) {
    (void)user;
    (void)status;
    (void)message;
}

/* The counters, and nothing behind them, are written. */
static int check_stats(const void *context) {
    struct {
        old_stats stats;
        uint64_t behind;
    } guarded;
    memset(&guarded, 0xAB, sizeof guarded);
    guarded.stats.struct_size = sizeof guarded.stats;
    if (switchml_get_stats(context, &guarded.stats) != OLD_OK) return 1;
    if (guarded.stats.jobs_submitted != 1 || guarded.behind != UINT64_C(0xABABABABABABABAB)) return 2;
    return 0;
}

int main(void) {
    struct {
        old_config config;
        const char *behind; /* where a later header has more, and this program whatever was there */
    } mine;
    void *context = NULL;
    int status;
    memset(&mine, 0, sizeof mine);
    mine.behind = "not a job's name";
    mine.config.struct_size = sizeof mine.config;
    mine.config.num_workers = 1;
    mine.config.controller = "127.0.0.1:1"; /* where nothing answers, for a transport that needs it */
    mine.config.connect_timeout_ms = 200;
    if (switchml_abi_version() != 1) return 10;
    status = switchml_open(&mine.config, &context);
    printf("%s %s: %s (%s)\n", switchml_version(), switchml_transport(), switchml_strerror(status),
           switchml_last_error());
    if (status == OLD_EUNREACHABLE) return 0;
    if (strcmp(switchml_transport(), "dummy") == 0) {
        if (status != OLD_OK) return 11;
        if (switchml_allreduce_submit(context, NULL, NULL, 0, 0, ignore, NULL) != OLD_OK) return 12;
        if (check_stats(context) != 0) return 13;
        if (switchml_abort(context) != OLD_OK) return 14;
        switchml_close(context);
        return 0;
    }
    /* of a host that lacks what the transport needs it is said as to any program */
    return switchml_last_error()[0] != '\0' && strstr(switchml_last_error(), "switchml_config") == NULL ? 0 : 15;
}

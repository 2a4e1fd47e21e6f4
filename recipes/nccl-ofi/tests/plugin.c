/* SPDX-License-Identifier: BSD-3-Clause
 * Loads the plugin as NCCL does and uses it through net ABI 6, without NCCL and without a GPU.
 *
 *   plugin names             prints the net ABIs that the library offers
 *   plugin init              prints the name, what init returned, and the number of devices
 *   plugin send              sends host memory to itself over device 0 and compares */
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NEWEST_ABI = 20, HANDLE_SIZE = 128, HOST_MEMORY = 1, SIZE = 1 << 20, TAG = 7 };

typedef void (*logger)(int level, unsigned long flags, const char *file, int line, const char *format, ...);

/* ncclNet_v6_t */
struct net {
    const char *name;
    int (*init)(logger log);
    int (*devices)(int *count);
    int (*get_properties)(int device, void *properties);
    int (*listen)(int device, void *handle, void **listener);
    int (*connect)(int device, void *handle, void **sender);
    int (*accept)(void *listener, void **receiver);
    int (*register_memory)(void *connection, void *data, int size, int type, void **handle);
    int (*register_dmabuf)(void *, void *, size_t, int, uint64_t, int, void **);
    int (*deregister_memory)(void *connection, void *handle);
    int (*send)(void *sender, void *data, int size, int tag, void *memory, void **request);
    int (*receive)(void *receiver, int count, void **data, int *sizes, int *tags, void **memory, void **request);
    int (*flush)(void *, int, void **, int *, void **, void **);
    int (*test)(void *request, int *is_done, int *sizes);
    int (*close_send)(void *sender);
    int (*close_receive)(void *receiver);
    int (*close_listen)(void *listener);
};

static void say(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
    va_list arguments;
    (void)flags;
    va_start(arguments, format);
    fprintf(stderr, "[%d] %s:%d ", level, file, line);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

static void must(int result, const char *what) {
    if (result != 0) {
        fprintf(stderr, "%s returned %d\n", what, result);
        exit(1);
    }
}

static void must_go_on(time_t started, const char *what) {
    if (time(NULL) - started > 60) {
        fprintf(stderr, "%s: nothing after 60 s\n", what);
        exit(1);
    }
}

/* Ask for both until they are done: each makes progress only when it is asked. NCCL reads the size of what came in. */
static void finish(const struct net *net, void *out, void *in) {
    int is_sent = 0, is_received = 0, size = 0;
    for (time_t started = time(NULL); !is_sent || !is_received; must_go_on(started, "test")) {
        if (!is_sent) must(net->test(out, &is_sent, NULL), "test of the send");
        if (!is_received) must(net->test(in, &is_received, &size), "test of the receive");
    }
    if (size != SIZE) {
        fprintf(stderr, "%d bytes arrived, expected %d\n", size, SIZE);
        exit(1);
    }
}

static void send_to_itself(const struct net *net) {
    static unsigned char source[SIZE], target[SIZE];
    char handle[HANDLE_SIZE] = {0};
    void *listener = NULL, *sender = NULL, *receiver = NULL, *from = NULL, *to = NULL, *out = NULL, *in = NULL;
    void *data = target;
    int size = SIZE, tag = TAG;
    for (int i = 0; i < SIZE; i++) source[i] = (unsigned char)(i * 31 + (i >> 8));
    must(net->listen(0, handle, &listener), "listen");
    /* both ends are asked again until they are there */
    for (time_t started = time(NULL); !sender || !receiver; must_go_on(started, "connect")) {
        if (!sender) must(net->connect(0, handle, &sender), "connect");
        if (!receiver) must(net->accept(listener, &receiver), "accept");
    }
    must(net->register_memory(sender, source, SIZE, HOST_MEMORY, &from), "regMr");
    must(net->register_memory(receiver, target, SIZE, HOST_MEMORY, &to), "regMr");
    for (time_t started = time(NULL); !in; must_go_on(started, "irecv"))
        must(net->receive(receiver, 1, &data, &size, &tag, &to, &in), "irecv");
    for (time_t started = time(NULL); !out; must_go_on(started, "isend"))
        must(net->send(sender, source, SIZE, TAG, from, &out), "isend");
    finish(net, out, in);
    if (memcmp(source, target, SIZE) != 0) {
        fputs("other bytes arrived than were sent\n", stderr);
        exit(1);
    }
    must(net->deregister_memory(sender, from), "deregMr");
    must(net->deregister_memory(receiver, to), "deregMr");
    must(net->close_send(sender), "closeSend");
    must(net->close_receive(receiver), "closeRecv");
    must(net->close_listen(listener), "closeListen");
    printf("%d bytes arrived\n", SIZE);
}

int main(int count, char **arguments) {
    const char *action = count == 2 ? arguments[1] : "";
    /* by its bare name, as NCCL does: this program has the environment's lib as rpath, like NCCL */
    void *library = dlopen("libnccl-net.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    if (strcmp(action, "names") == 0) {
        const char *space = "";
        for (int abi = 1; abi <= NEWEST_ABI; abi++) {
            char name[32];
            snprintf(name, sizeof name, "ncclNetPlugin_v%d", abi);
            if (dlsym(library, name) == NULL) continue;
            printf("%s%d", space, abi);
            space = " ";
        }
        putchar('\n');
        return 0;
    }
    const struct net *net = dlsym(library, "ncclNetPlugin_v6");
    if (net == NULL) return 1;
    int result = net->init(say), devices = 0;
    if (strcmp(action, "init") == 0) {
        if (result == 0) must(net->devices(&devices), "devices");
        printf("%s: init %d, devices %d\n", net->name, result, devices);
        return 0;
    }
    must(result, "init");
    send_to_itself(net);
    return 0;
}

/* SPDX-License-Identifier: BSD-3-Clause */
#include "probe.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_S = 20, TEXT_SIZE = 8192, CANNOT_LOAD = 10, NO_MPI = 11 };

int answer_probe(const char *file) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        printf("%s\n", dlerror());
        return CANNOT_LOAD;
    }
    int (*get_version)(int *, int *);
    int (*get_library_version)(char *, int *);
    *(void **)&get_version = dlsym(library, "MPI_Get_version");
    *(void **)&get_library_version = dlsym(library, "MPI_Get_library_version");
    if (get_version == NULL || get_library_version == NULL) return NO_MPI;
    /* both may be called before MPI_Init; MPICH's longest text is 8192 characters */
    static char version[2 * TEXT_SIZE];
    int major = 0, minor = 0, length = 0;
    if (get_version(&major, &minor) != 0 || get_library_version(version, &length) != 0) return NO_MPI;
    version[strcspn(version, "\n")] = '\0';
    printf("%d %s\n", 100 * major + 10 * minor, version);
    return 0;
}

static void start(const char *file, const char *folders, int output) {
    const char *before = getenv("LD_LIBRARY_PATH");
    char *path = NULL;
    if (asprintf(&path, "%s%s%s", folders, before && *before ? ":" : "", before ? before : "") < 0) _exit(70);
    setenv("LD_LIBRARY_PATH", path, 1);
    dup2(output, STDOUT_FILENO);
    alarm(PATIENCE_S); /* kept across exec */
    execl("/proc/self/exe", "mpich-external-check", "--probe", file, (char *)NULL);
    printf("cannot start the program again: %s\n", strerror(errno));
    fflush(stdout);
    _exit(CANNOT_LOAD);
}

static void read_answer(int input, char *text, size_t size) {
    size_t used = 0;
    ssize_t got;
    while (used < size - 1 && ((got = read(input, text + used, size - 1 - used)) > 0 || (got < 0 && errno == EINTR)))
        used += got > 0 ? (size_t)got : 0;
    text[used] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

struct answer probe_library(const char *file, const char *folders) {
    struct answer answer = {.problem = "cannot be asked for its version"};
    int ends[2], status = 0;
    if (pipe(ends) != 0) return answer;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        start(file, folders, ends[1]);
    }
    close(ends[1]);
    char text[sizeof answer.version] = "";
    if (child > 0) {
        read_answer(ends[0], text, sizeof text);
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    }
    close(ends[0]);
    if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        char *rest = text;
        answer.standard = (int)strtol(text, &rest, 10);
        snprintf(answer.version, sizeof answer.version, "%s", rest + (*rest == ' '));
        answer.problem[0] = '\0';
    } else if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_LOAD) {
        snprintf(answer.problem, sizeof answer.problem, "%s", text);
    } else if (child > 0 && WIFSIGNALED(status)) {
        snprintf(answer.problem, sizeof answer.problem, "the library ended its process with signal %d",
                 WTERMSIG(status));
    } else if (child > 0) {
        snprintf(answer.problem, sizeof answer.problem, "it has no MPI_Get_version and MPI_Get_library_version");
    }
    return answer;
}

/* SPDX-License-Identifier: BSD-3-Clause
 * libfabric-external-check: is there a libfabric on this machine that this environment's libraries can use?
 * Only files are read: which versions of its symbols (FABRIC_1.x) a library has or needs, the names in it say. */
#include <fcntl.h>
#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "elf_soname.h"

enum code { USABLE = 0, USAGE = 2, NOT_FOUND = 3, TOO_OLD = 4 };

#define USER_VARIABLE "CHANNEL_LIBFABRIC_DIR"
#define SONAME "libfabric.so.1"
#define VERSION "FABRIC_1."
#define COUNT(list) (sizeof(list) / sizeof(list)[0])
#if defined(__x86_64__)
#define OF_DEBIAN "lib/x86_64-linux-gnu"
#else
#define OF_DEBIAN "lib/aarch64-linux-gnu"
#endif

static const char HELP[] =
    "usage: libfabric-external-check [--folder | --help]\n"
    "Says which libfabric of this machine this environment uses, and whether it can.\n"
    "  --folder  its folder, for the activation script; messages only when something is wrong\n"
    "exit codes: 0 usable, 2 wrong usage, 3 none found, 4 found, but too old for a library of this environment\n"
    "looked at, in this order: " USER_VARIABLE
    " (then nothing else), the folders of LD_LIBRARY_PATH and\n"
    "CRAY_LD_LIBRARY_PATH, /opt/cray/libfabric/* (the newest first), /usr\n";

/* What modules set. */
static const char *const PATHS[] = {"LD_LIBRARY_PATH", "CRAY_LD_LIBRARY_PATH"};
static const char *const BELOW[] = {"", "/lib64", "/lib", "/" OF_DEBIAN};
/* The libraries of an environment that may be linked with libfabric. */
static const char *const USERS[] = {"lib[nr]ccl-net*.so", "libccl.so.*", "libmpi.so.*"};

struct search {
    char *folder;        /* the first with a libfabric that fits, or NULL */
    uint64_t needed;     /* a bit for each version of symbols that this environment's libraries need */
    uint64_t versions;   /* as needed, of the one that was found */
    char *user, *looked; /* the library that needs most; a line for each place */
    int has_older;
};

static char *joined(const char *first, const char *second, const char *third) {
    char *made = NULL;
    if (asprintf(&made, "%s%s%s", first, second, third) < 0) exit(70);
    return made;
}

static void note(struct search *search, const char *place, const char *what) {
    char *longer = NULL;
    if (asprintf(&longer, "%s    %s: %s\n", search->looked ? search->looked : "", place, what) < 0) exit(70);
    free(search->looked);
    search->looked = longer;
}

/* A bit for each FABRIC_1.x that is named in the file, none for a file that cannot be read. */
static uint64_t versions_in(const char *path) {
    uint64_t found = 0;
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
        size_t size = (size_t)status.st_size;
        char *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, file, 0);
        if (bytes != MAP_FAILED) {
            const char *end = bytes + size, *at = bytes;
            while ((at = memmem(at, (size_t)(end - at), VERSION, strlen(VERSION))) != NULL) {
                unsigned number = 0;
                at += strlen(VERSION);
                const char *digits = at;
                for (; at < end && *at >= '0' && *at <= '9' && at - digits < 3; at++)
                    number = number * 10 + (unsigned)(*at - '0');
                if (at < end && at > digits && *at == '\0' && number < 64) found |= UINT64_C(1) << number;
            }
            munmap(bytes, size);
        }
    }
    close(file);
    return found;
}

static unsigned newest(uint64_t versions) {
    unsigned number = 0;
    for (unsigned i = 0; i < 64; i++)
        if (versions >> i & 1) number = i;
    return number;
}

static void add_needs(struct search *search, const char *prefix) {
    for (size_t i = 0; i < COUNT(USERS); i++) {
        char *pattern = joined(prefix, "/lib/", USERS[i]);
        glob_t matches;
        if (glob(pattern, 0, NULL, &matches) == 0) {
            for (size_t j = 0; j < matches.gl_pathc; j++) {
                uint64_t needs = versions_in(matches.gl_pathv[j]);
                if (needs && (!search->user || newest(needs) > newest(search->needed))) {
                    free(search->user);
                    search->user = joined(matches.gl_pathv[j], "", "");
                }
                search->needed |= needs;
            }
            globfree(&matches);
        }
        free(pattern);
    }
}

/* Take the libfabric of the folder, or of one below it, if it fits. */
static void consider(struct search *search, const char *place) {
    int is_there = 0;
    for (size_t i = 0; i < COUNT(BELOW) && !search->folder; i++) {
        char *folder = joined(place, BELOW[i], ""), *file = joined(folder, "/", SONAME), soname[256], *what = NULL;
        if (access(file, F_OK) == 0) {
            is_there = 1;
            const char *problem = read_soname(file, soname, sizeof soname);
            uint64_t has = problem ? 0 : versions_in(file), lacking = search->needed & ~has;
            if (problem == NULL && strcmp(soname, SONAME) != 0) problem = "has another soname";
            if (problem) {
                note(search, file, problem);
            } else if (lacking) {
                search->has_older = 1;
                if (asprintf(&what, "has symbols up to " VERSION "%u, and %s needs " VERSION "%u", newest(has),
                             search->user, newest(lacking)) < 0)
                    exit(70);
                note(search, file, what);
                free(what);
            } else {
                search->folder = joined(folder, "", "");
                search->versions = has;
            }
        }
        free(folder);
        free(file);
    }
    if (!is_there) note(search, place, "no " SONAME " there");
}

static int newest_first(const void *left, const void *right) {
    return strverscmp(*(char *const *)right, *(char *const *)left);
}

static void search_places(struct search *search) {
    const char *own = getenv(USER_VARIABLE);
    if (own != NULL && *own != '\0') {
        consider(search, own);
        return;
    }
    for (size_t i = 0; i < COUNT(PATHS) && !search->folder; i++) {
        const char *value = getenv(PATHS[i]);
        char *entries = joined(value ? value : "", "", ""), *rest = entries;
        for (char *entry = strsep(&rest, ":"); entry && !search->folder; entry = strsep(&rest, ":")) {
            char *file = joined(entry, "/", SONAME);
            if (*entry == '/' && access(file, F_OK) == 0) consider(search, entry);
            free(file);
        }
        free(entries);
    }
    glob_t matches;
    if (!search->folder && glob("/opt/cray/libfabric/*", GLOB_ONLYDIR, NULL, &matches) == 0) {
        qsort(matches.gl_pathv, matches.gl_pathc, sizeof *matches.gl_pathv, newest_first);
        for (size_t i = 0; i < matches.gl_pathc && !search->folder; i++) consider(search, matches.gl_pathv[i]);
        globfree(&matches);
    } else if (!search->folder) {
        note(search, "/opt/cray/libfabric/*", "nothing there");
    }
    if (!search->folder) consider(search, "/usr");
}

int main(int count, char **arguments) {
    int is_folder = count == 2 && strcmp(arguments[1], "--folder") == 0;
    if (count == 2 && strcmp(arguments[1], "--help") == 0) {
        fputs(HELP, stdout);
        return USABLE;
    }
    if (count > 2 || (count == 2 && !is_folder)) {
        fputs(HELP, stderr);
        return USAGE;
    }
    struct search search = {0};
    const char *prefix = getenv("CONDA_PREFIX");
    if (prefix != NULL && *prefix != '\0') add_needs(&search, prefix);
    search_places(&search);
    if (search.folder == NULL) {
        fprintf(stderr,
                "libfabric-external-check: no libfabric that this environment can use\n"
                "  looked at:\n%s"
                "  expected: a " SONAME
                " with the versions of symbols that this environment's libraries need\n"
                "  what to do: load the site's module (module load libfabric), a newer one if one is too old, or "
                "export " USER_VARIABLE
                "=FOLDER,\n"
                "    and activate the environment again; elsewhere install libfabric without =*=external*\n",
                search.looked);
        return search.has_older ? TOO_OLD : NOT_FOUND;
    }
    if (is_folder) {
        puts(search.folder);
        return USABLE;
    }
    printf("library:  %s/" SONAME "\nsymbols:  up to " VERSION "%u\n", search.folder, newest(search.versions));
    if (search.user) printf("needed:   up to " VERSION "%u, by %s\n", newest(search.needed), search.user);
    return USABLE;
}

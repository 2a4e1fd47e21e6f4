/* SPDX-License-Identifier: BSD-3-Clause
 * rocm-external-check: is there a HIP on this machine that programs of this environment can run on?
 * Only files are read: a login node has ROCm, but no GPU that it could be started on. */
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "elf_soname.h"

enum code { USABLE = 0, USAGE = 2, NOT_FOUND = 3, WRONG_ABI = 4 };

#define USER_VARIABLE "CHANNEL_ROCM_DIR"
#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static const char HELP[] =
    "usage: rocm-external-check [--folder | --help]\n"
    "Says which ROCm of this machine this environment uses, and whether it can.\n"
    "  --folder  the folder and its libraries' folder, for the activation script; messages only when something is "
    "wrong\n"
    "exit codes: 0 usable, 2 wrong usage, 3 none found, 4 found, but of another major version\n"
    "looked at, in this order: " USER_VARIABLE
    " (then nothing else), ROCM_PATH, HIP_PATH, /opt/rocm, /opt/rocm-*, "
    "/usr\n";

/* Modules set the first two. */
static const char *const VARIABLES[] = {"ROCM_PATH", "HIP_PATH"};
static const char *const FOLDERS[] = {"/opt/rocm", "/opt/rocm-*", "/usr"};
#if defined(__x86_64__)
static const char *const BELOW[] = {"lib", "lib64", "lib/x86_64-linux-gnu"};
#else
static const char *const BELOW[] = {"lib", "lib64", "lib/aarch64-linux-gnu"};
#endif

struct search {
    char *root, *folder; /* the first that fits, or NULL */
    char *looked;        /* a line for each place before it */
    int has_other;       /* whether one of them has another major version */
};

static char *text(const char *format, const char *first, const char *second, const char *third) {
    char *made = NULL;
    if (asprintf(&made, format, first, second, third) < 0) exit(70);
    return made;
}

static void note(struct search *search, const char *place, const char *what) {
    char *longer = text("%s    %s: %s\n", search->looked ? search->looked : "", place, what);
    free(search->looked);
    search->looked = longer;
}

/* Whether the folder has the library of the wanted soname; notes one of another. */
static int has_library(struct search *search, const char *folder) {
    char *pattern = text("%s/libamdhip64.so%s%s", folder, "*", ""), soname[256];
    glob_t matches;
    int is_there = 0;
    if (glob(pattern, 0, NULL, &matches) == 0) {
        for (size_t i = 0; i < matches.gl_pathc && !is_there; i++) {
            const char *problem = read_soname(matches.gl_pathv[i], soname, sizeof soname);
            is_there = problem == NULL && strcmp(soname, WANTED_SONAME) == 0;
            if (is_there) break;
            char *what = problem ? text("%s%s%s", problem, "", "") : text("has the soname %s%s%s", soname, "", "");
            note(search, matches.gl_pathv[i], what);
            free(what);
            search->has_other = 1;
        }
        globfree(&matches);
    }
    free(pattern);
    return is_there;
}

static void consider(struct search *search, const char *root) {
    if (access(root, F_OK) != 0) {
        note(search, root, "there is no such folder");
        return;
    }
    int noted = search->has_other;
    for (size_t i = 0; i < COUNT(BELOW); i++) {
        char *folder = text("%s/%s%s", root, BELOW[i], "");
        if (has_library(search, folder)) {
            search->root = text("%s%s%s", root, "", "");
            search->folder = folder;
            return;
        }
        free(folder);
    }
    if (noted == search->has_other) note(search, root, "no libamdhip64.so in lib, lib64 or Debian's folder");
}

static struct search search_places(void) {
    struct search search = {0};
    const char *own = getenv(USER_VARIABLE);
    if (own != NULL && *own != '\0') {
        consider(&search, own);
        return search;
    }
    for (size_t i = 0; i < COUNT(VARIABLES) && !search.root; i++) {
        const char *value = getenv(VARIABLES[i]);
        if (value == NULL || *value == '\0')
            note(&search, VARIABLES[i], "not set");
        else
            consider(&search, value);
    }
    for (size_t i = 0; i < COUNT(FOLDERS) && !search.root; i++) {
        glob_t matches;
        if (glob(FOLDERS[i], 0, NULL, &matches) != 0) {
            note(&search, FOLDERS[i], "there is no such folder");
            continue;
        }
        for (size_t j = 0; j < matches.gl_pathc && !search.root; j++) consider(&search, matches.gl_pathv[j]);
        globfree(&matches);
    }
    return search;
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
    struct search search = search_places();
    if (search.root == NULL) {
        fprintf(stderr,
                "rocm-external-check: no ROCm that this environment can use\n"
                "  looked at:\n%s"
                "  expected: a library with the soname " WANTED_SONAME
                "\n"
                "  what to do: load the site's module (module load rocm), or export " USER_VARIABLE
                "=FOLDER, and activate the environment\n"
                "    again; of another major version, install rocm-external and nccl-ofi for that one\n",
                search.looked);
        return search.has_other ? WRONG_ABI : NOT_FOUND;
    }
    if (is_folder) {
        printf("%s\n%s\n", search.root, search.folder);
        return USABLE;
    }
    char *headers = text("%s/include/hip/%s%s", search.root, "hip_runtime_api.h", "");
    int has_headers = access(headers, R_OK) == 0;
    printf("folder:   %s\nlibrary:  %s/" WANTED_SONAME "\nheaders:  %s\n", search.root, search.folder,
           has_headers ? headers : "none; programs run, but nothing can be built on it");
    return USABLE;
}

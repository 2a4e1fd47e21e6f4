/* SPDX-License-Identifier: BSD-3-Clause */
#include "search.h"

#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const MODULE_VARIABLES[] = {"CRAY_MPICH_DIR", "MPICH_DIR", "CRAY_MPICH_PREFIX",
                                               "CRAY_MPICH_ROOTDIR"};
static const char *const PATH_VARIABLES[] = {"LD_LIBRARY_PATH", "CRAY_LD_LIBRARY_PATH"};
static const char *const GTL_VARIABLES[] = {"PE_MPICH_GTL_DIR_nvidia90", "PE_MPICH_GTL_DIR_nvidia80",
                                            "PE_MPICH_GTL_DIR_nvidia70"};
#define COUNT(array) (sizeof(array) / sizeof *(array))
#define ABI_FOLDER "lib-abi-mpich"

static char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));

static char *text(const char *format, ...) {
    char *made = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&made, format, arguments) < 0) {
        fputs("mpich-external-check: out of memory\n", stderr);
        exit(70);
    }
    va_end(arguments);
    return made;
}

static void note(struct search *search, const char *place, const char *what) {
    char *longer = text("%s    %s: %s\n", search->looked ? search->looked : "", place, what);
    free(search->looked);
    search->looked = longer;
}

/* Links are resolved, so that what was found stays what it is, and is listed once. */
static void add(struct search *search, const char *named, const char *name, const char *from) {
    char *folder = realpath(named, NULL);
    if (folder == NULL) folder = text("%s", named);
    char *file = text("%s/%s", folder, name);
    for (size_t i = 0; i < search->count; i++)
        if (strcmp(search->found[i].file, file) == 0) return;
    search->found = realloc(search->found, (search->count + 1) * sizeof *search->found);
    if (search->found == NULL) exit(70);
    search->found[search->count++] = (struct library){folder, file, text("%s", from)};
}

/* A folder's libmpi: the one of the wanted name, else the first of another, so that it can be told why not. */
static int add_from_folder(struct search *search, const char *folder, const char *from) {
    char *wanted = text("%s/%s", folder, WANTED_SONAME), *others = text("%s/libmpi.so*", folder);
    glob_t matches;
    int is_found = access(wanted, F_OK) == 0;
    if (is_found) {
        add(search, folder, WANTED_SONAME, from);
    } else if (glob(others, 0, NULL, &matches) == 0) {
        add(search, folder, strrchr(matches.gl_pathv[matches.gl_pathc - 1], '/') + 1, from);
        is_found = 1;
        globfree(&matches);
    }
    free(wanted);
    free(others);
    return is_found;
}

/* Newer versions first; of one version the folder for GNU's compilers, which conda's are. */
static int best_first(const void *left, const void *right) {
    const char *a = *(char *const *)left, *b = *(char *const *)right;
    int gnu = (strstr(b, "/ofi/gnu/") != NULL) - (strstr(a, "/ofi/gnu/") != NULL);
    const char *a_rest = strstr(a, "/ofi/"), *b_rest = strstr(b, "/ofi/");
    if (a_rest && b_rest && (a_rest - a != b_rest - b || strncmp(a, b, (size_t)(a_rest - a)) != 0))
        return strverscmp(b, a);
    return gnu ? gnu : strverscmp(b, a);
}

static int add_matches(struct search *search, const char *pattern, const char *from) {
    glob_t matches;
    int found = 0;
    if (glob(pattern, GLOB_ONLYDIR, NULL, &matches) != 0) return 0;
    qsort(matches.gl_pathv, matches.gl_pathc, sizeof *matches.gl_pathv, best_first);
    for (size_t i = 0; i < matches.gl_pathc; i++) found += add_from_folder(search, matches.gl_pathv[i], from);
    globfree(&matches);
    return found;
}

/* A folder that a person or module names: the libraries' own, a compiler's (.../ofi/gnu/9.1) or a version's root. */
static void add_named(struct search *search, const char *variable, const char *folder) {
    char *from = text("%s=%s", variable, folder);
    char *inside = text("%s/" ABI_FOLDER, folder), *below = text("%s/ofi/*/*/" ABI_FOLDER, folder);
    int found = add_from_folder(search, folder, from) || add_from_folder(search, inside, from) ||
                add_matches(search, below, from);
    note(search, from, found ? "holds a libmpi" : access(folder, F_OK) ? "there is no such folder" : "no libmpi there");
    free(from);
    free(inside);
    free(below);
}

static void add_variable(struct search *search, const char *variable) {
    const char *value = getenv(variable);
    if (value == NULL || *value == '\0')
        note(search, variable, "not set");
    else
        add_named(search, variable, value);
}

/* What the module cray-mpich-abi does: the folder itself on the loader's path. */
static void add_from_path(struct search *search, const char *variable) {
    const char *value = getenv(variable);
    char *entries = text("%s", value ? value : ""), *rest = entries;
    int found = 0;
    for (char *entry = strsep(&rest, ":"); entry; entry = strsep(&rest, ":")) {
        size_t length = strlen(entry), suffix = strlen("/" ABI_FOLDER);
        while (length > 1 && entry[length - 1] == '/') entry[--length] = '\0';
        if (length > suffix && strcmp(entry + length - suffix, "/" ABI_FOLDER) == 0)
            found += add_from_folder(search, entry, variable);
    }
    note(search, variable, found ? "names a " ABI_FOLDER : "names no " ABI_FOLDER);
    free(entries);
}

struct search search_libraries(void) {
    struct search search = {0};
    const char *user = getenv(USER_VARIABLE), *root = getenv(ROOT_VARIABLE);
    add_variable(&search, USER_VARIABLE);
    if (user != NULL && *user != '\0') return search;
    for (size_t i = 0; i < COUNT(MODULE_VARIABLES); i++) add_variable(&search, MODULE_VARIABLES[i]);
    for (size_t i = 0; i < COUNT(PATH_VARIABLES); i++) add_from_path(&search, PATH_VARIABLES[i]);
    char *pattern = text("%s/mpich/*/ofi/*/*/" ABI_FOLDER, root && *root ? root : DEFAULT_ROOT);
    note(&search, pattern, add_matches(&search, pattern, pattern) ? "holds a libmpi" : "nothing there");
    free(pattern);
    return search;
}

static char *gtl_in(const char *folder, char **file) {
    static const char *const names[] = {"libmpi_gtl_cuda.so.0", "libmpi_gtl_cuda.so"};
    for (size_t i = 0; i < COUNT(names); i++) {
        char *resolved = realpath(folder, NULL);
        if (resolved == NULL) break;
        *file = text("%s/%s", resolved, names[i]);
        if (access(*file, R_OK) == 0) return resolved;
        free(*file);
        free(resolved);
    }
    *file = NULL;
    return NULL;
}

char *find_gtl(const struct library *library, char **file) {
    /* <version>/ofi/<compiler>/<its version>/lib-abi-mpich and <version>/gtl/lib belong together */
    char *beside = text("%s/../../../../gtl/lib", library->folder);
    char *found = gtl_in(beside, file);
    free(beside);
    for (size_t i = 0; found == NULL && i < COUNT(GTL_VARIABLES); i++) {
        const char *value = getenv(GTL_VARIABLES[i]);
        if (value != NULL && *value != '\0') found = gtl_in(strncmp(value, "-L", 2) == 0 ? value + 2 : value, file);
    }
    return found;
}

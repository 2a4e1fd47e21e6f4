/* SPDX-License-Identifier: BSD-3-Clause
 * mpich-external-check: is there a Cray MPICH on this machine that can stand in for the package mpich? */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "elf_soname.h"
#include "probe.h"
#include "search.h"

enum code { USABLE = 0, USAGE = 2, NOT_FOUND = 3, WRONG_ABI = 4, NOT_LOADABLE = 5 };

static const char HELP[] =
    "usage: mpich-external-check [--activate | --version | --help]\n"
    "Says which Cray MPICH of this machine stands in for mpich in this environment, and whether it can.\n"
    "\n"
    "  --activate  for the activation script: the loader's folders on the first line, on the second the GPU\n"
    "              transport layer or nothing; messages only when something is wrong\n"
    "\n"
    "exit codes: 0 usable, 2 wrong usage, 3 none found, 4 found but with another ABI, 5 cannot be loaded here\n"
    "\n"
    "looked at, in this order: " USER_VARIABLE " (then nothing else), CRAY_MPICH_DIR, MPICH_DIR, CRAY_MPICH_PREFIX,\n"
    "CRAY_MPICH_ROOTDIR, folders lib-abi-mpich on LD_LIBRARY_PATH and CRAY_LD_LIBRARY_PATH, and\n"
    DEFAULT_ROOT "/mpich/*/ofi/*/*/lib-abi-mpich (" ROOT_VARIABLE " replaces " DEFAULT_ROOT ")\n";

struct choice {
    const struct library *library; /* the first with the wanted ABI, or NULL */
    char *refused;                 /* one line per library before it that has another */
};

static struct choice choose(const struct search *search) {
    struct choice choice = {0};
    for (size_t i = 0; i < search->count && choice.library == NULL; i++) {
        const struct library *library = &search->found[i];
        char soname[256] = "";
        const char *problem = read_soname(library->file, soname, sizeof soname);
        if (problem == NULL && strcmp(soname, WANTED_SONAME) == 0) {
            choice.library = library;
            break;
        }
        char *longer = NULL;
        if (asprintf(&longer, "%s    %s %s%s\n", choice.refused ? choice.refused : "", library->file,
                     problem ? problem : "has the SONAME ", problem ? "" : soname) < 0)
            exit(70);
        free(choice.refused);
        choice.refused = longer;
    }
    return choice;
}

static void say_unusable(const struct search *search, const struct choice *choice) {
    fprintf(stderr,
            "mpich-external-check: no Cray MPICH that this environment can use\n"
            "  looked at:\n%s"
            "  found:\n%s"
            "  expected: a folder lib-abi-mpich with a library whose SONAME is " WANTED_SONAME " (the MPICH ABI)\n"
            "  what to do: load the site's module (module load cray-mpich), or export " USER_VARIABLE
            "=FOLDER,\n"
            "    and activate the environment again; on a machine without Cray MPICH, install mpich without\n"
            "    =*=external_cray*\n",
            search->looked, choice->refused ? choice->refused : "    no libmpi at all\n");
}

static void say_not_loadable(const struct library *library, const char *problem) {
    fprintf(stderr,
            "mpich-external-check: the site's MPICH has the right ABI but cannot be loaded on this machine\n"
            "  found: %s (from %s)\n"
            "  problem: %s\n"
            "  expected: that it finds its own libraries (libfabric, libpmi ...)\n"
            "  what to do: load the modules that it needs (craype, libfabric, cray-pmi); a login node may lack them\n"
            "    where a compute node has them\n",
            library->file, library->from, problem);
}

static void note_older(const struct library *library, const struct answer *answer) {
    fprintf(stderr,
            "mpich-external-check: note: %s offers MPI %d.%d; this package stands for mpich " PACKAGE_VERSION
            ", MPI %d.%d.\n"
            "  Programs that call newer functions stop with an undefined symbol.\n",
            library->file, answer->standard / 100, answer->standard / 10 % 10, MPI_STANDARD / 100,
            MPI_STANDARD / 10 % 10);
}

static void report(const struct search *search, const struct library *library, const struct answer *answer,
                   const char *gtl, const char *folders) {
    char *file = realpath(library->file, NULL);
    printf("library:      %s\n", file ? file : library->file);
    printf("found by:     %s\n", library->from);
    printf("ABI:          " WANTED_SONAME "\n");
    printf("version:      %s\n", answer->problem[0] ? "unknown: cannot be loaded here" : answer->version);
    if (!answer->problem[0])
        printf("MPI standard: %d.%d\n", answer->standard / 100, answer->standard / 10 % 10);
    printf("GPU (GTL):    %s\n", gtl ? gtl : "none");
    printf("loader path:  %s\n", folders);
    for (size_t i = 0; i < search->count; i++)
        if (&search->found[i] != library) printf("not taken:    %s\n", search->found[i].file);
    free(file);
}

static int check(int is_activation) {
    struct search search = search_libraries();
    struct choice choice = choose(&search);
    if (choice.library == NULL) {
        say_unusable(&search, &choice);
        return search.count ? WRONG_ABI : NOT_FOUND;
    }
    char *gtl_file = NULL, *gtl = find_gtl(choice.library, &gtl_file), *folders = NULL;
    if (asprintf(&folders, "%s%s%s", choice.library->folder, gtl ? ":" : "", gtl ? gtl : "") < 0) return 70;
    struct answer answer = probe_library(choice.library->file, folders);
    if (is_activation)
        printf("%s\n%s\n", folders, gtl_file ? gtl_file : "");
    else
        report(&search, choice.library, &answer, gtl_file, folders);
    if (answer.problem[0]) {
        say_not_loadable(choice.library, answer.problem);
        return NOT_LOADABLE;
    }
    if (answer.standard < MPI_STANDARD) note_older(choice.library, &answer);
    return USABLE;
}

int main(int count, char **arguments) {
    if (count == 1) return check(0);
    if (count == 2 && strcmp(arguments[1], "--activate") == 0) return check(1);
    if (count == 3 && strcmp(arguments[1], "--probe") == 0) return answer_probe(arguments[2]);
    if (count == 2 && strcmp(arguments[1], "--version") == 0)
        return printf("mpich-external-check %s\n", PACKAGE_VERSION) < 0;
    if (count == 2 && strcmp(arguments[1], "--help") == 0) return fputs(HELP, stdout) < 0;
    fputs(HELP, stderr);
    return USAGE;
}

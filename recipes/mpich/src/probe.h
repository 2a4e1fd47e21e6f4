/* SPDX-License-Identifier: BSD-3-Clause
 * Asking a library who it is, in a process of its own: what it does when it is loaded is the site's business. */
#ifndef PROBE_H
#define PROBE_H

struct answer {
    char problem[1024]; /* empty: the library was loaded and answered */
    char version[1024]; /* the first line of MPI_Get_library_version */
    int standard;       /* 300 for MPI 3.0 */
};

/* Load file with folders in front of the loader's path. */
struct answer probe_library(const char *file, const char *folders);

/* The other end, in the process that probe_library starts. Returns its exit code. */
int answer_probe(const char *file);

#endif

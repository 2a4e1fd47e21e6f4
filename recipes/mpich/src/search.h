/* SPDX-License-Identifier: BSD-3-Clause
 * The closed list of places where the site's MPICH is looked for, in order. */
#ifndef SEARCH_H
#define SEARCH_H

#include <stddef.h>

struct library {
    char *folder; /* holds the library; what goes onto LD_LIBRARY_PATH */
    char *file;   /* the library's path */
    char *from;   /* the rule that led there, for people */
};

struct search {
    struct library *found;
    size_t count;
    char *looked; /* one line per place, with what was there */
};

#define USER_VARIABLE "CHANNEL_CRAY_MPICH_DIR"
#define ROOT_VARIABLE "CHANNEL_CRAY_PE_ROOT"
#define DEFAULT_ROOT "/opt/cray/pe"

/* Every libmpi that the list leads to, best first; with USER_VARIABLE set nothing else is looked at. */
struct search search_libraries(void);

/* The folder of the GPU transport layer (libmpi_gtl_cuda) that belongs to a library, or NULL. */
char *find_gtl(const struct library *library, char **file);

#endif

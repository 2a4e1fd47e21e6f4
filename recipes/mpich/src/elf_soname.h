/* SPDX-License-Identifier: BSD-3-Clause
 * What the loader would call a shared library, read from the file without loading it. */
#ifndef ELF_SONAME_H
#define ELF_SONAME_H

#include <stddef.h>

/* Put the SONAME of the library at path into soname. Returns NULL, or why there is none (static text). */
const char *read_soname(const char *path, char *soname, size_t size);

#endif

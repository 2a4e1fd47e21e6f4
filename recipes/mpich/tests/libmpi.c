/* SPDX-License-Identifier: BSD-3-Clause
 * A library with the two functions that identify an MPI; which one it is, is said when it is compiled. */
#include <stdio.h>

int MPI_Get_version(int *version, int *subversion) {
    *version = STANDARD / 100;
    *subversion = STANDARD / 10 % 10;
    return 0;
}

int MPI_Get_library_version(char *version, int *length) {
    *length = sprintf(version, "%s\nsecond line", LIBRARY);
    return 0;
}

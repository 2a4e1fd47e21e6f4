/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Stands in for libmpi.so.12. Which queries exist is chosen when it is compiled (WITH_QUERY_CUDA, WITH_QUERY_GPU), what
 * they answer by the environment of the process, read at every call:
 *
 *   FAKE_VERSION             what MPI_Get_library_version says
 *   FAKE_INITIALIZED, _FINALIZED
 *   FAKE_CUDA                the answer of MPIX_Query_cuda_support
 *   FAKE_GPU_KIND            the kind of GPU that MPIX_GPU_query_support says yes to: 0 CUDA, 1 ZE, 2 HIP
 *   FAKE_GPU_STATUS          the status it returns
 */
#include "mpi.h"

#include <stdlib.h>
#include <string.h>

static int number(const char *name, int otherwise)
{
    const char *const value = getenv(name);
    return value != NULL ? atoi(value) : otherwise;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)argc, (void)argv;
    *provided = required;
    return MPI_SUCCESS;
}

int MPI_Initialized(int *flag)
{
    *flag = number("FAKE_INITIALIZED", 1);
    return MPI_SUCCESS;
}

int MPI_Finalized(int *flag)
{
    *flag = number("FAKE_FINALIZED", 0);
    return MPI_SUCCESS;
}

int MPI_Get_library_version(char *version, int *length)
{
    const char *const text = getenv("FAKE_VERSION");
    strncpy(version, text != NULL ? text : "", MPI_MAX_LIBRARY_VERSION_STRING - 1);
    version[MPI_MAX_LIBRARY_VERSION_STRING - 1] = '\0';
    *length = (int)strlen(version);
    return MPI_SUCCESS;
}

#ifdef WITH_QUERY_CUDA
int MPIX_Query_cuda_support(void)
{
    return number("FAKE_CUDA", 0);
}
#endif

#ifdef WITH_QUERY_GPU
int MPIX_GPU_query_support(int kind, int *supported)
{
    *supported = kind == number("FAKE_GPU_KIND", -1);
    return number("FAKE_GPU_STATUS", MPI_SUCCESS);
}
#endif

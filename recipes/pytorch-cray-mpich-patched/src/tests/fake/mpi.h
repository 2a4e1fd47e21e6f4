/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the check asks every MPI for, and nothing that names one: neither MPIX_CUDA_AWARE_SUPPORT nor
 * MPIX_GPU_SUPPORT_CUDA. */
#ifndef FAKE_MPI_H
#define FAKE_MPI_H

#define MPI_SUCCESS 0
#define MPI_MAX_LIBRARY_VERSION_STRING 8192

#ifdef __cplusplus
extern "C" {
#endif

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPI_Initialized(int *flag);
int MPI_Finalized(int *flag);
int MPI_Get_library_version(char *version, int *length);

#ifdef __cplusplus
}
#endif

#endif /* FAKE_MPI_H */

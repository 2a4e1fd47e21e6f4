// SPDX-License-Identifier: BSD-3-Clause
//
// The MPI library of this process: its start and end, what it says of itself,
// and how its errors are told.
#pragma once

#include <mpi.h>

#include <exception>
#include <string>

namespace torch_mpi {

struct LibraryFacts {
    std::string version;        // the first line of MPI_Get_library_version
    std::string path;           // the file that MPI_Init_thread comes from
    int standard = 0;           // of MPI: 400 for 4.0
    int thread_level = 0;       // MPI_THREAD_SINGLE ... MPI_THREAD_MULTIPLE
    bool started_here = false;  // else somebody else did, and ends it
    int rank = 0;               // in MPI_COMM_WORLD
    int size = 1;
};

// Starts MPI unless it is started, and says what it is; the same answer each
// time. Throws std::runtime_error where it cannot be started.
const LibraryFacts &start_library();

// Whether MPI can be called: started, not ended, and not in a child by fork().
bool library_usable();

// Throws c10::DistBackendError with the reason where it cannot.
void require_library();

// Lets nobody call MPI any more. If start_library started it, the end of the process ends it: where that exits with 0,
// MPI_Finalize waits for the other ranks; with another exit code, which only exit() is told, all ranks are ended.
void finish_library();

// Ends all ranks of MPI_COMM_WORLD, this one too, if start_library started MPI. Waits, for two seconds at most, until
// the launcher has read what this process has printed: MPICH's mpiexec (4.0.2) lost the last lines of 79 of 600 ranks
// that printed an error and called MPI_Abort at once.
void abort_library(int code);

// Throws c10::DistBackendError with MPI's own text unless `code` is MPI_SUCCESS.
void check(int code, const char *call);

// What works, futures and calls raise.
std::exception_ptr backend_error(const std::string &message);
[[noreturn]] void throw_backend_error(const std::string &message);

// MPI's text for an error.
std::string error_text(int code);

// A function that this MPI may have, or null: looked up at run time, so that one
// build serves libraries of several MPI standards.
template <typename Function>
Function find_function(const char *name);
void *find_symbol(const char *name);

template <typename Function>
Function find_function(const char *name) {
    return reinterpret_cast<Function>(find_symbol(name));
}

}  // namespace torch_mpi

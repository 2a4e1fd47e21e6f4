// SPDX-License-Identifier: BSD-3-Clause
//
// MPI's non-blocking calls for any number of elements: its int calls, and above
// 2^31-1 the `_c` calls of MPI 4. Where the library has none, what works element
// by element (allreduce, reduce) goes in several calls, as a broadcast always
// does, and the rest is an error. Each adds what it starts to the requests given;
// all throw c10::DistBackendError.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace torch_mpi {

// What MPI works on for one operation, and the arrays that it reads meanwhile.
struct Requests {
    std::vector<MPI_Request> all;
    std::vector<std::shared_ptr<const void>> arrays;

    MPI_Request *add();

    // A copy of `values` in the type that a call takes, which lives as long as this.
    template <typename T>
    const T *keep(const std::vector<int64_t> &values) {
        const auto kept = std::make_shared<const std::vector<T>>(values.begin(), values.end());
        arrays.push_back(kept);
        return kept->data();
    }
};

// Where each rank's part of a buffer begins, and how long it is, in elements.
struct Parts {
    std::vector<int64_t> counts;
    std::vector<int64_t> starts;

    static Parts of(std::vector<int64_t> counts);
    int64_t total() const;
};

void allreduce(void *buffer, int64_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, Requests &requests);
// `buffer` has the result on `root`, and is only read elsewhere.
void reduce(void *buffer, int64_t count, MPI_Datatype type, MPI_Op op, int root, bool is_root, MPI_Comm comm,
            Requests &requests);
void broadcast(void *buffer, int64_t count, MPI_Datatype type, int root, MPI_Comm comm, Requests &requests);
void allgather(const void *input, int64_t count, void *output, MPI_Datatype type, MPI_Comm comm, Requests &requests);
void allgatherv(const void *input, int64_t count, void *output, const Parts &parts, MPI_Datatype type, MPI_Comm comm,
                Requests &requests);
void gather(const void *input, int64_t count, void *output, MPI_Datatype type, int root, MPI_Comm comm,
            Requests &requests);
void scatter(const void *input, int64_t count, void *output, MPI_Datatype type, int root, MPI_Comm comm,
             Requests &requests);
void reduce_scatter(const void *input, void *output, int64_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                    Requests &requests);
void reduce_scatterv(const void *input, void *output, const Parts &parts, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                     Requests &requests);
void alltoall(const void *input, int64_t count, void *output, MPI_Datatype type, MPI_Comm comm, Requests &requests);
void alltoallv(const void *input, const Parts &sent, void *output, const Parts &received, MPI_Datatype type,
               MPI_Comm comm, Requests &requests);
void send(const void *buffer, int64_t count, MPI_Datatype type, int destination, int tag, MPI_Comm comm,
          Requests &requests);
void receive(void *buffer, int64_t count, MPI_Datatype type, int source, int tag, MPI_Comm comm, Requests &requests);

// How many elements an int call is given at most, and whether MPI 4's calls are
// used where the library has them. Tests set less, for few machines have memory
// for more than INT_MAX elements, and tests have one MPI.
void limit_calls(int64_t largest_count, bool use_large_calls);

}  // namespace torch_mpi

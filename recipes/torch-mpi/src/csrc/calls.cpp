// SPDX-License-Identifier: BSD-3-Clause
#include "calls.h"

#include <algorithm>
#include <climits>
#include <string>
#include <utility>

#include "library.h"

namespace torch_mpi {

namespace {

int64_t limit = INT_MAX;
bool large_calls_allowed = true;

bool fits(int64_t count) { return count <= limit; }

bool fits(const Parts &parts) { return fits(parts.total()); }

// MPI 4's variant of a call, or null where the library is older.
template <typename Function>
Function large_call_if_any(const char *name) {
    return large_calls_allowed ? find_function<Function>(name) : nullptr;
}

// The same; throws where the library is older.
template <typename Function>
Function large_call(const char *name, int64_t count) {
    const auto found = large_call_if_any<Function>(name);
    if (found == nullptr) {
        throw_backend_error(std::to_string(count) + " elements in one call: this MPI library takes " +
                            std::to_string(limit) + " at most, for it has no " + name +
                            " (MPI 4); use a newer MPI, or smaller tensors");
    }
    return found;
}

using In = const void *;
using Reduce = int (*)(In, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
using RootedReduce = int (*)(In, void *, MPI_Count, MPI_Datatype, MPI_Op, int, MPI_Comm, MPI_Request *);
using Exchange = int (*)(In, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, MPI_Comm, MPI_Request *);
using RootedExchange = int (*)(In, MPI_Count, MPI_Datatype, void *, MPI_Count, MPI_Datatype, int, MPI_Comm,
                               MPI_Request *);
using Allgatherv = int (*)(In, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype,
                           MPI_Comm, MPI_Request *);
using ReduceScatterv = int (*)(In, void *, const MPI_Count *, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *);
using Alltoallv = int (*)(In, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *, const MPI_Count *,
                          const MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Request *);
using Send = int (*)(In, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
using Receive = int (*)(void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

// Has `call` start a part after the other, none longer than an int counts.
template <typename Call>
void in_parts(void *buffer, int64_t count, MPI_Datatype type, Call call) {
    int size = 0;
    check(MPI_Type_size(type, &size), "MPI_Type_size");
    for (int64_t start = 0; start < count; start += limit) {
        call(static_cast<char *>(buffer) + start * size, static_cast<int>(std::min(limit, count - start)));
    }
}

}  // namespace

MPI_Request *Requests::add() {
    all.push_back(MPI_REQUEST_NULL);
    return &all.back();
}

Parts Parts::of(std::vector<int64_t> counts) {
    Parts parts;
    parts.starts.reserve(counts.size());
    int64_t start = 0;
    for (const int64_t count : counts) {
        parts.starts.push_back(start);
        start += count;
    }
    parts.counts = std::move(counts);
    return parts;
}

int64_t Parts::total() const { return counts.empty() ? 0 : starts.back() + counts.back(); }

void limit_calls(int64_t largest_count, bool use_large_calls) {
    limit = std::clamp<int64_t>(largest_count, 1, INT_MAX);
    large_calls_allowed = use_large_calls;
}

void allreduce(void *buffer, int64_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, Requests &requests) {
    const auto start = [&](void *part, int numel) {
        check(MPI_Iallreduce(MPI_IN_PLACE, part, numel, type, op, comm, requests.add()), "MPI_Iallreduce");
    };
    if (fits(count)) {
        start(buffer, static_cast<int>(count));
    } else if (const auto call = large_call_if_any<Reduce>("MPI_Iallreduce_c")) {
        check(call(MPI_IN_PLACE, buffer, count, type, op, comm, requests.add()), "MPI_Iallreduce_c");
    } else {
        in_parts(buffer, count, type, start);
    }
}

void reduce(void *buffer, int64_t count, MPI_Datatype type, MPI_Op op, int root, bool is_root, MPI_Comm comm,
            Requests &requests) {
    const auto input = [is_root](void *part) -> const void * { return is_root ? MPI_IN_PLACE : part; };
    const auto output = [is_root](void *part) { return is_root ? part : nullptr; };
    const auto start = [&](void *part, int numel) {
        check(MPI_Ireduce(input(part), output(part), numel, type, op, root, comm, requests.add()), "MPI_Ireduce");
    };
    if (fits(count)) {
        start(buffer, static_cast<int>(count));
    } else if (const auto call = large_call_if_any<RootedReduce>("MPI_Ireduce_c")) {
        check(call(input(buffer), output(buffer), count, type, op, root, comm, requests.add()), "MPI_Ireduce_c");
    } else {
        in_parts(buffer, count, type, start);
    }
}

void broadcast(void *buffer, int64_t count, MPI_Datatype type, int root, MPI_Comm comm, Requests &requests) {
    const auto start = [&](void *part, int numel) {
        check(MPI_Ibcast(part, numel, type, root, comm, requests.add()), "MPI_Ibcast");
    };
    if (fits(count)) {
        start(buffer, static_cast<int>(count));
    } else {
        in_parts(buffer, count, type, start);  // MPICH 4.0's MPI_Ibcast_c fails from 2^31 elements on
    }
}

void allgather(const void *input, int64_t count, void *output, MPI_Datatype type, MPI_Comm comm, Requests &requests) {
    if (fits(count)) {
        const int numel = static_cast<int>(count);
        check(MPI_Iallgather(input, numel, type, output, numel, type, comm, requests.add()), "MPI_Iallgather");
        return;
    }
    const auto call = large_call<Exchange>("MPI_Iallgather_c", count);
    check(call(input, count, type, output, count, type, comm, requests.add()), "MPI_Iallgather_c");
}

void allgatherv(const void *input, int64_t count, void *output, const Parts &parts, MPI_Datatype type, MPI_Comm comm,
                Requests &requests) {
    if (fits(parts)) {
        const int *const counts = requests.keep<int>(parts.counts);
        const int *const starts = requests.keep<int>(parts.starts);
        const int numel = static_cast<int>(count);
        check(MPI_Iallgatherv(input, numel, type, output, counts, starts, type, comm, requests.add()),
              "MPI_Iallgatherv");
        return;
    }
    const auto call = large_call<Allgatherv>("MPI_Iallgatherv_c", parts.total());
    const auto *const counts = requests.keep<MPI_Count>(parts.counts);
    const auto *const starts = requests.keep<MPI_Aint>(parts.starts);
    check(call(input, count, type, output, counts, starts, type, comm, requests.add()), "MPI_Iallgatherv_c");
}

void gather(const void *input, int64_t count, void *output, MPI_Datatype type, int root, MPI_Comm comm,
            Requests &requests) {
    if (fits(count)) {
        const int numel = static_cast<int>(count);
        check(MPI_Igather(input, numel, type, output, numel, type, root, comm, requests.add()), "MPI_Igather");
        return;
    }
    const auto call = large_call<RootedExchange>("MPI_Igather_c", count);
    check(call(input, count, type, output, count, type, root, comm, requests.add()), "MPI_Igather_c");
}

void scatter(const void *input, int64_t count, void *output, MPI_Datatype type, int root, MPI_Comm comm,
             Requests &requests) {
    if (fits(count)) {
        const int numel = static_cast<int>(count);
        check(MPI_Iscatter(input, numel, type, output, numel, type, root, comm, requests.add()), "MPI_Iscatter");
        return;
    }
    const auto call = large_call<RootedExchange>("MPI_Iscatter_c", count);
    check(call(input, count, type, output, count, type, root, comm, requests.add()), "MPI_Iscatter_c");
}

void reduce_scatter(const void *input, void *output, int64_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                    Requests &requests) {
    if (fits(count)) {
        const int numel = static_cast<int>(count);
        check(MPI_Ireduce_scatter_block(input, output, numel, type, op, comm, requests.add()),
              "MPI_Ireduce_scatter_block");
        return;
    }
    const auto call = large_call<Reduce>("MPI_Ireduce_scatter_block_c", count);
    check(call(input, output, count, type, op, comm, requests.add()), "MPI_Ireduce_scatter_block_c");
}

void reduce_scatterv(const void *input, void *output, const Parts &parts, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                     Requests &requests) {
    if (fits(parts)) {
        const int *const counts = requests.keep<int>(parts.counts);
        check(MPI_Ireduce_scatter(input, output, counts, type, op, comm, requests.add()), "MPI_Ireduce_scatter");
        return;
    }
    const auto call = large_call<ReduceScatterv>("MPI_Ireduce_scatter_c", parts.total());
    const auto *const counts = requests.keep<MPI_Count>(parts.counts);
    check(call(input, output, counts, type, op, comm, requests.add()), "MPI_Ireduce_scatter_c");
}

void alltoall(const void *input, int64_t count, void *output, MPI_Datatype type, MPI_Comm comm, Requests &requests) {
    if (fits(count)) {
        const int numel = static_cast<int>(count);
        check(MPI_Ialltoall(input, numel, type, output, numel, type, comm, requests.add()), "MPI_Ialltoall");
        return;
    }
    const auto call = large_call<Exchange>("MPI_Ialltoall_c", count);
    check(call(input, count, type, output, count, type, comm, requests.add()), "MPI_Ialltoall_c");
}

void alltoallv(const void *input, const Parts &sent, void *output, const Parts &received, MPI_Datatype type,
               MPI_Comm comm, Requests &requests) {
    if (fits(sent) && fits(received)) {
        const int *const sent_counts = requests.keep<int>(sent.counts);
        const int *const sent_starts = requests.keep<int>(sent.starts);
        const int *const counts = requests.keep<int>(received.counts);
        const int *const starts = requests.keep<int>(received.starts);
        check(MPI_Ialltoallv(input, sent_counts, sent_starts, type, output, counts, starts, type, comm, requests.add()),
              "MPI_Ialltoallv");
        return;
    }
    const auto call = large_call<Alltoallv>("MPI_Ialltoallv_c", std::max(sent.total(), received.total()));
    const auto *const sent_counts = requests.keep<MPI_Count>(sent.counts);
    const auto *const sent_starts = requests.keep<MPI_Aint>(sent.starts);
    const auto *const counts = requests.keep<MPI_Count>(received.counts);
    const auto *const starts = requests.keep<MPI_Aint>(received.starts);
    check(call(input, sent_counts, sent_starts, type, output, counts, starts, type, comm, requests.add()),
          "MPI_Ialltoallv_c");
}

void send(const void *buffer, int64_t count, MPI_Datatype type, int destination, int tag, MPI_Comm comm,
          Requests &requests) {
    if (fits(count)) {
        check(MPI_Isend(buffer, static_cast<int>(count), type, destination, tag, comm, requests.add()), "MPI_Isend");
        return;
    }
    const auto call = large_call<Send>("MPI_Isend_c", count);
    check(call(buffer, count, type, destination, tag, comm, requests.add()), "MPI_Isend_c");
}

void receive(void *buffer, int64_t count, MPI_Datatype type, int source, int tag, MPI_Comm comm, Requests &requests) {
    if (fits(count)) {
        check(MPI_Irecv(buffer, static_cast<int>(count), type, source, tag, comm, requests.add()), "MPI_Irecv");
        return;
    }
    const auto call = large_call<Receive>("MPI_Irecv_c", count);
    check(call(buffer, count, type, source, tag, comm, requests.add()), "MPI_Irecv_c");
}

}  // namespace torch_mpi

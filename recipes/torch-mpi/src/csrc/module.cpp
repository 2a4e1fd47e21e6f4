// SPDX-License-Identifier: BSD-3-Clause
//
// torch_mpi._C: what the Python side of the plugin sees of all this.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/MPICudaAware.hpp>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "backend.h"
#include "buffer.h"
#include "calls.h"
#include "counters.h"
#include "elements.h"
#include "engine.h"
#include "library.h"

namespace py = pybind11;

namespace torch_mpi {

namespace {

const char *name_of_level(int level) {
    switch (level) {
        case MPI_THREAD_SINGLE: return "MPI_THREAD_SINGLE";
        case MPI_THREAD_FUNNELED: return "MPI_THREAD_FUNNELED";
        case MPI_THREAD_SERIALIZED: return "MPI_THREAD_SERIALIZED";
        default: return "MPI_THREAD_MULTIPLE";
    }
}

py::dict counts() {
    py::dict collectives;
    for (const auto &[name, sums] : Counters::get().carried()) {
        py::dict row;
        row["calls"] = sums.calls;
        row["elements"] = sums.elements;
        row["bytes"] = sums.bytes;
        collectives[py::str(name)] = row;
    }
    py::dict result;
    result["collectives"] = collectives;
    result["failed"] = Counters::get().failed();
    result["staged_tensors"] = Counters::get().staged();
    return result;
}

py::list collectives() {
    std::vector<GroupCalls> calls;
    {
        const py::gil_scoped_release released;  // whoever has the engine may wait for it
        calls = Engine::get().calls();
    }
    py::list found;
    for (const GroupCalls &group : calls) {
        py::list pending;
        for (const OpenCall &call : group.pending) {
            py::dict row;
            row["number"] = call.number;
            row["is_message"] = call.number == 0;
            row["kind"] = call.name;
            row["sizes"] = call.sizes;
            row["dtypes"] = call.dtypes;
            pending.append(row);
        }
        py::dict row;
        row["group"] = group.group;
        row["entered"] = group.entered;
        row["pending"] = pending;
        found.append(row);
    }
    return found;
}

const LibraryFacts &start() {
    static const LibraryFacts &facts = []() -> const LibraryFacts & {
        const LibraryFacts &started = start_library();
        make_elements();
        return started;
    }();
    return facts;
}

// How long MPI may take to end while it still works on an operation that failed here.
constexpr std::chrono::seconds kLastWait{30};

// Waits for what is under way; the end of the process ends MPI, which waits for
// the other ranks. Where an operation failed that MPI still works on, they may not
// come: then this process ends after a while, which its launcher takes for what it is.
void finish() {
    if (!library_usable()) {
        return;
    }
    if (!Engine::get().stop()) {
        std::thread([] {
            std::this_thread::sleep_for(kLastWait);
            _exit(EXIT_FAILURE);
        }).detach();
    }
    free_elements();
    finish_library();
}

void bind_library(py::module_ &module) {
    py::class_<LibraryFacts>(module, "Library")
        .def_readonly("version", &LibraryFacts::version)
        .def_readonly("path", &LibraryFacts::path)
        .def_readonly("standard", &LibraryFacts::standard)
        .def_readonly("started_here", &LibraryFacts::started_here)
        .def_readonly("rank", &LibraryFacts::rank)
        .def_readonly("size", &LibraryFacts::size)
        .def_property_readonly("thread_level",
                               [](const LibraryFacts &facts) { return name_of_level(facts.thread_level); })
        .def_property_readonly("serves_threads",
                               [](const LibraryFacts &facts) { return facts.thread_level >= MPI_THREAD_SERIALIZED; });
    const auto released = py::call_guard<py::gil_scoped_release>();
    module.def("start", &start, py::return_value_policy::reference, released);
    module.def("finish", &finish, released);
    module.def("abort", &abort_library, py::arg("code"), released);
}

void bind_devices(py::module_ &module) {
    py::enum_<DevicePolicy>(module, "DevicePolicy")
        .value("AUTO", DevicePolicy::kAuto)
        .value("REQUIRE", DevicePolicy::kRequire)
        .value("HOST", DevicePolicy::kHost);
    module.def("set_device_policy", &set_device_policy, py::arg("policy"));
    module.def("cuda_awareness", [] {
        const c10d::CudaAwareness answer = c10d::cudaAwareness();
        return py::make_tuple(answer.aware, answer.reason);
    });
}

}  // namespace

}  // namespace torch_mpi

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    using namespace torch_mpi;
    module.doc() = "The compiled part of torch_mpi.";
    bind_library(module);
    bind_devices(module);
    module.def("counts", &counts);
    module.def("collectives", &collectives);
    module.def("limit_calls", &limit_calls, py::arg("largest_count"), py::arg("use_large_calls"));
    py::class_<MpiBackend, c10::intrusive_ptr<MpiBackend>, c10d::Backend>(module, "MpiBackend")
        .def_static("create", &MpiBackend::create, py::arg("ranks"), py::arg("timeout"),
                    py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("timeout", &MpiBackend::timeout);
}

// SPDX-License-Identifier: BSD-3-Clause
//
// torch_switchml._C: what the Python side of the plugin sees of all this.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include "backend.h"
#include "counters.h"
#include "host_board.h"
#include "library.h"
#include "peer_watch.h"
#include "session.h"

namespace py = pybind11;

namespace torch_switchml {

namespace {

using BackendType = c10d::ProcessGroup::BackendType;

// The type under which a group holds the delegating backend, beside its gloo:
// none of PyTorch's own, and not CUSTOM, which another plugin's may need.
constexpr auto kDelegating = static_cast<BackendType>(0x53);

// What c10d::ProcessGroup keeps protected.
struct GroupAccess : c10d::ProcessGroup {
    // Has no Python name before get_group_store: delete with PyTorch 2.5 to 2.8.
    static c10::intrusive_ptr<c10d::Store> store(const c10d::ProcessGroup &group) {
        return group.*(&GroupAccess::store_);
    }

    // Has the collectives of a device reach `delegating`, while whoever asks the
    // group for its gloo by type, as DDP's logger does to cast it, finds the gloo.
    // The type of its own makes the group's shutdown, abort and setTimeout, which
    // go through the types, reach it too.
    static void delegate(c10d::ProcessGroup &group, const at::Device &device,
                         const c10::intrusive_ptr<c10d::Backend> &gloo,
                         const c10::intrusive_ptr<SwitchMLBackend> &delegating) {
        group.setBackend(device.type(), BackendType::GLOO, gloo);
        (group.*(&GroupAccess::deviceTypeToBackend_))[device.type()] = delegating;
        (group.*(&GroupAccess::backendTypeToBackend_))[kDelegating] = delegating;
    }

    static uint64_t delegated(const c10d::ProcessGroup &group) {
        const auto &backends = group.*(&GroupAccess::backendTypeToBackend_);
        const auto found = backends.find(kDelegating);
        return found == backends.end() ? 0 : static_cast<SwitchMLBackend &>(*found->second).delegated();
    }
};

py::dict counters_to_dict(const Counters &counters) {
    const CountersSnapshot snapshot = counters.snapshot();
    py::dict delegated;
    for (const auto &[dtype, sums] : snapshot.delegated) {
        py::dict row;
        row["jobs"] = sums.jobs;
        row["elements"] = sums.elements;
        row["bytes"] = sums.bytes;
        delegated[py::str(dtype)] = row;
    }
    py::dict result;
    result["delegated"] = delegated;
    result["fallbacks"] = py::cast(snapshot.fallbacks);
    result["gloo_collectives"] = py::cast(snapshot.gloo_collectives);
    result["failed_jobs"] = snapshot.failed_jobs;
    result["copied_jobs"] = snapshot.copied_jobs;
    py::dict in_host;
    in_host["jobs"] = snapshot.jobs_reduced_in_host;
    in_host["elements"] = snapshot.elements_reduced_in_host;
    result["reduced_in_host"] = in_host;
    result["device_jobs"] = snapshot.device_jobs;
    return result;
}

// How many allreduces a session was given, and those of them that have not ended.
py::dict calls_to_dict(const Session &session) {
    py::list pending;
    for (const OpenCall &call : session.open_calls()) {
        py::dict row;
        row["number"] = call.number;
        row["kind"] = "all_reduce";
        row["sizes"] = call.sizes;
        row["dtypes"] = call.dtypes;
        pending.append(row);
    }
    py::dict result;
    result["entered"] = session.submitted();
    result["pending"] = pending;
    return result;
}

// What torch_switchml.settings.Transport is made of.
py::dict resolve_to_dict(const Library &library, const std::string &controller) {
    const auto [resolved, common] = library.resolve(controller);
    py::dict result;
    result["connect_timeout_ms"] = resolved.connect_timeout_ms;
    result["job_timeout_ms"] = resolved.job_timeout_ms;
    result["worker_port"] = resolved.worker_port;
    result["num_threads"] = resolved.num_threads;
    result["common"] = common;
    return result;
}

// Runs the handlers of signals that came; what one raises (Ctrl-C) is thrown.
void check_python_signals() {
    const py::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) {
        throw py::error_already_set();
    }
}

// Ends the wait for a rank that will not come, which says why in the group's store.
struct AnotherRankFailed {};

std::shared_ptr<Session> open_session(std::shared_ptr<Library> library, std::shared_ptr<Counters> counters, int rank,
                                      int size, uint32_t job_timeout_ms, const std::string &job_name,
                                      uint32_t worker_port, std::optional<int> worker, int num_workers,
                                      std::shared_ptr<HostBoard> board, const std::string &wire_ranks,
                                      const std::function<bool()> &has_failed, std::function<void()> on_closed) {
    const SessionOptions options{rank,   size,        job_timeout_ms,   job_name,  worker_port,
                                 worker, num_workers, std::move(board), wire_ranks};
    const auto keep_on = [&has_failed] {
        check_python_signals();
        if (has_failed()) {
            throw AnotherRankFailed();
        }
    };
    try {
        return Session::open(std::move(library), std::move(counters), options, keep_on, std::move(on_closed));
    } catch (const AnotherRankFailed &) {
        return nullptr;
    }
}

void bind_library(py::module_ &module) {
    py::class_<Library, std::shared_ptr<Library>>(module, "Library")
        .def_static("load", &Library::load, py::arg("name"), py::call_guard<py::gil_scoped_release>())
        .def("describe", &Library::describe)
        .def("resolve", &resolve_to_dict, py::arg("controller"))
        .def("compare_reports", &Library::compare_reports, py::arg("reports"), py::arg("timeout_ms"));
}

void bind_host(py::module_ &module) {
    py::class_<HostBoard, std::shared_ptr<HostBoard>>(module, "HostBoard")
        .def_static("create", &HostBoard::create, py::arg("ranks"), py::call_guard<py::gil_scoped_release>())
        .def_static("attach", &HostBoard::attach, py::arg("address"), py::arg("ranks"), py::arg("index"),
                    py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("address", &HostBoard::address)
        .def("watch", &HostBoard::watch, py::arg("processes"))
        .def("seal", &HostBoard::seal);
    module.attr("CHUNK_NUMEL") = kChunkNumel;
}

void bind_watch(py::module_ &module) {
    py::class_<PeerWatch, std::shared_ptr<PeerWatch>>(module, "PeerWatch")
        .def(py::init<const c10::intrusive_ptr<c10d::Backend> &>(), py::arg("gloo"))
        .def_property_readonly("loss", &PeerWatch::loss)
        .def("finish", &PeerWatch::finish, py::call_guard<py::gil_scoped_release>());
}

void bind_session(py::module_ &module) {
    py::class_<Counters, std::shared_ptr<Counters>>(module, "Counters")
        .def(py::init<std::function<void(const std::string &)>>(), py::arg("on_first_collective"))
        .def("snapshot", &counters_to_dict);
    py::class_<Session, std::shared_ptr<Session>>(module, "Session")
        .def_static("open", &open_session, py::kw_only(), py::arg("library"), py::arg("counters"), py::arg("rank"),
                    py::arg("size"), py::arg("job_timeout_ms"), py::arg("job_name"), py::arg("worker_port"),
                    py::arg("worker"), py::arg("num_workers"), py::arg("board").none(true), py::arg("wire_ranks"),
                    py::arg("has_failed"), py::arg("on_closed"), py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("failure", &Session::failure)
        .def("library_stats", &Session::library_stats)
        .def("calls", &calls_to_dict)
        .def("abort", &Session::abort, py::arg("reason") = "", py::call_guard<py::gil_scoped_release>())
        .def("end_for_lost_rank", &Session::end_for_lost_rank, py::arg("reason"),
             py::call_guard<py::gil_scoped_release>())
        .def("close", &Session::close, py::call_guard<py::gil_scoped_release>());
}

void bind_backend(py::module_ &module) {
    py::class_<SwitchMLBackend, c10::intrusive_ptr<SwitchMLBackend>, c10d::Backend>(module, "SwitchMLBackend")
        .def(py::init([](c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<Counters> counters, bool named) {
                 return c10::make_intrusive<SwitchMLBackend>(std::move(inner), std::move(counters), named);
             }),
             py::kw_only(), py::arg("inner"), py::arg("counters"), py::arg("named"))
        .def("attach", &SwitchMLBackend::attach, py::kw_only(), py::arg("session").none(true), py::arg("required"))
        .def_property_readonly("wrapped", &SwitchMLBackend::inner)
        .def_property_readonly("options", [](const SwitchMLBackend &self) -> py::object {
            return py::cast(self.inner()).attr("options");  // read before the Python object for it goes
        });
    module.def("group_store", &GroupAccess::store, py::arg("group"));
    module.def("delegate", &GroupAccess::delegate, py::kw_only(), py::arg("group"), py::arg("device"), py::arg("gloo"),
               py::arg("delegating"));
    module.def("delegated_jobs", &GroupAccess::delegated, py::arg("group"));
}

}  // namespace

}  // namespace torch_switchml

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.doc() = "The compiled part of torch_switchml.";
    torch_switchml::bind_library(module);
    torch_switchml::bind_host(module);
    torch_switchml::bind_watch(module);
    torch_switchml::bind_session(module);
    torch_switchml::bind_backend(module);
}

// SPDX-License-Identifier: BSD-3-Clause
//
// Python's interpreter lock and signals, where C++ code waits.
#pragma once

#include <optional>

#include <pybind11/pybind11.h>

namespace torch_mpi {

// Lets go of the interpreter lock, where this thread holds it.
class __attribute__((visibility("hidden"))) GilReleased {
  public:
    GilReleased() {
        if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
            release_.emplace();
        }
    }

  private:
    std::optional<pybind11::gil_scoped_release> release_;
};

// Runs the handlers of signals that came; what one raises (Ctrl-C) is thrown.
inline void check_python_signals() {
    if (Py_IsInitialized() == 0) {
        return;
    }
    const pybind11::gil_scoped_acquire held;
    if (PyErr_CheckSignals() != 0) {
        throw pybind11::error_already_set();
    }
}

}  // namespace torch_mpi

// SPDX-License-Identifier: BSD-3-Clause
//
// Letting go of Python's interpreter lock where C++ code that may or may not
// hold it is about to wait for threads that may need it.
#pragma once

#include <optional>

#include <pybind11/pybind11.h>

namespace torch_switchml {

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

} // namespace torch_switchml

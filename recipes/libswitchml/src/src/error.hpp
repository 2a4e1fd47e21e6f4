// SPDX-License-Identifier: BSD-3-Clause
//
// The one exception inside the library: a status of the C ABI and the sentence
// that switchml_last_error or the callback hands on.
#pragma once

#include <stdexcept>
#include <string>

#include "switchml.h"

namespace switchml {

class Error : public std::runtime_error {
  public:
    Error(switchml_status status, const std::string &message) : std::runtime_error(message), status_(status) {}

    switchml_status status() const noexcept { return status_; }

  private:
    switchml_status status_;
};

}  // namespace switchml

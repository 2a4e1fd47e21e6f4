// SPDX-License-Identifier: BSD-3-Clause
//
// All ranks or none: what each rank could set up, settled through the group's
// store. The store and not a collective of gloo's: a rank that does not take
// part is known by its missing key.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "SwitchMLSession.hpp"
#include "SwitchMLSettings.hpp"

namespace c10d {
namespace switchml_detail {

class Agreement {
 public:
  Agreement(SwitchMLSession::Store& store, int rank, int size)
      : store_(store), rank_(rank), size_(size) {}

  // Runs `attempt`, which throws or gives what must be the same everywhere, and
  // returns if every rank's succeeded with the same; else throws
  // std::runtime_error on every rank. `settings`, read after the attempt, bound
  // the wait for the others.
  void settle(
      const std::string& stage,
      const Settings& settings,
      const std::function<Facts()>& attempt);

 private:
  std::string key(const std::string& stage, int rank) const;
  std::string complaints(
      const std::string& stage,
      std::chrono::milliseconds patience);
  void sayFarewell(const std::string& stage);

  SwitchMLSession::Store& store_;
  const int rank_;
  const int size_;
};

} // namespace switchml_detail
} // namespace c10d

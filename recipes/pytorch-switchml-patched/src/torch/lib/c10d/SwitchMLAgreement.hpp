// SPDX-License-Identifier: BSD-3-Clause
//
// All ranks or none: what each rank could set up, settled through the group's
// store; libswitchml compares what they say. The store and not a collective of
// gloo's: a rank that does not take part is known by its missing key.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "SwitchMLLibrary.hpp"
#include "SwitchMLSession.hpp"

namespace c10d {
namespace switchml_detail {

class Agreement {
  public:
    // Joins the settling of the group made next: a store may outlive a group, so
    // each rank counts them, and keys carry the count.
    Agreement(SwitchMLSession::Store &store, int rank, int size);

    // Returns if no rank reported an error within the time, and all the same
    // facts (lines as switchml_compare_reports takes them); else throws
    // std::runtime_error on every rank. A rank whose `library` is null, for want of
    // which it reports an error, knows its own only.
    void settle(const std::string &stage, const std::string &error, const std::string &facts, const Library *library,
                std::chrono::milliseconds timeout);

    // Rank 0's name of the job, on all ranks; std::runtime_error where it does not come.
    std::string shareJobName(const std::string &name, std::chrono::milliseconds timeout);

  private:
    std::string key(const std::string &stage, int rank) const;
    // Whether all keys had a value in time. Not by the stores' own wait: that of a
    // TCPStore, once it has timed out, answers later calls.
    bool wait(const std::vector<std::string> &keys, std::chrono::milliseconds timeout);
    std::string complaints(const std::string &stage, const Library &library, std::chrono::milliseconds timeout);
    void sayFarewell(const std::string &stage);

    SwitchMLSession::Store &store_;
    const int rank_;
    const int size_;
    const std::string prefix_;
};

}  // namespace switchml_detail
}  // namespace c10d

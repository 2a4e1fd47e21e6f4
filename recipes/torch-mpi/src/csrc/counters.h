// SPDX-License-Identifier: BSD-3-Clause
//
// What MPI carried for this process, by collective.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace torch_mpi {

struct Sums {
    uint64_t calls = 0;
    uint64_t elements = 0;
    uint64_t bytes = 0;
};

class Counters {
  public:
    static Counters &get() {
        static Counters counters;
        return counters;
    }

    void add(const std::string &name, uint64_t elements, uint64_t bytes, bool failed) noexcept {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (failed) {
            ++failed_;
            return;
        }
        Sums &sums = carried_[name];
        ++sums.calls;
        sums.elements += elements;
        sums.bytes += bytes;
    }

    void add_staged() {
        const std::lock_guard<std::mutex> lock(mutex_);
        ++staged_;
    }

    std::map<std::string, Sums> carried() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return carried_;
    }

    uint64_t failed() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return failed_;
    }

    // Tensors of devices that went through host memory.
    uint64_t staged() const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return staged_;
    }

  private:
    mutable std::mutex mutex_;
    std::map<std::string, Sums> carried_;
    uint64_t failed_ = 0;
    uint64_t staged_ = 0;
};

}  // namespace torch_mpi

// SPDX-License-Identifier: BSD-3-Clause
//
// Memory that the ranks of a host share. It has no name in a file system: it is
// an anonymous file (memfd) of the rank that makes it, which the others open
// through /proc, so nothing of it outlives the processes. That needs what two
// containers do not share by default, process numbers and leave to look at
// each other; whoever cannot map it gets an error and no memory.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

namespace torch_switchml {

class HostMemory {
  public:
    // All of it zero, reserved and mapped. Throws std::runtime_error with the
    // system's reason.
    static std::unique_ptr<HostMemory> create(std::size_t bytes);

    // Maps what another process made, by its address(). Throws
    // std::runtime_error where that cannot be reached, or is not it.
    static std::unique_ptr<HostMemory> attach(const std::string &address, std::size_t bytes);

    ~HostMemory();
    HostMemory(const HostMemory &) = delete;
    HostMemory &operator=(const HostMemory &) = delete;

    void *data() const { return data_; }

    // Where the others find it: process, descriptor and a random number of 128
    // bits, which they also compare. Of the process that made it.
    const std::string &address() const { return address_; }

    // Nobody can attach from here on.
    void seal();

  private:
    HostMemory() = default;
    void map(int descriptor, std::size_t bytes);

    void *data_ = nullptr;
    std::size_t bytes_ = 0;
    pid_t owner_ = 0;
    int descriptor_ = -1;
    std::string address_;
};

}  // namespace torch_switchml

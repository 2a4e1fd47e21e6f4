// SPDX-License-Identifier: BSD-3-Clause
//
// What MPI reads or writes for a tensor: the tensor's own memory where that can
// be, else a contiguous copy, on the host unless MPI takes the device's memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

namespace torch_mpi {

// What is done with the tensors of devices: kAuto gives them to an MPI that says
// it takes them, and takes others through the host; kRequire refuses those;
// kHost takes all through the host.
enum class DevicePolicy { kAuto, kRequire, kHost };
void set_device_policy(DevicePolicy policy);

class Buffer {
  public:
    // MPI reads it; a copy has the tensor's values.
    static Buffer input(const at::Tensor &tensor);
    // MPI writes all of it.
    static Buffer output(const at::Tensor &tensor);
    // Memory of its own, as of `tensor`, with so many elements.
    static at::Tensor scratch(const at::Tensor &tensor, int64_t numel);

    const at::Tensor &memory() const { return memory_; }
    void *data() const { return memory_.data_ptr(); }
    int64_t numel() const { return memory_.numel(); }

    // Has MPI use other memory: of an input, an independent copy of its values; of
    // an output, an independent one that is copied back.
    void separate();
    void replace(at::Tensor values);

    // Brings what MPI wrote into the tensor, if that is elsewhere.
    void copy_back() const;

    bool overlaps(const Buffer &other) const;

  private:
    Buffer(const at::Tensor &tensor, bool has_values);

    at::Tensor tensor_;
    at::Tensor memory_;
};

// MPI writes no output where it reads another's input, or writes another output,
// of calls that are under way at the same time.
template <typename Pair>
void separate_outputs(std::vector<Pair> &all) {
    for (size_t one = 0; one < all.size(); ++one) {
        for (size_t other = 0; other < all.size(); ++other) {
            if (one != other && (all[one].output.overlaps(all[other].input) ||
                                 (other < one && all[one].output.overlaps(all[other].output)))) {
                all[one].output.separate();
            }
        }
    }
}

// Copies `from` into `tensor`, whatever its device, so that it is there when this returns.
void copy_into(const at::Tensor &tensor, const at::Tensor &from);

}  // namespace torch_mpi

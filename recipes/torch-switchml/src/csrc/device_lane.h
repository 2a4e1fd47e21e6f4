// SPDX-License-Identifier: BSD-3-Clause
//
// The way of an accelerator's tensors to the host and back, by PyTorch's
// device-generic interfaces alone: any device with streams and events that has
// pinned host memory, without its headers or libraries at build time.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "memory.h"

namespace torch_switchml {

// Whether tensors of such a device can take this way.
bool has_lane(c10::DeviceType type);

// Two streams of its own, so that copies in both directions run side by side
// and neither waits for what a user's stream does later, and a few chunks of
// pinned memory, which bound the host memory whatever the tensors' sizes.
class DeviceLane {
  public:
    // Elements of 4 bytes. Of any two tensors' parts (full chunks, and last one
    // that is less, perhaps of no element) the first that differ differ in size:
    // ranks whose tensors do not match meet an error instead of wrong sums.
    static constexpr int64_t kChunkNumel = int64_t{1} << 19;
    // Enough to have one copied out and one back while two are on the wire.
    static constexpr std::size_t kMaxChunks = 4;

    struct Chunk {
        Chunk(at::Tensor pinned, c10::DeviceType type) : memory(std::move(pinned)), emptied(type) {}

        const at::Tensor memory;  // kChunkNumel elements of 4 bytes
        c10::Event emptied;       // its latest copy back to the device
    };

    // Throws c10::Error where the device has no streams of its own.
    explicit DeviceLane(c10::Device device);

    // Waits for copies that are under way.
    ~DeviceLane();
    DeviceLane(const DeviceLane &) = delete;
    DeviceLane &operator=(const DeviceLane &) = delete;

    const c10::Stream &out() const { return out_; }
    const c10::Stream &back() const { return back_; }

    // What the calling thread's current stream has still to do.
    c10::Event mark_current() const;

    // Keeps the memory from other use, freed or not, until the back stream is
    // done with it. The job keeps it until the out stream is.
    void hold(const at::Tensor &tensor) const;

    // Waits until a chunk is free.
    std::unique_ptr<Chunk> take_chunk();
    void return_chunk(std::unique_ptr<Chunk> chunk) noexcept;

    // Copies `part`, contiguous and at most a chunk's size, and waits until it is
    // in the host's memory, which is the result: it shares the chunk's.
    at::Tensor copy_out(const at::Tensor &part, Chunk &chunk);

    // Has the back stream copy the same to the device; returns at once.
    void copy_back(const at::Tensor &host, const at::Tensor &part, Chunk &chunk);

    // What the back stream has been given so far is all that is written there. Until
    // it has come to that, await_written() has streams wait that are to read it.
    void note_written(std::shared_ptr<const Memory> memory);
    void await_written(const Memory &memory, const c10::Stream &stream);

  private:
    struct Written {
        std::shared_ptr<const Memory> memory;
        c10::Event done;
    };

    const c10::impl::VirtualGuardImpl impl_;
    const c10::Stream out_;
    const c10::Stream back_;
    std::mutex mutex_;
    std::condition_variable returned_;
    std::vector<std::unique_ptr<Chunk>> free_;  // has room for all
    std::size_t made_ = 0;
    std::mutex written_mutex_;
    std::vector<Written> written_;
};

}  // namespace torch_switchml

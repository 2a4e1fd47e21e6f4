// SPDX-License-Identifier: BSD-3-Clause
#include "device_lane.h"

#include <algorithm>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>

namespace torch_switchml {

bool has_lane(c10::DeviceType type) {
    switch (type) {
        case c10::kCUDA:
        case c10::kHIP:
        case c10::kXPU:
        case c10::kHPU:
        case c10::kMTIA:
        case c10::kPrivateUse1: return true;
        default: return false;
    }
}

DeviceLane::DeviceLane(c10::Device device)
    : impl_(device.type()), out_(impl_.getStreamFromGlobalPool(device)), back_(impl_.getStreamFromGlobalPool(device)) {
    free_.reserve(kMaxChunks);
}

DeviceLane::~DeviceLane() {
    try {
        out_.synchronize();
        back_.synchronize();
    } catch (const std::exception &error) {  // the device is lost: nothing is under way any more
        TORCH_WARN("SwitchML: ", error.what());
    }
}

c10::Event DeviceLane::mark_current() const {
    c10::Event mark(impl_.type());
    mark.record(impl_.getStream(out_.device()));
    return mark;
}

void DeviceLane::hold(const at::Tensor &tensor) const {
    impl_.recordDataPtrOnStream(tensor.storage().data_ptr(), back_);
}

std::unique_ptr<DeviceLane::Chunk> DeviceLane::take_chunk() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (free_.empty() && made_ < kMaxChunks) {
        const auto options = at::TensorOptions().dtype(at::kFloat).pinned_memory(true);
        auto chunk = std::make_unique<Chunk>(at::empty({kChunkNumel}, options), impl_.type());
        ++made_;
        return chunk;
    }
    returned_.wait(lock, [this] { return !free_.empty(); });
    auto chunk = std::move(free_.back());
    free_.pop_back();
    return chunk;
}

void DeviceLane::return_chunk(std::unique_ptr<Chunk> chunk) noexcept {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(chunk));
    returned_.notify_one();
}

at::Tensor DeviceLane::copy_out(const at::Tensor &part, Chunk &chunk) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const c10::StreamGuard guard(out_);
    at::Tensor host = chunk.memory.narrow(0, 0, part.numel()).view(part.scalar_type());
    if (part.numel() > 0) {
        chunk.emptied.block(out_);
        host.copy_(part, /*non_blocking=*/true);
    }
    c10::Event filled(impl_.type());
    filled.record(out_);
    filled.synchronize();
    return host;
}

void DeviceLane::copy_back(const at::Tensor &host, const at::Tensor &part, Chunk &chunk) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const c10::StreamGuard guard(back_);
    if (part.numel() > 0) {
        at::Tensor(part).copy_(host, /*non_blocking=*/true);
        chunk.emptied.record(back_);
    }
}

void DeviceLane::note_written(std::shared_ptr<const Memory> memory) {
    Written written{std::move(memory), c10::Event(impl_.type())};
    written.done.record(back_);
    const std::lock_guard<std::mutex> lock(written_mutex_);
    const auto is_done = [](const Written &one) { return one.done.query(); };
    written_.erase(std::remove_if(written_.begin(), written_.end(), is_done), written_.end());
    written_.push_back(std::move(written));
}

void DeviceLane::await_written(const Memory &memory, const c10::Stream &stream) {
    const std::lock_guard<std::mutex> lock(written_mutex_);
    for (const Written &written : written_) {
        if (written.memory->overlaps(memory)) {
            written.done.block(stream);
        }
    }
}

}  // namespace torch_switchml

// SPDX-License-Identifier: BSD-3-Clause
#include "memory.h"

#include <algorithm>
#include <tuple>

namespace torch_switchml {

namespace {

std::tuple<c10::DeviceType, c10::DeviceIndex> key_of(c10::Device device) { return {device.type(), device.index()}; }

uintptr_t bytes_spanned(const at::Tensor &tensor) {
    int64_t last = 0;
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
        last += (tensor.size(dim) - 1) * tensor.stride(dim);
    }
    return static_cast<uintptr_t>(last + 1) * tensor.element_size();
}

}  // namespace

bool Memory::Range::is_before(const Range &other) const {
    return key_of(device) < key_of(other.device) || (device == other.device && end <= other.begin);
}

Memory::Memory(const std::vector<at::Tensor> &tensors) {
    ranges_.reserve(tensors.size());
    for (const at::Tensor &tensor : tensors) {
        if (tensor.layout() == at::kStrided && tensor.numel() > 0) {
            // where a write puts them: a lazy clone moves with its first
            const auto begin = reinterpret_cast<uintptr_t>(tensor.mutable_data_ptr());
            ranges_.push_back({tensor.device(), begin, begin + bytes_spanned(tensor)});
        }
    }
    if (ranges_.size() < 2) {
        return;
    }
    std::sort(ranges_.begin(), ranges_.end(), [](const Range &left, const Range &right) {
        return std::make_tuple(key_of(left.device), left.begin) < std::make_tuple(key_of(right.device), right.begin);
    });
    std::vector<Range> apart;
    apart.reserve(ranges_.size());
    for (const Range &range : ranges_) {
        if (apart.empty() || apart.back().is_before(range)) {
            apart.push_back(range);
        } else {
            apart.back().end = std::max(apart.back().end, range.end);
        }
    }
    ranges_ = std::move(apart);
}

bool Memory::overlaps(const Memory &other) const {
    auto mine = ranges_.begin();
    auto theirs = other.ranges_.begin();
    while (mine != ranges_.end() && theirs != other.ranges_.end()) {
        if (mine->is_before(*theirs)) {
            ++mine;
        } else if (theirs->is_before(*mine)) {
            ++theirs;
        } else {
            return true;
        }
    }
    return false;
}

std::vector<c10::Device> Memory::devices() const {
    std::vector<c10::Device> found;
    for (const Range &range : ranges_) {
        if (!range.device.is_cpu() && (found.empty() || found.back() != range.device)) {
            found.push_back(range.device);
        }
    }
    return found;
}

}  // namespace torch_switchml

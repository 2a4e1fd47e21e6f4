// SPDX-License-Identifier: BSD-3-Clause
#include "wire.h"

#include <utility>

namespace torch_switchml {

Wire::Wire(std::shared_ptr<Library> library, switchml_context *context)
    : library_(std::move(library)), context_(context) {
    last_stats_.struct_size = sizeof(last_stats_);
}

Wire::~Wire() { close(); }

switchml_status Wire::submit(void *data, uint64_t numel, Dtype dtype, switchml_callback callback, void *user,
                             std::string &reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (context_ == nullptr) {
        reason = "the session is closed";
        return SWITCHML_EABORTED;
    }
    const switchml_status status =
        library_->allreduce_submit(context_, data, data, numel, library_dtype(dtype), callback, user);
    if (status != SWITCHML_OK) {
        reason = library_->last_error();
    }
    return status;
}

void Wire::abort(const std::string &) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (context_ != nullptr) {
        library_->abort(context_);
    }
}

bool Wire::read_stats(switchml_stats &stats) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    stats = last_stats_;
    if (context_ != nullptr) {
        library_->get_stats(context_, &stats);
    }
    return true;
}

void Wire::close() {
    switchml_context *context = nullptr;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (context_ == nullptr) {
            return;
        }
        library_->get_stats(context_, &last_stats_);
        context = std::exchange(context_, nullptr);
    }
    library_->close(context);  // waits for callbacks, which may ask for counters
}

}  // namespace torch_switchml

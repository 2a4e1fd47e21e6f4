// SPDX-License-Identifier: BSD-3-Clause
//
// An open session of libswitchml as a carrier.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "carrier.h"
#include "library.h"

namespace torch_switchml {

class Wire final : public Carrier {
  public:
    // Calls switchml_open on a thread of its own; Session::open says what is thrown, and when `check_signals` is
    // called. std::system_error where the system gives no thread.
    static std::unique_ptr<Wire> open(const std::shared_ptr<Library> &library, switchml_config config,
                                      const std::function<void()> &check_signals);

    // Takes over the context.
    Wire(std::shared_ptr<Library> library, switchml_context *context);
    ~Wire() override;
    Wire(const Wire &) = delete;
    Wire &operator=(const Wire &) = delete;

    switchml_status submit(void *data, uint64_t numel, Dtype dtype, switchml_callback callback, void *user,
                           std::string &reason) override;
    void abort(const std::string &reason) override;
    bool read_stats(switchml_stats &stats) const override;
    void close() override;

  private:
    const std::shared_ptr<Library> library_;
    mutable std::mutex mutex_;  // guards the rest
    switchml_context *context_;
    switchml_stats last_stats_{};  // once it is closed
};

}  // namespace torch_switchml

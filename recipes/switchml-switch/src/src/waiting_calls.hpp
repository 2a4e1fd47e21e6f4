// SPDX-License-Identifier: BSD-3-Clause
//
// How many calls of each host wait for others. A waiting call takes a thread, and
// one host must not take them all.
#pragma once

#include <map>
#include <mutex>
#include <string>

namespace switchml::softswitch {

class WaitingCalls {
  public:
    explicit WaitingCalls(int most_per_host) : most_per_host_(most_per_host) {}

    // A place among those of the host, until it is destroyed.
    class Place {
      public:
        Place(WaitingCalls &calls, const std::string &host) : calls_(calls), host_(host) {
            const std::lock_guard lock(calls_.mutex_);
            granted_ = ++calls_.by_host_[host_] <= calls_.most_per_host_;
        }
        ~Place() {
            const std::lock_guard lock(calls_.mutex_);
            const auto found = calls_.by_host_.find(host_);
            if (--found->second == 0) calls_.by_host_.erase(found);
        }
        Place(const Place &) = delete;
        Place &operator=(const Place &) = delete;

        bool granted() const noexcept { return granted_; }

      private:
        WaitingCalls &calls_;
        std::string host_;
        bool granted_ = false;
    };

  private:
    const int most_per_host_;
    std::mutex mutex_;
    std::map<std::string, int> by_host_;
};

}  // namespace switchml::softswitch

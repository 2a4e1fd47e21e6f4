// SPDX-License-Identifier: BSD-3-Clause
//
// How many calls wait for others, of each host and of all. A waiting call takes a
// thread: one host must not take them all, and many must leave some for renewals.
#pragma once

#include <map>
#include <mutex>
#include <string>

namespace switchml::softswitch {

class WaitingCalls {
  public:
    WaitingCalls(int most_per_host, int most_of_all) : most_per_host_(most_per_host), most_of_all_(most_of_all) {}

    // A place among those of the host, until it is destroyed.
    class Place {
      public:
        Place(WaitingCalls &calls, const std::string &host) : calls_(calls), host_(host) {
            const std::lock_guard lock(calls_.mutex_);
            ++calls_.all_;
            if (++calls_.by_host_[host_] > calls_.most_per_host_) {
                refusal_ = "this host has " + std::to_string(calls_.most_per_host_) +
                           " calls waiting already, as many as all sessions have workers";
            } else if (calls_.all_ > calls_.most_of_all_) {
                refusal_ = std::to_string(calls_.most_of_all_) +
                           " calls wait at this switch already, as many as it has "
                           "threads for; try again, and give it --token-file where strangers can reach it";
            }
        }
        ~Place() {
            const std::lock_guard lock(calls_.mutex_);
            --calls_.all_;
            const auto found = calls_.by_host_.find(host_);
            if (--found->second == 0) calls_.by_host_.erase(found);
        }
        Place(const Place &) = delete;
        Place &operator=(const Place &) = delete;

        // Why the call must not wait, "" where it may.
        const std::string &refusal() const noexcept { return refusal_; }

      private:
        WaitingCalls &calls_;
        std::string host_;
        std::string refusal_;
    };

  private:
    const int most_per_host_;
    const int most_of_all_;
    std::mutex mutex_;
    std::map<std::string, int> by_host_;
    int all_ = 0;
};

}  // namespace switchml::softswitch

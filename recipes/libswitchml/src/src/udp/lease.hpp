// SPDX-License-Identifier: BSD-3-Clause
//
// Keeps a session's lease: a thread renews it at the controller, learns from
// there when the session is over (the switch was restarted, another job has its
// place) and which of the workers have gone, and ends it on destruction.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "udp/liveness.hpp"
#include "udp/session.hpp"

namespace switchml::udp {

class Lease {
  public:
    using Report = std::function<void(const std::string &)>;

    // `on_lost` is called once at most, from the lease's thread, with the reason. A lease of 0 needs no keeping.
    Lease(Session session, Liveness &liveness, Report on_lost);
    ~Lease();
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;

  private:
    void keep();

    const Session session_;
    Liveness &liveness_;
    const Report on_lost_;
    std::mutex mutex_;
    bool ending_ = false;  // guarded by mutex_
    std::condition_variable changed_;
    std::thread thread_;
};

}  // namespace switchml::udp

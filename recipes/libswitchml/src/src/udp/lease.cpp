// SPDX-License-Identifier: BSD-3-Clause
#include "udp/lease.hpp"

#include <chrono>
#include <utility>

#include "controller_client.hpp"
#include "udp/monotonic.hpp"

namespace switchml::udp {
namespace {

// A process that was stopped for long finds one renewal overdue when it goes on, which says nothing about the switch.
constexpr int kLeastUnanswered = 3;

}  // namespace

Lease::Lease(Session session, Liveness &liveness, Report on_lost)
    : session_(std::move(session)), liveness_(liveness), on_lost_(std::move(on_lost)) {
    if (session_.lease.count() > 0) thread_ = std::thread([this] { keep(); });
}

Lease::~Lease() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    if (!thread_.joinable()) return;
    session_.controller->cancel_renewal();
    thread_.join();
    session_.controller->end_lease(session_.id);
}

void Lease::keep() {
    const auto period = session_.renewal_period();
    std::int64_t answered_ns = monotonic_ns();
    int unanswered = 0;
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, period, [this] { return ending_; })) {
        lock.unlock();
        const auto renewal = session_.controller->renew_lease(session_.id, period);
        const std::int64_t now_ns = monotonic_ns();
        if (!renewal.response) {
            const auto silence = std::chrono::milliseconds((now_ns - answered_ns) / kNsPerMs);
            if (++unanswered >= kLeastUnanswered && silence >= session_.lease) {
                liveness_.unanswered("the switch controller at " + session_.controller->target() +
                                         " has not answered for " + std::to_string(silence.count() / 1000) +
                                         " s: the switch or the network to it is down" +
                                         (renewal.failure.empty() ? "" : " (" + renewal.failure + ")"),
                                     now_ns);
            }
        } else {
            unanswered = 0;
            answered_ns = now_ns;
            liveness_.answered(renewal.response->missing(), renewal.response->gone(), now_ns);
            if (!renewal.response->lost().empty()) {
                on_lost_(renewal.response->lost());
                return;
            }
        }
        lock.lock();
    }
}

}  // namespace switchml::udp

// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous.hpp"

namespace switchml::softswitch {
namespace {

// How late a caller's going is noticed; completion does not wait for it.
constexpr std::chrono::milliseconds kCancellationPoll{5};
// How long a complete broadcast waits for the news that one of its callers has gone.
constexpr std::chrono::milliseconds kGrace{20};

Outcome failure(const std::string &reason) { return {Outcome::Kind::kFailed, 0, reason}; }

std::string disagreement(std::uint32_t older, std::uint32_t newer) {
    return "this worker expects " + std::to_string(older) + " workers, a later one " + std::to_string(newer) +
           "; all workers must be started with the same number";
}

}  // namespace

void Rendezvous::settle(Group &group, const Outcome &outcome) {
    for (auto &[key, call] : group.calls) {
        call->outcome = outcome;
        call->settled = true;
    }
    group.calls.clear();
    changed_.notify_all();
}

Outcome Rendezvous::wait(std::unique_lock<std::mutex> &lock, Group &group, std::uint64_t key, const CallPointer &call,
                         const Cancelled &cancelled) {
    while (!changed_.wait_for(lock, kCancellationPoll, [&] { return call->settled; })) {
        if (cancelled()) {
            group.calls.erase(key);  // not settled, so still there
            return {Outcome::Kind::kCancelled, 0, {}};
        }
        complete_broadcast_when_due();
    }
    return call->outcome;
}

// Asked by every waiting call after it found its own caller to be there still.
void Rendezvous::complete_broadcast_when_due() {
    if (broadcast_.calls.empty() || broadcast_.calls.size() < broadcast_.num_workers) return;
    if (Clock::now() - broadcast_.latest < kGrace) return;
    settle(barrier_, failure("another session began"));
    broken_.clear();
    settle(broadcast_, {Outcome::Kind::kDone, broadcast_.value, {}});
}

Outcome Rendezvous::barrier(std::uint32_t num_workers, const Cancelled &cancelled) {
    std::unique_lock lock(mutex_);
    if (!broken_.empty()) return failure(broken_);
    if (!barrier_.calls.empty() && barrier_.num_workers != num_workers) {
        settle(barrier_, failure(disagreement(barrier_.num_workers, num_workers)));
    }
    barrier_.num_workers = num_workers;
    const std::uint64_t key = arrivals_++;
    const auto call = barrier_.calls.emplace(key, std::make_shared<Call>()).first->second;
    if (barrier_.calls.size() == num_workers) settle(barrier_, {});
    return wait(lock, barrier_, key, call, cancelled);
}

Outcome Rendezvous::broadcast(const BroadcastCall &request, const Cancelled &cancelled) {
    std::unique_lock lock(mutex_);
    if (!broadcast_.calls.empty() &&
        (broadcast_.num_workers != request.num_workers || broadcast_.root != request.root)) {
        settle(broadcast_, failure(disagreement(broadcast_.num_workers, request.num_workers)));
    }
    broadcast_.num_workers = request.num_workers;
    broadcast_.root = request.root;
    if (request.rank == request.root) broadcast_.value = request.value;
    const auto call = std::make_shared<Call>();
    CallPointer &place = broadcast_.calls[request.rank];
    if (place != nullptr) {
        place->outcome = failure("another worker came with rank " + std::to_string(request.rank) +
                                 " as well; each rank must be started once");
        place->settled = true;
        changed_.notify_all();
    }
    place = call;
    broadcast_.latest = Clock::now();
    return wait(lock, broadcast_, request.rank, call, cancelled);
}

void Rendezvous::break_session(const std::string &reason) {
    const std::lock_guard lock(mutex_);
    broken_ = reason;
    settle(barrier_, failure(reason));
}

}  // namespace switchml::softswitch

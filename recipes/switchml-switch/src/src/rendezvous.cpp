// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous.hpp"

#include <algorithm>
#include <set>

namespace switchml::softswitch {
namespace {

// How late a caller's going is noticed; completion does not wait for it.
constexpr std::chrono::milliseconds kCancellationPoll{5};
// How long a complete broadcast waits for the news that one of its callers has gone, and how long where one of them has
// waited so much longer than the latest that it may well have given up.
constexpr std::chrono::milliseconds kGrace{20};
constexpr std::chrono::milliseconds kLongGrace{300};
constexpr std::chrono::milliseconds kLongWait{500};

Outcome failure(const std::string &reason) { return {Outcome::Kind::kFailed, 0, reason}; }

Outcome absence(const std::string &reason) { return {Outcome::Kind::kAbsent, 0, reason}; }

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
    group.left.clear();
    changed_.notify_all();
}

Outcome Rendezvous::wait(std::unique_lock<std::mutex> &lock, Group &group, std::uint64_t key, const CallPointer &call,
                         const Cancelled &cancelled) {
    while (!changed_.wait_for(lock, kCancellationPoll, [&] { return call->settled; })) {
        if (cancelled()) {
            group.calls.erase(key);  // not settled, so still there
            group.left[key] = Clock::now();
            if (group.calls.empty()) group.left.clear();
            return {Outcome::Kind::kCancelled, 0, {}};
        }
        complete_broadcast_when_due();
        fail_without_the_absent();
    }
    return call->outcome;
}

// Asked by every waiting call after it found its own caller to be there still.
void Rendezvous::complete_broadcast_when_due() {
    if (broadcast_.calls.empty() || broadcast_.calls.size() < broadcast_.num_workers) return;
    const bool waited = std::any_of(broadcast_.calls.begin(), broadcast_.calls.end(), [this](const auto &entry) {
        return broadcast_.latest - entry.second->since >= kLongWait;
    });
    if (Clock::now() - broadcast_.latest < (waited ? kLongGrace : kGrace)) return;
    settle(barrier_, failure("another session began"));
    broken_.clear();
    settle(broadcast_, {Outcome::Kind::kDone, broadcast_.value, {}});
}

// Asked as often.
void Rendezvous::fail_without_the_absent() {
    const auto now = Clock::now();
    for (const auto &[rank, since] : broadcast_.left) {
        if (now - since < timeout_) continue;
        settle(broadcast_, absence("rank " + std::to_string(rank) + " left while the session was being opened"));
        break;
    }
    if (barrier_.calls.empty() || now - barrier_.latest < timeout_) return;
    const std::string absent = absent_of(barrier_);
    if (!absent.empty()) settle(barrier_, absence(absent + " did not go on with opening the session"));
}

// The ranks that are missing, "" where somebody has not said his.
std::string Rendezvous::absent_of(const Group &barrier) {
    std::set<std::uint32_t> present;
    for (const auto &[key, call] : barrier.calls) {
        if (!call->rank) return {};
        present.insert(*call->rank);
    }
    std::string text;
    for (std::uint32_t rank = 0; rank < barrier.num_workers; ++rank) {
        if (present.count(rank) == 0) text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
    }
    return text;
}

Outcome Rendezvous::barrier(std::uint32_t num_workers, const Cancelled &cancelled, std::optional<std::uint32_t> rank) {
    std::unique_lock lock(mutex_);
    if (!broken_.empty()) return failure(broken_);
    if (!barrier_.calls.empty() && barrier_.num_workers != num_workers) {
        settle(barrier_, failure(disagreement(barrier_.num_workers, num_workers)));
    }
    barrier_.num_workers = num_workers;
    const std::uint64_t key = arrivals_++;
    const auto call = std::make_shared<Call>();
    call->rank = rank;
    barrier_.calls[key] = call;
    barrier_.latest = call->since;
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
        broadcast_.left.clear();  // another job's
        changed_.notify_all();
    }
    place = call;
    broadcast_.left.erase(request.rank);
    broadcast_.latest = call->since;
    return wait(lock, broadcast_, request.rank, call, cancelled);
}

void Rendezvous::break_session(const std::string &reason) {
    const std::lock_guard lock(mutex_);
    broken_ = reason;
    settle(barrier_, failure(reason));
}

}  // namespace switchml::softswitch

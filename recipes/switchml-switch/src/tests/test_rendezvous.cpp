// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "rendezvous.hpp"
#include "waiting_calls.hpp"
#include "wire/check.hpp"

using namespace switchml::softswitch;

namespace {

using Pending = std::future<Outcome>;

constexpr std::chrono::milliseconds kTimeout{200};
// Where it must not pass before the test has gone on.
constexpr std::chrono::milliseconds kLongTimeout{1000};

// Callers as threads. A call "arrives" when it first asks whether its caller has gone.
struct Meeting {
    using Clock = std::chrono::steady_clock;

    explicit Meeting(std::chrono::milliseconds timeout = kTimeout) : rendezvous(timeout) {}

    Pending barrier(std::uint32_t workers, std::atomic<bool> &gone) {
        return start([this, workers, &gone](const Cancelled &poll) { return rendezvous.barrier(workers, poll); }, gone);
    }

    Pending barrier(std::uint32_t workers) { return barrier(workers, never); }

    // Of a caller that says who it is.
    Pending barrier_of(std::uint32_t rank, std::uint32_t workers) {
        return start([this, rank, workers](const Cancelled &poll) { return rendezvous.barrier(workers, poll, rank); },
                     never);
    }

    Pending broadcast(const BroadcastCall &call, std::atomic<bool> &gone) {
        return start([this, call](const Cancelled &poll) { return rendezvous.broadcast(call, poll); }, gone);
    }

    Pending broadcast(const BroadcastCall &call) { return broadcast(call, never); }

    template <class Body>
    Pending start(Body body, std::atomic<bool> &gone) {
        auto arrived = std::make_shared<std::promise<void>>();
        auto waiting = std::make_shared<std::atomic<bool>>(false);
        std::future<void> arrival = arrived->get_future();
        Pending pending = std::async(std::launch::async, [=, &gone] {
            const Outcome outcome = body([&] {
                if (!waiting->exchange(true)) arrived->set_value();
                return gone.load();
            });
            if (!waiting->exchange(true)) arrived->set_value();
            return outcome;
        });
        arrival.wait();
        return pending;
    }

    std::atomic<bool> never{false};
    Rendezvous rendezvous;
};

Outcome ended(Pending &pending) {
    if (pending.wait_for(std::chrono::seconds(20)) != std::future_status::ready)
        throw std::runtime_error("a call did not end");
    return pending.get();
}

bool still_waiting(Pending &pending) { return pending.wait_for(std::chrono::seconds(0)) != std::future_status::ready; }

void expect(Pending &pending, Outcome::Kind kind, const std::string &mention = "") {
    const Outcome outcome = ended(pending);
    CHECK_EQ(static_cast<int>(outcome.kind), static_cast<int>(kind));
    CHECK_MENTIONS(outcome.reason, mention);
}

}  // namespace

TEST(a_barrier_opens_with_the_last_worker) {
    Meeting meeting;
    Pending first = meeting.barrier(3);
    Pending second = meeting.barrier(3);
    CHECK(still_waiting(first) && still_waiting(second));
    Pending third = meeting.barrier(3);
    for (Pending *pending : {&first, &second, &third}) expect(*pending, Outcome::Kind::kDone);
}

TEST(a_barrier_can_be_used_again) {
    Meeting meeting;
    for (int round = 0; round < 3; ++round) {
        Pending first = meeting.barrier(2);
        Pending second = meeting.barrier(2);
        expect(first, Outcome::Kind::kDone);
        expect(second, Outcome::Kind::kDone);
    }
}

TEST(a_worker_that_went_is_not_counted) {
    Meeting meeting;
    std::atomic<bool> gone{false};
    Pending dead = meeting.barrier(2, gone);
    gone = true;
    expect(dead, Outcome::Kind::kCancelled);
    Pending first = meeting.barrier(2);
    CHECK(still_waiting(first));
    Pending second = meeting.barrier(2);
    expect(first, Outcome::Kind::kDone);
    expect(second, Outcome::Kind::kDone);
}

TEST(the_newer_of_two_group_sizes_wins) {
    Meeting meeting;
    Pending older = meeting.barrier(3);
    Pending newer = meeting.barrier(2);
    expect(older, Outcome::Kind::kFailed, "3 workers");
    Pending last = meeting.barrier(2);
    expect(newer, Outcome::Kind::kDone);
    expect(last, Outcome::Kind::kDone);
}

TEST(a_broadcast_hands_the_roots_value_to_all) {
    Meeting meeting;
    Pending other = meeting.broadcast({5, 1, 2, 0});
    CHECK(still_waiting(other));
    Pending root = meeting.broadcast({77, 0, 2, 0});
    CHECK_EQ(ended(other).value, 77U);
    CHECK_EQ(ended(root).value, 77U);
}

TEST(a_root_waits_so_that_no_value_outlives_its_session) {
    Meeting meeting;
    Pending root = meeting.broadcast({77, 0, 2, 0});
    CHECK(still_waiting(root));
    Pending again = meeting.broadcast({78, 0, 2, 0});  // the rank was started again
    expect(root, Outcome::Kind::kFailed, "rank 0");
    Pending other = meeting.broadcast({0, 1, 2, 0});
    CHECK_EQ(ended(other).value, 78U);
    CHECK_EQ(ended(again).value, 78U);
}

// On a busy machine, where its successor's call may come first.
TEST(the_news_that_a_caller_gave_up_may_come_late) {
    Meeting meeting;
    std::atomic<bool> latest_came{false};
    Pending dead = meeting.start(
        [&](const Cancelled &poll) {
            std::optional<Meeting::Clock::time_point> since;
            return meeting.rendezvous.broadcast({1, 0, 2, 0}, [&, since]() mutable {
                poll();
                if (!since && latest_came) since = Meeting::Clock::now();
                return since && Meeting::Clock::now() - *since >= std::chrono::milliseconds(100);
            });
        },
        meeting.never);
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // what it has waited
    Pending worker = meeting.broadcast({0, 1, 2, 0});
    latest_came = true;
    expect(dead, Outcome::Kind::kCancelled);
    Pending root = meeting.broadcast({2, 0, 2, 0});
    for (Pending *pending : {&worker, &root}) CHECK_EQ(ended(*pending).value, 2U);
}

TEST(a_new_session_ends_the_waiting_of_an_older_one) {
    Meeting meeting;
    Pending stale = meeting.barrier(2);
    Pending root = meeting.broadcast({1, 0, 2, 0});
    Pending other = meeting.broadcast({0, 1, 2, 0});
    expect(stale, Outcome::Kind::kFailed, "another session");
    expect(root, Outcome::Kind::kDone);
    expect(other, Outcome::Kind::kDone);
}

TEST(a_refusal_fails_the_barriers_until_the_next_session) {
    Meeting meeting;
    Pending waiting = meeting.barrier(2);
    meeting.rendezvous.break_session("rank 1 has the address of rank 0");
    expect(waiting, Outcome::Kind::kFailed, "rank 1");
    Pending late = meeting.barrier(2);
    expect(late, Outcome::Kind::kFailed, "rank 1");
    Pending root = meeting.broadcast({1, 0, 1, 0});
    expect(root, Outcome::Kind::kDone);
    Pending alone = meeting.barrier(1);
    expect(alone, Outcome::Kind::kDone);
}

TEST(a_caller_that_leaves_a_broadcast_and_stays_away_fails_it) {
    Meeting meeting;
    std::atomic<bool> gone{false};
    Pending root = meeting.broadcast({7, 0, 3, 0});
    Pending dying = meeting.broadcast({0, 2, 3, 0}, gone);
    gone = true;
    expect(dying, Outcome::Kind::kCancelled);
    expect(root, Outcome::Kind::kAbsent, "rank 2 left while the session was being opened");
    Pending next[] = {meeting.broadcast({8, 0, 2, 0}), meeting.broadcast({0, 1, 2, 0})};
    for (Pending &pending : next) expect(pending, Outcome::Kind::kDone);
}

// The third caller comes last: a complete broadcast ends soon, on a busy machine before the news that somebody left it.
TEST(a_caller_that_comes_back_to_a_broadcast_is_taken) {
    Meeting meeting{std::chrono::seconds(20)};
    std::atomic<bool> gone{false};
    Pending root = meeting.broadcast({7, 0, 3, 0});
    Pending dying = meeting.broadcast({0, 1, 3, 0}, gone);
    gone = true;
    expect(dying, Outcome::Kind::kCancelled);
    Pending again = meeting.broadcast({0, 1, 3, 0});
    Pending last = meeting.broadcast({0, 2, 3, 0});
    for (Pending *pending : {&root, &again, &last}) expect(*pending, Outcome::Kind::kDone);
}

TEST(callers_of_another_job_do_not_answer_for_who_left_the_one_before) {
    Meeting meeting{kLongTimeout};
    std::atomic<bool> gone{false};
    Pending older = meeting.broadcast({7, 0, 3, 0});
    Pending dying = meeting.broadcast({0, 1, 3, 0}, gone);
    gone = true;
    expect(dying, Outcome::Kind::kCancelled);
    Pending newer = meeting.broadcast({8, 0, 3, 0});
    expect(older, Outcome::Kind::kFailed, "another worker came with rank 0");
    CHECK(newer.wait_for(2 * kLongTimeout) != std::future_status::ready);
    Pending late[] = {meeting.broadcast({0, 1, 3, 0}), meeting.broadcast({0, 2, 3, 0})};
    for (Pending *pending : {&newer, &late[0], &late[1]}) expect(*pending, Outcome::Kind::kDone);
}

TEST(a_barrier_that_a_rank_does_not_come_to_names_it) {
    Meeting meeting;
    Pending first = meeting.barrier_of(0, 3);
    Pending third = meeting.barrier_of(2, 3);
    for (Pending *pending : {&first, &third})
        expect(*pending, Outcome::Kind::kAbsent, "rank 1 did not go on with opening the session");
}

TEST(a_barrier_of_callers_without_ranks_waits) {
    Meeting meeting;
    Pending first = meeting.barrier(2);
    CHECK(first.wait_for(2 * kTimeout) != std::future_status::ready);
    Pending second = meeting.barrier(2);
    for (Pending *pending : {&first, &second}) expect(*pending, Outcome::Kind::kDone);
}

TEST(a_host_has_its_share_of_the_calls_that_wait_and_all_hosts_together_theirs) {
    WaitingCalls calls(2, 3);
    const WaitingCalls::Place first(calls, "a");
    const WaitingCalls::Place other(calls, "b");
    {
        const WaitingCalls::Place second(calls, "a");
        CHECK(second.refusal().empty());
        CHECK_MENTIONS(WaitingCalls::Place(calls, "a").refusal(), "this host has 2 calls waiting already");
        CHECK_MENTIONS(WaitingCalls::Place(calls, "c").refusal(), "3 calls wait at this switch already");
    }
    CHECK(WaitingCalls::Place(calls, "c").refusal().empty());
}

CHECK_MAIN()

// SPDX-License-Identifier: BSD-3-Clause
#include "peer_watch.h"

#include <chrono>
#include <exception>

#include "gil.h"

namespace torch_switchml {

namespace {

// No tag of a user's: those that PyTorch itself gives count from 0.
constexpr int kWatchTag = 0x53574D4C;

// A message: a rank whose process has ended, or this.
constexpr int32_t kAllLive = -1;

// gloo takes a limit that passes for the end of all its connections.
constexpr std::chrono::hours kNoLimit(24 * 365);
// How long a rank that is about to fail stays until the next one has read which rank ended.
constexpr std::chrono::seconds kTellingLimit(5);

at::Tensor message_of(int32_t rank) { return at::full({1}, rank, at::kInt); }

}  // namespace

PeerWatch::PeerWatch(const c10::intrusive_ptr<c10d::Backend> &gloo)
    : before_((gloo->getRank() + gloo->getSize() - 1) % gloo->getSize()),
      after_((gloo->getRank() + 1) % gloo->getSize()),
      sent_{message_of(kAllLive)},
      received_{message_of(kAllLive)},
      gloo_(gloo) {
    try {
        receiving_ = gloo->recv(received_, before_, kWatchTag);
    } catch (const std::exception &error) {
        note(Loss(before_, error.what()));
        return;
    }
    thread_ = std::thread([this] {
        try {
            note(await_message());
        } catch (const std::exception &error) {
            note(Loss(before_, error.what()));
        }
    });
}

void PeerWatch::note(const std::optional<Loss> &loss) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_over_ && loss) {
        loss_ = loss;
        tell(loss->first);
    }
}

std::optional<PeerWatch::Loss> PeerWatch::await_message() {
    if (!receiving_->wait(kNoLimit)) {
        return std::nullopt;  // aborted
    }
    const auto ended = received_.front().item<int32_t>();
    return ended == kAllLive ? std::nullopt
                             : std::optional(Loss(ended, "rank " + std::to_string(before_) + " says so"));
}

PeerWatch::~PeerWatch() {
    const GilReleased released;
    c10::intrusive_ptr<c10d::Work> telling;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        is_over_ = true;
        tell(std::nullopt);
        telling = loss_ ? sending_ : nullptr;
    }
    try {
        if (telling) {
            telling->wait(kTellingLimit);
        }
    } catch (const std::exception &) {  // it is the one that ended, or fails by itself
    }
    if (thread_.joinable()) {
        receiving_->abort();  // nothing where it has ended
        thread_.join();
    }
}

std::optional<PeerWatch::Loss> PeerWatch::loss() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return loss_;
}

void PeerWatch::finish() {
    c10::intrusive_ptr<c10d::Work> telling;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        is_over_ = true;
        tell(std::nullopt);
        telling = std::exchange(sending_, nullptr);
    }
    try {
        if (telling) {
            telling->wait(kNoLimit);  // for the other's word that it awaits this, which came long ago
        }
    } catch (const std::exception &) {  // it has gone since: whoever needs it next will know
    }
}

// Once; with the mutex held.
void PeerWatch::tell(std::optional<int> ended) {
    try {
        if (gloo_) {
            sent_.front().fill_(ended.value_or(kAllLive));
            sending_ = gloo_->send(sent_, after_, kWatchTag);
        }
    } catch (const std::exception &) {  // it has gone
    }
    gloo_.reset();
}

}  // namespace torch_switchml

// SPDX-License-Identifier: BSD-3-Clause
//
// Tells when the process of another rank ends while the ranks set something up together. Each rank awaits a message of
// the one before it on gloo's connection to it, which the system closes with the process; so a rank that is killed is
// known at once, and one that is slow or stopped is not taken for dead. Whoever finds the rank before it gone, or is
// told of one, tells the rank after it, so that all know which one it was, also where their store went with it.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace torch_switchml {

class PeerWatch {
  public:
    // Of a group of two ranks or more; `gloo` is connected.
    explicit PeerWatch(const c10::intrusive_ptr<c10d::Backend> &gloo);
    // Watches no longer, and has the rank after this one told that it lives, if that can be told without waiting.
    ~PeerWatch();
    PeerWatch(const PeerWatch &) = delete;
    PeerWatch &operator=(const PeerWatch &) = delete;

    // A rank whose process has ended, and how that is known.
    using Loss = std::pair<int, std::string>;
    std::optional<Loss> loss() const;

    // Where all ranks have come to the end: tells the rank after this one, which awaits it, and leaves the connections
    // as they were. Its own wait ends by itself when the rank before has come as far.
    void finish();

  private:
    std::optional<Loss> await_message();
    void note(const std::optional<Loss> &loss);
    void tell(std::optional<int> ended);

    const int before_;
    const int after_;
    std::vector<at::Tensor> sent_;
    std::vector<at::Tensor> received_;
    c10::intrusive_ptr<c10d::Work> receiving_;  // null where the rank before this one was gone already
    mutable std::mutex mutex_;                  // guards those below
    c10::intrusive_ptr<c10d::Backend> gloo_;    // null once the rank after this one has been told
    c10::intrusive_ptr<c10d::Work> sending_;
    bool is_over_ = false;
    std::optional<Loss> loss_;
    std::thread thread_;
};

}  // namespace torch_switchml

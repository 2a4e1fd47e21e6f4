// SPDX-License-Identifier: BSD-3-Clause
//
// Whose packets were dropped: the latest sources one by one, older ones as a sum,
// so that a flood from many addresses costs neither memory nor time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>

#include "counters.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::softswitch {

class DroppedSources {
  public:
    static constexpr std::size_t kMaxSources = 64;

    // The counters of a source, which is the latest one now.
    SourceDrops &of(const wire::Endpoint &source);

    // The latest source first.
    SourceReport report() const;

  private:
    std::list<DroppedSource> latest_;
    std::unordered_map<wire::Endpoint, std::list<DroppedSource>::iterator, wire::EndpointHash> places_;
    SourceDrops others_;
};

}  // namespace switchml::softswitch

// SPDX-License-Identifier: BSD-3-Clause
//
// A network that loses, repeats, delays, reorders and changes packets, as a seed
// says. What happens to the n-th packet follows from the seed and n alone, so
// that single faults can be left out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agenda.hpp"
#include "plan.hpp"
#include "wire/packet.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::simulation {

struct Packet {
    wire::Endpoint from;
    wire::Endpoint to;
    std::size_t bytes = 0;
    bool altered = false;         // by corruption that the UDP checksum does not catch
    bool header_altered = false;  // likewise, in the packet's number, slot, set, type or job
    std::array<std::uint8_t, wire::kMaxPacketBytes> data{};
};

// A fault that happened. Keys say which ones a run leaves out.
struct Fault {
    std::uint64_t key;
    std::int64_t at_ns;
    std::string what;
};

class Faults {
  public:
    explicit Faults(const std::set<std::uint64_t> &left_out) : left_out_(left_out) {}

    // Notes the fault; false when it is to be left out.
    bool happens(std::uint64_t key, std::int64_t at_ns, const char *what) {
        if (left_out_.count(key) > 0) return false;
        happened_.push_back({key, at_ns, what});
        return true;
    }

    const std::vector<Fault> &happened() const noexcept { return happened_; }

  private:
    const std::set<std::uint64_t> &left_out_;
    std::vector<Fault> happened_;
};

struct NetworkCounts {
    std::uint64_t packets = 0;
    std::uint64_t lost = 0;
    std::uint64_t repeated = 0;
    std::uint64_t delayed = 0;
    std::uint64_t corrupted = 0;
    std::uint64_t altered = 0;                // corrupted packets that pass the checksum
    std::uint64_t altered_headers = 0;        // of these, that arrived with a changed header
    std::uint64_t altered_headers_taken = 0;  // of these, that were summed up or taken as a result

    void add(const NetworkCounts &other);
};

class Network {
  public:
    using Deliver = std::function<void(const Packet &)>;

    Network(const Plan &plan, Agenda &agenda, Faults &faults) : plan_(plan), agenda_(agenda), faults_(faults) {}

    void on_arrival(Deliver deliver) { deliver_ = std::move(deliver); }

    // The receiver found nothing wrong with it.
    void note_taken(const Packet &packet) { counts_.altered_headers_taken += packet.header_altered ? 1 : 0; }

    void send(const wire::Endpoint &from, const wire::Endpoint &to, const std::uint8_t *data, std::size_t bytes);

    std::size_t in_flight() const noexcept { return packets_.size() - free_.size(); }
    const NetworkCounts &counts() const noexcept { return counts_; }

  private:
    void launch(const Packet &packet, std::int64_t delay_ns);
    void arrive(std::size_t index);
    bool corrupt(Packet &packet, Random &random);

    const Plan &plan_;
    Agenda &agenda_;
    Faults &faults_;
    Deliver deliver_;
    NetworkCounts counts_;
    std::vector<std::unique_ptr<Packet>> packets_;
    std::vector<std::size_t> free_;
};

}  // namespace switchml::simulation

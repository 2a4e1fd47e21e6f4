// SPDX-License-Identifier: BSD-3-Clause
//
// The sessions of a switch, each with slots of its own: which one a packet is of
// follows from the address and port it came from. Pure: no sockets, no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "counters.hpp"
#include "slot_table.hpp"
#include "sources.hpp"
#include "wire/packet.hpp"
#include "wire/udp_socket.hpp"

namespace switchml::softswitch {

// What the controller opens.
struct SessionOptions {
    std::uint64_t id;
    std::uint32_t num_workers;
    std::uint32_t packet_numel;
    std::optional<Numbering> numbering;  // nothing: the session of published clients
};

struct Member {
    wire::IpAddress ip;
    std::uint16_t first_port = 0;  // 0: the worker has not said, so any port of its address is its own
    std::uint16_t num_ports = 0;
    bool takes_bursts = false;  // results may go to it as one kernel packet (UDP GSO)
};

// Where the results for a lane of a worker go.
wire::Endpoint reply_to(const Member &member, std::uint16_t lane);

struct SessionWorker {
    Member member;
    WorkerCounters counters;
};

struct OpenSession {
    std::uint64_t id = 0;
    SlotTable slots;
    std::vector<SessionWorker> workers;  // by rank
    std::size_t packet_bytes = 0;
    std::uint32_t packet_numel = 0;
};

class SessionTable {
  public:
    // Where packets of an address and port belong. The lane is the port's place among the worker's own, or the port
    // itself where the worker did not say which it has: all workers of a session use the same for the same slot.
    struct Route {
        OpenSession *session;
        std::uint32_t rank;
        std::uint16_t lane;
    };

    // What became of a packet that is of a session.
    struct Taken {
        Route route;
        wire::Header header;
        Verdict verdict;
    };

    // Replaces a session of the same id.
    void open(const SessionOptions &options);
    // In the place of what the worker said before. std::out_of_range for a session that is not open and for a rank that
    // it does not have.
    void set_worker(std::uint64_t session_id, std::uint32_t rank, const Member &member);
    void close(std::uint64_t session_id);
    // Null where there is none. Stays valid until the session is closed.
    const OpenSession *find(std::uint64_t session_id) const;
    std::size_t size() const noexcept { return sessions_.size(); }
    // Places that packets may come from.
    std::size_t num_routes() const noexcept { return routes_.size(); }

    // Sums a packet up in its session and counts it for its worker; nothing, and the reason counted, for a packet of
    // no session or one that is malformed.
    std::optional<Taken> take(const wire::Endpoint &source, const std::uint8_t *data, std::size_t bytes);

    // Whether a probe is one to be answered: of a worker of a session, and as large as its packets. The reason is
    // counted where it is not.
    bool answers_probe(const wire::Endpoint &source, std::size_t bytes);

    // Since the table was made.
    const DropCounters &dropped() const noexcept { return dropped_; }
    SourceReport dropped_sources() const { return dropped_sources_.report(); }

  private:
    // The packets of one source mostly come together.
    struct LatestRoute {
        wire::Endpoint source;
        std::optional<Route> route;
    };

    // The route of a packet of this size. Null, and the reason counted, where its source is no worker of a session,
    // where it has no valid header, and where the session's packets have another size. Valid until the next call.
    const Route *find_sender(const wire::Endpoint &source, std::size_t bytes, bool has_header);
    const std::optional<Route> &route_of(const wire::Endpoint &source);
    std::optional<Route> find_route(const wire::Endpoint &source) const;
    void forget_routes(const std::function<bool(const Route &)> &concerned);

    std::map<std::uint64_t, std::unique_ptr<OpenSession>> sessions_;  // by id
    std::unique_ptr<OpenSession> spare_;                              // a closed one, for its memory
    std::unordered_map<wire::Endpoint, Route, wire::EndpointHash> routes_;
    std::optional<LatestRoute> latest_route_;  // nothing once routes_ has changed
    DropCounters dropped_;
    DroppedSources dropped_sources_;
};

}  // namespace switchml::softswitch

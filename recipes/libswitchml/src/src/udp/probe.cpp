// SPDX-License-Identifier: BSD-3-Clause
#include "probe.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

#include "error.hpp"
#include "path_failures.hpp"
#include "udp/monotonic.hpp"
#include "wire/packet.hpp"

namespace switchml::udp {
namespace {

// Between two packets of a socket: short at first, since one is answered within the path's round trip.
constexpr std::int64_t kFirstPauseNs = 20 * kNsPerMs;
constexpr std::int64_t kLongestPauseNs = 200 * kNsPerMs;

class Probe {
  public:
    Probe(const Settings &settings, const Session &session, std::vector<wire::UdpSocket> &sockets)
        : settings_(settings), data_plane_(session.data_plane), packet_(wire::packet_bytes(settings.packet_numel)) {
        wire::encode_probe(settings.packet_numel, packet_.data());
        for (wire::UdpSocket &socket : sockets) {
            socket.connect(data_plane_);
            silent_.push_back(&socket);
        }
    }

    void run() {
        const std::int64_t end_ns = monotonic_ns() + settings_.connect_timeout_ms * kNsPerMs;
        std::int64_t pause_ns = kFirstPauseNs;
        while (!silent_.empty()) {
            if (monotonic_ns() >= end_ns) throw silence();
            send();
            const std::int64_t until_ns = std::min(end_ns, monotonic_ns() + pause_ns);
            while (!silent_.empty() && monotonic_ns() < until_ns) {
                check_not_cancelled(settings_);
                wait(std::min(until_ns, monotonic_ns() + kFirstPauseNs));
                take_answers();
            }
            pause_ns = std::min(2 * pause_ns, kLongestPauseNs);
        }
    }

  private:
    void send() {
        for (const wire::UdpSocket *socket : silent_) {
            if (::send(socket->fd(), packet_.data(), packet_.size(), 0) >= 0) continue;
            if (errno == EMSGSIZE) throw too_large(data_plane_, packet_.size());
            last_error_ = errno;  // it may be over by the next one, as while an address is resolved
        }
        ++sent_;
    }

    void wait(std::int64_t until_ns) const {
        std::vector<pollfd> waited;
        for (const wire::UdpSocket *socket : silent_) waited.push_back({socket->fd(), POLLIN, 0});
        const std::int64_t left_ms = (until_ns - monotonic_ns() + kNsPerMs - 1) / kNsPerMs;
        if (poll(waited.data(), waited.size(), static_cast<int>(std::max<std::int64_t>(left_ms, 0))) < 0 &&
            errno != EINTR) {
            throw std::system_error(errno, std::generic_category(), "cannot wait for packets");
        }
    }

    void take_answers() {
        silent_.erase(std::remove_if(silent_.begin(), silent_.end(),
                                     [this](const wire::UdpSocket *socket) { return is_answered(*socket); }),
                      silent_.end());
    }

    bool is_answered(const wire::UdpSocket &socket) {
        std::array<std::uint8_t, wire::kMaxPacketBytes + 1> received{};
        for (;;) {
            const ssize_t got = recv(socket.fd(), received.data(), received.size(), 0);
            if (got >= 0 && wire::is_probe(received.data(), static_cast<std::size_t>(got))) return true;
            if (got >= 0) continue;  // of somebody who has the switch's address and port
            if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
            if (errno == EMSGSIZE) throw too_large(data_plane_, packet_.size());
            if (errno != EINTR) last_error_ = errno;
        }
    }

    Error silence() const {
        return no_path({silent_.front()->local(), data_plane_, sent_, settings_.connect_timeout_ms, packet_.size(),
                        last_error_ != 0 ? std::strerror(last_error_) : ""});
    }

    const Settings &settings_;
    const wire::Endpoint data_plane_;
    std::vector<std::uint8_t> packet_;
    std::vector<const wire::UdpSocket *> silent_;
    int sent_ = 0;  // of each socket
    int last_error_ = 0;
};

}  // namespace

void probe_path(const Settings &settings, const Session &session, std::vector<wire::UdpSocket> &sockets) {
    if (session.answers_probes) Probe(settings, session, sockets).run();
}

}  // namespace switchml::udp

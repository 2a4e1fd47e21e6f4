// SPDX-License-Identifier: BSD-3-Clause
#include "endpoint.hpp"

#include <cerrno>
#include <string>
#include <system_error>

#include "error.hpp"
#include "wire/packet.hpp"

namespace switchml::udp {
namespace {

Error bind_error(const std::system_error &error, const wire::Endpoint &wanted) {
    const std::string what = error.what();
    if (error.code().value() == EADDRINUSE) {
        return {SWITCHML_EIO, what +
                                  "; another worker or program has it: set SWITCHML_WORKER_PORT (the same on all "
                                  "workers), or SWITCHML_LOCAL_ADDRESS where several workers share a host"};
    }
    if (error.code().value() == EADDRNOTAVAIL) {
        return {SWITCHML_ECONFIG, what + "; SWITCHML_LOCAL_ADDRESS must be an address of this host, and " +
                                      wire::to_text(wanted.ip) + " is none"};
    }
    return {SWITCHML_EIO, what};
}

}  // namespace

std::vector<wire::UdpSocket> bind_sockets(const Settings &settings, const wire::Endpoint &first) {
    std::vector<wire::UdpSocket> sockets;
    for (std::uint32_t thread = 0; thread < settings.num_threads; ++thread) {
        const wire::Endpoint local{first.ip, static_cast<std::uint16_t>(first.port + thread)};
        try {
            sockets.emplace_back(local, wire::kClientTtl);
        } catch (const std::system_error &error) {
            throw bind_error(error, local);
        }
    }
    return sockets;
}

}  // namespace switchml::udp

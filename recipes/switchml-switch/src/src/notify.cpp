// SPDX-License-Identifier: BSD-3-Clause
#include "notify.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace switchml::softswitch {

void notify_service_manager(const std::string &state) {
    const char *named = std::getenv("NOTIFY_SOCKET");
    if (named == nullptr || *named == '\0') return;
    const std::string path = named;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const bool usable = (path[0] == '/' || path[0] == '@') && path.size() < sizeof address.sun_path;
    if (!usable) {
        std::fprintf(stderr, "switchml-switch: NOTIFY_SOCKET='%s' is no socket's path\n", named);
        return;
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    if (path[0] == '@') address.sun_path[0] = '\0';  // an abstract name
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool sent = fd >= 0 && sendto(fd, state.data(), state.size(), MSG_NOSIGNAL,
                                        reinterpret_cast<const sockaddr *>(&address), size) >= 0;
    if (!sent) {
        std::fprintf(stderr, "switchml-switch: cannot notify the service manager at %s: %s\n", named,
                     std::strerror(errno));
    }
    if (fd >= 0) close(fd);
}

}  // namespace switchml::softswitch

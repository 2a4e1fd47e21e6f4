// SPDX-License-Identifier: BSD-3-Clause
#include "udp_socket.hpp"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#ifndef UDP_GRO
#define UDP_GRO 104  // linux/udp.h since 5.0; C libraries lag behind
#endif

namespace switchml::wire {
namespace {

[[noreturn]] void fail(const std::string &what) { throw std::system_error(errno, std::generic_category(), what); }

void set_option(int fd, int level, int name, int value, const char *text) {
    if (setsockopt(fd, level, name, &value, sizeof value) != 0) fail(text);
}

int get_buffer(int fd, int name) {
    int value = 0;
    socklen_t size = sizeof value;
    if (getsockopt(fd, SOL_SOCKET, name, &value, &size) != 0) fail("cannot read a socket's buffer size");
    return value;
}

// The kernel doubles what is asked for, to leave room for its own bookkeeping,
// and reports the doubled number. Callers count bookkeeping themselves.
std::size_t reserve(int fd, int name, int forced_name, std::size_t bytes) {
    const int wanted = static_cast<int>(std::min<std::size_t>(bytes, INT_MAX / 2));
    if (get_buffer(fd, name) >= wanted) return static_cast<std::size_t>(get_buffer(fd, name));
    const int half = (wanted + 1) / 2;
    set_option(fd, SOL_SOCKET, name, half, "cannot set a socket's buffer size");
    if (get_buffer(fd, name) < wanted) {
        // Beyond the system's limit; an administrator's process may pass it, others stay at the limit.
        (void)setsockopt(fd, SOL_SOCKET, forced_name, &half, sizeof half);
    }
    return static_cast<std::size_t>(get_buffer(fd, name));
}

// The process's open sockets, which a child made by fork() closes: its copies,
// of which it knows nothing, would keep their addresses taken for as long as it
// runs (a data loader's worker), whatever the parent does. Never destroyed, for
// children may come from any thread until the process ends.
class OpenSockets {
  public:
    static OpenSockets &instance() {
        static OpenSockets *const sockets = new OpenSockets;
        return *sockets;
    }

    void add(int fd) {
        const std::lock_guard lock(mutex_);
        fds_.insert(fd);
    }

    void remove_and_close(int fd) {
        const std::lock_guard lock(mutex_);
        if (fds_.erase(fd) == 1) close(fd);
    }

  private:
    OpenSockets() {
        (void)pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                             [] { instance().close_all(); });
    }

    void close_all() {
        for (const int fd : fds_) close(fd);
        fds_.clear();
        mutex_.unlock();
    }

    std::mutex mutex_;
    std::set<int> fds_;
};

}  // namespace

Endpoint local_endpoint(int fd) {
    SocketAddress address;
    socklen_t size = address.size();
    if (getsockname(fd, address.get(), &size) != 0) fail("cannot read a socket's address");
    return address.endpoint();
}

UdpSocket::UdpSocket(const Endpoint &local, int ttl)
    : fd_(socket(local.ip.is_ipv4() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    if (fd_ < 0) fail("cannot make a UDP socket");
    try {
        // The switch drops fragments, so let the kernel refuse what would need them.
        if (local.ip.is_ipv4()) {
            set_option(fd_, IPPROTO_IP, IP_TTL, ttl, "cannot set a socket's TTL");
            set_option(fd_, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO, "cannot forbid fragmentation");
        } else {
            set_option(fd_, IPPROTO_IPV6, IPV6_UNICAST_HOPS, ttl, "cannot set a socket's hop limit");
            set_option(fd_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO, "cannot forbid fragmentation");
        }
        const SocketAddress address(local);
        if (bind(fd_, address.get(), address.size()) != 0) fail("cannot bind UDP " + to_text(local));
        local_ = local_endpoint(fd_);
        OpenSockets::instance().add(fd_);
    } catch (...) {
        close(fd_);
        throw;
    }
}

UdpSocket::~UdpSocket() {
    if (fd_ >= 0) OpenSockets::instance().remove_and_close(fd_);
}

UdpSocket::UdpSocket(UdpSocket &&other) noexcept : fd_(std::exchange(other.fd_, -1)), local_(other.local_) {}

void UdpSocket::connect(const Endpoint &peer) {
    const SocketAddress address(peer);
    if (::connect(fd_, address.get(), address.size()) != 0) {
        fail("cannot reach UDP " + to_text(peer) + " from " + to_text(local_));
    }
}

std::size_t UdpSocket::reserve_receive(std::size_t bytes) { return reserve(fd_, SO_RCVBUF, SO_RCVBUFFORCE, bytes); }

std::size_t UdpSocket::reserve_send(std::size_t bytes) { return reserve(fd_, SO_SNDBUF, SO_SNDBUFFORCE, bytes); }

bool UdpSocket::enable_receive_offload() {
    const int on = 1;
    return setsockopt(fd_, SOL_UDP, UDP_GRO, &on, sizeof on) == 0;
}

}  // namespace switchml::wire

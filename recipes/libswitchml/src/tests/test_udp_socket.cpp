// SPDX-License-Identifier: BSD-3-Clause
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <optional>

#include "wire/check.hpp"
#include "wire/udp_socket.hpp"

using namespace switchml::wire;

TEST(a_child_by_fork_does_not_keep_an_address_taken) {
    std::optional<UdpSocket> socket;
    socket.emplace(Endpoint{0x7F000001, 0}, 64);
    const Endpoint address = socket->local();
    std::array<int, 2> started{};
    std::array<int, 2> over{};
    CHECK_EQ(pipe(started.data()), 0);
    CHECK_EQ(pipe(over.data()), 0);
    char byte = 0;
    const pid_t child = fork();
    if (child == 0) {
        close(over[1]);
        (void)!write(started[1], &byte, 1);
        (void)!read(over[0], &byte, 1);  // until the parent has bound it again
        _exit(0);
    }
    CHECK(child > 0);
    CHECK_EQ(read(started[0], &byte, 1), ssize_t{1});
    socket.reset();
    socket.emplace(address, 64);  // throws where the address is in use
    CHECK_EQ(int{socket->local().port}, int{address.port});
    close(over[1]);
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    close(over[0]);
}

CHECK_MAIN()

// SPDX-License-Identifier: BSD-3-Clause
//
// Whether packets pass is asked before the first job; the switch is this test.
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "error.hpp"
#include "fake_switch.hpp"
#include "udp/endpoint.hpp"
#include "udp/probe.hpp"
#include "wire/check.hpp"
#include "wire/packet.hpp"

using namespace switchml;
using namespace switchml::testing;

namespace {

using Clock = std::chrono::steady_clock;

struct TwoThreads {
    TwoThreads() {
        settings.num_threads = 2;
        settings.packet_numel = 64;
        settings.connect_timeout_ms = 300;
        sockets = udp::bind_sockets(settings, {private_address(2), 4000});
        session.data_plane = plane.local();
        session.answers_probes = true;
    }

    void probe() { udp::probe_path(settings, session, sockets); }

    Error failure() {
        try {
            probe();
        } catch (const Error &error) {
            return error;
        }
        throw check::Failed("no error");
    }

    wire::UdpSocket plane{{private_address(1), 0}, 64};
    Settings settings;
    udp::Session session;
    std::vector<wire::UdpSocket> sockets;
};

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

TEST(each_socket_is_probed_until_it_is_answered) {
    TwoThreads test;
    test.settings.connect_timeout_ms = 5000;
    std::thread plane([&] {
        std::vector<wire::Endpoint> once;  // of each socket the first is lost
        for (int answered = 0; answered < 2;) {
            const Packet packet = next_packet(test.plane);
            CHECK(wire::is_probe(packet.bytes.data(), packet.bytes.size()));
            CHECK_EQ(packet.bytes.size(), wire::packet_bytes(64));
            if (std::find(once.begin(), once.end(), packet.source) == once.end()) {
                once.push_back(packet.source);
                send_packet(test.plane, packet.source, {1, 2, 3});  // which is no answer
                continue;
            }
            send_packet(test.plane, packet.source, packet.bytes);
            ++answered;
        }
    });
    test.probe();
    plane.join();
}

TEST(a_path_without_an_answer_is_an_error_that_names_both_ends) {
    TwoThreads test;
    const auto start = Clock::now();
    const Error error = test.failure();
    CHECK(seconds_since(start) >= 0.3 && seconds_since(start) < 2);
    CHECK_EQ(error.status(), SWITCHML_EUNREACHABLE);
    CHECK_MENTIONS(error.what(), "no packets (UDP) pass between " + wire::to_text(test.sockets[0].local()) +
                                     " and the switch at " + wire::to_text(test.plane.local()));
    CHECK_MENTIONS(error.what(), "within 300 ms, while its controller answers (TCP)");
    CHECK_MENTIONS(error.what(), "packets of 294 bytes pass");
}

TEST(what_the_network_answers_is_said) {
    TwoThreads test;
    const wire::UdpSocket gone({private_address(3), 0}, 64);
    test.session.data_plane = {private_address(4), gone.local().port};  // where nobody listens
    CHECK_MENTIONS(test.failure().what(), "(the network's last answer: Connection refused)");
}

TEST(a_switch_that_answers_no_probes_is_sent_none) {
    TwoThreads test;
    test.session.answers_probes = false;
    test.probe();
    pollfd waited{test.plane.fd(), POLLIN, 0};
    CHECK_EQ(poll(&waited, 1, 0), 0);
}

TEST(a_probe_that_is_cancelled_ends) {
    TwoThreads test;
    test.settings.connect_timeout_ms = 600000;
    int asked = 0;
    test.settings.is_cancelled = [&asked] { return ++asked > 2; };
    CHECK_EQ(test.failure().status(), SWITCHML_EABORTED);
}

CHECK_MAIN()

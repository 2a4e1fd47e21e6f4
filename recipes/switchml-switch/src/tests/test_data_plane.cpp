// SPDX-License-Identifier: BSD-3-Clause
//
// The switch's packets, byte by byte: workers are bare sockets here.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "data_plane.hpp"
#include "wire/check.hpp"

using namespace switchml;
using namespace switchml::softswitch;

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kSession = 77;

std::uint32_t address(std::uint32_t last) {
    const auto pid = static_cast<std::uint32_t>(getpid());
    return 127U << 24 | (1 + pid % 250) << 16 | (pid / 250 % 250) << 8 | last;
}

DataPlaneOptions local() {
    DataPlaneOptions options;
    options.local = {address(1), 0};
    return options;
}

class Worker {
  public:
    Worker(std::uint32_t last, std::uint16_t port, const DataPlane &plane) : socket_({address(last), port}, 64) {
        socket_.connect(plane.local());
    }

    void send(const Bytes &bytes) {
        if (::send(socket_.fd(), bytes.data(), bytes.size(), 0) < 0) throw std::runtime_error("cannot send");
    }

    Bytes receive() {
        pollfd waited{socket_.fd(), POLLIN, 0};
        if (poll(&waited, 1, 5000) != 1) throw std::runtime_error("no result came");
        Bytes bytes(4096);
        const ssize_t got = recv(socket_.fd(), bytes.data(), bytes.size(), 0);
        if (got < 0) throw std::runtime_error("cannot receive");
        bytes.resize(static_cast<std::size_t>(got));
        return bytes;
    }

    bool has_packet() {
        pollfd waited{socket_.fd(), POLLIN, 0};
        return poll(&waited, 1, 0) == 1;
    }

  private:
    wire::UdpSocket socket_;
};

// 64 values, all zero but the first.
Bytes packet(Bytes header, std::uint32_t first_value, std::size_t numel = 64) {
    for (int shift = 24; shift >= 0; shift -= 8) header.push_back(static_cast<std::uint8_t>(first_value >> shift));
    header.resize(10 + 4 * numel, 0);
    return header;
}

Bytes probe_of(std::uint32_t numel) {
    Bytes probe(wire::packet_bytes(numel));
    wire::encode_probe(numel, probe.data());
    return probe;
}

// Of a switch with faults.
struct OneWorker {
    explicit OneWorker(const DataPlaneOptions &options) : plane(options) {
        plane.open_session({kSession, 1, 64, std::nullopt});
        plane.set_worker(kSession, 0, {address(2), 0, 0, false});
    }

    DataPlane plane;
    Worker worker{2, 4242, plane};
};

struct TwoWorkers {
    TwoWorkers() {
        plane.open_session({kSession, 2, 64, std::nullopt});
        plane.set_worker(kSession, 0, {address(2), 0, 0, false});
        plane.set_worker(kSession, 1, {address(3), 0, 0, false});
    }

    // Packets are handled in order, so one that is answered tells that those before it were handled.
    void settle() {
        first.send(packet({0x11, 0, 0, 0, 0, 0, 0x1F, 0xFF, 0, 0}, 0));
        second.send(packet({0x11, 0, 0, 0, 0, 0, 0x1F, 0xFF, 0, 0}, 0));
        first.receive();
        second.receive();
    }

    DataPlane plane{local()};
    Worker first{2, 4242, plane};
    Worker second{3, 4242, plane};
};

}  // namespace

TEST(a_result_echoes_the_completing_header_and_carries_the_aggregate) {
    TwoWorkers test;
    test.first.send(packet({0x11, 0xAA, 1, 2, 3, 4, 0x80, 0x05, 0xF0, 0x00}, 0x01020304));
    test.second.send(packet({0x11, 0xBB, 5, 6, 7, 8, 0x80, 0x05, 0x07, 0x02}, 0xFFFFFFFF));
    const Bytes expected = packet({0x11, 0xBB, 5, 6, 7, 8, 0x80, 0x05, 0x07, 0x02}, 0x01020303);
    CHECK(test.first.receive() == expected);
    CHECK(test.second.receive() == expected);
}

TEST(packets_of_256_values_are_summed_whole) {
    DataPlane plane{local()};
    plane.open_session({kSession, 1, 256, std::nullopt});
    plane.set_worker(kSession, 0, {address(2), 0, 0, false});
    Worker worker(2, 4242, plane);
    Bytes sent = packet({0x13, 1, 0, 0, 0, 0, 0, 0, 0, 0}, 5, 256);
    sent.back() = 9;
    CHECK_EQ(sent.size(), 1034U);
    worker.send(sent);
    CHECK(worker.receive() == sent);
    CHECK_EQ(plane.counters().elements_aggregated, 256U);
}

TEST(a_probe_comes_back_to_its_worker_alone) {
    TwoWorkers test;
    const Bytes probe = probe_of(64);
    test.first.send(probe);
    CHECK(test.first.receive() == probe);
    CHECK(!test.second.has_packet());
    CHECK_EQ(test.plane.counters().workers.at(0).packets, 0U);
    CHECK_EQ(test.plane.counters().results_sent, 0U);
}

TEST(a_probe_of_nobody_or_of_another_size_stays_unanswered) {
    TwoWorkers test;
    test.first.send(probe_of(256));
    Worker stranger(4, 4242, test.plane);
    stranger.send(probe_of(64));
    test.settle();
    CHECK(!test.first.has_packet());
    CHECK(!stranger.has_packet());
    CHECK_EQ(test.plane.counters().packets_dropped.malformed, 1U);
    CHECK_EQ(test.plane.counters().packets_dropped.unknown_worker, 1U);
}

TEST(a_lost_result_goes_again_to_its_worker_alone) {
    TwoWorkers test;
    const Bytes mine = packet({0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0}, 1);
    test.first.send(mine);
    test.second.send(mine);
    const Bytes result = test.first.receive();
    CHECK(test.second.receive() == result);
    test.second.send(mine);
    CHECK(test.second.receive() == result);
    CHECK(!test.first.has_packet());
    CHECK_EQ(test.plane.counters().workers.at(1).retransmitted_results, 1U);
    CHECK_EQ(test.plane.counters().results_sent, 3U);
}

TEST(results_go_to_the_port_of_the_completing_packet) {
    TwoWorkers test;
    Worker second_thread(2, 4243, test.plane);
    Worker other_second_thread(3, 4243, test.plane);
    test.first.send(packet({0x11, 1, 0, 0, 0, 0, 0, 1, 0, 0}, 1));
    other_second_thread.send(packet({0x11, 1, 0, 0, 0, 0, 0, 1, 0, 0}, 2));
    CHECK(second_thread.receive() == other_second_thread.receive());
    CHECK(!test.first.has_packet());
}

TEST(what_is_not_part_of_the_session_is_dropped_and_counted) {
    TwoWorkers test;
    Worker stranger(9, 4242, test.plane);
    const Bytes good = packet({0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0}, 1);
    stranger.send(good);
    Bytes cut = good;
    cut.resize(265);
    test.first.send(cut);
    test.first.send({});
    test.first.send(Bytes(9000, 0x11));                                   // longer than any packet
    test.first.send(packet({0x13, 1, 0, 0, 0, 0, 0, 0, 0, 0}, 1, 256));   // the other size class
    test.first.send(packet({0x11, 1, 0, 0, 0, 0, 0x20, 0x00, 0, 0}, 1));  // slot 8192
    test.settle();
    const Counters counters = test.plane.counters();
    CHECK_EQ(counters.packets_dropped.unknown_worker, 1U);
    CHECK_EQ(counters.packets_dropped.malformed, 4U);
    CHECK_EQ(counters.packets_dropped.bad_slot, 1U);
    CHECK_EQ(counters.packets_received, 8U);
    CHECK_EQ(counters.slots_completed, 1U);
    CHECK_EQ(counters.workers.at(0).packets, 1U);
    CHECK_EQ(counters.workers.at(0).bytes, 266U);
    const SourceReport &sources = counters.dropped_sources;
    CHECK_EQ(sources.latest.size(), 2U);
    CHECK_EQ(wire::to_text(sources.latest.at(0).source), wire::to_text({address(2), 4242}));
    CHECK_EQ(sources.latest.at(0).drops.malformed, 4U);
    CHECK_EQ(sources.latest.at(1).source.ip.ipv4(), address(9));
    CHECK_EQ(sources.latest.at(1).drops.unknown_worker, 1U);
}

TEST(a_duplicated_packet_is_answered_twice_and_summed_once) {
    DataPlaneOptions options = local();
    options.packet_faults.duplicate = 0.999999;
    OneWorker test(options);
    const Bytes sent = packet({0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0}, 5);
    test.worker.send(sent);
    CHECK(test.worker.receive() == sent);
    CHECK(test.worker.receive() == sent);
    const Counters counters = test.plane.counters();
    CHECK_EQ(counters.packets_received, 1U);
    CHECK_EQ(counters.packet_faults.duplicated, 1U);
    CHECK_EQ(counters.workers.at(0).retransmitted_results, 1U);
}

// Nothing else comes that could wake the switch.
TEST(a_delayed_packet_and_a_delayed_result_come_by_themselves) {
    DataPlaneOptions options = local();
    options.packet_faults.delay = 0.999999;
    options.result_faults.reorder = 0.999999;
    OneWorker test(options);
    const Bytes sent = packet({0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0}, 5);
    test.worker.send(sent);
    CHECK(test.worker.receive() == sent);
    const Counters counters = test.plane.counters();
    CHECK_EQ(counters.packet_faults.delayed, 1U);
    CHECK_EQ(counters.result_faults.reordered, 1U);
    CHECK_EQ(counters.results_sent, 1U);
}

TEST(a_delayed_probe_comes_back_and_is_no_result) {
    DataPlaneOptions options = local();
    options.result_faults.delay = 0.999999;
    OneWorker test(options);
    test.worker.send(probe_of(64));
    CHECK(test.worker.receive() == probe_of(64));
    const Counters counters = test.plane.counters();
    CHECK_EQ(counters.result_faults.delayed, 1U);
    CHECK_EQ(counters.results_sent, 0U);
}

TEST(a_new_session_forgets_the_old_one) {
    TwoWorkers test;
    test.first.send(packet({0x11, 1, 0, 0, 0, 0, 0, 0, 0, 0}, 100));
    test.plane.open_session({kSession, 2, 64, std::nullopt});
    CHECK_EQ(test.plane.counters().workers.at(0).ip.ipv4(), 0U);
    test.plane.set_worker(kSession, 0, {address(2), 0, 0, false});
    test.plane.set_worker(kSession, 1, {address(3), 0, 0, false});
    test.first.send(packet({0x11, 2, 0, 0, 0, 0, 0, 0, 0, 0}, 1));
    test.second.send(packet({0x11, 2, 0, 0, 0, 0, 0, 0, 0, 0}, 2));
    CHECK(test.second.receive() == packet({0x11, 2, 0, 0, 0, 0, 0, 0, 0, 0}, 3));
    CHECK_EQ(test.plane.counters().sessions_opened, 2U);
}

TEST(injected_loss_follows_the_seed) {
    const auto dropped = [](std::uint64_t seed) {
        DataPlaneOptions options = local();
        options.packet_faults.drop = 0.5;
        options.seed = seed;
        DataPlane plane(options);
        plane.open_session({kSession, 1, 64, std::nullopt});
        plane.set_worker(kSession, 0, {address(2), 0, 0, false});
        Worker worker(2, 4242, plane);
        std::string pattern;
        std::uint64_t dropped_so_far = 0;
        for (std::uint8_t slot = 0; slot < 32; ++slot) {
            worker.send(packet({0x11, 1, 0, 0, 0, 0, 0, slot, 0, 0}, 1));
            Counters counters;
            while (counters.packets_received != slot + 1U) counters = plane.counters();
            pattern += counters.packet_faults.dropped > dropped_so_far ? '0' : '1';
            dropped_so_far = counters.packet_faults.dropped;
        }
        return pattern;
    };
    const std::string pattern = dropped(1);
    CHECK_EQ(dropped(1), pattern);
    CHECK(dropped(2) != pattern);
    CHECK(pattern.find('0') != std::string::npos && pattern.find('1') != std::string::npos);
}

TEST(an_unreachable_worker_does_not_stop_the_others) {
    DataPlane plane{local()};
    plane.open_session({kSession, 2, 64, std::nullopt});
    plane.set_worker(kSession, 0, {address(2), 4242, 2, false});
    plane.set_worker(kSession, 1, {address(3), 65535, 1, false});  // results of lane 1 go to port 0: the system refuses
    Worker first(2, 4243, plane);
    Worker second(3, 65535, plane);
    const Bytes sent = packet({0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1);
    second.send(sent);
    first.send(sent);
    first.receive();
    CHECK_EQ(plane.counters().results_undeliverable, 1U);
    first.send(sent);
    first.receive();
    CHECK_EQ(plane.failure(), "");
}

TEST(a_port_in_use_is_named) {
    const DataPlane plane{local()};
    DataPlaneOptions same = local();
    same.local = plane.local();
    try {
        const DataPlane second(same);
    } catch (const std::exception &error) {
        CHECK_MENTIONS(error.what(), wire::to_text(plane.local()));
        CHECK_MENTIONS(error.what(), "in use");
        return;
    }
    throw check::Failed("two switches share a port");
}

CHECK_MAIN()

// SPDX-License-Identifier: BSD-3-Clause
//
// Session set-up against a controller that behaves as published ones do.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <string>
#include <system_error>

#include "controller_client.hpp"
#include "error.hpp"
#include "fake_switch.hpp"
#include "local_address.hpp"
#include "transport.hpp"
#include "udp/endpoint.hpp"
#include "udp/session.hpp"
#include "wire/check.hpp"

using namespace switchml;
using namespace switchml::udp;
using namespace switchml::testing;

namespace {

std::atomic<time_t> seconds_set_forward{0};

}  // namespace

// Of the whole process: the system's clock, which may be set.
extern "C" int clock_gettime(clockid_t clock, timespec *time) noexcept {
    const auto status = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
    if (clock == CLOCK_REALTIME) time->tv_sec += seconds_set_forward;
    return status;
}

namespace {

Settings settings_for(const FakeController &controller) {
    Settings settings;
    settings.num_workers = 1;
    const std::string target = controller.target();
    const std::size_t colon = target.find(':');
    settings.controller_host = target.substr(0, colon);
    settings.controller_port = static_cast<std::uint16_t>(std::stoi(target.substr(colon + 1)));
    settings.worker_port = 4000;
    settings.num_threads = 1;
    settings.max_outstanding_packets = 256;
    settings.packet_numel = 256;
    settings.connect_timeout_ms = 5000;
    settings.job_timeout_ms = 5000;
    return settings;
}

template <class Body>
Error failure_of(Body &&body) {
    try {
        body();
    } catch (const Error &error) {
        return error;
    }
    throw check::Failed("no error came");
}

}  // namespace

TEST(the_calls_come_in_the_published_order) {
    FakeController controller(private_address(1));
    const wire::Endpoint data = open_session(settings_for(controller), {private_address(2), 4000}).data_plane;
    CHECK_EQ(controller.calls, "VSBB");
    CHECK_EQ(data.ip.ipv4(), private_address(1));
    CHECK_EQ(data.port, 48864);
    CHECK_EQ(controller.seen.rank(), 0U);
    CHECK_EQ(controller.seen.num_workers(), 1U);
    CHECK_EQ(controller.seen.ipv4(), private_address(2));
    CHECK_EQ(static_cast<int>(controller.seen.packet_size()), 3);
    CHECK_EQ(controller.seen.mac(), 0U);
    CHECK(controller.seen.session_id() != 0);
}

TEST(a_call_that_fails_says_how) {
    FakeController controller(private_address(1));
    const auto failure = [&] { open_session(settings_for(controller), {private_address(2), 4000}); };
    controller.broadcasts_end = {grpc::StatusCode::UNIMPLEMENTED, "no such method"};
    const Error unknown = failure_of(failure);
    CHECK_EQ(unknown.status(), SWITCHML_EREFUSED);
    CHECK_MENTIONS(unknown.what(), "Sync.Broadcast at " + controller.target() + ": what answers there does not know");
    controller.broadcasts_end = {grpc::StatusCode::DEADLINE_EXCEEDED, "a proxy's limit"};  // and not ours
    CHECK_MENTIONS(failure_of(failure).what(), "a time limit that is not this worker's: a proxy's limit");
}

TEST(later_ranks_wait_for_the_first_before_they_ask) {
    FakeController controller(private_address(1));
    Settings settings = settings_for(controller);
    settings.num_workers = 2;
    settings.rank = 1;
    settings.max_outstanding_packets = 1;  // with one thread and 64 values: parameters that pack to 0, the
    settings.packet_numel = 64;            // value that the fake controller hands back to a rank that sends 0
    open_session(settings, {private_address(3), 4000});
    CHECK_EQ(controller.calls, "VBSB");
    CHECK_EQ(static_cast<int>(controller.seen.packet_size()), 1);
}

TEST(a_data_port_that_the_switch_names_is_used) {
    FakeController controller(private_address(1));
    controller.data_port = 50001;
    CHECK_EQ(open_session(settings_for(controller), {private_address(2), 4000}).data_plane.port, 50001);
    controller.data_port = 70000;
    CHECK_EQ(failure_of([&] { open_session(settings_for(controller), {private_address(2), 4000}); }).status(),
             SWITCHML_EREFUSED);
}

TEST(a_clock_that_is_set_while_the_session_opens_ends_nothing) {
    FakeController controller(private_address(1));
    controller.on_broadcast = [] { seconds_set_forward = 3600; };
    open_session(settings_for(controller), {private_address(2), 4000});
    seconds_set_forward = 0;
    CHECK_EQ(controller.calls, "VSBB");
}

TEST(a_controller_that_stops_while_workers_wait_is_noticed) {
    FakeController controller(private_address(1));
    std::promise<void> over;
    const std::shared_future<void> end = over.get_future().share();
    controller.on_broadcast = [end] { end.wait(); };
    int renewals = 0;
    controller.on_renewal = [&] {
        if (++renewals > 1) end.wait();
    };
    Settings settings = settings_for(controller);
    settings.connect_timeout_ms = 300;
    settings.job_timeout_ms = 600000;
    const Error error = failure_of([&] { open_session(settings, {private_address(2), 4000}); });
    over.set_value();
    CHECK_EQ(error.status(), SWITCHML_EUNREACHABLE);
    CHECK_MENTIONS(error.what(), "the switch controller at " + controller.target() + " has stopped answering");
    CHECK_MENTIONS(error.what(), "nothing for 300 ms");
}

TEST(a_controller_that_knows_no_leases_lets_workers_wait) {
    FakeController controller(private_address(1));
    std::promise<void> third;
    int renewals = 0;
    controller.on_renewal = [&] {
        if (++renewals == 3) third.set_value();
    };
    controller.on_broadcast = [&] { third.get_future().wait(); };
    Settings settings = settings_for(controller);
    settings.connect_timeout_ms = 300;
    open_session(settings, {private_address(2), 4000});
    CHECK_EQ(controller.calls, "VSBB");
}

TEST(zeros_are_a_refusal) {
    FakeController controller(private_address(1));
    controller.refuse = true;
    const Error error = failure_of([&] { open_session(settings_for(controller), {private_address(2), 4000}); });
    CHECK_EQ(error.status(), SWITCHML_EREFUSED);
    CHECK_MENTIONS(error.what(), controller.target());
    CHECK_MENTIONS(error.what(), "rank 0");
}

// As from 127.0.0.1 to a switch on another host; the system does not let a plain socket connect to this one.
TEST(a_worker_that_cannot_reach_the_switch_gives_the_session_back) {
    FakeController controller(private_address(1));
    controller.data_address = 0xFFFFFFFF;
    controller.lease_ms = 20000;
    Settings settings = settings_for(controller);
    settings.local_address = private_address(2);
    try {
        open_transport(settings);
        throw check::Failed("no error came");
    } catch (const std::system_error &error) {
        CHECK_MENTIONS(error.what(), "255.255.255.255");
    }
    CHECK_EQ(controller.calls, "VSBBE");
}

// As where another worker failed before it came.
TEST(an_opening_that_is_cancelled_while_it_waits_for_others_ends_and_gives_its_port_back) {
    FakeController controller(private_address(1));
    std::atomic<bool> cancelled{false};
    std::promise<void> ended;
    controller.on_broadcast = [&, waits = ended.get_future().share()] {
        cancelled = true;
        waits.wait();
    };
    Settings settings = settings_for(controller);
    settings.local_address = private_address(2);
    settings.connect_timeout_ms = settings.job_timeout_ms = 600000;
    settings.is_cancelled = [&] { return cancelled.load(); };
    const Error error = failure_of([&] { open_transport(settings); });
    ended.set_value();
    CHECK_EQ(error.status(), SWITCHML_EABORTED);
    CHECK_MENTIONS(error.what(), "no longer waits");
    bind_sockets(settings, {private_address(2), settings.worker_port});
}

TEST(an_opening_that_is_cancelled_as_the_switch_grants_it_gives_the_session_back) {
    FakeController controller(private_address(1));
    std::atomic<bool> cancelled{false};
    std::promise<void> given_back;
    controller.lease_ms = 20000;
    controller.on_session = [&, waits = given_back.get_future().share()] {
        cancelled = true;
        waits.wait();
    };
    controller.on_end = [&] { given_back.set_value(); };
    Settings settings = settings_for(controller);
    settings.is_cancelled = [&] { return cancelled.load(); };
    CHECK_EQ(failure_of([&] { open_session(settings, {private_address(2), 4000}); }).status(), SWITCHML_EABORTED);
    CHECK_EQ(controller.calls, "VSE");
}

TEST(the_session_id_carries_what_all_workers_must_share) {
    Settings settings;
    settings.max_outstanding_packets = 4096;
    settings.num_threads = 32;
    settings.packet_numel = 256;
    const std::uint64_t id = make_session_id(1700000000123456789ULL, settings);
    check_session_id(id, settings);
    CHECK_EQ(id >> 18, 1700000000123456789ULL >> 18);
    const auto mismatch = [&](auto &&change) {
        Settings other = settings;
        change(other);
        return failure_of([&] { check_session_id(id, other); });
    };
    const Error window = mismatch([](Settings &s) { s.max_outstanding_packets = 2048; });
    CHECK_EQ(window.status(), SWITCHML_ECONFIG);
    CHECK_MENTIONS(window.what(), "max_outstanding_packets=2048");
    CHECK_MENTIONS(window.what(), "max_outstanding_packets=4096");
    CHECK_MENTIONS(mismatch([](Settings &s) { s.num_threads = 16; }).what(), "num_threads=16");
    CHECK_MENTIONS(mismatch([](Settings &s) { s.packet_numel = 64; }).what(), "packet_numel=64");
}

TEST(on_loopback_each_rank_gets_an_address_of_its_own) {
    FakeController controller(private_address(1));
    Settings settings = settings_for(controller);
    settings.num_workers = 32;
    settings.rank = 31;
    CHECK_EQ(wire::to_text(choose_local_address(settings)), "127.0.83.32");
    settings.local_address = private_address(9);
    CHECK_EQ(choose_local_address(settings).ipv4(), private_address(9));
}

TEST(on_the_loopback_address_of_ipv6_each_rank_gets_ports_of_its_own) {
    Settings settings;
    settings.rank = 3;
    settings.worker_port = 4000;
    settings.num_threads = 2;
    const wire::IpAddress loopback = wire::IpAddress::parse("::1").value();
    CHECK_EQ(first_port(settings, loopback), 4006);
    CHECK_EQ(first_port(settings, wire::IpAddress::parse("fd00::1").value()), 4000);
    CHECK_EQ(first_port(settings, 0x7F000001), 4000);
    settings.worker_port = 65530;
    CHECK_MENTIONS(failure_of([&] { first_port(settings, loopback); }).what(), "SWITCHML_WORKER_PORT");
}

TEST(an_unknown_host_is_unreachable) {
    Settings settings;
    settings.controller_host = "no-such-host.invalid";
    const Error error = failure_of([&] { choose_local_address(settings); });
    CHECK_EQ(error.status(), SWITCHML_EUNREACHABLE);
    CHECK_MENTIONS(error.what(), "no-such-host.invalid");
}

TEST(a_port_in_use_and_a_foreign_address_are_told_apart) {
    Settings settings;
    settings.num_threads = 2;
    settings.worker_port = 4100;
    const wire::UdpSocket taken({private_address(5), 4101}, 64);
    const Error in_use = failure_of([&] { bind_sockets(settings, {private_address(5), settings.worker_port}); });
    CHECK_EQ(in_use.status(), SWITCHML_EIO);
    CHECK_MENTIONS(in_use.what(), wire::to_text(private_address(5)) + ":4101");
    CHECK_MENTIONS(in_use.what(), "SWITCHML_WORKER_PORT");
    const Error foreign =
        failure_of([&] { bind_sockets(settings, {0xC6336401, 4000}); });  // 198.51.100.1, for documentation
    CHECK_EQ(foreign.status(), SWITCHML_ECONFIG);
    CHECK_MENTIONS(foreign.what(), "SWITCHML_LOCAL_ADDRESS");
}

CHECK_MAIN()

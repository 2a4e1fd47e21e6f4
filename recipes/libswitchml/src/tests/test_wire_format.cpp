// SPDX-License-Identifier: BSD-3-Clause
//
// What the library really sends, byte by byte, against the published layout
// written out by hand. The switch is this test.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "completion.hpp"
#include "fake_switch.hpp"
#include "wire/check.hpp"
#include "wire/packet.hpp"

using namespace switchml;
using namespace switchml::testing;

namespace {

using Bytes = std::vector<std::uint8_t>;

// A session of one worker with a window of two and packets of 64 values.
struct Session {
    Session() {
        controller.data_port = plane.local().port;
        target = controller.target();
        local = wire::to_text(private_address(2));
        switchml_config config{};
        config.struct_size = sizeof config;
        config.num_workers = 1;
        config.controller = target.c_str();
        config.local_address = local.c_str();
        config.worker_port = 4242;
        config.max_outstanding_packets = 2;
        config.packet_numel = 64;
        config.retransmit_timeout_us = 60000000;  // nothing is sent twice unless a test wants it
        context = open(config);
    }

    template <class T>
    void submit(std::vector<T> &values, switchml_dtype dtype, Job &job) {
        CHECK_EQ(switchml_allreduce_submit(context.get(), values.data(), values.data(), values.size(), dtype,
                                           Job::callback, &job),
                 SWITCHML_OK);
    }

    FakeController controller{private_address(1)};
    wire::UdpSocket plane{{private_address(1), 0}, 64};
    std::string target;
    std::string local;
    Context context;
};

// `packet` counts through the session.
Bytes header(const Session &session, std::uint8_t job, std::uint32_t packet, std::uint8_t pool_high, std::uint8_t slot,
             std::uint8_t e0, std::uint8_t e1) {
    const std::uint32_t number = wire::first_number(session.controller.seen.session_id()) + packet;
    Bytes bytes{0x11, job};
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<std::uint8_t>(number >> shift));
    bytes.insert(bytes.end(), {pool_high, slot, e0, e1});
    return bytes;
}

// The words with which rank 0 describes a job; 1 is float32 and 2 int32.
std::vector<std::uint32_t> description(std::uint32_t numel, std::uint32_t type, std::uint32_t job) {
    return {numel, type | job << 16};
}

Bytes with_values(Bytes packet, const std::vector<std::uint32_t> &values) {
    for (std::size_t i = 0; i < 64; ++i) {
        const std::uint32_t value = i < values.size() ? values[i] : 0;
        for (int shift = 24; shift >= 0; shift -= 8) packet.push_back(static_cast<std::uint8_t>(value >> shift));
    }
    return packet;
}

void expect(const Session &session, const Bytes &expected) {
    const Packet packet = next_packet(session.plane);
    CHECK_EQ(packet.bytes.size(), 266U);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        if (packet.bytes[i] == expected[i]) continue;
        throw check::Failed("byte " + std::to_string(i) + " is " + std::to_string(packet.bytes[i]) + ", expected " +
                            std::to_string(expected[i]));
    }
    CHECK_EQ(wire::to_text(packet.source), session.local + ":4242");
}

void answer(const Session &session, const Bytes &packet) {
    send_packet(session.plane, {private_address(2), 4242}, packet);
}

}  // namespace

TEST(int32_packets_have_the_published_bytes) {
    Session session;
    std::vector<std::int32_t> values(64 * 3 + 1, 0);
    values[0] = 1;
    values[1] = -2;
    values[64] = 0x01020304;
    values[128] = std::numeric_limits<std::int32_t>::min();
    values[192] = 5;
    Job job;
    session.submit(values, SWITCHML_INT32, job);
    const Bytes first = with_values(header(session, 0, 0, 0x00, 0, 0, 0), description(193, 2, 0));
    const Bytes second = with_values(header(session, 0, 1, 0x00, 1, 0, 0), {1, 0xFFFFFFFE});
    const Bytes third = with_values(header(session, 0, 2, 0x80, 0, 0, 0), {0x01020304});
    const Bytes fourth = with_values(header(session, 0, 3, 0x80, 1, 0, 0), {0x80000000});
    const Bytes last = with_values(header(session, 0, 4, 0x00, 0, 0, 0), {5});  // one element, padded to full size
    expect(session, first);
    expect(session, second);
    answer(session, first);
    expect(session, third);  // the result of packet 0 released packet 2, on the other set of its slot
    answer(session, with_values(header(session, 0, 1, 0x00, 1, 0, 0), {100, 200}));
    expect(session, fourth);
    answer(session, fourth);
    answer(session, third);
    expect(session, last);
    answer(session, last);
    CHECK_EQ(job.wait().status, SWITCHML_OK);
    CHECK_EQ(values[0], 100);
    CHECK_EQ(values[1], 200);
    CHECK_EQ(values[64], 0x01020304);
    CHECK_EQ(values[192], 5);
}

TEST(float32_sends_exponents_one_window_ahead) {
    Session session;
    std::vector<float> values(64 * 2 + 1, 0.0F);
    values[0] = 1.0F;     // exponent 1
    values[64] = -0.75F;  // exponent 0
    values[128] = 6.0F;   // exponent 3
    Job job;
    session.submit(values, SWITCHML_FLOAT32, job);
    const Bytes exponent0 = with_values(header(session, 0, 0, 0x00, 0, 1, 0), description(129, 1, 0));
    const Bytes exponent1 = with_values(header(session, 0, 1, 0x00, 1, 0, 0), {});
    expect(session, exponent0);
    expect(session, exponent1);
    answer(session, exponent0);
    // Unit 2: exponent of data unit 2, and data unit 0 scaled by 2^31 / 2^1.
    const Bytes unit2 = with_values(header(session, 0, 2, 0x80, 0, 3, 0), {0x40000000});
    expect(session, unit2);
    answer(session, exponent1);
    // Unit 3: no exponent left, data unit 1 scaled by 2^31 / 2^0.
    const Bytes unit3 = with_values(header(session, 0, 3, 0x80, 1, 0x80, 0), {0xA0000000});
    expect(session, unit3);
    answer(session, unit2);
    const Bytes unit4 = with_values(header(session, 0, 4, 0x00, 0, 0x80, 0), {0x60000000});  // 6 * 2^31 / 2^3
    expect(session, unit4);
    answer(session, unit3);
    answer(session, unit4);
    CHECK_EQ(job.wait().status, SWITCHML_OK);
    CHECK_EQ(values[0], 1.0F);
    CHECK_EQ(values[64], -0.75F);
    CHECK_EQ(values[128], 6.0F);
}

TEST(the_next_job_goes_on_where_the_ring_and_the_numbers_were) {
    Session session;
    std::vector<float> values(6, 7);  // too many for a single packet
    for (std::uint8_t number = 0; number < 5; ++number) {
        Job job;
        session.submit(values, SWITCHML_FLOAT32, job);
        const auto packet = static_cast<std::uint32_t>(2 * number);
        const std::uint8_t high = number % 2 == 1 ? 0x80 : 0x00;  // two packets a job, in a ring of two sets of two
        const Bytes exponent = with_values(header(session, number, packet, high, 0, 3, 0), description(6, 1, number));
        const Bytes data = with_values(header(session, number, packet + 1, high, 1, 0x80, 0),
                                       std::vector<std::uint32_t>(6, 0x70000000));
        expect(session, exponent);
        answer(session, exponent);
        expect(session, data);
        answer(session, data);
        CHECK_EQ(job.wait().status, SWITCHML_OK);
        CHECK_EQ(values[0], 7.0F);
    }
}

// As many as fit beside the description; 3 is float32 that is summed exactly.
TEST(few_elements_of_float32_are_digits_beside_the_description) {
    Session session;
    std::vector<float> values{1.0F, -0x1p-149F};
    Job job;
    session.submit(values, SWITCHML_FLOAT32, job);
    std::vector<std::uint32_t> words = description(2, 3, 0);
    words.resize(2 + 2 * 11);
    words[2 + 5] = 0x80000;      // of 11 digits to the base 2^26: 2^19 * 2^(5 * 26 - 149)
    words[13 + 0] = 0xFFFFFFFF;  // -1 * 2^-149
    const Bytes only = with_values(header(session, 0, 0, 0x00, 0, 0x80, 0), words);
    expect(session, only);
    words[2 + 5] = 0xFFF80000;
    words[2 + 0] = 3;
    answer(session, with_values(header(session, 0, 0, 0x00, 0, 0x80, 0), words));
    CHECK_EQ(job.wait().status, SWITCHML_OK);
    CHECK_EQ(values[0], -1.0F);
    CHECK_EQ(values[1], -0x1p-149F);
}

TEST(an_empty_job_is_described_to_the_others) {
    Session session;
    std::vector<std::int32_t> values;
    Job job;
    session.submit(values, SWITCHML_INT32, job);
    const Bytes only = with_values(header(session, 0, 0, 0x00, 0, 0, 0), description(0, 2, 0));
    expect(session, only);
    answer(session, only);
    CHECK_EQ(job.wait().status, SWITCHML_OK);
}

TEST(a_result_that_tells_of_another_job_fails_it) {
    Session session;
    std::vector<std::int32_t> values(64, 7);
    Job job;
    session.submit(values, SWITCHML_INT32, job);
    expect(session, with_values(header(session, 0, 0, 0x00, 0, 0, 0), description(64, 2, 0)));
    answer(session, with_values(header(session, 0, 0, 0x00, 0, 0, 0), description(65, 2, 0)));
    const Result result = job.wait();
    CHECK_EQ(result.status, SWITCHML_EMISMATCH);
    CHECK_MENTIONS(result.message, "rank 0: 65 int32");
    // what the status means is the caller's to put before it
    CHECK(result.message.find(switchml_strerror(SWITCHML_EMISMATCH)) == std::string::npos);
}

TEST(non_finite_values_travel_in_the_second_exponent) {
    Session session;
    std::vector<float> values{1.0F, std::numeric_limits<float>::infinity(), 2.0F, 3.0F, 4.0F, 5.0F};
    Job job;
    session.submit(values, SWITCHML_FLOAT32, job);
    const Bytes exponents = with_values(header(session, 0, 0, 0x00, 0, 127, 2), description(6, 1, 0));
    expect(session, exponents);
    answer(session, exponents);
    const Bytes data = with_values(header(session, 0, 1, 0x00, 1, 0x80, 0), {});
    expect(session, data);
    answer(session, data);
    CHECK_EQ(job.wait().status, SWITCHML_OK);
    for (const float value : values) CHECK(std::isnan(value));
}

TEST(strange_results_are_counted_and_ignored) {
    Session session;
    std::vector<std::int32_t> values(1, 7);
    Job job;
    session.submit(values, SWITCHML_INT32, job);
    const Bytes described = with_values(header(session, 0, 0, 0x00, 0, 0, 0), description(1, 2, 0));
    const Bytes right = with_values(header(session, 0, 1, 0x00, 1, 0, 0), {7});
    expect(session, described);
    expect(session, right);
    const Bytes old = with_values(header(session, 0, 1U - 4U, 0x00, 1, 0, 0), {8});  // of the slot's use before
    const Bytes cut(right.begin(), right.end() - 1);
    answer(session, old);
    answer(session, cut);
    answer(session, {});
    answer(session, right);
    answer(session, described);
    CHECK_EQ(job.wait().status, SWITCHML_OK);
    CHECK_EQ(values[0], 7);
    CHECK_EQ(stats_of(session.context).packets_discarded, 3U);
}

CHECK_MAIN()

// SPDX-License-Identifier: BSD-3-Clause
#include <array>

#include "wire/check.hpp"
#include "wire/packet.hpp"

using namespace switchml::wire;

namespace {

Header sample() {
    Header header;
    header.size_class = 3;
    header.job = 0xAB;
    header.packet = 0x01020304;
    header.slot = 0x1FFF;
    header.set = true;
    header.e0 = -126;
    header.e1 = 2;
    return header;
}

std::array<std::uint8_t, kMaxPacketBytes> encoded(const Header &header) {
    std::array<std::uint8_t, kMaxPacketBytes> packet{};
    encode(header, packet.data());
    return packet;
}

}  // namespace

TEST(header_bytes_are_those_of_the_published_layout) {
    const std::array<std::uint8_t, 10> expected{0x13, 0xAB, 0x04, 0x03, 0x02, 0x01, 0x9F, 0xFF, 0x82, 0x02};
    const auto packet = encoded(sample());
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK_EQ(int{packet[i]}, int{expected[i]});
}

TEST(decoding_returns_what_was_encoded) {
    const auto packet = encoded(sample());
    const auto header = decode(packet.data(), packet.size());
    CHECK(header.has_value());
    CHECK_EQ(int{header->size_class}, 3);
    CHECK_EQ(int{header->job}, 0xAB);
    CHECK_EQ(header->packet, 0x01020304U);
    CHECK_EQ(header->slot, 0x1FFF);
    CHECK(header->set);
    CHECK_EQ(int{header->e0}, -126);
    CHECK_EQ(int{header->e1}, 2);
}

TEST(payload_sizes_are_266_and_1034_bytes) {
    CHECK_EQ(packet_bytes(64), 266U);
    CHECK_EQ(packet_bytes(256), 1034U);
}

TEST(bit_14_of_the_pool_index_is_ignored) {
    auto packet = encoded(sample());
    packet[6] |= 0x40;
    CHECK_EQ(decode(packet.data(), packet.size())->slot, 0x1FFF);
}

TEST(malformed_packets_are_refused) {
    const auto packet = encoded(sample());
    CHECK(!decode(packet.data(), 0));
    CHECK(!decode(packet.data(), kHeaderBytes));
    CHECK(!decode(packet.data(), packet.size() - 1));
    CHECK(!decode(packet.data(), 266));                             // the length of the other class
    for (const int first : {0x03, 0x23, 0x10, 0x12, 0x14, 0x17}) {  // other types; classes 0, 2, 4 and 7
        auto bad = packet;
        bad[0] = static_cast<std::uint8_t>(first);
        CHECK(!decode(bad.data(), bad.size()));
    }
}

CHECK_MAIN()

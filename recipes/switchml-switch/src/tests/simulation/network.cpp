// SPDX-License-Identifier: BSD-3-Clause
#include "network.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace switchml::simulation {
namespace {

constexpr std::uint64_t kNetworkStream = 1;

// One's complement, as UDP's: addresses and ports, which do not change here, are left out.
std::uint32_t checksum(const Packet &packet) {
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i + 1 < packet.bytes; i += 2)
        sum += std::uint32_t{packet.data[i]} << 8 | packet.data[i + 1];
    while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
    return sum;
}

// In half of all cases within the header, which is small.
std::size_t some_place(const Packet &packet, Random &random) {
    return random.below(random.chance(0.5) ? wire::kHeaderBytes : packet.bytes);
}

void alter(Packet &packet, Random &random) {
    if (random.chance(0.3)) {  // what no checksum of this kind finds: two words change places
        const std::size_t one = some_place(packet, random) & ~std::size_t{1};
        const std::size_t other = some_place(packet, random) & ~std::size_t{1};
        std::swap_ranges(&packet.data[one], &packet.data[one] + 2, &packet.data[other]);
        return;
    }
    for (std::uint64_t bits = random.below(4) + 1; bits > 0; --bits)
        packet.data[some_place(packet, random)] ^= static_cast<std::uint8_t>(1U << random.below(8));
}

}  // namespace

void NetworkCounts::add(const NetworkCounts &other) {
    packets += other.packets;
    lost += other.lost;
    repeated += other.repeated;
    delayed += other.delayed;
    corrupted += other.corrupted;
    altered += other.altered;
    altered_headers += other.altered_headers;
    altered_headers_taken += other.altered_headers_taken;
}

// False when the receiver's checksum would find out.
bool Network::corrupt(Packet &packet, Random &random) {
    ++counts_.corrupted;
    const Packet before = packet;
    alter(packet, random);
    if (checksum(packet) != checksum(before)) return false;
    constexpr std::size_t kExponents = 2;  // the header's last bytes
    packet.altered = std::memcmp(packet.data.data(), before.data.data(), packet.bytes) != 0;
    packet.header_altered = std::memcmp(packet.data.data(), before.data.data(), wire::kHeaderBytes - kExponents) != 0;
    if (packet.altered) ++counts_.altered;
    return true;
}

void Network::send(const wire::Endpoint &from, const wire::Endpoint &to, const std::uint8_t *data, std::size_t bytes) {
    const std::uint64_t key = counts_.packets++;
    const NetworkPlan &plan = plan_.network;
    const std::int64_t now = agenda_.now_ns();
    Random random(plan_.seed + kNetworkStream, key);
    std::int64_t delay = random.between(plan.least_ns, plan.most_ns);
    Packet packet;
    packet.from = from;
    packet.to = to;
    packet.bytes = bytes;
    std::memcpy(packet.data.data(), data, bytes);
    if (now >= plan.faults_end_ns) return launch(packet, delay);
    if (random.chance(plan.loss) && faults_.happens(key, now, "a packet is lost")) {
        ++counts_.lost;
        return;
    }
    if (random.chance(plan.corruption) && faults_.happens(key, now, "a packet is changed") && !corrupt(packet, random))
        return;
    if (random.chance(plan.delay) && faults_.happens(key, now, "a packet is late")) {
        ++counts_.delayed;
        delay += random.between(0, kLongestDelayNs);
    }
    if (random.chance(plan.duplication) && faults_.happens(key, now, "a packet comes twice")) {
        ++counts_.repeated;
        launch(packet, delay + random.between(0, random.chance(0.5) ? 100 * kUs : kLongestDelayNs));
    }
    launch(packet, delay);
}

void Network::launch(const Packet &packet, std::int64_t delay_ns) {
    if (free_.empty()) {
        free_.push_back(packets_.size());
        packets_.push_back(std::make_unique<Packet>());
    }
    const std::size_t index = free_.back();
    free_.pop_back();
    *packets_[index] = packet;
    agenda_.after(delay_ns, [this, index] { arrive(index); });
}

void Network::arrive(std::size_t index) {
    if (packets_[index]->header_altered) ++counts_.altered_headers;
    deliver_(*packets_[index]);
    free_.push_back(index);
}

}  // namespace switchml::simulation

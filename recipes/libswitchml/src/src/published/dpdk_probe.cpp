// SPDX-License-Identifier: BSD-3-Clause
#include "dpdk_probe.hpp"

#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_udp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "error.hpp"
#include "path_failures.hpp"
#include "wire/packet.hpp"

namespace switchml {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Between two packets of a queue: short at first, since one is answered within the path's round trip.
constexpr milliseconds kFirstPause{20};
constexpr milliseconds kLongestPause{200};
constexpr std::chrono::microseconds kGlance{100};
constexpr std::uint16_t kBurst = 32;

struct Headers {
    rte_ether_hdr ether;
    rte_ipv4_hdr ip;
    rte_udp_hdr udp;
} __attribute__((__packed__));

std::uint16_t of_network(std::uint16_t value) { return rte_be_to_cpu_16(value); }

wire::Endpoint endpoint_of(const DpdkBackend::E2eAddress &address) {
    return {wire::IpAddress(rte_be_to_cpu_32(address.ip)), of_network(address.port)};
}

class Probe {
  public:
    Probe(const Config &config, const DpdkBackend::E2eAddress &worker, const DpdkBackend::E2eAddress &data_plane)
        : config_(config),
          worker_(worker),
          data_plane_(data_plane),
          payload_(wire::packet_bytes(static_cast<std::uint32_t>(config.general_.packet_numel))) {
        wire::encode_probe(static_cast<std::uint32_t>(config.general_.packet_numel), payload_.data());
        for (std::uint16_t queue = 0; queue < config.general_.num_worker_threads; ++queue) silent_.push_back(queue);
    }

    void run() {
        const auto end = Clock::now() + milliseconds(config_.general_.connect_timeout_ms);
        milliseconds pause = kFirstPause;
        while (!silent_.empty()) {
            if (Clock::now() >= end) throw silence();
            for (const std::uint16_t queue : silent_) send(queue);
            ++sent_;
            const auto until = std::min<Clock::time_point>(end, Clock::now() + pause);
            while (!silent_.empty() && Clock::now() < until) {
                std::this_thread::sleep_for(kGlance);
                take_answers();
            }
            pause = std::min(2 * pause, kLongestPause);
        }
    }

  private:
    DpdkBackend::E2eAddress sender(std::uint16_t queue) const {
        DpdkBackend::E2eAddress address = worker_;
        address.port = rte_cpu_to_be_16(static_cast<std::uint16_t>(of_network(worker_.port) + queue));
        return address;
    }

    std::uint16_t udp_bytes() const { return static_cast<std::uint16_t>(sizeof(rte_udp_hdr) + payload_.size()); }

    Headers headers(const DpdkBackend::E2eAddress &from) const {
        Headers headers{};
        std::memcpy(headers.ether.s_addr.addr_bytes, &from.mac, sizeof headers.ether.s_addr.addr_bytes);
        std::memcpy(headers.ether.d_addr.addr_bytes, &data_plane_.mac, sizeof headers.ether.d_addr.addr_bytes);
        headers.ether.ether_type = rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4);
        headers.ip.version_ihl = 0x45;
        headers.ip.total_length = rte_cpu_to_be_16(static_cast<std::uint16_t>(sizeof(rte_ipv4_hdr) + udp_bytes()));
        headers.ip.fragment_offset = rte_cpu_to_be_16(RTE_IPV4_HDR_DF_FLAG);
        headers.ip.time_to_live = wire::kClientTtl;
        headers.ip.next_proto_id = IPPROTO_UDP;
        headers.ip.src_addr = from.ip;
        headers.ip.dst_addr = data_plane_.ip;
        headers.udp.src_port = from.port;
        headers.udp.dst_port = data_plane_.port;
        headers.udp.dgram_len = rte_cpu_to_be_16(udp_bytes());
        return headers;
    }

    // From the memory that the queue receives into: it has more than both of its rings take.
    rte_mbuf *allocate(std::uint16_t queue) const {
        rte_mempool *pool = rte_mempool_lookup(("wt" + std::to_string(queue) + "_rx").c_str());
        rte_mbuf *packet = pool == nullptr ? nullptr : rte_pktmbuf_alloc(pool);
        if (packet == nullptr) throw Error(SWITCHML_ENOMEM, "DPDK has no memory for a packet");
        return packet;
    }

    void send(std::uint16_t queue) const {
        rte_mbuf *packet = allocate(queue);
        const Headers filled = headers(sender(queue));
        auto *bytes = reinterpret_cast<std::uint8_t *>(rte_pktmbuf_append(packet, sizeof filled + payload_.size()));
        if (bytes == nullptr) {
            rte_pktmbuf_free(packet);
            throw Error(SWITCHML_ENOMEM, "DPDK's packets are too short for the session's");
        }
        std::memcpy(bytes, &filled, sizeof filled);
        std::memcpy(bytes + sizeof filled, payload_.data(), payload_.size());
        auto *placed = reinterpret_cast<Headers *>(bytes);
        placed->udp.dgram_cksum = rte_ipv4_udptcp_cksum(&placed->ip, &placed->udp);
        placed->ip.hdr_checksum = rte_ipv4_cksum(&placed->ip);
        if (rte_eth_tx_burst(config_.backend_.dpdk.port_id, queue, &packet, 1) == 0) rte_pktmbuf_free(packet);
    }

    void take_answers() {
        silent_.erase(
            std::remove_if(silent_.begin(), silent_.end(), [this](std::uint16_t queue) { return is_answered(queue); }),
            silent_.end());
    }

    bool is_answered(std::uint16_t queue) const {
        std::array<rte_mbuf *, kBurst> packets{};
        bool answered = false;
        for (;;) {
            const std::uint16_t got =
                rte_eth_rx_burst(config_.backend_.dpdk.port_id, queue, packets.data(), packets.size());
            for (std::uint16_t i = 0; i < got; ++i) {
                answered = answered || is_answer(packets[i], queue);
                rte_pktmbuf_free(packets[i]);
            }
            if (got < packets.size()) return answered;
        }
    }

    // Drivers without flow rules hand over whatever arrives at the interface. A short frame may have been padded.
    bool is_answer(rte_mbuf *packet, std::uint16_t queue) const {
        if (packet->data_len < sizeof(Headers) + payload_.size()) return false;
        const auto *arrived = rte_pktmbuf_mtod(packet, const Headers *);
        const DpdkBackend::E2eAddress to = sender(queue);
        return arrived->ether.ether_type == rte_cpu_to_be_16(RTE_ETHER_TYPE_IPV4) && arrived->ip.version_ihl == 0x45 &&
               arrived->ip.next_proto_id == IPPROTO_UDP && arrived->ip.src_addr == data_plane_.ip &&
               arrived->ip.dst_addr == to.ip && arrived->udp.src_port == data_plane_.port &&
               arrived->udp.dst_port == to.port && arrived->udp.dgram_len == rte_cpu_to_be_16(udp_bytes()) &&
               wire::is_probe(reinterpret_cast<const std::uint8_t *>(arrived + 1), payload_.size());
    }

    Error silence() const {
        return no_path({endpoint_of(sender(silent_.front())), endpoint_of(data_plane_), sent_,
                        config_.general_.connect_timeout_ms, payload_.size(), ""});
    }

    const Config &config_;
    const DpdkBackend::E2eAddress worker_;
    const DpdkBackend::E2eAddress data_plane_;
    std::vector<std::uint8_t> payload_;
    std::vector<std::uint16_t> silent_;  // queues
    int sent_ = 0;                       // of each queue
};

}  // namespace

void probe_path(const Config &config, const DpdkBackend::E2eAddress &worker,
                const DpdkBackend::E2eAddress &data_plane) {
    Probe(config, worker, data_plane).run();
}

}  // namespace switchml

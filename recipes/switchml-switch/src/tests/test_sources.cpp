// SPDX-License-Identifier: BSD-3-Clause
#include <cstdint>

#include "sources.hpp"
#include "wire/check.hpp"

using namespace switchml;
using namespace switchml::softswitch;

TEST(the_latest_source_comes_first) {
    DroppedSources sources;
    ++sources.of({1, 10}).malformed;
    ++sources.of({1, 11}).malformed;
    ++sources.of({1, 10}).unknown_worker;
    const SourceReport report = sources.report();
    CHECK_EQ(report.latest.size(), 2U);
    CHECK_EQ(report.latest.at(0).source.port, 10);
    CHECK_EQ(report.latest.at(0).drops.malformed, 1U);
    CHECK_EQ(report.latest.at(0).drops.unknown_worker, 1U);
    CHECK_EQ(report.latest.at(1).source.port, 11);
}

TEST(older_sources_make_room_and_lose_nothing) {
    DroppedSources sources;
    constexpr std::uint64_t kFlood = 1000;
    for (std::uint32_t address = 0; address < kFlood; ++address) {
        ++sources.of({address, 1}).unknown_worker;
        ++sources.of({7, 7}).malformed;  // one that comes again and again keeps its place
    }
    const SourceReport report = sources.report();
    CHECK_EQ(report.latest.size(), DroppedSources::kMaxSources);
    CHECK_EQ(report.latest.at(0).source.ip.ipv4(), 7U);
    CHECK_EQ(report.latest.at(0).drops.malformed, kFlood);
    CHECK_EQ(report.others.unknown_worker, kFlood - (DroppedSources::kMaxSources - 1));
    CHECK_EQ(report.others.malformed, 0U);
}

CHECK_MAIN()

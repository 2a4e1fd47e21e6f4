// SPDX-License-Identifier: BSD-3-Clause
#include "dpdk_failures.hpp"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "wire/check.hpp"

using namespace switchml;

namespace {

// The published library's own words.
constexpr const char *kEal = "EAL init failed: Permission denied";
constexpr const char *kNoPorts = "No Ethernet ports";
constexpr const char *kOtherPort = "Port ID 3 is not available. The number of enabled ports is 1";
constexpr const char *kNoFlow =
    "Flow rule can't be added: 1 Function not implemented; without flow rules there can be only one worker thread";
constexpr const char *kOneQueue = "Cannot configure port: Invalid argument";
constexpr const char *kBadOption = "EAL init failed with arguments 'switchml -l 0 --bogus': Invalid argument";
constexpr const char *kNoMemory = "Cannot init mbuf pool: Cannot allocate memory";
constexpr const char *kLink = "Link Down";

std::string words(const char *message, const DpdkStart &start, switchml_status status) {
    const auto error = explain_dpdk_failure(message, start);
    CHECK(error.has_value());
    CHECK_EQ(error->status(), status);
    return error->what();
}

}  // namespace

TEST(no_huge_pages_are_named_only_where_they_are_wanted) {
    CHECK_MENTIONS(words(kEal, {1, "--in-memory", false}, SWITCHML_ECONFIG), "no free huge pages");
    for (const DpdkStart &start : {DpdkStart{1, "--no-huge", false}, DpdkStart{1, "--in-memory", true}}) {
        const std::string text = words(kEal, start, SWITCHML_EIO);
        CHECK(text.find("huge pages") == std::string::npos);
        CHECK_MENTIONS(text, std::string("SWITCHML_DPDK_EAL_OPTIONS '") + start.eal_options + "'");
        CHECK_MENTIONS(text, kEal);
    }
}

TEST(a_port_that_is_not_there_is_told_from_another_number) {
    CHECK_MENTIONS(words(kNoPorts, {}, SWITCHML_ECONFIG), "DPDK found no port; bind a network card");
    CHECK_MENTIONS(words(kOtherPort, {}, SWITCHML_ECONFIG), "SWITCHML_DPDK_PORT");
}

TEST(a_device_that_cannot_be_opened_is_told_from_none_that_was_named) {
    for (const char *options : {"--no-pci --vdev=net_af_packet0,iface=eth9", "-w 0000:81:00.0"}) {
        const std::string text = words(kNoPorts, {1, options, true}, SWITCHML_ECONFIG);
        CHECK_MENTIONS(text, std::string("SWITCHML_DPDK_EAL_OPTIONS '") + options + "'");
    }
}

TEST(an_option_that_dpdk_does_not_take_is_a_matter_of_configuration) {
    CHECK_MENTIONS(words(kBadOption, {1, "--bogus", true}, SWITCHML_ECONFIG), "SWITCHML_DPDK_EAL_OPTIONS '--bogus'");
}

TEST(too_little_memory_is_told_so) {
    CHECK_MENTIONS(words(kNoMemory, {2, "-m 64", true}, SWITCHML_ENOMEM), "raise -m in SWITCHML_DPDK_EAL_OPTIONS");
}

TEST(several_threads_need_a_driver_that_serves_them) {
    for (const char *message : {kNoFlow, kOneQueue}) {
        const std::string text = words(message, {2, "", true}, SWITCHML_ECONFIG);
        CHECK_MENTIONS(text, "each of 2 threads");
        CHECK_MENTIONS(text, "set SWITCHML_NUM_THREADS to 1");
    }
    CHECK(!explain_dpdk_failure(kOneQueue, {1, "", true}).has_value());
}

TEST(a_link_that_is_down_is_one) { CHECK_MENTIONS(words(kLink, {}, SWITCHML_EIO), "link is down"); }

TEST(each_has_words_of_its_own_and_none_speaks_of_sockets) {
    std::vector<std::string> texts;
    for (const char *message : {kEal, kNoPorts, kOtherPort, kNoFlow, kNoMemory, kLink}) {
        const auto error = explain_dpdk_failure(message, {2, "", false});
        CHECK(error.has_value());
        CHECK(std::string(error->what()).find("socket") == std::string::npos);
        for (const std::string &other : texts) CHECK(other != error->what());
        texts.emplace_back(error->what());
    }
}

TEST(other_messages_are_left_as_they_are) {
    CHECK(!explain_dpdk_failure("Error starting the port: No such device", {2, "", false}).has_value());
}

TEST(huge_pages_of_any_size_count) {
    namespace fs = std::filesystem;
    const fs::path folder = fs::temp_directory_path() / ("switchml-huge-pages-" + std::to_string(getpid()));
    CHECK(!has_free_huge_pages(folder));
    for (const char *size : {"hugepages-1048576kB", "hugepages-2048kB"}) {
        fs::create_directories(folder / size);
        std::ofstream(folder / size / "free_hugepages") << 0 << '\n';
    }
    CHECK(!has_free_huge_pages(folder));
    std::ofstream(folder / "hugepages-2048kB" / "free_hugepages") << 3 << '\n';
    CHECK(has_free_huge_pages(folder));
    fs::remove_all(folder);
}

CHECK_MAIN()

// SPDX-License-Identifier: BSD-3-Clause
#include "processors.hpp"

#include <string>

#include "error.hpp"
#include "wire/check.hpp"

using namespace switchml;

namespace {

std::string checked(const std::string &list, std::uint32_t num_threads) {
    return check_processors("SWITCHML_DPDK_CORES", list, num_threads, {0, 1, 2, 5, 6});
}

std::string refusal(const std::string &list, std::uint32_t num_threads) {
    try {
        checked(list, num_threads);
    } catch (const Error &error) {
        CHECK_EQ(error.status(), SWITCHML_ECONFIG);
        CHECK_MENTIONS(error.what(), "SWITCHML_DPDK_CORES='" + list + "'");
        return error.what();
    }
    throw check::Failed("taken: " + list);
}

}  // namespace

TEST(lists_and_ranges_are_written_out_in_order) {
    CHECK_EQ(checked("2", 1), "2");
    CHECK_EQ(checked("1,0", 2), "0,1");
    CHECK_EQ(checked("5-6,0-2", 5), "0,1,2,5,6");
}

TEST(what_is_no_list_is_refused) {
    for (const char *list : {"", "a", ",", "1,", ",1", "1,,2", "-1", "1-", "2-1", "0,0", "0-2,1", "1.5", "0x1", "1 ",
                             "(0,1)", "4294967296", "99999", "0-4294967295"}) {
        CHECK_MENTIONS(refusal(list, 1), "expected different processors by number, as 2 or 0,2 or 4-7");
    }
}

TEST(a_processor_for_each_thread_is_wanted) {
    CHECK_MENTIONS(refusal("1,0", 1), "names 2, expected one for each thread: SWITCHML_NUM_THREADS is 1");
    CHECK_MENTIONS(refusal("1", 2), "names 1, expected one for each thread: SWITCHML_NUM_THREADS is 2");
}

TEST(a_processor_that_the_process_may_not_use_is_named) {
    CHECK_MENTIONS(refusal("99", 1), "may not run on processor 99, expected some of 0,1,2,5,6");
    CHECK_MENTIONS(refusal("2-3", 2), "may not run on processor 3");
}

TEST(this_process_runs_on_some_processor) { CHECK(!allowed_processors().empty()); }

CHECK_MAIN()

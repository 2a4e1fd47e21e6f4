// SPDX-License-Identifier: BSD-3-Clause
#include "processors.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>
#include <utility>

#include "error.hpp"

namespace switchml {
namespace {

using Numbers = std::set<std::uint32_t>;

std::optional<std::uint32_t> parse_processor(const std::string &text) {
    std::uint32_t value = 0;
    const char *end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc{} || stop != end || value >= CPU_SETSIZE) return std::nullopt;
    return value;
}

// "3" or "3-5"; nothing where it is neither.
std::optional<std::pair<std::uint32_t, std::uint32_t>> parse_range(const std::string &text) {
    const std::size_t dash = text.find('-');
    const auto first = parse_processor(text.substr(0, dash));
    const auto last = dash == std::string::npos ? first : parse_processor(text.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    return std::pair(*first, *last);
}

std::optional<Numbers> parse_list(const std::string &list) {
    if (list.empty() || list.back() == ',') return std::nullopt;
    Numbers numbers;
    std::istringstream items(list);
    for (std::string item; std::getline(items, item, ',');) {
        const auto range = parse_range(item);
        if (!range) return std::nullopt;
        for (std::uint32_t number = range->first; number <= range->second; ++number) {
            if (!numbers.insert(number).second) return std::nullopt;
        }
    }
    return numbers;
}

std::string to_text(const Numbers &numbers) {
    std::string text;
    for (const std::uint32_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
    return text;
}

}  // namespace

std::set<std::uint32_t> allowed_processors() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    Numbers numbers;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return numbers;
    for (std::uint32_t number = 0; number < CPU_SETSIZE; ++number) {
        if (CPU_ISSET(number, &allowed)) numbers.insert(number);
    }
    return numbers;
}

std::string check_processors(const std::string &name, const std::string &list, std::uint32_t num_threads,
                             const std::set<std::uint32_t> &allowed) {
    const std::string given = name + "='" + list + "'";
    const auto numbers = parse_list(list);
    if (!numbers) {
        throw Error(SWITCHML_ECONFIG, given + ", expected different processors by number, as 2 or 0,2 or 4-7");
    }
    if (numbers->size() != num_threads) {
        throw Error(SWITCHML_ECONFIG, given + " names " + std::to_string(numbers->size()) +
                                          ", expected one for each thread: SWITCHML_NUM_THREADS is " +
                                          std::to_string(num_threads));
    }
    for (const std::uint32_t number : *numbers) {
        if (allowed.empty() || allowed.count(number) != 0) continue;
        throw Error(SWITCHML_ECONFIG, given + ": this process may not run on processor " + std::to_string(number) +
                                          ", expected some of " + to_text(allowed));
    }
    return to_text(*numbers);
}

}  // namespace switchml

// SPDX-License-Identifier: BSD-3-Clause
#include "SwitchMLAgreement.hpp"

#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

namespace c10d {
namespace switchml_detail {

namespace {

// How long ranks wait, once something failed, for the slowest to have read why.
constexpr std::chrono::milliseconds kFarewell{5000};

// How long the store may take to give a key that it has.
constexpr std::chrono::milliseconds kLookUp{1000};

// One line for the error (empty for none), then one per fact: name, tab, value.
struct Report {
  std::string error;
  Facts facts;
};

std::string onOneLine(std::string text) {
  for (char& character : text) {
    const bool control = static_cast<unsigned char>(character) < 0x20;
    character = control ? ' ' : character;
  }
  return text;
}

std::string write(const Report& report) {
  std::string text = onOneLine(report.error) + "\n";
  for (const auto& fact : report.facts) {
    text += fact.first + "\t" + onOneLine(fact.second) + "\n";
  }
  return text;
}

Report parse(const std::string& text) {
  Report report;
  size_t begin = text.find('\n');
  report.error = text.substr(0, begin);
  while (begin != std::string::npos && begin + 1 < text.size()) {
    const size_t end = text.find('\n', begin + 1);
    const std::string line = text.substr(begin + 1, end - begin - 1);
    const size_t tab = line.find('\t');
    if (tab != std::string::npos) {
      report.facts.emplace_back(line.substr(0, tab), line.substr(tab + 1));
    }
    begin = end;
  }
  return report;
}

std::string nameRanks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    text += (i != 0 ? ", " : "") + std::to_string(ranks[i]);
  }
  return text;
}

void add(std::string& list, const std::string& item) {
  list += (list.empty() ? "" : "; ") + item;
}

std::string differences(const std::map<int, Report>& reports) {
  std::map<std::string, std::map<std::string, std::vector<int>>> ranks;
  for (const auto& report : reports) {
    for (const auto& fact : report.second.facts) {
      ranks[fact.first][fact.second].push_back(report.first);
    }
  }
  std::string result;
  for (const auto& fact : ranks) {
    if (fact.second.size() < 2) {
      continue;
    }
    std::string found;
    for (const auto& value : fact.second) {
      found += (found.empty() ? "'" : ", '") + value.first + "' on " +
          nameRanks(value.second);
    }
    add(result, fact.first + " must be the same on all ranks, but is " + found);
  }
  return result;
}

} // namespace

void Agreement::settle(
    const std::string& stage,
    const Settings& settings,
    const std::function<Facts()>& attempt) {
  Report report;
  try {
    report.facts = attempt();
  } catch (const std::exception& error) {
    report.error = *error.what() != '\0' ? error.what() : "unknown error";
  }
  store_.set(key(stage, rank_), write(report));
  const std::string wrong = complaints(stage, settings.patience());
  if (!wrong.empty()) {
    sayFarewell(stage);
    throw std::runtime_error(
        "SwitchML was asked for but cannot be used: " + wrong);
  }
}

std::string Agreement::key(const std::string& stage, int rank) const {
  return "switchml/" + stage + "/" + std::to_string(rank);
}

std::string Agreement::complaints(
    const std::string& stage,
    std::chrono::milliseconds patience) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size_; ++rank) {
    keys.push_back(key(stage, rank));
  }
  const bool complete = store_.wait(keys, patience);
  std::map<int, Report> reports;
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    const auto& name = keys[static_cast<size_t>(rank)];
    if (complete || store_.wait({name}, kLookUp)) {
      reports[rank] = parse(store_.get(name));
    } else {
      missing.push_back(rank);
    }
  }
  std::string result;
  for (const auto& report : reports) {
    if (!report.second.error.empty()) {
      add(result,
          "rank " + std::to_string(report.first) + ": " + report.second.error);
    }
  }
  if (!missing.empty()) {
    add(result,
        nameRanks(missing) + " did not report within " +
            std::to_string(patience.count()) +
            " ms: does it run this PyTorch, with SWITCHML_CONTROLLER set?");
  }
  return result.empty() ? differences(reports) : result;
}

// Keeps the rank that serves the store until the others have read the reports.
void Agreement::sayFarewell(const std::string& stage) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size_; ++rank) {
    keys.push_back(key(stage + "/read", rank));
  }
  try {
    store_.set(keys[static_cast<size_t>(rank_)], "1");
    store_.wait(keys, kFarewell);
  } catch (const std::exception&) {
    // the store ended before that: this rank knows what it needs to
  }
}

} // namespace switchml_detail
} // namespace c10d

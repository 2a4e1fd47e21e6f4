// SPDX-License-Identifier: BSD-3-Clause
//
// A store for ranks that are children of one process: a table in shared memory,
// to be made before they are forked.
#pragma once

#include <pthread.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "SwitchMLSession.hpp"

class SharedStore : public c10d::SwitchMLSession::Store {
 public:
  static SharedStore make() {
    void* const memory = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::runtime_error("mmap failed");
    }
    return SharedStore(new (memory) Table());
  }

  void set(const std::string& key, const std::string& value) override {
    const Locked locked(*table_);
    if (key.size() >= kKeySize || value.size() >= kValueSize || table_->used == kEntries) {
      throw std::runtime_error("the store is full");
    }
    Entry& entry = table_->entries[table_->used++];
    std::strcpy(entry.key.data(), key.c_str());
    std::strcpy(entry.value.data(), value.c_str());
    pthread_cond_broadcast(&table_->changed);
  }

  std::string get(const std::string& key) override {
    const Locked locked(*table_);
    const Entry* const entry = find(key);
    if (entry == nullptr) {
      throw std::runtime_error("no value for " + key);
    }
    return entry->value.data();
  }

  bool wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) override {
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    const long long nanoseconds = until.tv_nsec + timeout.count() % 1000 * 1000000;
    until.tv_sec += timeout.count() / 1000 + nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    const Locked locked(*table_);
    while (!hasAll(keys)) {
      if (pthread_cond_timedwait(&table_->changed, &table_->mutex, &until) == ETIMEDOUT) {
        return hasAll(keys);
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t kEntries = 64;
  static constexpr std::size_t kKeySize = 64;
  static constexpr std::size_t kValueSize = 1024;

  struct Entry {
    std::array<char, kKeySize> key;
    std::array<char, kValueSize> value;
  };

  struct Table {
    Table() {
      pthread_mutexattr_t mutexKind;
      pthread_mutexattr_init(&mutexKind);
      pthread_mutexattr_setpshared(&mutexKind, PTHREAD_PROCESS_SHARED);
      pthread_mutex_init(&mutex, &mutexKind);
      pthread_condattr_t conditionKind;
      pthread_condattr_init(&conditionKind);
      pthread_condattr_setpshared(&conditionKind, PTHREAD_PROCESS_SHARED);
      pthread_cond_init(&changed, &conditionKind);
    }

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    std::size_t used = 0;
    std::array<Entry, kEntries> entries{};
  };

  struct Locked {
    explicit Locked(Table& table) : table(table) {
      pthread_mutex_lock(&table.mutex);
    }
    ~Locked() {
      pthread_mutex_unlock(&table.mutex);
    }
    Table& table;
  };

  explicit SharedStore(Table* table) : table_(table) {}

  const Entry* find(const std::string& key) const {
    for (std::size_t i = 0; i < table_->used; ++i) {
      if (key == table_->entries[i].key.data()) {
        return &table_->entries[i];
      }
    }
    return nullptr;
  }

  bool hasAll(const std::vector<std::string>& keys) const {
    for (const auto& key : keys) {
      if (find(key) == nullptr) {
        return false;
      }
    }
    return true;
  }

  Table* table_;
};

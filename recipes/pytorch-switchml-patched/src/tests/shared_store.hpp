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
#include <cstdlib>
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
        void *const memory = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) {
            throw std::runtime_error("mmap failed");
        }
        return SharedStore(new (memory) Table());
    }

    void set(const std::string &key, const std::string &value) override {
        const Locked locked(*table_);
        if (value.size() >= kValueSize) {
            throw std::runtime_error("the value is too long for the store");
        }
        std::strcpy(append(key)->value.data(), value.c_str());
        pthread_cond_broadcast(&table_->changed);
    }

    int64_t add(const std::string &key, int64_t amount) override {
        const Locked locked(*table_);
        Entry *entry = find(key);
        const int64_t result = (entry == nullptr ? 0 : std::atoll(entry->value.data())) + amount;
        if (entry == nullptr) {
            entry = append(key);
        }
        std::strcpy(entry->value.data(), std::to_string(result).c_str());
        return result;
    }

    std::string get(const std::string &key) override {
        const Locked locked(*table_);
        const Entry *const entry = find(key);
        if (entry == nullptr) {
            throw std::runtime_error("no value for " + key);
        }
        return entry->value.data();
    }

    bool check(const std::vector<std::string> &keys) override {
        const Locked locked(*table_);
        return hasAll(keys);
    }

    // For the scenarios themselves.
    bool wait(const std::vector<std::string> &keys, std::chrono::milliseconds timeout) {
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
        explicit Locked(Table &table) : table(table) { pthread_mutex_lock(&table.mutex); }
        ~Locked() { pthread_mutex_unlock(&table.mutex); }
        Table &table;
    };

    explicit SharedStore(Table *table) : table_(table) {}

    Entry *append(const std::string &key) {
        if (key.size() >= kKeySize || table_->used == kEntries) {
            throw std::runtime_error("the store is full");
        }
        Entry *const entry = &table_->entries[table_->used++];
        std::strcpy(entry->key.data(), key.c_str());
        return entry;
    }

    Entry *find(const std::string &key) const {
        for (std::size_t i = 0; i < table_->used; ++i) {
            if (key == table_->entries[i].key.data()) {
                return &table_->entries[i];
            }
        }
        return nullptr;
    }

    bool hasAll(const std::vector<std::string> &keys) const {
        for (const auto &key : keys) {
            if (find(key) == nullptr) {
                return false;
            }
        }
        return true;
    }

    Table *table_;
};

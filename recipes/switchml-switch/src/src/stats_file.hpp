// SPDX-License-Identifier: BSD-3-Clause
//
// Keeps a file of the counters fresh: whoever reads it sees a whole JSON line,
// the old or the new one.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "data_plane.hpp"

namespace switchml::softswitch {

class StatsFile {
  public:
    // Writes once at once; std::system_error when the file cannot be written.
    StatsFile(std::string path, DataPlane &plane);
    ~StatsFile();
    StatsFile(const StatsFile &) = delete;
    StatsFile &operator=(const StatsFile &) = delete;

    // Writes if anything changed. What goes wrong (a full disk) is said on standard
    // error, once until it works again; it must not stop the switch.
    void refresh() noexcept;

  private:
    void write();  // under write_mutex_ once the thread runs
    void serve();

    const std::string path_;
    DataPlane &plane_;
    std::mutex write_mutex_;
    std::string written_;  // guarded by write_mutex_, as is the next
    bool failed_ = false;  // whether the latest writing failed, which has been said
    std::mutex mutex_;
    std::condition_variable stop_requested_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace switchml::softswitch

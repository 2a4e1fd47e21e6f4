// SPDX-License-Identifier: BSD-3-Clause
//
// Keeps a file of text fresh: whoever reads it sees all of the old text or all of
// the new one, never a part.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace switchml::softswitch {

struct TextFileOptions {
    std::string path;
    std::string what;                         // what the file is called in messages: "stats file"
    std::chrono::milliseconds interval{500};  // between two writings
    bool also_unchanged = false;              // whether it is written where the text is the same: its time says that
                                              // the switch runs
    bool readable_by_all = false;             // whatever the umask
    bool removed_at_end = false;              // where it is to speak of a running switch only
};

class TextFile {
  public:
    using Render = std::function<std::string()>;

    // Writes once at once; std::system_error when the file cannot be written. `render` makes the text, on any thread.
    TextFile(TextFileOptions options, Render render);
    // Writes for the last time, or removes it.
    ~TextFile();
    TextFile(const TextFile &) = delete;
    TextFile &operator=(const TextFile &) = delete;

    // Writes now. What goes wrong (a full disk) is said on standard error, once until it works again; it must not stop
    // the switch.
    void refresh() noexcept;

  private:
    void write();  // under write_mutex_ once the thread runs
    void serve();

    const TextFileOptions options_;
    const Render render_;
    std::mutex write_mutex_;
    std::string written_;  // guarded by write_mutex_, as is the next
    bool failed_ = false;  // whether the latest writing failed, which has been said
    std::mutex mutex_;
    std::condition_variable stop_requested_;
    bool stopping_ = false;
    std::thread thread_;
};

}  // namespace switchml::softswitch

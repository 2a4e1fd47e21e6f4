// SPDX-License-Identifier: BSD-3-Clause
#include "stats_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "wire/check.hpp"

using namespace switchml;
using namespace switchml::softswitch;

namespace {

class TemporaryFolder {
  public:
    TemporaryFolder() {
        if (mkdtemp(path_) == nullptr) throw std::runtime_error("cannot make a folder");
    }
    ~TemporaryFolder() { remove(); }

    std::string file() const { return std::string(path_) + "/stats.json"; }
    void remove() const {
        unlink(file().c_str());
        rmdir(path_);
    }
    void restore() const {
        if (mkdir(path_, 0700) != 0) throw std::runtime_error("cannot make the folder again");
    }

  private:
    char path_[32] = "/tmp/stats_file.XXXXXX";
};

std::string content_of(const std::string &path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

// What the process says on its standard error meanwhile.
class Said {
  public:
    Said() : stream_(std::tmpfile()), saved_(dup(STDERR_FILENO)) {
        if (stream_ == nullptr || saved_ < 0) throw std::runtime_error("cannot keep standard error");
        dup2(fileno(stream_), STDERR_FILENO);
    }
    ~Said() {
        dup2(saved_, STDERR_FILENO);
        close(saved_);
        std::fclose(stream_);
    }

    int lines() const {
        std::string text(4096, '\0');
        const ssize_t got = pread(fileno(stream_), &text[0], text.size(), 0);
        int count = 0;
        for (ssize_t i = 0; i < got; ++i) count += text[static_cast<std::size_t>(i)] == '\n' ? 1 : 0;
        return count;
    }

  private:
    std::FILE *stream_;
    int saved_;
};

}  // namespace

TEST(what_keeps_it_from_being_written_is_said_once) {
    DataPlaneOptions options;
    options.local = {127U << 24 | 1, 0};
    DataPlane plane(options);
    const TemporaryFolder folder;
    StatsFile stats(folder.file(), plane);
    CHECK_MENTIONS(content_of(folder.file()), "\"sessions_opened\": 0");
    const Said said;
    for (std::uint64_t session = 1; session <= 2; ++session) {
        folder.remove();
        plane.open_session({session, 2, 64, std::nullopt});
        for (int i = 0; i < 3; ++i) stats.refresh();
        CHECK_EQ(said.lines(), static_cast<int>(session));
        folder.restore();
        stats.refresh();
        CHECK_MENTIONS(content_of(folder.file()), "\"sessions_opened\": " + std::to_string(session));
    }
}

CHECK_MAIN()

// SPDX-License-Identifier: BSD-3-Clause
#include "text_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>

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

    std::string file() const { return std::string(path_) + "/switch.prom"; }
    void remove() const {
        unlink(file().c_str());
        rmdir(path_);
    }
    void restore() const {
        if (mkdir(path_, 0700) != 0) throw std::runtime_error("cannot make the folder again");
    }

  private:
    char path_[32] = "/tmp/text_file.XXXXXX";
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
    const TemporaryFolder folder;
    int sessions = 0;
    TextFile stats({folder.file(), "stats file"}, [&] { return std::to_string(sessions); });
    CHECK_EQ(content_of(folder.file()), "0");
    const Said said;
    for (sessions = 1; sessions <= 2; ++sessions) {
        folder.remove();
        for (int i = 0; i < 3; ++i) stats.refresh();
        CHECK_EQ(said.lines(), sessions);
        folder.restore();
        stats.refresh();
        CHECK_EQ(content_of(folder.file()), std::to_string(sessions));
    }
}

TEST(a_file_for_others_is_theirs_to_read_and_gone_with_the_switch) {
    const TemporaryFolder folder;
    const mode_t before = umask(0077);
    TextFileOptions options{folder.file(), "metrics file"};
    options.readable_by_all = options.also_unchanged = options.removed_at_end = true;
    struct stat state{};
    {
        TextFile metrics(options, [] { return std::string("same\n"); });
        CHECK_EQ(stat(folder.file().c_str(), &state), 0);
        CHECK_EQ(state.st_mode & 0777U, 0644U);
        const auto first = state.st_ino;
        metrics.refresh();
        CHECK_EQ(stat(folder.file().c_str(), &state), 0);
        CHECK(state.st_ino != first);  // another file in its place, so that its time is of now
    }
    umask(before);
    CHECK(stat(folder.file().c_str(), &state) != 0);
}

TEST(a_folder_that_is_not_there_is_named) {
    try {
        const TextFile file({"/no such folder/switch.prom", "metrics file"}, [] { return std::string("text"); });
    } catch (const std::system_error &error) {
        CHECK_MENTIONS(error.what(), "cannot write the metrics file /no such folder/switch.prom");
        return;
    }
    throw check::Failed("no error came");
}

CHECK_MAIN()

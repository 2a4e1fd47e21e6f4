// SPDX-License-Identifier: BSD-3-Clause
//
// Where the published client library's configuration comes from, and which wins.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>

#include "error.hpp"
#include "published/backend.hpp"
#include "published/configuration.hpp"
#undef CHECK  // glog's, which our headers for tests have, too
#undef CHECK_EQ
#include "wire/check.hpp"

using namespace switchml;
using published::ConfigurationFile;

namespace {

class TemporaryFile {
  public:
    explicit TemporaryFile(const std::string &text) : path_("switchml-" + std::to_string(getpid()) + "-test.cfg") {
        std::ofstream(path_) << text;
    }
    ~TemporaryFile() { std::remove(path_.c_str()); }
    TemporaryFile(const TemporaryFile &) = delete;
    TemporaryFile &operator=(const TemporaryFile &) = delete;
    const std::string &path() const { return path_; }

  private:
    std::string path_;
};

Environment environment_of(const std::map<std::string, std::string> &values) {
    return [values](const char *name) -> std::optional<std::string> {
        const auto found = values.find(name);
        return found == values.end() ? std::nullopt : std::optional(found->second);
    };
}

template <class Body>
Error failure_of(Body &&body) {
    try {
        body();
    } catch (const Error &error) {
        return error;
    }
    throw check::Failed("no error came");
}

Settings settings_with(const Environment &environment) {
    switchml_config config{};
    config.struct_size = sizeof config;
    config.num_workers = 2;
    return resolve_settings(config, environment, false);
}

}  // namespace

TEST(the_published_file_is_understood) {
    const TemporaryFile written("# a comment\n[general]\nrank = 1\nnum_workers = 2\nnum_worker_threads = 2\n"
                                "max_outstanding_packets = 128\npacket_numel = 64\ncontroller_ip = 10.0.0.9\n"
                                "controller_port = 50100\n[backend.dpdk]\nworker_port = 4500\n"
                                "[backend.rdma]\nmsg_numel = 2048\n");
    const Settings settings = settings_with(ConfigurationFile(written.path()).beneath(environment_of({})));
    CHECK_EQ(settings.num_threads, 2U);
    CHECK_EQ(settings.max_outstanding_packets, 128U);
    CHECK_EQ(settings.packet_numel, 64U);
    CHECK_EQ(settings.controller_host, "10.0.0.9");
    CHECK_EQ(settings.controller_port, 50100);
    CHECK_EQ(settings.worker_port, 4500);
}

TEST(a_variable_wins_over_the_file) {
    const TemporaryFile written("[general]\nnum_worker_threads = 2\ncontroller_ip = 10.0.0.9\n");
    const auto environment = environment_of({{"SWITCHML_NUM_THREADS", "1"}, {"SWITCHML_CONTROLLER", "10.0.0.8:7"}});
    const Settings settings = settings_with(ConfigurationFile(written.path()).beneath(environment));
    CHECK_EQ(settings.num_threads, 1U);
    CHECK_EQ(settings.controller_host, "10.0.0.8");
    CHECK_EQ(settings.controller_port, 7);
}

TEST(the_retransmission_timeout_may_come_from_the_file) {
    const TemporaryFile written("[general]\ntimeout = 2.5\n");
    const ConfigurationFile file(written.path());
    CHECK_EQ(settings_with(file.beneath(environment_of({}))).retransmit_timeout_us, 2500U);
    const auto environment = environment_of({{"SWITCHML_RETRANSMIT_TIMEOUT_US", "700"}});
    CHECK_EQ(settings_with(file.beneath(environment)).retransmit_timeout_us, 700U);
}

TEST(what_makes_no_sense_is_refused_by_name) {
    const auto refusal = [](const std::string &text) {
        const TemporaryFile written(text);
        const Error error = failure_of([&] { ConfigurationFile file(written.path()); });
        CHECK_EQ(error.status(), SWITCHML_ECONFIG);
        CHECK_MENTIONS(error.what(), written.path());
        return std::string(error.what());
    };
    CHECK_MENTIONS(refusal("[general]\nthreads = 2\n"), "general.threads");
    CHECK_MENTIONS(refusal("[general]\nbackend = other\n"), "general.backend");
    CHECK_MENTIONS(refusal("[general]\nprepostprocessor = bypass\n"), "general.prepostprocessor");
    CHECK_MENTIONS(refusal("[general]\ninstant_job_completion = true\n"), "instant_job_completion");
    CHECK_MENTIONS(refusal("[general]\n nonsense # there\n"), ":2: 'nonsense', expected [SECTION] or KEY = VALUE");
    CHECK_MENTIONS(refusal("[general]\n\nrank = 1\nrank = 2\n"), ":4: general.rank is set above as well");
    // Boost's reader of such files never came to an end of its message for this line.
    CHECK_MENTIONS(refusal("%invalid_line%\n"), ":1: '%invalid_line%'");
    const TemporaryFile ours("[general]\nbackend = " + std::string(published::backend_name()) + "\n");
    ConfigurationFile accepted(ours.path());
}

TEST(the_file_that_the_environment_names_must_be_there) {
    setenv("SWITCHML_CONFIG", "no-such-file.cfg", 1);
    const Error error = failure_of([] { published::find_configuration(); });
    unsetenv("SWITCHML_CONFIG");
    CHECK_EQ(error.status(), SWITCHML_ECONFIG);
    CHECK_MENTIONS(error.what(), "no-such-file.cfg");
    CHECK_MENTIONS(error.what(), "SWITCHML_CONFIG");
}

TEST(a_folder_is_no_file) { CHECK_MENTIONS(failure_of([] { ConfigurationFile file("."); }).what(), "cannot read"); }

CHECK_MAIN()

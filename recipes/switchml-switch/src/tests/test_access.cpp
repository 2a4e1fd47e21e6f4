// SPDX-License-Identifier: BSD-3-Clause
//
// Who is let in: tokens, certificates of the switch, certificates of its workers.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "jobs.hpp"

using namespace switchml;
using namespace switchml::testing;

namespace {

constexpr const char *kToken = "0123456789abcdef-right";
constexpr const char *kOtherToken = "0123456789abcdef-wrong";

// A folder that goes with the test, and variables that do.
class Site {
  public:
    Site() : folder_(std::filesystem::temp_directory_path() / ("switchml-access-" + std::to_string(getpid()))) {
        std::filesystem::create_directory(folder_);
    }
    ~Site() {
        for (const std::string &name : set_) unsetenv(name.c_str());
        std::filesystem::remove_all(folder_);
    }
    Site(const Site &) = delete;
    Site &operator=(const Site &) = delete;

    std::string path(const std::string &name) const { return (folder_ / name).string(); }

    std::string write(const std::string &name, const std::string &text) const {
        std::ofstream(path(name)) << text;
        return path(name);
    }

    // For workers that are opened from here on.
    void set(const std::string &name, const std::string &value) {
        setenv(name.c_str(), value.c_str(), 1);
        set_.push_back(name);
    }

  private:
    std::filesystem::path folder_;
    std::vector<std::string> set_;
};

void check_reduces(const Switch &net) {
    Workers workers(net, 2);
    check_exact_rounds<std::int32_t>(workers, SWITCHML_INT32, 1, 1000);
}

OpenFailed refusal(const Switch &net) { return open_failure(net.controller, 0, 1, quick); }

#ifdef SWITCHML_OPENSSL
// An authority NAME.pem, and certificates NAME-of.pem that it signed, for the address of the tests' switch.
struct Authority {
    Authority(const Site &place, const std::string &called) : site(place), name(called) {
        site.write("openssl.cnf",
                   "[req]\ndistinguished_name = dn\n[dn]\n[ca]\nbasicConstraints = critical,CA:true\n"
                   "[leaf]\nsubjectAltName = IP:" +
                       private_address(1) + "\n");
        make({"-x509", "-extensions", "ca", "-subj", "/CN=" + name, "-keyout", site.path(name + ".key"), "-out",
              site.path(name + ".pem")});
    }

    void sign(const std::string &leaf) const {
        make({"-x509", "-extensions", "leaf", "-CA", site.path(name + ".pem"), "-CAkey", site.path(name + ".key"),
              "-subj", "/CN=" + leaf, "-keyout", site.path(leaf + ".key"), "-out", site.path(leaf + ".pem")});
    }

    void make(const std::vector<std::string> &more) const {
        std::vector<std::string> command{SWITCHML_OPENSSL, "req",   "-config",  site.path("openssl.cnf"),
                                         "-newkey",        "ec",    "-pkeyopt", "ec_paramgen_curve:prime256v1",
                                         "-nodes",         "-days", "1"};
        command.insert(command.end(), more.begin(), more.end());
        CHECK_EQ(Process(command).wait().code, 0);
    }

    const Site &site;
    std::string name;
};
#endif

}  // namespace

TEST(a_token_lets_in_who_has_it) {
    Site site;
    Switch net({"--token-file", site.write("tokens", std::string("\n") + kOtherToken + "-old\n" + kToken + "\r\n")});
    const OpenFailed without = refusal(net);
    CHECK_EQ(without.status, SWITCHML_EREFUSED);
    CHECK_MENTIONS(without.what(), "SWITCHML_TOKEN_FILE");
    site.set("SWITCHML_TOKEN_FILE", site.write("wrong", kOtherToken));
    const OpenFailed wrong = refusal(net);
    CHECK_EQ(wrong.status, SWITCHML_EREFUSED);
    CHECK_MENTIONS(wrong.what(), "is not this switch's");
    CHECK(std::string(wrong.what()).find("0123456789abcdef") == std::string::npos);
    site.set("SWITCHML_TOKEN_FILE", site.write("right", std::string(kToken) + "\n"));
    check_reduces(net);
}

TEST(a_switch_without_tokens_does_not_mind_one) {
    Site site;
    Switch net;
    site.set("SWITCHML_TOKEN_FILE", site.write("token", kToken));
    check_reduces(net);
}

TEST(a_token_file_that_is_none_is_named_by_both_sides) {
    Site site;
    for (const std::string &path : {site.path("missing"), site.write("empty", "\n"), site.write("short", "secret\n")}) {
        Process refused({SWITCHML_SWITCH_EXECUTABLE, "--address", private_address(1), "--token-file", path});
        CHECK_EQ(refused.wait().code, 1);
    }
    Switch net;
    site.set("SWITCHML_TOKEN_FILE", site.path("missing"));
    const OpenFailed failure = refusal(net);
    CHECK_EQ(failure.status, SWITCHML_ECONFIG);
    CHECK_MENTIONS(failure.what(), "SWITCHML_TOKEN_FILE='" + site.path("missing"));
}

TEST(a_folder_in_place_of_a_token_file_is_named_by_both_sides) {
    Site site;
    const std::string folder = site.path("");
    const std::string command = SWITCHML_SWITCH_EXECUTABLE + (" --address " + private_address(1));
    Process refused({"/bin/sh", "-c", "exec " + command + " --token-file '" + folder + "' 2>&1"});
    const Exit exit = refused.wait();
    CHECK_EQ(exit.code, 1);
    CHECK_MENTIONS(exit.output, "cannot read " + folder + " (--token-file)");
    Switch net;
    site.set("SWITCHML_TOKEN_FILE", folder);
    const OpenFailed failure = refusal(net);
    CHECK_EQ(failure.status, SWITCHML_ECONFIG);
    CHECK_MENTIONS(failure.what(), "SWITCHML_TOKEN_FILE='" + folder + "' cannot be read");
}

#ifdef SWITCHML_OPENSSL
TEST(a_switch_with_a_certificate_is_verified) {
    Site site;
    Authority authority(site, "ca");
    authority.sign("switch");
    Authority(site, "stranger");
    Switch net({"--tls-cert", site.path("switch.pem"), "--tls-key", site.path("switch.key")});
    const OpenFailed plain = refusal(net);
    CHECK_EQ(plain.status, SWITCHML_EUNREACHABLE);
    CHECK_MENTIONS(plain.what(), "SWITCHML_TLS_CA");
    site.set("SWITCHML_TLS_CA", site.path("stranger.pem"));
    CHECK_EQ(refusal(net).status, SWITCHML_EUNREACHABLE);
    site.set("SWITCHML_TLS_CA", site.path("ca.pem"));
    check_reduces(net);
}

TEST(a_switch_may_want_certificates_of_its_workers) {
    Site site;
    Authority authority(site, "ca");
    authority.sign("switch");
    authority.sign("worker");
    Authority stranger(site, "stranger");
    stranger.sign("intruder");
    Switch net({"--tls-cert", site.path("switch.pem"), "--tls-key", site.path("switch.key"), "--tls-client-ca",
                site.path("ca.pem"), "--token-file", site.write("token", kToken)});
    site.set("SWITCHML_TOKEN_FILE", site.path("token"));
    site.set("SWITCHML_TLS_CA", site.path("ca.pem"));
    CHECK_EQ(refusal(net).status, SWITCHML_EUNREACHABLE);
    site.set("SWITCHML_TLS_CERT", site.path("intruder.pem"));
    site.set("SWITCHML_TLS_KEY", site.path("intruder.key"));
    CHECK_EQ(refusal(net).status, SWITCHML_EUNREACHABLE);
    site.set("SWITCHML_TLS_CERT", site.path("worker.pem"));
    site.set("SWITCHML_TLS_KEY", site.path("worker.key"));
    check_reduces(net);
}

TEST(a_switch_that_no_worker_could_satisfy_does_not_start) {
    Site site;
    Authority(site, "ca").sign("switch");
    Process refused({SWITCHML_SWITCH_EXECUTABLE, "--address", private_address(1), "--controller-port", "0",
                     "--tls-cert", site.path("switch.pem"), "--tls-key", site.path("switch.key"), "--tls-client-ca",
                     site.write("empty", "")});
    CHECK_EQ(refused.read_line(), "");
    CHECK_EQ(refused.wait().code, 1);
}

// Without an authority of its own gRPC trusts those of the system, whoever they sign for.
TEST(a_file_without_an_authority_does_not_mean_those_of_the_system) {
    Site site;
    Authority(site, "ca").sign("switch");
    Switch net({"--tls-cert", site.path("switch.pem"), "--tls-key", site.path("switch.key")});
    site.set("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", site.path("ca.pem"));
    for (const std::string &none : {site.write("empty", ""), site.write("blank", "\n")}) {
        site.set("SWITCHML_TLS_CA", none);
        const OpenFailed failure = refusal(net);
        CHECK_EQ(failure.status, SWITCHML_ECONFIG);
        CHECK_MENTIONS(failure.what(), "SWITCHML_TLS_CA='" + none + "'");
    }
}
#endif

// One after the other from the same addresses, which the end of the session leaves free.
TEST(jobs_show_session_tokens_of_their_own) {
    Site site;
    Switch net;
    const std::string variable = "SWITCHML_SESSION_TOKEN_FILE";
    for (const char *token : {kToken, kOtherToken}) {
        site.set(variable, site.write("job", token));
        check_reduces(net);
    }
    for (const char *wrong : {"two words of a token\n", "short\n", "\n"}) {
        site.set(variable, site.write("bad", wrong));
        const OpenFailed failure = refusal(net);
        CHECK_EQ(failure.status, SWITCHML_ECONFIG);
        CHECK_MENTIONS(failure.what(), variable + "='" + site.path("bad") + "' must begin with a line of 16 to 1024");
    }
}

int main(int argc, char **argv) { return run_tests(argc, argv); }

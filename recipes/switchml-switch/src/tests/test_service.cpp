// SPDX-License-Identifier: BSD-3-Clause
//
// The switch under a service manager, and as the first process of a container.
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "switch_process.hpp"
#include "wire/check.hpp"

using namespace switchml;
using namespace switchml::testing;

namespace {

// A socket as systemd's, whose name processes started from here on see.
class Manager {
  public:
    explicit Manager(const std::string &name) : fd_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)), name_(name) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, name.data(), name.size());
        if (name[0] == '@') address.sun_path[0] = '\0';
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
        if (bind(fd_, reinterpret_cast<const sockaddr *>(&address), size) != 0)
            throw std::runtime_error("cannot bind " + name);
        setenv("NOTIFY_SOCKET", name.c_str(), 1);
    }
    ~Manager() {
        unsetenv("NOTIFY_SOCKET");
        close(fd_);
        if (name_[0] == '/') unlink(name_.c_str());
    }
    Manager(const Manager &) = delete;
    Manager &operator=(const Manager &) = delete;

    // "" when nothing has come.
    std::string receive() const {
        char bytes[256];
        const ssize_t got = recv(fd_, bytes, sizeof bytes, MSG_DONTWAIT);
        return got < 0 ? "" : std::string(bytes, static_cast<std::size_t>(got));
    }

  private:
    int fd_;
    std::string name_;
};

void check_notified(const std::string &socket_name) {
    const Manager manager(socket_name);
    Switch net;  // its line comes before the word to the manager
    net.stop();
    CHECK_EQ(manager.receive(), "READY=1");
    CHECK_EQ(manager.receive(), "STOPPING=1");
    CHECK_EQ(manager.receive(), "");
}

// Whether nothing can be written at the root of the file system.
bool make_root_read_only() {
    struct statvfs root{};
    if (statvfs("/", &root) != 0) return false;
    unsigned long kept = 0;  // what this user may not take away
    if ((root.f_flag & ST_NOSUID) != 0) kept |= MS_NOSUID;
    if ((root.f_flag & ST_NODEV) != 0) kept |= MS_NODEV;
    if ((root.f_flag & ST_NOEXEC) != 0) kept |= MS_NOEXEC;
    if ((root.f_flag & ST_RELATIME) != 0) kept |= MS_RELATIME;
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | kept, nullptr) != 0)
        return false;
    return mkdir("/switchml-writes-here", 0700) != 0 && errno == EROFS;
}

// As a container: starts `arguments` as the first process of a namespace, without a variable and with a root that is
// read-only, says that one's number here as a line, and ends as it ends.
int run_as_first_process(int argc, char **argv) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS) != 0 || !make_root_read_only()) {
        std::printf("{\"refused\": \"%s\"}\n", std::strerror(errno));
        return 0;
    }
    clearenv();
    std::vector<char *> arguments(argv, argv + argc);
    arguments.push_back(nullptr);
    const pid_t first = fork();
    if (first == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getpid() == 1) execv(arguments[0], arguments.data());
        _exit(127);
    }
    std::printf("{\"pid\": %d}\n", first);
    std::fflush(stdout);
    int status = 0;
    waitpid(first, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

TEST(a_service_manager_hears_when_it_serves_and_stops) {
    check_notified("/tmp/switchml-notify-" + std::to_string(getpid()));
    check_notified("@switchml-notify-" + std::to_string(getpid()));
}

TEST(a_manager_that_is_not_there_does_not_stop_it) {
    setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1);
    Switch net;
    unsetenv("NOTIFY_SOCKET");
    net.stop();
}

// The kernel hands the first process of a namespace only signals that it asked for. There is no HOME, and no place to
// write to.
TEST(a_first_process_ends_well) {
    for (const int number : {SIGTERM, SIGINT}) {
        Process outer({"/proc/self/exe", "--as-first-process", SWITCHML_SWITCH_EXECUTABLE, "--address",
                       private_address(1), "--port", "0", "--controller-port", "0"});
        const std::string line = outer.read_line();
        if (line.find("refused") != std::string::npos) {
            std::printf("skipped a_first_process_ends_well: no namespaces for this user: %s\n", line.c_str());
            return;
        }
        CHECK_EQ(json_value(outer.read_line(), "event"), "ready");
        CHECK_EQ(kill(static_cast<pid_t>(json_number(line, "pid")), number), 0);
        const Exit exit = outer.wait();
        CHECK_EQ(exit.code, 0);
        CHECK_EQ(json_value(exit.output, "event"), "stopped");
    }
}

int main(int argc, char **argv) {
    if (argc > 2 && std::string(argv[1]) == "--as-first-process") return run_as_first_process(argc - 2, argv + 2);
    return check::run(argc, argv);
}

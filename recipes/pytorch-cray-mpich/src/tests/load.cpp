// SPDX-License-Identifier: BSD-3-Clause
//
// load LIBRARY [NAME=VALUE]: loads the check, reports, and, where given, sets a
// variable of the environment and reports once more.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

int main(int argc, char** argv) {
  void* const library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
  void (*report)() = nullptr;
  if (library != nullptr) {
    report = reinterpret_cast<void (*)()>(dlsym(library, "report"));
  }
  if (report == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  report();
  if (argc > 2) {
    const std::string assignment = argv[2];
    const auto equals = assignment.find('=');
    setenv(assignment.substr(0, equals).c_str(), assignment.substr(equals + 1).c_str(), 1);
    report();
  }
  return 0;
}

// SPDX-License-Identifier: BSD-3-Clause
//
// load LIBRARY [NAME=VALUE | prepare]: loads the check and reports. With an
// assignment it then sets a variable of the environment and reports once more;
// with "prepare" it first does what is done before MPI is initialized.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using Function = void (*)();

Function find(void* library, const char* name) {
  void* const symbol = library != nullptr ? dlsym(library, name) : nullptr;
  if (symbol == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(1);
  }
  return reinterpret_cast<Function>(symbol);
}

} // namespace

int main(int argc, char** argv) {
  void* const library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
  const Function report = find(library, "report");
  const std::string then = argc > 2 ? argv[2] : "";
  const auto equals = then.find('=');
  if (then == "prepare") {
    find(library, "prepare")();
  }
  report();
  if (equals != std::string::npos) {
    setenv(then.substr(0, equals).c_str(), then.substr(equals + 1).c_str(), 1);
    report();
  }
  return 0;
}

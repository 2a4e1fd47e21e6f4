// SPDX-License-Identifier: BSD-3-Clause
//
// The check against a real MPI: before it is initialized, and after.
#include <torch/csrc/distributed/c10d/MPICudaAware.hpp>

#include <cstdio>

namespace {

void report() {
  const c10d::CudaAwareness answer = c10d::cudaAwareness();
  std::printf("%s: %s\n", answer.aware ? "yes" : "no", answer.reason.c_str());
}

} // namespace

int main(int argc, char** argv) {
  report();
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  report();
  MPI_Finalize();
  return 0;
}

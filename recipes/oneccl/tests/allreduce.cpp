// SPDX-License-Identifier: BSD-3-Clause
// Sums over all ranks through oneCCL and compares every element with what it has to be.
// Usage, under a launcher: allreduce RESULT LIBRARY...   Each rank that found everything right, and had loaded all the
// library files, makes a file RESULT.<rank>: lines of several ranks mix on their way through a launcher.
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <mpi.h>
#include <oneapi/ccl.hpp>

namespace {

struct Ranks {
  int rank = 0;
  int size = 0;
};

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

ccl::communicator make_communicator(const Ranks& ranks) {
  ccl::shared_ptr_class<ccl::kvs> store;
  ccl::kvs::address_type address;
  if (ranks.rank == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
  }
  MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (ranks.rank != 0) store = ccl::create_kvs(address);
  return ccl::create_communicator(ranks.size, ranks.rank, store);
}

template <typename T>
void reduce(const ccl::communicator& communicator, const Ranks& ranks, std::size_t count, ccl::reduction operation,
            T (*expected)(std::size_t index, int size)) {
  std::vector<T> values(count);
  for (std::size_t index = 0; index < count; ++index) values[index] = static_cast<T>((index % 1000) + 1) * (ranks.rank + 1);
  std::vector<T> result(count);
  ccl::allreduce(values.data(), result.data(), count, operation, communicator).wait();
  for (std::size_t index = 0; index < count; ++index) {
    expect(result[index] == expected(index, ranks.size), "element " + std::to_string(index) + " is wrong");
  }
}

// values are (index % 1000 + 1) * (rank + 1): small integers, exact in every type
template <typename T>
T sum(std::size_t index, int size) {
  return static_cast<T>((index % 1000) + 1) * static_cast<T>(size * (size + 1) / 2);
}

template <typename T>
T largest(std::size_t index, int size) {
  return static_cast<T>((index % 1000) + 1) * static_cast<T>(size);
}

template <typename T>
void reduce_all(const ccl::communicator& communicator, const Ranks& ranks) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{257}, std::size_t{100003}, std::size_t{1} << 20}) {
    reduce<T>(communicator, ranks, count, ccl::reduction::sum, sum<T>);
    reduce<T>(communicator, ranks, count, ccl::reduction::max, largest<T>);
  }
}

std::set<std::string> loaded_files() {
  std::set<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto start = line.find('/');
    if (start != std::string::npos) files.insert(line.substr(start));
  }
  return files;
}

void expect_loaded(const std::string& library) {
  char resolved[PATH_MAX];
  expect(realpath(library.c_str(), resolved) != nullptr, library + " does not exist");
  expect(loaded_files().count(resolved) == 1, library + " is not loaded");
}

}  // namespace

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  Ranks ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &ranks.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks.size);
  try {
    ccl::init();
    {
      auto communicator = make_communicator(ranks);
      expect(communicator.size() == 2, "this is a test for 2 ranks");
      reduce_all<float>(communicator, ranks);
      reduce_all<double>(communicator, ranks);
      reduce_all<std::int32_t>(communicator, ranks);
      reduce_all<std::int64_t>(communicator, ranks);
    }
    for (int index = 2; index < count; ++index) expect_loaded(arguments[index]);
  } catch (const std::exception& error) {
    std::cerr << "rank " << ranks.rank << ": " << error.what() << std::endl;
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  std::ofstream(arguments[1] + ("." + std::to_string(ranks.rank))) << "right\n";
}

// SPDX-License-Identifier: BSD-3-Clause
// One rank of an allreduce over the emulator: allreduce RANK RANKS PORT. Sums of several types and lengths, compared
// with what they have to be; exit code 0 only if all are right.
#include <accl.hpp>

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace {

template <typename Value>
Value part(unsigned rank, unsigned index) {
  // small whole numbers: exact in every type
  return static_cast<Value>(static_cast<int>((rank + 1) * (index % 13 + 1)) - 7);
}

template <typename Value>
bool reduce(ACCL::ACCL &accl, unsigned rank, unsigned ranks, unsigned count, ACCL::dataType type, const char *name) {
  auto input = accl.create_buffer<Value>(count, type);
  auto output = accl.create_buffer<Value>(count, type);
  for (unsigned index = 0; index < count; ++index) {
    input->buffer()[index] = part<Value>(rank, index);
    output->buffer()[index] = Value{};
  }
  accl.allreduce(*input, *output, count, ACCL::reduceFunction::SUM);
  unsigned wrong = 0;
  for (unsigned index = 0; index < count; ++index) {
    Value expected{};
    for (unsigned other = 0; other < ranks; ++other) expected += part<Value>(other, index);
    wrong += output->buffer()[index] != expected;
  }
  std::cout << "rank " << rank << ": " << count << " x " << name << ": " << wrong << " wrong" << std::endl;
  return wrong == 0;
}

int run(unsigned rank, unsigned ranks, int port) {
  constexpr unsigned buffer_size = 4096;
  std::vector<ACCL::rank_t> group;
  for (unsigned other = 0; other < ranks; ++other)
    group.push_back({"127.0.0.1", port + static_cast<int>(other), static_cast<int>(other), buffer_size});
  ACCL::ACCL accl(static_cast<unsigned>(port), rank);
  // all messages below go through these buffers: only the RDMA protocol has another way for long ones
  accl.initialize(group, static_cast<int>(rank), 16, buffer_size, 64 * 1024, 128 * 1024);
  bool right = accl.is_simulated();
  right &= reduce<float>(accl, rank, ranks, 16, ACCL::dataType::float32, "float32");
  right &= reduce<float>(accl, rank, ranks, 1000, ACCL::dataType::float32, "float32");
  right &= reduce<float>(accl, rank, ranks, 5000, ACCL::dataType::float32, "float32");  // longer than one message
  right &= reduce<double>(accl, rank, ranks, 129, ACCL::dataType::float64, "float64");
  right &= reduce<std::int32_t>(accl, rank, ranks, 257, ACCL::dataType::int32, "int32");
  right &= reduce<std::int64_t>(accl, rank, ranks, 77, ACCL::dataType::int64, "int64");
  return right ? 0 : 1;
}

}  // namespace

int main(int count, char **arguments) {
  if (count != 4) {
    std::cerr << "usage: allreduce RANK RANKS PORT\n";
    return 2;
  }
  try {
    return run(std::stoul(arguments[1]), std::stoul(arguments[2]), std::stoi(arguments[3]));
  } catch (const std::exception &error) {
    std::cerr << "rank " << arguments[1] << ": " << error.what() << std::endl;
    return 1;
  }
}

// SPDX-License-Identifier: BSD-3-Clause
// Quantises floats to integers and back with vectors, checks each element against plain C++, and prints the version of
// the headers and the instruction set that they were compiled for. Exit code 3: this processor cannot run it.
#include <vectorclass.h>

#include <cmath>
#include <cstdio>

namespace {

constexpr int kLanes = 16;

bool Check(const float (&values)[kLanes], float scale) {
  const Vec16f input = Vec16f().load(values);
  const Vec16i quantised = roundi(input * scale);
  int stored[kLanes];
  quantised.store(stored);
  float back[kLanes];
  (to_float(quantised) / scale).store(back);
  for (int lane = 0; lane < kLanes; ++lane) {
    const int expected = static_cast<int>(std::nearbyintf(values[lane] * scale));
    if (stored[lane] != expected || back[lane] != static_cast<float>(expected) / scale) {
      std::fprintf(stderr, "lane %d: %d, expected %d\n", lane, stored[lane], expected);
      return false;
    }
  }
  return horizontal_add(quantised) ==
         [&stored] { int sum = 0; for (int value : stored) sum += value; return sum; }();
}

}  // namespace

int main() {
  std::printf("%d %d\n", INSTRSET_H, INSTRSET);
  if (instrset_detect() < INSTRSET) return 3;
  float values[kLanes];
  for (int step = 1; step <= 1000; ++step) {
    for (int lane = 0; lane < kLanes; ++lane) values[lane] = std::sin(0.37F * static_cast<float>(step * kLanes + lane)) * 90.0F;
    if (!Check(values, 1024.0F) || !Check(values, 0.125F)) return 1;
  }
  return 0;
}

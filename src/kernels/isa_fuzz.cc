/// @file
/// Makes a case for the kernels of arbitrary bytes and differences the instruction sets of this machine. Seeds:
/// tests/fuzz/isa/.

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "kernels/isa_case_testutil.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string difference = kvist::kernels::testing::DifferenceOfCase({data, size});
  if (!difference.empty()) {
    std::fprintf(stderr, "%s\n", difference.c_str());
    std::abort();
  }
  return 0;
}

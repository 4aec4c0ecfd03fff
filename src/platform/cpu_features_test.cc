#include "platform/cpu_features.h"

#include <gtest/gtest.h>

namespace kvist {
namespace {

// The compiler's own detection is the second opinion.
TEST(CpuFeaturesTest, AgreeWithTheCompilersDetection) {
  __builtin_cpu_init();
  const CpuFeatures& cpu = GetCpuFeatures();
  EXPECT_EQ(cpu.avx2, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
  EXPECT_EQ(cpu.avx512, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"));
  EXPECT_EQ(cpu.avx512_vnni, cpu.avx512 && __builtin_cpu_supports("avx512vnni"));
  EXPECT_EQ(cpu.avx512_vbmi, cpu.avx512 && __builtin_cpu_supports("avx512vbmi"));
  EXPECT_EQ(cpu.avx512_bf16, cpu.avx512 && __builtin_cpu_supports("avx512bf16"));
  EXPECT_FALSE(CpuName().empty());
}

}  // namespace
}  // namespace kvist

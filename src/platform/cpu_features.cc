#include "platform/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace kvist {
namespace {

struct Registers {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

/// All zero when the processor does not know the leaf.
Registers Cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Registers r;
  if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
  return r;
}

/// Register states that the operating system saves (XCR0); 0 when it saves none.
uint64_t SavedStates() {
  if ((Cpuid(1).ecx >> 27 & 1) == 0) return 0;
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool Bit(uint32_t value, int bit) {
  return value >> bit & 1;
}

/// Linux saves tile data only for processes that asked (Documentation/arch/x86/xstate.rst).
bool AskForTileData() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

CpuFeatures Detect() {
  constexpr uint64_t kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;
  uint64_t states = SavedStates();
  Registers basic = Cpuid(1), extended = Cpuid(7), more = Cpuid(7, 1);
  CpuFeatures cpu;
  bool ymm = (states & kYmm) == kYmm, zmm = (states & kZmm) == kZmm, tiles = (states & kTiles) == kTiles;
  cpu.avx2 = ymm && Bit(basic.ecx, 12) && Bit(basic.ecx, 28) && Bit(basic.ecx, 29) && Bit(extended.ebx, 5) &&
             Bit(extended.ebx, 3) && Bit(extended.ebx, 8);
  cpu.avx_vnni = cpu.avx2 && Bit(more.eax, 4);
  cpu.avx512 = cpu.avx2 && zmm && Bit(extended.ebx, 16) && Bit(extended.ebx, 17) && Bit(extended.ebx, 30) &&
               Bit(extended.ebx, 31);
  cpu.avx512_vnni = cpu.avx512 && Bit(extended.ecx, 11);
  cpu.avx512_vbmi = cpu.avx512 && Bit(extended.ecx, 1);
  cpu.avx512_bf16 = cpu.avx512 && Bit(more.eax, 5);
  tiles = tiles && Bit(extended.edx, 24) && AskForTileData();
  cpu.amx_int8 = tiles && Bit(extended.edx, 25);
  cpu.amx_bf16 = tiles && Bit(extended.edx, 22);
  return cpu;
}

}  // namespace

const CpuFeatures& GetCpuFeatures() {
  static const CpuFeatures features = Detect();
  return features;
}

std::string CpuName() {
  constexpr uint32_t kFirst = 0x80000002;
  if (Cpuid(0x80000000).eax < kFirst + 2) return "unknown";
  char name[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    Registers r = Cpuid(kFirst + i);
    std::memcpy(name + 16 * i, &r, 16);
  }
  const char* begin = name;
  while (*begin == ' ') ++begin;
  return *begin != '\0' ? begin : "unknown";
}

}  // namespace kvist

#pragma once

/// @file
/// What this processor and this operating system let a program execute. Asked once, then constant; any thread.
/// Non-goals: choosing kernels (kernels/dispatch.h).

#include <string>

namespace kvist {

/// Each flag says: the instructions exist and the system saves their registers.
struct CpuFeatures {
  bool avx2 = false;         ///< AVX2, FMA, F16C and BMI: the floor of this program (x86-64-v3).
  bool avx_vnni = false;     ///< 8-bit dot products in 256-bit registers.
  bool avx512 = false;       ///< AVX-512 F, BW, DQ and VL.
  bool avx512_vnni = false;  ///< 8-bit dot products in 512-bit registers; implies avx512.
  bool avx512_vbmi = false;  ///< Table look-up by bytes in 512-bit registers; implies avx512.
  bool avx512_bf16 = false;  ///< Conversion to bf16 in 512-bit registers; implies avx512.
  bool amx_int8 = false;     ///< AMX tiles with 8-bit products, which the operating system lets this process use.
  bool amx_bf16 = false;     ///< The same with bf16 products.
};

/// Reads CPUID and XCR0 on the first call, and asks the operating system for the AMX tiles: it grants them to the whole
/// process, threads of later included, or refuses.
const CpuFeatures& GetCpuFeatures();

/// The processor's own name, e.g. "Intel(R) Xeon(R) Processor"; "unknown" if it has none.
std::string CpuName();

}  // namespace kvist

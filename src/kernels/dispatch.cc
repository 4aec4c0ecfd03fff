#include "kernels/dispatch.h"

#include <array>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "kernels/avx2/avx2.h"
#include "kernels/avx512/avx512.h"
#include "kernels/reference/reference.h"
#include "platform/cpu_features.h"

namespace kvist::kernels {
namespace {

bool Always(const CpuFeatures&) {
  return true;
}

struct IsaEntry {
  Isa isa;
  std::string_view name;
  const KernelTable* table;
  bool (*runs_on)(const CpuFeatures& cpu);
};

/// Every instruction set of this program, slowest first.
constexpr std::array kIsas{
    IsaEntry{Isa::kReference, "reference", &kReferenceKernels, Always},
    IsaEntry{Isa::kAvx2, "avx2", &avx2::kKernels, [](const CpuFeatures& cpu) { return cpu.avx2; }},
    IsaEntry{Isa::kAvx512, "avx512", &avx512::kKernels, [](const CpuFeatures& cpu) { return cpu.avx512_vnni; }},
    IsaEntry{Isa::kAmx, "amx", &avx512::kKernelsWithAmx,
             [](const CpuFeatures& cpu) {
               return cpu.avx512_vnni && cpu.avx512_vbmi && cpu.avx512_bf16 && cpu.amx_int8 && cpu.amx_bf16;
             }},
};

const IsaEntry& EntryOf(Isa isa) {
  for (const IsaEntry& entry : kIsas) {
    if (entry.isa == isa) return entry;
  }
  CheckFailed(__FILE__, __LINE__, "known instruction set");
}

}  // namespace

std::span<const Isa> SupportedIsas() {
  static const std::vector<Isa> supported = [] {
    std::vector<Isa> isas;
    for (const IsaEntry& entry : kIsas) {
      if (entry.runs_on(GetCpuFeatures())) isas.push_back(entry.isa);
    }
    return isas;
  }();
  return supported;
}

Isa BestIsa() {
  return SupportedIsas().back();
}

absl::StatusOr<Isa> ParseIsa(std::string_view name) {
  std::string known;
  for (const IsaEntry& entry : kIsas) {
    if (entry.name == name) {
      if (entry.runs_on(GetCpuFeatures())) return entry.isa;
      return absl::FailedPreconditionError(
          absl::StrCat("this processor cannot run the ", std::string(name), " kernels"));
    }
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(entry.name));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown instruction set \"", std::string(name), "\"; known are ", known));
}

std::string_view IsaName(Isa isa) {
  return EntryOf(isa).name;
}

Isa BitsOf(Isa isa) {
  return isa == Isa::kAmx ? Isa::kAmx : Isa::kReference;
}

const KernelTable& KernelsFor(Isa isa) {
  const IsaEntry& entry = EntryOf(isa);
  KVIST_CHECK(entry.runs_on(GetCpuFeatures()));
  return *entry.table;
}

}  // namespace kvist::kernels

#pragma once

/// @file
/// Chooses among the instruction sets compiled into this program. Any thread. Non-goals: reading the environment
/// or flags (the caller does, and passes a name).

#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/kernel_table.h"

namespace kvist::kernels {

/// Instruction sets that this machine can run, slowest first; the reference is always among them.
std::span<const Isa> SupportedIsas();

/// The fastest of SupportedIsas.
Isa BestIsa();

/// "reference", "avx2", "avx512" or "amx". InvalidArgument for another name, FailedPrecondition when this machine lacks
/// the set.
absl::StatusOr<Isa> ParseIsa(std::string_view name);

std::string_view IsaName(Isa isa);

/// The instruction set that defines another's numbers: all that share it give a model the same bits. kAmx adds up
/// attention and products with F16 and BF16 weights in its own order and defines itself; the reference defines the
/// others.
Isa BitsOf(Isa isa);

/// REQUIRES: `isa` is one of SupportedIsas.
const KernelTable& KernelsFor(Isa isa);

}  // namespace kvist::kernels

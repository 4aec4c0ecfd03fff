#pragma once

/// @file
/// Any bytes as a comparison of instruction sets: which kernel, shapes, and numbers with every bit pattern among them.
/// For the fuzzer and for replaying what it found.

#include <cstdint>
#include <span>
#include <string>

namespace kvist::kernels::testing {

/// Runs the case on every instruction set of this machine: the bits of the reference where they are promised
/// (kernel_table.h), else within the error that AMX's definition allows, and everywhere the same bits for a token alone
/// and among others. @return empty, or what differs.
std::string DifferenceOfCase(std::span<const uint8_t> bytes);

}  // namespace kvist::kernels::testing

/// @file
/// Feeds arbitrary text to the reader of scenarios. Seeds: tests/fuzz/sim_scenario/.

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "lab/sim_scenario.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto scenario = kvist::lab::ParseScenario(text, "x");
  KVIST_CHECK(scenario.ok() || !scenario.status().message().empty());
  if (!scenario.ok()) return 0;
  // What can be read can be written and read again.
  const auto again = kvist::lab::ParseScenario(kvist::lab::EncodeScenario(*scenario), "x");
  KVIST_CHECK(again.ok() && *again == *scenario);
  return 0;
}

/// @file
/// Feeds arbitrary bytes to the readers of device files. Seeds: tests/fuzz/device/.

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "device/device_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvist::device;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto device = ParseDevice(text, "fuzz.toml"); device.ok()) {
    KVIST_CHECK(!device->processors.empty() && device->capacity_bytes() > 0);
    for (const Processor& processor : device->processors) {
      KVIST_CHECK(device->MemoryOf(processor).bandwidth > 0 && processor.PeakOf(Number::kFp4) > 0);
      for (const auto& rates : processor.rates) {
        if (!rates) continue;
        const Rates& each = rates->For(Number::kFp8);
        KVIST_CHECK(each.compute_efficiency.At(1e9) > 0 && each.memory_efficiency.At(0) > 0);
      }
    }
  } else {
    KVIST_CHECK(device.status().message().find("fuzz.toml") != device.status().message().npos);
  }
  if (const auto link = ParseLink(text, "fuzz.toml"); link.ok()) KVIST_CHECK(link->bandwidth > 0);
  if (const auto drive = ParseDrive(text, "fuzz.toml"); drive.ok()) KVIST_CHECK(drive->read_bandwidth > 0);
  return 0;
}

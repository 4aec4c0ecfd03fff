#include "device/device_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"
#include "device/device_testutil.h"

namespace kvist::device {
namespace {

using testing::HasSubstr;

const Catalog& Shipped() {
  static const Catalog catalog(KVIST_SOURCE_DIR "/devices");
  return catalog;
}

std::string Replaced(std::string_view what, std::string_view with) {
  std::string text(kSmallDevice);
  const size_t at = text.find(what);
  EXPECT_NE(at, text.npos) << what;
  return text.replace(at, what.size(), with);
}

TEST(DeviceFile, EveryShippedFileIsReadAndItsLinksAreThere) {
  ASSERT_GE(Shipped().Names().size(), 15u);
  for (const std::string& name : Shipped().Names()) {
    const absl::StatusOr<Device> device = Shipped().FindDevice(name);
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ(device->name, name);
    EXPECT_GT(device->capacity_bytes(), 0);
    for (const std::string& link : device->links) EXPECT_TRUE(Shipped().FindLink(link).ok()) << name << ": " << link;
  }
  for (const std::string& name : Shipped().Names("links")) {
    const absl::StatusOr<Link> link = Shipped().FindLink(name);
    ASSERT_TRUE(link.ok()) << link.status();
    EXPECT_GT(link->bandwidth, 1e9);
  }
  for (const std::string& name : Shipped().Names("drives")) {
    const absl::StatusOr<Drive> drive = Shipped().FindDrive(name);
    ASSERT_TRUE(drive.ok()) << drive.status();
    EXPECT_GT(drive->read_latency_ns, 0);
  }
}

TEST(DeviceFile, UnitsAreThoseOfTheKeys) {
  const absl::StatusOr<Device> device = ParseDevice(kSmallDevice, "x/small.toml");
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(device->name, "small");
  EXPECT_EQ(device->memories[0].capacity_bytes, 8.0 * (1 << 30));
  EXPECT_EQ(device->memories[0].bandwidth, 100e9);
  const Processor& processor = device->processors[0];
  EXPECT_EQ(processor.peak_flops[static_cast<size_t>(Number::kBf16)], 10e12);
  EXPECT_EQ(processor.launch_ns, 5000);
  EXPECT_EQ(processor.gap_ns, 1000);
  const WorkRates& matmul = *processor.rates[static_cast<size_t>(Work::kMatmul)];
  EXPECT_EQ(matmul.For(Number::kFp8).latency_ns, 3000);
  EXPECT_EQ(matmul.For(Number::kFp8).compute_efficiency.At(1e6), 0.2) << "as for all numbers";
  const Rates& rates = matmul.For(Number::kBf16);
  EXPECT_EQ(rates.latency_ns, 2000);
  EXPECT_EQ(rates.compute_efficiency.At(1e6), 0.2);
  EXPECT_NEAR(rates.compute_efficiency.At(1e9), 0.5, 1e-9) << "half-way between 1e8 and 1e10";
  EXPECT_EQ(rates.compute_efficiency.At(1e15), 0.8);
  EXPECT_EQ(device->overheads.step_ns, 50e3);
  EXPECT_FALSE(processor.rates[static_cast<size_t>(Work::kExperts)].has_value());
}

TEST(DeviceFile, NarrowNumbersAreWidenedWhereThereIsNoArithmeticForThem) {
  const absl::StatusOr<Device> device = ParseDevice(kSmallDevice, "small.toml");
  ASSERT_TRUE(device.ok());
  const Processor& processor = device->processors[0];
  EXPECT_EQ(processor.PeakOf(Number::kFp8), 10e12);
  EXPECT_EQ(processor.PeakOf(Number::kF32), 1e12);
}

struct Fault {
  std::string_view what, with, said;
};

TEST(DeviceFile, FaultsNameFileLineAndKey) {
  const Fault faults[] = {
      {"capacity_gib = 8", "capacity_gib = -8", "small.toml:7: memory.capacity_gib: -8 is not from"},
      {"capacity_gib = 8", "capacity_gib = nan", "small.toml:7: memory.capacity_gib: nan is not from"},
      {"capacity_gib = 8", "capacity_gib = \"8\"", "small.toml:7: memory.capacity_gib: is no number"},
      {"capacity_gib = 8", "capacity_gb = 8", "memory.capacity_gib: is missing"},
      {"bandwidth_gb_s = 100", "bandwidth_gb_s = 100\nextra = 1", "small.toml:9: memory.extra: is not known here"},
      {"memory = \"ram\"", "memory = \"rom\"", "\"one\" works in \"rom\", which is no memory"},
      {"[[1e8, 0.2], [1e10, 0.8]]", "[[1e10, 0.2], [1e8, 0.8]]", "sizes that do not rise"},
      {"[[1e8, 0.2], [1e10, 0.8]]", "[[1e8, 0.2], [1e10]]", "pairs [size, value]"},
      {"[[1e8, 0.2], [1e10, 0.8]]", "[]", "has no points"},
      {"[[1e8, 0.2], [1e10, 0.8]]", "1.5", "1.5 is not from"},
      {"[processor.decode_attention]", "[processor.guessing]", "processor.guessing: is not known here"},
      {"[step]", "[steps]", "step: is missing"},
      {"bf16 = 10", "int8 = 10", "needs f32 or bf16"},
      {"busy_w = 20", "busy_w = 2", "is less than idle_w"},
      {"source = \"of the memory\"", "", "memory.source: is missing"},
      {"title = \"A small device\"", "title = 3", "title: is no text"},
      {"[[memory]]", "[memory]", "memory: is no list of tables"},
      {"title = \"A small device\"", "title = ", "small.toml:2: "},
      {"name = \"ram\"", "name = \"ram\"\nsame_as = \"ram\"", "is the same as \"ram\", which is no memory of its own"},
  };
  for (const Fault& fault : faults) {
    std::string text = Replaced(fault.what, fault.with);
    if (fault.what == "bf16 = 10") text.erase(text.find("f32 = 1\n"), 8);
    const absl::StatusOr<Device> device = ParseDevice(text, "small.toml");
    ASSERT_FALSE(device.ok()) << fault.with;
    EXPECT_TRUE(absl::IsInvalidArgument(device.status()));
    EXPECT_THAT(std::string(device.status().message()), HasSubstr(std::string(fault.said)));
  }
}

TEST(DeviceFile, EveryLineThatIsTakenAwayIsMissedOrHasADefault) {
  const std::string text(kSmallDevice);
  size_t refused = 0, lines = 0;
  for (size_t begin = 0; begin < text.size(); ++lines) {
    const size_t end = text.find('\n', begin) + 1;
    refused += ParseDevice(text.substr(0, begin) + text.substr(end), "small.toml").ok() ? 0 : 1;
    begin = end;
  }
  EXPECT_GT(refused, lines / 2);
}

TEST(DeviceFile, AnUnknownNameIsToldWithThoseThatThereAre) {
  const absl::Status status = Shipped().FindDevice("h1000").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("h100, h200"));
  EXPECT_THAT(std::string(Shipped().FindLink("string").status().message()), HasSubstr("nvlink4"));
  EXPECT_TRUE(absl::IsNotFound(Shipped().FindDevice("/nowhere/else.toml").status()));
}

TEST(DeviceFile, WhatIsWrittenIsRead) {
  for (const std::string& name : Shipped().Names()) {
    const std::string text = FormatDevice(*Shipped().FindDevice(name), "a test");
    const absl::StatusOr<Device> read = ParseDevice(text, name + ".toml");
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(FormatDevice(*read, "a test"), text);
  }
}

TEST(DeviceFile, MemoryThatIsSeenTwiceCountsOnce) {
  const absl::StatusOr<Device> duplex = Shipped().FindDevice("duplex");
  ASSERT_TRUE(duplex.ok()) << duplex.status();
  EXPECT_EQ(duplex->capacity_bytes(), duplex->memories[0].capacity_bytes);
}

}  // namespace
}  // namespace kvist::device

#include "device/device_file.h"

#include <algorithm>
#include <filesystem>

#include "base/status.h"
#include "device/toml_reader.h"
#include "platform/text_file.h"

namespace kvist::device {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 20;
constexpr double kTera = 1e12, kGiga = 1e9, kMicro = 1e3 /* ns */;
constexpr double kLatencyUsMax = 1e6, kBandwidthMax = 1e9 /* GB/s */, kPeakMax = 1e9 /* T */, kGibMax = 1e9;

/// Ends the reading of a table that is part of another.
void Close(TomlReader& part, TomlReader& whole) {
  part.Text("source");
  whole.Keep(part.Finish());
}

Rates RatesFrom(TomlReader& reader, const Rates& otherwise) {
  Rates rates = otherwise;
  rates.latency_ns = reader.Number("latency_us", 0, kLatencyUsMax) * kMicro;
  rates.compute_efficiency = reader.CurveOr("compute_efficiency", 1e-6, 1, rates.compute_efficiency);
  rates.memory_efficiency = reader.CurveOr("memory_efficiency", 1e-6, 4, rates.memory_efficiency);
  return rates;
}

WorkRates ReadWork(const toml::table& table, const std::string& name, TomlReader& whole) {
  TomlReader reader(table, whole.path(), name);
  WorkRates rates{.all = RatesFrom(reader, {}), .of = {}};
  for (size_t i = 0; i < kNumbers; ++i) {
    const toml::table* own = reader.Table(kNumberNames[i]);
    if (own == nullptr) continue;
    TomlReader part(*own, whole.path(), Cat(name, ".", kNumberNames[i]));
    rates.of[i] = RatesFrom(part, rates.all);
    Close(part, reader);
  }
  Close(reader, whole);
  return rates;
}

void ReadPeaks(const toml::table& table, Processor& processor, TomlReader& whole) {
  TomlReader reader(table, whole.path(), "processor.peak_tflops");
  bool any = false;
  for (size_t i = 0; i < kNumbers; ++i) {
    processor.peak_flops[i] = reader.NumberOr(kNumberNames[i], 0, kPeakMax, 0) * kTera;
    any |= processor.peak_flops[i] > 0;
  }
  Close(reader, whole);
  if (!any) whole.Fault("peak_tflops", "names no peak above 0");
  if (any && processor.PeakOf(Number::kFp4) <= 0) whole.Fault("peak_tflops", "needs f32 or bf16");
}

Processor ReadProcessor(const toml::table& table, TomlReader& file) {
  TomlReader reader(table, file.path(), "processor");
  Processor processor{.name = reader.Text("name"), .memory = reader.Text("memory"), .rates = {}};
  processor.launch_ns = reader.Number("launch_us", 0, kLatencyUsMax) * kMicro;
  processor.gap_ns = reader.NumberOr("gap_us", 0, kLatencyUsMax, 0) * kMicro;
  processor.mixed_reread = reader.NumberOr("mixed_reread", 0, 1, 0);
  if (const toml::table* peaks = reader.Table("peak_tflops")) {
    ReadPeaks(*peaks, processor, reader);
  } else {
    reader.Fault("peak_tflops", "is missing");
  }
  bool any = false;
  for (size_t i = 0; i < kWorks; ++i) {
    const toml::table* work = reader.Table(kWorkNames[i]);
    if (work == nullptr) continue;
    processor.rates[i] = ReadWork(*work, Cat("processor.", kWorkNames[i]), reader);
    any = true;
  }
  if (!any) reader.Fault("name", "the processor does no kind of work");
  Close(reader, file);
  return processor;
}

Memory ReadMemory(const toml::table& table, TomlReader& file) {
  TomlReader reader(table, file.path(), "memory");
  Memory memory{.name = reader.Text("name"), .same_as = reader.TextOr("same_as", "")};
  memory.capacity_bytes = reader.Number("capacity_gib", 1e-3, kGibMax) * kGibi;
  memory.bandwidth = reader.Number("bandwidth_gb_s", 1e-3, kBandwidthMax) * kGiga;
  memory.latency_ns = reader.NumberOr("latency_us", 0, kLatencyUsMax, 0) * kMicro;
  Close(reader, file);
  return memory;
}

void ReadOverheads(const toml::table& table, Device& device, TomlReader& file) {
  TomlReader reader(table, file.path(), "step");
  device.overheads.step_ns = reader.Number("overhead_us", 0, kLatencyUsMax) * kMicro;
  device.overheads.request_ns = reader.NumberOr("request_us", 0, kLatencyUsMax, 0) * kMicro;
  device.overheads.eager_tokens = reader.NumberOr("eager_above_tokens", 0, 1e9, 0);
  device.overheads.graph_rows = reader.NumberOr("graph_rows", 0, 1e6, 0);
  Close(reader, file);
}

void ReadPower(const toml::table& table, Device& device, TomlReader& file) {
  TomlReader reader(table, file.path(), "power");
  device.power.idle_w = reader.Number("idle_w", 0, 1e6);
  device.power.busy_w = reader.Number("busy_w", 0, 1e6);
  if (device.power.busy_w < device.power.idle_w) reader.Fault("busy_w", "is less than idle_w");
  Close(reader, file);
}

/// Every memory that is named exists, names are different, and every kind of work is somebody's.
void CheckWhole(const Device& device, TomlReader& file) {
  if (device.memories.empty()) file.Fault("memory", "is missing");
  if (device.processors.empty()) file.Fault("processor", "is missing");
  for (size_t i = 0; i < device.memories.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (device.memories[i].name == device.memories[j].name) {
        file.Fault("memory", Cat("two are called \"", device.memories[i].name, "\""));
      }
    }
  }
  for (const Memory& memory : device.memories) {
    const auto found = std::ranges::find(device.memories, memory.same_as, &Memory::name);
    if (memory.same_as.empty() || (found != device.memories.end() && found->same_as.empty())) continue;
    file.Fault("memory",
               Cat("\"", memory.name, "\" is the same as \"", memory.same_as, "\", which is no memory of its own"));
  }
  for (const Processor& processor : device.processors) {
    if (std::ranges::find(device.memories, processor.memory, &Memory::name) == device.memories.end()) {
      file.Fault("processor", Cat("\"", processor.name, "\" works in \"", processor.memory, "\", which is no memory"));
    }
  }
  for (size_t work = 0; work < kWorks; ++work) {
    const auto does = [work](const Processor& processor) { return processor.rates[work].has_value(); };
    // A device without experts is one for dense models.
    if (work != static_cast<size_t>(Work::kExperts) && std::ranges::none_of(device.processors, does)) {
      file.Fault("processor", Cat("none does ", kWorkNames[work]));
    }
  }
}

}  // namespace

absl::StatusOr<Device> ParseDevice(std::string_view text, const std::string& path) {
  KVIST_ASSIGN_OR_RETURN(const toml::table table, ParseTomlText(text, path));
  TomlReader file(table, path, "");
  Device device{.name = std::filesystem::path(path).stem().string()};
  device.title = file.Text("title");
  file.Text("source");
  device.links = file.Texts("links");
  for (const toml::table* memory : file.Tables("memory")) device.memories.push_back(ReadMemory(*memory, file));
  for (const toml::table* unit : file.Tables("processor")) device.processors.push_back(ReadProcessor(*unit, file));
  if (const toml::table* step = file.Table("step")) {
    ReadOverheads(*step, device, file);
  } else {
    file.Fault("step", "is missing");
  }
  if (const toml::table* power = file.Table("power")) ReadPower(*power, device, file);
  CheckWhole(device, file);
  KVIST_RETURN_IF_ERROR(file.Finish());
  return device;
}

absl::StatusOr<Link> ParseLink(std::string_view text, const std::string& path) {
  KVIST_ASSIGN_OR_RETURN(const toml::table table, ParseTomlText(text, path));
  TomlReader file(table, path, "");
  Link link{.name = std::filesystem::path(path).stem().string(), .title = file.Text("title")};
  link.bandwidth = file.Number("bandwidth_gb_s", 1e-3, kBandwidthMax) * kGiga;
  link.latency_ns = file.Number("latency_us", 0, kLatencyUsMax) * kMicro;
  link.setup_ns = file.NumberOr("setup_us", 0, kLatencyUsMax, 0) * kMicro;
  link.efficiency = file.CurveOr("efficiency", 1e-6, 1, link.efficiency);
  link.reduce_efficiency = file.CurveOr("reduce_efficiency", 1e-6, 2, link.efficiency);
  link.devices_max = static_cast<uint32_t>(file.NumberOr("devices_max", 0, 1e6, 0));
  link.reduces_in_switch = file.TruthOr("reduces_in_switch", false);
  file.Text("source");
  KVIST_RETURN_IF_ERROR(file.Finish());
  return link;
}

absl::StatusOr<Drive> ParseDrive(std::string_view text, const std::string& path) {
  KVIST_ASSIGN_OR_RETURN(const toml::table table, ParseTomlText(text, path));
  TomlReader file(table, path, "");
  Drive drive{.name = std::filesystem::path(path).stem().string(), .title = file.Text("title")};
  drive.capacity_bytes = file.Number("capacity_gib", 1e-3, kGibMax) * kGibi;
  drive.read_bandwidth = file.Number("read_gb_s", 1e-6, kBandwidthMax) * kGiga;
  drive.write_bandwidth = file.Number("write_gb_s", 1e-6, kBandwidthMax) * kGiga;
  drive.read_latency_ns = file.Number("read_latency_us", 0, kLatencyUsMax) * kMicro;
  drive.write_latency_ns = file.Number("write_latency_us", 0, kLatencyUsMax) * kMicro;
  file.Text("source");
  KVIST_RETURN_IF_ERROR(file.Finish());
  return drive;
}

std::vector<std::string> Catalog::Names(std::string_view kind) const {
  std::vector<std::string> names;
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::path(folder_) / std::string(kind);
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

absl::StatusOr<std::string> Catalog::Read(std::string_view kind, std::string_view name, std::string& path) const {
  if (name.ends_with(".toml")) {
    path = name;
    return ReadTextFile(path, kFileBytesMax);
  }
  const std::vector<std::string> names = Names(kind);
  if (std::ranges::find(names, name) == names.end()) {
    std::string known;
    for (const std::string& each : names) known += Cat(known.empty() ? "" : ", ", each);
    return absl::NotFoundError(Cat("nothing in ", folder_, kind.empty() ? "" : "/", kind, " is called \"", name,
                                   "\"; there are ", known.empty() ? "none" : known));
  }
  path = (std::filesystem::path(folder_) / std::string(kind) / Cat(name, ".toml")).string();
  return ReadTextFile(path, kFileBytesMax);
}

absl::StatusOr<Device> Catalog::FindDevice(std::string_view name) const {
  std::string path;
  KVIST_ASSIGN_OR_RETURN(const std::string text, Read("", name, path));
  return ParseDevice(text, path);
}

absl::StatusOr<Link> Catalog::FindLink(std::string_view name) const {
  std::string path;
  KVIST_ASSIGN_OR_RETURN(const std::string text, Read("links", name, path));
  return ParseLink(text, path);
}

absl::StatusOr<Drive> Catalog::FindDrive(std::string_view name) const {
  std::string path;
  KVIST_ASSIGN_OR_RETURN(const std::string text, Read("drives", name, path));
  return ParseDrive(text, path);
}

}  // namespace kvist::device

#include "cli/device_flags.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/byte_size.h"
#include "base/status.h"
#include "cli/ranges.h"
#include "kv/kv_memory.h"
#include "lab/measured_shape.h"
#include "model/model.h"
#include "platform/executable.h"

namespace kvist::cli {

void AddDeviceFlags(CLI::App& command, DeviceFlags& flags, const std::string& shape_flag) {
  command.add_option("--device", flags.device, "Emulated device: a name of devices/, or a file that ends in .toml");
  flags.shape_flag = shape_flag;
  // One name works everywhere, whatever a command prefers.
  const std::string names = shape_flag == "--model-shape" ? shape_flag : Cat(shape_flag, ",--model-shape");
  command.add_option(names, flags.shape,
                     "Model on that device, by the name of its shape, such as llama-3.1-8b, or a GGUF file");
  const auto numbers =
      CLI::IsMember(std::vector<std::string>(device::kNumberNames.begin(), device::kNumberNames.end()));
  command.add_option("--dtype", flags.dtype, "Its weights")->check(numbers)->capture_default_str();
  command.add_option("--kv-dtype", flags.kv_dtype, "Its keys and values")->check(numbers)->capture_default_str();
  command.add_option("--tensor-parallel", flags.tensor_parallel, "Devices that share each layer")
      ->transform(WholeNumber(1, 1024))
      ->capture_default_str();
  command.add_option("--pipeline-parallel", flags.pipeline_parallel, "Groups of devices that share the layers")
      ->transform(WholeNumber(1, 1024))
      ->capture_default_str();
  command.add_option("--link", flags.link, "Between devices, a name of devices/links/; else the device's first");
  command
      .add_option("--profile", flags.profile,
                  "Folder of latencies measured for this model and device (dense.csv, per_sequence.csv, attention.csv)")
      ->check(CLI::ExistingDirectory);
  command.add_option("--memory-share", flags.memory_share, "Of the device's memory, for weights, keys and values")
      ->check(Number(0.01, 1))
      ->capture_default_str();
  command.add_option("--devices", flags.folder, "Folder of device files; else KVIST_DEVICES, else those of kvist")
      ->check(CLI::ExistingDirectory);
}

device::Catalog DeviceCatalog(const std::string& given) {
  if (!given.empty()) return device::Catalog(given);
  if (const char* named = std::getenv("KVIST_DEVICES"); named != nullptr && *named != '\0') {
    return device::Catalog(named);
  }
  if (const std::string binary = ExecutableFolder(); !binary.empty()) {
    const std::filesystem::path installed = std::filesystem::path(binary).parent_path() / "share/kvist/devices";
    std::error_code ignored;
    if (std::filesystem::is_directory(installed, ignored)) return device::Catalog(installed.string());
  }
  return device::Catalog(KVIST_SOURCE_DIR "/devices");
}

absl::StatusOr<cost::StepModel> StepModelOf(const DeviceFlags& flags) {
  if (flags.shape.empty()) {
    std::string names;
    for (const cost::ModelShape& shape : cost::ModelShapes()) names += Cat(", ", shape.name);
    return absl::InvalidArgumentError(Cat("--device needs ", flags.shape_flag,
                                          " with the model that runs on it: a GGUF file, or one of", names.substr(1)));
  }
  const device::Catalog catalog = DeviceCatalog(flags.folder);
  cost::StepModelOptions options{.weights = device::FindNumber(flags.dtype).value(),
                                 .keys = device::FindNumber(flags.kv_dtype).value(),
                                 .tensor_parallel = flags.tensor_parallel,
                                 .pipeline_parallel = flags.pipeline_parallel};
  KVIST_ASSIGN_OR_RETURN(options.device, catalog.FindDevice(flags.device));
  if (flags.shape.ends_with(".gguf")) {
    KVIST_ASSIGN_OR_RETURN(const std::shared_ptr<const model::Model> model, model::LoadModel(flags.shape));
    options.shape = lab::ShapeOf(*model);
    options.weights = lab::WeightsOf(*model);
  } else {
    KVIST_ASSIGN_OR_RETURN(options.shape, cost::FindModelShape(flags.shape));
  }
  const std::string link = !flags.link.empty()            ? flags.link
                           : options.device.links.empty() ? ""
                                                          : options.device.links.front();
  if (!link.empty()) {
    KVIST_ASSIGN_OR_RETURN(options.link, catalog.FindLink(link));
  }
  if (!flags.profile.empty()) {
    KVIST_ASSIGN_OR_RETURN(options.profile, cost::Profile::Load(flags.profile));
  }
  return cost::StepModel::Create(std::move(options));
}

absl::StatusOr<uint32_t> KvBlocksOf(const DeviceFlags& flags, const cost::StepModel& model) {
  constexpr uint64_t kBlocksMax = 1u << 24;
  const uint64_t blocks = model.KvBlocks(flags.memory_share, kv::kBlockTokens);
  if (blocks < 2) {
    return absl::ResourceExhaustedError(
        Cat(flags.shape, " leaves no room for keys and values on ", flags.device, ": weights of ",
            FormatByteSize(static_cast<uint64_t>(model.weight_bytes())), " in ", flags.memory_share, " of ",
            FormatByteSize(static_cast<uint64_t>(model.options().device.capacity_bytes()))));
  }
  return static_cast<uint32_t>(std::min(blocks, kBlocksMax));
}

}  // namespace kvist::cli

#include <fmt/format.h>

#include "device/device_file.h"

namespace kvist::device {
namespace {

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + '"';
}

std::string CurveText(const Curve& curve) {
  const std::vector<Curve::Point> points = curve.Points();
  if (points.size() == 1) return fmt::format("{:.6g}", points[0].value);
  std::string text;
  for (const Curve::Point& point : points) {
    text += fmt::format("{}[{:.6g}, {:.6g}]", text.empty() ? "" : ", ", point.size, point.value);
  }
  return fmt::format("[{}]", text);
}

std::string RatesText(const std::string& name, const Rates& rates, const std::string& source) {
  return fmt::format("\n[{}]\nlatency_us = {:.6g}\ncompute_efficiency = {}\nmemory_efficiency = {}\nsource = {}\n",
                     name, rates.latency_ns * 1e-3, CurveText(rates.compute_efficiency),
                     CurveText(rates.memory_efficiency), source);
}

std::string ProcessorText(const Processor& processor, const std::string& source) {
  std::string text = fmt::format(
      "\n[[processor]]\nname = {}\nmemory = {}\nlaunch_us = {:.6g}\ngap_us = {:.6g}\nmixed_reread = {:.6g}\nsource = "
      "{}\n",
      Quoted(processor.name), Quoted(processor.memory), processor.launch_ns * 1e-3, processor.gap_ns * 1e-3,
      processor.mixed_reread, source);
  text += "\n[processor.peak_tflops]\n";
  for (size_t i = 0; i < kNumbers; ++i) {
    if (processor.peak_flops[i] > 0)
      text += fmt::format("{} = {:.6g}\n", kNumberNames[i], processor.peak_flops[i] * 1e-12);
  }
  text += fmt::format("source = {}\n", source);
  for (size_t work = 0; work < kWorks; ++work) {
    if (!processor.rates[work]) continue;
    const std::string name = fmt::format("processor.{}", kWorkNames[work]);
    text += RatesText(name, processor.rates[work]->all, source);
    for (size_t i = 0; i < kNumbers; ++i) {
      const std::optional<Rates>& own = processor.rates[work]->of[i];
      if (own) text += RatesText(fmt::format("{}.{}", name, kNumberNames[i]), *own, source);
    }
  }
  return text;
}

}  // namespace

std::string FormatDevice(const Device& device, std::string_view from) {
  const std::string source = Quoted(from);
  std::string links;
  for (const std::string& link : device.links) links += fmt::format("{}{}", links.empty() ? "" : ", ", Quoted(link));
  std::string text = fmt::format("title = {}\nlinks = [{}]\nsource = {}\n", Quoted(device.title), links, source);
  for (const Memory& memory : device.memories) {
    text += fmt::format(
        "\n[[memory]]\nname = {}\n{}capacity_gib = {:.6g}\nbandwidth_gb_s = {:.6g}\nlatency_us = {:.6g}\nsource = {}\n",
        Quoted(memory.name), memory.same_as.empty() ? "" : fmt::format("same_as = {}\n", Quoted(memory.same_as)),
        memory.capacity_bytes / kGibi, memory.bandwidth * 1e-9, memory.latency_ns * 1e-3, source);
  }
  for (const Processor& processor : device.processors) text += ProcessorText(processor, source);
  text += fmt::format(
      "\n[step]\noverhead_us = {:.6g}\nrequest_us = {:.6g}\neager_above_tokens = {:.6g}\ngraph_rows = {:.6g}\nsource = "
      "{}\n",
      device.overheads.step_ns * 1e-3, device.overheads.request_ns * 1e-3, device.overheads.eager_tokens,
      device.overheads.graph_rows, source);
  return text + fmt::format("\n[power]\nidle_w = {:.6g}\nbusy_w = {:.6g}\nsource = {}\n", device.power.idle_w,
                            device.power.busy_w, source);
}

}  // namespace kvist::device

#pragma once

/// @file
/// Counters, gauges and histograms, and their text in Prometheus' format. Two kinds: instruments, that code updates as
/// things happen, and collectors, that are asked when somebody reads. Threads: updating instruments and Text() from
/// any; adding only before the first Text(). Non-goals: HTTP, names and meanings (whoever adds them). Format:
/// https://prometheus.io/docs/instrumenting/exposition_formats/

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace kvist::telemetry {

using Labels = std::map<std::string, std::string>;

/// Only rises.
class Counter {
 public:
  virtual ~Counter() = default;
  /// REQUIRES: amount >= 0.
  virtual void Add(double amount = 1) = 0;
};

/// Distribution over fixed buckets.
class Histogram {
 public:
  virtual ~Histogram() = default;
  virtual void Observe(double value) = 0;
};

/// Several counters of one name that differ in some labels; made when first asked for, so keep the label values few.
class CounterFamily {
 public:
  virtual ~CounterFamily() = default;
  virtual Counter& With(const Labels& labels) = 0;
};

/// One value that a collector reports.
struct Sample {
  enum class Kind : uint8_t { kCounter, kGauge };
  std::string name, help;
  Kind kind = Kind::kGauge;
  double value = 0;
  Labels labels;
};

/// Appends samples; those of one name one after the other.
using Collector = std::function<void(std::vector<Sample>&)>;

class Metrics {
 public:
  /// @param common  labels of every metric, e.g. {"model_name", ...}.
  explicit Metrics(Labels common);
  ~Metrics();

  /// What is returned lives as long as this. REQUIRES: a name not used before, of letters, digits, '_' and ':'.
  CounterFamily& AddCounters(const std::string& name, const std::string& help);
  /// @param bounds  ascending upper bounds of the buckets; one more for the rest is added.
  Histogram& AddHistogram(const std::string& name, const std::string& help, const std::vector<double>& bounds);
  void AddCollector(Collector collector);

  /// All of it, as text format 0.0.4.
  std::string Text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvist::telemetry

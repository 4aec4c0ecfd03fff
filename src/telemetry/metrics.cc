#include "telemetry/metrics.h"

#include <deque>
#include <mutex>
#include <utility>

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

namespace kvist::telemetry {
namespace {

class CounterOf final : public Counter {
 public:
  explicit CounterOf(prometheus::Counter& counter) : counter_(counter) {}
  void Add(double amount) override { counter_.Increment(amount); }

 private:
  prometheus::Counter& counter_;
};

class HistogramOf final : public Histogram {
 public:
  explicit HistogramOf(prometheus::Histogram& histogram) : histogram_(histogram) {}
  void Observe(double value) override { histogram_.Observe(value); }

 private:
  prometheus::Histogram& histogram_;
};

class CounterFamilyOf final : public CounterFamily {
 public:
  explicit CounterFamilyOf(prometheus::Family<prometheus::Counter>& family) : family_(family) {}

  Counter& With(const Labels& labels) override {
    std::lock_guard lock(mutex_);
    auto found = counters_.find(labels);
    if (found == counters_.end()) found = counters_.try_emplace(labels, family_.Add(labels)).first;
    return found->second;
  }

 private:
  prometheus::Family<prometheus::Counter>& family_;
  std::mutex mutex_;
  std::map<Labels, CounterOf> counters_;
};

/// Sorts samples into families: one per run of equal names.
std::vector<prometheus::MetricFamily> FamiliesOf(const std::vector<Sample>& samples, const Labels& common) {
  std::vector<prometheus::MetricFamily> families;
  for (const Sample& sample : samples) {
    const bool is_counter = sample.kind == Sample::Kind::kCounter;
    if (families.empty() || families.back().name != sample.name) {
      families.push_back(
          {sample.name, sample.help, is_counter ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge, {}});
    }
    prometheus::ClientMetric metric;
    Labels labels = common;
    labels.insert(sample.labels.begin(), sample.labels.end());
    for (const auto& [name, value] : labels) metric.label.push_back({name, value});
    (is_counter ? metric.counter.value : metric.gauge.value) = sample.value;
    families.back().metric.push_back(std::move(metric));
  }
  return families;
}

}  // namespace

struct Metrics::Impl {
  Labels common;
  prometheus::Registry registry;
  std::deque<CounterFamilyOf> families;  // Deques: references to elements stay valid.
  std::deque<HistogramOf> histograms;
  std::vector<Collector> collectors;
};

Metrics::Metrics(Labels common) : impl_(std::make_unique<Impl>()) {
  impl_->common = std::move(common);
}
Metrics::~Metrics() = default;

CounterFamily& Metrics::AddCounters(const std::string& name, const std::string& help) {
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Labels(impl_->common).Register(impl_->registry);
  return impl_->families.emplace_back(family);
}

Histogram& Metrics::AddHistogram(const std::string& name, const std::string& help, const std::vector<double>& bounds) {
  auto& family = prometheus::BuildHistogram().Name(name).Help(help).Labels(impl_->common).Register(impl_->registry);
  return impl_->histograms.emplace_back(family.Add({}, prometheus::Histogram::BucketBoundaries(bounds)));
}

void Metrics::AddCollector(Collector collector) {
  impl_->collectors.push_back(std::move(collector));
}

std::string Metrics::Text() const {
  std::vector<Sample> samples;
  for (const Collector& collector : impl_->collectors) collector(samples);
  std::vector<prometheus::MetricFamily> families = FamiliesOf(samples, impl_->common);
  std::vector<prometheus::MetricFamily> kept = impl_->registry.Collect();
  families.insert(families.end(), std::make_move_iterator(kept.begin()), std::make_move_iterator(kept.end()));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace kvist::telemetry

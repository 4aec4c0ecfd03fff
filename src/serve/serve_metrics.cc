#include "serve/serve_metrics.h"

#include "serve/answer_format.h"

namespace kvist::serve {

using telemetry::Sample;

namespace {

const std::vector<double> kFirstTokenBounds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                               1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
const std::vector<double> kPerTokenBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                                             0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80};
const std::vector<double> kWholeBounds = {0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,
                                          20,  30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
const std::vector<double> kTokensBounds = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                                           1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};

}  // namespace

ServeMetrics::ServeMetrics(const std::string& model_id, const engine::Engine& engine, const Metering& metering,
                           const Tenants& tenants, FrameSessions& frames)
    : engine_(engine),
      metering_(metering),
      tenants_(tenants),
      frames_(frames),
      metrics_(telemetry::Labels{{"model_name", model_id}}),
      replies_(metrics_.AddCounters("kvist_http_requests_total", "HTTP requests answered, by route and status.")),
      finished_(metrics_.AddCounters("vllm:request_success_total", "Finished generations, by reason.")),
      faded_messages_(
          metrics_
              .AddCounters("kvist_faded_messages_total", "Messages that left a session's view for lack of attention.")
              .With({})),
      faded_tokens_(metrics_.AddCounters("kvist_faded_tokens_total", "Their tokens.").With({})),
      first_token_(
          metrics_.AddHistogram("vllm:time_to_first_token_seconds", "Request read to first token.", kFirstTokenBounds)),
      per_token_(metrics_.AddHistogram("vllm:time_per_output_token_seconds",
                                       "Mean time of a generation's tokens after the first.", kPerTokenBounds)),
      whole_(metrics_.AddHistogram("vllm:e2e_request_latency_seconds", "Request read to last token.", kWholeBounds)),
      prompt_tokens_(metrics_.AddHistogram("vllm:request_prompt_tokens", "Tokens of a prompt.", kTokensBounds)),
      output_tokens_(metrics_.AddHistogram("vllm:request_generation_tokens", "Tokens of an output.", kTokensBounds)) {
  metrics_.AddCollector([this](std::vector<Sample>& out) { CollectEngine(out); });
  metrics_.AddCollector([this](std::vector<Sample>& out) { CollectTenants(out); });
  metrics_.AddCollector([this](std::vector<Sample>& out) { CollectFrames(out); });
}

void ServeMetrics::CountReply(Route route, int http_status) {
  replies_.With({{"route", std::string(RouteName(route))}, {"code", std::to_string(http_status)}}).Add();
}

void ServeMetrics::Observe(const GenerationRecord& record) {
  finished_.With({{"finished_reason", std::string(FinishReasonName(record.reason))}}).Add();
  if (record.faded_messages > 0) {
    faded_messages_.Add(record.faded_messages);
    faded_tokens_.Add(record.faded_tokens);
  }
  if (record.first_token_at == kTimeNever) return;
  Latencies latencies{.finished_at = record.finished_at, .ttft_s = Seconds(record.first_token_at - record.received_at)};
  first_token_.Observe(latencies.ttft_s);
  const uint32_t tokens = record.usage.output_tokens;
  if (tokens > 1) {
    latencies.tpot_s = Seconds(record.finished_at - record.first_token_at) / (tokens - 1);
    per_token_.Observe(latencies.tpot_s);
  }
  const bool whole = record.reason == engine::FinishReason::kStop || record.reason == engine::FinishReason::kLength;
  if (whole) latencies.e2e_s = Seconds(record.finished_at - record.received_at);
  recent_.Add(latencies);
  if (!whole) return;
  whole_.Observe(latencies.e2e_s);
  prompt_tokens_.Observe(record.usage.prompt_tokens);
  output_tokens_.Observe(tokens);
}

void ServeMetrics::CollectEngine(std::vector<Sample>& out) const {
  const engine::EngineStats stats = engine_.Stats();
  const auto add = [&out](const char* name, const char* help, Sample::Kind kind, double value,
                          telemetry::Labels labels = {}) {
    out.push_back({name, help, kind, value, std::move(labels)});
  };
  const auto count = [](uint64_t value) { return static_cast<double>(value); };
  constexpr auto kGauge = Sample::Kind::kGauge;
  constexpr auto kCounter = Sample::Kind::kCounter;
  const kv::MemoryFigures& kv = stats.kv;
  const kv::FrameCounts& frames = kv.frames;
  add("vllm:num_requests_running", "Requests in execution.", kGauge, count(stats.running));
  add("vllm:num_requests_waiting", "Requests waiting to run.", kGauge, count(stats.waiting));
  add("vllm:kv_cache_usage_perc", "Share of KV blocks in use by running requests; 1 = all.", kGauge,
      frames.total() == 0 ? 0 : count(frames.referenced) / count(frames.total()));
  add("vllm:num_preemptions_total", "Requests put back to waiting for lack of KV memory.", kCounter,
      count(stats.preemptions));
  add("vllm:prompt_tokens_total", "Prompt tokens of started requests.", kCounter, count(stats.prompt_tokens));
  add("vllm:generation_tokens_total", "Tokens generated.", kCounter, count(stats.generated_tokens));
  add("kvist_forced_tokens_total", "Tokens generated without sampling, as a grammar left no choice.", kCounter,
      count(stats.forced_tokens));
  add("vllm:prefix_cache_queries_total", "Prompt tokens looked up in the cache.", kCounter, count(stats.prompt_tokens));
  add("vllm:prefix_cache_hits_total", "Prompt tokens found in the cache.", kCounter, count(stats.cached_tokens));
  add("kvist_computed_tokens_total", "Tokens the model was run on.", kCounter, count(stats.computed_tokens));
  add("kvist_steps_total", "Engine steps.", kCounter, count(stats.steps));
  add("kvist_step_seconds_total", "Time of all steps.", kCounter, count(stats.step_ns) * 1e-9);
  add("kvist_step_time_error_ratio", "Mean error of predicted step times of late; 0.1 = a tenth.", kGauge,
      stats.step_cost.error_ratio);
  for (size_t kind = 0; kind < sched::StepCost::kKinds; ++kind) {
    add("kvist_step_price_ns", "What work in a step costs as learnt so far, by kind.", kGauge, stats.step_cost.ns[kind],
        {{"kind", std::string(sched::StepCost::kKindNames[kind])}});
  }
  const char* blocks_help = "KV blocks by state.";
  add("kvist_kv_blocks", blocks_help, kGauge, count(frames.free), {{"state", "free"}});
  add("kvist_kv_blocks", blocks_help, kGauge, count(frames.cached), {{"state", "cached"}});
  add("kvist_kv_blocks", blocks_help, kGauge, count(frames.referenced), {{"state", "referenced"}});
  add("kvist_kv_blocks", blocks_help, kGauge, count(frames.loading), {{"state", "loading"}});
  add("kvist_kv_blocks", blocks_help, kGauge, count(frames.storing), {{"state", "storing"}});
  add("kvist_kv_empty_slots", "Tokens that would fit the frames of running requests.", kGauge, count(kv.empty_slots));
  add("kvist_kv_dropped_slots", "Slots in view's blocks of running requests whose tokens were dropped.", kGauge,
      count(kv.dropped_slots));
  add("kvist_kv_evicted_blocks_total", "Cached blocks whose frame was wanted.", kCounter,
      count(kv.totals.evicted_blocks));
  add("kvist_kv_copied_blocks_total", "Blocks copied because a part of them was shared.", kCounter,
      count(kv.totals.copied_blocks));
  add("kvist_kv_dropped_tokens_total", "Tokens that left a view by an operation.", kCounter,
      count(kv.totals.dropped_tokens));
  const char* retained_help = "KV blocks by the class they are retained with; those not counted are normal.";
  add("kvist_kv_retained_blocks", retained_help, kGauge, count(kv.low), {{"class", "low"}});
  add("kvist_kv_retained_blocks", retained_help, kGauge, count(kv.high), {{"class", "high"}});
  add("kvist_kv_retained_blocks", retained_help, kGauge, count(kv.pinned), {{"class", "pinned"}});
  add("kvist_kv_pinned_blocks_max", "KV blocks that may be pinned.", kGauge, count(kv.pins_max));
  add("kvist_kv_pins_refused_total", "Blocks kept as high because too many were pinned.", kCounter,
      count(kv.totals.pins_refused));
  add("kvist_kv_pins_yielded_total", "Pins that gave way to a request that nothing else had room for.", kCounter,
      count(kv.totals.pins_yielded));
  add("kvist_kv_forgotten_blocks_total", "Cached blocks freed because their time was over.", kCounter,
      count(kv.totals.forgotten_blocks));
  if (!stats.tier_figures.empty()) CollectTiers(stats, out);
  add("kvist_waited_for_prefix_total", "Requests held back while another computed their beginning.", kCounter,
      count(stats.waited_for_prefix));
  add("kvist_http_connections", "Open connections.", kGauge, static_cast<double>(connections_open.load()));
  add("kvist_http_connections_refused_total", "Connections closed because there were too many.", kCounter,
      count(connections_refused.load()));
}

void ServeMetrics::CollectTiers(const engine::EngineStats& stats, std::vector<Sample>& out) {
  const auto add = [&out](const char* name, const char* help, Sample::Kind kind, double value,
                          telemetry::Labels labels = {}) {
    out.push_back({name, help, kind, value, std::move(labels)});
  };
  const auto of_each = [&](const char* name, const char* help, Sample::Kind kind, const auto& value_of) {
    for (const kv::TierFigures& tier : stats.tier_figures) {
      add(name, help, kind, static_cast<double>(value_of(tier)), {{"tier", tier.name}});
    }
  };
  using Tier = kv::TierFigures;
  constexpr auto kGauge = Sample::Kind::kGauge;
  constexpr auto kCounter = Sample::Kind::kCounter;
  of_each("kvist_tier_writing", "1 = the tier takes blocks; 0 = its drive is full, it is only read, or disabled.",
          kGauge, [](const Tier& tier) { return tier.state == "writing" ? 1 : 0; });
  of_each("kvist_tier_blocks", "KV blocks on the tier.", kGauge, [](const Tier& tier) { return tier.blocks; });
  of_each("kvist_tier_bytes", "What they take.", kGauge, [](const Tier& tier) { return tier.bytes; });
  of_each("kvist_tier_bytes_max", "What they may take.", kGauge, [](const Tier& tier) { return tier.bytes_max; });
  of_each("kvist_tier_hit_blocks_total", "Blocks looked for and there.", kCounter,
          [](const Tier& tier) { return tier.hit_blocks; });
  of_each("kvist_tier_miss_blocks_total", "Blocks looked for and not there.", kCounter,
          [](const Tier& tier) { return tier.lookup_blocks - tier.hit_blocks; });
  of_each("kvist_tier_read_bytes_total", "Keys and values read back.", kCounter,
          [](const Tier& tier) { return tier.read_bytes; });
  of_each("kvist_tier_stored_bytes_total", "Keys and values stored.", kCounter,
          [](const Tier& tier) { return tier.stored_bytes; });
  of_each("kvist_tier_written_bytes_total", "Written to the drive, everything included.", kCounter,
          [](const Tier& tier) { return tier.drive_written_bytes; });
  of_each("kvist_tier_refused_blocks_total", "Blocks offered and not stored.", kCounter,
          [](const Tier& tier) { return tier.refused_blocks; });
  of_each("kvist_tier_evicted_blocks_total", "Blocks that gave way to others.", kCounter,
          [](const Tier& tier) { return tier.evicted_blocks; });
  of_each("kvist_tier_forgotten_blocks_total", "Blocks removed because they were to be forgotten.", kCounter,
          [](const Tier& tier) { return tier.forgotten_blocks; });
  of_each("kvist_tier_faults_total", "Wrong bytes and errors of the drive; each is a miss.", kCounter,
          [](const Tier& tier) { return tier.faults; });
  const engine::TierStats& moves = stats.tiers;
  const auto total = [&](const char* name, const char* help, uint64_t value) {
    add(name, help, kCounter, static_cast<double>(value));
  };
  total("kvist_tier_restores_total", "Beginnings of prompts asked for.", moves.fetches);
  add("kvist_tier_restore_seconds_total", "From asking to having them.", kCounter,
      static_cast<double>(moves.fetch_ns) * 1e-9);
  total("kvist_tier_restored_blocks_total", "Blocks that came back to be used.", moves.restored_blocks);
  total("kvist_tier_restores_given_up_total",
        "Texts that were read, and whose memory others needed before their requests began.", moves.holds_given_up);
  total("kvist_tier_computed_instead_total", "Stored beginnings that were sooner computed.", moves.computed_instead);
  total("kvist_tier_undecided_blocks_total", "Blocks that left memory before it was decided whether a tier keeps them.",
        stats.kv.totals.undecided_blocks);
  total("kvist_tier_judged_blocks_total", "Blocks that might have been stored.", moves.judged_blocks);
  total("kvist_tier_swapped_blocks_total", "Blocks written because a preempted request will be back for them.",
        moves.swapped_blocks);
  total("kvist_tier_admitted_blocks_total", "Blocks sent to be stored.", moves.admitted_blocks);
}

void ServeMetrics::CollectTenants(std::vector<Sample>& out) const {
  const std::vector<TenantTotals> list = metering_.Totals();
  const auto add = [&](const char* name, const char* help, telemetry::Labels labels, const auto& value_of) {
    for (const TenantTotals& tenant : list) {
      labels["tenant"] = tenant.tenant;
      out.push_back({name, help, Sample::Kind::kCounter, static_cast<double>(value_of(tenant)), labels});
    }
  };
  add("kvist_tenant_requests_total", "Answers ended.", {}, [](const auto& t) { return t.totals.requests; });
  add("kvist_tenant_cancelled_total", "Of these, cancelled.", {}, [](const auto& t) { return t.cancelled; });
  const char* tokens = "kvist_tenant_tokens_total";
  const char* tokens_help = "Tokens of ended requests.";
  add(tokens, tokens_help, {{"kind", "prompt"}}, [](const auto& t) { return t.totals.prompt_tokens; });
  add(tokens, tokens_help, {{"kind", "cached"}}, [](const auto& t) { return t.totals.cached_tokens; });
  add(tokens, tokens_help, {{"kind", "computed"}}, [](const auto& t) { return t.totals.computed_tokens; });
  add(tokens, tokens_help, {{"kind", "generated"}}, [](const auto& t) { return t.totals.generated_tokens; });
  add("kvist_tenant_step_seconds_total", "Part of steps' time of ended requests.", {},
      [](const auto& t) { return t.totals.step_share_s; });
  const char* held = "kvist_tenant_kv_byte_seconds_total";
  const char* held_help = "Keys and values over time: in memory, held by ended requests; in tiers below, stored.";
  add(held, held_help, {{"tier", "hot"}}, [](const auto& t) { return t.totals.kv_hot_byte_s; });
  if (!engine_.Stats().tier_figures.empty()) {
    add(held, held_help, {{"tier", std::string(kv::kColdMemoryTier)}},
        [](const auto& t) { return t.totals.kv_cold_byte_s; });
    add(held, held_help, {{"tier", std::string(kv::kDriveTier)}},
        [](const auto& t) { return t.totals.kv_drive_byte_s; });
  }
  for (const TenantPtr& tenant : tenants_.All()) {
    out.push_back({"kvist_tenant_requests_open",
                   "Requests under way.",
                   Sample::Kind::kGauge,
                   static_cast<double>(tenant->limits->concurrent()),
                   {{"tenant", tenant->config.name}}});
  }
  out.push_back({"kvist_usage_rows_written_total",
                 "Rows written to the usage database.",
                 Sample::Kind::kCounter,
                 static_cast<double>(metering_.rows_written()),
                 {}});
  out.push_back({"kvist_usage_rows_waiting",
                 "Rows not yet written to it.",
                 Sample::Kind::kGauge,
                 static_cast<double>(metering_.rows_waiting()),
                 {}});
}

void ServeMetrics::CollectFrames(std::vector<Sample>& out) const {
  const FrameFigures figures = frames_.Figures();
  const auto add = [&out](const char* name, const char* help, Sample::Kind kind, double value,
                          telemetry::Labels labels = {}) {
    out.push_back({name, help, kind, value, std::move(labels)});
  };
  add("kvist_frame_sessions", "Sessions of periodic frames that are in.", Sample::Kind::kGauge, figures.sessions);
  add("kvist_frame_load_ratio", "Of a period, what slow frames take of late.", Sample::Kind::kGauge, figures.load);
  const char* help = "Frames by whether their answer was complete before the next one was due.";
  const auto count = [](uint64_t value) { return static_cast<double>(value); };
  add("kvist_frames_total", help, Sample::Kind::kCounter, count(figures.on_time), {{"result", "on_time"}});
  add("kvist_frames_total", help, Sample::Kind::kCounter, count(figures.late), {{"result", "late"}});
  add("kvist_frame_sessions_refused_total", "Sessions of periodic frames that there was no room for.",
      Sample::Kind::kCounter, count(figures.refused));
}

}  // namespace kvist::serve

#include "server/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <utility>
#include <vector>

#include "engine/kv_plan.h"

namespace kipp {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

const prometheus::Histogram::BucketBoundaries kLatency = {
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
const prometheus::Histogram::BucketBoundaries kTokens = {1,    4,    16,    64,    256,
                                                         1024, 4096, 16384, 32768, 65536};

using LabelPairs = std::vector<std::pair<std::string, std::string>>;

ClientMetric one(MetricType type, double value, const LabelPairs& labels = {}) {
  ClientMetric metric;
  for (const auto& [name, label] : labels) metric.label.push_back({name, label});
  (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return metric;
}

class Families {
 public:
  void gauge(std::string name, std::string help, double value) {
    add(MetricType::Gauge, std::move(name), std::move(help), {one(MetricType::Gauge, value)});
  }
  void counter(std::string name, std::string help, double value) {
    add(MetricType::Counter, std::move(name), std::move(help), {one(MetricType::Counter, value)});
  }
  void add(MetricType type, std::string name, std::string help, std::vector<ClientMetric> metrics) {
    MetricFamily family;
    family.type = type;
    family.name = std::move(name);
    family.help = std::move(help);
    family.metric = std::move(metrics);
    families_.push_back(std::move(family));
  }
  std::vector<MetricFamily> take() { return std::move(families_); }

 private:
  std::vector<MetricFamily> families_;
};

double number(std::uint64_t n) { return static_cast<double>(n); }

void add_pool(const PoolStats& pool, Families& families) {
  const auto state = [](const char* name, int blocks) {
    return one(MetricType::Gauge, blocks, {{"state", name}});
  };
  families.gauge("kipp_kv_blocks_capacity", "Blocks of the KV cache.", pool.total);
  families.add(MetricType::Gauge, "kipp_kv_blocks",
               "Blocks of the KV cache by state; used: being written by one sequence; shared: "
               "published and in use; cached: published and in use by nobody.",
               {state("free", pool.free), state("used", pool.private_blocks),
                state("shared", pool.pinned), state("cached", pool.evictable)});
  families.gauge("kipp_kv_blocks_reserved",
                 "Blocks promised to running requests and not taken yet.", pool.reserved);
  const int in_use = pool.private_blocks + pool.pinned;
  families.gauge("kipp_kv_cache_usage_ratio", "Share of the blocks that running requests hold.",
                 pool.total > 0 ? static_cast<double>(in_use) / pool.total : 0);
  families.add(MetricType::Gauge, "kipp_cache_config_info", "Shape of the KV cache.",
               {one(MetricType::Gauge, 1,
                    {{"block_size", std::to_string(kBlockPositions)},
                     {"num_gpu_blocks", std::to_string(pool.total)}})});
  families.counter("kipp_prefix_cache_queries_total", "Prompt tokens looked for in the cache.",
                   number(pool.lookup_tokens));
  families.counter("kipp_prefix_cache_hits_total", "Prompt tokens found in the cache.",
                   number(pool.hit_tokens));
  families.counter("kipp_kv_evictions_total", "Cached blocks given up for new ones.",
                   number(pool.evictions));
}

// Of a cache of bit planes, where blocks are not all of one size.
void add_planes(const PoolStats& pool, Families& families) {
  if (pool.total_units == 0) return;
  const auto bytes = [](int units) { return static_cast<double>(units) * kKvUnitBytes; };
  const auto state = [&](const char* name, int units) {
    return one(MetricType::Gauge, bytes(units), {{"state", name}});
  };
  families.add(MetricType::Gauge, "kipp_kv_bytes",
               "Memory of bit planes by state; used: read or written by running requests; cached: "
               "needed by nobody now, planes of blocks in use among them.",
               {state("free", pool.free_units), state("used", pool.used_units),
                state("cached", pool.idle_units)});
  families.gauge("kipp_kv_promised_bytes",
                 "Memory of bit planes promised to running requests and not taken yet.",
                 bytes(pool.promised_units));
  std::vector<ClientMetric> holders;
  for (int i = 0; i < kMaxPlanes; ++i) {
    const int blocks = pool.plane_holders[static_cast<std::size_t>(i)];
    if (blocks == 0) continue;
    const PlaneName name = name_of_plane(i);
    holders.push_back(one(MetricType::Gauge, blocks,
                          {{"side", name.side}, {"plane", name.plane}, {"layers", name.layers}}));
  }
  families.add(MetricType::Gauge, "kipp_kv_plane_blocks",
               "Blocks that hold a bit plane: of keys or values, of most layers or of those that "
               "the policy sets apart.",
               std::move(holders));
  families.counter(
      "kipp_kv_demotions_total",
      "Bit planes given up, their blocks kept at fewer bits, because memory was needed.",
      number(pool.demotions));
  families.counter("kipp_kv_shortened_hits_total",
                   "Prefixes found of which the end lacked bit planes and was evaluated again.",
                   number(pool.shortened_hits));
}

// Of prefixes on disk.
void add_store(const SessionStoreStats& store, Families& families) {
  if (store.budget == 0) return;
  families.gauge("kipp_session_store_budget_bytes", "The most that stored blocks may take on disk.",
                 number(store.budget));
  families.gauge("kipp_session_store_bytes", "What they take.", number(store.bytes));
  families.gauge("kipp_session_store_blocks", "Stored blocks.", number(store.blocks));
  families.counter("kipp_session_store_saved_total", "Blocks written.", number(store.saved));
  families.counter("kipp_session_store_restored_total",
                   "Blocks of prompts that were read instead of evaluated.",
                   number(store.restored));
  families.counter("kipp_session_store_evicted_total",
                   "Stored blocks given up to stay within the budget.", number(store.evicted));
  families.counter("kipp_session_store_refused_total",
                   "Stored blocks that were damaged or not what their names say.",
                   number(store.refused));
  families.counter("kipp_session_store_failed_total", "Blocks that could not be written.",
                   number(store.failed));
}

void add_engine(const EngineStats& stats, Families& families) {
  families.gauge("kipp_requests_running", "Sequences being evaluated.", stats.running);
  families.gauge("kipp_requests_waiting", "Requests waiting for their turn.", stats.waiting);
  families.counter("kipp_prompt_tokens_total", "Prompt tokens evaluated.",
                   number(stats.prompt_tokens));
  families.counter("kipp_cached_tokens_total", "Prompt tokens found in the cache instead.",
                   number(stats.cached_tokens));
  families.counter("kipp_generated_tokens_total", "Tokens drawn.", number(stats.generated_tokens));
  families.counter("kipp_cancelled_requests_total", "Requests whose client did not wait.",
                   number(stats.finished_by[static_cast<std::size_t>(FinishReason::interrupted)]));
  families.counter("kipp_cancelled_tokens_total",
                   "Tokens evaluated or drawn for requests whose client did not wait.",
                   number(stats.cancelled_tokens));
  families.counter("kipp_steps_total", "Steps evaluated.", number(stats.steps));
  families.counter("kipp_step_tokens_total", "Tokens evaluated in all steps, proposals included.",
                   number(stats.step_tokens));
  families.gauge("kipp_largest_step_tokens", "The most tokens of one step.", stats.largest_step);
  families.gauge("kipp_longest_step_seconds", "The longest step.", seconds(stats.longest_step));
  families.counter("kipp_step_seconds_total", "Time of all steps.", seconds(stats.step_time));
  families.counter("kipp_eval_seconds_total", "Of that, time in the backend.",
                   seconds(stats.eval_time));
  const double step = seconds(stats.step_time);
  families.gauge("kipp_host_share_ratio", "Share of the time of all steps outside the backend.",
                 step > 0 ? 1 - seconds(stats.eval_time) / step : 0);
  families.counter("kipp_spec_decode_draft_tokens_total", "Proposed tokens that were verified.",
                   number(stats.speculation.drafted));
  families.counter("kipp_spec_decode_accepted_tokens_total", "Of these, as drawn.",
                   number(stats.speculation.accepted));
  add_pool(stats.pool, families);
  add_store(stats.store, families);
  add_planes(stats.pool, families);
}

// Ours, theirs. Same meaning, same unit, same type.
constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kVllmNames = {{
    {"kipp_requests_running", "vllm:num_requests_running"},
    {"kipp_requests_waiting", "vllm:num_requests_waiting"},
    {"kipp_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"},
    {"kipp_cache_config_info", "vllm:cache_config_info"},
    {"kipp_prefix_cache_queries_total", "vllm:prefix_cache_queries_total"},
    {"kipp_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"},
    {"kipp_prompt_tokens_total", "vllm:prompt_tokens_total"},
    {"kipp_generated_tokens_total", "vllm:generation_tokens_total"},
    {"kipp_requests_finished_total", "vllm:request_success_total"},
    {"kipp_spec_decode_draft_tokens_total", "vllm:spec_decode_num_draft_tokens_total"},
    {"kipp_spec_decode_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"},
    {"kipp_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    {"kipp_inter_token_seconds", "vllm:inter_token_latency_seconds"},
    {"kipp_queue_seconds", "vllm:request_queue_time_seconds"},
    {"kipp_request_seconds", "vllm:e2e_request_latency_seconds"},
    {"kipp_request_prompt_tokens", "vllm:request_prompt_tokens"},
    {"kipp_request_generated_tokens", "vllm:request_generation_tokens"},
}};

void add_vllm_names(const std::string& model, std::vector<MetricFamily>& families) {
  const std::size_t n = families.size();
  for (std::size_t i = 0; i < n; ++i) {
    for (const auto& [ours, theirs] : kVllmNames) {
      if (families[i].name != ours) continue;
      MetricFamily copy = families[i];
      copy.name = theirs;
      for (ClientMetric& metric : copy.metric) metric.label.push_back({"model_name", model});
      families.push_back(std::move(copy));
    }
  }
}

}  // namespace

Metrics::Metrics(MetricsLabels labels) : labels_(std::move(labels)) {
  const auto histogram = [&](const char* name, const char* help, const auto& buckets) {
    return &prometheus::BuildHistogram().Name(name).Help(help).Register(registry_).Add({}, buckets);
  };
  answers_ = &prometheus::BuildCounter()
                  .Name("kipp_http_requests_total")
                  .Help("HTTP requests by path and status; 499: the client had gone.")
                  .Register(registry_);
  finished_ = &prometheus::BuildCounter()
                   .Name("kipp_requests_finished_total")
                   .Help("Choices that ended, by reason.")
                   .Register(registry_);
  failures_ = &prometheus::BuildCounter()
                   .Name("kipp_requests_failed_total")
                   .Help("Choices that ended with an error.")
                   .Register(registry_)
                   .Add({});
  queue_ = histogram("kipp_queue_seconds", "From arrival to the first step.", kLatency);
  first_token_ = histogram("kipp_time_to_first_token_seconds",
                           "From the arrival of the request to its first token.", kLatency);
  inter_token_ = histogram("kipp_inter_token_seconds", "Between two tokens of a choice.", kLatency);
  end_to_end_ = histogram("kipp_request_seconds", "From arrival to the end.", kLatency);
  prompt_tokens_ = histogram("kipp_request_prompt_tokens", "Tokens of a prompt.", kTokens);
  generated_tokens_ = histogram("kipp_request_generated_tokens", "Tokens drawn.", kTokens);
}

void Metrics::answered(std::string_view path, int status) {
  answers_->Add({{"path", std::string(path)}, {"code", std::to_string(status)}}).Increment();
}

void Metrics::ended(const Finished& finished, double since_arrival) {
  finished_->Add({{"finished_reason", std::string(to_string(finished.reason))}}).Increment();
  if (finished.reason == FinishReason::interrupted) return;
  end_to_end_->Observe(since_arrival);
  prompt_tokens_->Observe(finished.usage.prompt_tokens);
  generated_tokens_->Observe(finished.usage.generated_tokens);
}

std::string Metrics::text(const ServerState& state) const {
  Families families;
  families.gauge("kipp_heartbeat_age_seconds", "Since the engine's thread last came by.",
                 state.heartbeat_age);
  families.gauge("kipp_http_connections", "Open connections.", state.http.connections);
  families.counter("kipp_http_refused_total", "Requests refused before they were understood.",
                   number(state.http.refused));
  families.counter("kipp_http_dropped_slow_total", "Clients dropped for not reading.",
                   number(state.http.dropped_slow));
  families.counter("kipp_http_vanished_total", "Clients gone in the middle of an answer.",
                   number(state.http.vanished));
  if (state.engine) add_engine(*state.engine, families);
  std::vector<MetricFamily> all = families.take();
  for (MetricFamily& family : registry_.Collect()) all.push_back(std::move(family));
  if (labels_.vllm_names) add_vllm_names(labels_.model, all);
  return prometheus::TextSerializer().Serialize(all);
}

}  // namespace kipp

// What the server counts, in the text form of Prometheus. Totals of the engine and the connections
// are read when somebody asks; what happens to requests is counted as it happens. The I/O thread's.
//
// With `vllm_names`, signals that routers, autoscalers and dashboards look for under vLLM's names
// are given under these as well, with its label model_name.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "server/http_server.h"

namespace kipp {

// The process as it is now, for one look at the metrics.
struct ServerState {
  std::optional<EngineStats> engine;  // absent while it loads
  double heartbeat_age = 0;           // seconds
  HttpStats http;
};

struct MetricsLabels {
  std::string model;  // the served id
  bool vllm_names = false;
};

class Metrics {
 public:
  explicit Metrics(MetricsLabels labels);

  void answered(std::string_view path, int status);

  // Of one choice of a generating request; seconds.
  void queued(double time) { queue_->Observe(time); }
  void first_token(double since_arrival) { first_token_->Observe(since_arrival); }
  void next_token(double since_last) { inter_token_->Observe(since_last); }
  void ended(const Finished& finished, double since_arrival);
  void failed() { failures_->Increment(); }

  // "text/plain; version=0.0.4".
  std::string text(const ServerState& state) const;

 private:
  const MetricsLabels labels_;
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>* answers_;
  prometheus::Family<prometheus::Counter>* finished_;
  prometheus::Counter* failures_;
  prometheus::Histogram* queue_;
  prometheus::Histogram* first_token_;
  prometheus::Histogram* inter_token_;
  prometheus::Histogram* end_to_end_;
  prometheus::Histogram* prompt_tokens_;
  prometheus::Histogram* generated_tokens_;
};

}  // namespace kipp

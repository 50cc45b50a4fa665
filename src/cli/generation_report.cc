#include "cli/generation_report.h"

#include <fmt/format.h>

namespace kipp {

using Json = nlohmann::ordered_json;

std::string summary(const Generation& g) {
  const std::string reused =
      g.reused_tokens > 0 ? fmt::format(" ({} reused)", g.reused_tokens) : std::string();
  return fmt::format(
      "prompt {} tokens{}, {:.1f} tok/s; decode {} tokens, {:.1f} tok/s{}; finish: {}",
      g.prompt_tokens, reused, g.prompt_rate(), g.tokens.size(), g.decode_rate(),
      speculated(g.speculation), to_string(g.finish));
}

std::string speculated(const SpeculationStats& stats) {
  std::string text;
  if (stats.steps > 0) {
    text = fmt::format("; {} of {} proposed tokens accepted in {} steps", stats.accepted,
                       stats.drafted, stats.steps);
  }
  if (stats.failures > 0) text += "; the draft model failed";
  return text;
}

std::string hash_text(const Generation& g) {
  return g.logits_hash ? fmt::format("{:016x}", *g.logits_hash) : "none";
}

Json to_json(const Generation& g, std::uint64_t seed) {
  const auto completion = static_cast<int>(g.tokens.size());
  Json json{{"text", g.text},
            {"tokens", g.tokens},
            {"finish_reason", to_string(g.finish)},
            {"stop", g.matched_stop.empty() ? Json() : Json(g.matched_stop)},
            {"seed", seed}};
  json["usage"] = {{"prompt_tokens", g.prompt_tokens},
                   {"cached_tokens", g.reused_tokens},
                   {"completion_tokens", completion},
                   {"total_tokens", g.prompt_tokens + completion}};
  // In llama.cpp's shape. Speeds count what was evaluated: the first token comes with the prompt.
  json["timings"] = {
      {"prompt_n", g.evaluated_tokens},         {"prompt_ms", g.prompt_seconds * 1e3},
      {"prompt_per_second", g.prompt_rate()},   {"predicted_n", completion},
      {"predicted_ms", g.decode_seconds * 1e3}, {"predicted_per_second", g.decode_rate()}};
  if (g.speculation.steps > 0) {
    json["timings"].update({{"draft_n", g.speculation.drafted},
                            {"draft_n_accepted", g.speculation.accepted},
                            {"draft_steps", g.speculation.steps}});
  }
  json["logits_hash"] = g.logits_hash ? Json(hash_text(g)) : Json();
  return json;
}

}  // namespace kipp

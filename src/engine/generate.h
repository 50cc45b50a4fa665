// One generation, whole: the prompt goes into the session, tokens are drawn until something ends
// it, text streams out. The same loop serves `kipp run`, `kipp chat` and tests; the scheduler for
// many requests is another matter (engine/engine.h) and gives the same tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "engine/sampler.h"
#include "engine/session.h"
#include "engine/speculation.h"
#include "engine/text_stream.h"

namespace kipp {

struct GenerateParams {
  SamplingParams sampling;
  int max_tokens = 0;             // >= 0; 0 evaluates the prompt and draws nothing
  std::vector<std::string> stop;  // as StopMatcher takes them
  bool ignore_eos = false;        // stop tokens neither end the generation nor show in the text
  int min_tokens = 0;             // as Request has it
  Speculation speculation = {};   // off; changes how fast tokens come and nothing else
};

// What one drawn token added to the text: nothing while a character or a possible stop string is
// incomplete.
struct TextEvent {
  std::optional<Token> token;  // none in the last event, which carries what was still waiting
  std::string_view text;       // UTF-8; whole characters
};

struct GenerateHooks {
  std::function<void(const TextEvent&)> on_text;
  Session::Progress on_prompt;  // tokens of the prompt evaluated so far, of how many
  const std::atomic<bool>* cancel = nullptr;
};

struct Generation {
  std::string text;           // all events' texts joined
  std::vector<Token> tokens;  // all that were drawn, a stop token included
  FinishReason finish = FinishReason::length;
  std::string matched_stop;  // the stop string that ended it, if one did
  int prompt_tokens = 0;
  int reused_tokens = 0;     // of the prompt: they were in the session or found in the cache
  int evaluated_tokens = 0;  // of the prompt: fewer than the rest when interrupted
  int decode_steps = 0;      // drawn tokens that were evaluated in their turn
  double prompt_seconds = 0;
  double decode_seconds = 0;
  SpeculationStats speculation;
  // XXH3-64 of the last logits' bytes, so that nondeterminism shows where texts agree. Absent when
  // the prompt was interrupted.
  std::optional<std::uint64_t> logits_hash;

  double prompt_rate() const {
    return rate(evaluated_tokens, prompt_seconds);
  }  // tokens per second
  double decode_rate() const { return rate(decode_steps, decode_seconds); }

 private:
  static double rate(int n, double seconds) { return seconds > 0 ? n / seconds : 0; }
};

// Fails on values out of range and on a prompt that does not fit the session, which then is as it
// was. Interruption is not a failure. Afterwards the session holds the prompt and the first
// decode_steps drawn tokens.
Result<Generation> generate(const Model& model, Session& session, std::span<const Token> prompt,
                            const GenerateParams& params, const GenerateHooks& hooks);

}  // namespace kipp

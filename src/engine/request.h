// What a caller asks of the engine and what comes back: events, the last of which is terminal.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/types.h"
#include "engine/logprobs.h"
#include "engine/sampler.h"
#include "engine/speculation.h"
#include "engine/text_stream.h"
#include "kv/prefix_index.h"

namespace kipp {

using RequestId = std::uint64_t;  // never used twice by one engine

struct Request {
  std::vector<Token> prompt;  // at least one token
  SamplingParams sampling;
  int max_tokens = 0;             // >= 0; 0 evaluates the prompt and draws nothing
  std::vector<std::string> stop;  // as StopMatcher takes them
  bool ignore_eos = false;        // stop tokens neither end the generation nor show in the text
  // Log-probabilities of each drawn token and of so many best ones, up to kMaxTopLogprobs; -1:
  // none.
  int top_logprobs = -1;
  // The same for the tokens of the prompt, from the second on: all of it is evaluated then,
  // whatever the cache holds.
  int prompt_logprobs = -1;
  // 0 to max_tokens. The first so many tokens are never stop tokens, unless ignore_eos makes these
  // ordinary ones, and no stop string is looked for in their text.
  int min_tokens = 0;
  CacheSalt salt = 0;
};

// Tokens of the prompt whose keys and values are there: once when the request leaves the queue,
// then after every chunk.
struct PromptProgress {
  int done = 0;
  int total = 0;
  int cached = 0;  // of `done`: found in the cache
};

// Of prompt tokens `first` and on, as many as there are entries: what the rows before them gave.
// In order, and whole before the first TextDelta or Finished, unless interrupted before.
struct PromptLogprobs {
  int first = 1;
  std::vector<Logprobs> tokens;
};

// What one drawn token added to the text: nothing while a character or a possible stop string is
// incomplete. A stop token that ends the generation has no event of its own.
struct TextDelta {
  std::optional<Token> token;  // none in the last one, which carries what was still waiting
  std::string text;            // UTF-8; whole characters
  std::optional<Logprobs> logprobs;
};

struct Usage {
  int prompt_tokens = 0;
  int cached_tokens = 0;     // of the prompt: found in the cache
  int generated_tokens = 0;  // all that were drawn, a stop token included
};

struct Timings {      // seconds
  double queue = 0;   // from submit to the step that begins with the prompt
  double prompt = 0;  // until the whole prompt was evaluated
  double decode = 0;  // from there to the end
};

struct Finished {
  FinishReason reason = FinishReason::length;
  std::string matched_stop;  // the stop string that ended it, if one did
  Usage usage;
  Timings timings;
  SpeculationStats speculation;
  // XXH3-64 of the last logits' bytes, as generate() gives it. Absent when interrupted: the row is
  // gone by then.
  std::optional<std::uint64_t> logits_hash;
  // Of the stop token that ended it, where log-probabilities are asked for.
  std::optional<Logprobs> stop_token = {};
};

struct Failed {
  Error error;
};

// Finished and Failed are terminal: exactly one of them comes, and nothing after it.
using Event = std::variant<PromptProgress, PromptLogprobs, TextDelta, Finished, Failed>;

// Called on the engine's thread, for one request in order; must return soon, and neither throw nor
// stop the engine. May submit and cancel. A request's first events can come before submit()
// returns.
using EventSink = std::function<void(RequestId, Event)>;

}  // namespace kipp

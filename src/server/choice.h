// One choice of an answer: the engine's events about it, in their order, into what they add to the
// answer. A stream sends each of these pieces, a whole answer joins them; there is no third way.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "server/generate_call.h"
#include "server/logprobs_json.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/output_parser.h"

namespace kipp {

struct ChoiceDelta {
  ParsedDelta text;  // completions: `content` alone, with the prompt before it where it is echoed
  LogprobsJson logprobs;  // none unless the call asks for them

  bool empty() const { return text.empty() && logprobs.empty(); }
  void append(ChoiceDelta&& later);
};

class Choice {
 public:
  // `call` and the tokenizer outlive it. `index` as the API counts: prompt * n + i.
  Choice(const GenerateCall& call, const Tokenizer& tokenizer, int index);

  // Any event but Failed.
  ChoiceDelta on_event(const Event& event);

  int index() const { return index_; }
  // The one of its prompt's choices that what counts once per prompt is taken from.
  bool first_of_prompt() const { return index_ % call_->n == 0; }
  const PromptProgress& prompt_progress() const { return progress_; }
  // So far; once finished, the engine's own.
  const Usage& usage() const { return finished_ ? finished_->usage : usage_; }
  // Drawn while the answer was inside a think block, the token that closes it included.
  int reasoning_tokens() const { return reasoning_tokens_; }

  const std::optional<Finished>& finished() const { return finished_; }
  // The rest once finished. "tool_calls" only where the model ended the answer by itself and every
  // call that was announced is whole; "abort" where the server ended it.
  std::string_view finish_reason() const;
  // The answer is reasoning to its end.
  bool cut_in_reasoning() const { return call_->chat && parser_.in_reasoning(); }

 private:
  void on_prompt_logprobs(const PromptLogprobs& event, ChoiceDelta& out);
  void on_text(const TextDelta& event, ChoiceDelta& out);
  void on_finished(const Finished& event, ChoiceDelta& out);
  void echo(std::size_t end, const PromptLogprobs* known, ChoiceDelta& out);
  void add_logprobs(const Logprobs& logprobs, ChoiceDelta& out);
  std::size_t offset_of(Token token, std::string_view text);

  const GenerateCall* call_;
  const Tokenizer* tokenizer_;
  const std::vector<Token>* prompt_;
  int index_;
  OutputParser parser_;  // chat
  PromptProgress progress_;
  Usage usage_;
  int reasoning_tokens_ = 0;
  std::optional<Finished> finished_;

  // Completions: prompt tokens that were echoed (all of them where none is to be), and where the
  // next token's text begins, in characters. The detokenizer counts them, because what a stop
  // string holds back or swallows has its place in the text all the same.
  std::size_t echoed_ = 0;
  Detokenizer offset_text_;
  std::size_t offset_ = 0;
};

}  // namespace kipp

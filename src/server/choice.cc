#include "server/choice.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace kipp {
namespace {

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

std::size_t count_characters(std::string_view utf8) {
  return static_cast<std::size_t>(std::ranges::count_if(utf8, begins_character));
}

}  // namespace

void ChoiceDelta::append(ChoiceDelta&& later) {
  text.append(std::move(later.text));
  logprobs.append(later.logprobs);
}

Choice::Choice(const GenerateCall& call, const Tokenizer& tokenizer, int index)
    : call_(&call),
      tokenizer_(&tokenizer),
      prompt_(&call.prompts[static_cast<std::size_t>(index / call.n)]),
      index_(index),
      parser_({.starts_in_thinking = call.starts_in_thinking,
               .splits_reasoning = call.splits_reasoning,
               .parses_tools = call.parses_tools}),
      echoed_(call.echo ? 0 : prompt_->size()),
      // An echoed prompt shows its special tokens, an answer does not.
      offset_text_(tokenizer, /*skip_special=*/!call.echo) {
  usage_.prompt_tokens = static_cast<int>(prompt_->size());
}

ChoiceDelta Choice::on_event(const Event& event) {
  ChoiceDelta out;
  if (const auto* progress = std::get_if<PromptProgress>(&event)) {
    progress_ = *progress;
    usage_.cached_tokens = progress->cached;
  } else if (const auto* prompt = std::get_if<PromptLogprobs>(&event)) {
    on_prompt_logprobs(*prompt, out);
  } else if (const auto* text = std::get_if<TextDelta>(&event)) {
    on_text(*text, out);
  } else if (const auto* finished = std::get_if<Finished>(&event)) {
    on_finished(*finished, out);
  }
  return out;
}

void Choice::on_prompt_logprobs(const PromptLogprobs& event, ChoiceDelta& out) {
  if (!call_->echo || !call_->logprobs) return;
  echo(static_cast<std::size_t>(event.first) + event.tokens.size(), &event, out);
}

void Choice::on_text(const TextDelta& event, ChoiceDelta& out) {
  if (event.token) ++usage_.generated_tokens;
  if (call_->chat) {
    if (event.token && parser_.in_reasoning()) ++reasoning_tokens_;
    out.text = parser_.push(event.text);
  } else {
    echo(prompt_->size(), nullptr, out);
    out.text.content += event.text;
  }
  if (event.logprobs) add_logprobs(*event.logprobs, out);
}

void Choice::on_finished(const Finished& event, ChoiceDelta& out) {
  if (call_->chat) {
    out.text = parser_.finish();
  } else {
    echo(prompt_->size(), nullptr, out);
    // Harnesses that score text ask for one token they throw away, and count on its entry.
    if (event.stop_token) add_logprobs(*event.stop_token, out);
  }
  finished_ = event;
}

// Prompt tokens up to `end`, with what is known about those behind the first.
void Choice::echo(std::size_t end, const PromptLogprobs* known, ChoiceDelta& out) {
  if (echoed_ == prompt_->size()) return;
  for (; echoed_ < std::min(end, prompt_->size()); ++echoed_) {
    const Token token = (*prompt_)[echoed_];
    const std::string text = offset_text_.push(token);
    out.text.content += text;
    const std::size_t offset = offset_of(token, text);
    if (!call_->logprobs) continue;
    const auto first = known == nullptr ? end : static_cast<std::size_t>(known->first);
    if (echoed_ < first) {
      out.logprobs.add_unknown(*tokenizer_, token, offset);
    } else {
      out.logprobs.add_text(*tokenizer_, known->tokens[echoed_ - first], offset);
    }
  }
  if (echoed_ < prompt_->size()) return;
  const std::string rest = offset_text_.finish();
  offset_ += count_characters(rest);
  out.text.content += rest;
  offset_text_ = Detokenizer(*tokenizer_, /*skip_special=*/true);
}

void Choice::add_logprobs(const Logprobs& logprobs, ChoiceDelta& out) {
  if (!call_->logprobs) return;
  if (call_->chat) {
    out.logprobs.add_chat(*tokenizer_, logprobs);
    return;
  }
  const Token token = logprobs.chosen.token;
  out.logprobs.add_text(*tokenizer_, logprobs, offset_of(token, offset_text_.push(token)));
}

// Where the next token begins, which made `text` certain.
std::size_t Choice::offset_of(Token token, std::string_view text) {
  const std::size_t before = std::exchange(offset_, offset_ + count_characters(text));
  // Behind half a character that was given up, `text` begins before the token does.
  const std::string_view bytes = tokenizer_->token_bytes(token);
  const bool whole = !bytes.empty() && begins_character(bytes[0]) && text.ends_with(bytes);
  return whole ? offset_ - count_characters(bytes) : before;
}

std::string_view Choice::finish_reason() const {
  switch (finished_->reason) {
    case FinishReason::length:
      return "length";
    case FinishReason::interrupted:
      return "abort";
    case FinishReason::stop:
      break;
  }
  const int calls = parser_.announced_calls();
  return calls > 0 && calls == parser_.complete_calls() ? "tool_calls" : "stop";
}

}  // namespace kipp

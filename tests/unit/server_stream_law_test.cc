// One law over everything an answer may hold: the stream, joined as a client joins it, is the whole
// answer. Generations go through the engine's own TextStream; their tokens, the borders between
// them and the order in which choices take turns are random.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "server/json_text.h"
#include "server/openai_response.h"
#include "support/answer_client.h"
#include "support/property.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/unicode.h"

namespace kipp {
namespace {

using test::AnyJson;

const Tokenizer& tokenizer() {
  static const Tokenizer instance;
  return instance;
}

// Where shrinking would say nothing: a generator of its own is many times faster.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  int below(int n) { return static_cast<int>(draw_bits(seed_, ++n_) % static_cast<unsigned>(n)); }
  bool one_in(int n) { return below(n) == 0; }
  float logprob() {
    if (one_in(9)) return -std::numeric_limits<float>::infinity();
    if (one_in(9)) return 0;
    return static_cast<float>(-20 * draw_uniform(seed_, ++n_));
  }
  Logprobs logprobs(Token chosen, int n_best) {
    Logprobs out{.chosen = {chosen, logprob()}, .best = {}};
    for (int i = 0; i < n_best; ++i) {
      // Distinct, and bytes that are no UTF-8 among them.
      const Token token = i == 0 && one_in(2) ? chosen : chosen % 20'000 + 7 * i + 1;
      out.best.push_back({token, logprob()});
    }
    return out;
  }

 private:
  const std::uint64_t seed_;
  std::uint64_t n_ = 0;
};

// Words of which some tokens hold a tag whole and some a part of it.
std::vector<Token> tokens_of(const std::vector<std::string>& words, Dice& dice) {
  std::vector<Token> out;
  for (const std::string& word : words) {
    if (dice.one_in(4)) {
      for (const char c : word) {
        out.push_back(qwen_vocabulary().byte_token[static_cast<unsigned char>(c)]);
      }
    } else {
      const auto added = dice.one_in(3) ? AddedTokens::as_text : AddedTokens::as_control;
      tokenizer().encode(word, added, out);
    }
  }
  return out;
}

rc::Gen<std::vector<std::string>> words() {
  const auto word = rc::gen::element<std::string>(
      "<think>", "</think>", "<think>\nwhy\n</think>\n\n", "\n", "\n\n", " ", "Hello", "beta gamma",
      "🌊", "👨‍👩‍👧", "\xE2\x80\xA8", "\xC2\x85", "\x01\"\\", "\xF0\x9F", "<", "}",
      "<|im_end|>", "<tool_call>", "</tool_call>",
      "\n{\"name\": \"get\", \"arguments\": {\"a\": \"}\"",
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1]}}\n</tool_call>",
      "<tool_call>\n{\"arguments\": \"{}\", \"name\": \"g\"}\n</tool_call>");
  return rc::gen::resize(20, rc::gen::container<std::vector<std::string>>(word));
}

GenerateCall random_call() {
  GenerateCall call;
  const auto flag = [] { return *rc::gen::arbitrary<bool>(); };
  call.chat = flag();
  call.n = *test::among(1, 4);
  call.include_usage = flag();
  call.continuous_usage = flag();
  call.return_progress = flag();
  if (flag()) call.logprobs = *test::among(0, 4);
  call.request.sampling.seed = *rc::gen::arbitrary<std::uint64_t>();
  call.request.stop = *rc::gen::elementOf(
      std::vector<std::vector<std::string>>{{}, {"beta"}, {"\n\n", "</"}, {"🌊", "a\": "}, {"}}"}});
  if (call.chat) {
    call.starts_in_thinking = flag();
    call.splits_reasoning = flag();
    call.parses_tools = flag();
    call.prompts = {{1, 2, 3}};
  } else {
    call.echo = flag();
    for (int i = *test::among(1, 3); i > 0; --i) {
      Dice dice(static_cast<std::uint64_t>(i));
      call.prompts.push_back(tokens_of(*rc::gen::nonEmpty(words()), dice));
    }
  }
  call.request.top_logprobs = call.logprobs.value_or(-1);
  call.request.prompt_logprobs = call.echo ? call.request.top_logprobs : -1;
  return call;
}

struct Script {
  std::vector<Event> events;
  std::string text;         // that the engine gave
  std::size_t entries = 0;  // tokens that log-probabilities are shown of
};

Script play(const GenerateCall& call, const std::vector<Token>& prompt,
            const std::vector<Token>& tokens, Dice& dice) {
  Script out;
  const int n_prompt = static_cast<int>(prompt.size());
  Usage usage{
      .prompt_tokens = n_prompt, .cached_tokens = dice.below(n_prompt), .generated_tokens = 0};
  for (const int done : {usage.cached_tokens, n_prompt}) {
    out.events.push_back(
        PromptProgress{.done = done, .total = n_prompt, .cached = usage.cached_tokens});
  }
  if (call.request.prompt_logprobs >= 0) {
    for (int at = 1; at < n_prompt;) {
      PromptLogprobs part{.first = at, .tokens = {}};
      for (int n = 1 + dice.below(5); n > 0 && at < n_prompt; --n, ++at) {
        part.tokens.push_back(
            dice.logprobs(prompt[static_cast<std::size_t>(at)], call.request.prompt_logprobs));
      }
      out.events.push_back(std::move(part));
    }
    out.entries += prompt.size();
  }
  TextStream stream(tokenizer(), *StopMatcher::create(call.request.stop));
  for (const Token token : tokens) {
    TextDelta delta{.token = token, .text = stream.push(token), .logprobs = {}};
    if (call.logprobs) delta.logprobs = dice.logprobs(token, *call.logprobs);
    out.text += delta.text;
    out.events.push_back(std::move(delta));
    ++out.entries;
    ++usage.generated_tokens;
    if (stream.stopped()) break;
  }
  if (std::string rest = stream.finish(); !rest.empty()) {
    out.text += rest;
    out.events.push_back(TextDelta{.token = {}, .text = std::move(rest), .logprobs = {}});
  }
  Finished finished;
  finished.reason = stream.stopped() || dice.one_in(2) ? FinishReason::stop : FinishReason::length;
  finished.matched_stop = stream.matched_stop();
  if (finished.reason == FinishReason::stop && !stream.stopped()) {
    ++usage.generated_tokens;
    if (call.logprobs) {
      finished.stop_token = dice.logprobs(kImEnd, *call.logprobs);
      if (!call.chat) ++out.entries;
    }
  }
  finished.usage = usage;
  finished.timings = {.queue = 1, .prompt = 0.001 * dice.below(99), .decode = 0.01 * dice.below(9)};
  out.events.push_back(std::move(finished));
  return out;
}

// The whole answer without what a client cannot see in a stream, or did not ask for.
AnyJson comparable(const AnyJson& whole, const GenerateCall& call) {
  AnyJson out = whole;
  if (!call.include_usage && !call.continuous_usage) out.erase("usage");
  for (AnyJson& choice : out["choices"]) {
    if (call.chat && choice["message"]["content"].is_null()) choice["message"]["content"] = "";
    AnyJson& logprobs = choice["logprobs"];
    if (!logprobs.is_null() && logprobs.begin()->empty()) logprobs = nullptr;
  }
  return out;
}

std::size_t byte_of_character(std::string_view text, std::size_t n) {
  std::size_t at = 0;
  for (; n > 0 && at < text.size(); --n) at += decode_utf8(text, at).size;
  return at;
}

// Every token that is text by itself stands where its offset says, as far as the text goes.
void check_offsets(const AnyJson& logprobs, const std::string& text) {
  for (std::size_t i = 0; i < logprobs["tokens"].size(); ++i) {
    const std::string token = logprobs["tokens"][i];
    if (token.starts_with("bytes:") || token == "<|im_end|>") continue;
    const std::string rest = text.substr(byte_of_character(text, logprobs["text_offset"][i]));
    RC_ASSERT(rest.starts_with(token) || token.starts_with(rest));
  }
}

TEST(StreamLaw, TheJoinedStreamIsTheWholeAnswer) {
  test::property(600, [] {
    GenerateCall call = random_call();
    Dice dice(*rc::gen::arbitrary<std::uint64_t>());
    std::vector<Script> scripts;
    for (const std::vector<Token>& prompt : call.prompts) {
      for (int i = 0; i < call.n; ++i) {
        scripts.push_back(play(call, prompt, tokens_of(*words(), dice), dice));
      }
    }

    const AnswerHead head{.id = "chatcmpl-1f", .created = 1'700'000'000, .model = "m"};
    GenerateCall streamed = call;
    streamed.stream = true;
    Answer whole_answer(call, tokenizer(), head);
    Answer stream_answer(streamed, tokenizer(), head);
    std::string stream;
    std::vector<std::size_t> next(scripts.size(), 0);
    while (!whole_answer.complete()) {
      const auto choice = static_cast<std::size_t>(dice.below(static_cast<int>(scripts.size())));
      if (next[choice] == scripts[choice].events.size()) continue;
      const Event& event = scripts[choice].events[next[choice]++];
      RC_ASSERT(whole_answer.on_event(static_cast<int>(choice), event).empty());
      stream += stream_answer.on_event(static_cast<int>(choice), event);
    }
    RC_ASSERT(stream_answer.complete());
    stream += stream_answer.stream_end();

    const AnyJson whole = AnyJson::parse(json_text(whole_answer.whole()));
    AnyJson expected = comparable(whole, call);
    AnyJson joined = test::join_stream(stream);
    if (scripts.size() > 1) {  // a stream has them of each choice
      expected.erase("timings");
      joined.erase("timings");
    }
    if (joined != expected) RC_FAIL(joined.dump(1) + "\nis not\n" + expected.dump(1));

    for (std::size_t i = 0; i < scripts.size(); ++i) {
      const AnyJson& choice = whole["choices"][i];
      const std::vector<Token>& prompt = call.prompts[i / static_cast<std::size_t>(call.n)];
      if (!call.chat) {
        const std::string echoed =
            call.echo ? to_valid_utf8(tokenizer().decode(prompt, false)) : std::string();
        RC_ASSERT(choice["text"] == echoed + scripts[i].text);
        if (call.logprobs) check_offsets(choice["logprobs"], choice["text"]);
      }
      RC_ASSERT(choice["logprobs"].is_null() != call.logprobs.has_value());
      if (call.logprobs) {
        for (const AnyJson& list : choice["logprobs"]) RC_ASSERT(list.size() == scripts[i].entries);
      }
    }
  });
}

}  // namespace
}  // namespace kipp

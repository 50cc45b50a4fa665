#include "server/logprobs_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "server/json_text.h"
#include "tokenizer/detokenizer.h"

namespace kipp {
namespace {

constexpr std::array<std::string_view, 4> kLists = {"tokens", "token_logprobs", "top_logprobs",
                                                    "text_offset"};

std::string& next_entry(std::string& list) {
  if (!list.empty()) list += ',';
  return list;
}

// The shortest digits that read back as the same float.
void append_logprob(float logprob, std::string& out) {
  if (!std::isfinite(logprob)) {
    out += "-9999.0";
  } else if (logprob == std::trunc(logprob) && std::abs(logprob) < 1e6f) {
    fmt::format_to(std::back_inserter(out), "{:.1f}", logprob == 0 ? 0.f : logprob);
  } else {
    fmt::format_to(std::back_inserter(out), "{}", logprob);
  }
}

// "token", "logprob" and "bytes" of one token, without the brace behind them.
void append_token(const Tokenizer& tokenizer, const TokenLogprob& entry, std::string& out) {
  const std::string_view bytes = tokenizer.token_bytes(entry.token);
  out += "{\"token\":";
  append_json_string(to_valid_utf8(bytes), out);
  out += ",\"logprob\":";
  append_logprob(entry.logprob, out);
  out += ",\"bytes\":[";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i > 0) out += ',';
    fmt::format_to(std::back_inserter(out), "{}", static_cast<unsigned char>(bytes[i]));
  }
  out += ']';
}

void append_spelling(const Tokenizer& tokenizer, Token token, std::string& out) {
  const std::string_view bytes = tokenizer.token_bytes(token);
  if (to_valid_utf8(bytes) == bytes) return append_json_string(bytes, out);
  std::string spelling = "bytes:";
  for (const char c : bytes) {
    fmt::format_to(std::back_inserter(spelling), "\\x{:02x}", static_cast<unsigned char>(c));
  }
  append_json_string(spelling, out);
}

}  // namespace

void LogprobsJson::add_chat(const Tokenizer& tokenizer, const Logprobs& logprobs) {
  std::string& out = next_entry(columns_[0]);
  append_token(tokenizer, logprobs.chosen, out);
  out += ",\"top_logprobs\":[";
  for (std::size_t i = 0; i < logprobs.best.size(); ++i) {
    if (i > 0) out += ',';
    append_token(tokenizer, logprobs.best[i], out);
    out += '}';
  }
  out += "]}";
}

void LogprobsJson::add_text(const Tokenizer& tokenizer, const Logprobs& logprobs,
                            std::size_t text_offset) {
  append_spelling(tokenizer, logprobs.chosen.token, next_entry(columns_[0]));
  append_logprob(logprobs.chosen.logprob, next_entry(columns_[1]));

  std::string& best = next_entry(columns_[2]);
  best += '{';
  const auto add = [&](const TokenLogprob& entry) {
    if (best.back() != '{') best += ',';
    append_spelling(tokenizer, entry.token, best);
    best += ':';
    append_logprob(entry.logprob, best);
  };
  for (const TokenLogprob& entry : logprobs.best) add(entry);
  const bool among_best = std::ranges::any_of(logprobs.best, [&](const TokenLogprob& entry) {
    return entry.token == logprobs.chosen.token;
  });
  if (!among_best) add(logprobs.chosen);
  best += '}';

  fmt::format_to(std::back_inserter(next_entry(columns_[3])), "{}", text_offset);
}

void LogprobsJson::add_unknown(const Tokenizer& tokenizer, Token token, std::size_t text_offset) {
  append_spelling(tokenizer, token, next_entry(columns_[0]));
  next_entry(columns_[1]) += "null";
  next_entry(columns_[2]) += "null";
  fmt::format_to(std::back_inserter(next_entry(columns_[3])), "{}", text_offset);
}

void LogprobsJson::append(const LogprobsJson& later) {
  if (later.empty()) return;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (!later.columns_[i].empty()) next_entry(columns_[i]) += later.columns_[i];
  }
}

void LogprobsJson::write_chat(std::string& out) const {
  out += "{\"content\":[";
  out += columns_[0];
  out += "]}";
}

void LogprobsJson::write_text(std::string& out) const {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    out += i == 0 ? '{' : ',';
    fmt::format_to(std::back_inserter(out), "\"{}\":[{}]", kLists[i], columns_[i]);
  }
  out += '}';
}

}  // namespace kipp

#include "server/request_fields.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/stop.h"
#include "model/config.h"
#include "tokenizer/json_reader.h"

namespace kipp {
namespace {

constexpr int kMaxInt = std::numeric_limits<int>::max();

std::optional<std::uint64_t> read_seed(Fields& fields) {
  const Json* found = fields.value("seed");
  if (found == nullptr) return {};
  if (found->is_number_unsigned()) return found->get<std::uint64_t>();
  if (const auto number = integer_value(*found);
      number && (!found->is_number_float() || std::fabs(found->get<double>()) < 0x1p63)) {
    return static_cast<std::uint64_t>(*number);
  }
  fields.report("seed", fmt::format("expected an integer of 64 bits, found {}", described(*found)));
  return {};
}

// Keys are ids as their decimal text, without sign or leading zeros, so that no two name one token.
std::optional<Token> token_of_key(std::string_view key) {
  Token id = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  const bool whole = error == std::errc() && end == key.data() + key.size();
  const bool canonical = !key.empty() && key[0] != '-' && (key[0] != '0' || key.size() == 1);
  if (!whole || !canonical || id >= kNamedTokens) return {};
  return id;
}

void read_logit_bias(Fields& fields, SamplingParams& sampling, Problem& problem) {
  const Json* found = fields.value("logit_bias");
  if (found == nullptr) return;
  if (!found->is_object() || found->size() > kMaxLogitBiases) {
    return fields.report(
        "logit_bias",
        fmt::format("expected an object of at most {} token ids, found {}", kMaxLogitBiases,
                    found->is_object() ? fmt::format("{}", found->size()) : described(*found)));
  }
  Fields biases(*found, fields.path_of("logit_bias"), problem);
  for (const auto& [key, value] : found->items()) {
    const auto token = token_of_key(key);
    if (!token) {
      return fields.report("logit_bias", fmt::format("expected token ids from 0 to {}, found {}",
                                                     kNamedTokens - 1, in_quotes(key)));
    }
    if (const auto bias = biases.number(key)) sampling.logit_bias.emplace_back(*token, *bias);
  }
}

void read_sampling(Fields& fields, const ServedModel& model, std::uint64_t fresh_seed,
                   SamplingParams& sampling, Problem& problem) {
  const SamplingDefaults& defaults = model.checkpoint->sampling;
  sampling.temperature =
      fields.number("temperature").value_or(defaults.sample ? defaults.temperature : 0.0f) +
      0.0f;  // -0.0 is 0
  sampling.top_p = fields.number("top_p").value_or(defaults.top_p);
  // Clients turn it off with -1 as well.
  sampling.top_k = std::max(0, fields.integer("top_k", -1, kMaxInt).value_or(defaults.top_k));
  sampling.min_p = fields.number("min_p").value_or(sampling.min_p);
  sampling.presence_penalty = fields.number("presence_penalty").value_or(sampling.presence_penalty);
  sampling.frequency_penalty =
      fields.number("frequency_penalty").value_or(sampling.frequency_penalty);
  sampling.repetition_penalty =
      fields.number("repetition_penalty").value_or(sampling.repetition_penalty);
  read_logit_bias(fields, sampling, problem);
  sampling.seed = read_seed(fields).value_or(fresh_seed);
  if (const auto valid = validate(sampling); !valid) problem.report(valid.error());
}

// What to say of a text of more than so many characters.
std::optional<std::string> too_long(std::string_view text, std::size_t max_characters) {
  const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  const auto found = static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts));
  if (found <= max_characters) return {};
  return fmt::format("expected at most {} characters, found {}", max_characters, found);
}

std::vector<std::string> read_stops(Fields& fields, Problem& problem) {
  const Json* found = fields.value("stop");
  if (found == nullptr) return {};
  std::vector<std::string> stops;
  const auto add = [&](const Json& stop, std::string_view name) {
    if (!stop.is_string()) {
      return problem.report(
          name, fmt::format("expected a string{}, found {}",
                            name == "stop" ? " or a list of strings" : "", described(stop)));
    }
    const auto& text = stop.get_ref<const std::string&>();
    if (text.empty()) return problem.report(name, "expected text, found an empty string");
    if (const auto problem_of_length = too_long(text, kMaxStopCharacters)) {
      return problem.report(name, *problem_of_length);
    }
    stops.push_back(text);
  };
  if (!found->is_array()) {
    add(*found, "stop");
  } else if (found->size() > kMaxStopStrings) {
    fields.report("stop", fmt::format("expected at most {} strings, found {}", kMaxStopStrings,
                                      found->size()));
  } else {
    for (std::size_t i = 0; i < found->size(); ++i) add((*found)[i], fmt::format("stop[{}]", i));
  }
  return stops;
}

void read_stream(Fields& fields, GenerateCall& call) {
  call.stream = fields.flag("stream");
  if (auto options = fields.object("stream_options")) {
    if (!call.stream) fields.report("stream_options", "expected only where stream is true");
    call.include_usage = options->flag("include_usage");
    call.continuous_usage = options->flag("continuous_usage_stats");
    options->finish();
  }
  call.return_progress = fields.flag("return_progress");
  if (call.return_progress && !call.stream) {
    fields.report("return_progress", "expected only where stream is true");
  }
}

}  // namespace

void read_model(Fields& fields, const ServedModel& model, Problem& problem) {
  const std::string* name = fields.string("model");
  if (name == nullptr || *name == model.id) return;
  problem.report(ApiError{.status = 404,
                          .message = fmt::format("model: expected {}, the one that is served, "
                                                 "found {}",
                                                 in_quotes(model.id), in_quotes(*name)),
                          .param = "model",
                          .code = "model_not_found"});
}

void read_common(Fields& fields, const ServedModel& model, std::uint64_t fresh_seed,
                 GenerateCall& call, Problem& problem) {
  read_stream(fields, call);
  call.n = fields.integer("n", 1, kMaxChoices).value_or(1);
  Request& request = call.request;
  read_sampling(fields, model, fresh_seed, request.sampling, problem);
  request.stop = read_stops(fields, problem);
  if (const Json* ids = fields.list("stop_token_ids"); ids != nullptr && !ids->empty()) {
    fields.report("stop_token_ids", "expected none, use stop; found some");
  }
  request.ignore_eos = fields.flag("ignore_eos");
  request.min_tokens = fields.integer("min_tokens", 0, kMaxInt).value_or(0);
  if (const std::string* user = fields.string("user")) {
    if (const auto problem_of_length = too_long(*user, kMaxUserCharacters)) {
      fields.report("user", *problem_of_length);
    }
    call.user = *user;
  }
  if (const std::string* salt = fields.string("cache_salt")) {
    if (salt->empty()) fields.report("cache_salt", "expected text, found an empty string");
    request.salt = XXH3_64bits(salt->data(), salt->size());
  }
}

std::optional<int> read_max_tokens(Fields& fields, std::string_view name) {
  const Json* found = fields.value(name);
  if (found == nullptr) return {};
  const auto number = integer_value(*found);
  if (!number || *number < 0) {
    fields.report(name,
                  fmt::format("expected an integer of at least 0, found {}", described(*found)));
    return {};
  }
  return static_cast<int>(std::min<std::int64_t>(*number, kMaxInt));
}

std::vector<Token> read_token_ids(const Json& list, const std::string& path, Problem& problem) {
  std::vector<Token> tokens;
  tokens.reserve(list.size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto id = integer_value(list[i]);
    if (!id || *id < 0 || *id >= kNamedTokens) {
      problem.report(fmt::format("{}[{}]", path, i),
                     fmt::format("expected a token id from 0 to {}, found {}", kNamedTokens - 1,
                                 described(list[i])));
      return {};
    }
    tokens.push_back(static_cast<Token>(*id));
  }
  return tokens;
}

void fit_context(const ServedModel& model, std::optional<int> wanted,
                 const std::vector<std::string>& names, GenerateCall& call, Problem& problem) {
  const auto context = static_cast<std::size_t>(model.context_length);
  std::size_t shortest = context;
  for (std::size_t i = 0; i < call.prompts.size(); ++i) {
    const std::size_t size = call.prompts[i].size();
    if (size > context) {
      return problem.report(names[i],
                            fmt::format("expected at most {} tokens, the context, found a prompt "
                                        "of {} tokens",
                                        context, size),
                            "context_length_exceeded");
    }
    shortest = std::min(shortest, size);
  }
  Request& request = call.request;
  if (wanted && request.min_tokens > *wanted) {
    return problem.report("min_tokens", fmt::format("expected at most max_tokens, {}, found {}",
                                                    *wanted, request.min_tokens));
  }
  // The last token that is drawn takes no position.
  const int room = static_cast<int>(context - shortest) + 1;
  request.max_tokens = std::min(wanted.value_or(room), room);
  request.min_tokens = std::min(request.min_tokens, request.max_tokens);
}

}  // namespace kipp

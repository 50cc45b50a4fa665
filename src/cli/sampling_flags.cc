#include "cli/sampling_flags.h"

#include <random>

#include "cli/flag_values.h"

namespace kipp {
namespace {

Result<void> set_float(std::string_view flag, const std::optional<std::string>& text,
                       float& value) {
  if (!text) return {};
  KIPP_TRY_ASSIGN(parsed, parse_float(flag, *text));
  value = parsed;
  return {};
}

Result<std::pair<Token, float>> parse_bias(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos) {
    return fail(ErrorCode::invalid, "--logit-bias: expected ID=VALUE, found \"{}\"", text);
  }
  KIPP_TRY_ASSIGN(id, parse_int("--logit-bias", text.substr(0, equals)));
  KIPP_TRY_ASSIGN(bias, parse_float("--logit-bias", text.substr(equals + 1)));
  return std::pair(static_cast<Token>(id), bias);
}

}  // namespace

void add_sampling_flags(CLI::App& command, SamplingFlags& flags) {
  const auto number = [&](const char* name, std::optional<std::string>& value, const char* help) {
    command.add_option(name, value, help)->type_name("NUMBER");
  };
  number("--temperature", flags.temperature,
         "0 always takes the likeliest token. Default: the checkpoint's.");
  number("--top-k", flags.top_k, "Keep the K likeliest tokens; 0 keeps all.");
  number("--top-p", flags.top_p,
         "Keep the fewest likeliest tokens that hold this share of the probability.");
  number("--min-p", flags.min_p,
         "Keep tokens at least this many times as likely as the likeliest.");
  number("--repetition-penalty", flags.repetition_penalty,
         "Above 1 discourages every token of prompt and output, once each.");
  number("--presence-penalty", flags.presence_penalty,
         "-2 to 2: taken off tokens among the last 64 generated.");
  number("--frequency-penalty", flags.frequency_penalty,
         "-2 to 2: taken off for each time among the last 64 generated.");
  command
      .add_option("--logit-bias", flags.logit_bias,
                  "Add VALUE (-100 to 100) to a token's logit. Repeatable.")
      ->type_name("ID=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  number("--seed", flags.seed, "Equal seeds give equal text. Default: random.");
}

Result<SamplingParams> sampling_params(const SamplingFlags& flags, const SamplingDefaults& defaults,
                                       std::uint64_t random_seed) {
  SamplingParams params;
  params.temperature = 0;
  if (defaults.sample) {
    params.temperature = defaults.temperature;
    params.top_k = defaults.top_k;
    params.top_p = defaults.top_p;
  }
  KIPP_TRY(set_float("--temperature", flags.temperature, params.temperature));
  if (flags.top_k) {
    KIPP_TRY_ASSIGN(top_k, parse_int("--top-k", *flags.top_k));
    params.top_k = top_k;
  }
  KIPP_TRY(set_float("--top-p", flags.top_p, params.top_p));
  KIPP_TRY(set_float("--min-p", flags.min_p, params.min_p));
  KIPP_TRY(set_float("--repetition-penalty", flags.repetition_penalty, params.repetition_penalty));
  KIPP_TRY(set_float("--presence-penalty", flags.presence_penalty, params.presence_penalty));
  KIPP_TRY(set_float("--frequency-penalty", flags.frequency_penalty, params.frequency_penalty));
  for (const std::string& text : flags.logit_bias) {
    KIPP_TRY_ASSIGN(bias, parse_bias(text));
    params.logit_bias.push_back(bias);
  }
  params.seed = random_seed;
  if (flags.seed) {
    KIPP_TRY_ASSIGN(seed, parse_uint64("--seed", *flags.seed));
    params.seed = seed;
  }
  KIPP_TRY(validate(params));
  return params;
}

std::uint64_t random_seed() {
  std::random_device device;
  const std::uint64_t high = device();
  return ((high << 32) | device()) >> 11;
}

std::string describe(const SamplingParams& params) {
  return fmt::format(
      "sampling: temperature {}, top-k {}, top-p {}, min-p {}, repetition {}, presence {}, "
      "frequency "
      "{}, {} biased tokens, seed {}",
      params.temperature, params.top_k, params.top_p, params.min_p, params.repetition_penalty,
      params.presence_penalty, params.frequency_penalty, params.logit_bias.size(), params.seed);
}

}  // namespace kipp

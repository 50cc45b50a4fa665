// `kipp perplexity`: how well a model predicts a text, and how far its predictions are from those
// another run saved, or from the same model's with another precision of its cache. Ctrl-C reports
// what was scored so far; a file of saved logits appears whole or not at all.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/progress.h"
#include "cli/commands.h"
#include "cli/flag_values.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/terminal.h"
#include "cli/text_file.h"
#include "engine/perplexity.h"
#include "model/step_plan.h"

namespace kipp {
namespace {

using Json = nlohmann::ordered_json;

// Where --context says nothing: long enough for most of what a model knows about a text to count.
constexpr int kDefaultContext = 2048;

struct PerplexityFlags {
  ModelFlags model;
  std::optional<std::string> file;
  std::optional<std::string> tokens;
  std::optional<std::string> stride;
  std::optional<std::string> limit;
  bool pseudo_decode = false;
  std::optional<std::string> save;
  std::optional<std::string> against;
  std::optional<std::string> against_kv;
  bool json = false;
};

// Ids separated by white space or commas; the brackets of a JSON array may stand around them.
Result<std::vector<Token>> parse_tokens(const std::string& path, std::string_view text) {
  constexpr std::string_view kBetween = " \t\r\n,";
  const auto first = text.find_first_not_of(kBetween);
  const auto last = text.find_last_not_of(kBetween);
  if (first != std::string_view::npos && text[first] == '[' && text[last] == ']') {
    text = text.substr(first + 1, last - first - 1);
  }
  std::vector<Token> tokens;
  for (auto at = text.find_first_not_of(kBetween); at != std::string_view::npos;) {
    const auto end = std::min(text.find_first_of(kBetween, at), text.size());
    const std::string_view word = text.substr(at, end - at);
    Token token = 0;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || rest != word.data() + word.size()) {
      return fail(ErrorCode::invalid, "{}: expected token ids, found \"{}\" after {} of them", path,
                  without_controls(word.substr(0, 40)), tokens.size());
    }
    tokens.push_back(token);
    at = text.find_first_not_of(kBetween, end);
  }
  return tokens;
}

Result<std::vector<Token>> read_tokens(const PerplexityFlags& flags) {
  if (!flags.file && !flags.tokens) {
    return fail(ErrorCode::invalid, "text: expected --file or --tokens, found neither");
  }
  const std::string& path = flags.file ? *flags.file : *flags.tokens;
  KIPP_TRY_ASSIGN(text, read_text_file(path));
  std::vector<Token> tokens;
  if (flags.file) {
    tokens = Tokenizer().encode(text, AddedTokens::as_text);
  } else {
    KIPP_TRY_ASSIGN(ids, parse_tokens(path, text));
    tokens = std::move(ids);
  }
  KIPP_TRY(validate_tokens(tokens, path.c_str()));
  if (flags.limit) {
    KIPP_TRY_ASSIGN(limit, parse_int("--limit", *flags.limit));
    if (limit < 2) {
      return fail(ErrorCode::invalid, "--limit: expected at least 2 tokens, found {}", limit);
    }
    if (tokens.size() > static_cast<std::size_t>(limit)) {
      tokens.resize(static_cast<std::size_t>(limit));
    }
  }
  if (tokens.size() < 2) {
    return fail(ErrorCode::invalid, "{}: expected at least 2 tokens, found {}", path,
                tokens.size());
  }
  return tokens;
}

Result<int> read_stride(const PerplexityFlags& flags, int context) {
  if (context < 2) {
    return fail(ErrorCode::invalid, "--context: expected at least 2 positions, found {}", context);
  }
  if (!flags.stride) return context;
  KIPP_TRY_ASSIGN(stride, parse_int("--stride", *flags.stride));
  if (stride < 1 || stride > context) {
    return fail(ErrorCode::invalid, "--stride: expected 1 to {} tokens (--context), found {}",
                context, stride);
  }
  return stride;
}

struct Report {
  std::size_t n_tokens = 0;
  int context = 0;
  int stride = 0;
  double seconds = 0;
  bool interrupted = false;
  std::string against_scheme;  // of the saved run; empty: none
  std::string against_kv;      // of the run beside it; empty: none
  std::vector<RowScore> rows;

  bool compared() const { return !against_scheme.empty() || !against_kv.empty(); }
};

Json name_or_null(const std::string& name) { return name.empty() ? Json() : Json(name); }

Json to_json(const PerplexitySummary& summary) {
  Json json{{"tokens", summary.rows},
            {"nll", summary.nll},
            {"nll_standard_error", summary.nll_error},
            {"perplexity", summary.perplexity()},
            {"perplexity_standard_error", summary.perplexity_error()}};
  if (summary.divergence) {
    json["kl"] = {{"mean", summary.divergence->mean},
                  {"standard_error", summary.divergence->standard_error},
                  {"p999", summary.divergence->p999},
                  {"max", summary.divergence->max},
                  {"same_top", summary.divergence->same_top}};
    json["against_nll"] = summary.divergence->nll;
    json["against_perplexity"] = std::exp(summary.divergence->nll);
  }
  return json;
}

Json to_json(const PerplexityFlags& flags, OpenedModel& opened, const Report& report) {
  const BackendInfo& info = opened.model->backend().info();
  Json json{{"model", opened.model->checkpoint().id},
            {"scheme", to_string(opened.model->artifact().scheme())},
            {"kv", flags.model.kv},
            {"backend", info.name},
            {"threads", info.threads},
            {"text_tokens", report.n_tokens},
            {"context", report.context},
            {"stride", report.stride},
            {"pseudo_decode", flags.pseudo_decode},
            {"seconds", report.seconds},
            {"interrupted", report.interrupted},
            {"against_scheme", name_or_null(report.against_scheme)},
            {"against_kv", name_or_null(report.against_kv)}};
  json.update(to_json(summarize(report.rows, report.compared())));
  json["by_position"] = Json::array();
  for (const PositionBucket& bucket : summarize_by_position(report.rows, report.compared())) {
    Json entry{{"from", bucket.from}, {"to", bucket.to}};
    entry.update(to_json(bucket.summary));
    json["by_position"].push_back(std::move(entry));
  }
  return json;
}

std::string to_text(const OpenedModel& opened, const Report& report) {
  const PerplexitySummary summary = summarize(report.rows, report.compared());
  std::string text = fmt::format(
      "{} {}: {} of {} tokens scored, windows of {} every {}\n"
      "perplexity {:.4f} +- {:.4f}, mean NLL {:.5f} +- {:.5f}\n",
      opened.model->checkpoint().id, to_string(opened.model->artifact().scheme()), summary.rows,
      report.n_tokens, report.context, report.stride, summary.perplexity(),
      summary.perplexity_error(), summary.nll, summary.nll_error);
  if (const auto& kl = summary.divergence) {
    text += fmt::format(
        "KL against the {}: mean {:.3g} +- {:.2g}, 99.9 % {:.3g}, max {:.3g}; same top token "
        "{:.2f} %; its perplexity {:.4f}\n",
        report.against_kv.empty() ? "saved " + report.against_scheme : report.against_kv + " cache",
        kl->mean, kl->standard_error, kl->p999, kl->max, kl->same_top * 100, std::exp(kl->nll));
  }
  return text;
}

// Returns the exit code.
Result<int> perplexity(const PerplexityFlags& flags) {
  KIPP_TRY_ASSIGN(tokens, read_tokens(flags));
  if (tokens.size() > std::numeric_limits<int>::max() / 2) {
    return fail(ErrorCode::invalid, "text: expected at most {} tokens, found {}; --limit cuts it",
                std::numeric_limits<int>::max() / 2, tokens.size());
  }
  const auto n_tokens = static_cast<int>(tokens.size());
  if (flags.against_kv) KIPP_TRY(KvPolicy::parse(*flags.against_kv));
  KIPP_TRY_ASSIGN(opened, open_model(flags.model, std::min(kDefaultContext, n_tokens)));
  Report report{.n_tokens = tokens.size(),
                .context = opened.session.capacity(),
                .stride = 0,
                .seconds = 0,
                .interrupted = false,
                .against_scheme = {},
                .against_kv = flags.against_kv.value_or(""),
                .rows = {}};
  KIPP_TRY_ASSIGN(stride, read_stride(flags, report.context));
  report.stride = stride;
  const auto windows = plan_windows(n_tokens, report.context, report.stride);
  const auto identity = LogitsIdentity::of(opened.model->artifact(), tokens, report.context,
                                           report.stride, scored_tokens(windows));
  ProgressBar bar("perplexity", ProgressUnit::tokens);
  PerplexityHooks hooks;
  hooks.progress = [&](std::size_t done, std::size_t total) { bar.update(done, total); };
  hooks.cancel = &Interrupt::flag();
  std::optional<SavedLogits> against;
  if (flags.against) {
    KIPP_TRY_ASSIGN(saved, SavedLogits::open(*flags.against, identity));
    report.against_scheme = saved.scheme();
    hooks.against = &against.emplace(std::move(saved));
  }
  std::optional<OpenedModel> beside;
  if (flags.against_kv) {
    ModelFlags other = flags.model;
    other.kv = *flags.against_kv;
    KIPP_TRY_ASSIGN(model, open_model(other, report.context));
    hooks.beside = &beside.emplace(std::move(model)).session;
  }
  std::optional<LogitsWriter> save;
  if (flags.save) {
    KIPP_TRY_ASSIGN(writer, LogitsWriter::create(*flags.save, identity));
    fmt::print(stderr, "saving {} rows of logits, {:.2f} GB\n", identity.rows,
               static_cast<double>(identity.file_bytes()) * 1e-9);
    hooks.save = &save.emplace(std::move(writer));
  }

  const Interrupt interrupt;
  const auto start = std::chrono::steady_clock::now();
  KIPP_TRY_ASSIGN(rows, score_windows(*opened.model, opened.session, tokens, windows,
                                      flags.pseudo_decode, hooks));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  bar.finish();
  report.rows = std::move(rows);
  report.interrupted = report.rows.size() < identity.rows;
  if (report.rows.empty()) {
    return fail(ErrorCode::interrupted, "text: interrupted before anything was scored");
  }
  if (save && !report.interrupted) KIPP_TRY(save->commit());
  const std::string text =
      flags.json ? to_json(flags, opened, report).dump() + "\n" : to_text(opened, report);
  if (!write_out(text)) return fail(ErrorCode::io, "standard output: cannot write");
  if (report.interrupted) {
    fmt::print(stderr, "kipp perplexity: interrupted after {} of {} tokens{}\n", report.rows.size(),
               identity.rows, save ? "; no logits were saved" : "");
  }
  return report.interrupted ? 130 : 0;
}

}  // namespace

void add_perplexity_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "perplexity", "Measure how well a model predicts a text, or how far it is from another run.");
  static PerplexityFlags flags;
  CLI::Option* file = command->add_option("--file", flags.file, "The text.")->type_name("FILE");
  command
      ->add_option("--tokens", flags.tokens,
                   "Token ids instead of a text: a JSON array, or separated by white space.")
      ->type_name("FILE")
      ->excludes(file);
  command->add_option("--limit", flags.limit, "Use so many tokens of it at most.")
      ->type_name("NUMBER");
  add_model_flags(*command, flags.model);
  command->get_option("--context")
      ->description(fmt::format(
          "Tokens of a window, each evaluated on its own. Default: {} or all.", kDefaultContext));
  command
      ->add_option("--stride", flags.stride,
                   "Tokens from one window to the next; what both hold is context for the later "
                   "one and scored once. Default: as --context.")
      ->type_name("NUMBER");
  command->add_flag(
      "--pseudo-decode", flags.pseudo_decode,
      "Evaluate what is scored one token at a time, as in decoding: slower, and on cpu "
      "and reference the same bits.");
  command
      ->add_option("--save-logits", flags.save,
                   "Keep all logits in this file, 608 kB for every scored token.")
      ->type_name("FILE");
  command
      ->add_option("--against", flags.against,
                   "Compare with the logits another run saved: the same checkpoint, any scheme or "
                   "backend, the same tokens and windows.")
      ->type_name("FILE");
  command
      ->add_option("--against-kv", flags.against_kv,
                   "Compare with the same model under this --kv, evaluated beside it; takes the "
                   "memory of two models.")
      ->type_name("POLICY")
      ->excludes("--against");
  command->add_flag("--json", flags.json,
                    "Print one JSON object instead of text, with figures by position.");
  command->callback([&exit_code] {
    const auto code = perplexity(flags);
    exit_code = code ? *code : report_error("perplexity", code.error());
  });
}

}  // namespace kipp

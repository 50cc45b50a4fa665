// `kipp recall`: how many of the answers in a file a model gives. What a cheaper cache loses of a
// long context shows here before it shows in a mean over a text. Ctrl-C reports what was asked so
// far.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/progress.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/terminal.h"
#include "cli/text_file.h"
#include "convert/strict_json.h"
#include "engine/recall.h"

namespace kipp {
namespace {

using Json = nlohmann::ordered_json;

struct RecallFlags {
  ModelFlags model;
  std::string cases;
  bool json = false;
};

// The file is its user's own, so control tokens in it are meant: a chat needs them.
Result<std::vector<Token>> read_text(const nlohmann::json& object, const char* field,
                                     const std::string& label, const Tokenizer& tokenizer) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_string() ||
      found->get_ref<const std::string&>().empty()) {
    return fail(ErrorCode::invalid, "{}: {}: expected a text, found {}", label, field,
                found == object.end() ? "none" : shown(*found));
  }
  return tokenizer.encode(found->get_ref<const std::string&>(), AddedTokens::as_control);
}

// A JSON object a line with the texts "prompt" and "answer"; what else is in it is for others.
Result<std::vector<RecallCase>> read_cases(const std::string& path) {
  KIPP_TRY_ASSIGN(text, read_text_file(path));
  const Tokenizer tokenizer;
  std::vector<RecallCase> cases;
  int number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const auto end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string label = fmt::format("{}: line {}", path, number);
    KIPP_TRY_ASSIGN(object, parse_strict_json(line, label));
    if (!object.is_object()) {
      return fail(ErrorCode::invalid, "{}: expected an object, found {}", label, shown(object));
    }
    KIPP_TRY_ASSIGN(prompt, read_text(object, "prompt", label, tokenizer));
    KIPP_TRY_ASSIGN(answer, read_text(object, "answer", label, tokenizer));
    cases.push_back({std::move(prompt), std::move(answer)});
  }
  if (cases.empty()) {
    return fail(ErrorCode::invalid, "{}: expected at least one case, found none", path);
  }
  return cases;
}

struct Report {
  std::size_t cases = 0;  // in the file
  double seconds = 0;
  std::vector<RecallScore> scores;

  std::size_t given() const {
    return static_cast<std::size_t>(std::ranges::count(scores, true, &RecallScore::given));
  }
  double nll() const {
    double sum = 0;
    for (const RecallScore& score : scores) sum += score.nll;
    return sum / static_cast<double>(scores.size());
  }
};

std::string to_json(const RecallFlags& flags, OpenedModel& opened, const Report& report) {
  const BackendInfo& info = opened.model->backend().info();
  Json json{{"model", opened.model->checkpoint().id},
            {"scheme", to_string(opened.model->artifact().scheme())},
            {"kv", flags.model.kv},
            {"backend", info.name},
            {"threads", info.threads},
            {"asked", report.scores.size()},
            {"given", report.given()},
            {"nll", report.nll()},
            {"seconds", report.seconds},
            {"interrupted", report.scores.size() < report.cases}};
  json["cases"] = Json::array();
  for (const RecallScore& score : report.scores) {
    json["cases"].push_back({{"given", score.given}, {"nll", score.nll}});
  }
  return json.dump() + "\n";
}

std::string to_text(const RecallFlags& flags, const OpenedModel& opened, const Report& report) {
  return fmt::format(
      "{} {}, {} cache: {} of {} answers given ({:.2f} %), mean NLL {:.5f}\n",
      opened.model->checkpoint().id, to_string(opened.model->artifact().scheme()), flags.model.kv,
      report.given(), report.scores.size(),
      100.0 * static_cast<double>(report.given()) / static_cast<double>(report.scores.size()),
      report.nll());
}

// Returns the exit code.
Result<int> recall(const RecallFlags& flags) {
  KIPP_TRY_ASSIGN(cases, read_cases(flags.cases));
  std::size_t longest = 0;
  for (const RecallCase& each : cases) {
    longest = std::max(longest, each.prompt.size() + each.answer.size());
  }
  KIPP_TRY_ASSIGN(opened, open_model(flags.model, static_cast<int>(longest)));
  Report report{.cases = cases.size(), .seconds = 0, .scores = {}};
  ProgressBar bar("recall", ProgressUnit::tokens);
  const Interrupt interrupt;
  const auto start = std::chrono::steady_clock::now();
  KIPP_TRY_ASSIGN(scores,
                  score_recall(opened.session, cases,
                               {.progress = [&](std::size_t done,
                                                std::size_t total) { bar.update(done, total); },
                                .cancel = &Interrupt::flag()}));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  bar.finish();
  report.scores = std::move(scores);
  if (report.scores.empty()) {
    return fail(ErrorCode::interrupted, "cases: interrupted before the first was answered");
  }
  if (!write_out(flags.json ? to_json(flags, opened, report) : to_text(flags, opened, report))) {
    return fail(ErrorCode::io, "standard output: cannot write");
  }
  if (report.scores.size() == cases.size()) return 0;
  fmt::print(stderr, "kipp recall: interrupted after {} of {} cases\n", report.scores.size(),
             cases.size());
  return 130;
}

}  // namespace

void add_recall_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "recall", "Count the answers a model gives to questions on what its context holds.");
  static RecallFlags flags;
  command
      ->add_option(
          "--cases", flags.cases,
          "A JSON object a line with the texts \"prompt\" and \"answer\"; an answer counts "
          "when greedy decoding would write all of it.")
      ->type_name("FILE")
      ->required();
  add_model_flags(*command, flags.model);
  command->get_option("--context")
      ->description("Positions to keep memory for. Default: what the longest case takes.");
  command->add_flag("--json", flags.json,
                    "Print one JSON object instead of text, with every case.");
  command->callback([&exit_code] {
    const auto code = recall(flags);
    exit_code = code ? *code : report_error("recall", code.error());
  });
}

}  // namespace kipp

#include "cli/speculation_flags.h"

#include "cli/flag_values.h"

namespace kipp {
namespace {

Result<int> draft_max(const SpeculationFlags& flags) {
  if (!flags.draft_max) return Speculation().max_draft;
  KIPP_TRY_ASSIGN(most, parse_int("--draft-max", *flags.draft_max));
  if (most < 1 || most > kMaxDraft) {
    return fail(ErrorCode::invalid, "--draft-max: expected 1 to {} tokens, found {}", kMaxDraft,
                most);
  }
  return most;
}

}  // namespace

void add_speculation_flags(CLI::App& command, SpeculationFlags& flags) {
  command
      .add_option("--speculate", flags.mode,
                  "Propose tokens and check several in one step; the text stays the same. ngram: "
                  "what followed the last time; draft: what a smaller model says; or off.")
      ->capture_default_str();
  command
      .add_option("--draft-model", flags.draft_model,
                  "For --speculate draft: a model file, or the id of a converted checkpoint.")
      ->type_name("FILE|ID");
  command.add_option("--draft-max", flags.draft_max, "Propose at most so many tokens. Default: 8.")
      ->type_name("NUMBER");
}

Result<void> check(const SpeculationFlags& flags) {
  if (flags.mode != "off" && flags.mode != "ngram" && flags.mode != "draft") {
    return fail(ErrorCode::invalid, "--speculate: expected off, ngram or draft, found \"{}\"",
                flags.mode);
  }
  if (flags.mode == "draft" && !flags.draft_model) {
    return fail(ErrorCode::invalid,
                "--draft-model: expected one with --speculate draft, found none");
  }
  if (flags.mode != "draft" && flags.draft_model) {
    return fail(ErrorCode::invalid, "--draft-model: expected only with --speculate draft, found {}",
                flags.mode);
  }
  KIPP_TRY(draft_max(flags));
  return {};
}

Result<Speculation> open_speculation(const SpeculationFlags& flags, const ModelFlags& model_flags,
                                     Model& target, int positions) {
  KIPP_TRY_ASSIGN(most, draft_max(flags));
  if (flags.mode == "off") return Speculation();
  if (flags.mode == "ngram") return ngram_speculation(target, most);

  ModelFlags draft_flags = model_flags;
  draft_flags.model = *flags.draft_model;
  draft_flags.scheme.reset();
  draft_flags.context.reset();
  const auto named = [](Error error) {
    error.message = "--draft-model: " + error.message;
    return tl::unexpected(std::move(error));
  };
  auto draft = open_model(draft_flags, positions);
  if (!draft) return named(std::move(draft).error());
  auto speculation = model_speculation(target, std::move(draft->model), most);
  if (!speculation) return named(std::move(speculation).error());
  return speculation;
}

}  // namespace kipp

// `kipp run`: completes one prompt, as it is, without a chat template. The text goes to standard
// output as it comes, everything else to standard error.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "cli/commands.h"
#include "cli/flag_values.h"
#include "cli/generation_report.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/prompt_progress.h"
#include "cli/sampling_flags.h"
#include "cli/session_flags.h"
#include "cli/speculation_flags.h"
#include "cli/terminal.h"
#include "cli/text_file.h"
#include "engine/stop.h"

namespace kipp {
namespace {

struct RunFlags {
  ModelFlags model;
  SamplingFlags sampling;
  SpeculationFlags speculation;
  SessionFlags saved;
  std::optional<std::string> prompt;
  std::optional<std::string> file;
  std::string max_tokens = "256";
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool special = false;
  bool json = false;
  bool verbose = false;
};

Result<std::string> read_standard_input() {
  if (stdin_is_terminal()) {
    fmt::print(stderr, "Reading the prompt from the terminal; Ctrl-D on an empty line ends it.\n");
  }
  std::string text;
  std::array<char, 65536> buffer{};
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (n > 0) {
      text.append(buffer.data(), static_cast<std::size_t>(n));
    } else if (n == 0) {
      return text;
    } else if (errno == EBADF) {
      return fail(ErrorCode::invalid,
                  "prompt: expected --prompt, --file or text on standard input, found it closed");
    } else if (errno != EINTR) {
      return fail(ErrorCode::io, "prompt: cannot read standard input: {}", std::strerror(errno));
    }
  }
}

Result<std::string> read_prompt(const RunFlags& flags) {
  if (flags.prompt) return *flags.prompt;
  KIPP_TRY_ASSIGN(text, flags.file ? read_text_file(*flags.file) : read_standard_input());
  // Text files and `echo` end with a newline that nobody means as part of the prompt.
  if (text.ends_with('\n')) text.pop_back();
  return std::move(text);
}

Result<std::vector<Token>> prompt_tokens(const RunFlags& flags) {
  KIPP_TRY_ASSIGN(prompt, read_prompt(flags));
  if (prompt.empty() && !flags.saved.go_on) {
    return fail(ErrorCode::invalid, "prompt: expected text, found none");
  }
  return Tokenizer().encode(prompt, flags.special ? AddedTokens::as_control : AddedTokens::as_text);
}

// Streams to standard output; on a terminal the prompt goes before it, dimmed, since a continuation
// alone reads badly.
class TextOutput {
 public:
  explicit TextOutput(const RunFlags& flags) : terminal_(stdout_is_terminal()) {
    if (terminal_ && flags.prompt) {
      write(fmt::format("{}{}{}", kDim, without_controls(*flags.prompt), kPlain));
      at_line_start_ = false;
    }
  }
  void write_text(std::string_view text) {
    if (text.empty()) return;
    write(terminal_ ? without_controls(text) : std::string(text));
    at_line_start_ = text.back() == '\n';
  }
  bool finish() {
    if (!at_line_start_) write("\n");
    return ok_;
  }

 private:
  void write(std::string_view text) { ok_ = write_out(text) && ok_; }

  bool terminal_;
  bool at_line_start_ = true;
  bool ok_ = true;
};

Result<Generation> complete(OpenedModel& opened, std::span<const Token> prompt,
                            const GenerateParams& params, const RunFlags& flags) {
  const Interrupt interrupt;
  PromptProgressBar progress;
  GenerateHooks hooks;
  hooks.cancel = &Interrupt::flag();
  hooks.on_prompt = [&](int done, int total) { progress(done, total); };
  if (flags.json) return generate(*opened.model, opened.session, prompt, params, hooks);
  TextOutput output(flags);
  hooks.on_text = [&](const TextEvent& event) { output.write_text(event.text); };
  auto generation = generate(*opened.model, opened.session, prompt, params, hooks);
  if (!output.finish() && generation) {
    return fail(ErrorCode::io, "standard output: cannot write: {}", std::strerror(errno));
  }
  return generation;
}

Result<void> save(Session& session, const Generation& generation, const RunFlags& flags) {
  if (!flags.saved.save) return {};
  if (generation.finish == FinishReason::interrupted) {
    fmt::print(stderr, "{} is not written: the run was interrupted\n", *flags.saved.save);
    return {};
  }
  // The last token drawn is not evaluated yet. Whoever continues text that was cut short wants it;
  // what ended the text is no part of it.
  const auto evaluated = static_cast<std::size_t>(generation.decode_steps);
  if (generation.finish == FinishReason::length && evaluated < generation.tokens.size() &&
      session.tokens().size() < static_cast<std::size_t>(session.capacity())) {
    KIPP_TRY(session.append(generation.tokens.back()));
  }
  return save_session(flags.saved, session);
}

// Returns the exit code.
Result<int> run(const RunFlags& flags) {
  GenerateParams params;
  KIPP_TRY_ASSIGN(max_tokens, parse_int("--max-tokens", flags.max_tokens));
  if (max_tokens < 0) {
    return fail(ErrorCode::invalid, "--max-tokens: expected at least 0, found {}", max_tokens);
  }
  params.max_tokens = max_tokens;
  params.stop = flags.stop;
  params.ignore_eos = flags.ignore_eos;
  // Every value is checked before a model is opened, which may take a while.
  const std::uint64_t seed = random_seed();
  KIPP_TRY(sampling_params(flags.sampling, {}, seed));
  KIPP_TRY(StopMatcher::create(flags.stop));
  KIPP_TRY(check(flags.speculation));
  KIPP_TRY_ASSIGN(saved, saved_tokens(flags.saved));
  KIPP_TRY_ASSIGN(given, prompt_tokens(flags));

  constexpr std::size_t kMost = 1 << 20;  // beyond every checkpoint's context
  const auto n_saved = static_cast<std::size_t>(saved);
  const std::size_t wanted = (flags.saved.go_on ? n_saved : 0) + std::min(given.size(), kMost) +
                             std::min(static_cast<std::size_t>(max_tokens), kMost);
  KIPP_TRY_ASSIGN(opened, open_model(flags.model, static_cast<int>(std::max(wanted, n_saved))));
  KIPP_TRY_ASSIGN(prompt, load_session(flags.saved, opened.session, std::move(given)));
  if (prompt.size() > static_cast<std::size_t>(opened.session.capacity())) {
    return fail(ErrorCode::invalid, "prompt: expected at most {} tokens ({}), found {}",
                opened.session.capacity(),
                flags.model.context ? "--context" : "the checkpoint's context", prompt.size());
  }
  KIPP_TRY_ASSIGN(sampling,
                  sampling_params(flags.sampling, opened.model->checkpoint().sampling, seed));
  params.sampling = sampling;
  KIPP_TRY_ASSIGN(speculation, open_speculation(flags.speculation, flags.model, *opened.model,
                                                opened.session.capacity()));
  params.speculation = speculation;
  if (flags.verbose) fmt::print(stderr, "{}\n{}\n", describe(opened), describe(sampling));

  KIPP_TRY_ASSIGN(generation, complete(opened, prompt, params, flags));
  KIPP_TRY(save(opened.session, generation, flags));
  if (flags.json) {
    nlohmann::ordered_json json{{"model", opened.model->checkpoint().id},
                                {"scheme", to_string(opened.model->artifact().scheme())},
                                {"backend", opened.model->backend().info().name}};
    json.update(to_json(generation, sampling.seed));
    if (!write_out(json.dump() + "\n")) {
      return fail(ErrorCode::io, "standard output: cannot write: {}", std::strerror(errno));
    }
  }
  if (flags.verbose) fmt::print(stderr, "last logits: {}\n", hash_text(generation));
  fmt::print(stderr, "{}\n", summary(generation));
  return generation.finish == FinishReason::interrupted ? 130 : 0;
}

}  // namespace

void add_run_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("run", "Complete a prompt.");
  static RunFlags flags;
  CLI::Option* prompt = command->add_option("--prompt", flags.prompt, "The text to complete.");
  command
      ->add_option("--file", flags.file,
                   "Read it from this file instead, without its last newline. Default: standard "
                   "input.")
      ->type_name("FILE")
      ->excludes(prompt);
  command
      ->add_option("--max-tokens", flags.max_tokens,
                   "Stop after so many tokens, or where the context ends.")
      ->type_name("NUMBER")
      ->capture_default_str();
  command->add_option("--stop", flags.stop, "Stop before this text. Repeatable, up to 4 times.")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_flag("--ignore-eos", flags.ignore_eos, "Go on past the model's own end of text.");
  command->add_flag("--special", flags.special,
                    "Take text such as <|im_start|> in the prompt as the control token it names.");
  add_model_flags(*command, flags.model);
  add_sampling_flags(*command, flags.sampling);
  add_speculation_flags(*command, flags.speculation);
  add_session_flags(*command, flags.saved);
  command->add_flag("--json", flags.json, "Print one JSON object at the end instead of the text.");
  command->add_flag("--verbose", flags.verbose,
                    "Say what was opened, how tokens are chosen, and a hash of the last logits.");
  command->callback([&exit_code] {
    const auto code = run(flags);
    exit_code = code ? *code : report_error("run", code.error());
  });
}

}  // namespace kipp

// `kipp chat`: a conversation in the terminal, or line by line through a pipe. Answers go to
// standard output, everything about them to standard error.
#include <cerrno>
#include <cstring>

#include "base/rng.h"
#include "cli/commands.h"
#include "cli/flag_values.h"
#include "cli/generation_report.h"
#include "cli/interrupt.h"
#include "cli/line_reader.h"
#include "cli/model_flags.h"
#include "cli/prompt_progress.h"
#include "cli/sampling_flags.h"
#include "cli/speculation_flags.h"
#include "cli/terminal.h"
#include "engine/conversation.h"

namespace kipp {
namespace {

// Enough for a long talk; a checkpoint's whole context would take gigabytes of memory.
constexpr int kDefaultContext = 4096;

constexpr std::string_view kHelp =
    "/system TEXT   set the system message; without TEXT there is none\n"
    "/think on|off  whether answers may begin with reasoning\n"
    "/reset         forget the conversation\n"
    "/stats         tokens and speed so far\n"
    "/quit          leave (or Ctrl-D); Ctrl-C interrupts an answer\n"
    "//TEXT         say TEXT with one slash in front\n";

struct ChatFlags {
  ModelFlags model;
  SamplingFlags sampling;
  SpeculationFlags speculation;
  std::optional<std::string> max_tokens;
  std::optional<std::string> system;
  bool thinking = false;
  bool no_thinking = false;
  bool json = false;
  bool verbose = false;
};

struct Totals {
  int turns = 0;
  int unanswered = 0;
  Generation sum;  // counts and seconds of all turns

  void add(const Generation& g) {
    ++turns;
    sum.reused_tokens += g.reused_tokens;
    sum.evaluated_tokens += g.evaluated_tokens;
    sum.decode_steps += g.decode_steps;
    sum.prompt_seconds += g.prompt_seconds;
    sum.decode_seconds += g.decode_seconds;
    sum.speculation += g.speculation;
    sum.tokens.insert(sum.tokens.end(), g.tokens.begin(), g.tokens.end());
  }
};

// One answer on its way to the reader. Reasoning is dimmed on a terminal.
class AnswerOutput {
 public:
  AnswerOutput(bool terminal, bool starts_in_thinking) : terminal_(terminal) {
    if (starts_in_thinking) dim(true);
  }
  void push(const TextEvent& event) {
    if (event.token == kThink) dim(true);
    write(terminal_ ? without_controls(event.text) : std::string(event.text));
    if (event.token == kThinkEnd) dim(false);
  }
  bool finish() {
    dim(false);
    write("\n");
    return ok_;
  }

 private:
  void dim(bool on) {
    if (terminal_ && on != dimmed_) write(on ? kDim : kPlain);
    dimmed_ = on;
  }
  void write(std::string_view text) {
    if (!text.empty()) ok_ = write_out(text) && ok_;
  }

  bool terminal_;
  bool dimmed_ = false;
  bool ok_ = true;
};

class Chat {
 public:
  Chat(const ChatFlags& flags, Conversation conversation, GenerateParams params)
      : flags_(flags),
        conversation_(std::move(conversation)),
        params_(std::move(params)),
        seed_(params_.sampling.seed) {}

  // Returns the exit code.
  Result<int> run() {
    if (reader_.terminal()) fmt::print(stderr, "/help lists the commands.\n");
    std::string line;
    while (true) {
      const LineReader::Outcome outcome = reader_.read(line);
      if (outcome == LineReader::Outcome::interrupted) {
        fmt::print(stderr, "Ctrl-D or /quit leaves.\n");
        continue;
      }
      if (outcome == LineReader::Outcome::end || line == "/quit") break;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      if (line.starts_with('/') && !line.starts_with("//")) {
        command(line);
        continue;
      }
      if (line.starts_with("//")) line.erase(0, 1);
      KIPP_TRY_ASSIGN(finish, turn(line));
      // A script that is interrupted is meant to end; a person goes on.
      if (finish == FinishReason::interrupted && !reader_.terminal()) return 130;
    }
    if (totals_.turns > 0) print_stats();
    return totals_.unanswered > 0 ? 1 : 0;
  }

 private:
  void command(const std::string& line) {
    const auto space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string argument = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/help") {
      fmt::print(stderr, "{}", kHelp);
    } else if (name == "/system") {
      conversation_.set_system(argument);
    } else if (name == "/reset") {
      conversation_.reset();
    } else if (name == "/stats") {
      print_stats();
    } else if (name == "/think" && (argument == "on" || argument == "off")) {
      const auto set = conversation_.set_thinking(argument == "on");
      if (!set) report_error("chat", set.error());
    } else if (name == "/think") {
      fmt::print(stderr, "kipp chat: /think: expected on or off, found \"{}\"\n", argument);
    } else {
      fmt::print(stderr, "kipp chat: {}: no such command; /help lists them\n", name);
    }
  }

  void print_stats() const {
    const Generation& sum = totals_.sum;
    fmt::print(stderr,
               "{} turns, {} of {} positions in use; prompt {} tokens evaluated, {:.1f} tok/s, {} "
               "reused; decode {} tokens, {:.1f} tok/s{}\n",
               totals_.turns, conversation_.session().tokens().size(),
               conversation_.session().capacity(), sum.evaluated_tokens, sum.prompt_rate(),
               sum.reused_tokens, sum.tokens.size(), sum.decode_rate(),
               speculated(sum.speculation));
  }

  // Fails only where going on makes no sense; a message that does not fit is said and left behind.
  Result<FinishReason> turn(const std::string& text) {
    // The draws of every turn are numbered from zero, so each gets its own stream.
    params_.sampling.seed = draw_bits(seed_, static_cast<std::uint64_t>(totals_.turns));
    auto answered = answer(text);
    if (!answered && answered.error().code == ErrorCode::exhausted) {
      fmt::print(stderr, "kipp chat: {}; /reset forgets it, --context keeps more\n",
                 answered.error().message);
      ++totals_.unanswered;
      return FinishReason::length;
    }
    if (!answered) return tl::unexpected(answered.error());
    totals_.add(*answered);
    if (flags_.json && !write_out(json_line(*answered) + "\n")) return cannot_write();
    if (flags_.verbose) {
      fmt::print(stderr, "turn {}: {} reused, {} new; {}; last logits: {}\n", totals_.turns,
                 answered->reused_tokens, answered->prompt_tokens - answered->reused_tokens,
                 summary(*answered), hash_text(*answered));
    } else if (answered->finish != FinishReason::stop) {
      fmt::print(stderr, "({})\n", cut_short(*answered));
    }
    return answered->finish;
  }

  Result<Generation> answer(const std::string& text) {
    const Interrupt interrupt;
    PromptProgressBar progress;
    GenerateHooks hooks;
    hooks.cancel = &Interrupt::flag();
    hooks.on_prompt = [&](int done, int total) { progress(done, total); };
    if (flags_.json) return conversation_.ask(text, params_, hooks);
    std::optional<AnswerOutput> output;  // begun with the first token: a refusal prints nothing
    hooks.on_text = [&](const TextEvent& event) {
      if (!output) output.emplace(stdout_is_terminal(), conversation_.starts_in_thinking());
      output->push(event);
    };
    auto generation = conversation_.ask(text, params_, hooks);
    if (!output && generation) output.emplace(false, false);
    if (output && !output->finish() && generation) return cannot_write();
    return generation;
  }

  static tl::unexpected<Error> cannot_write() {
    return fail(ErrorCode::io, "standard output: cannot write: {}", std::strerror(errno));
  }

  std::string cut_short(const Generation& g) const {
    if (g.finish == FinishReason::interrupted) return "interrupted";
    if (static_cast<int>(g.tokens.size()) == params_.max_tokens) return "cut at --max-tokens";
    return "cut: the context is full; /reset forgets it, --context keeps more";
  }

  std::string json_line(const Generation& g) const {
    nlohmann::ordered_json json{{"turn", totals_.turns}};
    if (!g.tokens.empty()) {
      const ChatMessage& reply = conversation_.messages().back();
      json["content"] = *reply.content;
      json["reasoning_content"] =
          reply.reasoning_content ? nlohmann::ordered_json(*reply.reasoning_content) : nullptr;
    }
    json.update(to_json(g, seed_));
    return json.dump();
  }

  const ChatFlags& flags_;
  Conversation conversation_;
  GenerateParams params_;
  std::uint64_t seed_;
  LineReader reader_;
  Totals totals_;
};

Result<int> chat(const ChatFlags& flags) {
  GenerateParams params;
  params.max_tokens = std::numeric_limits<int>::max();
  if (flags.max_tokens) {
    KIPP_TRY_ASSIGN(max_tokens, parse_int("--max-tokens", *flags.max_tokens));
    if (max_tokens < 1) {
      return fail(ErrorCode::invalid, "--max-tokens: expected at least 1, found {}", max_tokens);
    }
    params.max_tokens = max_tokens;
  }
  // Every value is checked before a model is opened, which may take a while.
  const std::uint64_t seed = random_seed();
  KIPP_TRY(sampling_params(flags.sampling, {}, seed));
  KIPP_TRY(check(flags.speculation));
  KIPP_TRY_ASSIGN(opened, open_model(flags.model, kDefaultContext));
  const Checkpoint& checkpoint = opened.model->checkpoint();
  KIPP_TRY_ASSIGN(sampling, sampling_params(flags.sampling, checkpoint.sampling, seed));
  params.sampling = sampling;
  KIPP_TRY_ASSIGN(speculation, open_speculation(flags.speculation, flags.model, *opened.model,
                                                opened.session.capacity()));
  params.speculation = speculation;
  if (flags.verbose) fmt::print(stderr, "{}\n{}\n", describe(opened), describe(sampling));

  KIPP_TRY_ASSIGN(conversation, Conversation::create(opened.model, std::move(opened.session)));
  if (flags.system) conversation.set_system(*flags.system);
  if (flags.thinking || flags.no_thinking) {
    KIPP_TRY(conversation.set_thinking(flags.thinking));
  }
  return Chat(flags, std::move(conversation), std::move(params)).run();
}

}  // namespace

void add_chat_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("chat", "Talk with an instruct checkpoint.");
  static ChatFlags flags;
  command->add_option("--system", flags.system, "The system message.");
  command
      ->add_option("--max-tokens", flags.max_tokens,
                   "The longest answer. Default: what the context holds.")
      ->type_name("NUMBER");
  CLI::Option* thinking =
      command->add_flag("--thinking", flags.thinking, "Answers may begin with reasoning.");
  command->add_flag("--no-thinking", flags.no_thinking, "Answers come without reasoning.")
      ->excludes(thinking);
  add_model_flags(*command, flags.model);
  add_sampling_flags(*command, flags.sampling);
  add_speculation_flags(*command, flags.speculation);
  command->add_flag("--json", flags.json, "Print one JSON object per answer instead of its text.");
  command->add_flag("--verbose", flags.verbose,
                    "Say what was opened, and of each turn what was reused and how fast it was.");
  command->callback([&exit_code] {
    const auto code = chat(flags);
    exit_code = code ? *code : report_error("chat", code.error());
  });
}

}  // namespace kipp

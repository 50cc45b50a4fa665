// Scheduler scenarios as text. One command a line, `#` begins a comment:
//
//   engine step=16 beside=4 sequences=4 blocks=64    first; what is not named keeps its default
//                                                    (also rows, positions)
//   submit a prompt=40 max=3                         a request named a; like=b/32: the first 32
//                                                    tokens of its prompt are those of b's;
//                                                    logprobs=5: and log-probabilities of its
//                                                    prompt
//   cancel a
//   fail                                             the next step fails in the backend
//   step b[3,4)* a[0,4)                              one step with exactly these items: positions,
//                                                    * where the last token's logits are wanted,
//                                                    ** where those of all are
//   step                                             nothing to do
//   ends a length                                    and these requests, in this order, ended by
//                                                    the command before
//
// Every ending must be named, and at the end nobody may hold a block.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "support/engine_harness.h"

namespace kipp::test {

class ScenarioRun {
 public:
  void command(const std::string& line) {
    std::istringstream in(line.substr(0, line.find('#')));
    std::string verb;
    if (!(in >> verb)) return;
    if (verb == "ends") return expect_end(in);
    expect_no_more_ends();
    if (verb == "engine") return create(in);
    ASSERT_TRUE(core_) << "expected \"engine\" first";
    if (verb == "submit") return submit(in);
    if (verb == "step") return step(in);
    std::string name;
    if (verb == "cancel" && in >> name) return core_->core->cancel(ids_.at(name));
    if (verb == "fail") {
      fails_ = true;
      return;
    }
    FAIL() << "unknown command";
  }

  void finish() {
    expect_no_more_ends();
    ASSERT_TRUE(core_);
    core_->expect_at_rest();
  }

 private:
  using Settings = std::map<std::string, std::string>;

  static Settings settings(std::istream& in) {
    Settings out;
    for (std::string word; in >> word;) {
      const auto equals = word.find('=');
      out[word.substr(0, equals)] = equals == word.npos ? "" : word.substr(equals + 1);
    }
    return out;
  }
  static void take(Settings& settings, const std::string& name, int& value) {
    const auto at = settings.find(name);
    if (at == settings.end()) return;
    value = std::stoi(at->second);
    settings.erase(at);
  }

  void create(std::istream& in) {
    Settings given = settings(in);
    HistoryLimits limits;
    EngineOptions options;
    options.max_sequences = 8;
    take(given, "blocks", limits.blocks);
    take(given, "step", limits.max_step_tokens);
    take(given, "rows", limits.max_logit_rows);
    take(given, "beside", options.prompt_tokens_beside_generation);
    take(given, "sequences", options.max_sequences);
    take(given, "positions", options.max_positions);
    ASSERT_TRUE(given.empty()) << "unknown setting: " << given.begin()->first;
    core_ = std::make_unique<CoreHarness>(limits, options);
    core_->backend.on_eval = [this](std::span<const EvalItem> items) -> Result<void> {
      for (const EvalItem& item : items) found_ += describe(item);
      if (std::exchange(fails_, false)) return fail(ErrorCode::io, "device: lost");
      return {};
    };
  }

  void submit(std::istream& in) {
    std::string name;
    in >> name;
    Settings given = settings(in);
    int n_prompt = 0;
    Request request;
    request.sampling.temperature = 0;
    request.ignore_eos = true;
    take(given, "prompt", n_prompt);
    take(given, "max", request.max_tokens);
    take(given, "logprobs", request.prompt_logprobs);
    const auto seed = static_cast<Token>(names_.size());
    for (int i = 0; i < n_prompt; ++i) request.prompt.push_back(seed * 1000 + i);
    if (const auto like = given.find("like"); like != given.end()) {
      const auto slash = like->second.find('/');
      const auto& other = prompts_.at(like->second.substr(0, slash));
      std::copy_n(other.begin(), std::stoi(like->second.substr(slash + 1)), request.prompt.begin());
      given.erase(like);
    }
    ASSERT_TRUE(given.empty()) << "unknown setting: " << given.begin()->first;
    prompts_[name] = request.prompt;
    ids_[name] = core_->submit(std::move(request));
    names_[ids_[name]] = name;
  }

  std::string describe(const EvalItem& item) const {
    return " " + names_.at(static_cast<RequestId>(item.seq)) +
           fmt::format("[{},{}){}", item.pos, item.pos + static_cast<int>(item.tokens.size()),
                       item.want == LogitRows::none   ? ""
                       : item.want == LogitRows::last ? "*"
                                                      : "**");
  }

  void step(std::istream& in) {
    std::string expected;
    for (std::string item; in >> item;) (expected += ' ') += item;
    found_.clear();
    core_->step();
    EXPECT_EQ(found_, expected);
  }

  // Those that ended since the last look, as "name how", in the order of the requests.
  void collect_ends() {
    for (const auto& [id, received] : core_->received) {
      if (!received.ended() || ended_.contains(id)) continue;
      EXPECT_TRUE(received.ended_once());
      ended_[id] = true;
      ends_.push_back(names_.at(id) + " " + received.how());
    }
  }
  void expect_end(std::istream& in) {
    std::string name, how;
    in >> name >> how;
    collect_ends();
    ASSERT_FALSE(ends_.empty()) << "nothing ended";
    EXPECT_EQ(ends_.front(), name + " " + how);
    ends_.erase(ends_.begin());
  }
  void expect_no_more_ends() {
    if (!core_) return;
    collect_ends();
    EXPECT_EQ(ends_, std::vector<std::string>{}) << "ended unnamed, before this line";
    ends_.clear();
  }

  std::unique_ptr<CoreHarness> core_;
  std::map<std::string, RequestId> ids_;
  std::map<RequestId, std::string> names_;
  std::map<std::string, std::vector<Token>> prompts_;
  std::map<RequestId, bool> ended_;
  std::vector<std::string> ends_;
  std::string found_;
  bool fails_ = false;
};

inline void run_scenario(const std::filesystem::path& path) {
  std::ifstream in(path);
  ASSERT_TRUE(in) << path;
  ScenarioRun run;
  int n = 0;
  for (std::string line; std::getline(in, line);) {
    SCOPED_TRACE(fmt::format("{}:{}: {}", path.filename().string(), ++n, line));
    run.command(line);
    if (testing::Test::HasFatalFailure()) return;
  }
  SCOPED_TRACE("at the end");
  run.finish();
}

}  // namespace kipp::test

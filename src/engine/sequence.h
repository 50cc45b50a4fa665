// One request from submit to its terminal event: its tokens, how far they are evaluated, its
// blocks, and what its reader has been told.
//
//     waiting ---admit---> prompt ---last token of the prompt evaluated---> generate
//        |                   |                                                |
//        +-------------------+--------- finish or fail, once ----------------+
//
// Made on the caller's thread, used on the engine's.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/clock.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/stored_blocks.h"
#include "engine/text_stream.h"
#include "kv/block_pool.h"
#include "kv/block_table.h"

namespace kipp {

// One of a limited number of places, counted while it is held.
struct GiveUpPlace {
  void operator()(std::atomic<int>* n_held) const { n_held->fetch_sub(1); }
};
using Place = std::unique_ptr<std::atomic<int>, GiveUpPlace>;

class Sequence {
 public:
  struct Setting {
    const Tokenizer* tokenizer;
    std::span<const Token> stop_tokens;
    int capacity;  // the most positions a sequence may evaluate
    const Clock* clock;
    const Speculation* speculation;
  };

  // Refuses values out of range and a prompt that does not fit, in a sentence.
  static Result<std::unique_ptr<Sequence>> create(RequestId id, Request request, EventSink sink,
                                                  Place place, const Setting& setting);

  RequestId id() const { return id_; }
  // Positions that are promised to it when it is admitted: the worst case.
  int positions() const { return positions_; }

  // Takes a promise of blocks from the pool, and what is cached of the prompt; false, and nothing
  // changed, when the pool cannot give it now.
  bool admit(BlockPool& pool);

  // The rest: once admitted.

  // Looks for what is stored of its prompt beyond what it has. True: nothing but restore() or the
  // end until that is done, or failed, in which case it is to be admitted once more.
  bool begin_restore(SessionStore& store, const BlockPool& pool);
  BlockRestore::State restore(BlockPool& pool, Backend& backend, std::size_t& bytes);

  SequenceProgress progress() const;
  // While it generates: proposes tokens for its next step, which progress() and item() then include
  // until accept(). n_generating: sequences that do, this one included.
  void propose(int n_generating);
  // Skips what others have published of its prompt since; returns how many tokens.
  int look_for_prefix();
  // Its share of a step, with the blocks for it; valid until the sequence changes.
  EvalItem item(const PlannedItem& planned);
  // How its request has ended: finish() is due, while these logits are there.
  struct Ending {
    FinishReason reason;
    std::span<const float> logits;  // of its last evaluated token
  };
  // The step was evaluated: `rows` are the logits of the item's last tokens. Draws, forgets what
  // was proposed and not drawn, publishes full blocks, tells the reader.
  std::optional<Ending> accept(const PlannedItem& planned, const LogitsView& rows);

  // Terminal, in any state. Blocks and place go back first, so that whoever hears of the end can
  // have them. `last_logits`: while they are there. Returns the reason that the reader was told: a
  // stop string may complete only here.
  FinishReason finish(FinishReason reason, std::span<const float> last_logits = {});
  void fail(const Error& error);

  int cached_tokens() const { return cached_; }
  int generated_tokens() const { return static_cast<int>(generated().size()); }
  // Of the prompt, by itself.
  int evaluated_prompt_tokens() const { return std::min(evaluated_, n_prompt_) - cached_; }
  // What came of proposals, as of the last accept().
  const SpeculationStats& speculated() const { return speculated_; }

 private:
  Sequence(RequestId id, Request request, EventSink sink, TextStream text, Place place,
           const Setting& setting);

  std::span<const Token> prompt() const { return std::span(tokens_).first(n_prompt()); }
  // The prompt and what was drawn.
  std::span<const Token> timeline() const {
    return std::span(tokens_).first(tokens_.size() - static_cast<std::size_t>(n_proposed_));
  }
  std::span<const Token> generated() const { return timeline().subspan(n_prompt()); }
  std::span<const Token> evaluated() const {
    return std::span(tokens_).first(static_cast<std::size_t>(evaluated_));
  }
  std::size_t n_prompt() const { return static_cast<std::size_t>(n_prompt_); }

  std::span<const Token> stop_tokens() const {
    return request_.ignore_eos ? std::span<const Token>() : setting_.stop_tokens;
  }

  bool scores_prompt() const { return request_.prompt_logprobs >= 0; }

  void release();
  void report_prompt();
  void report_prompt_logprobs(const PlannedItem& planned, const LogitsView& rows);
  void publish();
  std::optional<FinishReason> draw(std::span<const float> logits);
  Timings timings() const;

  const RequestId id_;
  std::vector<Token> tokens_;  // the prompt, what was drawn, within a step what is proposed
  const Request request_;      // its prompt has moved to tokens_
  EventSink sink_;
  TextStream text_;
  Place place_;
  const Setting setting_;
  const int n_prompt_;
  const int positions_;
  int evaluated_ = 0;   // of tokens_: their keys and values are in table_
  int cached_ = 0;      // of the prompt: evaluated by others
  int n_proposed_ = 0;  // of tokens_, the last ones
  std::optional<BlockTable> table_;
  std::optional<BlockRestore> restore_;   // until it is done
  std::optional<Speculator> speculator_;  // while admitted, where anybody speculates
  std::vector<Token> proposed_;           // scratch of accept()
  SpeculationStats speculated_;
  const Clock::Time submitted_;
  std::optional<Clock::Time> began_;       // with the prompt
  std::optional<Clock::Time> generating_;  // since the prompt was evaluated
};

}  // namespace kipp

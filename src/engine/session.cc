#include "engine/session.h"

#include <algorithm>
#include <utility>

#include "backend/registry.h"
#include "kv/block_allocator.h"
#include "kv/block_table.h"
#include "model/step_plan.h"

namespace kipp {

// Declared in the order of dependence: the backend refers to the artifact.
struct Model::Impl {
  Artifact artifact;
  Tokenizer tokenizer;
  std::unique_ptr<Backend> backend;
  BlockAllocator allocator;
  SeqId next_sequence = 0;
};

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

Result<std::shared_ptr<Model>> Model::open(const std::string& path, const ModelOptions& options) {
  KIPP_TRY_ASSIGN(backend, make_backend(options.backend));
  KIPP_TRY_ASSIGN(artifact,
                  Artifact::open(path, OpenOptions{.allow_synthetic = options.allow_synthetic}));
  const int blocks =
      options.kv_blocks != 0 ? options.kv_blocks : blocks_for(artifact.config().context_length);
  if (blocks < 0) {
    return fail(ErrorCode::invalid, "kv_blocks: expected at least 1, found {}", blocks);
  }
  auto impl = std::unique_ptr<Impl>(new Impl{.artifact = std::move(artifact),
                                             .tokenizer = {},
                                             .backend = std::move(backend),
                                             .allocator = BlockAllocator(blocks)});
  KIPP_TRY(impl->backend->load(impl->artifact, {.blocks = blocks, .store = options.kv_store},
                               options.load));
  return std::shared_ptr<Model>(new Model(std::move(impl)));
}

const Artifact& Model::artifact() const { return impl_->artifact; }
const Checkpoint& Model::checkpoint() const { return impl_->artifact.checkpoint(); }
const Tokenizer& Model::tokenizer() const { return impl_->tokenizer; }
Backend& Model::backend() { return *impl_->backend; }

// `tokens` are exactly the positions whose keys and values the blocks hold: it grows only after an
// eval that succeeded, so an error or an interruption leaves a shorter timeline, never a wrong one.
struct Session::Impl {
  std::shared_ptr<Model>
      model;  // first, so that it is destroyed last: the table gives its blocks back to it
  SeqId sequence;
  int capacity;
  BlockTable table;
  std::vector<Token> tokens;
  std::vector<float> last_logits;  // [kVocabRows] of tokens.back() when have_logits
  bool have_logits = false;

  int length() const { return static_cast<int>(tokens.size()); }
  void cut(int to) {
    tokens.resize(static_cast<std::size_t>(to));
    have_logits = false;
  }
  Result<void> room_for(std::size_t total) const;
  Result<LogitsView> eval(std::span<const Token> chunk, LogitRows want);
};

Result<void> Session::Impl::room_for(std::size_t total) const {
  if (total > static_cast<std::size_t>(capacity)) {
    return fail(ErrorCode::exhausted, "session: {} tokens do not fit into its capacity of {}",
                total, capacity);
  }
  return {};
}

Result<LogitsView> Session::Impl::eval(std::span<const Token> chunk, LogitRows want) {
  const int end = length() + static_cast<int>(chunk.size());
  const EvalItem item{.seq = sequence,
                      .pos = length(),
                      .tokens = chunk,
                      .blocks = table.covering(end),
                      .want = want};
  have_logits = false;
  KIPP_TRY_ASSIGN(view, model->backend().eval(std::span(&item, 1)));
  tokens.insert(tokens.end(), chunk.begin(), chunk.end());
  if (want != LogitRows::none) {
    const auto last = view.row(view.rows - 1);
    std::copy(last.begin(), last.end(), last_logits.begin());
    have_logits = true;
  }
  return view;
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::create(std::shared_ptr<Model> model, int capacity) {
  const int context = model->artifact().config().context_length;
  if (capacity < 1 || capacity > context) {
    return fail(ErrorCode::invalid, "capacity: expected 1 to {} positions, found {}", context,
                capacity);
  }
  KIPP_TRY_ASSIGN(table, BlockTable::reserve(model->impl_->allocator, capacity));
  const SeqId sequence = model->impl_->next_sequence++;
  auto impl = std::unique_ptr<Impl>(new Impl{.model = std::move(model),
                                             .sequence = sequence,
                                             .capacity = capacity,
                                             .table = std::move(table),
                                             .tokens = {},
                                             .last_logits = std::vector<float>(kVocabRows)});
  impl->tokens.reserve(static_cast<std::size_t>(capacity));
  return Session(std::move(impl));
}

Result<int> Session::sync(std::span<const Token> prompt, const Progress& progress,
                          const std::atomic<bool>* cancel) {
  Impl& s = *impl_;
  if (prompt.empty()) {
    return fail(ErrorCode::invalid, "prompt: expected at least one token, found none");
  }
  KIPP_TRY(s.room_for(prompt.size()));
  KIPP_TRY(validate_tokens(prompt, "prompt"));

  const auto differs = std::ranges::mismatch(s.tokens, prompt).in1;
  const auto common = static_cast<int>(differs - s.tokens.begin());
  const int total = static_cast<int>(prompt.size());
  const int reused = std::min(common, total - 1);
  s.cut(reused);

  if (progress) progress(reused, total);
  while (s.length() < total) {
    if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) {
      return fail(ErrorCode::interrupted, "prompt: interrupted after {} of {} tokens", s.length(),
                  total);
    }
    const int n = std::min(s.model->backend().info().max_step_tokens, total - s.length());
    const auto chunk =
        prompt.subspan(static_cast<std::size_t>(s.length()), static_cast<std::size_t>(n));
    const bool last = s.length() + n == total;
    KIPP_TRY(s.eval(chunk, last ? LogitRows::last : LogitRows::none));
    if (progress) progress(s.length(), total);
  }
  return reused;
}

Result<void> Session::append(Token token) {
  KIPP_TRY(impl_->room_for(impl_->tokens.size() + 1));
  KIPP_TRY(impl_->eval(std::span(&token, 1), LogitRows::last));
  return {};
}

Result<LogitsView> Session::append_scored(std::span<const Token> tokens) {
  KIPP_TRY(impl_->room_for(impl_->tokens.size() + tokens.size()));
  return impl_->eval(tokens, LogitRows::all);
}

Result<void> Session::truncate(int length) {
  if (length < 0 || length > impl_->length()) {
    return fail(ErrorCode::invalid, "length: expected 0 to {} tokens, found {}", impl_->length(),
                length);
  }
  if (length < impl_->length()) impl_->cut(length);
  return {};
}

std::span<const Token> Session::tokens() const { return impl_->tokens; }
int Session::capacity() const { return impl_->capacity; }

std::span<const float> Session::logits() const {
  if (!impl_->have_logits) return {};
  return impl_->last_logits;
}

}  // namespace kipp

#include "engine/session.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "backend/registry.h"
#include "engine/session_file.h"
#include "kv/block_table.h"
#include "model/step_plan.h"

namespace kipp {

namespace {

constexpr int kClaimed = -1;

// Counted among a model's sessions while it lives.
struct LeaveModel {
  void operator()(std::atomic<int>* n_sessions) const { n_sessions->fetch_sub(1); }
};
using InModel = std::unique_ptr<std::atomic<int>, LeaveModel>;

Result<InModel> enter_model(std::atomic<int>& n_sessions) {
  int n = n_sessions.load();
  do {
    if (n == kClaimed) {
      return fail(ErrorCode::invalid,
                  "session: expected a model of its own, found one that an engine runs over");
    }
  } while (!n_sessions.compare_exchange_weak(n, n + 1));
  return InModel(&n_sessions);
}

tl::unexpected<Error> no_room_for(int capacity, const BlockPool& pool) {
  if (pool.tiered()) {
    const auto mib = [](int units) {
      return static_cast<double>(units) * kKvUnitBytes / (1 << 20);
    };
    const PoolStats stats = pool.stats();
    const int blocks = blocks_for(capacity);
    return fail(ErrorCode::exhausted,
                "KV cache: {} positions need {:.1f} MiB, {:.1f} of {:.1f} MiB are not promised",
                capacity, mib(pool.plan().base_units() * blocks + pool.plan().quota(blocks)),
                mib(stats.free_units + stats.idle_units - stats.promised_units),
                mib(stats.total_units));
  }
  return fail(ErrorCode::exhausted,
              "KV cache: {} positions need {} blocks, {} of {} blocks are free", capacity,
              blocks_for(capacity), pool.available(), pool.total());
}

// A hash of what the artifact says it was made from, which the loader has matched with the
// registry.
std::string source_hash(const Artifact& artifact) {
  std::string source(artifact.checkpoint().repository);
  source.append("@").append(artifact.source_revision());
  for (const SourceFile& file : artifact.source_files()) {
    source.append("\n").append(file.name).append(" ").append(file.sha256);
  }
  const XXH128_hash_t hash = XXH3_128bits(source.data(), source.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

SessionOrigin origin_of(const Artifact& artifact, const Backend& backend, const KvPlan& kv) {
  const bool tiered = kv.cache.store == KvStore::tiered;
  return {.checkpoint = std::string(artifact.checkpoint().id),
          .source = source_hash(artifact),
          .scheme = std::string(to_string(artifact.scheme())),
          .kv = tiered                            ? kv.cache.policy.name()
                : kv.cache.store == KvStore::bf16 ? "bf16"
                                                  : "f32",
          .backend = std::string(backend.info().arithmetic),
          .block_bytes = backend.block_bytes(),
          .block_stretches = static_cast<std::size_t>(artifact.config().layers) * 2 * kKvHeads,
          .plane_units =
              tiered ? kv.cache.policy.units_by_plane(artifact.config()) : std::vector<int>()};
}

}  // namespace

// Declared in the order of dependence: the backend refers to the artifact.
struct Model::Impl {
  Artifact artifact;
  Tokenizer tokenizer;
  std::unique_ptr<Backend> backend;
  std::optional<BlockPool> pool;  // like origin, once the backend has found room for its blocks
  KvPlan kv = {};
  SessionOrigin origin = {};
  SeqId next_sequence = 0;

  void hand_over_planes() { kipp::hand_over_planes(*pool, *backend); }
  std::atomic<int> n_sessions = 0;  // kClaimed: none, and one owner has the model to itself
};

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

Result<std::shared_ptr<Model>> Model::open(const std::string& path, const ModelOptions& options) {
  KIPP_TRY_ASSIGN(backend, make_backend(options.backend));
  KIPP_TRY(check_adapter(options.backend, options.load.adapter));
  KIPP_TRY_ASSIGN(artifact,
                  Artifact::open(path, OpenOptions{.allow_synthetic = options.allow_synthetic}));
  const int blocks =
      options.kv_blocks != 0 ? options.kv_blocks : blocks_for(artifact.config().context_length);
  if (blocks < 0) {
    return fail(ErrorCode::invalid, "kv_blocks: expected at least 1, found {}", blocks);
  }
  // Random weights lose nothing.
  if (!options.allow_unproven_kv && artifact.checkpoint().kind != CheckpointKind::synthetic) {
    KIPP_TRY(check_proven(options.kv, artifact.checkpoint().id));
  }
  KIPP_TRY_ASSIGN(
      kv,
      plan_kv(options.kv, options.kv_store, artifact.config(), backend->info().max_step_tokens,
              {.bytes = options.kv_bytes, .blocks = blocks, .sequences = options.kv_sequences}));
  auto impl = std::unique_ptr<Impl>(new Impl{.artifact = std::move(artifact),
                                             .tokenizer = {},
                                             .backend = std::move(backend),
                                             .pool = std::nullopt});
  KIPP_TRY(impl->backend->load(impl->artifact, kv.cache, options.load));
  if (kv.cache.store == KvStore::tiered) {
    impl->pool.emplace(kv.cache.blocks, kv.planes);
  } else {
    impl->pool.emplace(kv.cache.blocks);
  }
  impl->kv = kv;
  impl->origin = origin_of(impl->artifact, *impl->backend, kv);
  return std::shared_ptr<Model>(new Model(std::move(impl)));
}

const Artifact& Model::artifact() const { return impl_->artifact; }
const Checkpoint& Model::checkpoint() const { return impl_->artifact.checkpoint(); }
const Tokenizer& Model::tokenizer() const { return impl_->tokenizer; }
Backend& Model::backend() { return *impl_->backend; }
BlockPool& Model::pool() { return *impl_->pool; }
PoolStats Model::pool_stats() const { return impl_->pool->stats(); }
const KvPlan& Model::kv_plan() const { return impl_->kv; }
const SessionOrigin& Model::origin() const { return impl_->origin; }

Result<std::shared_ptr<Model>> Model::claim(std::shared_ptr<Model> model) {
  int n = 0;
  if (!model->impl_->n_sessions.compare_exchange_strong(n, kClaimed)) {
    return fail(ErrorCode::invalid, "engine: expected a model that nobody else uses, found {}",
                n == kClaimed ? "another engine over it" : fmt::format("{} sessions over it", n));
  }
  Model* claimed = model.get();
  return std::shared_ptr<Model>(
      claimed, [model = std::move(model)](Model*) { model->impl_->n_sessions.store(0); });
}

// `tokens` grows only after an eval that succeeded, so an error or an interruption leaves a shorter
// timeline, never a wrong one. The blocks hold the keys and values of all of them but what a
// truncation could not keep (BlockTable::kept), which catch_up() evaluates again.
// Full blocks are published as soon as their tokens are sure to stay: at the end of sync() and
// append(), before the timeline is led elsewhere, forked or ended. Rows that append_scored() adds
// may be drafts that truncate() takes back.
struct Session::Impl {
  std::shared_ptr<Model>
      model;         // first, so that it is destroyed last: the table gives its blocks back to it
  InModel in_model;  // until the table has given its blocks back
  SeqId sequence;
  int capacity;
  CacheSalt salt;
  BlockTable table;
  std::vector<Token> tokens;
  int n_evaluated = 0;             // of tokens, the first ones
  std::vector<float> last_logits;  // [kVocabRows] of tokens.back() when have_logits
  bool have_logits = false;

  ~Impl() { publish(); }
  int length() const { return static_cast<int>(tokens.size()); }
  std::span<const Token> evaluated() const {
    return std::span(tokens).first(static_cast<std::size_t>(n_evaluated));
  }
  void publish() { table.publish(evaluated()); }
  void cut(int to) {
    tokens.resize(static_cast<std::size_t>(to));
    n_evaluated = std::min(n_evaluated, to);
    have_logits = false;
  }
  // Gives the blocks past `length` back, and those before it that cannot be kept.
  void truncate_table(int to) {
    n_evaluated = table.kept(std::min(to, n_evaluated));
    copy(table.truncate(n_evaluated));
  }
  void copy(const std::optional<BlockCopy>& block) const {
    if (!block) return;
    model->impl_->hand_over_planes();
    model->backend().copy_blocks(std::span(&*block, 1));
  }
  Result<void> room_for(std::size_t total) const;
  // Evaluates what is among the tokens and not in the blocks.
  Result<void> catch_up();
  // The part of a step that appends `chunk`, whose blocks are taken. Not `final`: truncate() may
  // take some of it back.
  EvalItem item(std::span<const Token> chunk, LogitRows want, bool final = true);
  Result<LogitsView> eval(std::span<const Token> chunk, LogitRows want, bool final = true);
  // After a step: `chunk` is evaluated; `last_row` are its last token's logits, if wanted.
  void accept(std::span<const Token> chunk, std::span<const float> last_row);
};

Result<void> Session::Impl::room_for(std::size_t total) const {
  if (total > static_cast<std::size_t>(capacity)) {
    return fail(ErrorCode::exhausted, "session: {} tokens do not fit into its capacity of {}",
                total, capacity);
  }
  return {};
}

Result<void> Session::Impl::catch_up() {
  while (n_evaluated < length()) {
    const int n = std::min(model->backend().info().max_step_tokens, length() - n_evaluated);
    table.grow(n_evaluated, n_evaluated + n);
    model->impl_->hand_over_planes();
    const EvalItem step = {.seq = sequence,
                           .pos = n_evaluated,
                           .tokens = std::span(tokens).subspan(
                               static_cast<std::size_t>(n_evaluated), static_cast<std::size_t>(n)),
                           .blocks = table.covering(n_evaluated + n),
                           .want = LogitRows::none};
    if (const auto view = model->backend().eval(std::span(&step, 1)); !view) {
      publish();  // what the step did not get to is given up
      return tl::unexpected(view.error());
    }
    n_evaluated += n;
    publish();
  }
  return {};
}

// All tokens are evaluated.
EvalItem Session::Impl::item(std::span<const Token> chunk, LogitRows want, bool final) {
  publish();
  const int end = length() + static_cast<int>(chunk.size());
  table.grow(length(), end, final || chunk.size() > kBlockPositions);
  return {.seq = sequence,
          .pos = length(),
          .tokens = chunk,
          .blocks = table.covering(end),
          .want = want};
}

void Session::Impl::accept(std::span<const Token> chunk, std::span<const float> last_row) {
  tokens.insert(tokens.end(), chunk.begin(), chunk.end());
  n_evaluated = length();
  have_logits = !last_row.empty();
  if (have_logits) std::copy(last_row.begin(), last_row.end(), last_logits.begin());
}

Result<LogitsView> Session::Impl::eval(std::span<const Token> chunk, LogitRows want, bool final) {
  KIPP_TRY(catch_up());
  const EvalItem step = item(chunk, want, final);
  model->impl_->hand_over_planes();
  auto view = model->backend().eval(std::span(&step, 1));
  if (!view) {
    publish();
    return view;
  }
  accept(chunk, want == LogitRows::none ? std::span<const float>() : view->row(view->rows - 1));
  if (final) publish();
  return view;
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> Session::create(std::shared_ptr<Model> model, int capacity, CacheSalt salt) {
  const int context = model->artifact().config().context_length;
  if (capacity < 1 || capacity > context) {
    return fail(ErrorCode::invalid, "capacity: expected 1 to {} positions, found {}", context,
                capacity);
  }
  KIPP_TRY_ASSIGN(in_model, enter_model(model->impl_->n_sessions));
  BlockPool& pool = *model->impl_->pool;
  auto table = BlockTable::insure(pool, capacity, salt);
  if (!table) return no_room_for(capacity, pool);
  const SeqId sequence = model->impl_->next_sequence++;
  auto impl = std::unique_ptr<Impl>(new Impl{.model = std::move(model),
                                             .in_model = std::move(in_model),
                                             .sequence = sequence,
                                             .capacity = capacity,
                                             .salt = salt,
                                             .table = *std::move(table),
                                             .tokens = {},
                                             .last_logits = std::vector<float>(kVocabRows)});
  impl->tokens.reserve(static_cast<std::size_t>(capacity));
  return Session(std::move(impl));
}

Result<Session> Session::fork() {
  Impl& s = *impl_;
  KIPP_TRY_ASSIGN(in_model, enter_model(s.model->impl_->n_sessions));
  auto fork = s.table.fork(s.evaluated(), s.capacity);
  if (!fork) return no_room_for(s.capacity, *s.model->impl_->pool);
  s.copy(fork->copy);
  auto impl = std::unique_ptr<Impl>(new Impl{.model = s.model,
                                             .in_model = std::move(in_model),
                                             .sequence = s.model->impl_->next_sequence++,
                                             .capacity = s.capacity,
                                             .salt = s.salt,
                                             .table = std::move(fork->table),
                                             .tokens = {},
                                             .last_logits = s.last_logits,
                                             .have_logits = s.have_logits});
  impl->tokens.reserve(static_cast<std::size_t>(s.capacity));
  impl->tokens = s.tokens;
  impl->n_evaluated = s.n_evaluated;
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

  // A copy, because callers may hand in what tokens() gave them, to have its logits again.
  const std::vector<Token> copy(prompt.begin(), prompt.end());
  prompt = copy;
  const int total = static_cast<int>(prompt.size());
  const auto resumed = s.table.resume(s.evaluated(), prompt);
  s.copy(resumed.copy);
  const int reused = resumed.positions;
  const int at_hand = reused - resumed.found;
  s.cut(at_hand);
  const auto found =
      prompt.first(static_cast<std::size_t>(reused)).subspan(static_cast<std::size_t>(at_hand));
  s.tokens.insert(s.tokens.end(), found.begin(), found.end());
  s.n_evaluated = reused;
  s.model->impl_->pool->count_lookup(static_cast<std::size_t>(total - at_hand));

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
  KIPP_TRY(validate_tokens(std::span(&token, 1), "token"));
  KIPP_TRY(impl_->eval(std::span(&token, 1), LogitRows::last));
  return {};
}

Result<LogitsView> Session::append_scored(std::span<const Token> tokens) {
  KIPP_TRY(impl_->room_for(impl_->tokens.size() + tokens.size()));
  KIPP_TRY(validate_tokens(tokens, "tokens"));
  return impl_->eval(tokens, LogitRows::all, false);
}

Result<void> Session::append_together(std::span<const Step> steps) {
  std::vector<EvalItem> items;
  items.reserve(steps.size());
  for (const Step& step : steps) {
    Impl& s = *step.session->impl_;
    if (std::ranges::count(steps, step.session, &Step::session) > 1) {
      return fail(ErrorCode::invalid, "sessions: expected each once, found one of them twice");
    }
    if (s.model != steps.front().session->impl_->model) {
      return fail(ErrorCode::invalid, "sessions: expected those of one model, found those of two");
    }
    KIPP_TRY(s.room_for(s.tokens.size() + step.tokens.size()));
  }
  if (steps.empty()) {
    return fail(ErrorCode::invalid, "sessions: expected at least one, found none");
  }
  for (const Step& step : steps) KIPP_TRY(step.session->impl_->catch_up());
  for (const Step& step : steps) {
    items.push_back(step.session->impl_->item(step.tokens, LogitRows::last));
  }
  Model& model = *steps.front().session->impl_->model;
  model.impl_->hand_over_planes();
  const auto view = model.backend().eval(items);
  for (int i = 0; const Step& step : steps) {
    Impl& s = *step.session->impl_;
    if (view) s.accept(step.tokens, view->row(i++));
    s.publish();
  }
  if (!view) return tl::unexpected(view.error());
  return {};
}

Result<int> Session::match(std::span<const Token> prompt) {
  KIPP_TRY(validate_tokens(prompt, "prompt"));
  return impl_->table.match(impl_->evaluated(), prompt);
}

Result<void> Session::truncate(int length) {
  if (length < 0 || length > impl_->length()) {
    return fail(ErrorCode::invalid, "length: expected 0 to {} tokens, found {}", impl_->length(),
                length);
  }
  if (length == impl_->length()) return {};
  impl_->truncate_table(length);
  impl_->cut(length);
  return {};
}

Result<void> Session::save(const std::string& path, const ByteProgress& progress) {
  Impl& s = *impl_;
  Backend& backend = s.model->backend();
  KIPP_TRY(s.catch_up());
  s.model->impl_->hand_over_planes();
  const auto blocks = s.table.covering(s.length());
  std::vector<BlockPart> parts;
  for (const BlockId block : blocks) {
    const PlaneBits planes = s.model->pool().held(block);
    parts.push_back({.bytes = backend.block_bytes(planes), .planes = planes});
  }
  return write_session_file(
      path, s.model->origin(), {.tokens = s.tokens, .logits = logits(), .blocks = parts},
      [&](int i, std::span<std::byte> out) {
        return backend.read_block(blocks[static_cast<std::size_t>(i)], out);
      },
      progress);
}

Result<void> Session::restore(const std::string& path, const ByteProgress& progress) {
  Impl& s = *impl_;
  Backend& backend = s.model->backend();
  const PlanePlan& plan = s.model->pool().plan();
  KIPP_TRY_ASSIGN(file, SessionFile::open(path, s.model->origin(), progress));
  const int length = static_cast<int>(file.tokens().size());
  KIPP_TRY(file.check_session(path, [&](int i, PlaneBits planes) -> std::optional<std::size_t> {
    const bool readable = (plan.at_rest(length, i) & ~planes) == 0;
    const bool known = (planes & ~(plan.cached() | plan.open)) == 0;
    return readable && known ? std::optional(backend.block_bytes(planes)) : std::nullopt;
  }));
  KIPP_TRY(s.room_for(file.tokens().size()));
  // What could be refused was. A backend that fails from here on leaves an empty timeline.
  s.publish();
  s.truncate_table(0);
  s.cut(0);
  for (int i = 0; i < file.blocks(); ++i) {
    const BlockId block =
        s.table.grow_restored(length, static_cast<PlaneBits>(file.part(i).planes));
    s.model->impl_->hand_over_planes();
    KIPP_TRY(backend.write_block(block, file.block(i)));
  }
  s.accept(file.tokens(), file.logits());
  s.publish();
  return {};
}

Result<void> Session::keep(int length, std::span<const float> logits) {
  KIPP_TRY(truncate(length));
  std::ranges::copy(logits, impl_->last_logits.begin());
  impl_->have_logits = true;
  impl_->publish();
  return {};
}

std::span<const Token> Session::tokens() const { return impl_->tokens; }
int Session::capacity() const { return impl_->capacity; }
CacheSalt Session::salt() const { return impl_->salt; }
int Session::max_scored() const { return impl_->model->backend().info().max_logit_rows; }

std::span<const float> Session::logits() const {
  if (!impl_->have_logits) return {};
  return impl_->last_logits;
}

}  // namespace kipp

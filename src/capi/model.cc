// Models of the C interface: open, close, what they are, and what of them concerns text.
#include <algorithm>
#include <vector>

#include "capi/boundary.h"
#include "capi/handles.h"
#include "engine/conversation.h"
#include "model/step_plan.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/python_json.h"

namespace kipp::capi {
namespace {

Result<ModelOptions> model_options(const kipp_model_options* given) {
  KIPP_TRY_ASSIGN(options, read_struct(given, "options"));
  // None chosen is refused as "", with the names there are.
  const std::string_view kv_policy = options.kv_policy == nullptr ? "" : options.kv_policy;
  KIPP_TRY_ASSIGN(kv, KvPolicy::parse(kv_policy));
  ModelOptions out{.backend = options.backend == nullptr ? "" : options.backend,
                   .allow_synthetic = options.allow_synthetic != 0,
                   .kv_blocks = options.kv_blocks,
                   .kv_sequences = std::max(1, options.kv_sequences),
                   .kv = kv,
                   .allow_unproven_kv = options.allow_unproven_kv != 0};
  if (options.weights != nullptr) {
    KIPP_TRY_ASSIGN(weights, parse_weight_store(options.weights));
    out.load.weights = weights;
  }
  out.load.threads = options.threads;
  if (options.adapter != nullptr) out.load.adapter = options.adapter;
  if (options.progress != nullptr) {
    out.load.progress = [progress = options.progress, user = options.user](std::uint64_t done,
                                                                           std::uint64_t total) {
      progress(user, done, total);
    };
  }
  return out;
}

Result<std::vector<Json>> json_list(const char* text, const char* name) {
  Json list = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (list.is_discarded() || !list.is_array()) {
    return fail(ErrorCode::invalid, "{}: expected a JSON array, found \"{}\"", name, text);
  }
  if (nested_deeper_than(list, kMaxJsonDepth)) {
    return fail(ErrorCode::invalid, "{}: expected at most {} levels, found more", name,
                kMaxJsonDepth);
  }
  return std::vector<Json>(list.begin(), list.end());
}

Result<ChatMessage> chat_message(const kipp_chat_message& given, int index) {
  Json message = Json::object();
  const auto set = [&message](const char* field, const char* text) {
    if (text != nullptr) message[field] = text;
  };
  set("role", given.role);
  set("content", given.content);
  set("reasoning_content", given.reasoning);
  if (given.tool_calls != nullptr) {
    KIPP_TRY_ASSIGN(calls, json_list(given.tool_calls, "tool_calls"));
    message["tool_calls"] = std::move(calls);
  }
  return parse_chat_message(message, index);
}

Result<ChatOptions> chat_options(const kipp_chat_options* given) {
  KIPP_TRY_ASSIGN(options, read_optional(given, "options"));
  ChatOptions out;
  out.add_generation_prompt = options.no_generation_prompt == 0;
  if (options.thinking != 0) out.enable_thinking = options.thinking > 0;
  if (options.tools != nullptr) {
    KIPP_TRY_ASSIGN(tools, json_list(options.tools, "options.tools"));
    out.tools = std::move(tools);
  }
  return out;
}

}  // namespace
}  // namespace kipp::capi

using namespace kipp;
using namespace kipp::capi;

kipp_status kipp_model_open(const char* path, const kipp_model_options* options,
                            kipp_model** model) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY(need(path, "path"));
    KIPP_TRY(need(model, "model"));
    KIPP_TRY_ASSIGN(agreed, model_options(options));
    auto open = std::make_shared<OpenModel>();
    KIPP_TRY_ASSIGN(loaded, Model::open(path, agreed));
    open->model = std::move(loaded);
    *model = add(std::move(open));
    return {};
  });
}

kipp_status kipp_model_close(kipp_model* model) {
  return guarded([&] { return close(model); });
}

kipp_status kipp_model_info_of(kipp_model* model, kipp_model_info* info) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, find(model));
    KIPP_TRY(checked_size(info, "info"));
    Model& m = *open->model;
    const BackendInfo& backend = m.backend().info();
    const SessionOrigin& origin = m.origin();
    write_struct(info,
                 kipp_model_info{.size = 0,
                                 .id = origin.checkpoint.c_str(),
                                 .scheme = origin.scheme.c_str(),
                                 .backend = origin.backend.c_str(),
                                 .kv_policy = origin.kv.c_str(),
                                 .context_length = m.checkpoint().config.context_length,
                                 .kv_blocks = m.pool().total(),
                                 .threads = backend.threads,
                                 .max_step_tokens = backend.max_step_tokens,
                                 .max_logit_rows = backend.max_logit_rows,
                                 .can_chat = chat_template_for(m.checkpoint()).has_value() ? 1 : 0,
                                 .block_bytes = m.origin().block_bytes});
    return {};
  });
}

kipp_status kipp_model_is_stop(kipp_model* model, int32_t token, int32_t* stop) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, find(model));
    KIPP_TRY(need(stop, "stop"));
    const auto stops = open->model->checkpoint().stop_tokens;
    *stop = std::ranges::find(stops, token) != stops.end() ? 1 : 0;
    return {};
  });
}

kipp_status kipp_model_pool_stats(kipp_model* model, kipp_pool_stats* stats) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, find(model));
    KIPP_TRY(checked_size(stats, "stats"));
    KIPP_TRY_ASSIGN(turn, Turn::take(std::move(open)));
    const PoolStats pool = turn.model().model->pool_stats();
    write_struct(stats, kipp_pool_stats{.size = 0,
                                        .total = pool.total,
                                        .free_blocks = pool.free,
                                        .private_blocks = pool.private_blocks,
                                        .pinned = pool.pinned,
                                        .evictable = pool.evictable,
                                        .reserved = pool.reserved,
                                        .lookups = pool.lookups,
                                        .lookup_tokens = pool.lookup_tokens,
                                        .hit_tokens = pool.hit_tokens,
                                        .published = pool.published,
                                        .deduplicated = pool.deduplicated,
                                        .evictions = pool.evictions});
    return {};
  });
}

kipp_status kipp_model_sampling(kipp_model* model, kipp_sampling* sampling) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, find(model));
    KIPP_TRY(checked_size(sampling, "sampling"));
    const SamplingDefaults& defaults = open->model->checkpoint().sampling;
    kipp_sampling out{};
    if (defaults.sample) {
      out.temperature = defaults.temperature;
      out.top_k = defaults.top_k;
      out.top_p = defaults.top_p;
    }
    write_struct(sampling, out);
    return {};
  });
}

kipp_status kipp_tokenize(kipp_model* model, const char* text, size_t bytes, int32_t control,
                          int32_t* tokens, size_t capacity, size_t* count) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, find(model));
    KIPP_TRY_ASSIGN(all, values(text, bytes, "text"));
    KIPP_TRY(need(count, "count"));
    const std::vector<Token> out = open->model->tokenizer().encode(
        {all.data(), all.size()}, control != 0 ? AddedTokens::as_control : AddedTokens::as_text);
    return give<Token>(out, tokens, capacity, count, "tokens");
  });
}

kipp_status kipp_detokenize(kipp_model* model, const int32_t* tokens, size_t n,
                            int32_t skip_control, char* text, size_t capacity, size_t* count) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, find(model));
    KIPP_TRY_ASSIGN(all, values(tokens, n, "tokens"));
    KIPP_TRY(need(count, "count"));
    KIPP_TRY(validate_tokens(all, "tokens"));
    const std::string out = open->model->tokenizer().decode(all, skip_control != 0);
    return give<char>(out, text, capacity, count, "text");
  });
}

kipp_status kipp_chat_prompt(kipp_model* model, const kipp_chat_message* messages,
                             size_t n_messages, const kipp_chat_options* options, int32_t* tokens,
                             size_t capacity, size_t* count) {
  return guarded([&]() -> Result<void> {
    KIPP_TRY_ASSIGN(open, find(model));
    KIPP_TRY_ASSIGN(given, values(messages, n_messages, "messages"));
    KIPP_TRY(need(count, "count"));
    KIPP_TRY_ASSIGN(agreed, chat_options(options));
    KIPP_TRY_ASSIGN(style, chat_template_for(open->model->checkpoint()));
    std::vector<ChatMessage> conversation;
    for (const kipp_chat_message& message : given) {
      KIPP_TRY_ASSIGN(parsed, chat_message(message, static_cast<int>(conversation.size())));
      conversation.push_back(std::move(parsed));
    }
    KIPP_TRY_ASSIGN(chat, render_chat(style, conversation, agreed));
    return give<Token>(chat.encode(open->model->tokenizer()), tokens, capacity, count, "tokens");
  });
}

// The chat endpoint's requests: a conversation with its tools into the prompt of the official
// template. What would need constrained decoding is refused by name.
#include <algorithm>
#include <span>
#include <utility>

#include "engine/conversation.h"
#include "server/openai_request.h"
#include "server/request_fields.h"
#include "tokenizer/json_reader.h"
#include "tokenizer/python_json.h"

namespace kipp {
namespace {

constexpr std::string_view kThinkingField = "chat_template_kwargs.enable_thinking";

// What decides the prompt, read and not yet rendered.
struct ChatInput {
  ChatTemplate style = ChatTemplate::instruct;
  std::vector<ChatMessage> messages;
  ChatOptions options;
  bool may_think = false;
  bool continues = false;  // the last message, the assistant's, instead of answering it
};

// The template to chat with.
std::optional<ChatTemplate> read_style(const ServedModel& model, Problem& problem) {
  if (const auto style = chat_template_for(*model.checkpoint)) return *style;
  std::string those;
  for (const Checkpoint& checkpoint : checkpoints()) {
    if (!chat_template_for(checkpoint)) continue;
    those += those.empty() ? "" : ", ";
    those += checkpoint.id;
  }
  problem.report("model", fmt::format("expected a checkpoint that was taught to converse ({}), "
                                      "found {}; /v1/completions takes it",
                                      those, model.checkpoint->id));
  return {};
}

std::vector<ChatMessage> read_messages(Fields& fields, Problem& problem) {
  const Json* list = fields.list("messages");
  if (list == nullptr) {
    fields.report("messages", "expected a list of messages, found nothing");
    return {};
  }
  std::vector<ChatMessage> messages;
  for (const Json& json : *list) {
    auto message = parse_chat_message(json, static_cast<int>(messages.size()));
    if (!message) {
      problem.report(message.error());
      break;
    }
    messages.push_back(*std::move(message));
  }
  return messages;
}

void check_schema(const Json& json, const std::string& path, Problem& problem) {
  if (!json.is_object()) {
    problem.report(path, fmt::format("expected an object, found {}", described(json)));
  } else if (nested_deeper_than(json, kMaxBodyDepth)) {
    problem.report(path,
                   fmt::format("expected at most {} nested levels, found more", kMaxBodyDepth));
  }
}

// The template writes the whole object, as it came, into the prompt; here it is only looked at.
void check_tool(const Json& json, const std::string& path, Problem& problem) {
  Fields tool(json, path, problem);
  if (const std::string* type = tool.string("type"); type == nullptr || *type != "function") {
    tool.report("type", fmt::format("expected \"function\", found {}",
                                    type == nullptr ? "nothing" : in_quotes(*type)));
  }
  if (auto function = tool.object("function")) {
    const std::string* name = function->string("name");
    if (name == nullptr || !is_plain_name(*name)) {
      function->report("name", fmt::format("expected 1 to 64 letters, digits, _ or -, found {}",
                                           name == nullptr ? "nothing" : in_quotes(*name)));
    }
    function->string("description");
    if (const Json* parameters = function->value("parameters")) {
      check_schema(*parameters, function->path_of("parameters"), problem);
    }
    if (function->flag("strict")) {
      function->report("strict", "expected false, since answers are not constrained; found true");
    }
    function->finish();
  } else {
    tool.report("function", "expected an object, found nothing");
  }
  tool.finish();
}

// Whether a call may be answered by the tools that are offered.
bool read_tool_choice(Fields& fields) {
  const Json* choice = fields.value("tool_choice");
  if (choice == nullptr || *choice == "auto") return true;
  if (*choice == "none") return false;
  fields.report("tool_choice", fmt::format("expected \"auto\" or \"none\", since answers are not "
                                           "constrained; found {}",
                                           described(*choice)));
  return false;
}

void read_tools(Fields& fields, ChatOptions& options, Problem& problem) {
  const bool offered = read_tool_choice(fields);
  if (const Json* tools = fields.list("tools")) {
    for (std::size_t i = 0; i < tools->size() && !problem; ++i) {
      check_tool((*tools)[i], fmt::format("tools[{}]", i), problem);
      if (offered && !problem) options.tools.push_back((*tools)[i]);
    }
  }
  if (fields.boolean("parallel_tool_calls") == false) {
    fields.report("parallel_tool_calls",
                  "expected true, since answers are not constrained; found false");
  }
  fields.refuse("functions", "expected tools, which took its place; found it used");
  fields.refuse("function_call", "expected tool_choice, which took its place; found it used");
}

// Both fields say what the last message says already.
bool read_continuation(Fields& fields, std::span<const ChatMessage> messages) {
  const bool continues = !messages.empty() && messages.back().role == "assistant";
  const auto check = [&](std::string_view name, bool expected) {
    if (fields.boolean(name).value_or(expected) == expected) return;
    fields.report(name, fmt::format("expected {}, since the last message is {}the assistant's and "
                                    "is {}; found {}",
                                    expected, continues ? "" : "not ",
                                    continues ? "continued" : "answered", !expected));
  };
  check("continue_final_message", continues);
  check("add_generation_prompt", !continues);
  return continues;
}

ChatInput read_chat_input(Fields& fields, const ServedModel& model, Problem& problem) {
  ChatInput input;
  const auto style = read_style(model, problem);
  if (!style) return input;
  input.style = *style;
  input.messages = read_messages(fields, problem);
  read_tools(fields, input.options, problem);
  if (auto kwargs = fields.object("chat_template_kwargs")) {
    input.options.enable_thinking = kwargs->boolean("enable_thinking");
    kwargs->finish();
  }
  const auto thinks = may_think(*model.checkpoint, input.options.enable_thinking, kThinkingField);
  if (thinks) {
    input.may_think = *thinks;
  } else {
    problem.report(thinks.error());
  }
  input.continues = read_continuation(fields, input.messages);
  input.options.add_generation_prompt = !input.continues;
  if (input.continues && !input.messages.back().tool_calls.empty()) {
    problem.report(fmt::format("messages[{}].tool_calls", input.messages.size() - 1),
                   "expected none in a last message, which is continued; found some");
  }
  return input;
}

// Nothing, and a problem, where the template refuses.
RenderedChat render(const ChatInput& input, Problem& problem) {
  auto rendered = render_chat(input.style, input.messages, input.options);
  if (!rendered) {
    problem.report(rendered.error());
    return {};
  }
  if (input.continues) {
    // Up to the end of the message's content: its turn stays open.
    constexpr std::string_view kTurnEnd = "<|im_end|>\n";
    std::string& last = rendered->pieces.back().text;
    last.resize(last.size() - kTurnEnd.size());
  }
  return *std::move(rendered);
}

std::optional<int> read_chat_max_tokens(Fields& fields) {
  const auto older = read_max_tokens(fields, "max_tokens");
  const auto newer = read_max_tokens(fields, "max_completion_tokens");
  if (older && newer && *older != *newer) {
    fields.report("max_completion_tokens",
                  fmt::format("expected the same as max_tokens, {}, found {}", *older, *newer));
  }
  return newer ? newer : older;
}

void read_chat_logprobs(Fields& fields, GenerateCall& call) {
  const bool wanted = fields.flag("logprobs");
  const int top = fields.integer("top_logprobs", 0, kMaxTopLogprobs).value_or(0);
  if (top > 0 && !wanted) fields.report("top_logprobs", "expected only where logprobs is true");
  if (!wanted) return;
  call.logprobs = top;
  call.request.top_logprobs = top;
}

// Fields of OpenAI's that are accepted where they ask for what happens anyway.
void read_formalities(Fields& fields) {
  if (auto format = fields.object("response_format")) {
    const std::string* type = format->string("type");
    if (type == nullptr || *type != "text") {
      format->report("type", fmt::format("expected \"text\", since answers are not constrained; "
                                         "found {}",
                                         type == nullptr ? "nothing" : in_quotes(*type)));
    }
    format->finish();
  }
  if (const Json* modalities = fields.value("modalities");
      modalities != nullptr && *modalities != Json::array({"text"})) {
    fields.report("modalities", "expected [\"text\"], found others");
  }
  if (fields.flag("store"))
    fields.report("store", "expected false, kipp keeps nothing; found true");
  fields.refuse("reasoning_effort",
                "expected chat_template_kwargs.enable_thinking, the one switch there is; found it "
                "used");
}

}  // namespace

ApiResult<GenerateCall> parse_chat(const Json& body, const ServedModel& model,
                                   std::uint64_t fresh_seed) {
  Problem problem;
  Fields fields(body, problem);
  GenerateCall call;
  call.chat = true;
  read_model(fields, model, problem);
  const ChatInput input = read_chat_input(fields, model, problem);
  read_common(fields, model, fresh_seed, call, problem);
  const auto max_tokens = read_chat_max_tokens(fields);
  read_chat_logprobs(fields, call);
  read_formalities(fields);
  fields.finish();
  if (problem) return tl::unexpected(problem.take());

  const RenderedChat rendered = render(input, problem);
  if (problem) return tl::unexpected(problem.take());
  call.prompts.push_back(rendered.encode(*model.tokenizer));
  call.starts_in_thinking = rendered.starts_in_thinking;
  // A message that is continued, and one whose reasoning is off, has its think block closed.
  call.splits_reasoning = input.may_think && !input.continues;
  call.parses_tools = !input.options.tools.empty();
  fit_context(model, max_tokens, {"messages"}, call, problem);
  if (problem) return tl::unexpected(problem.take());
  return call;
}

ApiResult<RenderedPrompt> parse_apply_template(const Json& body, const ServedModel& model) {
  Problem problem;
  Fields fields(body, problem);
  read_model(fields, model, problem);
  const ChatInput input = read_chat_input(fields, model, problem);
  fields.finish();
  if (problem) return tl::unexpected(problem.take());

  const RenderedChat rendered = render(input, problem);
  if (problem) return tl::unexpected(problem.take());
  return RenderedPrompt{rendered.text(), rendered.encode(*model.tokenizer)};
}

}  // namespace kipp

#include "server/served_call.h"

#include <utility>
#include <variant>

#include "base/rng.h"
#include "server/json_text.h"

namespace kipp {
namespace {

constexpr const char* kEventStream = "text/event-stream; charset=utf-8";
constexpr const char* kJson = "application/json";
constexpr const char* kKeepAlive = ": keep-alive\n\n";
constexpr const char* kRetryAfterSeconds = "1";

}  // namespace

ServedCall::ServedCall(const Setting& setting, std::uint64_t number,
                       std::shared_ptr<Exchange> exchange, GenerateCall call, AnswerHead head,
                       Clock::Time arrival)
    : setting_(setting),
      number_(number),
      exchange_(std::move(exchange)),
      call_(std::move(call)),
      answer_(call_, *setting.tokenizer, std::move(head)),
      arrival_(arrival),
      choices_(call_.prompts.size() * static_cast<std::size_t>(call_.n)) {}

Request ServedCall::request_of(int choice) const {
  const int i = choice % call_.n;
  Request request = call_.request;
  request.prompt = call_.prompts[static_cast<std::size_t>(choice / call_.n)];
  // The first choice is the one that a call for one alone would get.
  if (i > 0) {
    request.sampling.seed = draw_bits(call_.request.sampling.seed, static_cast<std::uint64_t>(i));
  }
  return request;
}

void ServedCall::start() {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const int choice = static_cast<int>(i);
    auto id = setting_.engine->submit(
        request_of(choice), [inbox = setting_.inbox, clock = setting_.clock, number = number_,
                             choice](RequestId, Event event) {
          inbox->put({number, choice, clock->now(), std::move(event)});
        });
    if (!id) return abort(api_error(id.error()));
    choices_[i].id = *id;
    choices_[i].submitted = true;
    ++open_;
  }
  if (call_.stream && !exchange_->gone()) {
    exchange_->set_header("Cache-Control", "no-store");
    exchange_->start_stream(kEventStream, setting_.keep_alive.count() > 0 ? kKeepAlive : "",
                            setting_.keep_alive);
    record_.status = 200;
  }
}

void ServedCall::on_event(const InboxEvent& event) {
  Choice& choice = choices_[static_cast<std::size_t>(event.choice)];
  measure(choice, event);
  const bool terminal =
      std::holds_alternative<Finished>(event.event) || std::holds_alternative<Failed>(event.event);
  if (terminal) {
    choice.ended = true;
    --open_;
  }
  // The answer is lost: what the other choices would cost is saved.
  if (std::holds_alternative<Failed>(event.event)) cancel_all();
  if (mute()) return;
  std::string bytes = answer_.on_event(event.choice, event.event);
  if (!bytes.empty()) exchange_->send(std::move(bytes));
  if (answer_.complete()) finish();
}

void ServedCall::measure(Choice& choice, const InboxEvent& event) {
  Metrics& metrics = *setting_.metrics;
  if (std::holds_alternative<PromptProgress>(event.event) && !choice.queue_left) {
    choice.queue_left = true;
    metrics.queued(seconds(event.time - arrival_));
  } else if (const auto* delta = std::get_if<TextDelta>(&event.event); delta && delta->token) {
    if (choice.last_token) {
      metrics.next_token(seconds(event.time - *choice.last_token));
    } else {
      metrics.first_token(seconds(event.time - arrival_));
      if (record_.first_token == 0) record_.first_token = seconds(event.time - arrival_);
    }
    choice.last_token = event.time;
  } else if (const auto* finished = std::get_if<Finished>(&event.event)) {
    metrics.ended(*finished, seconds(event.time - arrival_));
    record_.usage.generated_tokens += finished->usage.generated_tokens;
    if (call_.n == 1 || (&choice - choices_.data()) % call_.n == 0) {
      record_.usage.prompt_tokens += finished->usage.prompt_tokens;
      record_.usage.cached_tokens += finished->usage.cached_tokens;
    }
  } else if (std::holds_alternative<Failed>(event.event)) {
    metrics.failed();
  }
}

void ServedCall::finish() {
  answered_ = true;
  if (call_.stream) {
    exchange_->send(answer_.stream_end());
    exchange_->end_stream();
  } else if (const auto& error = answer_.error()) {
    refuse(*error);
  } else {
    record_.status = 200;
    exchange_->respond(200, kJson, json_text(answer_.whole()));
  }
}

void ServedCall::refuse(const ApiError& why) {
  answered_ = true;
  record_.status = why.status;
  if (why.status == 429 || why.status == 503) {
    exchange_->set_header("Retry-After", kRetryAfterSeconds);
  }
  exchange_->respond(why.status, kJson, json_text(error_object(why)));
}

void ServedCall::abort(const ApiError& why) {
  cancel_all();
  if (mute()) return;
  if (call_.stream && record_.status == 200) {
    answered_ = true;
    exchange_->send(error_event(why) + "data: [DONE]\n\n");
    exchange_->end_stream();
  } else {
    refuse(why);
  }
}

void ServedCall::client_gone() {
  record_.status = 499;
  cancel_all();
}

void ServedCall::cancel_all() {
  for (const Choice& choice : choices_) {
    if (choice.submitted && !choice.ended) setting_.engine->cancel(choice.id);
  }
}

}  // namespace kipp

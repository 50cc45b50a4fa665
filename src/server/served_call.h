// One call of a generating endpoint from the moment it was understood: one engine request for each
// choice, their events into the answer, and the end, whichever comes first: the answer is whole,
// the client has gone, or time is up. The I/O thread's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/event_inbox.h"
#include "server/generate_call.h"
#include "server/http.h"
#include "server/metrics.h"
#include "server/openai_response.h"

namespace kipp {

// How one call was answered, for the log.
struct CallRecord {
  int status = 0;  // 499: the client had gone
  Usage usage;
  double first_token = 0;  // seconds from arrival; 0: none came
};

class ServedCall {
 public:
  struct Setting {
    Engine* engine = nullptr;
    EventInbox* inbox = nullptr;
    Metrics* metrics = nullptr;
    const Tokenizer* tokenizer = nullptr;
    const Clock* clock = nullptr;
    std::chrono::milliseconds keep_alive{0};  // between two comments in a quiet stream; 0: none
  };

  // `number` names it in the inbox. `arrival`: when its request came.
  ServedCall(const Setting& setting, std::uint64_t number, std::shared_ptr<Exchange> exchange,
             GenerateCall call, AnswerHead head, Clock::Time arrival);
  ServedCall(const ServedCall&) = delete;
  ServedCall& operator=(const ServedCall&) = delete;

  // Submits every choice and begins a stream. A choice that the engine refuses takes the others
  // with it; the answer says why.
  void start();
  void on_event(const InboxEvent& event);
  // Ends what is still open; the answer is `why`.
  void abort(const ApiError& why);
  // The client has gone: nobody is answered.
  void client_gone();

  // Every submitted choice has had its terminal event: nothing more will come.
  bool over() const { return open_ == 0; }
  const CallRecord& record() const { return record_; }
  const std::string& user() const { return call_.user; }

 private:
  struct Choice {
    RequestId id = 0;
    bool submitted = false;
    bool ended = false;
    std::optional<Clock::Time> last_token;
    bool queue_left = false;
  };

  Request request_of(int choice) const;
  void refuse(const ApiError& why);
  void cancel_all();
  void measure(Choice& choice, const InboxEvent& event);
  void finish();
  bool mute() const { return answered_ || exchange_->gone(); }

  const Setting setting_;
  const std::uint64_t number_;
  const std::shared_ptr<Exchange> exchange_;
  const GenerateCall call_;
  Answer answer_;
  const Clock::Time arrival_;
  std::vector<Choice> choices_;
  int open_ = 0;  // choices submitted and not ended
  bool answered_ = false;
  CallRecord record_;
};

}  // namespace kipp

// The whole server in one process: HTTP, service and engine on their own threads, a tiny model, and
// clients that come, leave and stay. What each answer says is tests/python/test_serve*.py's; here
// the sanitizers watch the threads meet.
#include "server/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "support/http_client.h"
#include "support/tiny_model.h"

namespace kipp {
namespace {

using namespace std::chrono_literals;
using test::HttpAnswer;
using test::HttpClient;
using testing::EndsWith;
using testing::HasSubstr;

std::string post(std::string_view path, const std::string& body) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
      "{}\r\nConnection: close\r\n\r\n{}",
      path, body.size(), body);
}
std::string get(std::string_view path) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
}

const std::string kStream =
    R"({"prompt": "Once upon a time", "max_tokens": 100000, "ignore_eos": true, "stream": true})";
const std::string kShort =
    R"({"prompt": "Once upon a time", "max_tokens": 4, "ignore_eos": true, "temperature": 0})";

class ServerServiceTest : public testing::Test {
 protected:
  ServerServiceTest() {
    auto server = HttpServer::listen(
        "127.0.0.1", 0, {},
        [this](std::shared_ptr<Exchange> exchange) { service_->handle(std::move(exchange)); });
    EXPECT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
    service_ = std::make_unique<Service>(
        ServiceOptions{.access = {.api_keys = {}, .cors_origins = {}, .hosts = loopback_hosts()}},
        "tiny", *server_);
    io_ = std::thread([this] { server_->run(); });
  }
  ~ServerServiceTest() override {
    if (engine_) on_io([this] { service_->forget_engine(); });
    server_->stop();
    io_.join();
  }

  void on_io(const std::function<void()>& task) {
    std::promise<void> done;
    server_->post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  void serve(const EngineOptions& options) {
    auto engine = Engine::start(model_, options);
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = *std::move(engine);
    on_io([&] {
      service_->serve(engine_.get(),
                      {.id = "tiny",
                       .tokenizer = &model_->tokenizer(),
                       .checkpoint = &model_->checkpoint(),
                       .context_length = kContext},
                      {.checkpoint = "tiny",
                       .scheme = "bf16",
                       .backend = "cpu",
                       .chat = false,
                       .max_open_choices = options.max_sequences + options.max_queue});
    });
  }

  HttpClient client() const { return HttpClient(server_->port()); }
  HttpAnswer ask(const std::string& request) const {
    HttpClient one = client();
    EXPECT_TRUE(one.send(request));
    return one.answer();
  }
  int status(const std::string& request) const { return ask(request).status; }
  void wait_until(const std::function<bool(const EngineStats&)>& holds) const {
    for (const auto end = std::chrono::steady_clock::now() + HttpClient::kPatience;
         std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(1ms)) {
      if (holds(engine_->stats())) return;
    }
    FAIL() << "never happened";
  }
  void expect_at_rest() const {
    wait_until([](const EngineStats& stats) { return stats.running + stats.waiting == 0; });
    const PoolStats pool = engine_->stats().pool;
    EXPECT_EQ(pool.private_blocks + pool.pinned + pool.reserved, 0);
    EXPECT_EQ(pool.free + pool.evictable, pool.total);
  }

  static constexpr int kContext = 1024;
  const std::shared_ptr<Model> model_ =
      test::open_twin_model("tiny-tied", Scheme::bf16, 128, "cpu");
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Service> service_;
  std::thread io_;
};

TEST_F(ServerServiceTest, IsHealthyFromTheModelToTheDrain) {
  EXPECT_THAT(ask(get("/health")).body, HasSubstr("loading"));
  EXPECT_EQ(status(get("/healthz")), 503);
  EXPECT_EQ(status(post("/v1/completions", kShort)), 503);
  EXPECT_EQ(status(get("/metrics")), 200);
  serve({.max_sequences = 2, .max_queue = 2, .max_positions = kContext});
  EXPECT_EQ(status(get("/health")), 200);
  EXPECT_EQ(status(post("/v1/completions", kShort)), 200);
  on_io([this] { service_->drain(); });
  EXPECT_THAT(ask(get("/health")).body, HasSubstr("draining"));
  EXPECT_EQ(status(post("/v1/completions", kShort)), 503);
}

TEST_F(ServerServiceTest, ClientsThatComeAndGoLeaveNothingBehind) {
  serve({.max_sequences = 4, .max_queue = 64, .max_positions = kContext});
  std::vector<std::thread> clients;
  std::atomic<int> answered = 0;
  for (int i = 0; i < 6; ++i) {
    clients.emplace_back([this, i, &answered] {
      for (int turn = 0; turn < 4; ++turn) {
        if ((i + turn) % 2 == 0) {
          answered += status(post("/v1/completions", kShort)) == 200;
        } else {
          HttpClient gone = client();
          EXPECT_TRUE(gone.send(post("/v1/completions", kStream)));
          if (turn % 2 == 0) {
            EXPECT_TRUE(gone.receive_until("data: "));
          }
        }
      }
    });
  }
  for (std::thread& one : clients) one.join();
  EXPECT_EQ(answered, 12);
  expect_at_rest();
}

TEST_F(ServerServiceTest, ManyChoicesAtOnceAreOneAnswer) {
  serve({.max_sequences = 4, .max_queue = 64, .max_positions = kContext});
  const auto answer = ask(
      post("/v1/completions",
           R"({"prompt": ["a", "b", "c"], "n": 4, "max_tokens": 5, "temperature": 1, "seed": 1})"));
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr(R"("index":11)"));
  expect_at_rest();
}

TEST_F(ServerServiceTest, AFullQueueTurnsAwayAndForgetsTheChoicesItHadTaken) {
  serve({.max_sequences = 1, .max_queue = 3, .max_positions = kContext});
  HttpClient first = client();
  ASSERT_TRUE(first.send(post("/v1/completions", kStream)));
  wait_until([](const EngineStats& stats) { return stats.running == 1; });
  const auto refused =
      ask(post("/v1/completions", R"({"prompt": "x", "n": 4, "max_tokens": 5, "temperature": 1})"));
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(refused.has("Retry-After: 1"));
  wait_until([](const EngineStats& stats) { return stats.waiting == 0; });
  first.close();
  expect_at_rest();
}

TEST_F(ServerServiceTest, WhatIsOpenWhenTheEngineGoesIsToldSo) {
  serve({.max_sequences = 2, .max_queue = 8, .max_positions = kContext});
  HttpClient stream = client();
  ASSERT_TRUE(stream.send(post("/v1/completions", kStream)));
  wait_until([](const EngineStats& stats) { return stats.generated_tokens > 3; });
  on_io([this] { service_->forget_engine(); });
  engine_->stop();
  const HttpAnswer answer = stream.answer();
  EXPECT_THAT(answer.body, HasSubstr("stopped before the request had ended"));
  EXPECT_THAT(answer.body, EndsWith("data: [DONE]\n\n"));
  EXPECT_EQ(status(post("/v1/completions", kShort)), 503);
}

}  // namespace
}  // namespace kipp

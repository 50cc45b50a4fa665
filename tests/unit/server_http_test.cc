// The HTTP layer over real sockets: what a client sees, and what a handler hears when the client
// misbehaves or goes away. Requests as bytes alone are server_http_parse_test.cc's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <atomic>
#include <future>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

#include "server/http_server.h"
#include "support/http_client.h"

namespace kipp {
namespace {

using namespace std::chrono_literals;
using test::HttpAnswer;
using test::HttpClient;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// Waits for what another thread brings about.
bool eventually(const std::function<bool()>& holds) {
  for (const auto end = std::chrono::steady_clock::now() + HttpClient::kPatience;
       std::chrono::steady_clock::now() < end; std::this_thread::sleep_for(1ms)) {
    if (holds()) return true;
  }
  return holds();
}

// A server whose handler answers /echo and lets go of /drop; any other request waits in `held`.
class HttpServerTest : public testing::Test {
 protected:
  using Held = std::shared_ptr<Exchange>;

  void start(const HttpLimits& limits = {}) {
    auto server = HttpServer::listen("127.0.0.1", 0, limits, [this](Held exchange) {
      ++handled_;
      const HttpRequest& request = exchange->request();
      if (request.path == "/drop") return;
      if (request.path == "/echo") {
        const std::string text = request.method + " " + request.query + " " + request.body;
        return exchange->respond(200, "text/plain", text);
      }
      exchange->on_gone([this] { ++gone_; });
      if (request.path == "/stream")
        exchange->start_stream("text/event-stream", ": idle\n\n", idle_);
      held_.push_back(std::move(exchange));
      ++holding_;
    });
    ASSERT_TRUE(server) << server.error().message;
    server_ = *std::move(server);
    thread_ = std::thread([this] { server_->run(); });
  }
  void stop() {
    server_->stop();
    if (thread_.joinable()) thread_.join();
  }
  void TearDown() override {
    if (server_ != nullptr) stop();
    held_.clear();
  }

  // On the I/O thread, before it returns.
  void on_io(const std::function<void()>& task) {
    std::promise<void> done;
    server_->post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }
  HttpStats stats() {
    HttpStats stats;
    on_io([&] { stats = server_->stats(); });
    return stats;
  }
  HttpClient client(int receive_buffer = 0) { return HttpClient(server_->port(), receive_buffer); }
  // A client whose request waits in held_.
  HttpClient waiting(std::string_view path, std::string_view behind = "") {
    const int before = holding_;
    HttpClient out = client();
    out.get(path);
    EXPECT_TRUE(eventually([&] { return holding_ > before; }));
    out.send(behind);
    return out;
  }

  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
  std::vector<Held> held_;  // the I/O thread's
  std::chrono::milliseconds idle_{0};
  std::atomic<int> handled_ = 0;
  std::atomic<int> holding_ = 0;
  std::atomic<int> gone_ = 0;
};

TEST_F(HttpServerTest, AnswersRequestAfterRequestOnOneConnection) {
  start();
  HttpClient client = this->client();
  for (const std::string word : {"one", "two", "three"}) {
    client.get("/echo?" + word);
    const HttpAnswer answer = client.answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "GET " + word + " ");
    EXPECT_TRUE(answer.has("Content-Type: text/plain"));
    EXPECT_FALSE(answer.has("Connection: close"));
  }
  client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
  EXPECT_EQ(client.answer().body, "POST  body");
  EXPECT_EQ(stats().requests, 4u);
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInTheirOrder) {
  start();
  HttpClient client = this->client();
  std::string all;
  for (int i = 0; i < 500; ++i) {
    all += "GET /echo?" + std::to_string(i) + " HTTP/1.1\r\nHost: h\r\n\r\n";
  }
  client.send("GET /stream HTTP/1.1\r\nHost: h\r\n\r\n" + all);
  ASSERT_TRUE(eventually([&] { return holding_ == 1; }));
  EXPECT_EQ(handled_, 1) << "the next one waits for the answer to the first";
  on_io([&] {
    held_[0]->send("first");
    held_[0]->end_stream();
  });
  EXPECT_EQ(client.answer().body, "first");
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(client.answer().body, "GET " + std::to_string(i) + " ");
  }
}

TEST_F(HttpServerTest, ClosesWhereTheRequestSaysSo) {
  start();
  for (const char* head : {"GET /echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
                           "GET /echo HTTP/1.0\r\n\r\n"}) {
    HttpClient client = this->client();
    client.send(head);
    const HttpAnswer answer = client.answer();
    EXPECT_EQ(answer.body, "GET  ");
    EXPECT_TRUE(answer.has("Connection: close"));
    EXPECT_TRUE(client.closed());
  }
  HttpClient old = client();
  for (int i = 0; i < 2; ++i) {
    old.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_TRUE(old.answer().has("Connection: keep-alive"));
  }
}

TEST_F(HttpServerTest, AClientThatShutsItsSideStillGetsWhatIsAnsweredAtOnce) {
  start();
  HttpClient client = this->client();
  client.send("GET /echo?1 HTTP/1.1\r\nHost: h\r\n\r\nGET /echo?2 HTTP/1.1\r\nHost: h\r\n\r\n");
  client.shut_sending();
  EXPECT_EQ(client.answer().body, "GET 1 ");
  EXPECT_EQ(client.answer().body, "GET 2 ");
  EXPECT_TRUE(client.closed());
}

TEST_F(HttpServerTest, AsksForABodyThatWaitsToBeAskedFor) {
  start();
  HttpClient client = this->client();
  client.send(
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.receive_until("\r\n\r\n"));
  EXPECT_EQ(client.buffer(), "HTTP/1.1 100 Continue\r\n\r\n");
  client.answer(true);
  client.send("ok");
  EXPECT_EQ(client.answer().body, "POST  ok");
}

TEST_F(HttpServerTest, EveryMethodReachesTheHandlerAndHeadHasNoBody) {
  start();
  HttpClient client = this->client();
  client.send("OPTIONS /echo HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(client.answer().body, "OPTIONS  ");
  client.send("HEAD /echo HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_TRUE(client.answer(true).has("Content-Length: 6"));
  client.send("HEAD /stream HTTP/1.1\r\nHost: h\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return holding_ == 1; }));
  on_io([&] {
    held_[0]->send("nobody sees this");
    held_[0]->end_stream();
  });
  EXPECT_EQ(client.answer(true).status, 200);
  client.get("/echo");
  EXPECT_EQ(client.answer().body, "GET  ");
}

TEST_F(HttpServerTest, RefusesWithAnErrorObjectAndCloses) {
  start({.max_body_bytes = 1000});
  const std::vector<std::pair<std::string, int>> cases = {
      {"nonsense\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n", 413},
      {"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\nExpect: 100-continue\r\n\r\n", 413},
      {"GET / HTTP/1.1\r\nHost: h\r\nA: " + std::string(20'000, 'a') + "\r\n\r\n", 431},
  };
  for (const auto& [bytes, status] : cases) {
    HttpClient client = this->client();
    client.send(bytes);
    const HttpAnswer answer = client.answer();
    EXPECT_EQ(answer.status, status) << bytes;
    EXPECT_TRUE(answer.has("Connection: close"));
    EXPECT_TRUE(answer.has("Content-Type: application/json"));
    EXPECT_THAT(answer.body, StartsWith(R"({"error":{"message":")"));
    EXPECT_THAT(answer.body, HasSubstr(R"("type":"invalid_request_error","param":null,)"));
    EXPECT_TRUE(client.closed());
  }
  EXPECT_EQ(handled_, 0);
  EXPECT_EQ(stats().refused, cases.size());
}

TEST_F(HttpServerTest, RefusesABodyWithoutWaitingForItAndLetsTheClientFinish) {
  start({.max_body_bytes = 1 << 20});
  HttpClient client = this->client();
  client.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 99000000\r\n\r\n");
  EXPECT_EQ(client.answer().status, 413);
  // A reset would end this, and take the answer from clients that read only behind their sending.
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(client.send(std::string(64 << 10, 'a')));
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_TRUE(client.closed());
  bool taken = true;
  for (int i = 0; taken && i < 100; ++i) {
    taken = client.send(std::string(64 << 10, 'a'));
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_FALSE(taken) << "more than a body may hold is not read for the sake of manners";
}

TEST_F(HttpServerTest, StreamsInChunksThatLeaveTogether) {
  start();
  HttpClient client = waiting("/stream");
  ASSERT_TRUE(client.receive_until("\r\n\r\n")) << "the head does not wait for the first piece";
  client.answer(true);
  on_io([&] {
    for (const char* piece : {"a", "", "bc", "def"}) held_[0]->send(piece);
  });
  ASSERT_TRUE(client.receive());
  EXPECT_EQ(client.buffer(), "1\r\na\r\n2\r\nbc\r\n3\r\ndef\r\n") << "one write for one turn";
  on_io([&] { held_[0]->end_stream(); });
  ASSERT_TRUE(client.receive_until("0\r\n\r\n"));
}

TEST_F(HttpServerTest, StreamsToAnOldClientUntilTheEnd) {
  start();
  HttpClient client = this->client();
  client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return holding_ == 1; }));
  on_io([&] {
    held_[0]->send("as it is, ");
    held_[0]->send("to the end");
    held_[0]->end_stream();
  });
  const HttpAnswer answer = client.answer();
  EXPECT_TRUE(answer.has("Connection: close"));
  EXPECT_EQ(answer.body, "as it is, to the end");
  EXPECT_TRUE(answer.complete);
}

TEST_F(HttpServerTest, KeepsASilentStreamAwake) {
  idle_ = 20ms;
  start();
  HttpClient client = waiting("/stream");
  EXPECT_TRUE(client.receive_until("8\r\n: idle\n\n\r\n8\r\n: idle\n\n\r\n"));
  on_io([&] { held_[0]->end_stream(); });
  EXPECT_TRUE(client.answer().complete);
  EXPECT_TRUE(client.silent(60ms)) << "not behind the end";
}

TEST_F(HttpServerTest, AnExchangeThatIsLetGoUnansweredIsA500) {
  start();
  HttpClient client = this->client();
  client.get("/drop");
  const HttpAnswer answer = client.answer();
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, HasSubstr("server_error"));
  client.get("/echo");
  EXPECT_EQ(client.answer().status, 200);
}

TEST_F(HttpServerTest, AnExchangeMayBeLetGoOnAnyThread) {
  start();
  HttpClient client = waiting("/wait");
  Held held;
  on_io([&] { held = std::move(held_[0]); });
  held.reset();
  EXPECT_EQ(client.answer().status, 500);
  EXPECT_EQ(gone_, 0);
}

TEST_F(HttpServerTest, AStreamThatIsLetGoDoesNotLookComplete) {
  start();
  HttpClient client = waiting("/stream");
  ASSERT_TRUE(client.receive_until("\r\n\r\n"));
  on_io([&] { held_.clear(); });
  EXPECT_TRUE(client.closed_or_reset());
  EXPECT_EQ(client.buffer().find("0\r\n\r\n"), std::string::npos);

  HttpClient old = this->client();
  old.send("GET /stream HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return holding_ == 2; }));
  on_io([&] { held_.clear(); });
  EXPECT_FALSE(old.answer().complete);
}

TEST_F(HttpServerTest, HearsOnceOfEachClientThatGoes) {
  start();
  using Leave = void (HttpClient::*)();
  struct Case {
    const char* what;
    const char* path;
    std::string behind;  // sent behind the request
    Leave leave;
  };
  // More than is read ahead of an answer.
  const std::string much(40'000, 'a');
  const std::string next = "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n";
  const std::vector<Case> cases = {
      {"closes while it waits", "/wait", "", &HttpClient::close},
      {"resets while it waits", "/wait", "", &HttpClient::reset},
      {"shuts its side while it waits", "/wait", "", &HttpClient::shut_sending},
      {"closes while it streams", "/stream", "", &HttpClient::close},
      {"resets while it streams", "/stream", "", &HttpClient::reset},
      {"closes behind a second request", "/wait", next, &HttpClient::close},
      {"closes behind much", "/wait", much, &HttpClient::close},
      {"resets behind much", "/stream", much, &HttpClient::reset},
  };
  int before = 0;
  for (const Case& test : cases) {
    HttpClient client = waiting(test.path, test.behind);
    EXPECT_EQ(gone_, before) << test.what;
    (client.*test.leave)();
    ++before;
    EXPECT_TRUE(eventually([&] { return gone_ == before; })) << test.what;
    EXPECT_EQ(stats().vanished, static_cast<std::uint64_t>(before)) << test.what;
  }
  EXPECT_EQ(stats().connections, 0);

  // All that was held is still valid, and none of it is told again.
  on_io([&] {
    for (const Held& held : held_) {
      EXPECT_TRUE(held->gone());
      bool told = false;
      held->on_gone([&] { told = true; });
      EXPECT_TRUE(told) << "at once where the client has gone already";
      held->set_header("A", "b");
      held->send("nobody");
      held->end_stream();
      held->respond(200, "text/plain", "nobody");
    }
  });
  EXPECT_EQ(gone_, before);
}

TEST_F(HttpServerTest, DoesNotHearOfAClientThatGoesWithItsAnswer) {
  start();
  HttpClient client = waiting("/wait");
  std::weak_ptr<Exchange> weak;
  on_io([&] {
    const Held exchange = std::move(held_[0]);
    weak = exchange;
    exchange->on_gone([this, exchange] { ++gone_; });  // as one does
    exchange->respond(200, "text/plain", "answer");
  });
  EXPECT_TRUE(weak.expired()) << "what is answered holds itself no longer";
  EXPECT_EQ(client.answer().body, "answer");
  client.close();
  EXPECT_TRUE(eventually([&] { return stats().connections == 0; }));
  EXPECT_EQ(gone_, 0);
  EXPECT_EQ(stats().vanished, 0u);
}

TEST_F(HttpServerTest, DropsWhoLetsTooMuchPileUpAndNobodyElse) {
  start({.max_unsent_bytes = 256 << 10});
  HttpClient slow = client(4096);
  slow.get("/stream");
  ASSERT_TRUE(eventually([&] { return holding_ == 1; }));
  HttpClient other = waiting("/stream");
  other.answer(true);
  const std::string piece(16 << 10, 'a');
  std::size_t sent = 0;
  for (; gone_ == 0 && sent < 64u << 20; sent += piece.size()) {
    on_io([&] {
      held_[0]->send(piece);
      held_[1]->send("x");
    });
    ASSERT_TRUE(other.receive());
  }
  EXPECT_EQ(gone_, 1);
  EXPECT_LT(sent, 2u << 20);
  EXPECT_EQ(stats().dropped_slow, 1u);
  EXPECT_EQ(stats().vanished, 0u);
}

TEST_F(HttpServerTest, ABigPieceAloneDropsNobody) {
  start({.max_unsent_bytes = 1000});
  HttpClient client = this->client(4096);
  client.get("/stream");
  ASSERT_TRUE(eventually([&] { return holding_ == 1; }));
  on_io([&] {
    held_[0]->send(std::string(512 << 10, 'a'));
    held_[0]->end_stream();
  });
  EXPECT_EQ(client.answer().body.size(), 512u << 10);
}

TEST_F(HttpServerTest, DropsWhoTakesNothingForTheWriteTimeout) {
  start({.write_timeout = 100ms});
  HttpClient client = this->client(4096);
  client.get("/wait");
  ASSERT_TRUE(eventually([&] { return holding_ == 1; }));
  on_io([&] { held_[0]->respond(200, "text/plain", std::string(8 << 20, 'a')); });
  EXPECT_TRUE(eventually([&] { return stats().connections == 0; }));
  EXPECT_EQ(stats().dropped_slow, 1u);
  EXPECT_FALSE(client.answer().complete);
}

TEST_F(HttpServerTest, ASlowReaderThatReadsIsNotDropped) {
  start({.write_timeout = 400ms});
  HttpClient client = this->client(4096);
  client.get("/wait");
  ASSERT_TRUE(eventually([&] { return holding_ == 1; }));
  on_io([&] { held_[0]->respond(200, "text/plain", std::string(300'000, 'a')); });
  ASSERT_TRUE(client.receive_until("\r\n\r\n"));
  for (int i = 0; i < 8; ++i) {  // twice the time-out in all
    std::this_thread::sleep_for(110ms);
    for (int reads = 0; reads < 4; ++reads) client.receive();
  }
  EXPECT_EQ(client.answer().body.size(), 300'000u);
}

TEST_F(HttpServerTest, EndsRequestsThatTakeTooLong) {
  start({.request_timeout = 50ms, .idle_timeout = 400ms});
  HttpClient half = client();
  half.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf");
  const HttpAnswer answer = half.answer();
  EXPECT_EQ(answer.status, 408);
  EXPECT_THAT(answer.body, HasSubstr("within 50 ms"));
  EXPECT_TRUE(half.closed());

  HttpClient mute = client();
  EXPECT_TRUE(mute.closed());

  HttpClient kept = client();
  kept.get("/echo");
  kept.answer();
  EXPECT_TRUE(kept.silent(100ms)) << "between requests there is more time than within one";
  EXPECT_TRUE(kept.closed());

  HttpClient patient = waiting("/wait");
  EXPECT_TRUE(patient.silent(250ms)) << "an answer takes as long as it takes";
}

TEST_F(HttpServerTest, SaysSoWhenAllConnectionsAreTaken) {
  start({.max_connections = 2});
  HttpClient first = waiting("/wait");
  HttpClient second = waiting("/wait");
  HttpClient third = client();
  third.get("/echo");
  const HttpAnswer answer = third.answer();
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.body, HasSubstr("all 2 connections are taken"));
  EXPECT_TRUE(third.closed());
  third.close();
  first.close();
  ASSERT_TRUE(eventually([&] { return stats().connections == 1; }));
  HttpClient fourth = client();
  fourth.get("/echo");
  EXPECT_EQ(fourth.answer().status, 200);
}

TEST_F(HttpServerTest, ServesAgainWhenFileDescriptorsComeBack) {
  start();
  HttpClient before = client();
  before.get("/echo");
  EXPECT_EQ(before.answer().status, 200);

  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  HttpClient late = client();  // connected by the kernel whatever the server does
  const int next = ::dup(0);
  ::close(next);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = limit.rlim_max};
  const auto io_time = [&] {
    timespec time{};
    on_io([&] { ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time); });
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  };
  ASSERT_TRUE(eventually([&] { return stats().connections == 2; }));
  // A socket for the client side only: the server has none left for its own.
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(socket, 0);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(server_->port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const std::string request = "GET /echo HTTP/1.1\r\nHost: h\r\n\r\n";
  ASSERT_GT(::send(socket, request.data(), request.size(), 0), 0);
  const auto used = io_time();
  pollfd poll{.fd = socket, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&poll, 1, 200), 0) << "the server had a file descriptor left";
  EXPECT_LT(io_time() - used, 20ms) << "it tries again and again";
  late.get("/echo");
  EXPECT_EQ(late.answer().status, 200) << "who is connected is served meanwhile";
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(::poll(&poll, 1, 20'000), 1);
  ::close(socket);
}

TEST_F(HttpServerTest, RunsWhatIsPostedInOrderAndOffTheThreadWhatWouldHoldItUp) {
  start();
  std::vector<int> order;
  for (int i = 0; i < 1000; ++i) {
    server_->post([&order, i] { order.push_back(i); });
  }
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  on_io([&] { EXPECT_EQ(order, expected); });

  std::promise<void> release;
  std::promise<std::thread::id> worker;
  std::promise<std::thread::id> back;
  server_->offload(
      [&] {
        release.get_future().wait();
        worker.set_value(std::this_thread::get_id());
      },
      [&] { back.set_value(std::this_thread::get_id()); });
  HttpClient client = this->client();
  client.get("/echo");
  EXPECT_EQ(client.answer().status, 200) << "while the helper works";
  release.set_value();
  EXPECT_NE(worker.get_future().get(), thread_.get_id());
  EXPECT_EQ(back.get_future().get(), thread_.get_id());

  const auto begin = std::chrono::steady_clock::now();
  std::promise<void> later;
  on_io([&] { server_->after(30ms, [&] { later.set_value(); }); });
  later.get_future().wait();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 30ms);
}

TEST_F(HttpServerTest, DrainsWhatIsUnderWay) {
  start();
  HttpClient idle = client();
  idle.get("/echo");
  idle.answer();
  HttpClient streaming = waiting("/stream");
  HttpClient asking = waiting("/wait");
  HttpClient half = client();
  half.send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(half.answer(true).status, 100);

  std::promise<void> drained;
  std::future<void> done = drained.get_future();
  server_->drain([&] { drained.set_value(); });
  EXPECT_TRUE(idle.closed());
  EXPECT_FALSE(client().connected()) << "nobody listens any more";
  EXPECT_EQ(done.wait_for(20ms), std::future_status::timeout);

  half.send("half");
  const HttpAnswer answer = half.answer();
  EXPECT_EQ(answer.body, "POST  half");
  EXPECT_TRUE(answer.has("Connection: close"));
  on_io([&] {
    held_[1]->respond(200, "text/plain", "answer");
    held_[0]->send("more");
    held_[0]->end_stream();
  });
  EXPECT_TRUE(asking.answer().has("Connection: close"));
  EXPECT_EQ(streaming.answer().body, "more");
  EXPECT_TRUE(streaming.closed());
  for (HttpClient* client : {&half, &asking, &streaming}) client->close();
  EXPECT_EQ(done.wait_for(HttpClient::kPatience), std::future_status::ready);
  EXPECT_EQ(gone_, 0);
}

TEST_F(HttpServerTest, StopTellsWhatIsUnderWayAndEndsTheThread) {
  start();
  HttpClient streaming = waiting("/stream");
  HttpClient asking = waiting("/wait");
  on_io([&] { server_->after(1h, [] {}); });
  stop();
  EXPECT_EQ(gone_, 2);
  EXPECT_TRUE(asking.closed_or_reset());
  server_->stop();
  server_->post([] { ADD_FAILURE() << "ran behind the end"; });
  server_->offload([] { ADD_FAILURE() << "ran behind the end"; }, [] {});
}

TEST_F(HttpServerTest, MayBeStoppedBeforeItRuns) {
  auto server = HttpServer::listen("127.0.0.1", 0, {}, [](const Held&) {});
  ASSERT_TRUE(server);
  (*server)->stop();
  (*server)->run();
  auto never = HttpServer::listen("127.0.0.1", 0, {}, [](const Held&) {});
  ASSERT_TRUE(never);
  (*never)->post([] {});
}

TEST_F(HttpServerTest, ListensWhereItIsToldOrSaysWhyNot) {
  start();
  const auto listen = [](const std::string& host, int port) {
    return HttpServer::listen(host, port, {}, [](const Held&) {});
  };
  const auto taken = listen("127.0.0.1", server_->port());
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().message,
            "cannot listen on " + server_->address() + ": the address is already in use");
  const auto unknown = listen("no.such.host.invalid", 8080);
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("no.such.host.invalid:8080"));
  const auto foreign = listen("192.0.2.1", 8080);
  ASSERT_FALSE(foreign);
  EXPECT_THAT(foreign.error().message, HasSubstr("192.0.2.1:8080"));
  const auto range = listen("127.0.0.1", 70'000);
  ASSERT_FALSE(range);
  EXPECT_THAT(range.error().message, HasSubstr("port: expected 0 to 65535, found 70000"));
  const auto name = listen("localhost", 0);
  ASSERT_TRUE(name) << name.error().message;
  EXPECT_GT((*name)->port(), 0);
  EXPECT_FALSE(listen("", 0));
  if (const auto six = listen("[::1]", 0)) {  // where the machine has IPv6 at all
    EXPECT_EQ((*six)->address(), "[::1]:" + std::to_string((*six)->port()));
  }
}

TEST_F(HttpServerTest, ServesTwoHundredStreamsOnOneThread) {
  start();
  constexpr int kStreams = 200;
  constexpr int kPieces = 10;
  const auto heap = [] { return ::mallinfo2().uordblks; };
  std::vector<HttpClient> clients;
  clients.reserve(kStreams);
  held_.reserve(kStreams);
  std::size_t before = 0;
  on_io([&] { before = heap(); });
  for (int i = 0; i < kStreams; ++i) clients.push_back(waiting("/stream"));
  for (HttpClient& client : clients) EXPECT_EQ(client.answer(true).status, 200);
  on_io([&] {
    // The clients' own buffers are in this, too; sanitizers count nothing.
    EXPECT_LT((heap() - before) / kStreams, 16u << 10) << "bytes for a stream that is open";
  });
  for (int piece = 0; piece < kPieces; ++piece) {
    for (std::size_t i = 0; i < clients.size(); ++i) {
      server_->post([this, i, piece] {
        held_[i]->send(std::to_string(i) + ":" + std::to_string(piece) + ";");
      });
    }
  }
  for (std::size_t i = 0; i < clients.size(); ++i) {
    server_->post([this, i] { held_[i]->end_stream(); });
  }
  for (std::size_t i = 0; i < clients.size(); ++i) {
    std::string expected;
    for (int piece = 0; piece < kPieces; ++piece) {
      expected += std::to_string(i) + ":" + std::to_string(piece) + ";";
    }
    std::string body;
    EXPECT_TRUE(clients[i].read_chunks(body));
    EXPECT_EQ(body, expected);
  }
  EXPECT_EQ(gone_, 0);
  EXPECT_EQ(stats().connections, kStreams);
}

}  // namespace
}  // namespace kipp

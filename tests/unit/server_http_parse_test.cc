// Requests from bytes, and the text of answers: what is taken, what is refused and how that is
// said, and that no cut of the bytes makes a difference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "server/http_answer.h"
#include "server/http_parse.h"

namespace kipp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

constexpr HttpLimits kLimits{.max_body_bytes = 100, .max_header_bytes = 4096};

struct Outcome {
  int status = 0;  // of the refusal; 0: none
  std::string message;
  bool done = false;
  bool keep_alive = false;
  HttpRequest request;
  std::size_t used = 0;
};

Outcome outcome_of(HttpRequestReader& reader, std::size_t used) {
  Outcome out;
  out.done = reader.done();
  out.used = used;
  if (reader.refusal()) {
    out.status = reader.refusal()->status;
    out.message = reader.refusal()->message;
  }
  if (out.done) {
    out.keep_alive = reader.keep_alive();
    out.request = reader.take_request();
  }
  return out;
}

// In pieces that end at `cut` and after every `step` bytes from there.
Outcome read(std::string_view bytes, std::size_t cut = std::string_view::npos,
             std::size_t step = std::string_view::npos) {
  HttpRequestReader reader(kLimits);
  std::size_t used = 0;
  std::size_t size = cut;
  while (used < bytes.size() && !reader.done() && !reader.refusal()) {
    used += reader.take(bytes.substr(used, size));
    size = step;
  }
  return outcome_of(reader, used);
}

TEST(HttpRequestReader, ReadsLineHeadersAndBody) {
  const Outcome out = read(
      "POST /v1/x?stream=1&a=%20 HTTP/1.1\r\nHost: h\r\nX-Long:  a b \t\r\nEmpty:\r\n"
      "Content-Length: 5\r\n\r\nhelloGET /next");
  ASSERT_TRUE(out.done) << out.message;
  EXPECT_EQ(out.request.method, "POST");
  EXPECT_EQ(out.request.path, "/v1/x");
  EXPECT_EQ(out.request.query, "stream=1&a=%20");
  EXPECT_THAT(out.request.headers, ElementsAre(Pair("host", "h"), Pair("x-long", "a b"),
                                               Pair("empty", ""), Pair("content-length", "5")));
  EXPECT_EQ(out.request.body, "hello");
  EXPECT_TRUE(out.keep_alive);
  EXPECT_EQ(out.used,
            std::string_view("POST /v1/x?stream=1&a=%20 HTTP/1.1\r\nHost: h\r\n"
                             "X-Long:  a b \t\r\nEmpty:\r\nContent-Length: 5\r\n\r\nhello")
                .size());
}

TEST(HttpRequestReader, JoinsChunksAndKeepsTrailersOutOfTheHeaders) {
  const Outcome out = read(
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n"
      "3;name=\"v\"\r\nabc\r\n0000A\r\n0123456789\r\n0\r\nAuthorization: Bearer x\r\n\r\n");
  ASSERT_TRUE(out.done) << out.message;
  EXPECT_EQ(out.request.body, "abc0123456789");
  EXPECT_TRUE(out.request.header("authorization").empty());
}

TEST(HttpRequestReader, KnowsWhenAConnectionStays) {
  EXPECT_TRUE(read("GET / HTTP/1.1\r\nHost: h\r\n\r\n").keep_alive);
  EXPECT_FALSE(read("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").keep_alive);
  EXPECT_FALSE(read("GET / HTTP/1.0\r\n\r\n").keep_alive);
  EXPECT_TRUE(read("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive);
}

TEST(HttpRequestReader, TakesEveryFormOfTargetThatNamesAPath) {
  EXPECT_EQ(read("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "*");
  EXPECT_EQ(read("GET http://h:80/a?b HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "/a");
  EXPECT_EQ(read("GET HTTP://h HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "/");
  EXPECT_EQ(read("GET http://h?b HTTP/1.1\r\nHost: h\r\n\r\n").request.query, "b");
  EXPECT_EQ(read("\r\n\r\nGET /after/empty/lines HTTP/1.0\r\n\r\n").request.path,
            "/after/empty/lines");
}

struct Bad {
  const char* what;
  std::string bytes;
  int status;
  const char* says;
};

std::vector<Bad> bad_requests() {
  const std::string host = "POST / HTTP/1.1\r\nHost: h\r\n";
  const std::string chunked = host + "Transfer-Encoding: chunked\r\n\r\n";
  return {
      {"no HTTP", "hello\r\n\r\n", 400, "request"},
      {"TLS", std::string("\x16\x03\x01\x02\x00\x01\x00", 7), 400, "request"},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "HTTP/1.1"},
      {"HTTP/0.9", "GET /\r\n\r\n", 400, "request"},
      {"empty lines", "\r\n\r\n\r\n\r\n\r\n\r\n", 400, "empty lines"},
      {"authority", "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", 400, "path"},
      {"no host", "GET / HTTP/1.1\r\n\r\n", 400, "host"},
      {"two hosts", host + "Host: i\r\n\r\n", 400, "host"},
      {"bare LF in the line", "GET / HTTP/1.1\nHost: h\n\n", 400, "request"},
      {"bare LF in a header", host + "A: b\nC: d\r\n\r\n", 400, "request"},
      {"bare CR", host + "A: b\rC: d\r\n\r\n", 400, "request"},
      {"NUL in a header", host + std::string("A: \0b\r\n\r\n", 9), 400, "request"},
      {"NUL in a path", std::string("GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n", 29), 400, "request"},
      {"space before the colon", host + "Content-Length : 1\r\n\r\na", 400, "request"},
      {"no name", host + ": b\r\n\r\n", 400, "request"},
      {"folded", host + "Transfer-Encoding:\r\n chunked\r\n\r\n", 400, "folded"},
      {"length not a number", host + "Content-Length: abc\r\n\r\n", 400, "content-length"},
      {"signed length", host + "Content-Length: +1\r\n\r\na", 400, "content-length"},
      {"negative length", host + "Content-Length: -1\r\n\r\n", 400, "content-length"},
      {"list of lengths", host + "Content-Length: 1, 1\r\n\r\na", 400, "content-length"},
      {"no length", host + "Content-Length:\r\n\r\n", 400, "content-length"},
      {"length beyond 64 bits", host + "Content-Length: 99999999999999999999\r\n\r\n", 400,
       "content-length"},
      {"lengths that differ", host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400,
       "content-length"},
      {"lengths that agree", host + "Content-Length: 1\r\nContent-Length: 1\r\n\r\na", 400,
       "content-length"},
      {"length then chunked",
       host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "encoding"},
      {"chunked then length",
       host + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400, "content-"},
      {"other coding", host + "Transfer-Encoding: gzip\r\n\r\n", 400, "transfer-encoding"},
      {"coding behind chunked", host + "Transfer-Encoding: chunked, identity\r\n\r\n", 400,
       "transfer-encoding"},
      {"look-alike", host + "Transfer-Encoding: xchunked\r\n\r\n", 400, "transfer-encoding"},
      {"quoted", host + "Transfer-Encoding: \"chunked\"\r\n\r\n", 400, "transfer-encoding"},
      {"chunked twice",
       host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
       "transfer-encoding"},
      {"chunked in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
       "transfer-encoding"},
      {"chunk of no number", chunked + "x\r\n", 400, "chunk"},
      {"chunk beyond 64 bits", chunked + "11111111111111111\r\n", 400, "chunk"},
      {"negative chunk", chunked + "-1\r\n", 400, "chunk"},
      {"chunk longer than said", chunked + "1\r\nab\r\n0\r\n\r\n", 400, "chunk"},
      {"bare LF in chunks", chunked + "1\na\n0\n\n", 400, ""},
      {"endless chunk line", chunked + "1;" + std::string(5000, 'a'), 400, "chunk"},
      {"endless zeros", chunked + std::string(5000, '0'), 400, "chunk"},
      {"body too long", host + "Content-Length: 101\r\n\r\n", 413, "at most 100 bytes"},
      {"chunk too long", chunked + "65\r\n", 413, "at most 100 bytes"},
      {"chunks too long together", chunked + "33\r\n" + std::string(0x33, 'a') + "\r\n33\r\n", 413,
       "at most 100 bytes"},
      {"header too long", host + "A: " + std::string(4096, 'a'), 431, "at most 4096 bytes"},
      {"path too long", "GET /" + std::string(4096, 'a'), 431, "at most 4096 bytes"},
      {"trailer too long", chunked + "0\r\nA: " + std::string(4096, 'a'), 431, "trailers"},
      {"too many headers",
       host +
           [] {
             std::string many;
             for (int i = 0; i < 200; ++i) many += "A: b\r\n";
             return many;
           }() +
           "\r\n",
       431, "128"},
      {"other expectation", host + "Expect: a miracle\r\nContent-Length: 1\r\n\r\n", 417, "expect"},
  };
}

TEST(HttpRequestReader, RefusesWhatTwoReadersCouldReadDifferently) {
  for (const Bad& bad : bad_requests()) {
    const Outcome out = read(bad.bytes);
    EXPECT_FALSE(out.done) << bad.what;
    EXPECT_EQ(out.status, bad.status) << bad.what << ": " << out.message;
    EXPECT_THAT(out.message, HasSubstr(bad.says)) << bad.what;
    EXPECT_EQ(out.used, bad.bytes.size()) << bad.what;
  }
}

TEST(HttpRequestReader, NoCutMakesADifference) {
  std::vector<std::string> inputs = {
      "GET /a?b HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\nGET /next HTTP/1.1\r\n",
      "\r\nPOST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcdef",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "2;x=y\r\nab\r\n1\r\nc\r\n0\r\nTrailer: t\r\n\r\nGET /",
  };
  for (const Bad& bad : bad_requests()) {
    if (bad.bytes.size() < 1000) inputs.push_back(bad.bytes);
  }
  for (const std::string& bytes : inputs) {
    const Outcome whole = read(bytes);
    const auto expect_same = [&](const Outcome& cut) {
      ASSERT_EQ(cut.done, whole.done) << bytes;
      ASSERT_EQ(cut.status, whole.status) << bytes;
      ASSERT_EQ(cut.request.path, whole.request.path) << bytes;
      ASSERT_EQ(cut.request.headers, whole.request.headers) << bytes;
      ASSERT_EQ(cut.request.body, whole.request.body) << bytes;
      if (whole.done) {
        ASSERT_EQ(cut.used, whole.used) << bytes;
      }
    };
    expect_same(read(bytes, 1, 1));
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) expect_same(read(bytes, cut));
  }
}

TEST(HttpRequestReader, AsksForTheBodyOnceAndOnlyWhereItIsMissing) {
  const std::string head =
      "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n";
  HttpRequestReader waiting(kLimits);
  waiting.take(head.substr(0, head.size() - 1));
  EXPECT_FALSE(waiting.take_expectation());
  waiting.take("\n");
  EXPECT_TRUE(waiting.take_expectation());
  EXPECT_FALSE(waiting.take_expectation());

  HttpRequestReader sending(kLimits);
  sending.take(head + "a");
  EXPECT_FALSE(sending.take_expectation());

  HttpRequestReader old(kLimits);
  old.take("POST / HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_FALSE(old.take_expectation());
}

TEST(HttpRequestReader, BeginsWithTheFirstByteOfTheRequestLine) {
  HttpRequestReader reader(kLimits);
  EXPECT_FALSE(reader.begun());
  reader.take("\r\n\r");
  EXPECT_FALSE(reader.begun());
  reader.take("\nG");
  EXPECT_TRUE(reader.begun());
}

TEST(HttpAnswer, WritesTheHead) {
  HttpAnswerHead head;
  head.status = 429;
  head.content_type = "application/json";
  head.headers = {{"Retry-After", "5"}};
  head.content_length = 12;
  head.connection = "close";
  EXPECT_EQ(http_head(head, 784111777),
            "HTTP/1.1 429 Too Many Requests\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
            "Content-Type: application/json\r\nContent-Length: 12\r\nConnection: close\r\n"
            "Retry-After: 5\r\n\r\n");
}

TEST(HttpAnswer, HeadersCannotBeginAnother) {
  HttpAnswerHead head;
  head.headers = {{"X-Request-Id", std::string("a\r\nSet-Cookie: b\0c", 18)}};
  const std::string text = http_head(head, 0);
  EXPECT_THAT(text, HasSubstr("X-Request-Id: a  Set-Cookie: b c\r\n"));
  EXPECT_THAT(text, Not(HasSubstr("\r\nSet-Cookie")));
}

TEST(HttpAnswer, AnEmptyPieceIsNoEndOfTheStream) {
  std::string out;
  append_chunk(out, "");
  EXPECT_EQ(out, "");
  append_chunk(out, "0123456789abcdef!");
  EXPECT_EQ(out, "11\r\n0123456789abcdef!\r\n");
}

}  // namespace
}  // namespace kipp

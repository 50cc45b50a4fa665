// What the server hands to browsers: whole, typed, and under a policy that the files themselves
// keep.
#include "server/web_assets.h"

#include <gmock/gmock.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

namespace kipp {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string body(std::string_view path) {
  const WebAsset* asset = find_web_asset(path);
  return asset == nullptr ? "nothing at " + std::string(path) : std::string(asset->body);
}

std::map<std::string, std::string> headers(const WebAsset& asset) {
  const auto list = web_headers(asset);
  return {list.begin(), list.end()};
}

// What the pattern's group found in a text.
std::set<std::string> found(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  std::set<std::string> all;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at) {
    all.insert((*at)[1]);
  }
  return all;
}

TEST(WebAssets, EachFileIsThereUnderItsPathAndType) {
  EXPECT_THAT(body("/"), StartsWith("<!doctype html>"));
  EXPECT_THAT(body("/"), EndsWith("</html>\n"));
  EXPECT_THAT(body("/style.css"), HasSubstr(":root"));
  EXPECT_THAT(body("/app.js"), HasSubstr("import "));
  EXPECT_TRUE(nlohmann::json::accept(body("/openapi.json")));
  EXPECT_EQ(find_web_asset("/index.html"), nullptr);
  EXPECT_EQ(find_web_asset(""), nullptr);
  std::set<std::string_view> paths;
  for (const WebAsset& asset : web_assets()) {
    EXPECT_TRUE(paths.insert(asset.path).second) << asset.path;
    const std::string_view type = asset.path.ends_with(".js")     ? "text/javascript; charset=utf-8"
                                  : asset.path.ends_with(".css")  ? "text/css; charset=utf-8"
                                  : asset.path.ends_with(".json") ? "application/json"
                                                                  : "text/html; charset=utf-8";
    EXPECT_EQ(asset.content_type, type) << asset.path;
  }
}

TEST(WebAssets, WhatThePageAsksForIsServed) {
  const auto linked = found(body("/"), R"re((?:href|src)="([^"#:]+)")re");
  EXPECT_EQ(linked, (std::set<std::string>{"app.js", "style.css", "theme.js"}));
  for (const std::string& name : linked) EXPECT_NE(find_web_asset("/" + name), nullptr) << name;
  for (const WebAsset& asset : web_assets()) {
    for (const std::string& name : found(std::string(asset.body), R"re(from '\./([^']+)')re")) {
      EXPECT_NE(find_web_asset("/" + name), nullptr) << name << " of " << asset.path;
    }
  }
}

TEST(WebAssets, ATagNamesTheBytes) {
  std::set<std::string> tags;
  for (const WebAsset& asset : web_assets()) {
    EXPECT_TRUE(std::regex_match(web_etag(asset), std::regex(R"re("[0-9a-f]{16}")re")));
    EXPECT_EQ(headers(asset).at("ETag"), web_etag(asset));
    tags.insert(web_etag(asset));
    const WebAsset other{asset.path, asset.content_type, asset.body.substr(1)};
    EXPECT_NE(web_etag(other), web_etag(asset));
    const WebAsset retyped{asset.path, "text/plain", asset.body};
    EXPECT_NE(web_etag(retyped), web_etag(asset));
  }
  EXPECT_EQ(tags.size(), web_assets().size());
}

TEST(WebAssets, HeadersLetNothingRunThatIsNotTheirs) {
  for (const WebAsset& asset : web_assets()) {
    const auto sent = headers(asset);
    const std::string& policy = sent.at("Content-Security-Policy");
    for (const char* rule : {"default-src 'none'", "script-src 'self'", "style-src 'self'",
                             "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
                             "frame-ancestors 'none'", "require-trusted-types-for 'script'"}) {
      EXPECT_THAT(policy, HasSubstr(rule));
    }
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
    EXPECT_EQ(sent.at("X-Content-Type-Options"), "nosniff");
    EXPECT_EQ(sent.at("Referrer-Policy"), "no-referrer");
    EXPECT_EQ(sent.at("Cache-Control"), "no-cache");
  }
}

// What the policy would block at best shows as a page that does not work, and only in a browser.
TEST(WebAssets, FilesKeepTheirOwnPolicy) {
  const std::string page = body("/");
  EXPECT_FALSE(std::regex_search(page, std::regex(R"(\sstyle=|\son[a-z]+=|<style|<script>)")));
  EXPECT_FALSE(std::regex_search(page, std::regex(R"re((?:src|href)="(?:https?:)?//)re")));
  for (const WebAsset& asset : web_assets()) {
    if (!asset.path.ends_with(".js")) continue;
    EXPECT_FALSE(std::regex_search(
        std::string(asset.body),
        std::regex(R"(innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function)"
                   R"(|https?://)")))
        << asset.path;
  }
  EXPECT_FALSE(std::regex_search(body("/style.css"), std::regex(R"(url\(|@import)")));
}

}  // namespace
}  // namespace kipp

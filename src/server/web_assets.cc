#include "server/web_assets.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>

// Bytes between two symbols that the assembler sets; cmake/embed.cmake.
#define KIPP_WEB_FILE(name)            \
  extern const char kipp_web_##name[]; \
  extern const char kipp_web_##name##_end[];

extern "C" {
KIPP_WEB_FILE(index_html)
KIPP_WEB_FILE(style_css)
KIPP_WEB_FILE(theme_js)
KIPP_WEB_FILE(app_js)
KIPP_WEB_FILE(answer_js)
KIPP_WEB_FILE(load_js)
KIPP_WEB_FILE(server_js)
KIPP_WEB_FILE(settings_js)
KIPP_WEB_FILE(state_js)
KIPP_WEB_FILE(text_js)
KIPP_WEB_FILE(view_js)
KIPP_WEB_FILE(openapi_json)
}

namespace kipp {
namespace {

constexpr std::string_view kHtml = "text/html; charset=utf-8";
constexpr std::string_view kCss = "text/css; charset=utf-8";
constexpr std::string_view kScript = "text/javascript; charset=utf-8";
constexpr std::string_view kJson = "application/json";

// Scripts and styles come from here alone, nothing inline runs, requests go nowhere else. Trusted
// types make the browser refuse to parse any string as markup, should a script ever try.
constexpr std::string_view kContentSecurityPolicy =
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

std::string_view between(const char* begin, const char* end) {
  return {begin, static_cast<std::size_t>(end - begin)};
}

}  // namespace

#define KIPP_WEB_BODY(name) between(kipp_web_##name, kipp_web_##name##_end)

std::span<const WebAsset> web_assets() {
  static const auto assets = std::to_array<WebAsset>({
      {"/", kHtml, KIPP_WEB_BODY(index_html)},
      {"/style.css", kCss, KIPP_WEB_BODY(style_css)},
      {"/theme.js", kScript, KIPP_WEB_BODY(theme_js)},
      {"/app.js", kScript, KIPP_WEB_BODY(app_js)},
      {"/answer.js", kScript, KIPP_WEB_BODY(answer_js)},
      {"/load.js", kScript, KIPP_WEB_BODY(load_js)},
      {"/server.js", kScript, KIPP_WEB_BODY(server_js)},
      {"/settings.js", kScript, KIPP_WEB_BODY(settings_js)},
      {"/state.js", kScript, KIPP_WEB_BODY(state_js)},
      {"/text.js", kScript, KIPP_WEB_BODY(text_js)},
      {"/view.js", kScript, KIPP_WEB_BODY(view_js)},
      {"/openapi.json", kJson, KIPP_WEB_BODY(openapi_json)},
  });
  return assets;
}

const WebAsset* find_web_asset(std::string_view path) {
  const auto assets = web_assets();
  const auto at = std::ranges::find(assets, path, &WebAsset::path);
  return at == assets.end() ? nullptr : &*at;
}

std::string web_etag(const WebAsset& asset) {
  const XXH64_hash_t type = XXH3_64bits(asset.content_type.data(), asset.content_type.size());
  return fmt::format("\"{:016x}\"",
                     XXH3_64bits_withSeed(asset.body.data(), asset.body.size(), type));
}

std::vector<std::pair<std::string, std::string>> web_headers(const WebAsset& asset) {
  return {{"ETag", web_etag(asset)},
          // Asked for again every time, answered 304: another build is another page.
          {"Cache-Control", "no-cache"},
          {"Content-Security-Policy", std::string(kContentSecurityPolicy)},
          {"X-Content-Type-Options", "nosniff"},
          {"Referrer-Policy", "no-referrer"},
          {"Cross-Origin-Resource-Policy", "same-origin"}};
}

}  // namespace kipp

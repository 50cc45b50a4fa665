// The page at `/` with its scripts and styles, and the OpenAPI document: files of src/server/web
// that cmake/embed.cmake puts into the library.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kipp {

struct WebAsset {
  std::string_view path;  // of the URL
  std::string_view content_type;
  std::string_view body;
};

std::span<const WebAsset> web_assets();

// Null where nothing has that path.
const WebAsset* find_web_asset(std::string_view path);

// A strong one, quotes included; changes with the body and the type.
std::string web_etag(const WebAsset& asset);

// What goes with an asset beside its type: ETag, Cache-Control and what keeps model output, other
// origins and frames from making the page do anything.
std::vector<std::pair<std::string, std::string>> web_headers(const WebAsset& asset);

}  // namespace kipp

#include "capi/boundary.h"

#include <array>
#include <exception>
#include <new>
#include <string_view>

#include "model/config.h"

#define KIPP_TEXT(number) #number
#define KIPP_DOTTED(major, minor, patch) KIPP_TEXT(major) "." KIPP_TEXT(minor) "." KIPP_TEXT(patch)
static_assert(std::string_view(KIPP_VERSION) ==
                  KIPP_DOTTED(KIPP_VERSION_MAJOR, KIPP_VERSION_MINOR, KIPP_VERSION_PATCH),
              "kipp.h says another version than CMakeLists.txt");

namespace kipp::capi {
namespace {

constexpr kipp_status status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid:
      return KIPP_INVALID;
    case ErrorCode::refused:
      return KIPP_REFUSED;
    case ErrorCode::io:
      return KIPP_IO;
    case ErrorCode::network:
      return KIPP_NETWORK;
    case ErrorCode::exhausted:
      return KIPP_EXHAUSTED;
    case ErrorCode::interrupted:
      return KIPP_INTERRUPTED;
  }
  return KIPP_INTERNAL;
}

static_assert(KIPP_VOCAB_ROWS == kVocabRows && KIPP_NAMED_TOKENS == kNamedTokens);

// Of a fixed size, so that running out of memory can be said as well.
thread_local std::array<char, 1024> t_last_error = {};

kipp_status keep(kipp_status status, std::string_view sentence) noexcept {
  const std::size_t n = std::min(sentence.size(), t_last_error.size() - 1);
  std::copy_n(sentence.begin(), n, t_last_error.begin());
  t_last_error[n] = '\0';
  return status;
}

}  // namespace

kipp_status report(const Error& error) noexcept {
  return keep(status_of(error.code), error.message);
}

kipp_status report_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return keep(KIPP_EXHAUSTED, "memory: the operating system has no more");
  } catch (const std::exception& error) {
    return keep(KIPP_INTERNAL, error.what());
  } catch (...) {
    return keep(KIPP_INTERNAL, "a callback threw something");
  }
}

}  // namespace kipp::capi

const char* kipp_version(void) { return KIPP_VERSION; }

const char* kipp_last_error(void) { return kipp::capi::t_last_error.data(); }

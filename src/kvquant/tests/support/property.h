// Properties that hold the library's promises run on this many generated cases, whatever RapidCheck
// is configured to do elsewhere. RC_PARAMS still chooses the seed, and reproduces a failure.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <sstream>
#include <string>
#include <utility>

namespace kvquant::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVQUANT_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KVQUANT_SANITIZED 1
#endif
#endif

// With a sanitizer, ten times slower, enough cases to reach every line and edge.
#ifdef KVQUANT_SANITIZED
constexpr int kPropertyCases = 1000;
#else
constexpr int kPropertyCases = 10000;
#endif

// The body of a TEST whose argument generates its own values: property([] { ... RC_ASSERT ... }).
template <class Property>
void property(Property&& body) {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  rc::detail::TestMetadata metadata;
  metadata.id = std::string(info->test_suite_name()) + "/" + info->name();
  metadata.description = info->name();
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = kPropertyCases;
  const rc::detail::TestResult result =
      rc::detail::checkTestable(std::forward<Property>(body), metadata, params);
  std::ostringstream message;
  rc::detail::printResultMessage(result, message);
  EXPECT_TRUE(result.is<rc::detail::SuccessResult>()) << message.str();
}

}  // namespace kvquant::test

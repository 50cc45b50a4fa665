// A property that runs on as many generated cases as its test asks for (a quarter of them with a
// sanitizer), whatever RapidCheck is configured to do elsewhere. RC_PARAMS still chooses the seed,
// and reproduces a failure.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <sstream>
#include <string>
#include <utility>

#include "support/sanitized.h"

namespace kipp::test {

// The body of a TEST: property(2000, [] { ... *rc::gen ... RC_ASSERT ... }).
template <class Property>
void property(int cases, Property&& body) {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  rc::detail::TestMetadata metadata;
  metadata.id = std::string(info->test_suite_name()) + "/" + info->name();
  metadata.description = info->name();
  rc::detail::TestParams params = rc::detail::configuration().testParams;
  params.maxSuccess = kSanitized ? (cases + 3) / 4 : cases;
  const rc::detail::TestResult result =
      rc::detail::checkTestable(std::forward<Property>(body), metadata, params);
  std::ostringstream message;
  rc::detail::printResultMessage(result, message);
  EXPECT_TRUE(result.is<rc::detail::SuccessResult>()) << message.str();
}

// Of [min, max), all equally likely; rc::gen::inRange keeps near min while cases are small.
template <class T>
rc::Gen<T> among(T min, T max) {
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange(min, max));
}

}  // namespace kipp::test

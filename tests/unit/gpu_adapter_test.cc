// Which adapter is meant by what a user writes, and what is said where none is.
#include "gpu/adapter.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace gpu {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<AdapterInfo> some_adapters() {
  std::vector<AdapterInfo> all(4);
  const char* names[] = {"llvmpipe (LLVM 15)", "Intel UHD 770", "NVIDIA H200", "NVIDIA L4"};
  const char* types[] = {"CPU", "integrated GPU", "discrete GPU", "discrete GPU"};
  for (int i = 0; i < 4; ++i) {
    const auto at = static_cast<std::size_t>(i);
    all[at].index = i;
    all[at].name = names[i];
    all[at].api = "Vulkan";
    all[at].type = types[i];
  }
  return all;
}

int chosen(const std::vector<AdapterInfo>& adapters, std::string_view wanted) {
  const auto found = choose_adapter(adapters, wanted);
  EXPECT_TRUE(found) << found.error().message;
  return found ? found->index : -1;
}

std::string refusal(const std::vector<AdapterInfo>& adapters, std::string_view wanted) {
  const auto found = choose_adapter(adapters, wanted);
  if (found) return "accepted " + found->name;
  EXPECT_EQ(found.error().kind, ErrorKind::no_adapter);
  return found.error().message;
}

TEST(ChooseAdapter, WithoutAWishTakesDiscreteThenIntegratedThenAny) {
  std::vector<AdapterInfo> adapters = some_adapters();
  EXPECT_EQ(chosen(adapters, ""), 2);
  adapters.resize(2);
  EXPECT_EQ(chosen(adapters, ""), 1);
  adapters.resize(1);
  EXPECT_EQ(chosen(adapters, ""), 0);
}

TEST(ChooseAdapter, TakesAnIndexOrAPartOfOneName) {
  const std::vector<AdapterInfo> adapters = some_adapters();
  EXPECT_EQ(chosen(adapters, "0"), 0);
  EXPECT_EQ(chosen(adapters, "3"), 3);
  EXPECT_EQ(chosen(adapters, "llvmPIPE"), 0);
  EXPECT_EQ(chosen(adapters, "h200"), 2);
  EXPECT_EQ(chosen(adapters, "NVIDIA L4"), 3);
}

TEST(ChooseAdapter, RefusesWhatFitsNoneOrSeveralWithTheList) {
  const std::vector<AdapterInfo> adapters = some_adapters();
  for (const char* wanted : {"4", "-1", "99999999999", "radeon", "h200x", "1 "}) {
    const std::string said = refusal(adapters, wanted);
    EXPECT_THAT(said, AllOf(HasSubstr("expected one of 0 \"llvmpipe (LLVM 15)\" (Vulkan, CPU), 1 "),
                            HasSubstr("3 \"NVIDIA L4\" (Vulkan, discrete GPU)"),
                            HasSubstr("found \"" + std::string(wanted) + "\"")))
        << wanted;
  }
  EXPECT_THAT(refusal(adapters, "nvidia"),
              AllOf(HasSubstr("a name that one adapter has, found \"nvidia\", which fits 2 "),
                    HasSubstr("3 \"NVIDIA L4\""), testing::Not(HasSubstr("Intel"))));
  for (const char* wanted : {"", "0", "nvidia"}) {
    EXPECT_THAT(refusal({}, wanted), HasSubstr("found none"));
  }
}

}  // namespace
}  // namespace gpu

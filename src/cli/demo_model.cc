#include "cli/demo_model.h"

#include <span>

#include "base/paths.h"
#include "base/progress.h"
#include "cli/interrupt.h"
#include "convert/demo_pack.h"

// assets/kipp-demo.safetensors.zst, put into the executable by cmake/embed.cmake.
extern "C" const std::byte kipp_demo_checkpoint[];
extern "C" const std::byte kipp_demo_checkpoint_end[];

namespace kipp {

Result<std::string> demo_model_path() {
  KIPP_TRY_ASSIGN(home, kipp_home());
  // The hash in the name makes a new kipp unpack its own checkpoint beside an older one's.
  const auto path =
      home / "models" / fmt::format("kipp-demo-{}.gguf", kDemoArtifactSha256.substr(0, 12));
  std::error_code error;
  if (std::filesystem::exists(path, error)) return path.string();

  fmt::print(stderr, "unpacking the demo checkpoint into {}\n", path.string());
  const std::span packed(kipp_demo_checkpoint, kipp_demo_checkpoint_end);
  ProgressBar bar("unpacking", ProgressUnit::bytes);
  Interrupt interrupt;
  KIPP_TRY(unpack_demo(
      packed, path.string(),
      [&](std::uint64_t done, std::uint64_t total) { bar.update(done, total); },
      &Interrupt::flag()));
  bar.finish();
  return path.string();
}

}  // namespace kipp

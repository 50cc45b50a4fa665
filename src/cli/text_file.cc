#include "cli/text_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>

#include "base/output_file.h"

namespace kipp {

Result<std::string> read_text_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in) return fail(ErrorCode::io, "{}: cannot read: {}", path, std::strerror(errno));
  return text;
}

Result<void> check_writable(const std::string& path) {
  KIPP_TRY(OutputFile::create(path, 0));  // gone again without a trace
  return {};
}

Result<void> write_text_file(const std::string& path, std::string_view text) {
  KIPP_TRY_ASSIGN(file, OutputFile::create(path, text.size()));
  KIPP_TRY(file.write(std::as_bytes(std::span(text))));
  return file.commit();
}

}  // namespace kipp

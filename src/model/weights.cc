#include "model/weights.h"

namespace kipp {

std::string_view to_string(Scheme scheme) {
  switch (scheme) {
    case Scheme::bf16:
      return "bf16";
    case Scheme::q8_0:
      return "q8_0";
    case Scheme::affine4_gs32:
      return "affine4_gs32";
    case Scheme::scale4_gs32:
      return "scale4_gs32";
  }
  return "";
}

Result<Scheme> parse_scheme(std::string_view name) {
  for (const Scheme scheme :
       {Scheme::bf16, Scheme::q8_0, Scheme::affine4_gs32, Scheme::scale4_gs32}) {
    if (name == to_string(scheme)) return scheme;
  }
  return fail(ErrorCode::invalid,
              "scheme: expected bf16, q8_0, affine4_gs32 or scale4_gs32, found \"{}\"", name);
}

}  // namespace kipp

#include "backend/backend.h"

namespace kipp {

std::string_view to_string(WeightStore store) {
  return store == WeightStore::packed ? "packed" : "mapped";
}

Result<WeightStore> parse_weight_store(std::string_view name) {
  for (const WeightStore store : {WeightStore::packed, WeightStore::mapped}) {
    if (name == to_string(store)) return store;
  }
  return fail(ErrorCode::invalid, "weights: expected packed or mapped, found \"{}\"", name);
}

}  // namespace kipp

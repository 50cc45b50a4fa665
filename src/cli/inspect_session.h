// `kipp inspect` of a saved session, or of a stored part of a prefix: whose keys and values they
// are, and what takes the room.
#pragma once

#include <string>

#include "base/types.h"

namespace kipp {

// Whether the file begins as one; false when it cannot be read.
bool begins_as_session(const std::string& path);

// Prints it, or says what is wrong with it. Reads all of it.
Result<void> inspect_session(const std::string& path, bool json);

}  // namespace kipp

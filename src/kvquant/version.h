#pragma once

// Semantic versioning. A change of the block layout or of any code that is written is a new major
// version.
#define KVQUANT_VERSION_MAJOR 1
#define KVQUANT_VERSION_MINOR 0
#define KVQUANT_VERSION_PATCH 0
#define KVQUANT_VERSION "1.0.0"

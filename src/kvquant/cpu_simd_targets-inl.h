// Which instruction sets the SIMD backend is built for: what Highway knows, but for vectors whose
// length is known only at run time, which cannot be members of a class. Included before Highway by
// every source, so that all of them agree.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

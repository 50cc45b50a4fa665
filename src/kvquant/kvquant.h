// The whole library in one include.
#pragma once

#include "kvquant/codec.h"
#include "kvquant/cpu_ref.h"
#include "kvquant/differential.h"
#include "kvquant/kv_backend.h"
#include "kvquant/kv_block.h"
#include "kvquant/kv_scheme.h"
#include "kvquant/status.h"
#include "kvquant/tiered_cache.h"
#include "kvquant/tiered_policy.h"
#include "kvquant/version.h"
#if defined(KVQUANT_HIGHWAY)
#include "kvquant/cpu_simd.h"
#endif

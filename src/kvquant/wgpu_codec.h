// The WGSL texts that other shaders put before their own, so that they make and read codes with the
// functions that WgpuBackend uses. Each file says at its top what it declares.
#pragma once

#include <string_view>

namespace kvquant {

std::string_view wgpu_codec();       // wgsl/codec.wgsl
std::string_view wgpu_codec_tile();  // wgsl/codec_tile.wgsl, which comes after it

}  // namespace kvquant

// The functions of codec.h on a GPU against the same functions on the host, bit for bit: number
// formats over all patterns and many floats, and generated rows that are rotated, coded, packed and
// read in every scheme. By hand, from the repository's root, on a machine with a GPU:
//
//   nvcc -std=c++20 -O2 -Xcompiler -ffp-contract=off -I src -o build/codec_cuda_check
//     src/kvquant/tests/cuda/codec_cuda_check.cu src/kvquant/differential_input.cc
//     src/kvquant/kv_scheme.cc && build/codec_cuda_check
//
// Prints how many numbers were compared. Exits with 1 when any of them differ, with 2 when there is
// no GPU to ask.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kvquant/codec.h"
#include "kvquant/differential.h"

namespace {

using namespace kvquant;

constexpr int kWidth = 128;  // of a head
constexpr int kRow = 4 * kWidth;
constexpr int kRows = 96;  // of each scheme and input
constexpr int kWidths = 3;

KVQUANT_FN BitWidth width_at(int index) { return static_cast<BitWidth>(8 >> index); }

// All that becomes of a row. Groups have one element at least.
struct RowResult {
  std::uint8_t code[kRow];
  std::uint8_t hi2[kRow / 4], mid2[kRow / 4], low4[kRow / 2];
  std::uint16_t scale[kRow], offset[kRow], fitted_scale[kRow], fitted_offset[kRow];
  float value[kWidths][kRow];  // by width_at(); what cannot be read stays zero
};

KVQUANT_FN void encode_row(const QuantScheme& scheme, float* row, RowResult& out) {
  const int size = scheme.group_size;
  const int bits = static_cast<int>(scheme.bits);
  for (int group = 0; group < kRow / size; ++group) {
    const float* values = row + group * size;
    float low = values[0];
    float high = values[0];
    for (int i = 1; i < size; ++i) {
      low = fminf(low, values[i]);
      high = fmaxf(high, values[i]);
    }
    const GroupParams params = fit_range(scheme, low, high);
    const Encoder e = encoder(scheme, params);
    LevelSums sums;
    for (int i = group * size; i < (group + 1) * size; ++i) {
      const int code = encode(e, row[i]);
      add_code(sums, scheme, code);
      out.code[i] = static_cast<std::uint8_t>(code);
      const int head = i / kWidth;
      put2(out.hi2 + head * kWidth / 4, kWidth, i % kWidth, code >> (bits - 2));
      if (bits >= 4) put2(out.mid2 + head * kWidth / 4, kWidth, i % kWidth, code >> (bits - 4) & 3);
      if (bits == 8) put4(out.low4 + head * kWidth / 2, kWidth, i % kWidth, code & 15);
    }
    out.scale[group] = params.scale;
    out.offset[group] = params.offset;
    if (!has_fitted_pair(scheme)) continue;
    const GroupParams fitted = fit_levels(scheme, params, sums);
    out.fitted_scale[group] = fitted.scale;
    out.fitted_offset[group] = fitted.offset;
  }
}

KVQUANT_FN void decode_row(const QuantScheme& scheme, BitWidth width, const RowResult& in,
                           float* out) {
  for (int i = 0; i < kRow; ++i) {
    const int head = i / kWidth;
    const int group = i / scheme.group_size;
    int top = get2(in.hi2 + head * kWidth / 4, kWidth, i % kWidth);
    if (width >= BitWidth::int4) {
      top = top * 4 + get2(in.mid2 + head * kWidth / 4, kWidth, i % kWidth);
    }
    if (width == BitWidth::int8) {
      top = top * 16 + get4(in.low4 + head * kWidth / 2, kWidth, i % kWidth);
    }
    const bool fitted = width == BitWidth::int2 && has_fitted_pair(scheme);
    const float scale = fp16_to_float(fitted ? in.fitted_scale[group] : in.scale[group]);
    const float offset = fp16_to_float(fitted ? in.fitted_offset[group] : in.offset[group]);
    const float level = fitted ? fitted_level(scheme, top) : level_of(scheme, width, top);
    out[i] = offset + scale * level;
  }
  if (!scheme.hadamard) return;
  for (int head = 0; head < kRow / kWidth; ++head) hadamard(out + head * kWidth, kWidth);
}

// `out` is all zeros.
KVQUANT_FN void run_row(const QuantScheme& scheme, const float* in, RowResult& out) {
  float row[kRow];
  for (int i = 0; i < kRow; ++i) row[i] = bf16_to_float(float_to_bf16(in[i]));
  for (int head = 0; scheme.hadamard && head < kRow / kWidth; ++head) {
    hadamard(row + head * kWidth, kWidth);
  }
  for (int i = 0; i < kRow; ++i) row[i] = flush_small(row[i]);
  encode_row(scheme, row, out);
  for (int w = 0; w < kWidths; ++w) {
    if (width_at(w) > scheme.bits || width_at(w) < scheme.narrowest) continue;
    decode_row(scheme, width_at(w), out, out.value[w]);
  }
}

__global__ void run_rows(QuantScheme scheme, const float* in, RowResult* out) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row < kRows) run_row(scheme, in + row * kRow, out[row]);
}

// What the number formats make of one pattern.
struct Conversions {
  std::uint32_t fp16, fp16_down, fp16_up, bf16;  // of a float
  std::uint32_t from_fp16, from_bf16, small;     // floats, as bits
  std::uint32_t largest, hadamard;               // the same
};

KVQUANT_FN Conversions convert(std::uint32_t bits) {
  Conversions out = {};
  const float value = float_of(bits);
  const bool fits = fabsf(value) <= 65504.0f;  // false for NaN
  if (fits) {
    out.fp16 = float_to_fp16(value);
    out.fp16_down = float_to_fp16_down(value);
    out.fp16_up = float_to_fp16_up(fabsf(value));
    out.bf16 = float_to_bf16(value);
    out.small = bits_of(flush_small(value));
  }
  out.from_fp16 = bits_of(fp16_to_float(static_cast<std::uint16_t>(bits)));
  out.from_bf16 = bits_of(bf16_to_float(static_cast<std::uint16_t>(bits)));
  const int width = 16 << (bits % 6);
  QuantScheme rotated;
  rotated.hadamard = true;
  out.largest = bits_of(largest_value(rotated, width));
  out.hadamard = bits_of(hadamard_scale(width));
  return out;
}

__global__ void run_conversions(const std::uint32_t* in, int count, Conversions* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = convert(in[i]);
}

void must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "codec_cuda_check: %s: %s\n", what, cudaGetErrorString(status));
  std::exit(2);
}

// An array in the GPU's memory.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : bytes_(count * sizeof(T)) {
    must(cudaMalloc(&data_, bytes_), "memory");
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  void clear() { must(cudaMemset(data_, 0, bytes_), "clearing"); }
  void set(const std::vector<T>& from) {
    must(cudaMemcpy(data_, from.data(), bytes_, cudaMemcpyHostToDevice), "copy to the GPU");
  }
  void get(std::vector<T>& to) const {
    must(cudaGetLastError(), "launch");
    must(cudaMemcpy(to.data(), data_, bytes_, cudaMemcpyDeviceToHost), "kernel or copy back");
  }
  T* data() { return data_; }

 private:
  T* data_ = nullptr;
  std::size_t bytes_;
};

struct Tally {
  unsigned long long compared = 0, different = 0;

  // `what` and `where` say it of the first few.
  template <class T>
  void compare(const T* host, const T* device, int count, const char* what, const char* where) {
    for (int i = 0; i < count; ++i) {
      ++compared;
      if (std::memcmp(host + i, device + i, sizeof(T)) == 0) continue;
      if (++different > 20) continue;
      std::printf("%s: %s %d: host %.9g, GPU %.9g\n", where, what, i, static_cast<double>(host[i]),
                  static_cast<double>(device[i]));
    }
  }
};

void compare_rows(const QuantScheme& scheme, Input input, const std::vector<RowResult>& host,
                  const std::vector<RowResult>& device, Tally& tally) {
  char where[160];
  for (int row = 0; row < kRows; ++row) {
    std::snprintf(where, sizeof where, "%s, %s down to %s, groups of %d%s%s, clip %d, row %d",
                  name_of(input), name_of(scheme.bits), name_of(scheme.narrowest),
                  scheme.group_size, scheme.symmetric ? ", symmetric" : "",
                  scheme.hadamard ? ", hadamard" : "", scheme.clip_percent, row);
    const RowResult& h = host[static_cast<std::size_t>(row)];
    const RowResult& d = device[static_cast<std::size_t>(row)];
    const int groups = kRow / scheme.group_size;
    tally.compare(h.code, d.code, kRow, "code", where);
    tally.compare(h.hi2, d.hi2, kRow / 4, "byte of hi2", where);
    tally.compare(h.mid2, d.mid2, kRow / 4, "byte of mid2", where);
    tally.compare(h.low4, d.low4, kRow / 2, "byte of low4", where);
    tally.compare(h.scale, d.scale, groups, "scale", where);
    tally.compare(h.offset, d.offset, groups, "offset", where);
    if (has_fitted_pair(scheme)) {
      tally.compare(h.fitted_scale, d.fitted_scale, groups, "fitted scale", where);
      tally.compare(h.fitted_offset, d.fitted_offset, groups, "fitted offset", where);
    }
    for (int w = 0; w < kWidths; ++w) {
      if (width_at(w) > scheme.bits || width_at(w) < scheme.narrowest) continue;
      tally.compare(h.value[w], d.value[w], kRow, name_of(width_at(w)), where);
    }
  }
}

std::vector<QuantScheme> every_scheme() {
  std::vector<QuantScheme> schemes;
  for (const BitWidth bits : {BitWidth::int8, BitWidth::int4, BitWidth::int2}) {
    for (const BitWidth narrowest : {BitWidth::int8, BitWidth::int4, BitWidth::int2}) {
      for (const int flags : {0, 1, 2, 3}) {
        for (const int group_size : {1, 16, kWidth, kRow}) {
          for (const int clip : {100, 90, 50}) {
            if (narrowest > bits || (clip < 100 && bits == BitWidth::int8)) continue;
            schemes.push_back({bits, Grouping::per_token, group_size, (flags & 1) != 0,
                               (flags & 2) != 0, narrowest, clip});
          }
        }
      }
    }
  }
  return schemes;
}

void check_rows(Tally& tally) {
  std::vector<float> in(static_cast<std::size_t>(kRows * kRow));
  std::vector<RowResult> host(kRows), device(kRows);
  DeviceArray<float> gpu_in(in.size());
  DeviceArray<RowResult> gpu_out(device.size());
  std::uint64_t seed = 0;
  for (const QuantScheme& scheme : every_scheme()) {
    for (int i = 0; i < kInputs; ++i) {
      const auto input = static_cast<Input>(i);
      if (input == Input::not_finite) continue;
      generate(input, ++seed, {kRow / kWidth, kWidth}, scheme, in);
      gpu_in.set(in);
      gpu_out.clear();
      run_rows<<<(kRows + 31) / 32, 32>>>(scheme, gpu_in.data(), gpu_out.data());
      for (int row = 0; row < kRows; ++row) {
        RowResult& result = host[static_cast<std::size_t>(row)];
        result = {};
        run_row(scheme, in.data() + row * kRow, result);
      }
      gpu_out.get(device);
      compare_rows(scheme, input, host, device, tally);
    }
  }
}

void check_conversions(Tally& tally) {
  constexpr int kCount = 1 << 22;
  std::vector<std::uint32_t> in;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    // All patterns of 16 bits first; then floats of every exponent that FP16 has, or rounds away.
    const auto bits = static_cast<std::uint32_t>(draw(1, i));
    const std::uint32_t exponent = 80u + (bits >> 23) % 64u;
    in.push_back(i < 65536 ? i : (bits & 0x807fffffu) | exponent << 23);
  }
  std::vector<Conversions> device(in.size());
  DeviceArray<std::uint32_t> gpu_in(in.size());
  DeviceArray<Conversions> gpu_out(in.size());
  gpu_in.set(in);
  run_conversions<<<kCount / 256, 256>>>(gpu_in.data(), kCount, gpu_out.data());
  gpu_out.get(device);
  constexpr int kNumbers = sizeof(Conversions) / sizeof(std::uint32_t);
  for (std::size_t i = 0; i < in.size(); ++i) {
    char where[64];
    std::snprintf(where, sizeof where, "conversions of %08x", in[i]);
    const Conversions host = convert(in[i]);
    tally.compare(&host.fp16, &device[i].fp16, kNumbers, "number", where);
  }
}

}  // namespace

int main() {
  int devices = 0;
  must(cudaGetDeviceCount(&devices), "devices");
  Tally tally;
  check_conversions(tally);
  check_rows(tally);
  std::printf("codec_cuda_check: %llu numbers compared, %llu differ\n", tally.compared,
              tally.different);
  return tally.different == 0 ? 0 : 1;
}

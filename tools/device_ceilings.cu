// What a GPU can do at most, measured beside what kipp does with it: a large copy on the device
// (bytes read and written), one that only reads, a large BF16 product of cuBLAS on random inputs,
// and copies over the bus. Prints `name,value,unit` lines; the median of several runs, timed with
// events. Built by tools/device_gate.sh; compiled without cuBLAS (-DNO_CUBLAS) it leaves the
// products out.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#ifndef NO_CUBLAS
#include <cublas_v2.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kRuns = 7;

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "device_ceilings: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Random bits with exponents near one: neither zeros, which a matrix unit multiplies faster, nor
// infinities.
__global__ void fill_random(std::uint32_t* out, std::size_t words, std::uint32_t seed) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < words;
       i += stride) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761u + seed;
    x ^= x >> 16;
    x *= 2246822519u;
    x ^= x >> 13;
    out[i] = (x & 0x807f807fu) | 0x3f003f00u;
  }
}

__global__ void read_all(const uint4* in, std::size_t n, unsigned* out) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  unsigned sum = 0;
#pragma unroll 8
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    const uint4 v = in[i];
    sum ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x12345678u) *out = sum;  // keeps the loads
}

// Median milliseconds of work(run).
template <class Work>
double median_ms(const Work& work) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int run = -2; run < kRuns; ++run) {
    check(cudaEventRecord(begin), "record");
    work(run);
    check(cudaGetLastError(), "launch");
    check(cudaEventRecord(end), "record");
    check(cudaEventSynchronize(end), "work");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "time");
    if (run >= 0) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return static_cast<double>(times[times.size() / 2]);
}

void report(const char* name, double value, const char* unit) {
  std::printf("%s,%.2f,%s\n", name, value, unit);
  std::fflush(stdout);
}

}  // namespace

int main() {
  cudaDeviceProp device;
  check(cudaGetDeviceProperties(&device, 0), "device 0");
  int blocks = device.multiProcessorCount * 8;
  std::printf("device,%s,sm_%d%d\n", device.name, device.major, device.minor);
  std::size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "free memory");
  const std::size_t bytes = std::min<std::size_t>(std::size_t{8} << 30, free / 4) & ~0xffffu;
  std::uint32_t *from = nullptr, *to = nullptr;
  check(cudaMalloc(&from, bytes), "memory");
  check(cudaMalloc(&to, bytes), "memory");
  fill_random<<<blocks, 256>>>(from, bytes / 4, 1);
  fill_random<<<blocks, 256>>>(to, bytes / 4, 2);
  check(cudaDeviceSynchronize(), "filling");

  const double copied = median_ms(
      [&](int) { check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice), "copy"); });
  report("copy", 2.0 * static_cast<double>(bytes) / copied * 1e-9, "TB/s");
  const double read = median_ms([&](int run) {
    read_all<<<blocks, 256>>>(reinterpret_cast<const uint4*>(run % 2 == 0 ? from : to), bytes / 16,
                              reinterpret_cast<unsigned*>(to));
  });
  report("read", static_cast<double>(bytes) / read * 1e-9, "TB/s");

  void* host = nullptr;
  const std::size_t bus = std::size_t{256} << 20;
  check(cudaMallocHost(&host, bus), "page-locked memory");
  const double up = median_ms(
      [&](int) { check(cudaMemcpyAsync(to, host, bus, cudaMemcpyHostToDevice), "upload"); });
  report("upload", static_cast<double>(bus) / up * 1e-6, "GB/s");
  const double down = median_ms(
      [&](int) { check(cudaMemcpyAsync(host, to, bus, cudaMemcpyDeviceToHost), "download"); });
  report("download", static_cast<double>(bus) / down * 1e-6, "GB/s");

#ifndef NO_CUBLAS
  struct Shape {
    const char* name;
    int tokens, outputs, inputs;
  };
  cublasHandle_t blas;
  if (cublasCreate(&blas) != CUBLAS_STATUS_SUCCESS) {
    std::fprintf(stderr, "device_ceilings: cuBLAS cannot start\n");
    return 1;
  }
  for (const Shape& s : {Shape{"product 8192x8192x8192", 8192, 8192, 8192},
                         Shape{"product 2048x24576x4096", 2048, 24576, 4096},
                         Shape{"product 2048x4096x12288", 2048, 4096, 12288},
                         Shape{"product 2048x6144x1024", 2048, 6144, 1024}}) {
    const auto* a = reinterpret_cast<const __nv_bfloat16*>(from);
    const auto* b = a + static_cast<std::size_t>(s.outputs) * s.inputs;
    float one = 1, zero = 0;
    const double ms = median_ms([&](int) {
      const auto done =
          cublasGemmEx(blas, CUBLAS_OP_T, CUBLAS_OP_N, s.outputs, s.tokens, s.inputs, &one, a,
                       CUDA_R_16BF, s.inputs, b, CUDA_R_16BF, s.inputs, &zero, to, CUDA_R_16BF,
                       s.outputs, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
      if (done != CUBLAS_STATUS_SUCCESS) {
        std::fprintf(stderr, "device_ceilings: cuBLAS refused %s\n", s.name);
        std::exit(1);
      }
    });
    report(s.name, 2.0 * s.tokens * s.outputs * s.inputs / ms * 1e-9, "TFLOP/s");
  }
#endif
  return 0;
}

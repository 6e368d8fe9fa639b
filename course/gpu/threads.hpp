// What the CUDA source of a kernel needs to be a C++ program: each thread of a block is a thread.
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
using uchar = unsigned char;
using std::max, std::min;
struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
static thread_local dim3 threadIdx, blockIdx;
static thread_local unsigned place;  // of a thread in its block
static unsigned count, waits[1024];  // the threads of a block, and the line at which each waits, 0 at its end
struct Together {
  void operator()() noexcept {  // when all have come: to the same line, or this program is undefined
    unsigned first = 0, here = 0;
    for (unsigned t = 0; t < count; ++t) if (waits[t] && (!first || waits[t] < first)) first = waits[t];
    for (unsigned t = 0; t < count; ++t) here += waits[t] == first;
    if (here == count) return;
    fprintf(stderr, "divergent %u %u %u %u\n", blockIdx.x, blockIdx.y, blockIdx.z, here);
    _Exit(3);
  }
};
static std::unique_ptr<std::barrier<Together>> everybody;
static std::vector<std::unique_ptr<std::barrier<>>> warps;
static inline void wait_at(unsigned line) { waits[place] = line; everybody->arrive_and_wait(); }
#define __global__
#define __shared__ static
#define __launch_bounds__(n)
#define __syncthreads() wait_at(__LINE__)
#define __activemask() 0xffffffffu
template <class T> T of_lane(T value, unsigned lane) {  // of another thread of the warp
  static T held[1024];
  held[place] = value;
  warps[place / 32]->arrive_and_wait();
  unsigned other = place / 32 * 32 + lane;
  T found = other < count ? held[other] : value;
  warps[place / 32]->arrive_and_wait();
  return found;
}
template <class T> T __shfl_sync(unsigned, T value, unsigned lane, unsigned width) {
  return of_lane(value, place % 32 / width * width + lane % width);
}
template <class T> T __shfl_down_sync(unsigned, T value, unsigned by, unsigned width) {
  return of_lane(value, place % width + by < width ? place % 32 + by : place % 32);
}
template <class T> T __shfl_up_sync(unsigned, T value, unsigned by, unsigned width) {
  return of_lane(value, place % width < by ? place % 32 : place % 32 - by);
}
static std::mutex one_by_one;
template <class T, class Combine> T atomic(T* at, Combine combine) {
  std::lock_guard<std::mutex> alone(one_by_one);
  T old = *at;
  *at = combine(old);
  return old;
}
template <class T> T atomicAdd(T* at, T by) { return atomic(at, [=](T old) { return old + by; }); }
template <class T> T atomicMax(T* at, T by) { return atomic(at, [=](T old) { return old < by ? by : old; }); }
template <class T> T atomicMin(T* at, T by) { return atomic(at, [=](T old) { return by < old ? by : old; }); }
#define tvm_builtin_cuda_atomic_add atomicAdd
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
template <class Kernel> void launch(dim3 grid, dim3 block, Kernel kernel) {
  count = block.x * block.y * block.z;
  everybody = std::make_unique<std::barrier<Together>>(count);
  warps.clear();
  for (unsigned t = 0; t < count; t += 32) warps.push_back(std::make_unique<std::barrier<>>(count - t < 32 ? count - t : 32));
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < count; ++t) threads.emplace_back([=] {
    place = t;
    threadIdx = {t % block.x, t / block.x % block.y, t / block.x / block.y};
    for (unsigned b = 0; b < grid.x * grid.y * grid.z; ++b) {  // one block after the other
      blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
      kernel();
      wait_at(0);
    }
  });
  for (std::thread& thread : threads) thread.join();
}

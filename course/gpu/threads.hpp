// What the CUDA source of a kernel needs to be a C++ program: each thread of a block is a thread.
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>
struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
static thread_local dim3 threadIdx, blockIdx;
static std::barrier<>* everybody;
#define __global__
#define __shared__ static
#define __launch_bounds__(n)
#define __syncthreads() everybody->arrive_and_wait()
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
template <class Kernel> void launch(dim3 grid, dim3 block, Kernel kernel) {
  unsigned count = block.x * block.y * block.z;
  std::barrier<> barrier(count);
  everybody = &barrier;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < count; ++t) threads.emplace_back([=] {
    threadIdx = {t % block.x, t / block.x % block.y, t / block.x / block.y};
    for (unsigned b = 0; b < grid.x * grid.y * grid.z; ++b) {  // one block after the other
      blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
      kernel();
      everybody->arrive_and_wait();
    }
  });
  for (std::thread& thread : threads) thread.join();
}

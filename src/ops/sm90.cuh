#pragma once

#include <cuda_bf16.h>

#include <cstdint>

// The instructions of sm_90 that CUDA C++ has no names for: bulk copies between global and shared memory, the barriers
// they complete on, and products of 16 x 8 x 16 tiles by one warp.
namespace lathe::sm90 {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// What a kernel that stays on its multiprocessor needs before its launch: `bytes` of shared memory, and as many blocks
// as there are multiprocessors, at most `items`.
template <class... Arguments>
cudaError_t prepare_resident(void (*kernel)(Arguments...), int bytes, int items, int& blocks) {
  int device = 0, processors = 0;
  if (cudaError_t e = cudaGetDevice(&device)) return e;
  if (cudaError_t e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)) return e;
  blocks = items < processors ? items : processors;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

// ---- barriers in shared memory

using Barrier = uint64_t;

__device__ inline void init_barrier(Barrier* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to bulk copies.
__device__ inline void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void arrive(Barrier* b) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}

__device__ inline void arrive_expecting(Barrier* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
               : "memory");
}

__device__ inline bool has_passed(Barrier* b, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(shared_address(b)), "r"(parity)
      : "memory");
  return done;
}

// Waits for the end of the phase of that parity; the first phase has parity 0.
__device__ inline void wait(Barrier* b, uint32_t parity) {
  while (!has_passed(b, parity)) {
  }
}

// ---- clusters: blocks that run together and reach each other's shared memory

__device__ inline void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// The address of what lies at `p` here, in the cluster's block `rank`.
__device__ inline uint32_t remote_address(const void* p, uint32_t rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(p)), "r"(rank));
  return remote;
}
// Stores x there and counts its 4 bytes at that block's barrier: nobody waits for earlier stores.
__device__ inline void store_remote(uint32_t address, float x, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(address),
               "r"(__float_as_uint(x)), "r"(barrier)
               : "memory");
}

// A barrier of `threads` threads among those of the block; id 0 is __syncthreads'.
__device__ inline void sync_group(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- bulk copies; sizes and addresses are multiples of 16

// What is read or written once shall leave L2 first.
__device__ inline uint64_t evict_first() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ inline void bulk_load(void* shared, const void* global, uint32_t bytes, Barrier* b, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(b)), "l"(policy)
      : "memory");
}

__device__ inline void bulk_load(void* shared, const void* global, uint32_t bytes, Barrier* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(b))
               : "memory");
}

__device__ inline void bulk_store(void* global, const void* shared, uint32_t bytes, uint64_t policy) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(global),
               "r"(shared_address(shared)), "r"(bytes), "l"(policy)
               : "memory");
}

__device__ inline void bulk_store(void* global, const void* shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared_address(shared)),
               "r"(bytes)
               : "memory");
}

__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Until all but the last `kPending` groups of stores have read their source.
template <int kPending>
__device__ inline void wait_stores_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Orders this thread's stores to shared memory before bulk copies that read them.
__device__ inline void fence_for_bulk() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- tiles

// Four 8 x 8 tiles of 16-bit values; lane l gives the address of row l % 8 of tile l / 8.
__device__ inline void load_tiles(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ inline void load_tiles_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ inline void store_tiles_transposed(uint32_t address, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// c += a·b, bf16 operands: a 16 x 16, b 16 x 8, c 16 x 8.
__device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// c += a·b, tf32 operands: a 16 x 8, b 8 x 8, c 16 x 8.
__device__ inline void multiply_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rounded to nearest: the tensor cores would truncate.
__device__ inline uint32_t to_tf32(float x) {
  uint32_t r;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
  return r;
}

// Two values as bf16, `low` in the lower half.
__device__ inline uint32_t pack(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ inline float low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float high(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// ---- arithmetic

__device__ inline float exp2_fast(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
__device__ inline float reciprocal_fast(float x) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// Wrong by 2^-11 of its value at most.
__device__ inline float tanh_fast(float x) {
  float r;
  asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}

// Sums of N values over the 32 lanes, N a power of two: lane l ends with the sum of x[l / (32 / N)] in x[0].
template <int N, int kOffset = 16>
__device__ inline void warp_sums(float* x) {
  if constexpr (N > 1) {
    const bool upper = threadIdx.x & kOffset;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const float a = x[i], b = x[N / 2 + i];
      x[i] = (upper ? b : a) + __shfl_xor_sync(~0u, upper ? a : b, kOffset);
    }
    warp_sums<N / 2, kOffset / 2>(x);
  } else if constexpr (kOffset) {
    x[0] += __shfl_xor_sync(~0u, x[0], kOffset);
    warp_sums<1, kOffset / 2>(x);
  }
}

}  // namespace lathe::sm90

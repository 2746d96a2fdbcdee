#include "ops/linear/products.cuh"
#include "ops/linear/shared_rows.cuh"
#include "ops/mlp/middle.cuh"
#include "ops/mlp/variants.h"
#include "ops/moe/variants.h"

// A choice (row, j) is the unit of work: its middle and its result lie at place row·top_k + j, so nothing is packed and no
// order depends on arrival. Experts get lists of their choices, ascending; products run over tiles of an expert's list.
namespace lathe::cuda {

namespace {

constexpr int kMostExperts = 512, kMostGroups = 64, kMostChosen = 64;
// Rows at once, so that what lies between the products stays within scratch.
constexpr int64_t kMostRows = 4096;

// ---- routing

// Integers in the order of the numbers, a NaN below all.
__device__ int rank_of(float v) {
  if (isnan(v)) return INT_MIN;
  const int bits = __float_as_int(v + 0.0f);  // -0 and 0 are one number
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}

// The lane's best of value[begin, end) that isn't taken, joined over the warp: greatest rank, then lowest id.
__device__ int best_of(const float* value, const bool* taken, int begin, int end) {
  int rank = 0, id = -1;
  for (int i = begin + static_cast<int>(threadIdx.x % 32); i < end; i += 32)
    if (!taken[i] && (id < 0 || rank_of(value[i]) > rank)) rank = rank_of(value[i]), id = i;
  for (int step = 16; step > 0; step /= 2) {
    const int r = __shfl_xor_sync(kAllLanes, rank, step), i = __shfl_xor_sync(kAllLanes, id, step);
    if (i >= 0 && (id < 0 || r > rank || (r == rank && i < id))) rank = r, id = i;
  }
  return id;
}

struct Choices {
  int32_t* expert;  // [rows·top_k], ascending in a row
  float* weight;
};

// A warp a row. The groups that aren't kept lose their scores.
__global__ void route_kernel(MoeArgs a, const float* logits, Choices to) {
  extern __shared__ float score[];  // s [experts], c [experts]
  __shared__ bool taken[kMostExperts];
  __shared__ float group[kMostGroups];
  __shared__ int32_t chosen[kMostChosen];
  const int64_t row = blockIdx.x;
  const int n = a.expert_count, size = n / a.groups, lane = threadIdx.x;
  float *s = score, *c = score + n;
  for (int e = lane; e < n; e += 32) {
    s[e] = 1 / (1 + expf(-logits[row * n + e]));
    c[e] = s[e] + a.bias[e];
    taken[e] = false;
  }
  __syncwarp();
  if (a.groups > 1) {
    for (int g = 0; g < a.groups; ++g) {
      const int first = best_of(c, taken, g * size, (g + 1) * size);
      float sum = c[first];
      if (size > 1) {
        __syncwarp();
        if (lane == 0) taken[first] = true;
        __syncwarp();
        sum += c[best_of(c, taken, g * size, (g + 1) * size)];
        __syncwarp();
        if (lane == 0) taken[first] = false;
      }
      if (lane == 0) group[g] = sum;
      __syncwarp();
    }
    for (int e = lane; e < n; e += 32) {
      const int mine = e / size, rank = rank_of(group[mine]);
      int better = 0;
      for (int h = 0; h < a.groups; ++h) {
        const int other = rank_of(group[h]);
        better += other > rank || (other == rank && h < mine);
      }
      if (better >= a.top_groups) c[e] = -INFINITY;
    }
    __syncwarp();
  }
  for (int j = 0; j < a.top_k; ++j) {
    const int id = best_of(c, taken, 0, n);
    __syncwarp();
    if (lane == 0) chosen[j] = id, taken[id] = true;
    __syncwarp();
  }
  if (lane != 0) return;
  for (int j = 1; j < a.top_k; ++j) {  // ascending
    const int32_t id = chosen[j];
    int at = j;
    for (; at > 0 && chosen[at - 1] > id; --at) chosen[at] = chosen[at - 1];
    chosen[at] = id;
  }
  float sum = 0;
  for (int j = 0; j < a.top_k; ++j) sum += s[chosen[j]];
  for (int j = 0; j < a.top_k; ++j) {
    const float weight = (a.normalise ? s[chosen[j]] / (sum + 1e-20f) : s[chosen[j]]) * a.routed_scale;
    const int64_t at = row * a.top_k + j;
    to.expert[at] = chosen[j], to.weight[at] = weight;
    if (!a.chosen.empty()) a.chosen[at] = chosen[j];
    if (!a.chosen_weight.empty()) a.chosen_weight[at] = weight;
  }
}

// What each expert is to do.
struct Lists {
  int32_t* list;   // [experts, capacity]: choices, ascending
  int32_t* count;  // [experts]
  int32_t* tiles;  // [experts + 1]: first tile of each
  int64_t capacity;
};

// A block an expert goes through all choices in order.
__global__ void list_kernel(const int32_t* expert, int64_t choices, int first_expert, Lists to) {
  __shared__ int warp_count[32];
  const int mine = first_expert + static_cast<int>(blockIdx.x), warps = blockDim.x / 32;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int32_t* list = to.list + blockIdx.x * to.capacity;
  int found = 0;
  for (int64_t begin = 0; begin < choices; begin += blockDim.x) {
    const int64_t i = begin + threadIdx.x;
    const bool is_mine = i < choices && expert[i] == mine;
    const unsigned votes = __ballot_sync(kAllLanes, is_mine);
    if (lane == 0) warp_count[warp] = __popc(votes);
    __syncthreads();
    int before = found;
    for (int w = 0; w < warps; ++w) {
      if (w == warp && is_mine) list[before + __popc(votes & ((1u << lane) - 1))] = static_cast<int32_t>(i);
      before += warp_count[w];
    }
    found = before;
    __syncthreads();
  }
  if (threadIdx.x == 0) to.count[blockIdx.x] = found;
}

__global__ void tiles_kernel(Lists lists, int experts, int rows_of_tile) {
  if (threadIdx.x != 0) return;
  int next = 0;
  for (int e = 0; e < experts; ++e) {
    lists.tiles[e] = next;
    next += (lists.count[e] + rows_of_tile - 1) / rows_of_tile;
  }
  lists.tiles[experts] = next;
}

// ---- products

// One matrix (down) or two (gate, up) of each expert. Grid: (tiles of outputs of the matrices, tiles of experts' lists).
struct ExpertWork {
  Weight like;  // form and sizes of all
  int matrices = 1, experts = 0;
  const void* data[2 * kMostExperts];
  const float* scale[2 * kMostExperts];
  const float* bias[2 * kMostExperts];
  char* y = nullptr;
  int64_t y_matrix_bytes = 0;  // from the first matrix's outputs to the second's
  Lists lists;

  __device__ bool tile(int outs, int rows_of_tile, Tile& t) const {
    const int at = blockIdx.y;
    if (at >= lists.tiles[experts]) return false;
    int low = 0, high = experts;  // tiles[low] <= at < tiles[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (lists.tiles[middle] <= at ? low : high) = middle;
    }
    const int out_tiles = static_cast<int>((like.out + outs - 1) / outs), matrix = blockIdx.x / out_tiles;
    const int which = low * matrices + matrix;
    t.w = like;
    t.w.data = data[which], t.w.scale = scale[which], t.bias = bias[which];
    t.y = y + matrix * y_matrix_bytes;
    t.out0 = int64_t{static_cast<int>(blockIdx.x) % out_tiles} * outs;
    t.first_row = int64_t{at - lists.tiles[low]} * rows_of_tile;
    t.rows = static_cast<int>(min(lists.count[low] - t.first_row, int64_t{rows_of_tile}));
    t.list = lists.list + low * lists.capacity + t.first_row;
    return true;
  }
};

void put_matrix(ExpertWork& work, int64_t at, const Weight& w, Array<const float> bias) {
  work.data[at] = w.data, work.scale[at] = w.scale, work.bias[at] = bias.empty() ? nullptr : bias.data;
}

// Few choices an expert: tiles of few rows, so that rarely an expert's weights are read twice.
Plan plan_for(int64_t choices, int64_t experts) {
  const int64_t each = choices / std::max<int64_t>(experts, 1);
  return each <= 2 ? Plan::kStream8 : each <= 6 ? Plan::kStream16 : each <= 16 ? Plan::kStream32
         : each <= 48 ? Plan::kStream64 : Plan::kTile;
}
int tile_rows(bool tensor, Plan plan) {
  if (!tensor) return kExactRows;
  return plan == Plan::kStream8 ? 8 : plan == Plan::kStream16 ? 16 : plan == Plan::kStream32 ? 32 : 64;
}

Status multiply_experts(OpContext& ctx, ExpertWork& work, const Sides& sides, int64_t choices) {
  Form form{};
  const bool tensor = tensor_form(sides.x, work.like, false, &form);
  const Plan plan = plan_for(choices, work.experts);
  const int rows = tile_rows(tensor, plan);
  tiles_kernel<<<1, 32, 0, stream_of(ctx)>>>(work.lists, work.experts, rows);
  LATHE_RETURN_IF_ERROR(launched("moe tiles"));
  // How many tiles there are stands in device memory; no more than if each expert's last one held one choice.
  const int64_t tiles = choices / rows + std::min<int64_t>(work.experts, choices);
  auto grid = [&](ExpertWork& w, int outs, int) {
    return dim3(static_cast<unsigned>(ceil_div(w.like.out, outs) * w.matrices), static_cast<unsigned>(tiles));
  };
  return launch_products(ctx, work, sides, work.like, tensor, form, plan, grid);
}

// ---- joining

// y = sum over held choices in order of expert id, fp32, + the shared expert's row; one rounding.
__global__ void combine_kernel(MoeArgs a, Choices choices, const float* results, const float* shared, Rows y) {
  const int64_t row = blockIdx.x, width = y.width;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    float sum = 0;
    for (int j = 0; j < a.top_k; ++j) {
      const int64_t at = row * a.top_k + j;
      const int mine = choices.expert[at] - a.first_expert;
      if (mine >= 0 && mine < a.experts.count) sum += choices.weight[at] * results[at * width + i];
    }
    store(y, row, i, shared ? sum + shared[row * width + i] : sum);
  }
}

Status run_experts(OpContext& ctx, const MoeArgs& a, const Choices& choices, float* results) {
  const int64_t rows = a.x.rows, count = rows * a.top_k, experts = a.experts.count, inner = a.experts[0].gate.out;
  Lists lists{.list = ctx.scratch->take<int32_t>(experts * rows),
              .count = ctx.scratch->take<int32_t>(experts),
              .tiles = ctx.scratch->take<int32_t>(experts + 1),
              .capacity = rows};
  list_kernel<<<static_cast<unsigned>(experts), 256, 0, stream_of(ctx)>>>(choices.expert, count, a.first_expert, lists);
  LATHE_RETURN_IF_ERROR(launched("moe lists"));

  const MlpWeights& like = a.experts[0];
  const Rows gate_up = ctx.scratch->rows(count, 2 * inner, DType::kF32);
  ExpertWork first{.like = like.gate, .matrices = 2, .experts = static_cast<int>(experts)};
  for (int64_t e = 0; e < experts; ++e) {
    put_matrix(first, 2 * e, a.experts[e].gate, a.experts[e].gate_bias);
    put_matrix(first, 2 * e + 1, a.experts[e].up, a.experts[e].up_bias);
  }
  first.y = static_cast<char*>(gate_up.data), first.y_matrix_bytes = inner * 4, first.lists = lists;
  Sides sides{.x = a.x, .list_divisor = a.top_k, .y_row_is_entry = true, .y_stride = 2 * inner};
  if (like.gate.is_w8a8()) LATHE_RETURN_IF_ERROR(quantise_rows(ctx, a.x, like.gate.dtype, &sides.x));
  LATHE_RETURN_IF_ERROR(multiply_experts(ctx, first, sides, count));

  const Rows middle = middle_rows(ctx, count, inner, a.x.dtype, like.down);
  LATHE_RETURN_IF_ERROR(make_middle(ctx, gate_up, a.limit, middle));
  ExpertWork second{.like = like.down, .matrices = 1, .experts = static_cast<int>(experts)};
  for (int64_t e = 0; e < experts; ++e) put_matrix(second, e, a.experts[e].down, a.experts[e].down_bias);
  second.y = reinterpret_cast<char*>(results), second.lists = lists;
  return multiply_experts(ctx, second, {.x = middle, .y_row_is_entry = true, .y_stride = a.y.width}, count);
}

MoeArgs part_of(MoeArgs a, int64_t begin, int64_t count) {
  a.x = a.x.slice(begin, count), a.y = a.y.slice(begin, count);
  if (!a.chosen.empty()) a.chosen = {a.chosen.data + begin * a.top_k, count * a.top_k};
  if (!a.chosen_weight.empty()) a.chosen_weight = {a.chosen_weight.data + begin * a.top_k, count * a.top_k};
  return a;
}

Status moe_part(OpContext& ctx, const MoeArgs& a) {
  ArenaScope scope(*ctx.scratch);
  const int64_t rows = a.x.rows, width = a.y.width;
  const Rows logits = ctx.scratch->rows(rows, a.expert_count, DType::kF32);
  SharedRows router{.x = a.x, .rows = rows, .products = 1};
  router.product[0] = {a.router, {}, logits};
  LATHE_RETURN_IF_ERROR(multiply_shared_rows(ctx, router, true));
  const Choices choices{ctx.scratch->take<int32_t>(rows * a.top_k), ctx.scratch->take<float>(rows * a.top_k)};
  route_kernel<<<static_cast<unsigned>(rows), 32, a.expert_count * 8, stream_of(ctx)>>>(a, logits.f32(), choices);
  LATHE_RETURN_IF_ERROR(launched("moe routing"));

  float *results = ctx.scratch->take<float>(rows * a.top_k * width), *shared = nullptr;
  if (a.shared.count) {
    const Rows y{.data = ctx.scratch->take<float>(rows * width), .rows = rows, .width = width, .stride = width};
    LATHE_RETURN_IF_ERROR(cuda::mlp(ctx, {.x = a.x, .w = a.shared[0], .y = y, .limit = a.limit}));
    shared = y.f32();
  }
  if (a.experts.count) LATHE_RETURN_IF_ERROR(run_experts(ctx, a, choices, results));
  combine_kernel<<<static_cast<unsigned>(rows), 256, 0, stream_of(ctx)>>>(a, choices, results, shared, a.y);
  return launched("moe sums");
}

bool alike(const Weight& a, const Weight& b) {
  return a.dtype == b.dtype && a.out == b.out && a.in == b.in && a.stride == b.stride && a.block_out == b.block_out &&
         a.block_in == b.block_in && a.scale_stride == b.scale_stride && (a.scale == nullptr) == (b.scale == nullptr) &&
         reinterpret_cast<uintptr_t>(a.data) % 16 == reinterpret_cast<uintptr_t>(b.data) % 16;
}

}  // namespace

bool moe_applies(const MoeArgs& a) {
  if (a.expert_count > kMostExperts || a.groups > kMostGroups || a.top_k > kMostChosen) return false;
  for (int64_t e = 0; e < a.experts.count; ++e) {
    const MlpWeights &first = a.experts[0], &w = a.experts[e];
    if (!alike(first.gate, w.gate) || !alike(first.gate, w.up) || !alike(first.down, w.down)) return false;
  }
  return true;
}

Status moe(OpContext& ctx, const MoeArgs& a) {
  if (ctx.comm && a.experts.count < a.expert_count)
    return invalid("experts over ranks need a communicator of cards, which this build doesn't have");
  for (int64_t begin = 0; begin < a.x.rows; begin += kMostRows)
    LATHE_RETURN_IF_ERROR(moe_part(ctx, part_of(a, begin, std::min(kMostRows, a.x.rows - begin))));
  return Status::ok();
}

}  // namespace lathe::cuda

#include "model/glm5_next/vision_tower.h"

#include <algorithm>

#include "ops/add/add.h"
#include "ops/linear/linear.h"
#include "ops/mlp/mlp.h"
#include "ops/norm/norm.h"
#include "ops/patch_merge/patch_merge.h"
#include "ops/row_floats.h"
#include "ops/vision_attention/vision_attention.h"

namespace lathe::glm5_next {

namespace {

// Patches a pass over small segments takes together: enough rows to amortise reading the weights.
constexpr int64_t kGroupPatches = 4096;
// Merge blocks that row-wise work takes at a time: bounds what it needs beside the rows that attention wants whole.
constexpr int64_t kTileBlocks = 1024;
constexpr float kMergerNormEps = 1e-5f;  // model.md 11.1: whatever the blocks' eps is

// f(first, count) over tiles of rows.
template <class F>
Status in_tiles(int64_t rows, int64_t tile, F&& f) {
  for (int64_t first = 0; first < rows; first += tile) LATHE_RETURN_IF_ERROR(f(first, std::min(tile, rows - first)));
  return Status::ok();
}

// Slices [first, first + count) of one image or clip.
struct Piece {
  const Patches* media;
  int first_slice, slices;
  Grid grid() const { return {slices, media->grid.h, media->grid.w}; }
  int64_t slice_patches() const { return int64_t{media->grid.h} * media->grid.w; }
};

// Slices in order, as many a group as kGroupPatches holds, at least one.
std::vector<std::vector<Piece>> group(std::span<const Patches* const> media) {
  std::vector<std::vector<Piece>> groups;
  int64_t room = 0;
  for (const Patches* m : media)
    for (int slice = 0; slice < m->grid.t; ++slice) {
      const int64_t patches = int64_t{m->grid.h} * m->grid.w;
      if (groups.empty() || patches > room) groups.emplace_back(), room = kGroupPatches;
      std::vector<Piece>& last = groups.back();
      if (!last.empty() && last.back().media == m)
        ++last.back().slices;
      else
        last.push_back({m, slice, 1});
      room -= patches;
    }
  return groups;
}

Array<const int32_t> upload(Device& device, Arena& arena, const std::vector<int32_t>& values) {
  const auto count = static_cast<int64_t>(values.size());
  int32_t* p = arena.take<int32_t>(count);
  device.to_device(p, values.data(), count * 4);
  return {p, count};
}

// The pieces' pixels as rows on the device, a tile of floats on the host at a time.
Rows upload_pixels(Device& device, Arena& arena, const std::vector<Piece>& pieces, int64_t patches, DType dtype) {
  const int64_t width = pieces[0].media->width;
  const Rows rows = arena.rows(patches, width, dtype);
  std::vector<float> values(kTileBlocks * width);
  std::vector<uint16_t> narrow(dtype == DType::kBF16 ? values.size() : 0);
  int64_t row = 0;
  for (const Piece& piece : pieces) {
    const int64_t end = (piece.first_slice + piece.slices) * piece.slice_patches();
    for (int64_t first = piece.first_slice * piece.slice_patches(); first < end; first += kTileBlocks) {
      const int64_t count = std::min(kTileBlocks, end - first);
      piece.media->write_values(first, count, values.data());
      if (dtype == DType::kBF16) write_floats(narrow.data(), dtype, count * width, values.data());
      device.to_device(rows.at(row), dtype == DType::kBF16 ? static_cast<const void*>(narrow.data()) : values.data(),
                       count * width * dtype_bytes(dtype));
      row += count;
    }
  }
  return rows;
}

}  // namespace

int64_t VisionTower::feature_rows(std::span<const Patches* const> media) const {
  int64_t rows = 0;
  for (const Patches* m : media) rows += m->grid.tokens(config_.merge);
  return rows;
}

int64_t VisionTower::activation_bytes(int64_t segment_patches) const {
  const int64_t patches = std::max(segment_patches, kGroupPatches), size = dtype_bytes(dtype_);
  const int64_t tile = std::min(patches, kTileBlocks * members());
  const int64_t whole = patches * (patch_width() + 5 * int64_t{config_.hidden}) * size + (3 * patches + 2) * 4;
  const int64_t in_block = tile * 2 * int64_t{config_.hidden} * size;
  const int64_t in_merge =
      tile / members() * (int64_t{config_.hidden} * members() + 3 * int64_t{config_.out_hidden}) * size;
  constexpr int64_t kPieces = 32, kAlignment = 64;
  return whole + std::max(in_block, in_merge) + kPieces * kAlignment;
}

Status VisionTower::encode(OpContext op, Arena& activations, std::span<const Patches* const> media,
                           const Rows& features, const VisionTap& tap) const {
  if (features.rows != feature_rows(media))
    return invalid("{} feature rows for pictures of {}", features.rows, feature_rows(media));
  int64_t done = 0;
  for (const Patches* m : media)
    if (m->width != patch_width() || m->grid.h % config_.merge || m->grid.w % config_.merge)
      return invalid(
          "patches of {} values in a grid of {} x {}: processor_config.json and config.json's vision_config disagree; "
          "the tower takes {} values and merges {} x {}",
          m->width, m->grid.h, m->grid.w, patch_width(), config_.merge, config_.merge);
  for (const std::vector<Piece>& pieces : group(media)) {
    ArenaScope scope(activations);
    std::vector<Grid> grids;
    int64_t patches = 0;
    for (const Piece& p : pieces) grids.push_back(p.grid()), patches += grids.back().patches();
    const PatchLayout layout = lay_out(grids, config_.merge);
    const Placed placed{upload(*op.device, activations, layout.row), upload(*op.device, activations, layout.col),
                        upload(*op.device, activations, layout.segment_start)};
    const Rows pixels = upload_pixels(*op.device, activations, pieces, patches, dtype_);
    const Rows out = features.slice(done, patches / members());
    LATHE_RETURN_IF_ERROR(forward(op, activations, pixels, placed, out, tap));
    done += out.rows;
  }
  return Status::ok();
}

Status VisionTower::forward(OpContext op, Arena& activations, const Rows& pixels, const Placed& layout,
                            const Rows& features, const VisionTap& tap) const {
  ArenaScope scope(activations);
  const Rows x = activations.rows(pixels.rows, config_.hidden, dtype_);
  LATHE_RETURN_IF_ERROR(linear(op, {pixels, {{weights_.patch_embed, weights_.patch_embed_bias, x}}}));
  if (tap) tap("patch_embed", x);
  for (size_t b = 0; b < weights_.blocks.size(); ++b) {
    op.address.layer = static_cast<int>(b);
    LATHE_RETURN_IF_ERROR(block(op, activations, weights_.blocks[b], layout, x));
    if (tap) tap(fmt::format("block.{}", b), x);
  }
  op.address.layer = -1;
  LATHE_RETURN_IF_ERROR(norm(op, {.x = x, .weight = weights_.post_norm, .y = x, .eps = config_.rms_eps}));
  if (tap) tap("post_layernorm", x);
  return merge(op, activations, x, features, tap);
}

// x += Attn(RMSNorm1(x)); x += MLP(RMSNorm2(x)). Only attention needs all rows at once.
Status VisionTower::block(OpContext& op, Arena& activations, const VisionBlockWeights& w, const Placed& layout,
                          const Rows& x) const {
  ArenaScope scope(activations);
  const int64_t hidden = config_.hidden, tile = std::min(x.rows, kTileBlocks * members());
  const Rows qkv = activations.rows(x.rows, 3 * hidden, dtype_), attended = activations.rows(x.rows, hidden, dtype_);
  const Rows normed = activations.rows(tile, hidden, dtype_), y = activations.rows(tile, hidden, dtype_);
  LATHE_RETURN_IF_ERROR(in_tiles(x.rows, tile, [&](int64_t first, int64_t count) -> Status {
    const Rows u = normed.slice(0, count);
    LATHE_RETURN_IF_ERROR(norm(op, {.x = x.slice(first, count), .weight = w.norm1, .y = u, .eps = config_.rms_eps}));
    return linear(op, {u, {{w.qkv, w.qkv_bias, qkv.slice(first, count)}}});
  }));
  LATHE_RETURN_IF_ERROR(vision_attention(op, {.qkv = qkv,
                                              .q_norm = w.q_norm,
                                              .k_norm = w.k_norm,
                                              .row = layout.row,
                                              .col = layout.col,
                                              .segment_start = layout.segment_start,
                                              .out = attended,
                                              .heads = config_.heads,
                                              .dim = config_.hidden / config_.heads,
                                              .theta = config_.theta,
                                              .norm_eps = config_.rms_eps}));
  return in_tiles(x.rows, tile, [&](int64_t first, int64_t count) -> Status {
    const Rows part = x.slice(first, count), u = normed.slice(0, count), sub = y.slice(0, count);
    LATHE_RETURN_IF_ERROR(linear(op, {attended.slice(first, count), {{w.proj, w.proj_bias, sub}}}));
    LATHE_RETURN_IF_ERROR(add(op, {part, sub, part}));
    LATHE_RETURN_IF_ERROR(norm(op, {.x = part, .weight = w.norm2, .y = u, .eps = config_.rms_eps}));
    LATHE_RETURN_IF_ERROR(mlp(op, {.x = u, .w = w.mlp, .y = sub, .limit = config_.swiglu_limit}));
    return add(op, {part, sub, part});
  });
}

// Downsampling over merge blocks, then the merger: y = gelu(LayerNorm(proj(x))), clamped SwiGLU, no residual.
Status VisionTower::merge(OpContext& op, Arena& activations, const Rows& x, const Rows& features,
                          const VisionTap& tap) const {
  ArenaScope scope(activations);
  const int64_t out = config_.out_hidden, tile = std::min(features.rows, kTileBlocks);
  const Rows blocks = activations.rows(tile, int64_t{config_.hidden} * members(), dtype_);
  const Rows down = activations.rows(tile, out, dtype_), projected = activations.rows(tile, out, dtype_);
  const VisionWeights& w = weights_;
  return in_tiles(features.rows, tile, [&](int64_t first, int64_t count) -> Status {
    const Rows b = blocks.slice(0, count), d = down.slice(0, count), p = projected.slice(0, count);
    const Rows of_blocks = x.slice(first * members(), count * members());
    LATHE_RETURN_IF_ERROR(patch_merge(op, {.x = of_blocks, .out = b, .members = members()}));
    LATHE_RETURN_IF_ERROR(linear(op, {b, {{w.downsample, w.downsample_bias, d}}}));
    if (tap) tap("downsample", d);
    LATHE_RETURN_IF_ERROR(linear(op, {d, {{w.merger_proj, {}, p}}}));
    LATHE_RETURN_IF_ERROR(norm(op, {.kind = NormKind::kLayer,
                                    .x = p,
                                    .weight = w.merger_norm_weight,
                                    .bias = w.merger_norm_bias,
                                    .y = p,
                                    .eps = kMergerNormEps,
                                    .gelu = true}));
    return mlp(op, {.x = p, .w = w.merger, .y = features.slice(first, count), .limit = config_.swiglu_limit});
  });
}

}  // namespace lathe::glm5_next

#include <immintrin.h>

#include <chrono>
#include <cstring>

#include "base/check.h"
#include "ops/linear/panel_rows_avx512.h"

// The products of panel.h on AVX-512. Register r·4 + v of a tile holds row r against outputs {v, 4 + v, 8 + v, 12 + v},
// four running sums each: so the sums of 16 outputs come out in order when four registers are added across.
//
// An fp32 panel keeps 8 k's as the quads (0 2 4 6) and (1 3 5 7), because widening a register of bf16 pairs to its even
// and its odd halves costs one instruction each; prepared rows have the same order.

namespace lathe::avx512 {

namespace {

constexpr int kTileRows = 6;     // 6 x 4 running sums, 4 quads of the panel, 1 of the row: 29 of 32 registers
constexpr int kDirectRows = 4;   // up to here a panel's quads are used as they are read
constexpr int kPieceQuads = 64;  // 16 KB of panel: stays in L1 beside the rows' 6 KB
constexpr int64_t kLine = 64;

using Quads = __m512i;

// --- 32 bytes of 4 weight rows: the first and the second quad of each.
inline void quads_of_rows(const char* r0, const char* r1, const char* r2, const char* r3, Quads& first, Quads& second) {
  const auto load = [](const char* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); };
  const __m512i a = _mm512_inserti64x4(_mm512_castsi256_si512(load(r0)), load(r1), 1);
  const __m512i b = _mm512_inserti64x4(_mm512_castsi256_si512(load(r2)), load(r3), 1);
  first = _mm512_shuffle_i32x4(a, b, 0x88);
  second = _mm512_shuffle_i32x4(a, b, 0xdd);
}

// --- loaders: kStep k's of 4 weight rows become kQuads registers of the panel.

inline void widen_pairs(Quads pairs, Quads& even, Quads& odd) {
  even = _mm512_slli_epi32(pairs, 16);
  odd = _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
}

inline void split_floats(Quads low, Quads high, Quads& even, Quads& odd) {
  even = _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(low), _mm512_castsi512_ps(high), 0x88));
  odd = _mm512_castps_si512(_mm512_shuffle_ps(_mm512_castsi512_ps(low), _mm512_castsi512_ps(high), 0xdd));
}

struct F32ToF32 {
  static constexpr int kStep = 8, kQuads = 2, kBytes = 4;
  static void load(const char* const r[4], Quads* q) {
    Quads low, high;
    quads_of_rows(r[0], r[1], r[2], r[3], low, high);
    split_floats(low, high, q[0], q[1]);
  }
};

struct BF16ToF32 {
  static constexpr int kStep = 16, kQuads = 4, kBytes = 2;
  static void load(const char* const r[4], Quads* q) {
    Quads first, second;
    quads_of_rows(r[0], r[1], r[2], r[3], first, second);
    widen_pairs(first, q[0], q[1]);
    widen_pairs(second, q[2], q[3]);
  }
};

struct F16ToF32 {
  static constexpr int kStep = 8, kQuads = 2, kBytes = 2;
  static void load(const char* const r[4], Quads* q) {
    const auto widened = [](const char* p) {
      return _mm256_castps_si256(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
    };
    const __m512i a = _mm512_inserti64x4(_mm512_castsi256_si512(widened(r[0])), widened(r[1]), 1);
    const __m512i b = _mm512_inserti64x4(_mm512_castsi256_si512(widened(r[2])), widened(r[3]), 1);
    split_floats(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd), q[0], q[1]);
  }
};

// bf16 bits of m·2^-9, the numbers of e4m3 without an exponent.
alignas(64) constexpr uint16_t kTiny[32] = {0, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};

// Words 0..255 are e4m3 numbers; out come bf16 numbers, exact.
inline __m512i bf16_of_e4m3(__m512i words) {
  const __m512i magnitude = _mm512_and_si512(words, _mm512_set1_epi16(0x7f));
  __m512i bits = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
  bits = _mm512_mask_permutexvar_epi16(bits, _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8)), magnitude,
                                       _mm512_load_si512(kTiny));
  bits = _mm512_mask_mov_epi16(bits, _mm512_cmpeq_epu16_mask(magnitude, _mm512_set1_epi16(0x7f)),
                               _mm512_set1_epi16(0x7fc0));
  return _mm512_ternarylogic_epi32(bits, _mm512_slli_epi16(words, 8), _mm512_set1_epi16(static_cast<short>(0x8000)),
                                   0xf8);  // a | b & c
}

struct E4M3ToF32 {
  static constexpr int kStep = 16, kQuads = 4, kBytes = 1;
  static void load(const char* const r[4], Quads* q) {
    const auto row = [](const char* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); };
    __m512i bytes = _mm512_castsi128_si512(row(r[0]));
    bytes = _mm512_inserti32x4(bytes, row(r[1]), 1);
    bytes = _mm512_inserti32x4(bytes, row(r[2]), 2);
    bytes = _mm512_inserti32x4(bytes, row(r[3]), 3);
    widen_pairs(bf16_of_e4m3(_mm512_unpacklo_epi8(bytes, _mm512_setzero_si512())), q[0], q[1]);
    widen_pairs(bf16_of_e4m3(_mm512_unpackhi_epi8(bytes, _mm512_setzero_si512())), q[2], q[3]);
  }
};

struct BF16AsIs {
  static constexpr int kStep = 16, kQuads = 2, kBytes = 2;
  static void load(const char* const r[4], Quads* q) { quads_of_rows(r[0], r[1], r[2], r[3], q[0], q[1]); }
};

struct I8AsIs {
  static constexpr int kStep = 32, kQuads = 2, kBytes = 1;
  static void load(const char* const r[4], Quads* q) { quads_of_rows(r[0], r[1], r[2], r[3], q[0], q[1]); }
};

// --- how a quad of x meets a register of the panel

struct MeetF32 {
  using Sum = __m512;
  static Sum zero() { return _mm512_setzero_ps(); }
  static Sum add(Sum sum, Quads x, Quads w) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(w), sum);
  }
};
struct MeetBF16 {
  using Sum = __m512;
  static Sum zero() { return _mm512_setzero_ps(); }
  static Sum add(Sum sum, Quads x, Quads w) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }
};
// Lanes said to be int32: g++ copies running sums about that it takes for int64.
typedef int32_t Int32s __attribute__((vector_size(64)));

struct MeetI8 {  // x is kept as x + 128, unsigned
  using Sum = Int32s;
  static Sum zero() { return Sum{}; }
  static Sum add(Sum sum, Quads x, Quads w) {
    return reinterpret_cast<Sum>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum), x, w));
  }
};

inline Quads row_quad(const char* p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// --- the sums of 16 outputs, in order

inline __m512 across(__m512 s0, __m512 s1, __m512 s2, __m512 s3) {
  const auto pair = [](__m512 a, __m512 b) {
    return _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)));
  };
  const __m512d a = pair(s0, s1), b = pair(s2, s3);
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
}

inline __m512i across(Int32s s0, Int32s s1, Int32s s2, Int32s s3) {
  const auto pair = [](Int32s x, Int32s y) {
    const __m512i a = reinterpret_cast<__m512i>(x), b = reinterpret_cast<__m512i>(y);
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  };
  const __m512i a = pair(s0, s1), b = pair(s2, s3);
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// What turns sums into values.
struct Finish {
  bool quantised;
  __m512 weight_scale;
  __m512i offset;  // 128 times each output's sum of weights
};

inline __m512 finished(const Finish& f, const float* row_scale, __m512 s0, __m512 s1, __m512 s2, __m512 s3) {
  const __m512 v = across(s0, s1, s2, s3);
  return f.quantised ? _mm512_mul_ps(_mm512_mul_ps(v, f.weight_scale), _mm512_set1_ps(*row_scale)) : v;
}
inline __m512 finished(const Finish& f, const float* row_scale, Int32s s0, Int32s s1, Int32s s2, Int32s s3) {
  const __m512 v = _mm512_cvtepi32_ps(_mm512_sub_epi32(across(s0, s1, s2, s3), f.offset));
  return _mm512_mul_ps(_mm512_mul_ps(v, f.weight_scale), _mm512_set1_ps(*row_scale));
}

// --- many rows: a panel's quads laid out, then tiles of rows against them

struct TileRows {
  const char* x[kTileRows];
  const float* scale[kTileRows];  // where rows are quantised
};

// What is fetched while a tile is worked on: some lines before it, or some a quad. Spread as thinly as can be: a core
// has 16 places for lines on their way, and x needs them, too.
struct Fetch {
  const char* at = nullptr;
  int lines_before = 0, lines_per_quad = 0;
};

// Where a panel's piece of K stands: sums begin at zero, or go on from `sums`; they stay there, or come out as values,
// [R, kPanel].
enum Piece { kWhole, kFirst, kInner, kLast };
constexpr bool begins(Piece p) { return p == kWhole || p == kFirst; }
constexpr bool ends(Piece p) { return p == kWhole || p == kLast; }

template <class Meet, Piece kPiece, int R>
void tile(const TileRows& rows, int64_t x_offset, const Quads* panel, int quads, Fetch fetch, const Finish& finish,
          typename Meet::Sum* sums, float* values) {
  const char* row[R];
  typename Meet::Sum s[R][4];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) row[r] = rows.x[r] + x_offset;
#pragma GCC unroll 24
  for (int i = 0; i < R * 4; ++i) s[i / 4][i % 4] = begins(kPiece) ? Meet::zero() : sums[i];
  for (int i = 0; i < fetch.lines_before; ++i) _mm_prefetch(fetch.at + i * kLine, _MM_HINT_T1);
  for (int q = 0; q < quads; ++q) {
    const Quads w0 = panel[0], w1 = panel[1], w2 = panel[2], w3 = panel[3];
    panel += 4;
    for (int i = 0; i < fetch.lines_per_quad; ++i, fetch.at += kLine) _mm_prefetch(fetch.at, _MM_HINT_T1);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Quads xq = row_quad(row[r] + q * 16);
      s[r][0] = Meet::add(s[r][0], xq, w0);
      s[r][1] = Meet::add(s[r][1], xq, w1);
      s[r][2] = Meet::add(s[r][2], xq, w2);
      s[r][3] = Meet::add(s[r][3], xq, w3);
    }
  }
  if constexpr (ends(kPiece)) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      _mm512_store_ps(values + r * kPanel, finished(finish, rows.scale[r], s[r][0], s[r][1], s[r][2], s[r][3]));
  } else {
#pragma GCC unroll 24
    for (int i = 0; i < R * 4; ++i) sums[i] = s[i / 4][i % 4];
  }
}

template <class Meet, Piece kPiece, class... A>
void tile(int rows, const A&... a) {
  switch (rows) {
    case 1:
      return tile<Meet, kPiece, 1>(a...);
    case 2:
      return tile<Meet, kPiece, 2>(a...);
    case 3:
      return tile<Meet, kPiece, 3>(a...);
    case 4:
      return tile<Meet, kPiece, 4>(a...);
    case 5:
      return tile<Meet, kPiece, 5>(a...);
    default:
      return tile<Meet, kPiece, 6>(a...);
  }
}

// The block scales of 16 outputs, for a weight whose values are stored·scale; nothing for others.
struct BlockScales {
  const Weight* w = nullptr;
  int64_t first_out = 0;

  // Output 4L + v's scale at k, in lanes 4L..4L + 3.
  __m512 at(int64_t k, int v) const {
    alignas(64) float s[kPanel];
    for (int L = 0; L < 4; ++L) {
      const int64_t out = std::min(first_out + 4 * L + v, w->out - 1);
      for (int i = 0; i < 4; ++i) s[4 * L + i] = w->scale[out / w->block_out * w->scale_stride + k / w->block_in];
    }
    return _mm512_load_ps(s);
  }
};

// Lays out k in [begin, end) of 16 rows; past `width` there are zeros.
template <class Load>
void lay_out(const char* const rows[kPanel], int64_t begin, int64_t end, int64_t width, const BlockScales& scales,
             Quads* panel) {
  for (int v = 0; v < 4; ++v) {
    Quads* to = panel + v;
    __m512 scale = _mm512_set1_ps(1);
    int64_t scale_until = begin;
    for (int64_t k = begin; k < end; k += Load::kStep, to += 4 * Load::kQuads) {
      const char* r[4];
      for (int L = 0; L < 4; ++L) r[L] = rows[4 * L + v] + k * Load::kBytes;
      alignas(64) char tail[4][64];
      if (k + Load::kStep > width) {
        std::memset(tail, 0, sizeof tail);
        for (int L = 0; L < 4; ++L) {
          if (k < width) std::memcpy(tail[L], r[L], (width - k) * Load::kBytes);
          r[L] = tail[L];
        }
      }
      Quads q[Load::kQuads];
      Load::load(r, q);
      if (scales.w) {
        if (k >= scale_until)
          scale = scales.at(std::min(k, width - 1), v), scale_until = (k / scales.w->block_in + 1) * scales.w->block_in;
        for (int i = 0; i < Load::kQuads; ++i)
          q[i] = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(q[i]), scale));
      }
      for (int i = 0; i < Load::kQuads; ++i) to[4 * i] = q[i];
    }
  }
}

// --- few rows: quads straight from the weight's rows, `stride` bytes apart; what lies `ahead` bytes further is fetched

template <class Load, class Meet, int R, bool kCount>
void direct(const char* const* x, const char* w, int64_t stride, int64_t width, int64_t ahead, typename Meet::Sum* sums,
            Int32s* counts) {
  constexpr int kStepBytes = Load::kStep * Load::kBytes, kSteps = kLine / kStepBytes;
  static_assert(kSteps == 2 || kSteps == 4);
  typename Meet::Sum s[R][4];
  Int32s count[4];
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) count[v] = MeetI8::zero();
#pragma GCC unroll 16
  for (int i = 0; i < R * 4; ++i) s[i / 4][i % 4] = Meet::zero();
  const int64_t steps = width / Load::kStep, apart = 4 * stride;
  for (int64_t step = 0; step < steps; ++step, w += kStepBytes) {
    const int64_t turn =
        step % kSteps * (4 / kSteps) * apart + ahead;  // each step fetches its share of the rows' lines
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const char* const r0 = w + v * stride;
      const char* const r[4] = {r0, r0 + apart, r0 + 2 * apart, r0 + 3 * apart};
      _mm_prefetch(r0 + turn, _MM_HINT_T1);
      if (kSteps == 2) _mm_prefetch(r0 + turn + apart, _MM_HINT_T1);
      Quads q[Load::kQuads];
      Load::load(r, q);
#pragma GCC unroll 4
      for (int i = 0; i < Load::kQuads; ++i) {
        if (kCount) count[v] = MeetI8::add(count[v], _mm512_set1_epi8(1), q[i]);
#pragma GCC unroll 4
        for (int j = 0; j < R; ++j) s[j][v] = Meet::add(s[j][v], row_quad(x[j] + (step * Load::kQuads + i) * 16), q[i]);
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) counts[v] = count[v];
#pragma GCC unroll 24
  for (int i = 0; i < R * 4; ++i) sums[i] = s[i / 4][i % 4];
}

__m512 row_scales_of_weight(const Weight& w, int64_t first_out) {
  alignas(64) float s[kPanel];
  for (int i = 0; i < kPanel; ++i) s[i] = w.scale[std::min(first_out + i, w.out - 1) * w.scale_stride];
  return _mm512_load_ps(s);
}

// --- one product

using Block = PanelBlock;

Finish finish_of(const Block& b, const Int32s* counts) {
  Finish f{b.x.scale != nullptr, _mm512_set1_ps(1), _mm512_setzero_si512()};
  if (f.quantised) f.weight_scale = row_scales_of_weight(b.w, b.first_out);
  if (b.x.operand == Operand::kI8) f.offset = _mm512_slli_epi32(across(counts[0], counts[1], counts[2], counts[3]), 7);
  return f;
}

template <class Load, class Meet, int R>
void few(const Block& b, float* values) {
  constexpr bool kCount = std::is_same_v<Meet, MeetI8>;
  const char* x[R];
  for (int r = 0; r < R; ++r) x[r] = b.x.at(b.row(r));
  typename Meet::Sum sums[R * 4];
  Int32s counts[4];
  const char* w = static_cast<const char*>(b.w.at(b.first_out));
  const int64_t ahead = b.next ? static_cast<const char*>(b.next) - w : 0;
  direct<Load, Meet, R, kCount>(x, w, b.w.stride * Load::kBytes, b.w.in, ahead, sums, counts);
  const Finish finish = finish_of(b, counts);
  for (int r = 0; r < R; ++r)
    _mm512_store_ps(values + r * kPanel, finished(finish, b.x.scale ? b.x.scale + b.row(r) : nullptr, sums[r * 4],
                                                  sums[r * 4 + 1], sums[r * 4 + 2], sums[r * 4 + 3]));
}

// Each output's sum of weights, four lanes a quad: what x + 128 adds too much of.
void add_up(const Quads* panel, int quads, Int32s* counts) {
  const Quads one = _mm512_set1_epi8(1);
  Int32s c0 = counts[0], c1 = counts[1], c2 = counts[2], c3 = counts[3];
  for (int q = 0; q < quads; ++q, panel += 4) {
    c0 = MeetI8::add(c0, one, panel[0]);
    c1 = MeetI8::add(c1, one, panel[1]);
    c2 = MeetI8::add(c2, one, panel[2]);
    c3 = MeetI8::add(c3, one, panel[3]);
  }
  counts[0] = c0, counts[1] = c1, counts[2] = c2, counts[3] = c3;
}

constexpr int64_t tiles_of(int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

// The lines of the panel after this one, in equal shares for all tiles.
class Ahead {
 public:
  Ahead(const Block& b, int bytes_per_value, int64_t tiles) {
    if (!b.next) return;
    at_ = static_cast<const char*>(b.next);
    end_ = at_ + kPanel * b.w.stride * bytes_per_value;
    share_ = (end_ - at_ + kLine * tiles - 1) / (kLine * tiles);
  }
  Fetch next(int quads) {
    if (at_ >= end_) return {};
    Fetch f{at_, static_cast<int>(share_), 0};
    if (share_ > kBurst) f = {at_, 0, static_cast<int>((share_ + quads - 1) / quads)};
    at_ += kLine * (f.lines_before + f.lines_per_quad * quads);
    return f;
  }

 private:
  static constexpr int64_t kBurst = 6;
  const char *at_ = nullptr, *end_ = nullptr;
  int64_t share_ = 0;
};

// One piece of K, laid out, against all rows of a block.
template <class Meet, Piece kPiece>
void tiles_of_piece(const Block& b, int64_t x_offset, const Quads* panel, int quads, Ahead& ahead, const Finish& finish,
                    const PanelScratch& scratch, float* values) {
  auto* sums = reinterpret_cast<typename Meet::Sum*>(scratch.sums);
  const int64_t tiles = tiles_of(b.rows), small = b.rows / tiles,
                larger = b.rows % tiles;  // rows of a tile: small, or one more
  for (int64_t t = 0, row = 0; t < tiles; ++t) {
    const int n = static_cast<int>(small + (t < larger));
    TileRows at;
    for (int r = 0; r < n; ++r) {
      const int64_t x_row = b.row(row + r);
      at.x[r] = b.x.at(x_row);
      at.scale[r] = b.x.scale ? b.x.scale + x_row : nullptr;
    }
    tile<Meet, kPiece>(n, at, x_offset, panel, quads, ahead.next(quads), finish, sums + row * 4, values + row * kPanel);
    row += n;
  }
}

template <class Load, class Meet>
void many_rows(const Block& b, float* values, const PanelScratch& scratch) {
  constexpr int64_t kPieceK = int64_t{kPieceQuads} / Load::kQuads * Load::kStep;
  const char* rows[kPanel];
  for (int i = 0; i < kPanel; ++i) rows[i] = static_cast<const char*>(b.w.at(std::min(b.first_out + i, b.w.out - 1)));
  const int64_t padded = (b.w.in + Load::kStep - 1) / Load::kStep * Load::kStep;
  const BlockScales scales{b.w.scale && !b.w.is_w8a8() ? &b.w : nullptr, b.first_out};
  Quads* panel = reinterpret_cast<Quads*>(scratch.panel);
  Int32s counts[4] = {};
  Ahead ahead(b, Load::kBytes, tiles_of(b.rows) * ((padded + kPieceK - 1) / kPieceK));
  for (int64_t k = 0; k < padded; k += kPieceK) {
    const int64_t end = std::min(k + kPieceK, padded), x_offset = k / Load::kStep * Load::kQuads * 16;
    const int quads = static_cast<int>((end - k) / Load::kStep * Load::kQuads);
    lay_out<Load>(rows, k, end, b.w.in, scales, panel);
    if (std::is_same_v<Meet, MeetI8>) add_up(panel, quads, counts);
    if (end < padded) {
      if (k == 0)
        tiles_of_piece<Meet, kFirst>(b, x_offset, panel, quads, ahead, Finish{}, scratch, values);
      else
        tiles_of_piece<Meet, kInner>(b, x_offset, panel, quads, ahead, Finish{}, scratch, values);
    } else {
      const Finish finish = finish_of(b, counts);
      if (k == 0)
        tiles_of_piece<Meet, kWhole>(b, x_offset, panel, quads, ahead, finish, scratch, values);
      else
        tiles_of_piece<Meet, kLast>(b, x_offset, panel, quads, ahead, finish, scratch, values);
    }
  }
}

template <class Load, class Meet>
void product(const Block& b, float* values, const PanelScratch& scratch, bool may_be_direct = true) {
  if (may_be_direct && b.w.in % Load::kStep == 0 && b.first_out + kPanel <= b.w.out) switch (b.rows) {
      case 1:
        return few<Load, Meet, 1>(b, values);
      case 2:
        return few<Load, Meet, 2>(b, values);
      case 3:
        return few<Load, Meet, 3>(b, values);
      case 4:
        return few<Load, Meet, 4>(b, values);
    }
  static_assert(kDirectRows == 4);
  many_rows<Load, Meet>(b, values, scratch);
}

void multiply(const Block& b, float* values, const PanelScratch& scratch) {
  if (b.x.operand == Operand::kI8) return product<I8AsIs, MeetI8>(b, values, scratch);
  if (b.x.operand == Operand::kBF16) return product<BF16AsIs, MeetBF16>(b, values, scratch);
  switch (b.w.dtype) {
    case DType::kF32:
      return product<F32ToF32, MeetF32>(b, values, scratch);
    case DType::kBF16:
      return product<BF16ToF32, MeetF32>(b, values, scratch);
    case DType::kF16:
      return product<F16ToF32, MeetF32>(b, values, scratch);
    default:
      return product<E4M3ToF32, MeetF32>(b, values, scratch, b.w.is_w8a8());
  }
}

// --- which way bf16 goes

double seconds_of(void (*work)(Quads*), Quads* data) {
  double best = 1;
  for (int i = 0; i < 20; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    work(data);
    asm volatile("" : : "r"(data) : "memory");  // the work is wanted
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

template <class Meet>
void chains(Quads* data) {
  typename Meet::Sum s[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) s[i] = Meet::zero();
  for (int n = 0; n < 500; ++n) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) s[i] = Meet::add(s[i], data[i], data[8]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) std::memcpy(data + i, &s[i], sizeof s[i]);
}

// A dot instruction does twice the work of an fp32 one, but on some cores takes four times as long (VDPBF16PS at one in
// two cycles, beside two fp32 sums a cycle). So it is asked once, by the clock; the answers differ by far more than
// noise.
bool dot_beats_widening() {
  alignas(64) Quads data[10] = {};
  for (int i = 0; i < 10; ++i) data[i] = _mm512_set1_epi16(static_cast<short>(0x3f80 + i));
  const double dot = seconds_of(chains<MeetBF16>, data);
  for (int i = 0; i < 10; ++i) data[i] = _mm512_castps_si512(_mm512_set1_ps(1 + 0.01f * static_cast<float>(i)));
  return dot < 2 * seconds_of(chains<MeetF32>, data);
}

Operand operand(DType x, const Weight& w) {
  if (w.is_w8a8()) return w.dtype == DType::kI8 ? Operand::kI8 : Operand::kE4M3;
  static const bool dot = dot_beats_widening();
  return dot && x == DType::kBF16 && w.dtype == DType::kBF16 ? Operand::kBF16 : Operand::kF32;
}

// Rows end with a whole step of every loader: 16 values, 32 of int8.
int64_t row_bytes(Operand o, int64_t width) {
  const auto padded = [&](int64_t step) { return (width + step - 1) / step * step; };
  return o == Operand::kI8 ? padded(32) : padded(16) * (o == Operand::kBF16 ? 2 : 4);
}

}  // namespace

const PanelKernels& panel_kernels() {
  static constexpr PanelKernels kernels{"avx512",     operand,       row_bytes,  prepare_row,        multiply,
                                        store_values, swiglu_values, put_values, add_weighted_values};
  return kernels;
}

}  // namespace lathe::avx512

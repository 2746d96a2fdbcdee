#include "model/glm5_next/synth.h"

#include <cmath>
#include <cstring>

#include "base/bf16.h"
#include "base/host_memory.h"
#include "base/mapped_file.h"

namespace lathe::glm5_next {

namespace {

constexpr int64_t kMaxConfigBytes = 16 << 20;

// SplitMix64's finaliser: every bit of x reaches every bit of the result.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t seed_of(std::string_view name, uint64_t seed) {
  uint64_t h = 0xcbf29ce484222325u;  // FNV-1a
  for (unsigned char c : name) h = (h ^ c) * 0x100000001b3u;
  return mix(h + mix(seed + 0x9e3779b97f4a7c15u));
}

uint64_t random_bits(uint64_t seed, int64_t i) { return mix(seed + static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u); }

// Sum of four even 16-bit numbers, brought to mean 0 and deviation 1: close to a Gaussian, but bounded, and exact on
// every machine.
float bell(uint64_t bits) {
  const int sum = static_cast<int>(bits & 0xffff) + static_cast<int>(bits >> 16 & 0xffff) +
                  static_cast<int>(bits >> 32 & 0xffff) + static_cast<int>(bits >> 48);
  return static_cast<float>(sum - 2 * 65535) * (1 / 37837.227f);
}

float even(uint64_t bits) {
  return static_cast<float>(static_cast<int64_t>(bits >> 40) - (int64_t{1} << 23)) * (1.0f / (1 << 23));
}  // [-1, 1)

class RandomTensor {
 public:
  RandomTensor(const TensorInfo& info, uint64_t seed) : info_(info), seed_(seed_of(info.name, seed)) {}

  float value(int64_t i) const {
    const InitialValue& v = info_.initial;
    const uint64_t bits = random_bits(seed_, i);
    if (v.kind == InitialValue::kEven) return v.middle + v.spread * even(bits);
    const float x = v.middle + v.spread * bell(bits);
    return v.kind == InitialValue::kNearlyOne && on_mixing_diagonal(i) ? x + 2 : x;
  }

  // Values [first, first + count), as they are.
  void fill(int64_t first, int64_t count, void* out) const {
    if (info_.dtype == DType::kF32)
      for (int64_t i = 0; i < count; ++i) static_cast<float*>(out)[i] = value(first + i);
    else
      for (int64_t i = 0; i < count; ++i) static_cast<bf16*>(out)[i] = to_bf16(value(first + i));
  }

  // Rows [begin, begin + count) of a matrix, divided by the scales of its blocks.
  void fill_scaled(int64_t begin, int64_t count, const RandomTensor& scale, void* out) const {
    const int64_t width = info_.shape[1], scales = scale.info_.shape[1];
    for (int64_t r = begin; r < begin + count; ++r)
      for (int64_t c = 0; c < width; ++c) {
        const int64_t at = (r - begin) * width + c;
        const float x = value(r * width + c) / scale.value(r / info_.block_out * scales + c / info_.block_in);
        if (info_.dtype == DType::kI8)
          static_cast<int8_t*>(out)[at] = static_cast<int8_t>(std::lrintf(x));
        else
          static_cast<e4m3*>(out)[at] = to_e4m3(x);
      }
  }

 private:
  // Base [2s + s·s] of a hyper-connection: pre, post, then the mixing part row by row.
  bool on_mixing_diagonal(int64_t i) const {
    const int64_t s = static_cast<int64_t>(std::sqrt(static_cast<double>(info_.count() + 1))) - 1;
    return i >= 2 * s && (i - 2 * s) % (s + 1) == 0;
  }

  TensorInfo info_;
  uint64_t seed_;
};

std::vector<TensorSource> random_tensors(const Config& config, WeightFormat format, uint64_t seed) {
  const std::vector<TensorInfo> list = list_tensors(config, format);
  std::vector<TensorSource> sources;
  for (size_t i = 0; i < list.size(); ++i) {
    const TensorInfo& t = list[i];
    const RandomTensor tensor(t, seed);
    TensorSource source{t.name, t.dtype, t.shape, {}};
    if (t.block_in && !t.scale)
      source.fill = [tensor, scale = RandomTensor(list[i + 1], seed)](int64_t begin, int64_t count, void* out) {
        tensor.fill_scaled(begin, count, scale, out);
      };
    else
      source.fill = [tensor, row = t.count() / t.shape[0]](int64_t begin, int64_t count, void* out) {
        tensor.fill(begin * row, count * row, out);
      };
    sources.push_back(std::move(source));
  }
  return sources;
}

}  // namespace

Status synthesise(const std::string& config_file, const std::string& dir, const SynthOptions& options,
                  ThreadPool& pool) {
  LATHE_ASSIGN(const std::string text, read_text_file(config_file, kMaxConfigBytes));
  LATHE_ASSIGN(const Config config, Config::parse(text, config_file));
  LATHE_ASSIGN(const WeightFormat format, read_weight_format(text, config_file));
  LATHE_ASSIGN(NewModelFolder folder, NewModelFolder::create(dir));
  LATHE_RETURN_IF_ERROR(
      folder.write_tensors(random_tensors(config, format, options.seed), options.shard_bytes, pool, options.progress));
  return folder.finish(text);
}

Result<Checkpoint> synthesise_in_memory(const Config& config, WeightFormat format, uint64_t seed, ThreadPool& pool) {
  constexpr int64_t kAlignment = 64, kPieceBytes = int64_t{1} << 20;
  const std::vector<TensorSource> sources = random_tensors(config, format, seed);
  int64_t bytes = 0;
  std::vector<int64_t> offset;
  for (const TensorSource& s : sources) {
    offset.push_back(bytes);
    bytes += (s.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  char* memory = static_cast<char*>(reserve_pages(bytes));
  if (!memory) return exhausted("no address space for {} bytes of weights", bytes);
  std::shared_ptr<const void> owner(memory, [bytes](const void* p) { release_pages(const_cast<void*>(p), bytes); });

  struct Piece {
    int source;
    int64_t begin, count;
  };
  std::vector<Piece> pieces;
  std::map<std::string, TensorSpan> spans;
  for (size_t i = 0; i < sources.size(); ++i) {
    const TensorSource& s = sources[i];
    spans[s.name] = {memory + offset[i], s.dtype, s.shape, s.bytes()};
    const int64_t step = std::max(kPieceBytes * s.rows() / std::max(s.bytes(), int64_t{1}), int64_t{1});
    for (int64_t row = 0; row < s.rows(); row += step)
      pieces.push_back({static_cast<int>(i), row, std::min(step, s.rows() - row)});
  }
  pool.run(static_cast<int64_t>(pieces.size()), [&](int64_t task, int) {
    const auto& [source, begin, count] = pieces[task];
    const TensorSource& s = sources[source];
    s.fill(begin, count, memory + offset[source] + begin * (s.bytes() / s.rows()));
  });
  return Checkpoint::of_memory("random weights of " + config.file, spans, std::move(owner));
}

}  // namespace lathe::glm5_next

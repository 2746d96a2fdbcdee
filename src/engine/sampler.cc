#include "engine/sampler.h"

#include <algorithm>
#include <cstring>

namespace lathe {

namespace {

constexpr int64_t kAlign = 64;

// Lays arrays one after another into a block, and gives their place in it.
class BlockWriter {
 public:
  explicit BlockWriter(std::vector<char>& block) : block_(block) { block_.clear(); }
  template <class T>
  T* add(int64_t count) {
    const size_t at = (block_.size() + kAlign - 1) / kAlign * kAlign;
    block_.resize(at + count * sizeof(T));
    return reinterpret_cast<T*>(block_.data() + at);
  }

 private:
  std::vector<char>& block_;
};

int64_t rounded(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

Status grow(Device& device, DeviceBuffer& buffer, int64_t bytes) {
  if (buffer.bytes() >= bytes) return Status::ok();
  LATHE_ASSIGN(buffer, DeviceBuffer::allocate(device, std::max(bytes, 2 * buffer.bytes())));
  return Status::ok();
}

}  // namespace

// Fills the host image of the operator's inputs; the arrays of args_ hold offsets into it until upload().
void Sampler::pack(std::span<const DrawRow> rows) {
  const int64_t n = static_cast<int64_t>(rows.size());
  int64_t edits = 0, masks = 0;
  bool given = false, logprobs = false;
  args_ = {};
  args_.vocab = vocab_;
  for (const DrawRow& r : rows) {
    edits += static_cast<int64_t>(r.edits.size()), masks += !r.allowed.empty();
    given |= r.given >= 0, logprobs |= r.best >= 0;
    args_.best_width = std::max(args_.best_width, r.best);
  }
  // One allocation: pointers into the image stay valid while it is filled.
  in_.reserve(n * (sizeof(SampleSettings) + sizeof(Penalties) + 6 * 4) + edits * sizeof(LogitEdit) +
              masks * mask_words() * 4 + 16 * kAlign);
  BlockWriter block(in_);
  auto array = [&](auto& field, int64_t count) {
    using T = std::remove_cvref_t<decltype(field[0])>;
    T* p = block.add<T>(count);
    field = {p, count};
    return p;
  };
  int32_t* logit_row = array(args_.logit_row, n);
  SampleSettings* settings = array(args_.settings, n);
  int32_t* position = array(args_.position, n);
  for (int64_t r = 0; r < n; ++r)
    logit_row[r] = static_cast<int32_t>(rows[r].logit_row), settings[r] = rows[r].settings,
    position[r] = rows[r].position;
  if (edits) {
    Penalties* penalties = array(args_.penalties, n);
    int32_t* start = array(args_.edit_start, n + 1);
    LogitEdit* edit = array(args_.edits, edits);
    start[0] = 0;
    for (int64_t r = 0; r < n; ++r) {
      penalties[r] = rows[r].penalties;
      std::copy(rows[r].edits.begin(), rows[r].edits.end(), edit + start[r]);
      start[r + 1] = start[r] + static_cast<int32_t>(rows[r].edits.size());
    }
  }
  if (masks) {
    int32_t* mask = array(args_.mask, n);
    uint32_t* allowed = array(args_.allowed, masks * mask_words());
    for (int64_t r = 0, next = 0; r < n; ++r) {
      mask[r] = rows[r].allowed.empty() ? -1 : static_cast<int32_t>(next++);
      std::copy(rows[r].allowed.begin(), rows[r].allowed.end(), allowed + std::max(mask[r], 0) * mask_words());
    }
  }
  if (given) {
    int32_t* p = array(args_.given, n);
    for (int64_t r = 0; r < n; ++r) p[r] = rows[r].given;
  }
  if (logprobs) {
    int32_t* p = array(args_.best_wanted, n);
    for (int64_t r = 0; r < n; ++r) p[r] = rows[r].best;
  }
}

// Sends the inputs, and turns args_' host addresses into the device's.
Status Sampler::upload(Device& device) {
  const int64_t n = args_.logit_row.count, width = args_.best_width;
  LATHE_RETURN_IF_ERROR(grow(device, in_on_device_, static_cast<int64_t>(in_.size())));
  LATHE_RETURN_IF_ERROR(grow(device, out_on_device_, 3 * rounded(n * 4) + 2 * rounded(n * width * 4)));
  device.to_device(in_on_device_.as(), in_.data(), static_cast<int64_t>(in_.size()));
  auto move = [&](auto& array) {
    if (array.empty()) return;
    const auto* begin = reinterpret_cast<const char*>(array.data);
    using T = std::remove_reference_t<decltype(array[0])>;
    array.data = reinterpret_cast<T*>(in_on_device_.as<char>() + (begin - in_.data()));
  };
  move(args_.logit_row), move(args_.settings), move(args_.position), move(args_.penalties), move(args_.edit_start);
  move(args_.edits), move(args_.mask), move(args_.allowed), move(args_.given), move(args_.best_wanted);
  char* out = out_on_device_.as<char>();
  auto take = [&](auto& array, int64_t count) {
    using T = std::remove_reference_t<decltype(array[0])>;
    array = {reinterpret_cast<T*>(out), count};
    out += rounded(count * 4);
  };
  take(args_.token, n);
  if (args_.best_wanted.empty()) return Status::ok();
  take(args_.logprob, n), take(args_.rank, n);
  take(args_.best_token, n * width), take(args_.best_logprob, n * width);
  return Status::ok();
}

Status Sampler::read(Device& device, std::span<const DrawRow> rows) {
  const int64_t n = static_cast<int64_t>(rows.size()), width = args_.best_width;
  const bool logprobs = !args_.best_wanted.empty();
  out_.resize(logprobs ? 3 * rounded(n * 4) + 2 * rounded(n * width * 4) : n * 4);
  LATHE_RETURN_IF_ERROR(device.to_host(out_.data(), out_on_device_.as(), static_cast<int64_t>(out_.size())));
  const char* p = out_.data();
  auto next = [&]<class T>(T*, int64_t count) {
    const T* at = reinterpret_cast<const T*>(p);
    p += rounded(count * 4);
    return at;
  };
  const int32_t* token = next(static_cast<int32_t*>(nullptr), n);
  drawn_.resize(std::max<size_t>(drawn_.size(), n));
  for (int64_t r = 0; r < n; ++r) drawn_[r].token = token[r], drawn_[r].best.clear();
  if (!logprobs) return Status::ok();
  const float* logprob = next(static_cast<float*>(nullptr), n);
  const int32_t* rank = next(static_cast<int32_t*>(nullptr), n);
  const int32_t* best_token = next(static_cast<int32_t*>(nullptr), n * width);
  const float* best_logprob = next(static_cast<float*>(nullptr), n * width);
  for (int64_t r = 0; r < n; ++r) {
    drawn_[r].logprob = logprob[r], drawn_[r].rank = rank[r];
    for (int i = 0; i < rows[r].best && best_token[r * width + i] >= 0; ++i)
      drawn_[r].best.push_back({best_token[r * width + i], best_logprob[r * width + i], i + 1});
  }
  return Status::ok();
}

Result<std::span<const Drawn>> Sampler::draw(Executor& executor, const Rows& logits, std::span<const DrawRow> rows) {
  if (rows.empty()) return std::span<const Drawn>();
  pack(rows);
  LATHE_RETURN_IF_ERROR(upload(executor.device()));
  args_.logits = logits;
  OpContext op = executor.op_context();
  LATHE_RETURN_IF_ERROR(sample(op, args_));
  LATHE_RETURN_IF_ERROR(read(executor.device(), rows));
  return std::span<const Drawn>(drawn_.data(), rows.size());
}

}  // namespace lathe

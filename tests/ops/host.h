#pragma once

#include <memory>
#include <vector>

#include "ops/op.h"
#include "ops/row_floats.h"

namespace lathe::testing {

// A context on the CPU with memory of its own, and views over values a test writes down.
class Host {
 public:
  explicit Host(int threads = 2, int64_t bytes = int64_t{64} << 20)
      : pool(threads), memory(Arena::create(*device, bytes).value()), scratch(Arena::create(*device, bytes).value()) {
    ctx.device = device.get();
    ctx.pool = &pool;
    ctx.scratch = &scratch;
  }

  Rows empty(int64_t rows, int64_t width, DType dtype) { return memory.rows(rows, width, dtype); }
  Rows rows(int64_t rows, int64_t width, const std::vector<float>& values, DType dtype = DType::kF32) {
    Rows r = empty(rows, width, dtype);
    LATHE_CHECK(static_cast<int64_t>(values.size()) == rows * width);
    write_floats(r.data, dtype, rows * width, values.data());
    return r;
  }
  Array<const float> vector(const std::vector<float>& values) {
    const auto count = static_cast<int64_t>(values.size());
    return {rows(1, count, values).f32(), count};
  }
  Array<const int32_t> ints(const std::vector<int32_t>& values) {
    int32_t* p = memory.take<int32_t>(static_cast<int64_t>(values.size()));
    std::copy(values.begin(), values.end(), p);
    return {p, static_cast<int64_t>(values.size())};
  }
  static std::vector<float> values(const Rows& r) {
    std::vector<float> out(r.rows * r.width);
    for (int64_t i = 0; i < r.rows; ++i) read_row(r, i, out.data() + i * r.width);
    return out;
  }
  // The same context with one operator's variant chosen.
  OpContext with(const std::string& choice) {
    choices.push_back(std::make_unique<Choices>());
    LATHE_CHECK(choices.back()->add(choice).is_ok());
    OpContext chosen = ctx;
    chosen.choices = choices.back().get();
    return chosen;
  }

  std::unique_ptr<Device> device = make_cpu_device();
  ThreadPool pool;
  Arena memory, scratch;
  OpContext ctx;

 private:
  std::vector<std::unique_ptr<Choices>> choices;
};

}  // namespace lathe::testing

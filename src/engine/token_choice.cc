#include "engine/token_choice.h"

namespace lathe {

namespace {

Status grow(Device& device, DeviceBuffer& buffer, int64_t bytes) {
  if (buffer.bytes() >= bytes) return Status::ok();
  LATHE_ASSIGN(buffer, DeviceBuffer::allocate(device, bytes));
  return Status::ok();
}

}  // namespace

Result<std::vector<int32_t>> TokenChoice::choose(Executor& executor, const Rows& logits,
                                                 const std::vector<SampleSettings>& settings,
                                                 const std::vector<int32_t>& positions) {
  const int64_t rows = logits.rows;
  LATHE_CHECK(static_cast<int64_t>(settings.size()) == rows && static_cast<int64_t>(positions.size()) == rows);
  std::vector<int32_t> tokens(rows);
  if (rows == 0) return tokens;
  Device& device = executor.device();
  const int64_t settings_bytes = rows * static_cast<int64_t>(sizeof(SampleSettings)),
                ints = rows * static_cast<int64_t>(sizeof(int32_t));
  LATHE_RETURN_IF_ERROR(grow(device, settings_, settings_bytes));
  LATHE_RETURN_IF_ERROR(grow(device, positions_, ints));
  LATHE_RETURN_IF_ERROR(grow(device, tokens_, ints));
  device.to_device(settings_.as(), settings.data(), settings_bytes);
  device.to_device(positions_.as(), positions.data(), ints);
  OpContext op = executor.op_context();
  LATHE_RETURN_IF_ERROR(sample(op, {.logits = logits,
                                    .settings = {settings_.as<SampleSettings>(), rows},
                                    .position = {positions_.as<int32_t>(), rows},
                                    .token = {tokens_.as<int32_t>(), rows},
                                    .vocab = vocab_}));
  LATHE_RETURN_IF_ERROR(device.to_host(tokens.data(), tokens_.as(), ints));
  for (int64_t i = 0; i < rows; ++i)
    if (tokens[i] < 0) return corrupt("the model gave no finite logit at position {}: damaged weights?", positions[i]);
  return tokens;
}

}  // namespace lathe

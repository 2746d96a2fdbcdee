#include "feedback/case_memory.h"

namespace lathe {

Result<CaseMemory> CaseMemory::create(Device& device, int64_t capacity_bytes) {
  LATHE_ASSIGN(Arena memory, Arena::create(device, capacity_bytes));
  CaseMemory m(device, std::move(memory));
  m.base_ = m.memory_.take<char>(0);
  return m;
}

std::unique_ptr<AnyCase> CaseMemory::build(const AnyOp& op, int case_index, uint64_t seed, uint8_t poison) {
  const auto build_once = [&] {
    memory_.reset();
    CaseBuilder builder(*device_, memory_, seed);
    return op.build(case_index, builder);
  };
  build_once();  // how much memory it takes shows when it has been built
  restore(Image(used_bytes(), static_cast<char>(poison)));
  return build_once();
}

Result<Image> CaseMemory::image() {
  Image image(used_bytes());
  LATHE_RETURN_IF_ERROR(device_->to_host(image.data(), base_, used_bytes()));
  return image;
}

void CaseMemory::restore(const Image& image) {
  device_->to_device(const_cast<char*>(base_), image.data(), static_cast<int64_t>(image.size()));
}

FieldView CaseMemory::in_image(const FieldView& field, const Image& image) const {
  FieldView f = field;
  f.data = image.data() + offset(field.data);
  if (field.scale) f.scale = reinterpret_cast<const float*>(image.data() + offset(field.scale));
  return f;
}

}  // namespace lathe

#pragma once

#include <memory>
#include <vector>

#include "ops/workload.h"

// The memory of one operator case as a whole: built from a seed over a poison pattern, kept, restored and compared.
// What an operator did is the difference of two images.

namespace lathe {

using Image = std::vector<char>;

class CaseMemory {
 public:
  // `capacity_bytes` of address space on `device`; pages are touched as cases need them.
  static Result<CaseMemory> create(Device& device, int64_t capacity_bytes);

  // Inputs of `seed` over memory that held `poison` in every byte: guard bands and fresh outputs still hold it.
  std::unique_ptr<AnyCase> build(const AnyOp& op, int case_index, uint64_t seed, uint8_t poison);

  Result<Image> image();             // of the case built last
  void restore(const Image& image);  // what an operator changed is undone

  // The same field inside an image of this memory.
  FieldView in_image(const FieldView& field, const Image& image) const;
  int64_t offset(const void* address) const { return static_cast<const char*>(address) - base_; }
  const char* base() const { return base_; }
  int64_t used_bytes() const { return memory_.mark(); }

 private:
  CaseMemory(Device& device, Arena memory) : device_(&device), memory_(std::move(memory)) {}

  Device* device_;
  Arena memory_;
  const char* base_ = nullptr;
};

}  // namespace lathe

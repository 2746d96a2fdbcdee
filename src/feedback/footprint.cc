#include "feedback/footprint.h"

#include <algorithm>
#include <cstring>

namespace lathe {

namespace {

int64_t scales(const FieldView& f) { return !f.scale ? 0 : f.block ? f.rows * f.width / f.block : f.rows; }

bool holds(const char* p, int64_t bytes, uint8_t poison) {
  return std::all_of(p, p + bytes, [=](char c) { return c == static_cast<char>(poison); });
}

}  // namespace

Footprint::Footprint(const CaseMemory& memory, const AnyCase& built)
    : fields_(built.fields()), may_write_(memory.used_bytes()) {
  std::erase_if(fields_, [](const FieldView& f) { return f.elements() == 0; });
  for (const FieldView& f : fields_) {
    const int64_t element = dtype_bytes(f.dtype), begin = memory.offset(f.data);
    const bool written = f.role != Role::kIn;
    extents_.push_back({f.name, begin, begin + ((f.rows - 1) * f.stride + f.width) * element, written});
    if (!written) continue;
    for (int64_t r = 0; r < f.rows; ++r)
      std::fill_n(may_write_.begin() + begin + r * f.stride * element, f.width * element, true);
    if (const int64_t count = scales(f)) {
      const int64_t at = memory.offset(f.scale);
      extents_.push_back({f.name + ".scale", at, at + count * 4, true});
      std::fill_n(may_write_.begin() + at, count * 4, true);
    }
  }
}

std::string Footprint::place(int64_t offset) const {
  const Extent* before = nullptr;
  for (const Extent& e : extents_) {
    if (offset >= e.begin && offset < e.end)
      return e.written ? fmt::format("wrote between the rows of '{}'", e.name)
                       : fmt::format("input '{}' was changed at byte {}", e.name, offset - e.begin);
    if (e.end <= offset && (!before || e.end > before->end)) before = &e;
  }
  return before ? fmt::format("wrote {} bytes behind the end of '{}'", offset - before->end, before->name)
                : fmt::format("wrote before the first field, at byte {}", offset);
}

std::string Footprint::stray_write(const Image& before, const Image& after) const {
  if (before == after) return "";
  for (int64_t i = 0; i < static_cast<int64_t>(before.size()); ++i)
    if (before[i] != after[i] && !may_write_[i]) return place(i);
  return "";
}

std::string Footprint::unwritten(const CaseMemory& memory, const Image& first, uint8_t first_poison,
                                 const Image& second, uint8_t second_poison) const {
  for (const FieldView& f : fields_) {
    if (f.role != Role::kOut) continue;
    const int64_t element = dtype_bytes(f.dtype), begin = memory.offset(f.data);
    for (int64_t r = 0; r < f.rows; ++r)
      for (int64_t i = 0; i < f.width; ++i) {
        const int64_t at = begin + (r * f.stride + i) * element;
        if (holds(&first[at], element, first_poison) && holds(&second[at], element, second_poison))
          return fmt::format("{}[{}, {}] was never written", f.name, r, i);
      }
    for (int64_t i = 0, at = f.scale ? memory.offset(f.scale) : 0; i < scales(f); ++i, at += 4)
      if (holds(&first[at], 4, first_poison) && holds(&second[at], 4, second_poison))
        return fmt::format("{}.scale[{}] was never written", f.name, i);
  }
  return "";
}

}  // namespace lathe

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/view.h"

namespace lathe {

// How an operator uses a field of its Args.
enum class Role { kIn, kOut, kUpdate };

// One field of a call's arguments: `rows` stretches of `width` elements, `stride` elements apart.
struct FieldView {
  std::string name;
  Role role;
  DType dtype;
  const void* data;
  int64_t rows, width, stride;
  const float* scale;
  int block;           // 0: scale is per row
  bool batch = false;  // a Rows argument: its rows are those of the call

  int64_t elements() const { return rows * width; }
};

// Lists the fields of Args; of lists in host memory, the fields of every item.
class FieldList {
 public:
  template <class Field>
  void operator()(const char* name, Field& field, Role role) {
    add(name, field, role);
  }
  std::vector<FieldView> views;

 private:
  void add(const char* name, Rows& r, Role role) {
    views.push_back({name, role, r.dtype, r.data, r.rows, r.width, r.stride, r.scale, 0, true});
  }
  void add(const char* name, Pool& p, Role role) {
    views.push_back({name, role, p.dtype, p.data, p.items, p.item_size, p.item_size, p.scale, p.block});
  }
  void add(const char* name, Weight& w, Role role) {
    views.push_back({name, role, w.dtype, w.data, w.out, w.in, w.stride, nullptr, 0});
  }
  void add(const char* name, Ragged& r, Role role) { add(name, r.start, role), add(name, r.past, role); }
  template <class T>
  void add(const char* name, Array<T>& a, Role role) {
    using Item = std::remove_const_t<T>;
    if constexpr (requires(Item t, FieldList& list) { t.visit(list); }) {
      for (Item item : std::span(a.data, a.count)) item.visit(*this);
    } else if constexpr (std::is_same_v<Item, float>) {
      views.push_back({name, role, DType::kF32, a.data, 1, a.count, a.count, nullptr, 0});
    } else if constexpr (std::is_same_v<Item, bf16>) {
      views.push_back({name, role, DType::kBF16, a.data, 1, a.count, a.count, nullptr, 0});
    } else if constexpr (std::is_same_v<Item, int32_t>) {
      views.push_back({name, role, DType::kI32, a.data, 1, a.count, a.count, nullptr, 0});
    } else {  // records: as bytes
      const int64_t bytes = a.count * static_cast<int64_t>(sizeof(Item));
      views.push_back({name, role, DType::kU8, a.data, 1, bytes, bytes, nullptr, 0});
    }
  }
};

// Visitor that finds how many rows a call has: those of its first Rows output, or else of its first Rows input; -1
// where it has neither. Lists of weights count for nothing.
class RowCounter {
 public:
  void operator()(const char*, Rows& r, Role role) {
    if (role == Role::kIn ? rows < 0 : !of_output_) rows = r.rows, of_output_ |= role != Role::kIn;
  }
  template <class Field>
  void operator()(const char*, Field&, Role) {}
  int64_t rows = -1;

 private:
  bool of_output_ = false;
};

}  // namespace lathe

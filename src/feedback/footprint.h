#pragma once

#include <string>
#include <vector>

#include "feedback/case_memory.h"

// Which bytes of a case's memory an operator may write, and what became of all the others.

namespace lathe {

class Footprint {
 public:
  Footprint(const CaseMemory& memory, const AnyCase& built);

  // The first byte outside declared outputs that differs, told as "input 'x' was changed" or "wrote behind 'y'";
  // empty: none.
  std::string stray_write(const Image& before, const Image& after) const;

  // The first output element that still holds `first_poison` in one run and `second_poison` in the other; empty: none.
  // Outputs that are updated in place hold data, not poison, and can't be judged so.
  std::string unwritten(const CaseMemory& memory, const Image& first, uint8_t first_poison, const Image& second,
                        uint8_t second_poison) const;

 private:
  std::string place(int64_t offset) const;

  struct Extent {
    std::string name;
    int64_t begin, end;
    bool written;
  };
  std::vector<FieldView> fields_;  // the non-empty ones
  std::vector<Extent> extents_;
  std::vector<bool> may_write_;  // by byte
};

}  // namespace lathe

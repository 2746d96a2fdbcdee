#pragma once

#include <utility>

#include "cache/sequence_memory.h"

namespace lathe {

class FrozenBlock;

// The right to read a frozen sequence's memory. Only a ready block gives it out; while one is held the block stays.
class ReadablePages {
 public:
  ReadablePages(ReadablePages&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  ReadablePages& operator=(ReadablePages&&) = delete;
  ~ReadablePages();
  SequenceId sequence() const;

 private:
  friend class FrozenBlock;
  explicit ReadablePages(FrozenBlock* block) : block_(block) {}
  FrozenBlock* block_;
};

// A frozen sequence in device memory, and who may touch it:
//   empty -> filling (a transfer may write it) -> ready (read only) -> empty; filling -> empty when the transfer has
//   stopped for good.
// Any other step is a bug of ours and stops the process: a block that is read while it is written, or is given back
// while somebody reads it, would be a silently wrong answer.
class FrozenBlock {
 public:
  enum class State { kEmpty, kFilling, kReady };

  FrozenBlock() = default;
  FrozenBlock(const FrozenBlock&) = delete;
  ~FrozenBlock() { LATHE_CHECK(state_ == State::kEmpty); }

  State state() const { return state_; }
  bool is_ready() const { return state_ == State::kReady; }
  int readers() const { return readers_; }

  void fill(SequenceId sequence);  // empty -> filling
  void filled();           // filling -> ready: the transfer is complete, or before all further work in the queue
  SequenceId abandon();    // filling -> empty: nothing will write it any more
  ReadablePages read();    // ready
  SequenceId give_back();  // ready, no reader -> empty: the caller closes the sequence

 private:
  friend class ReadablePages;
  State state_ = State::kEmpty;
  SequenceId sequence_ = -1;
  int readers_ = 0;
};

}  // namespace lathe

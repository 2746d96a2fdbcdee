#include "cache/frozen_block.h"

namespace lathe {

ReadablePages::~ReadablePages() {
  if (!block_) return;
  LATHE_CHECK(block_->readers_ > 0);
  --block_->readers_;
}

SequenceId ReadablePages::sequence() const {
  LATHE_CHECK(block_ && block_->is_ready());
  return block_->sequence_;
}

void FrozenBlock::fill(SequenceId sequence) {
  LATHE_CHECK(state_ == State::kEmpty && sequence >= 0);
  state_ = State::kFilling, sequence_ = sequence;
}

void FrozenBlock::filled() {
  LATHE_CHECK(state_ == State::kFilling);
  state_ = State::kReady;
}

SequenceId FrozenBlock::abandon() {
  LATHE_CHECK(state_ == State::kFilling);
  state_ = State::kEmpty;
  return std::exchange(sequence_, -1);
}

ReadablePages FrozenBlock::read() {
  LATHE_CHECK(state_ == State::kReady);
  ++readers_;
  return ReadablePages(this);
}

SequenceId FrozenBlock::give_back() {
  LATHE_CHECK(state_ == State::kReady && readers_ == 0);
  state_ = State::kEmpty;
  return std::exchange(sequence_, -1);
}

}  // namespace lathe

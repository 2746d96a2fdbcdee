#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cache/frozen_block.h"
#include "cache/sequence_memory.h"

namespace lathe {

// A slot, or one page of all layers, in host memory: what SequenceMemory::segments lists, back to back.
struct HostPart {
  struct Piece {
    SegmentKind kind;
    int layer;
    int64_t bytes;
    bool operator==(const Piece&) const = default;
  };
  std::vector<Piece> pieces;
  std::vector<char> bytes;
  uint64_t checksum = 0;  // of pieces and bytes
  int64_t content = 0;    // of a page: SequenceMemory::page_content

  uint64_t compute_checksum() const;
};

// A frozen sequence in host memory: all kinds or nothing. Pages that several images have are there once.
struct HostImage {
  int position = 0, mtp_rows = 0;
  std::shared_ptr<const HostPart> slot;
  std::vector<std::shared_ptr<const HostPart>> pages;
};

// Frozen sequences on their way between device and host. An image must not outlive the tier.
class HostTier {
 public:
  HostTier(SequenceMemory& memory, Device& device) : memory_(memory), device_(device) {}
  HostTier(const HostTier&) = delete;

  // How many bytes an image of the sequence would add.
  int64_t bytes_to_save(const ReadablePages& pages) const;
  // Waits for the copy.
  Result<HostImage> save(const ReadablePages& pages);
  // Into `block`, which is filling until all copies are in the device's queue: no kernel that is enqueued later sees
  // half of it. Pages that are on the device still are shared. corrupt: the image isn't what was saved, or lacks a kind
  // that this memory has; exhausted: no checkpoint slot or pages. Then the block is empty.
  Status load(const HostImage& image, FrozenBlock& block);

  int64_t bytes() const { return bytes_; }

 private:
  Result<std::shared_ptr<const HostPart>> fetch(const std::vector<Segment>& segments, int64_t content);
  Status check(const HostImage& image) const;

  SequenceMemory& memory_;
  Device& device_;
  int64_t bytes_ = 0;
  std::unordered_map<int64_t, std::weak_ptr<const HostPart>> pages_;  // by content
};

}  // namespace lathe

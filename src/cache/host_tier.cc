#include "cache/host_tier.h"

#include <xxhash.h>

#include <algorithm>

namespace lathe {

namespace {

// The segments of a slot, and of each page, in the order of SequenceMemory's list.
struct Parts {
  std::vector<Segment> slot;
  std::vector<std::vector<Segment>> pages;
};

Parts parts_of(const SequenceMemory& memory, SequenceId id) {
  Parts parts;
  parts.pages.resize(memory.pages(id).size());
  for (const Segment& s : memory.segments(id))
    (s.first_position < 0 ? parts.slot : parts.pages.at(s.first_position / memory.shape().page_tokens)).push_back(s);
  return parts;
}

int64_t bytes_of(const std::vector<Segment>& segments) {
  int64_t bytes = 0;
  for (const Segment& s : segments) bytes += s.bytes;
  return bytes;
}

std::vector<HostPart::Piece> pieces_of(const std::vector<Segment>& segments) {
  std::vector<HostPart::Piece> pieces;
  for (const Segment& s : segments) pieces.push_back({s.kind, s.layer, s.bytes});
  return pieces;
}

// Whether a part holds just what these segments are, undamaged.
Status fits(const HostPart& part, const std::vector<Segment>& segments) {
  if (part.compute_checksum() != part.checksum)
    return corrupt("an image in host memory has changed since it was saved");
  if (part.pieces != pieces_of(segments) || static_cast<int64_t>(part.bytes.size()) != bytes_of(segments))
    return corrupt("an image in host memory doesn't hold all kinds of this memory: {} pieces of {}, {} bytes of {}",
                   part.pieces.size(), segments.size(), part.bytes.size(), bytes_of(segments));
  return Status::ok();
}

void write(Device& device, const HostPart& part, const std::vector<Segment>& segments) {
  const char* from = part.bytes.data();
  for (const Segment& s : segments) {
    device.to_device(s.address, from, s.bytes);
    from += s.bytes;
  }
}

}  // namespace

uint64_t HostPart::compute_checksum() const {
  uint64_t sum = XXH3_64bits(bytes.data(), bytes.size());
  for (const Piece& p : pieces) {
    const int64_t numbers[3] = {static_cast<int64_t>(p.kind), p.layer, p.bytes};
    sum = XXH3_64bits_withSeed(numbers, sizeof numbers, sum);
  }
  return sum;
}

int64_t HostTier::bytes_to_save(const ReadablePages& pages) const {
  const Parts parts = parts_of(memory_, pages.sequence());
  int64_t bytes = bytes_of(parts.slot);
  for (size_t i = 0; i < parts.pages.size(); ++i)
    if (!pages_.contains(memory_.page_content(memory_.pages(pages.sequence())[i]))) bytes += bytes_of(parts.pages[i]);
  return bytes;
}

Result<std::shared_ptr<const HostPart>> HostTier::fetch(const std::vector<Segment>& segments, int64_t content) {
  auto part = std::make_unique<HostPart>();
  part->pieces = pieces_of(segments);
  part->content = content;
  part->bytes.resize(bytes_of(segments));
  char* to = part->bytes.data();
  for (const Segment& s : segments) {
    LATHE_RETURN_IF_ERROR(device_.to_host(to, s.address, s.bytes));
    to += s.bytes;
  }
  part->checksum = part->compute_checksum();
  bytes_ += static_cast<int64_t>(part->bytes.size());
  auto forget = [this](const HostPart* p) {
    bytes_ -= static_cast<int64_t>(p->bytes.size());
    if (p->content) pages_.erase(p->content);
    delete p;
  };
  return std::shared_ptr<const HostPart>(part.release(), forget);
}

Result<HostImage> HostTier::save(const ReadablePages& pages) {
  const SequenceId id = pages.sequence();
  const Parts parts = parts_of(memory_, id);
  HostImage image{.position = memory_.position(id), .mtp_rows = memory_.mtp_rows(id), .slot = nullptr, .pages = {}};
  LATHE_ASSIGN(image.slot, fetch(parts.slot, 0));
  for (size_t i = 0; i < parts.pages.size(); ++i) {
    const int64_t content = memory_.page_content(memory_.pages(id)[i]);
    LATHE_CHECK(content != 0);  // else somebody may be writing it
    if (const auto known = pages_.find(content); known != pages_.end()) {
      image.pages.push_back(known->second.lock());
    } else {
      LATHE_ASSIGN(std::shared_ptr<const HostPart> page, fetch(parts.pages[i], content));
      pages_[content] = page;
      image.pages.push_back(std::move(page));
    }
  }
  return image;
}

Status HostTier::load(const HostImage& image, FrozenBlock& block) {
  std::vector<int64_t> contents;
  for (const auto& page : image.pages) contents.push_back(page->content);
  std::vector<bool> fresh;
  LATHE_ASSIGN(const SequenceId id, memory_.open_frozen(image.position, image.mtp_rows, contents, fresh));
  block.fill(id);
  const Parts parts = parts_of(memory_, id);
  // All is checked before anything is written.
  Status good = fits(*image.slot, parts.slot);
  for (size_t i = 0; i < fresh.size() && good.is_ok(); ++i)
    if (fresh[i]) good = fits(*image.pages[i], parts.pages[i]);
  if (!good.is_ok()) {
    memory_.close(block.abandon());
    return good;
  }
  write(device_, *image.slot, parts.slot);
  for (size_t i = 0; i < fresh.size(); ++i)
    if (fresh[i]) write(device_, *image.pages[i], parts.pages[i]);
  block.filled();
  return Status::ok();
}

}  // namespace lathe

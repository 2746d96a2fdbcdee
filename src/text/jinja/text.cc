#include "text/jinja/text.h"

#include <algorithm>

namespace lathe::jinja {

Text::Text(std::string bytes, Origin origin) : bytes_(std::move(bytes)) {
  if (origin == Origin::kData && !bytes_.empty()) data_.push_back({0, bytes_.size()});
}

void TextBuilder::mark(size_t begin, size_t end) {
  if (begin >= end) return;
  if (!text_.data_.empty() && text_.data_.back().end == begin) {
    text_.data_.back().end = end;
  } else {
    text_.data_.push_back({begin, end});
  }
}

void TextBuilder::append(const Text& text, size_t begin, size_t count) {
  const size_t end = begin + count, at = text_.size();
  text_.bytes_.append(text.bytes_, begin, count);
  auto range =
      std::partition_point(text.data_.begin(), text.data_.end(), [&](const ByteRange& r) { return r.end <= begin; });
  for (; range != text.data_.end() && range->begin < end; ++range)
    mark(at + std::max(range->begin, begin) - begin, at + std::min(range->end, end) - begin);
}

void TextBuilder::append(std::string_view bytes, Origin origin) {
  const size_t at = text_.size();
  text_.bytes_ += bytes;
  if (origin == Origin::kData) mark(at, text_.size());
}

}  // namespace lathe::jinja

#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/byte_range.h"

namespace lathe::jinja {

// Whose words: the template's (or its operator's, as bos_token is), or those of whoever sent the messages.
enum class Origin { kTemplate, kData };

// A string that remembers which of its bytes came from outside, through slicing, joining and replacing. So the prompt
// can be turned into ids without the senders of messages being able to spell a control token.
class Text {
 public:
  Text() = default;
  Text(std::string bytes, Origin origin);

  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  const std::vector<ByteRange>& data() const { return data_; }  // bytes from outside: sorted, apart, never empty
  // What becomes of a string whose bytes can't be followed: one from outside if any of it is.
  Origin origin() const { return data_.empty() ? Origin::kTemplate : Origin::kData; }

 private:
  friend class TextBuilder;
  std::string bytes_;
  std::vector<ByteRange> data_;
};

class TextBuilder {
 public:
  void append(const Text& text) { append(text, 0, text.size()); }
  void append(const Text& text, size_t begin, size_t count);
  void append(std::string_view bytes, Origin origin);

  size_t size() const { return text_.size(); }
  Text take() { return std::exchange(text_, Text()); }

 private:
  void mark(size_t begin, size_t end);
  Text text_;
};

}  // namespace lathe::jinja

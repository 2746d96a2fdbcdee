#include "text/vocabulary.h"

#include <algorithm>
#include <bit>

#include "text/byte_alphabet.h"
#include "text/byte_hash.h"

namespace lathe {

namespace {
int32_t largest_id(const TokenizerFile& file) {
  int32_t largest = -1;
  for (const auto& [spelling, id] : file.vocab) largest = std::max(largest, id);
  for (const AddedToken& token : file.added) largest = std::max(largest, token.id);
  return largest;
}
}  // namespace

Result<Vocabulary> Vocabulary::build(const TokenizerFile& file) {
  Vocabulary v;
  v.entries_.resize(largest_id(file) + 1);
  for (const auto& [spelling, id] : file.vocab) LATHE_RETURN_IF_ERROR(v.put(file, "model.vocab", spelling, id));
  v.index();
  for (size_t i = 0; i < file.added.size(); ++i) {
    const AddedToken& token = file.added[i];
    const std::string field = fmt::format("added_tokens[{}]", i);
    // Older files list their added tokens in the vocabulary, too: then both must agree.
    if (!v.contains(token.id)) LATHE_RETURN_IF_ERROR(v.put(file, field, token.content, token.id));
    const std::optional<std::string> mapped = bytes_of_spelling(token.content);
    if (v.bytes(token.id) != (mapped ? std::string_view(*mapped) : std::string_view(token.content)))
      return corrupt("{}: {}: id {} of '{}' belongs to another token", file.name, field, token.id, token.content);
    if (v.is_added(token.id)) return corrupt("{}: {}: id {} is listed twice", file.name, field, token.id);
    v.entries_[token.id].added = true;
    v.entries_[token.id].special = token.special;
  }
  v.added_ = file.added;
  return v;
}

Status Vocabulary::put(const TokenizerFile& file, const std::string& field, std::string_view spelling, int32_t id) {
  Entry& entry = entries_[id];
  if (entry.kind != kNone)
    return corrupt("{}: {}: id {} is given to two tokens, one is '{}'", file.name, field, id, spelling);
  const std::optional<std::string> mapped = bytes_of_spelling(spelling);
  const std::string_view bytes = mapped ? std::string_view(*mapped) : spelling;
  if (bytes_.size() + bytes.size() > UINT32_MAX) return corrupt("{}: {}: more than 4 GiB of tokens", file.name, field);
  entry = {static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(bytes.size()), mapped ? kBytes : kRaw};
  bytes_ += bytes;
  return Status::ok();
}

void Vocabulary::index() {
  slots_.assign(std::bit_ceil(entries_.size() * 2 + 1), -1);
  const size_t mask = slots_.size() - 1;
  for (int32_t id = 0; id < size(); ++id) {
    if (entries_[id].kind != kBytes || entries_[id].bytes == 0) continue;
    size_t at = hash_bytes(bytes(id)) & mask;
    while (slots_[at] >= 0) at = (at + 1) & mask;
    slots_[at] = id;
  }
}

int32_t Vocabulary::find(std::string_view wanted) const {
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash_bytes(wanted) & mask; slots_[at] >= 0; at = (at + 1) & mask)
    if (bytes(slots_[at]) == wanted) return slots_[at];
  return -1;
}

int32_t Vocabulary::find_added(std::string_view content) const {
  for (const AddedToken& token : added_)
    if (token.content == content) return token.id;
  return -1;
}

}  // namespace lathe

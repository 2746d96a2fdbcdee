#include "text/tokenizer.h"

#include <filesystem>
#include <mutex>

#include "base/mapped_file.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/nfc.h"
#include "text/piece_cache.h"
#include "text/splitter.h"
#include "text/utf8.h"

namespace lathe {

namespace {

constexpr size_t kMaxText = size_t{1} << 30;

// What one encoding writes to besides its result.
struct Worker {
  explicit Worker(const Splitter& splitter) : split(splitter.make_scratch()) {}
  Splitter::Scratch split;
  PieceCache cache;
};

}  // namespace

struct Tokenizer::State {
  State(Vocabulary v, Bpe b, Splitter s, const TokenizerFile& file)
      : vocabulary(std::move(v)),
        bpe(std::move(b)),
        splitter(std::move(s)),
        raw_tokens(file.added, false),
        normalized_tokens(normalized(file), true),
        normalizer(file.normalizer) {}

  static std::vector<AddedToken> normalized(const TokenizerFile& file) {
    std::vector<AddedToken> tokens = file.added;
    if (file.normalizer == Normalizer::kNfc)
      for (AddedToken& token : tokens)
        if (token.normalized) token.content = nfc(token.content);
    return tokens;
  }

  std::unique_ptr<Worker> take() {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return nullptr;
    auto worker = std::move(idle.back());
    idle.pop_back();
    return worker;
  }
  void give_back(std::unique_ptr<Worker> worker) {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(worker));
  }

  // One piece that the splitter made.
  void encode_piece(std::string_view piece, PieceCache& cache, std::vector<int32_t>& out) const {
    if (!PieceCache::may_hold(piece)) return bpe.encode(piece, vocabulary, out);
    const uint64_t hash = hash_bytes(piece);
    if (const auto ids = cache.find(piece, hash); !ids.empty()) {
      out.insert(out.end(), ids.begin(), ids.end());
      return;
    }
    const size_t before = out.size();
    bpe.encode(piece, vocabulary, out);
    cache.put(piece, hash, std::span(out).subspan(before));
  }

  Status encode_text(std::string_view text, Worker& worker, std::vector<int32_t>& out) const {
    return splitter.split(text, worker.split, [&](std::string_view piece) { encode_piece(piece, worker.cache, out); });
  }

  // Text between tokens that are matched raw.
  Status encode_between(std::string_view text, ByteRange range, const EncodeOptions& options, Worker& worker,
                        std::vector<int32_t>& out) const {
    std::string composed;
    std::vector<ByteRange> moved;
    std::span<const ByteRange> literal = options.literal;
    if (const auto stretch = text.substr(range.begin, range.end - range.begin);
        normalizer == Normalizer::kNfc && !is_surely_nfc(stretch)) {
      composed = literal.empty() ? nfc(stretch) : nfc_apart(text, range, literal, moved);
      text = composed;
      range = {0, composed.size()};
      literal = moved;
    }
    if (!options.match_added || normalized_tokens.empty())
      return encode_text(text.substr(range.begin, range.end - range.begin), worker, out);
    std::vector<AddedTokenMatcher::Piece> pieces;
    normalized_tokens.cut(text, range, literal, pieces);
    for (const auto& piece : pieces) {
      if (piece.id >= 0) {
        out.push_back(piece.id);
      } else {
        LATHE_RETURN_IF_ERROR(
            encode_text(text.substr(piece.range.begin, piece.range.end - piece.range.begin), worker, out));
      }
    }
    return Status::ok();
  }

  // Composes literal stretches and the others each by itself, so that it stays known which is which.
  static std::string nfc_apart(std::string_view text, ByteRange range, std::span<const ByteRange> literal,
                               std::vector<ByteRange>& moved) {
    std::string out;
    size_t at = range.begin;
    for (const ByteRange& r : literal) {
      const size_t begin = std::max(r.begin, range.begin), end = std::min(r.end, range.end);
      if (begin >= end) continue;
      out += nfc(text.substr(at, begin - at));
      moved.push_back({out.size(), 0});
      out += nfc(text.substr(begin, end - begin));
      moved.back().end = out.size();
      at = end;
    }
    out += nfc(text.substr(at, range.end - at));
    return out;
  }

  Status encode(std::string_view text, const EncodeOptions& options, Worker& worker, std::vector<int32_t>& out) const {
    std::vector<AddedTokenMatcher::Piece> pieces;
    if (options.match_added) {
      raw_tokens.cut(text, {0, text.size()}, options.literal, pieces);
    } else if (!text.empty()) {
      pieces.push_back({{0, text.size()}, -1});
    }
    for (const auto& piece : pieces) {
      if (piece.id >= 0) {
        out.push_back(piece.id);
      } else {
        LATHE_RETURN_IF_ERROR(encode_between(text, piece.range, options, worker, out));
      }
    }
    return Status::ok();
  }

  Vocabulary vocabulary;
  Bpe bpe;
  Splitter splitter;
  AddedTokenMatcher raw_tokens, normalized_tokens;
  Normalizer normalizer;
  std::vector<int32_t> prefix, suffix;

  std::mutex mutex;
  std::vector<std::unique_ptr<Worker>> idle;  // as many as ever encoded at once
};

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

namespace {
Result<std::vector<int32_t>> ids_of(const TokenizerFile& file, const Tokenizer& tokenizer,
                                    const std::vector<std::string>& tokens) {
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) {
    ids.push_back(tokenizer.id_of(token));
    if (ids.back() < 0) return corrupt("{}: post_processor.single: '{}' is no token", file.name, token);
  }
  return ids;
}
}  // namespace

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& name) {
  LATHE_ASSIGN(const TokenizerFile file, TokenizerFile::parse(json, name));
  LATHE_ASSIGN(Vocabulary vocabulary, Vocabulary::build(file));
  LATHE_ASSIGN(Bpe bpe, Bpe::build(file, vocabulary));
  LATHE_ASSIGN(Splitter splitter, Splitter::build(file));
  Tokenizer tokenizer(std::make_unique<State>(std::move(vocabulary), std::move(bpe), std::move(splitter), file));
  LATHE_ASSIGN(tokenizer.state_->prefix, ids_of(file, tokenizer, file.prefix));
  LATHE_ASSIGN(tokenizer.state_->suffix, ids_of(file, tokenizer, file.suffix));
  return tokenizer;
}

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  const std::filesystem::path p = path;
  std::error_code ignored;
  const std::string file = std::filesystem::is_directory(p, ignored) ? (p / "tokenizer.json").string() : path;
  LATHE_ASSIGN(const MappedFile mapped, MappedFile::open(file));
  return parse({reinterpret_cast<const char*>(mapped.data()), static_cast<size_t>(mapped.bytes())}, file);
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxText) return invalid("a text of {} bytes is longer than the limit of 1 GiB", text.size());
  std::string mended;
  if (!is_utf8(text)) {
    if (!options.literal.empty()) return invalid("text with literal ranges must be UTF-8");
    mended = utf8_lossy(text);
    text = mended;
  }
  std::unique_ptr<Worker> worker = state_->take();
  if (!worker) worker = std::make_unique<Worker>(state_->splitter);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 4);
  if (options.add_special) ids = state_->prefix;
  const Status status = state_->encode(text, options, *worker, ids);
  state_->give_back(std::move(worker));
  LATHE_RETURN_IF_ERROR(status);
  if (options.add_special) ids.insert(ids.end(), state_->suffix.begin(), state_->suffix.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  const Vocabulary& v = state_->vocabulary;
  std::string bytes;
  for (int32_t id : ids)
    if (!skip_special || !v.is_special(id)) bytes += v.bytes(id);
  return is_utf8(bytes) ? bytes : utf8_lossy(bytes);
}

const Vocabulary& Tokenizer::vocabulary() const { return state_->vocabulary; }

int32_t Tokenizer::id_of(std::string_view token) const {
  if (const int32_t id = state_->vocabulary.find_added(token); id >= 0) return id;
  const std::optional<std::string> bytes = bytes_of_spelling(token);
  return bytes ? state_->vocabulary.find(*bytes) : -1;
}

std::string Tokenizer::spelling(int32_t id) const {
  const Vocabulary& v = state_->vocabulary;
  if (v.is_added(id) || v.is_raw(id)) return std::string(v.bytes(id));
  return spelling_of_bytes(v.bytes(id));
}

}  // namespace lathe

#include "cache/prefix_cache.h"

#include <algorithm>
#include <chrono>
#include <tuple>

namespace lathe {

namespace {

// Of one prompt. A hit that ends at one of them loses an eighth of the prompt at most; a slot of a large model costs as
// much memory as thousands of tokens.
constexpr int kMostCheckpoints = 8;

// What must be equal for memory of one sequence to be that of another.
std::string layout_of(const MemoryShape& s, const std::string& model) {
  std::string indexed;
  for (bool has : s.has_index) indexed += has ? '1' : '0';
  return fmt::format(
      "lathe sequence memory 1; {}; rows {}, page {}, kpool {}, latent {}, index {} {}, mtp {}, kda {} x {} x {} x {}, "
      "conv {}, hidden {}",
      model, dtype_name(s.rows), s.page_tokens, s.kpool, s.latent, s.index_dim, indexed, s.mtp, s.kda_layers,
      s.kda_heads, s.kda_k, s.kda_v, s.conv_width, s.hidden);
}

}  // namespace

Result<std::unique_ptr<PrefixCache>> PrefixCache::create(SequenceMemory& memory, Device& device,
                                                         const PrefixCacheOptions& options) {
  if (options.interval < 1) return invalid("checkpoint interval {}: must be at least 1", options.interval);
  if (options.least < 1) return invalid("least distance of checkpoints {}: must be at least 1", options.least);
  if (options.host_bytes < 0) return invalid("host tier of {} bytes: 0 is off", options.host_bytes);
  if (options.drafts && !memory.shape().mtp) return invalid("drafts: the model has no MTP block");
  return std::unique_ptr<PrefixCache>(new PrefixCache(memory, device, options));
}

PrefixCache::PrefixCache(SequenceMemory& memory, Device& device, const PrefixCacheOptions& options)
    : memory_(memory),
      options_(options),
      hasher_(std::make_shared<PrefixHasher>(options.secret ? *options.secret : PrefixHasher::draw_secret(),
                                             layout_of(memory.shape(), options.model), memory.shape().page_tokens)),
      tier_(memory, device) {
  // Checkpoints at a page's end share all their pages.
  const int page = memory.shape().page_tokens;
  options_.interval = (options.interval + page - 1) / page * page;
}

PrefixCache::~PrefixCache() { clear(); }

PrefixKeys PrefixCache::keys(std::vector<int32_t> tokens, std::vector<MediaKey> media, std::string_view salt) const {
  return PrefixKeys(hasher_, std::move(tokens), std::move(media), salt);
}

// -- the tree

PrefixCache::Path PrefixCache::walk(const PrefixKeys& keys, int limit) const {
  Path path;
  for (int b = 0; b <= keys.blocks(); ++b) {
    const auto junction = junctions_.find(keys.block(b));
    if (junction == junctions_.end()) break;
    path.known = b * keys.block_tokens();
    if (path.known > limit) continue;
    for (const auto& [offset, count] : junction->second.ends) {
      const int position = path.known + offset;
      if (position > std::min(limit, keys.length())) break;
      if (const auto node = by_key_.find(keys.at(position)); node != by_key_.end()) path.nodes.push_back(node->second);
    }
  }
  return path;
}

PrefixCache::Node& PrefixCache::add(const PrefixKeys& keys, int position) {
  const int id = next_node_++;
  Node& node = nodes_[id];
  node.key = keys.at(position), node.position = position;
  const int blocks = position / keys.block_tokens();
  for (int b = 0; b <= blocks; ++b) {
    node.blocks.push_back(keys.block(b));
    ++junctions_[keys.block(b)].nodes;
  }
  ++junctions_[node.blocks.back()].ends[position % keys.block_tokens()];
  by_key_[node.key] = id;
  return node;
}

void PrefixCache::erase(int id) {
  const auto it = nodes_.find(id);
  const Node& node = it->second;
  auto& ends = junctions_.at(node.blocks.back()).ends;
  const int offset = node.position % memory_.shape().page_tokens;
  if (--ends.at(offset) == 0) ends.erase(offset);
  for (const PrefixKey& key : node.blocks)
    if (const auto j = junctions_.find(key); --j->second.nodes == 0) junctions_.erase(j);
  by_key_.erase(node.key);
  nodes_.erase(it);
  ++stats_.dropped;
}

void PrefixCache::touch(const std::vector<int>& nodes) {
  ++clock_;
  for (int id : nodes)
    if (const auto it = nodes_.find(id); it != nodes_.end()) it->second.used = clock_;
}

// -- finding and resuming

PrefixCache::Hit PrefixCache::find(const PrefixKeys& keys, int limit) const {
  Path path = walk(keys, limit);
  Hit hit{.known = std::min(path.known, limit), .path = {}};
  if (path.nodes.empty()) return hit;
  const Node& node = nodes_.at(path.nodes.back());
  hit.node = path.nodes.back(), hit.position = node.position, hit.on_host = !node.block.is_ready();
  hit.path = std::move(path.nodes);
  return hit;
}

Result<SequenceId> PrefixCache::resume(const Hit& hit) {
  auto count = [&](SequenceId id) {
    const bool with_loading = hit.node >= 0 && hit.on_host;
    ++stats_.queries;
    stats_.hits += hit.node >= 0, stats_.hits_on_host += with_loading;
    stats_.hit_tokens += hit.position, stats_.hit_tokens_on_host += with_loading ? hit.position : 0;
    stats_.vetoes_state += hit.known >= hit.position + memory_.shape().page_tokens;
    return id;
  };
  if (hit.node < 0) {
    LATHE_ASSIGN(const SequenceId id, memory_.open());
    return count(id);
  }
  const auto it = nodes_.find(hit.node);
  if (it == nodes_.end()) return exhausted("what was found in the prefix cache is gone: find again");
  if (memory_.free_slots() == 0) return exhausted("no free sequence slot");
  touch(hit.path);
  it->second.spare = false;
  if (!it->second.block.is_ready()) LATHE_RETURN_IF_ERROR(load(hit.node));
  const ReadablePages pages = it->second.block.read();
  LATHE_ASSIGN(const SequenceId id, memory_.fork(pages.sequence()));
  return count(id);
}

// -- keeping

int PrefixCache::stride(int length) const {
  const int64_t most = std::clamp(memory_.checkpoints() / 4, 1, kMostCheckpoints);
  int64_t stride = options_.interval;
  while (length / stride > most) stride *= 2;
  return static_cast<int>(stride);
}

// Far enough from the nearest node before it, and not a node itself. `path` is that of a prompt which holds `position`.
bool PrefixCache::worth_keeping(const Path& path, int position) const {
  int before = 0;
  for (int id : path.nodes)
    if (nodes_.at(id).position <= position) before = nodes_.at(id).position;
  return position - before >= options_.least;
}

int PrefixCache::next_checkpoint(const PrefixKeys& keys, int position) const {
  if (memory_.checkpoints() == 0 || keys.length() < options_.least) return keys.length();
  const Path path = walk(keys, keys.length());
  const int64_t step = stride(keys.length());
  int64_t next = position / step * step + step;
  while (next < keys.length() && !worth_keeping(path, static_cast<int>(next))) next += step;
  if (path.known > position && path.known < next && worth_keeping(path, path.known)) next = path.known;
  return static_cast<int>(std::min<int64_t>(next, keys.length()));
}

void PrefixCache::keep(SequenceId id, const PrefixKeys& keys, bool take_over) {
  const int position = memory_.position(id);
  LATHE_CHECK(memory_.ring_is_empty(id) && position <= keys.length());
  const Path path = walk(keys, position);
  touch(path.nodes);
  const int last = path.nodes.empty() ? -1 : path.nodes.back();
  const bool same = last >= 0 && nodes_.at(last).position == position;
  // Another sequence came here, or one ended so near that the node stands for its end, too.
  if (same || (take_over && last >= 0 && position - nodes_.at(last).position < options_.least))
    nodes_.at(last).spare = false;
  bool wanted = same ? !nodes_.at(last).block.is_ready() : worth_keeping(path, position);
  if (wanted && options_.drafts && memory_.mtp_rows(id) < position - 1) {
    ++stats_.vetoes_mtp;
    wanted = false;
  }
  pinned_ = same ? last : -1;
  const bool room = wanted && free_checkpoint();
  pinned_ = -1;
  if (!room) {
    if (take_over) memory_.close(id);
    return;
  }
  const SequenceId frozen = (take_over ? memory_.freeze(id) : memory_.freeze_copy(id)).value();
  Node& node = same ? nodes_.at(last) : add(keys, position);
  node.block.fill(frozen);
  node.block.filled();  // copies within the device's queue come before whatever is enqueued later
  node.used = clock_;
  node.spare = !same && !take_over && path.known < position;  // if others know this beginning, it's wanted
  ++stats_.kept;
}

// -- making room

// A spare one; the least recently used; of equally used ones the deepest, so leaves go before their parents.
int PrefixCache::coldest(bool (*eligible)(const Node&)) const {
  int best = -1;
  for (const auto& [id, node] : nodes_) {
    if (id == pinned_ || !eligible(node)) continue;
    auto order = [](const Node& n) { return std::tuple(!n.spare, n.used, -n.position); };
    if (best < 0 || order(node) < order(nodes_.at(best))) best = id;
  }
  return best;
}

bool PrefixCache::free_checkpoint() {
  if (memory_.free_checkpoints() > 0) return true;
  const int node = coldest([](const Node& n) { return n.block.is_ready() && n.block.readers() == 0; });
  if (node < 0) return false;
  leave_device(node);
  return true;
}

// To the host tier if there is one and it has room, else away.
void PrefixCache::leave_device(int id) {
  Node& node = nodes_.at(id);
  const bool saved = node.image || save(node);
  memory_.close(node.block.give_back());
  if (!saved) erase(id);
}

bool PrefixCache::save(Node& node) {
  if (options_.host_bytes == 0) return false;
  const ReadablePages pages = node.block.read();
  for (;;) {
    // Anew each time: an image that goes may take pages along that this one would have shared.
    const int64_t bytes = tier_.bytes_to_save(pages);
    if (bytes > options_.host_bytes) return false;
    if (tier_.bytes() + bytes <= options_.host_bytes) break;
    const int victim = coldest([](const Node& n) { return n.image.has_value(); });
    if (victim < 0) return false;
    nodes_.at(victim).image.reset();
    if (!nodes_.at(victim).block.is_ready()) erase(victim);
  }
  Result<HostImage> image = tier_.save(pages);
  if (!image.is_ok()) return false;
  node.image = std::move(image.value());
  ++stats_.saves;
  return true;
}

Status PrefixCache::load(int id) {
  const auto start = std::chrono::steady_clock::now();
  pinned_ = id;
  Status status = load_pinned(nodes_.at(id));
  pinned_ = -1;
  if (status.code() == StatusCode::kCorrupt) {
    ++stats_.load_failures;
    erase(id);
  }
  if (!status.is_ok()) return status;
  ++stats_.loads;
  stats_.load_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return status;
}

Status PrefixCache::load_pinned(Node& node) {
  const HostImage& image = *node.image;
  for (;;) {
    // Anew each time: a node that goes may take pages along that this one would have shared.
    int pages = 0;
    for (const auto& page : image.pages) pages += !memory_.holds(page->content);
    if (memory_.free_checkpoints() > 0 && memory_.free_pages() >= pages) return tier_.load(image, node.block);
    if (!free_checkpoint() || !make_room(0, pages))
      return exhausted("no room for a prefix of {} tokens from the host tier", node.position);
  }
}

bool PrefixCache::make_room(int slots, int pages) {
  if (memory_.free_slots() < slots) return false;
  if (memory_.free_pages() >= pages) return true;
  // Pages that only nodes use can be had; the others wouldn't come free.
  std::vector<int> by_nodes(memory_.pages(), 0);
  auto on_device = [](const Node& n) { return n.block.is_ready() && n.block.readers() == 0; };
  for (auto& [id, node] : nodes_)
    if (on_device(node))
      for (int32_t page : memory_.pages(node.block.read().sequence())) ++by_nodes[page];
  int possible = memory_.free_pages();
  for (int page = 0; page < memory_.pages(); ++page)
    possible += by_nodes[page] > 0 && by_nodes[page] == memory_.page_users(page);
  if (possible < pages) return false;
  while (memory_.free_pages() < pages) {
    const int victim = coldest(on_device);
    LATHE_CHECK(victim >= 0);
    leave_device(victim);
  }
  return true;
}

void PrefixCache::clear() {
  for (auto& [id, node] : nodes_)
    if (node.block.is_ready()) memory_.close(node.block.give_back());
  stats_.dropped += nodes_.size();
  nodes_.clear(), by_key_.clear(), junctions_.clear();
}

PrefixCacheStats PrefixCache::stats() const {
  PrefixCacheStats s = stats_;
  for (const auto& [id, node] : nodes_) {
    const bool device = node.block.is_ready(), host = node.image.has_value();
    ++(device && host ? s.on_both : device ? s.on_device : s.on_host);
  }
  s.host_bytes = tier_.bytes();
  return s;
}

}  // namespace lathe

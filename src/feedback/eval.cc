#include "feedback/eval.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>

#include "engine/greedy_batch.h"
#include "engine/run_settings.h"
#include "feedback/build_info.h"
#include "feedback/eval_suite.h"
#include "image/clip.h"
#include "ops/kda_replay/kda_replay.h"
#include "ops/registry.h"
#include "text/chat_template.h"
#include "text/output_parser.h"

namespace lathe {

namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxAnswer = 400;  // tokens; the longest wanted answer has about 300

Result<std::vector<uint8_t>> from_base64(const std::string& text) {
  std::vector<uint8_t> out;
  uint32_t bits = 0;
  int held = 0;
  for (char c : text) {
    if (c == '=') break;
    const char* const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char* at = c ? std::char_traits<char>::find(alphabet, 64, c) : nullptr;
    if (!at) return corrupt("not base64");
    bits = bits << 6 | static_cast<uint32_t>(at - alphabet);
    if ((held += 6) >= 8) out.push_back(static_cast<uint8_t>(bits >> (held -= 8)));
  }
  return out;
}

Result<Picture> picture_of(const Json& png) {
  if (!png.is_string()) return corrupt("png: must be base64 text");
  LATHE_ASSIGN(const std::vector<uint8_t> bytes, from_base64(png.get<std::string>()));
  return decode_picture(bytes, "png");
}

// Pictures and clips inside an item's messages, in order; they leave plain {"type": "image"} parts behind.
Result<Media> take_media_out(Json& messages, const ProcessorConfig& processor) {
  Media media;
  for (Json& message : messages) {
    if (!message.is_object() || !message.contains("content") || !message["content"].is_array()) continue;
    for (Json& part : message["content"]) {
      const std::string type = part.value("type", "");
      if (type == "image") {
        LATHE_ASSIGN(const Picture picture, picture_of(part["png"]));
        LATHE_ASSIGN(Patches patches, preprocess_image(picture, processor.image));
        media.images.push_back(std::move(patches));
      } else if (type == "video") {
        std::vector<Picture> frames;
        for (const Json& png : part["png"]) {
          LATHE_ASSIGN(Picture frame, picture_of(png));
          frames.push_back(std::move(frame));
        }
        std::vector<int64_t> all(frames.size());
        for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
        LATHE_ASSIGN(Patches patches, preprocess_video(frames, processor.video.pixels));
        const double fps = part.contains("fps") && part["fps"].is_number() ? part["fps"].get<double>() : kUnknownFps;
        media.clips.push_back({std::move(patches), slice_times(all, fps, processor.video.pixels.temporal_patch)});
      } else {
        continue;
      }
      part.erase("png");
    }
  }
  return media;
}

bool marked_right(const EvalAsk& ask, const std::string& output, std::string& got) {
  const ParsedText out = parse_output(output);
  auto stripped = [](const std::string& s) {
    const size_t begin = s.find_first_not_of(" \t\r\n");
    return begin == std::string::npos ? std::string() : s.substr(begin, s.find_last_not_of(" \t\r\n") - begin + 1);
  };
  got = stripped(out.content);
  if (ask.mark == Mark::kToolCalls) {
    Json calls = Json::array();
    for (const ParsedCall& c : out.calls)
      calls.push_back({{"name", c.name}, {"arguments", Json::parse(c.arguments, nullptr, false)}});
    got = calls.dump(-1, ' ', false, Json::error_handler_t::replace);
    return nlohmann::json(calls) == nlohmann::json(ask.answer);  // the order of keys doesn't count
  }
  const std::string wanted = ask.answer.get<std::string>();
  if (!out.calls.empty()) return false;
  if (ask.mark == Mark::kExact) return got == stripped(wanted);
  const nlohmann::json a = nlohmann::json::parse(got, nullptr, false),
                       b = nlohmann::json::parse(wanted, nullptr, false);
  return !a.is_discarded() && a == b;
}

// Puts the last tokens in place of the indexer's choice.
class RecentTokens final : public StepObserver {
 public:
  explicit RecentTokens(int count) : count_(count) {}
  Executor* executor = nullptr;
  void selection(int, Array<int32_t> selected, Array<int32_t> count, int width) override {
    const Ragged& runs = executor->last_batch().runs;
    for (int64_t i = 0; i < runs.sequences(); ++i)
      for (int32_t r = runs.start[i]; r < runs.start[i + 1]; ++r) {
        const int32_t tokens = runs.past[i] + r - runs.start[i] + 1, taken = std::min({tokens, count_, width});
        for (int32_t j = 0; j < width; ++j) selected[int64_t{r} * width + j] = j < taken ? tokens - taken + j : -1;
        count[r] = taken;
      }
  }

 private:
  int32_t count_;
};

// A model with what turns items into token lists.
class Examination {
 public:
  static Result<std::unique_ptr<Examination>> create(const EvalOptions& o) {
    LATHE_ASSIGN(glm5_next::Config config, glm5_next::Config::read(o.model));
    if (o.index_top_k) {
      if (o.index_top_k < 1 || o.index_top_k % config.text.kpool)
        return invalid("--index-top-k {}: must be a multiple of index_kpool {}", o.index_top_k, config.text.kpool);
      config.text.index_top_k = o.index_top_k;
    }
    LATHE_ASSIGN(Tokenizer tokenizer, Tokenizer::load(o.model));
    LATHE_ASSIGN(ChatTemplate chat, ChatTemplate::load(o.model));
    LATHE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(o.model));
    LATHE_ASSIGN(std::unique_ptr<Device> device, make_device(o.device));
    std::unique_ptr<Examination> e(new Examination(o, std::move(config), std::move(tokenizer), std::move(chat),
                                                   std::move(checkpoint), std::move(device)));
    if (e->config_.vision) {
      LATHE_ASSIGN(e->processor_, ProcessorConfig::read(o.model));
    }
    return e;
  }

  Result<EvalRun> run(std::vector<EvalItem> items) {
    std::vector<Job> jobs;
    for (EvalItem& item : items) {
      Result<Job> job = job_of(item);
      if (!job.is_ok()) return job.status().within(item.id);
      jobs.push_back(std::move(job).value());
    }
    LATHE_RETURN_IF_ERROR(start_executor(jobs));
    std::vector<GreedyJob> greedy;
    for (Job& job : jobs) {
      LATHE_RETURN_IF_ERROR(encode_pictures(job));
      greedy.push_back(job.greedy);
    }
    RecentTokens recent(o_.recent);
    recent.executor = executor_.get();
    const bool drafts = executor_->tower().weights().mtp && o_.drafts > 0;
    GreedyOptions options{.drafts = drafts ? o_.drafts : 0,
                          .step_rows = 2048,
                          .stop_tokens = config_.eos,
                          .progress = o_.progress,
                          .observer = o_.recent ? &recent : nullptr};
    const auto start = std::chrono::steady_clock::now();
    LATHE_ASSIGN(const auto answers, generate_greedy(*executor_, greedy, options));
    EvalRun run{.model = o_.model,
                .build = identity_text(),
                .setting = setting(drafts),
                .seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
                .answers = {}};
    for (size_t i = 0; i < items.size(); ++i)
      for (size_t a = 0; a < items[i].asks.size(); ++a) run.answers.push_back(marked(items[i], a, answers[i][a]));
    return run;
  }

 private:
  struct Job {
    GreedyJob greedy;
    Media media;
  };

  Examination(const EvalOptions& o, glm5_next::Config c, Tokenizer t, ChatTemplate chat, Checkpoint p,
              std::unique_ptr<Device> d)
      : o_(o),
        config_(std::move(c)),
        tokenizer_(std::move(t)),
        chat_(std::move(chat)),
        checkpoint_(std::move(p)),
        device_(std::move(d)),
        pool_(std::max(o.threads, 1)) {}

  // The whole prompts of an item's asks; what they begin with in common is computed once.
  Result<Job> job_of(EvalItem& item) {
    Job job;
    LATHE_ASSIGN(job.media, take_media_out(item.messages, processor_));
    std::vector<std::vector<int32_t>> prompts;
    for (const EvalAsk& ask : item.asks) {
      Json messages = item.messages;
      if (!ask.user.empty()) messages.push_back({{"role", "user"}, {"content", ask.user}});
      LATHE_ASSIGN(const RenderedChat chat, chat_.render({.messages = messages.dump(),
                                                          .tools = item.tools.is_null() ? "" : item.tools.dump(),
                                                          .variables = ""}));
      LATHE_ASSIGN(std::vector<int32_t> ids, chat.encode(tokenizer_));
      if (!job.media.empty()) {
        const std::vector<Grid> grids = job.media.image_grids();
        const std::vector<VideoSpan> spans = job.media.spans();
        LATHE_ASSIGN(ids, expand_placeholders(ids, media_tokens(config_), grids, spans, config_.vision->merge,
                                              [&](std::string_view text) { return tokenizer_.encode(text).value(); }));
      }
      if (static_cast<int64_t>(ids.size()) + kMaxAnswer > config_.text.max_positions)
        return invalid("{} tokens don't fit the model's context", ids.size());
      prompts.push_back(std::move(ids));
    }
    size_t common = prompts[0].size();
    for (const auto& p : prompts) {
      size_t same = 0;
      while (same < std::min(common, p.size()) && p[same] == prompts[0][same]) ++same;
      common = std::min(same, p.size() - 1);  // every end keeps a token
    }
    if (prompts.size() == 1) common = prompts[0].size();
    job.greedy.beginning = {prompts[0].begin(), prompts[0].begin() + static_cast<std::ptrdiff_t>(common)};
    for (const auto& p : prompts)
      job.greedy.ends.emplace_back(p.begin() + static_cast<std::ptrdiff_t>(common), p.end());
    job.greedy.max_tokens = kMaxAnswer;
    return job;
  }

  Status start_executor(const std::vector<Job>& jobs) {
    ExecutorOptions eo;
    LATHE_ASSIGN(eo.dtype, activation_dtype(o_.dtype, config_.text));
    LATHE_RETURN_IF_ERROR(add_choices(o_.variants, eo.choices));
    const int page = page_tokens_for(config_.text.kpool);
    int widest = 1;
    int64_t pages = 0;
    for (const Job& job : jobs) {
      widest = std::max(widest, static_cast<int>(job.greedy.ends.size()) + 1);
      int64_t own = static_cast<int64_t>(job.greedy.beginning.size()) / page + 2;
      for (const auto& end : job.greedy.ends) own += (static_cast<int64_t>(end.size()) + kMaxAnswer + 16) / page + 3;
      pages = std::max(pages, own);
    }
    eo.probes = o_.probes.get();
    eo.slots = std::max(o_.slots, widest);
    eo.pages = static_cast<int>(std::max<int64_t>(pages, int64_t{o_.slots} * 40));
    eo.replay_length = o_.drafts > 0 ? ring_length(config_.text.gate_bound) : 0;
    eo.max_draft = o_.drafts;
    LATHE_ASSIGN(executor_, Executor::create(config_, checkpoint_, *device_, pool_, nullptr, eo));
    return Status::ok();
  }

  Status encode_pictures(Job& job) {
    if (job.media.empty()) return Status::ok();
    if (!pictures_) {
      LATHE_ASSIGN(pictures_, PictureEncoder::create(config_, checkpoint_, *executor_));
    }
    LATHE_ASSIGN(PictureFeatures features, pictures_->place(job.media, {job.greedy.beginning}));
    for (size_t i = 0; i < features.encoded.size(); ++i)
      LATHE_RETURN_IF_ERROR(pictures_->encode(job.media, i, features));
    job.greedy.pictures = std::make_shared<const PictureFeatures>(std::move(features));
    return Status::ok();
  }

  EvalMarked marked(const EvalItem& item, size_t ask, const GreedyAnswer& answer) const {
    EvalMarked m{.id = item.asks.size() == 1 ? item.id : fmt::format("{}/{}", item.id, ask), .task = item.task};
    m.wanted =
        item.asks[ask].answer.is_string() ? item.asks[ask].answer.get<std::string>() : item.asks[ask].answer.dump();
    m.right =
        marked_right(item.asks[ask], tokenizer_.decode(answer.tokens, /*skip_special=*/true), m.got) && answer.stopped;
    m.tokens = static_cast<int>(answer.tokens.size()) + answer.stopped;
    m.verification_steps = answer.verification_steps, m.accepted = answer.accepted, m.context = item.context;
    return m;
  }

  std::string setting(bool drafts) const {
    std::string s =
        fmt::format("{} {}, drafts {}", o_.device, dtype_name(executor_->tower().dtype()), drafts ? o_.drafts : 0);
    for (const std::string& v : o_.variants) s += ", " + v;
    if (o_.index_top_k) s += fmt::format(", index_topk {}", o_.index_top_k);
    if (o_.recent) s += fmt::format(", the last {} tokens in place of the indexer's choice", o_.recent);
    return s;
  }

  const EvalOptions& o_;
  glm5_next::Config config_;
  Tokenizer tokenizer_;
  ChatTemplate chat_;
  Checkpoint checkpoint_;
  std::unique_ptr<Device> device_;
  ThreadPool pool_;
  ProcessorConfig processor_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<PictureEncoder> pictures_;
};

}  // namespace

Result<EvalRun> evaluate(const EvalOptions& o) {
  if (o.recent && o.device != "cpu") return invalid("--recent rewrites token sets in host memory: use --device cpu");
  LATHE_ASSIGN(std::vector<EvalItem> items, read_eval_suite(o.suite.empty() ? o.model + "/heldout.jsonl.gz" : o.suite));
  std::set<std::string> known;
  for (const EvalItem& i : items) known.insert(i.task);
  for (const std::string& t : o.tasks)
    if (!known.contains(t)) return invalid("--task {}: the suite has no such task", t);
  std::erase_if(items, [&](const EvalItem& i) {
    const bool asked_for = std::find(o.tasks.begin(), o.tasks.end(), i.task) != o.tasks.end();
    return (!o.tasks.empty() && !asked_for) || (o.quick && !i.quick) || (i.hard && !o.hard && !asked_for);
  });
  if (items.empty()) return invalid("no items are left to ask");
  LATHE_ASSIGN(const std::unique_ptr<Examination> examination, Examination::create(o));
  return examination->run(std::move(items));
}

}  // namespace lathe

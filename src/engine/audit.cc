#include "engine/audit.h"

#include <algorithm>
#include <cmath>

#include "engine/run_settings.h"

namespace lathe {

namespace {

constexpr int kPiece = 128;          // rows of a piece
constexpr float kBelowGreedy = 0.5;  // log probability: near ties of bf16 lie far inside
constexpr float kBelowDrawn = 16;    // times the temperature: a draw of less than one in ten million

double rms(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i)
    difference += std::pow(double{a[i]} - b[i], 2), size += std::pow(double{b[i]}, 2);
  return std::sqrt(difference / std::max(size, 1e-30));
}

// Keeps the last row of every layer's residual streams.
class LastStreams final : public StepObserver {
 public:
  LastStreams(Device& device, int layers) : device_(device), by_layer(layers) {}
  void streams(int layer, const Rows& rows) override {
    if (status.is_ok()) status = rows_to_host(device_, rows.slice(rows.rows - 1, 1), by_layer[layer]);
  }

 private:
  Device& device_;

 public:
  Status status;
  std::vector<std::vector<float>> by_layer;
};

}  // namespace

ShadowAudit::ShadowAudit(Executor& executor, const AuditOptions& options)
    : executor_(executor),
      per_second_(options.tokens_per_minute / 60.0),
      share_(options.share),
      auditor_(options.auditor),
      sampler_(executor.tower().config().vocab) {
  for (const char* v : {"kda_prefill=sequential", "sparse_mla=absorbed"}) LATHE_CHECK(plain_.add(v).is_ok());
}

void ShadowAudit::offer(AuditSample sample, SteadyTime now) {
  if (per_second_ <= 0 || std::uniform_real_distribution<double>()(random_) >= share_) return;
  // What isn't used within ten minutes is lost.
  if (last_) allowance_ += per_second_ * std::chrono::duration<double>(now - *last_).count();
  allowance_ = std::min(allowance_, per_second_ * 600);
  last_ = now;
  if (sample_ || static_cast<double>(sample.tokens.size()) > allowance_) return;
  allowance_ -= static_cast<double>(sample.tokens.size());
  sample_ = std::move(sample);
}

Status ShadowAudit::work() {
  if (!sample_) return Status::ok();
  const Status s = step();
  if (s.is_ok()) return s;
  finish();
  // Running requests have the memory: the sample is dropped.
  return s.code() == StatusCode::kExhausted ? Status::ok() : s;
}

Status ShadowAudit::step() {
  SequenceMemory& memory = executor_.memory();
  if (sequence_ < 0) {
    LATHE_ASSIGN(sequence_, memory.open());
  }
  const int first = memory.position(sequence_), end = static_cast<int>(sample_->tokens.size()) - 1;
  const int rows = std::min(kPiece, end - first);
  if (rows <= 0) {
    if (auditor_) auditor_->clean(sample_->id, end + 1);
    finish();
    return Status::ok();
  }
  const auto from = sample_->tokens.begin() + first;
  const Choices usual = executor_.use(plain_);
  const Result<glm5_next::StepOutput> out =
      executor_.run({{.sequence = sequence_,
                      .tokens = {from, from + rows},
                      .features = {},
                      .in_ring = false,
                      .logits_of_last = std::clamp(first + rows + 1 - sample_->prompt, 0, rows)}});
  executor_.use(usual);
  if (!out.is_ok()) return out.status();
  tokens_ += rows;
  return judge(*out, first, rows);
}

// Rows [first, first + rows) have been fed; each row's logits are about the token after it.
Status ShadowAudit::judge(const glm5_next::StepOutput& out, int first, int rows) {
  const int judged = static_cast<int>(out.logits.rows);
  std::vector<DrawRow> draws(judged);
  for (int i = 0; i < judged; ++i) {
    const int position = first + rows - judged + i + 1;
    draws[i] = {.logit_row = i, .position = position, .given = sample_->tokens[position], .best = 1};
  }
  LATHE_ASSIGN(const std::span<const Drawn> drawn, sampler_.draw(executor_, out.logits, draws));
  const float limit = std::max(kBelowGreedy, kBelowDrawn * sample_->temperature);
  for (int i = 0; i < judged; ++i) {
    if (drawn[i].best.empty()) continue;
    const TokenLogprob best = drawn[i].best[0];
    const float below = best.logprob - drawn[i].logprob;
    if (below <= limit) continue;
    ++findings_;
    AuditFinding finding{
        .id = sample_->id, .position = draws[i].position, .chosen = draws[i].given, .best = best.token, .below = below};
    LATHE_ASSIGN(finding.layer, first_differing_layer(draws[i].position));
    if (auditor_) auditor_->found(finding);
    finish();
    break;
  }
  return Status::ok();
}

Result<int> ShadowAudit::first_differing_layer(int position) {
  LATHE_ASSIGN(const auto usual, streams_at(position, executor_.choices()));
  LATHE_ASSIGN(const auto plain, streams_at(position, plain_));
  const double tolerance = executor_.tower().dtype() == DType::kF32 ? 1e-3 : 5e-2;
  for (size_t l = 0; l < plain.size(); ++l)
    if (rms(usual[l], plain[l]) > tolerance) return static_cast<int>(l);
  return -1;
}

// Residual streams by layer of the token before `position`, computed from nothing.
Result<std::vector<std::vector<float>>> ShadowAudit::streams_at(int position, const Choices& choices) {
  LATHE_ASSIGN(const SequenceId id, executor_.memory().open());
  LastStreams last(executor_.device(), static_cast<int>(executor_.tower().config().layers.size()));
  const Choices before = executor_.use(choices);
  Status status;
  for (int at = 0; at < position && status.is_ok();) {
    const int rows = std::min(kPiece, position - at);
    const auto from = sample_->tokens.begin() + at;
    at += rows;
    status =
        executor_
            .run({{.sequence = id, .tokens = {from, from + rows}, .features = {}}}, at == position ? &last : nullptr)
            .status();
  }
  executor_.use(before);
  executor_.memory().close(id);
  LATHE_RETURN_IF_ERROR(status);
  LATHE_RETURN_IF_ERROR(last.status);
  return std::move(last.by_layer);
}

void ShadowAudit::finish() {
  if (sequence_ >= 0) executor_.memory().close(sequence_);
  sequence_ = -1;
  sample_.reset();
}

}  // namespace lathe

#include "serve/generation.h"

namespace lathe::serve {

namespace {

ApiError server_error(int status, std::string message, std::string code, int retry_after = 0) {
  return {.status = status,
          .type = "server_error",
          .message = std::move(message),
          .code = std::move(code),
          .retry_after = retry_after};
}

}  // namespace

ApiError error_of(Failure failure) {
  switch (failure) {
    case Failure::kCancelled:
      return server_error(499, "the request was cancelled", "cancelled");
    case Failure::kDeadline:
      return server_error(504, "the request's deadline has passed", "deadline_exceeded");
    case Failure::kGrammarDeadEnd:
      return {.status = 400, .message = "the grammar allows no token here", .code = "grammar_dead_end"};
    case Failure::kNonFinite:
      return server_error(500, "the model gave no finite number", "nonfinite_logits");
    case Failure::kExhausted:
      return server_error(503, "the memory for this request could not be had", "exhausted", 5);
    case Failure::kDraining:
      return server_error(503, "the server is shutting down", "draining", 10);
    case Failure::kInternal:
      return server_error(500, "the server could not go on with this request", "internal_error");
    case Failure::kEngine:
      break;
  }
  return server_error(500, "the engine has failed", "engine_failed");
}

ApiError error_of(const Refusal& r) {
  switch (r.why) {
    case Refusal::Why::kTooLong:
      return bad_request("", r.message, "context_length_exceeded");
    case Refusal::Why::kDuplicateId:
      return bad_request("", "a request with this id is in flight", "duplicate_id");
    case Refusal::Why::kDraining:
      return unavailable_now("the server is shutting down", "draining", std::max(1, r.retry_after_seconds));
    case Refusal::Why::kFailed:
      return unavailable_now("the engine has failed", "engine_failed", std::max(1, r.retry_after_seconds));
    case Refusal::Why::kQueueFull:
    case Refusal::Why::kQueueTokens:
    case Refusal::Why::kWait:
      break;
  }
  return unavailable_now("the server is overloaded", "overloaded", std::max(1, r.retry_after_seconds));
}

Generation::Generation(Service& service, std::shared_ptr<Exchange> exchange, GenerationPlan plan,
                       std::function<void(const GenerationEnd&)> on_end)
    : service_(service),
      exchange_(std::move(exchange)),
      plan_(std::move(plan)),
      on_end_(std::move(on_end)),
      started_(std::chrono::steady_clock::now()) {
  parts_.resize(plan_.requests.size());
  plan_.reply.prompt_logprobs.resize(parts_.size());
  const size_t choices = parts_.size() * static_cast<size_t>(plan_.reply.choices_a_prompt);
  plan_.reply.choices.resize(choices);
  dropped_call_.assign(choices, -1);
  if (plan_.parse)
    for (size_t i = 0; i < choices; ++i) streams_.emplace_back(plan_.tools, plan_.in_reasoning);
  for (const Request& r : plan_.requests) ids_.push_back(r.id);
}

void Generation::start() {
  exchange_->on_gone([weak = weak_from_this()] {
    if (auto self = weak.lock()) self->left();
  });
  for (size_t i = 0; i < plan_.requests.size(); ++i) {
    const auto refused =
        service_.submit(std::move(plan_.requests[i]),
                        [self = shared_from_this(), i](RequestEvent&& e) { self->push(i, std::move(e)); });
    if (!refused) continue;
    for (size_t j = 0; j < i; ++j) service_.cancel(ids_[j]);
    const ApiError error = error_of(*refused);
    exchange_->reply(error_reply(error, plan_.shape->errors()));
    return end(error.status, error.code);
  }
  if (exchange_->gone()) cancel();
  HttpReply head{.content_type = "text/event-stream; charset=utf-8", .headers = plan_.headers};
  head.headers.push_back({"Cache-Control", "no-cache"});
  head.headers.push_back({"X-Accel-Buffering", "no"});
  if (plan_.stream)
    exchange_->stream(std::move(head), shared_from_this());
  else
    exchange_->listen(shared_from_this());
  exchange_->wake();
}

void Generation::cancel() {
  for (const std::string& id : ids_) service_.cancel(id);
}

void Generation::left() {
  cancel();
  end(499, "client_left");
}

void Generation::push(size_t part, RequestEvent&& event) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    arrived_.push_back({part, std::move(event)});
  }
  exchange_->wake();
}

HttpStream::Next Generation::pull(std::string& out, size_t room) {
  {
    const std::lock_guard lock(mutex_);
    if (taken_.empty())
      taken_.swap(arrived_);
    else
      for (; !arrived_.empty(); arrived_.pop_front()) taken_.push_back(std::move(arrived_.front()));
  }
  while (!taken_.empty() && next_ == Next::kWait && (!plan_.stream || out.size() < room)) {
    News news = std::move(taken_.front());
    taken_.pop_front();
    take(news, out);
    if (!plan_.stream) out.clear();
  }
  return next_;
}

void Generation::take(News& news, std::string& out) {
  Part& part = parts_[news.part];
  RequestEvent& e = news.event;
  if (e.kind != RequestEvent::Kind::kFailed) {
    part.usage = e.usage;
    sum_usage();
  }
  switch (e.kind) {
    case RequestEvent::Kind::kStarted:
      plan_.reply.prompt_logprobs[news.part] = std::move(e.prompt_logprobs);
      return begin(out);
    case RequestEvent::Kind::kOutput:
      begin(out);
      for (OutputPiece& piece : e.pieces) take_piece(news.part, piece, out);
      return;
    case RequestEvent::Kind::kDone:
      begin(out);
      part.done = true;
      for (const Part& p : parts_)
        if (!p.done) return;
      return complete(out);
    case RequestEvent::Kind::kFailed:
      break;
  }
  for (size_t i = 0; i < ids_.size(); ++i)
    if (i != news.part && !parts_[i].done) service_.cancel(ids_[i]);
  fail(error_of(e.failure), failure_name(e.failure), out);
}

// Chunks of the whole batch of prompts wait for its first start: only then is known what was found in the cache.
void Generation::begin(std::string& out) {
  if (!begun_) plan_.shape->begin(plan_.reply, out);
  begun_ = true;
}

void Generation::sum_usage() {
  Usage sum;
  for (const Part& p : parts_) {
    sum.prompt_tokens += p.usage.prompt_tokens, sum.cached_tokens += p.usage.cached_tokens;
    sum.image_tokens += p.usage.image_tokens, sum.completion_tokens += p.usage.completion_tokens;
    sum.reasoning_tokens += p.usage.reasoning_tokens;
  }
  plan_.reply.usage = sum;
}

void Generation::take_piece(size_t part, OutputPiece& piece, std::string& out) {
  const size_t choice = part * static_cast<size_t>(plan_.reply.choices_a_prompt) + static_cast<size_t>(piece.choice);
  ReplyChoice& c = plan_.reply.choices[choice];
  if (c.finish) return;
  if (end_.seconds_to_first < 0)
    end_.seconds_to_first = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  if (plan_.reply.logprobs || plan_.reply.token_ids)
    c.tokens.insert(c.tokens.end(), std::make_move_iterator(piece.tokens.begin()),
                    std::make_move_iterator(piece.tokens.end()));
  if (plan_.parse)
    for (const OutputDelta& d : streams_[choice].push(piece.text)) apply(choice, d, out);
  else
    apply(choice, {OutputDelta::Kind::kContent, piece.text}, out);
  if (!piece.finish) return;
  c.finish = piece.finish;
  c.stopped_by = piece.stopped_by;
  finish_choice(choice, out);
}

void Generation::finish_choice(size_t choice, std::string& out) {
  if (plan_.parse) {
    for (const OutputDelta& d : streams_[choice].finish()) apply(choice, d, out);
    end_.malformed_calls += streams_[choice].malformed_calls();
  }
  close_block(choice, out);
  plan_.shape->choice_end(plan_.reply, static_cast<int>(choice), out);
}

void Generation::apply(size_t choice, const OutputDelta& d, std::string& out) {
  using Kind = OutputDelta::Kind;
  const bool of_call = d.kind == Kind::kCallStart || d.kind == Kind::kCallArguments || d.kind == Kind::kCallEnd;
  if (of_call && !plan_.parallel_calls && d.call > 0) return;
  if (d.kind == Kind::kReasoning && !plan_.reply.reasoning) return;
  if (d.kind == Kind::kCallStart) return open_block(choice, Block::Kind::kCall, d.text, out);
  if (d.kind == Kind::kCallEnd) return close_block(choice, out);
  if (d.text.empty()) return;
  const Block::Kind kind = d.kind == Kind::kReasoning ? Block::Kind::kReasoning
                           : d.kind == Kind::kContent ? Block::Kind::kContent
                                                      : Block::Kind::kCall;
  std::vector<Block>& blocks = plan_.reply.choices[choice].blocks;
  if (blocks.empty() || !blocks.back().open || blocks.back().kind != kind) open_block(choice, kind, "", out);
  blocks.back().text += d.text;
  plan_.shape->block_text(plan_.reply, static_cast<int>(choice), static_cast<int>(blocks.size()) - 1, d.text, out);
}

void Generation::open_block(size_t choice, Block::Kind kind, const std::string& name, std::string& out) {
  close_block(choice, out);
  std::vector<Block>& blocks = plan_.reply.choices[choice].blocks;
  const bool messages = plan_.shape->errors() == ErrorShape::kMessages;
  blocks.push_back({.kind = kind, .text = "", .name = name, .id = new_id(messages ? "toolu_" : "call_")});
  plan_.shape->block_begin(plan_.reply, static_cast<int>(choice), static_cast<int>(blocks.size()) - 1, out);
}

void Generation::close_block(size_t choice, std::string& out) {
  std::vector<Block>& blocks = plan_.reply.choices[choice].blocks;
  if (blocks.empty() || !blocks.back().open) return;
  blocks.back().open = false;
  plan_.shape->block_end(plan_.reply, static_cast<int>(choice), static_cast<int>(blocks.size()) - 1, out);
}

void Generation::complete(std::string& out) {
  for (size_t i = 0; i < plan_.reply.choices.size(); ++i) {
    if (plan_.reply.choices[i].finish) continue;
    plan_.reply.choices[i].finish = FinishReason::kStop;
    finish_choice(i, out);
  }
  plan_.shape->end(plan_.reply, out);
  next_ = Next::kEnd;
  const ReplyChoice& first = plan_.reply.choices[0];
  std::string finish = first.finish == FinishReason::kLength ? "length" : first.has_call() ? "tool_calls" : "stop";
  if (!plan_.stream) {
    HttpReply whole{.body = dump(plan_.shape->whole(plan_.reply)), .headers = plan_.headers};
    exchange_->reply(std::move(whole));
  }
  end(200, std::move(finish));
}

void Generation::fail(const ApiError& error, const char* name, std::string& out) {
  next_ = Next::kCut;
  if (plan_.stream)
    plan_.shape->failed(plan_.reply, error, out);
  else
    exchange_->reply(error_reply(error, plan_.shape->errors()));
  end(error.status, name);
}

void Generation::end(int status, std::string finish) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    arrived_.clear();
  }
  end_.status = status;
  end_.finish = std::move(finish);
  end_.usage = plan_.reply.usage;
  on_end_(end_);
  on_end_ = nullptr;
}

}  // namespace lathe::serve

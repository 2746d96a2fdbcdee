#include "text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace lathe {

namespace {

// Generous for what published patterns do (a match of theirs takes a few steps a character), small enough that a
// pattern with exponential backtracking fails within a second.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kDepthLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kJitStack = 1 << 20;

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  return pcre2_get_error_message(error, text, sizeof text) < 0 ? "?" : reinterpret_cast<const char*>(text);
}

struct FreeCompileContext {
  void operator()(pcre2_compile_context* c) const { pcre2_compile_context_free(c); }
};

}  // namespace

void Pattern::Free::operator()(void* code) const { pcre2_code_free(static_cast<pcre2_code*>(code)); }
void Pattern::Scratch::Free::operator()(void* data) const {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(data));
}
void Pattern::Scratch::FreeContext::operator()(void* c) const {
  pcre2_match_context_free(static_cast<pcre2_match_context*>(c));
}
void Pattern::Scratch::FreeStack::operator()(void* stack) const {
  pcre2_jit_stack_free(static_cast<pcre2_jit_stack*>(stack));
}

Result<Pattern> Pattern::compile(std::string_view oniguruma, const std::string& place) {
  Result<std::string> rewritten = pcre2_from_oniguruma(oniguruma);
  if (!rewritten.is_ok()) return rewritten.status().within(place);
  std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 64);
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Oniguruma's default syntax is Ruby's: ^ and $ are bounds of lines.
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten->data()), rewritten->size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (!code) return corrupt("{}: not a regular expression: {}, at byte {}", place, message_of(error), offset);
  Pattern pattern;
  pattern.code_.reset(code);
  pattern.jit_ = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  return pattern;
}

Pattern::Scratch Pattern::make_scratch() const {
  Scratch scratch;
  auto* data = pcre2_match_data_create_from_pattern(static_cast<pcre2_code*>(code_.get()), nullptr);
  auto* context = pcre2_match_context_create(nullptr);
  auto* stack = jit_ ? pcre2_jit_stack_create(32 << 10, kJitStack, nullptr) : nullptr;
  scratch.data_.reset(data);
  scratch.context_.reset(context);
  scratch.stack_.reset(stack);
  pcre2_set_match_limit(context, kMatchLimit);
  pcre2_set_depth_limit(context, kDepthLimit);
  pcre2_set_heap_limit(context, kHeapLimitKib);
  if (stack) pcre2_jit_stack_assign(context, nullptr, stack);
  return scratch;
}

Pattern::Found Pattern::search(std::string_view text, size_t from, Scratch& scratch, size_t& begin, size_t& end) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  auto* data = static_cast<pcre2_match_data*>(scratch.data_.get());
  auto* context = static_cast<pcre2_match_context*>(scratch.context_.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const int rc = jit_ ? pcre2_jit_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data, context)
                      : pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, data, context);
  if (rc == PCRE2_ERROR_NOMATCH) return Found::kNone;
  if (rc < 0) return Found::kGaveUp;
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data);
  begin = bounds[0];
  end = bounds[1];
  // \K may move the start of a match behind its end, or in front of what has been searched.
  return begin < from || end < begin ? Found::kGaveUp : Found::kMatch;
}

}  // namespace lathe

#include "text/grammar/number_range.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace lathe {

namespace {

using Builder = AutomatonBuilder;
using Digits = std::string_view;

void digit(Builder& b, int32_t from, char low, char high, int32_t to) {
  if (low <= high) b.range(from, static_cast<uint8_t>(low), static_cast<uint8_t>(high), to);
}

// n digits, each any.
void any_digits(Builder& b, int32_t from, size_t n, int32_t to) {
  for (; n > 0; --n) {
    const int32_t next = b.add_state();
    digit(b, from, '0', '9', next);
    from = next;
  }
  b.empty(from, to);
}

// As many digits as the bound has, not below (above) it.
void bounded_digits(Builder& b, int32_t from, Digits bound, bool below, int32_t to) {
  if (bound.empty()) return b.empty(from, to);
  const int32_t same = b.add_state(), free = b.add_state();
  digit(b, from, bound[0], bound[0], same);
  bounded_digits(b, same, bound.substr(1), below, to);
  if (below)
    digit(b, from, '0', static_cast<char>(bound[0] - 1), free);
  else
    digit(b, from, static_cast<char>(bound[0] + 1), '9', free);
  any_digits(b, free, bound.size() - 1, to);
}

// Digits of one length, from low to high.
void between(Builder& b, int32_t from, Digits low, Digits high, int32_t to) {
  if (low.empty()) return b.empty(from, to);
  const int32_t at_low = b.add_state();
  digit(b, from, low[0], low[0], at_low);
  if (low[0] == high[0]) return between(b, at_low, low.substr(1), high.substr(1), to);
  const int32_t at_high = b.add_state(), free = b.add_state();
  bounded_digits(b, at_low, low.substr(1), false, to);
  digit(b, from, high[0], high[0], at_high);
  bounded_digits(b, at_high, high.substr(1), true, to);
  digit(b, from, static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1), free);
  any_digits(b, free, low.size() - 1, to);
}

// Whole numbers without sign.
void magnitudes(Builder& b, int32_t from, uint64_t low, std::optional<uint64_t> high, int32_t to) {
  if (high && *high < low) return;
  const std::string l = std::to_string(low), h = high ? std::to_string(*high) : "";
  const size_t longest = high ? h.size() : l.size();
  for (size_t n = l.size(); n <= longest; ++n) {
    std::string first = l;
    if (n > l.size()) first.assign(n, '0')[0] = '1';
    const std::string last = high && n == h.size() ? h : std::string(n, '9');
    between(b, from, first, last, to);
  }
  if (high) return;
  const int32_t more = b.add_state(), loop = b.add_state();
  digit(b, from, '1', '9', more);
  any_digits(b, more, l.size(), loop);
  digit(b, loop, '0', '9', loop);
  b.empty(loop, to);
}

uint64_t magnitude(int64_t x) { return x < 0 ? uint64_t{0} - static_cast<uint64_t>(x) : static_cast<uint64_t>(x); }

}  // namespace

void add_integers(Builder& b, int32_t from, std::optional<int64_t> low, std::optional<int64_t> high, int32_t to) {
  if (!low || *low < 0) {
    const uint64_t nearest = high && *high < 0 ? magnitude(*high) : 1;
    magnitudes(b, b.text(from, "-"), nearest, low ? std::optional(magnitude(*low)) : std::nullopt, to);
  }
  if (!high || *high >= 0)
    magnitudes(b, from, low && *low > 0 ? magnitude(*low) : 0, high ? std::optional(magnitude(*high)) : std::nullopt,
               to);
}

std::optional<Decimal> Decimal::parse(const std::string& text) {
  Decimal d;
  d.negative = text.starts_with('-');
  const std::string digits = text.substr(d.negative ? 1 : 0);
  if (digits.empty() || digits.find_first_not_of("0123456789.") != std::string::npos) return std::nullopt;
  const size_t point = std::min(digits.find('.'), digits.size());
  d.whole = digits.substr(0, point);
  if (point < digits.size()) d.fraction = digits.substr(point + 1);
  d.fraction.erase(d.fraction.find_last_not_of('0') + 1);
  if (d.whole.empty() || d.whole.size() > 18) return std::nullopt;
  return d;
}

namespace {

// What may follow the digits before the point, when those equal a bound's: nothing or a fraction, compared digit by
// digit with the bounds' own.
class Fraction {
 public:
  Fraction(Builder& b, const Decimal* low, const Decimal* high, int32_t to) : b_(b), low_(low), high_(high), to_(to) {}

  void add(int32_t from) {
    const At begin = {0, low_ != nullptr, high_ != nullptr};
    if (accepts(begin)) b_.empty(from, to_);
    leave(b_.text(from, "."), begin);
    for (size_t i = 0; i < todo_.size(); ++i) leave(states_[todo_[i]], todo_[i]);
  }

 private:
  struct At {
    size_t position;
    bool on_low, on_high;  // all digits so far equal the bound's
    auto operator<=>(const At&) const = default;
  };
  static char digit_of(const Decimal* bound, size_t i) {
    return bound && i < bound->fraction.size() ? bound->fraction[i] : '0';
  }
  bool accepts(At at) const {
    const bool above = !at.on_low || (at.position >= low_->fraction.size() && low_->inclusive);
    const bool below = !at.on_high || at.position < high_->fraction.size() || high_->inclusive;
    return above && below;
  }
  void leave(int32_t from, At at) {
    const size_t longest = std::max(low_ ? low_->fraction.size() : 0, high_ ? high_->fraction.size() : 0);
    for (char d = '0'; d <= '9'; ++d) {
      if (at.on_low && d < digit_of(low_, at.position)) continue;
      if (at.on_high && d > digit_of(high_, at.position)) continue;
      At next = {std::min(at.position + 1, longest), at.on_low && d == digit_of(low_, at.position),
                 at.on_high && d == digit_of(high_, at.position)};
      if (!next.on_low && !next.on_high) next.position = 0;
      const auto [found, is_new] = states_.try_emplace(next, -1);
      if (is_new) {
        found->second = b_.add_state();
        todo_.push_back(next);
        if (accepts(next)) b_.empty(found->second, to_);
      }
      digit(b_, from, d, d, found->second);
    }
  }

  Builder& b_;
  const Decimal *low_, *high_;
  int32_t to_;
  std::map<At, int32_t> states_;
  std::vector<At> todo_;
};

// Numbers without sign.
void positive_numbers(Builder& b, int32_t from, const Decimal& low, const Decimal* high, int32_t to) {
  const uint64_t l = std::stoull(low.whole), h = high ? std::stoull(high->whole) : 0;
  if (high && h < l) return;
  if (high && h == l) return Fraction(b, &low, high, to).add(b.text(from, low.whole));
  Fraction(b, &low, nullptr, to).add(b.text(from, low.whole));
  const int32_t whole = b.add_state();
  magnitudes(b, from, l + 1, high ? std::optional<uint64_t>(h - 1) : std::nullopt, whole);
  Fraction(b, nullptr, nullptr, to).add(whole);
  if (high) Fraction(b, nullptr, high, to).add(b.text(from, high->whole));
}

}  // namespace

void add_numbers(Builder& b, int32_t from, const std::optional<Decimal>& low, const std::optional<Decimal>& high,
                 int32_t to) {
  const bool from_below = !low || (low->negative && !low->is_zero());
  const bool to_above = !high || !high->negative || high->is_zero();
  Decimal zero, past_zero;
  past_zero.inclusive = false;
  if (from_below) {
    const bool high_is_negative = high && high->negative && !high->is_zero();
    positive_numbers(b, b.text(from, "-"), high_is_negative ? *high : past_zero, low ? &*low : nullptr, to);
  }
  if (to_above) positive_numbers(b, from, from_below ? zero : *low, high ? &*high : nullptr, to);
}

}  // namespace lathe

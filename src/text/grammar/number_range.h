#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "text/grammar/automaton_builder.h"

namespace lathe {

// Integers of low..high (absent: without end), as JSON writes them, between two states.
void add_integers(AutomatonBuilder& builder, int32_t from, std::optional<int64_t> low, std::optional<int64_t> high,
                  int32_t to);

// A decimal number: sign, digits before the point, digits behind it without zeros at the end.
struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction;
  bool inclusive = true;  // of a bound: the number itself is in

  // Of a number in JSON; an error where it has more than 18 digits before the point or needs an exponent.
  static std::optional<Decimal> parse(const std::string& text);
  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

// Numbers between two bounds, written without exponent.
void add_numbers(AutomatonBuilder& builder, int32_t from, const std::optional<Decimal>& low,
                 const std::optional<Decimal>& high, int32_t to);

}  // namespace lathe

// Numbers of JSON within bounds, as a grammar.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "trainer/inference/grammar/grammar_builder.h"

namespace meshloom::trainer {

struct NumberBound {
  bool negative = false;
  std::string whole, fraction;  // digits, without zeros at the outer ends ("0" = zero)
  bool exclusive = false;
};

// The decimal digits of a number. Throws Error (where = `where`) for more than 19 before the point or 17 behind it.
NumberBound number_bound(const nlohmann::ordered_json& number, bool exclusive, const std::string& where);
// Below 0 where a < b, 0 where both are the same number.
int compare_bounds(const NumberBound& a, const NumberBound& b);

// Appends the integers within the bounds, or with `fractions` also decimals of up to 17 digits behind the point, without exponents.
GrammarBuilder::State append_number_range(GrammarBuilder& builder, GrammarBuilder::State from,
                                          const std::optional<NumberBound>& low,
                                          const std::optional<NumberBound>& high, bool fractions);

}  // namespace meshloom::trainer

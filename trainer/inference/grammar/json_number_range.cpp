#include "trainer/inference/grammar/json_number_range.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

#include "hal/error.h"
#include "trainer/inference/grammar/json_grammar.h"

namespace meshloom::trainer {
namespace {

constexpr std::size_t kWholeDigits = JsonGrammar::kDigits, kFractionDigits = JsonGrammar::kFraction;

// Compares digit by digit while a number's digits are those of a bound so far ("tight").
class DigitComparison {
 public:
  using State = GrammarBuilder::State;
  DigitComparison(GrammarBuilder& builder, std::optional<NumberBound> low, std::optional<NumberBound> high,
                  bool fractions)
      : builder_(builder),
        low_(std::move(low)),
        high_(std::move(high)),
        fractions_(fractions),
        to_(builder.add_state()) {}

  State append(State from) {
    for (std::size_t digits = 1; digits <= kWholeDigits; ++digits) {
      if (low_ && digits < low_->whole.size()) continue;
      if (high_ && digits > high_->whole.size()) break;
      builder_.empty(from, whole(digits, 0, low_ && digits == low_->whole.size(),
                                 high_ && digits == high_->whole.size()));
    }
    return to_;
  }

 private:
  static char digit_of(const std::string& digits, std::size_t at) {
    return at < digits.size() ? digits[at] : '0';
  }

  // `next` gives the state behind a digit.
  template <typename Next>
  void add_digits(State from, char first, const std::string* low, const std::string* high, std::size_t at,
                  const Next& next) {
    for (char d = first; d <= '9'; ++d) {
      if ((low && d < digit_of(*low, at)) || (high && d > digit_of(*high, at))) continue;
      const auto byte = static_cast<unsigned char>(d);
      builder_.bytes(from, next(low && d == digit_of(*low, at), high && d == digit_of(*high, at)), byte,
                     byte);
    }
  }

  State whole(std::size_t digits, std::size_t at, bool tight_low, bool tight_high) {
    const auto [found, fresh] = whole_.try_emplace({digits, at, tight_low, tight_high}, 0);
    if (!fresh) return found->second;
    const State state = found->second = builder_.add_state();
    if (at == digits) {
      if (may_end(0, tight_low, tight_high)) builder_.empty(state, to_);
      if (fractions_) builder_.empty(builder_.literal(state, "."), fraction(0, tight_low, tight_high));
      return state;
    }
    add_digits(state, at == 0 && digits > 1 ? '1' : '0', tight_low ? &low_->whole : nullptr,
               tight_high ? &high_->whole : nullptr, at,
               [&](bool low, bool high) { return whole(digits, at + 1, low, high); });
    return state;
  }

  State fraction(std::size_t at, bool tight_low, bool tight_high) {
    const auto [found, fresh] = fraction_.try_emplace({at, tight_low, tight_high}, 0);
    if (!fresh) return found->second;
    const State state = found->second = builder_.add_state();
    if (at > 0 && may_end(at, tight_low, tight_high)) builder_.empty(state, to_);
    if (at == kFractionDigits) return state;
    add_digits(state, '0', tight_low ? &low_->fraction : nullptr, tight_high ? &high_->fraction : nullptr, at,
               [&](bool low, bool high) { return fraction(at + 1, low, high); });
    return state;
  }

  // After so many digits behind the point.
  bool may_end(std::size_t digits, bool tight_low, bool tight_high) const {
    if (tight_low && (low_->fraction.size() > digits || low_->exclusive)) return false;
    return !(tight_high && high_->fraction.size() <= digits && high_->exclusive);
  }

  GrammarBuilder& builder_;
  const std::optional<NumberBound> low_, high_;
  const bool fractions_;
  const State to_;
  std::map<std::tuple<std::size_t, std::size_t, bool, bool>, State> whole_;
  std::map<std::tuple<std::size_t, bool, bool>, State> fraction_;
};

bool is_zero(const NumberBound& bound) { return bound.whole == "0" && bound.fraction.empty(); }

int compare_sizes(const NumberBound& a, const NumberBound& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  if (const int whole = a.whole.compare(b.whole); whole != 0) return whole;
  return a.fraction.compare(b.fraction);
}

}  // namespace

NumberBound number_bound(const nlohmann::ordered_json& number, bool exclusive, const std::string& where) {
  if (!number.is_number()) throw Error(where, "must be a number", number.dump().substr(0, 40));
  std::string text = number.dump();
  NumberBound bound;
  bound.exclusive = exclusive;
  if (text[0] == '-') {
    bound.negative = true;
    text.erase(0, 1);
  }
  std::int64_t exponent = 0;
  if (const std::size_t e = text.find('e'); e != std::string::npos) {
    exponent = std::strtoll(text.c_str() + e + 1, nullptr, 10);
    text.resize(e);
  }
  const std::size_t point = text.find('.');
  bound.whole = text.substr(0, point);
  if (point != std::string::npos) bound.fraction = text.substr(point + 1);
  for (; exponent > 0; --exponent) {
    bound.whole += bound.fraction.empty() ? '0' : bound.fraction[0];
    if (!bound.fraction.empty()) bound.fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    bound.fraction.insert(bound.fraction.begin(), bound.whole.empty() ? '0' : bound.whole.back());
    if (!bound.whole.empty()) bound.whole.pop_back();
  }
  bound.whole.erase(0, std::min(bound.whole.find_first_not_of('0'), bound.whole.size()));
  if (bound.whole.empty()) bound.whole = "0";
  while (!bound.fraction.empty() && bound.fraction.back() == '0') bound.fraction.pop_back();
  if (is_zero(bound)) bound.negative = false;
  if (bound.whole.size() > kWholeDigits || bound.fraction.size() > kFractionDigits)
    throw Error(where, "a bound must have at most 19 digits before the point and 17 behind it",
                number.dump());
  return bound;
}

int compare_bounds(const NumberBound& a, const NumberBound& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  return a.negative ? compare_sizes(b, a) : compare_sizes(a, b);
}

GrammarBuilder::State append_number_range(GrammarBuilder& builder, GrammarBuilder::State from,
                                          const std::optional<NumberBound>& low,
                                          const std::optional<NumberBound>& high, bool fractions) {
  const GrammarBuilder::State to = builder.add_state();
  if (!high || !high->negative) {
    std::optional<NumberBound> least = low;
    if (low && low->negative) least.reset();
    builder.empty(DigitComparison(builder, least, high, fractions).append(from), to);
  }
  if (!low || low->negative) {  // the size is between the other bounds, and not zero
    std::optional<NumberBound> most = low;
    const NumberBound least = high && high->negative ? *high : NumberBound{false, "0", "", true};
    builder.empty(DigitComparison(builder, least, most, fractions).append(builder.literal(from, "-")), to);
  }
  return to;
}

}  // namespace meshloom::trainer

#include "trainer/compose/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <new>
#include <utility>

#include "hal/error.h"

namespace meshloom::trainer {
namespace pcre {

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

template <typename T>
Owned<T> owned(T* made) {
  if (made == nullptr) throw std::bad_alloc();
  return Owned<T>(made);
}

}  // namespace pcre

namespace {

using pcre::owned;

// Rules match names and paths of some hundred characters: a pattern that exceeds these limits is a mistake or
// an attack.
constexpr std::size_t kMaxCharacters = 10'000;
constexpr std::uint32_t kMaxNesting = 200;
constexpr std::uint32_t kMaxSteps = 100'000;
constexpr std::uint32_t kMaxMatchKib = 20'000;

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  if (pcre2_get_error_message(error, text, sizeof text) < 0) return "error " + std::to_string(error);
  return reinterpret_cast<const char*>(text);
}

// The pattern as errors show it.
std::string shown(const std::string& pattern) {
  constexpr std::size_t kMax = 100;
  if (pattern.size() <= kMax) return "'" + pattern + "'";
  return "'" + pattern.substr(0, kMax) + "...', " + std::to_string(pattern.size()) + " characters";
}

}  // namespace

struct Regex::Compiled {
  pcre::Owned<pcre2_code> code;
  pcre::Owned<pcre2_match_context> context;
};

Regex::Regex(const std::string& pattern, std::string where) : pattern_(pattern), where_(std::move(where)) {
  if (pattern.size() > kMaxCharacters)
    throw Error(where_,
                "a regular expression must have at most " + std::to_string(kMaxCharacters) + " characters",
                shown(pattern));
  const auto limits = owned(pcre2_compile_context_create(nullptr));
  pcre2_set_parens_nest_limit(limits.get(), kMaxNesting);
  // As in ECMAScript: \uXXXX, [] and [^], references to groups that did not match, $ only at the very end.
  constexpr std::uint32_t kOptions = PCRE2_ALT_BSUX | PCRE2_ALLOW_EMPTY_CLASS | PCRE2_MATCH_UNSET_BACKREF |
                                     PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_UTF | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  PCRE2_SIZE at = 0;
  Compiled compiled;
  compiled.code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), kOptions,
                                    &error, &at, limits.get()));
  if (!compiled.code)
    throw Error(
        where_,
        "must be a regular expression (" + message_of(error) + " at character " + std::to_string(at) + ")",
        shown(pattern));
  compiled.context = owned(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(compiled.context.get(), kMaxSteps);
  pcre2_set_heap_limit(compiled.context.get(), kMaxMatchKib);
  compiled_ = std::make_shared<const Compiled>(std::move(compiled));
}

bool Regex::matches(std::string_view text) const { return match(text, true); }
bool Regex::contained_in(std::string_view text) const { return match(text, false); }

bool Regex::match(std::string_view text, bool whole) const {
  const auto data = owned(pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  const int result =
      pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0,
                  whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0, data.get(), compiled_->context.get());
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  throw Error(where_,
              "the regular expression must match in a bounded number of steps (" + message_of(result) + ")",
              shown(pattern_) + " on '" + std::string(text) + "'");
}

}  // namespace meshloom::trainer

#define PCRE2_CODE_UNIT_WIDTH 8
#include "trainer/data/tokenizer/unicode.h"

#include <pcre2.h>
#include <utf8proc.h>

#include <cstdlib>
#include <cstring>
#include <optional>

#include "hal/error.h"
#include "trainer/data/tokenizer/unicode_tables.h"

namespace meshloom::trainer {
namespace {

constexpr std::uint32_t kMaxSteps = 50'000'000;  // of one match; usual patterns need a few per character

template <auto Free>
struct Deleter {
  void operator()(auto* pointer) const { Free(pointer); }
};
using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// The character at the front of a text, or -1.
utf8proc_int32_t code_point(std::string_view text, std::size_t& bytes) {
  utf8proc_int32_t point = -1;
  const auto got = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                    static_cast<utf8proc_ssize_t>(text.size()), &point);
  bytes = got > 0 ? static_cast<std::size_t>(got) : 1;
  return got > 0 ? point : -1;
}

bool is_space(utf8proc_int32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

}  // namespace

struct UnicodeRegex::Compiled {
  Code code;
};

UnicodeRegex::UnicodeRegex(const std::string& text, std::string where) : where_(std::move(where)) {
  const std::string pattern = portable_pattern(text, where_);
  int error = 0;
  PCRE2_SIZE at = 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->code.reset(pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C, &error,
      &at, nullptr));
  if (!compiled->code)
    throw Error(where_, "must be a regular expression", message_of(error) + " at byte " + std::to_string(at));
  pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);  // without a JIT compiler the interpreter runs
  compiled_ = std::move(compiled);
}

void UnicodeRegex::for_each_match(std::string_view text,
                                  const std::function<void(std::size_t begin, std::size_t end)>& emit) const {
  const pcre2_code* code = compiled_->code.get();
  const MatchData data(pcre2_match_data_create_from_pattern(code, nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), kMaxSteps);
  if (text.empty()) return;  // not even an empty match, as in tokenizers
  std::size_t at = 0;
  std::optional<std::size_t> last_end;
  while (at <= text.size()) {
    const int result = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, 0,
                                   data.get(), context.get());
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0)
      throw Error(where_, "the pattern must match in a bounded number of steps", message_of(result));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    if (range[1] == range[0] && last_end == range[1]) {  // an empty match must not touch the one before
      at += at < text.size() ? code_point_bytes(text.substr(at)) : 1;
      continue;
    }
    emit(range[0], range[1]);
    at = range[1];
    last_end = at;
  }
}

std::vector<std::pair<std::size_t, std::size_t>> UnicodeRegex::matches(std::string_view text) const {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for_each_match(text, [&](std::size_t begin, std::size_t end) { found.emplace_back(begin, end); });
  return found;
}

std::string normalize(std::string_view text, NormalForm form) {
  int options = UTF8PROC_STABLE;
  options |= form == NormalForm::nfc || form == NormalForm::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::nfkc || form == NormalForm::nfkd) options |= UTF8PROC_COMPAT;
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at, bytes = 0;
    while (end < text.size()) {
      const std::int32_t point = code_point(text.substr(end), bytes);
      if (point < 0 || is_unknown_to_normal_forms(point)) break;
      end += bytes;
    }
    if (end > at) {
      utf8proc_uint8_t* mapped = nullptr;
      const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                                       static_cast<utf8proc_ssize_t>(end - at), &mapped,
                                       static_cast<utf8proc_option_t>(options));
      if (length < 0) throw Error("text", "must have a normal form", utf8proc_errmsg(length));
      out.append(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length));
      std::free(mapped);
    }
    if (end < text.size()) {
      code_point(text.substr(end), bytes);
      out += text.substr(end, bytes);
      end += bytes;
    }
    at = end;
  }
  return out;
}

std::size_t code_point_bytes(std::string_view text) {
  std::size_t bytes = 1;
  code_point(text, bytes);
  return bytes;
}

std::size_t leading_space(std::string_view text) {
  std::size_t bytes = 0;
  return !text.empty() && is_space(code_point(text, bytes)) ? bytes : 0;
}

std::size_t trailing_space(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    std::size_t bytes = 0;
    if (is_space(code_point(text.substr(text.size() - back), bytes)) && bytes == back) return bytes;
  }
  return 0;
}

std::size_t first_bad_byte(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    // Eight bytes at once while all of them are ASCII.
    std::uint64_t eight;
    if (text.size() - at >= 8) {
      std::memcpy(&eight, text.data() + at, 8);
      constexpr std::uint64_t kHigh = 0x8080808080808080u, kOnes = 0x0101010101010101u;
      if (((eight | (eight - kOnes)) & kHigh) == 0) {
        at += 8;
        continue;
      }
    }
    std::size_t bytes = 0;
    if (code_point(text.substr(at), bytes) <= 0) return at;
    at += bytes;
  }
  return std::string_view::npos;
}

}  // namespace meshloom::trainer

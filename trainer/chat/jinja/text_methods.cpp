// The methods of Python's str.
#include <algorithm>
#include <cstring>
#include <map>

#include "trainer/chat/jinja/builtins.h"
#include "trainer/chat/jinja/operators.h"
#include "trainer/chat/jinja/run.h"
#include "trainer/chat/jinja/text.h"

namespace meshloom::trainer::jinja {
namespace {

// The positions of `part` in `text` in bytes, in order and without overlap; at most `max_count` of them, from
// the left or from the right.
std::vector<std::size_t> occurrences(Run& run, std::string_view text, std::string_view part,
                                     std::size_t max_count, bool from_right) {
  charge(run, text.size() + part.size());
  std::vector<std::size_t> found;
  if (from_right) {
    const std::string mirrored(text.rbegin(), text.rend()), wanted(part.rbegin(), part.rend());
    found = occurrences(run, mirrored, wanted, max_count, false);
    for (std::size_t& at : found) at = text.size() - at - part.size();
    std::reverse(found.begin(), found.end());
    return found;
  }
  for (std::size_t at = 0; found.size() < max_count && at <= text.size();) {
    const void* hit = memmem(text.data() + at, text.size() - at, part.data(), part.size());
    if (!hit) break;
    const auto place = static_cast<std::size_t>(static_cast<const char*>(hit) - text.data());
    found.push_back(place);
    at = place + part.size();
  }
  run.bytes(8 * found.size());
  return found;
}

// Converts the parameter `max_count` of Python: negative means all.
std::size_t max_count_of(std::int64_t max_count) {
  return max_count < 0 ? SIZE_MAX : static_cast<std::size_t>(max_count);
}

const std::string& text_argument(Run& run, const Value& value, const char* method) {
  if (!value.text()) run.fail(std::string(method) + " takes text", value.type());
  charge(run, value);
  return value.text()->bytes;
}

Value piece(Run& run, const Text& self, std::string_view part) {
  return make_text(run, std::string(part), self.markup);
}

// The characters [start, stop) of a text, by Python's optional arguments number `first` and `first` + 1.
struct Window {
  std::string_view text;
  std::size_t code_points_before;
  bool inside;  // whether start is within the text
};

Window window(const Text& self, const BoundArguments& given, std::size_t first) {
  const auto length = static_cast<std::int64_t>(self.code_points);
  const auto bound = [&](std::size_t at, std::int64_t open) {
    if (!given.given(at)) return open;
    std::int64_t value = given.integer(at, open);
    if (value < 0) value = std::max<std::int64_t>(value + length, 0);
    return value;
  };
  const std::int64_t start = bound(first, 0), stop = std::min(bound(first + 1, length), length);
  if (start > length || start > stop) return {{}, 0, false};
  const std::size_t from = byte_of(self.bytes, static_cast<std::size_t>(start));
  const std::string_view rest = std::string_view(self.bytes).substr(from);
  return {rest.substr(0, byte_of(rest, static_cast<std::size_t>(stop - start))),
          static_cast<std::size_t>(start), true};
}

template <Side side>
Value strip_method(Run& run, const Text& self, Arguments& arguments) {
  const BoundArguments given(run, "strip()", arguments, {"chars"});
  if (!given.given(0)) return piece(run, self, strip(self.bytes, side));
  return piece(run, self, strip(self.bytes, side, text_argument(run, given[0], "strip()")));
}

template <std::string (*change)(std::string_view)>
Value changed(Run& run, const Text& self, Arguments& arguments) {
  BoundArguments(run, "this method of a text", arguments, {});
  return make_text(run, change(self.bytes), self.markup);
}

// The words between white space; after `max_count` cuts the rest is one piece.
Values words(Run& run, const Text& self, std::size_t max_count, bool from_right) {
  Values found;
  std::string_view rest = strip(self.bytes, from_right ? Side::right : Side::left);
  while (!rest.empty()) {
    run.step();
    if (found.size() == max_count) {
      found.push_back(piece(run, self, rest));
      break;
    }
    std::size_t at = from_right ? rest.size() : 0;
    if (from_right) {
      while (at > 0) {
        std::size_t start = at - 1;
        while (start > 0 && (static_cast<unsigned char>(rest[start]) & 0xc0) == 0x80) --start;
        std::size_t behind = start;
        if (is_space(next_code_point(rest, behind))) break;
        at = start;
      }
      found.push_back(piece(run, self, rest.substr(at)));
      rest = strip(rest.substr(0, at), Side::right);
    } else {
      while (at < rest.size()) {
        std::size_t behind = at;
        if (is_space(next_code_point(rest, behind))) break;
        at = behind;
      }
      found.push_back(piece(run, self, rest.substr(0, at)));
      rest = strip(rest.substr(at), Side::left);
    }
  }
  if (from_right) std::reverse(found.begin(), found.end());
  return found;
}

template <bool from_right>
Value split(Run& run, const Text& self, Arguments& arguments) {
  const BoundArguments given(run, "split()", arguments, {"sep", "maxsplit"});
  const std::size_t max_count = max_count_of(given.integer(1, -1));
  if (!given.given(0)) return make_list(run, words(run, self, max_count, from_right));
  const std::string& separator = text_argument(run, given[0], "split()");
  if (separator.empty()) run.fail("split() must not be given an empty separator");
  Values found;
  std::size_t start = 0;
  for (const std::size_t at : occurrences(run, self.bytes, separator, max_count, from_right)) {
    found.push_back(piece(run, self, std::string_view(self.bytes).substr(start, at - start)));
    start = at + separator.size();
  }
  found.push_back(piece(run, self, std::string_view(self.bytes).substr(start)));
  return make_list(run, std::move(found));
}

Value split_lines_method(Run& run, const Text& self, Arguments& arguments) {
  const BoundArguments given(run, "splitlines()", arguments, {"keepends"});
  Values found;
  for (const std::string_view line : split_lines(self.bytes, given.boolean(0, false)))
    found.push_back(piece(run, self, line));
  return make_list(run, std::move(found));
}

template <bool at_end>
Value begins_or_ends(Run& run, const Text& self, Arguments& arguments) {
  const char* name = at_end ? "endswith()" : "startswith()";
  const BoundArguments given(run, name, arguments, {"text", "start", "end"}, 1);
  const Window within = window(self, given, 1);
  const auto matches = [&](const Value& value) {
    const std::string& part = text_argument(run, value, name);
    return within.inside && (at_end ? within.text.ends_with(part) : within.text.starts_with(part));
  };
  const Sequence* any = given[0].sequence();
  if (!any || !any->tuple) return Value(matches(given[0]));
  for (const Value& part : any->items)
    if (matches(part)) return Value(true);
  return Value(false);
}

template <bool from_right, bool must>
Value find(Run& run, const Text& self, Arguments& arguments) {
  const char* name = must ? "index()" : "find()";
  const BoundArguments given(run, name, arguments, {"text", "start", "end"}, 1);
  const std::string& part = text_argument(run, given[0], name);
  const Window within = window(self, given, 1);
  if (within.inside) {
    if (part.empty())
      return Value(static_cast<std::int64_t>(within.code_points_before +
                                             (from_right ? count_code_points(within.text) : 0)));
    const auto found = occurrences(run, within.text, part, 1, from_right);
    if (!found.empty())
      return Value(static_cast<std::int64_t>(within.code_points_before +
                                             count_code_points(within.text.substr(0, found[0]))));
  }
  if (must) run.fail("index() must be asked for a text that is there");
  return Value(std::int64_t{-1});
}

Value count(Run& run, const Text& self, Arguments& arguments) {
  const BoundArguments given(run, "count()", arguments, {"text", "start", "end"}, 1);
  const std::string& part = text_argument(run, given[0], "count()");
  const Window within = window(self, given, 1);
  if (!within.inside) return Value(std::int64_t{0});
  const std::size_t found = part.empty() ? count_code_points(within.text) + 1
                                         : occurrences(run, within.text, part, SIZE_MAX, false).size();
  return Value(static_cast<std::int64_t>(found));
}

Value replace(Run& run, const Text& self, Arguments& arguments) {
  const BoundArguments given(run, "replace()", arguments, {"old", "new", "count"}, 2);
  const std::string& old = text_argument(run, given[0], "replace()");
  std::string fresh = text_argument(run, given[1], "replace()");
  if (self.markup && !given[1].text()->markup) fresh = escaped(fresh);
  return make_text(run, replaced(run, self.bytes, old, fresh, max_count_of(given.integer(2, -1))),
                   self.markup);
}

Value join(Run& run, const Text& self, Arguments& arguments) {
  const BoundArguments given(run, "join()", arguments, {"iterable"}, 1);
  std::string out;
  bool first = true;
  Iteration iteration(run, given[0]);
  while (const auto item = iteration.next()) {
    const std::string& part = text_argument(run, *item, "join()");
    if (!first) out += self.bytes;
    out += self.markup && !item->text()->markup ? escaped(part) : part;
    run.check_text(out.size());
    charge(run, self.bytes.size());
    first = false;
  }
  return make_text(run, std::move(out), self.markup);
}

// Whether the text is not empty and all its characters satisfy the predicate.
template <bool (*is)(char32_t)>
Value all_are(Run& run, const Text& self, Arguments& arguments) {
  BoundArguments(run, "this method of a text", arguments, {});
  for (std::size_t at = 0; at < self.bytes.size();)
    if (!is(next_code_point(self.bytes, at))) return Value(false);
  return Value(!self.bytes.empty());
}

bool is_alphanumeric(char32_t code_point) { return is_alpha(code_point) || is_numeric(code_point); }

template <bool upper>
Value has_case(Run& run, const Text& self, Arguments& arguments) {
  BoundArguments(run, "this method of a text", arguments, {});
  return Value(upper ? all_upper(self.bytes) : all_lower(self.bytes));
}

template <bool left, bool right>
Value pad(Run& run, const Text& self, Arguments& arguments) {
  const BoundArguments given(run, "a method that pads text", arguments, {"width", "fillchar"}, 1);
  const std::string fill = given.has(1) ? text_argument(run, given[1], "a method that pads text") : " ";
  if (count_code_points(fill) != 1) run.fail("a text is padded with one character", fill);
  const std::int64_t width = given.integer(0, 0), length = static_cast<std::int64_t>(self.code_points);
  if (width <= length) return make_text(run, self.bytes, self.markup);
  run.check_text(static_cast<std::size_t>(width));
  const std::int64_t missing = width - length;
  // Python's center puts the odd character to the left where the width is odd.
  const std::int64_t before = left && right ? missing / 2 + (missing & width & 1) : left ? missing : 0;
  std::string out;
  for (std::int64_t i = 0; i < before; ++i) out += fill;
  out += self.bytes;
  for (std::int64_t i = before; i < missing; ++i) out += fill;
  return make_text(run, std::move(out), self.markup);
}

Value zero_fill(Run& run, const Text& self, Arguments& arguments) {
  const BoundArguments given(run, "zfill()", arguments, {"width"}, 1);
  const std::int64_t missing = given.integer(0, 0) - static_cast<std::int64_t>(self.code_points);
  if (missing <= 0) return make_text(run, self.bytes, self.markup);
  run.check_text(static_cast<std::size_t>(missing));
  const bool sign = self.bytes.starts_with('-') || self.bytes.starts_with('+');
  const std::string zeros(static_cast<std::size_t>(missing), '0');
  return make_text(run, self.bytes.substr(0, sign) + zeros + self.bytes.substr(sign), self.markup);
}

template <bool at_end>
Value remove(Run& run, const Text& self, Arguments& arguments) {
  const BoundArguments given(run, "removeprefix()", arguments, {"text"}, 1);
  const std::string& part = text_argument(run, given[0], "removeprefix()");
  std::string_view rest = self.bytes;
  if (at_end && rest.ends_with(part)) rest.remove_suffix(part.size());
  if (!at_end && rest.starts_with(part)) rest.remove_prefix(part.size());
  return piece(run, self, rest);
}

template <bool from_right>
Value partition(Run& run, const Text& self, Arguments& arguments) {
  const BoundArguments given(run, "partition()", arguments, {"sep"}, 1);
  const std::string& separator = text_argument(run, given[0], "partition()");
  if (separator.empty()) run.fail("partition() must not be given an empty separator");
  const auto found = occurrences(run, self.bytes, separator, 1, from_right);
  const std::string_view all = self.bytes;
  if (found.empty()) {
    const Value whole = piece(run, self, all), none = piece(run, self, "");
    return make_tuple(run, from_right ? Values{none, none, whole} : Values{whole, none, none});
  }
  return make_tuple(run, {piece(run, self, all.substr(0, found[0])), piece(run, self, separator),
                          piece(run, self, all.substr(found[0] + separator.size()))});
}

// Null: a method of Python that is not supported.
const std::map<std::string, TextMethod, std::less<>> kMethods{
    {"capitalize", changed<capitalize>},
    {"casefold", nullptr},
    {"center", pad<true, true>},
    {"count", count},
    {"encode", nullptr},
    {"endswith", begins_or_ends<true>},
    {"expandtabs", nullptr},
    {"find", find<false, false>},
    {"format", brace_format},
    {"format_map", nullptr},
    {"index", find<false, true>},
    {"isalnum", all_are<is_alphanumeric>},
    {"isalpha", all_are<is_alpha>},
    {"isascii", nullptr},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_digit>},
    {"isidentifier", nullptr},
    {"islower", has_case<false>},
    {"isnumeric", all_are<is_numeric>},
    {"isprintable", nullptr},
    {"isspace", all_are<is_space>},
    {"istitle", nullptr},
    {"isupper", has_case<true>},
    {"join", join},
    {"ljust", pad<false, true>},
    {"lower", changed<lower>},
    {"lstrip", strip_method<Side::left>},
    {"maketrans", nullptr},
    {"partition", partition<false>},
    {"removeprefix", remove<false>},
    {"removesuffix", remove<true>},
    {"replace", replace},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"rjust", pad<true, false>},
    {"rpartition", partition<true>},
    {"rsplit", split<true>},
    {"rstrip", strip_method<Side::right>},
    {"split", split<false>},
    {"splitlines", split_lines_method},
    {"startswith", begins_or_ends<false>},
    {"strip", strip_method<Side::both>},
    {"swapcase", changed<swap_case>},
    {"title", changed<title>},
    {"translate", nullptr},
    {"upper", changed<upper>},
    {"zfill", zero_fill},
};

}  // namespace

TextMethod text_method(const std::string& name, bool& known) {
  const auto found = kMethods.find(name);
  known = found != kMethods.end();
  return known ? found->second : nullptr;
}

std::string replaced(Run& run, std::string_view text, std::string_view old, std::string_view fresh,
                     std::size_t max_count) {
  std::string out;
  if (old.empty()) {
    // Before every character and at the end.
    const std::size_t times = std::min(count_code_points(text) + 1, max_count);
    if (!fresh.empty() && times > kMaxText / fresh.size()) run.check_text(kMaxText + 1);
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t start = at;
      if (done < times) out += fresh, ++done;
      next_code_point(text, at);
      out += text.substr(start, at - start);
    }
    if (done < times) out += fresh;
    return out;
  }
  const auto found = occurrences(run, text, old, max_count, false);
  if (fresh.size() > old.size() && found.size() > kMaxText / fresh.size()) run.check_text(kMaxText + 1);
  std::size_t start = 0;
  for (const std::size_t at : found) {
    out += text.substr(start, at - start);
    out += fresh;
    start = at + old.size();
  }
  return out += text.substr(start);
}

}  // namespace meshloom::trainer::jinja

// Filters of text and numbers.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "trainer/chat/jinja/builtins.h"
#include "trainer/chat/jinja/operators.h"
#include "trainer/chat/jinja/run.h"
#include "trainer/chat/jinja/text.h"

namespace meshloom::trainer::jinja {
namespace {

// The value as text, without a copy when it is one.
Value soft(Run& run, const Value& value) { return value.text() ? value : make_text(run, str(run, value)); }

Value with_method(Run& run, const char* method, const Value& input, Arguments& arguments) {
  const Value text = soft(run, input);
  bool known = false;
  return text_method(method, known)(run, *text.text(), arguments);
}

Value upper_filter(Run& run, const Value& input, Arguments& arguments) {
  return with_method(run, "upper", input, arguments);
}
Value lower_filter(Run& run, const Value& input, Arguments& arguments) {
  return with_method(run, "lower", input, arguments);
}
Value capitalize_filter(Run& run, const Value& input, Arguments& arguments) {
  return with_method(run, "capitalize", input, arguments);
}

Value title_filter(Run& run, const Value& input, Arguments& arguments) {
  BoundArguments(run, "title", arguments, {});
  const std::string text = str(run, input);
  const auto separates = [](char32_t code_point) {
    return is_space(code_point) || code_point == '-' || code_point == '(' || code_point == '{' ||
           code_point == '[' || code_point == '<';
  };
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t start = at;
    const bool separator = separates(next_code_point(text, at));
    const std::size_t second = at;
    for (std::size_t behind = at; at < text.size(); at = behind)
      if (separates(next_code_point(text, behind)) != separator) break;
    const std::string_view all = text;
    out += upper(all.substr(start, second - start)) + lower(all.substr(second, at - second));
  }
  return make_text(run, std::move(out));
}

Value trim(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "trim", arguments, {"chars"});
  const Value text = soft(run, input);
  const std::string_view all = text.text()->bytes;
  const std::string_view rest =
      given.given(0) ? strip(all, Side::both, given.text(0)) : strip(all, Side::both);
  return make_text(run, std::string(rest), text.text()->markup);
}

Value replace(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "replace", arguments, {"old", "new", "count"}, 2);
  const std::int64_t max_count = given.given(2) ? given.integer(2, -1) : -1;
  return make_text(run, replaced(run, str(run, input), str(run, given[0]), str(run, given[1]),
                                 max_count < 0 ? SIZE_MAX : static_cast<std::size_t>(max_count)));
}

Value string(Run& run, const Value& input, Arguments& arguments) {
  BoundArguments(run, "string", arguments, {});
  return soft(run, input);
}

Value escape(Run& run, const Value& input, Arguments& arguments) {
  BoundArguments(run, "escape", arguments, {});
  if (input.text() && input.text()->markup) return input;
  return make_text(run, escaped(str(run, input)), true);
}

Value force_escape(Run& run, const Value& input, Arguments& arguments) {
  BoundArguments(run, "forceescape", arguments, {});
  return make_text(run, escaped(str(run, input)), true);
}

Value safe(Run& run, const Value& input, Arguments& arguments) {
  BoundArguments(run, "safe", arguments, {});
  return make_text(run, str(run, input), true);
}

Value center(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "center", arguments, {"width"});
  Arguments width{{Value(given.integer(0, 80))}, {}};
  return with_method(run, "center", input, width);
}

const Text& must_be_text(Run& run, const Value& value, const char* filter) {
  if (value.is_undefined()) run.fail(value.why());
  if (!value.text()) run.fail(std::string(filter) + " takes text", value.type());
  return *value.text();
}

Value indent(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "indent", arguments, {"width", "first", "blank"});
  const Text& text = must_be_text(run, input, "indent");
  std::string before;
  if (given.has(0) && given[0].text()) {
    before = given[0].text()->bytes;
  } else {
    const std::int64_t width = given.integer(0, 4);
    run.check_text(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)));
    before.assign(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' ');
  }
  const bool blank = given.boolean(2, false);
  const std::string all = text.bytes + "\n";
  std::string out;
  bool first = true;
  for (const std::string_view line : split_lines(all, false)) {
    run.step();
    if (!first) out += '\n';
    if (first ? given.boolean(1, false) : blank || !line.empty()) out += before;
    out += line;
    first = false;
    run.check_text(out.size());
  }
  return make_text(run, std::move(out), text.markup);
}

Value truncate(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  const Text& text = must_be_text(run, input, "truncate");
  const std::int64_t length = given.integer(0, 255), leeway = given.given(3) ? given.integer(3, 5) : 5;
  const std::string end = given.has(2) ? given.text(2) : "...";
  const auto end_code_points = static_cast<std::int64_t>(count_code_points(end));
  if (length < end_code_points || leeway < 0 || length > INT64_MAX - leeway)
    run.fail("truncate takes a length that its end fits into, and a leeway that is not negative");
  if (static_cast<std::int64_t>(text.code_points) <= length + leeway) return input;
  std::string kept =
      text.bytes.substr(0, byte_of(text.bytes, static_cast<std::size_t>(length - end_code_points)));
  if (!given.boolean(1, false))
    if (const std::size_t space = kept.rfind(' '); space != std::string::npos) kept.resize(space);
  return make_text(run, kept + end, text.markup);
}

Value format(Run& run, const Value& input, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    run.fail("format takes arguments with names or without them, not both");
  const Value text = soft(run, input);
  if (arguments.named.empty())
    return percent_format(run, *text.text(), make_tuple(run, arguments.positional));
  std::vector<std::pair<Value, Value>> named;
  for (const auto& [name, value] : arguments.named) named.emplace_back(make_text(run, name), value);
  return percent_format(run, *text.text(), make_dict(run, named));
}

Value otherwise(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "default", arguments, {"default_value", "boolean"});
  if (!input.is_undefined() && !(given.boolean(1, false) && !input.truth(run))) return input;
  return given.has(0) ? given[0] : make_text(run, "");
}

// A Python number without the "_" between digits; empty when there is a "_" elsewhere.
std::string without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto part = [](char c) { return std::isalnum(static_cast<unsigned char>(c)); };
    if (i == 0 || i + 1 == text.size() || !part(text[i - 1]) || !part(text[i + 1])) return "";
  }
  return out;
}

void refuse_other_digits(Run& run, const std::string& text) {
  for (std::size_t at = 0; at < text.size();)
    if (const char32_t code_point = next_code_point(text, at); code_point >= 0x80 && is_numeric(code_point))
      run.fail("numbers in other digits than 0 to 9 are not supported", text);
}

std::optional<double> parse_real(Run& run, const std::string& text) {
  refuse_other_digits(run, text);
  const std::string all = without_underscores(strip(text, Side::both));
  std::string_view rest = all;
  const bool minus = rest.starts_with('-');
  if (minus || rest.starts_with('+')) rest.remove_prefix(1);
  const std::string word = lower(rest);
  double value = 0;
  if (word == "inf" || word == "infinity") {
    value = HUGE_VAL;
  } else if (word == "nan") {
    value = std::nan("");
  } else {
    if (rest.empty() || !(std::isdigit(static_cast<unsigned char>(rest[0])) || rest[0] == '.'))
      return std::nullopt;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error == std::errc::invalid_argument || end != rest.data() + rest.size()) return std::nullopt;
    if (error == std::errc::result_out_of_range) value = std::strtod(std::string(rest).c_str(), nullptr);
  }
  return minus ? -value : value;
}

std::optional<std::int64_t> parse_whole(Run& run, const std::string& text, std::int64_t base) {
  refuse_other_digits(run, text);
  const std::string all = without_underscores(strip(text, Side::both));
  std::string_view rest = all;
  const bool minus = rest.starts_with('-');
  if (minus || rest.starts_with('+')) rest.remove_prefix(1);
  const char mark = rest.size() > 2 && rest[0] == '0' ? static_cast<char>(rest[1] | 0x20) : '\0';
  const int named = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
  if (named != 0 && (base == named || base == 0)) {
    rest.remove_prefix(2);
    base = named;
  } else if (base == 0) {
    if (rest.size() > 1 && rest[0] == '0' && rest.find_first_not_of('0') != std::string_view::npos)
      return std::nullopt;
    base = 10;
  }
  if (base < 2 || base > 36) return std::nullopt;
  if (rest.empty() || rest[0] == '-') return std::nullopt;
  std::int64_t value = 0;
  const std::string signed_text = (minus ? "-" : "") + std::string(rest);
  const char* const stop = signed_text.data() + signed_text.size();
  const auto [end, error] = std::from_chars(signed_text.data(), stop, value, static_cast<int>(base));
  if (end != stop || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    run.fail("an integer of a chat template must fit into 64 bits", text);
  return value;
}

std::optional<Value> whole_part(Run& run, double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::abs(value) >= 9.2e18)
    run.fail("an integer of a chat template must fit into 64 bits", real_text(value));
  return Value(static_cast<std::int64_t>(value));
}

Value to_whole(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "int", arguments, {"default", "base"});
  if (input.is_undefined()) run.fail(input.why());
  std::optional<Value> value;
  if (const Text* text = input.text()) {
    if (const auto whole = parse_whole(run, text->bytes, given.integer(1, 10)))
      value = Value(*whole);
    else if (const auto real = parse_real(run, text->bytes))
      value = whole_part(run, *real);
  } else if (const auto whole = input.whole()) {
    value = Value(*whole);
  } else if (const double* real = input.real()) {
    if (std::isinf(*real)) run.fail("infinity is no integer");
    value = whole_part(run, *real);
  }
  if (value) return *value;
  return given.has(0) ? given[0] : Value(std::int64_t{0});
}

Value to_real(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "float", arguments, {"default"});
  if (input.is_undefined()) run.fail(input.why());
  const auto value = input.text() ? parse_real(run, input.text()->bytes) : input.number();
  if (value) return Value(*value);
  return given.has(0) ? given[0] : Value(0.0);
}

Value absolute(Run& run, const Value& input, Arguments& arguments) {
  BoundArguments(run, "abs", arguments, {});
  if (const auto whole = input.whole()) return *whole < 0 ? negative(run, Value(*whole)) : Value(*whole);
  if (const double* real = input.real()) return Value(std::abs(*real));
  run.fail("abs takes a number", input.type());
}

double rounded(Run& run, double value, std::int64_t digits) {
  if (digits < 0) run.fail("rounding before the point is not supported", std::to_string(digits));
  if (digits > 300 || !std::isfinite(value)) return value;
  char text[1024];
  std::snprintf(text, sizeof text, "%.*f", static_cast<int>(digits), value);
  return std::strtod(text, nullptr);
}

Value round_filter(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "round", arguments, {"precision", "method"});
  const std::string method = given.has(1) ? given.text(1) : "common";
  const std::int64_t digits = given.integer(0, 0);
  const auto number = input.number();
  if (!number) run.fail("round takes a number", input.type());
  if (method == "common") {
    if (const auto whole = input.whole(); whole && digits >= 0) return Value(*whole);
    return Value(rounded(run, *number, digits));
  }
  if (method != "ceil" && method != "floor")
    run.fail("the method of round must be common, ceil or floor", method);
  if (!std::isfinite(*number) || std::abs(digits) > 15)
    run.fail("round takes a finite number and few digits", real_text(*number));
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = *number * scale;
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value attribute_filter(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "attr", arguments, {"name"}, 1);
  if (input.is_undefined()) run.fail(input.why());
  if (auto found = attribute_of(run, input, given.text(0))) return *std::move(found);
  return Value::undefined("a value of the type " + input.type() + " has no attribute '" + given.text(0) +
                          "'");
}

}  // namespace

Filter text_filter(const std::string& name) {
  static const std::map<std::string, Filter, std::less<>> kFilters{
      {"abs", absolute},
      {"attr", attribute_filter},
      {"capitalize", capitalize_filter},
      {"center", center},
      {"d", otherwise},
      {"default", otherwise},
      {"e", escape},
      {"escape", escape},
      {"float", to_real},
      {"forceescape", force_escape},
      {"format", format},
      {"indent", indent},
      {"int", to_whole},
      {"lower", lower_filter},
      {"replace", replace},
      {"round", round_filter},
      {"safe", safe},
      {"string", string},
      {"title", title_filter},
      {"trim", trim},
      {"truncate", truncate},
      {"upper", upper_filter},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace meshloom::trainer::jinja

// Formatting with % and with str.format.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "trainer/chat/jinja/builtins.h"
#include "trainer/chat/jinja/operators.h"
#include "trainer/chat/jinja/run.h"
#include "trainer/chat/jinja/text.h"

namespace meshloom::trainer::jinja {
namespace {

constexpr int kMaxWidth = 10'000;

bool is_number(char c) { return c >= '0' && c <= '9'; }

std::int64_t read_number(Run& run, std::string_view text, std::size_t& at) {
  std::int64_t value = 0;
  for (; at < text.size() && is_number(text[at]); ++at) {
    value = value * 10 + (text[at] - '0');
    if (value > kMaxWidth) run.fail("a width of a format must be at most " + std::to_string(kMaxWidth));
  }
  return value;
}

// One conversion after a '%'.
struct Conversion {
  bool left = false, sign = false, space = false, zero = false, other = false;
  std::int64_t width = 0, precision = -1;
  char kind = 0;
};

std::string padded(const Conversion& conversion, std::string text) {
  const auto code_points = static_cast<std::int64_t>(count_code_points(text));
  if (code_points >= conversion.width) return text;
  const std::string fill(static_cast<std::size_t>(conversion.width - code_points), ' ');
  return conversion.left ? text + fill : fill + text;
}

std::string number_text(Run& run, const Conversion& conversion, const Value& value) {
  const bool whole = std::string_view("diuxXo").find(conversion.kind) != std::string_view::npos;
  std::string pattern = "%";
  if (conversion.left) pattern += '-';
  if (conversion.sign) pattern += '+';
  if (conversion.space) pattern += ' ';
  if (conversion.zero) pattern += '0';
  if (conversion.other) pattern += '#';
  pattern += std::to_string(conversion.width);
  if (conversion.precision >= 0) pattern += "." + std::to_string(conversion.precision);
  char small[512];
  std::string large(2 * kMaxWidth + 512, 0);
  const bool fits = conversion.width < 100 && conversion.precision < 100;
  char* const buffer = fits ? small : large.data();
  const std::size_t room = fits ? sizeof small : large.size();
  int size = 0;
  if (whole) {
    const bool base = conversion.kind == 'x' || conversion.kind == 'X' || conversion.kind == 'o';
    std::int64_t number = 0;
    if (const auto exact = value.whole()) {
      number = *exact;
    } else if (const double* real = value.real(); real && !base && std::abs(*real) < 9e18) {
      number = static_cast<std::int64_t>(*real);
    } else {
      run.fail(std::string("%") + conversion.kind + " writes an integer", value.type());
    }
    if (base && number < 0) run.fail("%x and %o of a negative number are not supported");
    if (conversion.precision >= 0 || conversion.other) run.fail("this form of %d is not supported", pattern);
    pattern += base ? std::string("ll") + conversion.kind : "lld";
    size = std::snprintf(buffer, room, pattern.c_str(), static_cast<long long>(number));
  } else {
    const auto number = value.number();
    if (!number) run.fail(std::string("%") + conversion.kind + " writes a number", value.type());
    pattern += conversion.kind;
    size = std::snprintf(buffer, room, pattern.c_str(), *number);
  }
  if (size < 0 || static_cast<std::size_t>(size) >= room) run.fail("a formatted number is too long", pattern);
  return std::string(buffer, static_cast<std::size_t>(size));
}

// A field of str.format: its value and its format specification.
class Fields {
 public:
  Fields(Run& run, Arguments& arguments) : run_(run), arguments_(arguments) {}

  std::string text(std::string_view field) {
    char conversion = 0;
    if (field.find(':') != std::string_view::npos)
      run_.fail("a format specification of str.format is not supported", std::string(field));
    if (const std::size_t mark = field.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != field.size() || (field[mark + 1] != 's' && field[mark + 1] != 'r'))
        run_.fail("this conversion of str.format is not supported", std::string(field));
      conversion = field[mark + 1];
      field = field.substr(0, mark);
    }
    const std::size_t end = std::min(field.find_first_of(".["), field.size());
    Value value = first(field.substr(0, end));
    for (field.remove_prefix(end); !field.empty();) value = step(value, field);
    if (conversion == 'r') return repr(run_, value);
    return str(run_, value);
  }

 private:
  Value first(std::string_view name) {
    if (name.empty() || std::all_of(name.begin(), name.end(), is_number)) {
      (name.empty() ? counted_ : numbered_) = true;
      if (counted_ && numbered_) run_.fail("str.format numbers all of its fields or none of them");
      std::size_t at = 0;
      const auto place = name.empty() ? next_++ : static_cast<std::size_t>(read_number(run_, name, at));
      if (place >= arguments_.positional.size()) run_.fail("str.format has fewer arguments than fields");
      return arguments_.positional[place];
    }
    for (const auto& [known, value] : arguments_.named)
      if (known == name) return value;
    run_.fail("str.format has no argument of this name", std::string(name));
  }

  // One .attribute or [item].
  Value step(const Value& value, std::string_view& rest) {
    run_.step();
    if (rest[0] == '.') {
      const std::size_t end = std::min(rest.find_first_of(".[", 1), rest.size());
      const std::string name(rest.substr(1, end - 1));
      rest.remove_prefix(end);
      return attribute(run_, value, name);
    }
    const std::size_t end = rest.find(']');
    if (rest[0] != '[' || end == std::string_view::npos) run_.fail("a field of str.format is malformed");
    const std::string name(rest.substr(1, end - 1));
    rest.remove_prefix(end + 1);
    if (name.empty()) run_.fail("a field of str.format is malformed");
    if (!std::all_of(name.begin(), name.end(), is_number)) return item(run_, value, make_text(run_, name));
    std::size_t at = 0;
    return item(run_, value, Value(read_number(run_, name, at)));
  }

  Run& run_;
  Arguments& arguments_;
  std::size_t next_ = 0;
  bool counted_ = false, numbered_ = false;
};

// Formats a text with `%`, as Python does.
class PercentFormat {
 public:
  PercentFormat(Run& run, std::string_view text, const Value& arguments)
      : run_(run), text_(text), arguments_(arguments), tuple_(arguments.sequence()) {
    if (tuple_ && !tuple_->tuple) tuple_ = nullptr;
  }

  std::string formatted() {
    std::string out;
    while (at_ < text_.size()) {
      run_.step();
      if (text_[at_] != '%') {
        const std::size_t end = std::min(text_.find('%', at_), text_.size());
        out += text_.substr(at_, end - at_);
        at_ = end;
        continue;
      }
      ++at_;
      const std::optional<Value> named = named_argument();
      const Conversion conversion = read_conversion();
      if (conversion.kind == '%')
        out += '%';
      else
        out += converted(conversion, named ? *named : next());
      run_.check_text(out.size());
    }
    // Python allows dicts and lists to be unused.
    const bool all = tuple_ ? used_ == tuple_->items.size()
                            : used_ > 0 || arguments_.dict() || arguments_.sequence() || arguments_.range();
    if (!all) run_.fail("a format has more arguments than conversions");
    return out;
  }

 private:
  Value next() {
    if (by_name_) run_.fail("a format names all of its arguments or none of them");
    if (tuple_ ? used_ >= tuple_->items.size() : used_ > 0)
      run_.fail("a format has fewer arguments than conversions");
    return tuple_ ? tuple_->items[used_++] : (++used_, arguments_);
  }

  // The argument of "(NAME)" at this place, if it stands here.
  std::optional<Value> named_argument() {
    if (at_ >= text_.size() || text_[at_] != '(') return std::nullopt;
    const std::size_t end = text_.find(')', at_);
    if (end == std::string_view::npos) run_.fail("a conversion of a format is cut off");
    const std::string name(text_.substr(at_ + 1, end - at_ - 1));
    const Dict* dict = arguments_.dict();
    const Value* found = dict ? dict->find(run_, make_text(run_, name)) : nullptr;
    if (!found)
      run_.fail(dict ? "a format has no argument of this name" : "a format with names takes a dict", name);
    by_name_ = true;
    at_ = end + 1;
    return *found;
  }

  // A width or precision: a number, or '*' for the next argument.
  std::int64_t read_size() {
    if (at_ >= text_.size() || text_[at_] != '*') return read_number(run_, text_, at_);
    ++at_;
    const auto value = next().whole();
    if (!value || std::abs(*value) > kMaxWidth) run_.fail("a width of a format must be a small integer");
    return *value;
  }

  bool read_flag(Conversion& conversion) const {
    switch (text_[at_]) {
      case '-':
        return conversion.left = true;
      case '+':
        return conversion.sign = true;
      case ' ':
        return conversion.space = true;
      case '0':
        return conversion.zero = true;
      case '#':
        return conversion.other = true;
      default:
        return false;
    }
  }

  Conversion read_conversion() {
    Conversion conversion;
    while (at_ < text_.size() && read_flag(conversion)) ++at_;
    conversion.width = read_size();
    if (conversion.width < 0) {
      conversion.left = true;
      conversion.width = -conversion.width;
    }
    if (at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      conversion.precision = std::max<std::int64_t>(read_size(), 0);
    }
    while (at_ < text_.size() && (text_[at_] == 'l' || text_[at_] == 'h' || text_[at_] == 'L')) ++at_;
    if (at_ >= text_.size()) run_.fail("a conversion of a format is cut off");
    conversion.kind = text_[at_++];
    if (std::string_view("%srdiuxXoeEfFgG").find(conversion.kind) == std::string_view::npos)
      run_.fail("this conversion of a format is not supported", std::string("%") + conversion.kind);
    return conversion;
  }

  std::string converted(const Conversion& conversion, const Value& value) {
    if (conversion.kind != 's' && conversion.kind != 'r') {
      std::string number = number_text(run_, conversion, value);
      run_.step(8);
      return number;
    }
    if (value.text() && value.text()->markup)
      run_.fail("formatting text that is marked safe is not supported", "%s");
    std::string part = conversion.kind == 's' ? str(run_, value) : repr(run_, value);
    charge(run_, part.size());
    if (conversion.precision >= 0) part.resize(byte_of(part, static_cast<std::size_t>(conversion.precision)));
    return padded(conversion, std::move(part));
  }

  Run& run_;
  std::string_view text_;
  const Value& arguments_;
  const Sequence* tuple_;
  std::size_t at_ = 0, used_ = 0;
  bool by_name_ = false;
};

}  // namespace

Value percent_format(Run& run, const Text& pattern, const Value& arguments) {
  if (pattern.markup) run.fail("formatting text that is marked safe is not supported", "%");
  charge(run, pattern.bytes.size());
  return make_text(run, PercentFormat(run, pattern.bytes, arguments).formatted());
}

Value brace_format(Run& run, const Text& self, Arguments& arguments) {
  if (self.markup) run.fail("formatting text that is marked safe is not supported", "format");
  Fields fields(run, arguments);
  const std::string_view text = self.bytes;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    run.step();
    const std::size_t brace = std::min(text.find_first_of("{}", at), text.size());
    out += text.substr(at, brace - at);
    if (brace >= text.size()) break;
    if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
      out += text[brace];
      at = brace + 2;
      continue;
    }
    const std::size_t end = text.find('}', brace);
    if (text[brace] == '}' || end == std::string_view::npos) run.fail("a brace of str.format stands alone");
    const std::string_view field = text.substr(brace + 1, end - brace - 1);
    if (field.find('{') != std::string_view::npos)
      run.fail("fields within fields of str.format are not supported");
    out += fields.text(field);
    run.check_text(out.size());
    at = end + 1;
  }
  return make_text(run, std::move(out));
}

}  // namespace meshloom::trainer::jinja

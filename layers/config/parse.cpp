#include <charconv>

#include "layers/config/parser.h"
#include "layers/config/tree.h"

namespace meshloom::layers {
namespace {

constexpr int kMaxNesting = 100;

bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '-' || c == '+' || c == '/' || c == ':';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

template <typename... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overload(Fs...) -> Overload<Fs...>;

std::string quote(std::string_view text) {
  std::string quoted = "'";
  quoted += text;
  return quoted += '\'';
}

}  // namespace

struct Parser::Nested {
  explicit Nested(Parser& p) : parser(p) {
    if (++parser.depth_ > kMaxNesting)
      parser.fail("configs must nest at most " + std::to_string(kMaxNesting) + " deep");
  }
  ~Nested() { --parser.depth_; }
  Parser& parser;
};

class Parser::Below {
 public:
  Below(Parser& p, std::string_view name) : parser_(p), length_(p.path_.size()) {
    if (!p.noted_) return;
    if (!p.path_.empty() && !name.starts_with('[')) p.path_ += '.';
    p.path_ += name;
    (*p.noted_)[p.path_] = p.line_;
  }
  ~Below() { parser_.path_.resize(length_); }

 private:
  Parser& parser_;
  std::size_t length_;
};

void Parser::fail(const std::string& rule, const std::string& found) const {
  throw Error(lines_ ? where_ + ":" + std::to_string(line_) : where_, rule, found);
}

void Parser::skip_space() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    if (c == '#') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      line_ += c == '\n';
      ++at_;
    } else {
      return;
    }
  }
}

char Parser::peek() {
  skip_space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool Parser::take(char c) {
  if (at_ >= text_.size() && c != '\0') skip_space();
  if (peek() != c || at_ >= text_.size()) return false;
  ++at_;
  return true;
}

void Parser::expect(char c, const std::string& why) {
  if (!take(c)) fail("expected '" + std::string(1, c) + "' " + why, next_as_found());
}

std::string Parser::next_as_found() {
  if (peek() == '\0' && at_ >= text_.size()) return "the end of the text";
  std::size_t end = at_;
  while (end < text_.size() && in_word(text_[end])) ++end;
  return quote(text_.substr(at_, std::max<std::size_t>(1, std::min<std::size_t>(end - at_, 60))));
}

std::string_view Parser::word(const std::string& what) {
  skip_space();
  const std::size_t begin = at_;
  while (at_ < text_.size() && in_word(text_[at_])) ++at_;
  if (at_ == begin) fail("expected " + what, next_as_found());
  return text_.substr(begin, at_ - begin);
}

std::string Parser::string() {
  expect('"', "before a string");
  std::string value;
  while (at_ < text_.size() && text_[at_] != '"') {
    char c = text_[at_++];
    if (c == '\n') fail("a string must end on the line where it starts");
    if (c != '\\') {
      value += c;
      continue;
    }
    c = at_ < text_.size() ? text_[at_++] : '\0';
    if (c == 'n') {
      value += '\n';
    } else if (c == 't') {
      value += '\t';
    } else if (c == '"' || c == '\\') {
      value += c;
    } else if (c == 'x' && at_ + 1 < text_.size() && hex_digit(text_[at_]) >= 0 &&
               hex_digit(text_[at_ + 1]) >= 0) {
      value += static_cast<char>(hex_digit(text_[at_]) * 16 + hex_digit(text_[at_ + 1]));
      at_ += 2;
    } else {
      fail("the escapes of a string are \\n, \\t, \\\", \\\\ and \\xNN", std::string{'\\', c});
    }
  }
  if (at_ >= text_.size()) fail("a string must end with '\"'", "the end of the text");
  ++at_;
  return value;
}

std::int64_t Parser::integer() {
  if (peek() == '"') fail("expected an integer", "a string");
  const std::string_view text = word("an integer");
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) fail("an integer must fit 64 bits", quote(text));
  if (error != std::errc() || end != text.data() + text.size()) fail("expected an integer", quote(text));
  return value;
}

double Parser::number() {
  if (peek() == '"') fail("expected a number", "a string");
  const std::string_view text = word("a number");
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range) fail("a number must fit a double", quote(text));
  if (error != std::errc() || end != text.data() + text.size()) fail("expected a number", quote(text));
  return value;
}

bool Parser::boolean() {
  if (peek() == '"') fail("expected true or false", "a string");
  const std::string_view text = word("true or false");
  if (text != "true" && text != "false") fail("expected true or false", quote(text));
  return text == "true";
}

std::string Parser::quoted_or_word() { return peek() == '"' ? string() : std::string(word("a string")); }

template <typename T, typename Read>
std::vector<T> Parser::list(Read read) {
  expect('[', "before a list");
  std::vector<T> values;
  while (!take(']')) {
    values.push_back(read());
    if (!take(',') && peek() != ']') fail("expected ',' or ']' in a list", next_as_found());
  }
  return values;
}

template <typename T, typename Read>
void Parser::optional(const OptionalField<T>& field, Read read) {
  const std::string_view unset = field.required ? "required" : "none";
  skip_space();
  const std::size_t at = at_;
  if (in_word(peek()) && word("a value") == unset) {
    field.value->reset();
    return;
  }
  at_ = at;
  *field.value = read();
}

void Parser::child(ChildSlot& slot, std::string_view former_name) {
  skip_space();
  const std::size_t at = at_;
  const bool quoted = peek() == '"' && !former_name.empty();
  const std::string_view first = quoted ? std::string_view() : word("a class, or none");
  if (first == "none") {
    slot.reset(nullptr);
    return;
  }
  at_ = at;
  // What was a value under a former name is one of the child's now.
  if (!former_name.empty() && slot.get() && !classes_.has(first)) {
    bool found = false;
    for_each_field(*slot.get(), [&](const Field& field) {
      if (found || field.name != former_name) return;
      found = true;
      value(field, slot.get()->class_name());
    });
    if (found) return;
  }
  std::unique_ptr<Config> node = config();
  const std::string name(node->class_name());
  if (!slot.reset(std::move(node))) fail("expected a " + std::string(slot.base_name()), quote(name));
}

void Parser::children(const ChildList& list_of) {
  std::vector<std::unique_ptr<Config>> items = list<std::unique_ptr<Config>>([&, i = 0]() mutable {
    skip_space();
    const Below item(*this, "[" + std::to_string(i++) + "]");
    return config();
  });
  std::vector<std::unique_ptr<Config>> old;
  for (const auto& slot : *list_of.slots) old.push_back(slot->get() ? slot->get()->clone() : nullptr);
  (*list_of.clear)();
  for (auto& item : items) {
    const std::string item_class(item->class_name());
    ChildSlot& slot = (*list_of.append)();
    if (slot.reset(std::move(item))) continue;
    const std::string base(slot.base_name());
    (*list_of.clear)();
    for (auto& kept : old) (*list_of.append)().reset(std::move(kept));
    fail("expected a " + base, quote(item_class));
  }
}

template <typename T>
T Parser::in_range(T value, const Field& field, std::string_view owner) const {
  constexpr bool is_text = std::is_same_v<T, std::string>;
  const auto known = [&] {
    if constexpr (is_text)
      return field.about.range().has(std::string_view(value));
    else
      return field.about.range().has(static_cast<double>(value));
  };
  if (known()) return value;
  std::string found;
  if constexpr (is_text)
    found = quote(value);
  else
    found = leaf_text(FieldValue(&value));
  fail(std::string(owner) + "." + std::string(field.name) + " must be " + field.about.range().to_string(),
       found);
}

void Parser::value(const Field& field, std::string_view owner) {
  const auto read_integer = [&] { return in_range(integer(), field, owner); };
  const auto read_number = [&] { return in_range(number(), field, owner); };
  const auto read_string = [&] {
    return in_range(std::string(field.about.current_value(quoted_or_word())), field, owner);
  };
  try {
    std::visit(
        Overload{[&](std::int64_t* value) { *value = read_integer(); },
                 [&](double* value) { *value = read_number(); }, [&](bool* value) { *value = boolean(); },
                 [&](std::string* value) { *value = read_string(); },
                 [&](std::vector<std::int64_t>* value) { *value = list<std::int64_t>(read_integer); },
                 [&](std::vector<std::string>* value) { *value = list<std::string>(read_string); },
                 [&](const OptionalField<std::int64_t>& value) { optional(value, read_integer); },
                 [&](const OptionalField<double>& value) { optional(value, read_number); },
                 [&](const OptionalField<std::string>& value) { optional(value, read_string); },
                 [&](ChildSlot* slot) { child(*slot, field.about.former_name()); },
                 [&](const ChildList& list) { children(list); }},
        field.value);
  } catch (const Error& error) {
    // An error from a field further down already names that field.
    if (error.rule().rfind("expected ", 0) != 0 || error.rule().find(" for ") != std::string::npos) throw;
    throw Error(error.where(), error.rule() + " for " + std::string(owner) + "." + std::string(field.name),
                error.found());
  }
}

std::unique_ptr<Config> Parser::config(std::set<std::string>* named) {
  const Nested nested(*this);
  if (peek() == '"') fail("expected a class", "a string");
  const std::string_view given = word("a class");
  if (!classes_.has(given)) fail("there is no class " + quote(given) + suggestion(given, classes_.names()));
  std::unique_ptr<Config> node = classes_.make(given);
  const std::string_view name = node->class_name();
  if (!take('{')) return node;
  std::set<std::string> seen;
  while (!take('}')) {
    const std::string field_name(word("a field of " + std::string(name) + ", or '}'"));
    const bool known = with_field(*node, field_name, [&](const Field& field) {
      if (!seen.emplace(field.name).second)
        fail("a field must be given only once", quote(field_name) + " again");
      const Below below(*this, field.name);
      expect('=', "after " + quote(field_name));
      value(field, name);
    });
    if (!known) fail(no_such_field(*node, field_name));
    take(',');
  }
  if (named) *named = std::move(seen);
  return node;
}

void Parser::end() {
  if (peek() != '\0' || at_ < text_.size()) fail("expected nothing more", next_as_found());
}

std::map<std::string, int> lines_of(std::string_view text, const ClassTable& classes) {
  std::map<std::string, int> lines;
  Parser parser(text, classes, "text", true);
  parser.note_lines(lines);
  parser.config();
  return lines;
}

std::unique_ptr<Config> parse(std::string_view text, const ClassTable& classes, const std::string& name) {
  Parser parser(text, classes, name, true);
  std::unique_ptr<Config> config = parser.config();
  parser.end();
  return config;
}

}  // namespace meshloom::layers

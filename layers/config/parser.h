// Reads the text form of configs. Internal to layers/config.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "layers/config/field.h"

namespace meshloom::layers {

class Parser {
 public:
  // Errors name the place `where`, followed by ":LINE" if `lines` is set. `text` and `classes` must outlive the parser.
  Parser(std::string_view text, const ClassTable& classes, std::string where, bool lines)
      : text_(text), classes_(classes), where_(std::move(where)), lines_(lines) {}

  // Reads "Class" or "Class{field = value ...}"; commas between fields are optional. `named` receives the names of the
  // fields that the text sets.
  std::unique_ptr<Config> config(std::set<std::string>* named = nullptr);
  // Reads a value into `field` of the class `owner`. If it throws Error, for example because the value is out of range,
  // the field keeps its value.
  void value(const Field& field, std::string_view owner);
  // Throws Error unless only white space and comments are left.
  void end();
  // Also notes where fields and items of lists stand: the line by the path.
  void note_lines(std::map<std::string, int>& into) { noted_ = &into; }

 private:
  struct Nested;
  class Below;  // goes down to a field or an item of a list

  [[noreturn]] void fail(const std::string& rule, const std::string& found = {}) const;
  void skip_space();
  char peek();        // the next character after white space; '\0' at the end
  bool take(char c);  // skips c if it is next, else returns false
  void expect(char c, const std::string& why);
  std::string next_as_found();  // for messages
  std::string_view word(const std::string& what);
  std::string string();

  std::int64_t integer();
  double number();
  bool boolean();
  std::string quoted_or_word();
  template <typename T, typename Read>
  std::vector<T> list(Read read);
  template <typename T, typename Read>
  void optional(const OptionalField<T>& field, Read read);
  template <typename T>
  T in_range(T value, const Field& field, std::string_view owner) const;  // `value`, or fails
  void child(ChildSlot& slot, std::string_view former_name);
  void children(const ChildList& list);

  std::string_view text_;
  const ClassTable& classes_;
  std::string where_;
  bool lines_;
  std::size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;
  std::map<std::string, int>* noted_ = nullptr;
  std::string path_;  // of what is read, kept when lines are noted
};

}  // namespace meshloom::layers

// Reads the text form of configs. Internal to layers/config.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "layers/config/field.h"

namespace meshloom::layers {

class Parser {
 public:
  // Errors are said to be at `where`, followed by ":LINE" when `lines` is set. `text` must outlive the
  // parser.
  Parser(std::string_view text, const ClassTable& classes, std::string where, bool lines)
      : text_(text), classes_(classes), where_(std::move(where)), lines_(lines) {}

  // "Class", or "Class{field = value ...}"; fields may be separated by commas. `named` receives the names of
  // the fields that the text gives.
  std::unique_ptr<Config> config(std::set<std::string>* named = nullptr);
  // A value for `field` of the class `owner`. On an error, such as one out of its range, the field keeps its value.
  void value(const Field& field, std::string_view owner);
  // Nothing but space and comments may follow.
  void end();

 private:
  struct Nested;

  [[noreturn]] void fail(const std::string& rule, const std::string& found = {}) const;
  void skip_space();
  char peek();        // '\0' at the end
  bool take(char c);  // when it is next
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
  void child(ChildSlot& slot);
  void children(const ChildList& list);

  std::string_view text_;
  const ClassTable& classes_;
  std::string where_;
  bool lines_;
  std::size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;
};

}  // namespace meshloom::layers

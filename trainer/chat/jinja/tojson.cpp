#include <algorithm>
#include <cmath>

#include "trainer/chat/jinja/builtins.h"
#include "trainer/chat/jinja/run.h"
#include "trainer/chat/jinja/text.h"

namespace meshloom::trainer::jinja {
namespace {

class Writer {
 public:
  Writer(Run& run, const BoundArguments& given)
      : run_(run), ascii_(given.boolean(0, false)), sorts_(given.boolean(3, false)) {
    if (given.given(1)) {
      if (given[1].text())
        indent_ = given[1].text()->bytes;
      else
        indent_ = std::string(
            static_cast<std::size_t>(std::clamp<std::int64_t>(given.integer(1, 0), 0, 1000)), ' ');
      between_ = ",";
    }
    if (!given.given(2)) return;
    const Values both = all_of(run, given[2]);
    if (both.size() != 2 || !both[0].text() || !both[1].text())
      run.fail("the separators of tojson are two texts");
    between_ = both[0].text()->bytes;
    behind_name_ = both[1].text()->bytes;
  }

  void write(const Value& value) {
    run_.step();
    const Run::Nested nested(run_);
    run_.check_text(out_.size());
    if (value.is_none())
      out_ += "null";
    else if (const bool* flag = value.boolean())
      out_ += *flag ? "true" : "false";
    else if (const auto whole = value.whole())
      out_ += std::to_string(*whole);
    else if (const double* real = value.real())
      out_ += number(*real);
    else if (const Text* text = value.text())
      quote(text->bytes);
    else if (const Sequence* sequence = value.sequence())
      array(*sequence);
    else if (const Dict* dict = value.dict())
      object(*dict);
    else
      run_.fail("tojson writes dicts, lists, texts, numbers, booleans and none", value.type());
  }

  std::string& text() { return out_; }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return real_text(value);
  }

  void line() {
    if (!indent_) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += *indent_;
    run_.check_text(out_.size());
    charge(run_, static_cast<std::size_t>(level_) * indent_->size());
  }

  void quote(const std::string& text) {
    charge(run_, text.size());
    constexpr char kHex[] = "0123456789abcdef";
    const auto coded = [&](char32_t unit) {
      out_ += "\\u";
      for (int shift = 12; shift >= 0; shift -= 4) out_ += kHex[unit >> shift & 15];
    };
    out_ += '"';
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t start = at;
      const char32_t code_point = next_code_point(text, at);
      switch (code_point) {
        case '"':
          out_ += "\\\"";
          continue;
        case '\\':
          out_ += "\\\\";
          continue;
        case '\n':
          out_ += "\\n";
          continue;
        case '\r':
          out_ += "\\r";
          continue;
        case '\t':
          out_ += "\\t";
          continue;
        case '\f':
          out_ += "\\f";
          continue;
        case '\b':
          out_ += "\\b";
          continue;
        default:
          break;
      }
      if (code_point >= 0x10000 && ascii_) {
        coded(0xd800 + ((code_point - 0x10000) >> 10));
        coded(0xdc00 + ((code_point - 0x10000) & 0x3ff));
      } else if (code_point < 0x20 || (ascii_ && code_point > 0x7e)) {
        coded(code_point);
      } else {
        out_.append(text, start, at - start);
      }
    }
    out_ += '"';
    run_.check_text(out_.size());
  }

  void array(const Sequence& sequence) {
    out_ += '[';
    ++level_;
    for (std::size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) out_ += between_;
      line();
      write(sequence.items[i]);
    }
    --level_;
    if (!sequence.items.empty()) line();
    out_ += ']';
  }

  std::string name_of(const Value& key) {
    if (key.text()) return key.text()->bytes;
    if (key.is_none()) return "null";
    if (const bool* flag = key.boolean()) return *flag ? "true" : "false";
    if (key.whole()) return std::to_string(*key.whole());
    if (key.real()) return number(*key.real());
    run_.fail("a name in JSON must be a text, a number, a boolean or none", key.type());
  }

  void object(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (sorts_)
      std::stable_sort(items.begin(), items.end(), [&](const auto* a, const auto* b) {
        if (!a->first.text() || !b->first.text())
          run_.fail("sort_keys of tojson sorts names that are text", a->first.type());
        charge(run_, a->first);
        return a->first.text()->bytes < b->first.text()->bytes;
      });
    out_ += '{';
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += between_;
      line();
      quote(name_of(items[i]->first));
      out_ += behind_name_;
      write(items[i]->second);
    }
    --level_;
    if (!items.empty()) line();
    out_ += '}';
  }

  Run& run_;
  bool ascii_, sorts_;
  std::optional<std::string> indent_;
  std::string between_ = ", ", behind_name_ = ": ", out_;
  int level_ = 0;
};

}  // namespace

Value tojson(Run& run, const Value& input, Arguments& arguments) {
  const BoundArguments given(run, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  Writer writer(run, given);
  writer.write(input);
  return make_text(run, std::move(writer.text()));
}

}  // namespace meshloom::trainer::jinja

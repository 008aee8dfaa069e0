#include "trainer/data/tokenizer/pre_tokenizer.h"

#include <optional>
#include <utility>

#include "hal/error.h"
#include "trainer/data/tokenizer/unicode.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

std::string quoted(const std::string& literal) {
  std::string pattern;
  for (char c : literal) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && !std::isalnum(byte)) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

enum class Keep { isolated, removed, with_previous, with_next, contiguous };

struct Part {
  std::size_t begin, end;
  bool match;
};

// Emits the matches in a text and the parts between them, joined as `keep` says. An empty match is a border.
template <typename Emit>
void cut(std::string_view text, const UnicodeRegex& pattern, Keep keep, bool invert, const Emit& emit) {
  std::optional<Part> held;  // the next part may still be joined to it
  const auto give = [&] {
    if (held && held->end > held->begin) emit(*held);
    held.reset();
  };
  const auto add = [&](Part part) {
    if (keep == Keep::with_next) {
      if (!part.match && held)
        part.begin = held->begin;
      else
        give();
      held = part;
      if (!part.match) give();
      return;
    }
    const bool join =
        held && (keep == Keep::with_previous ? part.match && !held->match
                                             : keep == Keep::contiguous && part.match == held->match);
    if (join) {
      held->end = part.end;
      held->match = part.match;
    } else {
      give();
      if (keep != Keep::removed || !part.match) held = part;
    }
  };
  std::size_t at = 0;
  pattern.for_each_match(text, [&](std::size_t begin, std::size_t end) {
    if (begin > at) add({at, begin, invert});
    add({begin, end, !invert});
    at = end;
  });
  if (at < text.size()) add({at, text.size(), invert});
  give();
}

PreTokenizer::Step splitter(const std::string& pattern, Keep keep, bool invert, const std::string& where) {
  return [regex = UnicodeRegex(pattern, where), keep, invert](PreToken word, GrowthLimit&,
                                                              const PreTokenizer::Emit& emit) {
    cut(word.text, regex, keep, invert, [&](const Part& part) {
      emit({word.text.substr(part.begin, part.end - part.begin), word.first && part.begin == 0});
    });
  };
}

Keep behavior(const std::string& name, const std::string& where) {
  if (name == "Isolated") return Keep::isolated;
  if (name == "Removed") return Keep::removed;
  if (name == "MergedWithPrevious") return Keep::with_previous;
  if (name == "MergedWithNext") return Keep::with_next;
  if (name == "Contiguous") return Keep::contiguous;
  throw Error(where + ".behavior",
              "must be Isolated, Removed, MergedWithPrevious, MergedWithNext or Contiguous", shown(name));
}

const Json& list_field(const Json& json, const char* name, const std::string& where) {
  const auto it = json.find(name);
  if (it == json.end() || !it->is_array())
    throw Error(where + "." + name, "must be a list", it == json.end() ? "none" : shown_json(*it));
  return *it;
}

void add_metaspace(PreTokenizer& into, const Json& json, const std::string& where) {
  const std::string mark = text_field(json, "replacement", where);
  std::string scheme = flag_field(json, "add_prefix_space", true, where) ? "always" : "never";
  if (json.contains("prepend_scheme")) scheme = text_field(json, "prepend_scheme", where);
  if (scheme != "always" && scheme != "never" && scheme != "first")
    throw Error(where + ".prepend_scheme", "must be always, never or first", shown(scheme));
  into.steps.push_back([mark, scheme](PreToken word, GrowthLimit& growth, const PreTokenizer::Emit& emit) {
    word.text = replaced(std::move(word.text), " ", mark, growth);
    const bool wanted = scheme == "always" || (scheme == "first" && word.first);
    if (wanted && !word.text.starts_with(mark)) {
      growth.add(mark.size());
      word.text = mark + word.text;
    }
    emit(std::move(word));
  });
  if (flag_field(json, "split", true, where))
    into.steps.push_back(splitter(quoted(mark), Keep::with_next, false, where));
}

void add_step(PreTokenizer& into, const Json& json, const std::string& where) {
  const std::string type = type_of(json, where);
  if (into.byte_level) throw Error(where, "nothing may follow ByteLevel", shown(type));
  if (type == "Sequence") {
    for (const Json& each : list_field(json, "pretokenizers", where)) add_step(into, each, where);
  } else if (type == "Split") {
    into.steps.push_back(splitter(pattern_field(json, where),
                                  behavior(text_field(json, "behavior", where), where),
                                  flag_field(json, "invert", false, where), where + ".pattern"));
  } else if (type == "Digits") {
    const bool each = flag_field(json, "individual_digits", false, where);
    into.steps.push_back(splitter(each ? "\\p{N}" : "\\p{N}+", Keep::isolated, false, where));
  } else if (type == "Metaspace") {
    add_metaspace(into, json, where);
  } else if (type == "ByteLevel") {
    if (flag_field(json, "add_prefix_space", true, where))
      into.steps.push_back([](PreToken word, GrowthLimit& growth, const PreTokenizer::Emit& emit) {
        if (!word.text.starts_with(' ')) {
          growth.add(1);
          word.text = " " + word.text;
        }
        emit(std::move(word));
      });
    if (flag_field(json, "use_regex", true, where))
      into.steps.push_back(splitter(kGpt2Pattern, Keep::isolated, false, where));
    into.byte_level = true;
  } else {
    throw Error(where + ".type",
                "must be Sequence, Split, Digits, Metaspace or ByteLevel; others are not supported",
                shown(type));
  }
}

}  // namespace

std::string text_field(const Json& json, const char* name, const std::string& where) {
  const auto it = json.find(name);
  if (it == json.end() || !it->is_string())
    throw Error(where + "." + name, "must be text", it == json.end() ? "none" : shown_json(*it));
  return it->get<std::string>();
}

bool flag_field(const Json& json, const char* name, bool absent, const std::string& where) {
  const auto it = json.find(name);
  if (it == json.end() || it->is_null()) return absent;
  if (!it->is_boolean()) throw Error(where + "." + name, "must be true or false", shown_json(*it));
  return it->get<bool>();
}

std::string type_of(const Json& json, const std::string& where) {
  if (!json.is_object()) throw Error(where, "must be an object", shown_json(json));
  return text_field(json, "type", where);
}

std::string pattern_field(const Json& json, const std::string& where) {
  const auto it = json.find("pattern");
  if (it != json.end() && it->is_object() && it->size() == 1) {
    if (it->contains("String")) return quoted(text_field(*it, "String", where + ".pattern"));
    if (it->contains("Regex")) return text_field(*it, "Regex", where + ".pattern");
  }
  throw Error(where + ".pattern", "must be {\"String\": ...} or {\"Regex\": ...}",
              it == json.end() ? "none" : shown_json(*it));
}

void GrowthLimit::add(std::size_t bytes) {
  if (bytes > left_)
    throw Error("tokenizer",
                "its steps must not make a text more than " + std::to_string(kMax) + " times as long",
                "more");
  left_ -= bytes;
}

std::string replaced(std::string text, std::string_view from, std::string_view to, GrowthLimit& growth) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t next; (next = text.find(from, at)) != std::string::npos; at = next + from.size()) {
    if (to.size() > from.size()) growth.add(to.size() - from.size());
    out.append(text, at, next - at).append(to);
  }
  return at == 0 ? text : out.append(text, at);
}

Normalizer read_normalizer(const Json& json, const std::string& where) {
  if (json.is_null()) return [](std::string text, GrowthLimit&) { return text; };
  const std::string type = type_of(json, where);
  for (const auto& [name, form] : {std::pair{"NFC", NormalForm::nfc}, std::pair{"NFD", NormalForm::nfd},
                                   std::pair{"NFKC", NormalForm::nfkc}, std::pair{"NFKD", NormalForm::nfkd}})
    if (type == name)
      return [form = form](std::string text, GrowthLimit& growth) {
        std::string out = normalize(text, form);
        if (out.size() > text.size()) growth.add(out.size() - text.size());
        return out;
      };
  if (type == "Prepend")
    return [front = text_field(json, "prepend", where)](std::string text, GrowthLimit& growth) {
      if (text.empty()) return text;
      growth.add(front.size());
      return front + text;
    };
  if (type == "Replace") {
    return [regex = UnicodeRegex(pattern_field(json, where), where + ".pattern"),
            content = text_field(json, "content", where)](std::string text, GrowthLimit& growth) {
      std::string out;
      std::size_t at = 0;
      regex.for_each_match(text, [&](std::size_t begin, std::size_t end) {
        if (content.size() > end - begin) growth.add(content.size() - (end - begin));
        out.append(text, at, begin - at).append(content);
        at = end;
      });
      return out.append(text, at);
    };
  }
  if (type == "Sequence") {
    std::vector<Normalizer> steps;
    for (const Json& each : list_field(json, "normalizers", where))
      steps.push_back(read_normalizer(each, where));
    return [steps](std::string text, GrowthLimit& growth) {
      for (const Normalizer& step : steps) text = step(std::move(text), growth);
      return text;
    };
  }
  throw Error(where + ".type",
              "must be NFC, NFD, NFKC, NFKD, Prepend, Replace or Sequence; others are not supported",
              shown(type));
}

void PreTokenizer::run(std::size_t step, PreToken word, GrowthLimit& growth, const Emit& emit) const {
  if (step == steps.size()) return emit(std::move(word));
  steps[step](std::move(word), growth, [&](PreToken next) { run(step + 1, std::move(next), growth, emit); });
}

PreTokenizer read_pre_tokenizer(const Json& json, const std::string& where) {
  PreTokenizer result;
  if (!json.is_null()) add_step(result, json, where);
  return result;
}

const std::vector<std::string>& bytes_to_unicode() {
  static const std::vector<std::string> code_points = [] {
    std::vector<std::string> all(256);
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      const int point = itself ? byte : next++;
      std::string& code_point = all[static_cast<std::size_t>(byte)];
      if (point < 0x80) {
        code_point = static_cast<char>(point);
      } else {
        code_point = static_cast<char>(0xc0 | point >> 6);
        code_point += static_cast<char>(0x80 | (point & 63));
      }
    }
    return all;
  }();
  return code_points;
}

}  // namespace meshloom::trainer

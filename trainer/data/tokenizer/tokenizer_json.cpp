#include "trainer/data/tokenizer/tokenizer_json.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <unordered_map>

#include "hal/error.h"
#include "trainer/data/tokenizer/bpe.h"
#include "trainer/data/tokenizer/pre_tokenizer.h"
#include "trainer/data/tokenizer/unicode.h"
#include "trainer/io/file.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxId = 1 << 24;
constexpr std::size_t kCachedWord = 64;  // bytes; longer words are rare
constexpr std::size_t kCachedWords = 1 << 18;
constexpr std::size_t kBlockIds = 1 << 16;  // that encode_to emits at once

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false, left = false, right = false, normalized = false;
};

std::int32_t id_of(const Json& json, const std::string& where) {
  std::int64_t id = 0;
  if (!natural(json, id) || id >= kMaxId)
    throw Error(where, "an id must be an integer below 2^24", shown_json(json));
  return static_cast<std::int32_t>(id);
}

void must_be_empty(const Json& model, const char* name, const std::string& where) {
  const auto it = model.find(name);
  if (it != model.end() && !it->is_null() && *it != "" && *it != 0.0)
    throw Error(where + "." + name, "must be empty; it is not supported", shown_json(*it));
}

// "a b" or ["a", "b"].
std::pair<std::string, std::string> merge_of(const Json& json, const std::string& where) {
  if (json.is_array() && json.size() == 2 && json[0].is_string() && json[1].is_string())
    return {json[0].get<std::string>(), json[1].get<std::string>()};
  if (json.is_string()) {
    const auto& text = json.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  }
  throw Error(where, "a merge must be two tokens", shown_json(json));
}

Bpe read_bpe(const Json& model, const std::string& where) {
  if (const std::string type = model.contains("type") ? type_of(model, where) : "BPE"; type != "BPE")
    throw Error(where + ".type", "must be BPE; others are not supported", shown(type));
  for (const char* name : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    must_be_empty(model, name, where);
  Bpe bpe;
  const auto vocabulary = model.find("vocab");
  if (vocabulary == model.end() || !vocabulary->is_object())
    throw Error(where + ".vocab", "must map tokens to ids");
  std::set<std::int32_t> ids;
  for (const auto& [token, id] : vocabulary->items()) {
    const std::int32_t value = id_of(id, where + ".vocab " + shown(token));
    if (!ids.insert(value).second)
      throw Error(where + ".vocab " + shown(token), "an id must stand for one token",
                  std::to_string(value) + " again");
    bpe.vocabulary[token] = value;
  }
  const auto merges = model.find("merges");
  if (merges == model.end() || !merges->is_array()) throw Error(where + ".merges", "must be a list");
  std::int32_t rank = 0;
  for (const Json& each : *merges) {
    const std::string here = where + ".merges[" + std::to_string(rank) + "]";
    const auto [left, right] = merge_of(each, here);
    for (const std::string& token : {left, right, left + right})
      if (bpe.find(token) < 0)
        throw Error(here, "its parts and their concatenation must be in vocab", "no " + shown(token));
    // When a merge is given twice, the later rank counts, as in tokenizers.
    bpe.merges[Bpe::pair(bpe.find(left), bpe.find(right))] = {rank++, bpe.find(left + right)};
  }
  if (const auto unknown = model.find("unk_token"); unknown != model.end() && !unknown->is_null()) {
    bpe.unknown = bpe.find(text_field(model, "unk_token", where));
    if (bpe.unknown < 0) throw Error(where + ".unk_token", "must be in vocab", shown_json(*unknown));
  }
  bpe.fuse_unknown = flag_field(model, "fuse_unk", false, where);
  bpe.byte_fallback = flag_field(model, "byte_fallback", false, where);
  bpe.ignore_merges = flag_field(model, "ignore_merges", false, where);
  bpe.index_neighbours();
  return bpe;
}

std::vector<AddedToken> read_added(const Json& json, const std::string& where) {
  std::vector<AddedToken> tokens;
  if (json.is_null()) return tokens;
  if (!json.is_array()) throw Error(where, "must be a list", shown_json(json));
  for (const Json& each : json) {
    const std::string here = where + "[" + std::to_string(tokens.size()) + "]";
    if (!each.is_object()) throw Error(here, "must be an object", shown_json(each));
    AddedToken token;
    token.content = text_field(each, "content", here);
    token.id = id_of(each.contains("id") ? each["id"] : Json(), here + ".id");
    token.special = flag_field(each, "special", false, here);
    token.left = flag_field(each, "lstrip", false, here);
    token.right = flag_field(each, "rstrip", false, here);
    token.normalized = flag_field(each, "normalized", !token.special, here);
    if (flag_field(each, "single_word", false, here))
      throw Error(here + ".single_word", "must be false; true is not supported", shown(token.content));
    if (token.content.empty()) throw Error(here + ".content", "must not be empty");
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// The special tokens before and after the text.
struct Template {
  std::vector<std::int32_t> before, after;
};

void read_template(const Json& json, const std::string& where, Template& into) {
  if (json.is_null()) return;
  const std::string type = type_of(json, where);
  const auto list = [&](const char* name) -> const Json& {
    const auto it = json.find(name);
    if (it == json.end() || !it->is_array()) throw Error(where + "." + name, "must be a list");
    return *it;
  };
  if (type == "ByteLevel") return;  // changes offsets only
  if (type == "Sequence") {
    for (const Json& each : list("processors")) read_template(each, where, into);
    return;
  }
  if (type != "TemplateProcessing")
    throw Error(where + ".type",
                "must be TemplateProcessing, ByteLevel or Sequence; others are not supported", shown(type));
  bool seen = false;
  for (const Json& each : list("single")) {
    if (each.is_object() && each.contains("Sequence")) {
      if (std::exchange(seen, true)) throw Error(where + ".single", "must hold the text once", "twice");
      continue;
    }
    const auto token = each.is_object() ? each.find("SpecialToken") : each.end();
    if (!each.is_object() || token == each.end() || !token->is_object())
      throw Error(where + ".single", "must hold Sequence and SpecialToken", shown_json(each));
    const std::string name = text_field(*token, "id", where + ".single");
    const auto tokens = json.find("special_tokens");
    if (tokens == json.end() || !tokens->is_object() || !tokens->contains(name) ||
        !(*tokens)[name].is_object() || !(*tokens)[name].contains("ids") ||
        !(*tokens)[name]["ids"].is_array())
      throw Error(where + ".special_tokens", "must have the ids of " + shown(name));
    for (const Json& id : (*tokens)[name]["ids"])
      (seen ? into.after : into.before).push_back(id_of(id, where + ".special_tokens " + shown(name)));
  }
  if (!seen) throw Error(where + ".single", "must hold the text", "none");
}

using Tokens = std::vector<std::string>;
using Decoder = std::function<Tokens(Tokens, GrowthLimit&)>;

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

Tokens bytes_of_code_points(const Tokens& tokens, GrowthLimit&) {
  static const auto* const bytes = [] {
    auto* map = new std::unordered_map<std::string, char>;
    for (std::size_t i = 0; i < 256; ++i) (*map)[bytes_to_unicode()[i]] = static_cast<char>(i);
    return map;
  }();
  std::string text;
  for (const std::string& token : tokens) {
    std::string part;
    bool all = true;
    for (std::size_t at = 0; at < token.size() && all;) {
      const std::size_t size = code_point_bytes(std::string_view(token).substr(at));
      const auto it = bytes->find(token.substr(at, size));
      all = it != bytes->end();
      if (all) part += it->second;
      at += size;
    }
    text += all ? part : token;
  }
  return {text};
}

// Replaces "<0x41>" by its byte.
Tokens bytes_of_names(Tokens tokens, GrowthLimit&) {
  for (std::string& token : tokens)
    if (token.size() == 6 && token.starts_with("<0x") && token[5] == '>' && std::isxdigit(token[3]) &&
        std::isxdigit(token[4]))
      token = std::string(1, static_cast<char>(std::stoi(token.substr(3, 2), nullptr, 16)));
  return tokens;
}

Tokens stripped(Tokens tokens, const std::string& code_point, std::int64_t start, std::int64_t stop) {
  for (std::string& token : tokens) {
    for (std::int64_t i = 0; i < start && token.starts_with(code_point); ++i)
      token.erase(0, code_point.size());
    for (std::int64_t i = 0; i < stop && token.ends_with(code_point); ++i)
      token.resize(token.size() - code_point.size());
  }
  return tokens;
}

Decoder read_decoder(const Json& json, const std::string& where) {
  if (json.is_null())
    return [](const Tokens& tokens, GrowthLimit&) {
      std::string text;
      for (const std::string& token : tokens) text += (text.empty() ? "" : " ") + token;
      return Tokens{text};
    };
  const std::string type = type_of(json, where);
  if (type == "ByteLevel") return bytes_of_code_points;
  if (type == "ByteFallback") return bytes_of_names;
  if (type == "Fuse") return [](const Tokens& tokens, GrowthLimit&) { return Tokens{joined(tokens)}; };
  if (type == "Replace") {
    const auto pattern = json.find("pattern");
    if (pattern == json.end() || !pattern->is_object() || !pattern->contains("String"))
      throw Error(where + ".pattern", "must be {\"String\": ...}; others are not supported");
    return [from = text_field(*pattern, "String", where), to = text_field(json, "content", where)](
               Tokens tokens, GrowthLimit& growth) {
      if (!from.empty())
        for (std::string& token : tokens) token = replaced(std::move(token), from, to, growth);
      return tokens;
    };
  }
  if (type == "Strip") {
    const std::string code_point = text_field(json, "content", where);
    std::int64_t start = 0, stop = 0;
    if (code_point.empty() || !natural(json.value("start", Json(0u)), start) ||
        !natural(json.value("stop", Json(0u)), stop))
      throw Error(where, "Strip must have a character, start and stop", shown_json(json));
    return [=](Tokens tokens, GrowthLimit&) { return stripped(std::move(tokens), code_point, start, stop); };
  }
  if (type == "Metaspace") {
    const std::string mark = text_field(json, "replacement", where);
    bool front = flag_field(json, "add_prefix_space", true, where);
    if (json.contains("prepend_scheme")) front = text_field(json, "prepend_scheme", where) != "never";
    return [mark, front](Tokens tokens, GrowthLimit& growth) {
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (i == 0 && front && tokens[0].starts_with(mark)) tokens[0].erase(0, mark.size());
        tokens[i] = replaced(std::move(tokens[i]), mark, " ", growth);
      }
      return tokens;
    };
  }
  if (type == "Sequence") {
    std::vector<Decoder> steps;
    const auto it = json.find("decoders");
    if (it == json.end() || !it->is_array()) throw Error(where + ".decoders", "must be a list");
    for (const Json& each : *it) steps.push_back(read_decoder(each, where));
    return [steps](Tokens tokens, GrowthLimit& growth) {
      for (const Decoder& step : steps) tokens = step(std::move(tokens), growth);
      return tokens;
    };
  }
  throw Error(where + ".type",
              "must be ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace or Sequence; others are not "
              "supported",
              shown(type));
}

// Finds added tokens in text: the leftmost, and of several at one position the longest.
class Finder {
 public:
  void add(const std::string& content, const AddedToken* token) {
    by_byte_[static_cast<unsigned char>(content[0])].push_back({content, token});
  }
  // To be called once after the last add().
  void sort() {
    for (auto& list : by_byte_)
      std::stable_sort(list.begin(), list.end(),
                       [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  }
  // Calls `text` for each part between tokens, with its start, and `token` for each token, with its start and
  // end.
  template <typename Text, typename Token>
  void cut(std::string_view whole, Text text, Token token) const {
    std::size_t from = 0;
    for (std::size_t at = 0; at < whole.size();) {
      const AddedToken* found = nullptr;
      std::size_t bytes = 0;
      for (const auto& [content, each] : by_byte_[static_cast<unsigned char>(whole[at])])
        if (whole.substr(at).starts_with(content)) {
          found = each;
          bytes = content.size();
          break;
        }
      if (!found) {
        ++at;
        continue;
      }
      std::size_t begin = at, end = at + bytes;
      at += bytes;  // and not behind the spaces that it takes: among them tokens are found, as in tokenizers
      if (found->left) {
        begin = std::max(begin, from);
        while (const std::size_t space = trailing_space(whole.substr(from, begin - from))) begin -= space;
      }
      if (found->right)
        while (const std::size_t space = leading_space(whole.substr(end))) end += space;
      if (begin >= end) continue;  // the token before took all of it
      if (begin > from) text(whole.substr(from, begin - from), from);
      token(*found, begin, end);
      from = end;
    }
    if (from < whole.size()) text(whole.substr(from), from);
  }

 private:
  std::array<std::vector<std::pair<std::string, const AddedToken*>>, 256> by_byte_;
};

class JsonTokenizer : public Tokenizer {
 public:
  JsonTokenizer(const Json& json, const std::string& where, bool template_tokens,
                const std::string& end_of_text)
      : where_(where) {
    if (!json.is_object()) throw Error(where, "must be a JSON object", shown_json(json));
    const auto part = [&](const char* name) { return json.contains(name) ? json[name] : Json(); };
    if (!part("model").is_object())
      throw Error(where + ", model", "must be an object", shown_json(part("model")));
    bpe_ = read_bpe(part("model"), where + ", model");
    normalizer_ = read_normalizer(part("normalizer"), where + ", normalizer");
    pre_tokenizer_ = read_pre_tokenizer(part("pre_tokenizer"), where + ", pre_tokenizer");
    decoder_ = read_decoder(part("decoder"), where + ", decoder");
    added_ = read_added(part("added_tokens"), where + ", added_tokens");
    if (template_tokens) read_template(part("post_processor"), where + ", post_processor", template_);
    check_dense();
    for (const auto& [token, id] : bpe_.vocabulary) name(id, token);
    std::set<std::string> contents;
    for (const AddedToken& token : added_) {
      if (!contents.insert(token.content).second)
        throw Error(where + ", added_tokens", "a token must stand once", shown(token.content));
      name(token.id, token.content);
      added_ids_.insert(token.id);
      if (token.special) special_.insert(token.id);
      if (token.normalized) {
        GrowthLimit growth(token.content.size());
        const std::string content = normalizer_(token.content, growth);
        normalized_.add(content.empty() ? token.content : content, &token);
      } else {
        raw_.add(token.content, &token);
      }
    }
    raw_.sort();
    normalized_.sort();
    find_end(end_of_text);
    for (const auto* ids : {&template_.before, &template_.after})
      for (const std::int32_t id : *ids)
        if (id >= vocabulary())
          throw Error(where + ", post_processor", "its ids must be tokens", std::to_string(id));
  }

  std::string name() const override {
    constexpr std::string_view kWord = "tokenizer ";  // messages have it before the name
    return where_.starts_with(kWord) ? where_.substr(kWord.size()) : where_;
  }
  std::int64_t vocabulary() const override { return static_cast<std::int64_t>(tokens_.size()); }

  std::vector<std::int32_t> encode(std::string_view text) const override {
    std::vector<std::int32_t> ids = template_.before;
    encode_into(text, ids, [] {});
    ids.insert(ids.end(), template_.after.begin(), template_.after.end());
    return ids;
  }
  void encode_to(std::string_view text, const EmitIds& emit) const override {
    std::vector<std::int32_t> ids = template_.before;
    encode_into(text, ids, [&] {
      if (ids.size() < kBlockIds) return;
      emit(ids);
      ids.clear();
    });
    ids.insert(ids.end(), template_.after.begin(), template_.after.end());
    emit(ids);
  }
  std::vector<std::int32_t> encode_part(std::string_view text) const override {
    std::vector<std::int32_t> ids;
    encode_into(text, ids, [] {});
    return ids;
  }
  std::vector<std::int32_t> begin_of_text() const override { return template_.before; }
  std::optional<std::int32_t> end_of_text() const override { return end_; }
  bool end_is_guessed() const override { return guessed_; }
  std::string token(std::int32_t id) const override {
    return id >= 0 && id < vocabulary() ? tokens_[static_cast<std::size_t>(id)] : "";
  }
  std::optional<std::int32_t> find(std::string_view token) const override {
    for (const AddedToken& added : added_)
      if (added.content == token) return added.id;
    const std::int32_t id = bpe_.find(std::string(token));
    return id >= 0 ? std::optional(id) : std::nullopt;
  }
  bool is_added(std::int32_t id) const override { return added_ids_.count(id) > 0; }
  EncodingWithOffsets encode_with_offsets(std::string_view text,
                                          std::span<const std::size_t> bytes) const override {
    EncodingWithOffsets encoding;
    std::vector<Section> sections;
    encode_into(
        text, encoding.ids, [] {}, &sections);
    for (const std::size_t byte : bytes) {
      std::size_t index = encoding.ids.empty() ? 0 : encoding.ids.size() - 1;
      for (const Section& section : sections)
        if (byte >= section.begin && byte < section.end) index = token_at(section, text, encoding.ids, byte);
      encoding.token_at.push_back(index);
    }
    return encoding;
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    Tokens tokens;
    for (const std::int32_t id : ids)
      if (id >= 0 && id < vocabulary() && !special_.count(id))
        tokens.push_back(tokens_[static_cast<std::size_t>(id)]);
    GrowthLimit growth(joined(tokens).size());
    return joined(decoder_(std::move(tokens), growth));
  }

 private:
  void find_end(const std::string& named) {
    const std::vector<std::string> names =
        named.empty() ? std::vector<std::string>{"</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>"}
                      : std::vector<std::string>{named};
    for (const std::string& name : names)
      for (const AddedToken& token : added_)
        if (token.content == name) {
          end_ = token.id;
          guessed_ = named.empty();
          return;
        }
    if (!named.empty()) end_ = find(named);
    if (!named.empty() && !end_) throw Error(where_, "end_of_text must be one of its tokens", shown(named));
  }

  // A part of a text and its tokens: an added token, or the text between two.
  struct Section {
    std::size_t begin, end;   // bytes
    std::size_t first, last;  // indices of tokens
  };

  // The token of a section that contains a byte of the text. When the decoded tokens give the text or the
  // normalized text, they show where each token ends. Otherwise the ids of the text before the byte are
  // compared.
  std::size_t token_at(const Section& section, std::string_view text, const std::vector<std::int32_t>& ids,
                       std::size_t byte) const {
    if (section.last <= section.first + 1) return section.first;
    const std::string raw(text.substr(section.begin, section.end - section.begin)),
        before(text.substr(section.begin, byte - section.begin));
    const auto length = [&](std::size_t count) {
      Tokens tokens;
      for (std::size_t i = section.first; i < section.first + count; ++i) tokens.push_back(token(ids[i]));
      GrowthLimit growth(joined(tokens).size());
      return joined(decoder_(std::move(tokens), growth));
    };
    const std::size_t count = section.last - section.first;
    const std::string whole = length(count);
    GrowthLimit growth(text.size());
    std::size_t place = 0;
    if (whole == raw) {
      place = before.size();
    } else if (" " + whole == raw) {
      place = before.empty() ? 0 : before.size() - 1;
    } else if (whole == normalizer_(raw, growth)) {
      place = std::min(normalizer_(before, growth).size(), whole.empty() ? 0 : whole.size() - 1);
    } else {
      std::vector<std::int32_t> shorter;
      encode_into(before, shorter, [] {});
      std::size_t same = 0;
      while (same < shorter.size() && same + 1 < count && shorter[same] == ids[section.first + same]) ++same;
      return section.first + same;
    }
    std::size_t low = 0, high = count - 1;  // bounds of the token that contains the place
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      if (length(middle + 1).size() > place)
        high = middle;
      else
        low = middle + 1;
    }
    return section.first + low;
  }

  // Tokens are stored in a table by id, which a file of few bytes must not make gigabytes large.
  void check_dense() const {
    const std::size_t max_ids = 2 * (bpe_.vocabulary.size() + added_.size()) + 4096;
    const auto check = [&](const std::string& token, std::int32_t id) {
      if (static_cast<std::size_t>(id) >= max_ids)
        throw Error(where_ + ", token " + shown(token),
                    "an id must be below twice the number of tokens + 4096 = " + std::to_string(max_ids),
                    std::to_string(id));
    };
    for (const auto& [token, id] : bpe_.vocabulary) check(token, id);
    for (const AddedToken& token : added_) check(token.content, token.id);
  }

  // Appends to `ids`. `after_word` is called after each word and may take the ids away, unless sections are
  // wanted.
  template <typename AfterWord>
  void encode_into(std::string_view text, std::vector<std::int32_t>& ids, const AfterWord& after_word,
                   std::vector<Section>* sections = nullptr) const {
    std::unordered_map<std::string, std::vector<std::int32_t>> cache;
    GrowthLimit growth(text.size());
    const auto token = [&](const AddedToken& added, std::size_t, std::size_t) { ids.push_back(added.id); };
    raw_.cut(
        text,
        [&](std::string_view raw, std::size_t at) {
          const std::size_t first = ids.size();
          const std::string section = normalizer_(std::string(raw), growth);
          normalized_.cut(
              section,
              [&](std::string_view part, std::size_t inside) {
                pre_tokenizer_({std::string(part), at == 0 && inside == 0}, growth,
                               [&](const PreToken& word) {
                                 encode_word(word.text, cache, ids);
                                 after_word();
                               });
              },
              token);
          if (sections) sections->push_back({at, at + raw.size(), first, ids.size()});
        },
        [&](const AddedToken& added, std::size_t begin, std::size_t end) {
          ids.push_back(added.id);
          if (sections) sections->push_back({begin, end, ids.size() - 1, ids.size()});
        });
  }

  void name(std::int32_t id, const std::string& token) {
    const auto index = static_cast<std::size_t>(id);
    if (tokens_.size() <= index) tokens_.resize(index + 1);
    if (!tokens_[index].empty() && tokens_[index] != token)
      throw Error(where_ + ", added_tokens " + shown(token), "an id must stand for one token",
                  std::to_string(id) + " is " + shown(tokens_[index]));
    tokens_[index] = token;
  }

  void encode_word(const std::string& word, std::unordered_map<std::string, std::vector<std::int32_t>>& cache,
                   std::vector<std::int32_t>& ids) const {
    if (word.size() > kCachedWord || cache.size() >= kCachedWords) return bpe_.encode(code_points(word), ids);
    const auto [it, fresh] = cache.try_emplace(word);
    if (fresh) bpe_.encode(code_points(word), it->second);
    ids.insert(ids.end(), it->second.begin(), it->second.end());
  }

  std::string code_points(const std::string& word) const {
    if (!pre_tokenizer_.byte_level) return word;
    std::string text;
    for (char byte : word) text += bytes_to_unicode()[static_cast<unsigned char>(byte)];
    return text;
  }

  std::string where_;
  Bpe bpe_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Decoder decoder_;
  std::vector<AddedToken> added_;
  Finder raw_, normalized_;  // find added tokens before and after normalization
  Template template_;
  std::optional<std::int32_t> end_;
  bool guessed_ = false;
  std::vector<std::string> tokens_;  // by id; "" = no such token
  std::set<std::int32_t> special_, added_ids_;
};

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view text, const std::string& where,
                                                bool template_tokens, const std::string& end_of_text) {
  return std::make_unique<JsonTokenizer>(parse_json(text, where, "the file", 16), where, template_tokens,
                                         end_of_text);
}

std::unique_ptr<Tokenizer> tokenizer_json(const std::string& path, bool template_tokens,
                                          const std::string& end_of_text) {
  const std::string where = "tokenizer '" + path + "'";
  return parse_tokenizer_json(read_file(path, where), where, template_tokens, end_of_text);
}

}  // namespace meshloom::trainer

#include "trainer/interop/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>

#include "hal/error.h"
#include "trainer/data/tokenizer/pre_tokenizer.h"
#include "trainer/data/tokenizer/tokenizer_settings.h"
#include "trainer/data/tokenizer/unicode.h"
#include "trainer/io/atomic_file.h"
#include "trainer/io/file.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// The kinds of tokens; the numbers are those of GGUF and of SentencePiece.
enum Kind : std::int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// A way to cut text into words that llama.cpp has by name (tokenizer.ggml.pre).
struct Cut {
  std::vector<std::string> names;  // the first is written
  std::vector<std::string>
      patterns;  // whose matches are words of their own; then, with `gpt2`, those of GPT-2
  bool gpt2 = false;
  bool ignore_merges = false;
  bool begins = false;  // a text begins with the begin-of-text token unless add_bos_token says otherwise
  const char* normalizer = nullptr;
};

const std::vector<Cut>& cuts() {
  const auto words = [](const char* digits) {
    return std::string("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|") + digits +
           "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  };
  static const std::vector<Cut> all{
      {{"llama-bpe", "llama3", "llama-v3"}, {words("\\p{N}{1,3}")}, false, true, true, nullptr},
      {{"smaug-bpe", "dbrx"}, {words("\\p{N}{1,3}")}, false, false, false, nullptr},
      {{"qwen2", "deepseek-r1-qwen"}, {words("\\p{N}")}, false, false, false, "NFC"},
      {{"gpt-2", "gpt2"}, {}, true, false, false, nullptr},
      {{"smollm", "refact"}, {"\\p{N}"}, true, false, false, nullptr},
      // What llama.cpp does with files that name none.
      {{"default"},
       {"[\\p{P}\\$\\+<=>\\^~\\|]+",
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)", "\\p{N}+",
        "[0-9][0-9][0-9]"},
       false,
       false,
       false,
       nullptr}};
  return all;
}

Json byte_level(bool regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", regex}};
}

Json pre_tokenizer_of(const Cut& cut) {
  Json steps = Json::array();
  for (const std::string& pattern : cut.patterns)
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  steps.push_back(byte_level(cut.gpt2));
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// The metadata of the tokenizer, checked.
class Keys {
 public:
  explicit Keys(const GgufFile& file) : file_(file) {}
  static std::string full(const std::string& key) { return "tokenizer.ggml." + key; }
  std::string place(const std::string& key) const { return "'" + file_.path() + "', key " + full(key); }

  const GgufValue* find(const std::string& key) const { return find_any(full(key)); }
  const GgufValue* find_any(const std::string& key) const {
    const auto it = file_.metadata().find(key);
    return it == file_.metadata().end() ? nullptr : &it->second;
  }
  std::optional<std::string> text(const std::string& key) const {
    const GgufValue* value = find(key);
    if (!value) return std::nullopt;
    const auto* text = std::get_if<std::string>(&value->data);
    if (!text) throw Error(place(key), "must be text", value->shown());
    return *text;
  }
  std::optional<bool> flag(const std::string& key) const {
    const GgufValue* value = find(key);
    if (!value) return std::nullopt;
    const auto* flag = std::get_if<bool>(&value->data);
    if (!flag) throw Error(place(key), "must be true or false", value->shown());
    return *flag;
  }
  // A list of texts that are UTF-8; null = there is none.
  const std::vector<std::string>* texts(const std::string& key) const {
    const GgufValue* value = find(key);
    if (!value) return nullptr;
    const auto* array = std::get_if<GgufArray>(&value->data);
    if (!array || array->type != GgufType::text)
      throw Error(place(key), "must be an array of texts", value->shown());
    for (std::size_t i = 0; i < array->texts.size(); ++i)
      if (first_bad_byte(array->texts[i]) != std::string_view::npos)
        throw Error(fmt::format("{}[{}]", place(key), i), "must be UTF-8 without NUL",
                    shown(array->texts[i]));
    return &array->texts;
  }
  // A list of `count` numbers; null = there is none.
  const GgufArray* numbers(const std::string& key, std::size_t count) const {
    const GgufValue* value = find(key);
    if (!value) return nullptr;
    const auto* array = std::get_if<GgufArray>(&value->data);
    if (!array || array->type == GgufType::text || array->size() != count)
      throw Error(place(key), fmt::format("must be an array of {} numbers", count), value->shown());
    return array;
  }
  // The id of a token; none when the file has none.
  std::optional<std::size_t> id(const std::string& key, std::size_t tokens) const {
    const GgufValue* value = find(key);
    if (!value) return std::nullopt;
    const auto* number = std::get_if<std::uint64_t>(&value->data);
    const auto* integer = std::get_if<std::int64_t>(&value->data);
    if (integer && *integer == -1) return std::nullopt;  // llama.cpp's own mark
    const std::uint64_t id = number                     ? *number
                             : integer && *integer >= 0 ? static_cast<std::uint64_t>(*integer)
                                                        : tokens;
    if (id >= tokens)
      throw Error(place(key), "must be the id of a token, below " + std::to_string(tokens), value->shown());
    return static_cast<std::size_t>(id);
  }

 private:
  const GgufFile& file_;
};

std::vector<std::int32_t> kinds_of(const Keys& keys, std::size_t tokens) {
  std::vector<std::int32_t> kinds(tokens, kNormal);
  if (const GgufArray* array = keys.numbers("token_type", tokens))
    for (std::size_t i = 0; i < tokens; ++i) {
      const double kind = array->number(i);
      if (!(kind >= 0 && kind <= static_cast<std::int32_t>(kByte) && kind == std::floor(kind)))
        throw Error(fmt::format("{}[{}]", keys.place("token_type"), i), "must be a kind of token, 0 to 6",
                    fmt::format("{}", kind));
      kinds[i] = static_cast<std::int32_t>(kind);
    }
  return kinds;
}

// tokenizer.json of a byte-level BPE.
Json bpe_of(const Keys& keys, const std::vector<std::string>& tokens, const std::vector<std::int32_t>& kinds,
            const Note& note) {
  const std::string pre = keys.text("pre").value_or("default");
  const auto named = [&](const Cut& cut) {
    return std::find(cut.names.begin(), cut.names.end(), pre) != cut.names.end();
  };
  const auto cut = std::find_if(cuts().begin(), cuts().end(), named);
  if (cut == cuts().end())
    throw Error(keys.place("pre"),
                "must be llama-bpe, smaug-bpe, dbrx, qwen2, gpt-2, smollm, refact or default; other "
                "pre-tokenizers are not "
                "known",
                shown(pre));
  if (!keys.find("pre"))
    note(keys.place("pre") +
         ": absent, so words are cut as llama.cpp does by default, perhaps not as in training");
  const std::vector<std::string>* merges = keys.texts("merges");
  if (!merges) throw Error(keys.place("merges"), "must be present", "none");
  Json vocabulary = Json::object(), added = Json::array();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (kinds[i] == kUnused) continue;
    if (!vocabulary.emplace(tokens[i], i).second)
      throw Error(fmt::format("{}[{}]", keys.place("tokens"), i), "a token must stand once",
                  shown(tokens[i]));
    if ((kinds[i] == kControl || kinds[i] == kUserDefined) && !tokens[i].empty())
      added.push_back({{"id", i},
                       {"content", tokens[i]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", kinds[i] == kControl}});
  }
  const auto begin = keys.id("bos_token_id", tokens.size());
  const bool begins = keys.flag("add_bos_token").value_or(cut->begins);
  Json after = byte_level(true);
  if (begins && begin)
    after = {{"type", "TemplateProcessing"},
             {"single",
              {{{"SpecialToken", {{"id", tokens[*begin]}, {"type_id", 0}}}},
               {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
             {"pair", Json::array()},
             {"special_tokens",
              {{tokens[*begin], {{"id", tokens[*begin]}, {"ids", {*begin}}, {"tokens", {tokens[*begin]}}}}}}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", cut->normalizer ? Json{{"type", cut->normalizer}} : Json()},
          {"pre_tokenizer", pre_tokenizer_of(*cut)},
          {"post_processor", after},
          {"decoder", byte_level(true)},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", cut->ignore_merges},
            {"vocab", vocabulary},
            {"merges", *merges}}}};
}

// Protocol buffers, as sentencepiece_model.proto numbers the fields.
void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  out += static_cast<char>(value);
}
void put_number(std::string& out, unsigned field, std::uint64_t value) {
  put_varint(out, field << 3);
  put_varint(out, value);
}
void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
  put_varint(out, field << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

// A SentencePiece model: what llama.cpp calls "llama" merges by score, as SentencePiece's BPE does.
std::string sentencepiece_of(const Keys& keys, const std::vector<std::string>& tokens,
                             const std::vector<std::int32_t>& kinds) {
  const GgufArray* scores = keys.numbers("scores", tokens.size());
  if (!scores) throw Error(keys.place("scores"), "must be present", "none");
  std::string model, trainer, normalizer;
  bool bytes = false;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::string piece;
    put_bytes(piece, 1, tokens[i]);
    const auto score = static_cast<float>(scores->number(i));
    std::uint32_t bits;
    std::memcpy(&bits, &score, 4);
    put_varint(piece, 2 << 3 | 5);
    for (int shift = 0; shift < 32; shift += 8) piece += static_cast<char>(bits >> shift);
    put_number(piece, 3, static_cast<std::uint64_t>(kinds[i] == 0 ? kNormal : kinds[i]));
    put_bytes(model, 1, piece);
    bytes |= kinds[i] == kByte;
  }
  constexpr std::uint64_t kBpe = 2;
  put_number(trainer, 3, kBpe);
  put_number(trainer, 4, tokens.size());
  put_number(trainer, 35, bytes ? 1 : 0);
  struct Special {
    const char* key;
    unsigned id_field, piece_field;
  };
  for (const Special& special : {Special{"unknown_token_id", 40, 45}, Special{"bos_token_id", 41, 46},
                                 Special{"eos_token_id", 42, 47}, Special{"padding_token_id", 43, 48}})
    if (const auto id = keys.id(special.key, tokens.size())) {
      put_number(trainer, special.id_field, *id);
      put_bytes(trainer, special.piece_field, tokens[*id]);
    }
  put_bytes(normalizer, 1, "identity");
  put_number(normalizer, 3, keys.flag("add_space_prefix").value_or(true) ? 1 : 0);
  put_number(normalizer, 4, keys.flag("remove_extra_whitespaces").value_or(false) ? 1 : 0);
  put_number(normalizer, 5, 1);
  put_bytes(model, 2, trainer);
  put_bytes(model, 3, normalizer);
  return model;
}

OrderedJson read_object(const std::string& path) {
  const std::string where = "'" + path + "'";
  return parse_ordered_json(read_file(path, where), where, "the file", 32);
}

// A pre-tokenizer's steps, without what only matters to offsets; false for other steps.
bool steps_of(const Json& json, std::vector<std::string>& patterns, bool& gpt2) {
  if (!json.is_object()) return false;
  const std::string type = json.value("type", "");
  if (type == "Sequence") {
    for (const Json& each : json.value("pretokenizers", Json::array()))
      if (!steps_of(each, patterns, gpt2)) return false;
    return true;
  }
  if (type == "Digits") {
    patterns.push_back(json.value("individual_digits", false) ? "\\p{N}" : "\\p{N}+");
    return true;
  }
  if (type == "Split") {
    if (json.value("behavior", "") != "Isolated" || json.value("invert", false) ||
        !json["pattern"].is_object() || !json["pattern"].contains("Regex"))
      return false;
    patterns.push_back(json["pattern"]["Regex"]);
    return true;
  }
  if (type != "ByteLevel" || json.value("add_prefix_space", true)) return false;
  gpt2 = json.value("use_regex", true);
  return true;
}

const Cut& cut_of(const OrderedJson& json) {
  std::vector<std::string> patterns;
  bool gpt2 = false;
  const bool known = steps_of(Json::parse(json["pre_tokenizer"].dump()), patterns, gpt2);
  const bool ignores = json["model"].value("ignore_merges", false);
  const std::string normalizer = json.contains("normalizer") && json["normalizer"].is_object()
                                     ? json["normalizer"].value("type", "")
                                     : "";
  for (const Cut& cut : cuts())
    if (known && cut.patterns == patterns && cut.gpt2 == gpt2 && cut.ignore_merges == ignores &&
        (normalizer.empty() || (cut.normalizer && normalizer == cut.normalizer)))
      return cut;
  throw Error(
      "--format gguf, tokenizer.json",
      "its pre_tokenizer and normalizer must be those of Llama 3, Qwen 2, GPT-2 or SmolLM: llama.cpp knows "
      "pre-tokenizers by name",
      shown_json(Json::parse(json["pre_tokenizer"].dump())));
}

struct Tokens {
  std::vector<std::string> texts;
  std::vector<std::int32_t> kinds;

  explicit Tokens(std::int64_t count)
      : texts(static_cast<std::size_t>(count)), kinds(static_cast<std::size_t>(count), kUnused) {
    for (std::size_t i = 0; i < texts.size(); ++i) texts[i] = fmt::format("[PAD{}]", i);
  }
  void set(std::int64_t id, const std::string& text, Kind kind) {
    if (id < 0 || id >= static_cast<std::int64_t>(texts.size()))
      throw Error("--format gguf, tokenizer.json",
                  "every id must be below the model's vocab_size, " + std::to_string(texts.size()),
                  std::to_string(id));
    texts[static_cast<std::size_t>(id)] = text;
    kinds[static_cast<std::size_t>(id)] = kind;
  }
};

// The ids that end a text, and the tokenizer's own id first.
std::vector<std::int64_t> ends_of(const OrderedJson& config, const TokenizerSettings& settings,
                                  const std::vector<std::string>& tokens) {
  std::vector<std::int64_t> ends;
  if (const auto it = config.find("eos_token_id"); it != config.end() && it->is_number())
    ends.push_back(*it);
  else if (it != config.end() && it->is_array())
    for (const OrderedJson& id : *it) ends.push_back(id);
  if (const auto named = settings.tokens.find("eos_token"); named != settings.tokens.end()) {
    const auto own = std::find_if(ends.begin(), ends.end(), [&](std::int64_t id) {
      return id < static_cast<std::int64_t>(tokens.size()) &&
             tokens[static_cast<std::size_t>(id)] == named->second;
    });
    if (own != ends.end()) std::rotate(ends.begin(), own, own + 1);
  }
  return ends;
}

}  // namespace

bool write_tokenizer_of_gguf(const GgufFile& file, const std::string& directory, Json& config,
                             const Note& note) {
  const Keys keys(file);
  const std::string model = keys.text("model").value_or("none");
  if (model == "none" || model == "no_vocab") {
    note("'" + file.path() + "' has no tokenizer; the recipe uses bytes as tokens");
    return false;
  }
  if (model != "gpt2" && model != "llama")
    throw Error(keys.place("model"),
                "must be gpt2 (byte-level BPE) or llama (SentencePiece); others are not read", shown(model));
  const std::vector<std::string>* tokens = keys.texts("tokens");
  if (!tokens || tokens->empty()) throw Error(keys.place("tokens"), "must be present", "none");
  const std::vector<std::int32_t> kinds = kinds_of(keys, tokens->size());
  OrderedJson settings{{"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"clean_up_tokenization_spaces", false}};
  if (keys.flag("add_eos_token").value_or(false))
    note(keys.place("add_eos_token") + ": not imported; texts do not end with the end-of-text token");
  bool begins = model == "llama";
  if (model == "gpt2") {
    const Json json = bpe_of(keys, *tokens, kinds, note);
    begins = json["post_processor"]["type"] == "TemplateProcessing";
    write_new_file(directory, "tokenizer.json", json.dump());
  } else {
    write_new_file(directory, "tokenizer.model", sentencepiece_of(keys, *tokens, kinds));
    settings.erase("tokenizer_class");
    begins = keys.flag("add_bos_token").value_or(true);
  }
  settings["add_bos_token"] = begins;
  for (const auto& [key, name] :
       {std::pair{"bos_token_id", "bos_token"}, std::pair{"eos_token_id", "eos_token"},
        std::pair{"padding_token_id", "pad_token"}, std::pair{"unknown_token_id", "unk_token"}})
    if (const auto id = keys.id(key, tokens->size())) settings[name] = (*tokens)[*id];
  Json ends = Json::array();
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"})
    if (const auto id = keys.id(key, tokens->size());
        id && std::find(ends.begin(), ends.end(), *id) == ends.end())
      ends.push_back(*id);
  if (!ends.empty()) config["eos_token_id"] = ends;
  if (const GgufValue* text = keys.find_any("tokenizer.chat_template")) {
    const auto* source = std::get_if<std::string>(&text->data);
    const std::string where = "'" + file.path() + "', key tokenizer.chat_template";
    if (!source) throw Error(where, "must be text", text->shown());
    if (first_bad_byte(*source) != std::string_view::npos)
      throw Error(where, "must be UTF-8 without NUL", "other bytes");
    if (!source->empty()) write_new_file(directory, "chat_template.jinja", *source);
  }
  write_new_file(directory, "tokenizer_config.json", settings.dump(2) + "\n");
  return true;
}

std::vector<std::pair<std::string, GgufValue>> gguf_tokenizer(TokenizerConfig& tokenizer,
                                                              const std::string& directory,
                                                              const OrderedJson& config,
                                                              std::int64_t vocabulary, const Note& note) {
  namespace fs = std::filesystem;
  std::vector<std::pair<std::string, GgufValue>> metadata;
  const auto add = [&](const std::string& key, GgufValue value) {
    metadata.emplace_back("tokenizer." + key, std::move(value));
  };
  const std::unique_ptr<Tokenizer> made = tokenizer.make();
  if (made->vocabulary() > vocabulary) {
    note(fmt::format("the tokenizer has {} tokens and the model {}, so the file has no tokenizer",
                     made->vocabulary(), vocabulary));
    add("ggml.model", GgufValue::text("none"));
    return metadata;
  }
  Tokens tokens(vocabulary);
  std::vector<std::string> merges;
  TokenizerSettings settings;
  std::string pre = "gpt-2";
  std::vector<std::int64_t> ends;
  if (!tokenizer.has_files()) {
    for (std::size_t byte = 0; byte < 256; ++byte)
      tokens.set(static_cast<std::int64_t>(byte), bytes_to_unicode()[byte], kNormal);
    if (const auto end = made->end_of_text()) ends.push_back(*end);
  } else {
    if (!fs::exists(directory + "/tokenizer.json"))
      throw Error("--format gguf, tokenizer",
                  "must be a tokenizer.json of byte-level BPE; SentencePiece is not written", made->name());
    const OrderedJson json = read_object(directory + "/tokenizer.json");
    pre = cut_of(json).names.front();
    for (const auto& [token, id] : json["model"]["vocab"].items()) tokens.set(id, token, kNormal);
    for (const OrderedJson& merge : json["model"]["merges"])
      merges.push_back(merge.is_string() ? merge.get<std::string>()
                                         : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    for (const OrderedJson& token : json.value("added_tokens", OrderedJson::array()))
      tokens.set(token["id"], token["content"], token.value("special", false) ? kControl : kUserDefined);
    if (fs::exists(directory + "/tokenizer_config.json"))
      settings =
          read_tokenizer_settings(read_object(directory + "/tokenizer_config.json"), "tokenizer_config.json");
    ends = ends_of(config, settings, tokens.texts);
  }
  add("ggml.model", GgufValue::text("gpt2"));
  add("ggml.pre", GgufValue::text(pre));
  add("ggml.tokens", GgufValue::texts(tokens.texts));
  add("ggml.token_type", GgufValue::i32s(tokens.kinds));
  add("ggml.merges", GgufValue::texts(std::move(merges)));
  const std::vector<std::int32_t> begin = made->begin_of_text();
  if (begin.size() > 1)
    throw Error("--format gguf, tokenizer.json", "must put at most one token before a text",
                std::to_string(begin.size()));
  const auto named = [&](const char* name) -> std::optional<std::int32_t> {
    const auto it = settings.tokens.find(name);
    return it == settings.tokens.end() ? std::nullopt : made->find(it->second);
  };
  // Without these ids llama.cpp would take others.
  const std::optional<std::int32_t> first = begin.empty() ? named("bos_token") : std::optional(begin.front());
  const std::int64_t end = ends.empty() ? -1 : ends.front();
  if (first)
    add("ggml.bos_token_id", GgufValue::u32(*first));
  else if (end >= 0)
    add("ggml.bos_token_id", GgufValue::u32(end));
  if (end >= 0) add("ggml.eos_token_id", GgufValue::u32(end));
  if (ends.size() > 1) add("ggml.eot_token_id", GgufValue::u32(ends[1]));
  if (ends.size() > 2)
    note("llama.cpp knows two ids that end a text; " + std::to_string(ends.size() - 2) +
         " more are not written");
  if (const auto pad = named("pad_token")) add("ggml.padding_token_id", GgufValue::u32(*pad));
  add("ggml.add_bos_token", GgufValue::flag(!begin.empty()));
  if (fs::exists(directory + "/chat_template.jinja"))
    add("chat_template", GgufValue::text(read_file(directory + "/chat_template.jinja",
                                                   "'" + directory + "/chat_template.jinja'")));
  return metadata;
}

}  // namespace meshloom::trainer

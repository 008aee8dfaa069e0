#include "trainer/interop/tokenizer_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "hal/error.h"
#include "trainer/data/jsonl/chat_format.h"
#include "trainer/data/jsonl/jsonl_files.h"
#include "trainer/data/tokenizer/tokenizer_settings.h"
#include "trainer/io/atomic_file.h"
#include "trainer/io/file.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;
using Ids = std::vector<std::int64_t>;

constexpr int kDepth = 32;
constexpr const char* kSettings = "tokenizer_config.json";
constexpr const char* kTokensMap = "special_tokens_map.json";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kTemplate = "chat_template.jinja";

std::string place(const std::string& directory, const char* name) {
  return "'" + directory + "/" + name + "'";
}

// Reads a JSON object from a file; null when there is no such file. Throws Error for all else.
OrderedJson read_object(const std::string& directory, const char* name) {
  if (!fs::exists(directory + "/" + name)) return {};
  const std::string where = place(directory, name);
  OrderedJson json = parse_ordered_json(read_file(directory + "/" + name, where), where, "the file", kDepth);
  if (!json.is_object()) throw Error(where, "must be a JSON object", shown_json(json));
  return json;
}

// The eos_token_id of a file: one id, a list of ids, or none.
template <typename AnyJson>
std::optional<Ids> eos_ids(const AnyJson& json, const std::string& where) {
  const auto field = json.find("eos_token_id");
  if (field == json.end() || field->is_null()) return {};
  Ids ids;
  const auto add = [&](const AnyJson& one) {
    std::int64_t id = 0;
    if (!natural(one, id) || id > INT32_MAX)
      throw Error(where + ", field eos_token_id", "must be an id or a list of ids", shown_json(*field));
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  if (!field->is_array())
    add(*field);
  else
    for (const auto& one : *field) add(one);
  if (ids.empty()) return {};
  return ids;
}

OrderedJson to_json(const Ids& ids) { return ids.size() == 1 ? OrderedJson(ids.front()) : OrderedJson(ids); }
std::string listed(const Ids& ids) { return fmt::format("[{}]", fmt::join(ids, ", ")); }

bool contains(const Ids& ids, std::int64_t id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }
bool contains(const Ids& ids, const Ids& others) {
  return std::all_of(others.begin(), others.end(), [&](std::int64_t id) { return contains(ids, id); });
}

// The ids at which transformers' generate ends; empty when no file says.
Ids model_ends(const std::string& from, const nlohmann::json& config, const Note& note) {
  const OrderedJson generation = read_object(from, kGeneration);
  const std::string config_where = place(from, "config.json"), where = place(from, kGeneration);
  const std::optional<Ids> of_config = eos_ids(config, config_where);
  if (generation.is_null()) return of_config.value_or(Ids{});
  const std::optional<Ids> ids = eos_ids(generation, where);
  if (!ids && of_config)
    note(fmt::format(
        "{} has no eos_token_id, so transformers' generate would never end; that of config.json, {}, is "
        "taken",
        where, listed(*of_config)));
  if (ids && of_config && !contains(*ids, *of_config))
    note(fmt::format(
        "eos_token_id is {} in generation_config.json and {} in config.json; the first is used, as by "
        "transformers' generate",
        listed(*ids), listed(*of_config)));
  return ids ? *ids : of_config.value_or(Ids{});
}

// Reads tokenizer_config.json, and special_tokens_map.json when the former does not list the added tokens, as
// transformers does.
OrderedJson settings_of(const std::string& from) {
  OrderedJson settings = read_object(from, kSettings);
  if (!settings.is_null() && settings.contains("added_tokens_decoder")) return settings;
  const OrderedJson map = read_object(from, kTokensMap);
  for (const auto& [name, value] : map.items()) settings[name] = value;
  return settings;
}

// Sets the recipe's end-of-text tokens from the files.
void read_ends(TokenizerConfig& config, const TokenizerSettings& settings, Ids ids, std::int64_t vocabulary,
               const Note& note) {
  std::erase_if(ids, [&](std::int64_t id) {
    if (id < vocabulary) return false;
    note(fmt::format("eos_token_id {} is outside of the model's vocabulary of {} and is ignored", id,
                     vocabulary));
    return true;
  });
  const std::unique_ptr<Tokenizer> tokenizer = config.make();
  const auto named = settings.tokens.find("eos_token");
  std::optional<std::int32_t> end;
  if (named != settings.tokens.end()) {
    end = tokenizer->find(named->second);
    if (end)
      config.end_of_text = named->second;
    else
      note(fmt::format("the tokenizer's eos_token {} is not one of its tokens and is ignored",
                       shown(named->second)));
  }
  if (!end && !ids.empty())
    if (const std::string token = tokenizer->token(static_cast<std::int32_t>(ids.front())); !token.empty()) {
      end = static_cast<std::int32_t>(ids.front());
      config.end_of_text = token;
    }
  if (end && !ids.empty() && !contains(ids, *end))
    note(fmt::format(
        "the tokenizer's eos_token is {} ({}), which is not among the model's eos_token_id {}: generation "
        "ends at the latter; training targets end with the former, which training adds to the latter",
        shown(tokenizer->token(*end)), *end, listed(ids)));
  if (ids.empty() && end) ids = {*end};
  config.eos_token_ids = ids;
  if (const std::string text = note_of_guess(config, *config.make()); !text.empty())
    note(text);
  else if (ids.empty() && !tokenizer->end_of_text())
    note("no file says which token ends a text; generation continues up to its limit");
}

// Whether the first token of a word at a text's beginning has a space, as byte-level BPE and SentencePiece write it.
bool puts_space_before(const Tokenizer& tokenizer) {
  const std::vector<std::int32_t> ids = tokenizer.encode_part("a");
  const std::string first = ids.empty() ? "" : tokenizer.token(ids.front());
  return first.starts_with("\u0120") || first.starts_with("\u2581");
}

// The tokenizer without the end-of-text tokens; Bytes when there is no tokenizer file.
layers::Child<TokenizerConfig> tokens_of(const std::string& from, const TokenizerSettings& settings,
                                         const Note& note) {
  if (fs::exists(from + "/tokenizer.json")) {
    TokenizerJsonConfig config;
    config.path = from + "/tokenizer.json";
    const std::unique_ptr<Tokenizer> tokenizer = config.make();
    const bool begins = !tokenizer->begin_of_text().empty();
    if (settings.add_bos_token && *settings.add_bos_token != begins)
      note(fmt::format(
          "tokenizer_config.json says add_bos_token = {}, but tokenizer.json {} a token before a text; the "
          "latter is used, as in transformers 5",
          *settings.add_bos_token, begins ? "adds" : "does not add"));
    if (const bool space = puts_space_before(*tokenizer);
        settings.add_prefix_space && *settings.add_prefix_space != space)
      note(fmt::format(
          "tokenizer_config.json says add_prefix_space = {}, which some classes of transformers follow, but "
          "tokenizer.json {} a space before a text; the latter is used",
          *settings.add_prefix_space, space ? "puts" : "does not put"));
    if (settings.split_special_tokens)
      note(
          "tokenizer_config.json says split_special_tokens = true, which is not built: special tokens are "
          "found in texts");
    return config;
  }
  if (fs::exists(from + "/tokenizer.model")) {
    SentencePieceConfig config;
    config.model = from + "/tokenizer.model";
    config.begin_of_text = settings.add_bos_token.value_or(false);
    if (settings.add_eos_token)
      note(
          "tokenizer_config.json says add_eos_token = true, which is not built: only training puts a token "
          "behind a text");
    return config;
  }
  note("'" + from + "' has no tokenizer.json or tokenizer.model; the recipe uses bytes as tokens");
  return BytesConfig{};
}

// Special tokens should be added tokens, which are found in texts: transformers adds them to the tokenizer.
void check_special(const TokenizerSettings& settings, const Tokenizer& tokenizer, const Note& note) {
  for (const auto& [name, token] : settings.tokens) {
    const auto id = tokenizer.find(token);
    if (id && tokenizer.is_added(*id)) continue;
    if (name != "bos_token" && name != "eos_token") continue;
    note(fmt::format("the tokenizer's {} {} is no added token, so it is not found in texts as one token",
                     name, shown(token)));
  }
}

// For an unlimited length transformers writes 10^30, which is too large for integers here; an absent field
// means the same.
void drop_endless_length(OrderedJson& settings) {
  const auto length = settings.find("model_max_length");
  if (length != settings.end() && length->is_number_float() && length->get<double>() > 1e18)
    settings.erase(length);
}

void write_json(const std::string& directory, const std::string& name, const OrderedJson& json) {
  write_new_file(directory, name, json.dump(2) + "\n");
}

// The end-of-text ids of the exported model. Those of the checkpoint have precedence over those of `like`.
Ids written_ends(const TokenizerConfig& config, const Tokenizer& tokenizer, const std::string& like,
                 const Note& note) {
  Ids ids;
  for (const std::int32_t id : ends_of(config, tokenizer)) ids.push_back(id);
  if (like.empty()) return ids;
  std::optional<Ids> others = eos_ids(read_object(like, kGeneration), place(like, kGeneration));
  if (!others) others = eos_ids(read_object(like, "config.json"), place(like, "config.json"));
  if (!others) return ids;
  if (config.eos_token_ids.empty() && !contains(ids, *others)) {
    // The checkpoint is of an older version that did not store these ids, so neither is certain.
    Ids both = ids;
    for (const std::int64_t id : *others)
      if (!contains(both, id)) both.push_back(id);
    note(fmt::format(
        "the checkpoint has no ids that end generation and --like has eos_token_id {}; {} is written",
        listed(*others), listed(both)));
    return both;
  }
  if (!contains(ids, *others) || !contains(*others, ids))
    note(fmt::format("--like has eos_token_id {}; that of the checkpoint, {}, is written", listed(*others),
                     listed(ids)));
  return ids;
}

// The Jinja template of the recipe's conversations; "" = the recipe has none.
std::string written_template(const InputConfig& input, const Tokenizer& tokenizer) {
  const auto* jsonl = dynamic_cast<const JsonlFilesConfig*>(&input);
  if (jsonl && jsonl->chat_template == std::string(kRolesFormat))
    return roles_template(tokenizer, jsonl->end_of_text);
  if (!input.tokenizer->chat_template) return "";
  return read_file(*input.tokenizer->chat_template, "'" + *input.tokenizer->chat_template + "'");
}

// The tokenizer_config.json of --like, or else of the checkpoint. Without either, a minimal one that makes
// transformers use tokenizer.json as it is, instead of converting it to the tokenizer class of the model's
// family.
OrderedJson written_settings(const TokenizerConfig& config, const Tokenizer& tokenizer,
                             const std::string& like) {
  if (!like.empty())
    if (OrderedJson settings = read_object(like, kSettings); !settings.is_null()) return settings;
  if (config.config) {
    const std::string where = "'" + *config.config + "'";
    return parse_ordered_json(read_file(*config.config, where), where, "the file", kDepth);
  }
  OrderedJson settings = OrderedJson::object();
  if (dynamic_cast<const TokenizerJsonConfig*>(&config))
    settings["tokenizer_class"] = "PreTrainedTokenizerFast";
  if (const auto begin = tokenizer.begin_of_text(); !begin.empty())
    settings["bos_token"] = tokenizer.token(begin.front());
  if (const auto end = tokenizer.end_of_text()) settings["eos_token"] = tokenizer.token(*end);
  settings["clean_up_tokenization_spaces"] = false;
  return settings;
}

}  // namespace

ImportedTokenizer read_tokenizer_files(const std::string& from, const nlohmann::json& config,
                                       std::int64_t vocabulary, const Note& note) {
  OrderedJson json = settings_of(from);
  TokenizerSettings settings;
  if (!json.is_null()) settings = read_tokenizer_settings(json, place(from, kSettings));
  ImportedTokenizer imported{tokens_of(from, settings, note), {}};
  TokenizerConfig& tokenizer = *imported.config;
  if (!tokenizer.has_files()) return imported;
  if (const auto made = tokenizer.make(); made->vocabulary() > vocabulary)
    note(fmt::format("tokenizer {} has {} ids, the model a vocabulary of {}: train will refuse it",
                     made->name(), made->vocabulary(), vocabulary));
  read_ends(tokenizer, settings, model_ends(from, config, note), vocabulary, note);
  check_special(settings, *tokenizer.make(), note);

  // A separate file has precedence over tokenizer_config.json, as in transformers.
  std::optional<std::string> source = settings.chat_template;
  if (fs::exists(from + "/" + kTemplate)) source = read_file(from + "/" + kTemplate, place(from, kTemplate));
  if (!settings.other_templates.empty())
    note(fmt::format("only the default chat template is imported, not {}",
                     fmt::join(settings.other_templates, ", ")));
  if (fs::is_directory(from + "/additional_chat_templates"))
    note("only the default chat template is imported, not those in additional_chat_templates");
  if (source) {
    tokenizer.chat_template = kTemplate;
    imported.files[kTemplate] = *source;
  }
  if (!json.is_null()) {
    json.erase("chat_template");
    drop_endless_length(json);
    tokenizer.config = kSettings;
    imported.files[kSettings] = json.dump(2) + "\n";
  }
  return imported;
}

void write_tokenizer_files(const InputConfig& input, const std::string& like, const std::string& directory,
                           OrderedJson& config, const Note& note) {
  layers::Child<TokenizerConfig> tokens = input.tokenizer;
  if (!tokens->has_files()) {
    note("transformers has no file format for the recipe's tokenizer, " + std::string(tokens->class_name()) +
         "; none was written");
    if (!like.empty())
      for (const char* name : {kSettings, kTokensMap, kGeneration, kTemplate})
        if (fs::exists(like + "/" + name))
          write_new_file(directory, name, read_file(like + "/" + name, place(like, name)));
    return;
  }
  const std::unique_ptr<Tokenizer> tokenizer = tokens->make();
  if (const std::string text = note_of_guess(*tokens, *tokenizer); !text.empty()) note(text);
  const TokenizerConfig::File file = tokens->files().front();
  write_new_file(directory, file.name, read_file(**file.path, "'" + **file.path + "'"));

  // Without these ids transformers would use those of the family.
  const Ids ends = written_ends(*tokens, *tokenizer, like, note);
  const std::vector<std::int32_t> begin = tokenizer->begin_of_text();
  config["eos_token_id"] = ends.empty() ? OrderedJson(nullptr) : to_json(ends);
  if (!config.contains("bos_token_id"))
    config["bos_token_id"] = begin.size() == 1 ? OrderedJson(begin.front()) : OrderedJson(nullptr);
  OrderedJson generation = like.empty() ? OrderedJson() : read_object(like, kGeneration);
  if (generation.is_null()) generation = OrderedJson{{"bos_token_id", config["bos_token_id"]}};
  generation["eos_token_id"] = config["eos_token_id"];
  write_json(directory, kGeneration, generation);

  OrderedJson settings = written_settings(*tokens, *tokenizer, like);
  const TokenizerSettings said = read_tokenizer_settings(settings, kSettings);
  if (const auto end = said.tokens.find("eos_token");
      tokens->end_of_text && end != said.tokens.end() && end->second != *tokens->end_of_text) {
    note(fmt::format("tokenizer_config.json{} has eos_token {}; that of the checkpoint, {}, is written",
                     like.empty() ? "" : " of --like", shown(end->second), shown(*tokens->end_of_text)));
    settings["eos_token"] = *tokens->end_of_text;
  }
  const std::string source = written_template(input, *tokenizer);
  std::optional<std::string> other = said.chat_template;
  if (!like.empty() && fs::exists(like + "/" + kTemplate))
    other = read_file(like + "/" + kTemplate, place(like, kTemplate));
  if (!source.empty()) {
    if (other && *other != source)
      note("--like has another chat template; that of the checkpoint is written");
    settings.erase("chat_template");
    write_new_file(directory, kTemplate, source);
  } else if (other) {
    settings.erase("chat_template");
    write_new_file(directory, kTemplate, *other);
  }
  drop_endless_length(settings);
  write_json(directory, kSettings, settings);
  if (OrderedJson map = like.empty() ? OrderedJson() : read_object(like, kTokensMap); !map.is_null()) {
    if (tokens->end_of_text) map["eos_token"] = *tokens->end_of_text;
    write_json(directory, kTokensMap, map);
  }
}

}  // namespace meshloom::trainer

#include "trainer/serve/request_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "hal/error.h"
#include "trainer/inference/grammar/gbnf_grammar.h"
#include "trainer/inference/grammar/json_grammar.h"
#include "trainer/inference/grammar/json_schema.h"
#include "trainer/inference/grammar/json_schema_grammar.h"
#include "trainer/inference/grammar/regex_grammar.h"
#include "trainer/io/json.h"
#include "trainer/serve/api_error.h"

namespace meshloom::trainer {
namespace {

// A grammar that a field asks for.
struct AskedGrammar {
  std::string field, key;
  std::function<SharedGrammar()> compile;
};

std::string text_value(const RequestJson& value, const std::string& field) {
  if (!value.is_string()) refuse_field(field, "must be text", shown_value(value));
  return value.get<std::string>();
}

// A schema, or the text of one.
AskedGrammar asked_schema(const RequestJson& value, const std::string& field) {
  RequestJson schema = value;
  if (value.is_string()) {
    try {
      schema = parse_ordered_json(value.get_ref<const std::string&>(), field, "the text",
                                  2 * JsonSchema::kDepth + 8);
    } catch (const Error& error) {
      refuse_field(field, "must be a JSON schema", error.rule());
    }
  }
  if (!schema.is_object() && !schema.is_boolean())
    refuse_field(field, "must be a JSON schema", shown_value(schema));
  return {field, "json " + schema.dump(), [schema] { return grammar_of_json_schema(schema); }};
}

AskedGrammar asked_choice(const RequestJson& value, const std::string& field) {
  if (!value.is_array()) refuse_field(field, "must be a list of texts", shown_value(value));
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < value.size(); ++i)
    texts.push_back(text_value(value[i], fmt::format("{}[{}]", field, i)));
  return {field, "choice " + value.dump(), [texts] { return grammar_of_choice(texts); }};
}

AskedGrammar asked_text(const char* kind, const RequestJson& value, const std::string& field,
                        SharedGrammar (*compile)(std::string_view)) {
  const std::string text = text_value(value, field);
  return {field, std::string(kind) + " " + text, [=] { return compile(text); }};
}

AskedGrammar asked_object(const std::string& field) { return {field, "json_object", grammar_of_json_object}; }

void add_response_format(RequestFields& fields, std::vector<AskedGrammar>& asked) {
  const std::string name = "response_format";
  const RequestJson* format = fields.find(name);
  if (!format) return;
  if (!format->is_object()) refuse_field(name, "must be an object", shown_value(*format));
  RequestFields inner(*format, name + ".");
  const std::string type = inner.text("type").value_or("");
  if (type == "text") return;
  if (type == "json_object") return asked.push_back(asked_object(name));
  if (type != "json_schema")
    refuse_field(name + ".type", "must be 'text', 'json_object' or 'json_schema'",
                 type.empty() ? "none" : shown(type));
  const RequestJson* described = inner.find("json_schema");
  if (!described || !described->is_object())
    refuse_field(name + ".json_schema", "must be an object with a schema",
                 described ? shown_value(*described) : "none");
  RequestFields schema(*described, name + ".json_schema.");
  schema.text("name");
  schema.text("description");
  schema.boolean("strict");  // every text is held to the schema
  const RequestJson* value = schema.find("schema");
  if (!value) refuse_field(name + ".json_schema.schema", "must be a JSON schema", "none");
  if (const auto unknown = schema.unknown(); !unknown.empty()) refuse_field(unknown[0], "is not known");
  asked.push_back(asked_schema(*value, name + ".json_schema.schema"));
}

// The fields of structured_outputs, which as guided_* stand in the request itself.
void add_fields(RequestFields& fields, const std::string& prefix, std::vector<AskedGrammar>& asked) {
  if (const RequestJson* json = fields.find(prefix + "json"))
    asked.push_back(asked_schema(*json, fields.path(prefix + "json")));
  if (const RequestJson* regex = fields.find(prefix + "regex"))
    asked.push_back(asked_text("regex", *regex, fields.path(prefix + "regex"), grammar_of_regex));
  if (const RequestJson* choice = fields.find(prefix + "choice"))
    asked.push_back(asked_choice(*choice, fields.path(prefix + "choice")));
  if (const RequestJson* grammar = fields.find(prefix + "grammar"))
    asked.push_back(asked_text("grammar", *grammar, fields.path(prefix + "grammar"), grammar_of_gbnf));
  if (fields.boolean(prefix + "json_object").value_or(false))
    asked.push_back(asked_object(fields.path(prefix + "json_object")));
  fields.not_built(prefix + "whitespace_pattern", {""});
}

}  // namespace

std::shared_ptr<TokenMasks> GrammarCache::find(const std::string& key,
                                               const std::function<SharedGrammar()>& compile) {
  const auto found =
      std::find_if(kept_.begin(), kept_.end(), [&](const auto& each) { return each.first == key; });
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
    return kept_.front().second;
  }
  SharedGrammar grammar = compile();
  if (!table_) table_ = token_table(tokenizer_, vocabulary_);
  kept_.emplace_front(key, std::make_shared<TokenMasks>(std::move(grammar), table_));
  if (kept_.size() > kKept) kept_.pop_back();
  return kept_.front().second;
}

std::shared_ptr<TokenMasks> grammar_of_request(RequestFields& fields, GrammarCache& cache) {
  std::vector<AskedGrammar> asked;
  add_response_format(fields, asked);
  add_fields(fields, "guided_", asked);
  if (const RequestJson* outputs = fields.find("structured_outputs")) {
    if (!outputs->is_object()) refuse_field("structured_outputs", "must be an object", shown_value(*outputs));
    RequestFields inner(*outputs, "structured_outputs.");
    add_fields(inner, "", asked);
    if (const auto unknown = inner.unknown(); !unknown.empty())
      refuse_field(unknown[0], "is not built here, so it must be left out");
  }
  if (asked.empty()) return {};
  if (asked.size() > 1) refuse_field(asked[1].field, "must be left out beside " + asked[0].field);
  try {
    return cache.find(asked[0].key, asked[0].compile);
  } catch (const Error& error) {
    throw ApiError(400, fmt::format("{} is not taken: {}", asked[0].field, error.what()), asked[0].field);
  }
}

}  // namespace meshloom::trainer

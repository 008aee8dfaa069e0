#include "trainer/serve/tools/tool_syntax.h"

#include <algorithm>

#include "hal/error.h"
#include "trainer/inference/grammar/json_schema_grammar.h"
#include "trainer/io/json.h"

namespace meshloom::trainer {
namespace {

using SchemaJson = nlohmann::ordered_json;

// The same schema for nothing but objects, as arguments are.
SchemaJson schema_of_object(const SchemaJson& given, const std::string& field) {
  if (given.is_null()) return {{"type", "object"}};
  SchemaJson schema = given;
  if (!schema.is_object()) throw Error(field, "must be a JSON schema", shown_json(given));
  if (const auto type = schema.find("type"); type != schema.end()) {
    const bool object = *type == "object" ||
                        (type->is_array() && std::find(type->begin(), type->end(), "object") != type->end());
    if (!object) throw Error(field, "must be a schema of an object", shown_json(*type));
  }
  schema["type"] = "object";
  return schema;
}

}  // namespace

const std::vector<ToolSyntax>& tool_syntaxes() {
  static const std::vector<ToolSyntax> kTable{
      // Hermes, Qwen 2.5 and 3. Templates with the same marker and another form inside are those of Qwen 3 Coder and GLM.
      {.name = "hermes",
       .with = {"<tool_call>"},
       .with_any = {},
       .without = {"<function=", "<arg_key>"},
       .open = "<tool_call>",
       .line = "\n",
       .close = "</tool_call>",
       .arguments = "arguments",
       .several = true},
      // Mistral up to its tokenizer of version 7; later templates write [TOOL_CALLS]NAME[ARGS]{...}.
      {.name = "mistral",
       .with = {"[TOOL_CALLS]"},
       .with_any = {},
       .without = {"[ARGS]"},
       .open = "[TOOL_CALLS]",
       .line = {},
       .close = {},
       .arguments = "arguments",
       .list = true,
       .several = true,
       .short_ids = true},
      {.name = "llama",
       .with = {"\"parameters\""},
       .with_any = {"<|python_tag|>", "ipython"},
       .without = {},
       .open = {},
       .line = {},
       .close = {},
       .arguments = "parameters"},
  };
  return kTable;
}

const ToolSyntax& plain_tool_syntax() {
  static const ToolSyntax kPlain{.name = "json",
                                 .with = {},
                                 .with_any = {},
                                 .without = {},
                                 .open = {},
                                 .line = {},
                                 .close = {},
                                 .arguments = "arguments"};
  return kPlain;
}

const ToolSyntax* tool_syntax_of(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != std::string_view::npos; };
  for (const ToolSyntax& row : tool_syntaxes())
    if (std::all_of(row.with.begin(), row.with.end(), has) &&
        (row.with_any.empty() || std::any_of(row.with_any.begin(), row.with_any.end(), has)) &&
        std::none_of(row.without.begin(), row.without.end(), has))
      return &row;
  return nullptr;
}

SharedGrammar grammar_of_calls(const ToolSyntax& syntax, const std::vector<ToolFunction>& functions,
                               bool several) {
  using State = GrammarBuilder::State;
  GrammarBuilder builder("tools");
  JsonGrammar json(builder);
  std::size_t work = 0;
  // A call is a rule, as it stands twice where there may be several. Up to the name all are alike, which keeps the grammar's
  // alternatives few.
  const auto rule = builder.add_rule("call");
  const auto colon = [&](State s) {
    return builder.optional(builder.literal(s, ":"),
                            [&](State space) { return builder.literal(space, " "); });
  };
  std::vector<GrammarBuilder::Part> calls;
  for (const ToolFunction& function : functions)
    calls.emplace_back([&](State s) {
      const SchemaJson schema = schema_of_object(function.parameters, function.field);
      s = json.space(builder.literal(builder.literal(s, json_text(function.name)), ","));
      s = colon(builder.literal(s, json_text(syntax.arguments)));
      try {
        return append_json_schema(builder, json, s, schema, work);
      } catch (const Error& error) {
        throw Error(function.field, "must be a schema that is taken", error.what());
      }
    });
  State inside = json.space(builder.literal(builder.begin(rule), "{"));
  inside = json.space(builder.any_of(colon(builder.literal(inside, "\"name\"")), calls));
  builder.empty(builder.literal(inside, "}"), builder.end(rule));

  const auto text = builder.add_rule("calls");
  const auto call = [&](State s) { return builder.called(s, rule); };
  State at = builder.begin(text);
  const bool more = several && syntax.several;
  if (syntax.list) {
    at = builder.literal(at, syntax.open);
    at = builder.optional(at, [&](State s) { return builder.literal(s, " "); });
    at = json.array(at, {}, call, 1, more ? GrammarBuilder::kNoBound : 1);
  } else {
    const auto marked = [&](State s) {
      s = call(builder.literal(builder.literal(s, syntax.open), syntax.line));
      return builder.literal(builder.literal(s, syntax.line), syntax.close);
    };
    at = marked(at);
    if (more)
      at = builder.repeat(at, 0, GrammarBuilder::kNoBound,
                          [&](State s) { return marked(builder.literal(s, "\n")); });
  }
  builder.empty(at, builder.end(text));
  return builder.build(text);
}

}  // namespace meshloom::trainer

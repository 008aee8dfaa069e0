#include "trainer/serve/tools/tool_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "hal/error.h"
#include "trainer/io/json.h"
#include "trainer/serve/api_error.h"
#include "trainer/serve/marked_tokenizer.h"

namespace meshloom::trainer {
namespace {

constexpr std::size_t kMaxTools = 128, kNameBytes = 64;
constexpr std::size_t kSchemaBytes = 256 << 10;  // of all functions, as grammars are kept by them
constexpr int kArgumentsDepth = 64;

void check_name(const std::string& name, const std::string& field) {
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  if (name.empty() || name.size() > kNameBytes || !plain)
    refuse_field(field, fmt::format("must be 1 to {} of the characters a-z, A-Z, 0-9, _ and -", kNameBytes),
                 shown(name));
}

// An object of the type "function" with a member of that name.
RequestFields function_of(const RequestJson& value, const std::string& field,
                          std::vector<std::string>& ignored) {
  if (!value.is_object()) refuse_field(field, "must be an object", shown_value(value));
  RequestFields fields(value, field + ".");
  const auto type = fields.text("type");
  if (type != "function")
    refuse_field(field + ".type", "must be 'function', as no other is built", type ? shown(*type) : "none");
  const RequestJson* function = fields.find("function");
  if (!function || !function->is_object())
    refuse_field(field + ".function", "must be an object", function ? shown_value(*function) : "none");
  for (std::string& name : fields.unknown()) ignored.push_back(field + "." + name);
  return RequestFields(*function, field + ".function.");
}

std::string name_of(RequestFields& function) {
  const auto name = function.text("name");
  if (!name) refuse_field(function.path("name"), "must be text", "none");
  check_name(*name, function.path("name"));
  return *name;
}

std::vector<ToolFunction> functions_of(const RequestJson* tools, std::vector<std::string>& ignored) {
  std::vector<ToolFunction> functions;
  if (!tools) return functions;
  if (!tools->is_array()) refuse_field("tools", "must be a list of tools", shown_value(*tools));
  if (tools->size() > kMaxTools)
    refuse_field("tools", fmt::format("must be at most {}", kMaxTools), std::to_string(tools->size()));
  for (std::size_t i = 0; i < tools->size(); ++i) {
    RequestFields function = function_of((*tools)[i], fmt::format("tools[{}]", i), ignored);
    // A function without parameters has an empty list of them, by OpenAI's reference.
    ToolFunction made{name_of(function),
                      function.path("parameters"),
                      {{"type", "object"}, {"properties", RequestJson::object()}}};
    const auto same =
        std::find_if(functions.begin(), functions.end(), [&](const auto& f) { return f.name == made.name; });
    if (same != functions.end())
      refuse_field(function.path("name"), "must be another than those of the tools before", shown(made.name));
    function.text("description");
    function.boolean("strict");  // the arguments of calls that must be are always held to the schema
    if (const RequestJson* parameters = function.find("parameters")) {
      if (!parameters->is_object())
        refuse_field(made.field, "must be a JSON schema", shown_value(*parameters));
      made.parameters = *parameters;
    }
    for (const std::string& name : function.unknown()) ignored.push_back(function.path(name));
    functions.push_back(std::move(made));
  }
  return functions;
}

// "none", "auto", "required", or a function's name behind "=".
std::string choice_of(const RequestJson* choice, const std::vector<ToolFunction>& functions,
                      std::vector<std::string>& ignored) {
  const std::string field = "tool_choice";
  if (!choice) return functions.empty() ? "none" : "auto";
  std::string chosen;
  if (choice->is_string()) {
    chosen = choice->get<std::string>();
    if (chosen != "none" && chosen != "auto" && chosen != "required")
      refuse_field(field, "must be 'none', 'auto', 'required' or a function", shown(chosen));
  } else {
    RequestFields function = function_of(*choice, field, ignored);
    const std::string name = name_of(function);
    for (const std::string& other : function.unknown()) ignored.push_back(function.path(other));
    if (!functions.empty() &&
        std::none_of(functions.begin(), functions.end(), [&](const auto& f) { return f.name == name; }))
      refuse_field(function.path("name"), "must be the name of one of the tools", shown(name));
    chosen = "=" + name;
  }
  if (functions.empty() && chosen != "none" && chosen != "auto")
    refuse_field(field, "must be 'none' or 'auto' where there are no tools", shown_value(*choice));
  return functions.empty() ? "none" : chosen;
}

std::shared_ptr<TokenMasks> grammar_of_tools(const ToolSyntax& syntax,
                                             const std::vector<ToolFunction>& functions, bool several,
                                             GrammarCache& cache) {
  std::string key = fmt::format("tools {} {}", syntax.name, several);
  for (const ToolFunction& function : functions)
    key += fmt::format(" {} {}", function.name, function.parameters.dump());
  if (key.size() > kSchemaBytes)
    refuse_field("tools", fmt::format("must have parameters of at most {} bytes together", kSchemaBytes),
                 std::to_string(key.size()));
  try {
    return cache.find(key, [&] { return grammar_of_calls(syntax, functions, several); });
  } catch (const Error& error) {
    const std::string field = error.where().starts_with("tools[") ? error.where() : "tools";
    throw ApiError(400, error.what(), field);
  }
}

}  // namespace

ServedTools::ServedTools(const ServedModel& model, GrammarCache& grammars)
    : model_(model), grammars_(grammars) {
  if (!model.chat) return;
  syntax_ = tool_syntax_of(model.chat->template_text());
  if (!syntax_) return;
  const std::array<std::string_view, 2> marks{syntax_->open, syntax_->close};
  std::vector<std::int32_t> hidden = hidden_tokens(*model.tokenizer, marks);
  if (hidden.empty()) return;
  tokenizer_ = std::make_unique<MarkedTokenizer>(*model.tokenizer, std::move(hidden));
  own_grammars_ = std::make_unique<GrammarCache>(*tokenizer_, model.engine->vocabulary());
}

AskedTools tools_of_request(RequestFields& fields, const ServedModel& model, bool form,
                            std::vector<std::string>& ignored) {
  AskedTools asked;
  const RequestJson* tools = fields.find("tools");
  std::vector<ToolFunction> functions = functions_of(tools, ignored);
  const std::string choice = choice_of(fields.find("tool_choice"), functions, ignored);
  asked.several = fields.boolean("parallel_tool_calls").value_or(true);
  if (choice == "none") return asked;
  if (!model.chat) return asked;  // which the messages are refused for
  if (!model.chat->takes_tools())
    throw ApiError(400, "tools must be left out, as this model's chat template does not take tools", "tools");
  asked.shown = *tools;
  asked.syntax = model.tools->syntax();
  const bool must = choice != "auto";
  if (!must) {
    if (!asked.syntax)
      throw ApiError(
          400,
          "tool_choice must be 'none', 'required' or a function, as it is not known how this model's "
          "chat template writes calls",
          "tool_choice");
    if (form) asked.syntax = nullptr;
  } else if (form) {
    refuse_field("tool_choice", "must be 'none' or 'auto' where the text is held to another form",
                 choice == "required" ? "'required'" : "a function");
  }
  if (!asked.syntax && !form) asked.syntax = &plain_tool_syntax();
  if (choice.starts_with("="))
    std::erase_if(functions, [&](const ToolFunction& each) { return "=" + each.name != choice; });
  for (const ToolFunction& each : functions) asked.functions.push_back(each.name);
  if (must)
    asked.grammar = grammar_of_tools(*asked.syntax, functions, asked.several, model.tools->grammars());
  return asked;
}

std::size_t read_calls_of_message(RequestJson& message, const std::string& field, const ServedModel& model) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || calls->is_null()) return 0;
  const std::string list = field + ".tool_calls";
  if (!calls->is_array()) refuse_field(list, "must be a list of calls", shown_value(*calls));
  if (!calls->empty() && model.chat && model.chat->built_in())
    refuse_field(list, "must be left out, as this model's chat template does not take tools");
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < calls->size(); ++i) {
    RequestJson& call = (*calls)[i];
    const std::string here = fmt::format("{}[{}]", list, i);
    const auto function = call.is_object() ? call.find("function") : call.end();
    if (!call.is_object() || function == call.end() || !function->is_object())
      refuse_field(here, "must be an object with a function", shown_value(call));
    const auto name = function->find("name");
    if (name == function->end() || !name->is_string())
      refuse_field(here + ".function.name", "must be text",
                   name == function->end() ? "none" : shown_value(*name));
    const auto arguments = function->find("arguments");
    if (arguments == function->end() || !arguments->is_string()) continue;
    const std::string text = arguments->get<std::string>();
    bytes += text.size();
    try {
      RequestJson parsed = parse_ordered_json(text, here, "arguments", kArgumentsDepth);
      if (parsed.is_object()) *arguments = std::move(parsed);
    } catch (const Error&) {  // the template gets the text
    }
  }
  return bytes;
}

}  // namespace meshloom::trainer

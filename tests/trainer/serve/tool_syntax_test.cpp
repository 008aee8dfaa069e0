// The syntaxes in which models call tools: whose templates they are, what a grammar of each allows, and what is read as a call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "tests/trainer/run/binary.h"
#include "trainer/data/tokenizer/tokenizer_json.h"
#include "trainer/inference/grammar/token_table.h"
#include "trainer/inference/text_stream.h"
#include "trainer/serve/marked_tokenizer.h"
#include "trainer/serve/tools/tool_reader.h"
#include "trainer/serve/tools/tool_syntax.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using trainer::ToolFunction;
using trainer::ToolReader;
using trainer::ToolSyntax;
using OrderedJson = nlohmann::ordered_json;

const ToolSyntax& syntax(const std::string& name) {
  for (const ToolSyntax& row : trainer::tool_syntaxes())
    if (row.name == name) return row;
  return trainer::plain_tool_syntax();
}

TEST(ToolSyntax, IsThatOfTheTemplate) {
  const auto name = [](const char* text) -> std::string {
    const ToolSyntax* row = trainer::tool_syntax_of(text);
    return row ? std::string(row->name) : "none";
  };
  EXPECT_EQ(name("in <tool_call></tool_call> XML tags: <tool_call>\\n{\"name\": "), "hermes");
  EXPECT_EQ(name("{{- '\"parameters\": ' }} Environment: ipython"), "llama");
  EXPECT_EQ(name("\"parameters\" <|python_tag|>"), "llama");
  EXPECT_EQ(name("\"parameters\""), "none");
  EXPECT_EQ(name("{{ '[TOOL_CALLS] [' }}"), "mistral");
  EXPECT_EQ(name("{{ '[TOOL_CALLS]' + name + '[ARGS]' }}"), "none");
  EXPECT_EQ(name("<tool_call>\n<function=example>"), "none");
  EXPECT_EQ(name("<tool_call>{name}\n<arg_key>"), "none");
  EXPECT_EQ(name("{{ messages }}"), "none");
  EXPECT_EQ(name(""), "none");
}

const std::vector<ToolFunction> kFunctions{
    {"add", "tools[0].function.parameters",
     OrderedJson::parse(R"({"type":"object","properties":{"a":{"$ref":"#/$defs/n"}},"required":["a"],
                     "$defs":{"n":{"type":"integer"}}})")},
    {"add_all", "tools[1].function.parameters",
     OrderedJson::parse(R"({"properties":{"s":{"type":"string"}}})")},
    {"free", "tools[2].function.parameters", nullptr}};

struct Taken {
  std::string text;
  bool one, several;  // by the grammar of one call, and of more
};

TEST(ToolSyntax, GrammarsOfCalls) {
  const std::string add = R"({"name": "add", "arguments": {"a": 3}})",
                    all = R"({"name":"add_all","arguments":{}})",
                    any = R"({"name": "free", "arguments": {"x": [1, {}]}})";
  const auto marked = [](const std::string& call) { return "<tool_call>\n" + call + "\n</tool_call>"; };
  const auto llama = [](std::string call) { return call.replace(call.find("arguments"), 9, "parameters"); };
  const std::vector<std::pair<std::string, std::vector<Taken>>> all_cases{
      {"hermes",
       {{marked(add), true, true},
        {marked(all), true, true},
        {marked(any), true, true},
        {marked(add) + "\n" + marked(any), false, true},
        {marked(R"({"name": "add", "arguments": {"a": "3"}})"), false, false},
        {marked(R"({"name": "add", "arguments": {}})"), false, false},
        {marked(R"({"name": "add_all", "arguments": {"a": 3}})"), false, false},
        {marked(R"({"name": "ad", "arguments": {}})"), false, false},
        {marked(R"({"name": "free", "arguments": []})"), false, false},
        {marked(R"({"name": "free"})"), false, false},
        {add, false, false},
        {"", false, false}}},
      {"mistral",
       {{"[TOOL_CALLS][" + add + "]", true, true},
        {"[TOOL_CALLS] [" + all + "]", true, true},
        {"[TOOL_CALLS][" + add + ", " + any + "]", false, true},
        {"[TOOL_CALLS][]", false, false},
        {"[TOOL_CALLS]" + add, false, false}}},
      {"llama",
       {{llama(add), true, true}, {llama(add) + "\n" + llama(any), false, false}, {add, false, false}}},
      {"json", {{add, true, true}, {add + "\n" + add, false, false}, {llama(add), false, false}}}};
  for (const auto& [name, cases] : all_cases) {
    const auto one = grammar_of_calls(syntax(name), kFunctions, false),
               several = grammar_of_calls(syntax(name), kFunctions, true);
    for (const Taken& each : cases) {
      EXPECT_EQ(one->accepts(each.text), each.one) << name << " " << each.text;
      EXPECT_EQ(several->accepts(each.text), each.several) << name << " " << each.text;
      if (!each.several) continue;
      ToolReader reader(syntax(name), {"add", "add_all", "free"}, SIZE_MAX);
      ToolReader::Part part = reader.add(each.text);
      const ToolReader::Part rest = reader.finish();
      EXPECT_EQ(part.text + rest.text, "") << each.text;
      EXPECT_GE(part.calls.size() + rest.calls.size(), each.one ? 1u : 2u) << each.text;
    }
  }
}

TEST(ToolSyntax, ManyFunctionsOfOneBeginning) {
  std::vector<ToolFunction> functions;
  for (int i = 0; i < 128; ++i)
    functions.push_back(
        {"function_" + std::to_string(i), "tools", OrderedJson::parse(R"({"properties":{"a":{}}})")});
  const auto grammar = grammar_of_calls(syntax("hermes"), functions, true);
  for (const char* name : {"function_1", "function_12", "function_127"})
    EXPECT_TRUE(grammar->accepts("<tool_call>\n{\"name\": \"" + std::string(name) +
                                 "\", \"arguments\": {\"a\": [1]}}\n</tool_call>"));
  EXPECT_FALSE(
      grammar->accepts("<tool_call>\n{\"name\": \"function_128\", \"arguments\": {}}\n</tool_call>"));
}

TEST(ToolSyntax, ParametersThatAreNotTaken) {
  const auto error = [](const char* schema) -> std::string {
    try {
      grammar_of_calls(syntax("hermes"), {{"f", "tools[7].function.parameters", OrderedJson::parse(schema)}},
                       true);
    } catch (const Error& found) {
      return found.what();
    }
    return "taken";
  };
  EXPECT_EQ(error(R"({"type":["object","null"]})"), "taken");
  for (const char* schema : {R"({"type":"string"})", R"({"type":["null"]})",
                             R"({"properties":{"a":{"not":{}}}})", R"({"$ref":"#/$defs/x"})", "[]"})
    EXPECT_THAT(error(schema), HasSubstr("tools[7].function.parameters")) << schema;
  EXPECT_THAT(error(R"({"properties":{"a":{"not":{}}}})"), HasSubstr("#/properties/a/not"));
}

// One schema is within the limit of work, many are not.
TEST(ToolSyntax, SchemasShareTheirLimit) {
  OrderedJson schema{{"type", "object"}, {"$ref", "#/$defs/d0"}};
  for (int i = 0; i < 9; ++i) {
    const OrderedJson next{{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
    schema["$defs"]["d" + std::to_string(i)] = OrderedJson{{"allOf", OrderedJson::array({next, next, next})}};
  }
  schema["$defs"]["d9"] = OrderedJson{{"type", "object"}};
  std::vector<ToolFunction> functions;
  const auto add = [&] {
    functions.push_back(
        {"f" + std::to_string(functions.size()), "tools[" + std::to_string(functions.size()) + "]", schema});
  };
  add();
  EXPECT_TRUE(grammar_of_calls(syntax("llama"), functions, true));
  while (functions.size() < 128) add();
  EXPECT_THROW(grammar_of_calls(syntax("llama"), functions, true), Error);
}

struct Read {
  std::string syntax, text, content;
  std::vector<std::string> calls;  // NAME and arguments
};

ToolReader::Part read_in_parts(const Read& read, std::size_t bytes) {
  ToolReader reader(syntax(read.syntax), {"f", "g"}, SIZE_MAX);
  ToolReader::Part all;
  const auto add = [&](ToolReader::Part part) {
    all.text += part.text;
    for (auto& call : part.calls) all.calls.push_back(std::move(call));
  };
  for (std::size_t at = 0; at < read.text.size(); at += bytes) add(reader.add(read.text.substr(at, bytes)));
  add(reader.finish());
  return all;
}

TEST(ToolReader, FindsCallsHoweverTheTextComes) {
  const std::string f = R"({"name": "f", "arguments": {"a": 1}})", g = R"({"arguments": {}, "name": "g"})",
                    h = R"({"name": "h", "arguments": {}})";
  const std::string open = "<tool_call>\n", close = "\n</tool_call>";
  const std::vector<Read> cases{
      {"hermes", "no call", "no call", {}},
      {"hermes", " a < b <tool <tool_cal \n", " a < b <tool <tool_cal \n", {}},
      {"hermes", open + f + close, "", {R"(f{"a":1})"}},
      {"hermes",
       "Let me see.\n\n" + open + f + close + "\n" + open + g + close + "\n",
       "Let me see.",
       {R"(f{"a":1})", "g{}"}},
      {"hermes", "<tool_call>" + g + "</tool_call>", "", {"g{}"}},
      {"hermes", open + f, "", {R"(f{"a":1})"}},
      {"hermes", open + f + "\n</tool_", "", {R"(f{"a":1})"}},
      {"hermes", open + f + " more" + close, open + f + " more" + close, {}},
      {"hermes", open + h + close + "\n" + open + g + close, open + h + close, {"g{}"}},
      {"hermes",
       open + "{\"name\": \"f" + close + open + g + close,
       open + "{\"name\": \"f" + close,
       {"g{}"}},
      {"hermes",
       open + R"({"name": "f", "arguments": "text"})" + close,
       open + R"({"name": "f", "arguments": "text"})" + close,
       {}},
      {"hermes",
       open + R"({"name": "f", "arguments": {"s": "</tool_call>} \" {"}})" + close,
       "",
       {R"(f{"s":"</tool_call>} \" {"})"}},
      {"hermes", open + open + g + close, "<tool_call>", {"g{}"}},
      {"hermes", open + g + close + " and then", "and then", {"g{}"}},
      {"hermes", open, open, {}},
      {"hermes", open + "[1]" + close, open + "[1]" + close, {}},
      {"hermes", open + "{]" + close, open + "{]" + close, {}},
      {"mistral", "[TOOL_CALLS] [" + f + ", " + g + "]", "", {R"(f{"a":1})", "g{}"}},
      {"mistral", "Well [TOOL_CALLS][" + g + "]\n", "Well", {"g{}"}},
      {"mistral", "[TOOL_CALLS][" + f + ", " + h + "]", "[TOOL_CALLS][" + f + ", " + h + "]", {}},
      {"mistral", "[TOOL_CALLS]" + f, "[TOOL_CALLS]" + f, {}},
      {"mistral", "[TOOL_CALLS][" + f, "[TOOL_CALLS][" + f, {}},
      {"mistral", "[TOOL_CALLS][]", "[TOOL_CALLS][]", {}},
      {"llama", R"( {"name": "g", "parameters": {"x": [1.5, null]}} )", "", {R"(g{"x":[1.5,null]})"}},
      {"llama", R"(Call {"name": "g", "parameters": {}})", R"(Call {"name": "g", "parameters": {}})", {}},
      {"llama", R"({"name": "g", "parameters": {}} so)", R"({"name": "g", "parameters": {}} so)", {}},
      {"llama", f, f, {}},
      {"llama", "", "", {}},
      {"llama", " \n", " \n", {}},
      {"json", f, "", {R"(f{"a":1})"}},
      {"json", h, h, {}}};
  for (const Read& each : cases)
    for (std::size_t bytes : {1, 2, 3, 7, 1000}) {
      const ToolReader::Part all = read_in_parts(each, bytes);
      std::vector<std::string> calls;
      for (const auto& call : all.calls) calls.push_back(call.name + call.arguments);
      EXPECT_EQ(all.text, each.content) << each.text << " by " << bytes;
      EXPECT_EQ(calls, each.calls) << each.text << " by " << bytes;
    }
}

TEST(ToolReader, GivesTextAndCallsAsSoonAsTheyAreCertain) {
  ToolReader reader(syntax("hermes"), {"f"}, 1);
  EXPECT_EQ(reader.add("a <").text, "a");
  EXPECT_EQ(reader.add("b").text, " <b");
  EXPECT_EQ(reader.add(" <tool_call").text, "");
  EXPECT_EQ(reader.add("ed>").text, " <tool_called>");
  EXPECT_EQ(reader.add("\n<tool_call>{\"name\":\"f\",\"arguments\":{}}").calls.size(), 0u);
  EXPECT_EQ(reader.add("</tool_call>").calls.size(), 1u);
  const ToolReader::Part second = reader.add("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>");
  EXPECT_TRUE(second.calls.empty()) << "no more than one";
  EXPECT_EQ(second.text, "");
}

// A special token has no text; as the mark of calls it must be seen, and a grammar must be able to write it.
TEST(MarkedTokenizer, ShowsTheMarksOfCalls) {
  const Scratch scratch;
  OrderedJson json = OrderedJson::parse(
      read_text(std::string(MESHLOOM_SOURCE_DIR) + "/tests/trainer/interop/tokenizers/gpt2.json"));
  const auto tokenizer = [&](bool special) {
    OrderedJson& mark = json["added_tokens"].back();
    mark["content"] = "[TOOL_CALLS]";
    mark["special"] = special;
    return trainer::tokenizer_json(scratch.file("tokenizer.json", json.dump()), false);
  };
  const std::vector<std::string_view> marks{"[TOOL_CALLS]", "", "<none>"};
  EXPECT_TRUE(trainer::hidden_tokens(*tokenizer(false), marks).empty());
  const auto plain = tokenizer(true);
  const std::vector<std::int32_t> hidden = trainer::hidden_tokens(*plain, marks);
  ASSERT_EQ(hidden.size(), 1u);
  const trainer::MarkedTokenizer marked(*plain, hidden);
  const std::vector<std::int32_t> ids = plain->encode_with_offsets("one[TOOL_CALLS][{}]", {}).ids;
  EXPECT_EQ(plain->decode(ids), "one[{}]");
  EXPECT_EQ(marked.decode(ids), "one[TOOL_CALLS][{}]");
  EXPECT_EQ(marked.decode({}), "");
  trainer::TextStream stream(marked);
  std::string text;
  for (const std::int32_t id : ids) text += stream.add(id);
  EXPECT_EQ(text + stream.finish(), "one[TOOL_CALLS][{}]");
  EXPECT_EQ(token_table(*plain, plain->vocabulary())->bytes(hidden[0]), "");
  EXPECT_EQ(token_table(marked, marked.vocabulary())->bytes(hidden[0]), "[TOOL_CALLS]");
}

}  // namespace
}  // namespace meshloom::tests

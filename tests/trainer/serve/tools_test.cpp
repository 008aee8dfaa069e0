// Calls of tools over HTTP, before an engine that says what a test wants, and from end to end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/trainer/run/binary.h"
#include "tests/trainer/serve/scripted_engine.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

const std::string kPath = "/v1/chat/completions";
// Say which tools there are, and write calls and results as the models of a syntax do.
const std::string kHermes =
    "{%- if tools %}tools:{% for tool in tools %} {{ tool | tojson }}{% endfor %}\n{% endif %}"
    "{%- for message in messages %}{{ message.role }}: {{ message.content or '' }}"
    "{%- for call in message.tool_calls or [] %}"
    "<tool_call>\n{\"name\": \"{{ call.function.name }}\", \"arguments\": {{ call.function.arguments | "
    "tojson "
    "}}}\n</tool_call>"
    "{%- endfor %}{{ '\n' }}{% endfor %}{%- if add_generation_prompt %}assistant: {% endif %}";
const std::string kMistral = "{{ tools | length if tools }}{{ messages | length }}[TOOL_CALLS]";
const std::string kLlama = "{{ tools | length if tools }}{{ messages | length }}\"parameters\" ipython";
const std::string kOther = "{{ tools | length if tools }}{{ messages | length }}";
const std::string kNone = "{{ messages | length }} <tool_call>";

const std::string kTools =
    R"("tools":[{"type":"function","function":{"name":"add","description":"Adds.","strict":true,"parameters":
       {"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}},
       {"type":"function","function":{"name":"now"}}])";
const std::string kAdd = R"({"name": "add", "arguments": {"a": 3}})";
const std::string kCalled = "<tool_call>\n" + kAdd + "\n</tool_call>";

class Tools : public testing::Test {
 protected:
  ScriptedServer::TemplateFile file(const std::string& text) const {
    return {scratch_.file("template.jinja", text)};
  }
  static std::string body(const std::string& fields) {
    return R"({"messages":[{"role":"user","content":"u"}],)" + fields + "}";
  }
  static Json answer(const ScriptedServer& server, const std::string& fields) {
    const Answer got = server.post(kPath, body(fields));
    EXPECT_EQ(got.status, 200) << got.body;
    EXPECT_EQ(got.header("x-meshloom-ignored"), "");
    const Json json = Json::parse(got.body, nullptr, false);
    return got.status == 200 ? json["choices"][0] : Json();
  }
  static std::string prompt(const ScriptedServer& server) {
    const trainer::Request request = server.engine.requests().back();
    return {request.prompt.begin(), request.prompt.end()};
  }
  // Whether the grammar of the last request has this text, and can end there.
  static bool allows(const ScriptedServer& server, const std::string& text) {
    trainer::TokenConstraint* constraint = server.engine.requests().back().constraint.get();
    if (!constraint) return false;
    const auto allowed = [&](unsigned char byte) {
      return (constraint->allowed()[byte / 64] >> (byte % 64) & 1) != 0;
    };
    for (const char c : text) {
      if (!allowed(static_cast<unsigned char>(c))) return false;
      constraint->accept(static_cast<unsigned char>(c));
    }
    return constraint->ended() || allowed(0);
  }

  Scratch scratch_;
};

TEST_F(Tools, ACallOfTheModelsOwnAccord) {
  ScriptedServer server(file(kHermes));
  server.engine.say("Let me see.\n" + kCalled);
  Json choice = answer(server, kTools);
  EXPECT_THAT(prompt(server),
              testing::StartsWith(R"(tools: {"type": "function", "function": {"name": "add", "desc)"));
  EXPECT_FALSE(server.engine.requests().back().constraint) << "the text is free";
  const std::string id = choice["message"]["tool_calls"][0]["id"];
  EXPECT_TRUE(std::regex_match(id, std::regex("call_[0-9a-f]{24}"))) << id;
  choice["message"]["tool_calls"][0].erase("id");
  EXPECT_EQ(choice,
            Json::parse(R"({"index":0,"message":{"role":"assistant","content":"Let me see.","refusal":null,
      "tool_calls":[{"type":"function","function":{"name":"add","arguments":"{\"a\":3}"}}]},
      "logprobs":null,"finish_reason":"tool_calls"})"));
  server.engine.say("no call");
  choice = answer(server, kTools);
  EXPECT_EQ(choice["message"], Json::parse(R"({"role":"assistant","content":"no call","refusal":null})"));
  EXPECT_EQ(choice["finish_reason"], "stop");
  server.engine.say(kCalled);
  choice = answer(server, kTools + R"(,"logprobs":true)");
  EXPECT_EQ(choice["message"]["content"], nullptr);
  EXPECT_EQ(choice["logprobs"]["content"].size(), kCalled.size());
  EXPECT_NE(choice["message"]["tool_calls"][0]["id"], id);
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("finished_reason=\"stop\"} 3"));
}

TEST_F(Tools, SeveralCallsOrOne) {
  ScriptedServer server(file(kHermes));
  const std::string other = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  server.engine.say(kCalled + "\n" + other);
  EXPECT_EQ(answer(server, kTools)["message"]["tool_calls"].size(), 2u);
  EXPECT_EQ(answer(server, kTools + R"(,"parallel_tool_calls":false)")["message"]["tool_calls"].size(), 1u);
  answer(server, kTools + R"(,"tool_choice":"required")");
  EXPECT_TRUE(allows(server, kCalled + "\n" + other));
  answer(server, kTools + R"(,"tool_choice":"required","parallel_tool_calls":false)");
  EXPECT_FALSE(allows(server, kCalled + "\n" + other));
}

TEST_F(Tools, WhatIsCutOffSaysSo) {
  ScriptedServer server(file(kHermes));
  server.engine.say(kCalled + kCalled);
  Json choice = answer(server, kTools + ",\"max_tokens\":" + std::to_string(kCalled.size() + 20));
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  EXPECT_EQ(choice["message"]["content"], "<tool_call>\n{\"name\":");
  EXPECT_EQ(choice["finish_reason"], "length");
  server.engine.say(kCalled + " END");
  choice = answer(server, kTools + R"(,"stop":"END")");
  EXPECT_EQ(choice["message"]["content"], nullptr);
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
}

TEST_F(Tools, ChoicesNoneRequiredAndOfAFunction) {
  ScriptedServer server(file(kHermes));
  server.engine.say(kCalled);
  Json choice = answer(server, kTools + R"(,"tool_choice":"none")");
  EXPECT_EQ(prompt(server), "user: u\nassistant: ");
  EXPECT_EQ(choice["message"]["content"], kCalled);
  EXPECT_EQ(choice["finish_reason"], "stop");
  const auto now = [](const char* arguments) {
    return std::string("<tool_call>\n{\"name\": \"now\", \"arguments\": ") + arguments + "}\n</tool_call>";
  };
  for (const auto& [tool_choice, add_allowed, now_allowed] :
       {std::tuple{R"("required")", true, true},
        {R"({"type":"function","function":{"name":"add"}})", true, false},
        {R"({"type":"function","function":{"name":"now"}})", false, true}}) {
    const std::string fields = kTools + ",\"tool_choice\":" + tool_choice;
    choice = answer(server, fields);
    EXPECT_EQ(choice["finish_reason"], add_allowed ? "tool_calls" : "stop");
    EXPECT_EQ(choice["message"].contains("tool_calls"), add_allowed);
    EXPECT_EQ(allows(server, kCalled), add_allowed) << tool_choice;
    answer(server, fields);
    EXPECT_EQ(allows(server, now("{}")), now_allowed) << tool_choice;
    answer(server, fields);
    EXPECT_FALSE(allows(server, now("{\"any\": 1}"))) << "it has no parameters";
    answer(server, fields);
    EXPECT_FALSE(allows(server, now("3")));
    EXPECT_THAT(prompt(server), HasSubstr("\"now\"")) << "the template says all tools";
  }
}

TEST_F(Tools, OtherSyntaxes) {
  struct Syntax {
    std::string chat_template, text;
    bool free;  // calls are found in free text too
  };
  const std::string llama = R"({"name": "add", "parameters": {"a": 3}})";
  for (const Syntax& each : {Syntax{kMistral, "[TOOL_CALLS][" + kAdd + "]", true},
                             Syntax{kLlama, llama, true}, Syntax{kOther, kAdd, false}}) {
    ScriptedServer server(file(each.chat_template));
    server.engine.say(each.text);
    for (const char* choice : {"auto", "required"}) {
      if (choice == std::string("auto") && !each.free) continue;
      const Json found = answer(server, kTools + ",\"tool_choice\":\"" + choice + "\"");
      ASSERT_EQ(found["message"]["tool_calls"].size(), 1u) << each.text;
      EXPECT_EQ(found["message"]["tool_calls"][0]["function"]["arguments"], R"({"a":3})");
      EXPECT_EQ(found["finish_reason"], "tool_calls");
      const std::string id = found["message"]["tool_calls"][0]["id"];
      EXPECT_EQ(id.size(), each.chat_template == kMistral ? 9u : 29u) << id;
    }
    EXPECT_TRUE(allows(server, each.text)) << each.text;
  }
}

TEST_F(Tools, AStream) {
  ScriptedServer server(file(kHermes));
  server.engine.say("See: < " + kCalled + "\n" + kCalled);
  const Answer got =
      server.post(kPath, body(kTools + R"(,"stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_TRUE(got.whole);
  std::string text;
  std::vector<Json> calls, reasons;
  std::size_t text_parts = 0;
  const std::vector<std::string> events = got.events();
  ASSERT_EQ(events.back(), "[DONE]");
  for (std::size_t i = 0; i + 2 < events.size(); ++i) {
    const Json choice = Json::parse(events[i])["choices"][0];
    if (choice["delta"].contains("content") && choice["delta"]["content"] != "") {
      EXPECT_TRUE(calls.empty()) << "the text comes first";
      text += choice["delta"]["content"];
      ++text_parts;
    }
    if (choice["delta"].contains("tool_calls")) {
      ASSERT_EQ(choice["delta"]["tool_calls"].size(), 1u);
      calls.push_back(choice["delta"]["tool_calls"][0]);
    }
    if (!choice["finish_reason"].is_null()) reasons.push_back(choice["finish_reason"]);
  }
  EXPECT_EQ(text, "See: <");
  EXPECT_GE(text_parts, 4u) << "it is sent while it comes";
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(calls[i]["index"], i);
    calls[i].erase("id");
    calls[i].erase("index");
    EXPECT_EQ(calls[i],
              Json::parse(R"({"type":"function","function":{"name":"add","arguments":"{\"a\":3}"}})"));
  }
  EXPECT_EQ(reasons, std::vector<Json>{"tool_calls"});
  EXPECT_EQ(Json::parse(events[events.size() - 2])["usage"]["completion_tokens"], 8 + 2 * kCalled.size() + 1);
}

TEST_F(Tools, CallsAndResultsInMessages) {
  ScriptedServer server(file(kHermes));
  const auto conversation = [](const std::string& arguments) {
    return R"({"messages":[{"role":"user","content":"u"},{"role":"assistant","content":null,"tool_calls":[
      {"id":"call_1","type":"function","function":{"name":"add","arguments":)" +
           arguments + R"(}}]},{"role":"tool","tool_call_id":"call_1","content":"4"}]})";
  };
  EXPECT_EQ(server.post(kPath, conversation(R"("{\"a\": [1]}")")).status, 200);
  EXPECT_EQ(prompt(server),
            "user: u\nassistant: <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": [1]}}\n"
            "</tool_call>\ntool: 4\nassistant: ");
  for (const char* text : {R"("{a")", R"("3")", R"("{\"a\":1,\"a\":2}")"}) {
    EXPECT_EQ(server.post(kPath, conversation(text)).status, 200);
    EXPECT_THAT(prompt(server), HasSubstr(std::string("\"arguments\": ") + text + "}")) << "not an object";
  }
}

TEST_F(Tools, AFormBesideTools) {
  ScriptedServer server(file(kLlama));
  server.engine.say(R"({"name": "now", "parameters": {}})");
  const Json choice = answer(server, kTools + R"(,"response_format":{"type":"json_object"})");
  EXPECT_EQ(choice["message"]["content"], R"({"name": "now", "parameters": {}})") << "the form was asked for";
  EXPECT_EQ(choice["finish_reason"], "stop");
}

TEST_F(Tools, WhatIsRefused) {
  const std::string one = R"({"type":"function","function":{"name":"f"}})";
  const auto tools = [](const std::string& list) { return "\"tools\":[" + list + "]"; };
  const auto function = [&](const std::string& fields) {
    return tools(R"({"type":"function","function":{)" + fields + "}}");
  };
  std::string many;
  for (int i = 0; i < 129; ++i)
    many += (i ? "," : "") + std::string(R"({"type":"function","function":{"name":"f)") + std::to_string(i) +
            "\"}}";
  struct Bad {
    std::string fields, param, message;
  };
  const std::vector<Bad> cases{
      {"\"tools\":{}", "tools", "must be a list"},
      {tools("3"), "tools[0]", "must be an object"},
      {tools(many), "tools", "at most 128; found 129"},
      {tools(R"({"function":{"name":"f"}})"), "tools[0].type", "must be 'function'"},
      {tools(R"({"type":"web_search"})"), "tools[0].type", "no other is built; found 'web_search'"},
      {tools(R"({"type":"function"})"), "tools[0].function", "must be an object; found none"},
      {tools(one + R"(,{"type":"function","function":{}})"), "tools[1].function.name", "must be text"},
      {function(R"("name":3)"), "tools[0].function.name", "must be text"},
      {function(R"("name":"")"), "tools[0].function.name", "1 to 64"},
      {function(R"("name":"a b")"), "tools[0].function.name", "1 to 64"},
      {function("\"name\":\"" + std::string(65, 'a') + "\""), "tools[0].function.name", "1 to 64"},
      {tools(one + "," + one), "tools[1].function.name", "another than"},
      {function(R"("name":"f","description":3)"), "tools[0].function.description", "must be text"},
      {function(R"("name":"f","strict":3)"), "tools[0].function.strict", "true or false"},
      {function(R"("name":"f","parameters":[])"), "tools[0].function.parameters", "must be a JSON schema"},
      {function(R"("name":"f","parameters":{"type":"string"})") + R"(,"tool_choice":"required")",
       "tools[0].function.parameters", "must be a schema of an object"},
      {function(R"("name":"f","parameters":{"properties":{"a":{"not":{}}}})") +
           R"(,"tool_choice":"required")",
       "tools[0].function.parameters", "#/properties/a/not"},
      {function("\"name\":\"f\",\"parameters\":{\"title\":\"" + std::string(300'000, 'a') + "\"}") +
           R"(,"tool_choice":"required")",
       "tools", "262144 bytes together"},
      {tools(one) + R"(,"tool_choice":"maybe")", "tool_choice", "found 'maybe'"},
      {tools(one) + R"(,"tool_choice":3)", "tool_choice", "must be an object"},
      {tools(one) + R"(,"tool_choice":{"type":"custom"})", "tool_choice.type", "must be 'function'"},
      {tools(one) + R"(,"tool_choice":{"type":"function"})", "tool_choice.function", "must be an object"},
      {tools(one) + R"(,"tool_choice":{"type":"function","function":{}})", "tool_choice.function.name",
       "must be text"},
      {tools(one) + R"(,"tool_choice":{"type":"function","function":{"name":"g"}})",
       "tool_choice.function.name", "one of the tools; found 'g'"},
      {R"("tool_choice":"required")", "tool_choice", "where there are no tools"},
      {R"("tools":[],"tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice",
       "where there are no tools"},
      {tools(one) + R"(,"parallel_tool_calls":1)", "parallel_tool_calls", "true or false"},
      {tools(one) + R"(,"tool_choice":"required","guided_regex":"a")", "tool_choice", "another form"},
      {tools(one) + R"(,"tool_choice":"required","response_format":{"type":"json_object"})", "tool_choice",
       "another form"},
      {R"("functions":[{}])", "functions", "not built"},
      {R"("function_call":{"name":"f"})", "function_call", "not built"}};
  const auto refused = [&](ScriptedServer& server, const std::string& text, const Bad& bad) {
    const Answer got = server.post(kPath, text);
    EXPECT_EQ(got.status, 400) << text.substr(0, 300) << got.body;
    const Json error = Json::parse(got.body, nullptr, false)["error"];
    EXPECT_EQ(error["param"], bad.param) << text.substr(0, 300) << got.body;
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(bad.message)) << text.substr(0, 300);
  };
  ScriptedServer server(file(kHermes));
  for (const Bad& bad : cases) refused(server, body(bad.fields), bad);
  const auto messages = [](const std::string& calls) {
    return R"({"messages":[{"role":"assistant","tool_calls":)" + calls + "}]}";
  };
  refused(server, messages("3"), {"", "messages[0].tool_calls", "must be a list"});
  refused(server, messages("[3]"), {"", "messages[0].tool_calls[0]", "object with a function"});
  refused(server, messages("[{}]"), {"", "messages[0].tool_calls[0]", "object with a function"});
  refused(server, messages(R"([{"function":{}}])"), {"", "messages[0].tool_calls[0].function.name", "text"});
  ScriptedServer without(file(kNone));
  refused(without, body(tools(one)), {"", "tools", "chat template does not take tools"});
  EXPECT_EQ(without.post(kPath, body(tools(one) + R"(,"tool_choice":"none")")).status, 200);
  ScriptedServer other(file(kOther));
  refused(other, body(tools(one)),
          {"", "tool_choice", "it is not known how this model's chat template writes calls"});
  EXPECT_EQ(server.engine.requests().size() + other.engine.requests().size(), 0u);
}

}  // namespace
}  // namespace meshloom::tests

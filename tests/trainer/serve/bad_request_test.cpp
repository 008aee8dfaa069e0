// What is wrong with a request is told in one error that names the field, the rule and what was found; and whatever comes, the
// server still answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kernels/core/rng.h"
#include "tests/trainer/serve/scripted_engine.h"

namespace meshloom::tests {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

struct BadRequest {
  std::string body, param, message;  // a part of it
};

void expect_refused(ScriptedServer& server, const std::string& path, const std::vector<BadRequest>& cases,
                    int status = 400) {
  for (const BadRequest& bad : cases) {
    const Answer answer = server.post(path, bad.body);
    const std::string shown = bad.body.substr(0, 200);
    EXPECT_EQ(answer.status, status) << shown << answer.body;
    const Json json = Json::parse(answer.body, nullptr, false);
    ASSERT_TRUE(json.is_object() && json.contains("error")) << shown << answer.body;
    EXPECT_EQ(json["error"]["param"], bad.param.empty() ? Json() : Json(bad.param)) << shown << answer.body;
    EXPECT_THAT(json["error"]["message"].get<std::string>(), HasSubstr(bad.message)) << shown;
    EXPECT_LT(answer.body.size(), 1000u) << shown;
  }
  EXPECT_TRUE(server.engine.requests().empty());
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(BadRequest, Bodies) {
  ScriptedServer server;
  const std::vector<BadRequest> cases{
      {"", "", "must be JSON"},
      {"{", "", "must be JSON"},
      {"[1]", "", "must be a JSON object"},
      {"3", "", "must be a JSON object"},
      {R"({"prompt":"a"} x)", "", "must be JSON"},
      {R"({"prompt":"a","prompt":"b"})", "", "once"},
      {R"({"prompt":NaN})", "", "must be JSON"},
      {R"({"prompt":"a","temperature":1e999})", "", "must be JSON"},
      {"{\"prompt\":\"a\xff\"}", "", "found byte 0xff at 12"},
      {"{\"prompt\":\"a\xc0\x80\"}", "", "found byte 0xc0 at 12"},
      {"{\"prompt\":" + repeated("[", 64) + repeated("]", 64) + "}", "", "must not nest deeper than 64"},
      {repeated("{\"a\":", 200'000), "", "must not nest deeper than 64"},
  };
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"})
    expect_refused(server, path, cases);
}

TEST(BadRequest, FieldsOfBoth) {
  ScriptedServer server;
  const auto with = [](const std::string& field) {
    return R"({"prompt":"a","messages":[{"role":"user","content":"u"}],)" + field + "}";
  };
  std::vector<BadRequest> cases{
      {with(R"("model":3)"), "model", "must be text"},
      {with(R"("n":0)"), "n", "from 1 to 16; found '0'"},
      {with(R"("n":17)"), "n", "from 1 to 16"},
      {with(R"("n":1.5)"), "n", "integer"},
      {with(R"("n":"1")"), "n", "integer"},
      {with(R"("max_tokens":-1)"), "max_tokens", "integer"},
      {with(R"("max_tokens":9223372036854775808)"), "max_tokens", "2^63"},
      {with(R"("max_tokens":9223372036854775807)"), "*", "at most 200 tokens together"},
      {with(R"("max_tokens":1e308)"), "max_tokens", "integer"},
      {with(R"("temperature":-0.1)"), "temperature", "[0, 2]"},
      {with(R"("temperature":1e308)"), "temperature", "[0, 2]; found '1e+308'"},
      {with(R"("temperature":"hot")"), "temperature", "number"},
      {with(R"("temperature":true)"), "temperature", "number"},
      {with(R"("top_p":0)"), "top_p", "(0, 1]"},
      {with(R"("top_p":1.01)"), "top_p", "(0, 1]"},
      {with(R"("top_k":-2)"), "top_k", "integer"},
      {with(R"("top_k":9223372036854775808)"), "top_k", "integer"},
      {with(R"("min_p":2)"), "min_p", "[0, 1]"},
      {with(R"("repetition_penalty":0)"), "repetition_penalty", "(0, 10]"},
      {with(R"("presence_penalty":3)"), "presence_penalty", "[-2, 2]"},
      {with(R"("frequency_penalty":-1e308)"), "frequency_penalty", "[-2, 2]"},
      {with(R"("seed":-1)"), "seed", "integer"},
      {with(R"("seed":9223372036854775808)"), "seed", "integer"},
      {with(R"("seed":1.0)"), "seed", "integer"},
      {with(R"("stop":3)"), "stop", "text"},
      {with(R"("stop":"")"), "stop", "1 to 256 bytes; found 0"},
      {with(R"("stop":[")" + std::string(257, 'a') + "\"]"), "stop[0]", "1 to 256 bytes; found 257"},
      {with(R"("stop":["a",2])"), "stop[1]", "text"},
      {with(R"("stop":[)" + repeated("\"a\",", 16) + "\"a\"]"), "stop", "at most 16 texts; found 17"},
      {with(R"("logit_bias":[1])"), "logit_bias", "object"},
      {with(R"("logit_bias":{"256":1})"), "logit_bias", "[0, 256); found '256'"},
      {with(R"("logit_bias":{"-1":1})"), "logit_bias", "token ids"},
      {with(R"("logit_bias":{"1x":1})"), "logit_bias", "token ids"},
      {with(R"("logit_bias":{"":1})"), "logit_bias", "token ids"},
      {with(R"("logit_bias":{"99999999999999999999":1})"), "logit_bias", "token ids"},
      {with(R"("logit_bias":{"1":101})"), "logit_bias", "[-100, 100]"},
      {with(R"("logit_bias":{"1":"a"})"), "logit_bias", "[-100, 100]"},
      {with(R"("ignore_eos":1)"), "ignore_eos", "true or false"},
      {with(R"("stream":"yes")"), "stream", "true or false"},
      {with(R"("stream_options":{"include_usage":true})"), "stream_options", "stream is false"},
      {with(R"("stream":true,"stream_options":[])"), "stream_options", "object"},
      {with(R"("stream":true,"stream_options":{"include_usage":1})"), "stream_options.include_usage",
       "true or false"},
      {with(R"("user":5)"), "user", "text"},
      {with(R"("best_of":2)"), "best_of", "not built"},
      {with(R"("response_format":"json")"), "response_format", "must be an object"},
      {with(R"("response_format":{})"), "response_format.type", "'json_schema'; found none"},
      {with(R"("response_format":{"type":"structural_tag"})"), "response_format.type",
       "found 'structural_tag'"},
      {with(R"("response_format":{"type":"json_schema"})"), "response_format.json_schema", "found none"},
      {with(R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})"),
       "response_format.json_schema.schema", "must be a JSON schema"},
      {with(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":1,"schema":{}}})"),
       "response_format.json_schema.strict", "true or false"},
      {with(
           R"("response_format":{"type":"json_schema","json_schema":{"schema":{"properties":{"a":{"not":{}}}}}})"),
       "response_format.json_schema.schema", "#/properties/a/not: is a keyword that is not built here"},
      {with(R"("guided_json":3)"), "guided_json", "must be a JSON schema"},
      {with(R"("guided_json":"{")"), "guided_json", "must be a JSON schema"},
      {with(R"("guided_json":{"type":"object","minProperties":1})"), "guided_json", "#/minProperties"},
      {with(R"("guided_regex":3)"), "guided_regex", "must be text"},
      {with(R"x("guided_regex":"a(?=b)")x"), "guided_regex", "lookaheads are not taken"},
      {with(R"("guided_choice":"a")"), "guided_choice", "list of texts"},
      {with(R"("guided_choice":[])"), "guided_choice", "at least one text"},
      {with(R"("guided_choice":["a",2])"), "guided_choice[1]", "must be text"},
      {with(R"("guided_grammar":"root ::= root")"), "guided_grammar", "left recursion"},
      {with(R"("guided_json_object":1)"), "guided_json_object", "true or false"},
      {with(R"("guided_whitespace_pattern":"x")"), "guided_whitespace_pattern", "not built"},
      {with(R"("guided_regex":"a","guided_choice":["b"])"), "guided_choice",
       "must be left out beside guided_regex"},
      {with(R"("guided_regex":"a","response_format":{"type":"json_object"})"), "guided_regex",
       "beside response_format"},
      {with(R"("structured_outputs":[])"), "structured_outputs", "must be an object"},
      {with(R"("structured_outputs":{"regex":"("})"), "structured_outputs.regex", "a group must be closed"},
      {with(R"("structured_outputs":{"regex":"a","choice":["a"]})"), "structured_outputs.choice",
       "beside structured_outputs.regex"},
      {with(R"("structured_outputs":{"structural_tag":"x"})"), "structured_outputs.structural_tag",
       "not built"},
      {with(R"("prompt_logprobs":1)"), "prompt_logprobs", "not built"},
      {with(R"("priority":1)"), "priority", "not built"},
      {with(R"("cache_salt":"s")"), "cache_salt", "not built"},
  };
  std::string many;
  for (int i = 0; i < 1025; ++i) many += "\"" + std::to_string(i) + "\":1,";
  many.pop_back();
  cases.push_back({with("\"logit_bias\":{" + many + "}"), "logit_bias", "at most 1024 entries; found 1025"});
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    std::vector<BadRequest> here = cases;
    for (BadRequest& bad : here)
      if (bad.param == "*") bad.param = path == std::string("/v1/completions") ? "prompt" : "messages";
    expect_refused(server, path, here);
    expect_refused(server, path, {{with(R"("model":"other")"), "model", "must be 'test'; found 'other'"}},
                   404);
  }
}

TEST(BadRequest, Prompts) {
  ScriptedServer server;
  expect_refused(
      server, "/v1/completions",
      {{"{}", "prompt", "found none"},
       {R"({"prompt":null})", "prompt", "found none"},
       {R"({"prompt":3})", "prompt", "must be text"},
       {R"({"prompt":{}})", "prompt", "must be text"},
       {R"({"prompt":[]})", "prompt", "must be text"},
       {R"({"prompt":""})", "prompt", "at least one token"},
       {R"({"prompt":[[1],[]]})", "prompt[1]", "at least one token"},
       {R"({"prompt":["a",""]})", "prompt[1]", "at least one token"},
       {R"({"prompt":["a",[1]]})", "prompt[1]", "must be text"},
       {R"({"prompt":[[1],"a"]})", "prompt[1]", "list of token ids"},
       {R"({"prompt":[1,"a"]})", "prompt[1]", "token id"},
       {R"({"prompt":[1,256]})", "prompt[1]", "[0, 256); found '256'"},
       {R"({"prompt":[1,-1]})", "prompt[1]", "[0, 256)"},
       {R"({"prompt":[1,1.5]})", "prompt[1]", "[0, 256)"},
       {R"({"prompt":[[1],[9223372036854775808]]})", "prompt[1][0]", "[0, 256)"},
       {R"({"prompt":[true]})", "prompt[0]", "list of token ids"},
       {R"({"prompt":")" + std::string(201, 'a') + "\"}", "prompt", "at most 200 tokens"},
       {R"({"prompt":")" + std::string(190, 'a') + "\"}", "prompt", "found 190 and 16"},
       {R"({"prompt":")" + std::string(4'000'000, 'a') + "\"}", "prompt", "found a text of 4000000 bytes"},
       {R"({"prompt":[)" + repeated("\"a\",", 1024) + "\"a\"]}", "prompt", "at most 1024"},
       {R"({"n":16,"prompt":[)" + repeated("\"a\",", 64) + "\"a\"]}", "n", "at most 1024; found 1040"},
       {R"({"prompt":"a","logprobs":21})", "logprobs", "from 0 to 20"},
       {R"({"prompt":"a","logprobs":true})", "logprobs", "integer"},
       {R"({"prompt":"a","echo":1})", "echo", "true or false"},
       {R"({"prompt":"a","suffix":"b"})", "suffix", "not built"}});
}

TEST(BadRequest, Chats) {
  ScriptedServer server;
  const auto with = [](const std::string& field) {
    return R"({"messages":[{"role":"user","content":"u"}],)" + field + "}";
  };
  expect_refused(
      server, "/v1/chat/completions",
      {{"{}", "messages", "found none"},
       {R"({"messages":[]})", "messages", "at least one message"},
       {R"({"messages":"a"})", "messages", "list"},
       {R"({"messages":[3]})", "messages[0]", "object"},
       {R"({"messages":[{"content":"a"}]})", "messages", "role"},
       {R"({"messages":[{"role":3,"content":"a"}]})", "messages", "role"},
       {R"({"messages":[{"role":"user","content":3}]})", "messages[0].content", "must be text"},
       {R"({"messages":[{"role":"user"}]})", "messages", "content"},
       {R"({"messages":[{"role":"king","content":"a"}]})", "messages",
        "role must be system, user or assistant"},
       {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":"a"}]}]})",
        "messages[0].content[0]", "type text"},
       {R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "messages[0].content[0].text",
        "must be text"},
       {R"({"messages":[{"role":"user","content":")" + std::string(300, 'a') + "\"}]}", "messages",
        "at most 200 tokens"},
       {R"({"messages":[{"role":"user","content":")" + std::string(4'000'000, 'a') + "\"}]}", "messages",
        "found texts of 4000000 bytes"},
       {with(R"("max_tokens":0)"), "max_tokens", "from 1"},
       {with(R"("max_tokens":3,"max_completion_tokens":4)"), "max_tokens", "must equal"},
       {with(R"("logprobs":5)"), "logprobs", "true or false"},
       {with(R"("top_logprobs":2)"), "top_logprobs", "needs logprobs"},
       {with(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs", "from 0 to 20"},
       {with(R"("tools":[{"type":"function","function":{"name":"f"}}])"), "tools",
        "chat template does not take tools"},
       {with(R"("tool_choice":"required")"), "tool_choice", "where there are no tools"},
       {R"({"messages":[{"role":"assistant","content":"a","tool_calls":[{"function":{"name":"f"}}]}]})",
        "messages[0].tool_calls", "does not take tools"},
       {with(R"("functions":[{}])"), "functions", "not built"},
       {with(R"("modalities":["audio"])"), "modalities", "not built"},
       {with(R"("continue_final_message":true)"), "continue_final_message", "not built"}});
}

// Changes valid requests at random, in their bytes and in their values.
TEST(BadRequest, MutatedRequestsAreAnswered) {
  ScriptedServer server;
  const std::vector<std::string> seeds{
      R"({"model":"test","prompt":"abc","max_tokens":3,"temperature":0.5,"top_p":0.9,"stop":["x","y"],"logit_bias":{"1":2},"n":2,"seed":1,"logprobs":1,"echo":true})",
      R"({"prompt":[[1,2],[3]],"stream":true,"stream_options":{"include_usage":true}})",
      R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"x"},{"role":"user","content":[{"type":"text","text":"t"}]}],"logprobs":true,"top_logprobs":2,"stream":false})",
      R"({"prompt":"a","response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object","properties":{"a":{"enum":[1,"x"]}},"required":["a"]}}}})",
      R"({"messages":[{"role":"user","content":"u"}],"structured_outputs":{"regex":"[a-z]{2,5}|x+","choice":null}})",
      R"({"prompt":"a","guided_grammar":"root ::= \"a\" [b-d]* root?","guided_json_object":false})",
      R"({"messages":[{"role":"user","content":"u"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"tool_choice":"none","parallel_tool_calls":true})",
      R"({"tokens":[1,2,3],"prompt":"abc"})"};
  const std::vector<std::string> values{"null",        "-1",  "1e308",       "9223372036854775808",
                                        "\"\"",        "[]",  "{}",          "true",
                                        "[[]]",        "0",   "\"\\ud800\"", "[null]",
                                        "\"\\u0000\"", "1.5", "{\"a\":[1]}", "\"\xf0\x9f\x98\x80\""};
  const std::vector<std::string> paths{"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"};
  kernels::Rng rng(41);
  const auto pick = [&](const auto& list) {
    return list[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(list.size()) - 1))];
  };
  auto client = std::make_unique<Client>(server.port());
  int good = 0, bad = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string body = pick(seeds);
    for (std::int64_t times = rng.integer(1, 3); times > 0; --times) {
      const auto at = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(body.size()) - 1));
      switch (rng.integer(0, 3)) {
        case 0:
          body[at] = static_cast<char>(rng.integer(0, 255));
          break;
        case 1:
          body.erase(at, static_cast<std::size_t>(rng.integer(1, 5)));
          break;
        case 2:
          body.insert(at, pick(values));
          break;
        default: {  // another value for a member
          const std::size_t colon = body.find(':', at), comma = body.find(',', colon);
          if (colon != std::string::npos && comma != std::string::npos)
            body.replace(colon + 1, comma - colon - 1, pick(values));
        }
      }
      if (body.empty()) body = " ";
    }
    client->request("POST", pick(paths), body);
    const Answer answer = client->answer();
    ASSERT_TRUE(answer.whole) << body;
    ASSERT_TRUE((answer.status >= 200 && answer.status < 300) ||
                (answer.status >= 400 && answer.status < 500))
        << answer.status << " " << body << answer.body;
    answer.status == 200 ? ++good : ++bad;
  }
  EXPECT_GT(good, 100);
  EXPECT_GT(bad, 1000);
  EXPECT_EQ(server.get("/health").status, 200);
}

// Changes the bytes of the HTTP itself; the connection may end without an answer.
TEST(BadRequest, MutatedHttpIsAnswered) {
  ScriptedServer server;
  const std::string body = R"({"prompt":"abc"})";
  const std::vector<std::string> seeds{
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) +
          "\r\n\r\n" + body,
      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n" + body +
          "\r\n0\r\n\r\n",
      "GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"};
  kernels::Rng rng(43);
  for (int round = 0; round < 2000; ++round) {
    std::string text = seeds[static_cast<std::size_t>(rng.integer(0, 2))];
    for (std::int64_t times = rng.integer(1, 3); times > 0; --times) {
      const auto at = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(text.size()) - 1));
      if (rng.flip())
        text[at] = static_cast<char>(rng.integer(0, 255));
      else
        text.erase(at, static_cast<std::size_t>(rng.integer(1, 4)));
    }
    Client client(server.port());
    client.send(text);
    client.end_sending();
    const Answer answer = client.answer();
    ASSERT_TRUE(answer.status == 0 || (answer.status >= 200 && answer.status < 500))
        << answer.status << " " << text;
  }
  EXPECT_EQ(server.get("/health").status, 200);
}

TEST(BadRequest, ManySlowConnections) {
  ScriptedServer server;
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 200; ++i) {
    slow.push_back(std::make_unique<Client>(server.port()));
    slow.back()->send("P");
  }
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"a"})").status, 200);
}

}  // namespace
}  // namespace meshloom::tests

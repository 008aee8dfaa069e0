// /v1/embeddings over real sockets, before an engine whose embeddings are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/trainer/serve/scripted_engine.h"
#include "trainer/serve/embedding_batch.h"

namespace meshloom::tests {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::HasSubstr;
using Json = nlohmann::json;

Json body_of(const Answer& answer) { return Json::parse(answer.body, nullptr, false); }

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

TEST(Embeddings, Base64) {  // the examples of RFC 4648
  for (const auto& [text, wanted] : std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                                                     {"f", "Zg=="},
                                                                                     {"fo", "Zm8="},
                                                                                     {"foo", "Zm9v"},
                                                                                     {"foob", "Zm9vYg=="},
                                                                                     {"fooba", "Zm9vYmE="},
                                                                                     {"foobar", "Zm9vYmFy"},
                                                                                     {"\xff\xfe", "//4="}})
    EXPECT_EQ(trainer::base64(bytes_of(text)), wanted);
}

TEST(Embeddings, HaveLengthOne) {
  EXPECT_THAT(trainer::normalized(std::vector<float>{3, 0, -4}, 3),
              ElementsAre(FloatEq(0.6f), 0, FloatEq(-0.8f)));
  EXPECT_THAT(trainer::normalized(std::vector<float>{3, 4, 100}, 2),
              ElementsAre(FloatEq(0.6f), FloatEq(0.8f)));
  EXPECT_THAT(trainer::normalized(std::vector<float>{0, 0}, 2), ElementsAre(0, 0));
  EXPECT_THAT(trainer::normalized(std::vector<float>{3e38f, 0}, 2), ElementsAre(1, 0));
}

TEST(Embeddings, OfAText) {
  ScriptedServer server;
  const Answer answer = server.post(
      "/v1/embeddings", R"({"model":"test","input":"abc","user":"me","more":1})", "x-request-id: one\r\n");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.header("x-request-id"), "one");
  EXPECT_EQ(answer.header("x-meshloom-ignored"), "more");
  const Json json = body_of(answer);
  EXPECT_EQ(json["object"], "list");
  EXPECT_EQ(json["model"], "test");
  EXPECT_EQ(
      json["usage"],
      Json::parse(R"({"prompt_tokens":3,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":1}})"));
  ASSERT_EQ(json["data"].size(), 1u);
  EXPECT_EQ(json["data"][0]["object"], "embedding");
  EXPECT_EQ(json["data"][0]["index"], 0);
  const double length = std::hypot(97, 3);
  EXPECT_THAT(
      json["data"][0]["embedding"].get<std::vector<float>>(),
      ElementsAre(FloatEq(static_cast<float>(97 / length)), FloatEq(static_cast<float>(3 / length)), 0));
  const trainer::Request request = server.engine.requests().at(0);
  EXPECT_TRUE(request.embed);
  EXPECT_EQ(request.max_tokens, 0);
  EXPECT_THAT(request.prompt, ElementsAre('a', 'b', 'c'));
  EXPECT_THAT(server.get("/metrics").body, HasSubstr("finished_reason=\"stop\"} 1"));
}

TEST(Embeddings, OfAllFormsOfInput) {
  ScriptedServer server;
  const auto tokens = [&](const std::string& input) {
    const Json json = body_of(server.post("/v1/embeddings", R"({"input":)" + input + "}"));
    return json["usage"]["prompt_tokens"].get<int>() * 10 + static_cast<int>(json["data"].size());
  };
  EXPECT_EQ(tokens("\"ab\""), 21);
  EXPECT_EQ(tokens("[\"ab\",\"c\"]"), 32);
  EXPECT_EQ(tokens("[97,98,99]"), 31);
  EXPECT_EQ(tokens("[[97,98],[99],[97]]"), 43);
}

TEST(Embeddings, InBase64AreTheSameNumbers) {
  ScriptedServer server;
  const Json list = body_of(server.post("/v1/embeddings", R"({"input":"abc","encoding_format":"float"})")),
             text = body_of(server.post("/v1/embeddings", R"({"input":"abc","encoding_format":"base64"})"));
  const auto numbers = list["data"][0]["embedding"].get<std::vector<float>>();
  EXPECT_EQ(text["data"][0]["embedding"], trainer::base64(std::as_bytes(std::span(numbers))));
}

TEST(Embeddings, OfFewerDimensions) {
  ScriptedServer server;
  const Json json = body_of(server.post("/v1/embeddings", R"({"input":"abc","dimensions":1})"));
  EXPECT_EQ(json["data"][0]["embedding"], Json::parse("[1]")) << "cut off, and of length 1 again";
}

// More inputs than the engine takes at once: those that find no room come when others have ended.
TEST(Embeddings, OfManyInputs) {
  ScriptedServer server;
  server.engine.busy_after(5);
  Json inputs = Json::array();
  for (int i = 0; i < 500; ++i) inputs.push_back({i % 256, 1});
  const Answer answer = server.post("/v1/embeddings", Json{{"input", inputs}}.dump());
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = body_of(answer);
  ASSERT_EQ(json["data"].size(), 500u);
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(json["data"][i]["index"], i);
    const auto first = static_cast<float>(i % 256 / std::hypot(i % 256, 2));
    EXPECT_FLOAT_EQ(json["data"][i]["embedding"][0].get<float>(), first);
  }
  EXPECT_EQ(json["usage"]["prompt_tokens"], 1000);
}

TEST(Embeddings, OfABusyOrFailingEngine) {
  ScriptedServer server;
  server.engine.busy_after(0);
  EXPECT_EQ(server.post("/v1/embeddings", R"({"input":"a"})").status, 429);
  server.engine.busy_after(-1);
  server.engine.fail_with("of the device");
  const Answer answer = server.post("/v1/embeddings", R"({"input":["a","b"]})");
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, HasSubstr("the engine failed: of the device"));
  server.engine.refuse_with("must not come");
  EXPECT_EQ(server.post("/v1/embeddings", R"({"input":"a"})").status, 400);
}

TEST(Embeddings, EndWithTheirClient) {
  ScriptedServer server;
  server.engine.hold(true);
  Client client(server.port());
  client.request("POST", "/v1/embeddings", R"({"input":["a","b","c"]})");
  server.engine.wait_for_requests(3);
  client.close();
  server.engine.wait_for_cancelled(3);
  server.engine.hold(false);
  EXPECT_EQ(server.post("/v1/embeddings", R"({"input":"a"})").status, 200);
}

TEST(Embeddings, BadRequests) {
  ScriptedServer server;
  const std::string long_text(201, 'a');
  for (const auto& [body, param, message] : std::vector<std::array<std::string, 3>>{
           {"{}", "input", "must be text, a list of texts"},
           {R"({"input":null})", "input", "must be text, a list of texts"},
           {R"({"input":3})", "input", "must be text, a list of texts"},
           {R"({"input":[]})", "input", "must be text, a list of texts"},
           {R"({"input":""})", "input", "must have at least one token"},
           {R"({"input":["a",""]})", "input[1]", "must have at least one token"},
           {R"({"input":[[97],[]]})", "input[1]", "must have at least one token"},
           {R"({"input":["a",3]})", "input[1]", "must be text"},
           {R"({"input":[[97],"a"]})", "input[1]", "must be a list of token ids"},
           {R"({"input":[97,256]})", "input[1]", "must be a token id in [0, 256)"},
           {R"({"input":[[97],[1.5]]})", "input[1][0]", "must be a token id"},
           {R"({"input":")" + long_text + "\"}", "input", "must have at most 200 tokens; found 201"},
           {R"({"input":["a",")" + long_text + "\"]}", "input", "input[1] must have at most 200 tokens"},
           {R"({"input":"a","encoding_format":"int8"})", "encoding_format", "must be 'float' or 'base64'"},
           {R"({"input":"a","encoding_format":1})", "encoding_format", "must be text"},
           {R"({"input":"a","dimensions":0})", "dimensions", "must be an integer from 1 to 3; found '0'"},
           {R"({"input":"a","dimensions":4})", "dimensions", "must be an integer from 1 to 3; found '4'"},
           {R"({"input":"a","dimensions":1.5})", "dimensions", "integer"},
           {R"({"input":"a","user":1})", "user", "must be text"},
           {R"({"input":"a","truncate_prompt_tokens":3})", "truncate_prompt_tokens", "is not built here"},
           {R"({"input":"a","messages":[{"role":"user","content":"u"}]})", "messages",
            "is not built here"}}) {
    const Answer answer = server.post("/v1/embeddings", body);
    EXPECT_EQ(answer.status, 400) << body;
    const Json json = body_of(answer);
    ASSERT_TRUE(json.contains("error")) << body << answer.body;
    EXPECT_EQ(json["error"]["param"], param) << body << answer.body;
    EXPECT_THAT(json["error"]["message"].get<std::string>(), HasSubstr(message)) << body;
  }
  Json many = Json::array();
  for (int i = 0; i < 2049; ++i) many.push_back("a");
  EXPECT_THAT(server.post("/v1/embeddings", Json{{"input", many}}.dump()).body,
              HasSubstr("at most 2048 texts; found 2049"));
  EXPECT_EQ(server.post("/v1/embeddings", R"({"input":"a","model":"other"})").status, 404);
  EXPECT_EQ(server.get("/v1/embeddings").status, 405);
  server.engine.set_embedding_size(0);
  EXPECT_THAT(server.post("/v1/embeddings", R"({"input":"a"})").body, HasSubstr("--pooling last or mean"));
  EXPECT_TRUE(server.engine.requests().empty());
}

}  // namespace
}  // namespace meshloom::tests

// OpenAI's API over real sockets, before an engine that says what a test wants.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/trainer/serve/scripted_engine.h"
#include "trainer/data/tokenizer/tokenizer_json.h"
#include "trainer/serve/api_server.h"
#include "trainer/serve/token_text.h"

namespace meshloom::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

Json json_of(const Answer& answer) { return Json::parse(answer.body, nullptr, false); }

// The chunks of a stream, without the mark of its end, which must be there.
std::vector<Json> chunks(const Answer& answer) {
  std::vector<Json> all;
  const std::vector<std::string> events = answer.events();
  EXPECT_TRUE(answer.whole);
  EXPECT_FALSE(events.empty());
  if (events.empty()) return all;
  EXPECT_EQ(events.back(), "[DONE]");
  for (std::size_t i = 0; i + 1 < events.size(); ++i) all.push_back(Json::parse(events[i]));
  return all;
}

TEST(Api, IsReadyWhenTheModelIsThere) {
  ScriptedServer server({}, false);
  EXPECT_EQ(server.get("/health").status, 503);
  EXPECT_EQ(server.get("/v1/models").status, 503);
  server.set_model();
  EXPECT_EQ(server.get("/health").status, 200);
  const Json models = json_of(server.get("/v1/models"));
  EXPECT_EQ(models["data"][0]["id"], "test");
  EXPECT_EQ(models["data"][0]["max_model_len"], 200);
  EXPECT_EQ(models["data"][0]["step"], 0);
  EXPECT_EQ(json_of(server.get("/v1/models/test"))["object"], "model");
  EXPECT_EQ(server.get("/v1/models/other").status, 404);
}

TEST(Api, RoutesAndMethods) {
  ScriptedServer server;
  EXPECT_EQ(server.get("/nothing").status, 404);
  const Answer answer = server.get("/v1/completions");
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.header("allow"), "POST");
  EXPECT_EQ(json_of(answer)["error"]["type"], "invalid_request_error");
}

// The prompt is the source; the text begins with tokens of the decoder's own.
TEST(Api, ACompletionOfASource) {
  ScriptedServer server({}, false);
  server.engine.set_max_source(6);
  server.set_model();
  const Answer answer = server.post("/v1/completions", R"({"prompt":"abc","max_tokens":9,"logprobs":1})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = json_of(answer);
  EXPECT_EQ(json["choices"][0]["text"], "hello");
  EXPECT_EQ(json["choices"][0]["logprobs"]["text_offset"], Json::parse("[0,1,2,3,4]"));
  EXPECT_EQ(json["usage"]["prompt_tokens"], 3);
  const trainer::Request request = server.engine.requests().at(0);
  EXPECT_THAT(request.source, ElementsAre('a', 'b', 'c'));
  EXPECT_THAT(request.prompt, ElementsAre(0));
  EXPECT_EQ(json_of(server.post("/v1/completions", R"({"prompt":[[1,2],[3]],"n":2})"))["choices"].size(), 4u);
  EXPECT_THAT(server.engine.requests().back().source, ElementsAre(3));
  const auto refused = [&](const std::string& route, const std::string& body) {
    const Answer refusal = server.post("/v1/" + route, body);
    EXPECT_EQ(refusal.status, 400) << body;
    return json_of(refusal)["error"]["message"].get<std::string>();
  };
  EXPECT_THAT(
      refused("completions", R"({"prompt":"abcdefg"})"),
      HasSubstr("prompt must have at most 6 tokens, as the source of a model with an encoder; found 7"));
  EXPECT_THAT(refused("completions", R"({"prompt":""})"), HasSubstr("at least one token"));
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"a","max_tokens":199})").status, 200);
  EXPECT_THAT(refused("completions", R"({"prompt":"a","max_tokens":200})"),
              HasSubstr("what is written must have at most 199 tokens; found 200"));
  EXPECT_THAT(refused("completions", R"({"prompt":"a","echo":true})"), HasSubstr("echo must be false"));
  EXPECT_THAT(refused("completions", R"({"prompt":"a","prompt_logprobs":1})"), HasSubstr("prompt_logprobs"));
  EXPECT_THAT(refused("chat/completions", R"({"messages":[{"role":"user","content":"a"}]})"),
              HasSubstr("cannot chat"));
}

TEST(Api, ACompletion) {
  ScriptedServer server;
  const Answer answer = server.post(
      "/v1/completions", R"({"model":"test","prompt":"abc","seed":7,"user":"me"})", "x-request-id: one\r\n");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.header("x-request-id"), "one");
  EXPECT_EQ(answer.header("x-meshloom-ignored"), "");
  Json json = json_of(answer);
  EXPECT_THAT(json["id"].get<std::string>(), testing::StartsWith("cmpl-"));
  EXPECT_TRUE(json["created"].is_number_integer());
  json.erase("id");
  json.erase("created");
  EXPECT_EQ(json, Json::parse(R"({"object":"text_completion","model":"test",
      "choices":[{"index":0,"text":"hello","logprobs":null,"finish_reason":"stop"}],
      "usage":{"prompt_tokens":3,"completion_tokens":6,"total_tokens":9,"prompt_tokens_details":{"cached_tokens":1}}})"));
  const trainer::Request request = server.engine.requests().at(0);
  EXPECT_THAT(request.prompt, ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_EQ(request.sampler.temperature, 1);
  EXPECT_EQ(request.sampler.top_p, 1);
  EXPECT_EQ(request.sampler.seed, 7u);
  EXPECT_FALSE(request.logprobs);
  EXPECT_THAT(request.end_tokens, ElementsAre(0));
}

TEST(Api, SamplingIsPassedOn) {
  ScriptedServer server;
  const Answer answer =
      server.post("/v1/completions", R"({"prompt":"a","temperature":0.5,"top_p":0.9,"top_k":3,"min_p":0.1,
      "repetition_penalty":1.1,"presence_penalty":-0.5,"frequency_penalty":0.25,"logit_bias":{"65":-100,"66":1.5},
      "max_tokens":3,"ignore_eos":true,"stop":null})");
  EXPECT_EQ(json_of(answer)["choices"][0]["finish_reason"], "length");
  const trainer::Request request = server.engine.requests().at(0);
  const trainer::SamplerOptions& sampler = request.sampler;
  EXPECT_EQ(sampler.temperature, 0.5);
  EXPECT_EQ(sampler.top_p, 0.9);
  EXPECT_EQ(sampler.top_k, 3);
  EXPECT_EQ(sampler.min_p, 0.1);
  EXPECT_EQ(sampler.repetition_penalty, 1.1);
  EXPECT_EQ(sampler.presence_penalty, -0.5);
  EXPECT_EQ(sampler.frequency_penalty, 0.25);
  EXPECT_THAT(sampler.logit_bias, testing::UnorderedElementsAre(std::pair(65, -100.0), std::pair(66, 1.5)));
  EXPECT_EQ(request.max_tokens, 3);
  EXPECT_TRUE(request.end_tokens.empty());
}

TEST(Api, SeedsDifferByChoice) {
  ScriptedServer server;
  server.post("/v1/completions", R"({"prompt":["a","b"],"n":2,"seed":5})");
  server.post("/v1/completions", R"({"prompt":"a"})");
  server.post("/v1/completions", R"({"prompt":"a"})");
  std::vector<std::uint64_t> seeds;
  for (const trainer::Request& request : server.engine.requests()) seeds.push_back(request.sampler.seed);
  ASSERT_EQ(seeds.size(), 6u);
  EXPECT_EQ(std::vector(seeds.begin(), seeds.begin() + 4), (std::vector<std::uint64_t>{5, 6, 5, 6}));
  EXPECT_NE(seeds[4], seeds[5]) << "random where none is given";
}

TEST(Api, PromptsInAllForms) {
  ScriptedServer server;
  const auto texts = [&](const std::string& prompt) {
    std::vector<std::string> all;
    const Json json = json_of(server.post("/v1/completions", R"({"echo":true,"prompt":)" + prompt + "}"));
    for (const Json& choice : json["choices"]) all.push_back(choice["text"]);
    return all;
  };
  EXPECT_THAT(texts("\"a\""), ElementsAre("ahello"));
  EXPECT_THAT(texts("[\"a\",\"b\"]"), ElementsAre("ahello", "bhello"));
  EXPECT_THAT(texts("[97,98]"), ElementsAre("abhello"));
  EXPECT_THAT(texts("[[97],[98,99]]"), ElementsAre("ahello", "bchello"));
  const Json json = json_of(server.post("/v1/completions", R"({"prompt":["ab","c"],"n":3})"));
  ASSERT_EQ(json["choices"].size(), 6u);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(json["choices"][i]["index"], i);
  EXPECT_EQ(json["usage"]["prompt_tokens"], 3) << "a prompt counts once";
  EXPECT_EQ(json["usage"]["completion_tokens"], 36);
}

TEST(Api, LogprobsOfACompletion) {
  ScriptedServer server;
  server.engine.say("h\xc3\xa9");
  Json choice =
      json_of(server.post("/v1/completions", R"({"prompt":"ab","logprobs":2,"echo":true})"))["choices"][0];
  EXPECT_EQ(choice["text"], "abh\u00e9");
  EXPECT_EQ(choice["logprobs"]["tokens"], Json::parse(R"(["a","b","h","bytes:\\xc3","bytes:\\xa9"])"));
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], Json::parse("[null,-1.0,-0.5,-0.5,-0.5]"));
  EXPECT_TRUE(server.engine.requests().at(0).logprobs);
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][0], nullptr);
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][1], Json::parse(R"({"b":-1.0,"c":-2.0})"));
  EXPECT_EQ(choice["logprobs"]["text_offset"], Json::parse("[0,1,2,3,4]"));
  EXPECT_TRUE(server.engine.requests().at(0).score_prompt);
  EXPECT_EQ(server.engine.requests().at(0).top, 2);
  // as evaluations ask for the scores of a prompt
  choice = json_of(server.post(
      "/v1/completions", R"({"prompt":[97,98],"logprobs":1,"echo":true,"max_tokens":0})"))["choices"][0];
  EXPECT_EQ(choice["text"], "ab");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], Json::parse("[null,-1.0]"));
  choice = json_of(server.post("/v1/completions", R"({"prompt":"ab","logprobs":0})"))["choices"][0];
  EXPECT_EQ(choice["logprobs"]["top_logprobs"][0], Json::parse(R"({"h":-0.5})"));
}

TEST(Api, OffsetsOfTokensAreThoseOfTheText) {
  ScriptedServer server;
  server.engine.say(
      "\x86"
      "aSTOPb");  // the first byte is no character, and becomes U+FFFD
  for (const bool streams : {false, true}) {
    const Answer answer =
        server.post("/v1/completions", std::string(R"({"prompt":"x","logprobs":0,"stop":"STOP","stream":)") +
                                           (streams ? "true}" : "false}"));
    std::string text;
    Json tokens = Json::array(), offsets = Json::array();
    for (const Json& part : streams ? chunks(answer) : std::vector<Json>{json_of(answer)}) {
      const Json& choice = part["choices"][0];
      text += choice["text"];
      if (choice["logprobs"].is_null()) continue;
      for (const Json& token : choice["logprobs"]["tokens"]) tokens.push_back(token);
      for (const Json& offset : choice["logprobs"]["text_offset"]) offsets.push_back(offset);
    }
    EXPECT_EQ(text,
              "\xef\xbf\xbd"
              "a");
    EXPECT_EQ(tokens, Json::parse(R"(["bytes:\\x86","a"])"));
    EXPECT_EQ(offsets, Json::parse("[0,1]"));
  }
}

TEST(Api, SpecialTokensCountWhereATextHasTheirNames) {
  const auto tokenizer = trainer::parse_tokenizer_json(
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}, "decoder": {"type": "Fuse"}, "added_tokens": [
          {"id": 2, "content": "<s>", "special": true}, {"id": 3, "content": "<end>", "special": true}]})",
      "file", true);
  const std::vector<std::int32_t> ids{2, 0, 3, 1};
  EXPECT_THAT(trainer::offsets_in("a<end>b", ids, *tokenizer), ElementsAre(0, 0, 1, 6));
  EXPECT_THAT(trainer::offsets_in("ab", ids, *tokenizer), ElementsAre(0, 0, 1, 1));
}

// The bytes that the engine may write first, and whether a text is whole.
std::string allowed_bytes(const trainer::Request& request) {
  std::string bytes;
  const auto mask = request.constraint->allowed();
  for (std::size_t id = 0; id < 256; ++id)
    if (mask[id / 64] >> (id % 64) & 1) bytes += static_cast<char>(id);
  return bytes;
}
bool is_whole(const trainer::Request& request, const std::string& text) {
  for (const char c : text) request.constraint->accept(static_cast<unsigned char>(c));
  return request.constraint->ended();
}

TEST(Api, GrammarsConstrainTheTokens) {
  ScriptedServer server;
  struct Grammar {
    const char *field, *first, *text;
  };
  const std::vector<Grammar> grammars{
      {R"("response_format":{"type":"json_object"})", "{", R"({"a":[1, {}]})"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"n","description":"d","strict":true,"schema":{"type":"array","maxItems":1,"minItems":1}}})",
       "[", "[true]"},
      {R"("guided_json":{"enum":["a","b"]})", "\"", R"("b")"},
      {R"("guided_json":"{\"type\":\"boolean\"}")", "ft", "true"},
      {R"("guided_regex":"[ab]c")", "ab", "bc"},
      {R"("guided_choice":["yes","no"])", "ny", "no"},
      {R"("guided_grammar":"root ::= \"x\" root? \"y\"")", "x", "xxyy"},
      {R"("structured_outputs":{"json":{"const":null}})", "n", "null"},
      {R"("structured_outputs":{"regex":"é"})", "\xc3", "é"},
      {R"("structured_outputs":{"choice":["ab"]})", "a", "ab"},
      {R"("structured_outputs":{"grammar":"root ::= [0-2]"})", "012", "2"},
      {R"("structured_outputs":{"json_object":true})", "{", "{}"}};
  for (const Grammar& each : grammars)
    for (const std::string path : {"/v1/completions", "/v1/chat/completions"}) {
      SCOPED_TRACE(each.field);
      const std::string prompt =
          path == "/v1/completions" ? R"("prompt":"a")" : R"("messages":[{"role":"user","content":"u"}])";
      const Answer answer = server.post(path, "{" + prompt + ",\"n\":2," + each.field + "}");
      ASSERT_EQ(answer.status, 200) << answer.body;
      EXPECT_EQ(answer.header("x-meshloom-ignored"), "");
      const std::vector<trainer::Request> requests = server.engine.requests();
      const trainer::Request& first = requests.end()[-2];
      ASSERT_TRUE(first.constraint);
      EXPECT_NE(first.constraint, requests.back().constraint);
      EXPECT_EQ(allowed_bytes(first), each.first);
      EXPECT_TRUE(is_whole(first, each.text));
      EXPECT_EQ(allowed_bytes(requests.back()), each.first) << "each choice is at its own place";
    }
  server.post(
      "/v1/completions",
      R"({"prompt":"a","response_format":{"type":"text"},"structured_outputs":{},"guided_json":null})");
  EXPECT_FALSE(server.engine.requests().back().constraint);
  // Where the grammar may end, so may the text; with ignore_eos it goes on.
  for (const bool ignored : {false, true}) {
    server.post("/v1/completions", std::string(R"({"prompt":"a","guided_regex":"a*","ignore_eos":)") +
                                       (ignored ? "true}" : "false}"));
    EXPECT_EQ(allowed_bytes(server.engine.requests().back()), ignored ? "a" : std::string("\0a", 2));
  }
}

TEST(Api, StopStringsEndTheText) {
  ScriptedServer server;
  server.engine.say("one END two");
  const Json json = json_of(server.post("/v1/completions", R"({"prompt":"a","stop":["END"],"logprobs":0})"));
  EXPECT_EQ(json["choices"][0]["text"], "one ");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["choices"][0]["logprobs"]["tokens"].size(), 4u);
  EXPECT_EQ(json["usage"]["completion_tokens"], 7);
  server.engine.say("one EN");
  EXPECT_EQ(json_of(server.post("/v1/completions", R"({"prompt":"a","stop":"END"})"))["choices"][0]["text"],
            "one EN");
}

TEST(Api, AStreamOfACompletion) {
  ScriptedServer server;
  server.engine.say(
      "h\xe2\x82\xac"
      "END");
  const Answer answer = server.post(
      "/v1/completions",
      R"({"prompt":"ab","stream":true,"echo":true,"stop":"END","stream_options":{"include_usage":true}})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.header("content-type"), testing::StartsWith("text/event-stream"));
  std::string text;
  const std::vector<Json> parts = chunks(answer);
  ASSERT_GE(parts.size(), 4u);
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    EXPECT_EQ(parts[i]["object"], "text_completion");
    EXPECT_EQ(parts[i]["id"], parts[0]["id"]);
    EXPECT_EQ(parts[i]["usage"], nullptr);
    text += parts[i]["choices"][0]["text"];
    EXPECT_EQ(parts[i]["choices"][0]["finish_reason"], i + 2 < parts.size() ? Json() : Json("stop"));
  }
  EXPECT_EQ(text, "abh\u20ac");
  EXPECT_TRUE(parts.back()["choices"].empty());
  EXPECT_EQ(parts.back()["usage"]["completion_tokens"], 7);
}

// Clients that read lines of text would cut an event there.
TEST(Api, NoTextEndsALine) {
  const std::string separators = "a\xc2\x85 b\xe2\x80\xa8 c\xe2\x80\xa9 d\xe2\x82\xac\x0b\x0c\x1c\x1d\x1e\r";
  ScriptedServer server;
  server.engine.say(separators);
  for (const char* stream : {"false", "true"}) {
    const Answer answer =
        server.post("/v1/completions",
                    std::string(R"({"prompt":"p","max_tokens":40,"logprobs":1,"stream":)") + stream + "}");
    for (const char* separator :
         {"\xc2\x85", "\xe2\x80\xa8", "\xe2\x80\xa9", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"})
      EXPECT_THAT(answer.body, testing::Not(testing::HasSubstr(separator)));
    EXPECT_THAT(answer.body, testing::HasSubstr("\xe2\x82\xac"));
    std::string text;
    if (*stream == 'f')
      text = json_of(answer)["choices"][0]["text"];
    else
      for (const Json& part : chunks(answer)) text += part["choices"][0]["text"];
    EXPECT_EQ(text, separators);
  }
}

TEST(Api, AChat) {
  ScriptedServer server;
  Json json = json_of(server.post(
      "/v1/chat/completions",
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"u"},{"type":"text","text":"v"}]}],
                                      "logprobs":true,"top_logprobs":2,"tools":[],"tool_choice":"auto","response_format":{"type":"text"}})"));
  EXPECT_THAT(json["id"].get<std::string>(), testing::StartsWith("chatcmpl-"));
  EXPECT_EQ(json["object"], "chat.completion");
  const Json choice = json["choices"][0];
  EXPECT_EQ(choice["message"], Json::parse(R"({"role":"assistant","content":"hello","refusal":null})"));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["logprobs"]["content"].size(), 5u);
  EXPECT_EQ(choice["logprobs"]["content"][0],
            Json::parse(R"({"token":"h","logprob":-0.5,"bytes":[104],"top_logprobs":[
                {"token":"h","logprob":-0.5,"bytes":[104]},{"token":"i","logprob":-1.5,"bytes":[105]}]})"));
  const trainer::Request request = server.engine.requests().at(0);
  const std::string prompt(request.prompt.begin(), request.prompt.end());
  EXPECT_EQ(prompt, "<|system|>\ns\n<|user|>\nu\nv\n<|assistant|>\n");
  EXPECT_EQ(request.max_tokens, 200 - static_cast<std::int64_t>(prompt.size())) << "up to the model's length";
  server.post("/v1/chat/completions",
              R"({"messages":[{"role":"user","content":"u"}],"max_completion_tokens":4})");
  server.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"u"}],"max_tokens":5})");
  EXPECT_EQ(server.engine.requests().at(1).max_tokens, 4);
  EXPECT_EQ(server.engine.requests().at(2).max_tokens, 5);
}

TEST(Api, AStreamOfAChat) {
  ScriptedServer server;
  const Answer answer =
      server.post("/v1/chat/completions",
                  R"({"messages":[{"role":"user","content":"u"}],"n":2,"stream":true,"logprobs":true,
                                        "stream_options":{"include_usage":true,"continuous_usage_stats":true}})");
  std::string texts[2];
  int roles = 0, ends = 0, tokens = 0;
  const std::vector<Json> parts = chunks(answer);
  for (const Json& part : parts) {
    EXPECT_EQ(part["object"], "chat.completion.chunk");
    if (part["choices"].empty()) continue;
    const Json& choice = part["choices"][0];
    roles += choice["delta"].contains("role");
    texts[choice["index"].get<std::size_t>()] += choice["delta"].value("content", "");
    ends += choice["finish_reason"] == "stop";
    if (!choice["logprobs"].is_null()) tokens += static_cast<int>(choice["logprobs"]["content"].size());
  }
  EXPECT_EQ(texts[0], "hello");
  EXPECT_EQ(texts[1], "hello");
  EXPECT_EQ(roles, 2);
  EXPECT_EQ(ends, 2);
  EXPECT_EQ(tokens, 10);
  EXPECT_EQ(parts.back()["usage"]["completion_tokens"], 12);
}

TEST(Api, TokensAndTexts) {
  ScriptedServer server;
  EXPECT_EQ(json_of(server.post("/tokenize", R"({"prompt":"ab"})")),
            Json::parse(R"({"count":2,"max_model_len":200,"tokens":[97,98]})"));
  EXPECT_EQ(json_of(server.post("/tokenize", R"({"messages":[{"role":"user","content":"u"}]})"))["count"],
            25);
  EXPECT_EQ(json_of(server.post("/detokenize", R"({"tokens":[97,255]})"))["prompt"], "a\ufffd");
  EXPECT_EQ(server.post("/tokenize", "{}").status, 400);
  EXPECT_EQ(server.post("/detokenize", R"({"tokens":[256]})").status, 400);
}

TEST(Api, UnknownFieldsAreIgnoredAndListed) {
  ScriptedServer server;
  const Answer answer =
      server.post("/v1/completions",
                  R"({"prompt":"a","frobnicate":1,"a b\n":2,"stream":true,"stream_options":{"other":1}})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.header("x-meshloom-ignored"), "stream_options.other, frobnicate, a?b?");
  server.post("/v1/completions", R"({"prompt":"a","frobnicate":1})");
  server.stop();
  EXPECT_EQ(server.notes.size(), 3u) << "each is noted once";
}

TEST(Api, Keys) {
  ScriptedServer server({"first", "second"});
  for (const char* path : {"/v1/models", "/metrics", "/nothing"})
    EXPECT_EQ(server.get(path).status, 401) << path;
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"})
    EXPECT_EQ(server.post(path, "{").status, 401) << path;
  const Answer refused = server.get("/v1/models");
  EXPECT_EQ(json_of(refused)["error"]["code"], "invalid_api_key");
  EXPECT_EQ(refused.header("www-authenticate"), "Bearer");
  EXPECT_EQ(server.get("/health").status, 200);
  const auto with = [&](const std::string& header) {
    return ask(server.port(), "GET", "/v1/models", "", "Authorization: " + header + "\r\n").status;
  };
  EXPECT_EQ(with("Bearer first"), 200);
  EXPECT_EQ(with("bearer second"), 200);
  for (const char* wrong :
       {"Bearer ", "Bearer firs", "Bearer firstfirst", "Bearer First", "Basic first", "first"})
    EXPECT_EQ(with(wrong), 401) << wrong;
}

TEST(Api, EqualKeys) {
  EXPECT_TRUE(trainer::equal_keys("abc", "abc"));
  for (const char* other : {"", "ab", "abd", "abcabc", "abcd"})
    EXPECT_FALSE(trainer::equal_keys("abc", other)) << other;
}

TEST(Api, ABusyEngine) {
  ScriptedServer server;
  server.engine.hold(true);
  server.engine.busy_after(1);
  const Answer answer = server.post("/v1/completions", R"({"prompt":"a","n":2})");
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.header("retry-after"), "1");
  EXPECT_EQ(json_of(answer)["error"]["type"], "rate_limit_error");
  server.engine.wait_for_cancelled(1);  // the choice that had room
}

TEST(Api, AnEngineThatRefusesOrFails) {
  ScriptedServer server;
  server.engine.refuse_with("must be other");
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"a"})").status, 400);
  server.engine.refuse_with("");
  server.engine.fail_with("planted");
  Answer answer = server.post("/v1/completions", R"({"prompt":"a","n":2})");
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(json_of(answer)["error"]["message"].get<std::string>(), HasSubstr("planted"));
  answer = server.post("/v1/completions", R"({"prompt":"a","stream":true})");
  const std::vector<Json> parts = chunks(answer);
  EXPECT_THAT(parts.back()["error"]["message"].get<std::string>(), HasSubstr("planted"));
  server.engine.fail_with("");
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"a"})").status, 200);
}

TEST(Api, AnEngineWithoutItsDevice) {
  ScriptedServer server;
  server.engine.lose_device();
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"a"})").status, 503);
  server.stop();
  EXPECT_EQ(server.lost.size(), 1u);
}

TEST(Api, AClientThatVanishesCancelsItsRequests) {
  for (const char* stream : {"false", "true"}) {
    ScriptedServer server;
    server.engine.hold(true);
    Client client(server.port());
    client.request("POST", "/v1/completions", std::string(R"({"prompt":"a","n":3,"stream":)") + stream + "}");
    server.engine.wait_for_requests(3);
    client.close();
    server.engine.wait_for_cancelled(3);
    server.engine.hold(false);
    EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"a"})").status, 200);
    EXPECT_THAT(server.get("/metrics").body, HasSubstr("finished_reason=\"abort\"} 3"));
  }
}

TEST(Api, ShuttingDownWaitsForRequests) {
  ScriptedServer server;
  server.engine.hold(true);
  Client client(server.port());
  client.request("POST", "/v1/completions", R"({"prompt":"a"})");
  server.engine.wait_for_requests(1);
  server.server().shut_down();
  server.engine.hold(false);
  EXPECT_EQ(client.answer().status, 200);
  client.close();
  server.stop();
}

TEST(Api, MetricsInPrometheusText) {
  ScriptedServer server;
  server.post("/v1/completions", R"({"prompt":"abc"})");
  server.post("/v1/completions", "{");
  const Answer answer = server.get("/metrics");
  EXPECT_THAT(answer.header("content-type"), testing::StartsWith("text/plain; version=0.0.4"));
  for (const char* line :
       {"# TYPE meshloom_num_requests_running gauge", "meshloom_prompt_tokens_total{model_name=\"test\"} 3",
        "meshloom_request_success_total{model_name=\"test\",finished_reason=\"stop\"} 1",
        "meshloom_http_responses_total{model_name=\"test\",status=\"400\"} 1",
        "meshloom_time_to_first_token_seconds_count{model_name=\"test\"} 1",
        "meshloom_inter_token_latency_seconds_count{model_name=\"test\"} 5",
        "meshloom_e2e_request_latency_seconds_bucket{model_name=\"test\",le=\"+Inf\"} 1"})
    EXPECT_THAT(answer.body, HasSubstr(line));
}

}  // namespace
}  // namespace meshloom::tests

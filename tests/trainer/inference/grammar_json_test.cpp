// JSON and its schemas as grammars: each keyword with documents that it takes and refuses, and what is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/message_of.h"
#include "trainer/inference/grammar/json_grammar.h"
#include "trainer/inference/grammar/json_schema_grammar.h"

namespace meshloom::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::ordered_json;
using trainer::grammar_of_json_schema;

trainer::SharedGrammar of_schema(const std::string& schema, bool standard = false) {
  return grammar_of_json_schema(Json::parse(schema), {.standard = standard});
}

struct SchemaCase {
  const char* schema;
  std::vector<const char*> taken, refused;
  bool standard = false;
};

TEST(JsonGrammar, HasObjectsAsTheyAreWritten) {
  const trainer::SharedGrammar grammar = trainer::grammar_of_json_object();
  for (const char* text :
       {"{}", "{ }", R"({"a":1})", R"({"a": [1, 2.5e-3, -0, true, false, null, "x", {}, []]})",
        "{\n  \"a\": {\n    \"b\": []\n  }\n}", R"({"":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é😀"})",
        R"({"a":1,"a":2})", "{\"\x7f\":0}"}) {
    EXPECT_TRUE(grammar->accepts(text)) << text;
    EXPECT_TRUE(Json::accept(text)) << text;
  }
  for (const char* text : {"",
                           "1",
                           "[]",
                           "{",
                           R"({"a")",
                           R"({"a":})",
                           R"({"a":1,})",
                           R"({,})",
                           R"({a:1})",
                           R"({"a":01})",
                           R"({"a":1.})",
                           R"({"a":.5})",
                           R"({"a":+1})",
                           R"({"a":1e})",
                           R"({"a":NaN})",
                           R"({"a":"\x"})",
                           R"({"a":"\ud800"})",
                           R"({"a":"\ud800\u0041"})",
                           R"({"a":"\udc00"})",
                           "{\"a\":\"\n\"}",
                           "{\"a\":\"\xc3\"}",
                           "{\"a\":\"\xed\xa0\x80\"}",
                           "{}  ",
                           " {}",
                           "{}{}",
                           R"({"a":  1})",
                           R"({"a" :1})",
                           "{\t}",
                           R"({"a":12345678901234567890})",
                           R"({"a":1e100})"})
    EXPECT_FALSE(grammar->accepts(text)) << text;
}

TEST(JsonSchemaGrammar, HoldsEachKeyword) {
  const std::vector<SchemaCase> cases{
      {R"({})", {"1", "\"a\"", "[]", "{\"a\":null}"}, {"", "a"}},
      {R"(true)", {"1"}, {"x"}},
      {R"({"type":"string"})", {R"("")", R"("a\nb")"}, {"1", "a"}},
      {R"({"type":"integer"})", {"0", "-7", "123"}, {"1.5", "01", "1e3", "\"1\""}},
      {R"({"type":"number"})", {"0", "-7.25", "1e3"}, {"\"1\"", "true"}},
      {R"({"type":"boolean"})", {"true", "false"}, {"null", "0"}},
      {R"({"type":"null"})", {"null"}, {"false"}},
      {R"({"type":"array"})", {"[]", "[1,\"a\"]"}, {"{}"}},
      {R"({"type":"object"})", {"{}", "{\"a\":1}"}, {"[]"}},
      {R"({"type":["string","null"],"maxLength":2})", {"null", R"("ab")"}, {R"("abc")", "1"}},
      {R"({"enum":["a",1,null,{"b":[1,"c"]},[],1.5]})",
       {R"("a")", "1", "null", R"({"b":[1,"c"]})", R"({"b": [1, "c"]})", "[]", "1.5"},
       {R"("b")", "2", R"({"b":[1]})"}},
      {R"({"type":"string","enum":["a",1,"bcd"]})", {R"("a")", R"("bcd")"}, {"1"}},
      {R"({"enum":["a","bcd",1,9],"maxLength":2,"maximum":5})", {R"("a")", "1"}, {R"("bcd")", "9"}, true},
      {R"({"const":"é\n"})", {R"("é\n")"}, {R"("e")"}},
      {R"({"const":2,"enum":[1,2]})", {"2"}, {"1"}},
      {R"({"properties":{"a":{"type":"integer"},"b":{"type":"boolean"},"c":{}},"required":["b"]})",
       {R"({"b":true})", R"({"a":1,"b":true})", R"({"b":true,"c":[]})", "{\n  \"a\": 1,\n  \"b\": false\n}"},
       {"{}", R"({"a":1})", R"({"b":true,"a":1})", R"({"a":"x","b":true})", R"({"b":true,"d":1})",
        R"({"b":true,})", "1"}},
      {R"({"type":"object","properties":{"a":{"const":1}},"additionalProperties":{"type":"null"}})",
       {"{}", R"({"a":1})", R"({"a":1,"b":null,"c":null})", R"({"b":null})", R"({"aa":null})", R"({"":null})",
        R"({"\n":null})"},
       {R"({"a":null})", R"({"b":1})", R"({"b":null,"a":1})", R"({"\u0061":null})"}},
      {R"({"type":"object","properties":{"ab":{},"ac":{},"é":{}},"additionalProperties":true})",
       {R"({"a":1})", R"({"abc":1})", R"({"ad":1,"è":2,"€":3})", R"({"ab":1,"é":2})"},
       {R"({"é":1,"ab":2})", R"({"x":1,"ac":2})"}},
      {R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"}},
      {R"({"type":"object","properties":{"a":{}}})", {R"({"a":1,"b":2})", R"({"b":2})"}, {}, true},
      {R"({"required":["a","b"]})", {R"({"a":1,"b":2})"}, {"{}", R"({"a":1})", "1"}},
      {R"({"required":["a"]})", {R"({"a":1})", R"({"a":1,"b":2})", "1"}, {"{}"}, true},
      {R"({"properties":{"a":false,"b":{}}})", {"{}", R"({"b":1})"}, {R"({"a":1})"}},
      {R"({"items":{"type":"integer"}})",
       {"[]", "[1]", "[1, 2,3]", "[\n  1\n]"},
       {"[\"a\"]", "[1,]", "[,1]", "1"}},
      {R"({"items":{"type":"integer"},"minItems":2,"maxItems":3})",
       {"[1,2]", "[1,2,3]"},
       {"[]", "[1]", "[1,2,3,4]"}},
      {R"({"type":"array","minItems":1})", {"[1]", "[1,2]"}, {"[]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"}})",
       {"[]", "[1]", R"([1,"a"])", R"([1,"a",null,null])"},
       {R"(["a"])", R"([1,1])", R"([1,"a",2])"}},
      {R"({"prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"minItems":2})",
       {R"([1,"a"])"},
       {"[1]", R"([1,"a",2])"}},
      {R"({"minLength":2,"maxLength":3})",
       {R"("ab")", R"("aé😀")", R"("\n\u00e9")", R"("\"\"")"},
       {R"("a")", R"("abcd")", R"("")"}},
      {R"({"type":"string","minLength":1})", {R"("a")", R"("abc")"}, {R"("")"}},
      {R"({"pattern":"^[a-c]+$"})", {R"("abc")"}, {R"("")", R"("abd")"}},
      {R"({"pattern":"b+"})", {R"("b")", R"("abba\"")", "\"é\\nb\""}, {R"("")", R"("a")"}},
      {R"({"pattern":"^a|b$"})", {R"("ax")", R"("xb")"}, {R"("xa")", R"("bx")"}},
      {R"({"pattern":"^\"\\\\\\s$"})", {R"("\"\\ ")", R"("\"\\\n")", R"("\"\\\u000b")"}, {R"("\"\\x")"}},
      {R"({"format":"date"})",
       {R"("2024-02-29")", R"("2000-02-29")", R"("1999-12-31")"},
       {R"("2023-02-29")", R"("1900-02-29")", R"("2024-04-31")", R"("2024-13-01")", R"("24-01-01")"}},
      {R"({"format":"time"})",
       {R"("23:59:59Z")", R"("00:00:00.5+01:30")"},
       {R"("24:00:00Z")", R"("12:00:00")"}},
      {R"({"format":"date-time"})",
       {R"("2026-11-26T19:18:10Z")"},
       {R"("2026-11-26 19:18:10Z")", R"("2026-02-30T00:00:00Z")"}},
      {R"({"format":"uuid"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {R"("123e4567e89b12d3a456426614174000")"}},
      {R"({"format":"ipv4"})", {R"("192.168.0.1")"}, {R"("256.1.1.1")", R"("1.1.1")"}},
      {R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":1},{"type":"string","minLength":3}]})",
       {"1", R"("a")", R"("abc")"},
       {R"("ab")", "null"}},
      {R"({"type":"object","properties":{"k":{"type":"string"}},"anyOf":[{"required":["k"]},{"properties":{"n":{"const":1}},"required":["n"]}]})",
       {R"({"k":"x"})", R"({"n":1})", R"({"k":"x","n":1})"},
       {"{}", R"({"n":2})"}},
      {R"({"oneOf":[{"type":"integer"},{"type":"string"}]})", {"1", R"("a")"}, {"null"}},
      {R"({"oneOf":[{"const":"a"},{"enum":["b","c"]}]})", {R"("a")", R"("c")"}, {R"("d")"}},
      {R"({"oneOf":[{"type":"object","properties":{"t":{"const":"x"},"v":{"type":"integer"}},"required":["t","v"]},
                    {"type":"object","properties":{"t":{"const":"y"}},"required":["t"]}],"discriminator":{"propertyName":"t"}})",
       {R"({"t":"x","v":1})", R"({"t":"y"})"},
       {R"({"t":"x"})", R"({"t":"y","v":1})", R"({"t":"z"})"}},
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"a":{"minimum":3},"b":{}},"required":["b"]}]})",
       {R"({"a":3,"b":1})"},
       {R"({"a":2,"b":1})", R"({"a":3})"}},
      {R"({"allOf":[{"type":["integer","null"]},{"type":"number"}],"maximum":5})",
       {"5", "-1"},
       {"6", "null", "1.5"}},
      {R"({"allOf":[{"properties":{"a":{}},"additionalProperties":false},{"properties":{"b":{}}}]})",
       {R"({"a":1})", "{}"},
       {R"({"b":1})"}},
      {R"({"$defs":{"n":{"properties":{"v":{"type":"integer"},"next":{"$ref":"#/$defs/n"}},"required":["v"]}},"$ref":"#/$defs/n"})",
       {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":{"v":3}}})"},
       {R"({"v":1,"next":{}})", R"({"next":{"v":1}})"}},
      {R"({"definitions":{"a/b~c":{"type":"null"}},"properties":{"x":{"$ref":"#/definitions/a~1b~0c"},"y":{"$ref":"#/properties/x"}}})",
       {R"({"x":null,"y":null})"},
       {R"({"x":1})"}},
      {R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"}},
      {R"({"$ref":"#/$defs/s","maxLength":2,"$defs":{"s":{"type":"string","minLength":1}}})",
       {R"("a")"},
       {R"("")", R"("abc")"}},
      {R"({"title":"t","description":"d","default":1,"examples":[1],"$schema":"x","$id":"y","$comment":"c","deprecated":true,
           "readOnly":true,"writeOnly":false,"type":"null","uniqueItems":false})",
       {"null"},
       {"1"}},
  };
  for (const SchemaCase& each : cases) {
    SCOPED_TRACE(each.schema);
    trainer::SharedGrammar grammar;
    ASSERT_EQ(message_of([&] { grammar = of_schema(each.schema, each.standard); }), "no error");
    for (const char* text : each.taken) EXPECT_TRUE(grammar->accepts(text)) << text;
    for (const char* text : each.refused) EXPECT_FALSE(grammar->accepts(text)) << text;
  }
}

TEST(JsonSchemaGrammar, HoldsNumbersToTheirBounds) {
  std::mt19937 random(3);
  const auto pick = [&](std::uint32_t count) { return static_cast<int>(random() % count); };
  for (int round = 0; round < 120; ++round) {
    Json schema{{"type", round % 2 ? "integer" : "number"}};
    const double scale = round % 4 < 2 ? 1 : 0.25;
    const char* names[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"};
    for (const char* name : names)
      if (pick(2)) schema[name] = round % 2 ? Json(pick(400) - 200) : Json((pick(400) - 200) * scale);
    const auto within = [&](double value) {
      return (!schema.contains("minimum") || value >= schema["minimum"].get<double>()) &&
             (!schema.contains("maximum") || value <= schema["maximum"].get<double>()) &&
             (!schema.contains("exclusiveMinimum") || value > schema["exclusiveMinimum"].get<double>()) &&
             (!schema.contains("exclusiveMaximum") || value < schema["exclusiveMaximum"].get<double>());
    };
    bool any = false;
    for (int i = -260 * 8; i <= 260 * 8; ++i)
      any = any || (within(i / 8.0) && (round % 2 == 0 || i % 8 == 0));
    trainer::SharedGrammar grammar;
    const std::string message = message_of([&] { grammar = grammar_of_json_schema(schema); });
    SCOPED_TRACE(schema.dump());
    if (!any) {
      EXPECT_THAT(message, HasSubstr("must match at least one text"));
      continue;
    }
    ASSERT_EQ(message, "no error");
    for (int i = -260 * 8; i <= 260 * 8; ++i) {
      if (round % 2 && i % 8 != 0) continue;
      const std::string text = i % 8 == 0 ? std::to_string(i / 8) : Json(i / 8.0).dump();
      EXPECT_EQ(grammar->accepts(text), within(i / 8.0)) << text;
      if (round % 2 == 0 && i % 8 == 0 && i != 0) {
        EXPECT_EQ(grammar->accepts(text + ".000"), within(i / 8.0)) << text;
      }
    }
    EXPECT_FALSE(grammar->accepts("007"));
  }
  EXPECT_TRUE(of_schema(R"({"type":"number","minimum":0,"maximum":1})")->accepts("0.33333333333333331"));
  EXPECT_FALSE(of_schema(R"({"type":"number","minimum":0,"maximum":1})")->accepts("1.00000000000000001"));
  EXPECT_TRUE(of_schema(R"({"type":"number","minimum":1e-7})")->accepts("0.0000001"));
  EXPECT_FALSE(of_schema(R"({"type":"number","minimum":1e-7})")->accepts("0.00000009"));
  EXPECT_TRUE(of_schema(R"({"type":"integer","maximum":9007199254740993})")->accepts("9007199254740993"));
  EXPECT_FALSE(of_schema(R"({"type":"integer","maximum":9007199254740993})")->accepts("9007199254740994"));
}

TEST(JsonSchemaGrammar, RefusesTheRestByNameAndPlace) {
  const auto message = [](const std::string& schema) { return message_of([&] { of_schema(schema); }); };
  for (const char* name : {"not", "if", "contains", "minContains", "dependentRequired", "dependentSchemas",
                           "unevaluatedProperties", "unevaluatedItems", "multipleOf", "propertyNames",
                           "patternProperties", "maxProperties", "minProperties", "uniqueItems", "$anchor",
                           "$dynamicRef", "contentEncoding", "nonsense"})
    EXPECT_THAT(message(Json{{"properties", {{"a", {{name, {{"x", 1}}}}}}}}.dump()),
                AllOf(HasSubstr(std::string("#/properties/a/") + name), HasSubstr("not built")));
  EXPECT_THAT(message(R"({"type":"text"})"), HasSubstr("#/type: must be a type of JSON"));
  EXPECT_THAT(message(R"({"type":7})"), HasSubstr("must be a type of JSON"));
  EXPECT_THAT(message(R"([])"), HasSubstr("a schema must be an object"));
  EXPECT_THAT(message(R"({"items":[{}]})"), AllOf(HasSubstr("#/items"), HasSubstr("prefixItems")));
  EXPECT_THAT(message(R"({"type":"string","format":"email"})"),
              AllOf(HasSubstr("#/format"), HasSubstr("others are not built"), HasSubstr("email")));
  EXPECT_THAT(message(R"x({"pattern":"(?=a)"})x"), AllOf(HasSubstr("#/pattern"), HasSubstr("lookaheads")));
  EXPECT_THAT(message(R"({"pattern":"a","maxLength":2})"), HasSubstr("one of pattern, format and bounds"));
  EXPECT_THAT(message(R"({"minLength":-1})"), AllOf(HasSubstr("#/minLength"), HasSubstr("natural")));
  EXPECT_THAT(message(R"({"minimum":"1"})"), AllOf(HasSubstr("#/minimum"), HasSubstr("must be a number")));
  EXPECT_THAT(message(R"({"exclusiveMinimum":true})"), HasSubstr("must be a number"));
  EXPECT_THAT(message(R"({"minimum":1e40})"), HasSubstr("at most 19 digits"));
  EXPECT_THAT(message(R"({"oneOf":[{"type":"string"},{"maxLength":3}]})"),
              AllOf(HasSubstr("#/oneOf"), HasSubstr("exclude each other")));
  EXPECT_THAT(message(R"({"oneOf":[{"type":"integer"},{"type":"number"}]})"),
              HasSubstr("exclude each other"));
  EXPECT_THAT(message(R"({"anyOf":[{}],"oneOf":[{}]})"), HasSubstr("must not stand beside"));
  EXPECT_THAT(message(R"({"anyOf":[]})"), HasSubstr("must be a list of schemas"));
  EXPECT_THAT(message(R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})"),
              HasSubstr("must not both have pattern"));
  EXPECT_THAT(message(R"({"$ref":"http://example.com/x"})"),
              AllOf(HasSubstr("#/$ref"), HasSubstr("in the schema itself")));
  EXPECT_THAT(message(R"({"$ref":"#/$defs/x"})"), HasSubstr("a place that the schema has"));
  EXPECT_THAT(message(R"({"properties":{"a":{"$id":"x"}}})"), HasSubstr("at the root only"));
  EXPECT_THAT(message(R"({"$ref":"#"})"), HasSubstr("left recursion"));
  EXPECT_THAT(message(R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})"), HasSubstr("left recursion"));
  EXPECT_THAT(message(R"({"allOf":[{"$ref":"#"}]})"), HasSubstr("at most 32 deep"));
  EXPECT_THAT(message(R"({"allOf":[{"required":["a"]},{"required":"b"}]})"),
              HasSubstr("must be a list of names"));
  EXPECT_THAT(message(R"(false)"), HasSubstr("must match at least one text"));
  EXPECT_THAT(message(R"({"required":["a"],"additionalProperties":false})"),
              HasSubstr("must match at least one text"));
  EXPECT_THAT(message(R"({"type":"string","enum":[1]})"), HasSubstr("must match at least one text"));
  EXPECT_THAT(message(R"({"enum":[[1]],"minItems":2})"), HasSubstr("beside nothing but type"));
  EXPECT_THAT(message(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})"),
              HasSubstr("must match at least one text"));
}

TEST(JsonSchemaGrammar, HasLimits) {
  const auto message = [](const Json& schema) { return message_of([&] { grammar_of_json_schema(schema); }); };
  EXPECT_THAT(message({{"const", std::string(70000, 'a')}}), HasSubstr("at most 65536 bytes"));
  EXPECT_THAT(message({{"type", "string"}, {"maxLength", 200000}}), HasSubstr("at most 100000"));
  EXPECT_THAT(message({{"type", "string"}, {"maxLength", 99999}}), HasSubstr("100000 states"));
  EXPECT_EQ(message({{"type", "string"}, {"maxLength", 20000}}), "no error");
  Json deep{{"type", "null"}};
  for (int i = 0; i < 40; ++i) deep = Json{{"items", deep}};
  EXPECT_THAT(message(deep), HasSubstr("at most 32 deep"));
  // Each definition joins the next one three times.
  Json doubled = Json::object();
  for (int i = 0; i < 14; ++i) {
    const Json next{{"$ref", "#/$defs/d" + std::to_string(i + 1)}};
    doubled["$defs"]["d" + std::to_string(i)] = Json{{"allOf", Json::array({next, next, next})}};
  }
  doubled["$defs"]["d14"] = Json{{"type", "null"}};
  doubled["$ref"] = "#/$defs/d0";
  doubled["minimum"] = 1;
  EXPECT_THAT(message(doubled), HasSubstr("within a second"));
  Json wide = Json::object();
  for (int i = 0; i < 400; ++i) wide["properties"]["name " + std::to_string(i)] = Json{{"type", "string"}};
  EXPECT_EQ(message(wide), "no error");
}

TEST(GrammarFuzz, OfSchemas) {
  std::mt19937 random(11);
  const std::vector<std::string> seeds{
      R"({"type":"object","properties":{"a":{"type":["integer","null"],"minimum":-5},"b":{"enum":["x",1]}},"required":["a"],"additionalProperties":{"type":"string","maxLength":4}})",
      R"({"$defs":{"n":{"anyOf":[{"type":"array","items":{"$ref":"#/$defs/n"},"maxItems":3},{"pattern":"^[a-z]+$"}]}},"allOf":[{"$ref":"#/$defs/n"},{"minItems":1}]})",
      R"({"oneOf":[{"const":{"k":[true]}},{"type":"string","format":"date"},{"prefixItems":[{},false],"items":false,"type":"array"}]})"};
  std::vector<std::string> pieces{"\"type\":\"array\"",
                                  "\"$ref\":\"#\"",
                                  "{}",
                                  "true",
                                  "[]",
                                  "null",
                                  "-1",
                                  "\"\"",
                                  "1e9",
                                  "\"allOf\":[{}]",
                                  ","};
  int taken = 0, read = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string text = seeds[random() % seeds.size()];
    for (std::size_t edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      const std::string& piece = pieces[random() % pieces.size()];
      if (random() % 2) {
        text.insert(at, piece);
      } else {  // a keyword or a value becomes another
        const std::size_t quote = text.find('"', at);
        const std::size_t end = quote == std::string::npos ? quote : text.find('"', quote + 1);
        if (end == std::string::npos) continue;
        const std::size_t other = text.find('"', random() % text.size());
        const std::size_t other_end = other == std::string::npos ? other : text.find('"', other + 1);
        if (other_end == std::string::npos) continue;
        text.replace(quote, end - quote + 1, text.substr(other, other_end - other + 1));
      }
    }
    const Json schema = Json::parse(text, nullptr, false);
    if (schema.is_discarded()) continue;
    ++read;
    for (const bool standard : {false, true})
      taken += message_of([&] { grammar_of_json_schema(schema, {.standard = standard}); }) == "no error";
  }
  EXPECT_GT(read, 500);
  EXPECT_GT(taken, 100);
}

}  // namespace
}  // namespace meshloom::tests

// Choosing nodes by path, class and field; wrapping what was chosen.
#include "layers/config/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layers/config/glob.h"
#include "layers/config/tree.h"
#include "layers/models/models.h"
#include "layers/models/trace.h"
#include "tests/message_of.h"

namespace meshloom::layers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tests::message_of;

ClassTable table() {
  ClassTable classes;
  add_layer_classes(classes);
  return classes;
}

CausalLM::Config tiny() {
  return llama_config({.vocab = 11, .dim = 8, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 12});
}

TEST(Glob, Matches) {
  const auto matches = [](const char* pattern, const char* path) { return Glob(pattern).matches(path); };
  EXPECT_TRUE(matches("a.b", "a.b"));
  EXPECT_TRUE(matches("a.b", "a/b"));
  EXPECT_TRUE(matches("a/b", "a.b"));
  EXPECT_FALSE(matches("a", "a.b"));
  EXPECT_FALSE(matches("b", "a.b"));
  EXPECT_TRUE(matches("*.b", "a.b"));
  EXPECT_FALSE(matches("*", "a.b"));
  EXPECT_TRUE(matches("**", "a.b"));
  EXPECT_TRUE(matches("**", ""));
  EXPECT_TRUE(matches("**.b", "b"));
  EXPECT_TRUE(matches("**.b", "a.a.b"));
  EXPECT_FALSE(matches("**.b", "a.bb"));
  EXPECT_TRUE(matches("a.**.d", "a.d"));
  EXPECT_TRUE(matches("a.**.d", "a.b.c.d"));
  EXPECT_TRUE(matches("a.**", "a"));
  EXPECT_FALSE(matches("a.**.d", "a.b.c"));
  EXPECT_TRUE(matches("layer*", "layer12"));
  EXPECT_TRUE(matches("layer?", "layer1"));
  EXPECT_FALSE(matches("layer?", "layer12"));
  EXPECT_TRUE(matches("layers[2].x", "layers[2].x"));
  EXPECT_TRUE(matches("**.{q,v}_proj", "attention.v_proj"));
  EXPECT_FALSE(matches("**.{q,v}_proj", "attention.k_proj"));
  EXPECT_TRUE(matches("{a,b.{c,d}}.e", "b.d.e"));
  EXPECT_TRUE(matches("{a,b.{c,d}}.e", "a.e"));
  EXPECT_FALSE(matches("{a,b.{c,d}}.e", "b.e"));
  EXPECT_TRUE(matches("x{,_y}", "x"));
  for (const char* bad : {"", "a..b", ".a", "a.", "{a", "a}", "a}{b"}) EXPECT_THROW(Glob{bad}, Error) << bad;
}

// Without a bound either pattern would take longer than the age of the universe.
TEST(Glob, ManyStarsTakeNoTime) {
  std::string stars, names = "a";
  for (int i = 0; i < 200; ++i) stars += "*a";
  EXPECT_FALSE(Glob(stars + "b").matches(std::string(5000, 'a')));
  stars = "**";
  for (int i = 0; i < 150; ++i) stars += ".a.**", names += ".a";
  EXPECT_TRUE(Glob(stars).matches(names));
  EXPECT_FALSE(Glob(stars + ".b").matches(names));
  EXPECT_THROW(Glob(std::string(1001, 'a')), Error);
}

TEST(Select, ByPathClassInterfaceAndField) {
  const CausalLM::Config model = tiny();
  EXPECT_THAT(select(model, {.where = "**.attention.{q,v}_proj"}, table()),
              ElementsAre("decoder.stack.layer.attention.q_proj", "decoder.stack.layer.attention.v_proj"));
  EXPECT_THAT(select(model, {.except = "**.layer.**", .of_class = "RMSNorm"}, table()),
              ElementsAre("decoder.norm"));
  EXPECT_EQ(select(model, {.of_class = "Norm"}, table()).size(), 3u);  // the interface of the place
  EXPECT_EQ(select(model, {.of_class = "Linear"}, table()).size(), 8u);
  EXPECT_EQ(select(model, {.of_class = "Linear", .having = "bias=false"}, table()).size(), 8u);
  EXPECT_EQ(select(model, {.of_class = "RMSNorm", .having = "eps=0.00001"}, table()).size(),
            3u);  // as a value
  EXPECT_EQ(select(model, {.having = "init.std=0.02"}, table()).size(), 9u);
}

TEST(Select, MustMatch) {
  const CausalLM::Config model = tiny();
  const auto said = [&](const Selection& selection) {
    return message_of([&] { select(model, selection, table()); });
  };
  EXPECT_THAT(said({.of_class = "Linea"}), HasSubstr("found none of this class, did you mean 'Linear'?"));
  EXPECT_THAT(said({.where = "**.q", .of_class = "Attention"}),
              HasSubstr("none at such a path; of the class there are decoder.stack.layer.attention"));
  EXPECT_THAT(said({.of_class = "Linear", .having = "bias=true"}),
              HasSubstr("none with that field so; at such paths"));
  EXPECT_THAT(said({.of_class = "Linear", .having = "bias"}), HasSubstr("must read FIELD=VALUE"));
  EXPECT_THAT(said({.of_class = "Linear", .matches = 7}), HasSubstr("must match 7 nodes; found 8"));
  EXPECT_EQ(said({.of_class = "Linear", .matches = 8}), "no error");
  EXPECT_EQ(said({.of_class = "Gelu", .matches = 0}), "no error");
}

TEST(Wrap, PutsTheNodeInsideAndIsIdempotent) {
  CausalLM::Config model = tiny();
  const CausalLM::Config before = model;
  const ClassTable classes = table();
  const std::unique_ptr<Config> lora = parse("Lora{rank=2}", classes, "lora");
  const Selection where{.where = "**.attention.q_proj.**", .of_class = "Linear"};
  EXPECT_THAT(wrap(model, where, *lora, "base", classes),
              ElementsAre("decoder.stack.layer.attention.q_proj"));
  EXPECT_EQ(get(model, "decoder.stack.layer.attention.q_proj.base"),
            get(before, "decoder.stack.layer.attention.q_proj"));
  EXPECT_EQ(get(model, "decoder.stack.layer.attention.q_proj.rank"), "2");
  const CausalLM::Config once = model;
  EXPECT_TRUE(wrap(model, where, *lora, "base", classes).empty());
  EXPECT_EQ(diff(once, model), "");
  EXPECT_THAT(message_of([&] { wrap(model, where, *lora, "bas", classes); }), testing::HasSubstr("no error"));
  CausalLM::Config other = tiny();
  EXPECT_THAT(message_of([&] { wrap(other, where, *lora, "bas", classes); }),
              HasSubstr("did you mean 'base'?"));
  EXPECT_THAT(message_of([&] { wrap(other, {.of_class = "RMSNorm"}, *lora, "base", classes); }),
              HasSubstr("must be a Norm; found 'Lora'"));
  EXPECT_EQ(diff(tiny(), other), "");
}

}  // namespace
}  // namespace meshloom::layers

// Replacing one class of node by another, everywhere in a tree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layers/config/tree.h"
#include "tests/message_of.h"

namespace meshloom::layers {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using tests::message_of;

struct Block : Config {};
struct Norm : ConfigOf<Norm, Block> {
  static constexpr std::string_view kName = "Norm";
  double eps = 1e-5;
  void fields(FieldVisitor& v) override { v("eps", eps); }
};
struct Dense : ConfigOf<Dense, Block> {
  static constexpr std::string_view kName = "Dense";
  Required<std::int64_t> hidden;
  bool bias = false;
  std::string activation = "silu";
  Child<Block> norm = Norm{};
  void fields(FieldVisitor& v) override {
    v("hidden", hidden);
    v("bias", bias);
    v("activation", activation);
    v("norm", norm);
  }
};
struct Experts : ConfigOf<Experts, Block> {
  static constexpr std::string_view kName = "Experts";
  std::optional<std::int64_t> hidden;
  std::int64_t count = 8;
  std::vector<std::int64_t> activation;  // the name of a Dense field, but of another kind
  Child<Block> norm;
  void fields(FieldVisitor& v) override {
    v("hidden", hidden);
    v("count", count);
    v("activation", activation);
    v("norm", norm);
  }
};
struct Wrap : ConfigOf<Wrap, Block> {
  static constexpr std::string_view kName = "Wrap";
  Child<Block> inner = Norm{};
  void fields(FieldVisitor& v) override { v("inner", inner); }
};
struct Other : ConfigOf<Other> {
  static constexpr std::string_view kName = "Other";
  void fields(FieldVisitor&) override {}
};
struct Net : ConfigOf<Net> {
  static constexpr std::string_view kName = "Net";
  std::int64_t width = 4;
  Child<Block> first;
  std::vector<Child<Block>> rest;
  Child<Norm> norm = Norm{};
  void fields(FieldVisitor& v) override {
    v("width", width);
    v("first", first);
    v("rest", rest);
    v("norm", norm);
  }
};

ClassTable table() {
  ClassTable classes;
  classes.add<Norm>();
  classes.add<Dense>();
  classes.add<Experts>();
  classes.add<Wrap>();
  classes.add<Other>();
  classes.add<Net>();
  return classes;
}

Net net() {
  Dense dense;
  dense.hidden = 16;
  Norm norm;
  norm.eps = 1e-3;
  dense.norm = norm;
  Wrap wrap;
  wrap.inner = dense;
  Net n;
  n.first = dense;
  n.rest = {Child<Block>(wrap), Child<Block>(norm)};
  return n;
}

TEST(Replace, KeepsSharedFieldsAndReportsPaths) {
  Net n = net();
  std::vector<std::string> dropped;
  const auto paths = replace(n, "Dense", "Experts{count=4}", table(), &dropped);
  EXPECT_THAT(paths, ElementsAre("first", "rest[0].inner"));
  EXPECT_THAT(dropped, IsEmpty());  // only defaults had no place
  EXPECT_EQ(
      diff(net(), n),
      "-first: Dense\n+first: Experts\n-first.bias: false\n+first.count: 4\n"
      "-first.activation: \"silu\"\n+first.activation: []\n"
      "-rest[0].inner: Dense\n+rest[0].inner: Experts\n-rest[0].inner.bias: false\n+rest[0].inner.count: 4\n"
      "-rest[0].inner.activation: \"silu\"\n+rest[0].inner.activation: []\n");
  EXPECT_EQ(get(n, "first.norm.eps"), "0.001");
}

TEST(Replace, ReportsSetFieldsThatHaveNoPlace) {
  Net n = net();
  n.first.as<Dense>()->bias = true;
  n.first.as<Dense>()->activation = "gelu";
  std::vector<std::string> dropped;
  replace(n, "Dense", "Experts{}", table(), &dropped);
  EXPECT_THAT(dropped, ElementsAre("first.bias", "first.activation"));
}

TEST(Replace, TextWinsOverTheOldNode) {
  Net n = net();
  replace(n, "Dense", "Dense{hidden=32}", table());
  EXPECT_EQ(diff(net(), n),
            "-first.hidden: 16\n+first.hidden: 32\n-rest[0].inner.hidden: 16\n+rest[0].inner.hidden: 32\n");
  Net again = n;
  replace(again, "Dense", "Dense{hidden=32}", table());
  EXPECT_EQ(diff(n, again), "");
}

TEST(Replace, MustMatch) {
  Net n = net();
  EXPECT_EQ(message_of([&] { replace(n, "Dens", "Norm{}", table()); }),
            "selection ** of class Dens: must match at least one node; found none of this class, did you "
            "mean 'Dense'?");
  EXPECT_EQ(message_of([&] { replace(n, "Experts", "Norm{}", table()); }),
            "selection ** of class Experts: must match at least one node; found none of this class");
  EXPECT_EQ(message_of([&] { replace(n, "Net", "Net{}", table()); }),
            "replace Net: the root itself cannot be replaced");
}

TEST(Replace, ABadReplacementLeavesTheTreeAlone) {
  Net n = net();
  EXPECT_EQ(message_of([&] { replace(n, "Dense", "Other{}", table()); }),
            "first: must be a Block; found 'Other'");
  // Fits the slots of class Block, but not `norm`, which is visited last.
  EXPECT_EQ(message_of([&] { replace(n, "Norm", "Wrap{}", table()); }), "norm: must be a Norm; found 'Wrap'");
  EXPECT_THROW(replace(n, "Dense", "Experts{cout=1}", table()), Error);
  EXPECT_THROW(replace(n, "Dense", "Experts{} trailing", table()), Error);
  EXPECT_EQ(diff(net(), n), "");
}

TEST(Replace, ANodeInsideItsReplacementIsNotReplacedAgain) {
  Net n = net();
  const auto paths = replace(n, "Dense", "Wrap{inner=Dense{hidden=1}}", table());
  EXPECT_THAT(paths, ElementsAre("first", "rest[0].inner"));
  EXPECT_EQ(get(n, "first.inner.hidden"), "1");
}

}  // namespace
}  // namespace meshloom::layers

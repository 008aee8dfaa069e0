// Modules and contexts, with modules that exist only here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "kernels/core/catalog.h"
#include "layers/core/layer.h"
#include "tests/message_of.h"

namespace meshloom::layers {
namespace {

using testing::ElementsAre;
using tests::message_of;

// Owns one parameter; hands its input on. Records the key it was called with.
struct Probe : Layer {
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "Probe";
    Required<std::int64_t> width;
    void fields(FieldVisitor& v) override { v("width", width); }
    std::unique_ptr<Module> build(const Place& place) const override {
      return std::make_unique<Probe>(*this, place);
    }
  };
  Probe(const Config& config, const Place& place)
      : Layer(place),
        depth(inherited<Depth>()),
        weight(parameter("weight", {config.width, config.dims.input}, {"mlp", "embed"}, Normal{})) {}
  Tensor forward(Context& ctx, Tensor x) override {
    ctx.parameter(weight);
    keys.push_back(ctx.key());
    if (const auto* number = ctx.find<int>()) seen = *number;
    ctx.output("x", x);
    return x;
  }
  const Depth* depth;
  const Parameter& weight;
  std::vector<Key> keys;
  int seen = 0;
};

struct Pair : Layer {
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "Pair";
    Child<Layer::Config> first = Probe::Config{};
    Child<Layer::Config> second = Probe::Config{};
    std::string second_name = "second";
    void fields(FieldVisitor& v) override {
      v("first", first);
      v("second", second);
      v("second_name", second_name);
    }
    std::unique_ptr<Module> build(const Place& place) const override {
      return std::make_unique<Pair>(*this, place);
    }
  };
  Pair(const Config& config, const Place& place) : Layer(place) {
    provide(Depth{5});
    first = &child("first", config.first, config.dims);
    if (config.second) second = &child(config.second_name, config.second, config.dims);
  }
  Tensor forward(Context& ctx, Tensor x) override {
    x = (*first)(ctx, x);
    return second ? (*second)(ctx, x) : x;
  }
  Layer *first = nullptr, *second = nullptr;
};

Pair::Config pair_config() {
  Probe::Config probe;
  probe.width = 3;
  Pair::Config config;
  config.first = probe;
  config.second = probe;
  config.dims = Layer::same(4);
  return config;
}

struct Fixture {
  kernels::Catalog catalog;
  kernels::Program program;
  kernels::Builder builder{catalog, program};
  Record record;
  Tensor x = builder.input("x", {kernels::DType::f32, {2, 4}}, kernels::Role::input);
  Tensor one = builder.input("one", {kernels::DType::f32, {1}}, kernels::Role::input);

  void declare(const Module& root) {
    root.visit([&](const Module& module) {
      for (const Parameter& p : module.parameters())
        record.parameters[p.path] = builder.input(p.path, p.type, kernels::Role::parameter, p.axes);
    });
  }
};

TEST(Module, BuildsATreeWithPathsAndParameters) {
  const Pair pair(pair_config(), {});
  EXPECT_EQ(pair.path(), "");
  std::vector<std::string> paths, parameters;
  pair.visit([&](const Module& module) {
    paths.push_back(module.path());
    for (const Parameter& p : module.parameters()) parameters.push_back(p.path);
  });
  EXPECT_THAT(paths, ElementsAre("", "first", "second"));
  EXPECT_THAT(parameters, ElementsAre("first/weight", "second/weight"));
  const auto& probe = dynamic_cast<const Probe&>(*pair.children()[0]);
  EXPECT_EQ(probe.weight.type.shape, (kernels::Shape{3, 4}));
  EXPECT_THAT(probe.weight.axes, ElementsAre("mlp", "embed"));
  ASSERT_NE(probe.depth, nullptr);
  EXPECT_EQ(probe.depth->layers, 5);
  EXPECT_EQ(probe.weight.depth, 5);
}

TEST(Module, TheConfigOfAParentIsNotChangedByBuilding) {
  const Pair::Config config = pair_config();
  const Pair pair(config, {});
  EXPECT_EQ(config.first->dims.input, 0);
}

TEST(Module, ErrorsNameThePath) {
  Pair::Config config = pair_config();
  config.second_name = "first";
  EXPECT_EQ(message_of([&] { Pair(config, {}); }),
            "model: names of children, parameters and state must be used only once; found 'first' again");
  config.second_name = "a/b";
  EXPECT_EQ(message_of([&] { Pair(config, {}); }),
            "model: a name must be of lower-case letters, digits and '_', a letter first; found 'a/b'");
  config = pair_config();
  config.first = {};
  EXPECT_EQ(message_of([&] { Pair(config, {}); }), "model: child 'first' must not be none; found none");
  config = pair_config();
  config.second = Probe::Config{};
  EXPECT_EQ(message_of([&] { Pair(config, {}); }),
            "second (Probe): a required field was read before it was set");
  Pair::Config outer = pair_config();
  outer.first = config;
  EXPECT_EQ(message_of([&] { Pair(outer, {}); }),
            "first/second (Probe): a required field was read before it was set");
  config = pair_config();
  config.dims = Layer::same(0);
  EXPECT_EQ(message_of([&] { Pair(config, {}); }),
            "first: parameter 'weight' must have positive dimensions; found (3, 0)");
}

std::vector<float> values(const Module& root, const std::string& path, std::uint64_t seed) {
  std::vector<float> found;
  root.visit([&](const Module& module) {
    for (const Parameter& p : module.parameters())
      if (p.path == path) {
        found.resize(static_cast<std::size_t>(p.type.elements()));
        p.initialize(seed, found.data());
      }
  });
  return found;
}

TEST(Module, ParametersStartFromSeedAndPathOnly) {
  Pair::Config both = pair_config(), alone = pair_config();
  alone.second = {};
  Pair::Config swapped = pair_config();
  swapped.first = pair_config();  // another sibling, with parameters of its own
  const Pair a(both, {}), b(alone, {}), c(swapped, {});
  EXPECT_FALSE(values(a, "first/weight", 1).empty());
  EXPECT_EQ(values(a, "first/weight", 1), values(b, "first/weight", 1));
  EXPECT_EQ(values(a, "second/weight", 1), values(c, "second/weight", 1));
  EXPECT_NE(values(a, "first/weight", 1), values(a, "second/weight", 1));
  EXPECT_NE(values(a, "first/weight", 1), values(a, "first/weight", 2));
}

TEST(Context, KeysDependOnThePathOnly) {
  Fixture f, g;
  Pair pair(pair_config(), {});
  Pair::Config config = pair_config();
  config.first = pair_config();
  Pair other(config, {});
  f.declare(pair);
  g.declare(other);
  Context ctx(f.builder, f.record, {9}), ctx2(g.builder, g.record, {9});
  pair.forward(ctx, f.x);
  other.forward(ctx2, g.x);
  const auto& probe = dynamic_cast<const Probe&>(*pair.children()[1]);
  EXPECT_THAT(probe.keys, ElementsAre(fold_in({9}, "second")));
  EXPECT_EQ(probe.keys, dynamic_cast<const Probe&>(*other.children()[1]).keys);
}

TEST(Context, PathsFollowTheScopes) {
  Fixture f;
  Context root(f.builder, f.record);
  EXPECT_EQ(f.builder.path, "");
  {
    Context a = root.child("a");
    EXPECT_EQ(f.builder.path, "a");
    {
      Context b = a.child("b");
      EXPECT_EQ(f.builder.path, "a/b");
      EXPECT_EQ(b.tag(), "a.b");
    }
    EXPECT_EQ(f.builder.path, "a");
  }
  EXPECT_EQ(f.builder.path, "");
}

TEST(Context, ConflictsAreErrors) {
  Fixture f;
  Pair pair(pair_config(), {});
  f.declare(pair);
  Context ctx(f.builder, f.record);
  (*pair.first)(ctx, f.x);
  EXPECT_EQ(message_of([&] { (*pair.first)(ctx, f.x); }),
            "model: a second call of the same child needs a name of its own; found 'first' again");
  (*pair.first)(ctx, f.x, "first_again");  // the same parameters under another name
  EXPECT_EQ(f.record.used, std::set<std::string>{"first/weight"});
  ctx.summary("s", f.one);
  EXPECT_EQ(message_of([&] { ctx.summary("s", f.one); }),
            "model: a summary must be given only once; found 's' again");
  EXPECT_EQ(message_of([&] { ctx.summary("t", f.x); }),
            "model: summary 't' must be one number; found f32(2, 4)");
  ctx.output("o", f.x);
  EXPECT_EQ(message_of([&] { ctx.output("o", f.x); }),
            "model: an output must be given only once; found 'o' again");
  EXPECT_THROW(ctx.child("Bad"), Error);
}

TEST(Context, ParametersMustBelongToTheModel) {
  Fixture f;
  Pair pair(pair_config(), {});
  Context ctx(f.builder, f.record);
  EXPECT_EQ(message_of([&] { (*pair.first)(ctx, f.x); }),
            "first: a parameter must belong to a module of the model; found 'first/weight'");
}

TEST(Context, OutputsAreReadByCallersAbove) {
  Fixture f;
  Pair pair(pair_config(), {});
  f.declare(pair);
  Context root(f.builder, f.record);
  Context ctx = root.child("pair");
  pair.forward(ctx, f.x);
  EXPECT_EQ(ctx.output_of("first/x").id, f.x.id);
  EXPECT_EQ(root.output_of("pair/first/x").id, f.x.id);
  EXPECT_EQ(root.outputs_named("x").size(), 2u);
  EXPECT_EQ(root.outputs_named("y").size(), 0u);
  Context other = root.child("other");
  EXPECT_EQ(other.outputs_named("x").size(), 0u);
  EXPECT_EQ(message_of([&] { ctx.output_of("first/y"); }),
            "pair: some call below must leave an output 'first/y'; found pair/first/x, pair/second/x");
}

TEST(Context, CallInformationReachesTheInnermostCall) {
  Fixture f;
  Pair::Config config = pair_config();
  config.second = pair_config();
  Pair pair(config, {});
  f.declare(pair);
  Context root(f.builder, f.record);
  root.put(42);
  pair.forward(root, f.x);
  EXPECT_EQ(dynamic_cast<Probe&>(*pair.children()[1]->children()[1]).seen, 42);
  Context inner = root.child("inner");
  inner.put(43);
  EXPECT_EQ(inner.get<int>("int"), 43);
  EXPECT_EQ(root.get<int>("int"), 42);
  EXPECT_EQ(message_of([&] { inner.get<Tokens>("Tokens"); }),
            "inner: must be called with Tokens in its context; found none");
}

// Somebody else's function: tensors in, tensors out.
Tensor foreign(Tensor x, Tensor one) {
  if (Context* ctx = Context::current()) ctx->summary("seen", one);
  return x;
}

TEST(Context, TheCurrentOneIsFoundByForeignCode) {
  Fixture f;
  EXPECT_EQ(Context::current(), nullptr);
  foreign(f.x, f.one);  // outside of any call
  {
    Context root(f.builder, f.record);
    EXPECT_EQ(Context::current(), &root);
    foreign(f.x, f.one);
    {
      Context inner = root.child("inner");
      EXPECT_EQ(Context::current(), &inner);
      foreign(f.x, f.one);
      Context* other = &inner;
      std::thread([&] {
        other = Context::current();
        const ContextScope scope(root);
        EXPECT_EQ(Context::current(), &root);
      }).join();
      EXPECT_EQ(other, nullptr) << "another thread is in no call until it enters one";
      EXPECT_EQ(Context::current(), &inner);
    }
    EXPECT_EQ(Context::current(), &root);
  }
  EXPECT_EQ(Context::current(), nullptr);
  EXPECT_EQ(f.record.summaries.count("seen") + f.record.summaries.count("inner/seen"), 2u);
}

TEST(Context, StateIsUpdatedOnce) {
  Fixture f;
  State state;
  state.path = "count";
  state.type.shape = {1};
  state.axes = {""};
  Context ctx(f.builder, f.record);
  EXPECT_EQ(message_of([&] { ctx.state(state); }),
            "model: a state must belong to a module of the model; found 'count'");
  f.record.states["count"] = f.builder.input("count", state.type, kernels::Role::state);
  EXPECT_EQ(message_of([&] { ctx.update(state, f.x); }),
            "model: the next value of 'count' must be a f32(1); found f32(2, 4)");
  ctx.update(state, f.one);
  EXPECT_EQ(message_of([&] { ctx.update(state, f.one); }),
            "model: a state must be updated once per step; found 'count' again");
}

}  // namespace
}  // namespace meshloom::layers

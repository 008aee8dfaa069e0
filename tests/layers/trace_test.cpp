// What tracing gives, its errors, and how modules from outside fit in.
#include "layers/models/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "kernels/core/catalog.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/program/verify.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "layers/config/tree.h"
#include "layers/models/models.h"

namespace meshloom::layers {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;

LlamaShape tiny() { return {.vocab = 11, .dim = 8, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 12}; }

const kernels::Catalog& catalog() {
  static const kernels::Catalog contracts = [] {
    kernels::Catalog c;
    kernels::add_contracts(c);
    return c;
  }();
  return contracts;
}

template <typename Fn>
std::string message(Fn fn) {
  try {
    fn();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Trace, LossProgram) {
  const Traced t = trace_loss(llama_config(tiny()), catalog(), 3, 5);
  kernels::verify(t.program, catalog(), "trace");
  EXPECT_EQ(t.program.value(t.tokens).name, "tokens");
  EXPECT_EQ(t.program.value(t.tokens).type.shape, (kernels::Shape{3, 5}));
  EXPECT_EQ(t.program.value(t.targets).name, "targets");
  EXPECT_EQ(t.program.value(t.loss_sum).type.shape, kernels::Shape{1});
  EXPECT_EQ(t.program.value(t.token_count).type.shape, kernels::Shape{1});
  EXPECT_THAT(t.program.outputs, ElementsAre(t.loss_sum, t.token_count));
  ASSERT_EQ(t.program.inputs.size(), t.parameters.size() + 2);
  for (std::size_t i = 0; i < t.parameters.size(); ++i) {
    const kernels::Value& value = t.program.value(t.program.inputs[i + 2]);
    EXPECT_EQ(value.name, t.parameters[i].path);
    EXPECT_EQ(value.type, t.parameters[i].type);
    EXPECT_EQ(value.axes, t.parameters[i].axes);
    EXPECT_EQ(value.role, kernels::Role::parameter);
  }
}

TEST(Trace, LogitsProgram) {
  const Traced t = trace_logits(llama_config(tiny()), catalog(), 3, 5);
  kernels::verify(t.program, catalog(), "trace");
  EXPECT_EQ(t.program.value(t.logits).type.shape, (kernels::Shape{3, 5, 11}));
  EXPECT_THAT(t.program.value(t.logits).axes, ElementsAre("batch", "seq", "vocab"));
  EXPECT_EQ(t.targets, kernels::kNoValue);
  EXPECT_THAT(t.program.outputs, ElementsAre(t.logits));
}

TEST(Trace, ActivationsCarryTags) {
  const Traced t = trace_loss(llama_config(tiny()), catalog(), 3, 5);
  std::set<std::string> tags;
  for (const kernels::Value& value : t.program.values) tags.insert(value.tag);
  EXPECT_THAT(tags, IsSupersetOf({"attention.q_proj", "attention.k_proj", "attention.v_proj",
                                  "attention.context", "attention.o_proj", "feed_forward.gate_proj",
                                  "feed_forward.up_proj", "feed_forward.down_proj", "feed_forward.hidden",
                                  "layer.input", "norm", "decoder.head"}));
}

TEST(Trace, ATiedHeadUsesTheOneParameterTwice) {
  LlamaShape shape = tiny();
  shape.tied = true;
  const Traced t = trace_loss(llama_config(shape), catalog(), 3, 5);
  kernels::ValueId table = kernels::kNoValue;
  for (const kernels::ValueId id : t.program.inputs)
    if (t.program.value(id).name == "decoder/embedding/weight") table = id;
  std::vector<std::string> users;
  for (const kernels::Call& call : t.program.calls)
    for (const kernels::ValueId id : call.inputs)
      if (id == table) users.push_back(call.path + " " + call.op);
  EXPECT_THAT(users, ElementsAre("decoder/embedding embedding", "decoder/head matmul"));
}

TEST(Trace, Errors) {
  CausalLM::Config model = gpt2_config({.vocab = 11, .dim = 8, .layers = 1, .heads = 2, .context = 6});
  const auto loss = [&](std::int64_t batch, std::int64_t sequence) {
    return message([&] { trace_loss(model, catalog(), batch, sequence); });
  };
  EXPECT_EQ(loss(1, 6), "no error");
  EXPECT_EQ(loss(1, 7), "model: must get sequences of at most 6 tokens; found 7");
  EXPECT_EQ(loss(0, 6), "model: batch and sequence must be positive; found 0 and 6");
  EXPECT_EQ(message([&] { trace_loss(Linear::Config{}, catalog(), 1, 1); }),
            "model: the root of a model must be a language model; found 'Linear'");
  model.vocab_size = Required<std::int64_t>{};
  EXPECT_EQ(loss(1, 6), "config: every required field must be set; found unset: vocab_size (CausalLM)");
  ClassTable classes;
  add_layer_classes(classes);
  const auto with = [&](const char* path, const char* text) {
    CausalLM::Config changed = llama_config(tiny());
    return message([&] {
      set(changed, path, text, classes);
      trace_loss(changed, catalog(), 1, 4);
    });
  };
  const char* kAttention = "decoder/stack/layer0/attention: ";
  const std::string heads = "decoder.stack.layer.attention.";
  EXPECT_EQ(with((heads + "num_kv_heads").c_str(), "3"),
            kAttention + std::string("num_heads must be a multiple of num_kv_heads; found 4 and 3"));
  EXPECT_EQ(with((heads + "num_kv_heads").c_str(), "0"),
            heads + "num_kv_heads: Attention.num_kv_heads must be at least 1; found 0");
  EXPECT_EQ(
      with("decoder.dim", "10"),
      kAttention +
          std::string("without a head_dim, the model's dimension must be a multiple of num_heads; found 10 "
                      "and 4"));
  EXPECT_EQ(with((heads + "head_dim").c_str(), "3"),
            "decoder/stack/layer0/attention/positions: must rotate an even number of features, at most the "
            "head dimension, 3; found 3");
  EXPECT_EQ(with((heads + "positions.pairing").c_str(), "halves"),
            heads + "positions.pairing: RotaryPosition.pairing must be half or interleaved; found 'halves'");
  EXPECT_EQ(with("decoder.stack.num_layers", "0"),
            "decoder.stack.num_layers: Stack.num_layers must be at least 1; found 0");
  EXPECT_EQ(with("decoder.norm", "none"), "decoder: child 'norm' must not be none; found none");
  EXPECT_EQ(with("decoder.stack.layer.feed_forward.activation", "none"),
            "decoder/stack/layer0/feed_forward: activation must not be none; found none");
  EXPECT_EQ(with("vocab_size", "-5"), "vocab_size: CausalLM.vocab_size must be at least 1; found -5");
}

// ---- Modules that exist only here: no file in layers/ knows of them. ----

// Stands in any slot of a Layer, whatever was there: the parents know nothing but its dimensions.
class Opaque : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "Opaque";
    void fields(FieldVisitor&) override {}
    std::unique_ptr<Module> build(const Place& place) const override {
      return std::make_unique<Opaque>(*this, place);
    }
  };
  Opaque(const Config& config, const Place& place) : Layer(place) {
    Linear::Config linear;
    linear_ = &child("linear", Child<Layer::Config>(linear), config.dims);
  }
  Tensor forward(Context& ctx, Tensor x) override { return (*linear_)(ctx, x); }

 private:
  Layer* linear_;
};

TEST(Encapsulation, AnyLayerFitsAnySlotOfALayer) {
  ClassTable classes;
  add_layer_classes(classes);
  classes.add<Opaque::Config>();
  const CausalLM::Config model = llama_config(tiny());
  std::vector<std::string> slots;
  visit(model, [&](const std::string& path, const Config& node) {
    const bool typed =
        dynamic_cast<const Norm::Config*>(&node) || dynamic_cast<const QueryKeyPosition::Config*>(&node);
    if (dynamic_cast<const Layer::Config*>(&node) && !typed) slots.push_back(path);
  });
  EXPECT_EQ(slots.size(), 12u);
  for (const std::string& slot : slots) {
    CausalLM::Config swapped = model;
    set(swapped, slot, "Opaque{}", classes);
    const Traced t = trace_loss(swapped, catalog(), 2, 3);
    EXPECT_NO_THROW(kernels::verify(t.program, catalog(), "trace")) << slot;
  }
}

// A parent that asks what a child is has broken the seal; only the root of a trace, the builder of children, and what
// makes another model of a whole one may.
TEST(Encapsulation, NoModuleLooksIntoAConfigOfItsChildren) {
  int files = 0;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(MESHLOOM_SOURCE_DIR) + "/layers")) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || entry.path().parent_path().filename() == "config" ||
        name == "trace.cpp" || name == "module.h" || name == "module.cpp" || name == "merge.cpp" ||
        name == "inference_config.cpp" || name == "unused_overrides.cpp")
      continue;
    ++files;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    for (const char* peek : {".as<", "->as<", "dynamic_cast", "class_name()", "typeid(*"})
      EXPECT_EQ(text.str().find(peek), std::string::npos) << name << " uses " << peek;
  }
  EXPECT_GT(files, 20);
}

// A feed-forward with an auxiliary loss, a summary, a state, and a wish for call information.
class Counting : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "Counting";
    void fields(FieldVisitor&) override {}
    std::unique_ptr<Module> build(const Place& place) const override {
      return std::make_unique<Counting>(*this, place);
    }
  };
  Counting(const Config&, const Place& place)
      : Layer(place), calls_(state("calls", {kernels::DType::f32, {1}}, {""})) {}
  Tensor forward(Context& ctx, Tensor x) override {
    EXPECT_EQ(ctx.get<Tokens>("Tokens").sequence, 5);
    const Tensor sum = kernels::reduce_sum(x, 0);
    ctx.summary("sum", sum);
    ctx.output("aux_loss", sum);
    ctx.update(calls_, kernels::add(ctx.state(calls_), sum));
    return x;
  }

 private:
  const State& calls_;
};

TEST(Trace, AuxiliaryLossesSummariesAndState) {
  CausalLM::Config model = llama_config(tiny());
  model.decoder->stack.as<Stack::Config>()->layer.as<TransformerLayer::Config>()->feed_forward =
      Counting::Config{};
  const Traced t = trace_loss(model, catalog(), 3, 5);
  kernels::verify(t.program, catalog(), "trace");
  ASSERT_EQ(t.summaries.size(), 2u);
  EXPECT_TRUE(t.summaries.count("decoder/stack/layer1/feed_forward/sum"));
  ASSERT_EQ(t.state_updates.size(), 2u);
  EXPECT_EQ(t.program.value(t.state_updates[1].first).name, "decoder/stack/layer1/feed_forward/calls");
  EXPECT_EQ(t.program.value(t.state_updates[1].first).role, kernels::Role::state);
  EXPECT_EQ(t.program.donations.size(), 2u);
  EXPECT_EQ(t.program.outputs.size(), 2u + 2 + 2);
  // The loss ends with one multiply and add per layer.
  const Traced plain = trace_loss(llama_config(tiny()), catalog(), 3, 5);
  const auto count = [](const Traced& traced) {
    int calls = 0;
    for (const kernels::Call& call : traced.program.calls)
      calls += call.path.empty() && call.op == "elementwise";
    return calls;
  };
  EXPECT_EQ(count(t), count(plain) + 4);
}

class Forgetful : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "Forgetful";
    void fields(FieldVisitor&) override {}
    std::unique_ptr<Module> build(const Place& place) const override {
      return std::make_unique<Forgetful>(*this, place);
    }
  };
  Forgetful(const Config&, const Place& place) : Layer(place) { parameter("weight", {3}, {""}, Constant{1}); }
  Tensor forward(Context&, Tensor x) override { return x; }
};

TEST(Trace, AParameterThatNobodyUsesIsAnError) {
  CausalLM::Config model = llama_config(tiny());
  model.decoder->stack = Forgetful::Config{};
  EXPECT_EQ(message([&] { trace_loss(model, catalog(), 1, 2); }),
            "decoder/stack/weight: a parameter must be used by some call of its model");
}

}  // namespace
}  // namespace meshloom::layers

// Traced models, run by the contracts' references, against plain loops.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/mask_bits/mask_bits.h"
#include "layers/attention/attention.h"
#include "layers/attention/mask_function.h"
#include "layers/config/tree.h"
#include "layers/models/models.h"
#include "tests/layers/interpreter.h"
#include "tests/layers/oracle.h"

namespace meshloom::layers {
namespace {

using tests::Oracle;

constexpr std::int64_t kBatch = 2, kSequence = 5;
const std::vector<std::int32_t> kTokens = {1, 4, 0, 10, 7, 3, 3, 9, 2, 5};
const std::vector<std::int32_t> kTargets = {4, 0, 10, 7, -1, 3, 9, 2, -100, 6};

const kernels::Catalog& catalog() {
  static const kernels::Catalog all = [] {
    kernels::Catalog made;
    kernels::add_contracts(made);
    return made;
  }();
  return all;
}

// Larger than a model starts with, so that every part of it shows in the output.
std::vector<float> values(const ParameterInfo& parameter) {
  std::vector<float> v(static_cast<std::size_t>(parameter.type.elements()));
  normal(fold_in_path(Key{5}, parameter.path), 0, parameter.type.elements(), v.data());
  for (float& x : v) x *= parameter.decay ? 0.5f : 0.25f;
  if (parameter.path.find("norm/weight") != std::string::npos)
    for (float& x : v) x += 1;
  return v;
}

struct Results {
  Oracle::Rows logits;
  double loss_sum, token_count;
};

// `more`: inputs that the model makes beside its tokens, by name.
Results run(const CausalLM::Config& model, Oracle& oracle,
            const std::map<std::string, std::vector<std::int32_t>>& more = {}) {
  Results results;
  for (const bool loss : {true, false}) {
    const Traced t = loss ? trace_loss(model, catalog(), kBatch, kSequence)
                          : trace_logits(model, catalog(), kBatch, kSequence);
    tests::Values inputs;
    inputs[t.tokens] = tests::host(t.program.value(t.tokens).type, kTokens.data());
    if (loss) inputs[t.targets] = tests::host(t.program.value(t.targets).type, kTargets.data());
    for (std::size_t i = 0; i < t.parameters.size(); ++i) {
      const ParameterInfo& parameter = t.parameters[i];
      oracle.parameters[parameter.path] = values(parameter);
      inputs[t.program.inputs[i + (loss ? 2 : 1)]] =
          tests::host(parameter.type, oracle.parameters[parameter.path].data());
    }
    for (const kernels::ValueId id : t.program.inputs)
      if (const auto found = more.find(t.program.value(id).name); found != more.end())
        inputs[id] = tests::host(t.program.value(id).type, found->second.data());
    const tests::Values all = tests::interpret(t.program, catalog(), std::move(inputs));
    if (loss) {
      results.loss_sum = all.at(t.loss_sum).as<float>()[0];
      results.token_count = all.at(t.token_count).as<float>()[0];
    } else {
      const float* logits = all.at(t.logits).as<float>();
      for (std::int64_t row = 0; row < kBatch * kSequence; ++row)
        results.logits.emplace_back(logits + row * oracle.vocab, logits + (row + 1) * oracle.vocab);
    }
  }
  return results;
}

// Every op rounds its f32 results once, so the error grows with the number of calls on the longest way
// through the model: below 64 here. A norm in between keeps the values around 1.
constexpr double kTolerance = 64 * hal::epsilon(hal::DType::f32);

void expect_equal(const Results& got, const Oracle& oracle, bool llama, bool tied) {
  double loss = 0;
  for (std::int64_t b = 0; b < kBatch; ++b) {
    const auto row = [&](const std::vector<std::int32_t>& all) {
      return std::vector<std::int32_t>(all.begin() + b * kSequence, all.begin() + (b + 1) * kSequence);
    };
    const Oracle::Rows want = oracle.logits(row(kTokens), llama, tied);
    for (std::int64_t s = 0; s < kSequence; ++s)
      for (std::int64_t v = 0; v < oracle.vocab; ++v)
        EXPECT_NEAR(got.logits[b * kSequence + s][v], want[s][v],
                    kTolerance * std::max(1.0, std::abs(want[s][v])));
    loss += Oracle::loss(want, row(kTargets));
  }
  EXPECT_NEAR(got.loss_sum, loss, kTolerance * std::abs(loss));
  EXPECT_EQ(got.token_count, 8);
  EXPECT_GT(loss, 8);  // of no use if all were zero
}

TEST(Numbers, Llama) {
  for (const bool tied : {false, true}) {
    const CausalLM::Config model = llama_config({.vocab = 11,
                                                 .dim = 8,
                                                 .layers = 2,
                                                 .heads = 4,
                                                 .kv_heads = 2,
                                                 .ffn = 12,
                                                 .tied = tied,
                                                 .head_dim = 4});
    Oracle oracle{{}, 11, 8, 2, 4, 2, 12};
    expect_equal(run(model, oracle), oracle, true, tied);
  }
}

TEST(Numbers, Gpt2) {
  const CausalLM::Config model = gpt2_config({.vocab = 11, .dim = 8, .layers = 2, .heads = 2, .context = 6});
  Oracle oracle{{}, 11, 8, 2, 2, 2, 32};
  expect_equal(run(model, oracle), oracle, false, true);
}

// Gives what is below it the documents of packed sequences and the lengths of prefixes, as inputs.
class Documents : public Layer {
 public:
  struct Config : ConfigOf<Config, Layer::Config> {
    static constexpr std::string_view kName = "Documents";
    bool segments = false, prefix = false;
    Child<Layer::Config> layer;

    void fields(FieldVisitor& v) override {
      v("segments", segments);
      v("prefix", prefix);
      v("layer", layer);
    }
    std::unique_ptr<Module> build(const Place& place) const override {
      return std::make_unique<Documents>(*this, place);
    }
  };

  Documents(const Config& config, const Place& place)
      : Layer(place), segments_(config.segments), prefix_(config.prefix) {
    layer_ = &child("layer", config.layer, config.dims);
  }
  Tensor forward(Context& ctx, Tensor x) override {
    const auto [batch, sequence] = ctx.get<Tokens>("Tokens");
    kernels::Builder& builder = ctx.builder();
    const auto input = [&](const char* name, kernels::Shape shape) {
      return builder.input(name, {kernels::DType::i32, std::move(shape)}, kernels::Role::input);
    };
    if (segments_) ctx.put(Segments{input("segments", {batch, sequence})});
    if (prefix_) ctx.put(Prefix{input("prefix", {batch})});
    return (*layer_)(ctx, x);
  }

 private:
  bool segments_, prefix_;
  Layer* layer_;
};

const LlamaShape kMasked{
    .vocab = 11, .dim = 8, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 12, .head_dim = 4};

CausalLM::Config masked(const std::map<std::string, std::string>& fields) {
  ClassTable classes;
  add_layer_classes(classes);
  CausalLM::Config model = llama_config(kMasked);
  for (const auto& [name, text] : fields)
    set(model, "decoder.stack.layer.attention." + name, text, classes);  // false for what is there already
  return model;
}

// The same as the oracle that sees what `visible` says.
void expect_masked(const std::map<std::string, std::string>& fields,
                   const std::function<bool(std::size_t, std::size_t)>& visible,
                   const std::function<void(Oracle&)>& change = {}) {
  Oracle oracle{{}, 11, 8, 2, 4, 2, 12};
  oracle.visible = visible;
  if (change) change(oracle);
  expect_equal(run(masked(fields), oracle), oracle, true, false);
}

bool causal(std::size_t i, std::size_t j) { return j <= i; }

TEST(Numbers, Masks) {
  expect_masked({{"mask", "Causal{}"}}, causal);
  expect_masked({{"mask", "Full{}"}}, [](auto, auto) { return true; });
  expect_masked({{"mask", "SlidingWindow{window=2}"}}, [](auto i, auto j) { return j <= i && i - j < 2; });
  expect_masked({{"mask", "SlidingWindow{window=1}"}}, [](auto i, auto j) { return i == j; });
  expect_masked({{"mask", "LeftRightWindow{left=1 right=2}"}},
                [](auto i, auto j) { return j + 1 >= i && j <= i + 2; });
  expect_masked({{"mask", "LeftRightWindow{left=2 right=0}"}},
                [](auto i, auto j) { return j <= i && j + 2 >= i; });
  expect_masked({{"mask", "LeftRightWindow{right=1}"}}, [](auto i, auto j) { return j <= i + 1; });
}

TEST(Numbers, MaskFunctions) {
  const auto expect = [](const std::string& text, const std::string& base,
                         const std::function<bool(std::size_t, std::size_t)>& visible) {
    SCOPED_TRACE(text);
    expect_masked({{"mask", "MaskFunction{visible=\"" + text + "\"" + base + "}"}}, visible);
  };
  // Dilated, in blocks, global tokens and a window, a prefix.
  expect("(q - k) % 2 == 0", " base=Causal{}", [](auto i, auto j) { return j <= i && (i - j) % 2 == 0; });
  expect("q // 2 == k // 2", " base=Full{}", [](auto i, auto j) { return i / 2 == j / 2; });
  expect("k < 1 or q < 1 or abs(q - k) <= 1", " base=Full{}",
         [](auto i, auto j) { return j < 1 || i < 1 || (i <= j + 1 && j <= i + 1); });
  expect("k < 3 or k <= q", " base=Full{}", [](auto i, auto j) { return j < 3 || j <= i; });
  expect("not k == 1", " base=SlidingWindow{window=2}",
         [](auto i, auto j) { return j <= i && i < j + 2 && (j != 1); });
}

// What mask.h shows.
struct EveryOther : ConfigOf<EveryOther, Mask> {
  static constexpr std::string_view kName = "EveryOther";
  void fields(FieldVisitor&) override {}
  void apply(const Context& ctx, kernels::FlashAttentionOptions& options) const override {
    const std::int64_t sequence = ctx.get<Tokens>("Tokens").sequence;
    options.causal = true;
    options.attention_bitmask = kernels::mask_bits(ctx.builder(), "(x0 - x1) % 2 == 0", sequence, sequence);
  }
};

TEST(Numbers, AMaskOfAnotherClass) {
  CausalLM::Config model = masked({});
  const auto attend = [&](const auto& of) {
    visit(model, [&](const std::string&, Config& node) {
      if (auto* attention = dynamic_cast<Attention::Config*>(&node)) attention->mask = of;
    });
  };
  attend(EveryOther{});
  Oracle oracle{{}, 11, 8, 2, 4, 2, 12};
  oracle.visible = [](auto i, auto j) { return j <= i && (i - j) % 2 == 0; };
  expect_equal(run(model, oracle), oracle, true, false);
  MaskFunction function;
  function.visible = std::string("k > 0");
  function.base = EveryOther{};
  attend(function);
  try {
    trace_loss(model, catalog(), 1, 4);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(
        std::string(error.what())
            .find("decoder/stack/layer0/attention: only one mask of an attention may have an expression"),
        std::string::npos)
        << error.what();
  }
}

// All layers read the bits that the first of them made.
TEST(Numbers, AMaskFunctionIsComputedOnce) {
  const auto count = [](const std::string& mask) {
    const Traced t = trace_loss(masked({{"mask", mask}}), catalog(), 2, 5);
    return std::count_if(t.program.calls.begin(), t.program.calls.end(), [](const kernels::Call& call) {
      EXPECT_TRUE(call.op != "mask_bits" || call.path.empty()) << call.path;
      return call.op == "mask_bits";
    });
  };
  EXPECT_EQ(count("Causal{}"), 0);
  EXPECT_EQ(count("MaskFunction{visible=\"k % 3 > 0\" base=Full{}}"), 1);
}

TEST(Numbers, RelativeBiases) {
  // Buckets of 0, 1 | 2 .. in logarithms up to 8: those of distances 2 and 3 | 4 and beyond, of 4; and of each direction, of 8.
  const auto bucket = [](std::int64_t back) {
    return std::min<std::int64_t>(back < 2 ? back : back < 4 ? 2 : 3, 3);
  };
  for (const bool both : {false, true}) {
    const std::int64_t buckets = both ? 8 : 4;
    expect_masked(
        {{"mask", both ? "Full{}" : "Causal{}"},
         {"distance_bias", "RelativeBias{buckets=" + std::to_string(buckets) +
                               " max_distance=8 bidirectional=" + (both ? "true}" : "false}")}},
        [both](auto i, auto j) { return both || j <= i; },
        [&](Oracle& o) {
          o.bias = [&o, both, bucket](const std::string& layer, auto h, auto i, auto j) {
            const auto distance = static_cast<std::int64_t>(j) - static_cast<std::int64_t>(i);
            const std::int64_t row = both ? (distance > 0 ? 4 : 0) + bucket(std::abs(distance))
                                          : bucket(std::max<std::int64_t>(-distance, 0));
            return o.at(layer + "attention/distance_bias/weight")[static_cast<std::size_t>(row * 4 + h)];
          };
        });
  }
}

TEST(Numbers, ScoreModifiers) {
  expect_masked({{"soft_cap", "0.5"}}, causal, [](Oracle& o) { o.soft_cap = 0.5; });
  expect_masked({{"sink", "Constant{}"}}, causal, [](Oracle& o) { o.sinks = true; });
  expect_masked({{"distance_bias", "Alibi{}"}}, causal, [](Oracle& o) {
    o.slopes = {1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256};
  });
}

TEST(Numbers, AlibiOfHeadsThatAreNoPowerOfTwo) {
  const std::vector<double> slopes = Alibi::slopes(6), four = Alibi::slopes(4), eight = Alibi::slopes(8);
  for (std::size_t h = 0; h < 4; ++h) EXPECT_DOUBLE_EQ(slopes[h], four[h]);
  EXPECT_DOUBLE_EQ(slopes[4], eight[0]);
  EXPECT_DOUBLE_EQ(slopes[5], eight[2]);
}

TEST(Numbers, DocumentsAndPrefixes) {
  const std::vector<std::int32_t> segments = {0, 0, 1, 1, 1, 4, 4, 4, 4, 2}, prefix = {3, 0};
  for (const bool with_prefix : {false, true}) {
    CausalLM::Config model = masked({{"mask", with_prefix ? "PrefixLM{}" : "Causal{}"}});
    Documents::Config documents;
    documents.segments = !with_prefix;
    documents.prefix = with_prefix;
    documents.layer = model.decoder->stack;
    model.decoder->stack = documents;
    Oracle oracle{{}, 11, 8, 2, 4, 2, 12};
    const Results got = run(model, oracle, {{"segments", segments}, {"prefix", prefix}});
    // The wrapped stack's parameters are one level further down than the oracle looks.
    for (const auto& [path, values] : std::map(oracle.parameters))
      if (const std::size_t at = path.find("stack/layer/"); at != std::string::npos)
        oracle.parameters[std::string(path).replace(at, 12, "stack/")] = values;
    for (std::size_t b = 0; b < kBatch; ++b) {
      oracle.visible = [&](std::size_t i, std::size_t j) {
        if (with_prefix) return j <= i || static_cast<std::int32_t>(j) < prefix[b];
        return j <= i && segments[b * kSequence + i] == segments[b * kSequence + j];
      };
      const auto from = kTokens.begin() + static_cast<std::ptrdiff_t>(b * kSequence);
      const Oracle::Rows want = oracle.logits({from, from + kSequence}, true, false);
      for (std::size_t s = 0; s < kSequence; ++s)
        for (std::size_t v = 0; v < 11; ++v)
          EXPECT_NEAR(got.logits[b * kSequence + s][v], want[s][v],
                      kTolerance * std::max(1.0, std::abs(want[s][v])));
    }
  }
}

TEST(Numbers, MasksThatCannotBe) {
  const auto error = [&](const std::map<std::string, std::string>& fields) -> std::string {
    try {
      trace_loss(masked(fields), catalog(), 1, 4);
    } catch (const Error& refused) {
      return refused.what();
    }
    return "accepted";
  };
  EXPECT_NE(
      error({{"mask", "SlidingWindow{window=0}"}}).find("SlidingWindow.window must be at least 1; found 0"),
      std::string::npos);
  EXPECT_NE(
      error({{"mask", "LeftRightWindow{left=-1}"}}).find("LeftRightWindow.left must be at least 0; found -1"),
      std::string::npos);
  EXPECT_NE(error({{"mask", "PrefixLM{}"}}).find("must be called with Prefix"), std::string::npos);
  EXPECT_NE(error({{"mask", "none"}}).find("must have a mask"), std::string::npos);
  EXPECT_NE(error({{"soft_cap", "-1"}}).find("Attention.soft_cap must be above 0; found -1"),
            std::string::npos);
  EXPECT_EQ(error({{"mask", "MaskFunction{visible=\"k <= j\" base=Full{}}"}}),
            "decoder/stack/layer0/attention: the mask's expression 'k <= j' at character 5 must be an input "
            "(q, k) or a known "
            "function; found 'j'");
  EXPECT_NE(
      error({{"mask", "MaskFunction{visible=\"q;k\" base=Full{}}"}}).find("must be a single one; found 2"),
      std::string::npos);
  EXPECT_NE(error({{"mask", "MaskFunction{visible=\"q\"}"}}).find("must have a base"), std::string::npos);
  EXPECT_NE(error({{"mask", "MaskFunction{visible=\"q\" base=MaskFunction{visible=\"k +\" base=Full{}}}"}})
                .find("'k +'"),
            std::string::npos);
  EXPECT_NE(error({{"mask", "MaskFunction{visible=\"q\" base=MaskFunction{visible=\"k\" base=Full{}}}"}})
                .find("written as one"),
            std::string::npos);
  EXPECT_NE(
      error({{"distance_bias", "RelativeBias{buckets=7}"}}).find("a multiple of 2 and at least 2; found 7"),
      std::string::npos);
  EXPECT_NE(
      error({{"distance_bias", "RelativeBias{buckets=64 max_distance=32}"}}).find("above the 32 distances"),
      std::string::npos);
}

// The comparison would notice: attention that is not causal, another theta, another eps.
TEST(Numbers, NegativeControls) {
  const LlamaShape shape{
      .vocab = 11, .dim = 8, .layers = 2, .heads = 4, .kv_heads = 2, .ffn = 12, .head_dim = 4};
  const auto furthest = [](const CausalLM::Config& model) {
    Oracle oracle{{}, 11, 8, 2, 4, 2, 12};
    const Results got = run(model, oracle);
    const Oracle::Rows want = oracle.logits({kTokens.begin(), kTokens.begin() + kSequence}, true, false);
    double largest = 0;
    for (std::int64_t s = 0; s < kSequence; ++s)
      for (std::int64_t v = 0; v < 11; ++v)
        largest = std::max(largest, std::abs(got.logits[s][v] - want[s][v]));
    return largest;
  };
  ClassTable classes;
  add_layer_classes(classes);
  const auto changed = [&](const char* path, const char* text) {
    CausalLM::Config model = llama_config(shape);
    EXPECT_TRUE(set(model, path, text, classes));
    return furthest(model);
  };
  EXPECT_LT(furthest(llama_config(shape)), 4 * kTolerance);
  EXPECT_GT(changed("decoder.stack.layer.attention.mask", "Full{}"), 16 * kTolerance);
  EXPECT_GT(changed("decoder.stack.layer.attention.positions.theta", "5000"), 16 * kTolerance);
  EXPECT_GT(changed("decoder.stack.layer.attention.positions.pairing", "interleaved"), 16 * kTolerance);
  EXPECT_GT(changed("decoder.norm.eps", "0.01"), 16 * kTolerance);
}

}  // namespace
}  // namespace meshloom::layers

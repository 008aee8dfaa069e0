#include "tests/complexity/features.h"

#include <fmt/format.h>

#include <utility>

#include "hal/wrappers/forwarding_device.h"
#include "kernels/elementwise/elementwise.h"
#include "layers/adapters/lora.h"
#include "layers/cache/contiguous_cache.h"
#include "layers/cache/int8_rows.h"
#include "layers/cache/nf4_rows.h"
#include "layers/moe/moe.h"
#include "layers/position/rope_scaling.h"
#include "trainer/config/modifier.h"

namespace meshloom::tests {
namespace {

using layers::Context;
using layers::Place;
using layers::Tensor;

// Norms that the library does not have: x squashed to within +-(I + 1).
template <int I>
constexpr char kSquashName[] = {'S', 'q', 'u', 'a', 's', 'h', '0' + I};

template <int I>
class Squash : public layers::Norm {
 public:
  struct Config : layers::ConfigOf<Config, layers::Norm::Config> {
    static constexpr std::string_view kName{kSquashName<I>, sizeof kSquashName<I>};
    double gain = 1;
    void fields(layers::FieldVisitor& v) override { v("gain", gain); }
    std::unique_ptr<layers::Module> build(const Place& place) const override {
      return std::make_unique<Squash>(*this, place);
    }
  };
  Squash(const Config& config, const Place& place) : Norm(place), gain_(config.gain) {}
  Tensor forward(Context&, Tensor x) override {
    return kernels::elementwise({x}, (I + 1) * tanh(gain_ / (I + 1) * kernels::Expr::input(0)));
  }

 private:
  double gain_;
};

FeatureVariant norm(const std::string& text, const layers::Child<layers::Norm::Config>& made) {
  return {fmt::format("Replace{{class=RMSNorm with=\"{}\"}}", text), [made](Parts& p) { p.norm = made; }};
}

Feature norms() {
  Feature feature{"norm swap", {}};
  for (const double eps : {1e-5, 1e-3}) {
    layers::LayerNorm::Config made;
    made.eps = eps;
    feature.variants.push_back(norm(fmt::format("LayerNorm{{eps={}}}", eps), made));
  }
  layers::RMSNorm::Config smooth;
  smooth.eps = 0.1;
  feature.variants.push_back(norm("RMSNorm{eps=0.1}", smooth));
  feature.variants.push_back(norm("Squash0{}", Squash<0>::Config{}));
  feature.variants.push_back(norm("Squash1{}", Squash<1>::Config{}));
  feature.variants.push_back(norm("Squash2{}", Squash<2>::Config{}));
  feature.variants.push_back(norm("Squash3{}", Squash<3>::Config{}));
  feature.variants.push_back(norm("Squash4{}", Squash<4>::Config{}));
  return feature;
}

Feature positions() {
  Feature feature{"RoPE", {}};
  const auto add = [&](const std::string& text, const layers::Child<layers::QueryKeyPosition::Config>& made) {
    feature.variants.push_back({fmt::format("Replace{{class=RotaryPosition with=\"{}\"}}", text),
                                [made](Parts& p) { p.positions = made; }});
  };
  using Rotary = layers::RotaryPosition::Config;
  const auto rotary = [](double theta, const char* pairing, std::optional<std::int64_t> dims) {
    Rotary made;
    made.theta = theta;
    made.pairing = pairing;
    made.rotary_dims = dims;
    return made;
  };
  add("RotaryPosition{pairing=interleaved}", rotary(kHostTheta, "interleaved", {}));
  add("RotaryPosition{theta=2}", rotary(2, "half", {}));
  add("RotaryPosition{rotary_dims=2}", rotary(kHostTheta, "half", 2));
  add("RotaryPosition{rotary_dims=2 pairing=interleaved}", rotary(kHostTheta, "interleaved", 2));
  const auto form = [&]<typename Form>(Form made, const std::string& fields) {
    made.theta = kHostTheta;  // kept from the host
    made.factor = 4;
    add(fmt::format("{}{{factor=4{}}}", Form::kName, fields), made);
  };
  form(layers::LinearRotaryPosition{}, "");
  form(layers::NtkRotaryPosition{}, "");
  layers::Llama3RotaryPosition scaled;
  scaled.original_length = 4;
  form(scaled, " original_length=4");
  layers::YarnRotaryPosition yarn;
  yarn.original_length = 64;
  form(yarn, " original_length=64");
  return feature;
}

Feature adapters() {
  Feature feature{"LoRA", {}};
  for (int i = 0; i < kVariants; ++i) {
    const bool dora = i % 2 != 0;
    const std::int64_t rank = 1 + i / 2;
    const auto fill = [&](auto made) {
      made.rank = rank;
      return layers::Child<layers::Layer::Config>(made);
    };
    const auto made = dora ? fill(layers::Dora::Config{}) : fill(layers::Lora::Config{});
    feature.variants.push_back(
        {fmt::format("Adapt{{where=\"**.{{q,v}}_proj\" with={}{{rank={}}}}}", dora ? "Dora" : "Lora", rank),
         [made](Parts& p) { p.query = made; },
         [](trainer::TrainerConfig& c) { c.learner->train = "adapters"; }});
  }
  return feature;
}

Feature mixtures() {
  Feature feature{"MoE", {}};
  using Gate = layers::TopK::Config;
  const auto add = [&](const std::string& text, std::int64_t experts, const std::function<void(Gate&)>& gate,
                       std::int64_t shared = 0) {
    layers::MoE::Config made;
    made.hidden_dim = 12;
    made.num_experts = experts;
    Gate chosen;
    gate(chosen);
    made.gating = chosen;
    if (shared) {
      layers::FeedForward::Config dense;
      dense.hidden_dim = shared;
      made.shared = dense;
    }
    feature.variants.push_back({fmt::format("Replace{{class=FeedForward with=\"MoE{{{}}}\"}}", text),
                                [made](Parts& p) { p.feed_forward = made; }});
  };
  add("num_experts=4 gating=TopK{k=1 normalize=false}", 4, [](Gate& g) {
    g.k = 1;
    g.normalize = false;
  });
  add("num_experts=4", 4, [](Gate&) {});
  add("num_experts=3 gating=TopK{k=3}", 3, [](Gate& g) { g.k = 3; });
  add("num_experts=4 gating=TopK{normalize=false}", 4, [](Gate& g) { g.normalize = false; });
  add("num_experts=4 gating=TopK{capacity=Capacity{}}", 4, [](Gate& g) { g.capacity = layers::Capacity{}; });
  add("num_experts=4 gating=TopK{weight_scale=2}", 4, [](Gate& g) { g.weight_scale = 2; });
  add("num_experts=4 gating=TopK{regularizers=[]}", 4, [](Gate& g) { g.regularizers.clear(); });
  add(
      "num_experts=2 gating=TopK{k=1 normalize=false} shared=FeedForward{hidden_dim=4}", 2,
      [](Gate& g) {
        g.k = 1;
        g.normalize = false;
      },
      4);
  return feature;
}

std::string added(const char* kind, int i) { return fmt::format("{}_{}", kind, i); }

Feature caches() {
  Feature feature{.name = "KV cache", .variants = {}, .inference = true};
  const auto add = [&]<typename Cache>(Cache made, const std::string& codec,
                                       const layers::Child<layers::CacheCodec::Config>& form) {
    made.codec = form;
    feature.variants.push_back(
        {fmt::format("Replace{{class=PagedCache with=\"{}{{codec={}}}\"}}", Cache::kName, codec),
         [made](Parts& p) { p.cache = made; }});
  };
  const auto floats = [](const char* dtype) {
    layers::Plain::Config made;
    made.dtype = dtype;
    return made;
  };
  const layers::PagedCache::Config paged;
  const layers::ContiguousCache::Config contiguous;
  layers::Nf4Rows::Config small_blocks;
  small_blocks.block = 8;
  add(paged, "Int8Rows{}", layers::Int8Rows::Config{});
  add(contiguous, "Plain{}", layers::Plain::Config{});
  add(paged, "Nf4Rows{}", layers::Nf4Rows::Config{});
  add(contiguous, "Int8Rows{}", layers::Int8Rows::Config{});
  add(paged, "Plain{dtype=bf16}", floats("bf16"));
  add(contiguous, "Nf4Rows{block=8}", small_blocks);
  add(paged, "Plain{dtype=f16}", floats("f16"));
  add(contiguous, "Plain{dtype=bf16}", floats("bf16"));
  return feature;
}

Feature kernel_variants() {
  Feature feature{"kernel variant", {}, true};
  for (int i = 0; i < kVariants; ++i)
    feature.variants.push_back({fmt::format("SetKernel{{op=matmul variant={}}}", added("added", i)),
                                [](Parts&) {},
                                [i](trainer::TrainerConfig& c) {
                                  trainer::KernelRuleConfig rule;
                                  rule.op = "matmul";
                                  rule.variant = added("added", i);
                                  c.kernels.emplace_back(rule);
                                }});
  return feature;
}

Feature backends() {
  Feature feature{"backend", {}, true};
  for (int i = 0; i < kVariants; ++i)
    feature.variants.push_back({fmt::format("SetBackend{{backend={}}}", added("other", i)), [](Parts&) {},
                                [i](trainer::TrainerConfig& c) { c.device = added("other", i); }});
  return feature;
}

// A device of another name: no kernels are written for it, so every op runs by its reference.
class OtherDevice : public hal::ForwardingDevice {
 public:
  OtherDevice(std::unique_ptr<hal::Device> inner, const std::string& name)
      : ForwardingDevice(std::move(inner)) {
    info_.id = info_.backend = info_.name = name;
  }
};

template <int... I>
void add_squashes(layers::ClassTable& classes, std::integer_sequence<int, I...>) {
  (classes.add<typename Squash<I>::Config>(), ...);
}

}  // namespace

std::vector<Feature> features() {
  return {positions(), mixtures(), adapters(), norms(), caches(), kernel_variants(), backends()};
}

void add_feature_classes(layers::ClassTable& classes) {
  add_squashes(classes, std::make_integer_sequence<int, 5>());
}

void add_feature_kernels(kernels::Catalog& catalog) {
  for (int i = 0; i < kVariants; ++i) {
    kernels::Variant variant = *catalog.find("matmul", "cpu", "naive");
    variant.name = added("added", i);
    catalog.add(variant);
  }
}

void add_feature_backends(hal::Registry& registry) {
  const auto cpu = [&registry] { return registry.open("cpu"); };
  for (int i = 0; i < kVariants; ++i) {
    const std::string name = added("other", i);
    hal::BackendEntry entry;
    entry.name = name;
    entry.enumerate = [cpu, name](std::string&) {
      return std::vector<hal::DeviceInfo>{OtherDevice(cpu(), name).info()};
    };
    entry.open = [cpu, name](int) { return std::make_unique<OtherDevice>(cpu(), name); };
    registry.add(entry);
  }
}

}  // namespace meshloom::tests

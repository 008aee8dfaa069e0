#include "tests/complexity/hosts.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/elementwise/elementwise.h"
#include "trainer/learner/adamw.h"

namespace meshloom::tests {
namespace {

using layers::Child;
using layers::Context;
using layers::Layer;
using layers::Place;
using layers::Tensor;

constexpr const char* kMixers[] = {"mixer", "look", "attend", "self", "heads"};
constexpr const char* kWideners[] = {"mlp", "expand", "channels"};
constexpr const char* kNorms[] = {"pre", "norm", "scale", "ln"};
constexpr const char* kBelow[] = {"below", "rest", "tower"};

// One attention and one feed-forward, joined in one of four ways, and further blocks behind them. What its
// fields are called depends on the host.
struct BlockConfig : Layer::Config {
  int index = 0;
  Child<layers::Norm::Config> first_norm, second_norm;
  Child<Layer::Config> mixer, widener;
  std::vector<Child<Layer::Config>> below;

  template <std::size_t N>
  std::string named(const char* const (&words)[N], const char* which = "") const {
    return fmt::format("{}{}_{}", words[static_cast<std::size_t>(index) % N], which, index);
  }
  void fields(layers::FieldVisitor& v) override {
    v(named(kNorms, "_a"), first_norm);
    v(named(kMixers), mixer);
    v(named(kNorms, "_b"), second_norm);
    v(named(kWideners), widener);
    v(named(kBelow), below);
  }
  std::unique_ptr<layers::Module> build(const Place& place) const override;
};

class Block : public Layer {
 public:
  Block(const BlockConfig& config, const Place& place) : Layer(place), layout_(config.index % 4) {
    first_norm_ = &child(config.named(kNorms, "_a"), config.first_norm, config.dims);
    mixer_ = &child(config.named(kMixers), config.mixer, config.dims);
    second_norm_ = &child(config.named(kNorms, "_b"), config.second_norm, config.dims);
    widener_ = &child(config.named(kWideners), config.widener, config.dims);
    for (std::size_t i = 0; i < config.below.size(); ++i)
      below_.push_back(&child(config.named(kBelow) + "_" + std::to_string(i), config.below[i], config.dims));
  }

  Tensor forward(Context& ctx, Tensor x) override {
    Layer &a = *first_norm_, &b = *second_norm_, &mix = *mixer_, &widen = *widener_;
    if (layout_ == 0) {  // pre-norm
      x = kernels::add(x, mix(ctx, a(ctx, x)));
      x = kernels::add(x, widen(ctx, b(ctx, x)));
    } else if (layout_ == 1) {  // side by side
      x = kernels::add(kernels::add(x, mix(ctx, a(ctx, x))), widen(ctx, b(ctx, x)));
    } else if (layout_ == 2) {  // post-norm
      x = a(ctx, kernels::add(x, mix(ctx, x)));
      x = b(ctx, kernels::add(x, widen(ctx, x)));
    } else {  // feed-forward first
      x = kernels::add(x, widen(ctx, b(ctx, x)));
      x = kernels::add(x, mix(ctx, a(ctx, x)));
    }
    for (Layer* next : below_) x = (*next)(ctx, x);
    return x;
  }

 private:
  int layout_;
  Layer *first_norm_, *second_norm_, *mixer_, *widener_;
  std::vector<Layer*> below_;
};

std::unique_ptr<layers::Module> BlockConfig::build(const Place& place) const {
  return std::make_unique<Block>(*this, place);
}

template <int I>
constexpr char kHostName[] = {'H', 'o', 's', 't', '0' + I / 10, '0' + I % 10};

template <int I>
struct Host : layers::ConfigOf<Host<I>, BlockConfig> {
  static constexpr std::string_view kName{kHostName<I>, sizeof kHostName<I>};
  Host() { this->index = I; }
};

using Make = Child<Layer::Config> (*)(const BlockConfig& filled);

template <int I>
Child<Layer::Config> made(const BlockConfig& filled) {
  Host<I> block;
  static_cast<BlockConfig&>(block) = filled;
  return block;
}

template <int... I>
Child<Layer::Config> make_block(const BlockConfig& filled, std::integer_sequence<int, I...>) {
  static constexpr Make all[] = {made<I>...};
  return all[filled.index](filled);
}

template <int... I>
void add_all(layers::ClassTable& classes, std::integer_sequence<int, I...>) {
  (classes.add<Host<I>>(), ...);
}

}  // namespace

Parts::Parts() {
  layers::RotaryPosition::Config rotary;
  rotary.theta = kHostTheta;
  positions = rotary;
  layers::FeedForward::Config widener;
  widener.hidden_dim = 12;
  feed_forward = widener;
}

trainer::TrainerConfig host(int index, const Parts& parts) {
  layers::Attention::Config attention;
  attention.num_heads = 2;
  attention.positions = parts.positions;
  attention.q_proj = parts.query;
  attention.v_proj = parts.query;
  attention.cache = parts.cache;
  Host<0> block;  // of any host, until made<I>() gives it its class
  block.index = index;
  block.first_norm = block.second_norm = parts.norm;
  block.mixer = attention;
  block.widener = parts.feed_forward;
  // Nested 0 to 3 deep; every third host has two blocks side by side in its list.
  for (int depth = 0; depth < index % 4; ++depth) {
    const Child<Layer::Config> inner = make_block(block, std::make_integer_sequence<int, kHosts>());
    block.below = {inner};
    if (depth == 0 && index % 3 == 0) block.below.push_back(inner);
  }
  layers::Stack::Config stack;
  stack.num_layers = 1 + index % 2;
  stack.layer = make_block(block, std::make_integer_sequence<int, kHosts>());
  layers::Decoder::Config decoder;
  decoder.dim = 8;
  decoder.stack = stack;
  decoder.norm = parts.norm;
  layers::CausalLM::Config model;
  model.vocab_size = 13 + index;
  model.decoder = decoder;
  trainer::TrainerConfig config;
  config.model = model;
  config.batch = 2;
  config.sequence = 4;
  config.eval_batches = 0;
  trainer::AdamW::Config learner;
  learner.peak_learning_rate = 1e-2;
  config.learner = learner;
  return config;
}

std::string host_file(int index) { return fmt::format("host_{:02}.recipe", index); }

void add_host_classes(layers::ClassTable& classes) {
  add_all(classes, std::make_integer_sequence<int, kHosts>());
}

}  // namespace meshloom::tests

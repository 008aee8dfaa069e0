// Whole-model gradients of a tiny Llama, a tiny GPT-2 and a tiny Marian (an encoder and a decoder) against
// Hugging Face transformers in double precision (see make_transformers_goldens.py), on every device found, with
// the kernels that each device chooses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hal/registry.h"
#include "kernels/core/catalog.h"
#include "layers/config/tree.h"
#include "layers/models/models.h"
#include "tests/golden/golden_file.h"
#include "trainer/compose/compose.h"
#include "trainer/execute/session.h"
#include "trainer/learner/adamw.h"

namespace meshloom {
namespace {

// A model's value is some hundred f32 roundings deep; they add up like a random walk of that many ulps,
// relative to the largest element of the tensor.
constexpr double kRelative = 512 * 0x1p-23;

double largest(const std::vector<float>& values) {
  double most = 0;
  for (float x : values) most = std::max(most, std::abs(static_cast<double>(x)));
  return most;
}

// `least`: what counts as the tensor's size when it is smaller (a key's bias has no gradient but rounding).
double worst(const std::vector<float>& got, const std::vector<float>& want, double least) {
  const double most = std::max(largest(want), least);
  double error = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (!std::isfinite(got[i])) return INFINITY;
    error = std::max(error, std::abs(static_cast<double>(got[i]) - want[i]));
  }
  return error / most;
}

// Loss and gradients of the golden's batch on one device; `spoil` changes one element of every parameter
// (negative control).
void check(const std::string& name, const layers::Config& model, hal::Device& device,
           const kernels::Catalog& catalog, bool spoil = false) {
  const Golden golden(name);
  trainer::AdamW::Config learner;
  learner.peak_learning_rate = 1e-3;
  trainer::ComposeOptions options;
  options.batch = 4;
  options.sequence = 11;
  options.accumulation = 2;  // keeps the sums of gradients where they can be read
  options.evaluation = false;
  options.logits_batch = 2;
  options.logits_sequence = 11;
  const bool reads = layers::reads_source(model);
  options.source = options.logits_source = reads ? 7 : 0;
  trainer::Session session(device, catalog,
                           trainer::compose_training(model, learner, options, catalog, device.info()));
  trainer::initialize(session, 0);
  for (const layers::ParameterInfo& parameter : session.plan().parameters) {
    std::vector<float> values = golden.read<float>("parameter/" + parameter.path);
    if (spoil) values[0] += 0.5f;
    session.write(parameter.path, std::as_bytes(std::span(values)));
  }
  const auto tokens = golden.read<std::int32_t>("tokens"), targets = golden.read<std::int32_t>("targets");
  const auto write = [&](const std::string& name, const std::vector<std::int32_t>& ids) {
    session.write(name, std::as_bytes(std::span(ids)));
    if (name != "targets") session.write("logits/" + name, std::as_bytes(std::span(ids)));
  };
  write("tokens", tokens);
  write("targets", targets);
  if (reads) {
    for (const char* name : {"source", "source_segments"}) write(name, golden.read<std::int32_t>(name));
    write("segments", std::vector<std::int32_t>(tokens.size(), 1));
  }
  session.run(trainer::Step::logits);
  session.run(trainer::Step::accumulate);
  session.wait();

  double least = 0;
  for (const layers::ParameterInfo& parameter : session.plan().parameters)
    least = std::max(least, 0.01 * largest(golden.read<float>("gradient/" + parameter.path)));
  const auto compare = [&](const std::string& stored, const std::string& wanted) {
    const std::vector<float> want = golden.read<float>(wanted);
    std::vector<float> got(want.size());
    session.read(stored, std::as_writable_bytes(std::span(got)));
    return worst(got, want, least);
  };
  double most = std::max(compare("logits", "logits"), compare("accumulate/loss_sum", "loss_sum"));
  if (!spoil) {
    EXPECT_LT(most, kRelative) << "logits or loss on " << device.info().id;
  }
  for (const layers::ParameterInfo& parameter : session.plan().parameters) {
    const double error = compare("grad/" + parameter.path, "gradient/" + parameter.path);
    if (!spoil) {
      EXPECT_LT(error, kRelative) << "gradient of " << parameter.path << " on " << device.info().id;
    }
    most = std::max(most, error);
  }
  if (spoil) {
    EXPECT_GT(most, kRelative) << "a spoiled model must not match";
  }
}

class Goldens : public testing::TestWithParam<std::string> {
 protected:
  Goldens() {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
  }
  std::unique_ptr<hal::Device> open() {
    for (const hal::BackendDevices& found : registry_.enumerate())
      if (found.backend == GetParam() && !found.devices.empty()) return registry_.open(GetParam());
    return nullptr;
  }
  kernels::Catalog catalog_;
  hal::Registry registry_;
};

layers::CausalLM::Config llama() {
  return layers::llama_config({.vocab = 61, .dim = 32, .layers = 2, .heads = 2, .kv_heads = 1, .ffn = 40});
}
layers::CausalLM::Config gpt2() {
  return layers::gpt2_config({.vocab = 61, .dim = 32, .layers = 2, .heads = 2, .context = 16});
}

// Marian (Junczys-Dowmunt et al., 2018): the layers of Vaswani et al. (2017).
layers::EncoderDecoder::Config marian() {
  layers::ClassTable classes;
  layers::add_layer_classes(classes);
  const std::string linear = "Linear{bias=true}",
                    projections = " num_heads=2 q_proj=" + linear + " k_proj=" + linear +
                                  " v_proj=" + linear + " o_proj=" + linear + "}",
                    feed_forward =
                        "FeedForward{hidden_dim=40 activation=Gelu{} gate_proj=none up_proj=" + linear +
                        " down_proj=" + linear + "}";
  const auto part = [&](const std::string& mask, const std::string& more) {
    return "{dim=32 positions=SinusoidalPosition{pairing=half} norm=IdentityNorm{} stack=Stack{num_layers=1 "
           "layer=PostNormLayer{attention_norm=LayerNorm{} feed_forward_norm=LayerNorm{} "
           "attention=Attention{mask=" +
           mask + projections + " feed_forward=" + feed_forward + more;
  };
  layers::EncoderDecoder::Config model;
  model.vocab_size = 61;
  layers::set(model, "encoder", "Encoder" + part("Full{}", "}}}"), classes);
  layers::set(
      model, "decoder",
      "Decoder" + part("Causal{}", " cross_attention=CrossAttention{" + projections + "}} embedding=none}"),
      classes);
  return model;
}

TEST_P(Goldens, Marian) {
  const auto device = open();
  if (!device) GTEST_SKIP() << "no device of this backend";
  check("marian", marian(), *device, catalog_);
}

TEST_P(Goldens, Llama) {
  const auto device = open();
  if (!device) GTEST_SKIP() << "no device of this backend";
  check("llama", llama(), *device, catalog_);
}

TEST_P(Goldens, Gpt2) {
  const auto device = open();
  if (!device) GTEST_SKIP() << "no device of this backend";
  check("gpt2", gpt2(), *device, catalog_);
}

TEST_P(Goldens, ASpoiledParameterIsSeen) {
  const auto device = open();
  if (!device) GTEST_SKIP() << "no device of this backend";
  check("llama", llama(), *device, catalog_, true);
}

INSTANTIATE_TEST_SUITE_P(Backends, Goldens, testing::Values("cpu", "opencl", "vulkan"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace meshloom

// The optimizer and activations in the host's memory: the same losses with less memory of the device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "hal/error.h"
#include "layers/config/tree.h"
#include "tests/message_of.h"
#include "tests/trainer/run/binary.h"
#include "trainer/compose/compose.h"
#include "trainer/data/corpus.h"
#include "trainer/execute/session.h"
#include "trainer/io/file.h"
#include "trainer/recipes/recipe.h"
#include "trainer/rules/resolve.h"
#include "trainer/run/step_runner.h"

namespace meshloom::trainer {
namespace {

using testing::HasSubstr;
using testing::Not;

struct Trained {
  std::vector<double> losses, scales;
  std::map<std::string, std::vector<std::byte>> values;  // parameters and states
  std::int64_t bytes = 0, host_bytes = 0;
};

class Offload : public testing::TestWithParam<const char*> {
 protected:
  Offload() {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
    corpus_ =
        read_corpus({scratch_.file("text", tests::sample_text(4000))}, {}, 0.1, *byte_tokenizer(), 256, 16);
  }
  void SetUp() override {
    for (const hal::BackendDevices& found : registry_.enumerate())
      if (found.backend == GetParam() && !found.devices.empty()) return;
    GTEST_SKIP() << "no device";
  }

  // `edits` are fields of the recipe, then classes that are replaced.
  Trained train(const std::map<std::string, std::string>& edits, bool offload, int steps = 12) {
    TrainerConfig config = tiny();
    config.sequence = 16;
    config.batch = 4;
    config.hardware_rules = false;
    for (const auto& [path, value] : edits)
      if (path.find('.') == std::string::npos && std::isupper(static_cast<unsigned char>(path[0])))
        layers::replace(config, path, value, classes_);
      else
        layers::set(config, path, value, classes_);
    config.offload_optimizer = offload;
    resolve(config, {.device = GetParam()}, registry_, classes_);
    config.check();
    const auto device = open_device(config, registry_);
    Session session(
        *device, catalog_,
        compose_training(*config.model, *config.learner, config.compose_options(), catalog_, device->info()));
    EXPECT_EQ(device->allocated_bytes(), session.plan().peak_bytes);
    Trained trained;
    trained.bytes = session.plan().peak_bytes;
    trained.host_bytes = session.plan().host.peak_bytes;
    EXPECT_EQ(device->allocated_bytes(hal::MemoryKind::host) +
                  (device->host() ? device->host()->allocated_bytes() : 0),
              trained.host_bytes);
    if (offload) {
      // The host decides whether a step is skipped, so it must see what the device made of the model's states.
      for (const auto& [name, type] : session.plan().states) {
        EXPECT_THAT(session.plan().host.to_host, testing::Contains(name));
        EXPECT_THAT(session.plan().host.to_device, testing::Contains(name));
      }
    }
    initialize(session, 0);
    StepRunner runner(config, session,
                      std::make_unique<TextWindows>(corpus_.train(), config.batch, config.sequence, 0),
                      nullptr);
    for (int step = 0; step < steps; ++step) {
      const StepResult result = runner.step(step);
      trained.losses.push_back(result.loss);
      if (result.loss_scale) trained.scales.push_back(*result.loss_scale);
    }
    for (const auto& [name, type] : session.plan().persistent_types) {
      if (name.starts_with("grad/") || name.starts_with("accumulate/") || is_parameter_copy(name)) continue;
      std::vector<std::byte>& bytes = trained.values[name];
      bytes.resize(static_cast<std::size_t>(type.bytes()));
      session.read(name, bytes);
    }
    return trained;
  }

  hal::Registry registry_;
  kernels::Catalog catalog_;
  layers::ClassTable classes_ = recipe_classes();
  tests::Scratch scratch_;
  Corpus corpus_;
};

TEST_P(Offload, GivesTheSameLosses) {
  const std::vector<std::map<std::string, std::string>> recipes{
      {},
      {{"accumulation", "2"}},
      {{"dtype", "f16"}},
      {{"remat", "[RematRule{save=false}]"}},
      {{"FeedForward",
        "MoE{num_experts=4 gating=TopK{score=SigmoidScore{} regularizers=[LossFreeBalancing{rate=0.01}]}}"}},
      {{"AdamW", "Muon{}"}},
      {{"learner.ema", "Ema{}"}},
      {{"learner.clip_norm", "0.1"}}};
  for (const auto& edits : recipes) {
    std::string name;
    for (const auto& [path, value] : edits) name += path + "=" + value + " ";
    const Trained plain = train(edits, false), offloaded = train(edits, true);
    ASSERT_EQ(plain.losses.size(), offloaded.losses.size());
    const double tolerance = edits.count("dtype") || edits.count("AdamW") ? 2e-3 : 1e-5;
    for (std::size_t i = 0; i < plain.losses.size(); ++i)
      EXPECT_NEAR(plain.losses[i], offloaded.losses[i], tolerance * plain.losses[i]) << name << i;
    EXPECT_EQ(plain.scales, offloaded.scales) << name;
    EXPECT_LT(offloaded.losses.back(), offloaded.losses.front()) << name;
    EXPECT_LT(offloaded.bytes, plain.bytes) << name;
    EXPECT_GT(offloaded.host_bytes, 0) << name;
    EXPECT_EQ(plain.values.size(), offloaded.values.size()) << name << "a checkpoint holds the same tensors";
    const Trained again = train(edits, true);
    EXPECT_EQ(again.losses, offloaded.losses) << name;
    EXPECT_EQ(again.values, offloaded.values) << name << "the same bits each time";
  }
}

// Copies change no bit, whatever else is recomputed, and gradients have no storage on the device that outlives a step.
TEST_P(Offload, OfActivationsKeepsEveryBit) {
  const std::vector<std::map<std::string, std::string>> recipes{
      {},
      {{"accumulation", "2"}},
      {{"dtype", "bf16"}},
      {{"FeedForward",
        "MoE{num_experts=4 gating=TopK{score=SigmoidScore{} regularizers=[LossFreeBalancing{rate=0.01}]}}"}}};
  for (std::map<std::string, std::string> edits : recipes) {
    const Trained plain = train(edits, false, 4);
    EXPECT_EQ(plain.host_bytes, 0);
    for (const char* rules : {"[RematRule{policy=offload}]",
                              "[RematRule{tag=\"**norm\" policy=recompute}, RematRule{policy=offload}]"}) {
      edits["remat"] = rules;
      for (const bool optimizer : {false, true}) {
        const Trained other = train(edits, optimizer, 4);
        SCOPED_TRACE(std::string(rules) + (optimizer ? ", optimizer" : ""));
        EXPECT_LT(other.bytes, plain.bytes);
        EXPECT_GT(other.host_bytes, 0);
        if (optimizer) continue;
        EXPECT_EQ(other.losses, plain.losses);
        EXPECT_EQ(other.values, plain.values);
      }
      edits.erase("remat");
    }
  }
}

TEST_P(Offload, GradientsLieInTheHostsMemory) {
  TrainerConfig config = gpt2_124m();  // whose gradients fill many buckets
  config.offload_optimizer = true;
  config.hardware_rules = false;
  config.sequence = 8;
  config.batch = 2;
  for (const std::int64_t accumulation : {1, 2}) {
    config.accumulation = accumulation;
    TrainerConfig resolved = config;
    resolve(resolved, {.device = GetParam()}, registry_, classes_);
    const auto device = open_device(resolved, registry_);
    const Plan plan = compose_training(*resolved.model, *resolved.learner, resolved.compose_options(),
                                       catalog_, device->info());
    int gradients = 0;
    for (const auto& [name, place] : plan.persistent)
      if (name.starts_with("grad/")) {
        EXPECT_EQ(plan.blocks.at(static_cast<std::size_t>(place.block)).memory, hal::MemoryKind::host)
            << name;
        ++gradients;
      }
    EXPECT_GT(gradients, 10);
    EXPECT_FALSE(plan.steps.at(Step::accumulate).marks.empty());
    EXPECT_GT(plan.host.parts.size(), 1u) << "the norms start before the last gradient is there";
    EXPECT_TRUE(std::is_sorted(plan.host.parts.begin(), plan.host.parts.end(),
                               [](const HostPart& a, const HostPart& b) { return a.mark < b.mark; }));
  }
}

TEST_P(Offload, IsTrainedEvaluatedSampledAndResumed) {
  using tests::meshloom;
  const std::string text = scratch_.file("more.txt", tests::sample_text(20000));
  const std::string common = std::string("train tiny --device ") + GetParam() +
                             " --set offload_optimizer=true --set checkpoint_every=4 --set eval_batches=2 "
                             "--set eval_every=4 --sample 20 --data " +
                             text;
  const std::string whole = scratch_.path("whole"), parts = scratch_.path("parts");
  const tests::Outcome one = meshloom(common + " --steps 8 --out " + whole);
  ASSERT_EQ(one.code, 0) << one.err;
  ASSERT_EQ(meshloom(common + " --steps 4 --out " + parts).code, 0);
  const tests::Outcome two = meshloom(common + " --steps 8 --resume --out " + parts);
  ASSERT_EQ(two.code, 0) << two.err;
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_file(whole + "/step-00000008/" + file, "the checkpoint"),
              read_file(parts + "/step-00000008/" + file, "the checkpoint"))
        << file;
  // Without it the run goes on with other rounding, which must be asked for.
  std::string plain = common;
  plain.replace(plain.find("=true"), 5, "=false");
  const tests::Outcome other = meshloom(plain + " --steps 9 --resume --out " + parts);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("offload_optimizer: true -> false"));
  EXPECT_EQ(meshloom(plain + " --steps 9 --resume --allow-rounding --out " + parts).code, 0);
}

INSTANTIATE_TEST_SUITE_P(Backends, Offload, testing::Values("opencl", "vulkan"),
                         [](const auto& info) { return info.param; });

TEST(OffloadTo, NullCountsTheBytesOfBothKinds) {
  const tests::Outcome outcome = tests::meshloom(
      "plan gpt2-124m --device null --as rtx4090 --set batch=4 --set sequence=64 --set hardware_rules=false "
      "--set 'remat=[RematRule{policy=offload}]'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("on the host "));
  EXPECT_THAT(outcome.out, Not(HasSubstr("with the update of the parameters")));
}

TEST(OffloadTo, ADeviceWithoutHostVisibleMemoryIsRefused) {
  const tests::Outcome outcome =
      tests::meshloom("plan tiny --device cpu --set 'remat=[RematRule{policy=offload}]'");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("remat rule 1 (policy offload): needs a device with host-visible memory "
                                     "beside its own; found cpu"));
}

TEST(OffloadTo, TheHostItselfIsRefused) {
  const tests::Outcome outcome = tests::meshloom("plan tiny --device cpu --set offload_optimizer=true");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err,
              HasSubstr("offload_optimizer: needs a device whose memory is not that of the host; "
                        "found cpu"));
}

}  // namespace
}  // namespace meshloom::trainer

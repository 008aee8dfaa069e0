// Compares ten steps of fine-tuning with PyTorch (make_tuning.py), from the same weights on the same tokens:
// whole models and adapters, dense and with experts; with clipping and weight decay, with and without
// accumulation.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "hal/registry.h"
#include "layers/adapters/lora.h"
#include "tests/trainer/interop/support.h"
#include "tests/trainer/run/binary.h"
#include "trainer/compose/compose.h"
#include "trainer/config/tree_modifiers.h"
#include "trainer/data/corpus.h"
#include "trainer/execute/session.h"
#include "trainer/interop/families/layout.h"
#include "trainer/learner/adamw.h"
#include "trainer/run/step_runner.h"

namespace meshloom::tests {
namespace {

struct TuningCase {
  std::string name, device;
  std::string adapted = {};  // which layers get a Lora, as their paths; "" = none, and everything learns
};

class Tuning : public testing::TestWithParam<TuningCase> {
 protected:
  Scratch scratch_;
};

// Relative to the largest change of the parameter.
double change_error(const std::vector<float>& start, const std::vector<float>& got,
                    const std::vector<float>& want) {
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(got[i]) - want[i]));
    largest = std::max(largest, std::abs(static_cast<double>(want[i]) - start[i]));
  }
  return worst / largest;
}

std::string with_name(const std::string& path, const std::string& name) {
  return path.substr(0, path.rfind('/') + 1) + name;
}

// The recipe that PyTorch followed.
trainer::TrainerConfig recipe_for(const trainer::SafetensorsFile& golden, const std::string& checkpoint,
                                  const std::string& adapted) {
  const auto setting = [&](const std::string& name) { return golden.metadata().at(name); };
  const auto number = [&](const std::string& name) { return std::stod(setting(name)); };
  trainer::TrainerConfig recipe = recipe_of(checkpoint);
  recipe.batch = std::stoll(setting("batch"));
  recipe.sequence = std::stoll(setting("sequence"));
  recipe.accumulation = std::stoll(setting("accumulation"));
  recipe.eval_batches = 0;
  recipe.input->shuffle = false;
  trainer::AdamW::Config learner;
  learner.peak_learning_rate = number("rate");
  learner.clip_norm = number("clip");
  learner.beta1 = number("beta1");
  learner.beta2 = number("beta2");
  learner.eps = number("eps");
  learner.weight_decay = number("decay");
  recipe.learner = learner;
  if (!adapted.empty()) {
    layers::Lora::Config lora;
    lora.rank = std::stoll(setting("rank"));
    lora.alpha = number("alpha");
    trainer::Adapt adapt;
    adapt.with = lora;
    adapt.selection.where = adapted;
    adapt.apply(recipe, classes());
  }
  recipe.check();
  return recipe;
}

// Reads the parameters of a session by the names that transformers has for them.
class TheirNames {
 public:
  TheirNames(trainer::Session& session, const std::string& family,
             const std::vector<trainer::NamedTensor>& stored)
      : session_(session) {
    for (trainer::TensorMapping& place : trainer::tensor_mappings(trainer::find_family(family, ""), stored))
      places_.emplace(place.hf_name, std::move(place));
  }

  // The names of adapters are beside the weight that they adapt.
  std::string path_of_adapter(const std::string& name) const {
    const std::size_t dot = name.rfind('.');
    return with_name(places_.at(name.substr(0, dot) + ".weight").parameters.front().name,
                     name.substr(dot + 1));
  }

  std::vector<float> value(const std::string& name) const {
    if (name.find(".lora_") != std::string::npos) return read(path_of_adapter(name));
    const trainer::TensorMapping& place = places_.at(name);
    std::vector<float> tensor(static_cast<std::size_t>(kernels::elements(place.shape)));
    for (std::size_t part = 0; part < place.parameters.size(); ++part)
      trainer::insert_part(place, part, read(place.parameters[part].name), tensor);
    return tensor;
  }

 private:
  std::vector<float> read(const std::string& name) const {
    std::vector<float> values(static_cast<std::size_t>(session_.plan().persistent_types.at(name).elements()));
    session_.read(name, std::as_writable_bytes(std::span(values)));
    return values;
  }

  trainer::Session& session_;
  std::map<std::string, trainer::TensorMapping> places_;  // by transformers' name
};

TEST_P(Tuning, FollowsPyTorch) {
  const TuningCase& param = GetParam();
  kernels::Catalog with_kernels;
  kernels::add_contracts(with_kernels);
  hal::Registry registry;
  register_backends(registry, with_kernels);
  for (const hal::BackendDevices& found : registry.enumerate())
    if (found.backend == param.device && found.devices.empty()) GTEST_SKIP() << found.why_none;

  const trainer::SafetensorsFile golden(MESHLOOM_SOURCE_DIR "/tests/trainer/interop/tuning/" + param.name +
                                        ".safetensors");
  const trainer::Imported imported =
      import_quietly(model_directory(golden.metadata().at("model")), scratch_.path("run"));
  const trainer::TrainerConfig recipe = recipe_for(golden, imported.checkpoint, param.adapted);
  const auto device = registry.open(param.device);
  trainer::Session session(*device, with_kernels,
                           trainer::compose_training(*recipe.model, *recipe.learner, recipe.compose_options(),
                                                     with_kernels, device->info()));
  trainer::initialize(session, 0);
  std::vector<trainer::NamedTensor> stored;  // by transformers too
  std::vector<std::string> added;            // by adapters
  for (const layers::ParameterInfo& parameter : session.plan().parameters)
    if (parameter.adapter)
      added.push_back(parameter.path);
    else
      stored.push_back({parameter.path, parameter.type});
  const trainer::StoredTensors weights(trainer::SafetensorsFile(imported.checkpoint + "/model.safetensors"));
  trainer::load_tensors(weights, stored, [&](const std::string& name, std::span<const std::byte> data) {
    session.write(name, data);
  });
  const TheirNames theirs(session, imported.family, stored);
  std::vector<std::string> ends;
  std::map<std::string, std::vector<float>> starts;
  for (const trainer::StoredTensor& tensor : golden.tensors()) {
    if (tensor.name.starts_with("start/")) {
      const auto values = read_tensor<float>(golden, tensor.name);
      session.write(theirs.path_of_adapter(tensor.name.substr(6)), std::as_bytes(std::span(values)));
    }
    if (tensor.name.starts_with("end/")) ends.push_back(tensor.name.substr(4));
  }
  EXPECT_EQ(!added.empty(), !param.adapted.empty());
  if (!param.adapted.empty()) {
    EXPECT_EQ(ends.size(), added.size());
  }
  for (const std::string& name : ends) starts[name] = theirs.value(name);

  trainer::TokenArray tokens(61);
  tokens.append(read_tensor<std::int32_t>(golden, "stream"), "stream");
  trainer::StepRunner stepper(
      recipe, session,
      std::make_unique<trainer::TextWindows>(trainer::TokenRange{&tokens, 0, tokens.size()}, recipe.batch,
                                             recipe.sequence, static_cast<std::uint64_t>(recipe.seed), false),
      nullptr);
  const auto losses = read_tensor<float>(golden, "losses"), norms = read_tensor<float>(golden, "norms");
  ASSERT_EQ(losses.size(), 10u);
  double worst = 0;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const trainer::StepResult result = stepper.step(static_cast<std::int64_t>(step));
    EXPECT_TRUE(result.applied);
    EXPECT_NEAR(result.loss, losses[step], 1e-4 * losses[step]) << "step " << step;
    worst = std::max(worst, std::abs(result.loss / losses[step] - 1));
    EXPECT_NEAR(result.gradient_norm, norms[step], 1e-3 * norms[step]) << "step " << step;
  }
  RecordProperty("largest_relative_difference_of_losses", std::to_string(worst * 1e6) + "e-6");
  for (const std::string& name : ends)
    EXPECT_LT(change_error(starts[name], theirs.value(name), read_tensor<float>(golden, "end/" + name)), 1e-3)
        << name;
}

INSTANTIATE_TEST_SUITE_P(All, Tuning,
                         testing::Values(TuningCase{"llama-full", "cpu"},
                                         TuningCase{"llama-lora", "cpu", "**.{q,v}_proj"},
                                         TuningCase{"qwen3-moe-full", "cpu"},
                                         TuningCase{"qwen3-moe-lora", "cpu", "**.attention.**"},
                                         TuningCase{"llama-lora", "opencl", "**.{q,v}_proj"},
                                         TuningCase{"llama-lora", "vulkan", "**.{q,v}_proj"}),
                         [](const auto& info) {
                           std::string name = info.param.name + "_" + info.param.device;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace meshloom::tests

// Imported models against transformers in double precision, and back: the same bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "hal/registry.h"
#include "layers/config/tree.h"
#include "layers/models/trace.h"
#include "tests/message_of.h"
#include "tests/trainer/interop/support.h"
#include "tests/trainer/run/binary.h"
#include "trainer/compose/compose.h"
#include "trainer/execute/session.h"
#include "trainer/interop/config_json.h"
#include "trainer/interop/families/layout.h"
#include "trainer/interop/tensor_files.h"
#include "trainer/io/float_convert.h"
#include "trainer/learner/adamw.h"

namespace meshloom::tests {
namespace {

constexpr double kRelative = 1e-5;  // of the largest element of a tensor

double largest(const std::vector<float>& values) {
  double highest = 0;
  for (float x : values) highest = std::max(highest, std::abs(static_cast<double>(x)));
  return highest;
}

double error(const std::vector<float>& got, const std::vector<float>& want, double min_scale = 0) {
  double worst = got.size() == want.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < want.size() && i < got.size(); ++i) {
    const double off = std::abs(static_cast<double>(got[i]) - want[i]);
    worst = std::isfinite(off) ? std::max(worst, off) : INFINITY;
  }
  return worst / std::max(largest(want), min_scale);
}

class Models : public testing::TestWithParam<std::string> {
 protected:
  Scratch scratch_;
};

TEST_P(Models, LogitsLossAndGradientsAreTransformers) {
  const trainer::Imported imported = import_quietly(model_directory(GetParam()), scratch_.path("run"));
  trainer::TrainerConfig recipe = recipe_of(imported.checkpoint);
  // The batch is longer than texts with LongRoPE's short factors may be.
  if (layers::max_sequence(*recipe.model) < 11)
    layers::set(*recipe.model, trainer::kLayer + "attention.positions.long_texts", "true", classes());
  const trainer::SafetensorsFile want(model_directory(GetParam()) + "/expected.safetensors");
  const trainer::StoredTensors weights(trainer::SafetensorsFile(imported.checkpoint + "/model.safetensors"));

  kernels::Catalog with_kernels;
  kernels::add_contracts(with_kernels);
  hal::Registry registry;
  register_backends(registry, with_kernels);
  const auto device = registry.open("cpu");
  trainer::AdamW::Config learner;
  learner.peak_learning_rate = 1e-3;
  trainer::ComposeOptions options;
  options.batch = 4;
  options.sequence = 11;
  options.accumulation = 2;  // keeps the sums of gradients where they can be read
  options.evaluation = false;
  options.logits_batch = 2;
  options.logits_sequence = 11;
  trainer::Session session(
      *device, with_kernels,
      trainer::compose_training(*recipe.model, learner, options, with_kernels, device->info()));
  trainer::initialize(session, 0);
  std::vector<trainer::NamedTensor> parameters;
  for (const layers::ParameterInfo& parameter : session.plan().parameters)
    parameters.push_back({parameter.path, parameter.type});
  trainer::load_tensors(weights, parameters, [&](const std::string& name, std::span<const std::byte> data) {
    session.write(name, data);
  });
  const auto tokens = read_tensor<std::int32_t>(want, "tokens"),
             targets = read_tensor<std::int32_t>(want, "targets");
  session.write("tokens", std::as_bytes(std::span(tokens)));
  session.write("targets", std::as_bytes(std::span(targets)));
  session.write("logits/tokens", std::as_bytes(std::span(tokens)));
  session.run(trainer::Step::logits);
  session.run(trainer::Step::accumulate);
  session.wait();
  const auto read = [&](const std::string& name, std::int64_t elements) {
    std::vector<float> values(static_cast<std::size_t>(elements));
    session.read(name, std::as_writable_bytes(std::span(values)));
    return values;
  };
  const auto logits = read_tensor<float>(want, "logits");
  EXPECT_LT(error(read("logits", static_cast<std::int64_t>(logits.size())), logits), kRelative);
  EXPECT_LT(error(read("accumulate/loss_sum", 1), read_tensor<float>(want, "loss_sum")), kRelative);

  // The gradient of a key's bias is only rounding, so the errors of small tensors are relative to the largest
  // one.
  double min_scale = 0;
  std::size_t gradients = 0;
  for (const trainer::StoredTensor& tensor : want.tensors())
    if (tensor.name.starts_with("gradient/"))
      ++gradients, min_scale = std::max(min_scale, 0.01 * largest(read_tensor<float>(want, tensor.name)));
  const auto places = trainer::tensor_mappings(trainer::find_family(imported.family, ""), parameters);
  EXPECT_EQ(places.size(), gradients);
  for (const trainer::TensorMapping& place : places) {
    std::vector<float> tensor(static_cast<std::size_t>(kernels::elements(place.shape)));
    for (std::size_t part = 0; part < place.parameters.size(); ++part)
      trainer::insert_part(
          place, part, read("grad/" + place.parameters[part].name, place.parameters[part].type.elements()),
          tensor);
    EXPECT_LT(error(tensor, read_tensor<float>(want, "gradient/" + place.hf_name), min_scale), kRelative)
        << place.hf_name;
  }
}

TEST_P(Models, ExportGivesTheSameBytes) {
  const trainer::Imported imported = import_quietly(model_directory(GetParam()), scratch_.path("run"));
  const trainer::TensorFiles before(model_directory(GetParam()));
  const std::string stored = before.entries().begin()->second.tensor->dtype;
  const trainer::ExportOptions options{.dtype = stored == "F32"   ? "f32"
                                                : stored == "F16" ? "f16"
                                                                  : "bf16",
                                       .shard_bytes = 10'000,
                                       .like = model_directory(GetParam())};
  const auto quiet = [](const std::string&) {};
  EXPECT_EQ(trainer::export_model(scratch_.path("run"), scratch_.path("out"), options, classes(), quiet),
            imported.family);
  const trainer::TensorFiles after(scratch_.path("out"));
  EXPECT_EQ(after.entries().size(), before.entries().size());
  for (const auto& [name, entry] : before.entries()) {
    ASSERT_TRUE(after.entries().count(name)) << name;
    const auto* again = &after.entries().find(name)->second;
    EXPECT_EQ(again->tensor->dtype, entry.tensor->dtype);
    EXPECT_EQ(again->tensor->shape, entry.tensor->shape);
    std::vector<std::byte> a(static_cast<std::size_t>(entry.tensor->bytes())), b(a.size());
    entry.file->read(*entry.tensor, a);
    again->file->read(*again->tensor, b);
    EXPECT_EQ(a, b) << name;
  }
  // And what was exported is imported as the same model.
  const trainer::Imported again = import_quietly(scratch_.path("out"), scratch_.path("again"));
  EXPECT_EQ(read_text(again.checkpoint + "/config.txt"), read_text(imported.checkpoint + "/config.txt"));
  EXPECT_EQ(read_text(again.checkpoint + "/model.safetensors"),
            read_text(imported.checkpoint + "/model.safetensors"));
}

// --like adds only fields that do not describe the model: other frequencies would make it another model.
TEST(Export, TakesNothingOverThatDescribesTheModel) {
  const Scratch scratch;
  const std::string like = scratch.path("like");
  std::filesystem::create_directory(like);
  nlohmann::json config = nlohmann::json::parse(read_text(model_directory("llama3") + "/config.json"));
  config["quantization_config"] = {{"bits", 4}};
  config["rope_parameters"] = {{"rope_theta", 3.0}};
  config["per_layer_config"] = {{"0", {{"num_attention_heads", 2}}}};
  config["pad_token_id"] = 7;
  scratch.file("like/config.json", config.dump());
  const trainer::Imported imported = import_quietly(model_directory("llama"), scratch.path("run"));
  const trainer::ExportOptions options{.like = like};
  trainer::export_model(scratch.path("run"), scratch.path("out"), options, classes(),
                        [](const std::string&) {});
  const auto written = nlohmann::json::parse(read_text(scratch.path("out") + "/config.json"));
  EXPECT_EQ(written["pad_token_id"], 7);
  for (const char* name : {"rope_scaling", "rope_parameters", "quantization_config", "per_layer_config"})
    EXPECT_FALSE(written.contains(name)) << name;
  const trainer::Imported again = import_quietly(scratch.path("out"), scratch.path("again"));
  EXPECT_EQ(read_text(again.checkpoint + "/config.txt"), read_text(imported.checkpoint + "/config.txt"));
}

// A loss is of the training, and no part of the model.
TEST(Export, DoesNotDependOnTheLoss) {
  const auto config = nlohmann::json::parse(read_text(model_directory("llama") + "/config.json"));
  layers::CausalLM::Config model =
      trainer::read_config_json(config, "config.json", classes(), [](const std::string&) {}).model;
  const auto written = [&] { return trainer::write_config_json(model, 64, "", classes()).json.dump(); };
  const std::string before = written();
  for (const char* loss : {"ChunkedLoss{}", "RegularizedCrossEntropy{z_loss=1e-4}", "DPOLoss{}"}) {
    layers::set(model, "loss", loss, classes());
    EXPECT_EQ(written(), before) << loss;
  }
}

// transformers refuses a llama whose hidden_size is no multiple of its heads, but not a mistral, which is the same.
TEST(Export, WritesNoLlamaThatTransformersRefuses) {
  auto config = nlohmann::json::parse(R"({"model_type": "mistral", "vocab_size": 256, "hidden_size": 33,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
      "intermediate_size": 24, "sliding_window": null})");
  const auto read = [&] {
    return trainer::read_config_json(config, "config.json", classes(), [](const std::string&) {}).model;
  };
  const auto written = [&](const std::string& family) {
    return trainer::write_config_json(read(), 64, family, classes()).family->name;
  };
  EXPECT_EQ(written(""), "mistral");
  EXPECT_EQ(message_of([&] { written("llama"); }),
            "model: must be one that a family of transformers can describe; found llama: hidden_size: must "
            "be a multiple "
            "of num_attention_heads, 4; found 33");
  config["hidden_size"] = 32u;
  EXPECT_EQ(written(""), "llama");
}

INSTANTIATE_TEST_SUITE_P(Families, Models, testing::ValuesIn(model_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Convert, EveryHalfAndBfloatComesBack) {
  for (const char* dtype : {"F16", "BF16"}) {
    std::vector<std::uint16_t> all(65536), back(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    std::vector<float> wide(65536);
    trainer::to_f32(dtype, std::as_bytes(std::span(all)), wide);
    EXPECT_TRUE(trainer::from_f32(dtype, wide, std::as_writable_bytes(std::span(back))));
    for (std::size_t i = 0; i < all.size(); ++i)
      if (!std::isnan(wide[i])) {
        ASSERT_EQ(back[i], all[i]) << dtype << " " << i;
      }
  }
}

TEST(Convert, RoundsToNearestTiesToEven) {
  const auto half = [](float x) {
    std::uint16_t word = 0;
    trainer::from_f32("F16", std::span(&x, 1), std::as_writable_bytes(std::span(&word, 1)));
    return word;
  };
  EXPECT_EQ(half(1.0f + 0x1p-11f), 0x3c00);      // a tie
  EXPECT_EQ(half(1.0f + 3 * 0x1p-11f), 0x3c02);  // the other way
  EXPECT_EQ(half(1.0f + 0x1p-11f + 0x1p-20f), 0x3c01);
  EXPECT_EQ(half(0x1p-25f), 0x0000);
  EXPECT_EQ(half(0x1.8p-25f), 0x0001);
  EXPECT_EQ(half(65519.0f), 0x7bff);
  const float large = 65520.0f;
  std::uint16_t word = 0;
  EXPECT_FALSE(trainer::from_f32("F16", std::span(&large, 1), std::as_writable_bytes(std::span(&word, 1))));
}

}  // namespace
}  // namespace meshloom::tests

// Rotary positions of config.json against transformers' tables (make_models.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "layers/attention/attention.h"
#include "layers/block/transformer.h"
#include "layers/config/tree.h"
#include "tests/kernels/interpret.h"
#include "tests/trainer/interop/support.h"
#include "tests/trainer/run/binary.h"
#include "trainer/interop/config_json.h"

namespace meshloom::tests {
namespace {

constexpr std::int64_t kPairs = 64;
constexpr double kPositions[] = {1, 17, 1000};

// The layer's results for vectors (1, 0) at each position up to this one: cosines, then sines.
kernels::HostTensor rotated(const layers::QueryKeyPosition::Config& config, std::int64_t position) {
  layers::Child<layers::QueryKeyPosition::Config> sized;
  sized.reset(config.clone());
  sized->dims = layers::Layer::same(2 * kPairs);
  const std::unique_ptr<layers::Module> module = sized->build({});
  kernels::Program program;
  kernels::Builder builder(catalog(), program);
  layers::Record record;
  layers::Context ctx(builder, record);
  const kernels::Tensor x =
      builder.input("x", {kernels::DType::f32, {1, position + 1, 1, 2 * kPairs}}, kernels::Role::input);
  const kernels::Tensor y = dynamic_cast<layers::QueryKeyPosition&>(*module).forward(ctx, x);
  builder.output(y);
  kernels::HostTensor ones(x.type());
  for (std::int64_t i = 0; i < ones.type.elements(); ++i)
    ones.as<float>()[i] = i % (2 * kPairs) < kPairs ? 1 : 0;
  Values values{{x.id, ones}};
  values = interpret(program, catalog(), std::move(values));
  return values.at(y.id);
}

TEST(Rotary, FrequenciesAreTransformers) {
  const trainer::SafetensorsFile golden(MESHLOOM_SOURCE_DIR "/tests/trainer/interop/frequencies.safetensors");
  int tables = 0;
  for (const auto& [name, config] : golden.metadata()) {
    if (!golden.find("cosine/" + name)) continue;
    ++tables;
    const trainer::ReadConfig read =
        trainer::read_config_json(nlohmann::json::parse(config), name, classes(),
                                  [](const std::string& note) { ADD_FAILURE() << note; });
    const auto& layer =
        *read.model.decoder->stack.as<layers::Stack::Config>()->layer.as<layers::TransformerLayer::Config>();
    const auto cosine = read_tensor<float>(golden, "cosine/" + name),
               sine = read_tensor<float>(golden, "sine/" + name);
    for (std::size_t at = 0; at < std::size(kPositions); ++at) {
      const auto position = static_cast<std::int64_t>(kPositions[at]);
      const kernels::HostTensor y =
          rotated(*layer.attention.as<layers::Attention::Config>()->positions, position);
      const float* row = y.as<float>() + position * 2 * kPairs;
      for (std::int64_t p = 0; p < kPairs; ++p) {
        const auto k = at * kPairs + static_cast<std::size_t>(p);
        const double off = 1e-6 + 4e-7 * kPositions[at];  // theirs are made in f32
        EXPECT_NEAR(row[p], cosine[k], off) << name << " position " << position << " pair " << p;
        EXPECT_NEAR(row[kPairs + p], sine[k], off) << name << " position " << position << " pair " << p;
      }
    }
    // And what is written is read as the same.
    const trainer::WrittenConfig written = trainer::write_config_json(read.model, 64, "llama", classes());
    const trainer::ReadConfig again = trainer::read_config_json(nlohmann::json::parse(written.json.dump()),
                                                                name, classes(), [](const std::string&) {});
    EXPECT_EQ(layers::diff(read.model, again.model), "") << name;
  }
  EXPECT_EQ(tables, 7);
}

// The rotary fields of `name` with `edit`, as they are read; and what is written is read as the same.
std::string positions(const std::string& name, const std::string& edit) {
  nlohmann::json config = nlohmann::json::parse(read_text(model_directory(name) + "/config.json"));
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config.update(nlohmann::json::parse(edit));
  const auto quiet = [](const std::string& note) { ADD_FAILURE() << note; };
  const trainer::ReadConfig read = trainer::read_config_json(config, "config", classes(), quiet);
  const auto json = trainer::write_config_json(read.model, 64, read.family->name, classes()).json;
  const trainer::ReadConfig again =
      trainer::read_config_json(nlohmann::json::parse(json.dump()), "config", classes(), quiet);
  const std::string path = trainer::kLayer + "attention.positions", text = layers::get(read.model, path);
  EXPECT_EQ(layers::get(again.model, path), text);
  return text;
}

TEST(Rotary, FieldsAreReadAsByTransformers) {
  const std::string linear = R"("rope_scaling": {"rope_type": "linear", "factor": 2.0})";
  EXPECT_EQ(positions("llama", R"({"rope_parameters": {"rope_type": "default", "rope_theta": 7.0}})"),
            positions("llama", R"({"rope_theta": 7.0})"));
  // rope_scaling wins, and nothing of rope_parameters is left.
  EXPECT_EQ(positions("llama",
                      "{" + linear + R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 7.0}})"),
            positions("llama", "{" + linear + "}"));
  EXPECT_EQ(positions("llama", R"({"rope_scaling": {}, "rope_parameters": {"rope_theta": 7.0}})"),
            positions("llama", R"({"rope_theta": 7.0})"));
  EXPECT_EQ(positions("mixtral", "{}"), positions("mixtral", R"({"rope_theta": 1e6})"));
  const auto yarn = [](const std::string& fields, const std::string& beside = "") {
    return positions("llama",
                     R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0)" + fields + "}" + beside + "}");
  };
  const std::string plain = yarn(R"(, "original_max_position_embeddings": 16)");
  EXPECT_NE(plain, yarn(""));
  EXPECT_EQ(plain, yarn("", R"(, "original_max_position_embeddings": 16)"));
  EXPECT_EQ(plain, yarn(R"(, "original_max_position_embeddings": 8)",
                        R"(, "original_max_position_embeddings": 16)"));
  EXPECT_EQ(yarn(""), yarn(R"(, "mscale": 0, "mscale_all_dim": 1.0, "beta_fast": 0)"));
  EXPECT_EQ(yarn(R"(, "truncate": null)"), yarn(R"(, "truncate": false)"));
  EXPECT_NE(yarn(R"(, "truncate": null)"), yarn(""));
  const std::string llama3 =
      R"("rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0)";
  EXPECT_EQ(
      positions("llama", R"({"rope_scaling": {)" + llama3 + "}}"),
      positions("llama", R"({"rope_scaling": {)" + llama3 + R"(, "original_max_position_embeddings": 64}})"));
}

// transformers 4.51 takes max_position_embeddings over the original length for the factor where both are
// there.
TEST(Rotary, ALengthThatIsTheOriginalOneIsNotWritten) {
  nlohmann::json config = nlohmann::json::parse(read_text(model_directory("yarn") + "/config.json"));
  const auto written = [&](unsigned original) {
    config["rope_scaling"]["original_max_position_embeddings"] = original;
    const trainer::ReadConfig read =
        trainer::read_config_json(config, "config", classes(), [](const std::string&) {});
    const auto json = trainer::write_config_json(read.model, 64, "qwen3", classes()).json;
    const trainer::ReadConfig again = trainer::read_config_json(nlohmann::json::parse(json.dump()), "config",
                                                                classes(), [](const std::string&) {});
    EXPECT_EQ(layers::diff(read.model, again.model), "");
    return json["rope_scaling"].contains("original_max_position_embeddings");
  };
  EXPECT_TRUE(written(32));
  EXPECT_FALSE(written(128));
}

}  // namespace
}  // namespace meshloom::tests

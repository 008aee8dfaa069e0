// What layers report about themselves, against plain loops over the values they saw.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layers/config/tree.h"
#include "layers/models/models.h"
#include "layers/wrappers/monitor.h"
#include "tests/layers/interpreter.h"

namespace meshloom::layers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

CausalLM::Config model() {
  return llama_config({.vocab = 11,
                       .dim = 8,
                       .layers = 2,
                       .heads = 4,
                       .kv_heads = 2,
                       .ffn = 12,
                       .tied = true,
                       .head_dim = 4});
}

ClassTable classes() {
  ClassTable table;
  add_layer_classes(table);
  return table;
}

struct Ran {
  Traced traced;
  tests::Values values;
  double summary(const std::string& path) const {
    return values.at(traced.summaries.at(path)).as<float>()[0];
  }
};

// With `segments` the rows are of documents.
Ran run(const CausalLM::Config& config, bool training = true,
        const std::vector<std::int32_t>& segments = {}) {
  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  Ran ran{trace_loss(config, catalog, 2, 5, training, !segments.empty()), {}};
  const std::vector<std::int32_t> tokens{1, 4, 0, 10, 7, 3, 3, 9, 2, 5};
  tests::Values inputs;
  for (const kernels::ValueId id : {ran.traced.tokens, ran.traced.targets})
    inputs[id] = tests::host(ran.traced.program.value(id).type, tokens.data());
  const std::vector<std::int32_t> positions{0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
  for (std::size_t i = 0; i < ran.traced.rows.size(); ++i) {
    const kernels::ValueId id = ran.traced.rows[i];
    inputs[id] = tests::host(ran.traced.program.value(id).type, i == 0 ? segments.data() : positions.data());
  }
  for (std::size_t i = 0; i < ran.traced.parameters.size(); ++i) {
    std::vector<float> start = tests::initial(ran.traced.parameters[i], 3);
    for (float& x : start) x *= ran.traced.parameters[i].decay ? 20.0f : 1.0f;  // scores that differ
    inputs[ran.traced.program.inputs[i + 2 + ran.traced.rows.size()]] =
        tests::host(ran.traced.parameters[i].type, start.data());
  }
  ran.values = tests::interpret(ran.traced.program, catalog, std::move(inputs));
  return ran;
}

TEST(Monitor, EntropyIsThatOfTheProbabilities) {
  CausalLM::Config config = model();
  set(config, "decoder.stack.layer.attention.report_entropy", "true", classes());
  const Ran ran = run(config);
  std::vector<double> seen;
  for (const kernels::Call& call : ran.traced.program.calls) {
    if (call.op != "flash_attention" || call.inputs[1] == call.inputs[2]) continue;
    const kernels::HostTensor &q = ran.values.at(call.inputs[0]), &k = ran.values.at(call.inputs[1]);
    double total = 0;
    for (int b = 0; b < 2; ++b)
      for (int h = 0; h < 4; ++h)
        for (int i = 0; i < 5; ++i) {
          std::vector<double> p;
          double sum = 0;
          for (int j = 0; j <= i; ++j) {
            double score = 0;
            for (int d = 0; d < 4; ++d)
              score += q.as<float>()[((b * 5 + i) * 4 + h) * 4 + d] *
                       k.as<float>()[((b * 5 + j) * 2 + h / 2) * 4 + d];
            p.push_back(std::exp(score / 2));
            sum += p.back();
          }
          for (const double e : p) total -= e / sum * std::log(e / sum);
        }
    seen.push_back(total / (2 * 4 * 5));
  }
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_GT(std::abs(seen[0] - seen[1]), 1e-3);
  EXPECT_NEAR(ran.summary("decoder/stack/layer0/attention/entropy"), seen[0], 1e-5);
  EXPECT_NEAR(ran.summary("decoder/stack/layer1/attention/entropy"), seen[1], 1e-5);
  EXPECT_TRUE(run(config, false).traced.summaries.empty()) << "in training only";
  set(config, "decoder.stack.layer.attention.soft_cap", "30", classes());
  try {
    run(config);
    FAIL() << "a soft cap changes what the probabilities are of";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("report_entropy"));
  }
}

TEST(Monitor, ReportsAndChangesNothing) {
  CausalLM::Config config = model();
  const Ran plain = run(config);
  Monitor::Config monitor;
  monitor.base = config.decoder->stack;
  monitor.report = {"rms", "input_rms", "gain"};
  config.decoder->stack = monitor;
  const Ran ran = run(config);
  EXPECT_EQ(ran.values.at(ran.traced.loss_sum).as<float>()[0],
            plain.values.at(plain.traced.loss_sum).as<float>()[0]);
  std::vector<std::string> names;
  for (const auto& [path, value] : ran.traced.summaries) names.push_back(path);
  EXPECT_THAT(names, ElementsAre("decoder/stack/gain", "decoder/stack/input_rms", "decoder/stack/rms"));
  // The stack takes rows of the embedding as they are.
  kernels::ValueId embedded = kernels::kNoValue;
  for (const kernels::Call& call : ran.traced.program.calls)
    if (call.op == "embedding") embedded = call.outputs[0];
  const kernels::HostTensor& x = ran.values.at(embedded);
  double squares = 0;
  for (std::int64_t i = 0; i < x.type.elements(); ++i)
    squares += x.as<float>()[i] * static_cast<double>(x.as<float>()[i]);
  EXPECT_NEAR(ran.summary("decoder/stack/input_rms"),
              std::sqrt(squares / static_cast<double>(x.type.elements())), 1e-5);
  EXPECT_NEAR(ran.summary("decoder/stack/gain") * ran.summary("decoder/stack/input_rms"),
              ran.summary("decoder/stack/rms"), 1e-5);
  monitor.report = {"rmss"};
  config.decoder->stack = monitor;
  EXPECT_THROW(run(config), Error);
}

TEST(Monitor, PaddingDoesNotCount) {
  CausalLM::Config config = model();
  Monitor::Config monitor;
  monitor.base = config.decoder->stack;
  config.decoder->stack = monitor;
  const std::vector<std::int32_t> segments{1, 1, 2, 0, 0, 3, 3, 3, 3, 0};
  const Ran ran = run(config, true, segments);
  for (const kernels::Call& call : ran.traced.program.calls) {
    if (call.op != "embedding") continue;
    const kernels::HostTensor& x = ran.values.at(call.outputs[0]);
    double squares = 0;
    for (std::int64_t i = 0; i < x.type.elements(); ++i)
      if (segments[static_cast<std::size_t>(i / 8)] != 0)
        squares += x.as<float>()[i] * static_cast<double>(x.as<float>()[i]);
    EXPECT_NEAR(ran.summary("decoder/stack/input_rms"), std::sqrt(squares / (7 * 8)), 1e-5);
  }
}

}  // namespace
}  // namespace meshloom::layers

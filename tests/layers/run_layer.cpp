#include "tests/layers/run_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "layers/attention/mask.h"
#include "layers/config/tree.h"
#include "layers/models/trace.h"
#include "tests/layers/interpreter.h"
#include "trainer/compose/passes/differentiate.h"

namespace meshloom::tests {

using namespace layers;

const ClassTable& layer_classes() {
  static const ClassTable all = [] {
    ClassTable table;
    add_layer_classes(table);
    return table;
  }();
  return all;
}

Numbers random_numbers(const std::string& name, std::int64_t count, float size) {
  Numbers values(static_cast<std::size_t>(count));
  normal(fold_in_path(Key{11}, name), 0, count, values.data());
  for (float& v : values) v *= size;
  return values;
}

Numbers layer_input() { return random_numbers("input", kTokens * kDim, 1); }

LayerResult run_layer(const std::string& text, const Numbers& x, std::map<std::string, Numbers> values,
                      bool training, const ClassTable& table, const std::vector<std::int32_t>& segments) {
  const auto rows = static_cast<std::int64_t>(x.size()) / kDim;
  const std::int64_t sequence = rows % kSequence == 0 ? kSequence : rows;
  const std::unique_ptr<Config> config = parse(text, table, "layer");
  auto& layer_config = dynamic_cast<Layer::Config&>(*config);
  layer_config.dims = Layer::same(kDim);
  const std::unique_ptr<Module> module = layer_config.build({});

  kernels::Catalog catalog;
  kernels::add_contracts(catalog);
  kernels::Program program;
  kernels::Builder builder(catalog, program);
  Record record;
  Values inputs;
  std::vector<Tensor> parameters;
  const auto declare = [&](const std::string& path, kernels::TensorType type, kernels::Role role,
                           float size) {
    const Tensor tensor = builder.input(path, type, role);
    if (!values.count(path)) values[path] = random_numbers(path, type.elements(), size);
    EXPECT_EQ(static_cast<std::int64_t>(values[path].size()), type.elements()) << path;
    inputs[tensor.id] = host(type, values[path].data());
    return tensor;
  };
  module->visit([&](const Module& m) {
    for (const Parameter& p : m.parameters()) {
      record.parameters[p.path] = declare(p.path, p.type, kernels::Role::parameter, 0.7f);
      parameters.push_back(record.parameters[p.path]);
    }
    for (const State& s : m.states())
      record.states[s.path] = declare(s.path, s.type, kernels::Role::state, 0);
  });
  values["x"] = x;
  const Tensor in = declare("x", {kernels::DType::f32, {rows, kDim}}, kernels::Role::input, 1);
  const Tensor cotangent = declare("cotangent", in.type(), kernels::Role::input, 1);
  parameters.push_back(in);

  Context ctx(builder, record, {}, training);
  ctx.put(Tokens{rows / sequence, sequence});
  if (!segments.empty()) {
    const kernels::TensorType type{kernels::DType::i32, {rows / sequence, sequence}};
    const Tensor ids = builder.input("segments", type, kernels::Role::input);
    inputs[ids.id] = host(type, segments.data());
    ctx.put(Segments{ids});
  }
  const Tensor y = dynamic_cast<Layer&>(*module).forward(ctx, in);
  Tensor total = kernels::reduce_sum(kernels::mul(y, cotangent), 0), aux;
  for (const Tensor& loss : ctx.outputs_named("aux_loss")) aux = aux ? kernels::add(aux, loss) : loss;
  if (aux) total = kernels::add(total, aux);
  std::vector<Tensor> gradients;
  if (training) gradients = trainer::differentiate(builder, total, parameters);

  const Values all = interpret(program, catalog, std::move(inputs));
  const auto read = [&](Tensor t) {
    const kernels::HostTensor& host = all.at(t.id);
    return Numbers(host.as<float>(), host.as<float>() + host.type.elements());
  };
  LayerResult result;
  result.y = read(y);
  if (aux) result.aux = read(aux)[0];
  for (const auto& [path, value] : record.summaries) result.summaries[path] = read(value)[0];
  for (const auto& [path, value] : record.updates) result.updates[path] = read(value);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    result.gradients[program.value(parameters[i].id).name] = read(gradients[i]);
  return result;
}

void expect_near(const Numbers& got, const Numbers& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 1;
  for (const float v : want) largest = std::max(largest, std::abs(static_cast<double>(v)));
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance * largest) << i;
}

}  // namespace meshloom::tests

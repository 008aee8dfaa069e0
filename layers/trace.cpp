#include "layers/trace.h"

#include "kernels/layout/layout.h"
#include "layers/causal_lm.h"
#include "layers/config/tree.h"
#include "layers/mask.h"
#include "layers/position.h"

namespace meshloom::layers {
namespace {

const LanguageModel::Config& language_model(const Config& model) {
  const auto* config = dynamic_cast<const LanguageModel::Config*>(&model);
  if (!config)
    throw Error("model", "the root of a model is a language model",
                "'" + std::string(model.class_name()) + "'");
  return *config;
}

std::unique_ptr<LanguageModel> build(const Config& config) {
  check_complete(config);
  std::unique_ptr<Module> root = language_model(config).build({});
  auto* model = dynamic_cast<LanguageModel*>(root.get());
  if (!model) throw Error("model", "the root's config must build a language model");
  root.release();
  return std::unique_ptr<LanguageModel>(model);
}

// One trace: the inputs of the program first, in a fixed order, then the calls.
struct Tracer {
  std::unique_ptr<LanguageModel> model;
  Traced traced;
  kernels::Builder builder;
  Record record;

  Tracer(const Config& config, const kernels::Catalog& catalog, const char* name)
      : model(build(config)), builder(catalog, traced.program) {
    traced.program.name = name;
  }

  Tensor ids(const char* name, std::int64_t batch, std::int64_t sequence) {
    return builder.input(name, {kernels::DType::i32, {batch, sequence}}, kernels::Role::input,
                         {axis::kBatch, axis::kSeq});
  }

  void declare() {
    model->visit([&](const Module& module) {
      for (const Parameter& p : module.parameters()) {
        if (record.parameters.count(p.path))
          throw Error(p.path,
                      "a parameter has one declaration: a module and its inner one share their names");
        record.parameters[p.path] = builder.input(p.path, p.type, kernels::Role::parameter, p.axes);
        ParameterInfo info{.path = p.path, .type = p.type, .axes = p.axes, .decay = p.decay ? 1.0 : 0.0};
        info.frozen = p.frozen;
        info.adapter = p.adapter;
        info.packing = p.packing;
        info.initialize_range = [p](std::uint64_t seed, std::int64_t begin, std::int64_t count, float* into) {
          p.initialize(seed, begin, count, into);
        };
        traced.parameters.push_back(std::move(info));
      }
      for (const State& s : module.states())
        record.states[s.path] = builder.input(s.path, s.type, kernels::Role::state, s.axes);
    });
  }

  void check_used() const {
    for (const auto& [path, tensor] : record.parameters)
      if (!record.used.count(path)) throw Error(path, "a parameter must be used by some call of its model");
  }

  Traced finish() {
    for (const auto& [path, value] : record.summaries) {
      traced.summaries[path] = value.id;
      builder.output(value);
    }
    for (const auto& [path, next] : record.updates) {
      const Tensor state = record.states.at(path);
      traced.state_updates.emplace_back(state.id, next.id);
      builder.output(next);
      builder.donate(state, next);
    }
    return std::move(traced);
  }
};

void check_size(const Config& model, std::int64_t batch, std::int64_t sequence) {
  if (batch <= 0 || sequence <= 0)
    throw Error("model", "batch and sequence are positive",
                std::to_string(batch) + " and " + std::to_string(sequence));
  const std::int64_t most = max_sequence(model);
  if (most && sequence > most)
    throw Error("model", "takes sequences of at most " + std::to_string(most) + " tokens",
                std::to_string(sequence));
}

}  // namespace

Traced trace_loss(const Config& model, const kernels::Catalog& catalog, std::int64_t batch,
                  std::int64_t sequence, bool training, bool documents) {
  Tracer t(model, catalog, "loss");
  check_size(model, batch, sequence);
  const Tensor tokens = t.ids("tokens", batch, sequence), targets = t.ids("targets", batch, sequence);
  std::optional<Segments> segments;
  std::optional<Positions> positions;
  if (documents) {
    segments = Segments{t.ids("segments", batch, sequence)};
    positions = Positions{t.ids("positions", batch, sequence)};
  }
  t.declare();
  Context ctx(t.builder, t.record, {}, training);
  if (documents) {
    ctx.put(*segments);
    ctx.put(*positions);
  }
  const LanguageModel::Loss loss = t.model->loss(ctx, tokens, targets);
  t.check_used();
  t.traced.tokens = tokens.id;
  t.traced.targets = targets.id;
  t.traced.loss_sum = loss.sum.id;
  t.traced.token_count = loss.count.id;
  t.builder.output(loss.sum);
  t.builder.output(loss.count);
  return t.finish();
}

Traced trace_logits(const Config& model, const kernels::Catalog& catalog, std::int64_t batch,
                    std::int64_t sequence) {
  Tracer t(model, catalog, "logits");
  check_size(model, batch, sequence);
  const Tensor tokens = t.ids("tokens", batch, sequence);
  t.declare();
  Context ctx(t.builder, t.record, {}, false);
  Tensor logits = t.model->logits(ctx, tokens);
  logits = kernels::reshape(logits, {batch, sequence, logits.dim(-1)});
  t.builder.axes(logits, {axis::kBatch, axis::kSeq, axis::kVocab});
  t.traced.tokens = tokens.id;
  t.traced.logits = logits.id;
  t.builder.output(logits);
  return t.finish();
}

std::int64_t max_sequence(const Config& model) {
  std::int64_t least = 0;
  visit(model, [&](const std::string&, const Config& node) {
    const auto* config = dynamic_cast<const Module::Config*>(&node);
    const std::int64_t limit = config ? config->max_sequence() : 0;
    if (limit && (!least || limit < least)) least = limit;
  });
  return least;
}

std::int64_t vocabulary(const Config& model) { return language_model(model).vocabulary(); }

}  // namespace meshloom::layers

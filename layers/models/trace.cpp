#include "layers/models/trace.h"

#include <algorithm>

#include "kernels/layout/layout.h"
#include "layers/attention/mask.h"
#include "layers/cache/kv_cache.h"
#include "layers/config/tree.h"
#include "layers/core/inference_step.h"
#include "layers/loss/policy_loss.h"
#include "layers/loss/preference_loss.h"
#include "layers/models/language_model.h"
#include "layers/position/position.h"

namespace meshloom::layers {
namespace {

const LanguageModel::Config& language_model(const Config& model) {
  const auto* config = dynamic_cast<const LanguageModel::Config*>(&model);
  if (!config)
    throw Error("model", "the root of a model must be a language model",
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

// A trace in progress. The inputs of the program are declared first, in a fixed order; then the model is called.
struct Tracer {
  std::unique_ptr<LanguageModel> model;
  Traced traced;
  kernels::Builder builder;
  Record record;

  Tracer(const Config& config, const kernels::Catalog& catalog, const char* name)
      : model(build(config)), builder(catalog, traced.program) {
    traced.program.name = name;
  }

  Tensor input(const char* name, std::int64_t batch, std::int64_t sequence,
               kernels::DType dtype = kernels::DType::i32) {
    return builder.input(name, {dtype, {batch, sequence}}, kernels::Role::input, {axis::kBatch, axis::kSeq});
  }
  // An input of rows besides tokens and targets.
  Tensor row_input(const char* name, std::int64_t batch, std::int64_t sequence,
                   kernels::DType dtype = kernels::DType::i32) {
    const Tensor made = input(name, batch, sequence, dtype);
    traced.rows.push_back(made.id);
    return made;
  }

  // The inputs of rows besides tokens and targets.
  struct Rows {
    std::optional<Segments> segments;
    std::optional<Positions> positions;
    std::optional<Source> source;
    std::optional<Preferences> preferences;
    std::optional<Rollouts> rollouts;

    void put_into(Context& ctx) const {
      if (segments) ctx.put(*segments);
      if (positions) ctx.put(*positions);
      if (source) ctx.put(*source);
      if (preferences) ctx.put(*preferences);
      if (rollouts) ctx.put(*rollouts);
    }
  };
  Rows rows(std::int64_t batch, std::int64_t sequence, std::int64_t source, bool documents,
            bool padding = false) {
    Rows rows;
    const auto more = [&](const char* name, std::int64_t length) { return row_input(name, batch, length); };
    if (documents || source || padding) rows.segments = Segments{more("segments", sequence)};
    if (documents) rows.positions = Positions{more("positions", sequence)};
    if (source) {
      rows.source = Source{more("source", source), more("source_segments", source), {}};
      if (documents) rows.source->positions = more("source_positions", source);
    }
    return rows;
  }

  // What losses of pairs read of every target.
  Preferences preferences(std::int64_t batch, std::int64_t sequence, std::int64_t pairs, bool reference) {
    Preferences made{of_targets("answers", batch, sequence), {}, pairs};
    if (reference) made.reference = of_targets("reference_logprobs", batch, sequence);
    return made;
  }
  Tensor of_targets(const char* name, std::int64_t batch, std::int64_t sequence) {
    return row_input(name, batch, sequence, kernels::DType::f32);
  }

  void declare() {
    model->visit([&](const Module& module) {
      for (const Parameter& p : module.parameters()) {
        if (record.parameters.count(p.path))
          throw Error(
              p.path,
              "a parameter must have only one declaration; a wrapper shares the names of the layer inside");
        record.parameters[p.path] = builder.input(p.path, p.type, kernels::Role::parameter, p.axes);
        ParameterInfo info{.path = p.path, .type = p.type, .axes = p.axes, .decay = p.decay ? 1.0 : 0.0};
        info.frozen = p.frozen;
        info.adapter = p.adapter;
        info.storage = p.storage;
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
    for (const auto& [cache, next] : record.caches) {
      builder.output(next);
      builder.donate(cache, next);
    }
    return std::move(traced);
  }
};

// Returns the length of sources; 0 if the model has no encoder.
std::int64_t check_size(const Config& model, std::int64_t batch, std::int64_t sequence, std::int64_t source) {
  if (batch <= 0 || sequence <= 0 || source < 0)
    throw Error("model", "batch and sequence must be positive",
                std::to_string(batch) + " and " + std::to_string(source < 0 ? source : sequence));
  const auto check_length = [](std::int64_t length, std::int64_t max, const char* what) {
    if (max && length > max)
      throw Error("model", std::string("must get ") + what + " of at most " + std::to_string(max) + " tokens",
                  std::to_string(length));
  };
  check_length(sequence, max_sequence(model), "sequences");
  if (!reads_source(model)) {
    if (source)
      throw Error("model", "only a model with an encoder may have a source",
                  "'" + std::string(model.class_name()) + "'");
    return 0;
  }
  if (source == 0) source = sequence;
  check_length(source, max_source(model), "sources");
  return source;
}

std::int64_t shortest_limit(const Config& part) {
  std::int64_t min = 0;
  visit(part, [&](const std::string&, const Config& node) {
    const auto* config = dynamic_cast<const Module::Config*>(&node);
    const std::int64_t limit = config ? config->max_sequence() : 0;
    if (limit && (!min || limit < min)) min = limit;
  });
  return min;
}

bool any_loss(const Config& model, const std::function<bool(const TokenLoss::Config&)>& has) {
  bool found = false;
  visit(model, [&](const std::string&, const Config& node) {
    const auto* loss = dynamic_cast<const TokenLoss::Config*>(&node);
    found = found || (loss && has(*loss));
  });
  return found;
}

}  // namespace

Traced trace_loss(const Config& model, const kernels::Catalog& catalog, std::int64_t batch,
                  std::int64_t sequence, bool training, bool documents, std::int64_t source,
                  std::int64_t preferences) {
  Tracer t(model, catalog, "loss");
  source = check_size(model, batch, sequence, source);
  const Tensor tokens = t.input("tokens", batch, sequence), targets = t.input("targets", batch, sequence);
  Tracer::Rows rows = t.rows(batch, sequence, source, documents);
  if (reads_preferences(model))
    rows.preferences = t.preferences(batch, sequence, preferences, reads_reference(model));
  if (reads_rollouts(model))
    rows.rollouts =
        Rollouts{t.of_targets("advantages", batch, sequence), t.of_targets("old_logprobs", batch, sequence)};
  t.declare();
  Context ctx(t.builder, t.record, {}, training);
  rows.put_into(ctx);
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
                    std::int64_t sequence, std::int64_t source, bool padding) {
  Tracer t(model, catalog, "logits");
  source = check_size(model, batch, sequence, source);
  const Tensor tokens = t.input("tokens", batch, sequence);
  const Tracer::Rows rows = t.rows(batch, sequence, source, false, padding);
  t.declare();
  Context ctx(t.builder, t.record, {}, false);
  rows.put_into(ctx);
  Tensor logits = t.model->logits(ctx, tokens);
  logits = kernels::reshape(logits, {batch, sequence, logits.dim(-1)});
  t.builder.axes(logits, {axis::kBatch, axis::kSeq, axis::kVocab});
  t.traced.tokens = tokens.id;
  t.traced.logits = logits.id;
  t.builder.output(logits);
  return t.finish();
}

Traced trace_decode(const Config& model, const kernels::Catalog& catalog, const DecodeShape& shape) {
  const auto& [tokens, sequences, rows, length, page_size, pages, step_tokens, dtype, source, hidden_states] =
      shape;
  for (const std::int64_t size : {tokens, sequences, rows, length, page_size, pages})
    if (size < 1)
      throw Error("step of inference", "all of its sizes must be at least 1", std::to_string(size));
  if (reads_source(model) && source < 1)
    throw NoCache("model", "the keys and values of earlier tokens cannot be kept for it", "an encoder");
  check_size(model, 1, length, source);
  Tracer t(model, catalog, "decode");
  const auto ids = [&](const char* name, kernels::Shape of) {
    const Tensor made = t.builder.input(name, {kernels::DType::i32, std::move(of)}, kernels::Role::input);
    t.traced.decode_inputs[name] = made.id;
    return made;
  };
  const Tensor of_tokens = ids("tokens", {1, tokens}), positions = ids("positions", {1, tokens}),
               segments = ids("segments", {1, tokens}), wanted = ids("rows", {rows});
  InferenceStep step;
  step.slots = ids("slots", {tokens});
  step.page_table = ids("page_table", {sequences, (length + page_size - 1) / page_size});
  step.query_starts = ids("query_starts", {sequences + 1});
  step.lengths = ids("lengths", {sequences});
  step.sequence_ids = ids("sequence_ids", {sequences, 1});
  step.sequences = sequences;
  step.length = length;
  step.step_tokens = std::max(tokens, step_tokens);
  step.page_size = page_size;
  step.pages = pages;
  step.dtype = dtype;
  std::optional<SourceStep> of_source;
  if (source > 0) {
    of_source = SourceStep{.sequences = sequences, .length = source, .dtype = dtype};
    of_source->sequence_ids = ids("source_sequence_ids", {tokens, 1});
    of_source->starts = ids("source_starts", {tokens + 1});
    of_source->lengths = ids("source_lengths", {tokens});
  }
  t.declare();
  Context ctx(t.builder, t.record, {}, false);
  ctx.put(Positions{positions});
  ctx.put(Segments{segments});
  ctx.put(step);
  if (of_source) ctx.put(*of_source);
  const Tensor logits = t.model->logits(ctx, of_tokens, wanted);
  for (const auto& [name, input] : t.record.step_inputs) t.traced.decode_inputs[name] = input.id;
  t.traced.tokens = of_tokens.id;
  t.traced.logits = logits.id;
  t.builder.output(logits);
  if (hidden_states) {
    const std::vector<Tensor> found = ctx.outputs_named("hidden_states");
    if (found.size() != 1)
      throw Error("model", "must have one decoder for its hidden states to be an output",
                  std::to_string(found.size()));
    t.traced.hidden_states = found[0].id;
    t.builder.output(found[0]);
  }
  t.traced.cache_bytes = t.record.cache_bytes;
  t.traced.cached_rows = t.record.cached_rows;
  return t.finish();
}

Traced trace_encode(const Config& model, const kernels::Catalog& catalog, const DecodeShape& shape) {
  const std::int64_t source = check_size(model, 1, 1, shape.source);
  Tracer t(model, catalog, "encode");
  const auto ids = [&](const char* name, kernels::Shape of) {
    const Tensor made = t.builder.input(name, {kernels::DType::i32, std::move(of)}, kernels::Role::input);
    t.traced.decode_inputs[name] = made.id;
    return made;
  };
  // What the decoder computes of one token is of no use; only the keys and values that its layers make of the source are kept.
  const Tensor tokens = ids("tokens", {1, 1}), segments = ids("segments", {1, 1}),
               of_source = ids("source", {1, source}), source_segments = ids("source_segments", {1, source}),
               slots = ids("source_slots", {source});
  t.declare();
  Context ctx(t.builder, t.record, {}, false);
  ctx.put(Segments{segments});
  ctx.put(Source{of_source, source_segments, {}});
  ctx.put(SourceStep{.sequences = shape.sequences, .length = source, .dtype = shape.dtype, .slots = slots});
  const Tensor logits = t.model->logits(ctx, tokens);
  t.traced.tokens = tokens.id;
  t.traced.logits = logits.id;
  t.builder.output(logits);
  return t.finish();
}

bool reads_preferences(const Config& model) {
  return any_loss(model, [](const TokenLoss::Config& loss) { return loss.reads_preferences(); });
}

bool reads_reference(const Config& model) {
  return any_loss(model, [](const TokenLoss::Config& loss) { return loss.reads_reference(); });
}

bool reads_rollouts(const Config& model) {
  return any_loss(model, [](const TokenLoss::Config& loss) { return loss.reads_rollouts(); });
}

bool reads_source(const Config& model) { return language_model(model).source_part() != nullptr; }

std::int64_t max_sequence(const Config& model) { return shortest_limit(language_model(model).token_part()); }

std::int64_t max_source(const Config& model) {
  const Config* part = language_model(model).source_part();
  return part ? shortest_limit(*part) : 0;
}

std::int64_t vocabulary(const Config& model) { return language_model(model).vocabulary(); }

}  // namespace meshloom::layers

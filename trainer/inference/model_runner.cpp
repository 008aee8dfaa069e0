#include "trainer/inference/model_runner.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "hal/math.h"
#include "layers/adapters/lora_slots.h"
#include "layers/models/trace.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_tensors.h"

namespace meshloom::trainer {

bool is_batch_invariant_by_default(const hal::DeviceInfo& device) { return device.backend == "cpu"; }

DecodeOptions decode_options(const ModelRunnerOptions& options, const hal::DeviceInfo& device) {
  DecodeOptions decode{.tokens = options.tokens,
                       .sequences = options.sequences,
                       .rows = options.rows > 0 ? options.rows : options.sequences,
                       .length = options.length,
                       .page_size = options.page_size,
                       .pages = options.pages,
                       .row_exact = options.batch_invariant.value_or(is_batch_invariant_by_default(device)),
                       .source = options.source,
                       .hidden_states = options.hidden_states};
  std::sort(decode.tokens.begin(), decode.tokens.end());
  decode.tokens.erase(std::unique(decode.tokens.begin(), decode.tokens.end()), decode.tokens.end());
  return decode;
}

ComposeOptions inference_options(const TrainerConfig& config) {
  ComposeOptions options = config.compose_options();
  options.batch = options.accumulation = 1;
  options.remat.clear();  // no backward pass
  options.mesh.clear();   // on one rank
  options.shares.clear();
  options.evaluation = false;
  return options;
}

void check_parameters(const StoredTensors& weights, const Plan& plan) {
  const QuantizingLoader loader(weights, plan.parameters, {});
  check_tensors(weights, loader.wanted(model_tensors(plan)));
}

void load_parameters(const StoredTensors& weights, Session& session) {
  const Plan& plan = session.plan();
  const QuantizingLoader loader(
      weights, plan.parameters,
      [&](const std::string& name, std::span<const std::byte> data) { session.write(name, data); });
  load_tensors(weights, loader.wanted(model_tensors(plan)),
               [&](const std::string& name, std::span<const std::byte> data) { loader.write(name, data); });
}

ServingPlan compose_serving(const TrainerConfig& config, const ModelRunnerOptions& options,
                            const kernels::Catalog& catalog, const hal::DeviceInfo& device,
                            bool enforce_memory) {
  ServingPlan serving;
  ComposeOptions& compose = serving.options;
  compose = inference_options(config);
  compose.enforce_memory = enforce_memory;
  compose.decode = decode_options(options, device);
  if (!compose.decode.row_exact)
    serving.batch_dependence =
        options.batch_invariant ? "it was asked for"
                                : "on " + device.backend + " it costs speed; --batch-invariant asks for it";
  try {
    serving.plan = compose_inference(*config.model, compose, catalog, device);
    return serving;
  } catch (const NotRowExact& not_row_exact) {
    if (options.batch_invariant) throw;
    serving.batch_dependence = not_row_exact.what();
  }
  compose.decode.row_exact = false;
  serving.plan = compose_inference(*config.model, compose, catalog, device);
  return serving;
}

ModelRunner::ModelRunner(const TrainerConfig& config, const ModelRunnerOptions& options, hal::Device& device,
                         const kernels::Catalog& catalog, const StoredTensors& weights)
    : ModelRunner(config, options, device, catalog,
                  [&](Session& session) { load_parameters(weights, session); }) {}

ModelRunner::ModelRunner(const TrainerConfig& config, const ModelRunnerOptions& options, hal::Device& device,
                         const kernels::Catalog& catalog,
                         const std::function<void(Session&)>& write_parameters)
    : options_(options),
      vocabulary_(layers::vocabulary(*config.model)),
      table_width_(hal::ceil_div(options.length, options.page_size)) {
  ServingPlan serving = compose_serving(config, options, catalog, device.info());
  batch_dependence_ = std::move(serving.batch_dependence);
  own_ = std::make_unique<Session>(device, catalog, std::move(serving.plan));
  enter(*own_, serving.options.decode);
  write_parameters(*own_);
}

ModelRunner::ModelRunner(const TrainerConfig& config, const ModelRunnerOptions& options, Session& session)
    : options_(options),
      vocabulary_(layers::vocabulary(*config.model)),
      table_width_(hal::ceil_div(options.length, options.page_size)) {
  enter(session, decode_options(options, session.device().info()));
}

void ModelRunner::enter(Session& session, const DecodeOptions& decode) {
  session_ = &session;
  const Plan& plan = session.plan();
  options_.rows = decode.rows;
  cached_rows_.assign(plan.cached_rows.begin(), plan.cached_rows.end());
  for (const std::int64_t tokens : decode.tokens) {
    Program& program = programs_[tokens];
    program.rows = std::min(rows(), tokens);
    const std::string prefix = "decode/" + std::to_string(tokens) + "/";
    program.logits = prefix + "logits";
    program.hidden_states = prefix + "hidden_states";
    if (options_.hidden_states) hidden_size_ = plan.persistent_types.at(program.hidden_states).dim(-1);
    for (const char* name :
         {"tokens", "positions", "segments", "slots", "page_table", "query_starts", "lengths", "sequence_ids",
          "rows", layers::LoraSlots::kInput, layers::LoraSlots::kRowsInput, "source_sequence_ids",
          "source_starts", "source_lengths"})
      program.names.push_back(prefix + name);
    for (const Input input : {kAdapters, kRowAdapters, kSourceIds, kSourceStarts, kSourceLengths})
      if (!plan.persistent_types.contains(program.names[input])) program.names[input].clear();
    for (const std::int64_t size : cached_rows_)
      program.names.push_back(prefix + "sequence_slots/" + std::to_string(size));
    program.written.resize(program.names.size());
  }
  lora_slots_ = lora_slots_of(plan);
  // Caches and inputs start as zeros, whatever the device's memory held.
  std::set<std::string> names, caches;
  for (const auto& [key, planned] : plan.steps.programs) {
    if (key.step != Step::decode && key.step != Step::encode) continue;
    for (const kernels::ValueId id : planned.program.inputs)
      if (const kernels::Value& value = planned.program.value(id);
          value.role == kernels::Role::cache || value.role == kernels::Role::input) {
        names.insert(value.name);
        if (value.role == kernels::Role::cache) caches.insert(value.name);
      }
  }
  if (!uses_sequence_ids())
    for (const std::string& name : caches) {
      kernels::TensorType type = plan.persistent_types.at(name);
      type.shape.erase(type.shape.begin());
      page_bytes_ += type.bytes();
      page_layout_.push_back({name, std::move(type)});
    }
  std::vector<std::byte> zeros;  // one for all, as the pages of each new one would have to be cleared as well
  for (const std::string& name : names) {
    const auto bytes = static_cast<std::size_t>(plan.persistent_types.at(name).bytes());
    zeros.resize(std::max(zeros.size(), bytes));
    session.write(name, std::span(zeros).first(bytes));
  }
}

void ModelRunner::write(Program& program, const std::vector<Ids>& inputs) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (program.names[i].empty() || program.written[i] == inputs[i]) continue;
    program.written[i].clear();  // unknown until it is written
    session_->write(program.names[i], std::as_bytes(std::span(inputs[i])));
    program.written[i] = inputs[i];
  }
}

ProgramKey ModelRunner::program_of(std::int64_t tokens) const {
  const auto found = programs_.lower_bound(tokens);
  if (found == programs_.end())
    throw Error("model runner", "a run must have at most " + std::to_string(max_tokens()) + " tokens",
                std::to_string(tokens));
  return {Step::decode, static_cast<int>(found->first)};
}

ModelRunner::Prepared ModelRunner::prepare(std::span<const Chunk> chunks) {
  std::vector<Ids> inputs(kInputs + cached_rows_.size());
  inputs[kQueryStarts] = {0};
  for (const Chunk& chunk : chunks) {
    const Sequence& sequence = *chunk.sequence;
    for (std::int64_t at = sequence.computed; at < sequence.computed + chunk.count; ++at) {
      const auto row = static_cast<std::int32_t>(inputs[kTokens].size());
      if (sequence.wants_logits(at)) {
        inputs[kRows].push_back(row);
        inputs[kRowAdapters].push_back(sequence.adapter);
      }
      inputs[kTokens].push_back(sequence.token(at));
      inputs[kPositions].push_back(static_cast<std::int32_t>(at));
      inputs[kSegments].push_back(1);
      inputs[kAdapters].push_back(sequence.adapter);
      inputs[kSourceIds].push_back(sequence.sequence_id);
      inputs[kSourceLengths].push_back(static_cast<std::int32_t>(sequence.source));
      const Page page = sequence.pages[static_cast<std::size_t>(at / options_.page_size)];
      inputs[kSlots].push_back(
          static_cast<std::int32_t>(page * options_.page_size + at % options_.page_size));
      for (std::size_t i = 0; i < cached_rows_.size(); ++i)
        inputs[kInputs + i].push_back(
            static_cast<std::int32_t>(sequence.sequence_id * cached_rows_[i] + at % cached_rows_[i]));
    }
    inputs[kQueryStarts].push_back(static_cast<std::int32_t>(inputs[kTokens].size()));
    const std::int64_t end = sequence.computed + chunk.count;
    chunk.sequence->written = sequence.computed == 0 ? end : std::max(sequence.written, end);
    inputs[kLengths].push_back(static_cast<std::int32_t>(end));
    inputs[kSequenceIds].push_back(sequence.sequence_id);
    Ids& table = inputs[kPageTable];
    table.insert(table.end(), sequence.pages.begin(), sequence.pages.end());
    table.resize(inputs[kLengths].size() * static_cast<std::size_t>(table_width_), 0);
  }
  const std::size_t wanted = inputs[kRows].size();
  const auto count = static_cast<std::int64_t>(inputs[kTokens].size());
  const ProgramKey key = program_of(count);
  const std::int64_t tokens = key.chunk;
  Program& program = programs_.at(tokens);
  if (chunks.size() > static_cast<std::size_t>(options_.sequences) ||
      wanted > static_cast<std::size_t>(program.rows))
    throw Error("model runner", "a run must be within its options",
                std::to_string(count) + " tokens of " + std::to_string(chunks.size()) + " sequences, " +
                    std::to_string(wanted) + " logits");
  const auto sequences = static_cast<std::size_t>(options_.sequences);
  inputs[kSourceStarts].resize(static_cast<std::size_t>(tokens) + 1);
  std::iota(inputs[kSourceStarts].begin(), inputs[kSourceStarts].end(), 0);
  for (const Input input : {kTokens, kPositions, kSegments, kSourceIds, kSourceLengths})
    inputs[input].resize(static_cast<std::size_t>(tokens), 0);
  for (const Input input : {kSlots, kAdapters}) inputs[input].resize(static_cast<std::size_t>(tokens), -1);
  for (std::size_t i = kInputs; i < inputs.size(); ++i)
    inputs[i].resize(static_cast<std::size_t>(tokens), -1);
  inputs[kRows].resize(static_cast<std::size_t>(program.rows), 0);
  inputs[kRowAdapters].resize(static_cast<std::size_t>(program.rows), -1);
  inputs[kQueryStarts].resize(sequences + 1, inputs[kQueryStarts].back());
  inputs[kLengths].resize(sequences, 0);
  inputs[kSequenceIds].resize(sequences, 0);
  inputs[kPageTable].resize(sequences * static_cast<std::size_t>(table_width_), 0);
  write(program, inputs);
  return {key, &program, wanted, count};
}

void ModelRunner::encode(Sequence& sequence, std::span<const std::int32_t> source) {
  const auto longest = static_cast<std::size_t>(options_.source), size = source.size();
  if (size > longest)
    throw Error("model runner", "a source must have at most " + std::to_string(longest) + " tokens",
                std::to_string(size));
  const auto write = [&](const char* name, Ids ids, std::int32_t padding) {
    ids.resize(longest, padding);
    session_->write(std::string("encode/") + name, std::as_bytes(std::span(ids)));
  };
  Ids slots(size);
  std::iota(slots.begin(), slots.end(), static_cast<std::int32_t>(sequence.sequence_id * options_.source));
  write("source", {source.begin(), source.end()}, 0);
  write("source_segments", Ids(size, 1), 0);
  write("source_slots", std::move(slots), -1);
  session_->run(Step::encode);
  sequence.source = static_cast<std::int64_t>(size);
}

// Calls copy(name, first byte, bytes) for each cache with its part of the page.
template <typename Bytes, typename F>
void ModelRunner::copy_page(Page page, Bytes bytes, F copy) const {
  if (bytes.size() != static_cast<std::size_t>(page_bytes_))
    throw Error("model runner", "a page has " + std::to_string(page_bytes_) + " bytes",
                std::to_string(bytes.size()));
  for (const auto& [name, type] : page_layout_) {
    const auto size = static_cast<std::size_t>(type.bytes());
    copy(name, page * type.bytes(), bytes.first(size));
    bytes = bytes.subspan(size);
  }
}

void ModelRunner::read_page(Page page, std::span<std::byte> bytes) {
  copy_page(page, bytes, [&](const std::string& name, std::int64_t first, std::span<std::byte> part) {
    session_->read_bytes(name, first, part);
  });
}

void ModelRunner::write_page(Page page, std::span<const std::byte> bytes) {
  copy_page(page, bytes, [&](const std::string& name, std::int64_t first, std::span<const std::byte> part) {
    session_->write_bytes(name, first, part);
  });
}

std::vector<double> ModelRunner::time_calls(std::span<const Chunk> chunks) {
  return session_->run_timed(prepare(chunks).key);
}

std::span<const float> ModelRunner::run(std::span<const Chunk> chunks) {
  const auto [key, program, wanted, tokens] = prepare(chunks);
  session_->run(key);
  last_program_ = program;
  last_tokens_ = tokens;
  if (wanted == 0) {
    session_->wait();
    return {};
  }
  const auto width = static_cast<std::size_t>(vocabulary_);
  logits_.resize(std::max(logits_.size(), wanted * width));
  const std::span<float> rows = std::span(logits_).first(wanted * width);
  session_->read_first(program->logits, std::as_writable_bytes(rows));
  return rows;
}

std::span<const float> ModelRunner::hidden_states() {
  hidden_states_.resize(static_cast<std::size_t>(last_tokens_ * hidden_size_));
  session_->read_first(last_program_->hidden_states, std::as_writable_bytes(std::span(hidden_states_)));
  return hidden_states_;
}

}  // namespace meshloom::trainer

#include "trainer/compose/compose.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "hal/error.h"
#include "hal/math.h"
#include "hal/suggest.h"
#include "kernels/layout/layout.h"
#include "kernels/program/print.h"
#include "kernels/program/verify.h"
#include "trainer/compose/check_options.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/memory/host_plan.h"
#include "trainer/compose/memory/memory.h"
#include "trainer/compose/passes/differentiate.h"
#include "trainer/compose/passes/distributed/islands.h"
#include "trainer/compose/passes/distributed/overlap.h"
#include "trainer/compose/passes/distributed/partition.h"
#include "trainer/compose/passes/frozen_weights.h"
#include "trainer/compose/passes/fuse.h"
#include "trainer/compose/passes/memory/donations.h"
#include "trainer/compose/passes/memory/host_update.h"
#include "trainer/compose/passes/memory/offload_gradients.h"
#include "trainer/compose/passes/memory/optimizer_in_backward.h"
#include "trainer/compose/passes/memory/remat.h"
#include "trainer/compose/passes/memory/transfers.h"
#include "trainer/compose/passes/parameter_copies.h"
#include "trainer/compose/passes/parameter_dtype.h"
#include "trainer/compose/passes/precision.h"
#include "trainer/compose/passes/select.h"
#include "trainer/compose/passes/update.h"
#include "trainer/compose/pipeline.h"
#include "trainer/compose/report.h"
#include "trainer/compose/rule_pattern.h"

namespace meshloom::trainer {
namespace {

using kernels::Builder;
using kernels::Program;
using kernels::Role;
using kernels::Tensor;

BatchSums sums_of(Builder& builder, const layers::Traced& traced) {
  BatchSums sums{{"loss_sum", "token_count"},
                 {builder.tensor(traced.loss_sum), builder.tensor(traced.token_count)}};
  for (const auto& [path, value] : traced.summaries) {
    sums.names.push_back(path);
    sums.values.push_back(builder.tensor(value));
  }
  return sums;
}

// Removes all outputs of the program but those that are donated or read by the host.
void keep_state_outputs(Program& program) {
  program.outputs.clear();
  for (const kernels::Donation& donation : program.donations) program.outputs.push_back(donation.output);
}

class Composer {
 public:
  Composer(const layers::Config& model, const ComposeOptions& options, const kernels::Catalog& catalog,
           const hal::DeviceInfo& device, PassTrace* trace)
      : model_(model),
        options_(options),
        catalog_(catalog),
        device_(device),
        trace_(trace),
        selector_(catalog, device, options.kernels, options.tuning),
        decode_selector_(catalog, device, {}, options.tuning),
        host_(host_of(options, device)),
        host_selector_(catalog, host_ ? *host_ : device, {}),
        remat_matched_(options.remat.size(), 0) {
    plan_.mesh =
        Topology(options.mesh, options.rank).with_shares(options.shares).with_order(options.sequence_order);
    if (plan_.mesh.ranks() > 1) check_several_ranks(options, plan_.mesh);
    if (has_islands()) check_islands(options, plan_.mesh);
    if (plan_.mesh.size(AxisName::pipeline) > 1) pipeline_.emplace(options, plan_.mesh, catalog);
    for (std::size_t i = 0; i < options.remat.size(); ++i)
      if (options.remat[i].policy == RematPolicy::offload)
        require_host_memory("remat rule " + std::to_string(i + 1) + " (policy offload)", device);
    plan_.device = device.id;
    plan_.profile = device.profile.name;
  }

  void train(const Learner::Config& learner) {
    const bool split = options_.accumulation > 1 || host_ || pipeline_;
    const Step step = split ? Step::accumulate : Step::train;
    layers::Traced traced = trace_loss(step);
    note_model(traced);
    plan_.parameters = learner.apply_parameter_groups(std::move(plan_.parameters));
    Program& program = traced.program;
    Builder builder(catalog_, program);
    std::vector<StateUpdate> moved;
    std::vector<kernels::Value> states;
    for (const kernels::Donation& donation : program.donations) {
      const Tensor before = builder.tensor(donation.input);
      moved.push_back({before, builder.tensor(donation.output), {before}});
      states.push_back(program.value(donation.input));
    }
    if (!split) program.donations.clear();  // the update decides whether they change
    keep_state_outputs(program);
    std::vector<layers::ParameterInfo> learning;
    std::vector<Tensor> parameters;
    auto info = plan_.parameters.begin();
    for (kernels::ValueId id : program.inputs) {
      if (program.value(id).role != Role::parameter) continue;
      if (!info->frozen) {
        learning.push_back(*info);
        parameters.push_back(builder.tensor(id));
      }
      ++info;
    }
    if (has_islands()) {
      check_states_of_islands(plan_, learner);
      for (const layers::ParameterInfo& own : learning) plan_.shared.push_back(own.path);
    }
    // Without it gradients of f16 activations would vanish or overflow.
    const bool scaled = options_.dtype == kernels::DType::f16;
    const LossScale scale = scaled ? loss_scale(builder) : LossScale{};
    const std::vector<Tensor> gradients =
        differentiate(builder, builder.tensor(traced.loss_sum), parameters, scale.value);
    show(program, "differentiate");
    const BatchSums sums = sums_of(builder, traced);
    plan_.metrics["metrics"] = metric_names(sums.names, scaled);
    const bool single = options_.accumulation == 1;
    std::vector<std::pair<std::string, std::string>> parts;  // of gradients
    if (pipeline_)
      parts = pipeline_->write_sums(builder, learning, gradients, sums);
    else if (host_)
      write_host_accumulation(builder, learning, gradients, sums, single);
    else if (split)
      write_accumulation(builder, learning, gradients, sums);
    else
      write_update(builder, learner, learning, parameters, gradients, moved, sums, scale,
                   options_.optimizer_in_backward);
    if (options_.dtype != kernels::DType::f32 && options_.param_dtype == kernels::DType::f32)
      frozen_ = frozen_weights(program, plan_.parameters, options_.dtype);
    if (!pipeline_) plan_.steps.update = {{step, options_.accumulation}};
    const auto write_apply = [&] {
      return partitioned(
          Step::apply, apply_program(catalog_, learner, learning, sums.names, states, scaled, !single, parts),
          "update");
    };
    program = partitioned(step, std::move(program), "update");
    std::optional<Program> apply;
    if (may_keep_copies()) {
      std::vector<const Program*> update{&program};
      if (split) update.push_back(&apply.emplace(write_apply()));
      plan_.copied_parameters = copied_parameters(update, options_.dtype);
      leave_out_copies(update);
    }
    complete(step, std::move(program));
    if (split) {
      complete(Step::apply, apply ? std::move(*apply) : write_apply(), host_ != nullptr);
      plan_.steps.update.push_back({Step::apply});
    }
    if (has_islands()) add_outer(learning);
    if (pipeline_) return;
    for (const UpdateStep& part : plan_.steps.update)
      for (std::int64_t i = 0; i < part.times; ++i)
        plan_.steps.schedule.push_back(
            {.step = part.step.step,
             .micro_batch = part.step.step == Step::apply ? -1 : static_cast<int>(i)});
  }

  void evaluate() {
    layers::Traced traced = trace_loss(Step::evaluate, false);
    Program& program = traced.program;
    program.donations.clear();  // evaluation does not change the state
    keep_state_outputs(program);
    Builder builder(catalog_, program);
    builder.path = "metrics";
    const Tensor metrics =
        kernels::stack({builder.tensor(traced.loss_sum), builder.tensor(traced.token_count)});
    builder.name(metrics, "eval/metrics");
    builder.role(metrics, Role::state);
    builder.output(metrics);
    plan_.metrics["eval/metrics"] = {"loss_sum", "token_count"};
    add(Step::evaluate, std::move(program), "outputs");
    if (!pipeline_) plan_.steps.evaluation = {{.step = Step::evaluate, .micro_batch = 0}};
  }

  void logits() {
    if (pipeline_)
      throw hal::Error("mesh " + plan_.mesh.text(),
                       "programs that generate text need a mesh without pipeline");
    layers::Traced traced =
        layers::trace_logits(model_, catalog_, options_.logits_batch, options_.logits_sequence,
                             options_.logits_source, options_.logits_padding);
    note_model(traced);
    Program& program = traced.program;
    program.name = to_string(Step::logits);
    show(program, "trace");
    set_precision(traced);
    program.value(traced.tokens).name = "logits/tokens";
    for (const kernels::ValueId id : traced.rows) program.value(id).name = "logits/" + program.value(id).name;
    program.value(traced.logits).name = "logits";
    program.donations.clear();
    program.outputs = {traced.logits};
    add(Step::logits, std::move(program), "outputs");
  }

  // Beside the programs of training it takes neither their rules, which name kernels for their calls, nor stores anything
  // otherwise than they do. Each rank runs them for itself, with parameters that must be whole.
  void decode() {
    if (plan_.mesh.ranks() > (trains() ? plan_.mesh.size(AxisName::data) : 1))
      throw hal::Error("mesh " + plan_.mesh.text(),
                       trains() ? "programs with a cache need a mesh of the axis data alone"
                                : "programs with a cache need one rank",
                       fmt::format("{} ranks", plan_.mesh.ranks()));
    const DecodeOptions& decode = options_.decode;
    std::vector<layers::Traced> all;
    for (const std::int64_t tokens : decode.tokens) {
      layers::DecodeShape shape{.tokens = tokens,
                                .sequences = decode.sequences,
                                .rows = std::min(decode.rows, tokens),
                                .length = decode.length,
                                .page_size = decode.page_size,
                                .pages = decode.pages,
                                .step_tokens = *std::max_element(decode.tokens.begin(), decode.tokens.end()),
                                .dtype = options_.dtype,
                                .source = decode.source,
                                .hidden_states = decode.hidden_states};
      if (shape.pages == 0) shape.pages = shape.sequences * hal::ceil_div(shape.length, shape.page_size);
      all.push_back(layers::trace_decode(model_, catalog_, shape));
      layers::Traced& traced = all.back();
      note_model(traced);
      plan_.cache_bytes = traced.cache_bytes;
      plan_.cached_rows = traced.cached_rows;
      Program& program = traced.program;
      const std::string name = std::string(to_string(Step::decode)) + "/" + std::to_string(tokens);
      program.name = name;
      show(program, "trace");
      set_precision(traced);
      for (const auto& [input, id] : traced.decode_inputs) program.value(id).name = name + "/" + input;
      program.value(traced.logits).name = name + "/logits";
      std::erase_if(program.donations, [&](const kernels::Donation& donation) {
        return program.value(donation.input).role != Role::cache;
      });
      keep_state_outputs(program);
      program.outputs.push_back(traced.logits);
      if (decode.hidden_states) {
        program.value(traced.hidden_states).name = name + "/hidden_states";
        program.outputs.push_back(traced.hidden_states);
      }
    }
    if (decode.source > 0) all.push_back(encode());
    if (!trains()) store_weights_narrow(all);
    for (std::size_t i = 0; i < all.size(); ++i)
      add(i < decode.tokens.size() ? ProgramKey(Step::decode, static_cast<int>(decode.tokens[i]))
                                   : ProgramKey(Step::encode),
          std::move(all[i].program), "outputs");
  }

  // Bytes of copies that were known not to fit.
  std::int64_t left_out() const { return left_out_; }

  Plan finish(bool training) {
    report_rules(training);
    if (pipeline_) pipeline_->finish(plan_);
    const std::set<std::string> narrow = stored_in_bf16();
    for (layers::ParameterInfo& info : plan_.parameters)
      if (narrow.count(info.path)) info.type.dtype = kernels::DType::bf16;
    plan_.refusals = selector_.refusals();
    for (const Refusal& refusal : decode_selector_.refusals()) plan_.refusals.push_back(refusal);
    const std::vector<CopiedValue> copied = copied_values(programs_, host_programs_);
    plan_memory(plan_, std::move(programs_), catalog_, device_, copied);
    check_memory(plan_, catalog_);
    if (!host_programs_.empty())
      plan_host(plan_, std::move(host_programs_), catalog_, device_, *host_, marks_);
    if (options_.enforce_memory) require_memory(plan_, options_, device_);
    return std::move(plan_);
  }

 private:
  bool has_islands() const { return plan_.mesh.size(AxisName::islands) > 1; }

  // Stages have parts of programs, and the exchange between islands writes parameters too.
  bool may_keep_copies() const {
    return options_.parameter_copies && options_.dtype != kernels::DType::f32 && !host_ && !pipeline_ &&
           !has_islands();
  }

  // Keeps no copies where they and what else is there at once exceed the memory, which needs no plan: what persists, and where the
  // update waits for the norm of all gradients, these.
  void leave_out_copies(const std::vector<const Program*>& update) {
    const std::int64_t limit = memory_limit(device_);
    if (limit <= 0) return;
    const bool gradients_wait =
        update.size() == 1 && !options_.optimizer_in_backward &&
        std::none_of(options_.remat.begin(), options_.remat.end(),
                     [](const RematRule& rule) { return rule.policy == RematPolicy::offload; });
    std::map<std::string, std::int64_t> bytes;
    for (const Program* program : update)
      for (const kernels::ValueId id : program->inputs) {
        const kernels::Value& value = program->value(id);
        if (value.memory != hal::MemoryKind::device) continue;
        bytes[value.name] = value.type.bytes();
        if (plan_.copied_parameters.count(value.name))
          bytes[parameter_copy_name(value.name)] = value.type.bytes() / 2;
        if (plan_.copied_parameters.count(value.name) && gradients_wait)
          bytes["grad/" + value.name] = value.type.bytes();
      }
    std::int64_t all = 0, copies = 0;
    for (const auto& [name, size] : bytes) all += size;
    for (const std::string& name : plan_.copied_parameters) copies += bytes.at(parameter_copy_name(name));
    if (all <= limit) return;
    left_out_ = copies;
    plan_.copied_parameters.clear();
  }

  void add_outer(const std::vector<layers::ParameterInfo>& learning) {
    const OuterOptions& outer = options_.outer;
    const auto dealt = deal_outer_parts(learning, outer.parts);
    for (std::int64_t part = 0; part < outer.parts; ++part) {
      std::vector<layers::ParameterInfo> infos;
      for (const std::size_t i : dealt[static_cast<std::size_t>(part)]) infos.push_back(learning[i]);
      const ProgramKey key(Step::outer, static_cast<int>(part));
      Program program = outer_program(infos, outer, plan_.divided, catalog_, plan_.mesh);
      done(program, "islands");
      programs_.emplace_back(key,
                             optimized(Step::outer, legalize_donations(std::move(program), catalog_), false));
      plan_.steps.outer.push_back({key, (part + 1) * outer.every / outer.parts, outer.every});
    }
  }

  // The host that updates the parameters; nullptr = the device does.
  static const hal::DeviceInfo* host_of(const ComposeOptions& options, const hal::DeviceInfo& device) {
    if (!options.offload_optimizer) return nullptr;
    if (!device.host)
      throw hal::Error("offload_optimizer", "needs a device whose memory is not that of the host", device.id);
    require_host_memory("offload_optimizer", device);
    return device.host.get();
  }

  static void require_host_memory(const std::string& what, const hal::DeviceInfo& device) {
    if (!device.host_visible)
      throw hal::Error(what, "needs a device with host-visible memory beside its own",
                       device.id + " (" + device.name + ")");
  }

  layers::Traced encode() {
    layers::Traced traced = layers::trace_encode(
        model_, catalog_,
        {.sequences = options_.decode.sequences, .dtype = options_.dtype, .source = options_.decode.source});
    Program& program = traced.program;
    program.name = to_string(Step::encode);
    show(program, "trace");
    set_precision(traced);
    for (const auto& [input, id] : traced.decode_inputs) program.value(id).name = program.name + "/" + input;
    std::erase_if(program.donations, [&](const kernels::Donation& donation) {
      return program.value(donation.input).role != Role::cache;
    });
    keep_state_outputs(program);
    return traced;
  }

  layers::Traced trace_loss(Step step, bool training = true) {
    layers::Traced traced = layers::trace_loss(
        model_, catalog_, options_.rows() / plan_.mesh.size(AxisName::islands), options_.sequence, training,
        options_.documents, options_.source, options_.preferences);
    traced.program.name = to_string(step);
    show(traced.program, "trace");
    set_precision(traced);
    return traced;
  }

  // Weights that no program trains are stored as they are multiplied, in all programs alike.
  void store_weights_narrow(const std::vector<layers::Traced>& all) {
    if (options_.dtype == kernels::DType::f32 || options_.param_dtype != kernels::DType::f32) return;
    std::vector<layers::ParameterInfo> weights = plan_.parameters;
    for (layers::ParameterInfo& info : weights) info.frozen = true;
    for (const layers::Traced& traced : all) {
      const std::set<std::string> names = frozen_weights(traced.program, weights, options_.dtype);
      std::erase_if(weights, [&](const layers::ParameterInfo& info) { return !names.count(info.path); });
    }
    for (const layers::ParameterInfo& info : weights) frozen_.insert(info.path);
  }

  void set_precision(layers::Traced& traced) {
    if (options_.dtype == kernels::DType::f32) return;
    compute_in(options_.dtype, traced, catalog_);
    done(traced.program, "precision");
  }

  void note_model(const layers::Traced& traced) {
    if (!plan_.parameters.empty()) return;
    plan_.parameters = traced.parameters;
    for (const kernels::ValueId id : traced.program.inputs)
      if (const kernels::Value& value = traced.program.value(id); value.role == Role::state)
        plan_.states.emplace_back(value.name, value.type);
  }

  void show(const Program& program, const std::string& pass) {
    if (trace_) trace_->entries.push_back({program.name, pass, kernels::print(program)});
  }

  void done(const Program& program, const std::string& pass) {
    if (options_.verify_passes) kernels::verify(program, catalog_, pass);
    show(program, pass);
  }

  // The passes that every program goes through after it was written.
  void add(const ProgramKey& key, Program program, const std::string& writer) {
    complete(key, partitioned(key.step, std::move(program), writer));
  }

  // Those up to the partition over ranks.
  Program partitioned(Step step, Program program, const std::string& writer) {
    if (!frozen_.empty()) store_in(options_.dtype, frozen_, program);
    program = legalize_donations(std::move(program), catalog_);
    remove_dead_calls(program);
    done(program, writer);
    if (options_.param_dtype == kernels::DType::bf16) {
      program = parameters_in_bf16(std::move(program), catalog_, stored_in_bf16());
      remove_dead_calls(program);
      done(program, "parameters_in_bf16");
    }
    const Topology mesh = decodes(step) ? Topology() : plan_.mesh;
    Partitioned partitioned =
        partition(std::move(program), catalog_, mesh, options_.attention, options_.gradient_dtype);
    program = std::move(partitioned.program);
    if (mesh.ranks() > 1) remove_dead_calls(program);  // what was computed again in another division
    if (has_islands()) enter_islands(program, step, plan_.shared, partitioned.divided, catalog_, plan_.mesh);
    plan_.divided.merge(partitioned.divided);
    for (const MadeWhole& value : partitioned.made_whole) {
      auto& [values, bytes] = made_whole_[{std::string(to_string(step)), value.op}];
      ++values;
      bytes += value.bytes;
    }
    done(program, "partition");
    return program;
  }

  // Those behind it.
  void complete(const ProgramKey& key, Program program, bool on_host = false) {
    const Step step = key.step;
    if (!plan_.copied_parameters.empty()) {
      keep_copies(program, plan_.copied_parameters, options_.dtype);
      done(program, "parameter_copies");
    }
    if (pipeline_ && step != Step::apply) return add_chunks(step, program);
    if (pipeline_) {
      program = pipeline_->apply(program, plan_);
      done(program, "stages");
    }
    program = optimized(step, std::move(program), on_host);
    if (host_ && step == Step::accumulate) marks_ = place_marks(program);
    (on_host ? host_programs_ : programs_).emplace_back(key, std::move(program));
  }

  // This rank's chunks of a program over a pipeline.
  void add_chunks(Step step, const Program& whole) {
    int chunk = 0;
    for (Program& part : pipeline_->take(step, whole, plan_)) {
      done(part, "stages");
      part = rewritten(step, std::move(part), false);
      PhasePrograms phases = pipeline_->phases(step, chunk, std::move(part), plan_);
      for (auto& [phase, program] : phases.programs) {
        done(program, "phases");
        program = overlapped(std::move(program));
        program = selector_.select(std::move(program));
        done(program, "select");
        for (auto& [key, copy] : pipeline_->slots(phase, chunk, program, phases, plan_))
          programs_.emplace_back(key, std::move(copy));
      }
      ++chunk;
    }
  }

  Program optimized(Step step, Program program, bool on_host) {
    program = overlapped(rewritten(step, std::move(program), on_host));
    const bool row_exact = decodes(step)          ? options_.decode.row_exact
                           : step == Step::logits ? options_.logits_row_exact
                                                  : false;
    VariantSelector& selector = on_host                     ? host_selector_
                                : decodes(step) && trains() ? decode_selector_
                                                            : selector_;
    program = selector.select(std::move(program), row_exact);
    done(program, "select");
    return program;
  }

  static bool decodes(Step step) { return step == Step::decode || step == Step::encode; }

  bool trains() const { return !plan_.steps.update.empty(); }

  Program overlapped(Program program) {
    if (plan_.mesh.ranks() == 1) return program;
    program = overlap_moves(std::move(program), catalog_);
    done(program, "overlap");
    return program;
  }

  // The passes between the division over ranks and the choice of kernels.
  Program rewritten(Step step, Program program, bool on_host) {
    program = fuse(schedule_transfers(std::move(program), catalog_), catalog_);
    done(program, "fuse");
    std::vector<char> matched;
    program = rematerialize(std::move(program), catalog_, options_.remat, &matched);
    for (std::size_t i = 0; i < matched.size(); ++i) remat_matched_[i] = remat_matched_[i] || matched[i];
    if (!on_host && !options_.optimizer_in_backward)  // which frees them at once
      program = offload_gradients(std::move(program), catalog_, options_.remat, &matched);
    for (std::size_t i = 0; i < matched.size(); ++i) remat_matched_[i] = remat_matched_[i] || matched[i];
    program = schedule_transfers(std::move(program), catalog_);
    if (on_host) program = order_by_marks(std::move(program), marks_);
    program = legalize_donations(std::move(program),
                                 catalog_);  // recomputed calls may read state later than before
    done(program, "remat");
    if (step == Step::train && options_.optimizer_in_backward) {
      program = optimizer_in_backward(std::move(program), catalog_);
      done(program, "optimizer_in_backward");
    }
    return program;
  }

  std::set<std::string> stored_in_bf16() const {
    std::set<std::string> names;
    if (options_.param_dtype == kernels::DType::bf16)
      for (const layers::ParameterInfo& info : plan_.parameters)
        if (!info.storage && info.type.dtype == kernels::DType::f32 && !frozen_.count(info.path))
          names.insert(info.path);
    return names;
  }

  void report_rules(bool training) {
    const std::vector<std::string> unmatched = selector_.unmatched_rules();
    if (training && !unmatched.empty())
      throw hal::Error(unmatched.front(), "must match at least one call of the programs");
    for (const std::string& rule : unmatched) plan_.notes.push_back(rule + " matched no call");
    for (const std::string& rule : selector_.no_op_rules())
      plan_.notes.push_back(rule + " changed nothing: its calls get this variant anyway");
    for (std::string& rule : selector_.tuned_rules()) plan_.notes.push_back(std::move(rule));
    note_patterns();
    note_made_whole();
    if (training && !frozen_.empty())
      plan_.notes.push_back(std::to_string(frozen_.size()) + " frozen weights are stored in " +
                            std::string(hal::to_string(options_.dtype)) +
                            ", in which they are multiplied; checkpoints hold these values");
    if (!training) return;
    for (std::size_t i = 0; i < remat_matched_.size(); ++i)
      if (!remat_matched_[i])
        plan_.notes.push_back("remat rule " + std::to_string(i + 1) + " (tag '" + options_.remat[i].tag +
                              "') matched no value");
  }

  void note_made_whole() {
    for (const auto& [what, amount] : made_whole_)
      plan_.notes.push_back("every rank has " + std::to_string(amount.first) + " inputs of " + what.second +
                            " in program " + what.first + " whole, " + std::to_string(amount.second) +
                            " bytes, because the op is not divided there");
  }

  void note_patterns() {
    const auto note = [&](const std::string& pattern, const char* what) {
      if (std::string text = pattern_note(pattern, what); !text.empty())
        plan_.notes.push_back(std::move(text));
    };
    for (const KernelRule& rule : options_.kernels) {
      note(rule.op, "kernel rule op");
      note(rule.path, "kernel rule path");
    }
    for (const RematRule& rule : options_.remat) note(rule.tag, "remat rule tag");
  }

  const layers::Config& model_;
  const ComposeOptions& options_;
  const kernels::Catalog& catalog_;
  const hal::DeviceInfo& device_;
  PassTrace* trace_;
  VariantSelector selector_;
  VariantSelector decode_selector_;  // of Step::decode beside training
  const hal::DeviceInfo* host_;      // nullptr = the optimizer is on the device
  VariantSelector host_selector_;
  Marks marks_;  // of Step::accumulate, for the host
  std::vector<char> remat_matched_;
  // Values and bytes that partitioning made whole unasked, by program and op.
  std::map<std::pair<std::string, std::string>, std::pair<std::int64_t, std::int64_t>> made_whole_;
  std::int64_t left_out_ = 0;
  std::set<std::string> frozen_;  // weights that are stored in the dtype of activations
  Programs programs_, host_programs_;
  Plan plan_;
  std::optional<PipelineComposer> pipeline_;  // where the mesh has one
};

}  // namespace

Plan compose_training(const layers::Config& model, const Learner::Config& learner,
                      const ComposeOptions& options, const kernels::Catalog& catalog,
                      const hal::DeviceInfo& device, PassTrace* trace) {
  check_training(options, learner);
  std::int64_t left_out = 0;
  const auto composed = [&](const ComposeOptions& used) {
    if (trace) trace->entries.clear();
    Composer composer(model, used, catalog, device, trace);
    composer.train(learner);
    if (used.evaluation) composer.evaluate();
    if (used.logits_batch > 0) composer.logits();
    if (!used.decode.tokens.empty()) composer.decode();
    left_out = std::max(left_out, composer.left_out());
    return composer.finish(true);
  };
  // Copies are not worth more than that the run fits.
  ComposeOptions first = options;
  first.enforce_memory = false;
  Plan plan = composed(first);
  const std::int64_t limit = memory_limit(device);
  if (!plan.copied_parameters.empty() && limit > 0 && plan.peak_bytes > limit) {
    left_out = plan.memory.at("parameter_copies");
    first.parameter_copies = false;
    plan = composed(first);
  }
  if (left_out > 0 && plan.peak_bytes <= limit)
    plan.notes.push_back("every step casts the parameters anew: copies of them in " +
                         std::string(hal::to_string(options.dtype)) + ", " + readable_bytes(left_out) +
                         ", do not fit into memory");
  if (options.enforce_memory) require_memory(plan, options, device);
  return plan;
}

Plan compose_inference(const layers::Config& model, const ComposeOptions& options,
                       const kernels::Catalog& catalog, const hal::DeviceInfo& device, PassTrace* trace) {
  check_inference(options);
  Composer composer(model, options, catalog, device, trace);
  if (!options.decode.tokens.empty()) composer.decode();  // first, as it says how weights are stored
  if (options.logits_batch > 0) composer.logits();
  return composer.finish(false);
}

}  // namespace meshloom::trainer

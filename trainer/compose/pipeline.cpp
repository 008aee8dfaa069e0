#include "trainer/compose/pipeline.h"

#include <algorithm>

#include "hal/error.h"
#include "trainer/mesh/tags.h"

namespace meshloom::trainer {
namespace {

using kernels::Program;
using kernels::Role;
using kernels::ValueId;

constexpr char kEvaluated[] = "eval/metrics";

void append_new(std::vector<int>& list, int value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

// "optimizer/m/decoder/norm/weight" and "accumulate/before/decoder/bias" belong to what their ends name; "" for others.
std::string belongs_to(const std::string& name) {
  if (!name.starts_with("optimizer/") && !name.starts_with("accumulate/before/")) return "";
  const std::size_t slash = name.find('/', name.find('/') + 1);
  return slash == std::string::npos ? "" : name.substr(slash + 1);
}

}  // namespace

PipelineComposer::PipelineComposer(const ComposeOptions& options, const Topology& mesh,
                                   const kernels::Catalog& catalog)
    : options_(options),
      mesh_(mesh),
      catalog_(catalog),
      stages_(mesh.size(AxisName::pipeline)),
      chunks_(options.schedule == ScheduleKind::interleaved ? options.chunks : 1),
      stage_(mesh.place(AxisName::pipeline)),
      ranks_(mesh.group(AxisName::pipeline)) {
  const int micro_batches = static_cast<int>(options.accumulation);
  for (int stage = 0; stage < stages_; ++stage)
    actions_.push_back(pipeline_actions(options.schedule, stage, stages_, chunks_, micro_batches));
  slots_ = check_actions(actions_, chunks_, micro_batches).at(static_cast<std::size_t>(stage_));
}

std::vector<std::pair<std::string, std::string>> PipelineComposer::write_sums(
    kernels::Builder& builder, const std::vector<layers::ParameterInfo>& infos,
    std::vector<kernels::Tensor> gradients, const BatchSums& sums) {
  deal_ = deal_layers(builder.program(), catalog_, stages_, chunks_);
  shared_ = split_gradients(builder, deal_, infos, gradients);
  std::vector<layers::ParameterInfo> all = infos;
  std::vector<std::pair<std::string, std::string>> parts;
  for (const GradientPart& shared : shared_) {
    all.push_back(shared.info);
    gradients.push_back(shared.gradient);
    parts.emplace_back(shared.parameter, shared.info.path);
  }
  write_accumulation(builder, all, gradients, sums);
  return parts;
}

std::vector<Program> PipelineComposer::take(Step step, const Program& program, Plan& plan) {
  const Parts parts(program, catalog_, deal_);
  if (step == Step::accumulate) note_holders(program, parts, plan);
  std::vector<Program> programs;
  for (int chunk = 0; chunk < chunks_; ++chunk) {
    const int own = part(chunk);
    programs.push_back(parts.program_of(own));
    if (own > 0) {
      edges_[{step, chunk, false, false}] = parts.forward_across(own - 1);
      edges_[{step, chunk, true, true}] = parts.backward_across(own - 1);
    }
    if (own < last_part()) {
      edges_[{step, chunk, false, true}] = parts.forward_across(own);
      edges_[{step, chunk, true, false}] = parts.backward_across(own);
    }
    if (step != Step::evaluate) continue;
    // Its values are others than those of the update.
    Program& last = programs.back();
    for (const std::vector<ValueId>* ids : {&last.inputs, &last.outputs})
      for (const ValueId id : *ids)
        if (std::string& name = last.value(id).name; name.starts_with("pipe/")) name = "eval/" + name;
    for (const bool out : {false, true})
      for (std::string& name : edges_[{step, chunk, false, out}]) name = "eval/" + name;
    if (chunk > 0 || stage_ == stages_ - 1) continue;
    kernels::Builder builder(catalog_, last);  // it comes from the last stage
    builder.input(kEvaluated, {kernels::DType::f32, {2}}, Role::state);
  }
  return programs;
}

// Which stages have which values, and what of them a checkpoint takes from there.
void PipelineComposer::note_holders(const Program& program, const Parts& parts, Plan& plan) {
  for (const auto& [name, of_parts] : parts.holders()) {
    std::vector<int>& stages = holders_[name];
    for (const int of_part : of_parts) append_new(stages, deal_.stage_of(of_part));
    if (stages.empty()) stages = {0};
  }
  for (const GradientPart& shared : shared_) {
    std::vector<int>& stages = holders_.at("grad/" + shared.info.path);
    const int home = holders_.at(shared.parameter).front();
    if (stages.front() != home) stages.insert(stages.begin(), home);
  }
  for (const ValueId id : program.inputs) note_home(program.value(id).name, program.value(id), plan);
  plan.stages.resize(static_cast<std::size_t>(stages_));
  for (const std::string& layer : deal_.layers)
    plan.stages[static_cast<std::size_t>(deal_.stage_of(deal_.part.at(layer)))].layers.push_back(layer);
  for (const layers::ParameterInfo& info : plan.parameters)
    if (const auto found = holders_.find(info.path); found != holders_.end())
      plan.stages[static_cast<std::size_t>(found->second.front())].parameters += info.count();
}

void PipelineComposer::note_home(const std::string& name, const kernels::Value& value, Plan& plan) const {
  const auto found = holders_.find(name);
  const bool kept = value.role == Role::parameter || value.role == Role::optimizer ||
                    (value.role == Role::state && !name.starts_with("accumulate/"));
  if (found == holders_.end() || !kept) return;
  const auto division =
      plan.divided.emplace(name, Division{value.type, whole_spec(value.type.rank()), {}}).first;
  division->second.stages = found->second;
}

PhasePrograms PipelineComposer::phases(Step step, int chunk, Program program, Plan& plan) {
  if (step == Step::evaluate) return {{{step, std::move(program)}}, {}};
  PhasePrograms phases = cut_by_phase(program, catalog_, options_.schedule == ScheduleKind::zero_bubble,
                                      edges_[{step, chunk, false, false}]);
  slotted_[chunk].insert(phases.slotted.begin(), phases.slotted.end());
  for (const std::string& name : phases.slotted)
    if (const auto divided = plan.divided.find(name); divided != plan.divided.end())
      for (int slot = 0; slot < slots_[static_cast<std::size_t>(chunk)]; ++slot)
        plan.divided[name_in_slot(name, chunk, slot)] = divided->second;
  return phases;
}

std::vector<std::pair<ProgramKey, Program>> PipelineComposer::slots(Step step, int chunk,
                                                                    const Program& program,
                                                                    const PhasePrograms& phases, Plan& plan) {
  if (step == Step::evaluate) return {{ProgramKey(step, chunk), program}};
  std::vector<std::pair<ProgramKey, Program>> copies;
  for (int slot = 0; slot < slots_[static_cast<std::size_t>(chunk)]; ++slot) {
    const ProgramKey key(step, chunk, slot);
    if (program.calls.empty()) empty_.insert(key);
    copies.emplace_back(key, in_slot(program, phases.slotted, chunk, slot));
  }
  plan.steps.update.push_back({ProgramKey(step, chunk), options_.accumulation});
  return copies;
}

Program PipelineComposer::apply(const Program& program, Plan& plan) {
  for (const ValueId id : program.inputs) {
    const std::string& name = program.value(id).name;
    if (const auto found = holders_.find(belongs_to(name)); found != holders_.end())
      holders_[name] = {found->second.front()};
    note_home(name, program.value(id), plan);
  }
  return apply_of_stage(program, catalog_, holders_, mesh_);
}

int PipelineComposer::add(Plan& plan, bool out, int stage, std::int32_t tag,
                          std::vector<std::string> values) const {
  plan.steps.transfers.push_back({out, rank_of(stage), tag, std::move(values)});
  return static_cast<int>(plan.steps.transfers.size()) - 1;
}

// The transfer of an action; -1 = nothing moves.
int PipelineComposer::transfer_of(const StepAction& action, Plan& plan) {
  const auto [found, fresh] =
      transfers_.emplace(std::tuple{action.kind, action.step, action.chunk, action.slot}, -1);
  if (!fresh) return found->second;
  const bool evaluates = action.step == Step::evaluate, backward = action.step == Step::backward;
  const bool out = action.kind == StepAction::Kind::send;
  std::vector<std::string> values =
      edges_[{evaluates ? Step::evaluate : Step::accumulate, action.chunk, backward, out}];
  if (values.empty()) return -1;
  for (std::string& name : values)
    if (!evaluates && slotted_[action.chunk].count(name))
      name = name_in_slot(name, action.chunk, action.slot);
  const std::int32_t tag = evaluates ? kEvaluationTag : backward ? kBackwardTag : kForwardTag;
  return found->second = add(plan, out, action.peer, tag, std::move(values));
}

// Once a step, the gradients of parameters that several stages use go to where these live, and the parameters back.
void PipelineComposer::add_updates(std::vector<StepAction>& schedule, Plan& plan, bool before) const {
  std::map<std::pair<int, int>, std::vector<std::string>> moves;  // by sender and receiver
  for (const GradientPart& shared : shared_) {
    const int home = holders_.at(shared.parameter).front(), other = deal_.stage_of(shared.part);
    if (home == other) continue;
    std::vector<std::string>& names = moves[before ? std::pair(other, home) : std::pair(home, other)];
    const std::string name = before ? "grad/" + shared.info.path : shared.parameter;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  for (const bool out : {true, false})
    for (const auto& [pair, names] : moves) {
      const auto [from, to] = pair;
      if ((out ? from : to) != stage_) continue;
      const int peer = out ? to : from;
      StepAction action;
      action.kind = out ? StepAction::Kind::send : StepAction::Kind::receive;
      action.step = Step::apply;
      action.peer = peer;
      action.transfer = add(plan, out, peer, before ? kGradientTag : kParameterTag, names);
      schedule.push_back(action);
    }
}

void PipelineComposer::finish(Plan& plan) {
  std::vector<StepAction>& schedule = plan.steps.schedule;
  for (StepAction action : actions_[static_cast<std::size_t>(stage_)]) {
    if (action.kind == StepAction::Kind::run) {
      if (empty_.count(action.program())) continue;
    } else {
      action.transfer = transfer_of(action, plan);
      if (action.transfer < 0) continue;
    }
    schedule.push_back(action);
  }
  add_updates(schedule, plan, true);
  schedule.push_back({.step = Step::apply});
  add_updates(schedule, plan, false);
  if (plan.steps.has(Step::evaluate) || options_.evaluation) evaluation(plan);
}

void PipelineComposer::evaluation(Plan& plan) {
  std::vector<StepAction>& actions = plan.steps.evaluation;
  const auto add_move = [&](StepAction::Kind kind, int chunk, int peer) {
    StepAction action;
    action.kind = kind;
    action.step = Step::evaluate;
    action.chunk = chunk;
    action.peer = peer;
    action.transfer = transfer_of(action, plan);
    if (action.transfer >= 0) actions.push_back(action);
  };
  for (int chunk = 0; chunk < chunks_; ++chunk) {
    if (part(chunk) > 0) add_move(StepAction::Kind::receive, chunk, (stage_ + stages_ - 1) % stages_);
    actions.push_back({.step = Step::evaluate, .chunk = chunk, .micro_batch = 0});
    if (part(chunk) < last_part()) add_move(StepAction::Kind::send, chunk, (stage_ + 1) % stages_);
  }
  const bool last = stage_ == stages_ - 1;
  for (int stage = 0; stage < stages_ - 1; ++stage) {
    if (!last && stage != stage_) continue;
    StepAction action;
    action.kind = last ? StepAction::Kind::send : StepAction::Kind::receive;
    action.step = Step::evaluate;
    action.peer = last ? stage : stages_ - 1;
    action.transfer = add(plan, last, action.peer, kEvaluationTag, {kEvaluated});
    actions.push_back(action);
  }
}

}  // namespace meshloom::trainer

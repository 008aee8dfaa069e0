#include "trainer/run/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "hal/suggest.h"
#include "kernels/core/contract.h"
#include "trainer/compose/cost/measured_links.h"
#include "trainer/compose/cost/published.h"
#include "trainer/compose/report.h"
#include "trainer/execute/commands_of.h"
#include "trainer/execute/list_scheduler.h"
#include "trainer/io/units.h"
#include "trainer/rules/product.h"
#include "trainer/run/state/snapshots.h"

namespace meshloom::trainer {

PlanSummary summarize(const Plan& plan) {
  PlanSummary summary;
  for (const auto& [step, planned] : plan.steps.programs)
    for (const kernels::Call& call : planned.program.calls) {
      if (!call.choice || !call.choice->variant) continue;
      if (call.choice->variant->contract->view)
        ++summary.views[call.op];
      else
        ++summary.ops[call.op]
              .calls[(planned.on_host ? "on the host " : "") + call.choice->variant->name +
                     (call.choice->params.count(kernels::kF32Fallback) ? " on f32 copies" : "")];
    }
  for (const Refusal& refusal : plan.refusals)
    summary.ops[refusal.op].refused.try_emplace(refusal.variant, refusal.reason);
  return summary;
}

PlanSpeed speed_of(const TrainerConfig& config, const Plan& plan, const hal::DeviceInfo& device) {
  PlanSpeed speed;
  for (const kernels::TimeBasis basis :
       {kernels::TimeBasis::measured, kernels::TimeBasis::similar, kernels::TimeBasis::fitted})
    if (const double seconds = plan.update_predicted_seconds(basis); seconds > 0)
      speed.parts[std::string(to_string(basis))] = seconds;
  if (const CallConstants* constants = published_constants(plan.profile); constants && config.dtype != "f32")
    speed.published_seconds = published_seconds(plan, *constants, device.profile);
  if (plan.host.copy_seconds > 0) speed.parts["copies"] = plan.host.copy_seconds;
  speed.seconds = plan.update_predicted_seconds();
  if (speed.seconds <= 0) return speed;
  speed.tokens_per_second = static_cast<double>(config.batch * config.sequence) / speed.seconds;
  // What was measured may exceed a peak that is only an estimate.
  if (const double peak = hal::peak_flops(device.profile, config.compose_options().dtype); peak > 0)
    speed.mfu = std::min(1.0, plan.update_flops() / speed.seconds / peak);
  return speed;
}

namespace {

// What moves between ranks; "" where there is one.
std::string moves_text(const Plan& plan, const hal::DeviceInfo& device) {
  if (plan.mesh.ranks() == 1) return "";
  std::string text = fmt::format("on the host {} bytes ({}), for what is on its way between ranks\n",
                                 plan.staging_bytes, bytes_text(static_cast<double>(plan.staging_bytes)));
  MovedBytes all;
  for (const auto& [axes, moved] : plan.update_moved_bytes()) all += moved;
  text += fmt::format("moves       {} bytes ({}) out and {} bytes in, a step\n", all.out,
                      bytes_text(static_cast<double>(all.out)), all.in);
  if (!plan.steps.outer.empty()) {
    const MovedBytes outer = plan.outer_moved_bytes();
    const std::int64_t every = plan.steps.outer.front().every;
    text += fmt::format(
        "between islands {} bytes ({}) out and {} bytes in, every {} steps{}: {:.2f} bytes out a step\n",
        outer.out, bytes_text(static_cast<double>(outer.out)), outer.in, every,
        plan.steps.outer.size() > 1 ? fmt::format(" in {} parts", plan.steps.outer.size()) : "",
        static_cast<double>(outer.out) / static_cast<double>(every));
  }
  for (const auto& [key, planned] : plan.steps.programs)
    for (const auto& [axes, moved] : moved_bytes(planned.exchanges)) {
      if (key.slot > 0) continue;  // as slot 0
      text += fmt::format("  {:<10} {:<12} {:>16} bytes out in {} messages, {:>16} bytes in\n",
                          planned.program.name, axes, moved.out, moved.messages_out, moved.in);
    }
  if (!device.is_cpu) return text;  // the links that were measured are those of this host
  std::string predicted, note;
  for (const auto& [kind, link] : measured_links(&note))
    predicted += fmt::format("{}{:.3g} s between {}", predicted.empty() ? "" : ", ",
                             predicted_move_seconds(plan, link), kind);
  text += predicted.empty() ? "  no time is predicted: no link was measured (meshloom bench collectives)\n"
                            : "  predicted  " + predicted + ", by measured links and with nothing beside\n";
  if (!note.empty()) text += "  " + note + "\n";
  return text;
}

std::string amount(std::int64_t bytes) {
  return fmt::format("{:>16} {:>12}", bytes, bytes_text(static_cast<double>(bytes)));
}

}  // namespace

std::string memory_text(const Plan& plan, const hal::DeviceInfo& device) {
  const std::int64_t available_bytes = memory_limit(device);
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "memory      {} bytes ({}) of {}{}\n", plan.peak_bytes,
                 bytes_text(static_cast<double>(plan.peak_bytes)),
                 available_bytes > 0 ? bytes_text(static_cast<double>(available_bytes)) : "no limit",
                 memory_note(device));
  fmt::format_to(out, "  {:<14} {:>29} {:>29}\n", "", "bytes at the peak", "maximum");
  for (const auto& [name, bytes] : plan.memory)
    fmt::format_to(out, "  {:<14} {} {}\n", name, amount(bytes), amount(plan.memory_max.at(name)));
  return text;
}

std::string kernels_text(const Plan& plan) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "kernels\n");
  const PlanSummary calls = summarize(plan);
  for (const auto& [op, summary] : calls.ops) {
    std::string chosen;
    for (const auto& [variant, count] : summary.calls)
      chosen +=
          fmt::format("{}{} ({} call{})", chosen.empty() ? "" : ", ", variant, count, count == 1 ? "" : "s");
    fmt::format_to(out, "  {:<22} {}\n", op, chosen.empty() ? "-" : chosen);
    for (const auto& [variant, reason] : summary.refused)
      fmt::format_to(out, "    not {}: {}\n", variant, reason);
  }
  for (const auto& [op, count] : calls.views)
    fmt::format_to(out, "  {:<22} a view, runs no kernel ({} in the programs)\n", op, count);
  return text;
}

std::string plan_text(const TrainerConfig& config, const Plan& plan, const hal::DeviceInfo& device) {
  const double flops = plan.update_flops(), seconds = plan.update_roofline_seconds();
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "hardware    {} (device {}, profile {})\n", config.hardware, product_text(device),
                 plan.profile);
  if (plan.mesh.ranks() > 1)
    fmt::format_to(out,
                   "mesh        {}; what follows is of rank {}, without the time of moves between ranks\n",
                   plan.mesh.text(), plan.mesh.rank());
  const std::int64_t all = plan.parameter_count(), trainable = plan.trainable_parameter_count();
  fmt::format_to(out, "parameters  {} ({}){}\n", all, count_text(static_cast<double>(all)),
                 trainable == all ? ""
                                  : fmt::format(", of which {} ({}) are trainable", trainable,
                                                count_text(static_cast<double>(trainable))));
  if (config.dtype != "f32")
    fmt::format_to(out, "dtype       {}; {}parameters and their gradients in f32\n", config.dtype,
                   trainable == all ? "" : "trained ");
  const std::int64_t source = config.input->source(config.sequence);
  fmt::format_to(out, "step        {} x {} tokens{}{}, {}FLOP, floor {:.3g} s\n", config.batch,
                 config.sequence, source > 0 ? fmt::format(" from sources of {}", source) : "",
                 config.accumulation > 1 ? fmt::format(" in {} micro-batches", config.accumulation) : "",
                 count_text(flops) + (flops < 1000 ? " " : ""), seconds);
  if (const PlanSpeed speed = speed_of(config, plan, device); speed.seconds > 0) {
    std::string parts;
    for (const auto& [basis, part] : speed.parts)
      parts += fmt::format("{}{:.0f} % {}", parts.empty() ? "" : ", ", 100 * part / speed.seconds, basis);
    fmt::format_to(out, "predicted   {:.3g} s, {:.4g} tokens/s{} ({})\n", speed.seconds,
                   speed.tokens_per_second,
                   speed.mfu > 0 ? fmt::format(", MFU {:.3g} %", 100 * speed.mfu) : "", parts);
    if (speed.published_seconds > 0)
      fmt::format_to(out, "published   {:.3g} s, if calls reached what published runs on such chips reach\n",
                     speed.published_seconds);
  }
  text += memory_text(plan, device);
  if (plan.host.peak_bytes > 0) {
    fmt::format_to(out, "on the host {} bytes ({}){}\n", plan.host.peak_bytes,
                   bytes_text(static_cast<double>(plan.host.peak_bytes)),
                   plan.host.empty() ? "" : ", with the update of the parameters");
    for (const auto& [name, bytes] : plan.host.memory)
      fmt::format_to(out, "  {:<14} {}\n", name, amount(bytes));
  }
  text += moves_text(plan, device);
  if (config.snapshot_seconds > 0 && plan.mesh.ranks() == 1) {
    const std::int64_t bytes = Snapshots::bytes(plan);
    fmt::format_to(out, "on the host {} bytes ({}), for copies of the run's state (snapshot_seconds)\n",
                   bytes, bytes_text(static_cast<double>(bytes)));
  }
  return text + kernels_text(plan);
}

std::string sequence_text(const TrainerConfig& config, const Plan& first, const Plan& last) {
  if (config.mesh->seq == 1) return "";
  return fmt::format(
      "sequence    {}; attention of rank {}: {}FLOP a step, of rank {}, the last along seq: {}FLOP\n",
      config.mesh->sequence_order, first.mesh.rank(), count_text(first.update_flops_of("flash_attention")),
      last.mesh.rank(), count_text(last.update_flops_of("flash_attention")));
}

namespace {

// What a run of a schedule takes on a stage, from the plan that this stage has. A schedule with other programs than the plan's
// has parts of them: half of the backward pass for weights apart, or the share of a chunk.
double run_seconds(const Plan& plan, const StepAction& run, int chunks, bool split) {
  double seconds = 0;
  int own = 0;  // chunks of the plan
  for (const auto& [key, planned] : plan.steps.programs) {
    if (key.slot > 0) continue;
    own += key.step == Step::forward;
    if (key.step == Step::forward
            ? run.step == Step::forward
            : run.step != Step::forward && (key.step == Step::backward || key.step == Step::weights))
      seconds += plan.predicted_seconds(key);
  }
  if (own == chunks && plan.steps.has(ProgramKey(Step::weights)) == split)
    return plan.predicted_seconds(ProgramKey(run.step, run.chunk));
  return seconds / chunks / (split && run.step != Step::forward ? 2 : 1);
}

}  // namespace

PipelineSummary summarize_pipeline(const TrainerConfig& config, const std::vector<Plan>& stages) {
  PipelineSummary summary;
  for (std::size_t stage = 0; stage < stages.size(); ++stage) {
    const Plan& plan = stages[stage];
    StageSummary own{plan.stages.at(stage).layers, plan.stages.at(stage).parameters, plan.peak_bytes, 0,
                     plan.update_predicted_seconds()};
    for (const auto& [key, planned] : plan.steps.programs)
      if (key.step == Step::forward && key.chunk == 0) own.slots = std::max(own.slots, key.slot + 1);
    summary.stages.push_back(std::move(own));
  }
  if (stages.empty()) return summary;
  const auto count = static_cast<int>(stages.size());
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                                  ScheduleKind::zero_bubble}) {
    const int chunks = kind == ScheduleKind::interleaved ? static_cast<int>(config.mesh->chunks) : 1;
    std::size_t layers = 0;
    for (const StageInfo& stage : stages.front().stages) layers += stage.layers.size();
    if (layers < stages.size() * static_cast<std::size_t>(chunks)) continue;
    if (kind == ScheduleKind::interleaved && config.accumulation % count != 0) continue;
    std::vector<std::vector<StepAction>> actions;
    for (int stage = 0; stage < count; ++stage)
      actions.push_back(pipeline_actions(kind, stage, count, chunks, static_cast<int>(config.accumulation)));
    summary.bubbles[std::string(to_string(kind))] =
        pipeline_time(actions, [&](int stage, const StepAction& run) {
          return run_seconds(stages[static_cast<std::size_t>(stage)], run, chunks,
                             kind == ScheduleKind::zero_bubble);
        }).bubble();
  }
  return summary;
}

std::string pipeline_text(const TrainerConfig& config, const PipelineSummary& summary) {
  if (summary.stages.empty()) return "";
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "pipeline    {}, {} micro-batches; predicted bubble", config.mesh->schedule,
                 config.accumulation);
  bool first = true;
  for (const auto& [name, bubble] : summary.bubbles) {
    fmt::format_to(out, "{} {} {:.0f} %", first ? "" : ",", name, 100 * bubble);
    first = false;
  }
  text += "\n";
  for (std::size_t i = 0; i < summary.stages.size(); ++i) {
    const StageSummary& stage = summary.stages[i];
    fmt::format_to(out, "  stage {:<5} {} layers, {} parameters, {} bytes ({}), {} in flight{}\n", i,
                   stage.layers.size(), stage.parameters, stage.peak_bytes,
                   bytes_text(static_cast<double>(stage.peak_bytes)), stage.slots,
                   stage.seconds > 0 ? fmt::format(", {:.3g} s", stage.seconds) : "");
    fmt::format_to(out, "    {}\n", hal::join(stage.layers));
  }
  return text;
}

std::string submissions_text(const Plan& plan, const kernels::Catalog& catalog,
                             const hal::DeviceInfo& device) {
  if (!has_submissions(device) || plan.steps.update.empty()) return "";
  const SubmissionSummary all =
      submissions_of(plan, catalog, device, hal::SubmissionSettings::from_environment());
  const std::string launches =
      fmt::format("launches    {} of kernels a step{}\n", all.launches,
                  overlaps_dispatches(device) ? fmt::format(", between {} barriers", all.barriers) : "");
  if (all.budget <= 0)
    return launches +
           fmt::format("submissions {} a step, not cut by time (MESHLOOM_SUBMISSION_MS)\n", all.count);
  return launches +
         fmt::format(
             "submissions {} a step of at most {:.3g} ms (MESHLOOM_SUBMISSION_MS), the longest {:.3g} ms{}\n",
             all.count, 1e3 * all.budget, 1e3 * all.longest,
             all.longest > all.budget * 1.0001 ? ": " + all.longest_label + " cannot be cut into shorter ones"
                                               : "");
}

std::string parameters_text(const Plan& plan) {
  std::string text;
  for (const layers::ParameterInfo& p : plan.parameters) {
    std::string slots;
    for (const auto& [name, type] : plan.persistent_types)
      if (name.starts_with("optimizer/") && name.ends_with("/" + p.path))
        slots += fmt::format(" {} {}", name.substr(10, name.size() - p.path.size() - 11), to_string(type));
    text += fmt::format("{}: {}, {}\n", p.path, to_string(p.type),
                        p.frozen ? "frozen"
                                 : fmt::format("learning rate x {}, decay x {}, optimizer{}", p.learning_rate,
                                               p.decay, slots.empty() ? " none" : slots));
  }
  return text;
}

}  // namespace meshloom::trainer

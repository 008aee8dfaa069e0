#include "trainer/run/step_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "hal/error.h"
#include "trainer/compose/compose.h"

namespace meshloom::trainer {
namespace {

constexpr std::int32_t kIgnored = -1;

bool is_fed(Step step) { return step == Step::train || step == Step::accumulate || step == Step::forward; }

double entry(const std::vector<float>& metrics, Metric metric) {
  return metrics.at(static_cast<std::size_t>(metric));
}

}  // namespace

StepRunner::StepRunner(const TrainerConfig& config, Session& session, std::unique_ptr<Batches> train,
                       std::unique_ptr<Batches> eval)
    : config_(config), session_(session), batches_(std::move(train)) {
  if (session.plan().steps.has(Step::evaluate)) eval_ = std::move(eval);
  updates_ = read("optimizer/step").at(0);
  // A skipped step restores these: see apply_program.
  for (const auto& [name, type] : session.plan().states) {
    const std::string saved = "accumulate/before/" + name;
    if (!session.plan().persistent_types.count(saved)) continue;
    std::vector<std::byte> bytes(static_cast<std::size_t>(type.bytes()));
    session_.read(name, bytes);
    session_.write(saved, bytes);
  }
}

void StepRunner::feed(const Batch& batch, const StepAction& run, std::int64_t step, std::int64_t first) {
  const Plan& plan = session_.plan();
  // A value of rows that is divided among ranks takes the whole batch, of which it keeps this rank's rows.
  const auto write_if = [&](bool maybe, std::string name, const auto& values) {
    if (run.step == Step::forward) name = name_in_slot(name, run.chunk, run.slot);
    if (!maybe || plan.persistent.count(name)) session_.write(name, std::as_bytes(std::span(values)));
  };
  const bool piped = !plan.stages.empty();  // where a stage has only what it reads
  const auto write = [&](const char* name, const std::vector<std::int32_t>& values) {
    write_if(piped, name, values);
  };
  write("tokens", batch.tokens);
  write("targets", batch.targets);
  if (!batch.segments.empty()) {
    write("segments", batch.segments);
    write("positions", batch.positions);
  }
  // A loss without a reference model does not read what the data have of one.
  for (const auto& [name, values] :
       {std::pair("answers", &batch.answers), std::pair("reference_logprobs", &batch.reference_logprobs),
        std::pair("advantages", &batch.advantages), std::pair("old_logprobs", &batch.old_logprobs)})
    if (!values->empty()) write_if(true, name, *values);
  if (!batch.source.empty()) {
    write("source", batch.source);
    write("source_segments", batch.source_segments);
    write("source_positions", batch.source_positions);
  }
  // The rows of an island begin where it does.
  const std::int64_t island_rows = config_.batch / config_.accumulation / plan.mesh.size(AxisName::islands);
  if (!plan.stages.empty() || plan.persistent.count("rng_state"))
    write("rng_state", {static_cast<std::int32_t>(config_.seed), static_cast<std::int32_t>(step),
                        static_cast<std::int32_t>(first + plan.mesh.place(AxisName::islands) * island_rows)});
}

void StepRunner::carry_out(const StepAction& action) {
  if (action.kind == StepAction::Kind::run)
    session_.run(action.program());
  else
    session_.transfer(session_.plan().steps.transfers.at(static_cast<std::size_t>(action.transfer)));
}

std::vector<float> StepRunner::read(const std::string& name) {
  std::vector<float> values(static_cast<std::size_t>(session_.plan().persistent_types.at(name).elements()));
  session_.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

void StepRunner::count_update(std::int64_t step, bool applied, double counted) {
  constexpr double kMaxCounted = 1 << 24;  // f32 cannot count beyond this
  const double expected = updates_ + (applied ? 1 : 0);
  if (counted != expected && updates_ < kMaxCounted)
    throw hal::DeviceLost(session_.device().info().id + fmt::format(", step {}", step + 1),
                          fmt::format("the device must have applied {} updates after this step", expected),
                          fmt::format("{}", counted));
  updates_ = counted;
}

StepResult StepRunner::step(std::int64_t step) {
  announced_(step);
  StepResult result;
  if (!batches_->prepare(step, interrupted_)) {
    result.interrupted = true;
    return result;
  }
  result.learning_rate = config_.learner->learning_rate(step + 1);
  const float rate = static_cast<float>(result.learning_rate);
  session_.write("lr", std::as_bytes(std::span(&rate, 1)));
  const Plan& plan = session_.plan();
  const std::int64_t rows = config_.batch / config_.accumulation;
  std::int64_t used = 0;  // positions that are no padding
  double answered = 0;    // targets of preferences, whose losses count pairs
  for (const StepAction& action : plan.steps.schedule) {
    if (const bool reads = action.kind == StepAction::Kind::run && is_fed(action.step); reads) {
      const std::int64_t first = action.micro_batch * rows;
      const Batch batch = batches_->rows(step, first, rows);
      if (first > 0)
        session_.wait();  // as writing the batch would, so that an interruption is seen before it
      if (first > 0 && interrupted_()) {
        result.interrupted = true;
        return result;
      }
      for (const auto* ids : {&batch.segments, &batch.source_segments})
        if (action.chunk == 0)
          used += std::count_if(ids->begin(), ids->end(), [](std::int32_t id) { return id != 0; });
      if (action.chunk == 0)
        answered += static_cast<double>(std::count_if(batch.answers.begin(), batch.answers.end(),
                                                      [](float answer) { return answer != 0; }));
      feed(batch, action, step, first);
    }
    updating_ = updating_ || action.step == Step::train || action.step == Step::apply;
    carry_out(action);
  }
  session_.finish_transfers();
  for (const OuterPart& part : plan.steps.outer)
    if (part.last(step + 1) == step + 1) session_.run(part.program);
  if (config_.input->documents())
    result.packing_efficiency =
        static_cast<double>(used) /
        static_cast<double>(config_.batch * (config_.sequence + config_.input->source(config_.sequence)));
  const std::vector<float> metrics = read("metrics");
  const double counted = entry(metrics, Metric::token_count);
  result.loss = entry(metrics, Metric::loss_sum) / std::max(counted, 1.0);
  // Other islands read as many; what they measured, they keep. Batches are those of all.
  result.tokens = answered > 0 ? answered : counted * plan.mesh.size(AxisName::islands);
  result.gradient_norm = entry(metrics, Metric::gradient_norm);
  result.applied = entry(metrics, Metric::applied) != 0;
  count_update(step, result.applied, entry(metrics, Metric::step));
  updating_ = false;
  const std::vector<std::string>& names = session_.plan().metrics.at("metrics");
  for (std::size_t i = static_cast<std::size_t>(Metric::step) + 1; i < names.size(); ++i)
    if (names[i] == "loss_scale")
      result.loss_scale = metrics.at(i);
    else
      result.summaries.emplace_back(names[i], metrics.at(i));
  const Batches::Report& report = batches_->report();
  result.reward = report.reward;
  result.summaries.insert(result.summaries.end(), report.values.begin(), report.values.end());
  result.rollouts = report.lines;
  return result;
}

std::optional<EvalResult> StepRunner::evaluate() {
  announced_(-1);
  if (batches_->can_evaluate()) {
    const std::optional<Batches::Report> report = batches_->evaluate(interrupted_);
    if (!report) return std::nullopt;
    return EvalResult{{}, report->reward, report->lines};
  }
  const std::int64_t rows = config_.batch / config_.accumulation;
  const std::int64_t windows = std::min(eval_->rows_per_epoch(), config_.eval_batches * config_.batch);
  double sum = 0, tokens = 0;
  for (std::int64_t first = 0; first < windows; first += rows) {
    if (interrupted_()) return std::nullopt;
    Batch batch;
    for (std::int64_t row = first; row < first + rows; ++row) {
      Batch one = eval_->rows(std::min(row, windows - 1) * eval_->rows_per_epoch() / windows, 0, 1);
      if (row >= windows) std::fill(one.targets.begin(), one.targets.end(), kIgnored);
      batch.append(one);
    }
    for (const StepAction& action : session_.plan().steps.evaluation) {
      if (action.kind == StepAction::Kind::run) feed(batch, action, 0, 0);
      carry_out(action);
    }
    session_.finish_transfers();
    const std::vector<float> metrics = read("eval/metrics");
    sum += entry(metrics, Metric::loss_sum);
    tokens += entry(metrics, Metric::token_count);
  }
  return EvalResult{sum / std::max(tokens, 1.0), {}, {}};
}

double StepRunner::flops_per_step() const { return session_.plan().update_flops(); }

}  // namespace meshloom::trainer

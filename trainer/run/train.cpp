#include "trainer/run/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "hal/error.h"
#include "layers/models/trace.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/compose/compose.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/data/dataset.h"
#include "trainer/execute/session.h"
#include "trainer/io/atomic_file.h"
#include "trainer/metrics/event_file.h"
#include "trainer/metrics/json_lines.h"
#include "trainer/metrics/loss_curve.h"
#include "trainer/rules/product.h"
#include "trainer/run/ceiling.h"
#include "trainer/run/checkpoint_manager.h"
#include "trainer/run/directory_lock.h"
#include "trainer/run/failure_reporter.h"
#include "trainer/run/plan_text.h"
#include "trainer/run/progress.h"
#include "trainer/run/run_state.h"
#include "trainer/run/step_runner.h"
#include "trainer/run/stop.h"
#include "trainer/run/stored_run.h"
#include "trainer/run/text_sample.h"

namespace meshloom::trainer {
namespace {

using Clock = std::chrono::steady_clock;
using Note = std::function<void(const std::string&)>;

// After so many skipped steps in a row, waiting longer is pointless.
constexpr int kMaxSkipped = 50;

std::string add_events(EventFile& events, const StepRecord& record) {
  std::vector<std::pair<std::string, float>> scalars{
      {"loss/train", static_cast<float>(record.loss)},
      {"learning_rate", static_cast<float>(record.learning_rate)},
      {"gradient_norm", static_cast<float>(record.gradient_norm)},
      {"speed/tokens_per_s", static_cast<float>(record.tokens_per_s)},
      {"speed/mfu", static_cast<float>(record.mfu)}};
  if (record.packing_efficiency)
    scalars.push_back({"input/packing_efficiency", static_cast<float>(*record.packing_efficiency)});
  if (record.loss_scale) scalars.push_back({"loss/scale", static_cast<float>(*record.loss_scale)});
  for (const auto& [name, value] : record.summaries) scalars.emplace_back(name, static_cast<float>(value));
  if (record.eval_loss) scalars.push_back({"loss/eval", static_cast<float>(*record.eval_loss)});
  return events.add(record.step, scalars);
}

void write_curve(const std::string& out, const Note& note) {
  try {
    write_file(out + "/loss.svg", loss_curve_svg(read_losses(out + "/metrics.jsonl"), "Loss of " + out));
  } catch (const Error& error) {
    note(fmt::format("the loss curve could not be written: {}", error.what()));
  }
}

// Whether the run goes on from a checkpoint in `out`. Throws Error where a new run would mix with an older
// one.
bool resumes(const TrainOptions& options, const Note& note) {
  const std::vector<std::int64_t> saved = checkpoint_steps(options.out);
  if (options.auto_resume && saved.empty())
    note(fmt::format("'{}' holds no checkpoint yet: the run starts at step 0", options.out));
  if (options.resume || (options.auto_resume && !saved.empty())) return true;
  if (!saved.empty())
    throw Error("'" + options.out + "'",
                "a new run needs a directory without checkpoints; --resume continues the run in it",
                fmt::format("step {}", saved.front()));
  return false;
}

// Opens the run's data and writes into `config` what opening it showed. Where a setting was decided when the
// run began, the newest checkpoint says it.
std::unique_ptr<Dataset> open_data(TrainerConfig& config, const TrainOptions& options,
                                   const Tokenizer& tokenizer, const layers::ClassTable& classes,
                                   const Note& note) {
  if (config.input->needs_record() && (options.resume || options.auto_resume) &&
      !checkpoint_steps(options.out).empty())
    config.input->resume_from(*recipe_of(open_newest(options.out, [](const std::string&) {}), classes).input);
  std::unique_ptr<Dataset> data =
      config.input->open(tokenizer, layers::vocabulary(*config.model), config.sequence);
  for (const std::string& text : data->notes()) note(text);
  if (!data->target_format().ends.empty())
    if (const std::string text = note_of_guess(*config.input->tokenizer, tokenizer); !text.empty())
      note(text);
  for (const std::string& text : config.input->record(data->target_format())) note(text);
  return data;
}

// The steps of a run, one after another: each is recorded, and checkpoints are saved when they are due.
class TrainLoop {
 public:
  // All of these must outlive it.
  struct Parts {
    const TrainerConfig& config;
    hal::Device& device;
    const StopSignals& stop;
    StepRunner& steps;
    FlopsCeiling& ceiling;
    CheckpointManager& checkpoints;
    DivergenceDetector& divergence;
    JsonLines& metrics;
    EventFile& events;
    FailureReporter& failures;
    Progress* progress;                          // nullptr = nothing is shown
    const std::function<std::string()>& sample;  // writes one; empty = none while training
    double sample_every;                         // seconds
    RunState& state;
    TrainResult& result;
    const Note& note;
  };
  explicit TrainLoop(const Parts& parts) : p_(parts), flops_(parts.steps.flops_per_step()) {}

  // Until the last step is done or a signal came.
  void run() {
    while (p_.state.step < p_.config.steps && !p_.result.stopped) {
      const auto begin = Clock::now();
      const StepResult step = p_.steps.step(p_.state.step);
      p_.result.stopped = p_.stop.requested();
      if (step.interrupted) return;  // the step is dropped
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      ++p_.state.step;
      p_.state.tokens_seen += static_cast<std::int64_t>(step.tokens);
      StepRecord record = record_of(step, seconds);
      observe_loss(record);
      write(record);
      show_sample();
      check_skipped(step);
      if (!is_last() && !p_.result.stopped && p_.config.checkpoint_every > 0 &&
          p_.state.step % p_.config.checkpoint_every == 0)
        p_.checkpoints.save(p_.state, p_.divergence);
    }
  }

 private:
  bool is_last() const { return p_.state.step == p_.config.steps; }

  StepRecord record_of(const StepResult& step, double seconds) {
    StepRecord record;
    record.step = p_.state.step;
    record.loss = step.loss;
    record.learning_rate = step.learning_rate;
    record.gradient_norm = step.gradient_norm;
    record.summaries = step.summaries;
    record.packing_efficiency = step.packing_efficiency;
    record.skipped = !step.applied;
    record.loss_scale = step.loss_scale;
    record.tokens = static_cast<std::int64_t>(step.tokens);
    record.seconds = seconds;
    record.tokens_per_s = step.tokens / seconds;
    record.mfu = p_.ceiling.utilization(flops_, seconds);
    record.peak_bytes = p_.device.peak_bytes();
    return record;
  }

  void observe_loss(const StepRecord& record) {
    if (record.tokens > 0)
      p_.divergence.add({record.loss, record.skipped, record.loss_scale});
    else
      p_.divergence.add_empty();
    p_.state.health = p_.divergence.state();
    p_.result.step = p_.state.step;
    p_.result.loss = record.loss;
  }

  // Evaluates where that is due, and writes the record of the step. An evaluation that fails ends the run
  // after the step itself was recorded.
  void write(StepRecord& record) {
    const bool due = p_.config.eval_every > 0 && p_.state.step % p_.config.eval_every == 0;
    std::exception_ptr failed;
    try {
      if (p_.steps.can_evaluate() && (due || is_last()) && !p_.result.stopped)
        record.eval_loss = p_.steps.evaluate();
    } catch (...) {
      failed = std::current_exception();
    }
    p_.result.stopped = p_.result.stopped || p_.stop.requested();
    p_.failures.report("metrics.jsonl", p_.metrics.add(record));
    p_.failures.report("the event file", add_events(p_.events, record));
    if (failed) std::rethrow_exception(failed);
    if (p_.progress) p_.progress->step(record);
    if (record.eval_loss) p_.result.eval_loss = record.eval_loss;
  }

  // Shows a sample where that is due.
  void show_sample() {
    if (!p_.progress || !p_.sample || is_last() || p_.result.stopped) return;
    if (std::chrono::duration<double>(Clock::now() - sampled_).count() < p_.sample_every) return;
    p_.progress->say(fmt::format("\nstep {}, {}\n", p_.state.step, p_.sample()));
    sampled_ = Clock::now();
  }

  // Throws Error after too many skipped steps in a row.
  void check_skipped(const StepResult& step) {
    skipped_ = step.applied ? 0 : skipped_ + 1;
    if (!step.applied)
      p_.note(fmt::format("step {}: {}; the update was skipped", p_.state.step,
                          step.tokens > 0
                              ? fmt::format("the gradient is not finite (norm {})", step.gradient_norm)
                              : "no token had a target"));
    p_.checkpoints.observe(p_.divergence, p_.state);
    if (skipped_ >= kMaxSkipped)
      throw Error(
          fmt::format("step {}", p_.state.step), "gradients must become finite again",
          fmt::format("{} skipped steps in a row; a lower learning rate or more warm-up may help", skipped_));
  }

  Parts p_;
  double flops_;     // of one step
  int skipped_ = 0;  // steps in a row
  Clock::time_point sampled_ = Clock::now();
};

// What the run is, before its first step.
std::string title_of(const TrainerConfig& config, const TrainOptions& options, bool resume,
                     const RunState& state, const Dataset& data, Session& session) {
  const Plan& plan = session.plan();
  const std::int64_t all = plan.parameter_count(), trainable = plan.trainable_parameter_count();
  return fmt::format(
      "{} on {}, hardware {}: {} parameters{}, {} + {} tokens, {} bytes on the device, into {}",
      resume ? fmt::format("continuing after step {}", state.step) : "training",
      product_text(session.device().info()), config.hardware, all,
      trainable == all ? "" : fmt::format(" of which {} are trainable", trainable), data.train_tokens(),
      data.eval_tokens(), plan.peak_bytes, options.out);
}

// Runs the loop. Returns the error that ended it where the device still holds the last whole step, which can
// then be saved; any other error is thrown.
std::exception_ptr run_to_end(TrainLoop& loop, const StepRunner& steps, const RunState& state) {
  const std::int64_t first = state.step;
  try {
    loop.run();
  } catch (const hal::DeviceLost&) {
    throw;
  } catch (const LockLost&) {
    throw;
  } catch (...) {
    if (steps.updating() || state.step == first) throw;
    return std::current_exception();
  }
  return nullptr;
}

// A session with the plan of the run, whose parameters have their first values.
std::unique_ptr<Session> open_session(const TrainerConfig& config, const TextSample* sample_while_training,
                                      hal::Device& device, const kernels::Catalog& catalog,
                                      const Note& note) {
  ComposeOptions options = config.compose_options();
  if (sample_while_training)
    compose_generation(options, sample_while_training->sequence(), sample_while_training->source());
  Plan plan = compose_training(*config.model, *config.learner, options, catalog, device.info());
  for (const std::string& text : plan.notes) note(text);
  auto session = std::make_unique<Session>(device, catalog, std::move(plan));
  initialize(*session, static_cast<std::uint64_t>(config.seed));
  return session;
}

// What the run is, as text in its directory, before its first step.
void describe_run(const TrainOptions& options, const TrainerConfig& config, const StoredRecipe& recipe,
                  const Session& session, const hal::DeviceInfo& device) {
  for (const auto& [name, content] : recipe.files) write_file(options.out + "/" + name, content);
  write_file(options.out + "/parameters.txt", parameters_text(session.plan()));
  write_file(options.out + "/plan.txt", plan_text(config, session.plan(), device));
  write_file(options.out + "/" + kRunRecipe, recipe.text);
}

// The state that the run begins with; its values are in the session then.
RunState begin(const TrainerConfig& config, const TrainOptions& options, bool resume, const Dataset& data,
               Session& session, const layers::ClassTable& classes, const Note& note) {
  RunState state{0,
                 0,
                 data.fingerprint(),
                 data.train_tokens(),
                 config.hardware,
                 machine_of(session.device().info(), session.plan()),
                 {}};
  if (resume)
    return resume_from(open_newest(options.out, note), config, state, options.allow_rounding, session,
                       classes, note);
  if (!options.init.empty()) start_from(open_newest(options.init, note), session, note);
  return state;
}

// Writes what the end of a run leaves behind: the last checkpoint, all lines, the curve. Throws `ended`, the error that ended
// the run, if there is one, and Error where the checkpoint cannot be written.
void save_end(const TrainOptions& options, const RunState& state, CheckpointManager& checkpoints,
              const DivergenceDetector& divergence, JsonLines& metrics, EventFile& events,
              FailureReporter& failures, const std::exception_ptr& ended, const Note& note) {
  // Tried twice: nothing after it would try again, and errors of disks may pass.
  const bool saved = checkpoints.save(state, divergence) || checkpoints.save(state, divergence);
  if (saved) checkpoints.finish(divergence);
  failures.report("metrics.jsonl", metrics.sync());
  failures.report("the event file", events.sync());
  for (const char* file : {"metrics.jsonl", "the event file"})
    if (failures.has(file)) note(fmt::format("{}: what could not be written is lost", file));
  if (ended && saved)
    note(fmt::format("saved {} before the run ended", checkpoint_path(options.out, state.step)));
  if (ended || saved) write_curve(options.out, note);
  if (ended) std::rethrow_exception(ended);
  if (!saved) throw Error("the run", "must end with a checkpoint", checkpoints.failure());
}

void print_end(const TrainOptions& options, const TrainResult& result, const StopSignals& stop) {
  if (result.stopped && !options.silent)
    fmt::print("stopped after step {} by {}; saved {}\ncontinue with: {}\n", result.step, stop.name(),
               result.checkpoint, options.command);
  else if (!result.stopped && !options.quiet && !options.silent)
    fmt::print("done at step {}: loss {:.4f}{}; saved {}\n", result.step, result.loss,
               result.eval_loss ? fmt::format(", evaluation loss {:.4f}", *result.eval_loss) : "",
               result.checkpoint);
}

}  // namespace

TrainResult train(const TrainerConfig& asked, const TrainOptions& options, hal::Device& device,
                  const kernels::Catalog& catalog, const layers::ClassTable& classes, const Note& note) {
  TrainerConfig config = asked;
  const std::unique_ptr<Tokenizer> tokenizer = config.input->tokenizer->make();
  const std::unique_ptr<Dataset> data = open_data(config, options, *tokenizer, classes, note);
  const StoredRecipe recipe = store_recipe(config);
  make_directories(options.out);
  DirectoryLock lock(options.out);
  const bool resume = resumes(options, note);
  const StopSignals stop;
  remove_leftovers(options.out);

  const bool quiet = options.quiet || options.silent;
  std::optional<TextSample> text_sample;
  if (options.sample_tokens > 0 && !quiet)
    text_sample.emplace(config, *tokenizer, *data, options.sample_tokens);
  const bool samples_while_training = text_sample && options.sample_every > 0;
  std::unique_ptr<Session> session =
      open_session(config, samples_while_training ? &*text_sample : nullptr, device, catalog, note);
  RunState state = begin(config, options, resume, *data, *session, classes, note);
  TrainResult result{state.step, 0, {}, checkpoint_path(options.out, state.step), false};

  auto steps = std::make_unique<StepRunner>(
      config, *session, data->train(config.batch, static_cast<std::uint64_t>(config.seed)),
      config.eval_batches > 0 ? data->eval() : nullptr);
  FlopsCeiling ceiling(device, hal::dtype_from_string(config.dtype));
  JsonLines metrics(options.out, state.step);
  EventFile events(options.out, state.step);
  FailureReporter failures(note);
  DivergenceDetector divergence(state.step, state.health);
  CheckpointManager checkpoints(
      {options.out, config.keep, *session, recipe, lock, metrics, events, failures, note},
      resume ? state.step : -1);
  steps->interrupt_when([&] { return stop.requested(); });
  std::optional<Progress> progress;
  if (!quiet) {
    progress.emplace(state.step, config.steps);
    progress->say(title_of(config, options, resume, state, *data, *session));
  }
  if (state.step >= config.steps) {
    note(fmt::format("'{}' is at step {} already; --steps must be larger to continue", options.out,
                     state.step));
    return result;
  }

  std::function<std::string()> sample;
  if (samples_while_training)
    sample = [&, generator = std::make_shared<Generator>(config, text_sample->sequence(),
                                                         text_sample->source(), *session)] {
      return text_sample->write(*generator, [&] { return stop.requested(); });
    };
  describe_run(options, config, recipe, *session, device.info());
  TrainLoop loop({config, device, stop, *steps, ceiling, checkpoints, divergence, metrics, events, failures,
                  progress ? &*progress : nullptr, sample, options.sample_every, state, result, note});
  const std::exception_ptr ended = run_to_end(loop, *steps, state);
  if (progress) progress->finish();
  save_end(options, state, checkpoints, divergence, metrics, events, failures, ended, note);
  result.checkpoint = checkpoint_path(options.out, state.step);
  print_end(options, result, stop);
  if (text_sample && !result.stopped) {
    steps.reset();
    session.reset();  // the generator takes its memory
    Generator generator(config, text_sample->sequence(), text_sample->source(), device, catalog,
                        SafetensorsFile(result.checkpoint + "/model.safetensors"));
    fmt::print("\n{}\n", text_sample->write(generator));
  }
  return result;
}

}  // namespace meshloom::trainer

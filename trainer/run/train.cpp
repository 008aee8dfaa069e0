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
#include "trainer/data/data.h"
#include "trainer/execute/session.h"
#include "trainer/inference/generator.h"
#include "trainer/io/atomic_file.h"
#include "trainer/metrics/event_file.h"
#include "trainer/metrics/json_lines.h"
#include "trainer/metrics/loss_curve.h"
#include "trainer/rules/product.h"
#include "trainer/run/ceiling.h"
#include "trainer/run/directory_lock.h"
#include "trainer/run/progress.h"
#include "trainer/run/run_state.h"
#include "trainer/run/checkpoint_manager.h"
#include "trainer/run/step_runner.h"
#include "trainer/run/stop.h"
#include "trainer/run/stored_run.h"
#include "trainer/run/failure_reporter.h"

namespace meshloom::trainer {
namespace {

using Clock = std::chrono::steady_clock;
using Note = std::function<void(const std::string&)>;

// Steps in a row without an update after which waiting longer is pointless.
constexpr int kMaxSkipped = 50;

// The last words of a run: what the model says after the first held-out words.
void print_sample(const TrainerConfig& config, const std::string& checkpoint, std::int64_t tokens,
                  const Tokenizer& tokenizer, const Data& data, hal::Device& device,
                  const kernels::Catalog& catalog) {
  constexpr std::int64_t kPrompt = 32;
  const SafetensorsFile weights(checkpoint + "/model.safetensors");
  const std::int64_t sequence = std::min(config.sequence, kPrompt + tokens);
  const Prompt prompt = data.prompt(std::min(kPrompt, std::max<std::int64_t>(sequence / 2, 1)));
  Generator generator(config, sequence, static_cast<std::int64_t>(prompt.source.size()), device, catalog,
                      weights);
  const std::vector<std::int32_t> ends = ends_of(*config.input->tokenizer, tokenizer);
  const auto is_end = [&](std::int32_t id) { return std::find(ends.begin(), ends.end(), id) != ends.end(); };
  const std::vector<std::int32_t> text = generator.generate(
      prompt, tokens, {.temperature = 0.7, .seed = static_cast<std::uint64_t>(config.seed)},
      [&](std::int32_t id) { return !is_end(id); });
  const bool reads = !prompt.source.empty();
  const auto words = [&](std::span<const std::int32_t> ids) {  // without the end of a text
    if (!ids.empty() && is_end(ids.back())) ids = ids.first(ids.size() - 1);
    return tokenizer.decode(ids);
  };
  fmt::print("\nsample (prompt | {}):\n{}|{}\n", reads ? "completion" : "continuation",
             words(reads ? prompt.source : prompt.tokens),
             words(std::span(text).subspan(prompt.tokens.size())));
}

std::string add_events(EventFile& events, const StepRecord& record) {
  std::vector<std::pair<std::string, float>> scalars{
      {"loss/train", static_cast<float>(record.loss)},
      {"learning_rate", static_cast<float>(record.learning_rate)},
      {"gradient_norm", static_cast<float>(record.gradient_norm)},
      {"speed/tokens_per_s", static_cast<float>(record.tokens_per_s)},
      {"speed/mfu", static_cast<float>(record.mfu)}};
  if (record.fill) scalars.push_back({"input/fill", static_cast<float>(*record.fill)});
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

// Whether the run goes on from a checkpoint in `out`.
bool resumes(const TrainOptions& options, const Note& note) {
  const std::vector<std::int64_t> saved = checkpoint_steps(options.out);
  if (options.auto_resume && saved.empty())
    note(fmt::format("'{}' holds no checkpoint yet: the run starts", options.out));
  if (options.resume || (options.auto_resume && !saved.empty())) return true;
  if (!saved.empty())
    throw Error("'" + options.out + "'",
                "a new run needs a directory without checkpoints; --resume goes on with it",
                fmt::format("step {}", saved.front()));
  return false;
}

}  // namespace

TrainResult train(const TrainerConfig& asked, const TrainOptions& options, hal::Device& device,
                  const kernels::Catalog& catalog, const layers::ClassTable& classes, const Note& note) {
  TrainerConfig config = asked;
  const std::unique_ptr<Tokenizer> tokenizer = config.input->tokenizer->make();
  if (config.input->needs_record() && (options.resume || options.auto_resume) &&
      !checkpoint_steps(options.out).empty())
    config.input->resume_from(*recipe_of(open_newest(options.out, [](const std::string&) {}), classes).input);
  const std::unique_ptr<Data> data =
      config.input->open(*tokenizer, layers::vocabulary(*config.model), config.sequence);
  for (const std::string& text : data->notes()) note(text);
  if (!data->learned().ends.empty())
    if (const std::string text = note_of_guess(*config.input->tokenizer, *tokenizer); !text.empty())
      note(text);
  for (const std::string& text : config.input->record(data->learned())) note(text);
  const StoredRecipe recipe = store_recipe(config);
  make_directories(options.out);
  DirectoryLock lock(options.out);
  const bool resume = resumes(options, note);
  const StopSignals stop;
  remove_leftovers(options.out);

  Plan plan =
      compose_training(*config.model, *config.learner, config.compose_options(), catalog, device.info());
  for (const std::string& text : plan.notes) note(text);
  auto session = std::make_unique<Session>(device, catalog, std::move(plan));
  initialize(*session, static_cast<std::uint64_t>(config.seed));
  RunState state{0,
                 0,
                 data->fingerprint(),
                 data->train_tokens(),
                 config.hardware,
                 machine_of(device.info(), session->plan()),
                 {}};
  if (resume)
    state = resume_from(open_newest(options.out, note), config, state, options.allow_rounding, *session,
                        classes, note);
  else if (!options.init.empty())
    start_from(open_newest(options.init, note), *session, note);
  TrainResult result{state.step, 0, {}, checkpoint_path(options.out, state.step), false};

  auto stepper = std::make_unique<StepRunner>(config, *session,
                                           data->train(config.batch, static_cast<std::uint64_t>(config.seed)),
                                           config.eval_batches > 0 ? data->eval() : nullptr);
  const double flops = stepper->flops_per_step();
  FlopsCeiling ceiling(device, hal::dtype_from_string(config.dtype));
  JsonLines metrics(options.out, state.step);
  EventFile events(options.out, state.step);
  FailureReporter trouble(note);
  DivergenceDetector health(state.step, state.health);
  CheckpointManager saver({options.out, config.keep, *session, recipe, lock, metrics, events, trouble, note},
              resume ? state.step : -1);
  stepper->interrupt_when([&] { return stop.requested(); });
  std::optional<Progress> progress;
  const bool quiet = options.quiet || options.silent;
  if (!quiet) {
    progress.emplace(state.step, config.steps);
    const std::int64_t all = session->plan().parameter_count(), learning = session->plan().trainable_parameter_count();
    progress->say(fmt::format(
        "{} on {}, hardware {}: {} parameters{}, {} + {} tokens, {} bytes on the device, into {}",
        resume ? fmt::format("going on after step {}", state.step) : "training", product_text(device.info()),
        config.hardware, all, learning == all ? "" : fmt::format(" of which {} learn", learning),
        data->train_tokens(), data->eval_tokens(), session->plan().peak_bytes, options.out));
  }

  if (state.step >= config.steps) {
    note(fmt::format("'{}' is at step {} already; --steps must be larger to go on", options.out, state.step));
    return result;
  }
  const std::int64_t first = state.step;
  int skipped = 0;
  const auto run = [&] {
    while (state.step < config.steps && !result.stopped) {
      const auto begin = Clock::now();
      const StepResult step = stepper->step(state.step);
      result.stopped = stop.requested();
      if (step.interrupted) return;  // the step is dropped
      const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
      ++state.step;
      state.tokens_seen += static_cast<std::int64_t>(step.tokens);
      const bool last = state.step == config.steps;

      StepRecord record;
      record.step = state.step;
      record.loss = step.loss;
      record.learning_rate = step.learning_rate;
      record.gradient_norm = step.gradient_norm;
      record.summaries = step.summaries;
      record.fill = step.fill;
      record.skipped = !step.applied;
      record.loss_scale = step.loss_scale;
      record.tokens = static_cast<std::int64_t>(step.tokens);
      record.seconds = seconds;
      record.tokens_per_s = step.tokens / seconds;
      record.mfu = ceiling.utilization(flops, seconds);
      record.peak_bytes = device.peak_bytes();
      if (step.tokens > 0)
        health.add({record.loss, record.skipped, record.loss_scale});
      else
        health.add_empty();
      state.health = health.state();
      result.step = state.step;
      result.loss = record.loss;
      const bool due = config.eval_every > 0 && state.step % config.eval_every == 0;
      std::exception_ptr failed;  // of the evaluation: the step itself is recorded
      try {
        if (stepper->can_evaluate() && (due || last) && !result.stopped)
          record.eval_loss = stepper->evaluate();
      } catch (...) {
        failed = std::current_exception();
      }
      result.stopped = result.stopped || stop.requested();
      trouble.report("metrics.jsonl", metrics.add(record));
      trouble.report("the event file", add_events(events, record));
      if (failed) std::rethrow_exception(failed);
      if (progress) progress->step(record);
      if (record.eval_loss) result.eval_loss = record.eval_loss;

      skipped = record.skipped ? skipped + 1 : 0;
      if (record.skipped)
        note(fmt::format("step {}: {}; the update was skipped", state.step,
                         step.tokens > 0
                             ? fmt::format("the gradient is not finite (norm {})", step.gradient_norm)
                             : "no token had a target"));
      saver.observe(health, state);
      if (skipped >= kMaxSkipped)
        throw Error(fmt::format("step {}", state.step), "gradients must become finite again",
                    fmt::format("{} skipped steps in a row; a lower learning rate or more warm-up may help",
                                skipped));
      if (!last && !result.stopped && config.checkpoint_every > 0 &&
          state.step % config.checkpoint_every == 0)
        saver.save(state, health);
    }
  };
  std::exception_ptr ended;  // the device still holds the last whole step
  try {
    run();
  } catch (const hal::DeviceLost&) {
    throw;
  } catch (const LockLost&) {
    throw;
  } catch (...) {
    if (stepper->updating() || state.step == first) throw;
    ended = std::current_exception();
  }
  if (progress) progress->finish();
  // Twice: nothing comes after it that would try again, and errors of disks may pass.
  const bool saved = saver.save(state, health) || saver.save(state, health);
  if (saved) saver.finish(health);
  trouble.report("metrics.jsonl", metrics.sync());
  trouble.report("the event file", events.sync());
  for (const char* file : {"metrics.jsonl", "the event file"})
    if (trouble.has(file)) note(fmt::format("{}: what could not be written is lost", file));
  if (ended) {
    if (saved) note(fmt::format("saved {} before the run ended", checkpoint_path(options.out, state.step)));
    write_curve(options.out, note);
    std::rethrow_exception(ended);
  }
  if (!saved) throw Error("the run", "must end with a checkpoint", saver.failure());
  result.checkpoint = checkpoint_path(options.out, state.step);
  write_curve(options.out, note);
  if (result.stopped) {
    if (!options.silent)
      fmt::print("stopped after step {} by {}; saved {}\ngo on with: {}\n", state.step, stop.name(),
                 result.checkpoint, options.command);
    return result;
  }
  if (!quiet)
    fmt::print("done at step {}: loss {:.4f}{}; saved {}\n", state.step, result.loss,
               result.eval_loss ? fmt::format(", evaluation loss {:.4f}", *result.eval_loss) : "",
               result.checkpoint);
  if (options.sample_tokens > 0 && !quiet) {
    stepper.reset();
    session.reset();  // its memory is the generator's now
    print_sample(config, result.checkpoint, options.sample_tokens, *tokenizer, *data, device, catalog);
  }
  return result;
}

}  // namespace meshloom::trainer

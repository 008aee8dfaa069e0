#include "trainer/run/train.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>

#include "hal/error.h"
#include "layers/trace.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/model_tensors.h"
#include "trainer/compose/compose.h"
#include "trainer/execute/session.h"
#include "trainer/inference/generator.h"
#include "trainer/input/data.h"
#include "trainer/metrics/event_file.h"
#include "trainer/metrics/json_lines.h"
#include "trainer/metrics/loss_curve.h"
#include "trainer/rules/kept_recipe.h"
#include "trainer/run/lock.h"
#include "trainer/run/progress.h"
#include "trainer/run/run_state.h"
#include "trainer/run/stepper.h"
#include "trainer/run/stop.h"

namespace meshloom::trainer {
namespace {

using Clock = std::chrono::steady_clock;
using Note = std::function<void(const std::string&)>;

// Steps in a row without an update after which waiting longer is pointless.
constexpr int kMostSkipped = 50;

// Persistent values a checkpoint holds besides the model: optimizer and other state that outlives a step.
std::vector<NamedTensor> state_tensors(const Plan& plan) {
  std::set<std::string> names, of_model;
  for (const auto& [name, type] : plan.states) of_model.insert(name);
  for (const auto& [program, planned] : plan.programs)
    for (const kernels::Value& value : planned.program.values)
      if ((value.role == kernels::Role::optimizer || value.role == kernels::Role::state) &&
          plan.persistent.count(value.name) && !value.name.starts_with("accumulate/") && !of_model.count(value.name))
        names.insert(value.name);
  std::vector<NamedTensor> tensors;
  for (const std::string& name : names) tensors.push_back({name, plan.persistent_types.at(name)});
  return tensors;
}

std::string save(const TrainerConfig& config, const KeptRecipe& recipe, const std::string& out, const RunState& state,
                 Session& session) {
  CheckpointContents contents;
  contents.model = model_tensors(session.plan());
  contents.optimizer = state_tensors(session.plan());
  put(recipe, contents);
  contents.state = to_json(state);
  contents.read = [&](const std::string& name, std::span<std::byte> into) { session.read(name, into); };
  return save_checkpoint(out, state.step, contents, config.keep);
}

// Puts the newest whole checkpoint of `out` into the session.
RunState load(const TrainerConfig& config, const std::string& out, const RunState& now, Session& session,
              const layers::ClassTable& classes, const Note& note) {
  const Checkpoint checkpoint = open_newest(out, note);
  const std::string where = "checkpoint '" + checkpoint.path + "'";
  const TrainerConfig then = recipe_of(checkpoint, classes);
  for (const std::string& text : check_same_run(then, config, where)) note(text);
  const RunState state = parse_run_state(checkpoint.state, "'" + checkpoint.path + "/state.json'");
  if (state.data != now.data || state.data_tokens != now.data_tokens)
    throw Error(where, fmt::format("a run goes on with the text it was started with ({} training tokens, xxhash64 "
                                   "{:016x})",
                                   state.data_tokens, state.data),
                fmt::format("{} tokens, {:016x}", now.data_tokens, now.data));
  const auto write = [&](const std::string& name, std::span<const std::byte> data) { session.write(name, data); };
  if (checkpoint.optimizer.tensors().empty())
    throw Error(where, "--resume needs the optimizer's state; a run from parameters alone starts with --init",
                "parameters only");
  load_tensors(checkpoint.model, model_tensors(session.plan()), write);
  load_tensors(checkpoint.optimizer, state_tensors(session.plan()), write);
  return state;
}

// The last words of a run: what the model says after the first held-out words.
void print_sample(const TrainerConfig& config, const std::string& checkpoint, std::int64_t tokens,
                  const Tokenizer& tokenizer, const Data& data, hal::Device& device, const kernels::Catalog& catalog) {
  constexpr std::int64_t kPrompt = 32;
  const SafetensorsFile weights(checkpoint + "/model.safetensors");
  const std::int64_t sequence = std::min(config.sequence, kPrompt + tokens);
  const Prompt prompt = data.prompt(std::min(kPrompt, std::max<std::int64_t>(sequence / 2, 1)));
  Generator generator(config, sequence, static_cast<std::int64_t>(prompt.source.size()), device, catalog, weights);
  const std::vector<std::int32_t> text =
      generator.generate(prompt, tokens, {.temperature = 0.7, .seed = static_cast<std::uint64_t>(config.seed)},
                         [end = tokenizer.end_of_text()](std::int32_t id) { return id != end; });
  const bool reads = !prompt.source.empty();
  const auto words = [&](std::span<const std::int32_t> ids) {  // without the end of a text
    if (!ids.empty() && ids.back() == tokenizer.end_of_text()) ids = ids.first(ids.size() - 1);
    return tokenizer.decode(ids);
  };
  fmt::print("\nsample (prompt | {}):\n{}|{}\n", reads ? "completion" : "continuation",
             words(reads ? prompt.source : prompt.tokens), words(std::span(text).subspan(prompt.tokens.size())));
}

void add_events(EventFile& events, const StepRecord& record) {
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
  events.add(record.step, scalars);
}

void write_curve(const std::string& out, const Note& note) {
  try {
    const std::string svg = loss_curve_svg(read_losses(out + "/metrics.jsonl"), "Loss of " + out);
    std::FILE* file = std::fopen((out + "/loss.svg").c_str(), "wb");
    const bool written = file && std::fwrite(svg.data(), 1, svg.size(), file) == svg.size();
    if (file && std::fclose(file) == 0 && written) return;
    note("the loss curve could not be written to '" + out + "/loss.svg'");
  } catch (const Error& error) {
    note(error.what());
  }
}

void prepare_directory(const TrainOptions& options) {
  make_directories(options.out);
  if (!options.resume && !checkpoint_steps(options.out).empty())
    throw Error("'" + options.out + "'", "a new run needs a directory without checkpoints; --resume goes on with it",
                fmt::format("step {}", checkpoint_steps(options.out).front()));
}

}  // namespace

TrainResult train(const TrainerConfig& config, const TrainOptions& options, hal::Device& device,
                  const kernels::Catalog& catalog, const layers::ClassTable& classes, const Note& note) {
  const std::unique_ptr<Tokenizer> tokenizer = config.input->tokenizer->make();
  const KeptRecipe recipe = keep_recipe(config);
  const std::unique_ptr<Data> data =
      config.input->open(*tokenizer, layers::vocabulary(*config.model), config.sequence);
  for (const std::string& text : data->notes()) note(text);
  prepare_directory(options);
  const DirectoryLock lock(options.out);
  const StopSignals stop;

  Plan plan = compose_training(*config.model, *config.learner, config.compose_options(), catalog, device.info());
  for (const std::string& text : plan.notes) note(text);
  auto session = std::make_unique<Session>(device, catalog, std::move(plan));
  initialize(*session, static_cast<std::uint64_t>(config.seed));
  RunState state{0, 0, data->fingerprint(), data->train_tokens(), config.hardware};
  if (!options.init.empty() && !options.resume) {
    const Checkpoint start = open_newest(options.init, note);
    std::vector<NamedTensor> wanted = model_tensors(session->plan());
    std::set<std::string> adapters;  // a checkpoint without any of them leaves them as they start
    bool stored = false;
    for (const layers::ParameterInfo& parameter : session->plan().parameters) {
      if (!parameter.adapter) continue;
      adapters.insert(parameter.path);
      stored |= start.model.find(parameter.path) != nullptr;
    }
    if (!stored)
      std::erase_if(wanted, [&](const NamedTensor& tensor) { return adapters.count(tensor.name) > 0; });
    const Unpacked unpacked(
        start.model, session->plan().parameters,
        [&](const std::string& name, std::span<const std::byte> data) { session->write(name, data); });
    if (unpacked.count() > 0) note(fmt::format("{} tensors of '{}' are quantised", unpacked.count(), start.path));
    load_model(
        start.model, unpacked.wanted(std::move(wanted)),
        [&](const std::string& name, std::span<const std::byte> data) { unpacked.write(name, data); }, note);
  }
  if (options.resume) {
    state = load(config, options.out, state, *session, classes, note);
    state.hardware = config.hardware;
  }
  TrainResult result{state.step, 0, {}, checkpoint_path(options.out, state.step), false};

  auto stepper =
      std::make_unique<Stepper>(config, *session, data->train(config.batch, static_cast<std::uint64_t>(config.seed)),
                                config.eval_batches > 0 ? data->eval() : nullptr);
  const double flops = stepper->flops_per_step(), peak = peak_flops(device.profile(), hal::dtype_from_string(config.dtype));
  JsonLines metrics(options.out + "/metrics.jsonl", state.step);
  EventFile events(options.out, state.step);
  std::optional<Progress> progress;
  if (!options.quiet) {
    progress.emplace(state.step, config.steps);
    const std::int64_t all = session->plan().parameter_count(), learning = session->plan().learning_count();
    progress->say(fmt::format(
        "{} on {} ({}): {} parameters{}, {} + {} tokens, {} bytes on the device, into {}",
        options.resume ? fmt::format("going on after step {}", state.step) : "training", device.info().id,
        config.hardware, all, learning == all ? "" : fmt::format(" of which {} learn", learning),
        data->train_tokens(), data->eval_tokens(), session->plan().peak_bytes, options.out));
  }

  if (state.step >= config.steps) {
    note(fmt::format("'{}' is at step {} already; --steps must be larger to go on", options.out, state.step));
    return result;
  }
  int skipped = 0;
  while (state.step < config.steps && !result.stopped) {
    const auto begin = Clock::now();
    const StepResult step = stepper->step(state.step);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    ++state.step;
    state.tokens_seen += static_cast<std::int64_t>(step.tokens);
    result.stopped = stop.requested();
    const bool last = state.step == config.steps || result.stopped;

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
    record.mfu = peak > 0 ? flops / (seconds * peak) : 0;
    record.peak_bytes = device.peak_bytes();
    const bool due = config.eval_every > 0 && state.step % config.eval_every == 0;
    if (stepper->can_evaluate() && (due || (last && !result.stopped))) record.eval_loss = stepper->evaluate();
    metrics.add(record);
    add_events(events, record);
    if (progress) progress->step(record);
    result.step = state.step;
    result.loss = record.loss;
    if (record.eval_loss) result.eval_loss = record.eval_loss;

    skipped = record.skipped ? skipped + 1 : 0;
    if (record.skipped)
      note(fmt::format("step {}: {}; the update was skipped", state.step,
                       step.tokens > 0 ? fmt::format("the gradient is not finite (norm {})", step.gradient_norm)
                                       : "no token had a target"));
    if (skipped >= kMostSkipped)
      throw Error(fmt::format("step {}", state.step), "gradients must become finite again",
                  fmt::format("{} skipped steps in a row; a lower learning rate or more warm-up may help", skipped));
    if (last || (config.checkpoint_every > 0 && state.step % config.checkpoint_every == 0)) {
      if (progress && last) progress->finish();
      result.checkpoint = save(config, recipe, options.out, state, *session);
    }
  }
  if (progress) progress->finish();
  write_curve(options.out, note);
  if (result.stopped) {
    fmt::print("stopped after step {}; saved {}\ngo on with: {}\n", state.step, result.checkpoint, options.command);
    return result;
  }
  if (!options.quiet)
    fmt::print("done at step {}: loss {:.4f}{}; saved {}\n", state.step, result.loss,
               result.eval_loss ? fmt::format(", evaluation loss {:.4f}", *result.eval_loss) : "", result.checkpoint);
  if (options.sample_tokens > 0 && !options.quiet) {
    stepper.reset();
    session.reset();  // its memory is the generator's now
    print_sample(config, result.checkpoint, options.sample_tokens, *tokenizer, *data, device, catalog);
  }
  return result;
}

}  // namespace meshloom::trainer

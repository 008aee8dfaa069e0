#include "trainer/run/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <map>
#include <new>

#include "hal/cache/disk_cache.h"
#include "hal/error.h"
#include "layers/models/trace.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/compose/compose.h"
#include "trainer/compose/report.h"
#include "trainer/compose/tuning/tuning.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/data/dataset.h"
#include "trainer/data/jsonl/jsonl_prompts.h"
#include "trainer/execute/compile_progress.h"
#include "trainer/execute/gather_texts.h"
#include "trainer/execute/session.h"
#include "trainer/io/atomic_file.h"
#include "trainer/metrics/curve.h"
#include "trainer/metrics/run_records.h"
#include "trainer/rollout/rollouts.h"
#include "trainer/rules/product.h"
#include "trainer/run/available_memory.h"
#include "trainer/run/balance_rows.h"
#include "trainer/run/plan_text.h"
#include "trainer/run/ranks.h"
#include "trainer/run/state/checkpoint_manager.h"
#include "trainer/run/state/directory_lock.h"
#include "trainer/run/state/recovery.h"
#include "trainer/run/state/run_state.h"
#include "trainer/run/state/save_pieces.h"
#include "trainer/run/state/snapshots.h"
#include "trainer/run/state/stored_run.h"
#include "trainer/run/stop.h"
#include "trainer/run/stop_deadline.h"
#include "trainer/run/text_sample.h"
#include "trainer/run/train_loop.h"

namespace meshloom::trainer {
namespace {

using Note = std::function<void(const std::string&)>;

// So many times as patient are ranks while rank 0 verifies a checkpoint.
constexpr double kVerifying = 10;

// Of the loss; of the reward where the run learns from it.
void write_curve(const std::string& out, bool of_reward, const Note& note) {
  const std::string name = of_reward ? "reward" : "loss";
  try {
    write_file(fmt::format("{}/{}.svg", out, name),
               curve_svg(read_curve(out + "/metrics.jsonl", name),
                         fmt::format("{} of {}", of_reward ? "Reward" : "Loss", out),
                         of_reward ? name : "loss (nats per token)"));
  } catch (const Error& error) {
    note(fmt::format("the curve could not be written: {}", error.what()));
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

// Whether the data are what the model's loss reads.
void check_preferences(const TrainerConfig& config, const Dataset& data) {
  const bool read = layers::reads_preferences(*config.model);
  if (data.has_preferences() && !read)
    throw Error("data", "preferences need a loss that reads them: --set model.loss=DPOLoss{} or SimPOLoss{}",
                "a loss of tokens");
  if (read && !data.has_preferences())
    throw Error(
        "data",
        "the model's loss needs preferences: .jsonl files whose lines have \"chosen\" and \"rejected\"",
        "other examples");
  if (layers::reads_reference(*config.model) && !data.has_reference())
    throw Error("data",
                "the model's loss needs a reference model's log-probabilities, which `meshloom score "
                "--checkpoint REFERENCE --preferences FILE --out FILE` adds to each line",
                "lines without \"ref_chosen_logps\"");
}

// Whether the model writes the answers that it learns from, and something rewards them, or neither.
void check_rollouts(const TrainerConfig& config, const TrainOptions& options, const Dataset& data) {
  const bool read = layers::reads_rollouts(*config.model);
  if (!read && !data.has_prompts()) {
    if (!options.reward.empty())
      throw Error("--reward", "needs --data with .jsonl files of prompts, and --set model.loss=GRPOLoss{}",
                  "other data");
    return;
  }
  if (!read)
    throw Error("data", "prompts need a loss that learns from rewards: --set model.loss=GRPOLoss{}",
                "a loss of tokens");
  if (!data.has_prompts() || options.reward.empty())
    throw Error(
        "data",
        "the model's loss needs --data with .jsonl files of prompts, and --reward with a program that "
        "rewards the answers",
        data.has_prompts() ? "no --reward" : "other examples");
  const std::int64_t group = config.input->prompts()->completions_per_prompt;
  if (config.batch % group != 0)
    throw Error("batch", fmt::format("must be a multiple of input.completions_per_prompt, {}", group),
                std::to_string(config.batch));
  if (config.mesh->balance && config.mesh->shares.empty())
    throw Error("mesh.balance",
                "cannot measure rows that the model has not written yet: mesh.shares says how many each rank "
                "has",
                "true");
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
  check_preferences(config, *data);
  check_rollouts(config, options, *data);
  for (const std::string& text : data->notes()) note(text);
  if (!data->target_format().ends.empty())
    if (const std::string text = note_of_guess(*config.input->tokenizer, tokenizer); !text.empty())
      note(text);
  for (const std::string& text : config.input->record(data->target_format())) note(text);
  return data;
}

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
std::exception_ptr run_to_end(TrainLoop& loop, OnDevice& on, const RunState& state, std::int64_t first) {
  try {
    loop.run(on);
  } catch (const hal::DeviceLost&) {
    throw;
  } catch (const LockLost&) {
    throw;
  } catch (...) {
    if (on.steps->updating() || state.step == first) throw;
    return std::current_exception();
  }
  return nullptr;
}

// What was measured of kernels when the run began. What is measured later chooses no kernels of this run, so that it keeps
// its bits.
std::shared_ptr<const Tuning> tuning_of(const TrainOptions& options, bool resume,
                                        const hal::DeviceInfo& device) {
  std::optional<Tuning> tuning;
  if (resume) tuning = Tuning::load_from(options.out + "/" + kRunTuning, device);
  if (!tuning && !hal::cache_folder().empty()) tuning = Tuning::load(device);
  return std::make_shared<const Tuning>(tuning ? *std::move(tuning) : Tuning(device));
}

Plan compose(const TrainerConfig& config, std::shared_ptr<const Tuning> tuning, const SampleOptions& sample,
             const hal::Device& device, const kernels::Catalog& catalog, int rank, const Note& note) {
  ComposeOptions options = config.compose_options();
  options.rank = rank;
  options.tuning = std::move(tuning);
  Plan plan = compose_run(config, std::move(options), sample, catalog, device.info());
  for (const std::string& text : plan.notes) note(text);
  return plan;
}

// Memory for snapshots, where they are wanted, can be used and fit.
std::unique_ptr<Snapshots> make_snapshots(const TrainerConfig& config, const Plan& plan, const Note& note) {
  if (config.snapshot_seconds <= 0) return nullptr;
  const std::int64_t bytes = Snapshots::bytes(plan), available = available_memory();
  // The rest of the run needs some as well, and a host without memory ends processes.
  constexpr double kPart = 0.8;
  std::string refused;
  if (available > 0 && static_cast<double>(bytes) > kPart * static_cast<double>(available))
    refused = fmt::format("of {} that are available", readable_bytes(available));
  try {
    if (refused.empty()) return std::make_unique<Snapshots>(plan);
  } catch (const std::bad_alloc&) {
    refused = "which the system refuses";
  }
  note(
      fmt::format("copies of the run's state in the host's memory would take {}, {}: none are made, and a "
                  "run whose device "
                  "is lost goes on from its newest checkpoint (snapshot_seconds=0 asks for that)",
                  readable_bytes(bytes), refused));
  return nullptr;
}

// What the run is, as text in its directory, before its first step.
void describe_run(const TrainOptions& options, const TrainerConfig& config, const StoredRecipe& recipe,
                  const Tuning& tuning, const Session& session, const kernels::Catalog& catalog,
                  const hal::DeviceInfo& device) {
  for (const auto& [name, content] : recipe.files) write_file(options.out + "/" + name, content);
  write_file(options.out + "/parameters.txt", parameters_text(session.plan()));
  write_file(options.out + "/plan.txt",
             plan_text(config, session.plan(), device) + submissions_text(session.plan(), catalog, device));
  tuning.save_as(options.out + "/" + kRunTuning);
  write_file(options.out + "/" + kRunRecipe, recipe.text);
}

// Sets the shares of rows where the recipe wants them measured: those of the checkpoint that the run goes on from, if it has
// any for this mesh. Called by all ranks together. Returns what it set, in words; "" = nothing.
std::string balance(const TrainOptions& options, bool resume, TrainerConfig& config, const Dataset& data,
                    hal::Device& device, const kernels::Catalog& catalog, const layers::ClassTable& classes) {
  MeshConfig& mesh = *config.mesh;
  if (!options.transport || !mesh.balance || !mesh.shares.empty()) return {};
  std::vector<std::int64_t> known;
  if (resume && options.transport->rank() == 0) {
    const TrainerConfig then = recipe_of(open_newest(options.out, [](const std::string&) {}), classes);
    if (then.batch == config.batch && then.accumulation == config.accumulation && then.mesh &&
        Topology(then.mesh->axes()).text() == Topology(mesh.axes()).text())
      known = then.mesh->shares;
  }
  return balance_rows(config, data, device, catalog, *options.transport, options.patience, known);
}

// The checkpoint that a run goes on from: rank 0 chooses it, and verifies it.
Checkpoint checkpoint_of_ranks(const TrainOptions& options, const Note& note) {
  hal::Transport* const transport = options.transport;
  if (!transport) return open_newest(options.out, note);
  if (transport->rank() > 0) {
    const std::string step = gather_texts(*transport, "", kVerifying * options.patience).front();
    return open_checkpoint(checkpoint_path(options.out, std::stoll(step)), /*verify=*/false);
  }
  Checkpoint checkpoint = open_newest(options.out, note);
  gather_texts(*transport, std::to_string(checkpoint.step), options.patience);
  return checkpoint;
}

// The state that the run begins with; its values are in the session then.
RunState begin(const TrainerConfig& config, const TrainOptions& options, bool resume, const Dataset& data,
               Session& session, const layers::ClassTable& classes, const Note& note) {
  initialize(session, static_cast<std::uint64_t>(config.seed));
  RunState state{0,
                 0,
                 data.fingerprint(),
                 data.train_tokens(),
                 config.hardware,
                 machine_of(session.device().info(), session.plan()),
                 {}};
  if (options.transport) {
    state.machine.ranks = gather_texts(*options.transport, machine_text(state.machine), options.patience);
    state.machine.ranks.erase(state.machine.ranks.begin());  // rank 0 is the machine itself
  }
  if (resume) {
    const Checkpoint checkpoint = checkpoint_of_ranks(options, note);
    return resume_from(checkpoint, config, state, options.allow_rounding, session, classes, note);
  }
  if (!options.init.empty()) {
    start_from(open_newest(options.init, note), session, note);
    start_islands(session);
  }
  return state;
}

void print_end(const TrainOptions& options, const TrainResult& result, const std::string& signal) {
  if (result.stopped && !options.silent)
    fmt::print("stopped after step {} by {}; {}\ncontinue with: {}\n", result.step, signal,
               result.checkpoint.empty() ? "there was nothing to save" : "saved " + result.checkpoint,
               options.command);
  if (result.stopped || options.quiet || options.silent) return;
  const char* const name = result.reward ? "reward" : "loss";
  const std::optional<double>& evaluated = result.reward ? result.eval_reward : result.eval_loss;
  fmt::print("done at step {}: {} {:.4f}{}; saved {}\n", result.step, name,
             result.reward.value_or(result.loss),
             evaluated ? fmt::format(", evaluation {} {:.4f}", name, *evaluated) : "", result.checkpoint);
}

std::string made(const std::string& directory) {
  make_directories(directory);
  return directory;
}

// A run. Its members are made in the order in which they are needed.
class TrainRun {
 public:
  TrainRun(const TrainerConfig& asked, const TrainOptions& options, std::unique_ptr<hal::Device>& device,
           const kernels::Catalog& catalog, const layers::ClassTable& classes, const Note& note)
      : config_(asked),
        options_(options),
        device_(device),
        catalog_(catalog),
        classes_(classes),
        note_(note),
        sample_(options.sample),
        tokenizer_(config_.input->tokenizer->make()),
        data_(open_data(config_, options, *tokenizer_, classes, note)),
        recipe_(store_recipe(config_)),
        lock_(made(options.out)),
        resume_(resumes(options, note)),
        deadline_(stop_, options.leave ? [this] { answer(); } : std::function<void()>()),
        recovery_({device, options.open_device, [this] { return stop_.requested(); }, note}),
        failures_(note),
        reward_(options.reward, options.reward_seconds) {
    remove_leftovers(options.out);
    if (options.transport && options.sample.every > 0)
      throw Error("--sample-every", "needs a run of one rank", Topology(config_.mesh->axes()).text());
    tell(options.transport, {RankCommand::Kind::start, resume_});
    if (options.transport)
      require_agreement(*options.transport, config_, data_->fingerprint(), options.patience);
    if (options.transport) probe_directory();
    if (const std::string text = balance(options, resume_, config_, *data_, *device, catalog, classes);
        !text.empty()) {
      note(text);
      recipe_ = store_recipe(config_);
    }
    if (quiet()) sample_.tokens = 0;
    if (sample_.tokens > 0) text_sample_.emplace(config_, *tokenizer_, *data_, sample_.tokens);
  }

  TrainResult run() {
    {
      const StopDeadline::Waiting waiting(deadline_);
      tuning_ = tuning_of(options_, resume_, device_->info());
      plan_ = compose(config_, tuning_, sample_, *device_, catalog_, 0, note_);
      if (options_.transport) require_same_moves(*options_.transport, plan_, catalog_, options_.patience);
    }
    note_exchanges();
    snapshots_ = make_snapshots(config_, plan_, note_);
    std::exception_ptr ended;
    bool saved = false;
    const auto work = [&] {
      open();
      if (!loop_) start();
      if (first_ >= config_.steps) return;
      loop_->take_snapshot(*on_);
      ended = run_to_end(*loop_, *on_, state_, first_);
      if (progress_) progress_->finish();
      // Tried twice: nothing after it would try again, and errors of disks may pass.
      saved = checkpoints_->save(state_, *divergence_) || checkpoints_->save(state_, *divergence_);
    };
    try {
      if (options_.transport)
        work();  // the other ranks have no way back to an earlier step
      else
        recovery_.run(
            work, [this] { return release(); }, [this] { return loop_ ? loop_->recorded() : -1; });
    } catch (const hal::DeviceLost&) {
      save_snapshot();
      throw;
    }
    if (first_ >= config_.steps) {
      tell(options_.transport, {});
      note_(fmt::format("'{}' is at step {} already; --steps must be larger to continue", options_.out,
                        state_.step));
      return result_;
    }
    tell(options_.transport, {});
    end(ended, saved);
    result_.checkpoint = checkpoint_path(options_.out, state_.step);
    print_end(options_, result_, stop_.name());
    if (text_sample_ && !result_.stopped) print_sample();
    return result_;
  }

 private:
  // What islands learn after their last exchange is not in the model that the run leaves behind.
  void note_exchanges() const {
    std::int64_t last = config_.steps;
    for (const OuterPart& part : plan_.steps.outer) last = std::min(last, part.last(config_.steps));
    if (!plan_.steps.outer.empty() && last == 0)
      note_(fmt::format("{} steps are too few for an exchange of all islands: mesh.outer.every is {}",
                        config_.steps, plan_.steps.outer.front().every));
    else if (plan_.steps.outer.size() == 1 && last < config_.steps)
      note_(
          fmt::format("islands exchange after step {} last: what they learn in the {} steps after it is not "
                      "evaluated, and not in the model that is saved",
                      last, config_.steps - last));
  }

  // Where hosts do not share the directory, rank 0 gathers what it saves.
  void probe_directory() {
    const int blind = rank_without_directory(*options_.transport, options_.out, options_.patience);
    shared_ = blind < 0;
    if (shared_) return;
    const std::string where = "'" + options_.out + "'", found = options_.transport->name(blind);
    if (resume_)
      throw Error(where, "a run of several ranks continues from a directory that all hosts share",
                  "another one on " + found);
    note_(where + " is another directory on " + found +
          ": rank 0 gathers the checkpoints and writes them; to continue the run, all hosts need it");
  }

  bool quiet() const { return options_.quiet || options_.silent; }

  // Makes what stands on the device, and brings it to where the run stands or goes on from.
  void open() {
    const StopDeadline::Waiting waiting(deadline_);
    on_ = std::make_unique<OnDevice>();
    on_->session = std::make_unique<Session>(*device_, catalog_, plan_, compile_progress(note_), ranks());
    Session& session = *on_->session;
    if (snapshots_ && snapshots_->position()) {
      snapshots_->restore(session);
      const RunPosition& position = *snapshots_->position();
      state_ = position.state;
      divergence_ = position.divergence;
      result_.loss = position.loss;
    } else {
      const bool saved = resume_ || (checkpoints_ && checkpoints_->saved() >= 0);
      state_ = begin(config_, options_, saved, *data_, session, classes_,
                     loop_ ? [](const std::string&) {} : note_);
      divergence_.emplace(state_.step, state_.health);
    }
    on_->steps = std::make_unique<StepRunner>(config_, session, batches(session),
                                              config_.eval_batches > 0 ? data_->eval() : nullptr);
    // Ranks stop together, between steps.
    if (!options_.transport) on_->steps->interrupt_when([this] { return stop_.requested(); });
    on_->steps->announce([this](std::int64_t step) {
      tell(options_.transport,
           step < 0 ? RankCommand{RankCommand::Kind::evaluate} : RankCommand{RankCommand::Kind::step, step});
    });
    on_->ceiling = std::make_unique<FlopsCeiling>(*device_, hal::dtype_from_string(config_.dtype));
    if (sample_.while_training())
      on_->sample = [this,
                     generator = std::make_shared<Generator>(config_, text_sample_->sequence(),
                                                             config_.compose_options().source, session)] {
        return text_sample_->write(*generator, [this] { return stop_.requested(); });
      };
  }

  std::unique_ptr<Batches> batches(Session& session) {
    if (data_->has_prompts())
      return std::make_unique<RolloutRows>(config_, *data_, *tokenizer_, session, &reward_,
                                           options_.transport, options_.out + "/" + kRolloutLines);
    return data_->train(config_.batch, static_cast<std::uint64_t>(config_.seed));
  }

  // Each rank writes its part.
  CheckpointContents contents_of_ranks(const RunState& state, const std::string& reason) {
    CheckpointContents contents = contents_of(plan_, {}, recipe_, state, reason);
    const auto not_finite = std::make_shared<std::string>();
    contents.write_pieces = [this, not_finite](const std::string& directory) {
      tell(options_.transport, {RankCommand::Kind::save});
      SavedPieces saved = save_pieces(*on_->session, *options_.transport, directory, options_.patience);
      *not_finite = saved.not_finite;
      return saved.written;
    };
    contents.unhealthy = [not_finite, reason] {
      return reason.empty() && !not_finite->empty() ? "it has " + *not_finite : reason;
    };
    return contents;
  }

  Ranks ranks() {
    return {options_.transport, options_.patience, options_.overlap, [this](const std::string& name) {
              const std::vector<std::string> names = gathered_values(plan_);
              const auto index = std::find(names.begin(), names.end(), name) - names.begin();
              tell(options_.transport, {RankCommand::Kind::send, index});
            }};
  }

  // Before the first step.
  void start() {
    first_ = state_.step;
    result_ = {};
    result_.step = state_.step;
    result_.checkpoint = checkpoint_path(options_.out, state_.step);
    const bool prompts = data_->has_prompts();
    records_.emplace(options_.out, state_.step,
                     RunRecords::Kinds{prompts, prompts && on_->steps->can_evaluate()}, failures_);
    checkpoints_.emplace(
        CheckpointManager::Parts{options_.out, config_.keep, contents_, lock_, *records_, failures_, note_},
        resume_ ? state_.step : -1);
    if (!quiet()) {
      progress_.emplace(state_.step, config_.steps);
      progress_->say(title_of(config_, options_, resume_, state_, *data_, *on_->session));
    }
    if (first_ < config_.steps)
      describe_run(options_, config_, recipe_, *tuning_, *on_->session, catalog_, device_->info());
    loop_.emplace(TrainLoop::Parts{config_, stop_, deadline_, snapshots_.get(), recovery_, *checkpoints_,
                                   *records_, progress_ ? &*progress_ : nullptr, sample_.every, state_,
                                   *divergence_, result_, note_});
  }

  // Destroys what stands on the device. Returns where the run goes on, in words.
  std::string release() {
    if (progress_) progress_->finish();
    const StopDeadline::Waiting waiting(deadline_);
    on_.reset();
    if (snapshots_ && snapshots_->position())
      return fmt::format("step {}, from the host's memory", snapshots_->position()->state.step);
    if (checkpoints_ && checkpoints_->saved() >= 0)
      return fmt::format("step {}, from {}", checkpoints_->saved(),
                         checkpoint_path(options_.out, checkpoints_->saved()));
    return resume_ ? "the checkpoint that it began with" : "step 0, from its beginning";
  }

  // Writes what the end of a run leaves behind besides the checkpoint: all lines, the curve. Throws `ended`, the error that
  // ended the run, if there is one, and Error where the checkpoint could not be written.
  void end(const std::exception_ptr& ended, bool saved) {
    if (saved) checkpoints_->finish(*divergence_);
    records_->sync();
    records_->note_lost(note_);
    if (ended && saved)
      note_(fmt::format("saved {} before the run ended", checkpoint_path(options_.out, state_.step)));
    if (ended || saved) write_curve(options_.out, data_->has_prompts(), note_);
    if (ended) std::rethrow_exception(ended);
    if (!saved) throw Error("the run", "must end with a checkpoint", checkpoints_->failure());
  }

  // Saves the newest snapshot when there is no device any more.
  void save_snapshot() {
    if (!checkpoints_ || !snapshots_ || !snapshots_->position()) return;
    const RunPosition& position = *snapshots_->position();
    if (position.state.step == first_ && resume_) return;
    if (!checkpoints_->save(position.state, position.divergence)) return;  // it was noted why
    note_(fmt::format("saved {} before the run ended", checkpoint_path(options_.out, position.state.step)));
    write_curve(options_.out, data_->has_prompts(), note_);
  }

  // Ends the process for a run that waits for its device while it is asked to stop.
  void answer() {
    const bool copied = loop_ && snapshots_ && snapshots_->position();
    if (!copied && loop_ && loop_->recorded() > first_) return;  // its work would be lost
    int code = 130;
    TrainResult result = result_;
    result.stopped = true;
    result.checkpoint.clear();
    if (copied) {
      const RunPosition& position = *snapshots_->position();
      result.step = position.state.step;
      result.loss = position.loss;
      result.reward.reset();
      try {
        if (checkpoints_->save(position.state, position.divergence))
          result.checkpoint = checkpoint_path(options_.out, result.step);
      } catch (const std::exception& error) {
        note_(error.what());
      }
      if (result.checkpoint.empty()) code = 1;
    }
    if (progress_) progress_->finish();
    note_("the device had not finished its work, which is dropped");
    print_end(options_, result, stop_.name());
    options_.leave(result, code);
  }

  void print_sample() {
    on_.reset();  // the generator takes its memory
    try {
      TrainerConfig config = config_;
      config.kernels.clear();  // they were made for the calls of training
      Generator generator(config, text_sample_->sequence(), text_sample_->source(), *device_, catalog_,
                          open_checkpoint(result_.checkpoint, /*verify=*/false).model);
      fmt::print("\n{}\n", text_sample_->write(generator));
    } catch (const hal::DeviceLost& error) {
      note_(fmt::format("no sample is shown, `meshloom generate --checkpoint {}` writes one: {}",
                        options_.out, error.what()));
    }
  }

  TrainerConfig config_;
  const TrainOptions& options_;
  std::unique_ptr<hal::Device>& device_;
  const kernels::Catalog& catalog_;
  const layers::ClassTable& classes_;
  const Note& note_;
  SampleOptions sample_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Dataset> data_;
  StoredRecipe recipe_;
  DirectoryLock lock_;
  bool resume_;
  bool shared_ = true;  // all ranks see the directory of the run
  StopSignals stop_;
  StopDeadline deadline_;
  Recovery recovery_;
  FailureReporter failures_;
  RewardProgram reward_;
  std::optional<TextSample> text_sample_;
  std::shared_ptr<const Tuning> tuning_;
  Plan plan_;
  std::unique_ptr<Snapshots> snapshots_;  // nullptr = none are taken
  std::int64_t first_ = 0;                // the step that the run began after
  RunState state_;
  TrainResult result_;
  std::optional<DivergenceDetector> divergence_;
  std::optional<RunRecords> records_;
  std::optional<CheckpointManager> checkpoints_;
  std::optional<Progress> progress_;
  std::optional<TrainLoop> loop_;  // none until the first step
  std::unique_ptr<OnDevice> on_;
  // From the host's memory where snapshots are taken: a device that is lost meanwhile costs nothing then.
  const std::function<CheckpointContents(const RunState&, const std::string&)> contents_ =
      [this](const RunState& state, const std::string& reason) {
        if (options_.transport && shared_) return contents_of_ranks(state, reason);
        if (!snapshots_)
          return contents_of(
              plan_,
              [this](const std::string& name, std::span<std::byte> into) { on_->session->read(name, into); },
              recipe_, state, reason);
        if (!snapshots_->has(state.step)) loop_->take_snapshot(*on_);
        return contents_of(
            plan_,
            [this](const std::string& name, std::span<std::byte> into) { snapshots_->value(name, into); },
            recipe_, state, reason);
      };
};

}  // namespace

void follow(const TrainerConfig& asked, const TrainOptions& options, hal::Device& device,
            const kernels::Catalog& catalog, const layers::ClassTable& classes) {
  const Note silent = [](const std::string&) {};
  hal::Transport& transport = *options.transport;
  const RankCommand start = listen(transport);
  if (start.kind != RankCommand::Kind::start) return;  // the run ended before it began
  const bool resume = start.value != 0;
  TrainerConfig config = asked;
  TrainOptions own = options;
  own.resume = own.resume || resume;
  own.allow_rounding = true;  // a checkpoint knows the kernels of rank 0, which compares them
  const std::unique_ptr<Tokenizer> tokenizer = config.input->tokenizer->make();
  const std::unique_ptr<Dataset> data = open_data(config, own, *tokenizer, classes, silent);
  require_agreement(transport, config, data->fingerprint(), options.patience);
  const int blind = rank_without_directory(transport, options.out, options.patience);
  if (blind >= 0 && resume) return;  // rank 0 says it
  balance(options, resume, config, *data, device, catalog, classes);
  Plan plan = compose(config, tuning_of(options, resume, device.info()), {.tokens = 0}, device, catalog,
                      transport.rank(), silent);
  require_same_moves(transport, plan, catalog, options.patience);
  Session session(device, catalog, std::move(plan), {}, {&transport, options.patience, options.overlap});
  begin(config, own, resume, *data, session, classes, silent);
  std::unique_ptr<Batches> rows =
      data->has_prompts() ? std::make_unique<RolloutRows>(config, *data, *tokenizer, session, nullptr,
                                                          &transport, options.out + "/" + kRolloutLines)
                          : data->train(config.batch, static_cast<std::uint64_t>(config.seed));
  StepRunner steps(config, session, std::move(rows), config.eval_batches > 0 ? data->eval() : nullptr);
  const std::vector<std::string> gathered = gathered_values(session.plan());
  while (true) {
    const RankCommand command = listen(transport);
    switch (command.kind) {
      case RankCommand::Kind::step:
        steps.step(command.value);
        break;
      case RankCommand::Kind::evaluate:
        steps.evaluate();
        break;
      case RankCommand::Kind::send:
        session.send(gathered.at(static_cast<std::size_t>(command.value)));
        break;
      case RankCommand::Kind::save:
        try {
          save_pieces(session, transport, "", options.patience);
        } catch (const SaveFailed&) {  // rank 0 says it
        }
        break;
      case RankCommand::Kind::start:
      case RankCommand::Kind::end:
        return;
    }
  }
}

TrainResult train(const TrainerConfig& config, const TrainOptions& options,
                  std::unique_ptr<hal::Device>& device, const kernels::Catalog& catalog,
                  const layers::ClassTable& classes, const Note& note) {
  return TrainRun(config, options, device, catalog, classes, note).run();
}

}  // namespace meshloom::trainer

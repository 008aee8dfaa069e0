#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <thread>

#include "hal/error.h"
#include "layers/config/field.h"
#include "layers/models/trace.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/cli/command.h"
#include "trainer/cli/inference_recipe.h"
#include "trainer/cli/key_file.h"
#include "trainer/cli/model_to_run.h"
#include "trainer/cli/serve_role.h"
#include "trainer/config/stored_recipe.h"
#include "trainer/data/text/hub_name.h"
#include "trainer/inference/draft_model.h"
#include "trainer/inference/engine.h"
#include "trainer/interop/lora_files.h"
#include "trainer/io/file.h"
#include "trainer/run/stop.h"
#include "trainer/serve/adapter_loader.h"
#include "trainer/serve/address.h"
#include "trainer/serve/api_server.h"

namespace meshloom::trainer {
namespace {

constexpr std::chrono::milliseconds kLookForSignals{50};
constexpr std::chrono::seconds kLookForCheckpoints{2}, kAfterErrors{30};

struct ServeCommandOptions {
  std::string run, host = "127.0.0.1", key_file, draft;
  std::int64_t port = 8080;
  bool watch = false;
  std::vector<std::string> adapters;  // NAME=DIR
  std::int64_t max_loras = 0, max_lora_rank = 16;
  EngineOptions engine;
  InferenceOptions inference;
  RoleOptions role;
};

// A connection is an open file, of which many shells allow 1,024.
void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  constexpr rlim_t kWanted = 4096;
  if (limit.rlim_cur >= kWanted) return;
  limit.rlim_cur = std::min(kWanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string url_of(const std::string& host, std::uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}:{}/v1", v6 ? "[" + host + "]" : host, port);
}

// What runs beside the thread that waits for signals.
class Failure {
 public:
  void set(const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (what_.empty()) what_ = what;
    failed_ = true;
  }
  bool failed() const { return failed_; }
  std::string what() const {
    const std::lock_guard lock(mutex_);
    return what_;
  }
  // A thread that calls `body`, whose exceptions are failures.
  template <typename Body>
  std::thread thread(Body body) {
    return std::thread([this, body] {
      try {
        body();
      } catch (const std::exception& error) {
        set(error.what());
      }
    });
  }

 private:
  mutable std::mutex mutex_;
  std::string what_;
  std::atomic<bool> failed_ = false;
};

// A model with its engine, ready to be served.
struct LoadedModel {
  std::string identity;  // of its checkpoint, see identity_of()
  std::string parts;     // of its recipe, see parts_of()
  TrainerConfig config;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatFormat> chat;
  std::unique_ptr<hal::Device> device;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<layers::Config> recipe_model;  // as the checkpoint's recipe has it
  std::unique_ptr<AdapterLoader> adapters;       // none = there are no slots
  ServedModel served;
};

constexpr std::int64_t kDraftTokens = 3;  // that --draft guesses by default; one more token is computed

// A smaller model that guesses for `model`, on the same device.
std::unique_ptr<Speculator> load_draft(LoadedModel& model, const Registries& registries,
                                       const ServeCommandOptions& options, const EngineOptions& engine) {
  const ModelToRun draft_run(options.draft, "--draft", registries);
  const Checkpoint& checkpoint = draft_run.checkpoint();
  const TrainerConfig config =
      inference_recipe(checkpoint, {.hardware = options.inference.hardware}, registries);
  const std::unique_ptr<Tokenizer> tokenizer = config.input->tokenizer->make();
  const std::string where = "--draft '" + options.draft + "'";
  const auto refuse = [&](const std::string& found) {
    throw Error(where, "must have the tokenizer of the model that it guesses for", found);
  };
  const Tokenizer& wanted = *model.tokenizer;
  if (tokenizer->vocabulary() != wanted.vocabulary())
    refuse(fmt::format("{} tokens, not {}", tokenizer->vocabulary(), wanted.vocabulary()));
  for (std::int64_t id = 0; id < wanted.vocabulary(); ++id)
    if (const auto token = static_cast<std::int32_t>(id); tokenizer->token(token) != wanted.token(token))
      refuse(fmt::format("another token {}", id));
  auto draft = std::make_unique<DraftModel>(config, engine,
                                            engine.max_length > 0 ? engine.max_length : model.config.sequence,
                                            *model.device, registries.catalog, checkpoint.model);
  if (const std::int64_t vocabulary = layers::vocabulary(*model.config.model);
      draft->vocabulary() != vocabulary)
    throw Error(where, "must have logits of as many tokens as the model, " + std::to_string(vocabulary),
                std::to_string(draft->vocabulary()));
  return draft;
}

// Says whether a checkpoint is another one, without reading it: a run that was started anew has steps of the same names. "" = there is
// none.
std::string identity_of(const std::string& path) {
  struct stat manifest {};
  if (::stat((path + "/manifest.json").c_str(), &manifest) != 0) return "";
  return fmt::format("{} {} {}.{}", path, manifest.st_ino, manifest.st_mtim.tv_sec, manifest.st_mtim.tv_nsec);
}

// The identity of the newest healthy checkpoint, or the newest one; it need not be whole.
std::string newest_of(const std::string& run) {
  const std::vector<std::int64_t> steps = checkpoint_steps(run);
  if (steps.empty()) return "";
  const auto healthy = std::find_if(steps.begin(), steps.end(), [&](std::int64_t step) {
    return unhealthy_reason(checkpoint_path(run, step)).empty();
  });
  return identity_of(checkpoint_path(run, healthy == steps.end() ? steps.front() : *healthy));
}

// What checkpoints must have alike to be served by one engine: the model and the tokenizer, as the recipe has them before rules for
// hardware edit it.
std::string parts_of(const Checkpoint& checkpoint, const Registries& registries) {
  const TrainerConfig recipe = recipe_of(checkpoint, registries.classes);
  return layers::config_text(*recipe.model, 0) + layers::config_text(*recipe.input->tokenizer, 0);
}

// Names and directories of --adapter.
std::vector<std::pair<std::string, std::string>> adapters_of(const ServeCommandOptions& options) {
  std::vector<std::pair<std::string, std::string>> adapters;
  for (const std::string& adapter : options.adapters) {
    const std::size_t equals = adapter.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == adapter.size())
      throw Error("--adapter", "must be NAME=DIR", "'" + adapter + "'");
    adapters.emplace_back(adapter.substr(0, equals), adapter.substr(equals + 1));
  }
  return adapters;
}

// Those of the command line are there when the engine begins.
void load_adapters(LoadedModel& model, const Checkpoint& checkpoint, const Registries& registries,
                   const ServeCommandOptions& options,
                   const std::vector<std::pair<std::string, std::string>>& adapters) {
  model.recipe_model = recipe_of(checkpoint, registries.classes).model->clone();
  const auto read = [&model, &registries](const std::string& directory) {
    return read_lora(directory, *model.recipe_model, model.config.sequence, model.engine->lora_slots(),
                     registries.catalog, registries.classes, say_note);
  };
  const auto failed = [](const std::string& error) {
    if (!error.empty()) say_note("an adapter was not loaded: " + error);
  };
  for (const auto& [name, directory] : adapters) {
    if (name == model.served.name)
      throw Error("--adapter", "must not have the name of the model", "'" + name + "'");
    model.engine->load_adapter(name, std::make_shared<const LoraAdapter>(read(directory)), false, failed);
    fmt::print("Adapter {} from {}\n", name, directory);
  }
  if (options.max_loras == 0) return;
  model.adapters = std::make_unique<AdapterLoader>(*model.engine, read);
  model.served.load_adapter = [&loader = *model.adapters](const std::string& name,
                                                          const std::string& directory, bool replace,
                                                          AdapterLoader::Done done) {
    loader.load(name, directory, replace, std::move(done));
  };
  model.served.unload_adapter = [&engine = *model.engine](const std::string& name) {
    engine.unload_adapter(name);
  };
}

// Calls `begin` once the engine is there, with the checkpoint.
void load(LoadedModel& model, const Registries& registries, const ServeCommandOptions& options,
          const std::function<void(const Checkpoint& checkpoint)>& begin) {
  const auto begun = std::chrono::steady_clock::now();
  if (is_model_to_import(options.run)) {
    fmt::print("Importing {}\n", options.run);
    std::fflush(stdout);
  }
  const ModelToRun run(options.run, "run", registries);
  const Checkpoint& checkpoint = run.checkpoint();
  model.identity = identity_of(checkpoint.path);
  model.parts = parts_of(checkpoint, registries);
  model.config = inference_recipe(checkpoint, options.inference, registries);
  const std::vector<std::pair<std::string, std::string>> adapters = adapters_of(options);
  const std::int64_t slots =
      options.max_loras > 0 ? options.max_loras : static_cast<std::int64_t>(adapters.size());
  if (static_cast<std::int64_t>(adapters.size()) > slots)
    throw Error("--max-loras",
                "must be room for every --adapter, of which there are " + std::to_string(adapters.size()),
                std::to_string(slots));
  const bool reads_source = layers::reads_source(*model.config.model);
  const auto refuse_with_encoder = [&](bool given, const char* option) {
    if (reads_source && given) throw Error(option, "needs a model without an encoder", "one with an encoder");
  };
  refuse_with_encoder(slots > 0, adapters.empty() ? "--max-loras" : "--adapter");
  refuse_with_encoder(!options.draft.empty(), "--draft");
  if (slots > 0) add_lora_slots(model.config, slots, options.max_lora_rank, registries.classes);
  const TrainerConfig& config = model.config;
  fmt::print("Loading {} for {}\n", run.shown(), config.hardware);
  std::fflush(stdout);
  const TokenizerConfig& tokens = *config.input->tokenizer;
  model.tokenizer = tokens.make();
  const Tokenizer& tokenizer = *model.tokenizer;
  if (const std::string note = note_of_guess(tokens, tokenizer); !note.empty()) say_note(note);
  ServedModel& served = model.served;
  try {
    if (reads_source) throw Error("chat", "needs a model without an encoder", "one with an encoder");
    model.chat = chat_format_of(config, tokenizer);
  } catch (const Error& error) {
    served.no_chat = fmt::format("this model cannot chat: {}", error.what());
    say_note(served.no_chat);
  }
  if (options.engine.max_length > config.sequence)
    say_note(fmt::format("--max-length {} is more than the {} tokens that the model was trained on",
                         options.engine.max_length, config.sequence));
  model.device = open_device(config, registries.devices, say_note);
  EngineOptions engine = options.engine;
  engine.checkpoint_step = checkpoint.step;
  std::unique_ptr<Speculator> speculator;
  if (!options.draft.empty()) {
    if (engine.draft_tokens == 0) engine.draft_tokens = kDraftTokens;
    speculator = load_draft(model, registries, options, engine);
  }
  model.engine = std::make_unique<Engine>(config, engine, *model.device, registries.catalog, checkpoint.model,
                                          std::move(speculator));
  std::filesystem::path path(options.run);
  if (!path.has_filename()) path = path.parent_path();
  path = std::filesystem::absolute(path).lexically_normal().filename();
  served.name = (path.extension() == ".gguf" ? path.stem() : path).string();
  served.created = std::time(nullptr);
  served.engine = model.engine.get();
  if (slots > 0) load_adapters(model, checkpoint, registries, options, adapters);
  served.tokenizer = &tokenizer;
  if (reads_source) {
    served.encode = [&](std::string_view text) { return config.input->begin(tokenizer, text).source; };
    served.decoder_prompt = config.input->begin(tokenizer, "").tokens;
    say_note("there are no embeddings: the model has an encoder, whose source is the prompt");
  } else {
    served.encode = [&](std::string_view text) { return config.input->begin(tokenizer, text).tokens; };
  }
  served.chat = model.chat.get();
  served.ends = ends_of(tokens, tokenizer);
  const std::string& dependence = model.engine->batch_dependence();
  fmt::print("Loaded in {:.1f} s: up to {} sequences of {} tokens at once{}\n",
             std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(),
             options.engine.max_sequences, model.engine->max_length(),
             dependence.empty() ? ", batch-invariant" : "");
  if (!dependence.empty() && !options.engine.batch_invariant)
    say_note("log-probabilities can depend on what else runs, in their last digits: " + dependence);
  if (const std::string& reason = model.engine->no_prefix_cache(); !reason.empty() && engine.prefix_cache)
    say_note("there is no prefix cache: " + reason);
  std::fflush(stdout);
  begin(checkpoint);
}

// Gives the engine the parameters of checkpoints that the run saves, until told to stop. What cannot be served is said, and the
// server goes on with what it has.
void watch(const Registries& registries, const ServeCommandOptions& options, LoadedModel& model,
           const std::atomic<bool>& stop) {
  std::string looked_at = model.identity, said;  // the last error, as one that stays is said once
  auto next = std::chrono::steady_clock::now();
  for (; !stop; std::this_thread::sleep_for(kLookForSignals)) {
    if (std::chrono::steady_clock::now() < next) continue;
    next = std::chrono::steady_clock::now() + kLookForCheckpoints;
    try {
      const std::string newest = newest_of(options.run);
      if (newest.empty() || newest == looked_at) continue;
      const auto checkpoint = std::make_shared<const Checkpoint>(open_newest(options.run, say_note));
      looked_at = newest;
      const std::string identity = identity_of(checkpoint->path);
      if (identity == model.identity) continue;  // the newest one is damaged
      if (parts_of(*checkpoint, registries) != model.parts) {
        say_note(fmt::format("{} has another model or tokenizer and is not served", checkpoint->path));
        continue;
      }
      model.engine->set_weights({checkpoint, &checkpoint->model}, checkpoint->step);
      model.identity = identity;
      say_note(fmt::format("new requests get the parameters of {}, once those that run have ended",
                           checkpoint->path));
      said.clear();
    } catch (const std::exception& error) {
      if (said != error.what()) say_note(fmt::format("--watch: {}", error.what()));
      said = error.what();
      next = std::chrono::steady_clock::now() + kAfterErrors;
    }
  }
}

int serve(const Registries& registries, const ServeCommandOptions& options) {
  if (!is_model_to_import(options.run)) refuse_hub_checkpoint(options.run, "run");
  ApiServerOptions server_options;
  server_options.http.host = options.host;
  server_options.http.port = static_cast<std::uint16_t>(options.port);
  server_options.keys = read_keys("--api-key-file", options.key_file);
  if (server_options.keys.empty() && !is_loopback(options.host))
    throw Error("--host", "must be a loopback address, such as 127.0.0.1, where --api-key-file is not given",
                "'" + options.host + "'");
  if (options.watch && (is_checkpoint(options.run) || is_model_to_import(options.run)))
    throw Error("--watch", "needs the directory of a run, which saves further checkpoints",
                "one checkpoint or model, '" + options.run + "'");
  options.role.check();
  if (!options.role.role.empty()) {
    // What one side computes with must be what the other does.
    if (options.watch) throw Error("--role", "needs parameters that stay as they are", "--watch");
    if (options.max_loras > 0 || !options.adapters.empty())
      throw Error("--role", "needs a model without adapters",
                  options.max_loras > 0 ? "--max-loras" : "--adapter");
    if (!options.engine.prefix_cache) throw Error("--role", "needs the prefix cache", "--no-prefix-cache");
  }
  Failure failure;
  server_options.note = say_note;
  server_options.lost = [&](const std::string& what) { failure.set(what); };
  raise_file_limit();
  const StopSignals signals;
  ApiServer server(std::move(server_options));
  LoadedModel model;
  std::thread io = failure.thread([&] { server.run(); });
  std::stop_source stop;
  std::atomic<bool> stop_watching = false;
  std::thread engine, watching;
  ServeRole role(options.role);
  try {
    load(model, registries, options, [&](const Checkpoint& checkpoint) {
      role.begin(model.config, checkpoint.model, *model.engine, model.device->info(),
                 [&](std::function<void()> body) { return failure.thread(std::move(body)); });
    });
    engine = failure.thread([&] { model.engine->run(stop.get_token()); });
    server.set_model(model.served);
    if (options.watch) watching = failure.thread([&] { watch(registries, options, model, stop_watching); });
    if (!role.about().empty()) fmt::print("{}\n", role.about());
    fmt::print("Serving {} at {}\n", model.served.name, url_of(options.host, server.port()));
    std::fflush(stdout);
    while (!signals.requested() && !failure.failed()) std::this_thread::sleep_for(kLookForSignals);
    if (signals.requested())
      say_note(fmt::format("{}: no new requests; those that run have {} s to end", signals.name(),
                           HttpOptions().drain_time.count() / 1000));
  } catch (const std::exception& error) {
    failure.set(error.what());
  }
  stop_watching = true;
  if (watching.joinable()) watching.join();
  server.shut_down();
  io.join();
  model.adapters.reset();
  stop.request_stop();
  if (engine.joinable()) engine.join();
  role.stop();
  if (!failure.failed()) return 0;
  say_error(failure.what());
  return 1;
}

}  // namespace

void add_serve(CLI::App& app, const Registries& registries, Action& action) {
  CLI::App* command = app.add_subcommand("serve", "Serve a checkpoint over HTTP, by OpenAI's API");
  auto options = std::make_shared<ServeCommandOptions>();
  command->add_option("run", options->run, kModelToRunHelp)->required()->type_name("RUN|DIR|FILE");
  command->add_option("--port", options->port, "The port to listen on; 0 = a free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command
      ->add_option(
          "--host", options->host,
          "The address to listen on. One that other machines reach, such as 0.0.0.0, needs --api-key-file")
      ->capture_default_str();
  command
      ->add_option("--api-key-file", options->key_file,
                   "A file with a key per line; clients must send one of them as 'Authorization: Bearer KEY'")
      ->type_name("FILE");
  add_engine_options(*command, options->engine);
  command->add_flag(
      "--watch", options->watch,
      "Go on with the newest checkpoint whenever the run has saved one, such as while it is trained");
  command
      ->add_option(
          "--draft", options->draft,
          fmt::format("A run or checkpoint of a smaller model with the same tokenizer, which guesses "
                      "tokens, {} by default. Without it --draft-tokens looks the last tokens up in "
                      "the text in front of them",
                      kDraftTokens))
      ->type_name("RUN");
  command
      ->add_option("--adapter", options->adapters,
                   "A LoRA adapter, NAME=DIR, which requests choose by the model NAME: a directory that PEFT "
                   "saved, or a "
                   "run that trained Lora adapters. May be given several times")
      ->type_name("NAME=DIR");
  command
      ->add_option(
          "--max-loras", options->max_loras,
          "Adapters that there is room for; clients may load and unload them. Without it only those of "
          "--adapter are served")
      ->check(integer_from(1));
  command
      ->add_option("--max-lora-rank", options->max_lora_rank,
                   "The largest rank of an adapter; the slots of all adapters have room for it")
      ->check(integer_from(1))
      ->capture_default_str();
  command->add_flag("!--no-prefix-cache", options->engine.prefix_cache,
                    "Compute every prompt whole, also where another began alike");
  options->role.add_to(*command);
  options->inference.add_to(*command);
  command->footer(
      "Routes: GET /health, /v1/models, /metrics; POST /v1/completions, /v1/chat/completions, "
      "/v1/embeddings, "
      "/tokenize, /detokenize; with --max-loras POST /v1/load_lora_adapter, /v1/unload_lora_adapter.\n"
      "INT and TERM let running requests end, for 30 seconds at most, and exit with 0; a second one ends the "
      "program at once.\n"
      "Examples:\n  meshloom serve run\n"
      "  meshloom serve tuned --port 8000 --max-length 512 --max-sequences 8\n"
      "  meshloom serve run --adapter chat=lora --max-loras 8\n"
      "  meshloom serve run --role prefill --listen-pages 127.0.0.1:9000 --port 8081\n"
      "  meshloom serve run --role decode --prefill 127.0.0.1:9000\n"
      "  meshloom serve tuned --host 0.0.0.0 --api-key-file keys.txt --device cpu");
  command->callback([=, &action] { action = [=] { return serve(registries, *options); }; });
}

}  // namespace meshloom::trainer

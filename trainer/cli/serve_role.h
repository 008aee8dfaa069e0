// The two roles of a pair of servers of one model: one computes prompts, the other writes texts behind them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "trainer/checkpoint/stored_tensors.h"
#include "trainer/config/trainer_config.h"
#include "trainer/inference/engine.h"
#include "trainer/serve/pages/page_client.h"
#include "trainer/serve/pages/page_server.h"

namespace meshloom::trainer {

struct RoleOptions {
  std::string role;     // "" = neither
  std::string listen;   // HOST:PORT
  std::string prefill;  // HOST:PORT
  std::string key_file;
  std::int64_t timeout = 30;  // seconds
  void add_to(CLI::App& command);
  // Throws Error for options that do not belong together.
  void check() const;
};

// The side of the pair that this server is. Of no role it does nothing.
class ServeRole {
 public:
  explicit ServeRole(const RoleOptions& options);
  ~ServeRole();

  // Listens, or connects, for an engine that does not step yet. `thread` makes a thread that runs a function, whose exceptions end the
  // server. Throws Error where the other side has another model or refuses this one; one that does not answer is noted.
  void begin(const TrainerConfig& config, const StoredTensors& weights, Engine& engine,
             const hal::DeviceInfo& device, const std::function<std::thread(std::function<void()>)>& thread);
  // What to say once it serves; "" = nothing.
  const std::string& about() const { return about_; }
  // When no request runs any more.
  void stop();

 private:
  RoleOptions options_;
  std::string about_;
  std::shared_ptr<PageClient> client_;
  std::unique_ptr<PageServer> server_;
  std::thread thread_;
};

}  // namespace meshloom::trainer

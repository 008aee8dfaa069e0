#include "trainer/cli/serve_role.h"

#include <fmt/format.h>

#include <utility>

#include "hal/error.h"
#include "trainer/cli/command.h"
#include "trainer/cli/key_file.h"
#include "trainer/inference/engine_identity.h"
#include "trainer/run/state/machine.h"
#include "trainer/serve/address.h"

namespace meshloom::trainer {
void RoleOptions::add_to(CLI::App& command) {
  command
      .add_option("--role,--disaggregation-mode", role,
                  "One of a pair of servers of the same model: prefill computes prompts for others "
                  "(--listen-pages), decode "
                  "has them computed (--prefill) and writes texts. Without it one server does both")
      ->check(CLI::IsMember({"prefill", "decode"}));
  command
      .add_option("--listen-pages", listen,
                  "With --role prefill: the address to give pages of keys and values at; port 0 = a free one")
      ->type_name("HOST:PORT");
  command
      .add_option("--prefill", prefill,
                  "With --role decode: the address that the other server gives pages at")
      ->type_name("HOST:PORT");
  command
      .add_option("--pages-key-file", key_file,
                  "With --role: a file with a key per line. The first line of the side that decodes must be "
                  "one of the "
                  "other side's. An address that is not loopback needs it")
      ->type_name("FILE");
  command
      .add_option("--prefill-timeout", timeout,
                  "With --role decode: seconds to wait for the pages of a prompt; then what is missing is "
                  "computed here")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
}

void RoleOptions::check() const {
  const auto need = [&](const char* option, const std::string& value, const char* its_role) {
    if (role == its_role && value.empty())
      throw Error("--role", fmt::format("{} needs {} HOST:PORT", its_role, option));
    if (role != its_role && !value.empty()) throw Error(option, fmt::format("needs --role {}", its_role));
  };
  need("--listen-pages", listen, "prefill");
  need("--prefill", prefill, "decode");
  if (role.empty() && !key_file.empty()) throw Error("--pages-key-file", "needs --role");
  if (role.empty()) return;
  const std::string option = role == "prefill" ? "--listen-pages" : "--prefill";
  const Address address =
      role == "prefill" ? parse_address(option, listen, 0) : parse_address(option, prefill, 1);
  if (key_file.empty() && !is_loopback(address.host))
    throw Error(option,
                "must be a loopback address, such as 127.0.0.1:9000, where --pages-key-file is not given",
                "'" + address.host + "'");
}

ServeRole::ServeRole(const RoleOptions& options) : options_(options) {}
ServeRole::~ServeRole() { stop(); }

void ServeRole::begin(const TrainerConfig& config, const StoredTensors& weights, Engine& engine,
                      const hal::DeviceInfo& device,
                      const std::function<std::thread(std::function<void()>)>& thread) {
  if (options_.role.empty()) return;
  if (const std::string& reason = engine.no_prefix_cache(); !reason.empty())
    throw Error("--role", "needs a model whose caches are pages alone (PagedCache, LatentCache)", reason);
  Machine machine = machine_of(device, engine.plan());
  const std::string arithmetic = fmt::format("{}{}", machine_text(machine),
                                             engine.batch_dependence().empty() ? ", batch-invariant" : "");
  const KVIdentity identity = kv_identity_of(config, weights, engine, arithmetic);
  const std::vector<std::string> keys = read_keys("--pages-key-file", options_.key_file);
  if (options_.role == "prefill") {
    PageServerOptions made;
    const Address address = parse_address("--listen-pages", options_.listen, 0);
    made.host = address.host;
    made.port = address.port;
    made.keys = keys;
    made.identity = identity;
    made.engine = &engine;
    made.page_bytes = engine.page_bytes();
    made.note = say_note;
    server_ = std::make_unique<PageServer>(std::move(made));
    thread_ = thread([this] { server_->run(); });
    about_ = fmt::format("Giving pages of {} tokens, {} bytes each, at {}", identity.page_size,
                         engine.page_bytes(), address_text(address.host, server_->port()));
    return;
  }
  PageClientOptions made;
  const Address address = parse_address("--prefill", options_.prefill, 1);
  made.host = address.host;
  made.port = address.port;
  if (!keys.empty()) made.key = keys.front();
  made.identity = identity;
  made.page_bytes = engine.page_bytes();
  made.note = say_note;
  made.timeout = std::chrono::seconds(options_.timeout);
  client_ = std::make_shared<PageClient>(std::move(made));
  engine.set_kv_connector(client_);
  thread_ = thread([client = client_] { client->run(); });
  const PageClient::Attempt attempt = client_->first_attempt();
  if (attempt.differs) throw Error("--prefill '" + options_.prefill + "'", attempt.problem);
  if (attempt.connected) about_ = fmt::format("Prompts are computed at {}", options_.prefill);
}

void ServeRole::stop() {
  if (client_) client_->stop();
  if (server_) server_->stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace meshloom::trainer

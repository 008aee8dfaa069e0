// The server of a model: OpenAI's API, tokens of texts, health and metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trainer/serve/http_server.h"
#include "trainer/serve/served_model.h"

namespace meshloom::trainer {

struct ApiServerOptions {
  HttpOptions http;
  std::vector<std::string>
      keys;  // one of them must come as "Authorization: Bearer KEY", but for GET /health; none = no key
  std::function<void(const std::string&)> note;  // what the operator should know, from the server's thread
  std::function<void(const std::string&)>
      lost;  // the engine has lost its device: nothing can be computed any more
};

class ApiServer {
 public:
  // Throws Error when the address cannot be listened on.
  explicit ApiServer(ApiServerOptions options);
  // The engine must have dropped all requests, or live on without sending events.
  ~ApiServer();

  std::uint16_t port() const;
  // Serves on the calling thread until shut_down() was called and running requests have ended (HttpOptions::drain_time).
  void run();
  // These two from any thread. Until there is a model, every route answers 503.
  void set_model(ServedModel model);
  void shut_down();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether both are equal, in a time that depends on the length of `given` alone.
bool equal_keys(const std::string& key, const std::string& given);

}  // namespace meshloom::trainer

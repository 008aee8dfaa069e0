#include "trainer/serve/api_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "trainer/io/json.h"
#include "trainer/serve/api_error.h"
#include "trainer/serve/api_request.h"
#include "trainer/serve/embedding_batch.h"
#include "trainer/serve/embedding_request.h"
#include "trainer/serve/generation.h"
#include "trainer/serve/request_grammar.h"
#include "trainer/serve/tools/tool_request.h"

namespace meshloom::trainer {
namespace {

constexpr std::size_t kNotes = 64;      // different unknown fields that are noted
constexpr std::size_t kIgnored = 1024;  // bytes of the header that lists them

}  // namespace

bool equal_keys(const std::string& key, const std::string& given) {
  if (key.empty()) return given.empty();
  std::size_t differ = key.size() ^ given.size();
  for (std::size_t i = 0; i < given.size(); ++i)
    differ |= static_cast<unsigned char>(key[i % key.size()]) ^ static_cast<unsigned char>(given[i]);
  return differ == 0;
}

class ApiServer::Impl {
 public:
  explicit Impl(ApiServerOptions options)
      : options_(std::move(options)),
        http_(options_.http, {[this](const HttpRequest& request) { return admit(request); },
                              [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
                                handle(request, std::move(reply));
                              },
                              [](int status, const std::string& message) {
                                return error_json(ApiError(status, message));
                              }}) {}

  HttpServer& http() { return http_; }
  void set_model(ServedModel model) {
    http_.post()([this, model = std::move(model)] {
      model_ = std::make_unique<ServedModel>(model);
      texts_ = std::make_unique<TokenTexts>(*model_->tokenizer);
      grammars_ = std::make_unique<GrammarCache>(*model_->tokenizer, model_->engine->vocabulary());
      model_->grammars = grammars_.get();
      tools_ = std::make_unique<ServedTools>(*model_, *grammars_);
      model_->tools = tools_.get();
    });
  }

 private:
  using Call = void (Impl::*)(const HttpRequest& request, std::shared_ptr<HttpReply> reply);
  struct Route {
    const char *method, *path;
    Call call;
  };
  static constexpr const char* kModels = "/v1/models";
  static const std::vector<Route>& routes() {
    static const std::vector<Route> table{
        {"GET", "/health", &Impl::health},
        {"GET", "/metrics", &Impl::metrics},
        {"GET", kModels, &Impl::models},
        {"POST", "/v1/completions", &Impl::completions},
        {"POST", "/v1/chat/completions", &Impl::chat},
        {"POST", "/v1/embeddings", &Impl::embeddings},
        {"POST", "/tokenize", &Impl::tokenize},
        {"POST", "/detokenize", &Impl::detokenize},
        {"POST", "/v1/load_lora_adapter", &Impl::load_adapter},
        {"POST", "/v1/unload_lora_adapter", &Impl::unload_adapter},
    };
    return table;
  }
  static bool matches(const Route& route, const std::string& path) {
    return path == route.path || (route.path == std::string_view(kModels) && path.starts_with("/v1/models/"));
  }

  // Throws ApiError.
  const Route& route_of(const HttpRequest& request) {
    if (!options_.keys.empty() && request.path != "/health") check_key(request);
    bool known = false;
    for (const Route& route : routes()) {
      if (!matches(route, request.path)) continue;
      known = true;
      if (request.method == route.method) return route;
    }
    if (known)
      throw ApiError(405, fmt::format("{} does not answer {}", shown(request.path), shown(request.method)));
    throw ApiError(404, "there is no route " + shown(request.path));
  }

  void check_key(const HttpRequest& request) const {
    const std::string* header = request.header("authorization");
    const std::string scheme = "bearer ";
    bool known = false;
    if (header && header->size() > scheme.size() &&
        std::equal(scheme.begin(), scheme.end(), header->begin(),
                   [](char a, char b) { return a == (b | 0x20); })) {
      const std::string given = header->substr(scheme.size());
      for (const std::string& key : options_.keys) known |= equal_keys(key, given);
    }
    if (!known)
      throw ApiError(401,
                     header ? "the key of the header Authorization must be one of the server's"
                            : "the header 'Authorization: Bearer KEY' must be given",
                     {}, "invalid_api_key");
  }

  std::optional<HttpResponse> admit(const HttpRequest& request) {
    try {
      route_of(request);
      if (!model_) throw ApiError(503, "the model is being loaded");
      return {};
    } catch (const ApiError& error) {
      HttpResponse response = error_response(error);
      for (const Route& route : routes())
        if (error.status == 405 && matches(route, request.path))
          response.headers.emplace_back("Allow", route.method);
      metrics_.responded(error.status);
      return response;
    }
  }

  void handle(const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
    try {
      (this->*route_of(request).call)(request, reply);
    } catch (const ApiError& error) {
      metrics_.responded(error.status);
      reply->send(error_response(error));
    }
  }

  void respond(HttpReply& reply, HttpResponse response) {
    metrics_.responded(response.status);
    reply.send(std::move(response));
  }

  void health(const HttpRequest&, std::shared_ptr<HttpReply> reply) {
    respond(*reply, {200, "{\"status\":\"ok\"}"});
  }

  void metrics(const HttpRequest&, std::shared_ptr<HttpReply> reply) {
    respond(*reply, {200, metrics_.text(model_->name, model_->engine->counters()),
                     "text/plain; version=0.0.4; charset=utf-8"});
  }

  void models(const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
    ResponseJson all = ResponseJson::array();
    const std::int64_t step = model_->engine->counters().checkpoint_step;
    const auto add = [&](const std::string& name) {
      all.push_back({{"id", name},
                     {"object", "model"},
                     {"created", model_->created},
                     {"owned_by", "meshloom"},
                     {"max_model_len", model_->engine->max_length()},
                     {"step", step}});
      if (name != model_->name) all.back()["parent"] = model_->name;
    };
    add(model_->name);
    for (const std::string& adapter : model_->engine->adapters()) add(adapter);
    if (request.path == kModels) return respond(*reply, {200, dumped({{"object", "list"}, {"data", all}})});
    const std::string name = request.path.substr(std::string(kModels).size() + 1);
    for (const ResponseJson& model : all)
      if (model["id"] == name) return respond(*reply, {200, dumped(model)});
    throw ApiError(404, fmt::format("there is no model {}", shown(name)), "model", "model_not_found");
  }

  // The name of the adapter that such a request is about.
  std::string adapter_name(RequestFields& fields) const {
    if (!model_->load_adapter)
      throw ApiError(400, "adapters cannot be loaded or unloaded here; the server needs --max-loras", {},
                     "not_enabled");
    const auto name = fields.text("lora_name");
    if (!name || name->empty()) refuse_field("lora_name", "must be the name of an adapter", "none");
    if (*name == model_->name) refuse_field("lora_name", "must not be the name of the model", shown(*name));
    return *name;
  }

  // Answers when the adapter is there.
  void load_adapter(const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
    const RequestJson body = parse_body(request.body);
    RequestFields fields(body);
    const std::string name = adapter_name(fields);
    const auto path = fields.text("lora_path");
    if (!path || path->empty()) refuse_field("lora_path", "must be the directory of an adapter", "none");
    const bool replace = fields.boolean("load_inplace").value_or(false);
    HttpResponse head;
    note_ignored(fields.unknown(), head);
    try {
      model_->load_adapter(
          name, *path, replace, [this, post = http_.post(), name, reply, head](const std::string& error) {
            post([this, name, reply, head, error] {
              HttpResponse response =
                  error.empty()
                      ? HttpResponse{200, "Success: LoRA adapter '" + name + "' added successfully.",
                                     "text/plain; charset=utf-8"}
                      : error_response(ApiError(400, error, "lora_path", "adapter_not_loaded"));
              response.headers.insert(response.headers.end(), head.headers.begin(), head.headers.end());
              respond(*reply, std::move(response));
            });
          });
    } catch (const EngineBusy& busy) {
      throw ApiError(429, fmt::format("the server is busy: {}", busy.what()), {}, "server_busy");
    }
  }

  void unload_adapter(const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
    const RequestJson body = parse_body(request.body);
    RequestFields fields(body);
    const std::string name = adapter_name(fields);
    try {
      model_->unload_adapter(name);
    } catch (const UnknownAdapter& unknown) {
      throw ApiError(404, unknown.what(), "lora_name", "model_not_found");
    }
    HttpResponse response{200, "Success: LoRA adapter '" + name + "' removed successfully.",
                          "text/plain; charset=utf-8"};
    note_ignored(fields.unknown(), response);
    respond(*reply, std::move(response));
  }

  void completions(const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
    generate(request, completion_request(parse_body(request.body), *model_), std::move(reply));
  }
  void chat(const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
    generate(request, chat_request(parse_body(request.body), *model_), std::move(reply));
  }
  void embeddings(const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
    EmbeddingRequest asked = embedding_request(parse_body(request.body), *model_);
    HttpResponse head = head_of(request, asked.ignored);
    std::make_shared<EmbeddingBatch>(
        std::move(asked), EmbeddingBatch::Dependencies{*model_, metrics_, http_.post(), options_.lost},
        std::move(reply), std::move(head))
        ->begin();
  }
  HttpResponse head_of(const HttpRequest& request, const std::vector<std::string>& ignored) {
    HttpResponse head;
    note_ignored(ignored, head);
    if (const std::string* id = request.header("x-request-id"); id && id->size() <= 256)
      head.headers.emplace_back("x-request-id", *id);
    return head;
  }
  void generate(const HttpRequest& request, ApiRequest asked, std::shared_ptr<HttpReply> reply) {
    HttpResponse head = head_of(request, asked.ignored);
    std::make_shared<Generation>(
        std::move(asked), Generation::Dependencies{*model_, *texts_, metrics_, http_.post(), options_.lost},
        std::move(reply), std::move(head))
        ->begin();
  }

  // Unknown fields change nothing, which is said.
  void note_ignored(const std::vector<std::string>& names, HttpResponse& head) {
    std::string list;
    for (const std::string& name : names) {
      std::string plain = name.substr(0, 64);
      for (char& c : plain)
        if (c <= 32 || c >= 127 || c == ',') c = '?';
      if (list.size() + plain.size() < kIgnored) list += (list.empty() ? "" : ", ") + plain;
      if (noted_.size() < kNotes && noted_.insert(plain).second && options_.note)
        options_.note(fmt::format("a request has the field '{}', which is not known and ignored", plain));
    }
    if (!list.empty()) head.headers.emplace_back("x-meshloom-ignored", list);
  }

  void tokenize(const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
    const RequestJson body = parse_body(request.body);
    RequestFields fields(body);
    adapter_of_request(fields, *model_);
    std::vector<std::int32_t> ids;
    const auto prompt = fields.text("prompt");
    if (prompt && fields.find("messages"))
      refuse_field("messages", "must be left out where there is a prompt");
    if (prompt) {
      const bool special = fields.boolean("add_special_tokens").value_or(true);
      ids = special ? tokens_of_text(*prompt, "prompt", *model_) : model_->tokenizer->encode_part(*prompt);
    } else {
      if (!fields.find("messages")) refuse_field("prompt", "must be given, or messages", "neither");
      ids = tokens_of_messages(fields, {}, *model_);
    }
    HttpResponse response{
        200,
        dumped({{"count", ids.size()}, {"max_model_len", model_->engine->max_length()}, {"tokens", ids}})};
    note_ignored(fields.unknown(), response);
    respond(*reply, std::move(response));
  }

  void detokenize(const HttpRequest& request, std::shared_ptr<HttpReply> reply) {
    const RequestJson body = parse_body(request.body);
    RequestFields fields(body);
    adapter_of_request(fields, *model_);
    const RequestJson* tokens = fields.find("tokens");
    if (!tokens || !tokens->is_array())
      refuse_field("tokens", "must be a list of token ids", tokens ? shown_value(*tokens) : "none");
    const std::string text = model_->tokenizer->decode(checked_ids(*tokens, "tokens", *model_));
    HttpResponse response{200, dumped({{"prompt", text}})};
    note_ignored(fields.unknown(), response);
    respond(*reply, std::move(response));
  }

  const ApiServerOptions options_;
  std::unique_ptr<ServedModel> model_;  // none = it is being loaded
  std::unique_ptr<TokenTexts> texts_;
  std::unique_ptr<GrammarCache> grammars_;
  std::unique_ptr<ServedTools> tools_;
  Metrics metrics_;
  std::set<std::string> noted_;
  HttpServer http_;
};

ApiServer::ApiServer(ApiServerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
ApiServer::~ApiServer() = default;
std::uint16_t ApiServer::port() const { return impl_->http().port(); }
void ApiServer::run() { impl_->http().run(); }
void ApiServer::set_model(ServedModel model) { impl_->set_model(std::move(model)); }
void ApiServer::shut_down() { impl_->http().shut_down(); }

}  // namespace meshloom::trainer

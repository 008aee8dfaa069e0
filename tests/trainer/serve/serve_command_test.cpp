// `meshloom serve` from end to end: a run is served, with the texts of `generate`, until a signal.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/trainer/run/binary.h"
#include "tests/trainer/serve/client.h"

namespace meshloom::tests {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Json = nlohmann::json;

// The program in the background, from its line "Serving ..." on.
class Served {
 public:
  explicit Served(const std::vector<std::string>& arguments) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    std::vector<std::string> words{MESHLOOM_BINARY, "serve", "--port", "0"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(ends[1], 1);
      ::signal(SIGINT, SIG_DFL);
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    out_ = ends[0];
    char byte;
    while (!said_.ends_with("/v1\n") && ::read(out_, &byte, 1) == 1) said_ += byte;
  }
  ~Served() {
    if (process_ > 0) ::kill(process_, SIGKILL), ::waitpid(process_, nullptr, 0);
    ::close(out_);
  }
  const std::string& said() const { return said_; }
  std::uint16_t port() const {
    const std::size_t at = said_.rfind("127.0.0.1:");
    return at == std::string::npos ? 0 : static_cast<std::uint16_t>(std::stoi(said_.substr(at + 10)));
  }
  void signal(int number) const { ::kill(process_, number); }
  int exit_code() {
    int status = 0;
    ::waitpid(std::exchange(process_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t process_ = -1;
  int out_ = -1;
  std::string said_;
};

TEST(ServeCommand, ServesARunUntilASignal) {
  const Scratch scratch;
  const std::string text = scratch.file("text.txt", sample_text(6000)), run = scratch.path("run");
  ASSERT_EQ(
      meshloom("train tiny --device cpu --steps 2 --sample 0 --quiet --data " + text + " --out " + run).code,
      0);
  const std::string generated = Json::parse(
      meshloom("generate --device cpu --temperature 0 --tokens 12 --json --prompt 'In the' --checkpoint " +
               run)
          .out)["text"];
  for (const int signal : {SIGTERM, SIGINT}) {
    std::vector<std::string> arguments{run, "--device", "cpu"};
    if (signal == SIGINT) arguments.push_back("--no-batch-invariant");
    Served served(arguments);
    EXPECT_EQ(served.said().find(", batch-invariant\n") != std::string::npos, signal == SIGTERM);
    EXPECT_THAT(served.said(), HasSubstr("Serving run at http://127.0.0.1:"));
    ASSERT_NE(served.port(), 0);
    EXPECT_EQ(ask(served.port(), "GET", "/health").status, 200);
    const Answer answer =
        ask(served.port(), "POST", "/v1/completions",
            R"({"prompt":"In the","echo":true,"max_tokens":12,"temperature":0,"ignore_eos":true})");
    ASSERT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(Json::parse(answer.body)["choices"][0]["text"], generated);
    EXPECT_EQ(
        ask(served.port(), "POST", "/v1/chat/completions", R"({"messages":[{"role":"user","content":"u"}]})")
            .status,
        200);
    // A request that runs is answered to its end.
    Client client(served.port());
    client.request("POST", "/v1/completions",
                   R"({"prompt":"a","max_tokens":50,"ignore_eos":true,"stream":true})");
    ASSERT_TRUE(client.read_until("data: "));
    served.signal(signal);
    const Answer stream = client.answer();
    EXPECT_TRUE(stream.whole);
    EXPECT_EQ(stream.events().back(), "[DONE]");
    client.close();
    EXPECT_EQ(served.exit_code(), 0);
  }
}

TEST(ServeCommand, ReadsPromptsByAnEncoder) {
  const Scratch scratch;
  std::string pairs;
  for (int i = 0; i < 300; ++i)
    pairs += "{\"prompt\": \"word " + std::to_string(i) + "\", \"completion\": \"the number " +
             std::to_string(i) + "\"}\n";
  const std::string data = scratch.file("pairs.jsonl", pairs), run = scratch.path("run");
  ASSERT_EQ(
      meshloom("train tiny-pairs --device cpu --steps 60 --sample 0 --quiet --data " + data + " --out " + run)
          .code,
      0);
  Served served({run, "--device", "cpu", "--max-source", "40"});
  EXPECT_THAT(served.said(), HasSubstr(", batch-invariant\n"));
  ASSERT_NE(served.port(), 0);
  for (const char* prompt : {"word 3", "word 17", "other"}) {
    const Json generated =
        Json::parse(meshloom("generate --device cpu --temperature 0 --tokens 12 --json --prompt '" +
                             std::string(prompt) + "' --checkpoint " + run)
                        .out);
    const Answer answer = ask(served.port(), "POST", "/v1/completions",
                              Json{{"prompt", prompt}, {"max_tokens", 12}, {"temperature", 0}}.dump());
    ASSERT_EQ(answer.status, 200) << answer.body;
    const Json json = Json::parse(answer.body);
    std::string text = generated["text"];
    EXPECT_THAT(text, testing::StartsWith("the "));
    if (generated["ended"]) text.pop_back();  // the end is a token of the text there
    EXPECT_EQ(json["choices"][0]["text"], text) << prompt;
    EXPECT_EQ(json["usage"]["prompt_tokens"], std::string(prompt).size() + 1) << "its end is a token too";
    EXPECT_EQ(json["usage"]["completion_tokens"], generated["tokens"].size());
  }
  EXPECT_EQ(ask(served.port(), "POST", "/v1/embeddings", R"({"input":"a"})").status, 400);
  served.signal(SIGTERM);
  EXPECT_EQ(served.exit_code(), 0);
  for (const auto& [option, said] : {std::pair{"--draft-tokens 3", "draft-tokens"},
                                     {"--max-loras 2", "--max-loras"},
                                     {"--draft other", "--draft"}}) {
    const Outcome refused = meshloom("serve --port 0 --device cpu " + run + " " + option);
    EXPECT_EQ(refused.code, 1);
    EXPECT_THAT(refused.err, HasSubstr(std::string(said) + ": needs a model without an encoder"));
  }
}

// The mark of calls is a special token here, which is not seen in other texts; the weights are random, so only the grammar makes calls.
TEST(ServeCommand, CallsToolsThroughTheModelsTemplate) {
  const Scratch scratch;
  Json tokens = Json::parse(
      read_text(std::string(MESHLOOM_SOURCE_DIR) + "/tests/trainer/interop/tokenizers/gpt2.json"));
  tokens["added_tokens"].back()["content"] = "<tool_call>";
  tokens["added_tokens"].back()["special"] = true;
  const std::string
      text = scratch.file("text.txt", sample_text(60000)),
      run = scratch.path("run"), tokenizer = scratch.file("tokenizer.json", tokens.dump()),
      chat_template = scratch.file(
          "template.jinja",
          "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{% for message in messages %}"
          "{{ message.role }}: {{ message.content }} {% endfor %}assistant: "
          "{# calls are <tool_call>{...}</tool_call> #}");
  ASSERT_EQ(
      meshloom("train tiny --device cpu --steps 1 --sample 0 --quiet --set batch=1 --set sequence=600 "
               "--set model.vocab_size=421 --set 'input.tokenizer=TokenizerJson{file=\"" +
               tokenizer + "\", chat_template=\"" + chat_template + "\"}' --data " + text + " --out " + run)
          .code,
      0);
  Served served({run, "--device", "cpu"});
  ASSERT_NE(served.port(), 0);
  const std::string fields =
      R"("messages":[{"role":"user","content":"u"}],"tool_choice":"required","parallel_tool_calls":false,
         "tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object","properties":
           {"a":{"type":"integer","minimum":0,"maximum":99},"s":{"type":"string","maxLength":5}},
           "required":["a","s"]}}},{"type":"function","function":{"name":"pick","parameters":
           {"properties":{"c":{"enum":["x","y"]}},"required":["c"]}}}])";
  const auto check = [](const Json& call) {
    const Json arguments = Json::parse(call["arguments"].get<std::string>());
    if (call["name"] == "add")
      EXPECT_TRUE(arguments.size() == 2 && arguments["a"] >= 0 && arguments["a"] <= 99) << call;
    else
      EXPECT_TRUE(call["name"] == "pick" && (arguments["c"] == "x" || arguments["c"] == "y")) << call;
  };
  const Answer answer =
      ask(served.port(), "POST", "/v1/chat/completions", "{\"n\":8,\"seed\":3," + fields + "}");
  ASSERT_EQ(answer.status, 200) << answer.body;
  for (const Json& choice : Json::parse(answer.body)["choices"]) {
    EXPECT_EQ(choice["finish_reason"], "tool_calls") << choice;
    EXPECT_TRUE(choice["message"]["content"].is_null()) << choice;
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u) << choice;
    check(choice["message"]["tool_calls"][0]["function"]);
  }
  // The grammar can write the mark as that token.
  const Json marked =
      Json::parse(ask(served.port(), "POST", "/v1/chat/completions",
                      R"({"logit_bias":{"420":100},"logprobs":true,"stop":"</tool_call>",)" + fields + "}")
                      .body)["choices"][0];
  EXPECT_EQ(marked["logprobs"]["content"][0]["token"], "<tool_call>") << marked;
  EXPECT_EQ(marked["finish_reason"], "tool_calls") << marked;
  const std::vector<std::string> events =
      ask(served.port(), "POST", "/v1/chat/completions", "{\"stream\":true," + fields + "}").events();
  int calls = 0;
  for (const std::string& event : events)
    if (const Json chunk = Json::parse(event, nullptr, false);
        chunk.is_object() && chunk["choices"][0]["delta"].contains("tool_calls")) {
      check(chunk["choices"][0]["delta"]["tool_calls"][0]["function"]);
      ++calls;
    }
  EXPECT_EQ(calls, 1);
}

TEST(ServeCommand, FollowsARunAndADraftModelChangesNothing) {
  const Scratch scratch;
  const std::string text = scratch.file("text.txt", sample_text(6000)), run = scratch.path("run");
  const auto train = [&](const std::string& more) {
    ASSERT_EQ(
        meshloom("train tiny --device cpu --sample 0 --quiet --data " + text + " --out " + run + more).code,
        0);
  };
  const auto generated = [&] {
    return Json::parse(
        meshloom("generate --device cpu --temperature 0 --tokens 12 --json --prompt 'In the' --checkpoint " +
                 run)
            .out)["text"];
  };
  train(" --steps 2");
  const Json old_text = generated();
  Served served({run, "--device", "cpu", "--watch", "--draft", run});
  ASSERT_NE(served.port(), 0);
  const auto answer = [&] {
    return Json::parse(
        ask(served.port(), "POST", "/v1/completions",
            R"({"prompt":"In the","echo":true,"max_tokens":12,"temperature":0,"ignore_eos":true})")
            .body)["choices"][0]["text"];
  };
  const auto metric = [&](const std::string& name) {
    const std::string body = ask(served.port(), "GET", "/metrics").body;
    const std::size_t at = body.find("\nmeshloom_" + name + "{");
    return at == std::string::npos ? -1.0 : std::stod(body.substr(body.find('}', at) + 1));
  };
  EXPECT_EQ(answer(), old_text);
  EXPECT_EQ(metric("weight_updates_total"), 0);
  EXPECT_GT(metric("spec_decode_num_accepted_tokens_total"), 5);
  train(" --resume --steps 40");
  const Json new_text = generated();
  EXPECT_NE(new_text, old_text);
  for (int i = 0; i < 600 && metric("weight_updates_total") == 0; ++i) std::this_thread::sleep_for(50ms);
  EXPECT_EQ(metric("weight_updates_total"), 1);
  EXPECT_EQ(metric("checkpoint_step"), 40);
  EXPECT_EQ(answer(), new_text);
  served.signal(SIGTERM);
  EXPECT_EQ(served.exit_code(), 0);
}

// While a run trains, each answer is that of one of its checkpoints, and at the end that of the last one. A checkpoint that is not
// whole, a directory that is gone and a model of another shape are left alone; a run that is started anew is followed.
TEST(ServeCommand, FollowsARunThatTrains) {
  const Scratch scratch;
  const std::string text = scratch.file("text.txt", sample_text(6000)), run = scratch.path("run");
  const auto train = [&](const std::string& more) {
    return meshloom("train tiny --device cpu --sample 0 --quiet --set eval_every=0 --set keep=0 --data " +
                    text + " --out " + run + more)
        .code;
  };
  const auto generated = [&](const std::string& checkpoint) -> std::string {
    return Json::parse(
        meshloom("generate --device cpu --temperature 0 --tokens 12 --json --prompt 'In the' --checkpoint " +
                 checkpoint)
            .out)["text"];
  };
  ASSERT_EQ(train(" --steps 4"), 0);
  Served served({run, "--device", "cpu", "--watch"});
  ASSERT_NE(served.port(), 0);
  const auto answer = [&]() -> std::string {
    return Json::parse(
        ask(served.port(), "POST", "/v1/completions",
            R"({"prompt":"In the","echo":true,"max_tokens":12,"temperature":0,"ignore_eos":true})")
            .body)["choices"][0]["text"];
  };
  const auto step = [&]() -> std::int64_t {
    return Json::parse(ask(served.port(), "GET", "/v1/models").body)["data"][0]["step"];
  };
  const auto wait_for = [&](std::int64_t wanted) {
    for (int i = 0; i < 600 && step() != wanted; ++i) std::this_thread::sleep_for(50ms);
    EXPECT_EQ(step(), wanted);
  };
  EXPECT_EQ(step(), 4);
  std::set<std::string> answers, texts;
  std::atomic<bool> trained = false;
  std::thread training([&] {
    EXPECT_EQ(train(" --resume --steps 2000 --set checkpoint_every=400"), 0);
    trained = true;
  });
  while (!trained) answers.insert(answer());
  training.join();
  wait_for(2000);
  const std::string last = run + "/step-00002000", newest = generated(last);
  EXPECT_EQ(answer(), newest);
  namespace fs = std::filesystem;
  for (const auto& entry : fs::directory_iterator(run))
    if (entry.path().filename().string().starts_with("step-")) texts.insert(generated(entry.path().string()));
  EXPECT_GT(texts.size(), 2u);
  for (const std::string& each : answers) EXPECT_TRUE(texts.count(each)) << each;
  constexpr auto kLooks = 5s;  // longer than it takes to look again
  const auto stays = [&] {
    std::this_thread::sleep_for(kLooks);
    EXPECT_EQ(step(), 2000);
    EXPECT_EQ(answer(), newest);
  };
  fs::copy(last, run + "/step-00002400", fs::copy_options::recursive);
  fs::resize_file(run + "/step-00002400/model.safetensors", 5000);
  stays();
  fs::remove_all(run);
  stays();
  ASSERT_EQ(train(" --steps 3 --set model.decoder.dim=32"), 0);
  stays();
  fs::remove_all(run);
  ASSERT_EQ(train(" --steps 7 --set seed=1"), 0);
  wait_for(7);
  EXPECT_EQ(answer(), generated(run));
  served.signal(SIGTERM);
  EXPECT_EQ(served.exit_code(), 0);
}

TEST(ServeCommand, ServesAdaptersThatComeAndGo) {
  const Scratch scratch;
  const std::string text = scratch.file("text.txt", sample_text(6000)), base = scratch.path("base");
  const auto train = [&](const std::string& more) {
    return meshloom("train " + more + " --device cpu --sample 0 --quiet --data " + text).code;
  };
  ASSERT_EQ(train("tiny --steps 2 --out " + base), 0);
  const std::string tuned = scratch.path("tuned"), other = scratch.path("other");
  for (const std::string& run : {tuned, other})
    ASSERT_EQ(train("--init " + base + " --steps " + (run == tuned ? "30" : "10") + " --out " + run +
                    " --set learner.peak_learning_rate=0.02 --modify 'Adapt{with=Lora{rank=4}}'"),
              0);
  Served served({base, "--device", "cpu", "--adapter", "tuned=" + tuned, "--max-loras", "2"});
  ASSERT_NE(served.port(), 0) << served.said();
  const auto post = [&](const std::string& path, const Json& body) {
    return ask(served.port(), "POST", path, body.dump());
  };
  const auto scores = [&](const std::string& model) {
    const Answer answer = post("/v1/completions", {{"model", model},
                                                   {"prompt", "In the beginning"},
                                                   {"echo", true},
                                                   {"logprobs", 0},
                                                   {"max_tokens", 0}});
    EXPECT_EQ(answer.status, 200) << answer.body;
    const Json json = Json::parse(answer.body);
    EXPECT_EQ(json["model"], model);
    return json["choices"][0]["logprobs"]["token_logprobs"];
  };
  const auto models = [&] {
    std::vector<std::string> names;
    const Json all = Json::parse(ask(served.port(), "GET", "/v1/models").body);
    for (const Json& model : all["data"]) names.push_back(model["id"]);
    return names;
  };
  EXPECT_THAT(models(), testing::ElementsAre("base", "tuned"));
  const auto load = [&](const std::string& name, const std::string& path, bool replace = false) {
    return post("/v1/load_lora_adapter",
                {{"lora_name", name}, {"lora_path", path}, {"load_inplace", replace}});
  };
  const Answer loaded = load("other", other);
  EXPECT_EQ(loaded.status, 200) << loaded.body;
  EXPECT_EQ(loaded.body, "Success: LoRA adapter 'other' added successfully.");
  EXPECT_THAT(models(), testing::ElementsAre("base", "other", "tuned"));
  const Json of_tuned = scores("tuned"), of_other = scores("other");
  EXPECT_NE(of_tuned, of_other);
  EXPECT_NE(of_tuned, scores("base"));
  EXPECT_THAT(load("third", other).body, HasSubstr("--max-loras"));
  EXPECT_THAT(load("other", other).body, HasSubstr("name of no adapter"));
  EXPECT_THAT(load("base", other).body, HasSubstr("must not be the name of the model"));
  EXPECT_THAT(load("third", scratch.path("none")).body, HasSubstr("must be the directory of an adapter"));
  EXPECT_EQ(load("other", tuned, true).status, 200);
  EXPECT_EQ(scores("other"), of_tuned);
  EXPECT_EQ(post("/v1/unload_lora_adapter", {{"lora_name", "other"}}).status, 200);
  EXPECT_EQ(post("/v1/unload_lora_adapter", {{"lora_name", "other"}}).status, 404);
  const Answer unknown = post("/v1/completions", {{"model", "other"}, {"prompt", "a"}});
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.body, HasSubstr("model must be 'base' or 'tuned'"));
  EXPECT_THAT(ask(served.port(), "GET", "/metrics").body,
              HasSubstr("meshloom_lora_adapters{model_name=\"base\"} 1"));
  served.signal(SIGTERM);
  EXPECT_EQ(served.exit_code(), 0);
  // A model with the adapter merged into it says the same.
  ASSERT_EQ(meshloom("export --merge --checkpoint " + tuned + " --out " + scratch.path("merged")).code, 0);
  ASSERT_EQ(meshloom("import " + scratch.path("merged") + " --out " + scratch.path("plain")).code, 0);
  Served plain({scratch.path("plain"), "--device", "cpu"});
  const Answer answer = ask(plain.port(), "POST", "/v1/completions",
                            R"({"prompt":"In the beginning","echo":true,"logprobs":0,"max_tokens":0})");
  EXPECT_EQ(ask(plain.port(), "POST", "/v1/load_lora_adapter", R"({"lora_name":"a","lora_path":"b"})").status,
            400);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json expected = Json::parse(answer.body)["choices"][0]["logprobs"]["token_logprobs"];
  ASSERT_EQ(expected.size(), of_tuned.size());
  for (std::size_t i = 1; i < of_tuned.size(); ++i)
    EXPECT_NEAR(expected[i].get<double>(), of_tuned[i].get<double>(), 1e-4);
}

// The text of one server, whose prompt another has computed.
TEST(ServeCommand, APairWritesTheTextOfOneServer) {
  const Scratch scratch;
  const std::string text = scratch.file("text.txt", sample_text(6000)), run = scratch.path("run"),
                    keys = scratch.file("keys", "secret\n");
  ASSERT_EQ(
      meshloom("train tiny --device cpu --steps 2 --sample 0 --quiet --data " + text + " --out " + run).code,
      0);
  const std::vector<std::string> sizes{run, "--device", "cpu", "--max-length", "64", "--page-size", "8"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), sizes.begin(), sizes.end());
    return more;
  };
  const std::string body =
      R"({"prompt":"In the beginning was the word and","max_tokens":12,"temperature":0,"logprobs":2,"ignore_eos":true})";
  const auto choice = [&](const Served& served) {
    const Answer answer = ask(served.port(), "POST", "/v1/completions", body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body)["choices"][0].dump();
  };
  Served one(sizes);
  const std::string expected = choice(one);
  Served prefill(with({"--role", "prefill", "--listen-pages", "127.0.0.1:0", "--pages-key-file", keys}));
  const std::string marker = " bytes each, at ";
  const std::size_t at = prefill.said().find(marker);
  ASSERT_NE(at, std::string::npos) << prefill.said();
  const std::string address =
      prefill.said().substr(at + marker.size(), prefill.said().find('\n', at) - at - marker.size());
  Served decode(with({"--disaggregation-mode", "decode", "--prefill", address, "--pages-key-file", keys}));
  EXPECT_THAT(decode.said(), HasSubstr("Prompts are computed at " + address));
  EXPECT_EQ(choice(decode), expected);
  EXPECT_THAT(ask(decode.port(), "GET", "/metrics").body,
              testing::AllOf(HasSubstr("meshloom_kv_transfer_pages_received_total{model_name=\"run\"} 4\n"),
                             HasSubstr("meshloom_kv_transfer_fallbacks_total{model_name=\"run\"} 0\n"),
                             HasSubstr("meshloom_external_prefix_cache_hits_total{model_name=\"run\"} 32\n"),
                             HasSubstr("meshloom_kv_transfer_connected{model_name=\"run\"} 1\n")));
  EXPECT_THAT(ask(prefill.port(), "GET", "/metrics").body,
              HasSubstr("meshloom_kv_transfer_pages_sent_total{model_name=\"run\"} 4\n"));
  // Another size of pages, or another key, is an error at once; nobody there is not.
  const auto refuses = [&](const std::string& arguments, const std::string& message) {
    const Outcome outcome =
        meshloom("serve " + run + " --port 0 --device cpu --max-length 64 --role decode --prefill " +
                 address + " " + arguments);
    EXPECT_EQ(outcome.code, 1) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr("--prefill '" + address + "': " + message));
  };
  refuses("--page-size 16 --pages-key-file " + keys, "must have pages of 16 tokens (--page-size); found 8");
  refuses("--page-size 8",
          "refuses this side: the key must be one of the file of this side (--pages-key-file)");
  prefill.signal(SIGTERM);
  EXPECT_EQ(prefill.exit_code(), 0);
  Served without(with({"--role", "decode", "--prefill", address, "--pages-key-file", keys}));
  EXPECT_EQ(choice(without), expected);
  EXPECT_THAT(ask(without.port(), "GET", "/metrics").body,
              HasSubstr("meshloom_kv_transfer_fallbacks_total{model_name=\"run\"} 1\n"));
  decode.signal(SIGTERM);
  EXPECT_EQ(decode.exit_code(), 0);
}

TEST(ServeCommand, WhatItRefuses) {
  const Scratch scratch;
  const auto refuses = [&](const std::string& arguments, const std::string& message, int code = 1) {
    const Outcome outcome = meshloom("serve " + arguments);
    EXPECT_EQ(outcome.code, code) << arguments;
    ASSERT_EQ(outcome.errors().size(), 1u) << arguments << outcome.err;
    EXPECT_THAT(outcome.errors()[0], HasSubstr(message)) << arguments;
  };
  refuses("run --host 0.0.0.0", "--host: must be a loopback address");
  refuses("run --host 127.0.0.1.example.org", "--host: must be a loopback address");
  refuses("run --api-key-file " + scratch.path("none"), "must be readable");
  refuses("run --api-key-file " + scratch.file("empty", "\n\n"), "must have a key on a line");
  refuses("run --api-key-file " + scratch.file("spaces", "two words\n"), "one key per line");
  refuses("run --port 65536", "--port", 2);
  const std::string prefill = "run --role prefill --listen-pages ", decode = "run --role decode --prefill ";
  refuses("run --role both", "--role", 2);
  refuses("run --role prefill", "--role: prefill needs --listen-pages HOST:PORT");
  refuses("run --role decode", "--role: decode needs --prefill HOST:PORT");
  refuses("run --prefill 127.0.0.1:9000", "--prefill: needs --role decode");
  refuses("run --listen-pages 127.0.0.1:9000", "--listen-pages: needs --role prefill");
  refuses("run --pages-key-file keys", "--pages-key-file: needs --role");
  for (const char* address : {"9000", ":9000", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:9x", "::1:9000"})
    refuses(prefill + address, "--listen-pages: must be HOST:PORT");
  refuses(decode + "127.0.0.1:0", "--prefill: must be HOST:PORT, with a port from 1 to 65535");
  refuses(prefill + "0.0.0.0:9000", "--listen-pages: must be a loopback address");
  refuses(decode + "10.0.0.7:9000", "--prefill: must be a loopback address");
  refuses(prefill + "[::1]:9000 --watch", "--role: needs parameters that stay as they are; found --watch");
  refuses(prefill + "127.0.0.1:0 --max-loras 2", "--role: needs a model without adapters; found --max-loras");
  refuses(decode + "127.0.0.1:9000 --no-prefix-cache",
          "--role: needs the prefix cache; found --no-prefix-cache");
  refuses("run --max-sequences 0", "--max-sequences", 2);
  refuses("--port 0", "run is required", 2);
  refuses("--port 0 " + scratch.path("none"), "the directory must exist");
  const std::string text = scratch.file("text.txt", sample_text(6000)), run = scratch.path("tiny");
  ASSERT_EQ(
      meshloom("train tiny --device cpu --steps 1 --sample 0 --quiet --data " + text + " --out " + run).code,
      0);
  refuses("--port 0 --device cpu --max-length 100000000 " + run,
          "what would help: it keeps the keys or values of all texts");
  refuses("--port 0 --watch " + run + "/step-00000001", "--watch: needs the directory of a run");
  refuses("--port 0 --device cpu " + run + " --draft " + scratch.path("none"), "the directory must exist");
  refuses("--port 0 --draft-tokens -1 " + run, "--draft-tokens", 2);
  refuses("--port 0 --device cpu --role prefill --listen-pages 127.0.0.1:0 " + run +
              " --modify 'Replace{class=PagedCache with=\"ContiguousCache{}\"}'",
          "--role: needs a model whose caches are pages alone (PagedCache, LatentCache)");
  refuses("--port 0 --max-loras 0 " + run, "--max-loras", 2);
  refuses("--port 0 --device cpu --adapter a " + run, "--adapter: must be NAME=DIR");
  refuses("--port 0 --device cpu --adapter a=x --adapter b=x --max-loras 1 " + run,
          "--max-loras: must be room");
  refuses("--port 0 --device cpu --adapter a=" + run + " " + run, "learner.train=adapters");
}

}  // namespace
}  // namespace meshloom::tests

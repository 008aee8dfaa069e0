// Where a run's tokens come from, as a config.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/config/config.h"
#include "trainer/input/data.h"
#include "trainer/input/tokenizer.h"
#include "trainer/input/tokenizer_json.h"

namespace meshloom::trainer {

struct TokenizerConfig : layers::Config {
  struct File {
    layers::Required<std::string>* path;  // the field
    const char* name;                     // of a copy
  };
  // What it is read from, if anything.
  virtual std::optional<File> file() { return {}; }
  virtual std::unique_ptr<Tokenizer> make() const = 0;
};

struct BytesConfig : layers::ConfigOf<BytesConfig, TokenizerConfig> {
  static constexpr std::string_view kName = "Bytes";
  void fields(layers::FieldVisitor&) override {}
  std::unique_ptr<Tokenizer> make() const override { return byte_tokenizer(); }
};

struct SentencePieceConfig : layers::ConfigOf<SentencePieceConfig, TokenizerConfig> {
  static constexpr std::string_view kName = "SentencePiece";
  layers::Required<std::string> model;  // path of the .model file
  void fields(layers::FieldVisitor& v) override { v("model", model); }
  std::optional<File> file() override { return File{&model, "tokenizer.model"}; }
  std::unique_ptr<Tokenizer> make() const override { return sentencepiece_tokenizer(model); }
};

struct TokenizerJsonConfig : layers::ConfigOf<TokenizerJsonConfig, TokenizerConfig> {
  static constexpr std::string_view kName = "TokenizerJson";
  layers::Required<std::string> path;  // of a tokenizer.json
  bool template_tokens = true;         // the begin-of-text and others that its post processor puts around a text
  std::optional<std::string> end_of_text;  // the content of the token that ends a text; none = tokenizer_json.h
  void fields(layers::FieldVisitor& v) override {
    v("file", path);
    v("template_tokens", template_tokens);
    v("end_of_text", end_of_text);
  }
  std::optional<File> file() override { return File{&path, "tokenizer.json"}; }
  std::unique_ptr<Tokenizer> make() const override {
    return tokenizer_json(path, template_tokens, end_of_text.value_or(""));
  }
};

// The interface: what every input has.
struct InputConfig : layers::Config {
  layers::Child<TokenizerConfig> tokenizer = BytesConfig{};
  std::vector<std::string> files;       // added to by --data
  std::vector<std::string> eval_files;  // none: the tail is held out
  double eval_fraction = 0.05;          // of the tokens or examples, from the end
  bool shuffle = true;                  // rows in an order of each epoch's own

  void fields(layers::FieldVisitor& v) override;
  // Throws Error naming the first field that makes no sense.
  virtual void check() const;
  // Whether rows hold documents that must be kept apart (Batch::segments).
  virtual bool documents() const = 0;
  // Tokens that a row has for an encoder, beside its `sequence`; 0 = none: the model must have no encoder.
  virtual std::int64_t source(std::int64_t /*sequence*/) const { return 0; }
  // A text to write after, as the rows have it. Throws Error.
  virtual Prompt begin(const Tokenizer& tokenizer, std::string_view text) const;
  // Reads the files; `tokenizer` must outlive what this gives. Throws Error.
  virtual std::unique_ptr<Data> open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                     std::int64_t sequence) const = 0;
};

void add_input_classes(layers::ClassTable& classes);

}  // namespace meshloom::trainer

// How text becomes tokens, as a config.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "layers/config/config.h"
#include "trainer/input/corpus.h"
#include "trainer/input/tokenizer.h"
#include "trainer/input/tokenizer_json.h"

namespace meshloom::trainer {

struct TokenizerConfig : layers::Config {
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
  std::unique_ptr<Tokenizer> make() const override { return sentencepiece_tokenizer(model); }
};

struct TokenizerJsonConfig : layers::ConfigOf<TokenizerJsonConfig, TokenizerConfig> {
  static constexpr std::string_view kName = "TokenizerJson";
  layers::Required<std::string> file;  // path of a tokenizer.json
  bool template_tokens = true;         // the begin-of-text and others that its post processor puts around a text
  void fields(layers::FieldVisitor& v) override {
    v("file", file);
    v("template_tokens", template_tokens);
  }
  std::unique_ptr<Tokenizer> make() const override { return tokenizer_json(file, template_tokens); }
};

struct InputConfig : layers::ConfigOf<InputConfig> {
  static constexpr std::string_view kName = "TextFiles";
  layers::Child<TokenizerConfig> tokenizer = BytesConfig{};
  std::vector<std::string> files;       // added to by --data
  std::vector<std::string> eval_files;  // none: the tail is held out
  double eval_fraction = 0.05;          // of the tokens, from the end
  bool shuffle = true;                  // windows in an order of each epoch's own

  void fields(layers::FieldVisitor& v) override;
};

void add_input_classes(layers::ClassTable& classes);

}  // namespace meshloom::trainer

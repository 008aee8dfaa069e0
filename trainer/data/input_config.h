// Where a run's tokens come from, as a config.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/config/config.h"
#include "trainer/data/data.h"
#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/data/tokenizer/tokenizer_json.h"

namespace meshloom::trainer {

struct TokenizerConfig : layers::Config {
  static constexpr std::string_view kAbout = "What makes tokens of text, and text of tokens.";
  // Where the model's own files were kept beside the tokens; a tokenizer of bytes has none of these.
  std::optional<std::string>
      end_of_text;  // the token that ends a text; none = as the tokenizer's header says
  std::vector<std::int64_t> eos_token_ids;   // where generation ends; empty = at end_of_text
  std::optional<std::string> config;         // path of a tokenizer_config.json
  std::optional<std::string> chat_template;  // path of a Jinja template; see trainer/chat/chat_template.h

  struct File {
    std::optional<std::string>* path;  // the field
    const char* name;                  // of a copy
  };
  // What it is read from: the tokens first, if anything; paths may be none.
  virtual std::vector<File> files() { return {}; }
  virtual std::unique_ptr<Tokenizer> make() const = 0;
  // Whether it has the fields above, and so takes eos_token_ids.
  bool has_files() { return !files().empty(); }

 protected:
  void add_model_fields(layers::FieldVisitor& v);
};

struct BytesConfig : layers::ConfigOf<BytesConfig, TokenizerConfig> {
  static constexpr std::string_view kName = "Bytes";
  static constexpr std::string_view kAbout = "Every byte is a token.";
  void fields(layers::FieldVisitor&) override {}
  std::unique_ptr<Tokenizer> make() const override { return byte_tokenizer(); }
};

struct SentencePieceConfig : layers::ConfigOf<SentencePieceConfig, TokenizerConfig> {
  static constexpr std::string_view kName = "SentencePiece";
  static constexpr std::string_view kAbout = "A SentencePiece model.";
  layers::Required<std::string> model;  // path of the .model file
  bool begin_of_text = false;           // a text begins with the model's <s>
  void fields(layers::FieldVisitor& v) override;
  std::vector<File> files() override;
  std::unique_ptr<Tokenizer> make() const override {
    return sentencepiece_tokenizer(model, begin_of_text, end_of_text.value_or(""));
  }
};

struct TokenizerJsonConfig : layers::ConfigOf<TokenizerJsonConfig, TokenizerConfig> {
  static constexpr std::string_view kName = "TokenizerJson";
  static constexpr std::string_view kAbout = "A tokenizer.json of Hugging Face, of the kind BPE.";
  layers::Required<std::string> path;  // of a tokenizer.json
  bool template_tokens = true;  // the begin-of-text and others that its post processor puts around a text
  void fields(layers::FieldVisitor& v) override;
  std::vector<File> files() override;
  std::unique_ptr<Tokenizer> make() const override {
    return tokenizer_json(path, template_tokens, end_of_text.value_or(""));
  }
};

// Ids that end a text which a model writes: the config's, or else the tokenizer's end of a text.
std::vector<std::int32_t> ends_of(const TokenizerConfig& config, const Tokenizer& tokenizer);
// The note that the end of a text is a guess; "" where it is none.
std::string note_of_guess(const TokenizerConfig& config, const Tokenizer& tokenizer);

// The interface: what every input has.
struct InputConfig : layers::Config {
  static constexpr std::string_view kAbout = "Where a run's tokens come from.";
  layers::Child<TokenizerConfig> tokenizer = BytesConfig{};
  std::vector<std::string> files;       // or folders, or patterns (find_files.h); added to by --data
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
  // Takes down what opening the data showed, so that the recipe that is kept says it; returns what the user is to be told.
  virtual std::vector<std::string> record(const TargetFormat& learned);
  // Takes from the recipe of a run that goes on what record() took down there and what this one does not say.
  virtual bool needs_record() const { return false; }
  virtual void resume_from(const InputConfig& /*before*/) {}
  // A text to write after, as the rows have it. Throws Error.
  virtual Prompt begin(const Tokenizer& tokenizer, std::string_view text) const;
  // Reads the files; `tokenizer` must outlive what this gives. Throws Error.
  virtual std::unique_ptr<Data> open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                     std::int64_t sequence) const = 0;
};

void add_input_classes(layers::ClassTable& classes);

}  // namespace meshloom::trainer

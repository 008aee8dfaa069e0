// The config of a run's training data and tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layers/config/config.h"
#include "trainer/data/dataset.h"
#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/data/tokenizer/tokenizer_json.h"

namespace meshloom::trainer {

struct JsonlPromptsConfig;

struct TokenizerConfig : layers::Config {
  static constexpr std::string_view kAbout = "Converts text to tokens and back.";
  // For tokenizers that are read from files; a tokenizer of bytes has none of these fields.
  std::optional<std::string> end_of_text;    // the token that ends a text; none = see Tokenizer::end_of_text
  std::vector<std::int64_t> eos_token_ids;   // the tokens that end generation; empty = end_of_text
  std::optional<std::string> config;         // path of a tokenizer_config.json
  std::optional<std::string> chat_template;  // path of a Jinja template; see trainer/chat/chat_template.h

  struct File {
    std::optional<std::string>* path;  // the field
    const char* name;                  // of a copy
  };
  // The files that it is read from, that of the tokens first; paths may be none.
  virtual std::vector<File> files() { return {}; }
  virtual std::unique_ptr<Tokenizer> make() const = 0;
  // Whether it has the fields above.
  bool has_files() { return !files().empty(); }

 protected:
  void add_model_fields(layers::FieldVisitor& v);
};

struct BytesConfig : layers::ConfigOf<BytesConfig, TokenizerConfig> {
  static constexpr std::string_view kName = "Bytes";
  static constexpr std::string_view kAbout = "Uses every byte as a token.";
  void fields(layers::FieldVisitor&) override {}
  std::unique_ptr<Tokenizer> make() const override { return byte_tokenizer(); }
};

struct SentencePieceConfig : layers::ConfigOf<SentencePieceConfig, TokenizerConfig> {
  static constexpr std::string_view kName = "SentencePiece";
  static constexpr std::string_view kAbout = "Uses a SentencePiece model.";
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
  static constexpr std::string_view kAbout = "Uses a tokenizer.json of Hugging Face with a BPE model.";
  layers::Required<std::string> path;  // of a tokenizer.json
  bool template_tokens = true;         // adds the tokens of its post-processor, such as begin-of-text
  void fields(layers::FieldVisitor& v) override;
  std::vector<File> files() override;
  std::unique_ptr<Tokenizer> make() const override {
    return tokenizer_json(path, template_tokens, end_of_text.value_or(""));
  }
};

// The ids that end generation: eos_token_ids of the config, or else the tokenizer's end-of-text token.
std::vector<std::int32_t> ends_of(const TokenizerConfig& config, const Tokenizer& tokenizer);
// A note that the end-of-text token is guessed; "" when it is not.
std::string note_of_guess(const TokenizerConfig& config, const Tokenizer& tokenizer);

// The interface of all inputs.
struct InputConfig : layers::Config {
  static constexpr std::string_view kAbout = "The training data of a run.";
  layers::Child<TokenizerConfig> tokenizer = BytesConfig{};
  std::vector<std::string> files;       // files, folders or patterns (find_files.h); --data adds to them
  std::vector<std::string> eval_files;  // empty: the end of the training data is held out
  double eval_fraction = 0.05;          // the fraction of the tokens or examples that is held out
  bool shuffle = true;                  // every epoch has its own order of rows

  void fields(layers::FieldVisitor& v) override;
  // Throws Error naming the first field that is invalid.
  virtual void check() const;
  // Whether rows hold documents that must be kept apart (Batch::segments).
  virtual bool documents() const = 0;
  // How many preferences a row holds, at most.
  virtual std::int64_t preferences() const { return 1; }
  // The input itself where rows are what the model writes; else nullptr.
  virtual const JsonlPromptsConfig* prompts() const { return nullptr; }
  // The number of tokens that a row has for an encoder besides its `sequence`; 0 = none: the model must have
  // no encoder.
  virtual std::int64_t source(std::int64_t /*sequence*/) const { return 0; }
  // Writes into this config what opening the data showed, so that the stored recipe has it. Returns what the
  // user should know.
  virtual std::vector<std::string> record(const TargetFormat& format);
  // Whether record() would set a field that this config does not set; and taking such fields from the stored
  // recipe of the run that is resumed.
  virtual bool needs_record() const { return false; }
  virtual void resume_from(const InputConfig& /*before*/) {}
  // The prompt of a text, written as in the training rows. Throws Error.
  virtual Prompt begin(const Tokenizer& tokenizer, std::string_view text) const;
  // Reads the files. `tokenizer` must outlive what this returns. Throws Error.
  virtual std::unique_ptr<Dataset> open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                        std::int64_t sequence) const = 0;
};

void add_input_classes(layers::ClassTable& classes);

}  // namespace meshloom::trainer

// Examples in .jsonl files, one per line, in any form of line.
//
// The files are read once when they are opened: every line is checked, and its position and number of tokens
// are stored. A step reads its lines again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/data/example_data.h"
#include "trainer/data/input_config.h"
#include "trainer/data/text/lines.h"

namespace meshloom::trainer {

// `too_long` says what happens to an example that is too long: "cut", "skip" (it is left out) or "refuse" (an
// error). Throws Error for any other text.
void check_too_long(const std::string& too_long);

// How a line becomes an example.
class JsonlFormat {
 public:
  virtual ~JsonlFormat() = default;
  // The example of a line, which may be too long. Throws Error (where = `where`) for a line of another form.
  virtual Example read(const std::string& line, const std::string& where) const = 0;
  virtual bool fits(const Example& example) const = 0;
  // The tokens that an example must have.
  virtual std::size_t min_tokens() const { return 2; }
  // Cuts the example so that it fits.
  virtual void cut(Example& example) const = 0;
  // The format of the lines that were read.
  virtual TargetFormat target_format() const = 0;
  virtual std::vector<std::string> notes() const { return {}; }
  // Whether the lines that were read are preferences, and all of these have the reference's log-probabilities.
  virtual bool has_preferences() const { return false; }
  virtual bool has_reference() const { return false; }
  // The maximal size of an example, for messages: "sequence + 1 = 9 tokens".
  virtual std::string limit() const = 0;
};

class JsonlExamples : public Examples {
 public:
  // Throws Error for the first line that is no example, for ids outside the vocabulary, and for files without
  // an example.
  JsonlExamples(std::shared_ptr<const JsonlFormat> form, const std::string& too_long, std::int64_t vocabulary,
                const std::vector<std::string>& files);

  std::int64_t size() const override { return static_cast<std::int64_t>(entries_.size()); }
  std::int64_t length(std::int64_t index) const override { return entry(index).tokens; }
  std::int64_t positions(std::int64_t index) const override {
    return entry(index).tokens - (form_->has_preferences() ? 2 : 1);
  }
  Example read(std::int64_t index) const override;
  std::int64_t source_length(std::int64_t index) const override { return entry(index).source; }
  std::uint64_t hash(std::int64_t index) const override { return entry(index).hash; }
  // The line of an example.
  std::string line(std::int64_t index) const;
  std::int64_t cut() const { return cut_; }
  std::int64_t skipped() const { return skipped_; }

 private:
  struct Entry {
    std::int64_t offset;
    std::int32_t bytes, tokens, source;
    std::size_t file;
    std::uint64_t hash;
  };
  const Entry& entry(std::int64_t index) const { return entries_[static_cast<std::size_t>(index)]; }
  void add(const std::string& path);

  std::shared_ptr<const JsonlFormat> form_;
  std::string too_long_;
  std::int64_t vocabulary_;
  std::vector<LineFile> files_;
  std::vector<Entry> entries_;
  std::int64_t cut_ = 0, skipped_ = 0;
};

// Opens the input's files. `options` has what the input does not say.
std::unique_ptr<Dataset> open_jsonl(const InputConfig& input, std::shared_ptr<const JsonlFormat> form,
                                    const std::string& too_long, const Tokenizer& tokenizer,
                                    std::int64_t vocabulary, ExampleDataOptions options);

// The end-of-text token that answers end with. Throws Error when the tokenizer has none.
std::int32_t end_of_answers(const Tokenizer& tokenizer);

void append(std::vector<std::int32_t>& to, const std::vector<std::int32_t>& from);

}  // namespace meshloom::trainer

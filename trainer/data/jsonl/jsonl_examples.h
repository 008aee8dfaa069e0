// .jsonl files of examples, a line each, whatever a line says.
//
// The files are read once when they are opened, line by line, which holds every line to the rules and leaves
// where it stands and how many tokens it has; a step reads its lines again.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trainer/data/example_data.h"
#include "trainer/data/input_config.h"
#include "trainer/data/text/lines.h"

namespace meshloom::trainer {

// What becomes of an example that is too long: "cut", "skip" (it is left out) or "refuse" (an error). Throws
// Error for another text.
void check_too_long(const std::string& too_long);

// A line as an example.
class JsonlFormat {
 public:
  virtual ~JsonlFormat() = default;
  // Of any length. Throws Error (where = `where`) on a line that has another form.
  virtual Example read(const std::string& line, const std::string& where) const = 0;
  virtual bool fits(const Example& example) const = 0;
  // Makes it fit.
  virtual void cut(Example& example) const = 0;
  // Of the lines that were read.
  virtual TargetFormat learned() const = 0;
  virtual std::vector<std::string> notes() const { return {}; }
  // "sequence + 1 = 9 tokens": what an example has at most.
  virtual std::string most() const = 0;
};

class JsonlExamples : public Examples {
 public:
  // Throws Error for the first line that makes no example, for ids outside the vocabulary, and for a file
  // without any.
  JsonlExamples(std::shared_ptr<const JsonlFormat> form, const std::string& too_long, std::int64_t vocabulary,
                const std::vector<std::string>& files);

  std::int64_t size() const override { return static_cast<std::int64_t>(entries_.size()); }
  std::int64_t length(std::int64_t index) const override { return entry(index).tokens; }
  Example read(std::int64_t index) const override;
  std::int64_t source_length(std::int64_t index) const override { return entry(index).source; }
  std::uint64_t hash(std::int64_t index) const override { return entry(index).hash; }
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

// The input's files in this form; of the options what the input does not say.
std::unique_ptr<Data> open_jsonl(const InputConfig& input, std::shared_ptr<const JsonlFormat> form,
                                 const std::string& too_long, const Tokenizer& tokenizer,
                                 std::int64_t vocabulary, ExampleDataOptions options);

// The end-of-text token that answers end with. Throws Error where the tokenizer has none.
std::int32_t end_of_answers(const Tokenizer& tokenizer);

void append(std::vector<std::int32_t>& to, const std::vector<std::int32_t>& from);

}  // namespace meshloom::trainer

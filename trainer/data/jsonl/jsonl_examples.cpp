#include "trainer/data/jsonl/jsonl_examples.h"

#include <fmt/format.h>

#include "hal/error.h"
#include "trainer/data/text/find_files.h"

namespace meshloom::trainer {

void append(std::vector<std::int32_t>& to, const std::vector<std::int32_t>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

void check_too_long(const std::string& too_long) {
  if (too_long != "cut" && too_long != "skip" && too_long != "refuse")
    throw Error("input.too_long", "must be cut, skip or refuse", "'" + too_long + "'");
}

std::int32_t end_of_answers(const Tokenizer& tokenizer) {
  const std::optional<std::int32_t> end = tokenizer.end_of_text();
  if (!end)
    throw Error("tokenizer " + tokenizer.name(),
                "must have an end-of-text token, with which answers end; --set "
                "input.tokenizer.end_of_text=TOKEN names one, --set input.end_of_text=false does without",
                "none");
  return *end;
}

JsonlExamples::JsonlExamples(std::shared_ptr<const JsonlFormat> form, const std::string& too_long,
                             std::int64_t vocabulary, const std::vector<std::string>& files)
    : form_(std::move(form)), too_long_(too_long), vocabulary_(vocabulary) {
  for (const std::string& path : files) add(path);
}

void JsonlExamples::add(const std::string& path) {
  files_.emplace_back(path, "data '" + path + "'");
  LineFile& file = files_.back();
  const std::size_t before = entries_.size();
  const std::int64_t skipped_before = skipped_;
  LineFile::Line line;
  while (file.next(line)) {
    if (line.text.find_first_not_of(" \t") == std::string::npos) continue;
    const std::string where = fmt::format("{}, line {}", file.where(), line.number);
    Example example = form_->read(line.text, where);
    for (const auto* ids : {&example.source, &example.tokens})
      for (const std::int32_t id : *ids)
        if (id < 0 || id >= vocabulary_)
          throw Error(where, fmt::format("token ids must be below the model's vocabulary of {}", vocabulary_),
                      fmt::format("id {}", id));
    if (example.tokens.size() < form_->min_tokens())
      throw Error(where,
                  fmt::format("an example must have at least {}",
                              form_->min_tokens() == 1 ? "one token" : "two tokens"),
                  "fewer");
    const bool fits = form_->fits(example);
    if (!fits && too_long_ == "refuse") {
      const std::string found =
          fmt::format("{} tokens{}", example.tokens.size(),
                      example.source.empty()
                          ? ""
                          : fmt::format(" in the completion, {} in the prompt", example.source.size()));
      throw Error(
          where,
          fmt::format("an example must have at most {}; --set input.too_long=cut or skip accepts longer ones",
                      form_->limit()),
          found);
    }
    if (!fits && too_long_ == "skip") {
      ++skipped_;
      continue;
    }
    if (!fits && example.reference)
      throw Error(
          where,
          fmt::format("a preference with a reference model's log-probabilities must have at most {}, as "
                      "these are of whole answers; --set input.too_long=skip leaves longer ones out",
                      form_->limit()),
          fmt::format("{} tokens", example.tokens.size()));
    if (!fits) {
      form_->cut(example);
      ++cut_;
    }
    entries_.push_back(
        {line.offset, static_cast<std::int32_t>(line.bytes), static_cast<std::int32_t>(example.tokens.size()),
         static_cast<std::int32_t>(example.source.size()), files_.size() - 1, hash_of(example)});
  }
  if (entries_.size() > before) return;
  const std::int64_t longer = skipped_ - skipped_before;
  throw Error(file.where(),
              "must hold at least one example" + (longer > 0 ? " of at most " + form_->limit() : ""),
              longer > 0 ? fmt::format("{} longer ones", longer) : "none");
}

std::string JsonlExamples::line(std::int64_t index) const {
  const Entry& at = entry(index);
  return files_[at.file].at(at.offset, at.bytes);
}

Example JsonlExamples::read(std::int64_t index) const {
  const Entry& at = entry(index);
  const LineFile& file = files_[at.file];
  Example example = form_->read(line(index), file.where());
  if (!form_->fits(example)) form_->cut(example);
  if (hash_of(example) != at.hash)
    throw Error(file.where(), "the file must not change while a run uses it",
                fmt::format("another example at byte {}", at.offset));
  return example;
}

std::unique_ptr<Dataset> open_jsonl(const InputConfig& input, std::shared_ptr<const JsonlFormat> form,
                                    const std::string& too_long, const Tokenizer& tokenizer,
                                    std::int64_t vocabulary, ExampleDataOptions options) {
  FoundFiles files = find_files(input.files), held_files = find_files(input.eval_files);
  check_files(files.files);
  check_vocabulary(tokenizer, vocabulary);
  const auto examples = [&](const std::vector<std::string>& paths) {
    return paths.empty() ? nullptr : std::make_unique<JsonlExamples>(form, too_long, vocabulary, paths);
  };
  std::unique_ptr<JsonlExamples> train = examples(files.files), held = examples(held_files.files);
  for (const FoundFiles* found : {&files, &held_files})
    options.notes.insert(options.notes.end(), found->notes.begin(), found->notes.end());
  const auto count = [&](std::int64_t number, const char* what) {
    if (number > 0)
      options.notes.push_back(
          fmt::format("{} of the examples had more than {} and {}", number, form->limit(), what));
  };
  count(train->cut() + (held ? held->cut() : 0), "were cut");
  count(train->skipped() + (held ? held->skipped() : 0), "were left out");
  for (std::string& note : form->notes()) options.notes.push_back(std::move(note));
  options.target_format = form->target_format();
  options.preferences = form->has_preferences();
  options.reference = form->has_reference();
  options.eval_fraction = input.eval_fraction;
  options.shuffle = input.shuffle;
  return example_data(std::move(train), std::move(held), options);
}

}  // namespace meshloom::trainer

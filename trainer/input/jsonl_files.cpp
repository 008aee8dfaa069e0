#include "trainer/input/jsonl_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "hal/error.h"
#include "trainer/input/example_data.h"
#include "trainer/input/lines.h"

namespace meshloom::trainer {
namespace {

void append(std::vector<std::int32_t>& to, const std::vector<std::int32_t>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

// A context and the answer behind it, as a model sees them: the context in tokens of its own, unless the
// whole text's begin with just those, then the whole's, whose answer needs no guess about what a tokenizer
// puts in front of a text.
void encode_turn(const Turn& turn, const Tokenizer& tokenizer, Example& example) {
  std::vector<std::int32_t> context = tokenizer.encode_part(turn.context);
  std::vector<std::int32_t> whole = tokenizer.encode_part(turn.context + turn.answer);
  const bool prefix =
      whole.size() >= context.size() && std::equal(context.begin(), context.end(), whole.begin());
  append(example.tokens, context);
  example.learn.resize(example.tokens.size(), 0);
  if (prefix) whole.erase(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(context.size()));
  append(example.tokens, prefix ? whole : tokenizer.encode_part(turn.answer));
  example.learn.resize(example.tokens.size(), 1);
}

enum class Length { fits, cut, too_long };

// Lines as examples.
class JsonlExamples : public Examples {
 public:
  JsonlExamples(const JsonlFilesConfig& config, const Tokenizer& tokenizer, std::int64_t vocabulary,
                std::int64_t sequence)
      : fields_{config.prompt, config.completion, config.messages, config.text},
        tokenizer_(tokenizer),
        vocabulary_(vocabulary),
        most_(sequence + 1),
        cuts_(config.too_long == "cut"),
        refuses_(config.too_long == "refuse") {
    if (!config.end_of_text) return;
    end_ = tokenizer.end_of_text();
    if (!end_)
      throw Error("tokenizer " + tokenizer.name(),
                  "needs an end-of-text token for answers to end with; --set "
                  "input.tokenizer.end_of_text=TOKEN names one, "
                  "--set input.end_of_text=false goes without",
                  "none that is known");
  }

  // Reads a file to its end. Throws Error naming its first bad line.
  void add(const std::string& path) {
    files_.emplace_back(path, "data '" + path + "'");
    LineFile& file = files_.back();
    const std::size_t before = entries_.size();
    LineFile::Line line;
    while (file.next(line)) {
      if (line.text.find_first_not_of(" \t") == std::string::npos) continue;
      const std::string where = fmt::format("{}, line {}", file.where(), line.number);
      Example example = encoded(line.text, where);
      for (const std::int32_t id : example.tokens)
        if (id < 0 || id >= vocabulary_)
          throw Error(where, fmt::format("token ids must be below the model's vocabulary of {}", vocabulary_),
                      fmt::format("id {}", id));
      if (example.tokens.size() < 2) throw Error(where, "an example must have at least two tokens", "fewer");
      const auto tokens = example.tokens.size();
      const Length length = shorten(example);
      if (length == Length::too_long && refuses_)
        throw Error(where,
                    fmt::format("an example must have at most sequence + 1 = {} tokens; "
                                "--set input.too_long=cut or skip would do with it",
                                most_),
                    fmt::format("{} tokens", tokens));
      if (length == Length::too_long) {
        ++skipped_;
        continue;
      }
      if (length == Length::cut) ++cut_;
      entries_.push_back({line.offset, static_cast<std::int32_t>(line.bytes),
                          static_cast<std::int32_t>(example.tokens.size()), files_.size() - 1,
                          hash_of(example)});
    }
    if (entries_.size() == before) throw Error(file.where(), "must hold at least one example", "none");
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(entries_.size()); }
  std::int64_t length(std::int64_t index) const override { return entry(index).tokens; }
  Example read(std::int64_t index) const override {
    const Entry& at = entry(index);
    const LineFile& file = files_[at.file];
    Example example = encoded(file.at(at.offset, at.bytes), file.where());
    (void)shorten(example);
    if (hash_of(example) != at.hash)
      throw Error(file.where(), "the file must stay as it was when the run started",
                  fmt::format("another example at byte {}", at.offset));
    return example;
  }
  std::uint64_t hash(std::int64_t index) const override { return entry(index).hash; }
  std::int64_t cut() const { return cut_; }
  std::int64_t skipped() const { return skipped_; }

 private:
  struct Entry {
    std::int64_t offset;
    std::int32_t bytes, tokens;
    std::size_t file;
    std::uint64_t hash;
  };
  const Entry& entry(std::int64_t index) const { return entries_[static_cast<std::size_t>(index)]; }

  Example encoded(const std::string& line, const std::string& where) const {
    Example example;
    example.tokens = tokenizer_.begin_of_text();
    for (const Turn& turn : parse_jsonl_line(line, fields_, where)) {
      encode_turn(turn, tokenizer_, example);
      if (!end_) continue;
      example.tokens.push_back(*end_);
      example.learn.push_back(1);
    }
    return example;
  }

  Length shorten(Example& example) const {
    const auto most = static_cast<std::size_t>(most_);
    if (example.tokens.size() <= most) return Length::fits;
    if (!cuts_) return Length::too_long;
    const auto context = static_cast<std::size_t>(std::find(example.learn.begin(), example.learn.end(), 1) -
                                                  example.learn.begin());
    const std::size_t kept = std::min(context, std::max<std::size_t>(tokenizer_.begin_of_text().size(), 1));
    const auto dropped = static_cast<std::ptrdiff_t>(std::min(context - kept, example.tokens.size() - most));
    const auto from = static_cast<std::ptrdiff_t>(kept);
    example.tokens.erase(example.tokens.begin() + from, example.tokens.begin() + from + dropped);
    example.learn.erase(example.learn.begin() + from, example.learn.begin() + from + dropped);
    if (example.tokens.size() > most) {
      example.tokens.resize(most);
      example.learn.resize(most);
    }
    return Length::cut;
  }

  JsonlFields fields_;
  const Tokenizer& tokenizer_;
  std::int64_t vocabulary_, most_;  // tokens of an example
  bool cuts_, refuses_;
  std::optional<std::int32_t> end_;
  std::vector<LineFile> files_;
  std::vector<Entry> entries_;
  std::int64_t cut_ = 0, skipped_ = 0;
};

}  // namespace

void JsonlFilesConfig::fields(layers::FieldVisitor& v) {
  InputConfig::fields(v);
  v("prompt", prompt);
  v("completion", completion);
  v("messages", messages);
  v("text", text);
  v("end_of_text", end_of_text);
  v("pack", pack);
  v("too_long", too_long);
}

void JsonlFilesConfig::check() const {
  InputConfig::check();
  if (too_long != "cut" && too_long != "skip" && too_long != "refuse")
    throw Error("input.too_long", "must be cut, skip or refuse", "'" + too_long + "'");
  if (prompt.empty() != completion.empty())
    throw Error("input", "prompt and completion must both be named, or neither",
                "'" + prompt + "' and '" + completion + "'");
  if (prompt.empty() && messages.empty() && text.empty())
    throw Error("input", "must name the members of one form at least", "none");
}

std::unique_ptr<Data> JsonlFilesConfig::open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                             std::int64_t sequence) const {
  check_files(files);
  check_vocabulary(tokenizer, vocabulary);
  const auto examples = [&](const std::vector<std::string>& paths) {
    auto made = std::make_unique<JsonlExamples>(*this, tokenizer, vocabulary, sequence);
    for (const std::string& path : paths) made->add(path);
    return made;
  };
  auto train = examples(files);
  std::unique_ptr<JsonlExamples> held = eval_files.empty() ? nullptr : examples(eval_files);
  std::vector<std::string> notes;
  const auto count = [&](std::int64_t number, const char* what) {
    if (number > 0)
      notes.push_back(fmt::format("{} of the examples had more than sequence + 1 = {} tokens and {}", number,
                                  sequence + 1, what));
  };
  count(train->cut() + (held ? held->cut() : 0), "were cut");
  count(train->skipped() + (held ? held->skipped() : 0), "were left out");
  return example_data(std::move(train), std::move(held),
                      {sequence, eval_fraction, shuffle, pack, std::move(notes)});
}

}  // namespace meshloom::trainer

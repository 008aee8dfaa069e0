#include "trainer/data/text/text_files.h"

#include <algorithm>

#include "hal/error.h"
#include "trainer/data/example_data.h"
#include "trainer/data/text/find_files.h"

namespace meshloom::trainer {
namespace {

class RunningText : public Dataset {
 public:
  RunningText(Corpus corpus, std::int64_t sequence, bool shuffle, std::vector<std::string> notes)
      : corpus_(std::move(corpus)), sequence_(sequence), shuffle_(shuffle), notes_(std::move(notes)) {}

  std::int64_t train_tokens() const override { return corpus_.train_end; }
  std::int64_t eval_tokens() const override { return corpus_.eval().size(); }
  std::uint64_t fingerprint() const override { return corpus_.tokens.fingerprint(0, corpus_.train_end); }
  std::unique_ptr<Batches> train(std::int64_t batch, std::uint64_t seed) const override {
    return std::make_unique<TextWindows>(corpus_.train(), batch, sequence_, seed, shuffle_);
  }
  std::unique_ptr<Batches> eval() const override {
    if (corpus_.eval().size() <= sequence_) return nullptr;
    return std::make_unique<TextWindows>(corpus_.eval(), 1, sequence_, 0, false);
  }
  std::int64_t examples() const override { return (corpus_.train().size() - 1) / sequence_; }
  Example example(std::int64_t index) const override {
    const TokenRange text = corpus_.train();
    Example window;
    for (std::int64_t i = index * sequence_; i <= (index + 1) * sequence_; ++i)
      window.tokens.push_back(text[i]);
    window.loss_mask.assign(window.tokens.size(), 1);
    return window;
  }
  Prompt prompt(std::int64_t max_tokens) const override {
    const TokenRange text = corpus_.eval().size() > 0 ? corpus_.eval() : corpus_.train();
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < std::min(max_tokens, text.size()); ++i) tokens.push_back(text[i]);
    return {std::move(tokens)};
  }
  std::vector<std::string> notes() const override { return notes_; }

 private:
  Corpus corpus_;
  std::int64_t sequence_;
  bool shuffle_;
  std::vector<std::string> notes_;
};

// The documents of text files, all of them in memory as tokens.
class Documents : public Examples {
 public:
  Documents(const std::vector<std::string>& files, const std::string& separator, const Tokenizer& tokenizer,
            std::int64_t vocabulary, std::int64_t sequence, bool binary)
      : tokens_(vocabulary) {
    for (const std::string& path : files) {
      const std::string where = "data '" + path + "'", text = read_text(path, binary);
      const std::size_t before = pieces_.size();
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(separator, at), text.size());
        add(std::string_view(text).substr(at, end - at), tokenizer, sequence, where);
        at = end + separator.size();
      }
      if (pieces_.size() == before)
        throw Error(where, "must hold at least one document of two tokens or more", "none");
    }
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(pieces_.size()); }
  std::int64_t length(std::int64_t index) const override { return piece(index).count; }
  Example read(std::int64_t index) const override {
    const Piece& from = piece(index);
    Example example;
    for (std::int64_t i = 0; i < from.count; ++i) example.tokens.push_back(tokens_[from.begin + i]);
    example.loss_mask.assign(example.tokens.size(), 1);
    return example;
  }
  std::uint64_t hash(std::int64_t index) const override { return hash_of(read(index)); }

 private:
  struct Piece {
    std::int64_t begin, count;
  };
  const Piece& piece(std::int64_t index) const { return pieces_[static_cast<std::size_t>(index)]; }

  void add(std::string_view text, const Tokenizer& tokenizer, std::int64_t sequence,
           const std::string& where) {
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return;
    std::vector<std::int32_t> ids = tokenizer.begin_of_text();
    const std::vector<std::int32_t> words = tokenizer.encode_part(text);
    ids.insert(ids.end(), words.begin(), words.end());
    if (const auto end = tokenizer.end_of_text()) ids.push_back(*end);
    const std::int64_t begin = tokens_.size(), count = static_cast<std::int64_t>(ids.size());
    tokens_.append(ids, where);
    // The last token of a piece is the first of the next, so that each token is predicted once.
    for (std::int64_t from = 0; from + 1 < count; from += sequence)
      pieces_.push_back({begin + from, std::min(sequence + 1, count - from)});
  }

  TokenArray tokens_;
  std::vector<Piece> pieces_;
};

}  // namespace

void TextFilesConfig::fields(layers::FieldVisitor& v) {
  InputConfig::fields(v);
  v("separator", separator,
    {"The text that ends a document; documents are packed into rows and kept apart. none: one running "
     "text."});
  v("binary", binary,
    {"Whether files may hold any bytes. false: they must be text in UTF-8 without NUL bytes."});
}

void TextFilesConfig::check() const {
  InputConfig::check();
  if (separator && separator->empty())
    throw Error("input.separator", "must not be empty (none: one running text)", "''");
}

std::unique_ptr<Dataset> TextFilesConfig::open(const Tokenizer& tokenizer, std::int64_t vocabulary,
                                               std::int64_t sequence) const {
  FoundFiles train = find_files(files), held = find_files(eval_files);
  train.notes.insert(train.notes.end(), held.notes.begin(), held.notes.end());
  if (!separator)
    return std::make_unique<RunningText>(
        read_corpus(train.files, held.files, eval_fraction, tokenizer, vocabulary, sequence, binary),
        sequence, shuffle, std::move(train.notes));
  check_files(train.files);
  check_vocabulary(tokenizer, vocabulary);
  const auto documents = [&](const std::vector<std::string>& paths) {
    return paths.empty()
               ? nullptr
               : std::make_unique<Documents>(paths, *separator, tokenizer, vocabulary, sequence, binary);
  };
  ExampleDataOptions options{.sequence = sequence,
                             .eval_fraction = eval_fraction,
                             .shuffle = shuffle,
                             .notes = std::move(train.notes)};
  if (const auto end = tokenizer.end_of_text()) options.target_format.ends = {*end};
  return example_data(documents(train.files), documents(held.files), options);
}

}  // namespace meshloom::trainer

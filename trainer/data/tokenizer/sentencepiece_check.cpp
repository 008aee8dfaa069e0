#include "trainer/data/tokenizer/sentencepiece_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "hal/error.h"
#include "trainer/data/tokenizer/unicode.h"

namespace meshloom::trainer {
namespace {

constexpr std::size_t kMaxPieceBytes = 4096, kMaxResultBytes = 256, kMaxTable = std::size_t{16} << 20;
constexpr std::size_t kMaxPrefixes = 64, kMaxResults = 32;  // the sizes of the library's arrays on the stack

enum Wire { kVarint = 0, kEightBytes = 1, kBytes = 2, kFourBytes = 5 };

struct Field {
  std::uint64_t number = 0;
  int wire = 0;
  std::uint64_t value = 0;  // of a varint, or of four or eight bytes, little-endian
  std::string_view bytes;
};

// Reads the fields of one protobuf message. Throws Error when it is malformed.
class Message {
 public:
  Message(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(where) {}

  bool next(Field& field) {
    if (at_ == bytes_.size()) return false;
    const std::uint64_t key = varint();
    field = {key >> 3, static_cast<int>(key & 7), 0, {}};
    switch (field.wire) {
      case kVarint:
        field.value = varint();
        break;
      case kEightBytes:
        field.value = fixed(8);
        break;
      case kFourBytes:
        field.value = fixed(4);
        break;
      case kBytes: {
        const std::uint64_t length = varint();
        if (length > bytes_.size() - at_) refuse("a field that is longer than its message");
        field.bytes = bytes_.substr(at_, length);
        at_ += length;
        break;
      }
      default:
        refuse("a field of another kind");
    }
    return true;
  }
  [[noreturn]] void refuse(const std::string& found) const {
    throw Error(where_, "must be a SentencePiece model (a ModelProto)", found);
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (!(byte & 0x80)) return value;
    }
    refuse("a number that is cut off");
  }
  std::uint64_t fixed(std::size_t bytes) {
    if (bytes > bytes_.size() - at_) refuse("a number that is cut off");
    std::uint64_t value = 0;
    for (std::size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes_[at_ + i]);
    at_ += bytes;
    return value;
  }

  std::string_view bytes_;
  const std::string& where_;
  std::size_t at_ = 0;
};

// One unit of a darts-clone double array.
struct Unit {
  std::uint32_t bits;
  std::uint32_t label() const { return bits & (1u << 31 | 0xff); }
  std::size_t offset() const { return static_cast<std::size_t>(bits >> 10) << ((bits & 1u << 9) >> 6); }
  bool has_result() const { return bits >> 8 & 1; }
  std::uint32_t result() const { return bits & ~(1u << 31); }
};

// precompiled_charsmap: the size of the array in bytes, the array, and texts that end with NUL; results are
// positions in these.
class CharacterTable {
 public:
  CharacterTable(std::string_view table, std::string where) : where_(std::move(where)) {
    if (table.size() > kMaxTable)
      refuse("must have at most " + std::to_string(kMaxTable >> 20) + " MiB",
             std::to_string(table.size()) + " bytes");
    std::uint32_t bytes = 0;
    if (table.size() >= 4) std::memcpy(&bytes, table.data(), 4);
    if (table.size() <= 4 || bytes >= table.size() - 4 || bytes < 4 || bytes % 4 != 0)
      refuse("must hold an array and then the texts", std::to_string(table.size()) + " bytes");
    units_.resize(bytes / 4);
    std::memcpy(units_.data(), table.data() + 4, bytes);
    texts_ = table.substr(4 + bytes);
    if (texts_.back() != 0) refuse("its texts must end with NUL", "one that does not");
  }

  void check() {
    // Depth first. max_results_ of a node is the largest number of results on a path down from it, its own
    // included.
    max_results_.assign(units_.size(), kUnseen);
    std::vector<Step> way{enter(0, false)};
    while (!way.empty()) {
      Step& step = way.back();
      if (step.label == 256) {
        const std::size_t results = step.below + step.own;
        if (results > kMaxResults)
          refuse("must have at most " + std::to_string(kMaxResults) +
                     " results that are prefixes of one another",
                 "more");
        max_results_[step.node] = static_cast<std::uint32_t>(results);
        way.pop_back();
        if (!way.empty()) way.back().below = std::max<std::size_t>(way.back().below, results);
        continue;
      }
      const std::size_t child = step.base ^ step.label;
      if (units_[child].label() != step.label++) continue;
      if (max_results_[child] == kOpen) refuse("its array must have no cycle", "one");
      if (max_results_[child] == kUnseen)
        way.push_back(enter(child, true));
      else
        step.below = std::max<std::size_t>(step.below, max_results_[child]);
    }
  }

 private:
  static constexpr std::uint32_t kUnseen = ~0u, kOpen = ~0u - 1;
  struct Step {
    std::size_t node, base;
    std::size_t own, below;  // numbers of results
    std::uint32_t label;     // the next label to try
  };

  Step enter(std::size_t node, bool may_have_result) {
    const Unit unit = units_[node];
    const std::size_t base = node ^ unit.offset();
    // The library reads a unit before it compares its label, so all 256 must be inside the array.
    if ((base | 0xff) >= units_.size())
      refuse("its array must not point outside of its " + std::to_string(units_.size()) + " units",
             std::to_string(base | 0xff));
    const bool result = may_have_result && unit.has_result();
    if (result) check_result(units_[base].result());
    max_results_[node] = kOpen;
    return {node, base, result ? 1u : 0u, 0, 0};
  }

  void check_result(std::uint32_t at) {
    if (at >= texts_.size() || (at > 0 && texts_[at - 1] != 0))
      refuse("its results must be positions where a text begins", std::to_string(at));
    if (const std::size_t bytes = texts_.find('\0', at) - at; bytes > kMaxResultBytes)
      refuse("a character must become at most " + std::to_string(kMaxResultBytes) + " bytes",
             std::to_string(bytes));
  }

  [[noreturn]] void refuse(const std::string& rule, const std::string& found) const {
    throw Error(where_, rule, found);
  }

  std::string where_;
  std::vector<Unit> units_;
  std::string_view texts_;
  std::vector<std::uint32_t> max_results_;
};

void check_normalizer(std::string_view bytes, const std::string& name, const std::string& where) {
  Message message(bytes, where);
  for (Field field; message.next(field);)
    if (field.number == 2 && field.wire == kBytes && !field.bytes.empty())
      CharacterTable(field.bytes, where + ", " + name + ".precompiled_charsmap").check();
}

void check_trainer(std::string_view bytes, const std::string& where) {
  constexpr std::uint64_t kUnknownSurface = 44;  // its text is written for every unknown token
  Message message(bytes, where);
  for (Field field; message.next(field);)
    if (field.number == kUnknownSurface && field.bytes.size() > kMaxPieceBytes)
      throw Error(where + ", trainer_spec.unk_surface",
                  "must have at most " + std::to_string(kMaxPieceBytes) + " bytes",
                  std::to_string(field.bytes.size()));
}

void check_samples(std::string_view bytes, const std::string& where) {
  Message message(bytes, where);
  for (Field field; message.next(field);)
    if (field.wire == kBytes)
      for (Message sample(field.bytes, where); sample.next(field);) {
      }
}

struct Piece {
  std::string_view text;
  bool user_defined = false;
};

Piece read_piece(std::string_view bytes, std::size_t index, const std::string& where) {
  constexpr std::uint64_t kUserDefined = 4;
  const std::string here = where + ", piece " + std::to_string(index);
  Piece piece;
  Message message(bytes, where);
  for (Field field; message.next(field);) {
    if (field.number == 1 && field.wire == kBytes) {
      piece.text = field.bytes;
    } else if (field.number == 2 && field.wire == kFourBytes) {
      float score;
      const auto bits = static_cast<std::uint32_t>(field.value);
      std::memcpy(&score, &bits, 4);
      if (!std::isfinite(score)) throw Error(here, "its score must be finite", std::to_string(score));
    } else if (field.number == 3 && field.wire == kVarint) {
      piece.user_defined = field.value == kUserDefined;
    }
  }
  if (piece.text.empty() || piece.text.size() > kMaxPieceBytes)
    throw Error(here, "must have 1 to " + std::to_string(kMaxPieceBytes) + " bytes",
                std::to_string(piece.text.size()));
  if (first_bad_byte(piece.text) != std::string_view::npos)
    throw Error(here, "must be UTF-8 without NUL", "other bytes");
  return piece;
}

void check_prefixes(std::vector<std::string_view> pieces, const std::string& where) {
  std::sort(pieces.begin(), pieces.end());
  std::vector<std::string_view> way;  // each is a prefix of the next
  for (const std::string_view piece : pieces) {
    while (!way.empty() && !piece.starts_with(way.back())) way.pop_back();
    way.push_back(piece);
    if (way.size() > kMaxPrefixes)
      throw Error(where,
                  "must have at most " + std::to_string(kMaxPrefixes) +
                      " user-defined pieces that are prefixes of one another",
                  "more");
  }
}

}  // namespace

void check_sentencepiece_model(std::string_view model, const std::string& where) {
  if (model.empty()) throw Error(where, "must be a SentencePiece model", "an empty file");
  enum Number { kPiece = 1, kTrainer = 2, kNormalizer = 3, kSamples = 4, kDenormalizer = 5 };
  std::size_t pieces = 0;
  std::vector<std::string_view> user_defined;
  Message message(model, where);
  for (Field field; message.next(field);) {
    if (field.wire != kBytes || field.number == 0) message.refuse("a field of another kind");
    if (field.number == kPiece) {
      const Piece piece = read_piece(field.bytes, pieces++, where);
      if (piece.user_defined) user_defined.push_back(piece.text);
    }
    if (field.number == kTrainer) check_trainer(field.bytes, where);
    if (field.number == kNormalizer) check_normalizer(field.bytes, "normalizer_spec", where);
    if (field.number == kSamples) check_samples(field.bytes, where);
    if (field.number == kDenormalizer) check_normalizer(field.bytes, "denormalizer_spec", where);
  }
  if (pieces == 0) message.refuse("a file without pieces");
  check_prefixes(std::move(user_defined), where);
}

}  // namespace meshloom::trainer

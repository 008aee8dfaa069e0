// Files made to crash, hang or fill the memory of who reads them: each is one line of error and exit code 1,
// at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "hal/error.h"
#include "tests/message_of.h"
#include "tests/trainer/run/binary.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/data/tokenizer/bpe.h"
#include "trainer/data/tokenizer/sentencepiece_check.h"
#include "trainer/data/tokenizer/tokenizer_json.h"

namespace meshloom::tests {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using namespace std::string_literals;

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string field(unsigned number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}

std::string little_endian(std::uint32_t value) {
  std::string bytes(4, '\0');
  std::memcpy(bytes.data(), &value, 4);
  return bytes;
}

enum PieceType { kNormal = 1, kUnknown = 2, kUserDefined = 4 };

std::string piece(const std::string& text, float score = -1, PieceType type = kNormal) {
  std::uint32_t bits;
  std::memcpy(&bits, &score, 4);
  return field(1, field(1, text) + varint(2 << 3 | 5) + little_endian(bits) + varint(3 << 3) + varint(type));
}

const std::string kPieces = piece("<unk>", 0, kUnknown) + piece("a") + piece("b");

// A darts-clone array of 256 units with these set, and texts.
std::string table(const std::vector<std::pair<std::size_t, std::uint32_t>>& units, const std::string& texts) {
  std::vector<std::uint32_t> array(256, 0x80000001u);  // a label that no byte has
  for (const auto& [at, unit] : units) array[at] = unit;
  std::string bytes = little_endian(1024);
  for (const std::uint32_t unit : array) bytes += little_endian(unit);
  return bytes + texts;
}

std::uint32_t unit(std::size_t offset, char label, bool result = false) {
  return static_cast<std::uint32_t>(offset << 10) | static_cast<unsigned char>(label) |
         (result ? 1u << 8 : 0u);
}

std::string with_table(const std::string& bytes) { return kPieces + field(3, field(2, bytes)); }

std::string refusal(const std::string& model) {
  return message_of([&] { trainer::check_sentencepiece_model(model, "model"); });
}

// 'a' becomes "bb".
const std::string kGoodTable =
    table({{0, unit(0, '\x01')}, {'a', unit(1, 'a', true)}, {'a' ^ 1, 0x80000000u}}, "bb\0"s);

TEST(SentencePieceModels, AreCheckedBeforeTheLibrarySeesThem) {
  EXPECT_EQ(refusal(kPieces), "no error");
  EXPECT_EQ(refusal(with_table(kGoodTable)), "no error");
  EXPECT_THAT(refusal(kPieces + piece(std::string(200'000, 'x'))),
              HasSubstr("1 to 4096 bytes; found 200000"));
  EXPECT_THAT(refusal(kPieces + piece("")), HasSubstr("1 to 4096 bytes"));
  EXPECT_THAT(refusal(kPieces + piece("c\xff")), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal(kPieces + piece("c", NAN)), HasSubstr("score must be finite"));
  EXPECT_THAT(refusal(with_table(table({{0, unit(4096, '\x01')}}, "\0"s))),
              HasSubstr("must not point outside"));
  EXPECT_THAT(refusal(with_table(table({{0, unit(0, '\x01')}, {'a', unit(0xfffff, 'a')}}, "\0"s))),
              HasSubstr("must not point outside"));
  EXPECT_THAT(refusal(with_table(table({{0, unit(0, '\x01')}, {'a', unit('a', 'a')}}, "\0"s))),
              HasSubstr("cycle"));
  EXPECT_THAT(refusal(with_table(
                  table({{0, unit(0, '\x01')}, {'a', unit(1, 'a', true)}, {'a' ^ 1, 0x80000009u}}, "bb\0"s))),
              HasSubstr("positions where a text begins; found 9"));
  EXPECT_THAT(refusal(with_table(table({{0, unit(0, '\x01')}}, "no end"))), HasSubstr("must end with NUL"));
  EXPECT_THAT(
      refusal(with_table(table({{0, unit(0, '\x01')}, {'a', unit(1, 'a', true)}, {'a' ^ 1, 0x80000000u}},
                               std::string(300, 'b') + "\0"s))),
      HasSubstr("at most 256 bytes; found 300"));
  EXPECT_THAT(refusal(with_table("\xff\xff\xff\xff")), HasSubstr("an array and then the texts"));
  std::string many = kPieces;
  for (std::size_t i = 1; i <= 65; ++i) many += piece(std::string(i, 'x'), 0, kUserDefined);
  EXPECT_THAT(refusal(many), HasSubstr("64 user-defined pieces"));
  EXPECT_THAT(refusal(kPieces + "\x1a\x05\x12\x7f"s), HasSubstr("ModelProto"));
  EXPECT_THAT(refusal(field(2, "")), HasSubstr("without pieces"));
}

TEST(SentencePieceModels, TheCheckLetsGoodOnesThrough) {
  const Scratch scratch;
  const auto tokenizer = trainer::sentencepiece_tokenizer(scratch.file("m", with_table(kGoodTable)));
  EXPECT_THAT(tokenizer->encode("a"), testing::ElementsAre(0, 2, 2));  // an unknown space and "bb"
  for (const char* seed : {"bpe", "char", "unigram"})
    EXPECT_GT(trainer::sentencepiece_tokenizer(MESHLOOM_SOURCE_DIR "/tests/fuzz/seeds/sentencepiece/" +
                                               std::string(seed) + ".model")
                  ->vocabulary(),
              0);
}

std::string tokenizer_file(const std::string& vocabulary, const std::string& more = {}) {
  return R"({"model": {"type": "BPE", "vocab": )" + vocabulary + R"(, "merges": []})" + more + "}";
}

TEST(TokenizerJsonFiles, AskForMemoryInProportion) {
  const auto refused = [](const std::string& text) {
    return message_of(
        [&] { trainer::parse_tokenizer_json(text, "tokenizer", true)->encode(std::string(20'000, 'a')); });
  };
  EXPECT_EQ(refused(tokenizer_file(R"({"a": 0, "b": 4000})")), "no error") << "a few holes";
  EXPECT_THAT(refused(tokenizer_file(R"({"a": 16777215})")),
              AllOf(HasSubstr("twice the number of tokens"), HasSubstr("16777215")));
  EXPECT_THAT(refused(tokenizer_file("{\"a\": 0}", R"(, "added_tokens": [{"id": 99999, "content": "x"}])")),
              HasSubstr("99999"));
  const std::string replace =
      R"({"type": "Replace", "pattern": {"Regex": "."}, "content": ")" + std::string(500, 'a') + "\"}";
  const std::string twice = R"({"type": "Sequence", "normalizers": [)" + replace + ", " + replace + "]}";
  EXPECT_THAT(refused(tokenizer_file("{\"a\": 0}", ", \"normalizer\": " + twice)),
              HasSubstr("64 times as long"));
  const std::string space = R"({"type": "Metaspace", "replacement": ")" + std::string(500, ' ') + "\"}";
  EXPECT_THAT(
      message_of([&] {
        trainer::parse_tokenizer_json(
            tokenizer_file("{\"a\": 0}", R"(, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [)" +
                                             space + ", " + space + "]}"),
            "tokenizer", true)
            ->encode(std::string(20'000, ' '));
      }),
      HasSubstr("64 times as long"));
  const std::string decoder =
      R"({"type": "Replace", "pattern": {"String": "a"}, "content": ")" + std::string(500, 'a') + "\"}";
  const auto tokenizer = trainer::parse_tokenizer_json(
      tokenizer_file("{\"a\": 0}",
                     R"(, "decoder": {"type": "Sequence", "decoders": [)" + decoder + ", " + decoder + "]}"),
      "tokenizer", true);
  EXPECT_THAT(message_of([&] { tokenizer->decode(std::vector<std::int32_t>(1000, 0)); }),
              HasSubstr("64 times as long"));
}

TEST(TokenizerJsonFiles, GiveTheSameTokensInParts) {
  for (const char* name : {"gpt2.json", "llama2.json", "qwen.json"}) {
    const std::string path = MESHLOOM_SOURCE_DIR "/tests/trainer/interop/tokenizers/"s + name;
    const auto tokenizer = trainer::tokenizer_json(path, true, "");
    const std::string text = sample_text(400'000);
    std::vector<std::int32_t> parts;
    int takes = 0;
    tokenizer->encode_to(text, [&](std::span<const std::int32_t> ids) {
      parts.insert(parts.end(), ids.begin(), ids.end());
      ++takes;
    });
    EXPECT_EQ(parts, tokenizer->encode(text)) << name;
    EXPECT_GT(takes, 1);
  }
}

TEST(Bpe, WordsHaveABound) {
  trainer::Bpe bpe;
  bpe.vocabulary = {{"a", 0}};
  bpe.max_symbols = 4;
  std::vector<std::int32_t> ids;
  bpe.encode("aaaa", ids);
  EXPECT_EQ(ids.size(), 4u);
  EXPECT_THAT(message_of([&] { bpe.encode("aaaaa", ids); }), HasSubstr("at most 4 characters"));
}

TEST(Bpe, PartsGiveWhatTheWholeGives) {
  trainer::Bpe whole;
  whole.vocabulary = {{"a", 0},  {"b", 1},      {"c", 2},     {"ab", 3}, {"abc", 4},
                      {"aa", 5}, {"<0x64>", 6}, {"<unk>", 7}, {"ca", 8}};
  whole.merges = {{trainer::Bpe::pair(0, 1), {1, 3}},
                  {trainer::Bpe::pair(3, 2), {0, 4}},
                  {trainer::Bpe::pair(0, 0), {2, 5}}};
  whole.unknown = 7;
  whole.fuse_unknown = whole.byte_fallback = true;
  trainer::Bpe parts = whole;
  parts.index_neighbours();
  std::uint32_t state = 1;
  for (int round = 0; round < 2000; ++round) {
    std::string word;
    for (int i = 0; i < 24; ++i) word += "aabbccde"[(state = state * 1664525u + 1013904223u) >> 29];
    std::vector<std::int32_t> expected, got;
    whole.encode(word, expected);
    parts.encode(word, got);
    ASSERT_EQ(expected, got) << word;
  }
}

TEST(Manifests, AreNotNestedWithoutEnd) {
  const std::string deep = "{\"format\": \"meshloom-checkpoint\", \"version\": 1, \"step\": 1, \"files\": " +
                           std::string(200'000, '[') + std::string(200'000, ']') + ", \"xxh64\": \"0\"}";
  EXPECT_THAT(message_of([&] { trainer::parse_manifest(deep, "manifest"); }),
              HasSubstr("must not nest deeper"));
}

TEST(Manifests, ADamagedVersionIsNotAnotherVersion) {
  const trainer::Manifest manifest{7, {{"model.safetensors", 5, {1, 2}}}};
  const std::string good = trainer::to_json(manifest);
  EXPECT_EQ(trainer::parse_manifest(good, "manifest").files, manifest.files);
  for (const char digit : {'0', '3', '5', '9'}) {  // one flipped bit each
    std::string flipped = good;
    flipped[flipped.find("\"version\": 1") + 11] = digit;
    try {
      trainer::parse_manifest(flipped, "manifest");
      FAIL() << digit;
    } catch (const trainer::VersionMismatch& error) {
      FAIL() << error.what();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("by its checksum"));
    }
    // Content that this version's checksum does not fit is another version's.
    flipped.replace(flipped.find("\"step\": 7"), 9, "\"step\": 8");
    EXPECT_THROW(trainer::parse_manifest(flipped, "manifest"), trainer::VersionMismatch);
  }
}

// Through the program.
class BadFiles : public testing::Test {
 protected:
  void SetUp() override {
    scratch.file("text", sample_text(4000));
    const std::string from = MESHLOOM_SOURCE_DIR "/tests/trainer/interop/models/llama";
    fs::create_directory(scratch.path("hf"));
    fs::copy(from + "/config.json", scratch.path("hf/config.json"));
  }
  void expect(const std::string& arguments, const std::vector<std::string>& words,
              const std::string& before = {}) {
    const auto start = std::chrono::steady_clock::now();
    const Outcome outcome = meshloom(arguments, "timeout 60 " + before);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30)) << arguments;
    EXPECT_EQ(outcome.code, 1) << arguments << "\n" << outcome.err;
    const std::vector<std::string> lines = outcome.errors();
    ASSERT_EQ(lines.size(), 1u) << arguments << "\n" << outcome.err;
    for (const std::string& word : words) EXPECT_THAT(lines[0], HasSubstr(word));
  }
  std::string import() const { return "import " + scratch.path("hf") + " --out " + scratch.path("out"); }
  std::string train(const std::string& data, const std::string& more = {}) const {
    return "train tiny --device cpu --steps 1 --sample 0 --out " + scratch.path("run") + " --data " + data +
           " " + more;
  }
  std::string safetensors(const std::string& header) const {
    return little_endian(static_cast<std::uint32_t>(header.size())) + std::string(4, '\0') + header;
  }
  Scratch scratch;
};

TEST_F(BadFiles, EndInOneLine) {
  scratch.file("hf/model.safetensors", safetensors("{}"));
  expect(import(), {"model.safetensors", "at least one tensor"});
  fs::rename(scratch.path("hf/model.safetensors"), scratch.path("hf/model-00001-of-00001.safetensors"));
  expect(import(), {"shards must hold at least one tensor"});
  fs::remove(scratch.path("hf/model-00001-of-00001.safetensors"));

  std::string header = "{";
  for (int i = 0; i < 100'000; ++i)
    header +=
        (i ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  scratch.file("hf/model.safetensors", safetensors(header + "}"));
  expect(import(), {"has a tensor"});

  fs::remove(scratch.path("hf/model.safetensors"));
  ASSERT_EQ(mkfifo(scratch.path("hf/model.safetensors").c_str(), 0600), 0);
  expect(import(), {"must be a file; found a pipe"});
  fs::remove(scratch.path("hf/model.safetensors"));
  fs::create_symlink("/dev/zero", scratch.path("hf/model.safetensors"));
  expect(import(), {"must be a file; found a device"});

  fs::create_directories(scratch.path("deep/step-00000001"));
  scratch.file("deep/step-00000001/manifest.json",
               "{\"format\": \"meshloom-checkpoint\", \"files\": " + std::string(200'000, '['));
  expect("generate --prompt x --checkpoint " + scratch.path("deep"),
         {"at least one must be whole", "must not nest deeper"});

  const auto with_model = [&](const std::string& model) {
    return train(scratch.path("text"),
                 "--set 'input.tokenizer=SentencePiece{model=\"" + scratch.file("m", model) + "\"}'");
  };
  expect(with_model(kPieces + piece(std::string(200'000, 'x'))), {"piece 3", "1 to 4096 bytes"});
  expect(with_model(with_table(table({{0, unit(4096, '\x01')}}, "\0"s))),
         {"precompiled_charsmap", "must not point outside"});
  expect(
      train(scratch.path("text"), "--set 'input.tokenizer=TokenizerJson{file=\"" +
                                      scratch.file("t.json", tokenizer_file(R"({"a": 16777215})")) + "\"}'"),
      {"twice the number of tokens"});
}

TEST_F(BadFiles, NoTextIsRefusedByWhatItHolds) {
  expect(train(scratch.file("rows.txt", "PAR1"s + std::string(100, '\0') + "PAR1")),
         {"data '" + scratch.path("rows.txt") + "': must be text", "read_parquet", "found a Parquet file"});
  expect(train(scratch.file("rows.json", "[{\"text\": \"a\"}]")),
         {"jq -c", "input.binary=true", "found a JSON array"});
  expect(train(scratch.file("rows.jsonl", "[{\"text\": \"a\"}]")),
         {"lines of JSON objects", "found a JSON array"});
  expect(train(scratch.path("text") + " " + scratch.file("l.txt", "caf\xe9 ole")),
         {"l.txt", "UTF-8", "byte 0xe9 at byte 3"});
  fs::create_directory(scratch.path("mixed"));
  scratch.file("mixed/a.jsonl", "{}");
  scratch.file("mixed/b.txt", "text");
  expect(train(scratch.path("mixed")), {"all be .jsonl or all be text", "a.jsonl", "b.txt"});
  expect(train("'" + scratch.path("*.none") + "'"), {"a pattern must match at least one file"});
}

TEST_F(BadFiles, NamesOnHuggingFaceSayWhatToDownload) {
  expect("train --device cpu --init HuggingFaceTB/SmolLM2-135M --data " + scratch.path("text") + " --out " +
             scratch.path("run"),
         {"--init", "hf download HuggingFaceTB/SmolLM2-135M --local-dir SmolLM2-135M",
          "meshloom import SmolLM2-135M"});
  expect("import Qwen/Qwen3-0.6B --out " + scratch.path("out"),
         {"hf download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B"});
  expect("generate --prompt x --checkpoint Qwen/Qwen3-0.6B", {"--checkpoint", "hf download Qwen/Qwen3-0.6B"});
  expect("train --device cpu --init " + scratch.path("hf") + " --data " + scratch.path("text") + " --out " +
             scratch.path("run"),
         {"meshloom import", "a Hugging Face model's directory"});
  expect(train("roneneldan/TinyStories"),
         {"datasets.load_dataset('roneneldan/TinyStories'", "TinyStories.jsonl"});
}

TEST_F(BadFiles, APipeIsReadToItsEnd) {
  const Outcome outcome =
      meshloom(train("/dev/stdin"), "(head -c 2000 " + scratch.path("text") + "; sleep 0.3; tail -c 2000 " +
                                        scratch.path("text") + ") |");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

}  // namespace
}  // namespace meshloom::tests

// Which files training data may be, and in which order they are read.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "hal/error.h"
#include "tests/message_of.h"
#include "tests/trainer/run/binary.h"
#include "trainer/data/corpus.h"
#include "trainer/data/text/file_kind.h"
#include "trainer/data/text/find_files.h"
#include "trainer/data/text/lines.h"
#include "trainer/data/text/text_files.h"
#include "trainer/io/atomic_file.h"
#include "trainer/io/file.h"
#include "trainer/io/json.h"
#include "trainer/metrics/json_lines.h"

namespace meshloom::trainer {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using tests::message_of;
using namespace std::string_literals;

std::string refusal(const std::string& text) {
  return message_of([&] { check_text(text, "the file", "data"); });
}

TEST(DataFiles, TextIsUtf8WithoutNul) {
  for (const std::string& good :
       {"plain"s, ""s, "\xef\xbb\xbf with a mark"s, "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\x8d"s,
        "tabs\tand\fpages\x1b[0m\r\n"s, "[Chapter 1] begins"s, "{ braces }"s, "PAR1 is a road, BZh is none"s,
        "GIF89a was an image format"s, "[[1]"s, "The big WAVE came \xc3\xa9"s})
    EXPECT_NO_THROW(check_text(good, "f", "data")) << good;
  EXPECT_THAT(refusal("abc\nd\xe9"
                      "f and on"),
              AllOf(HasSubstr("must be text in UTF-8"), HasSubstr("iconv"),
                    HasSubstr("byte 0xe9 at byte 5 (line 2)")));
  EXPECT_THAT(refusal("over\xc0\xaf long"), HasSubstr("byte 0xc0 at byte 4"));
  EXPECT_THAT(refusal("surrogate \xed\xa0\x80"), HasSubstr("byte 0xed at byte 10"));
  EXPECT_THAT(refusal("abcdefgh\0ij"s), HasSubstr("NUL byte at byte 8"));
  EXPECT_THAT(refusal("the end is cut \xe2\x82"), HasSubstr("where the file ends"));
  EXPECT_THAT(refusal("\xff\xfe"
                      "a\0b\0"s),
              AllOf(HasSubstr("found text in UTF-16"), HasSubstr("iconv -f UTF-16")));
}

TEST(DataFiles, OtherFormatsAreToldByWhatTheyHold) {
  const auto padded = [](std::string bytes) {
    return bytes + std::string(64, '\0') + std::string(64, '\x81');
  };
  for (const auto& [bytes, found] : std::vector<std::pair<std::string, std::string>>{
           {padded("PAR1"), "a Parquet file"},
           {padded("\x1f\x8b\x08"), "a gzip archive"},
           {padded("\x28\xb5\x2f\xfd"), "a Zstandard archive"},
           {padded("PK\x03\x04"), "a zip archive"},
           {padded("\xfd"
                   "7zXZ\0"s),
            "an xz archive"},
           {padded("BZh9"), "a bzip2 archive"},
           {"%PDF-1.4\nall text", "a PDF document"},
           {padded("\x89PNG\r\n"), "a PNG image"},
           {padded("\xff\xd8\xff\xe0"), "a JPEG image"},
           {padded("RIFF....WEBPVP8 "), "a WebP image"},
           {padded("GGUF"), "a GGUF file"},
           {padded("\x08\0\0\0\0\0\0\0{\"a\":1}"s), "a safetensors file"},
           {std::string(257, 'x') + "ustar" + std::string(99, '\0'), "a tar archive"},
           {" [{\"text\": \"a\"}, {\"text\": \"b\"}]\n", "a JSON array"},
           {"{\n \"rows\": [1, 2]\n}", "a JSON object"},
           {"{\"text\": \"a\"}\n{\"text\": \"b\"}\n", "lines of JSON objects"}}) {
    EXPECT_THAT(refusal(bytes), AllOf(HasSubstr("must be text"), HasSubstr("found " + found))) << found;
  }
  EXPECT_THAT(refusal(padded("PK\x03\x04")), HasSubstr("`unzip 'the file'`"));
}

TEST(DataFiles, OfLinesToo) {
  const tests::Scratch scratch;
  const auto opened = [&](const std::string& text) {
    const std::string path = scratch.file("f.jsonl", text);
    return message_of([&] { LineFile(path, "data"); });
  };
  EXPECT_THAT(opened("\x1f\x8b\x08"s + std::string(99, '\0')), HasSubstr("a gzip archive"));
  EXPECT_THAT(opened("[\n{\"text\": \"a\"}]"),
              AllOf(HasSubstr("lines of JSON objects"), HasSubstr("jq -c"), HasSubstr("a JSON array")));
  EXPECT_THAT(opened("{\n  \"text\": \"a\"\n}"), HasSubstr("several lines"));
  EXPECT_EQ(opened("{\"text\": \"a\"}\n"), "no error");
}

TEST(DataFiles, AnyBytesOnRequest) {
  const tests::Scratch scratch;
  const auto tokenizer = byte_tokenizer();
  std::string bytes;
  for (int i = 0; i < 5000; ++i) bytes += static_cast<char>(i * 37);
  TextFilesConfig config;
  config.files = {scratch.file("bytes", bytes)};
  EXPECT_THAT(message_of([&] { config.open(*tokenizer, 256, 8); }), HasSubstr("input.binary=true"));
  config.binary = true;
  EXPECT_EQ(config.open(*tokenizer, 256, 8)->train_tokens(), 4750);
  config.separator = "\n";
  EXPECT_NO_THROW(config.open(*tokenizer, 256, 8));
}

TEST(DataFiles, FoldersAndPatternsAreSortedByName) {
  const tests::Scratch scratch;
  const std::string root = scratch.path("d");
  fs::create_directories(root + "/b/deep");
  fs::create_directories(root + "/.git");
  for (const char* name : {"z.txt", "B.txt", "a.txt", "b/deep/1.txt", "b/2.txt", ".hidden", ".git/x"})
    scratch.file("d/"s + name, "text");
  const FoundFiles all = find_files({scratch.file("first", "text"), root});
  EXPECT_THAT(all.files, ElementsAre(scratch.path("first"), root + "/B.txt", root + "/a.txt",
                                     root + "/b/2.txt", root + "/b/deep/1.txt", root + "/z.txt"));
  EXPECT_THAT(all.notes, ElementsAre(HasSubstr("2 hidden entries")));
  EXPECT_THAT(find_files({root + "/[Ba]*.txt"}).files, ElementsAre(root + "/B.txt", root + "/a.txt"));
  EXPECT_THAT(find_files({root + "/b*"}).files, ElementsAre(root + "/b/2.txt", root + "/b/deep/1.txt"));
  scratch.file("d/real[1].txt", "text");
  EXPECT_THAT(find_files({root + "/real[1].txt"}).files, ElementsAre(root + "/real[1].txt"))
      << "a file of just this name";
  fs::create_directory(root + "/empty");
  EXPECT_THAT(message_of([&] { find_files({root + "/empty"}); }), HasSubstr("at least one file"));
  EXPECT_THAT(message_of([&] { find_files({root + "/*.csv"}); }), HasSubstr("must match at least one file"));
  scratch.file("d/c.jsonl", "{}");
  EXPECT_THAT(message_of([&] { find_files({root}); }), AllOf(HasSubstr(".jsonl"), HasSubstr("B.txt")));
  fs::create_directory_symlink(root + "/b", root + "/empty/link");
  EXPECT_THAT(message_of([&] { find_files({root + "/empty"}); }),
              HasSubstr("must contain only files and folders"));
}

TEST(DataFiles, JoinInTheirOrder) {
  const tests::Scratch scratch;
  fs::create_directory(scratch.path("d"));
  scratch.file("d/2", std::string(40, '2'));
  scratch.file("d/1", std::string(30, '1'));
  TextFilesConfig config;
  config.files = {scratch.path("d")};
  config.eval_fraction = 0;
  const auto tokenizer = byte_tokenizer();
  const auto folder = config.open(*tokenizer, 256, 8);
  config.files = {scratch.path("d/1"), scratch.path("d/2")};
  EXPECT_EQ(folder->fingerprint(), config.open(*tokenizer, 256, 8)->fingerprint());
}

TEST(DataFiles, ASlowPipeIsReadToItsEnd) {
  const tests::Scratch scratch;
  const std::string path = scratch.path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(read_stream(path, "data"), "") << "nobody writes";
  const int writer = ::open(path.c_str(), O_RDWR);
  std::thread slow([&] {
    for (const char* part : {"one ", "two ", "three"}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      EXPECT_GT(::write(writer, part, std::strlen(part)), 0);
    }
    ::close(writer);
  });
  EXPECT_EQ(read_stream(path, "data"), "one two three");
  slow.join();
  EXPECT_THAT(message_of([&] { read_file(path, "data"); }), HasSubstr("must be a file; found a pipe"));
  EXPECT_THAT(message_of([&] { LineFile(path, "data"); }), HasSubstr("must be a file; found a pipe"));
  EXPECT_THAT(message_of([&] { record_of(scratch.path(), "pipe"); }),
              HasSubstr("must be a file; found a pipe"));
}

TEST(DataFiles, SparseFilesAskForNoMemory) {
  const tests::Scratch scratch;
  fs::resize_file(scratch.file("sparse", "{"), std::uintmax_t{1} << 40);
  EXPECT_THAT(message_of([&] { read_file(scratch.path("sparse"), "file"); }),
              HasSubstr("must have at most 1073741824 bytes"));
}

TEST(DataFiles, ManyObjectsOfJsonAreReadInLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i)
    text += (i ? ",\"" : "\"") + std::to_string(i) + "\":{\"a\":[1,2],\"b\":{}}";
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(parse_json(text + "}", "file", "the file", 4).size(), 200'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - before,
            std::chrono::seconds(20));  // minutes by the library's callback
}

TEST(DataFiles, JsonKeepsItsRules) {
  const auto refused = [](const std::string& text) {
    return message_of([&] { parse_json(text, "file", "it", 3); });
  };
  EXPECT_THAT(refused("{\"a\": 1, \"b\": {\"c\": 1, \"c\": 2}}"),
              HasSubstr("must stand once in it; found 'c'"));
  EXPECT_THAT(refused("[[[[1]]]]"), HasSubstr("deeper than 3 levels"));
  EXPECT_THAT(refused("[1, 2"), HasSubstr("it must be JSON"));
  EXPECT_THAT(refused("[1] 2"), HasSubstr("it must be JSON"));
  EXPECT_THAT(refused(""), HasSubstr("it must be JSON"));
  EXPECT_THAT(refused("1e999"), HasSubstr("it must be JSON"));
  EXPECT_EQ(parse_json("{\"a\": [1, -2, 0.5, \"x\", null, true, {}], \"b\": {\"c\": []}}", "file", "it", 3),
            nlohmann::json::parse("{\"a\": [1, -2, 0.5, \"x\", null, true, {}], \"b\": {\"c\": []}}"));
  EXPECT_EQ(parse_json(" 7 ", "file", "it", 1), 7);
}

TEST(DataFiles, WholeFilesReplaceLinks) {
  const tests::Scratch scratch;
  const std::string victim = scratch.file("victim", "precious");
  for (const char* name : {"metrics.jsonl", "metrics.jsonl.tmp", "loss.svg"})
    fs::create_symlink(victim, scratch.path(name));
  write_file(scratch.path("loss.svg"), "a curve");
  { JsonLines lines(scratch.path("metrics.jsonl"), 0); }
  EXPECT_EQ(tests::read_text(victim), "precious");
  EXPECT_EQ(tests::read_text(scratch.path("loss.svg")), "a curve");
  EXPECT_FALSE(fs::is_symlink(scratch.path("metrics.jsonl")));
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), {}), 4) << "no temporary is left";
}

}  // namespace
}  // namespace meshloom::trainer

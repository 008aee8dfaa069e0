#include "trainer/data/text/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "hal/error.h"
#include "trainer/data/tokenizer/unicode.h"
#include "trainer/io/shell_word.h"

namespace meshloom::trainer {
namespace {

using namespace std::string_view_literals;

// A format and the bytes that identify it. In the advice {0} is the file's path.
struct Format {
  std::size_t at;
  std::string_view bytes, name, advice;
  bool is_text = false;  // such a file can be valid text
};

constexpr std::string_view kWeights =
    "weights are no training text: --init takes a checkpoint, `meshloom import` a model's directory";
constexpr std::string_view kNoText = "it holds no text to train on";
constexpr std::string_view kExport = "its text must be written to a text or .jsonl file first";

constexpr Format kFormats[] = {
    {0, "PAR1", "a Parquet file",
     "`python3 -c \"import sys, pandas; pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], "
     "orient='records', "
     "lines=True, force_ascii=False)\" {0} {0}.jsonl` writes its rows as .jsonl"},
    {0, "ARROW1", "an Arrow file", kExport},
    {0, "\x1f\x8b", "a gzip archive", "`gzip -dk {0}` unpacks it; --data <(zcat {0}) reads text from it"},
    {0, "\x28\xb5\x2f\xfd", "a Zstandard archive",
     "`zstd -d {0}` unpacks it; --data <(zstdcat {0}) reads text from it"},
    {0, "\xfd\x37zXZ\0"sv, "an xz archive",
     "`xz -dk {0}` unpacks it; --data <(xzcat {0}) reads text from it"},
    {0, "BZh", "a bzip2 archive", "`bzip2 -dk {0}` unpacks it; --data <(bzcat {0}) reads text from it"},
    {0, "PK\x03\x04", "a zip archive (.zip, .docx, .pt, ...)", "`unzip {0}` unpacks it"},
    {0, "7z\xbc\xaf", "a 7z archive", "`7z x {0}` unpacks it"},
    {257, "ustar", "a tar archive", "`tar -xf {0}` unpacks it; --data takes the folder"},
    {0, "%PDF-", "a PDF document", "`pdftotext {0}` writes its text", true},
    {0, "{\\rtf", "an RTF document", kExport, true},
    {0, "\xd0\xcf\x11\xe0", "an Office document", kExport},
    {0, "SQLite format 3\0"sv, "an SQLite database", kExport},
    {0, "\x89HDF", "an HDF5 file", kExport},
    {0, "\x93NUMPY", "a NumPy array", kExport},
    {0, "\x89PNG", "a PNG image", kNoText},
    {0, "\xff\xd8\xff", "a JPEG image", kNoText},
    {0, "GIF8", "a GIF image", kNoText},
    {8, "WEBP", "a WebP image", kNoText},
    {0, "II*\0"sv, "a TIFF image", kNoText},
    {0, "MM\0*"sv, "a TIFF image", kNoText},
    {8, "WAVE", "a WAV sound", kNoText},
    {0,
     "\x7f"
     "ELF",
     "a program", kNoText},
    {0, "GGUF", "a GGUF file", kWeights},
    {0, "\xff\xfe\0\0"sv, "text in UTF-32", "`iconv -f UTF-32 -t UTF-8 {0} > {0}.txt` converts it"},
    {0, "\0\0\xfe\xff"sv, "text in UTF-32", "`iconv -f UTF-32 -t UTF-8 {0} > {0}.txt` converts it"},
    {0, "\xff\xfe", "text in UTF-16", "`iconv -f UTF-16 -t UTF-8 {0} > {0}.txt` converts it"},
    {0, "\xfe\xff", "text in UTF-16", "`iconv -f UTF-16 -t UTF-8 {0} > {0}.txt` converts it"},
};

// Characters that identify another format may also begin a text: valid text is refused only when it is a
// document.
const Format* format_of(std::string_view head) {
  const std::size_t bad = first_bad_byte(head);
  const bool text = bad == std::string_view::npos || (head.size() == kHeadBytes && bad + 4 > kHeadBytes);
  for (const Format& format : kFormats)
    if (head.size() >= format.at && head.substr(format.at).starts_with(format.bytes) &&
        (!text || format.is_text))
      return &format;
  return nullptr;
}

// A safetensors file begins with eight bytes of length and a JSON object.
bool is_safetensors(std::string_view head) {
  if (head.size() < 10 || head[8] != '{') return false;
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(head[i]);
  return length >= 2 && length <= 100'000'000;
}

[[noreturn]] void refuse(const std::string& where, const std::string& what, std::string_view advice,
                         const std::string& path, const std::string& found) {
  std::string words(advice);
  const std::string name = shell_word(path);
  for (std::size_t at = 0; (at = words.find("{0}", at)) != std::string::npos; at += name.size())
    words.replace(at, 3, name);
  throw Error(where, what + (words.empty() ? "" : "; " + words), found);
}

void refuse_known_format(std::string_view head, const std::string& what, const std::string& path,
                         const std::string& where) {
  if (const Format* format = format_of(head))
    refuse(where, what, format->advice, path, std::string(format->name));
  if (is_safetensors(head)) refuse(where, what, kWeights, path, "a safetensors file");
}

constexpr std::string_view kSpace = " \t\r\n\v\f";

std::string_view without_mark(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text;
}

constexpr std::string_view kArrayAdvice =
    "`jq -c '.[]' {0} > {0}.jsonl` writes each element on a line of a .jsonl file";

// Returns the first line that is not blank.
std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

bool is_json(std::string_view text) { return nlohmann::json::accept(text.begin(), text.end()); }

void refuse_json(std::string_view text, const std::string& path, const std::string& where) {
  constexpr const char* kRule = "must be text; input.binary=true takes it as it is";
  text = without_mark(text);
  if (text.empty() || (text.front() != '{' && text.front() != '[')) return;
  // A whole JSON value is checked first: an object on one line is both.
  if (is_json(text))
    refuse(where, kRule,
           text.front() == '['
               ? kArrayAdvice
               : "`jq -c '.FIELD[]' {0} > {0}.jsonl` writes the examples in its list FIELD as .jsonl",
           path, text.front() == '[' ? "a JSON array" : "a JSON object");
  const std::string_view line = first_line(text), rest = without_mark(text.substr(line.size()));
  if (line.starts_with('{') && rest.starts_with('{') && is_json(line) && is_json(first_line(rest)))
    refuse(where, kRule,
           "JsonlFiles reads lines of JSON from files whose names end in .jsonl: `mv {0} {0}.jsonl`", path,
           "lines of JSON objects");
}

}  // namespace

void check_text(std::string_view text, const std::string& path, const std::string& where) {
  const std::string_view head = text.substr(0, kHeadBytes);
  refuse_known_format(head, "must be text", path, where);
  if (const std::size_t bad = first_bad_byte(text); bad != std::string_view::npos) {
    const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(bad), '\n') + 1;
    const auto byte = static_cast<unsigned char>(text[bad]);
    const std::string place = fmt::format("at byte {} (line {})", bad, line);
    if (byte == 0)
      refuse(where, "must be text, without NUL bytes; input.binary=true takes it as it is", "", path,
             "a NUL byte " + place);
    refuse(
        where, "must be text in UTF-8; input.binary=true takes it as it is",
        "`iconv -f LATIN1 -t UTF-8 {0} > {0}.txt` converts Latin-1", path,
        fmt::format("byte 0x{:02x} {}{}", byte, place, text.size() - bad < 4 ? ", where the file ends" : ""));
  }
  refuse_json(text, path, where);
}

void check_lines_of_json(std::string_view head, const std::string& path, const std::string& where) {
  constexpr const char* kRule = "must be lines of JSON objects";
  refuse_known_format(head, kRule, path, where);
  if (without_mark(head).starts_with('[')) refuse(where, kRule, kArrayAdvice, path, "a JSON array");
  const std::string_view line = without_mark(first_line(without_mark(head)));
  if (line.substr(0, line.find_last_not_of(kSpace) + 1) == "{")
    refuse(where, kRule, "`jq -c . {0} > {0}.jsonl` writes each object on one line", path,
           "an object on several lines");
}

}  // namespace meshloom::trainer

#include "bench/plans/runs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "bench/plans/chips.h"
#include "hal/error.h"
#include "trainer/io/json.h"

namespace meshloom::bench {
namespace {

constexpr std::array kColumns = {"source",      "model",
                                 "n_params",    "layers",
                                 "d_model",     "heads",
                                 "head_dim",    "kv_heads",
                                 "ffn",         "mlp_gated",
                                 "vocab",       "seq",
                                 "moe",         "chips",
                                 "chip_type",   "dp",
                                 "fsdp",        "tp",
                                 "pp",          "cp",
                                 "ep",          "vp",
                                 "sharding",    "micro_batch",
                                 "grad_accum",  "global_batch_seqs",
                                 "precision",   "remat",
                                 "step_time_s", "peak_mem_gib",
                                 "grade"};
constexpr double kMaxNumber = 1e15;

struct Field {
  std::string text;
  int line = 1, column = 1;  // where it begins, in characters
};

// The fields of all records. Empty lines are none.
class Csv {
 public:
  Csv(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  std::vector<std::vector<Field>> records() {
    std::vector<std::vector<Field>> all;
    while (at_ < text_.size()) {
      std::vector<Field> record = next();
      if (record.size() > 1 || !record[0].text.empty()) all.push_back(std::move(record));
    }
    return all;
  }

 private:
  std::vector<Field> next() {
    std::vector<Field> record;
    for (;;) {
      record.push_back(field());
      if (at_ < text_.size() && text_[at_] == ',') {
        take();
        continue;
      }
      if (at_ < text_.size() && text_[at_] == '\r') take();
      if (at_ < text_.size() && text_[at_] != '\n')
        throw Error(place(line_, column_), "a comma or the end of the line must follow a field",
                    "'" + trainer::shown(text_.substr(at_, 1)) + "'");
      if (at_ < text_.size()) take();
      return record;
    }
  }

  Field field() {
    Field field{{}, line_, column_};
    if (at_ < text_.size() && text_[at_] == '"') {
      take();
      for (;;) {
        if (at_ == text_.size())
          throw Error(place(field.line, field.column), "a quoted field must end with a quote",
                      "the end of the file");
        const char c = take();
        if (c == '"') {
          if (at_ == text_.size() || text_[at_] != '"') return field;
          take();
        }
        field.text += c;
      }
    }
    while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n' && text_[at_] != '\r')
      field.text += take();
    return field;
  }

  char take() {
    const char c = text_[at_++];
    ++column_;
    if (c == '\n') {
      ++line_;
      column_ = 1;
    }
    return c;
  }

  std::string place(int line, int column) const {
    return name_ + ":" + std::to_string(line) + ":" + std::to_string(column);
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
  int line_ = 1, column_ = 1;
};

// One record by the names of its columns.
class Row {
 public:
  Row(const std::vector<Field>& fields, const std::map<std::string, std::size_t>& columns,
      const std::string& name)
      : fields_(fields), columns_(columns), name_(name) {}

  const std::string& text(const std::string& column) const { return field(column).text; }

  std::string required(const std::string& column) const {
    if (text(column).empty()) fail(column, "must not be empty");
    return text(column);
  }

  // 0 where the field is empty.
  double number(const std::string& column) const {
    const std::string& text = field(column).text;
    if (text.empty()) return 0;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= kMaxNumber))
      fail(column, "must be a number from 0 to 1e15");
    return value;
  }
  double positive(const std::string& column) const {
    const double value = number(column);
    if (value <= 0) fail(column, "must be a number above 0");
    return value;
  }
  std::int64_t integer(const std::string& column) const {
    const double value = number(column);
    if (value != std::floor(value)) fail(column, "must be an integer");
    return static_cast<std::int64_t>(value);
  }
  std::int64_t size(const std::string& column, std::int64_t most) const {
    const std::int64_t value = integer(column);
    if (value < 1 || value > most) fail(column, "must be an integer from 1 to " + std::to_string(most));
    return value;
  }
  // 1 where the field is empty, or 0 as some tables write it.
  std::int64_t degree(const std::string& column) const { return std::max<std::int64_t>(1, integer(column)); }

  [[noreturn]] void fail(const std::string& column, const std::string& rule) const {
    const Field& found = field(column);
    throw Error(
        name_ + ":" + std::to_string(found.line) + ":" + std::to_string(found.column) + ", column " + column,
        rule, "'" + trainer::shown(found.text) + "'");
  }

 private:
  const Field& field(const std::string& column) const { return fields_[columns_.at(column)]; }

  const std::vector<Field>& fields_;
  const std::map<std::string, std::size_t>& columns_;
  const std::string& name_;
};

// "128e top8 (...)"
void set_experts(PublishedRun& run, const Row& row) {
  const std::string& text = row.text("moe");
  if (text.empty()) return;
  const char *at = text.data(), *end = text.data() + text.size();
  const std::string_view between = "e top";
  auto read = std::from_chars(at, end, run.experts);
  if (read.ec == std::errc() && std::string_view(read.ptr, end).starts_with(between)) {
    read = std::from_chars(read.ptr + between.size(), end, run.top_k);
    if (read.ec == std::errc() && run.top_k >= 1 && run.experts >= run.top_k && run.experts <= 65536 &&
        (read.ptr == end || *read.ptr == ' '))
      return;
  }
  row.fail("moe", "must be empty, or experts and how many a token goes to, such as '128e top8'");
}

void set_degrees(PublishedRun& run, const Row& row) {
  run.tensor = row.degree("tp");
  run.pipeline = row.degree("pp");
  run.context = row.degree("cp");
  run.expert = row.degree("ep");
  run.virtual_stages = row.degree("vp");
  const std::int64_t fsdp = row.degree("fsdp");
  if (run.tensor > run.chips || run.pipeline > run.chips || run.context > run.chips ||
      run.chips % (run.tensor * run.pipeline) != 0 ||
      run.chips / (run.tensor * run.pipeline) % run.context != 0)
    row.fail("chips", "must be a multiple of tp x pp x cp");
  const std::int64_t copies = run.chips / (run.tensor * run.pipeline) / run.context;
  run.fsdp = fsdp > 1 ? fsdp : run.sharding.find("FSDP") != std::string::npos ? copies : 1;
  if (copies % run.fsdp != 0)
    row.fail("fsdp", "must divide the " + std::to_string(copies) + " ranks beside tp, pp and cp");
  run.data = copies / run.fsdp;
}

// Tables give the micro-batch of a rank, of a chip, or not at all.
void set_batches(PublishedRun& run, const Row& row) {
  const std::int64_t global = row.size("global_batch_seqs", 1 << 30);
  if (global % run.copies() != 0)
    row.fail("global_batch_seqs",
             "must be a multiple of the " + std::to_string(run.copies()) + " ranks with rows of their own");
  const std::int64_t rows = global / run.copies(), stated = row.integer("micro_batch"),
                     steps = row.integer("grad_accum");
  std::int64_t micro = stated;
  if (steps > 0)
    micro = rows / steps;
  else if (stated == 0)
    micro = run.pipeline > 1 ? 1 : std::min<std::int64_t>(rows, 4);  // not said
  else if (stated * run.chips == global && run.pipeline == 1)
    micro = rows;  // of a chip
  else if (stated == rows && run.pipeline > 1)
    micro = 1;  // what one rank has in a step, which a pipeline divides
  micro = std::clamp<std::int64_t>(micro, 1, rows);
  while (rows % micro != 0) --micro;
  run.micro_batch = micro;
  run.accumulation = rows / micro;
}

PublishedRun run_of(const Row& row) {
  PublishedRun run;
  run.source = row.required("source");
  run.model = row.text("model");
  run.chip = row.required("chip_type");
  if (!find_chip(run.chip)) row.fail("chip_type", "must begin with one of " + known_chips());
  run.sharding = row.text("sharding");
  run.precision = row.required("precision");
  run.remat = row.text("remat");
  run.grade = row.text("grade");
  run.layers = row.size("layers", 10000);
  run.d_model = row.size("d_model", 1 << 20);
  run.heads = row.size("heads", 1 << 16);
  run.kv_heads = row.text("kv_heads").empty() ? run.heads : row.size("kv_heads", run.heads);
  if (run.heads % run.kv_heads != 0) row.fail("kv_heads", "must divide the heads");
  run.head_dim = row.text("head_dim").empty() ? run.d_model / run.heads : row.size("head_dim", 1 << 14);
  run.ffn = row.size("ffn", 1 << 22);
  run.vocab = row.size("vocab", 1 << 26);
  run.sequence = row.size("seq", 1 << 26);
  run.parameters = row.number("n_params");
  const std::int64_t gated = row.integer("mlp_gated");
  if (gated > 1) row.fail("mlp_gated", "must be 0 or 1");
  run.gated = gated == 1;
  run.chips = row.size("chips", 1 << 24);
  run.seconds = row.positive("step_time_s");
  run.peak_gib = row.number("peak_mem_gib");
  set_experts(run, row);
  set_degrees(run, row);
  set_batches(run, row);
  return run;
}

}  // namespace

bool PublishedRun::fp8() const {
  return precision.find("fp8") != std::string::npos || precision.find("FP8") != std::string::npos;
}

std::vector<PublishedRun> parse_published_runs(std::string_view csv, const std::string& name) {
  if (csv.starts_with("\xEF\xBB\xBF")) csv.remove_prefix(3);
  const std::vector<std::vector<Field>> records = Csv(csv, name).records();
  if (records.empty()) throw Error(name + ":1:1", "must begin with the names of the columns", "nothing");
  std::map<std::string, std::size_t> columns;
  for (std::size_t i = 0; i < records[0].size(); ++i)
    if (!columns.emplace(records[0][i].text, i).second)
      throw Error(name + ":1:" + std::to_string(records[0][i].column), "a column must have a name of its own",
                  "'" + trainer::shown(records[0][i].text) + "' twice");
  for (const char* column : kColumns)
    if (!columns.count(column))
      throw Error(name + ":1:1", "must have the column " + std::string(column), "none of this name");
  std::vector<PublishedRun> runs;
  for (std::size_t i = 1; i < records.size(); ++i) {
    if (records[i].size() != records[0].size())
      throw Error(
          name + ":" + std::to_string(records[i][0].line) + ":" + std::to_string(records[i].back().column),
          "a row must have " + std::to_string(records[0].size()) + " fields, as the first line has",
          std::to_string(records[i].size()));
    runs.push_back(run_of(Row(records[i], columns, name)));
    runs.back().line = records[i][0].line;
  }
  if (runs.empty()) throw Error(name + ":2:1", "must have a row below the names of the columns", "nothing");
  return runs;
}

}  // namespace meshloom::bench

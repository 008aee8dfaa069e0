#include "bench/core/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "bench/core/table.h"
#include "bench/measure/clock.h"
#include "bench/measure/statistics.h"
#include "hal/error.h"
#include "hal/math.h"
#include "kernels/collective/reference.h"
#include "trainer/execute/exchange.h"
#include "trainer/io/units.h"

namespace meshloom::bench {
namespace {

namespace collective = kernels::collective;
using collective::Bytes;
using collective::Move;

constexpr int kBatches = 5, kBurst = 16;
const std::vector<std::string> kOps{"all_gather", "all_to_all", "reduce_scatter", "shift"};

// The size, or the next above it of which every rank can have an equal number of floats.
std::int64_t whole_floats(std::int64_t bytes, int ranks) {
  return hal::round_up(bytes, static_cast<std::int64_t>(sizeof(float)) * ranks);
}

std::vector<Move> moves_of(const std::string& op, std::int64_t bytes, int ranks, int rank) {
  const std::vector<std::int64_t> sizes(static_cast<std::size_t>(ranks), bytes);
  if (op == "all_gather") return collective::all_gather(sizes, rank);
  if (op == "shift") return collective::shift(sizes, 1, rank);
  const std::vector<std::int64_t> parts(static_cast<std::size_t>(ranks * ranks), bytes / ranks);
  return collective::all_to_all(parts, ranks, rank);
}

// Floats that differ from rank to rank, of which sums in different orders differ.
Bytes input_of(std::int64_t bytes, int rank) {
  std::vector<float> values(static_cast<std::size_t>(bytes) / sizeof(float));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 1.0f / static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 1009 + 3);
  Bytes input(values.size() * sizeof(float));
  std::memcpy(input.data(), values.data(), input.size());
  return input;
}

std::span<const float> floats(const Bytes& bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

Bytes reference_of(const std::string& op, std::int64_t bytes, int ranks, int rank) {
  std::vector<Bytes> inputs;
  for (int each = 0; each < ranks; ++each) inputs.push_back(input_of(bytes, each));
  const auto own = static_cast<std::size_t>(rank);
  if (op == "all_gather") return collective::all_gather_reference(inputs)[own];
  if (op == "shift") return collective::shift_reference(inputs, 1)[own];
  const std::vector<std::int64_t> parts(static_cast<std::size_t>(ranks * ranks), bytes / ranks);
  if (op == "all_to_all") return collective::all_to_all_reference(inputs, parts)[own];
  Bytes result(static_cast<std::size_t>(bytes / ranks));
  auto* sums = reinterpret_cast<float*>(result.data());
  const std::size_t count = result.size() / sizeof(float);
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] = floats(inputs[0])[own * count + i];
    for (std::size_t other = 1; other < inputs.size(); ++other)
      sums[i] += floats(inputs[other])[own * count + i];
  }
  return result;
}

// One rank of the measurement. Every rank calls the same functions in the same order.
class Measuring {
 public:
  Measuring(hal::Transport& transport, const CollectivesOptions& options, CollectivesReport& report)
      : transport_(transport), options_(options), report_(report), group_(trainer::all_ranks(transport)) {}

  void run() {
    std::vector<std::int64_t> link_sizes;
    const std::int64_t largest =
        std::min(*std::max_element(options_.sizes.begin(), options_.sizes.end()), hal::kMaxMessageBytes);
    for (std::int64_t bytes = 8; bytes < largest; bytes *= 8) link_sizes.push_back(bytes);
    link_sizes.push_back(std::max<std::int64_t>(largest, 64));
    const int total = static_cast<int>(link_sizes.size() + kOps.size() * options_.sizes.size());
    int done = 0;
    const int other = far_rank();
    report_.between = transport_.name(0) + " and " + transport_.name(other);
    double round_trip = 0;
    for (const std::int64_t bytes : link_sizes) {
      if (!go_on(done++, total, "link")) return;
      const double seconds = ping_pong(other, bytes, 1);
      if (round_trip == 0) round_trip = seconds;
      report_.points.push_back({bytes, seconds / 2});
    }
    const double gap = (ping_pong(other, link_sizes.front(), kBurst) - round_trip) / (kBurst - 1);
    if (transport_.rank() == 0) {
      report_.fit = fit_link(report_.points);
      report_.fit.gap = std::max(0.0, gap);
    }
    for (const std::string& op : kOps)
      for (const std::int64_t bytes : options_.sizes) {
        if (!go_on(done++, total, op)) return;
        report_.rows.push_back(measure(op, whole_floats(bytes, transport_.size())));
      }
  }

 private:
  int far_rank() const {
    for (int rank = 1; rank < transport_.size(); ++rank)
      if (transport_.peer(rank).node != transport_.peer(0).node) return rank;
    return 1;
  }

  void exchange(const std::vector<Move>& moves, std::span<std::byte> input, std::span<std::byte> output,
                const std::string& op, double patience) {
    const std::span<std::byte> tensors[] = {input, output};
    trainer::exchange(transport_, group_, moves, tensors, {0, op, "bench"}, patience);
  }

  // The values of all ranks; also a barrier.
  std::vector<double> gathered(double value) { return gathered(value, options_.patience); }
  std::vector<double> gathered(double value, double patience) {
    const std::vector<std::int64_t> sizes(group_.size(), sizeof(double));
    std::vector<double> all(group_.size());
    exchange(collective::all_gather(sizes, transport_.rank()), std::as_writable_bytes(std::span(&value, 1)),
             std::as_writable_bytes(std::span(all)), "gathered", patience);
    return all;
  }
  // The value of rank 0.
  double agreed(double value) { return gathered(value)[0]; }

  bool go_on(int done, int total, const std::string& what) {
    const bool own = transport_.rank() != 0 || !options_.stopped || !options_.stopped();
    report_.stopped = agreed(own ? 1 : 0) == 0;
    if (!report_.stopped && transport_.rank() == 0 && options_.progress) options_.progress(done, total, what);
    return !report_.stopped;
  }

  // Samples of the seconds of one call, each over `calls` of them; the slowest rank counts. The median. A rank that is
  // idle meanwhile waits for longer than the others, which know who is silent.
  template <typename Call>
  double sampled(const Call& call, bool idle = false) {
    const double patience = idle ? 1000 * options_.patience : options_.patience;
    const auto batch = [&](int calls) {
      gathered(0, patience);
      const double own = time([&] {
        for (int i = 0; i < calls; ++i) call();
      });
      const std::vector<double> all = gathered(own / calls, patience);
      return *std::max_element(all.begin(), all.end());
    };
    batch(1);  // memory is touched for the first time
    const double once = gathered(batch(1), patience)[0];
    const int calls = static_cast<int>(std::clamp(options_.seconds / kBatches / once, 1.0, 1000.0));
    std::vector<double> samples;
    for (int i = 0; i < kBatches; ++i) samples.push_back(batch(calls));
    return median(samples);
  }

  // The seconds of a round trip: `messages` messages there at once, and one back.
  double ping_pong(int other, std::int64_t bytes, int messages) {
    const int rank = transport_.rank();
    const std::int64_t all = bytes * messages;
    Bytes there(static_cast<std::size_t>(all)), back(static_cast<std::size_t>(bytes));
    const trainer::Group pair{0, other};
    std::vector<Move> out, in;  // of the one that begins
    for (int i = 0; i < messages; ++i) out.push_back({1, true, 0, i * bytes, bytes});
    in.push_back({1, false, 1, 0, bytes});
    const std::span<std::byte> tensors[] = {there, back};
    const auto reversed = [](std::vector<Move> moves) {
      for (Move& move : moves) {
        move.peer = 0;
        move.out = !move.out;
      }
      return moves;
    };
    const std::vector<Move> receives = reversed(out), sends = reversed(in);
    const auto walk = [&](const std::vector<Move>& moves) {
      trainer::exchange(transport_, pair, moves, tensors, {1, "ping_pong", "bench"}, options_.patience);
    };
    return sampled(
        [&] {
          if (rank == 0) {
            walk(out);
            walk(in);
          } else if (rank == other) {
            walk(receives);
            walk(sends);
          }
        },
        rank != 0 && rank != other);
  }

  CollectiveRow measure(const std::string& op, std::int64_t bytes) {
    const int ranks = transport_.size(), rank = transport_.rank();
    std::vector<std::vector<Move>> lists;
    for (int each = 0; each < ranks; ++each) lists.push_back(moves_of(op, bytes, ranks, each));
    const std::vector<Move>& moves = lists[static_cast<std::size_t>(rank)];
    Bytes input = input_of(bytes, rank);
    Bytes output(static_cast<std::size_t>(collective::tensor_bytes(moves, collective::kOutput)));
    const bool adds = op == "reduce_scatter";
    std::vector<float> sum(adds ? output.size() / sizeof(float) / group_.size() : 0);
    CollectiveRow row;
    row.op = op;
    row.bytes = bytes;
    row.moved = collective::moved_bytes(moves, rank, true);
    row.seconds = sampled([&] {
      exchange(moves, input, output, op, options_.patience);
      if (adds) trainer::sum_in_order(floats(output), ranks, sum);
    });
    row.predicted = predicted_seconds(report_.fit, lists);
    const auto* held = adds ? reinterpret_cast<const std::byte*>(sum.data()) : output.data();
    const Bytes wanted = reference_of(op, bytes, ranks, rank);
    const bool wrong = !std::equal(wanted.begin(), wanted.end(), held);
    for (const double each : gathered(wrong ? 1 : 0)) row.wrong |= each != 0;
    return row;
  }

  hal::Transport& transport_;
  const CollectivesOptions& options_;
  CollectivesReport& report_;
  const trainer::Group group_;
};

std::string rate_text(double bytes_per_second) {
  return bytes_per_second > 0 ? fmt::format("{:.4g} MB/s", bytes_per_second * 1e-6) : "no limit";
}

}  // namespace

LinkFit fit_link(const std::vector<LinkPoint>& points) {
  // t = alpha + bytes x, with weights 1 / t^2.
  double w = 0, wb = 0, wbb = 0, wt = 0, wbt = 0;
  for (const LinkPoint& point : points) {
    const double weight = 1 / (point.seconds * point.seconds), bytes = static_cast<double>(point.bytes);
    w += weight;
    wb += weight * bytes;
    wbb += weight * bytes * bytes;
    wt += weight * point.seconds;
    wbt += weight * bytes * point.seconds;
  }
  const double determinant = w * wbb - wb * wb;
  if (!(determinant > 0))
    throw Error("the fit of a link", "needs points of two sizes", std::to_string(points.size()));
  double alpha = (wbb * wt - wb * wbt) / determinant, per_byte = (w * wbt - wb * wt) / determinant;
  if (alpha < 0) {
    alpha = 0;
    per_byte = wbt / wbb;
  } else if (per_byte < 0) {
    per_byte = 0;
    alpha = wt / w;
  }
  return {alpha, 0, per_byte > 0 ? 1 / per_byte : 0};
}

double predicted_seconds(const LinkFit& link, std::span<const std::vector<Move>> lists) {
  std::int64_t max_messages = 0, max_bytes = 0;
  for (std::size_t place = 0; place < lists.size(); ++place)
    for (const bool out : {true, false}) {
      std::int64_t messages = 0;
      for (const Move& move : lists[place])
        if (move.out == out && move.peer != static_cast<int>(place))
          messages += hal::ceil_div(move.bytes, hal::kMaxMessageBytes);
      max_messages = std::max(max_messages, messages);
      max_bytes = std::max(max_bytes, collective::moved_bytes(lists[place], static_cast<int>(place), out));
    }
  if (max_messages == 0) return 0;
  return link.alpha + static_cast<double>(max_messages - 1) * link.gap +
         (link.bandwidth > 0 ? static_cast<double>(max_bytes) / link.bandwidth : 0);
}

void measure_collectives(hal::Transport& transport, const CollectivesOptions& options,
                         CollectivesReport& report) {
  if (transport.size() < 2) throw Error("bench collectives", "needs at least two ranks", "one");
  if (options.sizes.empty()) throw Error("bench collectives", "needs a size", "none");
  Measuring(transport, options, report).run();
}

std::string to_text(const CollectivesReport& report) {
  std::string text;
  for (const auto& [name, value] : report.header.fields) text += fmt::format("{:<10} {}\n", name, value);
  text += fmt::format("ranks      {}\n", report.over);
  if (!report.link.empty()) text += fmt::format("emulated   {}\n", report.link);
  text += fmt::format("\nlink between {}\n\n", report.between);
  std::vector<std::vector<std::string>> rows{{"bytes", "one way", "fitted", "rate"}};
  for (const LinkPoint& point : report.points) {
    const auto bytes = static_cast<double>(point.bytes);
    const double fitted = report.fit.alpha + (report.fit.bandwidth > 0 ? bytes / report.fit.bandwidth : 0);
    rows.push_back({trainer::bytes_text(bytes), seconds_text(point.seconds), seconds_text(fitted),
                    rate_text(bytes / point.seconds)});
  }
  text += table(rows, {false, false, false, false});
  text += fmt::format("\nalpha {}, gap {}, bandwidth {}\n\n", seconds_text(report.fit.alpha),
                      seconds_text(report.fit.gap), rate_text(report.fit.bandwidth));
  rows = {{"collective", "input", "moved", "took", "predicted", "error", "rate", "check"}};
  for (const CollectiveRow& row : report.rows)
    rows.push_back({row.op, trainer::bytes_text(static_cast<double>(row.bytes)),
                    trainer::bytes_text(static_cast<double>(row.moved)), seconds_text(row.seconds),
                    seconds_text(row.predicted),
                    fmt::format("{:+.0f}%", 100 * (row.predicted / row.seconds - 1)),
                    rate_text(static_cast<double>(row.moved) / row.seconds), row.wrong ? "WRONG" : "ok"});
  if (rows.size() > 1) text += table(rows, {true, false, false, false, false, false, false, true});
  if (report.stopped) text += "stopped: rows are missing\n";
  return text;
}

std::string to_json(const CollectivesReport& report) {
  nlohmann::ordered_json json;
  json["schema"] = "meshloom-collectives/1";
  for (const auto& [name, text] : report.header.fields) json["header"][name] = text;
  json["ranks"] = report.over;
  json["emulated"] = report.link;
  json["link"] = {{"between", report.between},
                  {"alpha_seconds", report.fit.alpha},
                  {"gap_seconds", report.fit.gap},
                  {"bytes_per_second", report.fit.bandwidth}};
  json["link"]["points"] = nlohmann::ordered_json::array();
  for (const LinkPoint& point : report.points)
    json["link"]["points"].push_back({{"bytes", point.bytes}, {"seconds", point.seconds}});
  json["collectives"] = nlohmann::ordered_json::array();
  for (const CollectiveRow& row : report.rows)
    json["collectives"].push_back({{"op", row.op},
                                   {"input_bytes", row.bytes},
                                   {"moved_bytes", row.moved},
                                   {"seconds", row.seconds},
                                   {"predicted_seconds", row.predicted},
                                   {"check", row.wrong ? "wrong" : "ok"}});
  json["stopped"] = report.stopped;
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace meshloom::bench

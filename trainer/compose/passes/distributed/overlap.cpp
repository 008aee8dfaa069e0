#include "trainer/compose/passes/distributed/overlap.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trainer/compose/graph.h"
#include "trainer/compose/passes/memory/remat.h"
#include "trainer/mesh/topology.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::Phase;
using kernels::Program;
using kernels::ValueId;

// Times are numbers of calls in the program's order; what is put between two calls has a fraction.
constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kStart = 0.5, kEnd = 0.25;  // before the call in front of which moves start or end
constexpr double kLater = 1.0 / 4096;

// Collectives that start and end together.
struct Bucket {
  std::vector<std::size_t> members;
  bool early = false;
  double start = -1, end = 0;
};

class Overlap {
 public:
  Overlap(Program& program, const kernels::Catalog& catalog)
      : program_(program),
        catalog_(catalog),
        graph_(program),
        roots_(view_roots(program, catalog)),
        count_(program.calls.size()),
        owners_(std::any_of(program.calls.begin(), program.calls.end(),
                            [](const Call& call) { return call.op == "gather_to"; })) {}

  void run() {
    find_regions();
    find_early();
    find_late();
    find_hazards();
    find_levels();
    fill_buckets();
    settle();
    emit();
  }

 private:
  const Call& call(std::size_t i) const { return program_.calls[i]; }
  bool moves(std::size_t i) const { return catalog_.contract(call(i).op).moves != nullptr; }
  // The programs of stages of a pipeline differ, and so do the updates of ranks that own parameters: what they have in common keeps
  // its order only where nothing is moved.
  bool stays(std::size_t i) const {
    return axes_from_string(call(i).attrs.text("axes")).has(AxisName::pipeline) ||
           (owners_ && call(i).phase == Phase::update);
  }
  bool view(std::size_t i) const { return catalog_.contract(call(i).op).view; }

  // Runs of calls of one region and one direction. Copies that an update makes ahead of its time belong to the run around them.
  void find_regions() {
    std::size_t update = count_;
    while (update > 0 && call(update - 1).phase == Phase::update) --update;
    std::pair<std::string, int> last;
    for (std::size_t i = 0; i < count_; ++i) {
      const Phase phase = call(i).phase;
      if (i >= update || phase != Phase::update) {
        const std::pair key{region_of(call(i).path), phase == Phase::forward ? 0 : i >= update ? 2 : 1};
        if (begins_.empty() || key != last) begins_.push_back(static_cast<double>(i));
        last = key;
      } else if (begins_.empty()) {
        begins_.push_back(0);
      }
      region_.push_back(begins_.size() - 1);
    }
  }

  double begin_of(std::size_t region) const { return region < begins_.size() ? begins_[region] : kNever; }

  // Values that cost next to nothing to make of what is known when the program begins, and collectives of them.
  void find_early() {
    std::vector<char> known(program_.values.size(), 0);
    for (const ValueId id : program_.inputs) known[at(id)] = 1;
    for (std::size_t i = 0; i < count_; ++i) {
      const bool all = std::all_of(call(i).inputs.begin(), call(i).inputs.end(),
                                   [&](ValueId id) { return known[at(id)] != 0; });
      early_.push_back(all && moves(i) && !stays(i));
      if (!all || !(view(i) || call(i).op == "cast" || call(i).op == "slice_features")) continue;
      for (const ValueId id : call(i).outputs) known[at(id)] = 1;
    }
  }

  // Calls of the backward pass that only lead to the update, and cost little: they may wait. deadline_ is the first call that
  // needs what a call leads to through calls that may wait.
  void find_late() {
    late_.assign(count_, 0);
    deadline_.assign(count_, kNever);
    std::vector<char> waits(count_, 0);  // all its readers may wait, or belong to the update
    for (std::size_t i = count_; i-- > 0;) {
      waits[i] = 1;
      for (const ValueId id : call(i).outputs)
        for (const int r : graph_.readers_of(id)) {
          const std::size_t reader = at(r);
          const bool follows = late_[reader] || view(reader);
          deadline_[i] = std::min(deadline_[i], follows ? deadline_[reader] : static_cast<double>(r));
          waits[i] = waits[i] && (call(reader).phase == Phase::update || (follows && waits[reader]));
        }
      late_[i] = waits[i] && call(i).phase == Phase::backward &&
                 ((moves(i) && !stays(i)) || view(i) || costs_little(i));
    }
  }

  bool costs_little(std::size_t i) const {
    const std::string& op = call(i).op;
    return op == "reduce_sum" || op == "cast" || op == "elementwise" || op == "dequantize_rows" ||
           (op == "slice_features" && call(i).attrs.integer("group") > 1);  // a sum of rows
  }

  // By call, the calls that read what it overwrites.
  void find_hazards() {
    std::map<ValueId, std::vector<ValueId>> views;
    for (std::size_t v = 0; v < roots_.size(); ++v) views[roots_[v]].push_back(static_cast<ValueId>(v));
    readers_before_.resize(count_);
    for (const kernels::Donation& donation : program_.donations) {
      const int writer = graph_.definition_of(donation.output);
      if (writer < 0) continue;
      for (const ValueId id : views[roots_[at(donation.input)]])
        for (const int reader : graph_.readers_of(id))
          if (reader != writer) readers_before_[at(writer)].push_back(at(reader));
    }
  }

  // How many collectives must end before a call, and how many of those that may wait.
  void find_levels() {
    for (std::size_t i = 0; i < count_; ++i) {
      int level = 0, late = 0;
      const auto behind = [&](std::size_t other) {
        level = std::max(level, level_[other] + (moves(other) ? 1 : 0));
        late = std::max(late, late_level_[other] + (moves(other) && late_[other] ? 1 : 0));
      };
      for (const ValueId id : call(i).inputs)
        if (const int definition = graph_.definition_of(id); definition >= 0) behind(at(definition));
      for (const std::size_t reader : readers_before_[i]) behind(reader);
      level_.push_back(level);
      late_level_.push_back(late);
    }
  }

  double last_input(std::size_t i) const {
    int last = -1;
    for (const ValueId id : call(i).inputs) last = std::max(last, graph_.definition_of(id));
    return last;
  }

  void fill_buckets() {
    time_.resize(count_);
    for (std::size_t i = 0; i < count_; ++i)
      // A gradient is added to the sum of micro-batches as soon as it is known, so that not all are kept at once.
      time_[i] =
          late_[i] && call(i).op == "elementwise" ? std::max(0.0, last_input(i)) : static_cast<double>(i);
    bucket_of_.assign(count_, -1);
    // Collectives of one level do not wait for each other.
    std::map<std::tuple<std::size_t, std::string, std::string, int, bool, bool>, int> open;
    for (std::size_t i = 0; i < count_; ++i) {
      if (!moves(i)) continue;
      const bool early = early_[i] != 0, late = late_[i] != 0 && !early;
      Bucket own{{i}, early};
      own.end = deadline_[i] == kNever ? static_cast<double>(count_) : deadline_[i] - kEnd;
      own.start = early ? 0 : last_input(i);
      if (late)
        own.end =
            std::min(own.end, begin_of(region_[i] + 2 + static_cast<std::size_t>(late_level_[i])) - kEnd);
      if (stays(i)) {
        own.end = static_cast<double>(i);
        own.start = own.end - kLater;
        bucket_of_[i] = static_cast<int>(buckets_.size());
        buckets_.push_back(std::move(own));
        continue;
      }
      const auto [found, fresh] =
          open.emplace(std::tuple{region_[i], call(i).op, call(i).attrs.text("axes"), level_[i], early, late},
                       static_cast<int>(buckets_.size()));
      if (!fresh) {
        Bucket& bucket = buckets_[at(found->second)];
        const double start = std::max(bucket.start, own.start), end = std::min(bucket.end, own.end);
        if (start < end) {
          bucket.members.push_back(i);
          bucket.start = start;
          bucket.end = end;
          bucket_of_[i] = found->second;
          continue;
        }
        found->second = static_cast<int>(buckets_.size());
      }
      bucket_of_[i] = static_cast<int>(buckets_.size());
      buckets_.push_back(std::move(own));
    }
    start_early();
  }

  double bytes_of(const Bucket& bucket) const {
    double bytes = 0;
    for (const std::size_t member : bucket.members)
      for (const std::vector<ValueId>* ids : {&call(member).inputs, &call(member).outputs})
        for (const ValueId id : *ids) bytes += static_cast<double>(program_.value(id).type.bytes());
    return bytes;
  }

  // At least a region ahead, and further where all that is on its way then fits into what the largest exchange takes anyway.
  void start_early() {
    double largest = 0;
    std::vector<double> bytes(begins_.size(), 0);  // of early buckets, by region
    for (const Bucket& bucket : buckets_) {
      largest = std::max(largest, bytes_of(bucket));
      if (bucket.early) bytes[region_[bucket.members[0]]] += bytes_of(bucket);
    }
    for (Bucket& bucket : buckets_) {
      if (!bucket.early) continue;
      std::size_t region = region_[bucket.members[0]];
      double ahead = bytes[region];
      if (region > 0) --region;
      while (region > 0 && ahead + bytes[region] <= largest) ahead += bytes[region--];
      bucket.start = begin_of(region) - kStart;
      for (const std::size_t member : bucket.members) hoist(member, bucket.start);
    }
  }

  // Computes what a collective moves at a time at the latest.
  void hoist(std::size_t i, double time) {
    for (const ValueId id : call(i).inputs) {
      const int definition = graph_.definition_of(id);
      if (definition < 0 || time_[at(definition)] <= time) continue;
      time_[at(definition)] = time;
      hoist(at(definition), time);
    }
  }

  double done(std::size_t i) const { return bucket_of_[i] < 0 ? time_[i] : buckets_[at(bucket_of_[i])].end; }

  // Puts off what would run before it can, until all can.
  void settle() {
    for (bool changed = true; changed;) {
      changed = false;
      const auto raise = [&](double& time, double to) {
        if (time >= to) return;
        time = to;
        changed = true;
      };
      for (std::size_t i = 0; i < count_; ++i) {
        double known = -1, free = -1;
        for (const ValueId id : call(i).inputs)
          if (const int definition = graph_.definition_of(id); definition >= 0)
            known = std::max(known, done(at(definition)));
        for (const std::size_t reader : readers_before_[i]) free = std::max(free, done(reader));
        if (bucket_of_[i] < 0) {
          raise(time_[i], std::max(known, free));
          continue;
        }
        Bucket& bucket = buckets_[at(bucket_of_[i])];
        raise(bucket.start, known);
        raise(bucket.end, std::max(bucket.start, free) + kLater);
      }
    }
  }

  void emit() {
    enum Kind { end, compute, start };  // at the same time in this order
    struct Item {
      double time;
      Kind kind;
      double order;
      std::size_t first, index;  // the call, or the first of the bucket; and the call or the bucket
    };
    std::vector<Item> items;
    for (std::size_t i = 0; i < count_; ++i)
      if (bucket_of_[i] < 0) items.push_back({time_[i], compute, 0, i, i});
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const Bucket& bucket = buckets_[b];
      items.push_back({bucket.start, start, bucket.end, bucket.members[0], b});
      items.push_back({bucket.end, end, 0, bucket.members[0], b});
    }
    std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
      return std::tuple(a.time, static_cast<int>(a.kind), a.order, a.first) <
             std::tuple(b.time, static_cast<int>(b.kind), b.order, b.first);
    });
    std::vector<Call> calls;
    std::vector<int> starts(buckets_.size(), 0);
    for (const Item& item : items) {
      if (item.kind == compute) calls.push_back(std::move(program_.calls[item.index]));
      if (item.kind == start) starts[item.index] = static_cast<int>(calls.size());
      if (item.kind != end) continue;
      for (const std::size_t member : buckets_[item.index].members) {
        calls.push_back(std::move(program_.calls[member]));
        calls.back().starts = starts[item.index];
      }
    }
    program_.calls = std::move(calls);
  }

  Program& program_;
  const kernels::Catalog& catalog_;
  Graph graph_;
  std::vector<ValueId> roots_;
  std::size_t count_;
  bool owners_;                      // parts of the update are computed by one rank alone
  std::vector<double> begins_;       // by region
  std::vector<std::size_t> region_;  // by call, as all that follows
  std::vector<char> early_, late_;
  std::vector<double> deadline_;
  std::vector<std::vector<std::size_t>> readers_before_;
  std::vector<int> level_, late_level_;
  std::vector<int> bucket_of_;  // -1 = no collective
  std::vector<double> time_;    // of what is no collective
  std::vector<Bucket> buckets_;
};

}  // namespace

Program overlap_moves(Program program, const kernels::Catalog& catalog) {
  Overlap(program, catalog).run();
  return program;
}

}  // namespace meshloom::trainer

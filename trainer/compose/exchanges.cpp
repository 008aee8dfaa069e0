#include "trainer/compose/exchanges.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "hal/error.h"
#include "hal/math.h"
#include "hal/transport/transport.h"
#include "trainer/compose/memory/arena.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::Program;
using kernels::collective::kInput;
using kernels::collective::kOutput;
using kernels::collective::Move;

constexpr std::int64_t kStagingAlignment = 64;

// A range of the input or the output of one of the calls.
struct Segment {
  kernels::ValueId value;
  std::int64_t offset, bytes;
  bool operator==(const Segment&) const = default;
};

std::int64_t bytes_of(const std::vector<Segment>& segments) {
  std::int64_t bytes = 0;
  for (const Segment& segment : segments) bytes += segment.bytes;
  return bytes;
}

bool together(const Call& a, const Call& b) {
  return a.starts >= 0 && a.starts == b.starts && a.op == b.op &&
         a.attrs.text("axes") == b.attrs.text("axes");
}

// Adds up what an exchange moves and stages, by runs of peers that are treated alike.
void count(const Program& program, const kernels::Catalog& catalog, int own, Exchange& exchange) {
  struct Part {
    std::size_t call;
    Move move;
  };
  for (const bool out : {true, false}) {
    std::vector<Part> parts;
    std::set<int> borders{own, own + 1};
    for (std::size_t i = 0; i < static_cast<std::size_t>(exchange.calls); ++i) {
      const Call& call = program.calls[static_cast<std::size_t>(exchange.call) + i];
      const kernels::CallTypes types(program, call);
      for (const Move& move : catalog.contract(call.op).moves(types.view(call))) {
        if (move.out != out) continue;
        parts.push_back({i, move});
        borders.insert({move.peer, move.peer + move.count});
      }
    }
    // By border, the parts of the peers behind it.
    std::map<int, std::vector<const Part*>> of_peers;
    for (const Part& part : parts)
      for (auto at = borders.find(part.move.peer); *at < part.move.peer + part.move.count; ++at)
        of_peers[*at].push_back(&part);
    std::set<std::vector<std::tuple<std::size_t, std::int64_t, std::int64_t>>> sent;
    for (const auto& [first, alike] : of_peers) {
      const int peers = *borders.upper_bound(first) - first;
      std::int64_t bytes = 0;
      bool same = true;  // the peers get the same
      std::vector<std::tuple<std::size_t, std::int64_t, std::int64_t>> key;
      for (const Part* part : alike) {
        const Move& move = part->move;
        bytes += move.bytes;
        same = same && (move.step == 0 || peers == 1);
        key.emplace_back(part->call, move.offset + (first - move.peer) * move.step, move.bytes);
      }
      if (out && (!same || sent.insert(std::move(key)).second))
        exchange.sent_bytes += bytes * (same ? 1 : peers);
      if (first == own) continue;
      const std::int64_t messages = peers * hal::ceil_div(bytes, hal::kMaxMessageBytes);
      (out ? exchange.moved.out : exchange.moved.in) += peers * bytes;
      (out ? exchange.moved.messages_out : exchange.moved.messages_in) += messages;
      if (!out) exchange.received_bytes += peers * bytes;
    }
  }
}

// The exchange of calls [first, last).
Exchange exchange_of(const Program& program, const kernels::Catalog& catalog, const Topology& mesh,
                     std::size_t first, std::size_t last) {
  const Call& call = program.calls[first];
  Exchange exchange;
  exchange.axes = axes_from_string(call.attrs.text("axes"));
  exchange.call = static_cast<int>(first);
  exchange.calls = static_cast<int>(last - first);
  exchange.starts = call.starts < 0 ? exchange.call : call.starts;
  exchange.op = call.op;
  exchange.path = call.path;
  if (exchange.calls > 1) exchange.path += " and " + std::to_string(exchange.calls - 1) + " more";
  count(program, catalog, mesh.place(exchange.axes), exchange);
  return exchange;
}

}  // namespace

ExchangeLists lists_of(const Exchange& exchange, const Program& program, const kernels::Catalog& catalog,
                       const Topology& mesh) {
  ExchangeLists lists;
  const auto first = static_cast<std::size_t>(exchange.call),
             last = first + static_cast<std::size_t>(exchange.calls);
  std::int64_t sent_bytes = 0, received_bytes = 0;
  const int own = mesh.place(exchange.axes);
  std::vector<std::vector<Segment>> out(static_cast<std::size_t>(mesh.size(exchange.axes))), in = out;
  std::vector<int> peers;  // in the order of the lists, so that not all send to the same one first
  for (std::size_t i = first; i < last; ++i) {
    const Call& each = program.calls[i];
    const kernels::CallTypes types(program, each);
    for (const Move& move : kernels::collective::expanded(catalog.contract(each.op).moves(types.view(each)),
                                                          static_cast<int>(out.size()), own)) {
      if (std::find(peers.begin(), peers.end(), move.peer) == peers.end()) peers.push_back(move.peer);
      const kernels::ValueId value = move.tensor == kInput ? each.inputs.at(0) : each.outputs.at(0);
      (move.out ? out : in)
          .at(static_cast<std::size_t>(move.peer))
          .push_back({value, move.offset, move.bytes});
    }
  }
  std::vector<std::pair<const std::vector<Segment>*, std::int64_t>> sent;  // with their places
  const auto place = [&](const std::vector<Segment>& segments) {
    for (const auto& [known, at] : sent)
      if (*known == segments) return at;
    const std::int64_t begin = sent_bytes;
    for (const Segment& segment : segments) {
      lists.reads.push_back({segment.value, segment.offset, segment.bytes, sent_bytes});
      sent_bytes += segment.bytes;
    }
    sent.emplace_back(&segments, begin);
    return begin;
  };
  std::vector<std::int64_t> places(out.size(), 0);
  for (const int peer : peers) {
    const std::vector<Segment>& segments = out[static_cast<std::size_t>(peer)];
    if (!segments.empty()) places[static_cast<std::size_t>(peer)] = place(segments);
  }
  for (const int peer : peers) {
    const std::vector<Segment>&segments = in[static_cast<std::size_t>(peer)],
          &own_out = out[static_cast<std::size_t>(peer)];
    // What a rank sends itself is written from where it was staged to be sent.
    std::int64_t at = peer == own ? places[static_cast<std::size_t>(peer)] : sent_bytes + received_bytes;
    if (peer != own) {
      const std::int64_t to = bytes_of(own_out), from = bytes_of(segments);
      if (to > 0) lists.moves.push_back({peer, true, kInput, places[static_cast<std::size_t>(peer)], to});
      if (from > 0) lists.moves.push_back({peer, false, kOutput, received_bytes, from});
      received_bytes += from;
    }
    for (const Segment& segment : segments) {
      lists.writes.push_back({segment.value, segment.offset, segment.bytes, at});
      at += segment.bytes;
    }
  }
  // As if the calls ended one after another.
  const auto order = [&](const StagedRange& range) {
    for (std::size_t i = first; i < last; ++i)
      if (program.calls[i].outputs.at(0) == range.value) return i;
    return last;
  };
  std::stable_sort(lists.writes.begin(), lists.writes.end(),
                   [&](const StagedRange& a, const StagedRange& b) { return order(a) < order(b); });
  if (sent_bytes != exchange.sent_bytes || received_bytes != exchange.received_bytes)
    throw hal::Error("exchange of " + exchange.op + (exchange.path.empty() ? "" : " in " + exchange.path),
                     "must stage what was planned, " + std::to_string(exchange.sent_bytes) +
                         " bytes out and " + std::to_string(exchange.received_bytes) + " in",
                     std::to_string(sent_bytes) + " and " + std::to_string(received_bytes));
  return lists;
}

std::vector<Exchange> exchanges_of(const Program& program, const kernels::Catalog& catalog,
                                   const Topology& mesh) {
  std::vector<Exchange> exchanges;
  for (std::size_t first = 0, last; first < program.calls.size(); first = last) {
    last = first + 1;
    if (!catalog.contract(program.calls[first].op).moves) continue;
    while (last < program.calls.size() && together(program.calls[first], program.calls[last])) ++last;
    exchanges.push_back(exchange_of(program, catalog, mesh, first, last));
  }
  std::vector<Lifetime> lifetimes;
  for (const Exchange& exchange : exchanges)
    lifetimes.push_back({exchange.starts, exchange.call,
                         std::max<std::int64_t>(1, exchange.sent_bytes + exchange.received_bytes)});
  const ArenaLayout layout = plan_arena(lifetimes, kStagingAlignment, std::int64_t{1} << 62);
  for (std::size_t i = 0; i < exchanges.size(); ++i) exchanges[i].staged = layout.places[i].offset;
  return exchanges;
}

std::int64_t staging_bytes(const std::vector<Exchange>& exchanges) {
  std::int64_t bytes = 0;
  for (const Exchange& exchange : exchanges)
    bytes = std::max(bytes, exchange.staged + exchange.sent_bytes + exchange.received_bytes);
  return hal::round_up(bytes, kStagingAlignment);
}

MovedBytes& MovedBytes::operator+=(const MovedBytes& other) {
  out += other.out;
  in += other.in;
  messages_out += other.messages_out;
  messages_in += other.messages_in;
  return *this;
}

std::map<std::string, MovedBytes> moved_bytes(const std::vector<Exchange>& exchanges) {
  std::map<std::string, MovedBytes> moved;
  for (const Exchange& exchange : exchanges)
    if (exchange.moved != MovedBytes()) moved[to_string(exchange.axes)] += exchange.moved;
  return moved;
}

}  // namespace meshloom::trainer

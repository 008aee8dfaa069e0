#include "trainer/compose/passes/distributed/stages.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "hal/error.h"
#include "kernels/elementwise/elementwise.h"
#include "trainer/compose/graph.h"
#include "trainer/compose/passes/memory/extraction.h"
#include "trainer/compose/passes/memory/remat.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::Phase;
using kernels::Program;
using kernels::Role;
using kernels::Tensor;
using kernels::Value;
using kernels::ValueId;

constexpr int kAnywhere = -1;
constexpr char kPipe[] = "pipe/";

bool is_add(const Call& call) { return call.op == "elementwise" && call.attrs.text("expr") == "add(x0,x1)"; }

std::string where_of(const Program& program, const Call& call) {
  return "pipeline of program '" + program.name + "', " + call.op +
         (call.path.empty() ? "" : " in " + call.path);
}

void insert_sorted(std::vector<int>& list, int part) {
  const auto place = std::lower_bound(list.begin(), list.end(), part);
  if (place == list.end() || *place != part) list.insert(place, part);
}

// The layers of a program, in the order of its forward calls.
std::vector<std::string> layers_of(const Program& program) {
  std::set<std::string> with_parameters;
  for (const ValueId id : program.inputs)
    if (program.value(id).role == Role::parameter) with_parameters.insert(region_of(program.value(id).name));
  with_parameters.erase("");
  std::vector<std::string> layers;
  for (const Call& call : program.calls)
    if (const std::string layer = region_of(call.path);
        call.phase == Phase::forward && with_parameters.erase(layer) > 0)
      layers.push_back(layer);
  return layers;
}

// Where to begin each of `parts` consecutive parts of the layers, and behind them the end.
std::vector<std::size_t> cut_evenly(const std::vector<double>& cost, const std::vector<double>& bytes,
                                    std::size_t parts) {
  struct Best {
    double longest = std::numeric_limits<double>::infinity(), uneven = 0;
    std::size_t from = 0;
    bool operator<(const Best& other) const {
      return longest != other.longest ? longest < other.longest : uneven < other.uneven;
    }
  };
  const std::size_t n = cost.size();
  std::vector<std::vector<Best>> best(parts + 1, std::vector<Best>(n + 1));
  best[0][0].longest = 0;
  for (std::size_t p = 1; p <= parts; ++p)
    for (std::size_t end = p; end <= n; ++end) {
      double time = 0, memory = 0;
      for (std::size_t from = end; from-- > p - 1;) {
        time += cost[from];
        memory += bytes[from];
        const Best& rest = best[p - 1][from];
        best[p][end] =
            std::min(best[p][end], {std::max(rest.longest, time), rest.uneven + memory * memory, from});
      }
    }
  std::vector<std::size_t> begins(parts + 1, n);
  for (std::size_t p = parts; p-- > 0;) begins[p] = best[p + 1][begins[p + 1]].from;
  return begins;
}

}  // namespace

Parts::Parts(const Program& program, const kernels::Catalog& catalog, const Deal& deal)
    : program_(program),
      catalog_(catalog),
      deal_(deal),
      part_of_call_(program.calls.size(), kAnywhere),
      part_of_value_(program.values.size(), kAnywhere),
      readers_(program.values.size()) {
  find_kinds();
  assign_forward();
  assign_backward();
  check_flow();
  find_readers();
}

void Parts::find_kinds() {
  anywhere_ = remakable(program_);
  for (std::size_t i = 0; i < program_.calls.size(); ++i)
    anywhere_[i] = anywhere_[i] || catalog_.contract(program_.calls[i].op).view;
}

void Parts::define(const Call& call, int part) {
  for (const ValueId id : call.outputs) part_of_value_[at(id)] = part;
}

void Parts::assign_forward() {
  constexpr int kLater = std::numeric_limits<int>::max();
  std::vector<std::size_t> open;  // calls that lead into layers
  for (std::size_t i = 0; i < program_.calls.size(); ++i) {
    const Call& call = program_.calls[i];
    if (call.phase != Phase::forward) continue;
    int last = kAnywhere;
    for (const ValueId id : call.inputs) last = std::max(last, part_of(id));
    if (anywhere_[i]) {
      define(call, last);  // of a view, where its root is
      continue;
    }
    const auto layer = deal_.part.find(region_of(call.path));
    part_of_call_[i] = layer != deal_.part.end() ? layer->second : last;
    if (part_of_call_[i] == kAnywhere) open.push_back(i);
    define(call, part_of_call_[i]);
  }
  if (open.empty()) return;
  std::vector<int> first(program_.values.size(), kLater);  // the first part that reads the value
  for (std::size_t i = program_.calls.size(); i-- > 0;) {
    const Call& call = program_.calls[i];
    if (call.phase != Phase::forward) continue;
    int part = part_of_call_[i];
    if (part == kAnywhere) {
      part = kLater;
      for (const ValueId id : call.outputs) part = std::min(part, first[at(id)]);
      if (!anywhere_[i]) part_of_call_[i] = part = part == kLater ? deal_.parts() - 1 : part;
    }
    for (const ValueId id : call.inputs) first[at(id)] = std::min(first[at(id)], part);
  }
  for (std::size_t i = 0; i < program_.calls.size(); ++i) {
    const Call& call = program_.calls[i];
    if (call.phase != Phase::forward) continue;
    int part = part_of_call_[i];
    if (anywhere_[i])
      for (const ValueId id : call.inputs) part = std::max(part, part_of(id));
    define(call, part);
  }
}

void Parts::assign_backward() {
  constexpr int kSeveral = -2;
  std::map<std::string, int> of_path;  // where the forward calls of a path outside of layers are
  for (std::size_t i = 0; i < program_.calls.size(); ++i) {
    const Call& call = program_.calls[i];
    if (call.phase != Phase::forward || anywhere_[i]) continue;
    const auto [known, fresh] = of_path.emplace(call.path, part_of_call_[i]);
    if (!fresh && known->second != part_of_call_[i]) known->second = kSeveral;
  }
  for (std::size_t i = 0; i < program_.calls.size(); ++i) {
    const Call& call = program_.calls[i];
    if (call.phase == Phase::forward) continue;
    int first = kAnywhere;
    for (const ValueId id : call.inputs)
      if (const int part = part_of(id); part != kAnywhere)
        first = first == kAnywhere ? part : std::min(first, part);
    if (anywhere_[i]) {
      define(call, first);
      continue;
    }
    const auto layer = deal_.part.find(region_of(call.path));
    const auto path = of_path.find(call.path);
    // Cotangents are added up where they are made, and not where their value was.
    if (is_add(call) && first != kAnywhere)
      part_of_call_[i] = first;
    else if (layer != deal_.part.end())
      part_of_call_[i] = layer->second;
    else if (path != of_path.end() && path->second != kSeveral)
      part_of_call_[i] = path->second;
    else
      part_of_call_[i] = first == kAnywhere ? deal_.parts() - 1 : first;
    define(call, part_of_call_[i]);
  }
}

void Parts::check_flow() const {
  std::vector<char> forward(program_.values.size(), 0);
  for (std::size_t i = 0; i < program_.calls.size(); ++i) {
    const Call& call = program_.calls[i];
    const bool ahead = call.phase == Phase::forward;
    for (const ValueId id : call.outputs) forward[at(id)] = ahead;
    if (anywhere_[i]) continue;
    for (const ValueId id : call.inputs) {
      const int from = part_of(id), to = part_of_call_[i];
      if (from == kAnywhere || from == to || (ahead ? from < to : forward[at(id)] || from > to)) continue;
      throw hal::Error(
          where_of(program_, call),
          std::string("values must go from part to part of a pipeline, ") + (ahead ? "forward" : "backward"),
          "one from part " + std::to_string(from) + " to part " + std::to_string(to));
    }
  }
}

void Parts::find_readers() {
  for (std::size_t i = program_.calls.size(); i-- > 0;) {
    const Call& call = program_.calls[i];
    std::vector<int> parts;
    if (anywhere_[i])
      for (const ValueId id : call.outputs)
        for (const int part : readers_[at(id)]) insert_sorted(parts, part);
    else
      parts = {part_of_call_[i]};
    for (const ValueId id : call.inputs)
      for (const int part : parts) insert_sorted(readers_[at(id)], part);
  }
}

// The values that go from `part` to the next one, or with `backward` from the next one to `part`.
std::vector<ValueId> Parts::across(int part, bool backward) const {
  std::vector<ValueId> values;
  for (std::size_t i = 0; i < program_.calls.size(); ++i) {
    if (anywhere_[i]) continue;
    const int own = part_of_call_[i];
    for (const ValueId id : program_.calls[i].outputs) {
      const std::vector<int>& readers = readers_[at(id)];
      if (readers.empty()) continue;
      if (backward ? own > part && readers.front() <= part : own <= part && readers.back() > part)
        values.push_back(id);
    }
  }
  return values;
}

std::vector<std::string> Parts::names_across(int part, bool backward) const {
  std::vector<std::string> names;
  for (const ValueId id : across(part, backward)) names.push_back(kPipe + ("v" + std::to_string(id)));
  return names;
}

Program Parts::program_of(int part) const {
  std::vector<char> keep;
  for (const int own : part_of_call_) keep.push_back(own == part);
  Extraction taken(program_, keep, anywhere_);
  std::map<ValueId, ValueId> home;  // of an output, the input that it overwrites
  for (const kernels::Donation& donation : program_.donations) home[donation.output] = donation.input;
  for (const ValueId id : program_.inputs)
    if (std::binary_search(readers_[at(id)].begin(), readers_[at(id)].end(), part))
      taken.input(id, program_.value(id).name);
  const auto arrive = [&](int from, bool backward) {
    for (const ValueId id : across(from, backward))
      if (!taken.known(id)) {
        taken.input(id, kPipe + ("v" + std::to_string(id)));
        kernels::Value& value = taken.program().value(taken(id));
        value.role = Role::activation;
        value.tag.clear();
      }
  };
  if (part > 0) arrive(part - 1, false);
  if (part + 1 < deal_.parts()) arrive(part, true);
  taken.run();
  Program program = std::move(taken.program());
  for (const ValueId id : program_.outputs)
    if (part_of(id) == part && taken.known(id)) program.outputs.push_back(taken(id));
  for (const kernels::Donation& donation : program_.donations)
    if (part_of(donation.output) == part && taken.known(donation.output))
      program.donations.push_back({taken(donation.input), taken(donation.output)});
  const auto leave = [&](int over, bool backward) {
    for (const ValueId id : across(over, backward)) {
      if (part_of(id) != part) continue;  // it passes through
      const ValueId own = taken(id);
      kernels::Value& value = program.value(own);
      if (value.name.starts_with(kPipe)) continue;  // it goes both ways
      if (home.count(id) > 0)
        throw hal::Error("pipeline of program '" + program_.name + "'",
                         "a state must be read by one part only",
                         "'" + program_.value(home.at(id)).name + "'");
      value.name = kPipe + ("v" + std::to_string(id));
      value.role = Role::activation;
      program.outputs.push_back(own);
    }
  };
  if (part + 1 < deal_.parts()) leave(part, false);
  if (part > 0) leave(part - 1, true);
  remove_dead_calls(program);
  return program;
}

std::map<std::string, std::vector<int>> Parts::holders() const {
  std::map<std::string, std::vector<int>> holders;
  for (const ValueId id : program_.inputs)
    if (program_.value(id).role != Role::input) holders[program_.value(id).name] = readers_[at(id)];
  for (const kernels::Donation& donation : program_.donations)
    if (const int part = part_of(donation.output); part != kAnywhere)
      insert_sorted(holders[program_.value(donation.input).name], part);
  return holders;
}

Deal deal_layers(const Program& program, const kernels::Catalog& catalog, int stages, int chunks) {
  Deal alone{1, 1, layers_of(program), {}};
  const auto layers = static_cast<int>(alone.layers.size());
  if (layers < stages * chunks) {
    const std::string deepest =
        chunks > 1 ? std::to_string(stages) + " stages of " + std::to_string(chunks) + " chunks"
                   : std::to_string(stages) + " stages";
    throw hal::Error(
        "pipeline of " + deepest,
        "every stage needs a layer of its own for each chunk; the model has " + std::to_string(layers) +
            (layers == 1 ? " layer" : " layers") +
            (layers > 1 ? ", so that pipeline=" + std::to_string(std::max(1, layers / chunks)) + " would fit"
                        : ""),
        std::to_string(stages * chunks));
  }
  // As if every layer were a part of its own.
  alone.stages = layers;
  for (int i = 0; i < layers; ++i) alone.part[alone.layers[at(i)]] = i;
  const Parts parts(program, catalog, alone);
  constexpr double kFlopsPerByte = 20;  // what a device computes while it moves a byte
  std::vector<double> cost(at(layers), 0), bytes(at(layers), 0);
  for (std::size_t i = 0; i < program.calls.size(); ++i) {
    if (parts.part_of_call_[i] == kAnywhere) continue;
    const kernels::CallTypes types(program, program.calls[i]);
    const kernels::CallView view = types.view(program.calls[i]);
    const kernels::Contract& contract = catalog.contract(program.calls[i].op);
    cost[at(parts.part_of_call_[i])] += std::max(contract.flops(view), kFlopsPerByte * contract.bytes(view));
  }
  for (const ValueId id : program.inputs)
    if (program.value(id).role == Role::parameter && !parts.readers_[at(id)].empty())
      bytes[at(parts.readers_[at(id)].front())] += static_cast<double>(program.value(id).type.bytes());
  Deal deal{stages, chunks, alone.layers, {}};
  const std::vector<std::size_t> begins = cut_evenly(cost, bytes, at(deal.parts()));
  for (int part = 0; part < deal.parts(); ++part)
    for (std::size_t i = begins[at(part)]; i < begins[at(part) + 1]; ++i) deal.part[deal.layers[i]] = part;
  return deal;
}

std::vector<GradientPart> split_gradients(kernels::Builder& builder, const Deal& deal,
                                          const std::vector<layers::ParameterInfo>& infos,
                                          std::vector<Tensor>& gradients) {
  const Program program = builder.program();  // a copy, because the list grows below
  const Parts parts(program, builder.catalog(), deal);
  const Graph graph(program);
  const auto definition = [&](ValueId id) -> const Call* {
    const int index = graph.definition_of(id);
    return index < 0 || program.calls[at(index)].phase != Phase::backward ? nullptr
                                                                          : &program.calls[at(index)];
  };
  // Of one input, and linear in it.
  const auto passes = [](const Call& call) {
    return call.op == "cast" || call.op == "reshape" || call.op == "permute";
  };
  // The parts in which the summands of a value are made.
  const std::function<void(ValueId, std::set<int>&)> collect = [&](ValueId id, std::set<int>& into) {
    const Call* call = definition(id);
    if (call && (is_add(*call) || passes(*call)))
      for (const ValueId input : call->inputs) collect(input, into);
    else
      into.insert(parts.part_of(id));
  };
  // The sum of those that one part makes; none where it makes none.
  const std::function<Tensor(ValueId, int)> sum_of = [&](ValueId id, int part) -> Tensor {
    const Call* call = definition(id);
    if (!call || !(is_add(*call) || passes(*call)))
      return parts.part_of(id) == part ? builder.tensor(id) : Tensor{};
    Tensor sum;
    for (const ValueId input : call->inputs) {
      Tensor summand = sum_of(input, part);
      if (!summand) continue;
      builder.path = call->path;
      if (!is_add(*call)) summand = builder.call1(call->op, {summand}, call->attrs);
      sum = sum ? kernels::add(sum, summand) : summand;
    }
    return sum;
  };
  std::vector<GradientPart> others;
  const Phase phase = std::exchange(builder.phase, Phase::backward);
  const std::string path = builder.path;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    std::set<int> made_in;
    const ValueId whole = gradients[i].id;
    collect(whole, made_in);
    made_in.erase(kAnywhere);
    if (made_in.size() < 2) continue;
    gradients[i] = sum_of(whole, *made_in.begin());
    for (auto part = std::next(made_in.begin()); part != made_in.end(); ++part) {
      GradientPart other{infos[i].path, *part, infos[i], sum_of(whole, *part)};
      other.info.path = "part" + std::to_string(*part) + "/" + infos[i].path;
      others.push_back(std::move(other));
    }
  }
  builder.phase = phase;
  builder.path = path;
  return others;
}

}  // namespace meshloom::trainer

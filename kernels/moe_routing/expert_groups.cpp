// expert_capacity and expert_groups: integers to integers.
#include <algorithm>
#include <utility>

#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/moe_routing/parts.h"

namespace meshloom::kernels {
namespace {

std::int64_t groups_of(const Rules& rules) {
  const std::int64_t groups = rules.integer("groups");
  rules.require(groups > 0, "groups must be positive", std::to_string(groups));
  return groups;
}

std::vector<TensorType> infer_limit(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("expert_capacity", inputs, attrs);
  rules.inputs({"ids"});
  rules.attributes({"groups", "capacity", "span"});
  rules.dtype(0, DType::i32);
  rules.rank(0, 2, 2);
  groups_of(rules);
  const std::int64_t capacity = rules.integer("capacity"), span = rules.integer("span");
  rules.require(capacity > 0, "capacity must be positive", std::to_string(capacity));
  rules.require(span > 0 && rules[0].dim(0) % span == 0,
                "span must divide the rows of " + to_string(rules[0]), std::to_string(span));
  return {rules[0]};
}

std::vector<TensorType> infer_group(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("expert_groups", inputs, attrs);
  rules.inputs({"ids"});
  rules.attributes({"groups"}, {"first"});
  rules.dtype(0, DType::i32);
  rules.rank(0, 2, 2);
  if (attrs.has("first"))
    rules.require(rules.integer("first") >= 0, "first must not be negative",
                  std::to_string(rules.integer("first")));
  return {rules[0], {DType::i32, {groups_of(rules) + 1}}};
}

void reference_limit(const CallView& call, std::span<const ConstTensorView> inputs,
                     std::span<const TensorView> outputs) {
  const std::int64_t rows = call.inputs[0].dim(0), k = call.inputs[0].dim(1),
                     groups = call.attrs.integer("groups"), capacity = call.attrs.integer("capacity"),
                     span = call.attrs.integer("span");
  const auto* ids = inputs[0].as<std::int32_t>();
  auto* kept = outputs[0].as<std::int32_t>();
  for (std::int64_t first = 0; first < rows; first += span) {
    std::vector<std::int64_t> taken(static_cast<std::size_t>(groups), 0);
    for (std::int64_t j = 0; j < k; ++j)
      for (std::int64_t n = first; n < first + span; ++n) {
        const std::int32_t id = ids[n * k + j];
        const bool fits = id >= 0 && id < groups && taken[static_cast<std::size_t>(id)]++ < capacity;
        kept[n * k + j] = fits ? id : -1;
      }
  }
}

void reference_group(const CallView& call, std::span<const ConstTensorView> inputs,
                     std::span<const TensorView> outputs) {
  const std::int64_t count = call.inputs[0].elements(), groups = call.attrs.integer("groups"),
                     first = first_group(call);
  const auto group_of = [&](std::int64_t i) {
    const std::int64_t id = inputs[0].as<std::int32_t>()[i] - first;
    return id >= 0 && id < groups ? id : groups;
  };
  std::int32_t next = 0;
  for (std::int64_t g = 0; g <= groups; ++g) {
    outputs[1].as<std::int32_t>()[g] = next;
    for (std::int64_t i = 0; i < count; ++i)
      if (group_of(i) == g) outputs[0].as<std::int32_t>()[i] = next++;
  }
}

std::string partition_limit(const CallView& call) {
  return "n" + std::to_string(call.attrs.integer("span")) + ".->n.";
}
std::string partition_group(const CallView&) { return "n.->n.{ne},.{ne}"; }

// A shard sorts by its own groups; the rows of others are outside.
std::vector<Tensor> local_group(const LocalArgs& args) {
  Attrs attrs = args.attrs;
  if (const auto found = args.cuts.find('e'); found != args.cuts.end()) {
    const std::int64_t groups = args.attrs.integer("groups") / found->second.places;
    attrs.set("groups", groups);
    attrs.set("first", first_group(args.whole) + found->second.place * groups);
  }
  return args.builder.call(args.whole.op, args.inputs, attrs);
}

Tolerance exact(const CallView&) { return {}; }

// Some groups get much, some nothing, some ids are none.
void make_ids(const CallView& call, int, std::uint64_t seed, const TensorView& into) {
  const std::int64_t groups = call.attrs.integer("groups");
  Rng rng(mix(seed, 0));
  for (std::int64_t i = 0; i < into.type.elements(); ++i) {
    std::int64_t id = rng.integer(0, groups - 1);
    if (rng.flip(0.3)) id = groups / 2;
    if (id % 4 == 3) id = rng.flip(0.1) ? -1 : rng.flip(0.1) ? groups : 0;
    into.as<std::int32_t>()[i] = static_cast<std::int32_t>(id);
  }
}

struct Spec {
  std::string name;
  std::int64_t n, k, groups, capacity, span;
  bool slow = false;
  std::int64_t first = 0;
};
std::vector<Spec> specs() {
  return {{"one", 1, 1, 1, 1, 1},
          {"one-group", 37, 1, 1, 20, 37},
          {"switch", 65, 1, 8, 5, 65},
          {"pairs", 96, 2, 8, 7, 32},
          {"roomy", 31, 3, 5, 93, 31},
          {"many-groups", 20, 4, 64, 2, 10},
          {"rows", 1031, 2, 7, 300, 1031},
          {"qwen3-moe", 4096, 8, 128, 320, 1024, true},
          {"own", 61, 2, 8, 7, 61, false, 3}};
}
Case limit_case(const Spec& s) {
  return {s.name,
          {{DType::i32, {s.n, s.k}}},
          {{"groups", s.groups}, {"capacity", s.capacity}, {"span", s.span}},
          s.slow};
}
Case group_case(const Spec& s) {
  Case result{s.name, {{DType::i32, {s.n, s.k}}}, {{"groups", s.groups}}, s.slow};
  if (s.first > 0) result.attrs.set("first", s.first);
  return result;
}
template <Case (*make)(const Spec&)>
std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Spec& spec : specs()) result.push_back(make(spec));
  return result;
}
template <Case (*make)(const Spec&)>
Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  Spec spec{"random", 1, rng.integer(1, 8), rng.extent(70), 1, rng.extent(130)};
  spec.n = spec.span * rng.integer(1, 3);
  spec.capacity = rng.integer(1, 2 + 2 * spec.span * spec.k / spec.groups);
  spec.first = rng.flip() ? 0 : rng.integer(0, spec.groups);
  return make(spec);
}

}  // namespace

std::int64_t first_group(const CallView& call) {
  return call.attrs.has("first") ? call.attrs.integer("first") : 0;
}

Tensor expert_capacity(Tensor ids, std::int64_t groups, std::int64_t capacity, std::int64_t span) {
  return ids.builder->call1("expert_capacity", {ids},
                            {{"groups", groups}, {"capacity", capacity}, {"span", span}});
}
ExpertGroups expert_groups(Tensor ids, std::int64_t groups) {
  const std::vector<Tensor> outputs = ids.builder->call("expert_groups", {ids}, {{"groups", groups}});
  return {outputs[0], outputs[1]};
}

namespace row_groups_parts {

void add_grouping(Catalog& catalog) {
  catalog.add(Contract{.name = "expert_capacity",
                       .infer = infer_limit,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = reference_limit,
                       .partition = partition_limit,
                       .tolerance = exact,
                       .cases = cases<limit_case>,
                       .in_place = never_in_place,
                       .make_input = make_ids,
                       .random_case = random_case<limit_case>});
  catalog.add(Contract{.name = "expert_groups",
                       .infer = infer_group,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = reference_group,
                       .partition = partition_group,
                       .local = local_group,
                       .tolerance = exact,
                       .cases = cases<group_case>,
                       .in_place = never_in_place,
                       .make_input = make_ids,
                       .random_case = random_case<group_case>});
}

}  // namespace row_groups_parts
}  // namespace meshloom::kernels

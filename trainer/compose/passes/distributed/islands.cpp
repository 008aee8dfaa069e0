#include "trainer/compose/passes/distributed/islands.h"

#include <algorithm>
#include <set>
#include <utility>

#include "hal/error.h"
#include "kernels/collective/collective.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/program/builder.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "trainer/compose/passes/distributed/compression.h"
#include "trainer/compose/passes/distributed/convert_spec.h"
#include "trainer/compose/passes/memory/remat.h"
#include "trainer/compose/passes/update.h"
#include "trainer/compose/plan.h"

namespace meshloom::trainer {
namespace {

using kernels::DType;
using kernels::Role;
using kernels::Tensor;
using kernels::ValueId;
using kernels::collective::Sizes;

constexpr AxisName kIslands = AxisName::islands;

// How a value lies that every island has of its own.
Division over_islands(Division one, const Topology& mesh) {
  one.whole.shape.insert(one.whole.shape.begin(), mesh.size(kIslands));
  one.spec.dims.insert(one.spec.dims.begin(), kIslands);
  return one;
}

Division division_of(const std::map<std::string, Division>& divided, const std::string& name,
                     const kernels::TensorType& type) {
  const auto found = divided.find(name);
  return found == divided.end() ? Division{type, whole_spec(type.rank())} : found->second;
}

kernels::GroupPlace islands_of(const Topology& mesh) {
  return {to_string(AxisSet(kIslands)), mesh.place(kIslands)};
}

void sum_over_islands(kernels::Program& program, const kernels::Catalog& catalog, const Topology& mesh) {
  kernels::Builder builder(catalog, program);
  builder.path = "metrics";
  const std::int64_t islands = mesh.size(kIslands);
  for (ValueId& output : program.outputs) {
    const kernels::Value own = program.value(output);
    const std::int64_t n = own.type.elements();
    const Tensor all =
        kernels::all_gather(builder.tensor(output), islands_of(mesh), Sizes::equal(islands, n), {islands, n});
    const Tensor sum = kernels::reduce_sum(all, 1);
    program.value(output).name.clear();
    program.value(output).role = Role::activation;
    builder.name(sum, own.name);
    builder.role(sum, own.role);
    output = sum.id;
  }
}

class OuterWriter {
 public:
  OuterWriter(const OuterOptions& options, std::map<std::string, Division>& divided, const Topology& mesh,
              kernels::Builder& builder)
      : options_(options),
        divided_(divided),
        mesh_(mesh),
        builder_(builder),
        compressor_(options.dtype),
        islands_(mesh.size(kIslands)) {}

  void exchange(const layers::ParameterInfo& info) {
    builder_.path = "outer/" + info.path;
    const Division rest = division_of(divided_, info.path, info.type);
    const AxisSet copies = mesh_.all() - kIslands - rest.spec.cuts();
    const kernels::TensorType local = local_type(rest.whole, rest.spec, mesh_);
    const Tensor anchor = builder_.input(info.path, local, Role::parameter);
    const Tensor own = builder_.input(island_name(info.path), local, Role::parameter);
    // Inside an island an element is computed by one rank and copied, as updates are.
    Spec ranges = rest.spec.along_dims();
    if (kernels::elements(box_shape(rest.whole.shape, ranges, mesh_, mesh_.rank())) >= mesh_.size(copies))
      ranges.flat = copies;
    const auto part = [&](Tensor x) { return convert(x, rest.whole, rest.spec, ranges, mesh_); };
    const Tensor before = part(anchor), learnt = part(own);
    const kernels::Shape shape = before.shape();
    const std::int64_t n = before.type().elements();
    const auto [x, y] = kernels::inputs<2>();
    const Tensor difference = reshaped(kernels::elementwise({before, learnt}, x - y), {n});
    const Division at_ranges{rest.whole, ranges};
    const Tensor step = island_piece(n, mesh_) > 0 ? by_pieces(info.path, difference, at_ranges)
                                                   : as_a_whole(info.path, difference, at_ranges);
    const Tensor after = kernels::elementwise({before, reshaped(step, shape)}, x - y);
    Tensor next = convert(after, rest.whole, ranges, rest.spec, mesh_);
    if (ranges.flat.empty() && !copies.empty()) next = broadcast(next, copies, mesh_);
    carry(builder_, anchor, next);
    carry(builder_, own, kernels::elementwise({next}, x));
  }

 private:
  Tensor state(const std::string& name, const std::string& path, std::int64_t n, const Division& division) {
    const std::string full = "outer/" + name + "/" + path;
    divided_[full] = division;
    return builder_.input(full, {DType::f32, {n}}, Role::optimizer);
  }

  // The mean of the islands, given their sum, and momentum.
  Tensor stepped(const std::string& path, Tensor sum, const Division& division) {
    const auto [s, m] = kernels::inputs<2>();
    const kernels::Expr mean = s * (1.0 / static_cast<double>(islands_));
    if (options_.momentum == 0) return kernels::elementwise({sum}, mean * options_.rate);
    const Tensor momentum = state("momentum", path, sum.type().elements(), division);
    const kernels::Expr next = m * options_.momentum + mean;
    const std::vector<Tensor> both = kernels::elementwise(
        {sum, momentum}, {next, (options_.nesterov ? mean + next * options_.momentum : next) * options_.rate},
        sum.shape());
    carry(builder_, momentum, both[0]);
    return both[1];
  }

  // The tensors that stand for x, padded to so many values.
  std::vector<Tensor> sent(const std::string& name, const std::string& path, Tensor x, std::int64_t size,
                           const Division& division) {
    return compressor_.is_exact() ? compressor_.compress(padded(x, size))
                                  : compressor_.compress(x, state(name, path, x.dim(0), division), size);
  }

  // Each island owns a piece of the elements: it gets all differences of them, and gives its step of them to all.
  Tensor by_pieces(const std::string& path, Tensor difference, const Division& division) {
    const std::int64_t n = difference.dim(0), piece = island_piece(n, mesh_), all = piece * islands_;
    const std::int64_t own = std::min(piece, n - piece * mesh_.place(kIslands));
    Division owned = division;
    owned.spec.flat |= kIslands;
    std::vector<Tensor> tensors = sent("error", path, difference, all, over_islands(division, mesh_));
    const Tensor sum = kernels::reduce_sum(
        compressor_.all_to_all(std::move(tensors), islands_of(mesh_), islands_, piece), 1);
    const Tensor step = stepped(path, first_of(sum, own), owned);
    tensors = sent("step_error", path, step, piece, owned);
    for (std::size_t i = 0; i < tensors.size(); ++i)
      tensors[i] =
          kernels::all_gather(tensors[i], islands_of(mesh_),
                              Sizes::equal(islands_, compressor_.count(i, piece)), compressor_.shape(i, all));
    return first_of(compressor_.decompress(tensors), n);
  }

  Tensor as_a_whole(const std::string& path, Tensor difference, const Division& division) {
    const std::int64_t n = difference.dim(0);
    const Tensor all =
        kernels::all_gather(difference, islands_of(mesh_), Sizes::equal(islands_, n), {islands_, n});
    const Tensor step = stepped(path, kernels::reduce_sum(all, 1), division);
    return broadcast(step, kIslands, mesh_);
  }

  const OuterOptions& options_;
  std::map<std::string, Division>& divided_;
  const Topology& mesh_;
  kernels::Builder& builder_;
  Compressor compressor_;
  std::int64_t islands_;
};

}  // namespace

void enter_islands(kernels::Program& program, Step step, const std::vector<std::string>& trained,
                   std::map<std::string, Division>& divided, const kernels::Catalog& catalog,
                   const Topology& mesh) {
  const bool trains = step == Step::train || step == Step::accumulate || step == Step::apply;
  const std::set<std::string> own(trained.begin(), trained.end());
  for (const ValueId id : program.inputs) {
    const kernels::Value& value = program.value(id);
    const Division division = division_of(divided, value.name, value.type);
    if (value.role == Role::input && step != Step::logits && !value.axes.empty() &&
        value.axes[0] == "batch") {
      Division& rows = divided[value.name] = division;
      rows.whole.shape[0] *= mesh.size(kIslands);
      rows.spec.dims[0] |= kIslands;
    } else if (value.role == Role::parameter && trains && own.count(value.name)) {
      divided[island_name(value.name)] = over_islands(division, mesh);
    } else if (value.role == Role::optimizer || value.role == Role::state) {
      divided[value.name] = over_islands(division, mesh);
    }
  }
  if (trains)
    for (kernels::Value& value : program.values)
      if (value.role == Role::parameter && own.count(value.name)) value.name = island_name(value.name);
  if (step == Step::evaluate) sum_over_islands(program, catalog, mesh);
}

std::vector<std::vector<std::size_t>> deal_outer_parts(const std::vector<layers::ParameterInfo>& infos,
                                                       std::int64_t parts) {
  std::vector<std::string> layers;
  std::map<std::string, std::vector<std::size_t>> of_layer;
  std::map<std::string, std::int64_t> elements;
  std::int64_t all = 0;
  for (std::size_t i = 0; i < infos.size(); ++i) {
    const std::string layer = region_of(infos[i].path);
    if (of_layer[layer].empty()) layers.push_back(layer);
    of_layer[layer].push_back(i);
    elements[layer] += infos[i].count();
    all += infos[i].count();
  }
  const auto count = static_cast<std::int64_t>(layers.size());
  if (count < parts)
    throw hal::Error("mesh.outer.parts",
                     "there must be a layer for every part; with what is outside of layers, there are " +
                         std::to_string(count),
                     std::to_string(parts));
  std::vector<std::vector<std::size_t>> dealt(static_cast<std::size_t>(parts));
  std::int64_t part = 0, done = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string& layer = layers[static_cast<std::size_t>(i)];
    // On to the next part where the middle of the layer lies there, or as many layers as parts are left.
    const bool filled = !dealt[static_cast<std::size_t>(part)].empty();
    const bool beyond = (done + elements[layer] / 2) * parts >= all * (part + 1);
    if (filled && part + 1 < parts && (beyond || count - i <= parts - part - 1)) ++part;
    std::vector<std::size_t>& into = dealt[static_cast<std::size_t>(part)];
    into.insert(into.end(), of_layer[layer].begin(), of_layer[layer].end());
    done += elements[layer];
  }
  return dealt;
}

kernels::Program outer_program(const std::vector<layers::ParameterInfo>& infos, const OuterOptions& options,
                               std::map<std::string, Division>& divided, const kernels::Catalog& catalog,
                               const Topology& mesh) {
  kernels::Program program;
  program.name = to_string(Step::outer);
  kernels::Builder builder(catalog, program);
  builder.phase = kernels::Phase::update;
  OuterWriter writer(options, divided, mesh, builder);
  for (const layers::ParameterInfo& info : infos) writer.exchange(info);
  return program;
}

}  // namespace meshloom::trainer

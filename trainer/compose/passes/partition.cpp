#include "trainer/compose/passes/partition.h"

#include <map>
#include <string>
#include <utility>

#include "hal/error.h"
#include "kernels/collective/collective.h"
#include "trainer/compose/passes/convert_spec.h"
#include "trainer/mesh/spec.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::Tensor;
using kernels::TensorType;
using kernels::ValueId;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == ',')
      parts.emplace_back();
    else if (c != ' ')
      parts.back() += c;
  }
  if (parts.size() == 1 && parts[0].empty()) parts.clear();
  return parts;
}

// Checks the letters of the inputs or of the outputs of one call; `sizes` has the letters seen so far.
void check_side(const std::string& where, const std::string& rule, const std::vector<std::string>& parts,
                const std::vector<kernels::TensorType>& types, std::map<char, std::int64_t>& sizes) {
  // A scalar among several tensors has an empty part ("ab,->ab"); a scalar alone has none.
  const bool lone_scalar = parts.empty() && types.size() == 1 && types[0].rank() == 0;
  if (parts.size() != types.size() && !lone_scalar)
    throw hal::Error(where, "a partition rule must name every input and output", "'" + rule + "'");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (static_cast<int>(parts[i].size()) != types[i].rank())
      throw hal::Error(where, "a partition rule must have one letter per dimension of " + to_string(types[i]),
                       "'" + rule + "'");
    for (std::size_t d = 0; d < parts[i].size(); ++d) {
      const char letter = parts[i][d];
      if (letter == '.') continue;
      const std::int64_t size = types[i].shape[d];
      const auto [seen, fresh] = sizes.emplace(letter, size);
      if (!fresh && seen->second % size != 0 && size % seen->second != 0)
        throw hal::Error(
            where, "dimensions under one letter of a partition rule must be equal or multiples",
            std::to_string(seen->second) + " and " + std::to_string(size) + " in '" + rule + "'");
    }
  }
}

// The letters of every input and output of a call.
struct Letters {
  std::vector<std::string> inputs, outputs;
};

Letters letters_of(const std::string& program, const kernels::Call& call, const kernels::CallTypes& types,
                   const kernels::Contract& contract) {
  const std::string rule = contract.partition(types.view(call));
  const std::string where =
      "partition of program '" + program + "', " + call.op + (call.path.empty() ? "" : " in " + call.path);
  const std::size_t arrow = rule.find("->");
  if (arrow == std::string::npos)
    throw hal::Error(where, "a partition rule must read \"inputs->outputs\"", "'" + rule + "'");
  Letters letters{split(rule.substr(0, arrow)), split(rule.substr(arrow + 2))};
  std::map<char, std::int64_t> sizes;
  check_side(where, rule, letters.inputs, types.inputs, sizes);
  check_side(where, rule, letters.outputs, types.outputs, sizes);
  letters.inputs.resize(types.inputs.size());  // a lone scalar has no part
  letters.outputs.resize(types.outputs.size());
  return letters;
}

class Partitioner {
 public:
  Partitioner(const kernels::Program& program, const kernels::Catalog& catalog, const Topology& mesh)
      : source_(program),
        catalog_(catalog),
        mesh_(mesh),
        builder_(catalog, result_.program),
        specs_(program.values.size()),
        definitions_(program.values.size(), nullptr) {
    result_.program.name = program.name;
  }

  Partitioned run() {
    for (const ValueId id : source_.inputs) input(id);
    for (const Call& call : source_.calls) {
      for (const ValueId id : call.outputs) definitions_[at(id)] = &call;
      builder_.path = call.path;
      builder_.phase = call.phase;
      if (!flat(call)) along_dimensions(call);
    }
    finish();
    return std::move(result_);
  }

 private:
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  const TensorType& type(ValueId id) const { return source_.value(id).type; }
  AxisSet rows() const { return mesh_.all() & (AxisSet(AxisName::data) | AxisName::fsdp); }
  bool divisible_into_ranges(const TensorType& type) const {
    return type.dtype == kernels::DType::f32 && type.elements() >= mesh_.ranks();
  }
  // Sums of gradients over micro-batches are kept whole, and added up between ranks once, unless parameters are divided.
  bool keeps_partial_sums() const { return !rows().has(AxisName::fsdp); }

  [[noreturn]] void fail(const Call& call, const std::string& rule, const std::string& found) const {
    throw hal::Error("partition of program '" + source_.name + "', " + call.op +
                         (call.path.empty() ? "" : " in " + call.path),
                     rule, found);
  }

  // How a persistent value is divided at rest.
  Spec at_rest(const kernels::Value& value) const {
    const int rank = value.type.rank();
    const bool ranges = divisible_into_ranges(value.type);
    switch (value.role) {
      case kernels::Role::input:
        if (source_.name != to_string(Step::logits) && !value.axes.empty() && value.axes[0] == "batch") {
          Spec spec = whole_spec(rank);
          spec.dims[0] = rows();
          if (value.type.shape[0] % mesh_.size(rows()) != 0)
            throw hal::Error("mesh " + mesh_.text(),
                             "the rows of a micro-batch must be a multiple of its " +
                                 std::to_string(mesh_.size(rows())) + " ranks of " + to_string(rows()),
                             std::to_string(value.type.shape[0]) + " rows");
          return spec;
        }
        return whole_spec(rank);
      case kernels::Role::parameter:
        return ranges ? flat_spec(rank, rows() & AxisName::fsdp) : whole_spec(rank);
      case kernels::Role::optimizer:
        return ranges ? flat_spec(rank, rows()) : whole_spec(rank);
      case kernels::Role::gradient:
        return ranges && !keeps_partial_sums() ? flat_spec(rank, rows()) : partial_spec(rank, rows());
      case kernels::Role::state:
      case kernels::Role::activation:
        break;
    }
    return whole_spec(rank);
  }

  void input(ValueId id) {
    const kernels::Value& value = source_.value(id);
    const Spec spec = at_rest(value);
    const Tensor part = builder_.input(value.name, local_type(value.type, spec, mesh_), value.role);
    copy_names(value, part);
    define(id, spec, part);
    if (spec != whole_spec(value.type.rank()) && !value.name.empty())
      result_.divided[value.name] = {value.type, spec};
  }

  void copy_names(const kernels::Value& from, Tensor to) {
    kernels::Value& value = result_.program.value(to.id);
    value.name = from.name;
    value.role = from.role;
    value.tag = from.tag;
    value.memory = from.memory;
    if (static_cast<int>(from.axes.size()) == value.type.rank()) value.axes = from.axes;
  }

  void define(ValueId id, Spec spec, Tensor part) {
    parts_[{id, spec}] = part;
    specs_[at(id)] = std::move(spec);
  }

  // This rank's part of a value by a spec.
  Tensor part(ValueId id, const Spec& wanted) {
    const auto [found, fresh] = parts_.emplace(std::pair{id, wanted}, Tensor{});
    if (!fresh) return found->second;
    Tensor part = made_in_parts(id, wanted);
    if (!part) {
      const std::size_t first = result_.program.calls.size();
      const Spec& own = specs_[at(id)];
      part = convert(parts_.at({id, own}), type(id), own, wanted, mesh_);
      // What is gathered is gathered again for the backward pass, as recomputed values are.
      if (!own.flat.empty() && builder_.phase == kernels::Phase::forward)
        for (std::size_t i = first; i < result_.program.calls.size(); ++i)
          for (const ValueId made : result_.program.calls[i].outputs)
            result_.program.value(made).tag = "recompute.gathered";
    }
    return parts_[{id, wanted}] = part;
  }

  // A constant, or one number in every place, is made in parts.
  Tensor made_in_parts(ValueId id, const Spec& wanted) {
    const Call* call = definitions_[at(id)];
    if (!call || call->op != "elementwise" || call->outputs.size() != 1) return {};
    std::vector<Tensor> inputs;
    for (const ValueId input : call->inputs) {
      if (type(input).elements() != 1) return {};
      inputs.push_back(part(input, whole_spec(type(input).rank())));
    }
    const bool zero = call->inputs.empty() && call->attrs.text("expr") == "0";
    if (!wanted.partial.empty() && !zero) return {};  // only zeros add up to what they are
    kernels::Attrs attrs = call->attrs;
    attrs.set("shape", local_type(type(id), wanted, mesh_).shape);
    return builder_.call1("elementwise", inputs, attrs);
  }

  // Computes the call on ranges of the elements, where every element of the result depends on the same one of the inputs.
  bool flat(const Call& call) {
    AxisSet axes;
    bool any = false;
    for (const ValueId id : call.inputs) {
      any = any || !specs_[at(id)].flat.empty();
      axes |= specs_[at(id)].flat | specs_[at(id)].partial;
    }
    if (!any) return false;
    if (call.op == "square_sum") {
      const ValueId x = call.inputs[0];
      emit(call, {parts_.at({x, specs_[at(x)]})}, call.attrs, {partial_spec(1, axes)});
      return true;
    }
    if (call.op != "adamw" && call.op != "cast" && call.op != "elementwise") return false;
    const TensorType& result = type(call.outputs[0]);
    std::vector<Spec> wanted;
    for (const ValueId id : call.inputs) {
      const bool element = type(id).shape == result.shape;
      const bool same = type(id).elements() == 1 || (call.op == "adamw" && id == call.inputs.back());
      if (!element && !same) return false;
      if (element && specs_[at(id)].cut()) return false;
      wanted.push_back(element ? flat_spec(type(id).rank(), axes) : whole_spec(type(id).rank()));
    }
    for (const ValueId id : call.outputs)
      if (type(id).shape != result.shape) return false;
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < call.inputs.size(); ++i) inputs.push_back(part(call.inputs[i], wanted[i]));
    kernels::Attrs attrs = call.attrs;
    const Spec spec = flat_spec(result.rank(), axes);
    if (attrs.has("shape")) attrs.set("shape", local_type(result, spec, mesh_).shape);
    emit(call, inputs, attrs, std::vector<Spec>(call.outputs.size(), spec));
    return true;
  }

  // Whether the outputs are linear in all inputs together, so that summands of the inputs give summands of the outputs.
  bool linear(const Call& call) const {
    if (call.op == "elementwise") {
      const std::string& expr = call.attrs.text("expr");
      return expr == "add(x0,x1)" || expr == "x0";
    }
    return call.op == "reshape" || call.op == "permute" || call.op == "cast" || call.op == "reduce_sum";
  }

  void along_dimensions(const Call& call) {
    const kernels::CallTypes types(source_, call);
    const Letters letters = letters_of(source_.name, call, types, catalog_.contract(call.op));
    std::map<char, AxisSet> axes;  // of each letter
    AxisSet used, partial;
    bool keeps = linear(call) && !call.inputs.empty();
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const Spec& spec = specs_[at(call.inputs[i])];
      keeps = keeps && !spec.partial.empty() && (i == 0 || spec.partial == partial);
      partial = spec.partial;
      for (std::size_t d = 0; d < spec.dims.size(); ++d) {
        const char letter = letters.inputs[i][d];
        if (letter == '.' || spec.dims[d].empty() || !(spec.dims[d] & used).empty()) continue;
        if (axes.emplace(letter, spec.dims[d]).second) used |= spec.dims[d];
      }
    }
    if (!keeps) partial = linear(call) ? summands_at_rest(call) : AxisSet();
    drop_indivisible(letters.inputs, types.inputs, axes);
    drop_indivisible(letters.outputs, types.outputs, axes);
    const auto cut_by = [&](const std::string& names) {
      Spec spec = whole_spec(static_cast<int>(names.size()));
      for (std::size_t d = 0; d < names.size(); ++d)
        if (const auto found = axes.find(names[d]); found != axes.end()) spec.dims[d] = found->second;
      return spec;
    };
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      Spec wanted = cut_by(letters.inputs[i]);
      wanted.partial = partial;
      inputs.push_back(part(call.inputs[i], wanted));
    }
    std::vector<Spec> specs;
    for (std::size_t o = 0; o < call.outputs.size(); ++o) {
      Spec spec = cut_by(letters.outputs[o]);
      spec.partial = partial;
      for (const auto& [letter, of_letter] : axes)
        if (letters.outputs[o].find(letter) == std::string::npos) spec.partial |= of_letter;
      if (!spec.partial.empty() && call.attrs.flag("residual"))
        fail(call, "a call that adds to a value must not be divided where it sums", to_string(spec));
      specs.push_back(std::move(spec));
    }
    kernels::Attrs attrs = call.attrs;
    if (attrs.has("shape")) attrs.set("shape", local_type(type(call.outputs[0]), specs[0], mesh_).shape);
    emit(call, inputs, attrs, specs);
  }

  // The axes over which a kept sum of gradients is partial, if one is an input: what is added to it becomes partial as well.
  AxisSet summands_at_rest(const Call& call) const {
    for (const ValueId id : call.inputs)
      if (!definitions_[at(id)] && source_.value(id).role == kernels::Role::gradient)
        return specs_[at(id)].partial;
    return {};
  }

  void drop_indivisible(const std::vector<std::string>& letters, const std::vector<TensorType>& types,
                        std::map<char, AxisSet>& axes) const {
    for (std::size_t i = 0; i < letters.size(); ++i)
      for (std::size_t d = 0; d < letters[i].size(); ++d)
        if (const auto found = axes.find(letters[i][d]);
            found != axes.end() && types[i].shape[d] % mesh_.size(found->second) != 0)
          axes.erase(found);
  }

  void emit(const Call& call, const std::vector<Tensor>& inputs, const kernels::Attrs& attrs,
            const std::vector<Spec>& specs) {
    const std::vector<Tensor> outputs = builder_.call(call.op, inputs, attrs);
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const ValueId id = call.outputs[o];
      if (const TensorType want = local_type(type(id), specs[o], mesh_); outputs[o].type() != want)
        fail(call,
             "the part of output " + std::to_string(o) + ", " + to_string(specs[o]) + ", must be " +
                 to_string(want),
             to_string(outputs[o].type()));
      copy_names(source_.value(id), outputs[o]);
      define(id, specs[o], outputs[o]);
      reduce_gradient(id);
    }
  }

  // The gradient of a parameter is added up between ranks where it is known, so that its whole is not kept.
  void reduce_gradient(ValueId id) {
    const kernels::Value& value = source_.value(id);
    if (value.role != kernels::Role::gradient || specs_[at(id)].partial.empty() ||
        !divisible_into_ranges(value.type))
      return;
    if (source_.name == to_string(Step::accumulate) && keeps_partial_sums()) return;
    const Spec spec = flat_spec(value.type.rank(), rows());
    rename(id, spec);
  }

  // Brings a value to a spec for good: that part has its name.
  void rename(ValueId id, const Spec& spec) {
    const Tensor before = parts_.at({id, specs_[at(id)]});
    const Tensor after = part(id, spec);
    if (before.id == after.id) return;
    const kernels::Value named = result_.program.value(before.id);
    kernels::Value& old = result_.program.value(before.id);
    old.name.clear();
    old.role = kernels::Role::activation;
    copy_names(source_.value(id), after);
    specs_[at(id)] = spec;
  }

  void finish() {
    builder_.phase = kernels::Phase::update;
    std::map<ValueId, ValueId> home;  // of an output, the input that it overwrites
    for (const kernels::Donation& donation : source_.donations) home[donation.output] = donation.input;
    for (const ValueId id : source_.outputs) {
      const auto found = home.find(id);
      builder_.path = source_.value(id).name;
      const Spec spec = found == home.end() ? whole_spec(type(id).rank()) : specs_[at(found->second)];
      rename(id, spec);
      if (found != home.end() && source_.value(id).role == kernels::Role::parameter &&
          spec == whole_spec(type(id).rank()) && !divisible_into_ranges(type(id)))
        copy_from_first(id, spec);
      builder_.output(parts_.at({id, spec}));
    }
    for (const kernels::Donation& donation : source_.donations)
      builder_.donate(parts_.at({donation.input, specs_[at(donation.input)]}),
                      parts_.at({donation.output, specs_[at(donation.output)]}));
  }

  // Unlike devices may round what every rank computes differently: all take the bits of the first.
  void copy_from_first(ValueId id, const Spec& spec) {
    const Tensor own = parts_.at({id, spec});
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(mesh_.size(rows())), 0);
    sizes[0] = own.type().elements();
    const Tensor copy =
        kernels::all_gather(own, {to_string(rows()), mesh_.place(rows())}, sizes, own.shape());
    kernels::Value& old = result_.program.value(own.id);
    old.name.clear();
    old.role = kernels::Role::activation;
    copy_names(source_.value(id), copy);
    parts_[{id, spec}] = copy;
  }

  const kernels::Program& source_;
  const kernels::Catalog& catalog_;
  const Topology& mesh_;
  Partitioned result_;
  kernels::Builder builder_;
  std::vector<Spec> specs_;               // by value: how it is divided where it is defined
  std::vector<const Call*> definitions_;  // by value
  std::map<std::pair<ValueId, Spec>, Tensor> parts_;
};

}  // namespace

void check_axes(const Topology& mesh) {
  const AxisSet missing = mesh.all() - AxisName::data - AxisName::fsdp - AxisName::pipeline;
  if (!missing.empty())
    throw hal::Error("mesh " + mesh.text(), "only the axes data, fsdp and pipeline are built yet",
                     to_string(missing));
}

Partitioned partition(kernels::Program program, const kernels::Catalog& catalog, const Topology& mesh) {
  check_axes(mesh);
  // The axis pipeline is that of stages.h.
  if (!(mesh.all() - AxisName::pipeline).empty()) return Partitioner(program, catalog, mesh).run();
  for (const Call& call : program.calls)
    letters_of(program.name, call, kernels::CallTypes(program, call), catalog.contract(call.op));
  return {std::move(program), {}};
}

}  // namespace meshloom::trainer

#include "trainer/compose/passes/distributed/partition.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "hal/error.h"
#include "kernels/collective/collective.h"
#include "kernels/core/partition_rule.h"
#include "trainer/compose/passes/distributed/at_rest.h"
#include "trainer/compose/passes/distributed/call_rule.h"
#include "trainer/compose/passes/distributed/compressed_gradients.h"
#include "trainer/compose/passes/distributed/convert_spec.h"
#include "trainer/compose/passes/distributed/letter_axes.h"
#include "trainer/compose/passes/distributed/own_rows.h"
#include "trainer/compose/passes/distributed/owners.h"
#include "trainer/mesh/spec.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::PartitionRule;
using kernels::Tensor;
using kernels::TensorType;
using kernels::ValueId;

class Partitioner {
 public:
  Partitioner(const kernels::Program& program, const kernels::Catalog& catalog, const Topology& mesh,
              const std::string& attention, kernels::DType gradient_dtype)
      : source_(program),
        catalog_(catalog),
        mesh_(mesh),
        attention_(attention),
        axes_(axes_of_values(mesh)),
        builder_(catalog, result_.program),
        at_rest_(program, catalog, mesh),
        owners_(axes_, mesh),
        compressed_(gradient_dtype, axes_, mesh, builder_, result_.divided),
        specs_(program.values.size()),
        definitions_(program.values.size(), nullptr),
        read_whole_(program.values.size(), 0),
        gathered_(program.values.size(), 0),
        weights_(program.values.size(), 0) {
    result_.program.name = program.name;
  }

  Partitioned run() {
    find_gradients();
    sorts_own_rows_ = calls_that_sort_own_rows(source_, catalog_, rows_of_tokens() - groups(), mesh_);
    find_read();
    for (const ValueId id : source_.inputs) input(id);
    for (const Call& call : source_.calls) {
      for (const ValueId id : call.outputs) {
        definitions_[at(id)] = &call;
        weights_[at(id)] =
            !call.inputs.empty() && std::all_of(call.inputs.begin(), call.inputs.end(),
                                                [&](ValueId input) { return weights_[at(input)] != 0; });
      }
      builder_.path = call.path;
      builder_.phase = call.phase;
      for (const ValueId id : call.inputs) compress_sum(id);
      if (owned(call)) continue;
      const bool gathers = std::any_of(call.inputs.begin(), call.inputs.end(), [&](ValueId id) {
        return type(id).elements() > 1 && (gathered_[at(id)] || !is_whole(id));
      });
      for (const ValueId id : call.outputs) gathered_[at(id)] = gathers;
      if (!flat(call)) along_dimensions(call);
    }
    finish();
    return std::move(result_);
  }

 private:
  static std::size_t at(ValueId id) { return static_cast<std::size_t>(id); }
  const TensorType& type(ValueId id) const { return source_.value(id).type; }
  AxisSet rows() const { return axes_ & kRowAxes; }
  AxisSet rows_of_tokens() const { return rows() | (axes_ & AxisName::seq); }
  // The axes that divide groups of rows, such as those of experts: where rows are sorted into groups, all rows of these axes are
  // gathered, and every rank has the groups of its place.
  AxisSet groups() const { return axes_ & AxisName::expert; }
  [[noreturn]] void fail(const Call& call, const std::string& rule, const std::string& found) const {
    throw hal::Error("partition of program '" + source_.name + "', " + call.op +
                         (call.path.empty() ? "" : " in " + call.path),
                     rule, found);
  }

  // A gradient is made as its parameter, which is named beside it where it is used, rests.
  void find_gradients() {
    for (const Call& call : source_.calls)
      for (const ValueId id : call.inputs) {
        const kernels::Value& gradient = source_.value(id);
        if (gradient.role != kernels::Role::gradient || !gradient.axes.empty()) continue;
        for (const ValueId other : call.inputs) {
          const kernels::Value& value = source_.value(other);
          if (!value.name.empty() && !value.axes.empty() && value.type.shape == gradient.type.shape)
            wanted_.emplace(id, at_rest_.cut(value.type, value.axes));
        }
      }
  }

  void input(ValueId id) {
    const kernels::Value& value = source_.value(id);
    const Spec spec = at_rest_.of(value);
    const Tensor part = builder_.input(value.name, local_type(value.type, spec, mesh_), value.role);
    copy_names(value, part);
    define(id, spec, part);
    weights_[at(id)] = value.role == kernels::Role::parameter;
    if (weights_[at(id)]) parameters_.insert(value.name);
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
    if (const auto found = parts_.find({id, wanted}); found != parts_.end()) return found->second;
    Tensor part = made_in_parts(id, wanted);
    if (!part) {
      const std::size_t first = result_.program.calls.size();
      const Spec own = specs_[at(id)];
      part = convert(parts_.at({id, own}), type(id), own, wanted, mesh_, scatter_sum_of(id));
      // What is gathered is gathered again for the backward pass, as recomputed values are.
      if (own.partial.empty() && builder_.phase == kernels::Phase::forward)
        for (std::size_t i = first; i < result_.program.calls.size(); ++i)
          for (const ValueId made : result_.program.calls[i].outputs)
            result_.program.value(made).tag = "recompute.gathered";
      // A sum is added up once.
      if (!own.partial.empty() && wanted.partial.empty()) specs_[at(id)] = wanted;
    }
    return parts_[{id, wanted}] = part;
  }

  // The parameter whose gradient a value is; "" for others.
  std::string parameter_of(ValueId id) const {
    static constexpr std::string_view kGradient = "grad/";
    const kernels::Value& value = source_.value(id);
    if (value.role != kernels::Role::gradient || !value.name.starts_with(kGradient)) return "";
    std::string path = value.name.substr(kGradient.size());
    return parameters_.count(path) ? path : "";
  }

  // How summands of a gradient are added up where they move in fewer bits.
  ScatterSum scatter_sum_of(ValueId id) {
    std::string path = compressed_.enabled() ? parameter_of(id) : "";
    if (path.empty()) return {};
    return [this, path = std::move(path)](Tensor x, AxisSet over, const kernels::collective::Sizes& parts,
                                          std::int64_t largest) {
      return compressed_.scatter_sum(path, x, over, parts, largest);
    };
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

  // Ops of which every element of the result, or of the sum, depends on the same one of the inputs.
  static bool by_elements(const Call& call) {
    return call.op == "adamw" || call.op == "cast" || call.op == "elementwise" || call.op == "square_sum";
  }

  void find_read() {
    for (const Call& call : source_.calls)
      for (const ValueId id : call.inputs) {
        if (!by_elements(call)) read_whole_[at(id)] = 1;
        if (call.phase == kernels::Phase::update && !at_rest_.of(source_.value(id)).cuts().empty())
          cut_paths_.insert(call.path);
      }
  }

  bool is_whole(ValueId id) const { return specs_[at(id)] == whole_spec(type(id).rank()); }

  // What the update of a parameter needs whole, such as the matrix of Muon's iteration, is gathered to one rank, its owner, which
  // alone computes what follows from it, and the results are scattered: no work is repeated, and unlike devices give one result.
  // Returns the owner; -1 = all compute the call. What it needs beside that must not be gathered, which the others would leave out.
  int owner_for(const Call& call) {
    if (call.phase != kernels::Phase::update || cut_paths_.count(call.path) != 0) return -1;
    int owner = -1;
    bool any_ranges = false;
    for (const ValueId id : call.inputs) {
      const Spec& spec = specs_[at(id)];
      const bool here = (is_whole(id) && !gathered_[at(id)]) || spec.owner >= 0;
      if (!here && (!spec.cuts().empty() || !spec.own.empty() || !owners_.can_hold(type(id)))) return -1;
      if (owner >= 0 && spec.owner >= 0 && spec.owner != owner) return -1;
      owner = std::max(owner, spec.owner);
      any_ranges = any_ranges || !spec.flat.empty();
    }
    for (const ValueId id : call.outputs)
      if (type(id).dtype != kernels::DType::f32) return -1;
    if (by_elements(call)) {
      const bool read_whole = std::any_of(call.outputs.begin(), call.outputs.end(),
                                          [&](ValueId id) { return read_whole_[at(id)] != 0; });
      return any_ranges && !read_whole ? -1 : owner;
    }
    for (const ValueId id : call.inputs)
      if (owner < 0 && !specs_[at(id)].flat.empty()) owner = owners_.of(call.path, type(id));
    return owner;
  }

  // Computes the call on its owner, if it has one. The other ranks have placeholders of the results.
  bool owned(const Call& call) {
    const int owner = owner_for(call);
    if (owner < 0) return false;
    std::vector<Tensor> inputs;
    const bool is_owner = mesh_.place(axes_) == owner;
    Tensor& placeholder = placeholders_[call.path];
    for (const ValueId id : call.inputs) {
      const Spec own = specs_[at(id)];
      if (is_whole(id)) {
        inputs.push_back(parts_.at({id, own}));
        continue;
      }
      const Spec alone = owned_spec(type(id).rank(), owner);
      const std::size_t calls = result_.program.calls.size();
      inputs.push_back(part(id, alone));
      if (!is_owner && result_.program.calls.size() > calls &&
          result_.program.calls.back().op == "gather_to") {
        // No call here reads the placeholder of what was sent before, which would be removed as dead: this one comes after it.
        if (placeholder) result_.program.calls.back().inputs.push_back(placeholder.id);
        placeholder = inputs.back();
      } else if (!is_owner && !placeholder) {
        placeholder = inputs.back();
      }
      if (own.partial.empty()) specs_[at(id)] = alone;  // for what else reads it
    }
    std::vector<Tensor> outputs(call.outputs.size(), placeholder);
    if (is_owner) {
      outputs = builder_.call(call.op, inputs, call.attrs);
      for (std::size_t o = 0; o < outputs.size(); ++o) copy_names(source_.value(call.outputs[o]), outputs[o]);
    }
    for (std::size_t o = 0; o < outputs.size(); ++o)
      define(call.outputs[o], owned_spec(type(call.outputs[o]).rank(), owner), outputs[o]);
    return true;
  }

  // Computes the call on ranges of the elements, where every element of the result depends on the same one of the inputs.
  bool flat(const Call& call) {
    const Spec* box = nullptr;  // of the first input that is in ranges, a persistent one if there is any
    AxisSet axes;
    for (const ValueId id : call.inputs) {
      const Spec& spec = specs_[at(id)];
      if (call.op != "square_sum" && type(id).shape != type(call.outputs[0]).shape) continue;
      axes |= spec.flat | spec.partial;
      if (spec.owner >= 0) axes |= axes_;
      if (!spec.flat.empty() && (!box || !definitions_[at(id)])) box = &spec;
    }
    if (!box) return false;
    if (call.op == "square_sum") {
      const AxisSet summed = box->flat | box->cuts();
      emit(call, {parts_.at({call.inputs[0], *box})}, call.attrs, {partial_spec(1, summed)});
      return true;
    }
    if (!by_elements(call)) return false;
    const TensorType& result = type(call.outputs[0]);
    Spec ranges = box->along_dims();
    ranges.flat = axes - ranges.cuts();
    std::vector<Spec> wanted;
    for (const ValueId id : call.inputs) {
      const bool control = call.op == "adamw" && wanted.size() + 1 == call.inputs.size();
      const bool element = !control && type(id).shape == result.shape;
      const bool same = control || type(id).elements() == 1;
      if (!element && !same) return false;
      wanted.push_back(element ? ranges : whole_spec(type(id).rank()));
    }
    for (const ValueId id : call.outputs)
      if (type(id).shape != result.shape) return false;
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < call.inputs.size(); ++i) inputs.push_back(part(call.inputs[i], wanted[i]));
    kernels::Attrs attrs = call.attrs;
    if (attrs.has("shape")) attrs.set("shape", local_type(result, ranges, mesh_).shape);
    emit(call, inputs, attrs, std::vector<Spec>(call.outputs.size(), ranges));
    return true;
  }

  // Whether the outputs are linear in all inputs together, so that summands of the inputs give summands of the outputs.
  bool linear(const Call& call) const {
    if (call.op == "elementwise") {
      const std::string& expr = call.attrs.text("expr");
      return expr == "add(x0,x1)" || expr == "x0";
    }
    return call.op == "stack" || call.op == "reshape" || call.op == "permute" || call.op == "cast" ||
           call.op == "reduce_sum";
  }

  // The axes over which all inputs of a linear call are summands.
  AxisSet kept_summands(const Call& call) const {
    if (!linear(call) || call.inputs.empty()) return {};
    AxisSet partial = specs_[at(call.inputs[0])].partial;
    if (call.op == "stack") {  // of single numbers, so that they are added up between ranks as one
      for (const ValueId id : call.inputs) partial |= specs_[at(id)].partial;
      return partial;
    }
    for (const ValueId id : call.inputs)
      if (specs_[at(id)].partial != partial) return summands_at_rest(call);
    return partial;
  }

  // The axes over which a kept sum of gradients is partial, if one is an input: what is added to it becomes partial as well.
  AxisSet summands_at_rest(const Call& call) const {
    for (const ValueId id : call.inputs)
      if (!definitions_[at(id)] && source_.value(id).role == kernels::Role::gradient)
        return specs_[at(id)].partial;
    return {};
  }

  // How an input is cut, and would best be cut if it is a sum that is added up now: rows over the axes of the sum, model and
  // expert, so that what follows is computed once (sequence parallelism).
  std::vector<AxisSet> cuts_of(ValueId id, AxisSet kept) const {
    const Spec& spec = specs_[at(id)];
    std::vector<AxisSet> dims = spec.dims;
    const AxisSet sums = (spec.partial - kept) & (groups() | AxisName::model);
    if (dims.size() >= 2 && !sums.empty() && !weights_[at(id)] &&
        divides(type(id).shape[0], dims[0] | sums, mesh_))
      dims[0] |= sums;
    return dims;
  }

  // Gives the letters in braces what shards have of their own: rows, and behind them groups of rows.
  void give_own(LetterAxes& axes, const std::string& letters, AxisSet own, std::int64_t blocks) const {
    const AxisSet of_groups = letters.size() > 1 ? own & groups() : AxisSet();
    axes.give(letters[0], own - of_groups, blocks);
    if (!of_groups.empty()) axes.give(letters[1], of_groups);
  }

  LetterAxes axes_of(const Call& call, const PartitionRule& rule, const kernels::CallTypes& types,
                     AxisSet kept) const {
    LetterAxes axes;
    if (sorts_own_rows_.count(&call) != 0)
      give_own(axes, rule.own_outputs[0], rows_of_tokens(),
               sequences_in(types.inputs[0].shape[0], source_, mesh_));
    for (std::size_t i = 0; i < call.inputs.size(); ++i)
      if (const Spec& spec = specs_[at(call.inputs[i])]; !spec.own.empty()) {
        if (rule.own_inputs[i].empty())
          axes.give(rule.inputs[i][0], spec.dims[0] & spec.own, spec.blocks);
        else
          give_own(axes, rule.own_inputs[i], spec.own, spec.blocks);
      }
    // Rows of the whole are not cut where what they are sorted by is whole.
    const std::set<char> fixed = rule.own_letters();
    for (std::size_t o = 0; o < call.outputs.size(); ++o)
      if (const auto found = wanted_.find(call.outputs[o]); found != wanted_.end())
        for (std::size_t d = 0; d < found->second.dims.size(); ++d)
          if (fixed.count(rule.outputs[o][d]) == 0) axes.give(rule.outputs[o][d], found->second.dims[d]);
    // How parameters are cut goes before how activations are; rows that are cut over model give way to all else.
    const auto give = [&](const auto& axes_of_dim) {
      for (std::size_t i = 0; i < call.inputs.size(); ++i) {
        const ValueId id = call.inputs[i];
        Spec spec = specs_[at(id)];
        spec.dims = cuts_of(id, kept);
        for (std::size_t d = 0; d < spec.dims.size(); ++d)
          if (fixed.count(rule.inputs[i][d]) == 0)
            give_dim(axes, rule, types, i, d, axes_of_dim(id, d, spec.dims[d]), spec);
      }
    };
    const auto rows_over_model = [&](ValueId id, std::size_t d, AxisSet of_dim) {
      return !weights_[at(id)] && d == 0 ? of_dim & AxisName::model : AxisSet();
    };
    give([&](ValueId id, std::size_t, AxisSet of_dim) { return weights_[at(id)] ? of_dim : AxisSet(); });
    give([&](ValueId id, std::size_t d, AxisSet of_dim) { return of_dim - rows_over_model(id, d, of_dim); });
    give(rows_over_model);
    return axes;
  }

  // Whether parts of inputs that are no floats are there, or can be cut: integers of 4 bytes in equal parts.
  bool can_slice(const Call& call, char letter, AxisSet axes, const PartitionRule& rule) const {
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      const TensorType& whole = type(call.inputs[i]);
      if (hal::is_float(whole.dtype)) continue;
      for (std::size_t d = 0; d < rule.inputs[i].size(); ++d)
        if (rule.inputs[i][d] == letter && specs_[at(call.inputs[i])].dims[d] != axes &&
            (hal::size_of(whole.dtype) != 4 || !equal_parts(whole.shape[d], axes, mesh_)))
          return false;
    }
    return true;
  }

  void along_dimensions(const Call& call) {
    const kernels::CallTypes types(source_, call);
    const kernels::Contract& contract = catalog_.contract(call.op);
    const PartitionRule rule = rule_of(source_, call, catalog_);
    const AxisSet kept = kept_summands(call);
    LetterAxes axes = axes_of(call, rule, types, kept);
    // What is added to a sum of which every rank has a summand is not cut over these axes, but whole on one of the ranks.
    for (const auto& [letter, of_letter] : std::map(axes.all())) axes.set(letter, of_letter - kept);
    keep_groups(rule, axes);
    keep_divisible(
        call, rule, types, catalog_, mesh_,
        [&](char letter, AxisSet of_letter) { return can_slice(call, letter, of_letter, rule); }, axes);
    const auto cut_by = [&](const std::string& names, const std::string& inner, const TensorType& whole) {
      Spec spec = whole_spec(whole.rank());
      for (std::size_t d = 0; d < names.size(); ++d)
        if (const AxisSet cut = axes.of(names[d]) | axes.of(inner[d]);
            !shares_places(whole.shape[d], cut, mesh_)) {
          spec.dims[d] = cut;
          if (axes.of(inner[d]).has(AxisName::seq))
            spec.blocks = axes.blocks_of(inner[d]) * outer_places(names[d], rule, types);
          else if (cut.has(AxisName::seq))
            spec.blocks = axes.blocks_of(names[d]);
        }
      return spec;
    };
    // Rows that no shard sorts by itself are whole.
    std::set<char> whole_letters = rule.own_letters();
    if (std::any_of(whole_letters.begin(), whole_letters.end(),
                    [&](char letter) { return !axes.of(letter).empty(); }))
      whole_letters.clear();
    whole_letters.insert('.');
    std::vector<Tensor> inputs;
    AxisSet own;
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      Spec wanted = cut_by(rule.inputs[i], rule.inner_inputs[i], types.inputs[i]);
      wanted.partial = kept;
      wanted.own = specs_[at(call.inputs[i])].own;
      if (wanted.own.has(AxisName::seq)) wanted.blocks = specs_[at(call.inputs[i])].blocks;
      own |= wanted.own;
      note_whole(call, i, rule.inputs[i], whole_letters, wanted);
      Tensor input = part(call.inputs[i], wanted);
      for (std::size_t d = 0; d < rule.inputs[i].size(); ++d)
        if (const AxisSet cut = axes.of(rule.inputs[i][d]);
            shares_places(types.inputs[i].shape[d], cut, mesh_))
          input = slice_dim(input, d, shared_place(types.inputs[i].shape[d], cut, mesh_));
      inputs.push_back(input);
    }
    std::vector<Spec> specs;
    for (std::size_t o = 0; o < call.outputs.size(); ++o) {
      Spec spec = cut_by(rule.outputs[o], rule.inner_outputs[o], types.outputs[o]);
      spec.partial = kept;
      for (const auto& [letter, of_letter] : axes.all())
        if (std::islower(static_cast<unsigned char>(letter)) != 0 &&
            rule.outputs[o].find(letter) == std::string::npos &&
            rule.inner_outputs[o].find(letter) == std::string::npos)
          spec.partial |= of_letter;
      if (!rule.own_letters().empty())
        for (const char letter : rule.own_outputs[o]) spec.own |= axes.of(letter);
      else
        spec.own = own - spec.partial;
      if (!rule.own_outputs[o].empty()) spec.partial = spec.partial - spec.own;
      if (spec.own.has(AxisName::seq))
        for (const auto& [letter, of_letter] : axes.all())
          if (of_letter.has(AxisName::seq)) spec.blocks = axes.blocks_of(letter);
      specs.push_back(std::move(spec));
    }
    kernels::Attrs attrs = call.attrs;
    if (attrs.has("shape")) attrs.set("shape", local_type(type(call.outputs[0]), specs[0], mesh_).shape);
    std::vector<Tensor> outputs =
        contract.local ? contract.local({builder_, types.view(call), inputs, attrs,
                                         cuts_of_letters(rule, types, axes, mesh_), attention_})
                       : builder_.call(call.op, inputs, attrs);
    // Where ranks share a place of a dimension, each has a summand of it.
    for (std::size_t o = 0; o < outputs.size(); ++o)
      for (std::size_t d = 0; d < rule.outputs[o].size(); ++d) {
        const std::int64_t size = types.outputs[o].shape[d];
        const AxisSet cut = axes.of(rule.outputs[o][d]);
        if (!shares_places(size, cut, mesh_)) continue;
        outputs[o] = pad_dim(outputs[o], d, shared_place(size, cut, mesh_), size);
        specs[o].partial |= cut;
      }
    define_outputs(call, outputs, specs);
  }

  // Keeps what an op has whole although it comes in parts, for plans to say so.
  void note_whole(const Call& call, std::size_t i, const std::string& letters,
                  const std::set<char>& whole_letters, const Spec& wanted) {
    const Spec& own = specs_[at(call.inputs[i])];
    if (weights_[at(call.inputs[i])] || type(call.inputs[i]).elements() < 2) return;
    for (std::size_t d = 0; d < letters.size(); ++d)
      if (whole_letters.count(letters[d]) != 0 && !own.dims[d].empty() && wanted.dims[d].empty()) {
        result_.made_whole.push_back({call.op, type(call.inputs[i]).bytes()});
        return;
      }
  }

  void emit(const Call& call, const std::vector<Tensor>& inputs, const kernels::Attrs& attrs,
            const std::vector<Spec>& specs) {
    define_outputs(call, builder_.call(call.op, inputs, attrs), specs);
  }

  void define_outputs(const Call& call, const std::vector<Tensor>& outputs, const std::vector<Spec>& specs) {
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const ValueId id = call.outputs[o];
      const Tensor& output = outputs[o];
      const Spec& spec = specs[o];
      // What a shard has of its own has the size that its groups give it.
      if (const TensorType want = local_type(type(id), spec, mesh_);
          (spec.own & groups()).empty() && output.type() != want)
        fail(call,
             "the part of output " + std::to_string(o) + ", " + to_string(spec) + ", must be " +
                 to_string(want),
             to_string(output.type()));
      copy_names(source_.value(id), output);
      define(id, spec, output);
      reduce_gradient(id);
    }
  }

  // The gradient of a parameter is added up between ranks where it is known, so that its whole is not kept.
  void reduce_gradient(ValueId id) {
    const kernels::Value& value = source_.value(id);
    const auto wanted = wanted_.find(id);
    Spec spec = wanted == wanted_.end() ? specs_[at(id)].along_dims() : wanted->second;
    if (value.role != kernels::Role::gradient || specs_[at(id)].partial.empty() ||
        !at_rest_.divisible_into_ranges(value.type, spec))
      return;
    if (source_.name == to_string(Step::accumulate) && at_rest_.keeps_partial_sums()) return;
    spec.flat = at_rest_.copies(spec);
    rename(id, spec);
  }

  // A sum of gradients over micro-batches that every rank has a summand of moves in fewer bits where it is added up to ranges.
  void compress_sum(ValueId id) {
    if (!compressed_.enabled() || source_.name != to_string(Step::apply) || parameter_of(id).empty()) return;
    Spec spec = specs_[at(id)].along_dims();
    if (specs_[at(id)].partial.empty() || !at_rest_.divisible_into_ranges(type(id), spec)) return;
    spec.flat = at_rest_.copies(spec);
    part(id, spec);
  }

  // Brings a value to a spec for good: that part has its name.
  void rename(ValueId id, const Spec& spec) {
    const Tensor before = parts_.at({id, specs_[at(id)]});
    const Tensor after = part(id, spec);
    specs_[at(id)] = spec;
    if (before.id == after.id) return;
    kernels::Value& old = result_.program.value(before.id);
    old.name.clear();
    old.role = kernels::Role::activation;
    copy_names(source_.value(id), after);
  }

  void finish() {
    builder_.phase = kernels::Phase::update;
    std::map<ValueId, ValueId> home;  // of an output, the input that it overwrites
    for (const kernels::Donation& donation : source_.donations) home[donation.output] = donation.input;
    for (const ValueId id : source_.outputs) {
      const auto found = home.find(id);
      builder_.path = source_.value(id).name;
      const Spec whole = whole_spec(type(id).rank());
      const Spec spec = found == home.end() ? whole : at_rest_.of(source_.value(found->second));
      rename(id, spec);
      if (found != home.end() && source_.value(id).role == kernels::Role::parameter && spec == whole &&
          !at_rest_.divisible_into_ranges(type(id), spec))
        copy_from_first(id, spec);
      builder_.output(parts_.at({id, spec}));
    }
    for (const kernels::Donation& donation : source_.donations)
      builder_.donate(parts_.at({donation.input, at_rest_.of(source_.value(donation.input))}),
                      parts_.at({donation.output, specs_[at(donation.output)]}));
  }

  // Unlike devices may round what every rank computes differently: all take the bits of the first.
  void copy_from_first(ValueId id, const Spec& spec) {
    const Tensor own = parts_.at({id, spec});
    const Tensor copy = broadcast(own, axes_, mesh_);
    kernels::Value& old = result_.program.value(own.id);
    old.name.clear();
    old.role = kernels::Role::activation;
    copy_names(source_.value(id), copy);
    parts_[{id, spec}] = copy;
  }

  const kernels::Program& source_;
  const kernels::Catalog& catalog_;
  const Topology& mesh_;
  const std::string& attention_;
  AxisSet axes_;  // the axes pipeline and islands divide no values here
  Partitioned result_;
  kernels::Builder builder_;
  AtRest at_rest_;
  Owners owners_;
  CompressedGradients compressed_;
  std::vector<Spec> specs_;               // by value: how it is divided where it is defined
  std::vector<const Call*> definitions_;  // by value
  std::vector<char> read_whole_;          // by value: a call reads it that does not go by elements
  std::vector<char> gathered_;            // by value: it depends on what is gathered, not as one number
  std::vector<char> weights_;             // by value: it depends on parameters alone
  std::set<const Call*> sorts_own_rows_;  // calls that every shard does with its own rows
  std::set<std::string> cut_paths_;       // of updates that read a parameter, or a state of it, that is cut
  std::set<std::string> parameters_;      // paths
  std::map<std::string, Tensor> placeholders_;  // by path: the output of the last gather to another rank
  std::map<ValueId, Spec> wanted_;              // how gradients of parameters are cut along dimensions
  std::map<std::pair<ValueId, Spec>, Tensor> parts_;
};

}  // namespace

Partitioned partition(kernels::Program program, const kernels::Catalog& catalog, const Topology& mesh,
                      const std::string& attention, kernels::DType gradient_dtype) {
  // The axes pipeline and islands are those of stages.h and islands.h.
  if (!(mesh.all() - AxisName::pipeline - AxisName::islands).empty())
    return Partitioner(program, catalog, mesh, attention, gradient_dtype).run();
  for (const Call& call : program.calls) rule_of(program, call, catalog);
  return {std::move(program), {}, {}};
}

}  // namespace meshloom::trainer

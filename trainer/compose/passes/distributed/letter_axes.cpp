#include "trainer/compose/passes/distributed/letter_axes.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "trainer/compose/passes/distributed/call_rule.h"

namespace meshloom::trainer {
namespace {

using kernels::Call;
using kernels::PartitionRule;

// Which axes may cut the letters of one call.
class Divisibility {
 public:
  Divisibility(const Call& call, const PartitionRule& rule, const kernels::CallTypes& types,
               const kernels::Catalog& catalog, const Topology& mesh)
      : call_(call), rule_(rule), types_(types), catalog_(catalog), mesh_(mesh) {}

  void keep(LetterAxes& axes, const MayCut& may_cut) const {
    for (auto [letter, of_letter] : std::map(axes.all())) {
      const std::vector<std::int64_t> inputs = sizes_of(letter, rule_.inputs, types_.inputs),
                                      outputs = sizes_of(letter, rule_.outputs, types_.outputs);
      while (!of_letter.empty() &&
             !(divides_all(of_letter, inputs, outputs) &&
               in_units(letter, of_letter, axes.blocks_of(letter), inputs) && may_cut(letter, of_letter) &&
               knows_places(letter, of_letter, axes.blocks_of(letter)) &&
               divides_blocks(of_letter, axes.blocks_of(letter), inputs, outputs)))
        of_letter = of_letter - of_letter.list().back();
      axes.set(letter, of_letter);
    }
  }

 private:
  // Whether what an op computes by places of the whole dimension, which are those of an upper-case letter and the rows of a table,
  // can do with the runs that a rank has: one of each of several blocks, or two in zigzag.
  bool knows_places(char letter, AxisSet axes, std::int64_t blocks) const {
    const bool rows_of_table = letter == 'v' && (call_.op == "embedding" || call_.op == "embedding_grad");
    if (std::isupper(static_cast<unsigned char>(letter)) == 0 && !rows_of_table) return true;
    if (axes.has(AxisName::seq) && blocks > 1) return false;
    if (!mesh_.zigzag(axes)) return true;
    return catalog_.contract(call_.op).takes_two_runs && axes == AxisSet(AxisName::seq);
  }

  static AxisSet behind_seq(AxisSet axes) { return axes - in_front(axes, AxisName::seq) - AxisName::seq; }

  // The parts of a dimension that seq cuts each by itself: its blocks, or what the axes in front of seq leave of a single one.
  std::int64_t parts_in_front(AxisSet axes, std::int64_t blocks) const {
    return blocks == 1 ? mesh_.size(in_front(axes, AxisName::seq)) : blocks;
  }

  // The runs into which seq cuts each of these parts.
  std::int64_t runs_of(AxisSet axes) const {
    return mesh_.size(AxisName::seq) * (mesh_.zigzag(axes) ? 2 : 1);
  }

  // Whether axes divide the blocks of a dimension, and seq every block.
  bool divides_blocks(AxisSet axes, std::int64_t blocks, std::vector<std::int64_t> sizes,
                      const std::vector<std::int64_t>& more) const {
    if (!axes.has(AxisName::seq) || (blocks == 1 && !mesh_.zigzag(axes))) return true;
    sizes.insert(sizes.end(), more.begin(), more.end());
    const AxisSet front = in_front(axes, AxisName::seq);
    const std::int64_t parts = parts_in_front(axes, blocks);
    return (blocks == 1 ? equal_parts(parts, front, mesh_) : divides(blocks, front, mesh_)) &&
           std::all_of(sizes.begin(), sizes.end(),
                       [&](std::int64_t size) { return size % (parts * runs_of(axes)) == 0; });
  }

  bool in_units(char letter, AxisSet axes, std::int64_t blocks,
                const std::vector<std::int64_t>& inputs) const {
    const auto found = rule_.units.find(letter);
    if (found == rule_.units.end()) return true;
    const std::int64_t unit = found->second;
    return std::all_of(inputs.begin(), inputs.end(), [&](std::int64_t size) {
      if (size % unit != 0) return false;
      // What seq leaves of every block lies apart.
      return axes.has(AxisName::seq)
                 ? size / unit %
                           (parts_in_front(axes, blocks) * runs_of(axes) * mesh_.size(behind_seq(axes))) ==
                       0
                 : divides(size / unit, axes, mesh_);
    });
  }

  bool divides_all(AxisSet axes, const std::vector<std::int64_t>& inputs,
                   const std::vector<std::int64_t>& outputs) const {
    const std::int64_t places = mesh_.size(axes);
    std::vector<std::int64_t> sizes = inputs;
    sizes.insert(sizes.end(), outputs.begin(), outputs.end());
    const auto all = [&](const auto& good) { return std::all_of(sizes.begin(), sizes.end(), good); };
    if (all([&](std::int64_t size) { return divides(size, axes, mesh_); })) return true;
    if (!mesh_.shares().empty() && !(axes & kRowAxes).empty()) return false;
    // Parts of unequal size are the same of all tensors if the sizes are.
    if (all([&](std::int64_t size) { return size == sizes[0]; })) return sizes[0] >= places;
    // An input of fewer places beside one of more, such as keys beside queries, is shared.
    const bool larger = std::any_of(inputs.begin(), inputs.end(),
                                    [&](std::int64_t size) { return size >= places && size % places == 0; });
    return larger && all([&](std::int64_t size) {
             return size % places == 0 || (shares_places(size, axes, mesh_) &&
                                           std::find(inputs.begin(), inputs.end(), size) != inputs.end());
           });
  }

  const Call& call_;
  const PartitionRule& rule_;
  const kernels::CallTypes& types_;
  const kernels::Catalog& catalog_;
  const Topology& mesh_;
};

void set_part(kernels::Cut& cut, std::int64_t size, AxisSet axes, const Topology& mesh) {
  const Range range = dim_range(size, axes, mesh, mesh.rank());
  cut.first = range.first;
  cut.count = range.count;
  if (axes != AxisSet(AxisName::seq) || !mesh.zigzag(axes)) return;
  const TwoRuns runs = two_runs(size, axes, mesh, mesh.rank());
  cut.first = runs.first;
  cut.second = runs.second;
}

}  // namespace

bool equal_parts(std::int64_t n, AxisSet axes, const Topology& mesh) {
  return n % mesh.size(axes) == 0 && (mesh.shares().empty() || (axes & kRowAxes).empty());
}
bool shares_places(std::int64_t size, AxisSet axes, const Topology& mesh) {
  const std::int64_t places = mesh.size(axes);
  return size < places && places % size == 0;
}

Range shared_place(std::int64_t size, AxisSet axes, const Topology& mesh) {
  return {mesh.place(axes) * size / mesh.size(axes), 1};
}

std::int64_t outer_places(char letter, const PartitionRule& rule, const kernels::CallTypes& types) {
  const auto in = [&](const auto& letters, const auto& inner, const auto& of) -> std::int64_t {
    for (std::size_t i = 0; i < letters.size(); ++i)
      for (std::size_t d = 0; d < letters[i].size(); ++d)
        if (letters[i][d] == letter && inner[i][d] == '.') return of[i].shape[d];
    return 0;
  };
  const std::int64_t places = in(rule.inputs, rule.inner_inputs, types.inputs);
  return places > 0 ? places : in(rule.outputs, rule.inner_outputs, types.outputs);
}

void give_dim(LetterAxes& axes, const PartitionRule& rule, const kernels::CallTypes& types, std::size_t input,
              std::size_t d, AxisSet given, const Spec& spec) {
  const char letter = rule.inputs[input][d], inner = rule.inner_inputs[input][d];
  if (inner == '.') return axes.give(letter, given, spec.blocks);
  const std::int64_t places = outer_places(letter, rule, types);
  if (places == 1) return axes.give(inner, given, spec.blocks);
  if (spec.dims[d].has(AxisName::seq) && spec.blocks % places == 0) {
    axes.give(inner, given & AxisName::seq, spec.blocks / places);
    given = in_front(given, AxisName::seq);
  }
  axes.give(letter, given, spec.blocks);
}

void keep_groups(const PartitionRule& rule, LetterAxes& axes) {
  const auto check = [&](const auto& letters, const auto& inner) {
    for (std::size_t i = 0; i < letters.size(); ++i)
      for (std::size_t d = 0; d < letters[i].size(); ++d) {
        if (inner[i][d] == '.' || axes.of(inner[i][d]).empty()) continue;
        axes.set(inner[i][d], axes.of(inner[i][d]) & AxisName::seq);
        axes.set(letters[i][d], in_front(axes.of(letters[i][d]), AxisName::seq));
      }
  };
  check(rule.inputs, rule.inner_inputs);
  check(rule.outputs, rule.inner_outputs);
}

void keep_divisible(const Call& call, const PartitionRule& rule, const kernels::CallTypes& types,
                    const kernels::Catalog& catalog, const Topology& mesh, const MayCut& may_cut,
                    LetterAxes& axes) {
  Divisibility(call, rule, types, catalog, mesh).keep(axes, may_cut);
}

std::map<char, kernels::Cut> cuts_of_letters(const PartitionRule& rule, const kernels::CallTypes& types,
                                             const LetterAxes& axes, const Topology& mesh) {
  std::map<char, kernels::Cut> cuts;
  for (const auto& [letter, of_letter] : axes.all()) {
    if (of_letter.empty()) continue;
    kernels::Cut& cut = cuts[letter];
    cut = {
        to_string(of_letter), mesh.place(of_letter), mesh.size(of_letter), 0, 0, axes.blocks_of(letter), {}};
    for (const std::int64_t size : sizes_of(letter, rule.inputs, types.inputs))
      set_part(cut, size, of_letter, mesh);
    for (const std::int64_t size : sizes_of(letter, rule.outputs, types.outputs))
      set_part(cut, size, of_letter, mesh);
  }
  return cuts;
}

}  // namespace meshloom::trainer

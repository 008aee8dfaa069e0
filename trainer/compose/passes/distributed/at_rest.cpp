#include "trainer/compose/passes/distributed/at_rest.h"

#include <algorithm>

#include "hal/error.h"
#include "trainer/compose/passes/distributed/call_rule.h"
#include "trainer/compose/step.h"
#include "trainer/mesh/shares.h"

namespace meshloom::trainer {
namespace {

// The axis that cuts a logical axis of parameters; none = they are whole along it.
AxisSet axis_of_parameters(const std::string& logical) {
  for (const char* cut : {"heads", "kv_heads", "mlp", "vocab"})
    if (logical == cut) return AxisName::model;
  if (logical == "expert") return AxisName::expert;
  return {};
}

// "2 and 4": the largest number below `size` that divides n, and the smallest above.
std::string nearest_divisors(std::int64_t n, std::int64_t size) {
  std::int64_t below = std::min(size, n), above = size;
  while (n % below != 0) --below;
  while (above < n && n % above != 0) ++above;
  return std::to_string(below) + (above <= n ? " and " + std::to_string(above) : "");
}

}  // namespace

AtRest::AtRest(const kernels::Program& program, const kernels::Catalog& catalog, const Topology& mesh)
    : program_(program), catalog_(catalog), mesh_(mesh), axes_(axes_of_values(mesh)) {
  check_heads();
  check_experts();
}

Spec AtRest::of(const kernels::Value& value) const {
  Spec spec = whole_spec(value.type.rank());
  switch (value.role) {
    case kernels::Role::input:
      if (program_.name != to_string(Step::logits) && !value.axes.empty() && value.axes[0] == "batch") {
        spec.dims[0] = rows();
        check_rows(value.type.shape[0]);
        if (value.axes.size() > 1 && value.axes[1] == "seq") cut_sequence(value, spec);
      }
      return spec;
    case kernels::Role::parameter:
      spec = hal::is_float(value.type.dtype) ? cut(value.type, value.axes) : cut_bytes(value);
      if (divisible_into_ranges(value.type, spec)) spec.flat = rows() & AxisName::fsdp;
      return spec;
    case kernels::Role::optimizer:
      spec = cut(value.type, value.axes);
      if (divisible_into_ranges(value.type, spec)) spec.flat = copies(spec);
      return spec;
    case kernels::Role::gradient:
      spec = cut(value.type, value.axes);
      if (divisible_into_ranges(value.type, spec) && !keeps_partial_sums())
        spec.flat = copies(spec);
      else
        spec.partial = copies(spec);
      return spec;
    case kernels::Role::state:
    case kernels::Role::cache:
    case kernels::Role::parameter_copy:
    case kernels::Role::activation:
      break;
  }
  return spec;
}

// Queries' heads are divided among the ranks of the axis model; a rank that has less than a head of keys shares it.
void AtRest::check_heads() const {
  const std::int64_t ranks = mesh_.size(AxisName::model);
  for (const kernels::Value& value : program_.values)
    for (std::size_t d = 0; d < value.axes.size() && value.type.rank() == 4; ++d) {
      const std::int64_t heads = value.type.shape[d];
      const bool shared = value.axes[d] == "kv_heads" && ranks % heads == 0;
      if ((value.axes[d] != "heads" && value.axes[d] != "kv_heads") || heads % ranks == 0 || shared) continue;
      std::string fitting;
      for (std::int64_t n = 2; n <= heads; ++n)
        if (heads % n == 0) fitting += (fitting.empty() ? "" : ", ") + std::to_string(n);
      throw hal::Error("mesh " + mesh_.text(),
                       "the axis model must divide the " + std::to_string(heads) + " " + value.axes[d] +
                           " of attention; " + (fitting.empty() ? "only 1 does" : fitting + " do"),
                       "model=" + std::to_string(ranks));
    }
}

void AtRest::check_rows(std::int64_t n) const {
  if (!mesh_.shares().empty()) {
    check_shares(mesh_.shares(), mesh_.size(rows()), n, "mesh.shares");
  } else if (n % mesh_.size(rows()) != 0) {
    throw hal::Error("mesh " + mesh_.text(),
                     "the rows of a micro-batch must be a multiple of its " +
                         std::to_string(mesh_.size(rows())) + " ranks of " + to_string(rows()),
                     std::to_string(n) + " rows");
  }
}

// Experts are divided among the ranks of the axis expert, as many for each.
void AtRest::check_experts() const {
  const std::int64_t ranks = mesh_.size(AxisName::expert);
  for (const kernels::Value& value : program_.values)
    if (!value.axes.empty() && value.axes[0] == "expert" && value.role == kernels::Role::parameter &&
        value.type.shape[0] % ranks != 0)
      throw hal::Error("mesh " + mesh_.text(),
                       "the axis expert must divide the " + std::to_string(value.type.shape[0]) +
                           " experts; " + nearest_divisors(value.type.shape[0], ranks) + " do",
                       "expert=" + std::to_string(ranks));
}

Spec AtRest::cut(const kernels::TensorType& type, const std::vector<std::string>& axes) const {
  if (!hal::is_float(type.dtype)) return whole_spec(type.rank());
  return cut_where(axes, type.rank(),
                   [&](std::size_t d, AxisSet cut) { return type.shape[d] >= mesh_.size(cut); });
}

Spec AtRest::cut_where(const std::vector<std::string>& axes, int rank,
                       const std::function<bool(std::size_t, AxisSet)>& may_cut) const {
  Spec spec = whole_spec(rank);
  AxisSet used;
  for (std::size_t d = 0; d < axes.size(); ++d) {
    const AxisSet cut = (axis_of_parameters(axes[d]) & axes_) - used;
    if (cut.empty() || !may_cut(d, cut)) continue;
    spec.dims[d] = cut;
    used |= cut;
  }
  return spec;
}

// Bytes, such as packed weights, are not gathered along dimensions: they are cut where all that read them can do with parts.
Spec AtRest::cut_bytes(const kernels::Value& value) const {
  return cut_where(value.axes, value.type.rank(),
                   [&](std::size_t d, AxisSet cut) { return read_in_parts(value, d, cut); });
}

bool AtRest::read_in_parts(const kernels::Value& value, std::size_t d, AxisSet cut) const {
  const auto divided = [&](std::int64_t size) { return size % mesh_.size(cut) == 0; };
  for (const kernels::Call& call : program_.calls)
    for (std::size_t i = 0; i < call.inputs.size(); ++i) {
      if (&program_.value(call.inputs[i]) != &value) continue;
      const kernels::PartitionRule rule = rule_of(program_, call, catalog_);
      const kernels::CallTypes types(program_, call);
      const char letter = rule.inputs[i][d];
      const std::vector<std::int64_t> inputs = sizes_of(letter, rule.inputs, types.inputs),
                                      outputs = sizes_of(letter, rule.outputs, types.outputs);
      if (letter == '.' || !std::all_of(inputs.begin(), inputs.end(), divided) ||
          !std::all_of(outputs.begin(), outputs.end(), divided))
        return false;
    }
  return true;
}

// The tokens of rows are divided over the axis seq.
void AtRest::cut_sequence(const kernels::Value& value, Spec& spec) const {
  const std::int64_t tokens = value.type.shape[1], ranks = mesh_.size(AxisName::seq);
  const bool zigzag = mesh_.zigzag(AxisName::seq);
  if (const std::int64_t runs = zigzag ? 2 * ranks : ranks; tokens % runs != 0) {
    const std::int64_t below = tokens / runs * runs;
    throw hal::Error(
        "mesh " + mesh_.text(),
        (zigzag ? "in zigzag, twice the axis seq must divide the " : "the axis seq must divide the ") +
            std::to_string(tokens) + " tokens of '" + value.name + "'; " +
            (below > 0 ? std::to_string(below) + " or " : "") + std::to_string((tokens / runs + 1) * runs) +
            " tokens would do",
        "seq=" + std::to_string(ranks));
  }
  spec.dims[1] = axes_ & AxisName::seq;
}

bool AtRest::divisible_into_ranges(const kernels::TensorType& type, const Spec& spec) const {
  std::int64_t least = 1;
  for (std::size_t d = 0; d < spec.dims.size(); ++d) least *= type.shape[d] / mesh_.size(spec.dims[d]);
  return type.dtype == kernels::DType::f32 && least >= mesh_.size(copies(spec));
}

}  // namespace meshloom::trainer

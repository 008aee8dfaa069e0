#include "bench/measure/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "hal/error.h"
#include "kernels/core/compare.h"
#include "kernels/core/partition_rule.h"
#include "kernels/core/rng.h"

namespace meshloom::bench {
namespace {

using kernels::HostTensor;
using kernels::TensorType;

// The approximate speed of references, which run on one core in double precision.
constexpr double kFlopsPerSecond = 1.5e9, kElementsPerSecond = 4e7;
constexpr double kMaxSeconds = 30;  // of the reference of a call that cannot be cut

double cost(const kernels::Contract& contract, const kernels::CallView& call) {
  double elements = 0;
  for (const auto* types : {&call.inputs, &call.outputs})
    for (const TensorType& type : *types) elements += static_cast<double>(type.elements());
  return contract.flops(call) / kFlopsPerSecond + elements / kElementsPerSecond;
}

// Whether the op takes these inputs and gives these outputs.
bool takes(const kernels::Contract& contract, const std::vector<TensorType>& in, const kernels::Attrs& attrs,
           const std::vector<TensorType>& out) {
  try {
    return contract.infer(in, attrs) == out;
  } catch (const hal::Error&) {
    return false;
  }
}

// `count` indices of [0, size), sorted: both ends and random ones in between.
std::vector<std::int64_t> choose(std::int64_t size, std::int64_t count, std::uint64_t seed) {
  std::set<std::int64_t> chosen{size - 1, 0};
  while (static_cast<std::int64_t>(chosen.size()) > count) chosen.erase(chosen.begin());
  kernels::Rng rng(seed);
  while (static_cast<std::int64_t>(chosen.size()) < count) chosen.insert(rng.integer(0, size - 1));
  return {chosen.begin(), chosen.end()};
}

}  // namespace

std::string_view to_string(CheckResult::State state) {
  switch (state) {
    case CheckResult::State::ok:
      return "ok";
    case CheckResult::State::wrong:
      return "wrong";
    case CheckResult::State::unchecked:
      return "unchecked";
  }
  return "?";
}

TensorType Checker::gathered(const TensorType& type, const std::string& dims) const {
  TensorType result = type;
  for (std::size_t d = 0; d < dims.size(); ++d)
    for (const Letter& letter : letters_)
      if (letter.name == dims[d])
        result.shape[d] = static_cast<std::int64_t>(letter.indices.size()) * (type.shape[d] / letter.unit);
  return result;
}

HostTensor Checker::gather(const HostTensor& tensor, const std::string& dims) const {
  HostTensor result(gathered(tensor.type, dims));
  const std::size_t rank = tensor.type.shape.size();
  std::vector<std::vector<std::int64_t>> indices(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t size = tensor.type.shape[d];
    const auto letter =
        std::find_if(letters_.begin(), letters_.end(), [&](const Letter& l) { return l.name == dims[d]; });
    if (letter == letters_.end()) {
      for (std::int64_t i = 0; i < size; ++i) indices[d].push_back(i);
      continue;
    }
    const std::int64_t factor = size / letter->unit;
    for (std::int64_t i : letter->indices)
      for (std::int64_t j = 0; j < factor; ++j) indices[d].push_back(i * factor + j);
  }
  const std::size_t width = hal::size_of(tensor.type.dtype);
  std::byte* to = result.data.data();
  const std::function<void(std::size_t, std::int64_t)> copy = [&](std::size_t d, std::int64_t offset) {
    if (d == rank) {
      std::memcpy(to, tensor.data.data() + static_cast<std::size_t>(offset) * width, width);
      to += width;
      return;
    }
    const std::int64_t size = tensor.type.shape[d];
    if (d + 1 == rank && static_cast<std::int64_t>(indices[d].size()) == size) {  // a whole row
      std::memcpy(to, tensor.data.data() + static_cast<std::size_t>(offset * size) * width,
                  static_cast<std::size_t>(size) * width);
      to += static_cast<std::size_t>(size) * width;
      return;
    }
    for (std::int64_t i : indices[d]) copy(d + 1, offset * size + i);
  };
  copy(0, 0);
  return result;
}

Checker::Checker(const Workload& workload, const std::vector<HostTensor>& inputs, double budget_seconds)
    : workload_(workload) {
  const kernels::Contract& contract = *workload.contract;
  const kernels::CallView call = workload.view();
  std::vector<TensorType> in = workload.inputs, out = workload.outputs;
  kernels::Attrs attrs = workload.attrs;
  covered_ = "all";
  if (cost(contract, call) > budget_seconds) {
    const kernels::PartitionRule rule = kernels::partition_rule(contract, call, contract.name);
    inputs_ = rule.inputs;
    outputs_ = rule.outputs;
    const std::set<char> own = rule.own_letters();
    std::set<char> inner;
    for (const auto* list : {&rule.inner_inputs, &rule.inner_outputs})
      for (const std::string& letters : *list) inner.insert(letters.begin(), letters.end());
    // The letters that every output has, with the size of their unit.
    std::map<char, std::int64_t> units;
    const auto note = [&](const std::vector<std::string>& dims, const std::vector<TensorType>& types) {
      for (std::size_t t = 0; t < types.size(); ++t)
        for (std::size_t d = 0; d < types[t].shape.size(); ++d) {
          // Places under an upper-case letter are not alike, and rows that a shard sorts or counts by itself stay together; the
          // second letter of a dimension of two, "(bs)", is whole.
          if (inner.count(dims[t][d]) != 0) continue;
          if (dims[t][d] < 'a' || dims[t][d] > 'z' || own.count(dims[t][d]) != 0 ||
              rule.units.count(dims[t][d]) != 0)
            continue;
          const auto [it, fresh] = units.emplace(dims[t][d], types[t].shape[d]);
          if (!fresh) it->second = std::min(it->second, types[t].shape[d]);
        }
    };
    note(inputs_, in);
    note(outputs_, out);
    for (const auto& [name, unit] : units) {
      const bool everywhere = std::all_of(
          outputs_.begin(), outputs_.end(),
          [&, name = name](const std::string& dims) { return dims.find(name) != std::string::npos; });
      if (!everywhere || unit < 2) continue;
      Letter& letter = letters_.emplace_back(Letter{name, unit, {}});
      letter.indices.resize(static_cast<std::size_t>(unit));
    }
    // Halve the longest dimension until the smaller call is cheap.
    const auto shrink = [&] {
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = gathered(workload.inputs[i], inputs_[i]);
      for (std::size_t o = 0; o < out.size(); ++o) out[o] = gathered(workload.outputs[o], outputs_[o]);
      for (const auto& [name, value] : workload.attrs.items())  // such as the shape of an elementwise call
        if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value))
          if (*list == workload.outputs[0].shape) attrs.set(name, out[0].shape);
    };
    while (cost(contract, {contract.name, in, out, attrs}) > budget_seconds) {
      const auto longest = std::max_element(
          letters_.begin(), letters_.end(),
          [](const Letter& a, const Letter& b) { return a.indices.size() < b.indices.size(); });
      if (longest == letters_.end() || longest->indices.size() < 2) break;
      longest->indices.resize((longest->indices.size() + 1) / 2);
      shrink();
    }
    std::uint64_t seed = 1;
    for (Letter& letter : letters_)
      letter.indices = choose(letter.unit, static_cast<std::int64_t>(letter.indices.size()), seed++);
    if (!takes(contract, in, attrs, out)) {  // an attribute that cannot be cut
      letters_.clear();
      in = workload.inputs;
      out = workload.outputs;
      attrs = workload.attrs;
    }
    const double seconds = cost(contract, {contract.name, in, out, attrs});
    if (seconds > kMaxSeconds) {
      unchecked_ = fmt::format("the reference would take about {:.0f} s", seconds);
      return;
    }
    const std::int64_t part = out.empty() ? 1 : out[0].elements();
    const std::int64_t whole = out.empty() ? 1 : workload.outputs[0].elements();
    if (part < whole) covered_ = fmt::format("{} of {} elements", part, whole);
  }
  std::vector<HostTensor> cut;
  std::vector<kernels::ConstTensorView> input_views;
  std::vector<kernels::TensorView> output_views;
  if (!letters_.empty())
    for (std::size_t i = 0; i < inputs.size(); ++i) cut.push_back(gather(inputs[i], inputs_[i]));
  const std::vector<HostTensor>& from = letters_.empty() ? inputs : cut;
  for (const HostTensor& tensor : from) input_views.push_back({tensor.type, tensor.data.data()});
  for (const TensorType& type : out) want_.emplace_back(type);
  for (HostTensor& tensor : want_) output_views.push_back({tensor.type, tensor.data.data()});
  kernels::run_reference(contract, {contract.name, in, out, attrs}, input_views, output_views);
}

CheckResult Checker::check(const std::vector<HostTensor>& outputs) const {
  CheckResult result;
  if (want_.empty()) {
    result.covered = unchecked_.empty() ? "no output" : unchecked_;
    return result;
  }
  result.state = CheckResult::State::ok;
  result.covered = covered_;
  const kernels::Tolerance tolerance = workload_.contract->tolerance(workload_.view());
  for (std::size_t o = 0; o < want_.size(); ++o) {
    HostTensor part;
    if (!letters_.empty()) part = gather(outputs[o], outputs_[o]);
    const HostTensor& got = letters_.empty() ? outputs[o] : part;
    const kernels::Comparison comparison =
        kernels::compare({want_[o].type, want_[o].data.data()}, {got.type, got.data.data()}, tolerance);
    result.error = std::max(result.error, comparison.worst);
    if (comparison.ok) continue;
    result.state = CheckResult::State::wrong;
    if (result.problem.empty())
      result.problem =
          fmt::format("output {}{}: {}", o, letters_.empty() ? "" : ", gathered", comparison.text);
  }
  return result;
}

}  // namespace meshloom::bench

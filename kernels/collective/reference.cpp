#include "kernels/collective/reference.h"

namespace meshloom::kernels::collective {

std::vector<Bytes> all_gather_reference(std::span<const Bytes> inputs) {
  Bytes whole;
  for (const Bytes& input : inputs) whole.insert(whole.end(), input.begin(), input.end());
  return std::vector<Bytes>(inputs.size(), whole);
}

std::vector<Bytes> all_to_all_reference(std::span<const Bytes> inputs, std::span<const std::int64_t> sizes) {
  std::vector<Bytes> outputs(inputs.size());
  for (std::size_t from = 0; from < inputs.size(); ++from) {
    auto at = inputs[from].begin();
    for (std::size_t to = 0; to < inputs.size(); ++to) {
      const auto end = at + static_cast<std::ptrdiff_t>(sizes[from * inputs.size() + to]);
      outputs[to].insert(outputs[to].end(), at, end);
      at = end;
    }
  }
  return outputs;
}

std::vector<Bytes> gather_to_reference(std::span<const Bytes> inputs, int root) {
  std::vector<Bytes> outputs(inputs.size());
  outputs[static_cast<std::size_t>(root)] = all_gather_reference(inputs)[0];
  return outputs;
}

std::vector<Bytes> scatter_from_reference(std::span<const Bytes> inputs, std::span<const std::int64_t> sizes,
                                          int root) {
  std::vector<Bytes> outputs;
  auto at = inputs[static_cast<std::size_t>(root)].begin();
  for (const std::int64_t size : sizes) {
    outputs.emplace_back(at, at + static_cast<std::ptrdiff_t>(size));
    at += static_cast<std::ptrdiff_t>(size);
  }
  return outputs;
}

std::vector<Bytes> shift_reference(std::span<const Bytes> inputs, int by) {
  const auto n = static_cast<std::int64_t>(inputs.size());
  std::vector<Bytes> outputs(inputs.size());
  for (std::int64_t place = 0; place < n; ++place)
    outputs[static_cast<std::size_t>((((place + by) % n) + n) % n)] = inputs[static_cast<std::size_t>(place)];
  return outputs;
}

}  // namespace meshloom::kernels::collective

// Kernels with a planted fault: what a fault works on, and the lists of them.
#pragma once

#include <algorithm>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/harness.h"
#include "tests/kernels/planted.h"

namespace meshloom::tests::planted {

using kernels::CallView;
using kernels::Fit;
using kernels::HostTensor;
using Int = std::int64_t;
using Tensors = std::vector<HostTensor>;

// A call whose outputs are right, to be spoiled.
class Call {
 public:
  Call(Host& host, Tensors inputs, const kernels::Contract& contract)
      : view(host.call), inputs_(std::move(inputs)), contract_(contract), outputs_(host.outputs) {}

  const CallView& view;

  bool has(const char* flag) const { return view.attrs.flag(flag); }
  Int rows(int o = 0) const { return view.outputs[at(o)].elements() / columns(o); }
  Int columns(int o = 0) const { return view.outputs[at(o)].dim(-1); }
  float* row(int o, Int r) { return outputs_[at(o)].as<float>() + r * columns(o); }
  template <typename T = float>
  const T* input(int i) const {
    return inputs_[at(i)].as<T>();
  }
  void clear_row(int o, Int r) { std::fill_n(row(o, r), columns(o), 0.0f); }
  void clear_column(int o, Int c) {
    for (Int r = 0; r < rows(o); ++r) row(o, r)[c] = 0;
  }

  // The outputs for changed inputs, and attributes.
  template <typename Change>
  Tensors after(Change change, const kernels::Attrs* attrs = nullptr) const {
    Tensors inputs = inputs_;
    change(inputs);
    return reference_outputs(contract_, {view.op, view.inputs, view.outputs, attrs ? *attrs : view.attrs},
                             inputs);
  }
  Tensors with(const kernels::Attrs& attrs) const {
    return after([](Tensors&) {}, &attrs);
  }
  // Takes over a row, and all of an output.
  void take_row(const Tensors& other, int o, Int r) {
    std::copy_n(other[at(o)].as<float>() + r * columns(o), columns(o), row(o, r));
  }
  void take(const Tensors& other, int o) {
    for (Int r = 0; r < rows(o); ++r) take_row(other, o, r);
  }
  void take(const Tensors& other) {
    for (int o = 0; o < static_cast<int>(outputs_.size()); ++o)
      std::copy_n(other[at(o)].data.data(), other[at(o)].data.size(), outputs_[at(o)].data);
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  Tensors inputs_;
  const kernels::Contract& contract_;
  std::vector<kernels::TensorView> outputs_;
};

struct Fault {
  std::string name, op;
  std::function<void(Call&)> plant;
  Fit (*fit)(const CallView&, const hal::DeviceInfo&) = nullptr;
};
inline void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.op << " " << fault.name; }

// Of attention, its pages, and what stands in front of it.
std::vector<Fault> attention_faults();
// Of matmul and its relatives: products by group, of integers, and with quantized weights.
std::vector<Fault> product_faults();

inline Fit plain(const CallView&, const hal::DeviceInfo&) { return Fit::yes(); }
// A variant that names its tiles.
inline Fit tiled(const CallView&, const hal::DeviceInfo&) { return Fit::yes({{"rows", 128}, {"height", 8}}); }

inline bool behind(Int size, Int tile, Int rest) { return size > tile && size % tile == rest; }

inline std::function<void(Call&)> last_row(int o, Int tile, Int rest) {
  return [=](Call& call) {
    if (behind(call.rows(o), tile, rest)) call.clear_row(o, call.rows(o) - 1);
  };
}
inline std::function<void(Call&)> last_column(int o, Int tile, Int rest) {
  return [=](Call& call) {
    if (behind(call.columns(o), tile, rest)) call.clear_column(o, call.columns(o) - 1);
  };
}
// The last element of every row of an input.
inline std::function<void(Tensors&)> last_elements(int i, float value) {
  return [=](Tensors& inputs) {
    HostTensor& x = inputs[static_cast<std::size_t>(i)];
    const Int n = x.type.dim(-1);
    for (Int at = n - 1; at < x.type.elements(); at += n) x.as<float>()[at] = value;
  };
}
inline std::function<void(Tensors&)> no_last_row(int i) {
  return [=](Tensors& inputs) {
    HostTensor& x = inputs[static_cast<std::size_t>(i)];
    std::fill_n(x.as<float>() + x.type.elements() - x.type.dim(-1), x.type.dim(-1), 0.0f);
  };
}
// Copies range `from` of an input over range `to`, each of `count` floats.
inline void move(HostTensor& x, Int from, Int to, Int count) {
  std::copy_n(x.as<float>() + from, count, x.as<float>() + to);
}
inline std::int32_t* integers(Tensors& inputs, int input) {
  return inputs[static_cast<std::size_t>(input)].as<std::int32_t>();
}

}  // namespace meshloom::tests::planted

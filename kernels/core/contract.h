// What a kernel promises, independent of any device.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/program/builder.h"
#include "kernels/program/types.h"

namespace meshloom::kernels {

// |got - want| <= abs * max(max|want|, scale) + rel * |want|, elementwise (max|want| over the tensor, at
// least 1e-30). `scale` is the size of what the op adds up when its inputs are of size 1, so that a result
// which cancels (a single dot product near 0) is not held to digits it cannot have. A NaN or infinity on one
// side only is always wrong. Integers must be equal. kernels/core/compare.h does it.
struct Tolerance {
  double rel = 0, abs = 0, scale = 0;
};

// Raw host memory of one tensor, dense row-major.
struct HostTensor {
  TensorType type;
  std::vector<std::byte> data;

  HostTensor() = default;
  explicit HostTensor(TensorType t) : type(std::move(t)), data(static_cast<std::size_t>(type.bytes())) {}
  // T must match the dtype's size.
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data.data());
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data.data());
  }
};

// View of memory owned elsewhere: what references compute on.
struct ConstTensorView {
  TensorType type;
  const std::byte* data = nullptr;
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
};
struct TensorView {
  TensorType type;
  std::byte* data = nullptr;
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

// Given to a contract's gradient: writes the backward calls and returns one cotangent per input (no value
// where the input has none: integers, or a cotangent that is zero). `cotangents` has one entry per output,
// invalid where nothing flows back.
struct GradientArgs {
  Builder& builder;
  const Call& call;
  const std::vector<Tensor>& inputs;
  const std::vector<Tensor>& outputs;
  const std::vector<Tensor>& cotangents;
};

// How a letter of a partition rule is cut over the places of a group.
struct Cut {
  std::string axes;  // of the mesh, as collectives name them (kernels/collective/collective.h)
  std::int64_t place = 0, places = 1;
  std::int64_t first = 0, count = 0;  // this place's part of the dimension that has the letter
  std::int64_t blocks =
      1;  // above 1: places of several blocks of the dimension, so that `first` means nothing
  // The part is two runs of one length, count / 2, the second of which begins here; none where the part is one run. Of n places
  // this one has runs `place` and 2n - 1 - `place` of 2n (collective::Order::zigzag).
  std::optional<std::int64_t> second = {};
};

// Given to Contract::local: the call as it stands in the whole program, with this shard's parts of its inputs.
struct LocalArgs {
  Builder& builder;
  CallView whole;
  const std::vector<Tensor>& inputs;
  const Attrs& attrs;  // of the whole call, but for the shape of a part where there is an attribute "shape"
  const std::map<char, Cut>& cuts;  // of the letters that are cut
  std::string method = "";  // of several ways to divide an op that it knows, the one to take; "" = the first
};

// One entry of an op's case list: serves the test, the gradient check, the benchmark and the coverage table.
struct Case {
  std::string name;  // "tail", "gpt2-mlp", ...
  std::vector<TensorType> inputs;
  Attrs attrs;
  bool slow = false;  // benchmark only
};

// What a random case is drawn from.
struct CaseSeed {
  std::uint64_t seed = 0;
  std::span<const std::int64_t> tiles =
      {};  // sizes at whose multiples tiles of the tested variant end; none: powers of 2
};

// How an op takes 16-bit floats: it reads them exactly, computes in f32 (the reference in double) and rounds
// what it stores. Float inputs in neither list are f32.
struct LowPrecision {
  std::vector<int> same;   // all of one float dtype, which is also that of the outputs in proportion to them
  std::vector<int> any;    // each of any float dtype
  bool attribute = false;  // the outputs have the dtype that the attribute "dtype" names; without it f32
  bool always = false;     // makes activations out of parameters alone: computes in low precision always
};

struct Comparison;  // compare.h

namespace collective {
struct Move;  // kernels/collective/moves.h
}

struct Contract {
  std::string name;
  // Output types. Throws Error (where = op name) on types or attributes the op does not take.
  std::vector<TensorType> (*infer)(const std::vector<TensorType>& inputs, const Attrs& attrs) = nullptr;
  // Multiply and add count as two.
  double (*flops)(const CallView& call) = nullptr;
  // Least bytes to move: every input read once, every output written once, unless the op does better.
  double (*bytes)(const CallView& call) = nullptr;
  // Accumulates in double; never optimised. Outputs are allocated, not initialised. On f32 and integers
  // only: run_reference takes every dtype.
  void (*reference)(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) = nullptr;
  // nullptr: floats are f32.
  LowPrecision (*low_precision)(const CallView& call) = nullptr;
  // nullptr: not differentiable.
  std::vector<Tensor> (*gradient)(const GradientArgs& args) = nullptr;
  // How dimensions of inputs and outputs correspond, einsum-like: "mk,kn->mn", several outputs after the
  // arrow. A dimension may be split over shards when every place of its letter is; an output without the
  // letter is then a partial sum. '.' is a dimension that every shard holds whole. Sizes under one letter may
  // differ by a fixed factor (query heads and key heads).
  //   upper-case letter  what is computed depends on the place, or is added up between shards: `local` sees to it, and outputs
  //                      without the letter are whole
  //   "(bs)"             one dimension of two letters: every place of b has all places of s behind one another
  //   number             behind a letter of an input ("n64.->n."): it is cut into multiples of so many places only
  //   letter in braces   behind a tensor ("n.->n.{n}"): its rows may be numbered within each shard of that letter, as where a
  //                      shard sorts its own rows; such an input takes only what such an output gave
  //   a second in braces ("{ne}") is that of groups of rows: a shard numbers those of its own groups first, which `local` chooses
  std::string (*partition)(const CallView& call) = nullptr;
  // Writes the call on the parts of one shard and returns its outputs, where the op on the parts alone would be wrong: its
  // attributes depend on the place, or what is summed needs a step of its own. nullptr: the op on the parts is right.
  std::vector<Tensor> (*local)(const LocalArgs& args) = nullptr;
  // Whether `local` can do with a Cut of two runs under every upper-case letter.
  bool takes_two_runs = false;
  Tolerance (*tolerance)(const CallView& call) = nullptr;
  std::vector<Case> (*cases)() = nullptr;
  // (input, output) pairs that may share storage, the better first: the kernel reads each element before it writes there.
  std::vector<std::pair<int, int>> (*in_place)(const CallView& call) = nullptr;
  // The output is the input's storage under another shape: no kernel runs, no memory is taken.
  bool view = false;
  // Fills inputs of cases that must not be arbitrary (token ids, probabilities). nullptr: random in [-1, 1].
  void (*make_input)(const CallView& call, int index, std::uint64_t seed, const TensorView& into) = nullptr;
  // A small random valid case, for fuzzing. nullptr: only `cases` are tested. Seeds of the same upper half
  // may give calls that differ in what a program takes when it runs, so that they share what is compiled.
  Case (*random_case)(const CaseSeed& seed) = nullptr;
  // Judges an output that holds codes of rounded numbers, which two kernels that are right may round to different neighbours.
  // nullptr: outputs are held to the reference by the tolerance alone. compare_output() asks.
  Comparison (*judge)(const CallView& call, std::span<const ConstTensorView> inputs,
                      std::span<const ConstTensorView> want, std::span<const ConstTensorView> got,
                      int output) = nullptr;
  // Not nullptr: the call runs between the ranks of a group, and this is what the rank at its place sends and receives. No
  // kernel computes it; the reference is that of a group of one place.
  std::vector<collective::Move> (*moves)(const CallView& call) = nullptr;
};

// The reference on any float dtypes: 16-bit inputs are widened, outputs rounded to nearest even.
void run_reference(const Contract& contract, const CallView& call, std::span<const ConstTensorView> inputs,
                   std::span<const TensorView> outputs);

// The type with f32 in place of a 16-bit float.
TensorType widened(TensorType type);
std::vector<TensorType> widened(std::vector<TensorType> types);
bool any_low_precision(const CallView& call);
HostTensor widened(const ConstTensorView& tensor);
// Rounds f32 numbers to the dtype of `into`, of the same shape.
void narrow(const HostTensor& from, const TensorView& into);
// The case with 16-bit floats where the op takes them; nothing where it takes none.
std::optional<Case> to_low_precision(const Contract& contract, Case wide, DType dtype);

// Default implementations for the table.
double bytes_once(const CallView& call);
double no_flops(const CallView& call);
std::vector<std::pair<int, int>> never_in_place(const CallView& call);

}  // namespace meshloom::kernels

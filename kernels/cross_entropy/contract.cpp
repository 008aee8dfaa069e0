#include <algorithm>
#include <cmath>
#include <utility>

#include "hal/error.h"
#include "kernels/collective/collective.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/layout/layout.h"
#include "kernels/reduce_sum/reduce_sum.h"
#include "kernels/split/split.h"

namespace meshloom::kernels {
namespace {

void check_columns(const Rules& rules, const Attrs& attrs) {
  if (!attrs.has("first") && !attrs.has("classes")) return;
  const std::int64_t first = rules.integer("first"), classes = rules.integer("classes");
  rules.require(
      first >= 0 && first + rules[0].dim(1) <= classes,
      "the logits' columns, from first on, must be among the " + std::to_string(classes) + " classes",
      "first " + std::to_string(first) + ", " + to_string(rules[0]));
}

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("cross_entropy", inputs, attrs);
  rules.inputs({"logits", "targets"});
  rules.attributes({}, {"first", "classes"});
  rules.floating(0);
  rules.dtype(1, DType::i32);
  rules.rank(0, 2, 2);
  rules.shape(1, {rules[0].dim(0)});
  check_columns(rules, attrs);
  const TensorType rows{DType::f32, {rules[0].dim(0)}};
  return {rows, rows, rows};
}

std::vector<TensorType> infer_grad(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("cross_entropy_grad", inputs, attrs);
  rules.inputs({"logits", "targets", "lse", "dloss"});
  rules.attributes({}, {"first", "classes"});
  rules.rank(0, 2, 2);
  rules.floating(0);
  check_columns(rules, attrs);
  for (int i = 1; i < 4; ++i) {
    rules.dtype(i, i == 1 ? DType::i32 : DType::f32);
    rules.shape(i, {rules[0].dim(0)});
  }
  return {rules[0]};
}

double flops(const CallView& call) { return 4.0 * static_cast<double>(call.inputs[0].elements()); }
double flops_grad(const CallView& call) { return 4.0 * static_cast<double>(call.inputs[0].elements()); }

// A target beyond the vocabulary breaks the contract; here it counts as ignored, so that nothing out of
// bounds is read.
bool counts(std::int64_t target, std::int64_t vocabulary) { return target >= 0 && target < vocabulary; }

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  const std::int64_t n = call.inputs[0].dim(0), v = call.inputs[0].dim(1);
  const CrossEntropyColumns columns = cross_entropy_columns(call);
  for (std::int64_t r = 0; r < n; ++r) {
    const float* row = inputs[0].as<float>() + r * v;
    const double largest = *std::max_element(row, row + v);
    double sum = 0;
    for (std::int64_t i = 0; i < v; ++i) sum += std::exp(row[i] - largest);
    const double lse = largest + std::log(sum);
    const std::int64_t target = inputs[1].as<std::int32_t>()[r];
    const bool valid = counts(target, columns.classes), here = counts(target - columns.first, v);
    const double base = columns.part ? 0 : lse;
    outputs[0].as<float>()[r] = valid && here ? static_cast<float>(base - row[target - columns.first]) : 0;
    outputs[1].as<float>()[r] = valid ? 1 : 0;
    outputs[2].as<float>()[r] = valid ? static_cast<float>(lse) : 0;
  }
}

void reference_grad(const CallView& call, std::span<const ConstTensorView> inputs,
                    std::span<const TensorView> outputs) {
  const std::int64_t n = call.inputs[0].dim(0), v = call.inputs[0].dim(1);
  const CrossEntropyColumns columns = cross_entropy_columns(call);
  for (std::int64_t r = 0; r < n; ++r) {
    const float* row = inputs[0].as<float>() + r * v;
    float* out = outputs[0].as<float>() + r * v;
    const std::int64_t target = inputs[1].as<std::int32_t>()[r];
    const double lse = inputs[2].as<float>()[r], dloss = inputs[3].as<float>()[r];
    for (std::int64_t i = 0; i < v; ++i)
      out[i] =
          counts(target, columns.classes)
              ? static_cast<float>((std::exp(row[i] - lse) - (i == target - columns.first ? 1 : 0)) * dloss)
              : 0;
  }
}

// `valid` does not depend on the logits.
std::vector<Tensor> gradient(const GradientArgs& args) {
  const Tensor loss = args.cotangents[0], lse = args.cotangents[2];
  const auto grad = [&](Tensor normaliser, Tensor cotangent) {
    return args.builder.call1("cross_entropy_grad", {args.inputs[0], args.inputs[1], normaliser, cotangent},
                              args.call.attrs);
  };
  // exp(logits - 1e30) is 0: a call without a softmax.
  const auto nothing = [&] { return constant(args.builder, 1e30, args.outputs[2].shape()); };
  if (args.call.attrs.has("classes")) {  // softmax dlse - onehot dloss
    if (!lse) return {loss ? grad(nothing(), loss) : Tensor{}, Tensor{}};
    const Tensor rest = loss ? add(loss, scale(lse, -1)) : scale(lse, -1);
    return {add(grad(args.outputs[2], lse), grad(nothing(), rest)), Tensor{}};
  }
  if (!lse) return {loss ? grad(args.outputs[2], loss) : Tensor{}, Tensor{}};
  // softmax (dloss + dlse) - onehot dloss
  const Tensor both = grad(args.outputs[2], loss ? add(loss, lse) : lse);
  const Tensor no_softmax = nothing();
  return {add(both, grad(no_softmax, scale(lse, -1))), Tensor{}};
}

std::string partition(const CallView&) { return "nV,n->n,n,n"; }
std::string partition_grad(const CallView&) { return "nV,n,n,n->nV"; }

// The attributes of the part of the columns that a shard has.
Attrs columns_of(const LocalArgs& args, const Cut& cut) {
  const CrossEntropyColumns whole = cross_entropy_columns(args.whole);
  Attrs attrs = args.attrs;
  attrs.set("first", whole.first + cut.first);
  attrs.set("classes", whole.classes);
  return attrs;
}

std::vector<Tensor> local_grad(const LocalArgs& args) {
  const auto cut = args.cuts.find('V');
  return args.builder.call(args.whole.op, args.inputs,
                           cut == args.cuts.end() ? args.attrs : columns_of(args, cut->second));
}

// The columns' results of all places, merged in the order of the places.
std::vector<Tensor> local(const LocalArgs& args) {
  const auto found = args.cuts.find('V');
  if (found == args.cuts.end()) return args.builder.call(args.whole.op, args.inputs, args.attrs);
  const Cut& cut = found->second;
  const std::vector<Tensor> own = args.builder.call(args.whole.op, args.inputs, columns_of(args, cut));
  const std::int64_t n = own[0].dim(0), places = cut.places;
  const auto gathered = [&](Tensor part) {
    return all_gather(part, {cut.axes, cut.place},
                      std::vector<std::int64_t>(static_cast<std::size_t>(places), n), {places, n});
  };
  Tensor lse;
  for (const Tensor& row : split(gathered(own[2]), 1)) {
    const auto [a, b] = inputs<2>();
    const Tensor next = reshape(row, {n});
    // No row has only minus infinities.
    lse = lse ? elementwise({lse, next}, max(a, b) + log(1 + exp(min(a, b) - max(a, b)))) : next;
  }
  const Tensor loss = reduce_sum(gathered(own[0]), 1);
  const auto [logit, valid, normaliser] = inputs<3>();
  const bool part = args.attrs.has("classes");  // the loss of a part has no lse
  const std::vector<Tensor> merged = elementwise(
      {loss, own[1], lse}, {part ? logit * 1 : valid * (logit + normaliser), valid * normaliser}, {n});
  return {merged[0], own[1], merged[1]};
}

LowPrecision low_precision(const CallView&) { return {.any = {0}}; }

// Logits may be large (make_input adds 90): lse is then off by an ulp of that, which the 64 covers.
Tolerance tolerance(const CallView& call) {
  Tolerance result = sum_tolerance(static_cast<double>(call.inputs[0].dim(1)), 64);
  result.scale = 1;
  return result;
}
// Most probabilities are tiny, so the error allowed is relative: that of exp of a number of size 100.
Tolerance tolerance_grad(const CallView&) {
  const double eps = hal::epsilon(DType::f32);
  return {256 * eps, 2 * eps, 1};
}

std::vector<std::pair<int, int>> in_place_grad(const CallView&) { return {{0, 0}}; }

void make_input(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  const std::uint64_t own = mix(seed, static_cast<std::uint64_t>(index));
  const std::int64_t n = call.inputs[0].dim(0), v = call.inputs[0].dim(1);
  const std::int64_t classes = cross_entropy_columns(call).classes;
  if (index == 0) {
    fill_uniform(into, own, -4, 4);
    // Rows whose exponentials overflow or vanish unless the maximum is taken off first.
    for (std::int64_t r = 1; r < n; r += 3)
      for (std::int64_t i = 0; i < v; ++i) into.as<float>()[r * v + i] += r % 2 ? 90.0f : -120.0f;
  } else if (index == 1) {
    fill_integers(into, own, 0, classes - 1);
    for (std::int64_t r = 2; r < n; r += 5) into.as<std::int32_t>()[r] = r % 2 ? -1 : -100;
  } else {
    fill_uniform(into, own, -1, 1);
  }
}

void make_input_grad(const CallView& call, int index, std::uint64_t seed, const TensorView& into) {
  if (index != 2) return make_input(call, index, seed, into);
  HostTensor logits(call.inputs[0]), targets(call.inputs[1]), loss(into.type), valid(into.type);
  make_input(call, 0, seed, {logits.type, logits.data.data()});
  make_input(call, 1, seed, {targets.type, targets.data.data()});
  const std::vector<TensorType> in{logits.type, targets.type}, out{into.type, into.type, into.type};
  const std::vector<ConstTensorView> from{{logits.type, logits.data.data()},
                                          {targets.type, targets.data.data()}};
  const std::vector<TensorView> to{{loss.type, loss.data.data()}, {valid.type, valid.data.data()}, into};
  reference({"cross_entropy", in, out, call.attrs}, from, to);
}

struct Spec {
  std::string name;
  std::int64_t n, v;
  bool slow = false;
  std::int64_t first = 0, classes = 0;  // classes 0: all columns
};
Attrs columns_of(const Spec& s) {
  return s.classes ? Attrs{{"first", s.first}, {"classes", s.classes}} : Attrs{};
}
std::vector<Spec> specs() {
  return {{"one", 1, 1},
          {"two", 3, 2},
          {"prime", 17, 31},
          {"row", 1, 257},
          {"bytes", 65, 256},
          {"many", 131, 7},
          {"wide", 3, 4099},
          {"tail", 9, 1000},
          {"part", 17, 31, false, 40, 97},
          {"first_part", 9, 130, false, 0, 140},
          {"smollm2", 128, 49152, true},
          {"gpt2", 256, 50257, true}};
}
Case forward(const Spec& s) {
  return {s.name, {{DType::f32, {s.n, s.v}}, {DType::i32, {s.n}}}, columns_of(s), s.slow};
}
Case backward(const Spec& s) {
  const TensorType rows{DType::f32, {s.n}};
  return {s.name, {{DType::f32, {s.n, s.v}}, {DType::i32, {s.n}}, rows, rows}, columns_of(s), s.slow};
}
std::vector<Case> cases() {
  std::vector<Case> result;
  for (const Spec& spec : specs()) result.push_back(forward(spec));
  return result;
}
std::vector<Case> cases_grad() {
  std::vector<Case> result;
  for (const Spec& spec : specs()) result.push_back(backward(spec));
  return result;
}
Spec random_spec(const CaseSeed& seed) {
  Rng rng(seed);
  Spec spec{"random", rng.extent(60), rng.extent(600)};
  if (rng.flip(0.3)) {
    spec.first = rng.integer(0, 100);
    spec.classes = spec.first + spec.v + rng.integer(0, 100);
  }
  return spec;
}
Case random_case(const CaseSeed& seed) { return forward(random_spec(seed)); }
Case random_grad(const CaseSeed& seed) { return backward(random_spec(seed)); }

}  // namespace

CrossEntropyColumns cross_entropy_columns(const CallView& call) {
  if (!call.attrs.has("classes")) return {0, call.inputs[0].dim(1), false};
  return {call.attrs.integer("first"), call.attrs.integer("classes"), true};
}

CrossEntropy cross_entropy(Tensor logits, Tensor targets) {
  const std::vector<Tensor> outputs = logits.builder->call("cross_entropy", {logits, targets});
  return {outputs[0], outputs[1], outputs[2]};
}

void add_cross_entropy(Catalog& catalog) {
  catalog.add(Contract{.name = "cross_entropy",
                       .infer = infer,
                       .flops = flops,
                       .bytes = bytes_once,
                       .reference = reference,
                       .low_precision = low_precision,
                       .gradient = gradient,
                       .partition = partition,
                       .local = local,
                       .tolerance = tolerance,
                       .cases = cases,
                       .in_place = never_in_place,
                       .make_input = make_input,
                       .random_case = random_case});
  catalog.add(Contract{.name = "cross_entropy_grad",
                       .infer = infer_grad,
                       .flops = flops_grad,
                       .bytes = bytes_once,
                       .reference = reference_grad,
                       .low_precision = low_precision,
                       .partition = partition_grad,
                       .local = local_grad,
                       .tolerance = tolerance_grad,
                       .cases = cases_grad,
                       .in_place = in_place_grad,
                       .make_input = make_input_grad,
                       .random_case = random_grad});
}

}  // namespace meshloom::kernels

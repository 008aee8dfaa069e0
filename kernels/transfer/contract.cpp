#include <algorithm>
#include <cstring>

#include "hal/binding.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/core/rules.h"
#include "kernels/transfer/transfer.h"

namespace meshloom::kernels {
namespace {

bool copied(DType dtype) { return hal::size_of(dtype) == 4 || hal::is_low_precision(dtype); }

std::vector<TensorType> infer(const std::vector<TensorType>& inputs, const Attrs& attrs) {
  Rules rules("transfer", inputs, attrs);
  rules.inputs({"x"});
  rules.attributes({"memory"});
  rules.rank(0, 1, 8);
  rules.require(copied(rules[0].dtype), "x must be a float or of 4 bytes", to_string(rules[0]));
  const std::string memory = rules.text("memory");
  rules.require(memory == to_string(hal::MemoryKind::host) || memory == to_string(hal::MemoryKind::device),
                "memory must be host or device", memory);
  return {rules[0]};
}

void reference(const CallView& call, std::span<const ConstTensorView> inputs,
               std::span<const TensorView> outputs) {
  std::memcpy(outputs[0].data, inputs[0].data, static_cast<std::size_t>(call.inputs[0].bytes()));
}

LowPrecision low_precision(const CallView&) { return {.same = {0}}; }

std::string partition(const CallView& call) {
  const std::string x = letters(call.inputs[0].rank());
  return x + "->" + x;
}

Tolerance exact(const CallView&) { return {}; }

Case moved(std::string name, TensorType type, hal::MemoryKind to, bool slow = false) {
  return {std::move(name), {std::move(type)}, {{"memory", std::string(to_string(to))}}, slow};
}

std::vector<Case> cases() {
  using hal::MemoryKind;
  return {moved("one", {DType::f32, {1}}, MemoryKind::host),
          moved("tail", {DType::f32, {7, 13}}, MemoryKind::host),
          moved("back", {DType::f32, {7, 13}}, MemoryKind::device),
          moved("integers", {DType::i32, {3, 129}}, MemoryKind::host),
          moved("rows", {DType::f32, {257, 1031}}, MemoryKind::device),
          moved("pieces", {DType::f32, {4099, 4099}}, MemoryKind::host, true)};
}

Case random_case(const CaseSeed& seed) {
  Rng rng(seed);
  return moved("random", {rng.flip(0.8) ? DType::f32 : DType::i32, {rng.extent(60), rng.extent(90)}},
               rng.flip() ? hal::MemoryKind::host : hal::MemoryKind::device);
}

}  // namespace

bool transferable(const TensorType& type) { return copied(type.dtype) && type.bytes() % 4 == 0; }

Tensor transfer(Tensor x, hal::MemoryKind to) {
  const Tensor y = x.builder->call1("transfer", {x}, {{"memory", std::string(to_string(to))}});
  x.builder->program().value(y.id).memory = to;
  return y;
}

Fit fit_copy(const CallView& call, const hal::DeviceInfo&) {
  if (call.inputs[0].bytes() % 4 != 0)
    return Fit::no("a copy takes whole words, and " + to_string(call.inputs[0]) + " has " +
                   std::to_string(call.inputs[0].bytes()) + " bytes");
  return Fit::yes();
}

void encode_copy(const EncodeArgs& args) {
  // Devices cannot cut a copy into several submissions: 64 MiB take 4 ms over PCI Express 4.0 x8.
  constexpr std::int64_t kPiece = std::int64_t{64} << 20;
  const hal::Binding &from = args.inputs[0], &to = args.outputs[0];
  for (std::int64_t at = 0; at < from.bytes; at += kPiece) {
    const std::int64_t bytes = std::min(kPiece, from.bytes - at);
    args.commands.copy(hal::reads(hal::slice(from, at, bytes)), hal::writes(hal::slice(to, at, bytes)),
                       args.label);
  }
}

void add_transfer(Catalog& catalog) {
  catalog.add(Contract{.name = "transfer",
                       .infer = infer,
                       .flops = no_flops,
                       .bytes = bytes_once,
                       .reference = reference,
                       .low_precision = low_precision,
                       .partition = partition,
                       .tolerance = exact,
                       .cases = cases,
                       .in_place = never_in_place,
                       .random_case = random_case});
}

}  // namespace meshloom::kernels

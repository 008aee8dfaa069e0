// The attention variants of the CPU: who fits, with which tiles, and how the work is cut.
#include <string>

#include "backends/cpu/kernels/entries.h"
#include "backends/cpu/kernels/flash_attention_work.h"

namespace meshloom::backends::cpu {
namespace {

using hal::ProfileKind;
using kernels::CallView;
using kernels::EncodeArgs;
using kernels::Fit;

// Queries (tiles) fastest, then heads, then batch rows; the same for keys with kv heads.
std::array<std::uint32_t, 3> grid(std::int64_t x, std::int64_t y, std::int64_t z) {
  return {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y), static_cast<std::uint32_t>(z)};
}

Fit fit_naive(const CallView& call, const hal::DeviceInfo&) {
  if (std::string no = flash_refusal(call); !no.empty()) return Fit::no(std::move(no));
  return Fit::yes({{"tile_q", 1}, {"tile_k", 1}});
}

void encode_naive(const EncodeArgs& args) {
  const FlashWork work = flash_work(args);
  record(args, "flash_attention_naive", grid(work.s, work.h, work.b), to_words(work));
}

void encode_naive_grad(const EncodeArgs& args) {
  const FlashWork work = flash_work(args);
  record(args, "flash_attention_naive_dq", grid(work.s, work.h, work.b), to_words(work));
  record(args, "flash_attention_naive_dkv", grid(work.t, work.kv, work.b), to_words(work));
}

}  // namespace

std::vector<Kernel> flash_attention_kernels() {
  return {{"flash_attention_naive", run_flash_naive},
          {"flash_attention_naive_dq", run_flash_naive_dq},
          {"flash_attention_naive_dkv", run_flash_naive_dkv}};
}

void add_flash_attention_variants(kernels::Catalog& catalog) {
  const auto add = [&](std::vector<ProfileKind> kinds, int rank, const char* name, const char* about,
                       decltype(kernels::Variant::fit) fit, decltype(kernels::Variant::encode) forward,
                       decltype(kernels::Variant::fit) fit_grad,
                       decltype(kernels::Variant::encode) backward) {
    catalog.add(kernels::Variant{"flash_attention", "cpu", name, kinds, rank, about, fit, forward});
    catalog.add(
        kernels::Variant{"flash_attention_grad", "cpu", name, kinds, rank, about, fit_grad, backward});
  };
  add({}, 0, "naive", "a running softmax per query; the yardstick of the others", fit_naive, encode_naive,
      fit_naive, encode_naive_grad);
}

}  // namespace meshloom::backends::cpu

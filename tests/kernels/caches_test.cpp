// Keys and values that lie as caches keep them, in pages or around a ring, against the same in order: attention is told by
// bits which slots a query sees. Every variant of every backend that takes such calls, forward and backward.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "hal/math.h"
#include "hal/registry.h"
#include "hal/wrappers/checked_device.h"
#include "kernels/core/rng.h"
#include "kernels/flash_attention/flash_attention.h"
#include "tests/kernels/harness.h"

namespace meshloom::tests {
namespace {

using kernels::DType;
using kernels::HostTensor;
using kernels::Shape;

constexpr std::int64_t kHeads = 4, kKv = 2, kSize = 32, kPositions = 150;

struct Cache {
  std::string name;
  std::int64_t slots;
  std::int64_t first;                 // position that is still kept; the last is kPositions - 1
  std::vector<std::int64_t> slot_of;  // of each of them
  std::int64_t left = -1;             // positions before its own that a query sees; -1 = all
  std::int64_t kept() const { return kPositions - first; }
};

// Pages in an order of their own, with some of others in between.
Cache paged(std::int64_t page) {
  const std::int64_t used = hal::ceil_div(kPositions, page);
  std::vector<std::int64_t> pages(static_cast<std::size_t>(used + 3));
  std::iota(pages.begin(), pages.end(), 0);
  kernels::Rng rng(static_cast<std::uint64_t>(page));
  for (std::size_t i = pages.size() - 1; i > 0; --i)
    std::swap(pages[i], pages[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(i)))]);
  Cache cache{fmt::format("pages of {}", page), (used + 3) * page, 0, {}};
  for (std::int64_t p = 0; p < kPositions; ++p)
    cache.slot_of.push_back(pages[static_cast<std::size_t>(p / page)] * page + p % page);
  return cache;
}

// The last positions, where those before them lay.
Cache ring(std::int64_t slots, std::int64_t window) {
  Cache cache{fmt::format("a ring of {}", slots), slots, kPositions - slots, {}, window - 1};
  for (std::int64_t p = cache.first; p < kPositions; ++p) cache.slot_of.push_back(p % slots);
  return cache;
}

HostTensor drawn(Shape shape, std::uint64_t seed) {
  HostTensor tensor({DType::f32, std::move(shape)});
  kernels::fill_uniform({tensor.type, tensor.data.data()}, seed, -1, 1);
  return tensor;
}

// Keys or values (1, kept, kKv, kSize) in their slots; other slots hold `others`.
HostTensor in_slots(const Cache& cache, const HostTensor& in_order, HostTensor others) {
  constexpr std::size_t kRow = kKv * kSize;
  for (std::size_t i = 0; i < cache.slot_of.size(); ++i)
    std::copy_n(in_order.as<float>() + i * kRow, kRow,
                others.as<float>() + static_cast<std::size_t>(cache.slot_of[i]) * kRow);
  return others;
}

HostTensor visible_slots(const Cache& cache, std::int64_t queries) {
  const std::int64_t words = (cache.slots + 31) / 32;
  HostTensor bits({DType::i32, {1, 1, queries, words}});
  std::fill(bits.data.begin(), bits.data.end(), std::byte{0});
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t p = cache.first; p < kPositions; ++p) {
      const std::int64_t back = kPositions - queries + i - p,
                         slot = cache.slot_of[static_cast<std::size_t>(p - cache.first)];
      if (back >= 0 && (cache.left < 0 || back <= cache.left))
        bits.as<std::uint32_t>()[i * words + slot / 32] |= std::uint32_t{1} << slot % 32;
    }
  return bits;
}

struct Calls {
  kernels::Case forward, backward;
};
Calls calls(const std::string& name, std::int64_t queries, std::int64_t keys, const kernels::Attrs& attrs,
            const std::vector<kernels::TensorType>& more) {
  const kernels::TensorType q{DType::f32, {1, queries, kHeads, kSize}}, k{DType::f32, {1, keys, kKv, kSize}};
  Calls made{{name, {q, k, k}, attrs}, {name, {q, k, k, q, {DType::f32, {1, kHeads, queries}}, q}, attrs}};
  for (kernels::Case* test : {&made.forward, &made.backward})
    test->inputs.insert(test->inputs.end(), more.begin(), more.end());
  return made;
}

class Caches : public testing::TestWithParam<std::string> {
 protected:
  Caches() {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
  }

  // `inputs` -> `want` on every variant of the op that takes it.
  int run(const std::string& id, const std::string& op, const kernels::Case& test,
          const std::vector<HostTensor>& inputs, const std::vector<HostTensor>& want) {
    const CaseCall call(catalog_, op, test);
    int ran = 0;
    for (const kernels::Variant* variant : catalog_.variants(op, GetParam())) {
      hal::Device& device =
          as(id, variant->kinds.empty() ? "" : profile_for(as(id, ""), variant->kinds.front()));
      const kernels::Fit fit = variant->answer(call.view(), device.info());
      if (!fit.ok) continue;
      ++ran;
      for (const std::string& failure : run_variant(device, *variant, fit, call, inputs, want).failures)
        ADD_FAILURE() << failure;
    }
    return ran;
  }

  void check(const std::string& id, const Cache& cache, std::int64_t queries) {
    kernels::Attrs in_order{{"scale", 0.25}, {"causal", true}};
    if (cache.left >= 0) in_order.set("left", cache.left);
    const HostTensor bits = visible_slots(cache, queries);
    const Calls plain = calls("in order", queries, cache.kept(), in_order, {}),
                kept = calls(cache.name, queries, cache.slots, {{"scale", 0.25}, {"attention_bitmask", true}},
                             {bits.type});
    const Shape keys{1, cache.kept(), kKv, kSize}, slots{1, cache.slots, kKv, kSize},
        rows{1, queries, kHeads, kSize};
    const HostTensor q = drawn(rows, 1), k = drawn(keys, 2), v = drawn(keys, 3), d_o = drawn(rows, 4);
    const auto wanted = [&](const std::string& op, const kernels::Case& test,
                            const std::vector<HostTensor>& inputs) {
      const CaseCall call(catalog_, op, test);
      return reference_outputs(call.contract(), call.view(), inputs);
    };
    const std::vector<HostTensor> o = wanted("flash_attention", plain.forward, {q, k, v});
    std::vector<HostTensor> d = wanted("flash_attention_grad", plain.backward, {q, k, v, o[0], o[1], d_o});
    HostTensor none({DType::f32, slots});
    std::fill(none.data.begin(), none.data.end(), std::byte{0});
    for (std::size_t i = 1; i < 3; ++i) d[i] = in_slots(cache, d[i], none);
    const HostTensor ks = in_slots(cache, k, drawn(slots, 5)), vs = in_slots(cache, v, drawn(slots, 6));
    EXPECT_GE(run(id, "flash_attention", kept.forward, {q, ks, vs, bits}, o), 1);
    EXPECT_GE(run(id, "flash_attention_grad", kept.backward, {q, ks, vs, o[0], o[1], d_o, bits}, d), 1);
  }

  hal::Device& as(const std::string& id, const std::string& profile) {
    std::unique_ptr<hal::Device>& device = open_[profile];
    if (!device) device = hal::checked(registry_.open(id, profile));
    return *device;
  }

  kernels::Catalog catalog_;
  hal::Registry registry_;
  std::map<std::string, std::unique_ptr<hal::Device>> open_;  // by profile
};

TEST_P(Caches, EqualKeysInOrder) {
  for (const hal::BackendDevices& found : registry_.enumerate()) {
    if (found.backend != GetParam()) continue;
    if (found.devices.empty()) GTEST_SKIP() << "no device";
    for (const std::int64_t queries : {1, 7}) {
      for (const std::int64_t page : {1, 16, 64}) check(found.devices.front().id, paged(page), queries);
      check(found.devices.front().id, ring(64, 40), queries);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Caches, testing::Values("cpu", "opencl", "vulkan"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace meshloom::tests

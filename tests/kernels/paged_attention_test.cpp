// A query's output has the same bits whichever queries and sequences share the call, and whatever the size of a page.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "hal/registry.h"
#include "hal/wrappers/checked_device.h"
#include "kernels/core/catalog.h"
#include "kernels/core/rng.h"
#include "kernels/paged_attention/paged_attention.h"
#include "tests/kernels/harness.h"

namespace meshloom::tests {
namespace {

using hal::DType;
using kernels::HostTensor;

// What a server holds, by sequence: dense keys and values, which calls lay out in pages.
struct Server {
  std::int64_t h = 6, kv = 2, d = 64, dv = 64;
  DType q_type = DType::f32, pool_type = DType::f32;
  bool in_keys = false;  // values_in_keys
  kernels::Attrs attrs{{"scale", 0.125}};
  std::vector<std::int64_t> lengths, queries;  // by sequence
  HostTensor q, k, v, sink, slopes;            // (sum of queries, H, D), (sum of lengths, KV, D), ...

  void fill() {
    std::int64_t all_queries = 0, all_keys = 0;
    for (const std::int64_t count : queries) all_queries += count;
    for (const std::int64_t count : lengths) all_keys += count;
    q = random({q_type, {all_queries, h, d}}, 1);
    k = random({pool_type, {all_keys, kv, d}}, 2);
    v = random({pool_type, {all_keys, kv, dv}}, 3);
    sink = random({DType::f32, {h}}, 4);
    slopes = random({DType::f32, {h}}, 5);
  }
  static HostTensor random(const kernels::TensorType& type, std::uint64_t seed) {
    HostTensor wide(kernels::widened(type)), result(type);
    kernels::fill_uniform({wide.type, wide.data.data()}, seed, seed == 5 ? 0 : -2, seed == 5 ? 0.3 : 2);
    kernels::narrow(wide, {result.type, result.data.data()});
    return result;
  }
};

// Which queries of which sequence a call computes: `count` of them, of which `behind` follow.
struct Span {
  std::int64_t sequence, count, behind = 0;
};

class PagedBits : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    kernels::add_contracts(catalog_);
    register_backends(registry_, catalog_);
  }

  // The rows of o of every span's queries, one span behind the other.
  std::vector<std::byte> run(hal::Device& device, const kernels::Variant& variant, const Server& server,
                             const std::vector<Span>& spans, std::int64_t page, std::int64_t padding) {
    const auto rows = static_cast<std::int64_t>(spans.size());
    std::int64_t most = 1, n = padding;
    for (const Span& span : spans) {
      most = std::max(most, (length(server, span) + page - 1) / page);
      n += span.count;
    }
    const std::int64_t pages = rows * most + 2;
    HostTensor q({server.q_type, {n, server.h, server.d}}),
        k({server.pool_type, {pages, page, server.kv, server.d}}),
        v({server.pool_type, {pages, page, server.kv, server.dv}}), table({DType::i32, {rows, most}}),
        starts({DType::i32, {rows + 1}}), lengths({DType::i32, {rows}});
    // What no query sees is no number.
    for (HostTensor* tensor : {&q, &k, &v})
      std::fill(tensor->data.begin(), tensor->data.end(), std::byte{0xff});
    std::fill(table.data.begin(), table.data.end(), std::byte{0xff});
    std::int32_t at = 0;
    std::int64_t next = 1;  // page
    for (std::int64_t r = 0; r < rows; ++r) {
      const Span& span = spans[static_cast<std::size_t>(r)];
      const std::int64_t own = length(server, span);
      lengths.as<std::int32_t>()[r] = static_cast<std::int32_t>(own);
      const std::int64_t first_query = before(server.queries, span.sequence) +
                                       server.queries[static_cast<std::size_t>(span.sequence)] - span.behind -
                                       span.count;
      copy_rows(server.q, first_query, span.count, q, at);
      starts.as<std::int32_t>()[r] = at;
      at += static_cast<std::int32_t>(span.count);
      starts.as<std::int32_t>()[r + 1] = at;
      for (std::int64_t j = 0; j < own; ++j) {
        auto& entry = table.as<std::int32_t>()[r * most + j / page];
        if (j % page == 0) entry = static_cast<std::int32_t>(pages - next++);  // from the back
        for (const auto& [from, into] : {std::pair{&server.k, &k}, {&server.v, &v}})
          copy_rows(*from, before(server.lengths, span.sequence) + j, 1, *into, entry * page + j % page,
                    page);
      }
    }
    std::vector<HostTensor> inputs{q, k, table, starts, lengths};
    if (!server.in_keys) inputs.insert(inputs.begin() + 2, v);
    kernels::Case test{"bits", {}, server.attrs};
    for (const HostTensor& tensor : inputs) test.inputs.push_back(tensor.type);
    for (const auto& [flag, tensor] : {std::pair{"sink", &server.sink}, {"slopes", &server.slopes}})
      if (server.attrs.flag(flag)) {
        test.inputs.push_back(tensor->type);
        inputs.push_back(*tensor);
      }
    const CaseCall call(catalog_, "paged_attention", test);
    std::vector<std::byte> o = first_output(device, variant, call, inputs);
    if (padding > 0) {
      const std::size_t row = o.size() / static_cast<std::size_t>(n);
      EXPECT_TRUE(std::all_of(o.end() - static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(padding)),
                              o.end(), [](std::byte byte) { return byte == std::byte{0}; }))
          << "padding is 0";
      o.resize(o.size() - row * static_cast<std::size_t>(padding));
    }
    return o;
  }

  template <typename F>
  void each_variant(F test) {
    for (const hal::BackendDevices& found : registry_.enumerate()) {
      if (found.backend != GetParam()) continue;
      for (const hal::DeviceInfo& info : found.devices) {
        const auto device = hal::checked(registry_.open(info.id));
        for (const kernels::Variant* variant : catalog_.variants("paged_attention", GetParam()))
          if (!variant->backend.empty()) test(*device, *variant);
      }
    }
  }

  kernels::Catalog catalog_;
  hal::Registry registry_;

 private:
  static std::int64_t before(const std::vector<std::int64_t>& counts, std::int64_t sequence) {
    std::int64_t sum = 0;
    for (std::int64_t i = 0; i < sequence; ++i) sum += counts[static_cast<std::size_t>(i)];
    return sum;
  }
  // Keys that there are once the span's queries have been written.
  static std::int64_t length(const Server& server, const Span& span) {
    return server.lengths[static_cast<std::size_t>(span.sequence)] - span.behind;
  }
  static void copy_rows(const HostTensor& from, std::int64_t row, std::int64_t count, HostTensor& into,
                        std::int64_t into_row, std::int64_t page = 1) {
    const std::int64_t bytes = from.type.bytes() / from.type.dim(0);
    EXPECT_EQ(bytes, into.type.bytes() / into.type.dim(0) / page);
    std::memcpy(into.data.data() + into_row * bytes, from.data.data() + row * bytes,
                static_cast<std::size_t>(count * bytes));
  }
};

TEST_P(PagedBits, AreThoseOfTheQueryAlone) {
  std::vector<Server> servers(7);
  servers[1].attrs.set("left", std::int64_t{70});
  servers[1].attrs.set("sink", true);
  servers[1].h = 2;
  servers[1].kv = 2;
  servers[2].attrs.set("slopes", true);
  servers[2].attrs.set("soft_cap", 3.0);
  servers[2].h = 4;
  servers[2].kv = 1;
  servers[2].d = 20;
  servers[2].dv = 40;
  servers[2].pool_type = DType::bf16;
  servers[3].q_type = DType::bf16;
  servers[3].pool_type = DType::f16;
  servers[3].h = 8;
  servers[3].kv = 1;
  for (const std::size_t i : {4, 5}) {
    servers[i].in_keys = true;
    servers[i].attrs.set("values_in_keys", true);
    servers[i].attrs.set("value_dim", std::int64_t{48});
    servers[i].h = 8;
    servers[i].kv = 1;
  }
  servers[5].pool_type = DType::bf16;
  // Values in place, by several vectors and by one.
  servers[6].attrs.set("left", std::int64_t{70});
  servers[6].h = 9;
  servers[6].kv = 3;
  servers[6].d = 32;
  servers[6].dv = 80;
  servers[6].pool_type = DType::bf16;
  each_variant([&](hal::Device& device, const kernels::Variant& variant) {
    for (std::size_t s = 0; s < servers.size(); ++s) {
      SCOPED_TRACE(fmt::format("{} on {}, server {}", variant.name, device.info().id, s));
      Server& server = servers[s];
      server.lengths = {1, 37, 200, 64, 129};
      server.queries = {1, 37, 1, 5, 30};
      server.fill();
      std::vector<std::byte> alone;
      for (std::int64_t r = 0; r < 5; ++r)
        for (std::int64_t i = server.queries[static_cast<std::size_t>(r)] - 1; i >= 0; --i) {
          const std::vector<std::byte> o = run(device, variant, server, {{r, 1, i}}, 16, 0);
          alone.insert(alone.end(), o.begin(), o.end());
        }
      const std::vector<Span> together{{0, 1}, {1, 37}, {2, 1}, {3, 5}, {4, 30}};
      const auto same = [&](const std::vector<Span>& spans, std::int64_t page, std::int64_t padding) {
        return run(device, variant, server, spans, page, padding) == alone;
      };
      EXPECT_TRUE(same(together, 16, 0)) << "all sequences together";
      EXPECT_TRUE(same(together, 5, 3)) << "with pages of 5, and padding";
      EXPECT_TRUE(same(together, 256, 0)) << "with pages of 256";
      EXPECT_TRUE(same({{0, 1}, {1, 30, 7}, {1, 7}, {2, 1}, {3, 5}, {4, 13, 17}, {4, 17}}, 64, 1))
          << "in chunks";
      EXPECT_FALSE(same({{0, 1}, {1, 37}, {2, 1}, {4, 5}, {4, 30}}, 16, 0)) << "of another sequence";
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, PagedBits, testing::Values("cpu", "opencl", "vulkan"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace meshloom::tests

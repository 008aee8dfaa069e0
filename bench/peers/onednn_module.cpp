// oneDNN's matmul primitive behind a C interface, in a separate library: the program does not need oneDNN to
// build, and loads it only when it is used.
#include <cstdio>
#include <dnnl.hpp>
#include <memory>
#include <unordered_map>

#include "bench/peers/gemm.h"

namespace {

using dnnl::memory;
using meshloom::bench::Gemm;

// A primitive with its arguments.
struct Product {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  memory::desc a, b, c, b_given;
  dnnl::matmul primitive;
  std::unordered_map<int, memory> arguments;
};

struct Matrices {
  memory::dims dims, strides;
  memory::data_type type;
};

// (g, rows, columns), stored with rows and columns exchanged if `transposed`.
Matrices matrices(std::int64_t g, std::int64_t rows, std::int64_t columns, bool transposed, bool bf16) {
  Matrices result{{rows, columns},
                  {transposed ? 1 : columns, transposed ? rows : 1},
                  bf16 ? memory::data_type::bf16 : memory::data_type::f32};
  if (g > 1) {
    result.dims.insert(result.dims.begin(), g);
    result.strides.insert(result.strides.begin(), rows * columns);
  }
  return result;
}

template <typename F>
const char* guarded(F body) noexcept {
  static thread_local char message[256];
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    std::snprintf(message, sizeof message, "%s", error.what());
    return message;
  }
}

}  // namespace

const char* meshloom_peer_onednn_open(const Gemm* gemm, int packed, void** product,
                                      std::size_t* packed_bytes) {
  return guarded([&] {
    auto made = std::make_unique<Product>();
    const Matrices a = matrices(gemm->g, gemm->m, gemm->k, gemm->trans_a, gemm->bf16);
    const Matrices b = matrices(gemm->g, gemm->k, gemm->n, gemm->trans_b, gemm->bf16);
    const Matrices c = matrices(gemm->g, gemm->m, gemm->n, false, gemm->bf16_out);
    made->a = {a.dims, a.type, a.strides};
    made->b = made->b_given = {b.dims, b.type, b.strides};
    made->c = {c.dims, c.type, c.strides};
    if (packed) made->b = {b.dims, b.type, memory::format_tag::any};
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc chosen(made->engine, made->a, made->b, made->c);
#else
    const dnnl::matmul::primitive_desc chosen({made->a, made->b, made->c}, made->engine);
#endif
    made->b = chosen.weights_desc();
    made->primitive = dnnl::matmul(chosen);
    *packed_bytes = packed ? made->b.get_size() : 0;
    *product = made.release();
  });
}

const char* meshloom_peer_onednn_bind(const void* product, const void* a, const void* b, void* c,
                                      void* packed_b, void** call) {
  return guarded([&] {
    auto made = std::make_unique<Product>(*static_cast<const Product*>(product));
    const auto bound = [&](const memory::desc& type, const void* data) {
      return memory(type, made->engine, const_cast<void*>(data));
    };
    memory right = bound(made->b, packed_b ? packed_b : b);
    if (packed_b) {
      memory given = bound(made->b_given, b);
      dnnl::reorder(given, right).execute(made->stream, given, right);
      made->stream.wait();
    }
    made->arguments = {
        {DNNL_ARG_SRC, bound(made->a, a)}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, bound(made->c, c)}};
    *call = made.release();
  });
}

const char* meshloom_peer_onednn_run(void* call) {
  return guarded([&] {
    Product& product = *static_cast<Product*>(call);
    product.primitive.execute(product.stream, product.arguments);
    product.stream.wait();
  });
}

void meshloom_peer_onednn_close(void* product_or_call) { delete static_cast<Product*>(product_or_call); }

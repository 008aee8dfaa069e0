#include "bench/peers/peer.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "bench/peers/gemm.h"
#include "hal/error.h"
#include "hal/host_memory.h"
#include "kernels/matmul/matmul.h"

namespace meshloom::bench {
namespace {

using kernels::HostTensor;

using Call = std::function<void()>;
// A prepared product, which can be bound to buffers.
using Product = std::function<Call(const std::byte* a, const std::byte* b, std::byte* c)>;

// One library, as closures over its functions.
struct Binding {
  std::string version;
  std::function<Product(const Gemm&)> product;  // throws Error when the library does not support it
  std::function<void()> enter, leave;           // acquire and release threads; may be empty
  bool bf16 = false;                            // also supports bf16
};

Gemm gemm_of(const Workload& workload) {
  const kernels::MatmulDims d = kernels::matmul_dims(workload.view());
  const auto bf16 = [](const kernels::TensorType& type) { return type.dtype == kernels::DType::bf16; };
  return {bf16(workload.inputs[0]), bf16(workload.outputs[0]), d.trans_a, d.trans_b, d.g, d.m, d.n, d.k};
}

class GemmSubject final : public Subject {
 public:
  GemmSubject(const Binding& binding, const Workload& workload, const std::vector<HostTensor>& inputs,
              int sets)
      : binding_(binding), type_(workload.outputs.front()) {
    const Product product = binding.product(gemm_of(workload));
    for (int s = 0; s < sets; ++s) {
      HostTensor c(type_);
      poison(c);
      Set set{copied(inputs[0]), copied(inputs[1]), copied(c), {}};
      set.multiply = product(set.a.get(), set.b.get(), set.c.get());
      sets_.push_back(std::move(set));
    }
  }
  void prepare(int calls) override { calls_ = calls; }
  void run() override {
    for (int i = 0; i < calls_; ++i) sets_[static_cast<std::size_t>(i) % sets_.size()].multiply();
  }
  void enter() override {
    if (binding_.enter) binding_.enter();
  }
  void leave() override {
    if (binding_.leave) binding_.leave();
  }
  bool has_own_threads() const override { return true; }
  int sets() const override { return static_cast<int>(sets_.size()); }
  std::vector<HostTensor> outputs(int set) override {
    HostTensor c(type_);
    std::memcpy(c.data.data(), sets_.at(static_cast<std::size_t>(set)).c.get(), c.data.size());
    return {c};
  }

 private:
  struct Set {
    hal::HostMemory a, b, c;  // allocated like buffers of the cpu device
    Call multiply;
  };
  static hal::HostMemory copied(const HostTensor& tensor) {
    hal::HostMemory data = hal::host_memory(tensor.data.size());
    std::memcpy(data.get(), tensor.data.data(), tensor.data.size());
    return data;
  }

  const Binding& binding_;
  kernels::TensorType type_;
  std::vector<Set> sets_;
  int calls_ = 1;
};

class GemmPeer final : public Peer {
 public:
  explicit GemmPeer(Binding binding) : binding_(std::move(binding)) {}
  std::string version() const override { return binding_.version; }
  std::string refusal(const Workload& workload) const override {
    const std::string reason = not_a_plain_product(workload, binding_.bf16);
    if (!reason.empty()) return reason;
    try {
      binding_.product(gemm_of(workload));
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  std::unique_ptr<Subject> subject(const Workload& workload, const std::vector<HostTensor>& inputs,
                                   int sets) override {
    return std::make_unique<GemmSubject>(binding_, workload, inputs, sets);
  }

 private:
  Binding binding_;
};

// Products of f32: calls a function for each of the g products.
template <typename F>
std::function<Product(const Gemm&)> one_by_one(F multiply) {
  return [=](const Gemm& gemm) -> Product {
    return [=](const std::byte* a, const std::byte* b, std::byte* c) -> Call {
      return [=, left = reinterpret_cast<const float*>(a), right = reinterpret_cast<const float*>(b),
              result = reinterpret_cast<float*>(c)] {
        for (std::int64_t i = 0; i < gemm.g; ++i)
          multiply(gemm, left + i * gemm.m * gemm.k, right + i * gemm.k * gemm.n,
                   result + i * gemm.m * gemm.n);
      };
    };
  };
}

Binding openblas(const std::string& package, int threads) {
  const Library library({"libopenblas.so.0"}, package);
  auto* sgemm = library.function<void(int, int, int, int, int, int, float, const float*, int, const float*,
                                      int, float, float*, int)>("cblas_sgemm");
  auto* set_threads = library.function<void(int)>("openblas_set_num_threads");
  auto* config = library.function<const char*()>("openblas_get_config");
  return {config(), one_by_one([=](const Gemm& g, const float* a, const float* b, float* c) {
            constexpr int kRowMajor = 101, kNo = 111, kYes = 112;
            sgemm(kRowMajor, g.trans_a ? kYes : kNo, g.trans_b ? kYes : kNo, static_cast<int>(g.m),
                  static_cast<int>(g.n), static_cast<int>(g.k), 1, a, static_cast<int>(g.lda()), b,
                  static_cast<int>(g.ldb()), 0, c, static_cast<int>(g.n));
          }),
          // The cpu backend's variant "blas" calls the same library from its own threads.
          [=] { set_threads(threads); }, [=] { set_threads(1); }};
}

Binding blis(const std::string& package, int threads) {
  const Library library({"libblis.so.4"}, package);
  using Dim = std::int64_t;
  auto* sgemm = library.function<void(int, int, Dim, Dim, Dim, const float*, const float*, Dim, Dim,
                                      const float*, Dim, Dim, const float*, float*, Dim, Dim)>("bli_sgemm");
  auto* set_threads = library.function<void(Dim)>("bli_thread_set_num_threads");
  auto* version = library.function<const char*()>("bli_info_get_version_str");
  return {fmt::format("BLIS {}", version()),
          one_by_one([=](const Gemm& g, const float* a, const float* b, float* c) {
            const float one = 1, zero = 0;
            const Dim rs_a = g.trans_a ? 1 : g.k, cs_a = g.trans_a ? g.m : 1;
            const Dim rs_b = g.trans_b ? 1 : g.n, cs_b = g.trans_b ? g.k : 1;
            sgemm(0, 0, g.m, g.n, g.k, &one, a, rs_a, cs_a, b, rs_b, cs_b, &zero, c, g.n, 1);
          }),
          [=] { set_threads(threads); },
          {}};
}

std::string onednn_version(const Library& library) {
  struct Version {
    int major, minor, patch;
  };
  const auto* version = library.function<const Version*()>("dnnl_version")();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

std::function<void()> openmp_threads(const Library& library, int threads) {
  try {  // a build with another threading runtime uses its own default
    auto* set_threads = library.function<void(int)>("omp_set_num_threads");
    return [=] { set_threads(threads); };
  } catch (const Error&) {
    return [] {};
  }
}

Library onednn_module() {
  return {{MESHLOOM_PEER_FOLDER "/libmeshloom_peer_onednn.so"},
          "libdnnl-dev, and then the whole project built again"};
}

Product onednn_primitive(const Library& module, const Gemm& gemm, bool packed, int threads) {
  const auto must = [](const char* problem) {
    if (problem) throw Error("oneDNN", "its matmul primitive must take the call", problem);
  };
  auto* open = module.function<decltype(meshloom_peer_onednn_open)>("meshloom_peer_onednn_open");
  auto* bind = module.function<decltype(meshloom_peer_onednn_bind)>("meshloom_peer_onednn_bind");
  auto* run = module.function<decltype(meshloom_peer_onednn_run)>("meshloom_peer_onednn_run");
  auto* close = module.function<decltype(meshloom_peer_onednn_close)>("meshloom_peer_onednn_close");
  openmp_threads(module, threads)();  // the primitive is created for so many threads
  void* opened = nullptr;
  std::size_t packed_bytes = 0;
  must(open(&gemm, packed, &opened, &packed_bytes));
  return [=, product = std::shared_ptr<void>(opened, close)](const std::byte* a, const std::byte* b,
                                                             std::byte* c) -> Call {
    const std::shared_ptr<std::byte> packed_b = packed_bytes > 0 ? hal::host_memory(packed_bytes) : nullptr;
    void* bound = nullptr;
    must(bind(product.get(), a, b, c, packed_b.get(), &bound));
    return [must, run, packed_b, call = std::shared_ptr<void>(bound, close)] { must(run(call.get())); };
  };
}

Binding onednn(const std::string& package, int threads) {
  const Library library({"libdnnl.so.2", "libdnnl.so.3"}, package);
  using Dim = std::int64_t;
  auto* sgemm = library.function<int(char, char, Dim, Dim, Dim, float, const float*, Dim, const float*, Dim,
                                     float, float*, Dim)>("dnnl_sgemm");
  const auto products = one_by_one([=](const Gemm& g, const float* a, const float* b, float* c) {
    const int status = sgemm(g.trans_a ? 'T' : 'N', g.trans_b ? 'T' : 'N', g.m, g.n, g.k, 1, a, g.lda(), b,
                             g.ldb(), 0, c, g.n);
    if (status != 0) throw Error("oneDNN", "dnnl_sgemm must succeed", fmt::format("status {}", status));
  });
  return {onednn_version(library) + ", dnnl_sgemm, for bf16 its matmul primitive",
          [=](const Gemm& g) {
            return g.bf16 ? onednn_primitive(onednn_module(), g, false, threads) : products(g);
          },
          openmp_threads(library, threads),
          {},
          true};
}

Binding onednn_packed(const std::string&, int threads) {
  const Library module = onednn_module();
  return {onednn_version(module) + ", matmul primitive, B packed beforehand",
          [=](const Gemm& g) { return onednn_primitive(module, g, true, threads); },
          openmp_threads(module, threads),
          {},
          true};
}

Binding eigen(const std::string& package, int threads) {
  // The module is built for several instruction sets, because Eigen selects at compile time.
  std::string name = "x86_64";
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) name = "avx2";
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) name = "avx512";
#endif
  const Library library({MESHLOOM_PEER_FOLDER "/libmeshloom_peer_eigen_" + name + ".so"},
                        package + ", and then the whole project built again");
  auto* multiply = library.function<void(int, int, int, std::int64_t, std::int64_t, std::int64_t,
                                         const float*, const float*, float*)>("meshloom_peer_eigen");
  auto* version = library.function<const char*()>("meshloom_peer_eigen_version");
  return {fmt::format("Eigen {}, {}", version(), name),
          one_by_one([=](const Gemm& g, const float* a, const float* b, float* c) {
            multiply(threads, g.trans_a, g.trans_b, g.m, g.n, g.k, a, b, c);
          }),
          {},
          {}};
}

}  // namespace

std::unique_ptr<Peer> open_host_gemm(const std::string& name, const std::string& package, int threads) {
  using Make = Binding (*)(const std::string& package, int threads);
  const std::pair<const char*, Make> table[] = {{"openblas", openblas},
                                                {"blis", blis},
                                                {"onednn", onednn},
                                                {"onednn_packed", onednn_packed},
                                                {"eigen", eigen}};
  for (const auto& [known, make] : table)
    if (name == known) return std::make_unique<GemmPeer>(make(package, threads));
  throw Error("peer " + name, "must be built in");
}

}  // namespace meshloom::bench

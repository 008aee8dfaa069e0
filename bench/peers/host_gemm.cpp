#include "bench/peers/host_gemm.h"

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <utility>

#include "hal/error.h"
#include "hal/host_memory.h"
#include "kernels/matmul/matmul.h"

namespace meshloom::bench {
namespace {

using kernels::HostTensor;

// Row-major C (m, n) = op(A) op(B); the leading dimensions are those of A and B as they are stored.
struct Gemm {
  bool trans_a, trans_b;
  std::int64_t m, n, k;
  const float *a, *b;
  float* c;
  std::int64_t lda() const { return trans_a ? m : k; }
  std::int64_t ldb() const { return trans_b ? k : n; }
};

// What is known of one library, in closures over its functions.
struct Binding {
  std::string version;
  std::function<void(const Gemm&)> multiply;
  std::function<void()> enter, leave;  // threads are claimed and given back; may be empty
};

class GemmSubject final : public Subject {
 public:
  GemmSubject(const Binding& binding, const Workload& workload, const std::vector<HostTensor>& inputs,
              int sets)
      : binding_(binding), type_(workload.outputs.front()), dims_(kernels::matmul_dims(workload.view())) {
    for (int s = 0; s < sets; ++s) {
      HostTensor c(type_);
      poison(c);
      sets_.push_back({copied(inputs[0]), copied(inputs[1]), copied(c)});
    }
  }
  void prepare(int calls) override { calls_ = calls; }
  void run() override {
    for (int i = 0; i < calls_; ++i) {
      const Set& set = sets_[static_cast<std::size_t>(i) % sets_.size()];
      for (std::int64_t g = 0; g < dims_.g; ++g)
        binding_.multiply({dims_.trans_a, dims_.trans_b, dims_.m, dims_.n, dims_.k,
                           floats(set.a) + g * dims_.m * dims_.k, floats(set.b) + g * dims_.k * dims_.n,
                           floats(set.c) + g * dims_.m * dims_.n});
    }
  }
  void enter() override {
    if (binding_.enter) binding_.enter();
  }
  void leave() override {
    if (binding_.leave) binding_.leave();
  }
  bool brings_threads() const override { return true; }
  int sets() const override { return static_cast<int>(sets_.size()); }
  std::vector<HostTensor> outputs(int set) override {
    HostTensor c(type_);
    std::memcpy(c.data.data(), sets_.at(static_cast<std::size_t>(set)).c.get(), c.data.size());
    return {c};
  }

 private:
  struct Set {
    hal::HostMemory a, b, c;  // from where buffers of the cpu device come
  };
  static hal::HostMemory copied(const HostTensor& tensor) {
    hal::HostMemory data = hal::host_memory(tensor.data.size());
    std::memcpy(data.get(), tensor.data.data(), tensor.data.size());
    return data;
  }
  static float* floats(const hal::HostMemory& memory) { return reinterpret_cast<float*>(memory.get()); }

  const Binding& binding_;
  kernels::TensorType type_;
  kernels::MatmulDims dims_;
  std::vector<Set> sets_;
  int calls_ = 1;
};

class GemmPeer final : public Peer {
 public:
  explicit GemmPeer(Binding binding) : binding_(std::move(binding)) {}
  std::string version() const override { return binding_.version; }
  std::string refusal(const Workload& workload) const override { return not_a_plain_product(workload); }
  std::unique_ptr<Subject> subject(const Workload& workload, const std::vector<HostTensor>& inputs,
                                   int sets) override {
    return std::make_unique<GemmSubject>(binding_, workload, inputs, sets);
  }

 private:
  Binding binding_;
};

Binding openblas(const std::string& package, int threads) {
  const Library library({"libopenblas.so.0"}, package);
  auto* sgemm = library.function<void(int, int, int, int, int, int, float, const float*, int, const float*,
                                      int, float, float*, int)>("cblas_sgemm");
  auto* set_threads = library.function<void(int)>("openblas_set_num_threads");
  auto* config = library.function<const char*()>("openblas_get_config");
  return {config(),
          [=](const Gemm& g) {
            constexpr int kRowMajor = 101, kNo = 111, kYes = 112;
            sgemm(kRowMajor, g.trans_a ? kYes : kNo, g.trans_b ? kYes : kNo, static_cast<int>(g.m),
                  static_cast<int>(g.n), static_cast<int>(g.k), 1, g.a, static_cast<int>(g.lda()), g.b,
                  static_cast<int>(g.ldb()), 0, g.c, static_cast<int>(g.n));
          },
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
          [=](const Gemm& g) {
            const float one = 1, zero = 0;
            const Dim rs_a = g.trans_a ? 1 : g.k, cs_a = g.trans_a ? g.m : 1;
            const Dim rs_b = g.trans_b ? 1 : g.n, cs_b = g.trans_b ? g.k : 1;
            sgemm(0, 0, g.m, g.n, g.k, &one, g.a, rs_a, cs_a, g.b, rs_b, cs_b, &zero, g.c, g.n, 1);
          },
          [=] { set_threads(threads); },
          {}};
}

Binding onednn(const std::string& package, int threads) {
  const Library library({"libdnnl.so.2", "libdnnl.so.3"}, package);
  using Dim = std::int64_t;
  auto* sgemm = library.function<int(char, char, Dim, Dim, Dim, float, const float*, Dim, const float*, Dim,
                                     float, float*, Dim)>("dnnl_sgemm");
  struct Version {
    int major, minor, patch;
  };
  const auto* version = library.function<const Version*()>("dnnl_version")();
  std::function<void()> enter;
  try {  // a build with another threading runtime takes its own default
    auto* set_threads = library.function<void(int)>("omp_set_num_threads");
    enter = [=] { set_threads(threads); };
  } catch (const Error&) {
  }
  return {fmt::format("oneDNN {}.{}.{}, dnnl_sgemm", version->major, version->minor, version->patch),
          [=](const Gemm& g) {
            const int status = sgemm(g.trans_a ? 'T' : 'N', g.trans_b ? 'T' : 'N', g.m, g.n, g.k, 1, g.a,
                                     g.lda(), g.b, g.ldb(), 0, g.c, g.n);
            if (status != 0)
              throw Error("oneDNN", "dnnl_sgemm must succeed", fmt::format("status {}", status));
          },
          std::move(enter),
          {}};
}

Binding eigen(const std::string& package, int threads) {
  // Built for two instruction sets, since Eigen chooses when it is compiled.
  std::string name = "x86_64";
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) name = "avx2";
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) name = "avx512";
#endif
  const Library library({MESHLOOM_PEER_FOLDER "/libmeshloom_peer_eigen_" + name + ".so"},
                        package + " when building");
  auto* multiply = library.function<void(int, int, int, std::int64_t, std::int64_t, std::int64_t,
                                         const float*, const float*, float*)>("meshloom_peer_eigen");
  auto* version = library.function<const char*()>("meshloom_peer_eigen_version");
  return {fmt::format("Eigen {}, {}", version(), name),
          [=](const Gemm& g) { multiply(threads, g.trans_a, g.trans_b, g.m, g.n, g.k, g.a, g.b, g.c); },
          {},
          {}};
}

}  // namespace

std::unique_ptr<Peer> open_host_gemm(const std::string& name, const std::string& package, int threads) {
  using Make = Binding (*)(const std::string& package, int threads);
  const std::pair<const char*, Make> table[] = {
      {"openblas", openblas}, {"blis", blis}, {"onednn", onednn}, {"eigen", eigen}};
  for (const auto& [known, make] : table)
    if (name == known) return std::make_unique<GemmPeer>(make(package, threads));
  throw Error("peer " + name, "must be built in");
}

}  // namespace meshloom::bench

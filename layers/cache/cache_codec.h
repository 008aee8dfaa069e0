// In what form a cache keeps numbers. A codec is a component of a cache: whoever attends knows nothing of it.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/paged_attention/paged_attention.h"
#include "layers/core/context.h"
#include "layers/core/module.h"

namespace meshloom::layers {

// Where a cache keeps the rows of an InferenceStep's tokens: in pools of `blocks` pages, or of as many sequences, of so many rows each.
struct CacheRows {
  Tensor slots;  // (N), as index_copy takes them
  std::int64_t blocks, size;
  CacheUnit unit;
  kernels::DType dtype;  // of the activations
};

// (B, S, H, D) -> (B * S, H, D)
Tensor flatten_tokens(Tensor x);

class CacheCodec : public Module {
 public:
  struct Dims {};
  struct Config : Module::Config {
    static constexpr std::string_view kAbout = "The form in which a cache keeps keys and values.";
    using Built = CacheCodec;
    using Dims = CacheCodec::Dims;
    Dims dims;
  };

  using Module::Module;
  // Keeps x (N, KV, D) as the cache `name` of the call, and what belongs to it as NAME_... Returns what attention reads.
  virtual kernels::PagedRows keep(Context& ctx, const std::string& name, Tensor x, const CacheRows& rows) = 0;
  // What attention reads of what keep() keeps in another program: rows of so many heads of so many features.
  virtual kernels::PagedRows kept(Context& ctx, const std::string& name, std::int64_t heads,
                                  std::int64_t features, const CacheRows& rows) = 0;

 protected:
  // The pool `name`, of rows of so many heads of so many elements of this dtype.
  static Tensor pool(Context& ctx, const std::string& name, kernels::DType dtype, std::int64_t heads,
                     std::int64_t elements, const CacheRows& rows);
  // Writes x (N, KV, F) into the pool `name` of this dtype; returns the pool.
  static Tensor write(Context& ctx, const std::string& name, kernels::DType dtype, Tensor x,
                      const CacheRows& rows);
};

// Floats.
class Plain : public CacheCodec {
 public:
  struct Config : ConfigOf<Config, CacheCodec::Config> {
    static constexpr std::string_view kName = "Plain";
    static constexpr std::string_view kAbout =
        "Floats, of the type of the activations or of one of their own.";
    std::string dtype = "activations";

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  Plain(const Config& config, const Place& place);
  kernels::PagedRows keep(Context& ctx, const std::string& name, Tensor x, const CacheRows& rows) override;
  kernels::PagedRows kept(Context& ctx, const std::string& name, std::int64_t heads, std::int64_t features,
                          const CacheRows& rows) override;

 private:
  kernels::DType dtype_of(const CacheRows& rows) const;

  std::string dtype_;
};

}  // namespace meshloom::layers

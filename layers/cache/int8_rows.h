// Keys and values as integers of eight bits, each row of a token and head with a scale of its own.
#pragma once

#include "layers/cache/cache_codec.h"

namespace meshloom::layers {

class Int8Rows : public CacheCodec {
 public:
  struct Config : ConfigOf<Config, CacheCodec::Config> {
    static constexpr std::string_view kName = "Int8Rows";
    static constexpr std::string_view kAbout =
        "Integers of eight bits, with a scale for each token and head: half the memory of bf16.";

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  using CacheCodec::CacheCodec;
  kernels::PagedRows keep(Context& ctx, const std::string& name, Tensor x, const CacheRows& rows) override;
  kernels::PagedRows kept(Context& ctx, const std::string& name, std::int64_t heads, std::int64_t features,
                          const CacheRows& rows) override;
};

}  // namespace meshloom::layers

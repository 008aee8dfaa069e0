// Keys and values as four-bit NormalFloat (kernels/nf4_matmul/nf4.h).
#pragma once

#include "layers/cache/cache_codec.h"

namespace meshloom::layers {

class Nf4Rows : public CacheCodec {
 public:
  struct Config : ConfigOf<Config, CacheCodec::Config> {
    static constexpr std::string_view kName = "Nf4Rows";
    static constexpr std::string_view kAbout =
        "Four-bit NormalFloat (Dettmers et al., 2023), with a scale for each block of a token's head.";
    std::int64_t block = 32;

    void fields(FieldVisitor& v) override;
    std::unique_ptr<Module> build(const Place& place) const override;
  };

  Nf4Rows(const Config& config, const Place& place);
  kernels::PagedRows keep(Context& ctx, const std::string& name, Tensor x, const CacheRows& rows) override;
  kernels::PagedRows kept(Context& ctx, const std::string& name, std::int64_t heads, std::int64_t features,
                          const CacheRows& rows) override;

 private:
  std::int64_t block_;
};

}  // namespace meshloom::layers

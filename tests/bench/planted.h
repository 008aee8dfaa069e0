// Variants of matmul on cpu that only tests have; they come behind the real ones.
#pragma once

#include "hal/error.h"
#include "kernels/core/catalog.h"

namespace meshloom::bench {

inline kernels::Fit fit_anything(const kernels::CallView&, const hal::DeviceInfo&) {
  return kernels::Fit::yes();
}
inline void encode_nothing(const kernels::EncodeArgs&) {}
inline void encode_throwing(const kernels::EncodeArgs&) { throw hal::Error("planted", "must work"); }

inline void plant(kernels::Catalog& catalog, const char* name, void (*encode)(const kernels::EncodeArgs&)) {
  kernels::Variant variant;
  variant.op = "matmul";
  variant.backend = "cpu";
  variant.name = name;
  variant.about = "planted by a test";
  variant.fit = fit_anything;
  variant.encode = encode;
  catalog.add(variant);
}

// "idle" computes nothing, "throwing" fails.
inline void plant_bad(kernels::Catalog& catalog) {
  plant(catalog, "idle", encode_nothing);
  plant(catalog, "throwing", encode_throwing);
}

}  // namespace meshloom::bench

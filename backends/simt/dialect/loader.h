// Turns a kernel file and a spec into the source text a driver compiles.
//
// The portable dialect: one text, kernels/KERNEL.simt, is OpenCL C 1.2 and GLSL 450 at once. A kernel file is
//
//   #define BINDINGS(X) X(0, R, float, a) X(1, W, float, b)     // index, R|W|RW, float|int|uint, name
//   #define CONSTANTS(X) X(0, int, count) X(1, float, scale)    // index, int|uint|float, name; may be absent
//   #define SHARED(X) X(float, tile, (WG_X * 4))                // workgroup memory; may be absent
//   FN float helper(float x) { ... }                            // values only
//   KERNEL_BEGIN
//     ... LOAD(a, i) STORE(b, i, value) LOAD4 STORE4 BARRIER() LOCAL_ID(d) GROUP_ID(d) ...
//   KERNEL_END
//
// A dispatch may be cut into several: workgroups must not wait for each other, and know their number and how many they are
// by GROUP_ID and NUM_GROUPS only (prelude_grid.inc), never by the driver's own names.
//
// KERNEL_BEGIN and KERNEL_END stand alone on their lines. The spec's defines, WG_X, WG_Y, WG_Z and
// KERNEL_NAME are visible everywhere. The preludes list every name there is. Conditional BINDINGS (#if around
// the #define) are fine. A line `#include "NAME"` is replaced by kernels/NAME, the backend's own first. Bindings
// and constants are checked against the spec at compile time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "embedded_file.h"
#include "hal/device.h"

namespace meshloom::backends::simt {

// glsl_texels: buffers that are only read are texel buffers; glsl_device_address: buffers by device address instead of descriptors.
enum class Language { opencl_c, glsl, glsl_texels, glsl_device_address };

// Source of `spec`: prelude, defines, kernel text. `own` are the backend's files (KERNEL.cl or KERNEL.comp),
// which win over the shared KERNEL.simt and get the same prelude and defines. Throws Error on an unknown
// kernel or a define that is no identifier.
std::string source_of(const hal::ExecutableSpec& spec, Language language,
                      const std::vector<embedded::File>& own);

}  // namespace meshloom::backends::simt

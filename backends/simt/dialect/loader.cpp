#include "backends/simt/dialect/loader.h"

#include <cctype>
#include <span>

#include "backends/simt/host/aliasing.h"
#include "embedded_simt_kernels.h"
#include "embedded_simt_preludes.h"

namespace meshloom::backends::simt {
namespace {

const embedded::File* find(const std::vector<embedded::File>& files, const std::string& name) {
  for (const embedded::File& file : files)
    if (file.name == name) return &file;
  return nullptr;
}

std::string_view prelude(const std::string& name) { return find(embedded::simt_preludes(), name)->text; }

bool is_identifier(const std::string& text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text[0]))) return false;
  for (char c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  return true;
}

void define(std::string& out, const std::string& name, const std::string& value) {
  out += "#define " + name + " " + value + "\n";
}

// One number that says each binding's access, as the preludes compute it from BINDINGS.
unsigned access_code(std::span<const hal::Access> bindings) {
  unsigned code = 0;
  for (std::size_t i = 0; i < bindings.size(); ++i)
    code |= (bindings[i] == hal::Access::read ? 1u : bindings[i] == hal::Access::write ? 2u : 3u) << (2 * i);
  return code;
}

// One of the dispatches that a launch of the kernel runs.
struct SingleDispatch {
  std::span<const hal::Access> bindings;
  std::uint32_t constants;
};
SingleDispatch single_dispatch(const hal::ExecutableSpec& spec, const std::string& where) {
  const std::uint32_t count = spec.fused;
  if (count != 1 && count != 2 && count != 4 && count != 8)
    throw hal::Error(where, "a launch runs 1, 2, 4 or 8 dispatches", std::to_string(count));
  const std::size_t bindings = spec.bindings.size() / count;
  const std::uint32_t words = spec.constant_words / count, grid = count > 1 ? hal::kFusedWords : 0;
  if (bindings * count != spec.bindings.size() || words * count != spec.constant_words || words < grid)
    throw hal::Error(where,
                     "the dispatches of a launch have equally many bindings and constants, and four "
                     "words more each",
                     std::to_string(spec.bindings.size()) + " bindings and " +
                         std::to_string(spec.constant_words) + " constants");
  return {std::span(spec.bindings).first(bindings), words - grid};
}

// Offset of the line KERNEL_BEGIN and its number (from 1); npos when there is none.
std::size_t find_entry(std::string_view text, int& line) {
  line = 1;
  for (std::size_t at = 0; at < text.size(); ++line) {
    std::size_t end = text.find('\n', at);
    if (end == std::string_view::npos) end = text.size();
    std::string_view row = text.substr(at, end - at);
    while (!row.empty() && (row.back() == ' ' || row.back() == '\r')) row.remove_suffix(1);
    if (row == "KERNEL_BEGIN") return at;
    at = end + 1;
  }
  return std::string_view::npos;
}

// Appends `text`, with each line `#include "NAME"` replaced by the file of that name: the backend's own, or
// one of simt/kernels.
void append(std::string& out, std::string_view text, const std::vector<embedded::File>& own,
            const std::string& where, int line) {
  constexpr std::string_view kInclude = "#include \"";
  out += "#line " + std::to_string(line) + "\n";
  for (std::size_t at = 0; at < text.size(); ++line) {
    std::size_t end = text.find('\n', at);
    if (end == std::string_view::npos) end = text.size();
    const std::string_view row = text.substr(at, end - at);
    at = end + 1;
    if (row.substr(0, kInclude.size()) != kInclude) {
      (out += row) += '\n';
      continue;
    }
    const std::string name{row.substr(kInclude.size(), row.find('"', kInclude.size()) - kInclude.size())};
    const embedded::File* file = find(own, name);
    if (!file) file = find(embedded::simt_kernels(), name);
    if (!file)
      throw hal::Error(where, "an #include must name a file of the backend or of backends/simt/kernels",
                       name);
    append(out, file->text, own, where, 1);
    out += "\n#line " + std::to_string(line + 1) + "\n";
  }
}

}  // namespace

std::string source_of(const hal::ExecutableSpec& spec, Language language,
                      const std::vector<embedded::File>& own) {
  const std::string where = "kernel '" + spec.kernel + "'";
  const bool opencl = language == Language::opencl_c;
  const embedded::File* file = find(own, spec.kernel + (opencl ? ".cl" : ".comp"));
  if (!file) file = find(embedded::simt_kernels(), spec.kernel + ".simt");
  if (!file)
    throw hal::Error(where, "must be a kernel file of the backend or of backends/simt/kernels", "none");
  if (!is_identifier(spec.kernel)) throw hal::Error(where, "a kernel's name is an identifier");
  if (spec.fused > 1 && !opencl)
    throw hal::Error(where, "several dispatches run as one in OpenCL C only", std::to_string(spec.fused));
  const SingleDispatch one = single_dispatch(spec, where);
  if (one.bindings.empty() || one.bindings.size() > 8)
    throw hal::Error(where, "a kernel has 1 to 8 bindings", std::to_string(one.bindings.size()));
  if (one.constants > 16)
    throw hal::Error(where, "a kernel has at most 16 constants", std::to_string(one.constants));

  std::string out{prelude(opencl ? "prelude_opencl.cl" : "prelude_vulkan.glsl")};
  if (!opencl) {
    define(out, "MESH_DEVICE_ADDRESS", language == Language::glsl_device_address ? "1" : "0");
    define(out, "MESH_TEXELS", language == Language::glsl_texels ? "1" : "0");
    for (std::size_t i = 0; i < spec.bindings.size(); ++i)
      if (!(declared_aliased(spec) >> i & 1)) define(out, "ALIASED_" + std::to_string(i), "0");
  }
  define(out, "KERNEL_NAME", spec.kernel);
  const char* const axes[3] = {"WG_X", "WG_Y", "WG_Z"};
  for (std::size_t i = 0; i < 3; ++i) define(out, axes[i], std::to_string(spec.workgroup[i]));
  define(out, "MESH_SPEC_ACCESS", std::to_string(access_code(one.bindings)));
  define(out, "MESH_SPEC_CONSTANTS", std::to_string((1u << one.constants) - 1));
  if (spec.fused > 1) {
    define(out, "MESH_FUSED", std::to_string(spec.fused));
    out += prelude("prelude_fused.inc");
  }
  for (const hal::Define& item : spec.defines) {
    if (!is_identifier(item.name) || item.value.find('\n') != std::string::npos)
      throw hal::Error(where, "a define is an identifier and a one-line value", item.name + "=" + item.value);
    define(out, item.name, item.value);
  }
  out += prelude("prelude_grid.inc");
  out += prelude("prelude_lanes.inc");
  int line = 0;
  const std::size_t entry = find_entry(file->text, line);
  append(out, file->text.substr(0, entry), own, where, 1);
  if (entry == std::string_view::npos) return out;  // a hand-written entry
  out += prelude("prelude_entry.inc");
  append(out, file->text.substr(entry), own, where, line);
  return out;
}

}  // namespace meshloom::backends::simt

#include "backends/vulkan/device/shader.h"

#include <glslang/Public/ResourceLimits.h>
#include <glslang/Public/ShaderLang.h>
#include <glslang/SPIRV/GlslangToSpv.h>

#include <cstring>
#include <span>

#include "backends/vulkan/device/cooperative_spirv.h"
#include "hal/error.h"

namespace meshloom::backends::vulkan {
namespace {

// glslang must be initialized and finalized once per process.
struct Library {
  Library() { glslang::InitializeProcess(); }
  ~Library() { glslang::FinalizeProcess(); }
};

std::string first_lines(const char* log) {
  constexpr std::size_t kMaxLength = 600;
  std::string out;
  for (; *log && out.size() < kMaxLength; ++log) {
    if (*log == '\n')
      out += " | ";
    else
      out += *log;
  }
  return out;
}

}  // namespace

std::vector<std::uint32_t> compile_glsl(const std::string& source, const std::string& where,
                                        const hal::DiskCache& cache) {
  const glslang::Version version = glslang::GetVersion();
  const std::string key = "spirv 1.5, KHR matrices, barriers\nglslang " + std::to_string(version.major) +
                          "." + std::to_string(version.minor) + "." + std::to_string(version.patch) + "\n" +
                          source;
  std::vector<std::uint32_t> words;
  if (const auto bytes = cache.load("spv", key); bytes && bytes->size() % 4 == 0) {
    words.resize(bytes->size() / 4);
    std::memcpy(words.data(), bytes->data(), bytes->size());
    return words;
  }
  static const Library library;
  glslang::TShader shader(EShLangCompute);
  const char* text = source.c_str();
  shader.setStrings(&text, 1);
  shader.setEnvInput(glslang::EShSourceGlsl, EShLangCompute, glslang::EShClientVulkan, 100);
  shader.setEnvClient(glslang::EShClientVulkan, glslang::EShTargetVulkan_1_2);
  shader.setEnvTarget(glslang::EShTargetSpv, glslang::EShTargetSpv_1_5);
  const auto messages = static_cast<EShMessages>(EShMsgSpvRules | EShMsgVulkanRules);
  if (!shader.parse(GetDefaultResources(), 450, false, messages))
    throw hal::Error(where, "must compile as GLSL", first_lines(shader.getInfoLog()));
  glslang::TProgram program;
  program.addShader(&shader);
  if (!program.link(messages))
    throw hal::Error(where, "must link as GLSL", first_lines(program.getInfoLog()));
  glslang::GlslangToSpv(*program.getIntermediate(EShLangCompute), words);
  words = to_khr_cooperative_matrix(words, where);
  cache.store("spv", key, std::as_bytes(std::span(words)));
  return words;
}

}  // namespace meshloom::backends::vulkan

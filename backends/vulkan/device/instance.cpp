#include "backends/vulkan/device/instance.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "backends/vulkan/device/status.h"
#include "hal/error.h"

namespace meshloom::backends::vulkan {
namespace {

constexpr const char* kLayer = "VK_LAYER_KHRONOS_validation";

std::atomic<std::int64_t>& message_count() {
  static std::atomic<std::int64_t> count{0};
  return count;
}

std::string_view validation_setting() {
  const char* value = std::getenv("MESHLOOM_VULKAN_VALIDATION");
  return value ? value : "";
}

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                          VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT* data, void*) {
  ++message_count();
  if (validation_setting() == "quiet") return VK_FALSE;
  std::string line = data->pMessage ? data->pMessage : "";
  for (char& c : line)
    if (c == '\n' || c == '\r') c = ' ';
  std::fprintf(stderr, "Vulkan validation: %s\n", line.c_str());
  return VK_FALSE;
}

bool has_layer(const char* name) {
  std::uint32_t count = 0;
  vkEnumerateInstanceLayerProperties(&count, nullptr);
  std::vector<VkLayerProperties> layers(count);
  vkEnumerateInstanceLayerProperties(&count, layers.data());
  for (const VkLayerProperties& layer : layers)
    if (std::string_view(layer.layerName) == name) return true;
  return false;
}

bool has_instance_extension(const char* name) {
  std::uint32_t count = 0;
  vkEnumerateInstanceExtensionProperties(nullptr, &count, nullptr);
  std::vector<VkExtensionProperties> extensions(count);
  vkEnumerateInstanceExtensionProperties(nullptr, &count, extensions.data());
  for (const VkExtensionProperties& extension : extensions)
    if (std::string_view(extension.extensionName) == name) return true;
  return false;
}

}  // namespace

std::int64_t validation_messages() { return message_count(); }

Instance::Instance() {
  VkApplicationInfo application{VK_STRUCTURE_TYPE_APPLICATION_INFO};
  application.pApplicationName = "meshloom";
  application.apiVersion = VK_API_VERSION_1_3;  // the highest this code knows; devices may offer less

  VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  info.pApplicationInfo = &application;
  std::vector<const char*> layers, extensions;
  if (has_instance_extension(VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) {
    extensions.push_back(VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME);
    info.flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
  }
  const bool validate = !validation_setting().empty() && validation_setting() != "0";
  VkDebugUtilsMessengerCreateInfoEXT messenger{VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
  messenger.messageSeverity =
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  messenger.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
  messenger.pfnUserCallback = &on_message;
  const std::array<VkValidationFeatureEnableEXT, 1> enabled{
      VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
  VkValidationFeaturesEXT features{VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT};
  features.enabledValidationFeatureCount = enabled.size();
  features.pEnabledValidationFeatures = enabled.data();
  if (validate) {
    if (!has_layer(kLayer))
      throw hal::Error("vulkan",
                       "MESHLOOM_VULKAN_VALIDATION needs the layer VK_LAYER_KHRONOS_validation: install "
                       "vulkan-validationlayers or unset the variable",
                       "no such layer");
    layers.push_back(kLayer);
    extensions.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
    features.pNext = &messenger;
    info.pNext = &features;
  }
  info.enabledLayerCount = static_cast<std::uint32_t>(layers.size());
  info.ppEnabledLayerNames = layers.data();
  info.enabledExtensionCount = static_cast<std::uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  const VkResult status = vkCreateInstance(&info, nullptr, &instance_);
  if (status == VK_ERROR_INCOMPATIBLE_DRIVER)
    throw hal::Error("vulkan",
                     "a Vulkan driver must be installed: mesa-vulkan-drivers (AMD, Intel, and lavapipe on "
                     "the CPU) or the GPU vendor's driver",
                     status_name(status));
  check(status, "vulkan", "vkCreateInstance");
  if (validate) {
    const auto create = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
        vkGetInstanceProcAddr(instance_, "vkCreateDebugUtilsMessengerEXT"));
    const VkResult made = create(instance_, &messenger, nullptr, &messenger_);
    if (made != VK_SUCCESS) vkDestroyInstance(instance_, nullptr);
    check(made, "vulkan", "vkCreateDebugUtilsMessengerEXT");
  }
}

Instance::~Instance() {
  if (messenger_) {
    const auto destroy = reinterpret_cast<PFN_vkDestroyDebugUtilsMessengerEXT>(
        vkGetInstanceProcAddr(instance_, "vkDestroyDebugUtilsMessengerEXT"));
    destroy(instance_, messenger_, nullptr);
  }
  vkDestroyInstance(instance_, nullptr);
}

}  // namespace meshloom::backends::vulkan

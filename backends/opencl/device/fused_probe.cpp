#include "backends/opencl/device/fused_probe.h"

#include <exception>
#include <memory>
#include <vector>

#include "hal/fused_launch.h"

namespace meshloom::backends::opencl {
namespace {

constexpr std::uint32_t kWorkgroup = 8, kPerGroup = 4 * kWorkgroup;  // fill_pattern.simt

// Dispatch d of the launch computes (d + 1) i + d for i below 50 (d + 1), of one array; the last has nothing to run.
std::string problem_of(hal::Device& device, std::uint32_t count) {
  const auto elements = [](std::uint32_t d) { return std::int64_t{50} * (d + 1); };
  const hal::ExecutableSpec one{
      "fill_pattern", {}, {kWorkgroup, 1, 1}, {hal::Access::read, hal::Access::write}, 3};
  hal::FusedLaunch launch(one, count);
  std::vector<float> in(static_cast<std::size_t>(elements(count)));
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  const auto source = device.allocate(static_cast<std::int64_t>(4 * in.size()), "fused launch, source");
  device.write(*source, 0, std::as_bytes(std::span(in)));
  std::vector<std::unique_ptr<hal::Buffer>> results;
  for (std::uint32_t d = 0; d < count; ++d) {
    const std::vector<float> nothing(static_cast<std::size_t>(elements(d)), -1.0f);
    results.push_back(device.allocate(4 * elements(d), "fused launch, result"));
    device.write(*results.back(), 0, std::as_bytes(std::span(nothing)));
    const std::vector<hal::Binding> bindings{{source.get(), 0, 4 * elements(d), hal::Access::read},
                                             {results.back().get(), 0, 4 * elements(d), hal::Access::write}};
    const std::vector<hal::Word> constants{hal::word(elements(d)), hal::word(static_cast<float>(d + 1)),
                                           hal::word(static_cast<float>(d))};
    const auto groups = static_cast<std::uint32_t>((elements(d) + kPerGroup - 1) / kPerGroup);
    if (d + 1 < count)
      launch.add({groups, 1, 1}, bindings, constants);
    else
      launch.add({0, 0, 0}, bindings, constants);
  }
  const auto list = device.record("fused launch");
  launch.record(device, *list, "fused launch");
  list->finish();
  device.submit(*list);
  device.wait();
  for (std::uint32_t d = 0; d < count; ++d) {
    std::vector<float> got(static_cast<std::size_t>(elements(d)));
    device.read(*results[d], 0, std::as_writable_bytes(std::span(got)));
    for (std::size_t i = 0; i < got.size(); ++i) {
      const float want = d + 1 < count ? static_cast<float>((d + 1) * i + d) : -1.0f;
      if (got[i] != want)
        return "of a launch of " + std::to_string(count) + " dispatches, element " + std::to_string(i) +
               " of number " + std::to_string(d) + " is " + std::to_string(got[i]) + " instead of " +
               std::to_string(want);
    }
  }
  return {};
}

}  // namespace

std::string fused_launch_problem(hal::Device& device) {
  try {
    for (const std::uint32_t count : {8u, 4u, 2u})
      if (std::string problem = problem_of(device, count); !problem.empty()) return problem;
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace meshloom::backends::opencl

// Networks describe what lies between the devices of a job as plain data: levels, from the innermost out.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::hal {

// What joins devices. The time of n messages of b bytes in all, through one device's port and in one direction, is
// alpha + (n - 1) message + b / bytes_per_second.
struct NetworkLevel {
  std::string name;                            // "NVLink 4", "ICI"
  std::int64_t ranks = 0;                      // neighbouring devices that it joins; 0 = all
  double alpha = 0;                            // seconds of the first message
  double message = 0;                          // seconds that every further one adds
  double bytes_per_second = 0;                 // of a device's port, one direction
  std::map<std::string, std::string> sources;  // field -> source of the number

  double seconds(std::int64_t messages, std::int64_t bytes) const;
};

struct Network {
  std::string name, about;
  std::vector<std::string> profiles;  // whose network it is where none is named
  std::vector<NetworkLevel> levels;   // each joins more than the one before; the last joins all

  // The level that a message between two devices crosses: the innermost that joins them.
  std::size_t level_between(std::int64_t a, std::int64_t b) const;
};

// Parses one file. Throws Error for a number without a source or not above 0, levels that do not grow, and unknown fields;
// `where` names the file in errors.
Network parse_network(std::string_view json, const std::string& where);

// Those of hal/networks/, sorted by name.
const std::vector<Network>& shipped_networks();
// Throws Error that lists all names and suggests the nearest.
const Network& find_network(std::string_view name);
// The network of a profile; "ethernet-10g" where none says that it is.
const Network& network_of_profile(std::string_view profile);

}  // namespace meshloom::hal

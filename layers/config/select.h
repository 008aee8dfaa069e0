// Selecting nodes of a tree and editing all of them. A selection that selects nothing is an error, and an edit is made
// in all selected places or in none.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layers/config/config.h"

namespace meshloom::layers {

// A node is selected if it meets every condition. The root itself is never selected.
struct Selection {
  std::string where = "**";  // pattern (glob.h) that the node's path matches
  std::string except = {};   // pattern that the path does not match; "" = no exception
  std::string of_class =
      {};  // the node's class, or the interface of the field that holds it ("Norm"); "" = any
  std::string having = {};  // "FIELD=VALUE": the node has this field with this value; "" = any
  std::optional<std::int64_t> matches = std::nullopt;  // how many nodes must be selected; none = at least one

  std::string to_string() const;  // the conditions that are set, for messages
};

// Paths of the selected nodes, parents before their children. Throws Error if their number is wrong; the message says
// which condition no node meets.
std::vector<std::string> select(const Config& root, const Selection& selection, const ClassTable& classes);

// Replaces the node at each path by make(old node, path). Children come first, so that `make` sees a node whose
// descendants are already replaced. Throws Error, and leaves the tree as it was, if a field cannot hold the new class.
void replace_at(
    Config& root, const std::vector<std::string>& paths,
    const std::function<std::unique_ptr<Config>(const Config& old, const std::string& path)>& make);

// Replaces the selected nodes by `replacement`, "Class{field=value}". A field that both classes have, with the same
// meaning (about.h), keeps the old node's value unless the text sets it. Returns the paths. `dropped` receives the
// paths of fields that were not at their defaults and that the new class has no place for.
std::vector<std::string> replace(Config& root, const Selection& selection, std::string_view replacement,
                                 const ClassTable& classes, std::vector<std::string>* dropped = nullptr);

// Puts a copy of `wrapper` around each selected node, which becomes the wrapper's child `slot`. A node that is already
// inside such a wrapper is left alone. Returns the paths.
std::vector<std::string> wrap(Config& root, const Selection& selection, const Config& wrapper,
                              const std::string& slot, const ClassTable& classes);

}  // namespace meshloom::layers

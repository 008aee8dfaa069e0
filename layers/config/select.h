// Choosing nodes of a tree, and what is done with the chosen. Every edit of a tree that does not name one
// field goes through here: a selection that chooses nothing is an error, and edits happen in all places or in
// none.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layers/config/config.h"

namespace meshloom::layers {

// All conditions together. The root itself is never chosen.
struct Selection {
  std::string where = "**";   // pattern over the node's path (glob.h)
  std::string except = {};    // and not this one; "" = no exception
  std::string of_class = {};  // the node's class, or the interface that its place takes ("Norm"); "" = any
  std::string having = {};    // "FIELD=VALUE" that the node has; "" = any
  std::optional<std::int64_t> matches = std::nullopt;  // how many there must be; none = at least one

  std::string to_string() const;  // for messages: the conditions that are set
};

// Paths of the chosen nodes, parents before children. Throws Error when their number is wrong, saying which
// condition left none.
std::vector<std::string> select(const Config& root, const Selection& selection, const ClassTable& classes);

// Puts make(old node, path) into the place of each node of `paths`, children first: a node is made when those
// below it are done. Throws Error, and leaves the tree as it was, when a place does not take what was made.
void put_at(Config& root, const std::vector<std::string>& paths,
            const std::function<std::unique_ptr<Config>(const Config& old, const std::string& path)>& make);

// Replaces the chosen nodes by `replacement`, "Class{field=value}": fields that both classes have, with one meaning
// (about.h), and that the text does not set keep the old node's values. Returns the paths, and in `dropped` the set
// fields that had no place in the new class.
std::vector<std::string> replace(Config& root, const Selection& selection, std::string_view replacement,
                                 const ClassTable& classes, std::vector<std::string>* dropped = nullptr);

// Puts a copy of `wrapper` around each chosen node: the node becomes its child `slot`. Nodes that are wrapped
// so already are passed over. Returns the paths.
std::vector<std::string> wrap(Config& root, const Selection& selection, const Config& wrapper,
                              const std::string& slot, const ClassTable& classes);

}  // namespace meshloom::layers

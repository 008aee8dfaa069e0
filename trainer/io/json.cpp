#include "trainer/io/json.h"

#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "hal/error.h"

namespace meshloom::trainer {

using Json = nlohmann::json;

namespace {

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string out;
  for (char c : text.substr(0, max_bytes)) out += c >= 32 && c < 127 ? c : '?';
  return "'" + out + (text.size() > max_bytes ? "...'" : "'");
}

// Builds the value as the library's parser with a callback would, but in linear time: that parser searches
// the whole object at the end of each of its members.
template <typename Json>
class Builder : public nlohmann::json_sax<Json> {
 public:
  using Sax = nlohmann::json_sax<Json>;
  Builder(const std::string& where, const std::string& what, int depth)
      : where_(where), what_(what), depth_(depth) {}

  Json take() { return std::move(root_); }
  const std::string& reason() const { return reason_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(typename Sax::number_integer_t value) override { return add(value); }
  bool number_unsigned(typename Sax::number_unsigned_t value) override { return add(value); }
  bool number_float(typename Sax::number_float_t value, const typename Sax::string_t&) override {
    return add(value);
  }
  bool string(typename Sax::string_t& value) override { return add(std::move(value)); }
  bool binary(typename Sax::binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(typename Sax::string_t& name) override {
    if (!names_.back().insert(name).second)
      throw Error(where_, "a name must stand once in " + what_, shown(name));
    auto& object = open_.back()->template get_ref<typename Json::object_t&>();
    if constexpr (std::is_same_v<Json, nlohmann::ordered_json>)
      member_ = &object.emplace_back(name, nullptr).second;  // emplace() would compare with all other names
    else
      member_ = &object.try_emplace(name).first->second;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    reason_ = error.what();
    return false;
  }

 private:
  Json* place(Json value) {
    Json* at = &root_;
    if (!open_.empty() && open_.back()->is_array()) {
      open_.back()->push_back(nullptr);
      at = &open_.back()->back();
    } else if (!open_.empty()) {
      at = member_;
    }
    *at = std::move(value);
    return at;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (static_cast<int>(open_.size()) == depth_)
      throw Error(where_, what_ + " must not nest deeper than " + std::to_string(depth_) + " levels");
    open_.push_back(place(std::move(value)));
    names_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    names_.pop_back();
    return true;
  }

  const std::string &where_, &what_;
  const int depth_;
  Json root_;
  std::vector<Json*> open_;  // each contains the next; only the last one grows, so that none moves
  std::vector<std::unordered_set<std::string>> names_;  // the names in each
  Json* member_ = nullptr;                              // of the last, whose value comes next
  std::string reason_;
};

template <typename Json>
Json parsed_json(std::string_view text, const std::string& where, const std::string& what, int depth) {
  Builder<Json> builder(where, what, depth);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    std::string_view reason = builder.reason();  // the text behind the exception's number
    if (const std::size_t end = reason.find("] "); end != std::string_view::npos)
      reason.remove_prefix(end + 2);
    throw Error(where, what + " must be JSON", printable(reason, 200));
  }
  return builder.take();
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where, const std::string& what, int depth) {
  return parsed_json<Json>(text, where, what, depth);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where,
                                          const std::string& what, int depth) {
  return parsed_json<nlohmann::ordered_json>(text, where, what, depth);
}

std::string shown(std::string_view text) { return printable(text, 80); }

std::string shown_json(const Json& json) {
  return shown(json.dump(-1, ' ', true, Json::error_handler_t::replace));
}

}  // namespace meshloom::trainer

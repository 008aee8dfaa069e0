#include "layers/config/field.h"

namespace meshloom::layers {
namespace {

class Collector : public FieldVisitor {
 public:
  explicit Collector(const std::function<void(const Field&)>& fn) : fn_(fn) {}

  void operator()(std::string_view name, std::int64_t& value) override { fn_({name, &value}); }
  void operator()(std::string_view name, double& value) override { fn_({name, &value}); }
  void operator()(std::string_view name, bool& value) override { fn_({name, &value}); }
  void operator()(std::string_view name, std::string& value) override { fn_({name, &value}); }
  void operator()(std::string_view name, std::vector<std::int64_t>& value) override { fn_({name, &value}); }
  void operator()(std::string_view name, std::vector<std::string>& value) override { fn_({name, &value}); }
  void operator()(std::string_view name, std::optional<std::int64_t>& value, bool required) override {
    fn_({name, OptionalField<std::int64_t>{&value, required}});
  }
  void operator()(std::string_view name, std::optional<double>& value, bool required) override {
    fn_({name, OptionalField<double>{&value, required}});
  }
  void operator()(std::string_view name, std::optional<std::string>& value, bool required) override {
    fn_({name, OptionalField<std::string>{&value, required}});
  }
  void child(std::string_view name, ChildSlot& slot) override { fn_({name, &slot}); }
  void children(std::string_view name, std::vector<std::unique_ptr<ChildSlot>>& slots,
                const std::function<ChildSlot&()>& append, const std::function<void()>& clear) override {
    fn_({name, ChildList{&slots, &append, &clear}});
  }

 private:
  const std::function<void(const Field&)>& fn_;
};

}  // namespace

void for_each_field(Config& config, const std::function<void(const Field&)>& fn) {
  Collector collector(fn);
  config.fields(collector);
}

bool with_field(Config& config, std::string_view name, const std::function<void(const Field&)>& fn) {
  bool found = false;
  for_each_field(config, [&](const Field& field) {
    if (found || field.name != name) return;
    found = true;
    fn(field);
  });
  return found;
}

std::vector<std::string> field_names(Config& config) {
  std::vector<std::string> names;
  for_each_field(config, [&](const Field& field) { names.emplace_back(field.name); });
  return names;
}

std::string join_path(const std::string& parent, std::string_view name) {
  return parent.empty() ? std::string(name) : parent + "." + std::string(name);
}

std::string item_path(const std::string& list, std::size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

}  // namespace meshloom::layers

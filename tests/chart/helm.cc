#include "tests/chart/helm.h"

#include <algorithm>

#include "base/yaml.h"
#include "tests/controlplane/binaries.h"

namespace plimsoll::testing {
namespace {

std::string name_of_object(const Json& object) {
  return text_member(object, {"kind"}) + "/" + text_member(object, {"metadata", "name"});
}

}  // namespace

void HelmTest::SetUp() {
  const Result<std::string> program = find_program("helm");
  if (!program) {
    GTEST_SKIP() << program.error().message;
  }
  helm_ = *program;
}

CommandResult HelmTest::helm(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), helm_);
  return run_command(arguments);
}

CommandResult HelmTest::render_text(const std::vector<std::string>& values, const std::string& chart) const {
  std::vector<std::string> arguments = {"template", "sail",           chart,   "--namespace",
                                        kNamespace, "--kube-version", "1.36.0"};
  arguments.insert(arguments.end(), values.begin(), values.end());
  return helm(arguments);
}

std::vector<Json> HelmTest::render(const std::vector<std::string>& values, const std::string& chart) const {
  const CommandResult rendered = render_text(values, chart);
  EXPECT_EQ(rendered.exit_code, 0) << rendered.errors;
  Result<std::vector<Json>> objects = parse_yaml_documents(rendered.output);
  EXPECT_TRUE(objects.ok()) << to_string(objects.error());
  return objects ? *std::move(objects) : std::vector<Json>();
}

std::vector<std::string> names_of(const std::vector<Json>& objects) {
  std::vector<std::string> names;
  for (const Json& object : objects) {
    names.push_back(name_of_object(object));
  }
  std::sort(names.begin(), names.end());
  return names;
}

const Json& find_object(const std::vector<Json>& objects, const std::string& name) {
  for (const Json& object : objects) {
    if (name_of_object(object) == name) {
      return object;
    }
  }
  return Json::nullSingleton();
}

}  // namespace plimsoll::testing

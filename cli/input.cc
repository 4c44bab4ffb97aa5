#include "cli/input.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/json/edit.h"
#include "base/yaml.h"

namespace plimsoll::cli {
namespace {

Result<std::string> read_stream(std::istream& stream, const std::string& name) {
  std::string content;
  char buffer[64 * 1024];
  while (stream.read(buffer, sizeof buffer) || stream.gcount() > 0) {
    content.append(buffer, static_cast<std::size_t>(stream.gcount()));
    if (Bytes{static_cast<std::int64_t>(content.size())} > kInputLimit) {
      return Error(ErrorCode::kTooLarge,
                   name + " is larger than " + to_string(kInputLimit) + ", the limit; split it");
    }
  }
  if (stream.bad()) {
    return Error(ErrorCode::kInternal, "reading " + name + " failed: " + std::strerror(errno));
  }
  return content;
}

bool is_list(const Json& object) {
  return text_member(object, {"kind"}).ends_with("List") && member(object, {"items"}).isArray();
}

Result<void> open_document(Json object, const std::string& where, std::vector<Document>& documents) {
  if (!object.isObject()) {
    return invalid(where + " is not a Kubernetes object but a plain value or an array");
  }
  if (!is_list(object)) {
    documents.push_back({std::move(object), where});
    return {};
  }
  // The API server's own lists name the kind of the items once.
  const std::string kind = text_member(object, {"kind"});
  const std::string kind_of_items = kind.substr(0, kind.size() - std::string_view("List").size());
  std::size_t index = 0;
  for (const Json& each : member(object, {"items"})) {
    const std::string item = where + ", items[" + std::to_string(index++) + "]";
    if (!each.isObject()) {
      return invalid(item + " is not a Kubernetes object");
    }
    JsonEdit edit(each);
    if (!kind_of_items.empty() && member(each, {"kind"}).isNull()) {
      edit["kind"] = kind_of_items;
      edit["apiVersion"] = member(object, {"apiVersion"});
    }
    Result<Json> whole = std::move(edit).take();
    if (!whole) {
      return whole.error().within(item);
    }
    documents.push_back({*std::move(whole), item});
  }
  return {};
}

// One JSON object on each line, as `jq -c` prints them; nothing for any other text.
std::vector<Json> json_lines(const std::string& content) {
  std::vector<Json> objects;
  std::istringstream stream(content);
  for (std::string line; std::getline(stream, line);) {
    if (line.find_first_not_of(" \t\r") == line.npos) {
      continue;
    }
    Result<Json> object = line.starts_with('{') ? parse_json(line) : Result<Json>(invalid("not an object"));
    if (!object) {
      return {};
    }
    objects.push_back(*std::move(object));
  }
  return objects;
}

}  // namespace

Result<std::string> read_input(const std::string& path, Console& console) {
  if (path == "-") {
    return read_stream(console.in, "standard input");
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return invalid(path + " is a folder; name the files in it");
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kUnavailable,
                 path + " cannot be opened: " + std::strerror(errno));
  }
  return read_stream(file, path);
}

Result<std::vector<Document>> read_documents(const std::vector<std::string>& paths, Console& console) {
  std::vector<Document> documents;
  for (const std::string& path : paths) {
    const std::string name = path == "-" ? "standard input" : path;
    const Result<std::string> content = read_input(path, console);
    if (!content) {
      return content.error();
    }
    Result<std::vector<Json>> objects = parse_yaml_documents(*content);
    if (!objects) {
      std::vector<Json> lines = json_lines(*content);
      if (lines.empty()) {
        return objects.error().within(name);
      }
      objects = std::move(lines);
    }
    if (objects->empty()) {
      return invalid(name + " has no documents");
    }
    for (std::size_t i = 0; i < objects->size(); ++i) {
      const std::string where = objects->size() == 1 ? name : name + ", document " + std::to_string(i + 1);
      if (Result<void> opened = open_document(std::move((*objects)[i]), where, documents); !opened) {
        return opened.error();
      }
    }
  }
  return documents;
}

}  // namespace plimsoll::cli

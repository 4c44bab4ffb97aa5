// ConfigKeys: typed reading of a Hugging Face config.json. Each value has a default or is required; the first wrong
// one is kept as an error that names it.
//
//   ConfigKeys keys(json, "model.transformer.config");
//   spec.layers = keys.integer("num_hidden_layers", 12);
//   if (keys.error()) return *keys.error();
//
// A null is an absent value, as in transformers. It knows which keys were asked for, so that those that were not can be looked at
// afterwards. Not thread-safe; refers to the JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/json/json.h"
#include "base/result.h"

namespace plimsoll::estimator::inline spec {

class ConfigKeys {
 public:
  ConfigKeys(const Json& config, std::string path) : config_(config), path_(std::move(path)) {}

  std::int64_t integer(const char* key, std::int64_t otherwise);
  std::int64_t required(const char* key);
  // The same, but null is 0 and not the default: for what a null turns off.
  std::int64_t integer_or_null(const char* key, std::int64_t otherwise);
  double number(const char* key, double otherwise);
  double number_or_null(const char* key, double otherwise);
  bool boolean(const char* key, bool otherwise);
  std::string text(const char* key, const char* otherwise);

  bool has(const char* key) { return !json(key).isNull(); }
  bool has_items(const char* key);
  // The JSON of a member; null if it is absent.
  const Json& json(const char* key);
  // The first of config.architectures.
  std::string architecture();
  // transformers' PreTrainedConfig.num_labels: the size of id2label.
  std::int64_t labels();

  // The keys of a member that is an object; without any if it is absent.
  ConfigKeys nested(const char* key);
  // Keeps the error of nested keys, unless there is one.
  void take_error(const ConfigKeys& nested);

  void fail(const std::string& key, const std::string& what);
  // Fails unless the member is absent or has this value: what is not modelled is not ignored.
  void only(const char* key, bool supported);
  const std::optional<Error>& error() const { return error_; }

  // What was asked for so far.
  const std::set<std::string>& asked() const { return asked_; }
  const Json& config() const { return config_; }

 private:
  // Whether the key is there, with null.
  bool is_null(const char* key);
  template <class Value, class Read>
  Value value(const char* key, Value otherwise, const char* expected, Read read);

  const Json& config_;
  std::string path_;
  std::set<std::string> asked_;
  std::optional<Error> error_;
};

}  // namespace plimsoll::estimator::spec

// CREATE, UPDATE, PATCH and DELETE with the steps of kube-apiserver: decode, prune, default, track field
// owners, mutating webhooks, validation, validating webhooks, store (except in a dry run). Thread-safe; a
// write that lost a race is retried unless the client gave a resourceVersion.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/fake_apiserver/api.h"

namespace plimsoll::testing::fake {

struct WriteOptions {
  bool dry_run = false;
  bool force = false;
  std::string field_manager;
  std::string field_validation;  // Strict, Warn (also when empty) or Ignore
};

struct Written {
  Json object;
  bool created = false;
};

class Writes {
 public:
  Writes(Registry& registry, Store& store, AdmissionChain& admission)
      : registry_(registry), store_(store), admission_(admission) {}

  Outcome<Written> create(const Target& target, Json object, const WriteOptions& options,
                          std::vector<std::string>& warnings);
  Outcome<Written> update(const Target& target, Json object, const WriteOptions& options,
                          std::vector<std::string>& warnings);
  Outcome<Written> patch(const Target& target, const std::string& media_type, const Json& patch,
                         const WriteOptions& options, std::vector<std::string>& warnings);
  // `delete_options` is the body, or null. Returns the deleted object, or the object that waits for its
  // finalizers.
  Outcome<Written> remove(const Target& target, const Json& delete_options, const WriteOptions& options,
                          std::vector<std::string>& warnings);

 private:
  using Change = std::function<Outcome<Json>(const Json& live)>;

  // Reads, changes and writes; repeats when another write came in between.
  Outcome<Written> change(const Target& target, const WriteOptions& options, const Change& make,
                          std::vector<std::string>& warnings);
  // Prunes or reports unknown fields, and applies the defaults.
  std::optional<Status> complete(Json& object, const Target& target, const WriteOptions& options,
                                 bool is_patch, std::vector<std::string>& warnings) const;
  std::optional<Status> validate(const Json& object, const Json& before, const Target& target) const;
  Outcome<Json> admit(const Json& object, const Json& before, const Target& target,
                      const WriteOptions& options, std::vector<std::string>& warnings);
  std::optional<Status> check_namespace(const Target& target) const;

  // Effects of a stored change: served types, and deletion of contents and dependents.
  void after_write(const Target& target, const Json& object);
  void after_removal(const Target& target, const Json& object, bool orphan);
  void remove_contents(const std::string& storage, const std::string& namespace_name);
  void remove_dependents(const std::string& uid);

  Registry& registry_;
  Store& store_;
  AdmissionChain& admission_;
};

}  // namespace plimsoll::testing::fake

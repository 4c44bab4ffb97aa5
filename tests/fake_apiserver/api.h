// Api: the fake API server without its network: it maps a request to an answer. http_server.h serves it on a
// socket; unit tests call it directly.
//
//   Api api;
//   Answer answer = api.handle({.method = "GET", .path = "/api/v1/namespaces"});
//
// Thread-safe. A call may block: on admission webhooks, and on injected faults.
#pragma once

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/json/json.h"
#include "tests/fake_apiserver/admission.h"
#include "tests/fake_apiserver/faults.h"
#include "tests/fake_apiserver/resource_type.h"
#include "tests/fake_apiserver/selector.h"
#include "tests/fake_apiserver/status.h"
#include "tests/fake_apiserver/store.h"
#include "tests/fake_apiserver/table.h"

namespace plimsoll::testing::fake {

struct Request {
  std::string method;
  std::string path;                          // percent-decoded
  std::map<std::string, std::string> query;  // percent-decoded
  std::string accept;
  std::string content_type;
  std::string user_agent;
  std::string body;

  std::string query_value(const std::string& name) const {
    const auto found = query.find(name);
    return found == query.end() ? "" : found->second;
  }
};

struct Reply {
  int code = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::string> warnings;
  int retry_after_seconds = 0;
  bool truncate = false;  // a fault: close the connection in the middle of the body
};

// How the client wants objects: as they are, as rows of a table, or only their metadata.
struct Format {
  enum class Kind { kObject, kTable, kMetadata };
  Kind kind = Kind::kObject;
  bool yaml = false;
  TableOptions table;
};

// What a watch streams; watch_stream.h runs it.
struct WatchPlan {
  TypePtr type;
  std::string namespace_name;
  LabelSelector labels;
  FieldSelector fields;
  Format format;
  std::uint64_t after = 0;
  std::vector<ObjectPtr> initial;  // sent as ADDED first
  bool initial_end = false;        // then a bookmark that says so
  bool bookmarks = false;
  std::chrono::steady_clock::time_point deadline;
  std::optional<Fault> fault;
};

using Answer = std::variant<Reply, WatchPlan>;

// The collection or object that a path names.
struct Target {
  TypePtr type;
  std::string namespace_name;
  std::string name;
  std::string subresource;

  Key key() const { return {type->storage(), namespace_name, name}; }
  Subject subject() const { return type->subject(name); }
};

struct ApiOptions {
  StoreOptions store;
  std::string address = "127.0.0.1";  // as discovery reports it
  // kube-apiserver refuses bodies above 3 MiB.
  std::size_t body_limit = std::size_t{3} << 20;
};

class Writes;
class Reads;
struct WriteOptions;

class Api {
 public:
  explicit Api(ApiOptions options = {});
  ~Api();

  Answer handle(const Request& request);

  // The CEL rules of the stored definitions and webhook configurations. None is evaluated: a rule of a
  // definition counts as kept, a match condition as met.
  UnevaluatedRules unevaluated_rules() const;

  Store& store() { return store_; }
  const Registry& registry() const { return registry_; }
  FaultInjector& faults() { return faults_; }
  std::size_t body_limit() const { return options_.body_limit; }

 private:
  Answer dispatch(const Request& request);
  Answer resource(const Request& request, const std::vector<std::string>& parts);
  std::optional<Reply> meta(const Request& request, const std::vector<std::string>& parts);
  Answer run(const std::string& verb, const Request& request, const Target& target, const Format& format);
  Reply write(const std::string& verb, const Request& request, const Target& target, const Format& format);
  Reply remove(const std::string& verb, const Request& request, const Target& target, const Format& format,
               WriteOptions options);

  const ApiOptions options_;
  Registry registry_;
  Store store_;
  FaultInjector faults_;
  AdmissionChain admission_;
  std::unique_ptr<Reads> reads_;
  std::unique_ptr<Writes> writes_;
};

// The form that an Accept header asks for; empty when the server has no such form.
std::optional<Format> negotiate(const std::string& accept);

Reply reply_status(const Status& status);

}  // namespace plimsoll::testing::fake

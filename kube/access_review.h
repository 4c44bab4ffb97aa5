// Who sent a token, and what that user may do: the API server's TokenReview and SubjectAccessReview.
//
//   Result<std::optional<User>> user = user_of_token(client, token);
//   if (!user) return user.error();
//   if (!*user) return refuse();                                      // no valid token
//   Result<bool> allowed = may_request(client, **user, "get", "/metrics");
//
// Both need the right to create such reviews. A call takes until CallOptions::timeout at most. The token is in
// no error's message of ours. Thread-safe, as the client is.
#pragma once

#include <optional>
#include <string>

#include "base/json/json.h"
#include "base/result.h"
#include "kube/client.h"

namespace plimsoll::kube {

struct User {
  std::string name;
  std::string uid;
  Json groups;  // a list of texts, as the API server wrote it
  Json extra;   // an object, as the API server wrote it
};

// Nothing: the API server does not accept the token. Errors: those of Client::create.
Result<std::optional<User>> user_of_token(Client& client, const std::string& token,
                                          const CallOptions& options = {});

// Whether the user may do `verb` to a path that is no resource's ("/metrics"). Errors: those of Client::create.
Result<bool> may_request(Client& client, const User& user, const std::string& verb, const std::string& path,
                         const CallOptions& options = {});

}  // namespace plimsoll::kube

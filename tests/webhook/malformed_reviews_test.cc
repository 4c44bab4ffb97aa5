// Everything that is no good AdmissionReview, against the live server: each gets a well-formed answer, and
// the next good request is served.
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "tests/http/peer.h"
#include "tests/webhook/samples.h"
#include "tests/webhook/test_server.h"

namespace plimsoll::webhook {
namespace {

using testing::Peer;
using testing::Response;
using testing::sample_job;
using testing::sample_review;

constexpr const char* kUid = "1f0c7a52";

struct BadReview {
  const char* name;
  std::string body;
  int status;
  std::string uid = kUid;  // echoed
};

// The sample with one change.
std::string with(const std::function<void(Json&)>& change) {
  Json review = sample_review(sample_job());
  change(review);
  return write_json(review);
}

std::string with_text(const std::string& from, const std::string& to) {
  std::string text = write_json(sample_review(sample_job()));
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

std::string repeated(const std::string& text, std::size_t times) {
  std::string all;
  for (std::size_t i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

// In no order, so that only a search finds one that stands twice.
std::string many_keys(int count) {
  std::string keys;
  for (int i = count; i > 0; --i) {
    keys += "\"k" + std::to_string(i) + "\":0,";
  }
  return keys;
}

Json field(Json& review, const char* name) {
  return review["request"][name];
}

// Reviews that cannot be read: an HTTP error, with an AdmissionReview in its body.
std::vector<BadReview> unreadable() {
  const std::string good = write_json(sample_review(sample_job()));
  const std::string uid = std::string("\"uid\":\"") + kUid + "\"";
  return {
      {"EmptyBody", "", 400, ""},
      {"White", "  \n\t ", 400, ""},
      {"NoJson", "hello", 400, ""},
      {"Binary", std::string("\x1f\x8b\x00\x01\xfe\xff", 6), 400, ""},
      {"Truncated", good.substr(0, good.size() - 1), 400},
      {"TruncatedInTheObject", good.substr(0, good.find("\"spec\"") + 3), 400, ""},  // its uid comes later
      {"OneBrace", "{", 400, ""},
      {"OneQuote", "{\"request", 400, ""},
      {"TrailingText", good + "x", 400},
      {"TwoReviews", good + good, 400},
      {"TrailingComma", with_text(uid, uid + ","), 400},
      {"DuplicateKeys", with_text(uid, uid + ",\"uid\":\"another\""), 400},
      {"DuplicateKeysInTheObject", with_text("\"spec\":{", "\"spec\":{\"model\":{},"), 400},
      {"DuplicateKeysOutOfOrder", with([](Json& review) {
                                    review["request"]["object"]["metadata"]["labels"]["z"] = "1";
                                  }).replace(0, 1, "{\"kind\":\"AdmissionReview\","),
       400},
      {"DuplicateKeysAmongMany", with_text("\"dryRun\":false", "\"x\":{" + many_keys(200'000) + "\"k7\":0}"),
       400},
      {"OneLevelTooDeep",
       with_text("\"dryRun\":false", "\"dryRun\":" + repeated("[", 199) + repeated("]", 199)), 400},
      {"SingleQuotes", with_text(uid, "'uid':'1'," + uid), 400},
      {"NotANumber", with_text("\"dryRun\":false", "\"dryRun\":NaN"), 400},
      {"Infinity", with_text("\"dryRun\":false", "\"dryRun\":-Infinity"), 400},
      {"HugeExponent", with_text("\"dryRun\":false", "\"dryRun\":1e999999"), 400},
      {"HexNumber", with_text("\"dryRun\":false", "\"dryRun\":0x1"), 400},
      {"DeepArrays",
       with_text("\"dryRun\":false", "\"dryRun\":" + repeated("[", 20000) + repeated("]", 20000)), 400},
      {"DeepObjects", repeated("{\"a\":", 100000), 400, ""},
      {"OnlyBrackets", repeated("[", 1 << 20), 400, ""},
      {"InvalidUtf8", with_text("ads-ctr", "ads\xC3\x28"), 400},
      {"OverlongUtf8", with_text("ads-ctr", "\xC0\xAF"), 400},
      {"LoneSurrogate", with_text("ads-ctr", "\\ud800"), 400},
      {"RawControlCharacter", with_text("ads-ctr", std::string("a\0b", 3)), 400},
      {"ArrayAtTheRoot", "[" + good + "]", 400, ""},
      {"NullAtTheRoot", "null", 400, ""},
      {"StringAtTheRoot", "\"AdmissionReview\"", 400, ""},
      {"NumberAtTheRoot", "42", 400, ""},
      {"EmptyObject", "{}", 400, ""},
      {"WrongKind", with([](Json& review) { review["kind"] = "Pod"; }), 400},
      {"KindIsANumber", with([](Json& review) { review["kind"] = 1; }), 400},
      {"NoKind", with([](Json& review) { review.removeMember("kind"); }), 400},
      {"WrongGroup", with([](Json& review) { review["apiVersion"] = "apps/v1"; }), 400},
      {"V1Beta1", with([](Json& review) { review["apiVersion"] = "admission.k8s.io/v1beta1"; }), 400},
      {"FutureVersion", with([](Json& review) { review["apiVersion"] = "admission.k8s.io/v2"; }), 400},
      {"ApiVersionIsNull", with([](Json& review) { review["apiVersion"] = Json(); }), 400},
      {"NoRequest", with([](Json& review) { review.removeMember("request"); }), 400, ""},
      {"RequestIsNull", with([](Json& review) { review["request"] = Json(); }), 400, ""},
      {"RequestIsAnArray", with([](Json& review) { review["request"] = Json(::Json::arrayValue); }), 400, ""},
      {"RequestIsText", with([](Json& review) { review["request"] = "CREATE"; }), 400, ""},
      {"OnlyAResponse",
       R"({"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"1"}})", 400, ""},
      {"NoUid", with([](Json& review) { review["request"].removeMember("uid"); }), 400, ""},
      {"EmptyUid", with([](Json& review) { review["request"]["uid"] = ""; }), 400, ""},
      {"UidIsANumber", with([](Json& review) { review["request"]["uid"] = 7; }), 400, ""},
      {"UidIsAnObject", with([](Json& review) { review["request"]["uid"] = Json(::Json::objectValue); }), 400,
       ""},
      {"UidIsHuge", with([](Json& review) { review["request"]["uid"] = std::string(1 << 20, 'u'); }), 400,
       ""},
      {"NoOperation", with([](Json& review) { review["request"].removeMember("operation"); }), 400},
      {"UnknownOperation", with([](Json& review) { review["request"]["operation"] = "DESTROY"; }), 400},
      {"OperationInLowerCase", with([](Json& review) { review["request"]["operation"] = "create"; }), 400},
      {"OperationIsHuge",
       with([](Json& review) { review["request"]["operation"] = std::string(1 << 20, 'X'); }), 400},
      {"OperationIsABoolean", with([](Json& review) { review["request"]["operation"] = true; }), 400},
      {"NoKindOfTheObject", with([](Json& review) { review["request"].removeMember("kind"); }), 400},
      {"KindOfTheObjectIsText", with([](Json& review) { review["request"]["kind"] = "TrainingJob"; }), 400},
      {"GroupIsANumber", with([](Json& review) { review["request"]["kind"]["group"] = 1; }), 400},
      {"NameIsAnObject", with([](Json& review) { review["request"]["name"] = field(review, "kind"); }), 400},
      {"NamespaceIsAnArray",
       with([](Json& review) { review["request"]["namespace"] = Json(::Json::arrayValue); }), 400},
      {"DryRunIsText", with([](Json& review) { review["request"]["dryRun"] = "true"; }), 400},
      {"SubResourceIsANumber", with([](Json& review) { review["request"]["subResource"] = 3; }), 400},
  };
}

// Reviews that can be read, of objects that cannot be run: the mutating webhook lets them pass untouched, the
// validating one refuses them.
std::vector<BadReview> bad_objects() {
  const auto object = [](const std::function<void(Json&)>& change) {
    return with([&](Json& review) { change(review["request"]["object"]); });
  };
  const auto replaced = [](Json value) {
    return with([&](Json& review) { review["request"]["object"] = value; });
  };
  return {
      {"ObjectIsNull", replaced(Json()), 400},
      {"ObjectIsMissing", with([](Json& review) { review["request"].removeMember("object"); }), 400},
      {"ObjectIsText", replaced("TrainingJob"), 400},
      {"ObjectIsAnArray", replaced(Json(::Json::arrayValue)), 400},
      {"ObjectIsANumber", replaced(12), 400},
      {"ObjectIsEmpty", replaced(Json(::Json::objectValue)), 422},
      {"ObjectOfAnotherKind", object([](Json& job) { job["kind"] = "Pod"; }), 422},
      {"ObjectOfAnotherVersion", object([](Json& job) { job["apiVersion"] = "plimsoll.dev/v9"; }), 422},
      {"MetadataIsText", object([](Json& job) { job["metadata"] = "ads"; }), 422},
      {"NameIsANumber", object([](Json& job) { job["metadata"]["name"] = 4; }), 422},
      {"NoSpec", object([](Json& job) { job.removeMember("spec"); }), 422},
      {"SpecIsNull", object([](Json& job) { job["spec"] = Json(); }), 422},
      {"SpecIsAnArray", object([](Json& job) { job["spec"] = Json(::Json::arrayValue); }), 422},
      {"NoModel", object([](Json& job) { job["spec"].removeMember("model"); }), 422},
      {"ModelOfNoKind", object([](Json& job) { job["spec"]["model"].removeMember("dlrm"); }), 422},
      {"TablesAreText", object([](Json& job) { job["spec"]["model"]["dlrm"]["tables"] = "many"; }), 422},
      {"TableIsNull", object([](Json& job) { job["spec"]["model"]["dlrm"]["tables"].append(Json()); }), 422},
      {"NegativeRows", object([](Json& job) { job["spec"]["model"]["dlrm"]["tables"][0]["rows"] = -4; }),
       422},
      {"RowsBeyond64Bits", with_text("\"rows\":200000000", "\"rows\":99999999999999999999999999"), 422},
      {"RowsAreFractional", with_text("\"rows\":200000000", "\"rows\":0.5"), 422},
      {"RowsAreText", with_text("\"rows\":200000000", "\"rows\":\"9\""), 422},
      {"CountIsHuge",
       object([](Json& job) { job["spec"]["model"]["dlrm"]["tables"][0]["count"] = Json::Int64(1) << 60; }),
       422},
      {"BatchSizeIsZero", object([](Json& job) { job["spec"]["training"]["batchSizePerTrainer"] = 0; }), 422},
      {"BatchSizeIsMissing",
       object([](Json& job) { job["spec"]["training"].removeMember("batchSizePerTrainer"); }), 422},
      {"UnknownPrecision", object([](Json& job) { job["spec"]["training"]["precision"] = "FP4"; }), 422},
      {"UnknownMode", object([](Json& job) { job["spec"]["provisioning"]["mode"] = "Sometimes"; }), 422},
      {"HeadroomBeyondAll", object([](Json& job) { job["spec"]["provisioning"]["headroom"] = "5000%"; }),
       422},
      {"MinAboveMax", object([](Json& job) { job["spec"]["provisioning"]["minTrainers"] = 900; }), 422},
      {"ReplicasAreText", object([](Json& job) { job["spec"]["trainers"]["replicas"] = "128"; }), 422},
  };
}

class MalformedReviews : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new testing::TestServer; }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }

  // On a connection of its own.
  static std::optional<Response> post(const std::string& path, const std::string& body) {
    Peer peer(server_->port());
    EXPECT_TRUE(peer.start_tls());
    return peer.exchange("POST", path, "application/json", body);
  }

  static void expect_alive() {
    const std::optional<Response> answer = post(kMutatePath, write_json(sample_review(sample_job())));
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 200);
    const Json response = testing::response_of(answer->body, kUid);
    EXPECT_TRUE(response["allowed"].asBool());
    EXPECT_FALSE(testing::patch_of(response).empty());
  }

  static testing::TestServer* server_;
};

testing::TestServer* MalformedReviews::server_ = nullptr;

TEST_F(MalformedReviews, UnreadableOnesGetAnHttpErrorWithAReview) {
  for (const BadReview& bad : unreadable()) {
    SCOPED_TRACE(bad.name);
    for (const char* path : {kMutatePath, kValidatePath}) {
      const std::optional<Response> answer = post(path, bad.body);
      ASSERT_TRUE(answer.has_value());
      EXPECT_EQ(answer->status, bad.status);
      EXPECT_EQ(answer->content_type, "application/json");
      const Json response = testing::response_of(answer->body, bad.uid);
      EXPECT_FALSE(response["allowed"].asBool());
      EXPECT_EQ(response["status"]["code"].asInt(), bad.status);
      EXPECT_FALSE(response["status"]["message"].asString().empty());
      EXPECT_LT(answer->body.size(), 4096U);
    }
  }
  expect_alive();
}

TEST_F(MalformedReviews, BadObjectsPassTheMutatingWebhookAndNotTheValidatingOne) {
  for (const BadReview& bad : bad_objects()) {
    SCOPED_TRACE(bad.name);
    const std::optional<Response> mutated = post(kMutatePath, bad.body);
    ASSERT_TRUE(mutated.has_value());
    EXPECT_EQ(mutated->status, 200);
    const Json mutation = testing::response_of(mutated->body, bad.uid);
    EXPECT_TRUE(mutation["allowed"].asBool());
    EXPECT_FALSE(mutation.isMember("patch"));
    EXPECT_EQ(mutation["warnings"].size(), 1U);

    const std::optional<Response> validated = post(kValidatePath, bad.body);
    ASSERT_TRUE(validated.has_value());
    EXPECT_EQ(validated->status, 200);
    const Json validation = testing::response_of(validated->body, bad.uid);
    EXPECT_FALSE(validation["allowed"].asBool());
    EXPECT_EQ(validation["status"]["code"].asInt(), bad.status);
    EXPECT_FALSE(validation.isMember("patch"));
  }
  expect_alive();
}

TEST_F(MalformedReviews, AtLeastAsManyKindsAsWerePromised) {
  EXPECT_GE(unreadable().size() + bad_objects().size(), 45U);
}

// Names that would break a patch, a header or a log line if they were taken as they are.
TEST_F(MalformedReviews, HostileNamesComeBackAsData) {
  for (const std::string name : {"a/b~c", "..%2f..", "\"},{\"op\":\"remove\"", "a\r\nX-Injected: 1",
                                 "\xE2\x80\xAE"
                                 "gpj",
                                 "~1~0"}) {
    SCOPED_TRACE(name);
    Json job = sample_job(name);
    job["metadata"]["annotations"]["a/b~c"] = name;
    job["metadata"]["labels"][name] = name;
    job["spec"]["template"]["spec"]["nodeSelector"]["example.com/~1"] = name;
    const std::optional<Response> answer = post(kMutatePath, write_json(sample_review(job)));
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->status, 200);
    const Json response = testing::response_of(answer->body, kUid);
    EXPECT_TRUE(response["allowed"].asBool());
    const Json after = testing::patched(job, testing::patch_of(response));
    EXPECT_EQ(text_member(after, {"metadata", "annotations", "a/b~c"}), name);
    EXPECT_EQ(text_member(after, {"spec", "template", "spec", "nodeSelector", "example.com/~1"}), name);
    for (const Json& warning : member(response, {"warnings"})) {
      EXPECT_LE(warning.asString().size(), kWarningLimit);
      EXPECT_EQ(warning.asString().find_first_of("\r\n"), std::string::npos);
    }
  }
  expect_alive();
}

TEST_F(MalformedReviews, WrongMethodsTypesAndPaths) {
  const std::string good = write_json(sample_review(sample_job()));
  const auto status_of = [&](const char* method, const std::string& path, const char* type) {
    Peer peer(server_->port());
    EXPECT_TRUE(peer.start_tls());
    const std::optional<Response> answer = peer.exchange(method, path, type, good);
    return answer ? answer->status : 0;
  };
  EXPECT_EQ(status_of("POST", "/", "application/json"), 404);
  EXPECT_EQ(status_of("POST", std::string(kMutatePath) + "/..", "application/json"), 404);
  EXPECT_EQ(status_of("GET", kMutatePath, "application/json"), 405);
  EXPECT_EQ(status_of("DELETE", kValidatePath, "application/json"), 405);
  EXPECT_EQ(status_of("BREW", kMutatePath, "application/json"), 405);
  EXPECT_EQ(status_of("POST", kMutatePath, "text/plain"), 415);
  EXPECT_EQ(status_of("POST", kMutatePath, "application/yaml"), 415);
  EXPECT_EQ(status_of("POST", kMutatePath, ""), 415);
  EXPECT_EQ(status_of("POST", kMutatePath, "application/jsonx"), 415);
  EXPECT_EQ(status_of("POST", kMutatePath, "Application/JSON ; charset=utf-8"), 200);
  EXPECT_EQ(status_of("POST", std::string(kMutatePath) + "?timeout=5s", "application/json"), 200);
  EXPECT_EQ(status_of("POST", std::string(kMutatePath) + "?timeout=%%%&&=&timeout=-3s", "application/json"),
            200);
  expect_alive();
}

TEST_F(MalformedReviews, OneConnectionCarriesBadAndGoodOnes) {
  Peer peer(server_->port());
  ASSERT_TRUE(peer.start_tls());
  const std::string good = write_json(sample_review(sample_job()));
  for (const std::string& bad : {std::string("{"), std::string("null"), good.substr(0, 500)}) {
    const std::optional<Response> refused = peer.exchange("POST", kMutatePath, "application/json", bad);
    ASSERT_TRUE(refused.has_value());
    EXPECT_EQ(refused->status, 400);
    EXPECT_TRUE(refused->keep_alive);
    const std::optional<Response> answered = peer.exchange("POST", kMutatePath, "application/json", good);
    ASSERT_TRUE(answered.has_value());
    EXPECT_EQ(answered->status, 200);
  }
}

}  // namespace
}  // namespace plimsoll::webhook

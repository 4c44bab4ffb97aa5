#include "tests/fake_apiserver/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fake_apiserver/protobuf.h"
#include "tests/fake_apiserver/test_widgets.h"
#include "tests/fake_apiserver/watch_stream.h"

namespace plimsoll::testing::fake {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string path_of(const std::string& name) {
  return std::string(kWidgets) + "/" + name;
}

std::vector<std::string> names_of(const Json& list) {
  std::vector<std::string> names;
  for (const Json& item : list["items"]) {
    names.push_back(text_member(item, {"metadata", "name"}));
  }
  return names;
}

TEST(Api, CreatesWithEverythingTheServerAdds) {
  WidgetApi server;
  const Called made = server.create("a", R"({"size":2})");
  ASSERT_EQ(made.code, 201);
  const Json& metadata = made.body["metadata"];
  EXPECT_EQ(metadata["namespace"].asString(), "default");
  EXPECT_EQ(metadata["uid"].asString().size(), 36U);
  EXPECT_EQ(metadata["generation"].asInt(), 1);
  EXPECT_TRUE(metadata["creationTimestamp"].isString());
  EXPECT_TRUE(metadata["resourceVersion"].isString());
  EXPECT_EQ(metadata["managedFields"][0]["manager"].asString(), "tester");
  EXPECT_EQ(server.create("a", R"({"size":2})").message(), R"(widgets.example.dev "a" already exists)");
  const Called generated = server.call(
      "POST", kWidgets,
      R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"generateName":"g-"},"spec":{"size":1}})");
  EXPECT_EQ(generated.body["metadata"]["name"].asString().size(), 7U);
}

TEST(Api, RefusesWrongBodies) {
  WidgetApi server;
  const auto post = [&](const std::string& body) { return server.call("POST", kWidgets, body).code; };
  EXPECT_EQ(post(""), 400);
  EXPECT_EQ(post("[]"), 400);
  EXPECT_EQ(post("{\"apiVersion\":"), 400);
  EXPECT_EQ(post("{}"), 400);
  EXPECT_EQ(post(R"({"apiVersion":"example.dev/v2","kind":"Widget","metadata":{"name":"x"}})"), 400);
  EXPECT_EQ(post(R"({"apiVersion":"example.dev/v1","kind":"Widgit","metadata":{"name":"x"}})"), 422);
  EXPECT_EQ(post(R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":"x"})"), 400);
  EXPECT_EQ(
      post(R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"A_b"},"spec":{"size":1}})"),
      422);
  EXPECT_EQ(
      post(R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"x","namespace":"y"}})"),
      400);
  EXPECT_EQ(server.call("POST", kWidgets, "x", {}, "text/plain").code, 415);
  EXPECT_EQ(
      server
          .call(
              "POST", "/apis/example.dev/v1/namespaces/none/widgets",
              R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"x"},"spec":{"size":1}})")
          .message(),
      R"(namespaces "none" not found)");
  EXPECT_EQ(server.call("POST", kWidgets, std::string(server.api.body_limit() + 1, ' ')).code, 413);
}

TEST(Api, AnswersUnknownPaths) {
  WidgetApi server;
  for (const char* path :
       {"/", "/api/v2/pods", "/apis/nope/v1/things", "/apis", "/apis/example.dev/v1/widgets/a/b/c/d"}) {
    const int code = server.call("DELETE", path).code;
    EXPECT_TRUE(code == 404 || code == 405) << path << " " << code;
  }
  EXPECT_EQ(server.call("GET", "/api/v1/nosuch").message(),
            "the server could not find the requested resource");
  EXPECT_EQ(server.call("GET", path_of("nope")).message(), R"(widgets.example.dev "nope" not found)");
  EXPECT_EQ(server.call("PUT", kWidgets, "{}").message(), "name must be provided");
}

TEST(Api, NamesTheFieldThatIsWrong) {
  WidgetApi server;
  const Called refused = server.create("a", R"({"size":22,"color":"x"})");
  EXPECT_EQ(refused.code, 422);
  EXPECT_EQ(refused.body["reason"].asString(), "Invalid");
  EXPECT_THAT(refused.message(),
              HasSubstr(R"(Widget.example.dev "a" is invalid: [spec.color: Unsupported value)"));
  EXPECT_EQ(refused.body["details"]["causes"].size(), 2U);
}

TEST(Api, ReportsUnknownFieldsAsRequested) {
  WidgetApi server;
  const std::string body =
      R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1,"foo":1}})";
  const Called strict = server.call("POST", kWidgets, body, {{"fieldValidation", "Strict"}});
  EXPECT_EQ(
      strict.message(),
      R"(Widget in version "v1" cannot be handled as a Widget: strict decoding error: unknown field "spec.foo")");
  const Called warned = server.call("POST", kWidgets, body, {{"fieldValidation", "Warn"}, {"dryRun", "All"}});
  EXPECT_EQ(warned.code, 201);
  EXPECT_THAT(warned.warnings, ElementsAre(R"(unknown field "spec.foo")"));
  EXPECT_FALSE(warned.body["spec"].isMember("foo"));
  EXPECT_EQ(server.call("GET", path_of("a")).code, 404) << "a dry run must not be stored";
}

TEST(Api, RequiresTheVersionThatAnUpdateIsBasedOn) {
  WidgetApi server;
  const Called made = server.create("a", R"({"size":2})");
  Json object = made.body;
  object["spec"]["size"] = 3;
  EXPECT_EQ(server.call("PUT", path_of("a"), write_json(object)).code, 200);
  const Called stale = server.call("PUT", path_of("a"), write_json(object));
  EXPECT_EQ(stale.code, 409);
  EXPECT_THAT(stale.message(), HasSubstr("the object has been modified; please apply your changes"));
  object["metadata"].removeMember("resourceVersion");
  EXPECT_EQ(server.call("PUT", path_of("a"), write_json(object)).code, 422);
  object["metadata"]["name"] = "b";
  EXPECT_EQ(server.call("PUT", path_of("a"), write_json(object)).code, 400);
  EXPECT_EQ(server.call("PUT", path_of("b"), write_json(object)).code, 404);
}

TEST(Api, KeepsSpecAndStatusApart) {
  WidgetApi server;
  server.create("a", R"({"size":2})");
  const Called status = server.merge("a", R"({"spec":{"size":5},"status":{"ok":true}})", "status");
  EXPECT_EQ(status.body["spec"]["size"].asInt(), 2);
  EXPECT_TRUE(status.body["status"]["ok"].asBool());
  EXPECT_EQ(status.body["metadata"]["generation"].asInt(), 1);
  const Called spec = server.merge("a", R"({"spec":{"size":5},"status":{"ok":false}})");
  EXPECT_EQ(spec.body["spec"]["size"].asInt(), 5);
  EXPECT_TRUE(spec.body["status"]["ok"].asBool());
  EXPECT_EQ(spec.body["metadata"]["generation"].asInt(), 2);
  const Called labels = server.merge("a", R"({"metadata":{"labels":{"x":"y"}}})");
  EXPECT_EQ(labels.body["metadata"]["generation"].asInt(), 2);
  const Called nothing = server.merge("a", R"({"spec":{"size":5}})");
  EXPECT_EQ(nothing.body["metadata"]["resourceVersion"], labels.body["metadata"]["resourceVersion"]);
}

TEST(Api, WaitsForFinalizers) {
  WidgetApi server;
  server.create("a", R"({"size":2})");
  server.merge("a", R"({"metadata":{"finalizers":["x.y/z"]}})");
  const Called marked = server.call("DELETE", path_of("a"));
  EXPECT_TRUE(marked.body["metadata"]["deletionTimestamp"].isString());
  EXPECT_EQ(server.merge("a", R"({"metadata":{"finalizers":["x.y/z","new/one"]}})").code, 422);
  EXPECT_EQ(server.merge("a", R"({"metadata":{"finalizers":null}})").code, 200);
  EXPECT_EQ(server.call("GET", path_of("a")).code, 404);
}

TEST(Api, ChecksPreconditionsOfDeletes) {
  WidgetApi server;
  server.create("a", R"({"size":2})");
  EXPECT_EQ(server.call("DELETE", path_of("a"), R"({"preconditions":{"uid":"other"}})").code, 409);
  EXPECT_EQ(server.call("DELETE", path_of("a"), R"({"preconditions":{"resourceVersion":"1"}})").code, 409);
  EXPECT_EQ(server.call("DELETE", path_of("a"), {}, {{"dryRun", "All"}}).code, 200);
  const Called gone = server.call("DELETE", path_of("a"));
  EXPECT_EQ(gone.body["status"].asString(), "Success");
  EXPECT_EQ(gone.body["details"]["kind"].asString(), "widgets");
}

TEST(Api, DeletesDependents) {
  WidgetApi server;
  const Called owner = server.create("owner", R"({"size":1})");
  const auto dependent = [&](const std::string& name, const std::string& uid) {
    return server
        .call(
            "POST", "/api/v1/namespaces/default/configmaps",
            R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":")" + name +
                R"(","ownerReferences":[{"apiVersion":"example.dev/v1","kind":"Widget","name":"owner","uid":")" +
                uid + R"("}]}})")
        .code;
  };
  ASSERT_EQ(dependent("mine", owner.body["metadata"]["uid"].asString()), 201);
  ASSERT_EQ(dependent("others", "another-uid"), 201);
  server.call("DELETE", path_of("owner"));
  EXPECT_EQ(server.call("GET", "/api/v1/namespaces/default/configmaps/mine").code, 404);
  EXPECT_EQ(server.call("GET", "/api/v1/namespaces/default/configmaps/others").code, 200);
}

TEST(Api, DeletesTheContentsOfANamespace) {
  WidgetApi server;
  const auto make = [&](const std::string& path, const std::string& object) {
    EXPECT_EQ(server.call("POST", path, object).code, 201) << path;
  };
  make("/api/v1/namespaces", R"({"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}})");
  make("/apis/example.dev/v1/namespaces/n/widgets",
       R"({"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1}})");
  EXPECT_EQ(server.call("DELETE", "/api/v1/namespaces/n").code, 200);
  EXPECT_EQ(server.call("GET", "/apis/example.dev/v1/namespaces/n/widgets/w").code, 404);
  EXPECT_EQ(server.call("DELETE", "/api/v1/namespaces/default").code, 403);
}

TEST(Api, RemovesATypeWithItsDefinition) {
  WidgetApi server;
  server.create("a", R"({"size":1})");
  const std::string definition =
      "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.dev";
  const Called found = server.call("GET", definition);
  EXPECT_EQ(found.body["status"]["conditions"][1]["type"].asString(), "Established");
  EXPECT_EQ(server.call("DELETE", definition).code, 200);
  EXPECT_EQ(server.call("GET", kWidgets).code, 404);
  EXPECT_EQ(server
                .call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                      write_json(widget_definition()))
                .code,
            201);
  EXPECT_TRUE(names_of(server.call("GET", kWidgets).body).empty());
}

TEST(Api, PagesShowOneVersion) {
  WidgetApi server;
  for (const char* name : {"a", "b", "c", "d"}) {
    server.create(name, R"({"size":1})");
  }
  const Called first = server.call("GET", kWidgets, {}, {{"limit", "3"}});
  EXPECT_THAT(names_of(first.body), ElementsAre("a", "b", "c"));
  EXPECT_EQ(first.body["metadata"]["remainingItemCount"].asInt(), 1);
  server.call("DELETE", path_of("d"));
  const std::string token = first.body["metadata"]["continue"].asString();
  const Called second = server.call("GET", kWidgets, {}, {{"limit", "3"}, {"continue", token}});
  EXPECT_THAT(names_of(second.body), ElementsAre("d"));
  EXPECT_EQ(second.body["metadata"]["resourceVersion"], first.body["metadata"]["resourceVersion"]);
  server.api.store().forget_history();
  EXPECT_EQ(server.call("GET", kWidgets, {}, {{"continue", token}}).code, 410);
  EXPECT_EQ(server.call("GET", kWidgets, {}, {{"continue", "garbage"}}).code, 400);
}

TEST(Api, ListsOldVersionsAndRefusesFutureOnes) {
  WidgetApi server;
  const Called made = server.create("a", R"({"size":1})");
  server.create("b", R"({"size":1})");
  const std::string version = made.body["metadata"]["resourceVersion"].asString();
  EXPECT_THAT(
      names_of(
          server.call("GET", kWidgets, {}, {{"resourceVersion", version}, {"resourceVersionMatch", "Exact"}})
              .body),
      ElementsAre("a"));
  const Called future = server.call("GET", kWidgets, {}, {{"resourceVersion", "99999"}});
  EXPECT_EQ(future.code, 504);
  EXPECT_THAT(future.message(), HasSubstr("Too large resource version: 99999"));
  EXPECT_EQ(server.call("GET", kWidgets, {}, {{"resourceVersion", "abc"}}).code, 400);
}

// The lines that a watch sends until its (short) end.
std::vector<std::string> watched(
    WidgetApi& server, std::map<std::string, std::string> query,
    const std::function<void()>& meanwhile = [] {}) {
  Request request;
  request.method = "GET";
  request.path = kWidgets;
  query["watch"] = "true";
  query.emplace("timeoutSeconds", "1");
  request.query = query;
  const Answer answer = server.api.handle(request);
  const WatchPlan* plan = std::get_if<WatchPlan>(&answer);
  std::vector<std::string> lines;
  if (plan == nullptr) {
    ADD_FAILURE() << std::get<Reply>(answer).body;
    return lines;
  }
  meanwhile();
  stream_watch(
      *plan, server.api.store(), {},
      [&](const std::string& line) {
        const Json event = *parse_json(line);
        const Json& object = event["object"];
        lines.push_back(event["type"].asString() + " " +
                        text_member(object, {"metadata", "name"}, text_member(object, {"reason"})));
        return true;
      },
      [] { return false; });
  return lines;
}

TEST(Watch, BeginsWithWhatThereIs) {
  WidgetApi server;
  server.create("a", R"({"size":1})");
  EXPECT_THAT(watched(server, {}, [&] { server.create("b", R"({"size":1})"); }),
              ElementsAre("ADDED a", "ADDED b"));
}

TEST(Watch, BeginsAfterAVersion) {
  WidgetApi server;
  const Called made = server.create("a", R"({"size":1})");
  server.merge("a", R"({"spec":{"size":2}})");
  server.call("DELETE", path_of("a"));
  EXPECT_THAT(watched(server, {{"resourceVersion", made.body["metadata"]["resourceVersion"].asString()}}),
              ElementsAre("MODIFIED a", "DELETED a"));
}

TEST(Watch, FollowsASelection) {
  WidgetApi server;
  server.create("a", R"({"size":1})");
  const auto relabel = [&] {
    server.merge("a", R"({"metadata":{"labels":{"on":"yes"}}})");
    server.merge("a", R"({"spec":{"size":3}})");
    server.merge("a", R"({"metadata":{"labels":{"on":"no"}}})");
  };
  EXPECT_THAT(watched(server, {{"labelSelector", "on=yes"}}, relabel),
              ElementsAre("ADDED a", "MODIFIED a", "DELETED a"));
}

TEST(Watch, EndsWhenItsHistoryIsDropped) {
  WidgetApi server;
  const Called made = server.create("a", R"({"size":1})");
  server.create("b", R"({"size":1})");
  server.api.store().forget_history();
  EXPECT_THAT(watched(server, {{"resourceVersion", made.body["metadata"]["resourceVersion"].asString()}}),
              ElementsAre("ERROR Expired"));
}

TEST(Watch, MarksTheEndOfTheInitialEvents) {
  WidgetApi server;
  server.create("a", R"({"size":1})");
  EXPECT_THAT(watched(server, {{"sendInitialEvents", "true"},
                               {"resourceVersionMatch", "NotOlderThan"},
                               {"allowWatchBookmarks", "true"}}),
              ElementsAre("ADDED a", "BOOKMARK ", "BOOKMARK "));
  EXPECT_EQ(server.call("GET", kWidgets, {}, {{"watch", "1"}, {"sendInitialEvents", "true"}}).code, 422);
}

TEST(Watch, InjectsFaults) {
  WidgetApi server;
  server.create("a", R"({"size":1})");
  server.create("b", R"({"size":1})");
  Fault fault;
  fault.kind = Fault::Kind::kExpired;
  fault.verb = "watch";
  fault.after_events = 1;
  server.api.faults().add(fault);
  EXPECT_THAT(watched(server, {}), ElementsAre("ADDED a", "ERROR Expired"));
  EXPECT_THAT(watched(server, {}), ElementsAre("ADDED a", "ADDED b"));
}

TEST(Faults, ApplyToTheNextRequests) {
  WidgetApi server;
  Fault fault;
  fault.verb = "create";
  fault.resource = "widgets\\..*";
  fault.count = 2;
  fault.status = 503;
  fault.reason = "ServiceUnavailable";
  fault.retry_after_seconds = 3;
  server.api.faults().add(fault);
  const Called first = server.create("a", R"({"size":1})");
  EXPECT_EQ(first.code, 503);
  EXPECT_EQ(first.body["details"]["retryAfterSeconds"].asInt(), 3);
  EXPECT_EQ(server.call("GET", kWidgets).code, 200);
  EXPECT_EQ(server.create("a", R"({"size":1})").code, 503);
  EXPECT_EQ(server.create("a", R"({"size":1})").code, 201);
}

TEST(Faults, CanLoseTheAnswerOfAWriteThatHappened) {
  WidgetApi server;
  Fault fault;
  fault.kind = Fault::Kind::kLoseAnswer;
  fault.verb = "create";
  server.api.faults().add(fault);
  EXPECT_EQ(server.create("a", R"({"size":1})").code, 504);
  EXPECT_EQ(server.create("a", R"({"size":1})").code, 409);
}

TEST(Builtins, FollowTheServersRules) {
  WidgetApi server;
  const std::string jobs = "/apis/batch/v1/namespaces/default/jobs";
  const Called job =
      server.call("POST", jobs, R"({"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"j"},"spec":{
      "completionMode":"Indexed","completions":2,"parallelism":2,
      "template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}})");
  ASSERT_EQ(job.code, 201) << job.message();
  const std::string uid = job.body["metadata"]["uid"].asString();
  EXPECT_EQ(job.body["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"].asString(),
            uid);
  EXPECT_EQ(job.body["spec"]["backoffLimit"].asInt(), 6);
  EXPECT_EQ(job.body["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"].asString(), "Always");
  const auto change = [&](const std::string& patch) {
    return server.call("PATCH", jobs + "/j", patch, {}, "application/merge-patch+json").code;
  };
  EXPECT_EQ(change(R"({"spec":{"suspend":true}})"), 200);
  EXPECT_EQ(change(R"({"spec":{"completions":3}})"), 422);
  EXPECT_EQ(change(R"({"spec":{"completions":3,"parallelism":3}})"), 200);
  EXPECT_EQ(change(R"({"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}})"), 200) << "suspended";
  EXPECT_EQ(change(R"({"spec":{"template":{"spec":{"restartPolicy":"OnFailure"}}}})"), 422);
  EXPECT_EQ(change(R"({"spec":{"suspend":false}})"), 200);
  EXPECT_EQ(change(R"({"spec":{"template":{"spec":{"nodeSelector":{"a":"c"}}}}})"), 422);
  EXPECT_EQ(
      server
          .call("POST", jobs, R"({"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"k"},"spec":{
      "template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}})")
          .message(),
      R"(Job.batch "k" is invalid: spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never")");
}

TEST(Builtins, LimitTheSizeOfObjects) {
  WidgetApi server;
  const auto make = [&](const std::string& annotation, const std::string& data) {
    return server.call(
        "POST", "/api/v1/namespaces/default/configmaps",
        R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","annotations":{"a":")" + annotation +
            R"("}},"data":{"d":")" + data + R"("}})");
  };
  EXPECT_EQ(make(std::string(262144, 'x'), "").message(),
            R"(ConfigMap "c" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes)");
  EXPECT_EQ(make("", std::string(1048577, 'x')).code, 422);
  EXPECT_EQ(make(std::string(262143, 'x'), std::string(1048576, 'x')).code, 201);
  const auto make_binary = [&](const std::string& base64) {
    return server
        .call("POST", "/api/v1/namespaces/default/configmaps",
              R"({"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"},"binaryData":{"d":")" +
                  base64 + R"("}})")
        .code;
  };
  EXPECT_EQ(make_binary(std::string(1398104, 'A')), 422);  // 1 MiB and 2 bytes
  EXPECT_EQ(make_binary(std::string(1398102, 'A') + "=="), 201);
}

TEST(Builtins, ShowEventsUnderBothTheirNames) {
  WidgetApi server;
  const Called made = server.call("POST", "/api/v1/namespaces/default/events",
                                  R"({"apiVersion":"v1","kind":"Event","metadata":{"name":"e"},
      "involvedObject":{"kind":"Pod","name":"p"},"reason":"R","message":"m","count":1})");
  ASSERT_EQ(made.code, 201);
  const Called newer = server.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events/e");
  EXPECT_EQ(newer.body["note"].asString(), "m");
  EXPECT_EQ(newer.body["regarding"]["name"].asString(), "p");
  EXPECT_EQ(server
                .call("PATCH", "/apis/events.k8s.io/v1/namespaces/default/events/e", R"({"note":"n"})", {},
                      "application/merge-patch+json")
                .code,
            200);
  EXPECT_EQ(server.call("GET", "/api/v1/namespaces/default/events/e").body["message"].asString(), "n");
  EXPECT_THAT(names_of(server
                           .call("GET", "/api/v1/namespaces/default/events", {},
                                 {{"fieldSelector", "involvedObject.name=p,reason=R"}})
                           .body),
              ElementsAre("e"));
}

TEST(Protobuf, DecodesWhatKubectlSends) {
  // `kubectl create configmap c --from-literal=a=b` of kubectl 1.36, field by field.
  const std::string object =
      std::string("\x0a\x03\x0a\x01") + "c" + "\x12\x06\x0a\x01" + "a" + "\x12\x01" + "b";
  const std::string meta = std::string("\x0a\x02v1\x12\x09") + "ConfigMap";
  const auto wrap = [](const std::string& type, const std::string& raw) {
    return std::string("k8s\0", 4) + "\x0a" + static_cast<char>(type.size()) + type + "\x12" +
           static_cast<char>(raw.size()) + raw;
  };
  const auto decoded = decode_protobuf(wrap(meta, object));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(write_json(*decoded),
            R"({"apiVersion":"v1","data":{"a":"b"},"kind":"ConfigMap","metadata":{"name":"c"}})");
  EXPECT_FALSE(decode_protobuf("{}"));
  EXPECT_FALSE(decode_protobuf(wrap(meta, object.substr(0, object.size() - 1) + "\xff\xff")));
  EXPECT_EQ(decode_protobuf(wrap("\x0a\x02v1\x12\x03Pod", "")).error().code, ErrorCode::kUnsupported);
  for (std::size_t length = 0; length < object.size(); ++length) {
    static_cast<void>(decode_protobuf(wrap(meta, object.substr(0, length))));
  }
}

}  // namespace
}  // namespace plimsoll::testing::fake

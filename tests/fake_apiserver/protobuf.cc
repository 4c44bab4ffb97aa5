#include "tests/fake_apiserver/protobuf.h"

#include <google/protobuf/compiler/parser.h>
#include <google/protobuf/dynamic_message.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>

#include <map>

#include "base/base64.h"

namespace plimsoll::testing::fake {
namespace {

namespace pb = google::protobuf;

// Every Kubernetes protobuf document begins with this.
constexpr std::string_view kMagic{"k8s\0", 4};

// Field numbers as in the generated.proto files of k8s.io/api and apimachinery. Of metadata only what a
// client may set; 64-bit numbers are left out, for JSON writes them as text.
constexpr std::string_view kMessages = R"(
syntax = "proto3";
message TypeMeta { string apiVersion = 1; string kind = 2; }
message Unknown { TypeMeta typeMeta = 1; bytes raw = 2; }
message OwnerReference { string kind = 1; string name = 3; string uid = 4; string apiVersion = 5; bool controller = 6;
                         bool blockOwnerDeletion = 7; }
message ObjectMeta { string name = 1; string generateName = 2; string namespace = 3; map<string, string> labels = 11;
                     map<string, string> annotations = 12; repeated OwnerReference ownerReferences = 13;
                     repeated string finalizers = 14; }
message IntOrString { int32 type = 1; int32 intVal = 2; string strVal = 3; }
message Review { ObjectMeta metadata = 1; }
message ServiceAccount { ObjectMeta metadata = 1; }
message NamespaceSpec { repeated string finalizers = 1; }
message Namespace { ObjectMeta metadata = 1; NamespaceSpec spec = 2; }
message ConfigMap { ObjectMeta metadata = 1; map<string, string> data = 2; map<string, bytes> binaryData = 3;
                    bool immutable = 4; }
message Secret { ObjectMeta metadata = 1; map<string, bytes> data = 2; string type = 3;
                 map<string, string> stringData = 4; bool immutable = 5; }
message PolicyRule { repeated string verbs = 1; repeated string apiGroups = 2; repeated string resources = 3;
                     repeated string resourceNames = 4; repeated string nonResourceURLs = 5; }
message Role { ObjectMeta metadata = 1; repeated PolicyRule rules = 2; }
message Subject { string kind = 1; string apiGroup = 2; string name = 3; string namespace = 4; }
message RoleRef { string apiGroup = 1; string kind = 2; string name = 3; }
message RoleBinding { ObjectMeta metadata = 1; repeated Subject subjects = 2; RoleRef roleRef = 3; }
message LabelSelector { map<string, string> matchLabels = 1; }
message ContainerPort { string name = 1; int32 containerPort = 3; string protocol = 4; }
message EnvVar { string name = 1; string value = 2; }
message Container { string name = 1; string image = 2; repeated string command = 3; repeated string args = 4;
                    repeated ContainerPort ports = 6; repeated EnvVar env = 7; string imagePullPolicy = 14; }
message PodSpec { repeated Container containers = 2; string restartPolicy = 3; }
message PodTemplateSpec { ObjectMeta metadata = 1; PodSpec spec = 2; }
message JobSpec { int32 parallelism = 1; int32 completions = 2; PodTemplateSpec template = 6; int32 backoffLimit = 7; }
message Job { ObjectMeta metadata = 1; JobSpec spec = 2; }
message DeploymentSpec { int32 replicas = 1; LabelSelector selector = 2; PodTemplateSpec template = 3; }
message Deployment { ObjectMeta metadata = 1; DeploymentSpec spec = 2; }
message ServicePort { string name = 1; string protocol = 2; int32 port = 3; IntOrString targetPort = 4; }
message ServiceSpec { repeated ServicePort ports = 1; map<string, string> selector = 2; string clusterIP = 3;
                      string type = 4; }
message Service { ObjectMeta metadata = 1; ServiceSpec spec = 2; }
)";

// The messages above, compiled once.
class Messages {
 public:
  Messages() {
    pb::io::ArrayInputStream text(kMessages.data(), static_cast<int>(kMessages.size()));
    pb::io::Tokenizer tokens(&text, nullptr);
    pb::FileDescriptorProto file;
    file.set_name("kubernetes.proto");
    pb::compiler::Parser().Parse(&tokens, &file);
    pool_.BuildFile(file);
  }

  // The message as JSON. Errors: kInvalid for broken data.
  Result<Json> decode(const std::string& message, const std::string& bytes) {
    const std::unique_ptr<pb::Message> parsed(
        factory_.GetPrototype(pool_.FindMessageTypeByName(message))->New());
    std::string text;
    if (!parsed->ParseFromString(bytes) || !pb::util::MessageToJsonString(*parsed, &text).ok()) {
      return invalid("the protobuf of " + message + " is broken");
    }
    return parse_json(text);
  }

 private:
  pb::DescriptorPool pool_;
  pb::DynamicMessageFactory factory_{&pool_};
};

std::string message_of(const std::string& api_version, const std::string& kind) {
  static const std::map<std::string, std::string> known = {
      {"v1 Namespace", "Namespace"},
      {"v1 ConfigMap", "ConfigMap"},
      {"v1 Secret", "Secret"},
      {"v1 ServiceAccount", "ServiceAccount"},
      {"v1 Service", "Service"},
      {"apps/v1 Deployment", "Deployment"},
      {"batch/v1 Job", "Job"},
      // Reviews are answered alike whatever they ask.
      {"authorization.k8s.io/v1 SelfSubjectAccessReview", "Review"},
      {"authorization.k8s.io/v1 SubjectAccessReview", "Review"},
      {"authentication.k8s.io/v1 TokenReview", "Review"},
      {"rbac.authorization.k8s.io/v1 Role", "Role"},
      {"rbac.authorization.k8s.io/v1 ClusterRole", "Role"},
      {"rbac.authorization.k8s.io/v1 RoleBinding", "RoleBinding"},
      {"rbac.authorization.k8s.io/v1 ClusterRoleBinding", "RoleBinding"}};
  const auto found = known.find(api_version + " " + kind);
  return found == known.end() ? "" : found->second;
}

// JSON writes an IntOrString as its value; protobuf as {type, intVal, strVal}.
void unwrap_target_ports(Json& object) {
  for (Json& port : object["spec"]["ports"]) {
    if (port.isMember("targetPort")) {
      const Json target = port["targetPort"];
      port["targetPort"] = target["type"].asInt() == 1 ? target["strVal"] : target.get("intVal", 0);
    }
  }
}

}  // namespace

Result<Json> decode_protobuf(std::string_view bytes) {
  static Messages messages;
  if (!bytes.starts_with(kMagic)) {
    return invalid("the body does not begin like Kubernetes protobuf");
  }
  auto envelope = messages.decode("Unknown", std::string(bytes.substr(kMagic.size())));
  if (!envelope) {
    return envelope;
  }
  const std::string api_version = text_member(*envelope, {"typeMeta", "apiVersion"});
  const std::string kind = text_member(*envelope, {"typeMeta", "kind"});
  const std::string message = message_of(api_version, kind);
  if (message.empty()) {
    return Error(ErrorCode::kUnsupported, "protobuf of " + api_version + " " + kind);
  }
  const auto raw = base64_decode(text_member(*envelope, {"raw"}));  // as JSON writes bytes
  auto object = messages.decode(message, raw ? *raw : "");
  if (object) {
    if (message == "Service") {
      unwrap_target_ports(*object);
    }
    (*object)["apiVersion"] = api_version;
    (*object)["kind"] = kind;
  }
  return object;
}

}  // namespace plimsoll::testing::fake

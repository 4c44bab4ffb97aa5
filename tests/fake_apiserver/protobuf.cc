#include "tests/fake_apiserver/protobuf.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/base64.h"
#include "base/clock.h"

namespace plimsoll::testing::fake {
namespace {

// Every Kubernetes protobuf document begins with this.
constexpr std::string_view kMagic{"k8s\0", 4};

struct Message;

struct Field {
  enum class Type { kText, kNumber, kFlag, kTime, kMessage, kTextMap, kBytesMap, kIntOrText };
  const char* name;
  Type type = Type::kText;
  bool repeated = false;
  const Message* message = nullptr;
};

// Field numbers as in the generated.proto files of k8s.io/api and apimachinery.
struct Message {
  std::map<std::uint32_t, Field> fields;
};

using Type = Field::Type;

const Message kOwnerReference{{{1, {"kind"}},
                               {3, {"name"}},
                               {4, {"uid"}},
                               {5, {"apiVersion"}},
                               {6, {"controller", Type::kFlag}},
                               {7, {"blockOwnerDeletion", Type::kFlag}}}};
const Message kObjectMeta{{{1, {"name"}},
                           {2, {"generateName"}},
                           {3, {"namespace"}},
                           {5, {"uid"}},
                           {6, {"resourceVersion"}},
                           {7, {"generation", Type::kNumber}},
                           {8, {"creationTimestamp", Type::kTime}},
                           {11, {"labels", Type::kTextMap}},
                           {12, {"annotations", Type::kTextMap}},
                           {13, {"ownerReferences", Type::kMessage, true, &kOwnerReference}},
                           {14, {"finalizers", Type::kText, true}}}};
const Field kMetadata{"metadata", Type::kMessage, false, &kObjectMeta};
const Message kNamespaceSpec{{{1, {"finalizers", Type::kText, true}}}};
const Message kNamespace{{{1, kMetadata}, {2, {"spec", Type::kMessage, false, &kNamespaceSpec}}}};
const Message kConfigMap{{{1, kMetadata},
                          {2, {"data", Type::kTextMap}},
                          {3, {"binaryData", Type::kBytesMap}},
                          {4, {"immutable", Type::kFlag}}}};
const Message kSecret{{{1, kMetadata},
                       {2, {"data", Type::kBytesMap}},
                       {3, {"type"}},
                       {4, {"stringData", Type::kTextMap}},
                       {5, {"immutable", Type::kFlag}}}};
const Message kServiceAccount{{{1, kMetadata}}};
const Message kPolicyRule{{{1, {"verbs", Type::kText, true}},
                           {2, {"apiGroups", Type::kText, true}},
                           {3, {"resources", Type::kText, true}},
                           {4, {"resourceNames", Type::kText, true}},
                           {5, {"nonResourceURLs", Type::kText, true}}}};
const Message kRole{{{1, kMetadata}, {2, {"rules", Type::kMessage, true, &kPolicyRule}}}};
const Message kSubject{{{1, {"kind"}}, {2, {"apiGroup"}}, {3, {"name"}}, {4, {"namespace"}}}};
const Message kRoleRef{{{1, {"apiGroup"}}, {2, {"kind"}}, {3, {"name"}}}};
const Message kRoleBinding{{{1, kMetadata},
                            {2, {"subjects", Type::kMessage, true, &kSubject}},
                            {3, {"roleRef", Type::kMessage, false, &kRoleRef}}}};
const Message kSelector{{{1, {"matchLabels", Type::kTextMap}}}};
const Message kContainerPort{{{1, {"name"}}, {3, {"containerPort", Type::kNumber}}, {4, {"protocol"}}}};
const Message kVariable{{{1, {"name"}}, {2, {"value"}}}};
const Message kContainer{{{1, {"name"}},
                          {2, {"image"}},
                          {3, {"command", Type::kText, true}},
                          {4, {"args", Type::kText, true}},
                          {6, {"ports", Type::kMessage, true, &kContainerPort}},
                          {7, {"env", Type::kMessage, true, &kVariable}},
                          {14, {"imagePullPolicy"}}}};
const Message kPodSpec{{{2, {"containers", Type::kMessage, true, &kContainer}}, {3, {"restartPolicy"}}}};
const Message kPodTemplate{{{1, kMetadata}, {2, {"spec", Type::kMessage, false, &kPodSpec}}}};
const Message kJobSpec{{{1, {"parallelism", Type::kNumber}},
                        {2, {"completions", Type::kNumber}},
                        {6, {"template", Type::kMessage, false, &kPodTemplate}},
                        {7, {"backoffLimit", Type::kNumber}}}};
const Message kJob{{{1, kMetadata}, {2, {"spec", Type::kMessage, false, &kJobSpec}}}};
const Message kDeploymentSpec{{{1, {"replicas", Type::kNumber}},
                               {2, {"selector", Type::kMessage, false, &kSelector}},
                               {3, {"template", Type::kMessage, false, &kPodTemplate}}}};
const Message kDeployment{{{1, kMetadata}, {2, {"spec", Type::kMessage, false, &kDeploymentSpec}}}};
const Message kServicePort{
    {{1, {"name"}}, {2, {"protocol"}}, {3, {"port", Type::kNumber}}, {4, {"targetPort", Type::kIntOrText}}}};
const Message kServiceSpec{{{1, {"ports", Type::kMessage, true, &kServicePort}},
                            {2, {"selector", Type::kTextMap}},
                            {3, {"clusterIP"}},
                            {4, {"type"}}}};
const Message kService{{{1, kMetadata}, {2, {"spec", Type::kMessage, false, &kServiceSpec}}}};
// Reviews are answered alike whatever they ask.
const Message kReview{{{1, kMetadata}}};

const Message* message_of(const std::string& api_version, const std::string& kind) {
  static const std::map<std::string, const Message*> known = {
      {"v1 Namespace", &kNamespace},
      {"v1 ConfigMap", &kConfigMap},
      {"v1 Secret", &kSecret},
      {"v1 ServiceAccount", &kServiceAccount},
      {"v1 Service", &kService},
      {"apps/v1 Deployment", &kDeployment},
      {"batch/v1 Job", &kJob},
      {"authorization.k8s.io/v1 SelfSubjectAccessReview", &kReview},
      {"authorization.k8s.io/v1 SubjectAccessReview", &kReview},
      {"authentication.k8s.io/v1 TokenReview", &kReview},
      {"rbac.authorization.k8s.io/v1 Role", &kRole},
      {"rbac.authorization.k8s.io/v1 ClusterRole", &kRole},
      {"rbac.authorization.k8s.io/v1 RoleBinding", &kRoleBinding},
      {"rbac.authorization.k8s.io/v1 ClusterRoleBinding", &kRoleBinding}};
  const auto found = known.find(api_version + " " + kind);
  return found == known.end() ? nullptr : found->second;
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  struct Item {
    std::uint32_t number = 0;
    std::uint64_t value = 0;  // of a varint
    std::string_view bytes;   // of anything with a length
  };

  // Nothing at the end, and when the data is broken.
  std::optional<Item> next() {
    if (bytes_.empty()) {
      return std::nullopt;
    }
    const auto tag = varint();
    if (!tag) {
      return std::nullopt;
    }
    Item item;
    item.number = static_cast<std::uint32_t>(*tag >> 3);
    const auto value = varint();
    if (!value || ((*tag & 7) != 0 && (*tag & 7) != 2)) {
      broken_ = true;
      return std::nullopt;
    }
    item.value = *value;
    if ((*tag & 7) == 2) {
      if (*value > bytes_.size()) {
        broken_ = true;
        return std::nullopt;
      }
      item.bytes = bytes_.substr(0, *value);
      bytes_.remove_prefix(*value);
    }
    return item;
  }

  bool broken() const { return broken_; }

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64 && !bytes_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) {
        return value;
      }
    }
    broken_ = true;
    return std::nullopt;
  }

  std::string_view bytes_;
  bool broken_ = false;
};

bool read_message(std::string_view bytes, const Message& message, Json& object);

// A map's entry is a message {key = 1, value = 2}.
bool read_entry(std::string_view bytes, bool as_base64, Json& map) {
  Reader reader(bytes);
  std::string key;
  std::string value;
  while (const auto item = reader.next()) {
    (item->number == 1 ? key : value) = std::string(item->bytes);
  }
  map[key] = as_base64 ? base64_encode(value) : value;
  return !reader.broken();
}

// IntOrString: {type = 1, intVal = 2, strVal = 3}.
Json read_int_or_text(std::string_view bytes) {
  Reader reader(bytes);
  Json value;
  bool is_text = false;
  while (const auto item = reader.next()) {
    if (item->number == 1) {
      is_text = item->value == 1;
    } else if (item->number == 2 && !is_text) {
      value = static_cast<::Json::Int64>(item->value);
    } else if (item->number == 3 && is_text) {
      value = std::string(item->bytes);
    }
  }
  return value;
}

bool read_field(const Reader::Item& item, const Field& field, Json& object) {
  Json value;
  switch (field.type) {
    case Type::kText: value = std::string(item.bytes); break;
    case Type::kNumber: value = static_cast<::Json::Int64>(item.value); break;
    case Type::kFlag: value = item.value != 0; break;
    case Type::kTime: {
      Reader reader(item.bytes);
      const auto seconds = reader.next();
      if (!seconds) {
        return !reader.broken();  // the zero time: not set
      }
      value = format_time(Clock::WallTime(std::chrono::seconds(seconds->value)));
      break;
    }
    case Type::kIntOrText: value = read_int_or_text(item.bytes); break;
    case Type::kMessage:
      value = Json(::Json::objectValue);
      if (!read_message(item.bytes, *field.message, value)) {
        return false;
      }
      break;
    case Type::kTextMap:
    case Type::kBytesMap: return read_entry(item.bytes, field.type == Type::kBytesMap, object[field.name]);
  }
  if (field.repeated) {
    object[field.name].append(std::move(value));
  } else if (!(value.isString() && value.asString().empty()) && !(value.isObject() && value.empty()) &&
             !(value.isNumeric() && value.asInt64() == 0)) {
    // Go writes what is not set as the zero value.
    object[field.name] = std::move(value);
  }
  return true;
}

bool read_message(std::string_view bytes, const Message& message, Json& object) {
  Reader reader(bytes);
  while (const auto item = reader.next()) {
    const auto field = message.fields.find(item->number);
    if (field != message.fields.end() && !read_field(*item, field->second, object)) {
      return false;
    }
  }
  return !reader.broken();
}

}  // namespace

Result<Json> decode_protobuf(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) {
    return invalid("the body does not begin like Kubernetes protobuf");
  }
  // runtime.Unknown: typeMeta = 1 {apiVersion = 1, kind = 2}, raw = 2.
  static const Message type_meta{{{1, {"apiVersion"}}, {2, {"kind"}}}};
  Reader envelope(bytes.substr(kMagic.size()));
  Json object(::Json::objectValue);
  std::string_view raw;
  while (const auto item = envelope.next()) {
    if (item->number == 1 && !read_message(item->bytes, type_meta, object)) {
      return invalid("the protobuf envelope is broken");
    }
    if (item->number == 2) {
      raw = item->bytes;
    }
  }
  const std::string api_version = text_member(object, {"apiVersion"});
  const std::string kind = text_member(object, {"kind"});
  const Message* message = message_of(api_version, kind);
  if (message == nullptr) {
    return Error(ErrorCode::kUnsupported, "protobuf of " + api_version + " " + kind);
  }
  if (envelope.broken() || !read_message(raw, *message, object)) {
    return invalid("the protobuf of " + kind + " is broken");
  }
  return object;
}

}  // namespace plimsoll::testing::fake

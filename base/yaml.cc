#include "base/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "base/base64.h"
#include "base/utf8.h"

namespace plimsoll {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

std::size_t count(std::string_view text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size())) {
    ++found;
  }
  return found;
}

bool one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

Error yaml_error(const YAML::Mark& mark, const std::string& message, const std::string& fragment = {}) {
  std::string where;
  if (!mark.is_null()) {
    where = "line " + std::to_string(mark.line + 1) + ", column " + std::to_string(mark.column + 1) + ": ";
  }
  return invalid("not valid YAML: " + where + message, fragment.substr(0, 64));
}

std::optional<Json> resolve_integer(std::string_view text) {
  bool negative = false;
  std::string_view digits = text;
  if (!digits.empty() && (digits.front() == '-' || digits.front() == '+')) {
    negative = digits.front() == '-';
    digits.remove_prefix(1);
  }
  int radix = 10;
  if (digits.size() > 1 && digits.front() == '0') {
    const char kind = static_cast<char>(digits[1] | 0x20);  // in lower case
    const bool named = kind == 'x' || kind == 'o' || kind == 'b';
    radix = kind == 'x' ? 16 : kind == 'b' ? 2 : 8;
    digits.remove_prefix(named ? 2 : 1);
  }
  std::uint64_t magnitude = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, magnitude, radix);
  if (digits.empty() || failure != std::errc() || stop != end) {
    return std::nullopt;
  }
  constexpr std::uint64_t kSignBit = 1ULL << 63;
  if (!negative) {
    return magnitude < kSignBit ? Json(static_cast<::Json::Int64>(magnitude))
                                : Json(::Json::UInt64{magnitude});
  }
  if (magnitude > kSignBit) {
    return std::nullopt;
  }
  return Json(static_cast<::Json::Int64>(~magnitude + 1));
}

std::optional<double> resolve_real(std::string_view text) {
  std::string_view digits = text;
  if (!digits.empty() && digits.front() == '+') {
    digits.remove_prefix(1);
  }
  const std::size_t first = digits.find_first_of("0123456789.");
  if (first == std::string_view::npos || first > (digits.front() == '-' ? 1U : 0U)) {
    return std::nullopt;
  }
  double value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, value);
  if (stop != end || failure == std::errc::invalid_argument) {
    return std::nullopt;
  }
  return failure == std::errc() ? value : std::numeric_limits<double>::infinity();
}

// A whole number is one however it is spelled (1e3), as far as doubles are exact.
Json number_of(double real) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (std::abs(real) < kExact && std::trunc(real) == real) {
    return Json(static_cast<::Json::Int64>(real));
  }
  return Json(real);
}

// A plain (unquoted) scalar. Errors: infinity and NaN.
Result<Json> resolve(const std::string& text) {
  if (one_of(text, {"", "~", "null", "Null", "NULL"})) {
    return Json();
  }
  if (one_of(text, {"true", "True", "TRUE", "y", "Y", "yes", "Yes", "YES", "on", "On", "ON"})) {
    return Json(true);
  }
  if (one_of(text, {"false", "False", "FALSE", "n", "N", "no", "No", "NO", "off", "Off", "OFF"})) {
    return Json(false);
  }
  std::string digits = text;
  if (!text.starts_with('_')) {
    std::erase(digits, '_');
  }
  if (std::optional<Json> integer = resolve_integer(digits)) {
    return *std::move(integer);
  }
  if (std::optional<double> real = resolve_real(digits)) {
    // As kubectl, a number that no double can hold is text, which is then of the wrong type for its field.
    return std::isfinite(*real) ? number_of(*real) : Json(text);
  }
  if (one_of(text, {".inf", ".Inf", ".INF", "+.inf", "-.inf", "-.Inf", "-.INF", ".nan", ".NaN", ".NAN"})) {
    return invalid("a Kubernetes object cannot have infinity or NaN", text);
  }
  return Json(text);
}

// yaml-cpp 0.7 makes of the escapes \_ and \N the single bytes A0 and 85, which are no UTF-8: they stand for U+00A0 and U+0085. All else
// of the text is UTF-8, as what was parsed.
std::string whole_characters(const std::string& text) {
  if (is_utf8(text)) {
    return text;
  }
  std::string whole;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t length = utf8_length(rest);
    whole += length == 0 ? "\xC2" : "";
    whole += rest.substr(0, std::max<std::size_t>(1, length));
    rest.remove_prefix(std::max<std::size_t>(1, length));
  }
  return whole;
}

// A scalar by its tag: plain ones are resolved, quoted ones and those of unknown tags are text.
Result<Json> resolve(const std::string& tag, const std::string& text) {
  constexpr std::string_view kCore = "tag:yaml.org,2002:";
  if (tag == std::string(kCore) + "binary") {
    const Result<std::string> bytes = base64_decode(text);
    if (bytes && !is_utf8(*bytes)) {
      return invalid("a Kubernetes object cannot have binary data that is not UTF-8", text);
    }
    return bytes ? Result<Json>(Json(*bytes)) : bytes.error();
  }
  const bool plain =
      tag.empty() || tag == "?" || (tag.starts_with(kCore) && tag != std::string(kCore) + "str");
  return plain ? resolve(text) : Json(text);
}

// Builds one document from the parser's events. Events after the first error are ignored.
class DocumentBuilder final : public YAML::EventHandler {
 public:
  // `limit`: how many nodes the document may have once its aliases are followed.
  explicit DocumentBuilder(std::size_t limit) : limit_(limit) {}

  bool started() const { return started_; }
  const YAML::Mark& start() const { return start_; }
  Result<Json> take() && {
    if (failed_) {
      return std::move(error_);
    }
    return std::move(document_);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    started_ = true;
    start_ = mark;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add({mark, Json(), 1}, anchor); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    if (text == "<<" && tag == "?" && expects_key()) {
      frames_.back().key = text;
      frames_.back().merging = true;
      return;
    }
    const std::string characters = whole_characters(text);
    Result<Json> value = resolve(tag, characters);
    if (!value) {
      fail(mark, value.error().message, characters);
      return;
    }
    add({mark, *std::move(value), 1}, anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end()) {
      fail(mark, "an alias that contains itself");
    } else if (count(mark, found->second.nodes)) {
      add({mark, found->second.value, found->second.nodes}, YAML::NullAnchor);
    }
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(mark, ::Json::arrayValue, anchor);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(mark, ::Json::objectValue, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Node {
    YAML::Mark mark;
    Json value;
    std::size_t nodes = 0;  // in the value, itself included
  };

  // A list or map that is not yet complete.
  struct Frame {
    Node node;
    YAML::anchor_t anchor = YAML::NullAnchor;
    std::optional<std::string> key;  // read, and its value not yet
    bool merging = false;            // the key is <<
    std::vector<Node> merged;
  };

  bool expects_key() const {
    return !failed_ && !frames_.empty() && frames_.back().node.value.isObject() && !frames_.back().key;
  }

  void fail(const YAML::Mark& mark, const std::string& message, const std::string& fragment = {}) {
    if (!failed_) {
      failed_ = true;
      error_ = yaml_error(mark, message, fragment);
    }
  }

  bool count(const YAML::Mark& mark, std::size_t nodes) {
    nodes_ += nodes;
    if (nodes_ > limit_) {
      fail(mark, "more than " + std::to_string(limit_) + " nodes once aliases are followed");
    }
    return !failed_;
  }

  void open(const YAML::Mark& mark, ::Json::ValueType type, YAML::anchor_t anchor) {
    if (failed_ || !count(mark, 1)) {
      return;
    }
    if (expects_key()) {
      fail(mark, "a key must be a plain string");
    } else if (frames_.size() == kYamlDepthLimit) {
      fail(mark, "nested deeper than " + std::to_string(kYamlDepthLimit) + " levels");
    } else {
      frames_.push_back({.node = {mark, Json(type), 1}, .anchor = anchor, .key = {}, .merged = {}});
    }
  }

  void close() {
    if (failed_) {
      return;
    }
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    for (const Node& source : frame.merged) {
      merge(source, frame.node.value);
    }
    add(std::move(frame.node), frame.anchor);
  }

  // A complete node: remembered for its aliases, and put where it belongs.
  void add(Node node, YAML::anchor_t anchor) {
    if (failed_ || (node.nodes == 1 && !count(node.mark, 1))) {
      return;
    }
    if (anchor != YAML::NullAnchor && count(node.mark, node.nodes)) {
      anchored_[anchor] = node;
    }
    if (frames_.empty()) {
      document_ = std::move(node.value);
    } else if (expects_key()) {
      read_key(node);
    } else {
      put(frames_.back(), std::move(node));
    }
  }

  // A key is text in JSON: `yes: 1` has the key "true" for kubectl, and so for us.
  void read_key(const Node& node) {
    if (node.value.isNull() || node.value.isArray() || node.value.isObject()) {
      fail(node.mark, "a key must be a plain string");
      return;
    }
    std::string key = node.value.isString() ? node.value.asString() : write_json(node.value);
    if (frames_.back().node.value.isMember(key)) {
      fail(node.mark, "the key is twice in the map", key);
    }
    frames_.back().key = std::move(key);
    frames_.back().merging = false;
  }

  void put(Frame& frame, Node node) {
    frame.node.nodes += node.nodes;
    if (frame.node.value.isArray()) {
      frame.node.value.append(std::move(node.value));
      return;
    }
    if (frame.merging) {
      frame.merged.push_back(std::move(node));
    } else {
      frame.node.value[*frame.key] = std::move(node.value);
    }
    frame.key.reset();
  }

  // YAML 1.1's merge key: members of the map, or of each map of the list, that the object does not have yet.
  void merge(const Node& source, Json& object) {
    if (source.value.isObject()) {
      merge_members(source.value, object);
      return;
    }
    if (!source.value.isArray()) {
      fail(source.mark, "<< must name a map or a list of maps");
      return;
    }
    for (const Json& element : source.value) {
      if (!element.isObject()) {
        fail(source.mark, "<< must name maps");
        return;
      }
      merge_members(element, object);
    }
  }

  static void merge_members(const Json& source, Json& object) {
    for (auto member = source.begin(); member != source.end(); ++member) {
      if (!object.isMember(member.name())) {
        object[member.name()] = *member;
      }
    }
  }

  const std::size_t limit_;
  std::size_t nodes_ = 0;
  bool started_ = false;
  YAML::Mark start_;
  bool failed_ = false;
  Error error_;
  Json document_;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Node> anchored_;
};

// Aliases may repeat parts of the text, within limits: ten times the text's length in nodes is far more than
// real files have, and stops an alias bomb of a few lines before it fills the memory.
std::size_t node_limit(std::size_t text_size) {
  return std::min(kYamlNodeLimit, 1000 + 10 * text_size);
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

// Whether a plain scalar would be read back as this very string.
bool reads_back(const std::string& text) {
  if (std::any_of(text.begin(), text.end(), is_control)) {
    return false;  // a carriage return at its end would be part of a line break
  }
  if (text.starts_with("---") || text.starts_with("...")) {
    return false;  // at the beginning of a line these are the ends of documents
  }
  const Result<Json> read = resolve(text);
  return read && read->isString();
}

// Whether a literal block (|) holds the text unchanged.
bool fits_literal(const std::string& text) {
  const bool one_end = text.ends_with('\n') && !text.ends_with("\n\n");
  const bool plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || !is_control(c); });
  return one_end && plain && text.front() != ' ' && text.front() != '\n' &&
         text.find(" \n") == std::string::npos;
}

// A key that is written as "key: value" is read up to 1024 characters (YAML 1.2.2, 7.4.3); a longer one as "? key". Escapes have four
// characters, and those of characters beyond ASCII up to ten: at most four for each byte.
bool may_be_long_key(const std::string& key) {
  constexpr std::size_t kMost = 1024;
  constexpr std::size_t kQuotes = 2;
  std::size_t written = kQuotes;
  for (const char c : key) {
    const bool is_plain = !is_control(c) && static_cast<unsigned char>(c) < 0x80 && c != '"' && c != '\\';
    written += is_plain ? 1 : 4;
  }
  return written > kMost;
}

void emit_text(YAML::Emitter& out, const std::string& text) {
  if (fits_literal(text)) {
    out << YAML::Literal << text.substr(0, text.size() - 1);  // | itself ends with a line break
  } else if (!reads_back(text)) {
    out << YAML::DoubleQuoted << text;
  } else {
    out << text;
  }
}

void emit(YAML::Emitter& out, const Json& value) {
  const YAML::EMITTER_MANIP style = value.empty() ? YAML::Flow : YAML::Block;
  switch (value.type()) {
    case ::Json::nullValue: out << YAML::Null; break;
    case ::Json::booleanValue: out << value.asBool(); break;
    case ::Json::intValue: out << value.asInt64(); break;
    case ::Json::uintValue: out << value.asUInt64(); break;
    case ::Json::realValue: out << write_json(value); break;
    case ::Json::stringValue: emit_text(out, value.asString()); break;
    case ::Json::arrayValue:
      out << style << YAML::BeginSeq;
      for (const Json& element : value) {
        emit(out, element);
      }
      out << YAML::EndSeq;
      break;
    case ::Json::objectValue:
      out << style << YAML::BeginMap;
      for (const std::string& key : value.getMemberNames()) {
        if (may_be_long_key(key)) {
          out << YAML::LongKey;
        }
        out << YAML::Key;
        if (reads_back(key) && key != "<<") {
          out << key;
        } else {
          out << YAML::DoubleQuoted << key;
        }
        out << YAML::Value;
        emit(out, value[key]);
      }
      out << YAML::EndMap;
      break;
  }
}

// May throw what yaml-cpp throws.
Result<std::vector<Json>> read_documents(std::string_view text) {
  std::istringstream stream{std::string(text)};
  YAML::Parser parser(stream);
  std::vector<Json> documents;
  for (bool first = true;; first = false) {
    DocumentBuilder builder(node_limit(text.size()));
    if (!parser.HandleNextDocument(builder) || !builder.started()) {
      return documents;
    }
    // yaml-cpp takes stray text after a document for another one, and on some text it never gets further.
    const std::string_view here =
        text.substr(std::min(text.size(), static_cast<std::size_t>(builder.start().pos)));
    if (!first && !here.starts_with("---")) {
      return yaml_error(builder.start(), "text after the end of the document",
                        std::string(here.substr(0, 64)));
    }
    Result<Json> document = std::move(builder).take();
    if (!document) {
      return document.error();
    }
    if (!document->isNull()) {
      documents.push_back(*std::move(document));
    }
  }
}

}  // namespace

Result<std::vector<Json>> parse_yaml_documents(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) {
    return std::vector<Json>{};
  }
  if (text[first] == '{' || text[first] == '[') {
    Result<Json> json = parse_json(text);
    if (json) {
      return std::vector<Json>{*std::move(json)};
    }
    // Flow-style YAML begins with a brace too, so the YAML reader decides, unless the nesting is too
    // deep.
    if (json.error().message.find("nested") != std::string::npos) {
      return json.error();
    }
  }
  if (text.find('\0') != std::string_view::npos || !is_utf8(text)) {
    return invalid("not valid YAML: the text is not UTF-8, or holds NUL bytes; is it a binary file?");
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    text.remove_prefix(3);  // the byte order mark that some editors write
  }
  try {
    return read_documents(text);
  } catch (const YAML::Exception& problem) {
    return yaml_error(problem.mark, problem.msg);
  } catch (const std::exception& problem) {
    return invalid(std::string("not valid YAML: ") + problem.what());
  }
}

std::string write_yaml(const Json& value) {
  YAML::Emitter out;
  out.SetIndent(2);
  emit(out, value);
  std::string text = out.c_str();
  // yaml-cpp writes U+FFFD for the code points that Unicode calls noncharacters. JSON is YAML too, and keeps
  // them.
  if (text.find(kReplacementCharacter) != std::string::npos) {
    std::string json = write_json(value);
    if (count(json, kReplacementCharacter) < count(text, kReplacementCharacter)) {
      text = std::move(json);
    }
  }
  return text + "\n";
}

}  // namespace plimsoll

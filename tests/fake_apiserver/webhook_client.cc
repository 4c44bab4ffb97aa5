#include "tests/fake_apiserver/webhook_client.h"

#include <curl/curl.h>

#include <array>
#include <cctype>
#include <system_error>

namespace plimsoll::testing::fake {
namespace {

// kube-apiserver keeps 25 idle connections a host.
constexpr std::size_t kMaxIdle = 25;
constexpr std::size_t kMaxAnswerBytes = std::size_t{16} << 20;

std::size_t append(const char* data, std::size_t, std::size_t size, void* answer) {
  std::string& text = *static_cast<std::string*>(answer);
  if (text.size() + size > kMaxAnswerBytes) {
    return 0;
  }
  text.append(data, size);
  return size;
}

// "127.0.0.1:8443" of an https URL.
std::string address_of(const std::string& url) {
  const std::size_t begin = std::string("https://").size();
  return url.substr(begin, url.find_first_of("/?", begin) - begin);
}

// In the words of Go's HTTP client.
std::string reason_of(CURLcode code, const std::string& url, long system_error, const std::string& detail) {
  if (code == CURLE_COULDNT_CONNECT) {
    std::string reason = std::generic_category().message(static_cast<int>(system_error));
    reason[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(reason[0])));
    return "dial tcp " + address_of(url) + ": connect: " + reason;
  }
  if (code == CURLE_PEER_FAILED_VERIFICATION) {
    return "tls: failed to verify certificate: " + detail;
  }
  return detail.empty() ? curl_easy_strerror(code) : detail;
}

}  // namespace

// One connection that is kept between calls, used by one call at a time.
struct WebhookClient::Handle {
  Handle() {
    headers = curl_slist_append(headers, "Content-Type: application/json");
    headers = curl_slist_append(headers, "Accept: application/json, */*");
    headers = curl_slist_append(headers, "Expect:");  // no round trip before a large body
  }
  ~Handle() {
    curl_easy_cleanup(curl);
    curl_slist_free_all(headers);
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  CURL* curl = curl_easy_init();
  curl_slist* headers = nullptr;
};

WebhookClient::WebhookClient() {
  static const CURLcode initialised = curl_global_init(CURL_GLOBAL_DEFAULT);
  static_cast<void>(initialised);
}

WebhookClient::~WebhookClient() = default;

Result<std::string> WebhookClient::post(const std::string& url, const std::string& ca_bundle,
                                        const std::string& body, std::chrono::milliseconds timeout) {
  std::unique_ptr<Handle> handle = take_idle();
  CURL* const curl = handle->curl;
  std::string answer;
  std::array<char, CURL_ERROR_SIZE> detail{};
  curl_easy_reset(curl);  // the connection stays
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https");
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "kube-apiserver-admission");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, handle->headers);
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data());
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &append);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail.data());
  if (!ca_bundle.empty()) {
    curl_blob blob{const_cast<char*>(ca_bundle.data()), ca_bundle.size(), CURL_BLOB_COPY};
    curl_easy_setopt(curl, CURLOPT_CAINFO_BLOB, &blob);
    curl_easy_setopt(curl, CURLOPT_CAPATH, nullptr);
  }
  const CURLcode code = curl_easy_perform(curl);
  const std::string what = "Post \"" + url + "\": ";
  if (code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL) {
    return invalid("the webhook's URL is not of the form https://host[:port]/path", url);
  }
  if (code == CURLE_OPERATION_TIMEDOUT) {
    return Error(ErrorCode::kTimeout, what + "context deadline exceeded");
  }
  if (code != CURLE_OK) {
    long system_error = 0;
    curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &system_error);
    return Error(ErrorCode::kUnavailable, what + reason_of(code, url, system_error, detail.data()));
  }
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  keep_idle(std::move(handle));
  if (status < 200 || status > 299) {
    return invalid(what + "the server answered with status " + std::to_string(status), answer.substr(0, 200));
  }
  return answer;
}

std::unique_ptr<WebhookClient::Handle> WebhookClient::take_idle() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) {
    return std::make_unique<Handle>();
  }
  std::unique_ptr<Handle> handle = std::move(idle_.back());
  idle_.pop_back();
  return handle;
}

void WebhookClient::keep_idle(std::unique_ptr<Handle> handle) {
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kMaxIdle) {
    idle_.push_back(std::move(handle));
  }
}

}  // namespace plimsoll::testing::fake

#include "tests/fake_apiserver/http_server.h"

#include <cpprest/http_listener.h>
#include <cpprest/producerconsumerstream.h>
#include <pplx/threadpool.h>

#include <atomic>
#include <boost/algorithm/string/replace.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include "base/log.h"
#include "tests/fake_apiserver/worker_pool.h"

namespace plimsoll::testing::fake {
namespace {

using web::http::http_request;
using web::http::http_response;
using web::http::experimental::listener::http_listener;
using web::http::experimental::listener::http_listener_config;
using Buffer = concurrency::streams::producer_consumer_buffer<std::uint8_t>;

// cpprestsdk does not report the port it was given, so a free one is chosen first. If another process takes
// it, opening fails and the next one is tried.
int find_free_port() {
  using boost::asio::ip::tcp;
  boost::asio::io_context io;
  return tcp::acceptor(io, {boost::asio::ip::address_v4::loopback(), 0}).local_endpoint().port();
}

std::string decoded(const std::string& text) {
  try {
    return web::uri::decode(text);
  } catch (const web::uri_exception&) {  // a stray percent sign stands for itself
    return text;
  }
}

std::map<std::string, std::string> decoded_query(const std::string& text) {
  std::map<std::string, std::string> query;
  for (auto& [name, value] : web::uri::split_query(boost::algorithm::replace_all_copy(text, "+", "%20"))) {
    query[decoded(name)] = decoded(value);
  }
  return query;
}

std::string header(const http_request& request, const char* name) {
  const auto found = request.headers().find(name);
  return found == request.headers().end() ? "" : found->second;
}

Request request_of(const http_request& message, std::string body) {
  Request request;
  request.method = message.method();
  request.path = decoded(message.request_uri().path());
  request.query = decoded_query(message.request_uri().query());
  request.accept = header(message, "Accept");
  request.content_type = header(message, "Content-Type");
  request.user_agent = header(message, "User-Agent");
  request.body = std::move(body);
  return request;
}

// A text in a Warning header: quoted, without line breaks (RFC 7234, section 5.5).
std::string quoted_warning(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
    }
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return "299 - \"" + quoted + "\"";
}

// Sends without waiting; a client that disconnected is no error.
pplx::task<void> send(http_request request, http_response response) {
  return request.reply(std::move(response)).then([](pplx::task<void> sent) {
    try {
      sent.get();
    } catch (const std::exception& problem) {
      log_debug("Could not send an answer", {{"problem", problem.what()}});
    }
  });
}

void write_into(Buffer& buffer, const std::string& text) {
  buffer.putn_nocopy(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()).wait();
  buffer.sync().wait();
}

// Closes the connection: the reading side of the stream fails, so the listener closes the socket.
void abort_connection(Buffer& buffer) {
  buffer.close(std::ios_base::out,
               std::make_exception_ptr(std::runtime_error("an injected fault closes the connection")));
}

// cpprestsdk opens and closes a listener in a task that waits for other threads of its pool, and the pool has one thread where a
// process also has a client (kube/transport.h). A thread that waits for a listener runs that task itself.
class ListenerScheduler final : public pplx::default_scheduler_t {
 public:
  static thread_local bool is_here;

  void schedule(pplx::TaskProc_t run, void* task) override {
    if (is_here) {
      run(task);
    } else {
      pplx::default_scheduler_t::schedule(run, task);
    }
  }

  // Once a process, before its first task.
  static void install() {
    static const bool installed = [] {
      pplx::set_ambient_scheduler(std::make_shared<ListenerScheduler>());
      return true;
    }();
    static_cast<void>(installed);
  }
};

thread_local bool ListenerScheduler::is_here = false;

void wait_for_listener(const std::function<pplx::task<void>()>& begin) {
  const struct Here {
    Here() { ListenerScheduler::is_here = true; }
    ~Here() { ListenerScheduler::is_here = false; }
  } here;
  begin().get();
}

// Lets cpprestsdk's threads handle what clients have sent, and that they have gone. Closing the listener closes its sockets on one
// thread while others may be about to read from them (http_server_asio.cpp: asio_server_connection::close); such a read may be lost, and
// the listener then waits for its end for ever.
void let_connections_settle() {
  for (int i = 0; i < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(15));
    std::promise<void> handled;
    crossplat::threadpool::shared_instance().service().post([&handled] { handled.set_value(); });
    handled.get_future().wait();
  }
}

class CpprestServer final : public HttpServer {
 public:
  CpprestServer(Api& api, const HttpServerOptions& options)
      : api_(api),
        options_(options),
        readers_(options.readers, options.queue),
        writers_(options.writers, options.queue) {}
  ~CpprestServer() override { stop(); }

  Result<void> open(int port) {
    http_listener_config config;
    config.set_ssl_context_callback([this](boost::asio::ssl::context& tls) {
      // An exception in here would end the process; a context without certificate only fails handshakes.
      boost::system::error_code error;
      tls.set_options(boost::asio::ssl::context::default_workarounds | boost::asio::ssl::context::no_sslv3,
                      error);
      tls.use_certificate_chain(boost::asio::buffer(options_.certificate_pem), error);
      if (!error) {
        tls.use_private_key(boost::asio::buffer(options_.key_pem), boost::asio::ssl::context::pem, error);
      }
      if (error) {
        log_error("Could not use the certificate", {{"problem", error.message()}});
      }
    });
    try {
      listener_ = http_listener("https://127.0.0.1:" + std::to_string(port), config);
      listener_.support([this](http_request request) { accept(std::move(request)); });
      wait_for_listener([this] { return listener_.open(); });
    } catch (const std::exception& problem) {
      return Error(ErrorCode::kUnavailable,
                   "cannot listen on port " + std::to_string(port) + ": " + problem.what());
    }
    port_ = port;
    open_ = true;
    return {};
  }

  int port() const override { return port_; }

  void drop_watches() override {
    ++generation_;
    api_.store().wake();
  }

  std::size_t open_watches() const override {
    const std::lock_guard lock(mutex_);
    return watches_;
  }

  void stop() override {
    if (!open_.exchange(false)) {
      return;
    }
    stopping_ = true;
    api_.store().wake();
    {
      std::unique_lock lock(mutex_);
      watch_ended_.wait(lock, [this] { return watches_ == 0; });
    }
    reap(true);
    readers_.stop();
    writers_.stop();
    let_connections_settle();
    try {
      wait_for_listener([this] { return listener_.close(); });
    } catch (const std::exception& problem) {
      log_warning("Could not close the listener", {{"problem", problem.what()}});
    }
    const std::unique_lock lock(life_->mutex);
    life_->over = true;
  }

 private:
  // On cpprestsdk's pool: must not block.
  void accept(http_request message) {
    if (message.headers().content_length() > api_.body_limit()) {
      reply(message, reply_status(too_large(api_.body_limit())));
      return;
    }
    message.extract_vector().then(
        [this, life = life_, message](const pplx::task<std::vector<unsigned char>>& reading) {
          const std::shared_lock lock(life->mutex);
          if (!life->over) {
            receive(message, reading);
          }
        });
  }

  void receive(const http_request& message, const pplx::task<std::vector<unsigned char>>& reading) {
    std::string body;
    try {
      const std::vector<unsigned char> bytes = reading.get();
      body.assign(bytes.begin(), bytes.end());
    } catch (const std::exception& problem) {
      reply(message, reply_status(bad_request(std::string("cannot read the body: ") + problem.what())));
      return;
    }
    if (!authorized(message)) {
      Status status;
      status.code = 401;
      status.reason = "Unauthorized";
      status.message = "Unauthorized";
      reply(message, reply_status(status));
      return;
    }
    WorkerPool& pool = message.method() == web::http::methods::GET ? readers_ : writers_;
    const bool taken = pool.submit([this, message, body = std::move(body)]() mutable {
      answer(message, request_of(message, std::move(body)));
    });
    if (!taken) {
      reply(message, reply_status(too_many_requests(1)));
    }
  }

  bool authorized(const http_request& message) const {
    const std::string path = message.request_uri().path();
    const bool is_probe = path == "/healthz" || path == "/readyz" || path == "/livez" || path == "/version";
    return options_.token.empty() || is_probe ||
           header(message, "Authorization") == "Bearer " + options_.token;
  }

  // On a worker.
  void answer(const http_request& message, const Request& request) {
    Answer answer = api_.handle(request);
    if (Reply* plain = std::get_if<Reply>(&answer)) {
      reply(message, std::move(*plain));
      return;
    }
    start_watch(message, std::move(std::get<WatchPlan>(answer)));
  }

  void reply(const http_request& message, Reply reply) {
    http_response response(static_cast<web::http::status_code>(reply.code));
    for (const std::string& warning : reply.warnings) {
      response.headers().add("Warning", quoted_warning(warning));
    }
    if (reply.retry_after_seconds > 0) {
      response.headers().add("Retry-After", reply.retry_after_seconds);
    }
    if (reply.truncate) {
      Buffer buffer;
      response.headers().set_content_type(reply.content_type);
      response.set_body(buffer.create_istream(), reply.content_type);
      send(message, std::move(response));
      write_into(buffer, reply.body.substr(0, reply.body.size() / 2));
      abort_connection(buffer);
      return;
    }
    response.set_body(std::move(reply.body), reply.content_type);
    send(message, std::move(response));
  }

  void start_watch(const http_request& message, WatchPlan plan) {
    reap(false);
    const std::lock_guard lock(mutex_);
    if (stopping_ || watches_ >= options_.watches) {
      reply(message, reply_status(too_many_requests(1)));
      return;
    }
    ++watches_;
    threads_.emplace_back();
    Watcher& watcher = threads_.back();
    watcher.thread = std::thread([this, message, plan = std::move(plan), &watcher] {
      run_watch(message, plan);
      const std::lock_guard ended(mutex_);
      watcher.done = true;
      --watches_;
      watch_ended_.notify_all();
    });
  }

  void run_watch(const http_request& message, const WatchPlan& plan) {
    Buffer buffer;
    http_response response(200);
    response.set_body(buffer.create_istream(), "application/json");
    const auto gone = std::make_shared<std::atomic<bool>>(false);
    Store& store = api_.store();
    send(message, std::move(response)).then([this, life = life_, gone] {
      *gone = true;
      const std::shared_lock lock(life->mutex);
      if (!life->over) {
        api_.store().wake();
      }
    });
    const int generation = generation_;
    const auto stopped = [&] { return stopping_ || *gone || generation != generation_; };
    const auto write = [&](const std::string& line) {
      if (*gone || buffer.size() > options_.watch_buffer) {
        return false;
      }
      write_into(buffer, line);
      return true;
    };
    const StreamEnd end = stream_watch(plan, store, options_.watch_stream, write, stopped);
    if (end == StreamEnd::kAborted || buffer.size() > options_.watch_buffer) {
      abort_connection(buffer);
    } else {
      buffer.close(std::ios_base::out).wait();
    }
    // A client that does not read must not delay stop(); closing the listener disconnects it.
    for (int i = 0; i < 200 && !*gone && !stopping_; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  // Joins the threads of watches that have ended.
  void reap(bool all) {
    std::list<Watcher> ended;
    {
      const std::lock_guard lock(mutex_);
      for (auto at = threads_.begin(); at != threads_.end();) {
        const auto next = std::next(at);
        if (all || at->done) {
          ended.splice(ended.end(), threads_, at);
        }
        at = next;
      }
    }
    for (Watcher& watcher : ended) {
      watcher.thread.join();
    }
  }

  // cpprestsdk's continuations may run after the listener has closed; they check this first.
  struct Life {
    std::shared_mutex mutex;
    bool over = false;
  };

  struct Watcher {
    std::thread thread;
    bool done = false;
  };

  Api& api_;
  const HttpServerOptions options_;
  const std::shared_ptr<Life> life_ = std::make_shared<Life>();
  int port_ = 0;
  std::atomic<bool> open_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<int> generation_{0};
  mutable std::mutex mutex_;
  std::condition_variable watch_ended_;
  std::list<Watcher> threads_;
  std::size_t watches_ = 0;
  WorkerPool readers_;
  WorkerPool writers_;
  http_listener listener_;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(Api& api, const HttpServerOptions& options) {
  try {
    ListenerScheduler::install();
  } catch (const std::exception& problem) {
    return Error(ErrorCode::kInternal,
                 std::string("start the fake API server before the first client: ") + problem.what());
  }
  Error last(ErrorCode::kUnavailable, "no free port on 127.0.0.1");
  const int attempts = options.port == 0 ? 20 : 1;
  for (int i = 0; i < attempts; ++i) {
    const int port = options.port == 0 ? find_free_port() : options.port;
    auto server = std::make_unique<CpprestServer>(api, options);
    const Result<void> opened = server->open(port);
    if (opened) {
      return std::unique_ptr<HttpServer>(std::move(server));
    }
    last = opened.error();
  }
  return last;
}

}  // namespace plimsoll::testing::fake

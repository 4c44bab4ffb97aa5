// ObjectServer: as much of an API server as a cache needs: pods and TrainingJobs, made up as they are sent,
// by LIST and WATCH (with initial events) over plain HTTP on the loopback, to any number of clients.
//
//   ObjectServer server({.pods = 50'000, .jobs = 10'000});
//   ... clients list and watch http://127.0.0.1:server.port() ...
//   server.change_pods(20'000);   // each watch of pods gets so many MODIFIED events, as fast as it reads
//
// A thread a connection. The destructor cuts them all.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace plimsoll::testing {

class ObjectServer {
 public:
  struct Options {
    int pods = 0;
    int jobs = 0;
  };
  explicit ObjectServer(Options options);
  ~ObjectServer();
  ObjectServer(const ObjectServer&) = delete;
  ObjectServer& operator=(const ObjectServer&) = delete;

  std::uint16_t port() const { return port_; }
  void change_pods(int events);

 private:
  class Stream;
  struct Connection {
    int socket = -1;
    std::thread thread;
  };

  void accept_all();
  void serve(int socket);
  bool answer(int socket, std::string_view target);
  void list(Stream& stream, bool pods) const;
  void watch(Stream& stream, bool pods, bool initial_events);

  const Options options_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::thread acceptor_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Connection> connections_;
  int changes_ = 0;  // of pods, in all
  bool closing_ = false;
};

}  // namespace plimsoll::testing

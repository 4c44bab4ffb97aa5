// Scraper: reads the metrics of a process of the chart as Prometheus does, over HTTPS with a token.
//
//   Scraper scraper(*server, "operator");
//   auto process = PlimsollProcess::start("operator", scraper.options(), ...);
//   int status = scraper.status_for(token);
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "tests/controlplane/api_server.h"
#include "tests/http/peer.h"

namespace plimsoll::testing {

class Scraper {
 public:
  Scraper(const ApiServer& server, const std::string& name)
      : port_file_(server.directory() + "/" + name + ".metrics-port") {}

  // Of the process to be scraped.
  std::vector<std::string> options() const {
    return {"--metrics-secure=true", "--metrics-port=0", "--metrics-port-file=" + port_file_};
  }

  // Of the answer; an empty token: none is sent.
  Response answer_to(const std::string& token) const {
    int port = 0;
    std::ifstream(port_file_) >> port;
    Peer peer(static_cast<std::uint16_t>(port));
    const std::string header = token.empty() ? "" : "Authorization: Bearer " + token + "\r\n";
    if (!peer.start_tls() || !peer.write("GET /metrics HTTP/1.1\r\nHost: x\r\n" + header + "\r\n")) {
      return {};
    }
    return peer.read_response().value_or(Response{});
  }
  int status_for(const std::string& token) const { return answer_to(token).status; }

 private:
  const std::string port_file_;
};

}  // namespace plimsoll::testing

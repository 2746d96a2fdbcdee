// lathe serve at four times what it can do, with all that clients do wrong. Disabled: scripts/soak overload runs it,
// for OVERLOAD_SECONDS.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <random>

#include "testing/http_client.h"
#include "testing/serve_process.h"

namespace lathe {
namespace {

using testing::ask;
using testing::HttpAnswer;
using testing::HttpClient;
using testing::ServeProcess;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr int kMaxRunning = 8, kMaxQueue = 48;
constexpr double kMaxWait = 10;    // seconds, as configured
constexpr double kWriteStall = 3;  // likewise
constexpr int kClients = 192;      // threads; each has one connection at a time
constexpr int kOutput = 32;

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

std::string post(const std::string& path, const std::string& body, const std::string& more = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + more +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

// A value of the Prometheus text, summed over labels that hold `with`.
double metric(int port, const std::string& name, const std::string& with = "") {
  std::istringstream lines(ask(port, "GET", "/metrics").body);
  double sum = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("lathe_" + name + "{") && line.find(with) != std::string::npos)
      sum += std::atof(line.substr(line.rfind(' ')).c_str());
  return sum;
}

struct Counts {
  std::atomic<int64_t> sent{0}, answered{0}, refused{0}, refused_without_retry{0}, bad{0}, cut{0}, cancelled{0},
      unexpected{0}, unfinished{0};
  std::mutex mutex;
  std::vector<double> first_seconds, whole_seconds;  // of admitted ones that were read to their end
  std::string example;

  void took(double first, double whole) {
    const std::lock_guard lock(mutex);
    first_seconds.push_back(first), whole_seconds.push_back(whole);
  }
  void wonder(const std::string& what) {
    ++unexpected;
    const std::lock_guard lock(mutex);
    if (example.empty()) example = what.substr(0, 400);
  }
};

class Clients {
 public:
  Clients(int port, Counts& counts) : port_(port), counts_(counts) {}

  // One request of any kind.
  void act(std::mt19937_64& random) {
    ++counts_.sent;
    const int kind = static_cast<int>(random() % 100);
    if (kind < 45) return stream(random, Manner::kWhole);
    if (kind < 60) return whole(random);
    if (kind < 70) return stream(random, Manner::kLeaves);
    if (kind < 77) return stream(random, Manner::kCancels);
    if (kind < 85) return stream(random, Manner::kReadsSlowly);
    broken(random);
  }
  void whole(std::mt19937_64& random) {
    const auto begin = Clock::now();
    const HttpAnswer a = ask(port_, "POST", "/v1/completions", body(random, false));
    if (a.status == 200 && a.complete) {
      ++counts_.answered;
      counts_.took(seconds_since(begin), seconds_since(begin));
    } else {
      refused(a.status, a.headers.contains("retry-after"), a.body);
    }
  }

 private:
  enum class Manner { kWhole, kLeaves, kCancels, kReadsSlowly };

  std::string body(std::mt19937_64& random, bool stream) {
    // A few beginnings that many share, then noise of their own.
    static const std::vector<std::string> beginnings = {"Once there was a fox who lived in the tower.",
                                                        "Tara went to the station.",
                                                        "Compute the sum of all of these: "};
    std::string prompt;
    const std::string& beginning = beginnings[random() % beginnings.size()];
    for (size_t i = 0, n = random() % 12; i <= n; ++i) prompt += beginning;
    for (size_t i = 0, n = random() % 40; i < n; ++i) prompt += std::to_string(random() % 1000) + " ";
    Json j = {{"prompt", prompt}, {"max_tokens", kOutput}, {"ignore_eos", true}, {"stream", stream}};
    if (random() % 8 == 0) j["n"] = 3;
    if (random() % 8 == 0) j["stop"] = {"the"};
    if (random() % 8 == 0) j.erase("ignore_eos"), j["guided_regex"] = "[a-z ]{4,40}";
    if (random() % 4 == 0) j["priority"] = -static_cast<int>(random() % 3);
    return j.dump();
  }

  void refused(int status, bool retry_after, const std::string& text) {
    if (status == 503) {
      ++counts_.refused;
      if (!retry_after) ++counts_.refused_without_retry;
    } else if (status == 0) {
      ++counts_.cut;
    } else {
      counts_.wonder(fmt(status) + " " + text);
    }
  }
  static std::string fmt(int status) { return "status " + std::to_string(status); }

  void stream(std::mt19937_64& random, Manner manner) {
    const auto begin = Clock::now();
    HttpClient client(port_, manner == Manner::kReadsSlowly ? 2048 : 0);
    const std::string id = "soak-" + std::to_string(random());
    if (!client.send(post("/v1/completions", body(random, true), "X-Request-Id: " + id + "\r\n"))) {
      ++counts_.cut;
      return;
    }
    std::string got;
    double first = -1;
    for (;;) {
      const std::string more = client.read_some(60);
      if (more.empty()) break;
      got += more;
      if (first < 0 && got.find("data: ") != std::string::npos) {
        first = seconds_since(begin);
        if (manner == Manner::kLeaves) return client.close(), void(++counts_.cancelled);
        if (manner == Manner::kCancels) ask(port_, "POST", "/v1/requests/" + id + "/cancel", "{}");
      }
      if (manner == Manner::kReadsSlowly) std::this_thread::sleep_for(std::chrono::milliseconds(200));
      const size_t head = got.find("\r\n\r\n");
      if (head != std::string::npos && !got.starts_with("HTTP/1.1 200")) {
        return refused(std::atoi(got.c_str() + 9), got.find("Retry-After") != std::string::npos, got);
      }
      if (got.find("data: [DONE]") != std::string::npos) {
        ++counts_.answered;
        if (manner == Manner::kWhole) counts_.took(first, seconds_since(begin));
        return;
      }
      if (got.find("\"error\"") != std::string::npos) {
        if (manner == Manner::kCancels)
          ++counts_.cancelled;
        else
          counts_.wonder(got.substr(got.find("\"error\"")));
        return;
      }
    }
    // The connection ended, or a minute of silence.
    if (manner == Manner::kReadsSlowly)
      ++counts_.cut;
    else
      ++counts_.unfinished;
  }

  // What no client should send. The server answers 4xx, or closes; it must not answer 5xx but 503.
  void broken(std::mt19937_64& random) {
    static const std::vector<std::string> frames = {
        "GARBAGE\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999\r\n\r\n",
        post("/v1/completions", "{\"prompt\": \"abc"),
        post("/v1/completions", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["),
        post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": )"
                                     R"({"url": "data:image/png;base64,AAAA"}}]}]})"),
        post("/v1/completions", R"({"prompt": "x", "guided_regex": "(((((((("})"),
        post("/v1/completions", R"({"prompt": "x", "max_tokens": -1})"),
        post("/v1/completions", R"({"prompt": ")" + std::string(200000, 'x') + R"("})"),
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        "500\r\n\r\n{\"prompt\": ",
    };
    HttpClient client(port_);
    client.send(frames[random() % frames.size()]);
    const std::string got = client.read_some(0.5);
    if (got.starts_with("HTTP/1.1 5") && !got.starts_with("HTTP/1.1 503")) counts_.wonder(got);
    ++counts_.bad;
  }

  const int port_;
  Counts& counts_;
};

double percentile(std::vector<double> v, double p) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<size_t>(p * static_cast<double>(v.size())))];
}

int free_port() {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET, a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof a;
  EXPECT_EQ(bind(s, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
  getsockname(s, reinterpret_cast<sockaddr*>(&a), &size);
  ::close(s);
  return ntohs(a.sin_port);
}

// Answers a second when as many ask as are decoded at once.
double capacity(int port, double seconds) {
  Counts counts;
  std::vector<std::thread> threads;
  const auto begin = Clock::now();
  for (int t = 0; t < kMaxRunning; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      Clients clients(port, counts);
      while (seconds_since(begin) < seconds) clients.whole(random);
    });
  for (std::thread& t : threads) t.join();
  return static_cast<double>(counts.answered) / seconds_since(begin);
}

TEST(Overload, DISABLED_FourTimesCapacity) {
  const char* const asked = std::getenv("OVERLOAD_SECONDS");
  const double seconds = asked ? std::atof(asked) : 3600;
  const int admin = free_port();
  ServeProcess server({
      "--max-context",
      "2048",
      "--max-running",
      std::to_string(kMaxRunning),
      "--max-queue",
      std::to_string(kMaxQueue),
      "--max-wait-seconds",
      std::to_string(kMaxWait),
      "--write-stall-seconds",
      std::to_string(kWriteStall),
      "--body-idle-seconds",
      "3",
      "--cache-tokens",
      "16384",
      "--checkpoints",
      "32",
      "--host-tier-bytes",
      "67108864",
      "--admin",
      "127.0.0.1:" + std::to_string(admin),
  });
  const int port = server.logged("listening", "port").get<int>();
  ASSERT_EQ(server.logged("ready", "max_context"), 2048) << server.log();
  ASSERT_EQ(ask(admin, "POST", "/admin/log-level/error").status, 200);

  const double can = capacity(port, std::min(20.0, seconds / 10));
  ASSERT_GT(can, 0);
  // Answers and refusals together come at four times that rate.
  const double interval = 1 / (4 * can);
  Counts counts;
  std::atomic<int64_t> next{0};
  std::atomic<double> latest{0};
  std::vector<std::thread> threads;
  const auto begin = Clock::now();
  for (int t = 0; t < kClients; ++t)
    threads.emplace_back([&, t] {
      std::mt19937_64 random(1000 + t);
      Clients clients(port, counts);
      for (;;) {
        const double due = static_cast<double>(next++) * interval;
        if (due >= seconds) return;
        std::this_thread::sleep_until(begin +
                                      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due)));
        latest = std::max(latest.load(), seconds_since(begin) - due);
        clients.act(random);
      }
    });
  // Memory, once the caches are full, and at the end.
  std::vector<int64_t> resident;
  while (seconds_since(begin) < seconds) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    resident.push_back(server.resident_bytes());
  }
  const auto over = Clock::now();
  for (std::thread& t : threads) t.join();
  const double tail = seconds_since(over);

  auto median_of = [](std::vector<int64_t> v) {
    std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
  };
  const size_t n = resident.size();
  const double early = static_cast<double>(median_of({resident.begin() + static_cast<std::ptrdiff_t>(n / 4),
                                                      resident.begin() + static_cast<std::ptrdiff_t>(n / 2)})),
               late = static_cast<double>(
                   median_of({resident.end() - static_cast<std::ptrdiff_t>(n / 4), resident.end()}));
  std::printf(
      "summary: %.0f s at 4 x %.1f requests a second: %lld sent, %lld answered, %lld refused, %lld broken, %lld "
      "cancelled, %lld "
      "cut off as too slow; first token p50 %.2f s, p99 %.2f s; whole p99 %.2f s; resident %.0f MB, then %.0f MB; the "
      "last one %.1f s behind the load, an arrival %.2f s late at most\n",
      seconds, can, static_cast<long long>(counts.sent), static_cast<long long>(counts.answered),
      static_cast<long long>(counts.refused), static_cast<long long>(counts.bad),
      static_cast<long long>(counts.cancelled), static_cast<long long>(counts.cut),
      percentile(counts.first_seconds, 0.5), percentile(counts.first_seconds, 0.99),
      percentile(counts.whole_seconds, 0.99), early / 1e6, late / 1e6, tail, latest.load());

  EXPECT_GT(counts.answered, 0);
  EXPECT_GT(counts.refused, counts.sent / 4) << "it wasn't overload";
  EXPECT_EQ(counts.refused_without_retry, 0);
  EXPECT_EQ(counts.unexpected, 0) << counts.example;
  EXPECT_EQ(counts.unfinished, 0) << "a stream was silent for a minute, or ended without a word";
  // Collapse would show as answers that nobody gets: what is admitted must go on at a good part of the full rate.
  EXPECT_GT(static_cast<double>(counts.answered) / seconds, 0.4 * can);
  // The wait that admission allows, and the time that one takes by itself.
  EXPECT_LT(percentile(counts.first_seconds, 0.99), kMaxWait + 5);
  EXPECT_LT(late, 1.05 * early + 16e6);

  // Nothing is stuck and nothing is held.
  auto held = [&] {
    return metric(port, "requests_running") + metric(port, "requests_waiting") +
           metric(port, "pages", "state=\"used\"") + metric(port, "recurrent_slots", "state=\"used\"") +
           metric(port, "host_tier_bytes");
  };
  double left = 1;
  for (int i = 0; i < 200 && left > 0; ++i) {
    EXPECT_EQ(ask(admin, "POST", "/admin/cache/flush").status, 200);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    left = held();
  }
  EXPECT_EQ(left, 0) << ask(port, "GET", "/metrics").body;
  EXPECT_LE(metric(port, "http_connections"), 2) << "this one, and one that is just closing";
  EXPECT_EQ(metric(port, "engine_faults_total"), 0);
  server.signal(SIGTERM);
  EXPECT_EQ(server.exit_code(), 0) << server.log().substr(0, 4000);
}

}  // namespace
}  // namespace lathe

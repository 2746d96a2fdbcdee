#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <vector>

#include "engine/service.h"

// Load for a service in this process, and when its answers came.
namespace lathe {

struct ServedTimes {
  SteadyTime due, submitted, first, last;  // due: when the request was to be sent; first, last: tokens
  int tokens = 0;
  std::vector<double> gap_us;  // between the events that brought tokens
  Usage usage;
  bool done = false, refused = false, failed = false;

  double first_us() const { return std::chrono::duration<double, std::micro>(first - due).count(); }
  double decode_us() const { return std::chrono::duration<double, std::micro>(last - first).count(); }
};

// Sends requests and keeps their times. One thread sends and waits.
class LoadClient {
 public:
  explicit LoadClient(Service& service) : service_(service) {}
  ~LoadClient() { wait_until(0); }

  void send(Request request) { send(std::move(request), std::chrono::steady_clock::now()); }
  void send(Request request, SteadyTime due);
  // Returns when at most so many are in flight.
  void wait_until(int in_flight);
  // Waits for all; times in the order in which the requests were sent. Begins anew.
  std::vector<ServedTimes> take();

 private:
  void receive(size_t index, const RequestEvent& event);

  Service& service_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<ServedTimes> times_;
  int in_flight_ = 0;
};

// A request of ids that mean nothing: ends are ignored, so that it has just these lengths.
struct LoadShape {
  int input = 256, output = 64;
  double shared = 0;    // of the prompt: the same in all requests
  double pictures = 0;  // of the requests: with one picture, which adds its tokens
  uint64_t seed = 1;
};

class LoadSource {
 public:
  LoadSource(Service& service, const LoadShape& shape);
  Result<Request> next();

 private:
  Status add_picture(Request& request);

  Service& service_;
  LoadShape shape_;
  std::mt19937_64 random_;
  std::vector<int32_t> beginning_;
  uint64_t made_ = 0;
};

struct LoadPlan {
  int requests = 200;
  double per_second = 0;  // open loop: independent arrivals at that rate; 0: closed loop
  int concurrency = 16;   // of a closed loop
};

// Runs the load; its wall time in seconds comes with the times.
struct LoadResult {
  std::vector<ServedTimes> times;
  double seconds = 0;
};
Result<LoadResult> run_load(Service& service, const LoadShape& shape, const LoadPlan& plan,
                            const std::function<void(int done)>& progress);

}  // namespace lathe

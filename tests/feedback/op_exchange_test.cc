#include "feedback/op_exchange.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "feedback/case_memory.h"
#include "feedback/cheats.h"
#include "feedback/compare_arms.h"
#include "ops/registry.h"

namespace lathe {
namespace {

// A candidate finds the supervisor's inputs where its own build of the case says they are.
TEST(OpExchange, PlacesAloneAreThoseOfTheValues) {
  auto device = make_cpu_device();
  for (const AnyOp& op : all_ops())
    for (int i = 0; i < static_cast<int>(op.cases.size()); ++i) {
      if (op.cases[i].bench) continue;
      CaseMemory memory = CaseMemory::create(*device, int64_t{1} << 30).value();
      const auto built = memory.build(op, i, 7, 0);
      const SharedMemory shared = SharedMemory::create(int64_t{1} << 30).value();
      const auto places = make_shared_device(shared);
      Arena arena = Arena::create(*places, shared.bytes()).value();
      CaseBuilder builder(*places, arena, 7, CaseBuilder::Content::kPlacesAlone);
      const auto empty = op.build(i, builder);
      EXPECT_EQ(arena.mark(), memory.used_bytes()) << op.name << " " << op.cases[i].name;
      EXPECT_EQ(layout_digest(empty->fields(), shared.data()), layout_digest(built->fields(), memory.base()))
          << op.name << " " << op.cases[i].name;
      EXPECT_EQ(std::count(shared.data(), shared.data() + 4096, 0), 4096) << op.name << ": values were made";
    }
}

// What a foreign supervisor may send: a server answers with an error and lives on.
TEST(OpExchange, AServerRefusesNonsense) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
  OpBehaviour honest;
  std::thread server(
      [&] { EXPECT_TRUE(serve_operators(ends[1], SharedMemory::create(1 << 20).value(), honest).is_ok()); });
  const auto ask = [&](const OpRequest& request) {
    OpReply reply;
    EXPECT_TRUE(send_packet(ends[0], &request, sizeof request).value());
    EXPECT_TRUE(receive_packet(ends[0], &reply, sizeof reply, 10000).value());
    return reply;
  };
  OpRequest request;
  EXPECT_EQ(ask(request).code, OpReply::kFailed);
  request.kind = OpRequest::kRun, request.count = 1;
  EXPECT_NE(get_text(ask(request).message).find("before a case was loaded"), std::string::npos);
  request.kind = OpRequest::kLoad;
  std::fill(std::begin(request.op), std::end(request.op), 'x');  // without an end
  EXPECT_EQ(ask(request).code, OpReply::kFailed);
  set_text(request.op, "add"), set_text(request.case_name, "rows1_w7_f32");
  request.slots = 1000;
  EXPECT_EQ(ask(request).code, OpReply::kFailed);
  request.slots = 1, request.slot_bytes = 1;
  EXPECT_NE(get_text(ask(request).message).find("bytes in this build"), std::string::npos);
  request.version = 99;
  EXPECT_NE(get_text(ask(request).message).find("version"), std::string::npos);
  close(ends[0]);
  server.join();
  close(ends[1]);
}

TEST(PlantedCandidates, AreManyAndHaveNamesOfTheirOwn) {
  int cheats = 0, honest = 0, slow = 0;
  for (const PlantedCandidate& p : planted_candidates()) {
    (p.kind == Planted::kCheat ? cheats : p.kind == Planted::kHonest ? honest : slow)++;
    EXPECT_EQ(planted_candidate(p.name), &p);
  }
  EXPECT_GE(cheats, 30);
  EXPECT_GE(honest, 5);
  EXPECT_GE(slow, 8);
}

TEST(CompareArms, NamesWhatDiffers) {
  const CompareArm a{.text = "a", .binary = "x", .build_id = "1", .variant = "avx2", .settings = {{"threads", "1"}}};
  CompareArm b = a;
  EXPECT_TRUE(factors(a, b).empty());
  b.variant.clear(), b.settings = {{"dtype", "f32"}, {"threads", "2"}};
  EXPECT_EQ(factors(a, b),
            (std::vector<std::string>{"variant avx2 -> default", "dtype default -> f32", "threads 1 -> 2"}));
}

}  // namespace
}  // namespace lathe

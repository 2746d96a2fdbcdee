#include "feedback/verify.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <set>

#include "ops/element.h"

// An operator with planted faults: verify must name each by its relation, and find nothing in the honest variants.
namespace lathe {
namespace {

struct SquareArgs {
  Rows x, y;  // [rows, width], f32; y = x², row by row

  template <class V>
  void visit(V&& f) {
    f("x", x, Role::kIn), f("y", y, Role::kOut);
  }
};

Status check(const SquareArgs& a) {
  return a.x.rows == a.y.rows && a.x.width == a.y.width ? Status::ok() : invalid("shapes differ");
}

Status honest(OpContext&, const SquareArgs& a) {
  for (int64_t r = 0; r < a.y.rows; ++r)
    for (int64_t i = 0; i < a.y.width; ++i) store(a.y, r, i, load(a.x, r, i) * load(a.x, r, i));
  return Status::ok();
}
Status wrong_number(OpContext& ctx, const SquareArgs& a) {
  LATHE_RETURN_IF_ERROR(honest(ctx, a));
  a.y.f32()[0] += 1;
  return Status::ok();
}
Status skips_last_row(OpContext& ctx, const SquareArgs& a) {
  SquareArgs fewer = a;
  fewer.x.rows = fewer.y.rows = a.y.rows - 1;
  return honest(ctx, fewer);
}
Status writes_behind(OpContext& ctx, const SquareArgs& a) {
  LATHE_RETURN_IF_ERROR(honest(ctx, a));
  a.y.f32(a.y.rows - 1)[a.y.width] = 1;
  return Status::ok();
}
Status changes_input(OpContext& ctx, const SquareArgs& a) {
  LATHE_RETURN_IF_ERROR(honest(ctx, a));
  a.x.f32()[1] = 0;
  return Status::ok();
}
Status depends_on_threads(OpContext& ctx, const SquareArgs& a) {
  LATHE_RETURN_IF_ERROR(honest(ctx, a));
  a.y.f32()[0] *= 1 + 1e-7f * static_cast<float>(ctx.pool->threads());
  return Status::ok();
}
Status never_the_same(OpContext& ctx, const SquareArgs& a) {
  static std::atomic<int> calls{0};
  LATHE_RETURN_IF_ERROR(honest(ctx, a));
  a.y.f32()[0] *= 1 + 1.2e-7f * static_cast<float>(++calls % 7);
  return Status::ok();
}
Status adds_what_scratch_held(OpContext& ctx, const SquareArgs& a) {
  LATHE_RETURN_IF_ERROR(honest(ctx, a));
  const ArenaScope scope(*ctx.scratch);
  const auto* stale = ctx.scratch->take<uint8_t>(64);
  if (*stale == 0x7f) a.y.f32()[0] *= 1 + 2e-7f;
  return Status::ok();
}
Status knows_its_company(OpContext& ctx, const SquareArgs& a) {
  LATHE_RETURN_IF_ERROR(honest(ctx, a));
  for (int64_t r = 0; r < a.y.rows; ++r) a.y.f32(r)[0] *= 1 + 2e-7f * static_cast<float>(a.y.rows);
  return Status::ok();
}
Status fails(OpContext&, const SquareArgs&) { return internal("planted"); }

AnyOp op_with(const char* name, Status (*faulty)(OpContext&, const SquareArgs&), double tolerance = 1e-5,
              bool alone = true) {
  static std::map<std::string, std::vector<Variant<SquareArgs>>> kept;  // an Op holds its variants by reference
  auto& variants = kept[name];
  variants = {{"faulty", always, faulty}, {"reference", always, honest}};
  return any_op(Op<SquareArgs>{"square", variants, check},
                {Case<SquareArgs>{{.name = "rows5_w9", .bytes = 360, .flop = 45, .tolerance = tolerance},
                                  [](CaseBuilder& b) {
                                    return SquareArgs{b.rows(5, 9, DType::kF32), b.empty_rows(5, 9, DType::kF32)};
                                  }}},
                alone ? rows_alone<SquareArgs> : nullptr);
}

// The relations that failed, each once, in alphabetical order.
std::string failed_relations(const AnyOp& op, VerifyOptions options = {}) {
  options.seeds = 2;
  Result<VerifyReport> report = verify(std::span(&op, 1), options, nullptr);
  EXPECT_TRUE(report.is_ok()) << report.status().message();
  std::set<std::string> relations;
  for (const Failure& f : report->failures) {
    relations.insert(f.relation);
    EXPECT_EQ(f.variant, f.relation == "plants" ? "" : "faulty") << f.what;
  }
  std::string text;
  for (const std::string& r : relations) text += (text.empty() ? "" : " ") + r;
  return text;
}

TEST(Verify, FindsNothingInAnHonestVariant) { EXPECT_EQ(failed_relations(op_with("honest", honest)), ""); }
TEST(Verify, FindsAWrongNumber) {
  EXPECT_EQ(failed_relations(op_with("wrong", wrong_number, 1e-5, false)), "oracle");
  // It is wrong in one row of several, and not in a row that runs alone.
  EXPECT_EQ(failed_relations(op_with("wrong_in_company", wrong_number)), "alone oracle");
}
TEST(Verify, FindsAnUnwrittenRow) {
  const std::string relations = failed_relations(op_with("skips", skips_last_row, 1e-5, false));
  EXPECT_NE(relations.find("written"), std::string::npos) << relations;
  EXPECT_NE(relations.find("oracle"), std::string::npos) << relations;
}
TEST(Verify, FindsAWriteBehindAnOutput) {
  EXPECT_EQ(failed_relations(op_with("behind", writes_behind, 1e-5, false)), "stray");
}
TEST(Verify, FindsAChangedInput) { EXPECT_EQ(failed_relations(op_with("input", changes_input, 1e-5, false)), "stray"); }
TEST(Verify, FindsAResultThatDependsOnThreads) {
  EXPECT_EQ(failed_relations(op_with("threads", depends_on_threads, 1e-5, false)), "threads");
}
TEST(Verify, FindsAResultThatIsNeverTheSame) {
  EXPECT_NE(failed_relations(op_with("never", never_the_same, 1e-5, false)), "");
}
TEST(Verify, FindsAResultThatDependsOnOldScratch) {
  EXPECT_EQ(failed_relations(op_with("scratch", adds_what_scratch_held, 1e-5, false)), "repeatable");
}
TEST(Verify, FindsARowThatKnowsItsCompany) {
  EXPECT_EQ(failed_relations(op_with("company", knows_its_company)), "alone");
  EXPECT_EQ(failed_relations(op_with("company", knows_its_company, 1e-5, false)),
            "");  // where rows needn't stand alone
}
TEST(Verify, ReportsAVariantThatFails) { EXPECT_EQ(failed_relations(op_with("fails", fails)), "oracle"); }
TEST(Verify, SaysThatALooseToleranceCannotJudge) {
  EXPECT_EQ(failed_relations(op_with("loose", honest, 10)), "plants");
}

TEST(Verify, RunsTheOracleOnASimDevice) {
  EXPECT_EQ(failed_relations(op_with("sim", wrong_number), {.device = "sim"}), "");  // sim runs the reference alone
}

TEST(Verify, ReportsOneRowAVariantAndCase) {
  const AnyOp op = op_with("rows", honest);
  const VerifyReport report = verify(std::span(&op, 1), {}, nullptr).value();
  ASSERT_EQ(report.rows.size(), 2u);
  EXPECT_EQ(report.rows[0].op, "square");
  EXPECT_EQ(report.rows[0].case_name, "rows5_w9");
  EXPECT_EQ(report.rows[0].error_ratio, 0);
  EXPECT_GT(report.plants, 0);
}

TEST(Verify, RefusesNamesThatMatchNothing) {
  const AnyOp op = op_with("names", honest);
  EXPECT_EQ(verify(std::span(&op, 1), {.ops = "circle"}, nullptr).status().code(), StatusCode::kInvalid);
  Choices choice;
  ASSERT_TRUE(choice.add("square=fast").is_ok());
  EXPECT_EQ(verify(std::span(&op, 1), {.choices = &choice}, nullptr).status().code(), StatusCode::kInvalid);
}

}  // namespace
}  // namespace lathe

#include "feedback/verify_case.h"

#include <algorithm>
#include <cstring>

#include "feedback/judge.h"
#include "feedback/plants.h"

namespace lathe {

namespace {

// Address space, not memory: pages are touched as cases need them.
constexpr int64_t kCaseBytes = int64_t{16} << 30;
constexpr int64_t kScratchBytes = int64_t{16} << 30;

// 0xff is NaN in every float format, and -1. 0x7f is a number near the top of the range, or a NaN of e4m3.
constexpr uint8_t kPoison = 0xff, kOtherPoison = 0x7f;

std::vector<FieldView> in_image(const CaseMemory& memory, const std::vector<FieldView>& fields, const Image& image) {
  std::vector<FieldView> views;
  for (const FieldView& f : fields)
    if (f.elements() > 0) views.push_back(memory.in_image(f, image));
  return views;
}

std::vector<FieldView> inputs_of(const AnyCase& built) {
  std::vector<FieldView> fields = built.fields();
  std::erase_if(fields, [](const FieldView& f) { return f.role != Role::kIn; });
  return fields;
}

}  // namespace

struct VerifyBench::Subject {
  const AnyOp& op;
  int case_index;
  uint64_t seed;
  std::unique_ptr<AnyCase> built;
  Image before, before_other;  // over the two poisons
  Image expected;              // after the reference on the cpu
  Footprint footprint;

  const CaseInfo& info() const { return op.cases[case_index]; }
  void fail(VerifyReport& report, int variant, const char* relation, const std::string& what) const {
    report.failures.push_back({op.name, variant < 0 ? "" : op.variants[variant], info().name, seed, relation, what});
  }
  // Counts a check, and notes the failure if there is something to say.
  void note(VerifyReport& report, int variant, const char* relation, const std::string& what) const {
    ++report.checks;
    if (!what.empty()) fail(report, variant, relation, what);
  }
};

Result<std::unique_ptr<VerifyBench>> VerifyBench::create(const VerifyOptions& options) {
  LATHE_ASSIGN(std::unique_ptr<Device> device, make_device(options.device));
  LATHE_ASSIGN(CaseMemory memory, CaseMemory::create(*device, kCaseBytes));
  LATHE_ASSIGN(Arena scratch, Arena::create(*device, kScratchBytes));
  return std::unique_ptr<VerifyBench>(
      new VerifyBench(options, std::move(device), std::move(memory), std::move(scratch)));
}

Result<VerifyBench::Run> VerifyBench::run(AnyCase& built, const Image& before, int variant, ThreadPool& pool,
                                          uint8_t scratch_poison) {
  memory_.restore(before);
  const std::vector<char> poison(scratch_.peak_bytes(), static_cast<char>(scratch_poison));
  scratch_.reset();
  device_->to_device(scratch_.take(static_cast<int64_t>(poison.size())), poison.data(),
                     static_cast<int64_t>(poison.size()));
  scratch_.reset();
  OpContext ctx{.device = device_.get(), .pool = &pool, .scratch = &scratch_};
  Status status = built.run(ctx, variant);
  if (status.is_ok()) status = device_->synchronize();
  LATHE_ASSIGN(Image after, memory_.image());
  return Run{status, std::move(after)};
}

// The reference's result, from a cpu of its own when the device under test is another.
Result<Image> VerifyBench::oracle(const AnyOp& op, int case_index, uint64_t seed) {
  auto cpu = make_cpu_device();
  LATHE_ASSIGN(CaseMemory memory, CaseMemory::create(*cpu, kCaseBytes));
  LATHE_ASSIGN(Arena scratch, Arena::create(*cpu, kScratchBytes));
  auto built = memory.build(op, case_index, seed, kPoison);
  const auto reference = std::find(op.variants.begin(), op.variants.end(), "reference");
  if (reference == op.variants.end()) return internal("{} has no variant named reference", op.name);
  OpContext ctx{.device = cpu.get(), .pool = &one_, .scratch = &scratch};
  LATHE_RETURN_IF_ERROR(built->run(ctx, static_cast<int>(reference - op.variants.begin())));
  return memory.image();
}

std::string VerifyBench::first_difference(const Subject& s, const Image& a, const Image& b) const {
  for (const FieldView& f : s.built->outputs()) {
    if (f.elements() == 0) continue;
    const int64_t row = first_different_row(memory_.in_image(f, a), memory_.in_image(f, b));
    if (row >= 0) return fmt::format("{} differs from row {} on", f.name, row);
  }
  return "";
}

NumberRow VerifyBench::against_oracle(const Subject& s, int variant, const Image& result, VerifyReport& report) {
  NumberRow row{.op = s.op.name,
                .variant = s.op.variants[variant],
                .case_name = s.info().name,
                .device = options_.device,
                .bytes = static_cast<double>(s.info().bytes),
                .flop = static_cast<double>(s.info().flop),
                .error_ratio = 0};
  const auto expected = in_image(memory_, s.built->outputs(), s.expected),
             actual = in_image(memory_, s.built->outputs(), result);
  for (size_t i = 0; i < expected.size(); ++i) {
    const Judgement j = judge(expected[i], actual[i], s.info().tolerance, s.info().open_ties);
    s.note(report, variant, "oracle", j.fault);
    row.error_ratio = std::max(*row.error_ratio, j.error_ratio);
  }
  row.error_of_tolerance = *row.error_ratio == 0 ? 0 : *row.error_ratio / s.info().tolerance;
  return row;
}

Status VerifyBench::check_relations(const Subject& s, int variant, const Image& first, VerifyReport& report) {
  LATHE_ASSIGN(Run second, run(*s.built, s.before_other, variant, many_, kOtherPoison));
  if (!second.status.is_ok()) {
    s.note(report, variant, "repeatable", second.status.message());
    return Status::ok();
  }
  s.note(report, variant, "written", s.footprint.unwritten(memory_, first, kPoison, second.image, kOtherPoison));
  s.note(report, variant, "stray", s.footprint.stray_write(s.before_other, second.image));
  const std::string difference = first_difference(s, first, second.image);
  report.checks += 2;
  if (difference.empty()) return Status::ok();
  // Something differs: is it the threads, or the run?
  LATHE_ASSIGN(Run again, run(*s.built, s.before_other, variant, one_, kOtherPoison));
  const bool threads = first_difference(s, first, again.image).empty();
  s.fail(report, variant, threads ? "threads" : "repeatable",
         fmt::format("{}{}", difference,
                     threads ? fmt::format(" between 1 and {} threads", many_.threads())
                             : " between two runs over different contents of fresh memory"));
  return Status::ok();
}

Status VerifyBench::check_parts(const Subject& s, int variant, const Image& whole, VerifyReport& report) {
  const int64_t rows = row_count(s.built->fields());
  for (auto [begin, count] : {std::pair{int64_t{0}, int64_t{1}}, {rows - 1, int64_t{1}}, {rows / 3, (rows + 1) / 2}}) {
    if (count >= rows) continue;
    auto part = s.built->part(begin, count);
    LATHE_ASSIGN(Run alone, run(*part, s.before, variant, many_, kPoison));
    std::string what = alone.status.message();
    for (const FieldView& f : part->outputs())
      if (what.empty() && f.role == Role::kOut && f.elements() > 0 &&
          first_different_row(memory_.in_image(f, whole), memory_.in_image(f, alone.image)) >= 0)
        what = fmt::format("rows {} to {} alone: {} isn't what it is among {} rows", begin, begin + count - 1, f.name,
                           rows);
    s.note(report, variant, "alone", what);
  }
  return Status::ok();
}

// Sequences one after another leave what they leave together: the outputs, and all memory that they update.
Status VerifyBench::check_sequences(const Subject& s, int variant, const Image& whole, VerifyReport& report) {
  constexpr int64_t kEach = 8;  // so many go one by one; of more, the first and the last
  const int64_t all = s.built->sequences(), middle = all <= kEach ? 1 : all - 2;
  if (all < 2) return Status::ok();
  Image image = s.before;
  std::string what;
  for (int64_t begin = 0, count = 0; begin < all && what.empty(); begin += count) {
    count = begin == 0 || begin + middle >= all ? 1 : middle;
    auto part = s.built->part_of_sequences(begin, count);
    LATHE_ASSIGN(Run alone, run(*part, image, variant, many_, kPoison));
    what = alone.status.message();
    image = std::move(alone.image);
  }
  if (what.empty()) what = first_difference(s, whole, image);
  s.note(report, variant, "alone", what.empty() ? "" : fmt::format("{} sequences one by one: {}", all, what));
  return Status::ok();
}

Status VerifyBench::check_variant(const Subject& s, int variant, VerifyReport& report) {
  LATHE_ASSIGN(Run first, run(*s.built, s.before, variant, one_, kPoison));
  if (!first.status.is_ok()) {
    s.note(report, variant, "oracle", first.status.message());
    return Status::ok();
  }
  const NumberRow row = against_oracle(s, variant, first.image, report);
  const auto known = std::find_if(report.rows.rbegin(), report.rows.rend(), [&](const NumberRow& r) {
    return r.op == row.op && r.variant == row.variant && r.case_name == row.case_name;
  });
  if (known == report.rows.rend())
    report.rows.push_back(row);
  else if (*row.error_ratio > *known->error_ratio)
    *known = row;

  s.note(report, variant, "stray", s.footprint.stray_write(s.before, first.image));
  if (device_->kind() == DeviceKind::kSim) s.note(report, variant, "sim", first_difference(s, s.expected, first.image));
  LATHE_RETURN_IF_ERROR(check_relations(s, variant, first.image, report));
  if (!s.op.company_free[variant]) return Status::ok();
  if (s.op.rows_stand_alone) return check_parts(s, variant, first.image, report);
  const bool sequences = s.op.sequences_stand_alone && device_->shares_host_memory();
  return sequences ? check_sequences(s, variant, first.image, report) : Status::ok();
}

Status VerifyBench::check_plants(const Subject& s, VerifyReport& report) {
  LATHE_ASSIGN(Image other, oracle(s.op, s.case_index, s.seed + 1000));
  const PlantReport plants =
      try_plants(in_image(memory_, s.built->outputs(), s.expected), in_image(memory_, s.built->outputs(), other),
                 in_image(memory_, inputs_of(*s.built), s.before), s.info().tolerance, s.info().open_ties);
  report.plants += plants.planted;
  for (const std::string& accepted : plants.accepted)
    s.fail(report, -1, "plants", "the judge took for right: " + accepted);
  return Status::ok();
}

Status VerifyBench::check(const AnyOp& op, int case_index, uint64_t seed, VerifyReport& report) {
  LATHE_ASSIGN(Image expected, oracle(op, case_index, seed));
  memory_.build(op, case_index, seed, kOtherPoison);
  LATHE_ASSIGN(Image before_other, memory_.image());
  auto built = memory_.build(op, case_index, seed, kPoison);
  LATHE_ASSIGN(Image before, memory_.image());
  Footprint footprint(memory_, *built);
  const Subject s{op,
                  case_index,
                  seed,
                  std::move(built),
                  std::move(before),
                  std::move(before_other),
                  std::move(expected),
                  std::move(footprint)};
  if (s.expected.size() != s.before.size())
    return internal("{} {}: the case's memory differs between devices", op.name, s.info().name);

  const std::string* chosen = options_.choices ? options_.choices->find(op.name) : nullptr;
  for (int v = 0; v < static_cast<int>(op.variants.size()); ++v) {
    if (chosen && *chosen != op.variants[v]) continue;
    if (device_->kind() == DeviceKind::kSim && op.variants[v] != "reference")
      continue;  // that is all a sim device runs
    if (s.built->applies(v)) LATHE_RETURN_IF_ERROR(check_variant(s, v, report));
  }
  return seed == 1 && !s.info().bench ? check_plants(s, report) : Status::ok();
}

}  // namespace lathe

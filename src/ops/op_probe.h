#pragma once

#include "base/probe.h"
#include "ops/op.h"

namespace lathe {

// Makes each operator call a span, and passes it on to another observer.
class OpProbe : public OpObserver {
 public:
  OpProbe(Recorder* recorder, OpObserver* next) : recorder_(recorder), next_(next) {}

  void begin(const char* op, const char* variant, int64_t rows, Address address) override {
    if (next_) next_->begin(op, variant, rows, address);
    recorder_->event(ProbeKind::kBegin, op, variant, rows, {address.step, address.layer});
    recorder_->inject(Injection::Where::kSpan, op);
  }
  void end(const char* op, const char* variant, Address address) override {
    recorder_->event(ProbeKind::kEnd, op);
    if (next_) next_->end(op, variant, address);
  }
  bool wants_results() const override { return next_ && next_->wants_results(); }
  void results(const char* op, Address address, const std::vector<FieldView>& fields) override {
    next_->results(op, address, fields);
  }

 private:
  Recorder* recorder_;
  OpObserver* next_;
};

}  // namespace lathe

#pragma once

#include "base/probe.h"
#include "ops/op.h"

namespace lathe {

// Makes each operator call a span, and passes it on to another observer.
class OpProbe : public OpObserver {
 public:
  OpProbe(Recorder* recorder, OpObserver* next) : recorder_(recorder), next_(next) {}

  void begin(const char* op, const char* variant, Address address) override {
    if (next_) next_->begin(op, variant, address);
    recorder_->event(ProbeKind::kBegin, op, variant, -1, {address.step, address.layer});
    recorder_->inject(Injection::Where::kSpan, op);
  }
  void end(const char* op, const char* variant, Address address) override {
    recorder_->event(ProbeKind::kEnd, op);
    if (next_) next_->end(op, variant, address);
  }

 private:
  Recorder* recorder_;
  OpObserver* next_;
};

}  // namespace lathe

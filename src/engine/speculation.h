#pragma once

namespace lathe {

// A line through what was measured lately: seconds of a pass by its rows.
class PassCost {
 public:
  void measured(double rows, double seconds);
  bool known() const { return weight_ >= 3; }
  double seconds(double rows) const { return base() + slope() * rows; }
  double slope() const;  // of one row more

 private:
  double base() const;
  // Weighted sums, older passes counting less.
  double weight_ = 0, rows_ = 0, seconds_ = 0, rows_squared_ = 0, product_ = 0;
};

// How often one choice's drafts were right lately.
struct Acceptance {
  double rate = 0.7;  // of a draft, given that those before it were right
  int verified = 0, drafted = 0, accepted = 0;
  bool probe = false;  // drafts although they don't seem to pay, so that it's noticed when they do
};

// How many drafts are worth their time. A draft costs a row of the verification and its part of a pass of the MTP
// block; it brings a token with the probability that it and all before it are right. What a token is worth, and what
// rows and passes cost, is measured on this machine under this load.
class SpeculationControl {
 public:
  explicit SpeculationControl(int most) : most_(most) {}

  Acceptance fresh();  // of a choice that begins: as it was with others
  // Drafts of a choice where `sequences` decode together.
  int depth(const Acceptance& a, int sequences) const;
  // Whether the MTP block shall follow a choice that drafts nothing now, so that it can again when fewer decode.
  bool worth_following(int sequences) const;

  void verified(Acceptance& a, int drafts, int right);
  void decode_pass(int rows, double seconds) { decode_.measured(rows, seconds); }
  void draft_pass(int sequences, double seconds) { draft_.measured(sequences, seconds); }
  double rate() const { return rate_; }  // over all choices, lately

 private:
  int most_;
  double rate_ = 0.7;
  unsigned begun_ = 0;
  PassCost decode_, draft_;
};

}  // namespace lathe

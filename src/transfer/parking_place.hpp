// A place of the parking in the hands of a lane.
#pragma once

#include "transfer/host_budget.hpp"
#include "transfer/parking.hpp"

#include <cstddef>

namespace hippogriff {

// A piece of parking that goes back unless it is handed on. Parked data has half of the transfer's
// host memory at most, so that the lanes beside it have slots, and counts to the transfer's end:
// the parking keeps pieces.
class ParkingPlace {
 public:
  // `taken`: a place that the transfer has taken and counted already; nullptr: a new one.
  ParkingPlace(Parking& parking, HostBudget& budget, std::byte* taken = nullptr)
      : parking_(parking), budget_(budget), memory_(taken) {
    if (memory_ != nullptr || !budget_.take_of_half(Parking::piece_bytes)) {
      return;
    }
    memory_ = parking_.acquire();
    if (memory_ == nullptr) {
      budget_.give_back_unused(Parking::piece_bytes);
    }
  }

  ~ParkingPlace() {
    if (memory_ != nullptr) {
      parking_.release(memory_, in_use_ ? Parking::Reuse::no : Parking::Reuse::yes);
      budget_.give_back(Parking::piece_bytes);
    }
  }

  ParkingPlace(const ParkingPlace&) = delete;
  ParkingPlace& operator=(const ParkingPlace&) = delete;

  [[nodiscard]] std::byte* get() const { return memory_; }

  void set_in_use(bool in_use) { in_use_ = in_use; }

  // Somebody else has it now.
  void hand_on() { memory_ = nullptr; }

 private:
  Parking& parking_;
  HostBudget& budget_;
  std::byte* memory_;
  bool in_use_ = false;  // by the device
};

}  // namespace hippogriff

#include "base/device.h"

#include <gtest/gtest.h>

#include <thread>

namespace lathe {
namespace {

TEST(SimDevice, CopiesInOrderThroughItsOwnAddressSpace) {
  auto sim = make_sim_device();
  DeviceBuffer a = DeviceBuffer::allocate(*sim, 64).value();
  DeviceBuffer b = DeviceBuffer::allocate(*sim, 64).value();
  int value = 41;
  sim->to_device(a.as(), &value, sizeof value);
  value = 0;  // the source may be reused at once
  sim->enqueue([p = a.as<int>()] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ++*sim_to_host(p);
    return Status::ok();
  });
  sim->copy(b.as(), a.as(), sizeof value);
  ASSERT_TRUE(sim->to_host(&value, b.as(), sizeof value).is_ok());
  EXPECT_EQ(value, 42);
}

TEST(MakeDevice, SaysWhatIsMissing) {
  const auto unknown = make_device("tpu");
  ASSERT_FALSE(unknown.is_ok());
  EXPECT_NE(unknown.status().message().find("cpu, sim and cuda"), std::string::npos) << unknown.status().message();
  const auto cuda = make_device("cuda");
  if (cuda.is_ok()) GTEST_SKIP() << "a card is there";
  EXPECT_NE(cuda.status().message().find("--device cuda: "), std::string::npos) << cuda.status().message();
}

TEST(Device, TimesWorkThatIsLate) {
  auto sim = make_sim_device();
  const auto us = sim->time_us([&] {
    sim->enqueue([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return Status::ok();
    });
    return Status::ok();
  });
  ASSERT_TRUE(us.is_ok());
  EXPECT_GE(*us, 5000);
  EXPECT_FALSE(sim->time_us([] { return invalid("no"); }).is_ok());
}

TEST(SimDevice, TellsTheFirstErrorOnce) {
  auto sim = make_sim_device();
  sim->enqueue([] { return invalid("first"); });
  sim->enqueue([] { return invalid("second"); });
  EXPECT_EQ(sim->synchronize().message(), "first");
  EXPECT_TRUE(sim->synchronize().is_ok());
}

TEST(SimDeviceDeathTest, AHostThatUsesADevicePointerFaults) {
  auto sim = make_sim_device();
  DeviceBuffer a = DeviceBuffer::allocate(*sim, 64).value();
  EXPECT_DEATH(*a.as<volatile int>() = 1, "");
}

}  // namespace
}  // namespace lathe

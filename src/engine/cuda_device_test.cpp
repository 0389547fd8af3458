#include "engine/cuda_device.h"

#include <gtest/gtest.h>

namespace cachalot {
namespace {

TEST(CudaDevice, ItsTeamWaitsLongOnlyWhereItComputesExpertsAndLeavesACpuFree) {
  const int fitting = CudaDevice::default_threads();
  EXPECT_GT(CudaDevice::spins(fitting, true), ThreadTeam::kSpins);
  EXPECT_GT(CudaDevice::spins(1, true), ThreadTeam::kSpins);
  EXPECT_EQ(CudaDevice::spins(fitting, false), ThreadTeam::kSpins);
  EXPECT_EQ(CudaDevice::spins(1, false), ThreadTeam::kSpins);
  EXPECT_EQ(CudaDevice::spins(fitting + 1, true), ThreadTeam::kSpins);
}

}  // namespace
}  // namespace cachalot

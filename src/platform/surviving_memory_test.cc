#include "platform/surviving_memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "platform/temp_folder.h"

namespace kvist {
namespace {

TEST(SurvivingMemory, IsThereAfterItsProcessWasKilled) {
  const TempFolder folder = *TempFolder::Create(testing::TempDir());
  const std::string path = folder.path() + "/memory";
  const pid_t child = fork();
  if (child == 0) {
    auto memory = SurvivingMemory::Open(path);
    if (!memory.ok() || !(*memory)->Reset(4096).ok()) _exit(1);
    std::memcpy((*memory)->bytes().data() + 100, "twig", 4);
    raise(SIGKILL);
  }
  int state = 0;
  waitpid(child, &state, 0);
  ASSERT_TRUE(WIFSIGNALED(state));
  const auto memory = SurvivingMemory::Open(path);
  ASSERT_TRUE(memory.ok()) << memory.status();
  ASSERT_EQ((*memory)->bytes().size(), 4096u);
  EXPECT_EQ(std::memcmp((*memory)->bytes().data() + 100, "twig", 4), 0);
  ASSERT_TRUE((*memory)->Reset(8192).ok());
  for (const std::byte byte : (*memory)->bytes()) ASSERT_EQ(byte, std::byte{0});
}

TEST(SurvivingMemory, BelongsToOneProcessAndItsOwner) {
  const TempFolder folder = *TempFolder::Create(testing::TempDir());
  const std::string path = folder.path() + "/memory";
  const auto memory = SurvivingMemory::Open(path);
  ASSERT_TRUE(memory.ok());
  EXPECT_TRUE((*memory)->bytes().empty());
  EXPECT_EQ(SurvivingMemory::Open(path).status().code(), absl::StatusCode::kFailedPrecondition);
  struct stat facts {};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777u, 0600u);
  EXPECT_FALSE(SurvivingMemory::Open(folder.path()).ok());
  EXPECT_FALSE(SurvivingMemory::Open(folder.path() + "/no/such").ok());
}

}  // namespace
}  // namespace kvist

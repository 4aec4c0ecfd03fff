#include "platform/thread_pool.h"

#include <gtest/gtest.h>

#include <chrono>

namespace kvist {
namespace {

TEST(ThreadPool, RunsEveryWorkerOnceAndEveryIndexOnce) {
  for (uint32_t threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::atomic<int>> workers(threads), items(37);
      pool.Run([&](uint32_t worker) { ++workers[worker]; });
      pool.ForEach(37, [&](uint32_t i) { ++items[i]; });
      for (auto& count : workers) ASSERT_EQ(count, 1);
      for (auto& count : items) ASSERT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, WakesAfterSleeping) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> ran{0};
    pool.Run([&](uint32_t) { ++ran; });
    EXPECT_EQ(ran, 3);
  }
}

constexpr uint32_t kJobs = 60;
constexpr uint32_t PartsOf(uint32_t job) {
  return job * 7 % 13;
}  // Sometimes none.

/// What part `part` of `job` makes from everything that the job before it made.
uint64_t Combine(const std::vector<uint64_t>& before, uint32_t job, uint32_t part) {
  uint64_t sum = job * 31 + part;
  for (uint64_t value : before) sum = sum * 1099511628211u + value;
  return sum;
}

TEST(JobSequence, EachJobSeesAllOfTheJobBeforeAndEveryPartRunsOnce) {
  std::vector<std::vector<uint64_t>> expected(kJobs);
  for (uint32_t job = 0; job < kJobs; ++job) {
    for (uint32_t part = 0; part < PartsOf(job); ++part) {
      expected[job].push_back(Combine(job == 0 ? std::vector<uint64_t>{} : expected[job - 1], job, part));
    }
  }
  for (uint32_t threads : {1u, 2u, 4u}) {
    ThreadPool pool(threads);
    JobSequence jobs;
    for (int round = 0; round < 100; ++round) {
      std::vector<std::vector<uint64_t>> made(kJobs);
      std::atomic<uint32_t> calls{0};
      for (uint32_t job = 0; job < kJobs; ++job) made[job].resize(PartsOf(job));
      const JobSequence::Turn start = jobs.Start();
      pool.Run([&](uint32_t worker) {
        if (worker == 1 && round % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // Comes late.
        JobSequence::Turn turn = start;
        for (uint32_t job = 0; job < kJobs; ++job) {
          jobs.Share(turn, PartsOf(job), [&](uint32_t part) {
            made[job][part] = Combine(job == 0 ? std::vector<uint64_t>{} : made[job - 1], job, part);
            ++calls;
          });
        }
      });
      uint32_t parts = 0;
      for (uint32_t job = 0; job < kJobs; ++job) parts += PartsOf(job);
      ASSERT_EQ(calls, parts);
      ASSERT_EQ(made, expected);
    }
  }
}

TEST(ShareOf, CoversEverythingWithoutOverlap) {
  for (uint32_t count : {0u, 1u, 7u, 1000u}) {
    for (uint32_t parts : {1u, 3u, 16u}) {
      uint32_t next = 0;
      for (uint32_t part = 0; part < parts; ++part) {
        auto [begin, end] = ShareOf(count, part, parts);
        ASSERT_EQ(begin, next);
        next = end;
      }
      ASSERT_EQ(next, count);
    }
  }
}

}  // namespace
}  // namespace kvist

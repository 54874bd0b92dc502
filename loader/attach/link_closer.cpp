// SPDX-License-Identifier: Apache-2.0
#include "loader/attach/link_closer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <utility>

namespace hostrange {
namespace {

// While a link is closed, no process can fork: the kernel keeps address spaces from being copied. So they are gathered.
constexpr std::chrono::seconds kGather(1);
constexpr std::size_t kEnough = 256;

}  // namespace

void close_at_once(std::vector<Link> links) {
    constexpr std::size_t kMostThreads = 16;  // a perf-event link has one probe, so there may be thousands
    std::atomic<std::size_t> next = 0;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < std::min(links.size(), kMostThreads); ++i) {
        threads.emplace_back([&] {
            for (std::size_t one; (one = next++) < links.size();) links[one].reset();
        });
    }
    for (std::thread& thread : threads) thread.join();
}

LinkCloser::~LinkCloser() {
    {
        const std::lock_guard lock(mutex_);
        ends_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void LinkCloser::close(std::vector<Link> links) {
    if (links.empty()) return;
    {
        const std::lock_guard lock(mutex_);
        std::move(links.begin(), links.end(), std::back_inserter(links_));
        if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    }
    changed_.notify_all();
}

void LinkCloser::wait() {
    std::unique_lock lock(mutex_);
    waits_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return links_.empty() && !busy_; });
    waits_ = false;
}

void LinkCloser::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return ends_ || !links_.empty(); });
        changed_.wait_for(lock, kGather, [this] { return ends_ || waits_ || links_.size() >= kEnough; });
        if (links_.empty()) return;
        std::vector<Link> links = std::exchange(links_, {});
        busy_ = true;
        lock.unlock();
        close_at_once(std::move(links));
        lock.lock();
        busy_ = false;
        changed_.notify_all();
    }
}

}  // namespace hostrange

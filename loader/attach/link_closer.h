// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "loader/attach/links.h"

namespace hostrange {

// Closing a link takes its probes out at once and then waits for a grace period, which lasts tens of milliseconds.
// These are for those who have better to do.

// Closes all of them at the same time, and returns when they are closed.
void close_at_once(std::vector<Link> links);

// Closes links in a thread of its own, some at a time.
class LinkCloser {
public:
    LinkCloser() = default;
    ~LinkCloser();  // waits
    LinkCloser(const LinkCloser&) = delete;
    LinkCloser& operator=(const LinkCloser&) = delete;

    void close(std::vector<Link> links);
    void wait();  // until all are closed

private:
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Link> links_;
    bool busy_ = false, waits_ = false, ends_ = false;
    std::thread thread_;
};

}  // namespace hostrange

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>

#include "loader/cli/live_profile.h"

namespace hostrange {

// SIGINT, SIGTERM and SIGHUP arrive as readable events from here on, in all threads started later. Call it first.
void block_ending_signals();
void unblock_ending_signals();  // in a child before exec

// Waits for everything that can happen while a profile runs.
class EventLoop {
public:
    explicit EventLoop(LiveProfile& profile);
    ~EventLoop();

    // Tells when a process is gone. false if it is gone already.
    bool follow(pid_t process);
    bool is_followed(pid_t process) const { return descriptors_.count(process) != 0; }
    std::size_t followed() const { return descriptors_.size(); }

    std::function<void(const hostrange_event&)> on_event;
    std::function<void(pid_t)> on_gone;  // a followed process
    std::function<void(int)> on_signal;  // one of these
    std::function<void()> on_tick;       // about once a second

    // Runs until stop() or the end of the duration.
    void run(std::optional<double> duration_s);
    void stop() { stopped_ = true; }

    double elapsed_s() const;

private:
    void show_progress();

    LiveProfile& profile_;
    int signals_ = -1;
    std::map<pid_t, int> descriptors_;  // pidfds
    bool stopped_ = false;
    bool progress_shown_ = false;
    std::chrono::steady_clock::time_point started_;
};

}  // namespace hostrange

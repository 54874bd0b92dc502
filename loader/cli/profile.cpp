// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "loader/cli/event_loop.h"
#include "loader/cli/live_profile.h"
#include "loader/cli/nothing_found.h"
#include "loader/cli/options.h"
#include "loader/cli/target_process.h"
#include "loader/cli/tell.h"
#include "loader/failure.h"
#include "loader/probes/process_maps.h"
#include "loader/report/text.h"

namespace hostrange {
namespace {

void attach_or_fail(LiveProfile& profile, EventLoop& loop, pid_t process) {
    expect_program(process);
    if (!loop.follow(process)) throw no_such_process(process);
    profile.session().watch(process, false);
    if (!profile.attach_process(process)) throw unreadable_process(process, errno);
}

void say_ready(const LiveProfile& profile, const std::string& whom, const ProfileOptions& options) {
    tell("hostrange-bpf: profiling {}{}: {} of {}, {} in {} ({}); Ctrl-C ends it\n", whom,
         options.duration_s ? fmt::format(" for {:g} s", *options.duration_s) : "",
         counted(profile.attached_functions(), "function"), counted(profile.attached_ranges(), "range"),
         counted(profile.attached_sites(), "site"), counted(profile.attached_files(), "file"),
         attach_mode_name(const_cast<LiveProfile&>(profile).session().mode()));
}

}  // namespace

int profile_processes(const ProfileOptions& options) {
    block_ending_signals();
    LiveProfile profile(options);
    EventLoop loop(profile);
    loop.on_signal = [&](int) { loop.stop(); };
    loop.on_gone = [&](pid_t process) {
        profile.forget_process(process);
        if (loop.followed() == 0 && !options.all_processes) loop.stop();
    };
    loop.on_event = [&](const hostrange_event& event) {
        if (profile.pause_or_resume(event)) return;
        const pid_t process = static_cast<pid_t>(event.process_id);
        if (event.kind == HOSTRANGE_EVENT_FORK) {
            profile.relieve_child_of(static_cast<pid_t>(event.origin_id));
        } else if (options.all_processes) {
            profile.attach_process(process, true);
        } else {
            profile.attach_process_again(event);
        }
    };

    std::string whom;
    if (options.all_processes) {
        whom = "all processes";
        const pid_t self = getpid();
        for (const pid_t process : list_processes()) {
            if (process != self) profile.attach_process(process, true);
        }
        loop.on_tick = [&] { profile.forget_gone_processes(); };
        if (profile.attached_files() == 0) {
            tell("hostrange-bpf: no process maps a file of the probe map yet; waiting for one\n");
        }
    } else {
        for (const pid_t process : options.processes) {
            attach_or_fail(profile, loop, process);
            whom += (whom.empty() ? "" : ", ") + process_name(process);
        }
        const auto& asked = options.processes;
        const bool nothing_attached = profile.attached_files() == 0 && profile.attached_markers() == 0;
        if (nothing_attached && std::all_of(asked.begin(), asked.end(), has_ended)) {
            throw no_such_process(asked.front());
        }
        if (nothing_attached && !profile.unopened_files().empty()) {
            throw Failure(ExitCode::kOtherUser,
                          fmt::format("{} of {} cannot be opened", *profile.unopened_files().begin(), whom),
                          "run it with sudo, or with CAP_SYS_PTRACE too");
        }
        if (nothing_attached) {
            throw nothing_found(profile.map(), whom, profile.plans(), profile.other_files());
        }
        for (const pid_t process : asked) {
            if (profile.is_probed(process)) continue;
            tell("hostrange-bpf: {} maps no file of the probe map yet: nothing of it is seen before it does\n",
                 process_name(process));
        }
    }
    profile.start_reading();
    profile.start_recording(true);
    say_ready(profile, whom, options);
    loop.run(options.duration_s);
    const double duration_s = loop.elapsed_s();
    profile.stop();
    profile.report(duration_s);
    return static_cast<int>(ExitCode::kSuccess);
}

}  // namespace hostrange

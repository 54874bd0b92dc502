// SPDX-License-Identifier: Apache-2.0
#include "loader/cli/target_process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "loader/probes/process_maps.h"

namespace hostrange {

std::string process_name(pid_t process) {
    const std::optional<ProcessDescription> description = describe_process(process);
    return fmt::format("process {}{}", process, description ? fmt::format(" ({})", description->comm) : "");
}

// "Tgid:" of the status file.
static std::optional<pid_t> process_of_thread(pid_t thread) {
    std::ifstream status(fmt::format("/proc/{}/status", thread));
    for (std::string line; std::getline(status, line);) {
        pid_t process = 0;
        if (std::sscanf(line.c_str(), "Tgid: %d", &process) == 1) return process;
    }
    return std::nullopt;
}

bool has_ended(pid_t process) {
    const std::optional<ProcessDescription> description = describe_process(process);
    return !description || !description->has_program;
}

void expect_program(pid_t process) {
    const std::optional<ProcessDescription> description = describe_process(process);
    if (description && description->is_kernel_thread) {
        throw Failure(ExitCode::kNoProcess,
                      fmt::format("process {} ({}) is a kernel thread", process, description->comm),
                      "name a process that runs a program");
    }
    if (!description || !description->has_program) throw no_such_process(process);
    if (const std::optional<pid_t> owner = process_of_thread(process); owner && *owner != process) {
        throw Failure(ExitCode::kNoProcess, fmt::format("{} is a thread of {}", process, process_name(*owner)),
                      fmt::format("name the process: --pid {}", *owner));
    }
}

Failure no_such_process(pid_t process) {
    return Failure(ExitCode::kNoProcess, fmt::format("there is no process {}", process),
                   "it may have ended; `pgrep -a NAME` lists process ids by name");
}

Failure unreadable_process(pid_t process, int error) {
    const std::optional<ProcessDescription> description = describe_process(process);
    if (!description || !description->has_program) return no_such_process(process);
    if (error == EACCES || error == EPERM) {
        return Failure(ExitCode::kOtherUser,
                       fmt::format("the memory map of process {} ({}), of user {}, cannot be opened", process,
                                   description->comm, description->user),
                       geteuid() == 0
                           ? "not even root may here: in a container, give it CAP_SYS_PTRACE and the host's pids"
                           : "run it with sudo, or with CAP_SYS_PTRACE too");
    }
    return Failure(ExitCode::kInternal,
                   fmt::format("reading the memory map of process {}: {}", process, std::strerror(error)),
                   "is /proc mounted?");
}

}  // namespace hostrange

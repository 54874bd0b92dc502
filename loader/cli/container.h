// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

namespace hostrange {

// The container of a process, from its cgroup: the 12 first digits of the 64-digit id that Docker, containerd, CRI-O
// and Podman put there; empty outside a container, or if the process is gone.
std::string container_of_process(pid_t process);

}  // namespace hostrange

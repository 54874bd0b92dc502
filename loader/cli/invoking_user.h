// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace hostrange {

// Who called sudo.
struct InvokingUser {
    uid_t user;
    gid_t group;
    std::vector<gid_t> groups;
    std::string name, home;  // empty if the user has no account here
};

// From SUDO_UID and SUDO_GID; nullopt if this was not started by sudo, or by root through it. Throws Failure if they
// are set to nonsense.
std::optional<InvokingUser> invoking_user();

// Gives up all rights that the invoking user does not have, and sets HOME, USER and LOGNAME. false: errno says why.
// For a child between fork and exec.
bool become(const InvokingUser& user);

}  // namespace hostrange

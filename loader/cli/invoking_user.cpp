// SPDX-License-Identifier: Apache-2.0
#include "loader/cli/invoking_user.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "loader/failure.h"

namespace hostrange {
namespace {

std::optional<unsigned> number_from_environment(const char* name) {
    const char* text = std::getenv(name);
    if (!text) return std::nullopt;
    unsigned number = 0;
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, number);
    if (error != std::errc() || stop != end || number == static_cast<unsigned>(-1)) {
        throw Failure(ExitCode::kUsage, std::string(name) + " is \"" + text + "\", which is no id",
                      "unset it, or let sudo set it");
    }
    return number;
}

}  // namespace

std::optional<InvokingUser> invoking_user() {
    const std::optional<unsigned> user = number_from_environment("SUDO_UID");
    const std::optional<unsigned> group = number_from_environment("SUDO_GID");
    if (geteuid() != 0 || !user || !group || *user == 0) return std::nullopt;
    InvokingUser result{.user = *user, .group = *group, .groups = {*group}, .name = {}, .home = {}};
    if (const passwd* entry = getpwuid(*user)) {
        result.name = entry->pw_name;
        result.home = entry->pw_dir;
        int count = 64;
        result.groups.resize(count);
        if (getgrouplist(entry->pw_name, *group, result.groups.data(), &count) < 0) {
            result.groups.resize(count);
            getgrouplist(entry->pw_name, *group, result.groups.data(), &count);
        }
        result.groups.resize(count);
    }
    return result;
}

bool become(const InvokingUser& user) {
    if (setgroups(user.groups.size(), user.groups.data()) != 0) return false;
    if (setresgid(user.group, user.group, user.group) != 0) return false;
    if (setresuid(user.user, user.user, user.user) != 0) return false;
    if (!user.name.empty()) {
        setenv("USER", user.name.c_str(), 1);
        setenv("LOGNAME", user.name.c_str(), 1);
        setenv("HOME", user.home.c_str(), 1);
    }
    return true;
}

}  // namespace hostrange

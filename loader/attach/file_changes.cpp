// SPDX-License-Identifier: Apache-2.0
#include "loader/attach/file_changes.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace hostrange {

FileChanges::FileChanges() : descriptor_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
    if (descriptor_ < 0) error_ = errno;
}

FileChanges::~FileChanges() {
    if (descriptor_ >= 0) close(descriptor_);
}

bool FileChanges::watch(const FileIdentity& file, const std::string& open_path) {
    // The content is written or cut; a file that is deleted or renamed over stays what it is.
    const int watch = descriptor_ < 0 ? -1 : inotify_add_watch(descriptor_, open_path.c_str(), IN_MODIFY);
    if (descriptor_ < 0) errno = error_;
    if (watch < 0) return false;
    watched_[watch] = file;
    return true;
}

void FileChanges::unwatch(const FileIdentity& file) {
    const auto found =
        std::find_if(watched_.begin(), watched_.end(), [&](const auto& entry) { return entry.second == file; });
    if (found == watched_.end()) return;
    inotify_rm_watch(descriptor_, found->first);
    watched_.erase(found);
}

std::vector<FileIdentity> FileChanges::take() {
    std::vector<FileIdentity> changed;
    alignas(inotify_event) char buffer[4096];
    ssize_t got;
    while (descriptor_ >= 0 && (got = read(descriptor_, buffer, sizeof buffer)) > 0) {
        for (ssize_t at = 0; at < got;) {
            const auto& event = *reinterpret_cast<const inotify_event*>(buffer + at);
            at += static_cast<ssize_t>(sizeof(inotify_event) + event.len);
            const auto found = watched_.find(event.wd);
            if (found == watched_.end() || !(event.mask & IN_MODIFY)) continue;
            changed.push_back(found->second);
            inotify_rm_watch(descriptor_, event.wd);
            watched_.erase(found);
        }
    }
    return changed;
}

}  // namespace hostrange

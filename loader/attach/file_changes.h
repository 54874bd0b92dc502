// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "loader/probes/process_maps.h"

namespace hostrange {

// Tells of probed files whose content is being written. The kernel places a breakpoint by file and offset: a process
// that maps the new content while the probes of the old one are in place gets them amid its instructions. Where the
// kernel gives no inotify instance, no file can be watched.
class FileChanges {
public:
    FileChanges();
    ~FileChanges();
    FileChanges(const FileChanges&) = delete;
    FileChanges& operator=(const FileChanges&) = delete;

    // From here on changes of this file are told. False if it cannot be watched (errno says why).
    bool watch(const FileIdentity& file, const std::string& open_path);
    void unwatch(const FileIdentity& file);

    int descriptor() const { return descriptor_; }  // to poll; -1: there is none

    // Each file that was written since it was watched, once; it is not watched any more.
    std::vector<FileIdentity> take();

private:
    int descriptor_;
    int error_ = 0;                        // why there is none
    std::map<int, FileIdentity> watched_;  // by watch descriptor
};

}  // namespace hostrange

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "loader/probes/process_maps.h"

namespace hostrange {

// Tells of probed files whose content is being written. The kernel places a breakpoint by file and offset: a process
// that maps the new content while the probes of the old one are in place gets them amid its instructions.
class FileChanges {
public:
    FileChanges();  // throws Failure
    ~FileChanges();
    FileChanges(const FileChanges&) = delete;
    FileChanges& operator=(const FileChanges&) = delete;

    // From here on changes of this file are told. False if it cannot be watched (errno says why).
    bool watch(const FileIdentity& file, const std::string& open_path);
    void unwatch(const FileIdentity& file);

    int descriptor() const { return descriptor_; }  // to poll

    // Each file that was written since it was watched, once; it is not watched any more.
    std::vector<FileIdentity> take();

private:
    int descriptor_;
    std::map<int, FileIdentity> watched_;  // by watch descriptor
};

}  // namespace hostrange

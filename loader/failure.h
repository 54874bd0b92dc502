// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace hostrange {

// What the program exits with; docs/exit-codes.md lists them for users. Values follow sysexits.h where one fits.
enum class ExitCode : int {
    kSuccess = 0,
    kUsage = 64,                // wrong options
    kNoProcess = 66,            // the process does not exist, or is gone before anything was attached
    kNoFunction = 67,           // files of the probe map are mapped, but none of their functions can be probed
    kNothingToProbe = 68,       // no mapped file of the probe map
    kKernel = 69,               // the kernel is too old, or lacks something
    kInternal = 70,             // a defect of this program
    kAttach = 71,               // the kernel refused a probe
    kOutput = 73,               // the report cannot be written
    kCapability = 77,           // a capability is missing
    kProbeMap = 78,             // the probe map is wrong
    kNoTypeInformation = 79,    // no BTF of the kernel
    kLockdown = 80,             // the kernel is locked down
    kOtherUser = 81,            // another user's process
    kCommandNotExecuted = 126,  // of `run`, as shells do
    kCommandNotFound = 127,
};

// An error that ends the program: one line with the cause, one with what to do about it. Thrown anywhere, caught in
// main() alone. Errors that a caller can live with are values, not exceptions.
class Failure : public std::runtime_error {
public:
    Failure(ExitCode code, const std::string& cause, std::string hint)
        : std::runtime_error(cause), code_(code), hint_(std::move(hint)) {}

    ExitCode code() const { return code_; }
    const std::string& hint() const { return hint_; }

private:
    ExitCode code_;
    std::string hint_;
};

}  // namespace hostrange

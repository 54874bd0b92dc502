// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <string>

#include "loader/failure.h"

// What is said of a process that was named on the command line.
namespace hostrange {

// "process 12 (python3)"; without the name if there is no such process.
std::string process_name(pid_t process);

// A process may end at any moment; what can be read of it then looks like missing rights, or like a program without
// any library.
bool has_ended(pid_t process);

// Throws Failure if there is no such process, or it is a kernel thread or has ended.
void expect_program(pid_t process);

Failure no_such_process(pid_t process);

// Why its memory map was not read: `error` is what errno was.
Failure unreadable_process(pid_t process, int error);

}  // namespace hostrange
